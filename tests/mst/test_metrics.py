"""Every metric against an independent reference, its axioms, its tiling, its counts and its error messages."""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.typing import NDArray
from rapidfuzz.distance import OSA, JaroWinkler, Levenshtein
from scipy import sparse
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics.pairwise import haversine_distances

from assay.core.errors import InputError
from assay.mst._distances import HEIGHT, LANED_FROM, WIDTH
from assay.mst._vectors import EXPANDED_FROM
from assay.mst.metrics import (
    METRICS,
    CountedMetric,
    Metric,
    MetricWarning,
    MutualReachability,
    check_metric,
    chord_to_cosine,
    core_distances,
    make_metric,
)

N = 40
PROPERTY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def all_of(metric: Metric) -> NDArray[np.float64]:
    return metric.block(slice(0, len(metric)), slice(0, len(metric)))


def naive(objects: Any, function: Callable[[Any, Any], float]) -> NDArray[np.float64]:
    return np.array([[function(a, b) for b in objects] for a in objects])


def edit_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def jaccard(a: set[Any], b: set[Any]) -> float:
    return 1 - len(a & b) / len(a | b) if a | b else 0.0


def rows(rng: np.random.Generator, dims: int, *, dtype: Any = np.float64) -> NDArray[Any]:
    X = (rng.normal(size=(N, dims)) + 3).astype(dtype)
    X[7] = X[3]
    return X


def strings(rng: np.random.Generator) -> list[str]:
    return ["".join(rng.choice(list("abcü😀"), rng.integers(0, 9))) for _ in range(N)]


def sets(rng: np.random.Generator) -> list[set[int]]:
    return [set(rng.integers(0, 15, rng.integers(0, 9)).tolist()) for _ in range(N)]


def case(name: str, seed: int) -> tuple[Metric, NDArray[np.float64]]:
    """Return a metric on random objects, some of them duplicates, and its distances by other means."""
    rng = np.random.default_rng(seed)
    kind, _, variant = name.partition(":")
    if kind == "levenshtein":
        words = strings(rng)
        return make_metric(words, "levenshtein"), naive(words, edit_distance)
    if kind == "jaccard":
        groups = sets(rng)
        return make_metric(groups, "jaccard"), naive(groups, jaccard)
    if kind == "hamming":
        codes = rng.integers(0, int(variant), size=(N, 70))
        codes[5] = codes[9]
        return make_metric(codes, "hamming"), naive(codes, lambda a, b: float((a != b).sum()))
    if kind == "haversine":
        X = np.column_stack((rng.uniform(-1.5, 1.5, N), rng.uniform(-3, 3, N)))
        return make_metric(X, "haversine"), haversine_distances(X)
    if kind == "precomputed":
        D = squareform(pdist(rows(rng, 3)))
        return make_metric(D if variant == "square" else squareform(D), "precomputed"), D
    if kind == "callable":
        X = rows(rng, 3)
        functions = {
            "scalar": lambda a, b: abs(a - b).sum(),
            "vectorized": partial(cdist, metric="cityblock"),
            "numba": l1,
        }
        metric = make_metric(X, functions[variant], vectorized=variant == "vectorized")
        return metric, cdist(X, X, "cityblock")
    if kind == "reachability":
        metric = make_metric(rows(rng, 3))
        D = cdist(rows(np.random.default_rng(seed), 3), rows(np.random.default_rng(seed), 3))
        core = np.sort(D, axis=1)[:, 4]
        expected = np.maximum(np.maximum.outer(core, core), D)
        np.fill_diagonal(expected, 0)
        return MutualReachability(metric, core_distances(metric, 4)), expected
    dims, _, p = variant.partition(",")
    X = rows(rng, int(dims), dtype=np.float32 if seed % 2 else np.float64)
    options = {"p": float(p)} if p else {}
    expected = cdist(X.astype(float), X.astype(float), kind, **options)
    return make_metric(X, kind, **options), np.sqrt(np.maximum(0, 2 * expected)) if kind == "cosine" else expected


@njit
def l1(a, b):  # type: ignore[no-untyped-def]
    return np.abs(a - b).sum()


