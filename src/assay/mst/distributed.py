"""Objects that don't fit one machine's memory: read in blocks from files, and reduced where they are read.

A tree needs three reductions over all objects: the nearest centre of each, a tree of each component, and the nearest
object of each component to each representative. A :class:`SpreadMetric` does them as maps over blocks, on threads, Ray
or Dask, with the same functions that one machine uses on its own memory, and merges the results by
minima in the order of the blocks. So the tree is the same, bit for bit, whatever does the work; what is kept in one
place is O(n) numbers and the t x t matrices of t components.
"""

from __future__ import annotations

import os
import re
import socket
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError
from assay.mst._contract import CountedMetric, Indices, Metric, ReducingMetric, as_array
from assay.mst._tiles import ordered_map, tiles
from assay.mst._vectors import EXPANDED_FROM, ROWS_AT_ONCE, VECTOR_METRICS, VectorMetric, dense_rows
from assay.mst.forest import Forest, nearest_centers, prim
from assay.mst.metrics import make_metric

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BACKENDS", "Executor", "SpreadMetric", "StoredObjects", "open_executor", "spread_metric"]

BACKENDS = ("threads", "ray", "dask")

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

BYTES_PER_TEXT = 96
"""Memory of a short Python string or set in a list, for the number of objects in a block."""

PAIRS_AT_ONCE = 1 << 16
"""Pairs of one task: their objects are gathered first."""

ANSWER_SECONDS = 3.0
"""How long the address of a cluster may take to accept a connection."""

CONNECT_SECONDS = 5.0
"""How long a scheduler that accepted a connection may take to speak."""

HOST_AND_PORT = re.compile(r"(?:\w+://)?(\[[^]]+\]|[^/:\[\]]+):(\d+)/?")

AHEAD = 4
"""Tasks per worker that are on their way, so that no worker waits and the results of few lie about."""


