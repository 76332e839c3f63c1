"""Agents without a model, whose errors are known: what scores and labels must find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from assay.tooluse.trajectories import Call, Gold, Tool, Trajectory
from assay.tooluse.world import ToolWorld

__all__ = [
    "ScriptedAgent",
    "add_calls",
    "confuse_tools",
    "ignore_parameters",
    "shuffle_calls",
    "wrong_arguments",
    "wrong_names",
]

ScriptedAgent: TypeAlias = Callable[[Gold, np.random.Generator], "Trajectory | None"]
SPOILED = "(spoiled)"


def _run(gold: Gold, calls: Sequence[Call]) -> Trajectory:
    renumbered = [replace(call, index=i, turn=i) for i, call in enumerate(calls)]
    return Trajectory(renumbered, id=gold.id, query=gold.query)


def wrong_names(gold: Gold, rng: np.random.Generator, *, rate: float, names: Sequence[str]) -> Trajectory:
    """Each call has another name with a probability of `rate`, independently; the name is of no reference call."""
    others = sorted(set(names) - {call.name for call in gold.calls})
    calls = [
        replace(call, name=others[int(rng.integers(len(others)))], result=None) if rng.random() < rate else call
        for call in gold.calls
    ]
    return _run(gold, calls)


def wrong_arguments(gold: Gold, rng: np.random.Generator, *, rate: float) -> Trajectory:
    """Each call has a spoiled argument with a probability of `rate`, independently."""
    calls = [
        replace(call, args={**call.args, next(iter(call.args), "none"): SPOILED}) if rng.random() < rate else call
        for call in gold.calls
    ]
    return _run(gold, calls)


def add_calls(gold: Gold, rng: np.random.Generator) -> Trajectory:
    """One call too many: one of the reference's, made twice."""
    call = gold.calls[int(rng.integers(len(gold.calls)))]
    place = int(rng.integers(len(gold.calls) + 1))
    return _run(gold, [*gold.calls[:place], call, *gold.calls[place:]])


def shuffle_calls(gold: Gold, rng: np.random.Generator) -> Trajectory | None:
    """The reference's calls in another order; None where there is only one order."""
    order = rng.permutation(len(gold.calls))
    if (order == np.arange(len(order))).all():
        order = np.roll(order, 1)
    shuffled = [gold.calls[i] for i in order]
    return None if [call.name for call in shuffled] == [call.name for call in gold.calls] else _run(gold, shuffled)


def confuse_tools(gold: Gold, rng: np.random.Generator, *, world: ToolWorld) -> Trajectory | None:
    """One tool is taken for another of its group with the same parameters; None where no call has such a neighbour."""
    return _swap(gold, rng, world, lambda one, other: one == other)


def ignore_parameters(gold: Gold, rng: np.random.Generator, *, world: ToolWorld) -> Trajectory | None:
    """One tool is taken for another of its group that can't take its arguments; None where there is none."""
    return _swap(gold, rng, world, lambda one, other: len(one & other) / len(one | other) < 0.5)


def _swap(
    gold: Gold, rng: np.random.Generator, world: ToolWorld, fits: Callable[[set[str], set[str]], bool]
) -> Trajectory | None:
    tools: Mapping[str, Tool] = {name: one.tool for name, one in world.declarations.items()}
    used = {call.name for call in gold.calls}
    options: list[tuple[int, str]] = []
    for index, call in enumerate(gold.calls):
        own = tools[call.name]
        for other in tools.values():
            alike = set(own.groups) & set(other.groups) and other.name not in used
            if alike and own.properties and fits(set(own.properties), set(other.properties)):
                options.append((index, other.name))
    if not options:
        return None
    index, name = options[int(rng.integers(len(options)))]
    calls = list(gold.calls)
    calls[index] = replace(calls[index], name=name, result=None)
    return _run(gold, calls)