WIDE = EXPANDED_FROM + 20
LANED = LANED_FROM + 21
CASES = [
    *(f"{kind}:{dims}" for kind in ("euclidean", "cityblock", "chebyshev", "cosine") for dims in (2, 17, WIDE)),
    *(f"{kind}:{LANED}" for kind in ("euclidean", "cityblock", "chebyshev", "cosine")),
    "minkowski:3,1.5",
    "minkowski:9,4",
    "haversine",
    "hamming:2",
    "hamming:5",
    "hamming:300",
    "jaccard",
    "levenshtein",
    "precomputed:square",
    "precomputed:condensed",
    "callable:scalar",
    "callable:vectorized",
    "callable:numba",
    "reachability",
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_block_square_and_pairs_agree_with_an_independent_reference(name: str, seed: int) -> None:
    metric, expected = case(name, seed)
    # A chord is the root of 2 - 2 cos, which the reference loses to cancellation for parallel rows.
    tolerance = 1e-7 if name.startswith("cosine") else 1e-10
    first, second = np.divmod(np.arange(N * N), N)
    np.testing.assert_allclose(all_of(metric), expected, rtol=1e-10, atol=tolerance)
    np.testing.assert_allclose(metric.square(slice(0, N)), expected, rtol=1e-10, atol=tolerance)
    np.testing.assert_allclose(metric.pairs(first, second), expected.ravel(), rtol=1e-10, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
@PROPERTY
@given(data=st.data())
def test_a_distance_depends_on_its_pair_alone_whatever_the_tiling(name: str, data: st.DataObject) -> None:
    metric, _ = case(name, 3)
    whole = all_of(metric)
    index = st.lists(st.integers(0, N - 1), min_size=1, max_size=N + WIDTH).map(partial(np.array, dtype=np.int64))
    queries, targets = data.draw(index), data.draw(index)
    np.testing.assert_array_equal(metric.block(queries, targets), whole[np.ix_(queries, targets)])
    start = data.draw(st.integers(0, N - 1))
    stop = data.draw(st.integers(start + 1, N))
    np.testing.assert_array_equal(metric.block(queries, slice(start, stop)), whole[queries, start:stop])
    members = np.unique(targets)
    np.testing.assert_array_equal(metric.square(members), whole[np.ix_(members, members)])


@pytest.mark.parametrize("name", CASES)
@PROPERTY
@given(seed=st.integers(0, 10_000))
def test_every_metric_obeys_the_axioms(name: str, seed: int) -> None:
    metric, _ = case(name, seed)
    D = all_of(metric)
    assert metric.is_metric
    np.testing.assert_array_equal(D, D.T)
    np.testing.assert_allclose(np.diag(D), 0, atol=1e-300)
    assert (D[:, None, :] <= (D[:, :, None] + D[None, :, :]) * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("name", CASES)
def test_a_subset_is_the_metric_among_its_members(name: str) -> None:
    metric, _ = case(name, 4)
    members = np.array([9, 0, 5, 7, 33])
    view = metric.subset(members)
    assert len(view) == 5
    np.testing.assert_array_equal(all_of(view), metric.block(members, members))
    np.testing.assert_array_equal(
        view.subset(np.array([4, 1])).pairs(np.array([0]), np.array([1])), metric.pairs(members[[4]], members[[1]])
    )


@pytest.mark.parametrize("name", CASES)
def test_threads_change_no_bit(name: str) -> None:
    metric, _ = case(name, 5)
    whole = all_of(metric)
    with ThreadPoolExecutor(4) as pool:
        strips = list(pool.map(lambda row: metric.block(np.array([row]), slice(0, N)), range(N)))
    np.testing.assert_array_equal(np.concatenate(strips), whole)


@pytest.mark.parametrize("name", CASES)
def test_blocks_may_be_empty(name: str) -> None:
    metric, _ = case(name, 6)
    none = np.empty(0, dtype=np.int64)
    assert metric.block(none, slice(0, 3)).shape == (0, 3)
    assert metric.block(slice(0, 3), none).shape == (3, 0)
    assert metric.pairs(none, none).shape == (0,)
    assert metric.square(none).shape == (0, 0)


@pytest.mark.parametrize("queries", [1, 2, 3, HEIGHT, HEIGHT + 1, 2 * HEIGHT + 3])
@pytest.mark.parametrize("dims", [1, 7, 8, 9, EXPANDED_FROM - 1, EXPANDED_FROM, LANED_FROM, LANED_FROM + 5])
def test_register_tiles_are_right_at_their_edges(queries: int, dims: int) -> None:
    X = np.random.default_rng(dims).normal(size=(queries + 3 * WIDTH, dims)).astype(np.float32)
    metric = make_metric(X)
    expected = cdist(X[:queries].astype(float), X[queries:].astype(float))
    for targets in (1, WIDTH - 1, WIDTH, WIDTH + 1, 3 * WIDTH):
        values = metric.block(slice(0, queries), slice(queries, queries + targets))
        np.testing.assert_allclose(values, expected[:, :targets], rtol=1e-12)


def test_blocks_beyond_the_packed_buffers_are_right() -> None:
    X = np.random.default_rng(0).normal(size=(700, 300))
    np.testing.assert_allclose(
        make_metric(X).block(slice(0, 600), slice(0, 700)), cdist(X[:600], X), rtol=1e-11, atol=1e-9
    )


@pytest.mark.parametrize("dims", [3, 16, 64, 784])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_near_duplicates_far_from_the_origin_keep_their_digits(dims: int, offset: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, dims)) + offset
    X[1::2] = X[::2] + 1e-6 * rng.normal(size=(15, dims))
    exact = np.array([[math.dist(a, b) for b in X] for a in X])
    values = all_of(make_metric(X))
    apart = exact > 0
    assert np.abs(values - exact)[apart].max() / exact[apart].min() < 1
    np.testing.assert_allclose(values[apart], exact[apart], rtol=1e-9)
    assert (np.diag(values) == 0).all()


def test_duplicates_are_at_distance_zero_in_many_dimensions() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 200)) + 1e4, 3, axis=0)
    same = np.kron(np.eye(10, dtype=bool), np.ones((3, 3), dtype=bool))
    assert (all_of(make_metric(X))[same] == 0).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64, np.bool_, ">f8"])