class StoredObjects:
    """The objects of files, read when they are asked for, by one thread at a time.

    Parameters
    ----------
    path : path
        A folder of Parquet files (a partitioned data set; the files in the order of their names), one Parquet file, an
        Arrow file, or a NumPy array ``.npy``, which is memory-mapped. Columns of numbers are vectors, a column of
        strings holds strings, a column of lists holds sets.
    block_bytes : int
        Memory for the parts that were read last.

    Raises
    ------
    InputError
        The path holds no such files, or no objects.
    """

    def __init__(self, path: str | os.PathLike[str], *, block_bytes: int = 64_000_000) -> None:
        self.path, self.block_bytes = Path(path), block_bytes
        self._parts = _open_parts(self.path)
        self._ends = np.cumsum([part.rows for part in self._parts])
        self._recent: OrderedDict[int, Any] = OrderedDict()
        self._held = 0
        self._reading = Lock()  # neither Arrow's readers nor the parts read last may be used by two threads at once
        if not len(self):
            raise InputError("holds no objects", file=path, expected="at least one row")

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "block_bytes": self.block_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], block_bytes=state["block_bytes"])  # type: ignore[misc]

    @cached_property
    def bytes_per_object(self) -> int:
        """About how much memory an object takes."""
        first = self.take(np.arange(1))
        return int(first.nbytes) if isinstance(first, np.ndarray) else BYTES_PER_TEXT

    @property
    def block_objects(self) -> int:
        """How many objects a block holds: a quarter of `block_bytes`, which leaves room for what is made of them."""
        return max(1, self.block_bytes // (4 * self.bytes_per_object))

    def take(self, indices: IntArray) -> Any:
        """Return objects in the given order: an array (k, d), or a list of strings or sets."""
        part_of = np.searchsorted(self._ends, indices, side="right")
        found: Any = None
        for number in np.unique(part_of).tolist():
            where = np.flatnonzero(part_of == number)
            start = int(self._ends[number]) - self._parts[number].rows
            rows = self._read(number)
            if isinstance(rows, np.ndarray):
                if found is None:
                    found = np.empty((len(indices), rows.shape[1]), dtype=rows.dtype)
                found[where] = rows[indices[where] - start]
            else:
                if found is None:
                    found = [None] * len(indices)
                for place, row in zip(where.tolist(), (indices[where] - start).tolist(), strict=True):
                    found[place] = rows[row]
        return found

    def _read(self, number: int) -> Any:
        with self._reading:
            if number in self._recent:
                self._recent.move_to_end(number)
                return self._recent[number]
            rows = self._parts[number].read()
            if not isinstance(rows, np.memmap):
                self._recent[number] = rows
                self._held += _bytes_of(rows)
                while self._held > self.block_bytes and len(self._recent) > 1:
                    _, oldest = self._recent.popitem(last=False)
                    self._held -= _bytes_of(oldest)
            return rows


def _bytes_of(rows: Any) -> int:
    return int(rows.nbytes) if isinstance(rows, np.ndarray) else BYTES_PER_TEXT * len(rows)


@dataclass(frozen=True)
class _Part:
    """A piece of the files that is read at once: a row group, a record batch or a whole array."""

    rows: int
    read: Callable[[], Any]


def _open_parts(path: Path) -> list[_Part]:
    if path.is_dir():
        files = sorted(path.rglob("*.parquet"))
        if not files:
            raise InputError("holds no Parquet file", file=path, expected="a folder of .parquet files")
        return [part for file in files for part in _parquet_parts(file)]
    if not path.exists():
        raise InputError("doesn't exist", file=path, expected="a folder of .parquet files, .parquet, .arrow or .npy")
    if path.suffix == ".parquet":
        return _parquet_parts(path)
    if path.suffix == ".npy":
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise InputError("damaged, or not an array of numbers", file=path, expected="a NumPy array") from error
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise InputError(f"holds {array.dtype} of shape {array.shape}", file=path, expected="numbers (n, d)")
        return [_Part(len(array), lambda: array)]
    if path.suffix in (".arrow", ".feather", ".ipc"):
        return _arrow_parts(path)
    raise InputError(
        f"unknown ending '{path.suffix}'", file=path, expected="a folder of .parquet files, .parquet, .arrow or .npy"
    )


def _parquet_parts(file: Path) -> list[_Part]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        groups = pq.ParquetFile(file)
        sizes = [groups.metadata.row_group(number).num_rows for number in range(groups.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a Parquet file") from error

    def read(number: int) -> Any:
        return _rows_of(groups.read_row_group(number), file)

    return [_Part(size, partial(read, number)) for number, size in enumerate(sizes)]


def _arrow_parts(file: Path) -> list[_Part]:
    import pyarrow as pa

    try:
        batches = pa.ipc.open_file(pa.memory_map(str(file)))
        sizes = [batches.get_batch(number).num_rows for number in range(batches.num_record_batches)]
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="an Arrow file") from error

    def read(number: int) -> Any:
        return _rows_of(pa.Table.from_batches([batches.get_batch(number)]), file)

    return [_Part(size, partial(read, number)) for number, size in enumerate(sizes)]


def _rows_of(table: pa.Table, file: Path) -> Any:
    """The objects of a table: an array, or a list of strings or sets."""
    import pyarrow as pa

    if any(column.null_count for column in table.columns):
        raise InputError("a value is missing", file=file, expected="an object in every row")
    kinds = [column.type for column in table.columns]
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) for kind in kinds):
        return np.column_stack([column.to_numpy() for column in table.columns])
    if len(kinds) == 1 and pa.types.is_fixed_size_list(kinds[0]):
        rows = table.column(0).combine_chunks()
        return rows.flatten().to_numpy(zero_copy_only=False).reshape(len(rows), kinds[0].list_size)
    if len(kinds) == 1:
        values = table.column(0).to_pylist()
        return (
            [frozenset(value) for value in values] if pa.types.is_nested(kinds[0]) else [str(value) for value in values]
        )
    raise InputError(
        f"has columns of {', '.join(map(str, kinds))}", file=file, expected="numbers, or one column of objects"
    )


