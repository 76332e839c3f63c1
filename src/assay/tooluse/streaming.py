"""Name and call scores of files of any size: read in blocks, scored as they come, never held."""

from __future__ import annotations

import gzip
import logging
import math
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import STREAM
from assay.tooluse.alignment import count_calls
from assay.tooluse.formats import Format, detect, find_format, fits
from assay.tooluse.formats._builder import UnreadableError, load_json
from assay.tooluse.matchers import Matcher
from assay.tooluse.reading import CUT, gold_from_dict, not_a_record, read_record, reference_call
from assay.tooluse.resampling import Estimate
from assay.tooluse.trajectories import Gold, Tool, Trajectory

__all__ = ["STREAM_METRICS", "Totals", "blocks", "lines_in", "score_stream", "workers"]

STREAM_METRICS = ("call_f1", "call_precision", "call_recall", "call_em", "name_recall", "name_precision")
BLOCK_BYTES = 64 << 20
PIPE_BYTES = 8 << 20
"""What is taken at a time from a stream that can't be read at two places."""
SHOWN = 6
"""Ids that an error names."""
NORMAL_95 = 1.959963984540054


@dataclass(slots=True)
class Totals:
    """Sums of scores, from which means and intervals follow.

    Attributes
    ----------
    runs, calls, unparsable, errors : int
        What was counted; errors are runs that failed for the service and count in no mean.
    sums, squares : list of float
        By metric, in the order of `STREAM_METRICS`.
    strangers : list of str
        Ids of runs without reference: the first few.
    seen : set of str
        Ids of references that had a run.
    cut : bool
        Whether the last line was cut off and left out.
    """

    runs: int = 0
    calls: int = 0
    unparsable: int = 0
    errors: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * len(STREAM_METRICS))
    squares: list[float] = field(default_factory=lambda: [0.0] * len(STREAM_METRICS))
    strangers: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    cut: bool = False

    def add(self, other: Totals) -> None:
        """Take another part's sums in."""
        self.runs += other.runs
        self.calls += other.calls
        self.unparsable += other.unparsable
        self.errors += other.errors
        self.seen |= other.seen
        self.cut = self.cut or other.cut
        self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]
        self.squares = [a + b for a, b in zip(self.squares, other.squares, strict=True)]
        self.strangers = (self.strangers + other.strangers)[:SHOWN]

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
    matcher: Matcher | None = None,
    format: str = "auto",
    partial: bool = False,
    n_jobs: int = 1,
) -> Totals:
    """Score a file of JSON lines by names and calls, without holding it.

    Parameters
    ----------
    path : path
        JSON lines, perhaps .gz, in any format that keeps a run in one record; ``-`` for standard input.
    golds : mapping of str to Gold, optional
        The references by id. Without them each record must bring its own under ``reference``: a list of calls with
        ``name`` and ``args``, or a reference in our own format.
    tools : sequence of Tool, optional
        For their schemas.
    matcher : Matcher, optional
        How arguments are compared.
    format : str
        A name of `assay.tooluse.formats.FORMATS`; ``auto`` looks at each record.
    partial : bool
        Leave out runs without reference, and let references without runs pass.
    n_jobs : int
        Processes, each on blocks of the file of its own; -1 for all cores. See `workers` for a cluster.

    Returns
    -------
    Totals

    Raises
    ------
    InputError
        A line isn't JSON, a run has no reference, or a reference no run.
    """
    chosen = None if format == "auto" else find_format(format)
    work = _Work(os.fspath(path), golds, matcher or Matcher(tools=tools), chosen)
    total = Totals()
    for one in _in_parallel(work, _parts(path), n_jobs):
        total.add(one)
    if total.cut:
        warnings.warn(f"{os.fspath(path)}: the last line is cut off and left out", stacklevel=2)
    if total.strangers and not partial:
        names = ", ".join(map(repr, total.strangers))
        raise InputError(f"no reference for the runs {names}", file=path, expected="a reference of the same id")
    missing = [id_ for id_ in golds or () if id_ not in total.seen]
    if missing and not partial:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise InputError(
            f"no run for the references {', '.join(map(repr, missing[:SHOWN]))}{more}",
            file=path,
            expected="at least one run of each",
        )
    return total


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of a file's lines: a range of bytes, or the lines themselves with the number of the first."""

    start: int
    end: int
    lines: bytes | None = None
    row: int = 1


@dataclass(frozen=True, slots=True)
class _Work:
    """What is the same for all parts of a file."""

    path: str
    golds: Mapping[str, Gold] | None
    matcher: Matcher
    chosen: Format | None

    def lines(self, part: _Part) -> Iterable[bytes]:
        """The lines of a part."""
        return lines_in(self.path, (part.start, part.end)) if part.lines is None else part.lines.splitlines(True)

    def row(self, part: _Part, place: int) -> int:
        """The number of a line within the file."""
        if part.lines is not None:
            return part.row + place
        with open(self.path, "rb") as stream:
            before = sum(
                stream.read(min(PIPE_BYTES, part.start - at)).count(b"\n") for at in range(0, part.start, PIPE_BYTES)
            )
        return before + 1 + place


def _in_parallel(work: _Work, parts: Iterable[_Part], n_jobs: int) -> Iterable[Totals]:
    if n_jobs == 1:
        return (_score_block(work, part) for part in parts)
    from joblib import Parallel, delayed

    found: Iterable[Totals] = Parallel(n_jobs=n_jobs, batch_size=1)(delayed(_score_block)(work, part) for part in parts)
    return found