def test_every_dtype_gives_the_distances_of_its_float64_values(dtype: Any) -> None:
    X = np.random.default_rng(0).integers(0, 2, size=(20, 5)).astype(dtype)
    np.testing.assert_array_equal(all_of(make_metric(X)), cdist(X.astype(float), X.astype(float)))


def test_vectors_are_not_copied() -> None:
    X = np.zeros((4, 2), dtype=np.float32)
    metric = make_metric(X)
    X[1] = 3, 4
    assert metric.pairs(np.array([0]), np.array([1])) == 5


def test_a_memmap_is_read_where_it_lies(tmp_path: Any) -> None:
    path = tmp_path / "points.npy"
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    np.testing.assert_array_equal(all_of(make_metric(mapped)), all_of(make_metric(X)))
    np.testing.assert_allclose(all_of(make_metric(mapped, "cosine")), all_of(make_metric(X, "cosine")))


def test_torch_tensors_in_host_memory_are_shared_not_copied() -> None:
    torch = pytest.importorskip("torch")
    X = torch.zeros((3, 2), dtype=torch.float32, requires_grad=True)
    metric = make_metric(X)
    with torch.no_grad():
        X[2, 0] = 2.0
    assert metric.pairs(np.array([0]), np.array([2])) == 2


@pytest.mark.parametrize(
    "name", ["euclidean", "sqeuclidean", "cityblock", "chebyshev", "minkowski", "cosine", "haversine"]
)
def test_the_blocks_for_accelerators_agree_with_the_compiled_ones(name: str) -> None:
    torch = pytest.importorskip("torch")
    from assay.mst._torch import TorchMetric

    dims = 2 if name == "haversine" else 40
    X = np.random.default_rng(0).uniform(-1, 1, size=(30, dims)).astype(np.float32)
    options = {"p": 3.0} if name == "minkowski" else {}
    there, here = TorchMetric(torch.from_numpy(X), name, **options), make_metric(X, name, **options)
    first, second = np.triu_indices(30)
    np.testing.assert_allclose(all_of(there), all_of(here), rtol=1e-12, atol=1e-7)
    np.testing.assert_allclose(there.pairs(first, second), here.pairs(first, second), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(there.square(np.arange(9)), here.square(np.arange(9)), rtol=1e-12, atol=1e-7)
    members = np.array([4, 2, 9])
    np.testing.assert_allclose(all_of(there.subset(members)), all_of(here.subset(members)), rtol=1e-12, atol=1e-7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "bool"])
def test_tensors_of_types_that_numpy_lacks_are_converted(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    X = torch.tensor([[0, 1], [1, 0], [1, 1]]).to(getattr(torch, dtype))
    np.testing.assert_array_equal(all_of(make_metric(X)), all_of(make_metric(X.double())))


def test_tensors_that_are_no_dense_real_arrays_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="X is a sparse tensor"):
        make_metric(torch.eye(3).to_sparse())
    with pytest.raises(InputError, match=r"X has dtype torch\.complex64"):
        make_metric(torch.zeros((3, 2), dtype=torch.complex64))


def test_an_array_with_a_mask_that_hides_nothing_is_taken() -> None:
    assert len(make_metric(np.ma.masked_array(np.zeros((3, 2)), mask=False))) == 3


