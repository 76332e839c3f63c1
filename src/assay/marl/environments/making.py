"""Environments by a word, as the command line has them, or from a function that makes them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import existing_file
from assay.marl.environments.chain import ChainGame
from assay.marl.environments.gymnasium import GymnasiumTeam, foraging_is_done, make_gymnasium
from assay.marl.environments.instances import InstanceEnv, Team
from assay.marl.environments.matrix import MatrixGame
from assay.marl.environments.pettingzoo import PettingZooTeam
from assay.marl.environments.pymarl import PyMARLTeam, make_football, make_smac, make_smacv2
from assay.marl.environments.smax import SMAXEnv, make_smax
from assay.marl.environments.stag_hunt import StagHunt
from assay.marl.environments.standardised import Standardisation, StandardisedRewards
from assay.marl.environments.vector import VecEnv
from assay.marl.payoff_files import read_payoff
from assay.marl.rewards import Scalarisation, require_scalarisation

__all__ = ["make_vec_env"]

KINDS = (
    "chain",
    "factory",
    "football",
    "gym",
    "lbf",
    "matrix",
    "mpe",
    "pettingzoo",
    "rware",
    "smac",
    "smacv2",
    "smax",
    "staghunt",
)


def make_vec_env(
    env: str | Callable[[], Any],
    n: int = 16,
    *,
    reward: Scalarisation | None = None,
    standardise: Standardisation | None = None,
    horizon: int | None = None,
    render: bool = False,
    seed: int = 0,
    **options: Any,
) -> VecEnv:
    """Make N instances of an environment.

    Parameters
    ----------
    env : str or callable
        What to make, or a function of no arguments that makes one instance: a PettingZoo parallel environment, a
        Gymnasium environment with a tuple of actions, an object with the methods of PyMARL's `MultiAgentEnv` or of
        JaxMARL, or a `VecEnv`. As a word, with options after commas:

        - ``matrix:payoff.csv``: `MatrixGame`; also ``.npy``; ``matrix:payoff.csv,noise=0.5``
        - ``chain:3``: `ChainGame` of three stages, or of the payoffs of a ``.npy`` file
        - ``staghunt:penalty=-2``: `StagHunt`; ``staghunt:grid=8x8,n_agents=3`` and so on
        - ``lbf:Foraging-8x8-2p-2f-coop-v3``: level-based foraging
        - ``rware:rware-tiny-2ag-v2``: the robotic warehouse
        - ``mpe:simple_spread_v3``: a particle environment of mpe2
        - ``smax:3m``: SMAX, with JAX
        - ``smac:3m``, ``smacv2:terran_5_vs_5``, ``football:academy_3_vs_1_with_keeper``: where the game is installed
        - ``gym:NAME``: a registered Gymnasium environment
        - ``pettingzoo:package.module``: a module with a function `parallel_env`
        - ``factory:package.module:make``: a function of yours
    n : int
        Instances, N.
    reward : {"sum", "mean"}, optional
        How to make one reward of those of the agents; needed where they differ.
    standardise : {"scale", "full"}, optional
        Divide rewards by their running standard deviation; see `StandardisedRewards`.
    horizon : int, optional
        Where to truncate the episodes of somebody's environment, besides what it does itself.
    render : bool
        Whether pictures will be asked for.
    seed : int
        Of what happens in the environment.
    **options
        For the environment, besides those of the word.

    Returns
    -------
    VecEnv

    Raises
    ------
    InputError
        There is no such environment, or it can't be learned from.
    MissingPackageError
        The package that holds it isn't installed.

    Examples
    --------
    >>> env = make_vec_env("staghunt:penalty=-2,grid=5x5", n=8)
    >>> env.n, env.spec.n_agents, env.spec.n_actions
    (8, 4, 6)
    """
    require_scalarisation(reward)
    if n < 1:
        raise InputError(f"n is {n}", expected="at least 1")
    if horizon is not None and horizon < 1:
        raise InputError(f"horizon is {horizon}", expected="at least 1")
    if callable(env):
        made = _of_factory(
            env, n, name=getattr(env, "__name__", "factory"), reward=reward, horizon=horizon, seed=seed, options=options
        )
    else:
        made = _of_word(env, n, reward=reward, horizon=horizon, render=render, seed=seed, options=options)
    return made if standardise is None else StandardisedRewards(made, standardise)


def _of_word(
    word: str,
    n: int,
    *,
    reward: Scalarisation | None,
    horizon: int | None,
    render: bool,
    seed: int,
    options: Mapping[str, Any],
) -> VecEnv:
    kind, target, given = _parsed(word)
    given |= options
    own = {"n": n, "seed": seed}
    if kind in ("matrix", "chain", "staghunt"):
        if horizon is not None and kind != "staghunt":
            raise InputError(f"horizon is {horizon}", expected=f"no horizon for {kind}: its episodes end by themselves")
        if horizon is not None:
            given["horizon"] = horizon
        with_own: Callable[..., VecEnv] = {"matrix": _matrix, "chain": _chain, "staghunt": _stag_hunt}[kind]
        ours: VecEnv = _called(with_own, word, target, given | own)
        return ours
    if kind == "smax":
        if horizon is not None:
            given["max_steps"] = horizon
        battles: VecEnv = _called(make_smax, word, target, given | own | {"reward": reward})
        return battles

    def team() -> Team:
        if kind in ("lbf", "rware"):
            module = {"lbf": "lbforaging", "rware": "rware"}[kind]
            inner = make_gymnasium(target, module=module, render=render, **given)
            return GymnasiumTeam(inner, is_done=foraging_is_done if kind == "lbf" else None)
        if kind == "gym":
            return GymnasiumTeam(make_gymnasium(target, render=render, **given))
        if kind in ("mpe", "pettingzoo"):
            return PettingZooTeam(_parallel_env(kind, target, render=render, options=given))
        if kind == "football":
            return make_football(target, **given)
        return PyMARLTeam({"smac": make_smac, "smacv2": make_smacv2}[kind](target, **given))

    if kind == "factory":
        return _of_factory(_imported(target), n, name=target, reward=reward, horizon=horizon, seed=seed, options=given)
    return InstanceEnv([team() for _ in range(n)], reward=reward, horizon=horizon, seed=seed)


def _of_factory(
    make: Callable[..., Any],
    n: int,
    *,
    name: str,
    reward: Scalarisation | None,
    horizon: int | None,
    seed: int,
    options: Mapping[str, Any],
) -> VecEnv:
    first = _called(make, name, None, dict(options))
    if isinstance(first, VecEnv):
        return first
    if hasattr(first, "step_env") and hasattr(first, "get_avail_actions"):
        return SMAXEnv(first, n, reward=reward, name=name, seed=seed)
    others = [make(**options) for _ in range(n - 1)]
    return InstanceEnv([_team(env) for env in (first, *others)], reward=reward, horizon=horizon, seed=seed)


def _team(env: Any) -> Team:
    """What kind of environment an object is, by its methods."""
    if isinstance(env, Team):
        return env
    if hasattr(env, "possible_agents"):
        return PettingZooTeam(env)
    if hasattr(env, "get_env_info"):
        return PyMARLTeam(env)
    if hasattr(env, "action_space") and hasattr(env, "observation_space"):
        return GymnasiumTeam(env)
    raise InputError(
        f"{type(env).__name__} is no environment that is known",
        expected="a PettingZoo parallel environment, a Gymnasium environment with a tuple of actions, or an object "
        "with the methods of PyMARL's MultiAgentEnv",
    )


def _parsed(word: str) -> tuple[str, str, dict[str, Any]]:
    """``kind:target,name=value`` in its parts; stag hunt has no target."""
    kind, _, rest = word.partition(":")
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InputError(f"the environment is {word!r}", expected=f"one of {', '.join(KINDS)} and a colon{hint}")
    parts = [part for part in rest.split(",") if part]
    target = parts.pop(0) if parts and "=" not in parts[0] else ""
    if not target and kind != "staghunt":
        raise InputError(f"the environment is {word!r}", expected=f"a name after {kind}:")
    given = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InputError(f"{part!r} in {word!r} is no option", expected="name=value")
        given[name] = _value(value)
    return kind, target, given


def _value(text: str) -> Any:
    """A number, a pair of numbers (6x6), a truth value, or the text."""
    rows, times, columns = text.partition("x")
    if times and rows.isdigit() and columns.isdigit():
        return int(rows), int(columns)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _called(make: Callable[..., Any], word: str, target: str | None, given: dict[str, Any]) -> Any:
    """Call a maker, and say of an option that it doesn't have that it hasn't."""
    try:
        return make(**given) if target is None else make(target, **given)
    except TypeError as error:
        raise InputError(f"{word!r} can't be made: {error}", expected="options that the environment has") from error


def _matrix(target: str, **given: Any) -> MatrixGame:
    return MatrixGame(read_payoff(target), **given)


def _chain(target: str, **given: Any) -> ChainGame:
    if target.isdigit():
        return ChainGame(int(target), **given)
    payoffs = np.load(existing_file(target, suffixes=(".npy",)), allow_pickle=False)
    return ChainGame(payoffs, **given)


def _stag_hunt(target: str, **given: Any) -> StagHunt:
    if target:
        raise InputError(f"'staghunt:{target}' has a name", expected="options alone, as staghunt:penalty=-2,grid=6x6")
    return StagHunt(**given)


def _parallel_env(kind: str, target: str, *, render: bool, options: Mapping[str, Any]) -> Any:
    name = f"mpe2.{target}" if kind == "mpe" else target
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if kind == "mpe" and getattr(error, "name", None) == name:
            raise InputError(f"mpe2 has no environment {target!r}", expected="one such as simple_spread_v3") from error
        if kind == "mpe":
            raise MissingPackageError("mpe2", what=f"mpe:{target}", extra="marl-envs") from error
        raise InputError(f"{name} can't be imported: {error}", expected="a module that is installed") from error
    make = getattr(module, "parallel_env", None)
    if make is None:
        raise InputError(f"{name} has no function parallel_env", expected="a module of a PettingZoo environment")
    return make(**options, **({"render_mode": "rgb_array"} if render else {}))


def _imported(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"'factory:{target}' can't be imported: {error}", expected="package.module:function"
        ) from error
    if not callable(make):
        raise InputError(f"'factory:{target}' is no function", expected="package.module:function")
    found: Callable[..., Any] = make
    return found
