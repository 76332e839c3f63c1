"""Name and call scores of files of any size: read in blocks, scored as they come, never held."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from assay.core.errors import InputError
from assay.tooluse.alignment import count_calls
from assay.tooluse.formats import Format, detect
from assay.tooluse.formats._benchmarks import call_from_dict
from assay.tooluse.formats._builder import load_json
from assay.tooluse.matchers import Matcher
from assay.tooluse.reading import gold_from_dict
from assay.tooluse.resampling import Estimate
from assay.tooluse.trajectories import Gold, Tool, Trajectory

__all__ = ["STREAM_METRICS", "Totals", "blocks", "lines_in", "score_stream"]

STREAM_METRICS = ("call_f1", "call_precision", "call_recall", "call_em", "name_recall", "name_precision")
BLOCK_BYTES = 64 << 20
NORMAL_95 = 1.959963984540054


@dataclass(slots=True)
class Totals:
    """Sums of scores, from which means and intervals follow.

    Attributes
    ----------
    runs, calls, unparsable : int
        What was counted.
    sums, squares : list of float
        By metric, in the order of `STREAM_METRICS`.
    strangers : list of str
        Ids of runs without reference: the first few.
    """

    runs: int = 0
    calls: int = 0
    unparsable: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * len(STREAM_METRICS))
    squares: list[float] = field(default_factory=lambda: [0.0] * len(STREAM_METRICS))
    strangers: list[str] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Take another part's sums in."""
        self.runs += other.runs
        self.calls += other.calls
        self.unparsable += other.unparsable
        self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]
        self.squares = [a + b for a, b in zip(self.squares, other.squares, strict=True)]
        self.strangers = (self.strangers + other.strangers)[:6]

    def estimates(self) -> dict[str, Estimate]:
        """Each metric's mean with its normal 95 % interval, every run by itself."""
        found = {}
        for name, total, square in zip(STREAM_METRICS, self.sums, self.squares, strict=True):
            if not self.runs:
                found[name] = Estimate(math.nan, math.nan, math.nan, 0, 0)
                continue
            mean = total / self.runs
            spread = max(0.0, square / self.runs - mean * mean)
            half = NORMAL_95 * math.sqrt(spread / max(1, self.runs - 1))
            found[name] = Estimate(mean, mean - half, mean + half, self.runs, self.runs)
        return found


def score_stream(
    path: str | os.PathLike[str],
    golds: Mapping[str, Gold] | None = None,
    *,
    tools: Sequence[Tool] = (),
    n_jobs: int = 1,
) -> Totals:
    """Score a file of JSON lines by names and calls, without holding it.

    Parameters
    ----------
    path : path
        JSON lines in any format that keeps a run in one record.
    golds : mapping of str to Gold, optional
        The references by id. Without them each record must bring its own under ``reference``: a list of calls with
        ``name`` and ``args``, or a reference in our own format.
    tools : sequence of Tool, optional
        For their schemas.
    n_jobs : int
        Processes, each on blocks of the file of its own; -1 for all cores.

    Returns
    -------
    Totals

    Raises
    ------
    InputError
        A line isn't JSON, or a record has no reference.
    """
    parts = blocks(path, size=max(BLOCK_BYTES // 4, min(BLOCK_BYTES, Path(path).stat().st_size // 8 + 1)))
    total = Totals()
    if n_jobs == 1 or len(parts) == 1:
        found: Any = (_score_block(path, part, golds, tools) for part in parts)
    else:
        from joblib import Parallel, delayed

        found = Parallel(n_jobs=n_jobs, return_as="generator")(
            delayed(_score_block)(path, part, golds, tools) for part in parts
        )
    for one in found:
        total.add(one)
    if total.strangers:
        names = ", ".join(map(repr, total.strangers))
        raise InputError(f"no reference for the runs {names}", file=path, expected="a reference of the same id")
    return total


def blocks(path: str | os.PathLike[str], *, size: int = BLOCK_BYTES) -> list[tuple[int, int]]:
    """Cut a file into ranges of bytes that end where a line ends."""
    length = Path(path).stat().st_size
    cuts = [0]
    with open(path, "rb") as stream:
        while cuts[-1] + size < length:
            stream.seek(cuts[-1] + size)
            stream.readline()
            cuts.append(min(stream.tell(), length))
    ends = cuts if cuts[-1] == length else [*cuts, length]
    return list(pairwise(ends))


def lines_in(path: str | os.PathLike[str], part: tuple[int, int]) -> Iterator[bytes]:
    """The lines of a range of bytes."""
    start, end = part
    with open(path, "rb", buffering=1 << 20) as stream:
        stream.seek(start)
        for line in stream:
            yield line
            start += len(line)
            if start >= end:
                return


def _score_block(
    path: str | os.PathLike[str],
    part: tuple[int, int],
    golds: Mapping[str, Gold] | None,
    tools: Sequence[Tool],
) -> Totals:
    matcher = Matcher(tools=tools)
    total = Totals()
    known: Format | None = None
    sums, squares = total.sums, total.squares
    for line in lines_in(path, part):
        if line.isspace():
            continue
        try:
            record = load_json(line)
        except ValueError as error:
            raise InputError("a line that is not JSON", file=path, expected="one JSON record a line") from error
        if known is None or not known.detect(record):
            known = detect(record)
        run = next(iter(known.read(record)))
        gold = golds.get(run.id) if golds is not None else _own_reference(record)
        if gold is None:
            total.strangers = [*total.strangers, run.id][:6]
            continue
        values = _values(run, gold, matcher)
        total.runs += 1
        total.calls += len(run.calls)
        total.unparsable += sum(call.parse_error is not None for call in run.calls)
        for place, value in enumerate(values):
            sums[place] += value
            squares[place] += value * value
    return total


def _own_reference(record: Any) -> Gold | None:
    given = record.get("reference") if isinstance(record, Mapping) else None
    if given is None:
        return None
    if isinstance(given, Mapping):
        return gold_from_dict(given)
    return Gold([call_from_dict(one, index) for index, one in enumerate(given)])


def _values(run: Trajectory, gold: Gold, matcher: Matcher) -> tuple[float, ...]:
    """The metrics of the plan with the best call F1, in the order of `STREAM_METRICS`."""
    best = max((count_calls(run.calls, plan, matcher) for plan in (gold, *gold.alternatives)), key=lambda one: one.f1)
    named_precision = best.named / best.predicted if best.predicted else float(not best.reference)
    return (
        best.f1,
        best.precision,
        best.recall,
        float(best.equal == best.reference == best.predicted),
        best.named / best.reference if best.reference else 1.0,
        named_precision,
    )