def test_haversine_of_cities_in_kilometres() -> None:
    degrees = np.array([[-34.83333, -58.5166646], [49.0083899664, 2.53844117956]])
    angle = make_metric(np.radians(degrees), "haversine").pairs(np.array([0]), np.array([1]))
    # Buenos Aires to Paris, scikit-learn's documented example: 11 099.54 km on a sphere of radius 6371 km.
    np.testing.assert_allclose(angle * 6371000 / 1000, 11099.54035582, rtol=1e-9)


def test_the_chord_orders_pairs_as_cosine_distance_does() -> None:
    X = np.random.default_rng(0).normal(size=(30, 6))
    first, second = np.triu_indices(30, 1)
    np.testing.assert_allclose(
        chord_to_cosine(make_metric(X, "cosine").pairs(first, second)), cdist(X, X, "cosine")[first, second], atol=1e-14
    )


def test_levenshtein_agrees_with_rapidfuzz_on_ten_thousand_pairs() -> None:
    rng = np.random.default_rng(0)
    alphabet = list("abcde é漢😀𝔘\U0010ffff")
    lengths = np.where(rng.random(400) < 0.3, rng.integers(60, 200, 400), rng.integers(0, 12, 400))
    words = ["".join(rng.choice(alphabet, length)) for length in lengths]
    assert "" in words
    assert max(map(len, words)) > 64
    assert any(ord(c) > 0xFFFF for word in words for c in word)
    first, second = rng.integers(0, 400, size=(2, 10_000))
    metric = make_metric(words, "levenshtein")
    expected = [Levenshtein.distance(words[a], words[b]) for a, b in zip(first, second, strict=True)]
    np.testing.assert_array_equal(metric.pairs(first, second), expected)
    np.testing.assert_array_equal(all_of(metric)[first, second], expected)


def test_levenshtein_counts_code_points_unless_told_to_count_bytes() -> None:
    pair = np.array([0]), np.array([1])
    assert make_metric(["é", ""], "levenshtein").pairs(*pair) == 1
    assert make_metric(["é", ""], "levenshtein", unit="byte").pairs(*pair) == 2
    assert make_metric([b"\xff", b""], "levenshtein", unit="byte").pairs(*pair) == 1


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("osa", OSA.distance),
        ("jaro_winkler", JaroWinkler.distance),
        ("levenshtein_normalized", Levenshtein.normalized_distance),
        ("sqeuclidean", None),
    ],
)
def test_distances_that_are_no_metrics_say_so(name: str, function: Any) -> None:
    rng = np.random.default_rng(0)
    objects = rows(rng, 5) if function is None else strings(rng)
    metric = make_metric(objects, name)
    assert not metric.is_metric
    expected = cdist(objects, objects, name) if function is None else naive(objects, function)
    np.testing.assert_allclose(all_of(metric), expected, rtol=1e-12, atol=1e-12)


def test_a_callable_is_a_metric_only_if_vouched_for() -> None:
    X = np.arange(4.0)
    assert make_metric(X, lambda a, b: abs(a - b)).is_metric
    assert not make_metric(X, lambda a, b: (a - b) ** 2, is_metric=False).is_metric


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (["ACGT-", "ACGA-", "TTTT-"], [1, 3]),
        ([b"AB", b"AC", b"CC"], [1, 2]),
        (["é漢", "é漢", "é字"], [0, 1]),
        ([(1, 2, 3), [1, 2, 4], (0, 0, 0)], [1, 3]),
        (np.array([[True, False], [True, True], [False, True]]), [1, 2]),
        (np.array([[0.5, 2.0], [0.5, 3.0], [1.5, 3.0]]), [1, 2]),
        (["", "", ""], [0, 0]),
    ],
)
def test_hamming_counts_differing_places_of_any_aligned_sequences(objects: Any, expected: list[int]) -> None:
    assert make_metric(objects, "hamming").pairs(np.array([0, 0]), np.array([1, 2])).tolist() == expected


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
def test_packed_codes_give_the_distances_of_their_bits(dtype: Any) -> None:
    bits = np.random.default_rng(0).integers(0, 2, size=(20, 832)).astype(bool)
    packed = np.packbits(bits, axis=1).view(dtype)
    np.testing.assert_array_equal(
        all_of(make_metric(packed, "hamming", packed=True)), (bits[:, None] != bits[None]).sum(axis=2)
    )


