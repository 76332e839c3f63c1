"""Tasks for the offline world: what is asked, in plain words and in hidden ones, and the calls that answer it.

Parallel tasks join tools that have nothing to do with each other. Sequential ones are walks over the typed edges of the
world, along which one tool's result is the next one's argument. A DAG is two chains whose results meet in one call.
Every reference is executed, so its results and dependencies are real.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from assay.core.errors import InputError
from assay.tooluse.formats._builder import as_text
from assay.tooluse.trajectories import Call, Edge, Gold, Structure
from assay.tooluse.world import ToolWorld
from assay.tooluse.world._registry import KINDS, Declared, declared

__all__ = ["DIFFICULTIES", "make_tasks", "paraphrases", "recover"]

DIFFICULTIES = ("simple", "hard")
TRIES, JOINS = 400, 20
"""Attempts at a trajectory that runs without error, and at a chain that meets another."""
FRAMES = (
    "I'd like to know {}.",
    "Could you find out {}?",
    "Please tell me {}.",
    "I keep wondering {}.",
    "For my notes I need this: {}.",
    "One thing to clear up: {}.",
)
ORDERS = (
    "Please {}.",
    "Kindly {}.",
    "I need you to {}.",
    "Be so good as to {}.",
    "Go ahead and {}.",
    "Next thing: {}.",
)
"""Frames of questions, and of orders: with two ways to say each wish, twelve ways for every tool."""
ORDERING = frozenset(
    {"send_mail", "delete_mail", "read_mail", "add_event", "move_event", "cancel_event", "cart_add", "cart_remove"}
)
BOUND_HARD = "that"
"""One word, so that a value beside it stays apart."""
BOUND_SIMPLE = "the {field} from {producer}"


@dataclass(frozen=True, slots=True)
class _Step:
    """A call to be made: its tool, its own arguments, and those that earlier results give."""

    declared: Declared
    own: Mapping[str, Any]
    bound: tuple[tuple[str, int, str], ...] = ()


def make_tasks(
    n_tools: int | Sequence[int] = tuple(range(3, 11)),
    structure: Structure = "parallel",
    difficulty: str = "both",
    seed: int = 0,
    *,
    per_n: int = 40,
    world: ToolWorld | None = None,
) -> list[Gold]:
    """Make tasks with executed references.

    Parameters
    ----------
    n_tools : int or sequence of int
        How many calls a reference has.
    structure : {'parallel', 'sequential', 'dag'}
        Independent calls; a chain in which each call needs the one before; or two chains that meet.
    difficulty : {'simple', 'hard', 'both'}
        Whether the query names tools and parameters, or neither; ``both`` makes twins with one reference.
    seed : int
        The same seed gives the same tasks.
    per_n : int
        Trajectories for each number of calls.
    world : ToolWorld, optional
        Where references are executed.

    Returns
    -------
    list of Gold

    Raises
    ------
    InputError
        A number or word is out of range.

    Examples
    --------
    >>> simple, hard = make_tasks(3, "sequential", seed=1, per_n=1)
    >>> simple.twin_id == hard.twin_id, len(simple.calls), len(simple.edges) >= 2
    (True, 3, True)
    """
    sizes = (n_tools,) if isinstance(n_tools, int) else tuple(n_tools)
    least = 3 if structure == "dag" else 1
    if not sizes or min(sizes) < least or max(sizes) > 40:
        raise InputError(f"n_tools is {n_tools}", expected=f"from {least} to 40")
    if difficulty not in (*DIFFICULTIES, "both"):
        raise InputError(f"difficulty is '{difficulty}'", expected="simple, hard or both")
    if structure not in ("parallel", "sequential", "dag"):
        raise InputError(f"structure is '{structure}'", expected="parallel, sequential or dag")
    if seed < 0:
        raise InputError(f"seed is {seed}", expected="0 or more")
    if per_n < 1:
        raise InputError(f"per_n is {per_n}", expected="at least 1")
    world = world or ToolWorld.load()
    chosen = DIFFICULTIES if difficulty == "both" else (difficulty,)
    found: list[Gold] = []
    for n in sizes:
        for number in range(per_n):
            rng = np.random.default_rng([seed, n, number, ("parallel", "sequential", "dag").index(structure)])
            steps, calls = _runnable(rng, n, structure, world)
            for level in chosen:
                found.append(_task(f"{structure}-{n}-{seed}-{number}", level, structure, steps, calls, rng, world))
    return found


def _task(
    name: str,
    level: str,
    structure: Structure,
    steps: Sequence[_Step],
    calls: Sequence[Call],
    rng: np.random.Generator,
    world: ToolWorld,
) -> Gold:
    edges = tuple(
        Edge(producer, consumer, parameter, f"$.{field}")
        for consumer, step in enumerate(steps)
        for parameter, producer, field in step.bound
    )
    domains = {step.declared.tool.domain for step in steps}
    query = _simple(steps) if level == "simple" else _hard(steps, rng)
    facts = [as_text(leaf) for call in calls for leaf in call.result.values() if not isinstance(leaf, bool | list)]
    final = "; ".join(f"{call.name}: {as_text(call.result)}" for call in calls)
    return Gold(
        [replace(call) for call in calls],
        structure,
        f"{name}-{level}",
        query,
        edges,
        difficulty=level,
        twin_id=name,
        domain=domains.pop() if len(domains) == 1 else "",
        final_answer=final,
        facts=tuple(dict.fromkeys(fact for fact in facts if fact)),
        end_state=world.snapshot() if any(step.declared.stateful for step in steps) else None,
    )


def _runnable(
    rng: np.random.Generator, n: int, structure: Structure, world: ToolWorld
) -> tuple[list[_Step], list[Call]]:
    """Steps that run without error, and the calls they make."""
    for _ in range(TRIES):
        steps = {"parallel": _parallel, "sequential": _chain, "dag": _dag}[structure](rng, n, world)
        if steps is None:
            continue
        calls = _execute(steps, world)
        if calls is not None:
            return steps, calls
    raise InputError(f"no {structure} trajectory of {n} calls was found", expected="fewer calls")


def _execute(steps: Sequence[_Step], world: ToolWorld) -> list[Call] | None:
    world.reset()
    calls: list[Call] = []
    for index, step in enumerate(steps):
        args = dict(step.own)
        for parameter, producer, field in step.bound:
            args[parameter] = calls[producer].result[field]
        ordered = {parameter: args[parameter] for parameter in step.declared.takes}
        result = world.call(step.declared.tool.name, ordered)
        if "error" in result or "" in result.values():
            return None
        calls.append(Call(step.declared.tool.name, ordered, index=index, turn=index, result=result))
    return calls


def _sample(rng: np.random.Generator, declared: Declared, leave: Sequence[str] = ()) -> dict[str, Any] | None:
    """Values for the parameters that nothing gives; none where a kind has no samples."""
    own: dict[str, Any] = {}
    for parameter, kind in declared.takes.items():
        if parameter in leave:
            continue
        samples = [one for one in KINDS[kind].samples if one not in own.values()]
        if not samples:
            return None
        own[parameter] = samples[int(rng.integers(len(samples)))]
    return own


def _startable(world: ToolWorld) -> list[Declared]:
    """Tools that can be called without an earlier result, and whose call makes sense alone."""
    later = {"delete_mail", "read_mail", "move_event", "cancel_event", "cart_remove", "cart_total"}
    return [one for one in world.declarations.values() if one.tool.name not in later]


def _parallel(rng: np.random.Generator, n: int, world: ToolWorld) -> list[_Step] | None:
    """Different tools; half of the tasks stay in as few domains as they can."""
    able = [one for one in _startable(world) if one.takes]
    if rng.random() < 0.5:
        domains = list(dict.fromkeys(one.tool.domain for one in able))
        order = {domain: place for place, domain in enumerate(rng.permutation(domains))}
        able = sorted(able, key=lambda one: (order[one.tool.domain], one.tool.name))[: max(n, 8)]
    picked = [able[i] for i in rng.permutation(len(able))[:n]]
    steps = [(one, _sample(rng, one)) for one in picked]
    return [_Step(one, own) for one, own in steps if own is not None] if all(own for _, own in steps) else None


def _follow(
    rng: np.random.Generator, steps: Sequence[_Step], producers: Sequence[int], world: ToolWorld, *, every: bool = False
) -> _Step | None:
    """A tool that takes something from a producer (or from each of them), and hasn't just been called."""
    used = [step.declared.tool.name for step in steps]
    options: list[_Step] = []
    for other in world.declarations.values():
        if other.tool.name in used[-2:] or used.count(other.tool.name) > 1:
            continue
        bound: list[tuple[str, int, str]] = []
        for producer in producers:
            taken = {parameter for parameter, _, _ in bound}
            given = _bindings(steps[producer].declared.tool.name, other.tool.name)
            new = [(parameter, producer, field) for field, parameter in given if parameter not in taken]
            bound += new[:1] if every else _once(new)
        if len({producer for _, producer, _ in bound}) < (len(producers) if every else 1):
            continue
        own = _sample(rng, other, [parameter for parameter, _, _ in bound])
        if own is not None:
            options.append(_Step(other, own, tuple(bound)))
    return options[int(rng.integers(len(options)))] if options else None


