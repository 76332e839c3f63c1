"""Trees of objects in files, on threads, Ray and Dask, are the trees of the same objects in memory, bit for bit."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.core.errors import InputError
from assay.mst import MetricMST, complete_forest
from assay.mst.datasets import gaussian_mixture
from assay.mst.distributed import SpreadMetric, StoredObjects, open_executor, spread_metric

SETTINGS: dict[str, Any] = {
    "n_forests": 2,
    "tol": 0.0,
    "algorithm": "mfc",
    "budget": "1t",
    "certify": 30,
    "random_state": 3,
    "progress": False,
}
LEAST_BLOCK = 4_000_000


def words(count: int) -> list[str]:
    rng = np.random.default_rng(2)
    return ["".join(rng.choice(list("abcdeé"), size=rng.integers(1, 12))) for _ in range(count)]


def sets(count: int) -> list[frozenset[int]]:
    rng = np.random.default_rng(3)
    return [frozenset(rng.integers(0, 60, size=rng.integers(1, 12)).tolist()) for _ in range(count)]


OBJECTS: dict[str, tuple[Callable[[], Any], str]] = {
    "few-dimensions": (lambda: gaussian_mixture(900, 8, rng=np.random.default_rng(0)), "euclidean"),
    # From 33 dimensions on distances are matrix products about the mean of all rows, which no block knows alone.
    "many-dimensions": (lambda: gaussian_mixture(700, 40, rng=np.random.default_rng(1)), "euclidean"),
    "cityblock": (lambda: gaussian_mixture(600, 5, rng=np.random.default_rng(4)).astype(np.float64), "cityblock"),
    "strings": (lambda: words(700), "levenshtein"),
    "sets": (lambda: sets(500), "jaccard"),
}


def table_of(objects: Any) -> pa.Table:
    if isinstance(objects, np.ndarray):
        return pa.table({f"x{column}": objects[:, column] for column in range(objects.shape[1])})
    if isinstance(objects[0], str):
        return pa.table({"word": objects})
    return pa.table({"items": [sorted(items) for items in objects]})


def write_partitioned(folder: Path, objects: Any, *, files: int = 3) -> Path:
    table = table_of(objects)
    ends = np.linspace(0, table.num_rows, files + 1).astype(int)
    for number, (low, high) in enumerate(pairwise(ends)):
        part = folder / f"group={number}"
        part.mkdir(parents=True)
        pq.write_table(table.slice(low, high - low), part / "rows.parquet", row_group_size=100)
    return folder


def assert_same_tree(there: MetricMST, here: MetricMST) -> None:
    np.testing.assert_array_equal(there.edges_, here.edges_)
    np.testing.assert_array_equal(there.weights_, here.weights_)
    np.testing.assert_array_equal(there.labels_, here.labels_)
    assert (there.alpha_, there.beta_) == (here.alpha_, here.beta_)
    assert there.mst_lower_bound_ == here.mst_lower_bound_
    assert there.n_distance_calls_ == here.n_distance_calls_


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_partitioned_folder_gives_the_tree_of_memory(tmp_path: Path, kind: str, n_jobs: int) -> None:
    make, metric = OBJECTS[kind]
    objects = make()
    here = MetricMST(metric, **SETTINGS).fit(objects)
    there = MetricMST(metric, n_jobs=n_jobs, block_bytes=LEAST_BLOCK, **SETTINGS).fit(
        write_partitioned(tmp_path / "data", objects)
    )
    assert_same_tree(there, here)


def test_threads_read_the_same_files_at_once(tmp_path: Path) -> None:
    objects = gaussian_mixture(2000, 6, rng=np.random.default_rng(8))
    stored = StoredObjects(write_partitioned(tmp_path / "data", objects), block_bytes=1)

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(100):
            wanted = rng.integers(0, len(objects), size=5)
            np.testing.assert_array_equal(stored.take(wanted), objects[wanted])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Callable[[str], Any]]:
    """Start a local cluster when it is first asked for, and stop what was started."""
    stops: list[Callable[[], None]] = []
    addresses: dict[str, Any] = {}

    def start(backend: str) -> Any:
        if backend in addresses:
            return addresses[backend]
        if backend == "ray":
            import ray

            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
            stops.append(ray.shutdown)
            addresses[backend] = None
        else:
            from distributed import Client, LocalCluster

            local = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            client = Client(local)
            stops.extend([client.close, local.close])
            addresses[backend] = client
        return addresses[backend]

    yield start
    for stop in stops:
        stop()


@pytest.mark.parametrize(("backend", "kind"), [("ray", "many-dimensions"), ("dask", "strings")])
def test_a_cluster_gives_the_tree_of_one_machine(
    tmp_path: Path, cluster: Callable[[str], Any], backend: str, kind: str
) -> None:
    make, metric = OBJECTS[kind]
    objects = make()
    address = cluster(backend)
    data = write_partitioned(tmp_path / "data", objects)
    here = MetricMST(metric, **SETTINGS).fit(objects)
    if backend == "dask":
        # A client is no parameter that an estimator can copy; its metric is fitted instead of the path.
        there = MetricMST(metric, **SETTINGS).fit(spread_metric(data, metric, backend=backend, address=address))
    else:
        there = MetricMST(metric, backend=backend, address=address, n_jobs=2, **SETTINGS).fit(data)
    assert_same_tree(there, here)


@pytest.mark.parametrize("suffix", [".npy", ".arrow", ".parquet"])
def test_one_file_is_read_in_blocks(tmp_path: Path, suffix: str) -> None:
    points = gaussian_mixture(800, 6, rng=np.random.default_rng(5))
    path = tmp_path / f"points{suffix}"
    if suffix == ".npy":
        np.save(path, points)
    elif suffix == ".parquet":
        pq.write_table(table_of(points), path, row_group_size=64)
    else:
        with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, table_of(points).schema) as writer:
            for batch in table_of(points).to_batches(max_chunksize=100):
                writer.write_batch(batch)
    assert_same_tree(MetricMST(block_bytes=LEAST_BLOCK, **SETTINGS).fit(path), MetricMST(**SETTINGS).fit(points))


def test_objects_come_back_in_the_order_asked_for(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    points = rng.random((500, 3))
    stored = StoredObjects(write_partitioned(tmp_path / "data", points))
    indices = rng.integers(0, 500, size=900)
    np.testing.assert_array_equal(stored.take(indices), points[indices])


def test_no_more_parts_are_held_than_block_bytes_allow(tmp_path: Path) -> None:
    points = np.random.default_rng(7).random((2000, 4))
    stored = StoredObjects(write_partitioned(tmp_path / "data", points), block_bytes=10_000)
    stored.take(np.arange(2000))
    # A row group is 100 rows of 32 bytes, so at most three of them fit.
    assert len(stored._recent) <= 3


def test_a_subset_that_fits_is_held_in_memory_and_a_larger_one_stays_spread(tmp_path: Path) -> None:
    points = np.random.default_rng(8).random((1000, 4))
    metric = spread_metric(write_partitioned(tmp_path / "data", points), block_bytes=10_000)
    few, many = np.arange(0, 60, 2), np.arange(0, 1000, 2)
    assert not isinstance(metric.subset(few), SpreadMetric)
    assert isinstance(metric.subset(many), SpreadMetric)
    for members in (few, many):
        first, second = np.arange(10), np.arange(10, 20)
        expected = np.linalg.norm(points[members[first]] - points[members[second]], axis=1)
        np.testing.assert_allclose(metric.subset(members).pairs(first, second), expected, rtol=1e-12)


def test_a_component_larger_than_a_block_is_split_as_in_memory(tmp_path: Path) -> None:
    points = gaussian_mixture(3000, 4, rng=np.random.default_rng(9))
    settings = {**SETTINGS, "n_components": 3, "max_component": 200, "budget": 0}
    path = tmp_path / "points.npy"
    np.save(path, points)
    there = MetricMST(**settings).fit(spread_metric(path, block_bytes=20_000))
    assert_same_tree(there, MetricMST(**settings).fit(points))


def test_a_users_labels_are_completed_on_stored_objects(tmp_path: Path) -> None:
    points = gaussian_mixture(600, 5, rng=np.random.default_rng(10))
    labels = (points[:, 0] > 0) * 2 + (points[:, 1] > 0)
    np.save(tmp_path / "points.npy", points)
    here = complete_forest(points, labels=labels, budget=6)
    there = complete_forest(spread_metric(tmp_path / "points.npy"), labels=labels, budget=6)
    np.testing.assert_array_equal(there.edges, here.edges)
    assert there.total_weight == here.total_weight


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "doesn't exist"),
        ("empty", "no Parquet file"),
        ("points.txt", "unknown ending"),
        ("broken.parquet", "damaged"),
    ],
)
def test_what_holds_no_objects_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "points.txt").write_text("1,2\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=message):
        StoredObjects(tmp_path / name)


def test_missing_values_and_mixed_columns_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, None]}), tmp_path / "gap.parquet")
    pq.write_table(pa.table({"x": [1.0], "word": ["a"]}), tmp_path / "mixed.parquet")
    with pytest.raises(InputError, match="missing"):
        StoredObjects(tmp_path / "gap.parquet").take(np.arange(1))
    with pytest.raises(InputError, match="columns of"):
        StoredObjects(tmp_path / "mixed.parquet").take(np.arange(1))


def test_a_backend_that_isnt_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="backend is 'mpi'"):
        open_executor("mpi")
    with pytest.raises(InputError, match="in memory"):
        MetricMST(backend="ray").fit(np.zeros((10, 2)))
    np.save(tmp_path / "points.npy", np.zeros((4, 2)))
    with pytest.raises(InputError, match="precomputed"):
        spread_metric(tmp_path / "points.npy", "precomputed")


@pytest.mark.parametrize(("backend", "scheme"), [("ray", ""), ("dask", "tcp://")])
def test_an_address_where_nobody_answers_is_refused_at_once(backend: str, scheme: str) -> None:
    pytest.importorskip("ray" if backend == "ray" else "distributed")
    with socket.socket() as taken:
        # Bound without listening: the port is nobody else's, and refuses connections.
        taken.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        started = time.perf_counter()
        with pytest.raises(InputError, match=f"no (Ray cluster|Dask scheduler) at {address}; expected the address"):
            open_executor(backend, address=address)
        assert time.perf_counter() - started < 20