def test_jaccard_reads_sets_lists_words_sparse_and_membership_matrices_alike() -> None:
    groups = sets(np.random.default_rng(0))
    matrix = np.zeros((N, 15), dtype=bool)
    for row, group in enumerate(groups):
        matrix[row, list(group)] = True
    expected = naive(groups, jaccard)
    with_zeros = sparse.csr_matrix(matrix.astype(float))
    with_zeros.data[:0] = 0
    repeated = [list(group) * 2 for group in groups]
    words = [{f"item {item}" for item in group} for group in groups]
    for form in (groups, repeated, words, matrix, matrix.astype(int), sparse.csr_array(matrix), with_zeros.tocoo()):
        np.testing.assert_allclose(all_of(make_metric(form, "jaccard")), expected, atol=1e-15)


def test_explicit_zeros_of_a_sparse_matrix_are_no_members() -> None:
    matrix = sparse.csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    assert make_metric(matrix, "jaccard").pairs(np.array([0]), np.array([1])) == 0


def test_two_empty_sets_are_at_distance_zero_and_an_empty_set_at_one_from_others() -> None:
    assert make_metric([set(), set(), {1}], "jaccard").square(slice(0, 3)).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]


def test_square_of_a_callable_calls_it_once_per_unordered_pair() -> None:
    calls: list[tuple[float, float]] = []

    def distance(a: float, b: float) -> float:
        calls.append((a, b))
        return abs(a - b)

    make_metric(list(range(12)), distance).square(np.array([3, 1, 4, 11, 5]))
    assert len(calls) == 10
    assert len({frozenset(pair) for pair in calls}) == 10


def test_a_vectorized_callable_is_asked_for_pairs_row_by_row() -> None:
    asked = []

    def distance(A: Any, B: Any) -> Any:
        asked.append((len(A), len(B)))
        return cdist(A, B)

    X = rows(np.random.default_rng(0), 3)
    first, second = np.array([3, 1, 3, 3]), np.array([0, 2, 5, 3])
    np.testing.assert_array_equal(
        make_metric(X, distance, vectorized=True).pairs(first, second), cdist(X, X)[first, second]
    )
    assert sorted(asked) == [(1, 1), (1, 3)]


def test_counts_are_booked_by_stage_and_shared_with_subsets_and_threads() -> None:
    counted = CountedMetric(make_metric(np.zeros((20, 2))), max_calls=500)
    with counted.stage("forest"):
        counted.block(np.arange(3), slice(0, 20))
        with counted.stage("subtrees"):
            counted.subset(np.arange(6)).square(slice(0, 6))
        counted.pairs(np.arange(5), np.arange(5))
    with counted.stage("completion"), ThreadPoolExecutor(8) as pool:
        barrier = threading.Barrier(8)

        def work(_: int) -> None:
            barrier.wait()
            for _ in range(5):
                counted.block(np.arange(2), np.arange(3))

        list(pool.map(work, range(8)))
    assert counted.calls == {"forest": 65, "subtrees": 15, "completion": 240}
    assert counted.total == 320
    assert counted.remaining == 180
    assert CountedMetric(counted.metric).remaining is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_value_that_is_no_distance_names_its_pair(value: float) -> None:
    def distance(a: int, b: int) -> float:
        return value if (a, b) == (2, 5) else abs(a - b)

    metric = make_metric(range(8), distance)
    for call in (
        lambda: metric.block(slice(1, 4), slice(3, 8)),
        lambda: metric.pairs(np.array([0, 2]), np.array([1, 5])),
        lambda: metric.square(np.array([2, 5])),
    ):
        with pytest.raises(InputError, match=r"distance of objects 2 and 5 is (nan|inf|-1\.0)"):
            call()


def test_a_foreign_metric_is_inspected_where_it_is_counted() -> None:
    class Foreign(Metric):
        name = "foreign"

        def __len__(self) -> int:
            return 4

        def block(self, queries: Any, targets: Any) -> NDArray[np.float64]:
            return np.full((len(queries), len(targets)), -2.0)

        def pairs(self, first: Any, second: Any) -> NDArray[np.float64]:
            return np.full(len(first), np.nan)

        def subset(self, members: Any) -> Metric:
            return self

    counted = CountedMetric(Foreign())
    with pytest.raises(InputError, match=r"foreign: the distance of objects 3 and 1 is -2"):
        counted.block(np.array([3]), np.array([1]))
    with pytest.raises(InputError, match=r"foreign: the distance of objects 0 and 2 is nan"):
        counted.pairs(np.array([0]), np.array([2]))