@contextmanager
def workers(on: str, *, jobs: int = -1) -> Iterator[None]:
    """Let what runs in the block with several jobs do so on a cluster.

    Parameters
    ----------
    on : str
        ``local``; ``ray``, or an address that ``ray.init`` takes; ``dask``, or a scheduler's address such as
        ``tcp://host:8786``. Every machine must see the file under the same name.
    jobs : int
        Processes of a cluster that is started here; -1 for all cores.

    Raises
    ------
    InputError
        The word is unknown.
    MissingPackageError
        Ray or Dask isn't installed.
    """
    if on == "local":
        yield
        return
    from joblib import parallel_config

    count = (os.cpu_count() or 1) if jobs < 0 else jobs
    if on == "ray" or on.startswith("ray://"):
        try:
            import ray
            from ray.util.joblib import register_ray
        except ImportError as error:
            raise MissingPackageError("ray", what="--on ray", extra="ray") from error
        # It says that it doesn't take an argument which joblib always gives.
        logging.getLogger("ray.util.multiprocessing").setLevel(logging.ERROR)
        started = not ray.is_initialized()
        if started and on == "ray":
            ray.init(num_cpus=count, include_dashboard=False, log_to_driver=False, configure_logging=False)
        elif started:
            ray.init(address=on, log_to_driver=False)
        register_ray()  # type: ignore[no-untyped-call]
        try:
            with parallel_config("ray", n_jobs=jobs):
                yield
        finally:
            if started:
                ray.shutdown()
    elif on == "dask" or on.startswith(("tcp://", "tls://")):
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingPackageError("distributed", what="--on dask", extra="dask") from error
        options = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None} if on == "dask" else {}
        with Client(None if on == "dask" else on, **options), parallel_config("dask", n_jobs=jobs):
            yield
    else:
        raise InputError(f"on is '{on}'", expected="local, ray, ray://HOST:PORT, dask, or tcp://HOST:PORT")


def _parts(path: str | os.PathLike[str]) -> Iterator[_Part]:
    """A file as ranges of bytes; what can't be read at two places as pieces."""
    name = os.fspath(path)
    if name == STREAM:
        yield from _pieces(sys.stdin.buffer if sys.stdin else None)
    elif name.lower().endswith(".gz"):
        try:
            with gzip.open(name, "rb") as stream:
                yield from _pieces(cast("IO[bytes]", stream))
        except (EOFError, gzip.BadGzipFile) as error:
            raise InputError(f"damaged: {error}", file=name, expected="a whole file") from error
    else:
        size = max(BLOCK_BYTES // 4, min(BLOCK_BYTES, Path(path).stat().st_size // 8 + 1))
        for start, end in blocks(path, size=size):
            yield _Part(start, end)


def _pieces(stream: IO[bytes] | None) -> Iterator[_Part]:
    """Whole lines, several megabytes at a time."""
    start, row = 0, 1
    while piece := (stream.read(PIPE_BYTES) if stream is not None else b""):
        assert stream is not None
        piece += stream.readline()
        yield _Part(start, start + len(piece), piece, row)
        start += len(piece)
        row += piece.count(b"\n")
    if not start:
        raise InputError("nothing to read", file=STREAM, expected="at least one record")


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


def _score_block(work: _Work, part: _Part) -> Totals:
    total = Totals()
    known: Format | None = work.chosen
    cut: tuple[int, UnreadableError] | None = None
    for place, line in enumerate(work.lines(part)):
        if line.isspace():
            continue
        if cut is not None:
            raise not_a_record(cut[1], work.path, work.row(part, cut[0])) from cut[1]
        try:
            record = load_json(line)
        except UnreadableError as error:
            if line.endswith(b"\n") or str(error) != CUT:
                raise not_a_record(error, work.path, work.row(part, place)) from error
            cut = place, error
            continue
        try:
            if work.chosen is None and (known is None or not fits(known, record)):
                known = detect(record, before=known)
            assert known is not None
            for run in read_record(known, record):
                _add(total, run, work.golds.get(run.id) if work.golds is not None else own_reference(record), work)
        except InputError as error:
            row = work.row(part, place)
            raise InputError(error.message, file=work.path, row=row, expected=error.expected) from error
    total.cut = cut is not None
    return total


def _add(total: Totals, run: Trajectory, gold: Gold | None, work: _Work) -> None:
    """Add a run's scores."""
    if gold is None:
        total.strangers = [*total.strangers, run.id][:SHOWN]
        return
    total.seen.add(gold.id)
    if run.error is not None:
        total.errors += 1
        return
    total.runs += 1
    total.calls += len(run.calls)
    total.unparsable += sum(call.parse_error is not None for call in run.calls)
    sums, squares = total.sums, total.squares
    for place, value in enumerate(_values(run, gold, work.matcher)):
        sums[place] += value
        squares[place] += value * value


def own_reference(record: Any) -> Gold | None:
    """The reference that a record brings along."""
    given = record.get("reference") if isinstance(record, Mapping) else None
    if given is None:
        return None
    if isinstance(given, Mapping):
        return gold_from_dict(given)
    if not isinstance(given, list):
        raise InputError(f"a reference of type {type(given).__name__}", expected="a list of calls, or an object")
    return Gold([reference_call(one, index) for index, one in enumerate(given)])


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