def _once(bound: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """Each field for the first parameter that takes it."""
    return list({(producer, field): (p, producer, field) for p, producer, field in reversed(bound)}.values())[::-1]


@cache
def _bindings(producer: str, consumer: str) -> tuple[tuple[str, str], ...]:
    """All pairs of a field of the producer and a parameter of the consumer of the same kind, in order of parameters."""
    gives, takes = declared()[producer].gives, declared()[consumer].takes
    used: set[str] = set()
    found = []
    for parameter, kind in takes.items():
        if not KINDS[kind].binds:
            continue
        fields = [field for field, given in gives.items() if given == kind]
        fresh = [field for field in fields if field not in used] or fields
        if fresh:
            used.add(fresh[0])
            found.append((fresh[0], parameter))
    return tuple(found)


def _chain(rng: np.random.Generator, n: int, world: ToolWorld, steps: list[_Step] | None = None) -> list[_Step] | None:
    steps = [] if steps is None else steps
    starts = [one for one in _startable(world) if any(KINDS[kind].binds for kind in one.gives.values())]
    first = starts[int(rng.integers(len(starts)))]
    own = _sample(rng, first)
    if own is None:
        return None
    steps.append(_Step(first, own))
    for _ in range(n - 1):
        step = _follow(rng, steps, [len(steps) - 1], world)
        if step is None:
            return None
        steps.append(step)
    return steps


def _dag(rng: np.random.Generator, n: int, world: ToolWorld) -> list[_Step] | None:
    """Two chains, and a call that takes something from both ends; the second chain is drawn until there is one."""
    left = 1 + int(rng.integers(n - 2))
    first = _chain(rng, left, world)
    if first is None:
        return None
    for _ in range(JOINS):
        both = _chain(rng, n - 1 - left, world, list(first))
        join = None if both is None else _follow(rng, both, [left - 1, n - 2], world, every=True)
        if both is not None and join is not None:
            return [*both, join]
    return None


def _simple(steps: Sequence[_Step]) -> str:
    """Every tool and parameter by its name."""
    sentences = []
    for number, step in enumerate(steps, start=1):
        parts = [f"{_spaced(p)} {_shown(v)}" for p, v in step.own.items()]
        for parameter, producer, field in step.bound:
            source = BOUND_SIMPLE.format(field=_spaced(field), producer=f"step {producer + 1}")
            parts.append(f"{_spaced(parameter)} from {source.removeprefix('the ')}")
        joined = f" with {', '.join(parts)}" if parts else ""
        sentences.append(f"{number}. Use {_spaced(step.declared.tool.name)}{joined}.")
    return " ".join(sentences)


def _hard(steps: Sequence[_Step], rng: np.random.Generator) -> str:
    sentences = []
    for step in steps:
        every = paraphrases(step.declared)
        chosen = every[int(rng.integers(len(every)))]
        values = {p: _shown(v) for p, v in step.own.items()} | {p: BOUND_HARD for p, _, _ in step.bound}
        sentences.append(chosen.format(**values))
    return " ".join(sentences)


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def paraphrases(declared: Declared) -> list[str]:
    """All ways in which a hard query asks for a tool, with a place for each parameter.

    Parameters
    ----------
    declared : Declared
        A tool of the world.

    Returns
    -------
    list of str
    """
    frames = ORDERS if declared.tool.name in ORDERING else FRAMES
    return [frame.format(wish) for wish in declared.hard for frame in frames]


def recover(sentence: str, declared: Declared) -> dict[str, str] | None:
    """The values that a hard sentence gives to a tool's parameters, as text; None where it doesn't ask for the tool.

    Parameters
    ----------
    sentence : str
        A sentence of a hard query.
    declared : Declared
        The tool.

    Returns
    -------
    dict of str to str, or None
    """
    for text in paraphrases(declared):
        found = re.fullmatch(_pattern(text), sentence)
        if found:
            return found.groupdict()
    return None


def _pattern(text: str) -> str:
    parts = re.split(r"\{(\w+)\}", text)
    return "".join(re.escape(part) if i % 2 == 0 else f"(?P<{part}>.+?)" for i, part in enumerate(parts))


def sentences(query: str, declared: Sequence[Declared]) -> Iterator[tuple[Declared, dict[str, str]]]:
    """What a hard query asks for, tool after tool, by the grammars that made it."""
    rest = query
    for one in declared:
        best: tuple[int, dict[str, str]] | None = None
        for text in paraphrases(one):
            found = re.match(_pattern(text) + r"(?=$| )", rest)
            if found and (best is None or found.end() < best[0]):
                best = found.end(), found.groupdict()
        if best is None:
            raise InputError(f"the query doesn't ask for {one.tool.name}", expected="a query of this grammar")
        yield one, best[1]
        rest = rest[best[0] :].lstrip()