def test_check_metric_passes_metrics_and_counts_nothing_wrong() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check = check_metric(make_metric(rows(np.random.default_rng(0), 4)), samples=500)
    assert check.passed
    assert check.samples == 500
    assert check.worst_ratio <= 1 + 1e-9


def test_check_metric_warns_with_the_worst_triple_and_its_ratio() -> None:
    X = np.array([[0.0], [1.0], [2.0]])
    with pytest.warns(MetricWarning, match=r"d\(., .\) is 2 times d\(., 1\)"):
        check = check_metric(make_metric(X, "sqeuclidean"), samples=300)
    assert not check.passed
    assert check.worst_ratio == pytest.approx(2)
    assert check.worst_triple in {(0, 1, 2), (2, 1, 0)}


def test_dynamic_time_warping_is_accepted_as_a_callable_and_found_to_be_no_metric() -> None:
    def dtw(a: list[float], b: list[float]) -> float:
        table = np.full((len(a) + 1, len(b) + 1), np.inf)
        table[0, 0] = 0
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                table[i + 1, j + 1] = abs(x - y) + min(table[i, j], table[i, j + 1], table[i + 1, j])
        return float(table[-1, -1])

    series = [[0.0], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0], [1.0, 2.0], [0.0, 1.0, 1.0, 2.0]]
    with pytest.warns(MetricWarning, match="breaks the triangle inequality"):
        assert not check_metric(make_metric(series, dtw, is_metric=False), samples=300).passed


def test_check_metric_names_asymmetric_pairs_and_objects_away_from_themselves() -> None:
    with pytest.raises(InputError, match=r"distance of objects \d+ and \d+ is .*in the other order"):
        check_metric(make_metric([0.0, 1.0, 2.0], lambda a, b: max(0.0, a - b)))
    with pytest.raises(InputError, match=r"distance of object \d to itself is 1\.0"):
        check_metric(make_metric([0.0, 1.0, 2.0], lambda a, b: 1.0))
    with pytest.raises(InputError, match="samples is 0"):
        check_metric(make_metric([0.0, 1.0], lambda a, b: 0.0), samples=0)


@pytest.mark.parametrize("min_samples", [1, 5])
def test_core_distances_are_those_to_the_kth_other_object(min_samples: int) -> None:
    X = np.vstack([rows(np.random.default_rng(0), 3), rows(np.random.default_rng(1), 3)])
    X[:3] = X[0]
    expected = np.sort(cdist(X, X), axis=1)[:, min_samples]
    np.testing.assert_allclose(core_distances(make_metric(X), min_samples), expected, rtol=1e-12)


def test_core_distances_within_components_are_upper_bounds_and_cost_less() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    labels = np.arange(200) % 10
    counted = CountedMetric(make_metric(X))
    exact = core_distances(make_metric(X), 3)
    bound = core_distances(counted, 3, labels=labels, visited=np.arange(10))
    assert (bound >= exact).all()
    assert counted.total <= 10 * 20 * 30
    names = (
        MutualReachability(make_metric(X), bound, exact_core=False).name,
        MutualReachability(make_metric(X), exact).name,
    )
    assert ["upper bounds" in name for name in names] == [True, False]


def huge_beside_zeros(A: Any, B: Any) -> NDArray[Any]:
    values = np.zeros((len(A), len(B)), dtype=object)
    values[0, 1] = 10**400
    return values