class Executor(ABC):
    """Runs functions of this module on a shared input and one task each, somewhere."""

    workers: int

    @abstractmethod
    def map(self, function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield ``function(shared, task)`` in the order of the tasks."""


class _Threads(Executor):
    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any]) -> Iterator[Any]:
        return ordered_map(lambda task: function(shared, task), list(tasks), n_jobs=self.workers)


class _Ray(Executor):
    def __init__(self, address: str | None, workers: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingPackageError("ray", what='backend="ray"', extra="ray") from error
        self._ray = ray
        if address is not None:
            _require_answer(address, "Ray cluster")
        if not ray.is_initialized():
            if address is None:
                ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False)
            else:
                try:
                    ray.init(address=address, log_to_driver=False)
                except (ConnectionError, RuntimeError, ValueError) as error:
                    raise _no_cluster(address, "Ray cluster") from error
        self.workers = max(1, int(_cluster_cores(ray) or workers))

    def map(self, function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any]) -> Iterator[Any]:
        run, place = self._ray.remote(function), self._ray.put(shared)
        return _in_order((run.remote(place, task) for task in tasks), self._ray.get, ahead=AHEAD * self.workers)


def _cluster_cores(ray: Any) -> float:
    return float(ray.cluster_resources().get("CPU", 0))


class _Dask(Executor):
    def __init__(self, address: Any, workers: int) -> None:
        try:
            from distributed import Client, LocalCluster, get_client
        except ImportError as error:
            raise MissingPackageError("distributed", what='backend="dask"', extra="dask") from error
        if isinstance(address, Client):
            self._client = address
        elif address is not None:
            _require_answer(address, "Dask scheduler")
            try:
                self._client = Client(address, timeout=CONNECT_SECONDS)
            except (OSError, TimeoutError, ValueError) as error:
                raise _no_cluster(address, "Dask scheduler") from error
        else:
            try:
                self._client = get_client()
            except ValueError:
                self._client = Client(LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None))
        self.workers = max(1, sum(self._client.nthreads().values()))

    def map(self, function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any]) -> Iterator[Any]:
        place = self._client.scatter(shared, broadcast=True, hash=False)
        futures = (self._client.submit(function, place, task, pure=False) for task in tasks)
        return _in_order(futures, lambda future: future.result(), ahead=AHEAD * self.workers)


def _require_answer(address: Any, what: str) -> None:
    """Refuse an address where nobody accepts a connection: the libraries try for minutes before they say so."""
    found = HOST_AND_PORT.fullmatch(str(address))
    if found is None:
        return
    try:
        with socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=ANSWER_SECONDS):
            pass
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, what) from error


def _no_cluster(address: Any, what: str) -> InputError:
    return InputError(f"no {what} at {address}", expected="the address of a running one, such as host:port")


def _in_order(futures: Iterator[Any], result: Callable[[Any], Any], *, ahead: int) -> Iterator[Any]:
    """Yield results in the order of the futures, with at most `ahead` of them under way."""
    waiting: deque[Any] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) > ahead:
            yield result(waiting.popleft())
    while waiting:
        yield result(waiting.popleft())


def open_executor(backend: str, *, address: Any = None, workers: int = 1) -> Executor:
    """Return what runs the maps.

    Parameters
    ----------
    backend : {"threads", "ray", "dask"}
    address : str, optional
        Of a running Ray cluster or Dask scheduler (or a Dask client). Left out: the one that this process is connected
        to, else a local one with `workers` workers.
    workers : int
        Threads, or workers of a local cluster.

    Raises
    ------
    InputError
        There is no such backend, or nothing answers at `address`.
    MissingPackageError
        Its package isn't installed.
    """
    if backend == "threads":
        return _Threads(workers)
    if backend == "ray":
        return _Ray(address, workers)
    if backend == "dask":
        return _Dask(address, workers)
    raise InputError(f"backend is {backend!r}", expected=f"one of {', '.join(BACKENDS)}")


@dataclass(frozen=True)
class _Spec:
    """Everything that makes a metric on a few of the objects equal to the one on all of them."""

    points: StoredObjects
    name: str
    params: tuple[tuple[str, Any], ...] = ()
    shift: FloatArray | None = None

    def on(self, indices: IntArray) -> Metric:
        """Return the metric on some objects, in memory."""
        objects = self.points.take(indices)
        if self.name in VECTOR_METRICS:
            return VectorMetric(dense_rows(objects, self.name), self.name, shift=self.shift, **dict(self.params))
        return make_metric(objects, self.name, **dict(self.params))


class SpreadMetric(ReducingMetric):
    """A metric on stored objects, whose reductions over all objects run where an executor sends them.

    Parameters
    ----------
    spec : _Spec
    executor : Executor
    members : ndarray of int64, shape (n,), optional
        Which of the stored objects, in which order; all by default.
    """

    trusted = True

    def __init__(self, spec: _Spec, executor: Executor, *, members: IntArray | None = None) -> None:
        self.spec, self.executor = spec, executor
        self.members = np.arange(len(spec.points)) if members is None else members
        some = spec.on(self.members[:1])
        self.name, self.is_metric = some.name, some.is_metric

    def __len__(self) -> int:
        return len(self.members)

    def block(self, queries: Indices, targets: Indices) -> FloatArray:
        """Return the distances from every query to every target, read and computed here."""
        first, second = as_array(queries, len(self)), as_array(targets, len(self))
        local = self.spec.on(self.members[np.concatenate([first, second])])
        return local.block(slice(0, len(first)), slice(len(first), len(first) + len(second)))

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return the distances of pairs, in tasks of `PAIRS_AT_ONCE`."""
        first, second = self.members[first], self.members[second]
        tasks = [(first[low:high], second[low:high]) for low, high in tiles(len(first), PAIRS_AT_ONCE)]
        if len(tasks) < 2:
            return np.concatenate([np.empty(0), *(_pairs(self.spec, task) for task in tasks)])
        return np.concatenate(list(self.executor.map(_pairs, self.spec, tasks)))

    def subset(self, members: IntArray) -> Metric:
        """Return the metric on `members`: in memory where they fit a block, else spread as well."""
        chosen = self.members[members]
        if len(chosen) <= self.spec.points.block_objects:
            return self.spec.on(chosen)
        return SpreadMetric(self.spec, self.executor, members=chosen)

    def nearest(self, centers: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the position in `centers` of each object's nearest centre, and the distance; n * t evaluations."""
        shared = (self.spec, self.members[centers])
        tasks = [self.members[low:high] for low, high in self._blocks()]
        found = list(self.executor.map(_nearest, shared, tasks))
        return np.concatenate([labels for labels, _ in found]), np.concatenate([distances for _, distances in found])

    def trees(
        self, batches: Sequence[Sequence[IntArray]], *, matrix_members: int
    ) -> Iterator[list[tuple[IntArray, FloatArray]]]:
        """Yield, for each batch of components, the minimum spanning tree of every one: members and lengths of edges."""
        tasks = ([self.members[members] for members in batch] for batch in batches)
        for batch, trees in zip(batches, self.executor.map(_trees, (self.spec, matrix_members), tasks), strict=True):
            yield [(members[tree], lengths) for members, (tree, lengths) in zip(batch, trees, strict=True)]

    def minima(
        self, labels: IntArray, count: int, points: IntArray, component: IntArray
    ) -> tuple[FloatArray, IntArray]:
        """Return each representative's distance to every other component, and the object there that attains it."""
        shared = (self.spec, self.members[points], component, count)
        bounds = list(self._blocks())
        tasks = ((self.members[low:high], labels[low:high]) for low, high in bounds)
        best, objects = np.full((len(points), count), np.inf), np.full((len(points), count), -1, dtype=np.int64)
        for (low, _), (lengths, where) in zip(bounds, self.executor.map(_minima, shared, tasks), strict=True):
            # Blocks come in the order of the objects, so that ties stay with the lowest.
            closer = lengths < best
            best[closer], objects[closer] = lengths[closer], where[closer] + low
        return best, objects

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Blocks small enough for a task's memory, and at least one for each worker."""
        share = -(-len(self) // self.executor.workers)
        return tiles(len(self), max(1, min(self.spec.points.block_objects, share)))


def spread_metric(
    path: str | os.PathLike[str],
    metric: str = "euclidean",
    *,
    backend: str = "threads",
    address: Any = None,
    workers: int = 1,
    block_bytes: int = 64_000_000,
    **params: Any,
) -> SpreadMetric:
    """Return a metric on the objects of files, for :class:`assay.mst.MetricMST` and :func:`assay.mst.complete_forest`.

    Parameters
    ----------
    path : path
        See :class:`StoredObjects`. Every worker reads it under this name.
    metric : str
        A built-in metric.
    backend, address, workers
        See :func:`open_executor`.
    block_bytes : int
        Memory that a worker takes for objects.
    **params
        Further arguments of :func:`assay.mst.make_metric`.

    Returns
    -------
    SpreadMetric

    Raises
    ------
    InputError
        The files can't be read, or there is no such metric or backend.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/points.npy", np.random.default_rng(0).normal(size=(1000, 4)))
    ...     metric = spread_metric(f"{folder}/points.npy", "cityblock")
    ...     len(metric), metric.pairs(np.array([5]), np.array([5])).tolist()
    (1000, [0.0])
    """
    if not isinstance(metric, str) or metric == "precomputed":
        raise InputError(
            f"metric is {metric!r} on stored objects", expected="the name of a metric on the objects themselves"
        )
    points = StoredObjects(path, block_bytes=block_bytes)
    executor = open_executor(backend, address=address, workers=workers)
    spec = _Spec(points, metric, tuple(sorted(params.items())))
    if (
        metric == "euclidean"
        and isinstance(first := points.take(np.arange(1)), np.ndarray)
        and first.shape[1] >= EXPANDED_FROM
    ):
        rows = (np.arange(low, high) for low, high in tiles(len(points), ROWS_AT_ONCE))
        total = np.zeros(first.shape[1])
        for part in executor.map(_column_sums, points, rows):
            total += part
        spec = _Spec(points, metric, spec.params, shift=total / len(points))
    return SpreadMetric(spec, executor)


def _column_sums(points: StoredObjects, indices: IntArray) -> FloatArray:
    return np.asarray(points.take(indices).sum(axis=0, dtype=np.float64))


def _pairs(spec: _Spec, task: tuple[IntArray, IntArray]) -> FloatArray:
    needed, at = np.unique(np.concatenate(task), return_inverse=True)
    return spec.on(needed).pairs(at[: len(task[0])], at[len(task[0]) :])


def _nearest(shared: tuple[_Spec, IntArray], task: IntArray) -> tuple[IntArray, FloatArray]:
    spec, centers = shared
    local = CountedMetric(spec.on(np.concatenate([task, centers])))
    return nearest_centers(local, len(task), len(task) + np.arange(len(centers)), n_jobs=1)


def _trees(shared: tuple[_Spec, int], task: Sequence[IntArray]) -> list[tuple[IntArray, FloatArray]]:
    spec, matrix_members = shared
    return [
        prim(CountedMetric(spec.on(members)), np.arange(len(members)), matrix_members=matrix_members)
        for members in task
    ]


class _BlockForest(Forest):
    """The part of a forest's partition that lies in one block; components may be empty there."""

    def __init__(self, labels: IntArray, count: int) -> None:
        super().__init__(labels, np.empty((0, 2), dtype=np.int64), np.empty(0), "labels")
        self.__dict__["sizes"] = np.bincount(labels, minlength=count).astype(np.int64)


def _minima(
    shared: tuple[_Spec, IntArray, IntArray, int], task: tuple[IntArray, IntArray]
) -> tuple[FloatArray, IntArray]:
    from assay.mst.completion import segmented_minima  # completion builds on forests, and this on both

    spec, points, component, count = shared
    members, labels = task
    local = CountedMetric(spec.on(np.concatenate([members, points])))
    forest = _BlockForest(labels, count)
    return segmented_minima(local, forest, len(members) + np.arange(len(points)), component, n_jobs=1)
