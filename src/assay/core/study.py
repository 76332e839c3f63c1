"""What is run: a study's arms, cases and scales, and the trials that they make together."""

from __future__ import annotations

import importlib
import importlib.util
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.device import gpu_names
from assay.core.errors import AssayError, InputError, MissingPackageError

if TYPE_CHECKING:
    from assay.core.card import Card
    from assay.core.claim import Claim

__all__ = ["Arm", "Case", "Role", "Scale", "Study", "Trial", "load_part", "load_study", "user_arm"]

Role = Literal["method", "ablation", "baseline", "peer", "control", "user"]
Settings = Mapping[str, Any]
A_GPU = "a GPU"


@dataclass(frozen=True)
class Arm:
    """One competitor in a study.

    Parameters
    ----------
    settings : mapping
        What tells the trial function how to run this arm (JSON values; part of the ledger's key).
    role : str
        What the arm is for: the method, an ablation of it, a baseline, a peer library, a control, or a user's own.
    label : str
        A few words for tables; the arm's name when empty.
    needs : sequence of str
        Modules that must be importable, such as ``("mlpack",)``; the arm isn't run without them.
    threads : int
        How many threads a trial of this arm may use.
    gpu : bool
        Whether a trial needs a device of its own.
    function : callable, optional
        What a user's arm calls; the study's `arm_signature` says with what.
    """

    settings: Settings = field(default_factory=dict)
    role: Role = "method"
    label: str = ""
    needs: tuple[str, ...] = ()
    threads: int = 1
    gpu: bool = False
    function: Callable[..., Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Case:
    """One input of a study: a data set, an environment, a model, a size.

    Parameters
    ----------
    name : str
        Unique in its scale.
    settings : mapping
        What tells the trial function how to make the input (JSON values; part of the ledger's key).
    arms : sequence of str, optional
        Patterns of the arms that run on this case; all when left out.
    needs : sequence of str
        Modules that must be importable.
    lacks : callable, optional
        Says what else the case needs and this machine lacks, such as a data file, in words; empty for nothing.
    seeds : int, optional
        How many seeds this case runs, where the scale's number isn't right for it.
    alone : bool
        Run this case's trials one at a time, with nothing else on the machine: for measurements of time.
    own_process : bool
        Run each of this case's trials in a process of its own: for measurements of memory.
    """

    name: str
    settings: Settings = field(default_factory=dict)
    arms: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()
    lacks: Callable[[], str] | None = field(default=None, compare=False)
    seeds: int | None = None
    alone: bool = False
    own_process: bool = False

    def takes(self, arm: str) -> bool:
        """Whether `arm` runs on this case (a user's arm always does)."""
        return self.arms is None or any(fnmatchcase(arm, pattern) for pattern in self.arms)


@dataclass(frozen=True)
class Scale:
    """How large a study is run.

    Parameters
    ----------
    cases : sequence of Case
        The inputs.
    seeds : int
        Seeds 0, 1, …, seeds - 1 are run. Settings must have been fixed on other seeds.
    limit_seconds : float
        A trial that takes longer is stopped and recorded as such.
    requires : str
        What the scale needs beyond an ordinary machine, in words ("a GPU and the hub's models"); empty for none.
    """

    cases: tuple[Case, ...]
    seeds: int = 3
    limit_seconds: float = 300.0
    requires: str = ""


@dataclass
class Trial:
    """One arm on one case with one seed, as the study's trial function receives it."""

    method: str
    arm: str
    case: str
    seed: int
    scale: str
    arm_settings: Settings = field(default_factory=dict)
    case_settings: Settings = field(default_factory=dict)
    threads: int = 1
    gpu: bool = False
    function: Callable[..., Any] | None = None
    device: str = "cpu"
    artifacts: dict[str, bytes] = field(default_factory=dict)

    def rng(self, purpose: str = "") -> np.random.Generator:
        """A generator that depends on case, seed and purpose, and not on the arm: paired arms see equal inputs."""
        words = (zlib.crc32(self.method.encode()), zlib.crc32(self.case.encode()), zlib.crc32(purpose.encode()))
        return np.random.default_rng([self.seed, *words])

    def keep(self, name: str, data: bytes) -> None:
        """Keep an artifact (a picture, a table, a sound) beside the measurements; `name` ends in its file type."""
        if "/" in name or name.startswith("."):
            raise ValueError(f"artifact name {name!r}: expected a plain file name")
        self.artifacts[name] = data


@dataclass(frozen=True)
class Study:
    """A method's arms, cases, scales and claims.

    Parameters
    ----------
    trial : callable
        ``(Trial) -> dict[str, float]``: runs one trial and returns named measurements. A function of a module, since
        other processes import it.
    arms : mapping of str to Arm
        The competitors.
    scales : mapping of str to Scale
        ``smoke``, ``laptop`` and ``paper``.
    claims : sequence of Claim
        What is concluded.
    arm_signature : str
        What a user's own arm must be, in words and with a signature; empty when the study takes none.
    measures : mapping of str to str
        What each measurement is and its unit, for tables.
    """

    trial: Callable[[Trial], Mapping[str, float]]
    arms: Mapping[str, Arm]
    scales: Mapping[str, Scale]
    claims: tuple[Claim, ...]
    arm_signature: str = ""
    measures: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) != len(ids):
            raise ValueError(f"claims share an id: {sorted({one for one in ids if ids.count(one) > 1})}")
        for scale_name, scale in self.scales.items():
            names = [case.name for case in scale.cases]
            if len(set(names)) != len(names):
                raise ValueError(f"cases of scale {scale_name!r} share a name")

    def with_arm(self, name: str, arm: Arm) -> Study:
        """The same study with one arm more."""
        if name in self.arms:
            raise InputError(f"the study has an arm '{name}' already", expected="another name")
        return replace(self, arms={**self.arms, name: arm})

    def scale(self, name: str) -> Scale:
        """The scale of that name.

        Raises
        ------
        InputError
            The study has no such scale.
        """
        if name not in self.scales:
            raise InputError(f"no scale '{name}'", expected=f"one of: {', '.join(self.scales)}")
        return self.scales[name]

    def trials(
        self,
        method: str,
        scale_name: str,
        *,
        seeds: int | None = None,
        cases: Sequence[str] = (),
        arms: Sequence[str] = (),
    ) -> Iterator[Trial]:
        """All trials of a scale, arms interleaved: seed by seed, case by case, and within a case arm after arm.

        The order of the arms rotates from seed to seed, so that none always runs first.

        Parameters
        ----------
        method : str
            The method's name.
        scale_name : str
            Which scale.
        seeds : int, optional
            Run that many seeds instead of the scale's number.
        cases, arms : sequence of str
            Only the cases and arms that match one of these patterns; all when empty.

        Raises
        ------
        InputError
            A pattern matches nothing, or `seeds` is below 1.
        """
        scale = self.scale(scale_name)
        if seeds is not None and seeds < 1:
            raise InputError(f"seeds is {seeds}", expected="at least 1")
        chosen_cases = _matching("case", [case.name for case in scale.cases], cases)
        chosen_arms = _matching("arm", list(self.arms), arms)
        seed_counts = {case.name: seeds or case.seeds or scale.seeds for case in scale.cases}
        for seed in range(max(seed_counts.values(), default=0)):
            for case in scale.cases:
                if case.name not in chosen_cases or seed >= seed_counts[case.name]:
                    continue
                names = [arm for arm in chosen_arms if self.arms[arm].role == "user" or case.takes(arm)]
                turn = seed % len(names) if names else 0
                for name in names[turn:] + names[:turn]:
                    arm = self.arms[name]
                    yield Trial(
                        method=method,
                        arm=name,
                        case=case.name,
                        seed=seed,
                        scale=scale_name,
                        arm_settings=dict(arm.settings),
                        case_settings=dict(case.settings),
                        threads=arm.threads,
                        gpu=arm.gpu,
                        function=arm.function,
                    )

    def case(self, trial: Trial) -> Case:
        """The case of a trial."""
        return next(case for case in self.scale(trial.scale).cases if case.name == trial.case)

    def lacking(self, trial: Trial) -> tuple[str, ...]:
        """What a trial needs and this machine lacks: modules, data, and a GPU."""
        arm, case = self.arms[trial.arm], self.case(trial)
        lacking = tuple(module for module in (*arm.needs, *case.needs) if not _installed(module))
        if case.lacks is not None and (what := case.lacks()):
            lacking = (*lacking, what)
        return (*lacking, A_GPU) if arm.gpu and not gpu_names() else lacking