def wrong_inputs() -> Iterator[tuple[str, Any, Any, dict[str, Any], str]]:
    X = np.zeros((8, 2))
    broken = X.copy()
    broken[[1, 4]] = np.nan
    broken[6, 1] = np.inf
    D = squareform(pdist(np.random.default_rng(0).normal(size=(5, 2))))

    def changed(at: tuple[int, int], value: float) -> NDArray[np.float64]:
        matrix = D.copy()
        matrix[at] = value
        return matrix

    yield "nan", broken, "euclidean", {}, r"X holds NaN or infinite values \(rows counted from 0: 1, 4, 6; 3 in all\)"
    yield "1-d", np.zeros(3), "euclidean", {}, r"X has shape \(3,\); expected \(n, d\)"
    yield "no columns", np.zeros((3, 0)), "euclidean", {}, r"X has shape \(3, 0\)"
    yield "empty", np.zeros((0, 3)), "euclidean", {}, "X is empty"
    yield "text", np.array([["a"]]), "euclidean", {}, "X has dtype"
    yield "ragged rows", [[1.0], [1.0, 2.0]], "euclidean", {}, "rows of different lengths"
    yield "sparse", sparse.csr_matrix(X), "euclidean", {}, "sparse matrix; expected a dense array"
    yield "zero rows", np.eye(3)[[0, 1]] * [[1], [0]], "cosine", {}, r"rows of zeros.*: 1; 1 in all"
    yield "degrees", np.array([[48.8, 2.3]]), "haversine", {}, "give radians, not degrees"
    yield "3 columns", np.zeros((2, 3)), "haversine", {}, "X has 3 columns; expected 2"
    yield "p small", X, "minkowski", {"p": 0.5}, "p=0.5; expected p >= 1"
    yield "p missing", X, "minkowski", {}, "p=None"
    yield "p elsewhere", X, "euclidean", {"p": 2}, "p is 2; expected p only"
    yield "unit elsewhere", X, "euclidean", {"unit": "byte"}, "unit is 'byte'; expected unit only"
    yield "packed elsewhere", X, "euclidean", {"packed": True}, "packed is True"
    yield "vectorized elsewhere", X, "euclidean", {"vectorized": True}, "vectorized is True"
    yield "unit unknown", ["a"], "levenshtein", {"unit": "rune"}, "unit is 'rune'"
    yield "name", X, "euclid", {}, "metric is 'euclid'; expected a function, or one of euclidean, "
    yield "no strings", ["a", 3], "levenshtein", {}, r"X\[1\] is a int; expected a string"
    yield "one string", "abc", "levenshtein", {}, "X is a str; expected a sequence of strings"
    yield "no string", [], "levenshtein", {}, "X is empty"
    yield "ragged", ["ACGT", "ACGT", "ACG"], "hamming", {}, r"X\[2\] has length 3 and X\[0\] has length 4"
    yield "hamming nan", broken, "hamming", {}, "NaN"
    yield "hamming scalar", [1, 2], "hamming", {}, r"X\[0\] is a int"
    yield "hamming packed", X, "hamming", {"packed": True}, "packed codes have dtype float64"
    yield "hamming empty", [], "hamming", {}, "X is empty"
    yield "set of str", ["abc"], "jaccard", {}, r"X\[0\] is a str; expected a set"
    yield "unhashable", [[[1]]], "jaccard", {}, r"X\[0\] holds an item that cannot be hashed"
    yield "jaccard values", np.full((2, 2), 7), "jaccard", {}, "values other than 0 and 1"
    yield "jaccard int", 5, "jaccard", {}, "X is a int"
    yield "not square", D[:, :3], "precomputed", {}, r"X has shape \(5, 3\); expected \(n, n\)"
    yield "asymmetric", changed((3, 1), 9.0), "precomputed", {}, r"X\[1, 3\] is .* and X\[3, 1\] is 9"
    yield "negative", changed((0, 2), -1.0), "precomputed", {}, "distance of objects 0 and 2 is -1.0"
    yield "negative below", changed((4, 2), -1.0), "precomputed", {}, "distance of objects 4 and 2 is -1.0"
    yield "diagonal", changed((2, 2), 0.1), "precomputed", {}, r"X\[2, 2\] is 0.1; expected a zero diagonal"
    yield "matrix nan", changed((1, 2), np.nan), "precomputed", {}, "distance of objects 1 and 2 is nan"
    yield "condensed", np.ones(4), "precomputed", {}, r"X has shape \(4,\); expected n\(n-1\)/2"
    yield "condensed nan", np.array([1, 1, 1, 1, np.nan, 1]), "precomputed", {}, "distance of objects 1 and 3 is nan"
    yield "no sequence", 5, (lambda a, b: 0.0), {}, "X is a int; expected a sequence of objects"
    yield "shape", X, (lambda A, B: np.zeros(3)), {"vectorized": True}, r"returned shape \(3,\) for 8 and 8 objects"
    yield "huge int", X, (lambda a, b: 10**400), {}, "distance of objects 0 and 0 is beyond the largest float64"
    yield "complex", X, (lambda a, b: 1j), {}, "distance of objects 0 and 0 is 1j; expected a number"
    yield "none", X, (lambda a, b: None), {}, "distance of objects 0 and 0 is None; expected a number"
    yield "complex matrix", X, (lambda A, B: cdist(A, B) * 1j), {"vectorized": True}, "returned dtype complex128"
    yield (
        "huge in matrix",
        X,
        huge_beside_zeros,
        {"vectorized": True},
        "distance of objects 0 and 1 is beyond the largest",
    )
    yield "ragged matrix", X, (lambda A, B: [[1], [1, 2]]), {"vectorized": True}, "returned rows of different lengths"
    yield "compiled pair", X, njit(lambda a, b: (a, b)), {}, "can't be compiled for rows of dtype float64"
    masked = np.ma.masked_array(X, mask=np.eye(8, 2, dtype=bool))
    for name in ("euclidean", "cosine", "hamming", "jaccard", "precomputed"):
        yield f"masked {name}", masked, name, {}, "X is an array with 2 masked values"
        yield f"dict {name}", {0: [1.0]}, name, {}, "X is a dict; expected an array or a list"
    for name in ("levenshtein", "jaccard", lambda a, b: 0.0):
        yield f"set {name}", {"a", "b"}, name, {}, "X is a set; expected an array or a list"
        yield f"generator {name}", (word for word in ("a", "b")), name, {}, "X is a generator; expected an array"
    yield "hamming int", 5, "hamming", {}, "X is a int; expected a list of sequences"
    for dtype in ("datetime64[s]", "timedelta64[s]", "complex128", "object", "S3"):
        yield (
            f"dtype {dtype}",
            np.zeros((3, 2)).astype(dtype),
            "euclidean",
            {},
            f"X has dtype {re.escape(str(np.dtype(dtype)))}",
        )
    yield "no number", X, (lambda a, b: "far"), {}, "distance of objects 0 and 0 is 'far'"