def load_study(card: Card) -> Study:
    """Import the study of a method.

    Raises
    ------
    MissingPackageError
        A package that the method needs isn't installed.
    AssayError
        The study can't be loaded, for a reason that lies in the method's package.
    """
    if card.missing:
        raise MissingPackageError(card.missing[0], what=f"the study of {card.name}", extra=card.extra or None)
    study = getattr(load_part(card, "study"), "STUDY", None)
    if not isinstance(study, Study):
        raise AssayError(f"{card.package}.study holds no STUDY")
    return study


def load_part(card: Card, part: str) -> ModuleType:
    """Import a module of a method's package.

    Raises
    ------
    AssayError
        The import fails, whatever the reason.
    """
    try:
        return importlib.import_module(f"{card.package}.{part}")
    except (Exception, SystemExit) as error:
        raise AssayError(f"{card.package}.{part} can't be loaded: {type(error).__name__}: {error}") from error


def user_arm(study: Study, reference: str) -> tuple[str, Arm]:
    """Make an arm of ``"module:function"``.

    Raises
    ------
    InputError
        The reference has another form, the module can't be imported, or holds no such function.
    """
    if not study.arm_signature:
        raise InputError("this study takes no arm of a user's own")
    module_name, separator, function_name = reference.partition(":")
    if not (module_name and separator and function_name):
        raise InputError(f"arm '{reference}'", expected="module:function, such as mypkg.mymod:my_tree")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(f"arm '{reference}': {error}", expected="a module that can be imported from here") from error
    function = getattr(module, function_name, None)
    if function is not None and not callable(function):
        kind = type(function).__name__
        raise InputError(f"arm '{reference}' is of type {kind}, not a function", expected=study.arm_signature)
    if function is None:
        raise InputError(
            f"arm '{reference}': {module_name} has no function {function_name}", expected=study.arm_signature
        )
    return reference, Arm(role="user", label=function_name, function=function, settings={"function": reference})


def _matching(word: str, names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(f"no {word} '{pattern}'", expected=f"one of: {', '.join(names)}")
    return [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