@pytest.mark.parametrize(
    ("objects", "metric", "options", "message"), [pytest.param(*rest, id=name) for name, *rest in wrong_inputs()]
)
def test_wrong_input_is_named_in_one_line(objects: Any, metric: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        all_of(make_metric(objects, metric, **options))
    assert "\n" not in str(raised.value)


def test_condensed_positions_name_every_pair_right() -> None:
    for position, (row, column) in enumerate(zip(*np.triu_indices(9, 1), strict=True)):
        values = np.ones(36)
        values[position] = -1
        with pytest.raises(InputError, match=f"objects {row} and {column} is -1"):
            make_metric(values, "precomputed")


def test_a_matrix_that_does_not_fit_into_memory_is_refused_with_its_size() -> None:
    class Huge:
        def __len__(self) -> int:
            return 1 << 20

        def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[np.float64]:
            raise MemoryError

    with pytest.raises(InputError, match=r"a 1048576 x 1048576 float64 matrix needs 8192\.0 GiB"):
        make_metric(Huge(), "precomputed")


def test_float32_matrices_may_be_asymmetric_by_their_rounding() -> None:
    D = squareform(pdist(np.random.default_rng(0).normal(size=(20, 2)))).astype(np.float32)
    D[3, 5] = np.nextafter(D[3, 5], np.float32(9))
    assert len(make_metric(D, "precomputed")) == 20


def test_core_distances_that_do_not_fit_are_refused() -> None:
    metric = make_metric(np.zeros((4, 1)))
    with pytest.raises(InputError, match=r"core has shape \(3,\); expected \(4,\)"):
        MutualReachability(metric, np.zeros(3))
    with pytest.raises(InputError, match=r"core\[1\] is nan"):
        MutualReachability(metric, np.array([0, np.nan, 0, 0]))
    with pytest.raises(InputError, match="min_samples is 4; expected 1 to 3"):
        core_distances(metric, 4)
    with pytest.raises(InputError, match="object 0 has 1 candidates for its 2 neighbours"):
        core_distances(metric, 2, labels=np.array([0, 0, 1, 1]))


def test_a_metric_passes_through() -> None:
    metric = make_metric(np.zeros((2, 2)))
    assert make_metric(metric) is metric
    assert make_metric(None, metric) is metric


def test_every_name_is_made() -> None:
    objects: dict[str, Any] = {
        "hamming": ["ab", "bb"],
        "jaccard": [{1}, {2}],
        "precomputed": np.array([[0.0, 1], [1, 0]]),
        **{name: ["ab", "bb"] for name in ("levenshtein", "levenshtein_normalized", "osa", "jaro_winkler")},
    }
    points = np.array([[0.0, 1.0], [1.0, 0.0]])
    for name in METRICS:
        options = {"p": 3} if name == "minkowski" else {}
        value = make_metric(objects.get(name, points), name, **options).pairs(np.array([0]), np.array([1]))
        assert value > 0, name


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_relabelling_objects_relabels_distances(order: tuple[int, ...]) -> None:
    words = ["kitten", "sitting", "mitten"]
    plain, permuted = make_metric(words, "levenshtein"), make_metric([words[i] for i in order], "levenshtein")
    np.testing.assert_array_equal(all_of(permuted), all_of(plain)[np.ix_(order, order)])
