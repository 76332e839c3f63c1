"""All pairs of objects within a distance: exact range joins.

Each kind of object has its own filter, which finds every pair within the threshold and some beyond; these are then
weighed and dropped. Where the filter would leave most pairs, or there is none, all pairs are compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from assay.core.errors import InputError
from assay.mst._codes import HammingMetric
from assay.mst._sets import JaccardMetric
from assay.mst._strings import StringMetric
from assay.mst._vectors import VectorMetric
from assay.mst.metrics import CountedMetric, Metric, MutualReachability

__all__ = ["range_pairs"]

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]

KDTREE_DIMS = 20
"""Beyond so many dimensions a kd-tree visits most points."""

KDTREE_POWER = 16
"""Beyond this exponent, powers of ordinary differences underflow."""

ROUNDING = 1e-9
"""Relative margin by which filters widen the threshold, far above what rounding can move a distance."""

SCAN_ENTRIES = 1 << 18
"""Distances compared at a time where there is no filter (2 MiB)."""

MAX_PAIRS = 200_000_000
"""Pairs beyond which a threshold is refused: two indices and a distance of each take 4.5 GiB."""

MAX_VARIANTS = 60_000_000
"""Deletion variants beyond which strings are compared pair by pair: a hash and an index of each take 1 GiB."""

MAX_EDITS = 2


def range_pairs(metric: Metric, tau: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return every unordered pair of objects at distance at most `tau`.

    Parameters
    ----------
    metric : Metric
        In a :class:`CountedMetric`, the pairs that a filter leaves to be weighed are counted.
    tau : float
        Threshold, at least 0.

    Returns
    -------
    first, second : ndarray of int64, shape (k,)
        ``first < second``, in lexicographic order.
    distances : ndarray of float64, shape (k,)

    Raises
    ------
    InputError
        Where `tau` is negative or NaN, or so large that more than 200 million pairs are within it.

    Notes
    -----
    Filters: kd-trees for vectors of at most 20 dimensions; for edit distances of at most 2, equal results of deleting
    up to that many characters (Bocek, Hunt and Stiller 2007); for Jaccard, a shared item among the rarest of each set
    (Chaudhuri, Ganti and Kaushik 2006); for Hamming, an equal part among tau + 1 parts of the codes (Manku, Jain and
    Das Sarma 2007).

    Examples
    --------
    >>> from assay.mst.metrics import make_metric
    >>> [values.tolist() for values in range_pairs(make_metric(["ant", "aunt", "bee"], "levenshtein"), 1)]
    [[0], [1], [1.0]]
    """
    if not tau >= 0:
        raise InputError(f"tau is {tau}", expected="a distance >= 0")
    plain = metric.metric if isinstance(metric, CountedMetric) else metric
    while isinstance(plain, MutualReachability):
        # A pair within tau under mutual reachability is within tau under the distance itself.
        plain = plain.metric
    candidates = _candidates(plain, float(tau))
    found = _weighed(metric, tau, _scan(metric, tau) if candidates is None else _parts(candidates))
    order = np.lexsort((found[1], found[0]))
    return found[0][order], found[1][order], found[2][order]


def _candidates(metric: Metric, tau: float) -> Pairs | None:
    """Return pairs, each once, among which are all within `tau`, or None where comparing all pairs is no worse."""
    size = len(metric)
    if isinstance(metric, VectorMetric):
        return _near_vectors(metric, tau)
    if isinstance(metric, StringMetric) and metric.name == "levenshtein" and tau < MAX_EDITS + 1:
        return _near_strings(metric.strings, int(tau), limit=size * (size - 1) // 2)
    if isinstance(metric, JaccardMetric) and tau < 1:
        return _near_sets(metric.starts, metric.items, metric.vocabulary, tau)
    if isinstance(metric, HammingMetric):
        return _near_codes(metric.words, metric.planes, int(min(tau, 1e9)), limit=size * (size - 1) // 2)
    return None


def _parts(candidates: Pairs) -> Iterator[Pairs]:
    for start in range(0, len(candidates[0]), SCAN_ENTRIES):
        yield candidates[0][start : start + SCAN_ENTRIES], candidates[1][start : start + SCAN_ENTRIES]


def _weighed(
    metric: Metric, tau: float, parts: Iterator[Pairs]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    firsts, seconds, distances, count = [], [], [], 0
    for first, second in parts:
        first, second = np.minimum(first, second), np.maximum(first, second)
        values = metric.pairs(first, second)
        near = values <= tau
        firsts.append(first[near])
        seconds.append(second[near])
        distances.append(values[near])
        count += len(firsts[-1])
        if count > MAX_PAIRS:
            raise _too_many(tau)
    if not firsts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    return np.concatenate(firsts), np.concatenate(seconds), np.concatenate(distances)


def _too_many(tau: float) -> InputError:
    return InputError(f"tau is {tau}: more than {MAX_PAIRS} pairs are within it", expected="a smaller threshold")


def _scan(metric: Metric, tau: float) -> Iterator[Pairs]:
    """Yield, from all pairs, those whose block value is within the widened threshold."""
    size = len(metric)
    reach = tau * (1 + ROUNDING)
    for start in range(0, size, 256):
        stop = min(size, start + 256)
        for other in range(start, size, SCAN_ENTRIES // 256):
            end = min(size, other + SCAN_ENTRIES // 256)
            rows, columns = np.nonzero(metric.block(slice(start, stop), slice(other, end)) <= reach)
            first, second = rows + start, columns + other
            upper = first < second
            yield first[upper], second[upper]


def _near_vectors(metric: VectorMetric, tau: float) -> Pairs | None:
    if metric.X.shape[1] > KDTREE_DIMS:
        return None
    rows, exponent = metric.embedded(), metric.scaling.exponent
    power, reach = 2.0, tau
    if exponent:
        # What is beyond float64 is beyond every distance.
        with np.errstate(over="ignore"):
            reach = float(np.ldexp(tau, -exponent))
    if not metric.euclidean:
        power = {"cityblock": 1.0, "chebyshev": np.inf}.get(metric.name, metric.p)
    elif metric.name == "sqeuclidean":
        reach = tau**0.5
    elif metric.name == "haversine":
        reach = 2 * np.sin(min(tau, np.pi) / 2)
    if metric.scaling.floor or power > KDTREE_POWER:
        # Powers may underflow; the greatest difference of coordinates takes none, and is never above the distance.
        power = np.inf
    # The widening is relative to the threshold and, because differences of coordinates round, to the coordinates.
    widest = float(np.abs(rows).max())
    reach = min(reach * (1 + ROUNDING) + 1e-14 * widest, 4 * rows.shape[1] * widest)
    tree = cKDTree(rows)
    if (tree.count_neighbors(tree, reach, p=power) - len(rows)) // 2 > MAX_PAIRS:
        raise _too_many(tau)
    found = tree.query_pairs(reach, p=power, output_type="ndarray").astype(np.int64)
    return found[:, 0].copy(), found[:, 1].copy()


def _near_strings(strings: list[str] | list[bytes], edits: int, *, limit: int) -> Pairs | None:
    lengths = np.array([len(string) for string in strings], dtype=np.int64)
    variants = np.ones(len(strings))
    if edits >= 1:
        variants += lengths
    if edits >= 2:
        variants += lengths * (lengths - 1) // 2
    if variants.sum() > MAX_VARIANTS:
        return None
    if strings and isinstance(strings[0], bytes):
        symbols = np.frombuffer(b"".join(strings), dtype=np.uint8).astype(np.uint32)
    else:
        symbols = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), np.uint32)  # type: ignore[arg-type]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    hashes, owners = _deletion_hashes(symbols, starts, edits, int(variants.sum()))
    return _sharing(hashes, owners, len(strings), limit=limit)


@njit(cache=True, nogil=True, inline="always")
def _mixed(value, symbol):  # type: ignore[no-untyped-def]
    # The multiply-xorshift step of splitmix64; a collision costs one needless comparison.
    value = (value ^ np.uint64(symbol + np.uint64(1))) * np.uint64(0xBF58476D1CE4E5B9)
    return value ^ (value >> np.uint64(29))


@njit(cache=True, nogil=True)
def _deletion_hashes(symbols, starts, edits, count):  # type: ignore[no-untyped-def]
    """Return a hash of every result of deleting at most `edits` symbols from each string, and which string it is of."""
    hashes = np.empty(count, dtype=np.uint64)
    owners = np.empty(count, dtype=np.int32)
    at = 0
    for i in range(len(starts) - 1):
        begin, end = starts[i], starts[i + 1]
        # Deleting at `end` deletes nothing: it stands for "one deletion less".
        for x in range(begin if edits >= 1 else end, end + 1):
            for y in range(x + 1 if edits >= 2 and x < end else end, end + 1):
                value = np.uint64(0x9E3779B97F4A7C15)
                for place in range(begin, end):
                    if place != x and place != y:
                        value = _mixed(value, np.uint64(symbols[place]))
                hashes[at] = value
                owners[at] = i
                at += 1
    return hashes[:at], owners[:at]


def _sharing(keys: NDArray[np.uint64], owners: NDArray[np.int32], size: int, *, limit: int) -> Pairs | None:
    """Return the pairs of owners that share a key, each once, or None where they are not fewer than `limit`."""
    order = np.argsort(keys, kind="stable")
    keys, owners = keys[order], owners[order]
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(keys)) + 1, [len(keys)]))
    groups = np.diff(bounds)
    pairs = int((groups * (groups - 1) // 2).sum())
    if pairs >= limit or pairs > MAX_PAIRS:
        return None
    codes = np.unique(_group_pairs(owners, bounds, pairs, size))
    return codes // size, codes % size


@njit(cache=True, nogil=True)
def _group_pairs(owners, bounds, count, size):  # type: ignore[no-untyped-def]
    codes = np.empty(count, dtype=np.int64)
    at = 0
    for group in range(len(bounds) - 1):
        for x in range(bounds[group], bounds[group + 1]):
            for y in range(x + 1, bounds[group + 1]):
                a, b = np.int64(owners[x]), np.int64(owners[y])
                if a != b:
                    codes[at] = min(a, b) * size + max(a, b)
                    at += 1
    return codes[:at]


def _near_sets(starts: NDArray[np.int64], items: NDArray[np.int32], vocabulary: int, tau: float) -> Pairs:
    frequency = np.bincount(items, minlength=vocabulary)
    rank = np.empty(vocabulary, dtype=np.int32)
    rank[np.argsort(frequency, kind="stable")] = np.arange(vocabulary, dtype=np.int32)
    lengths = np.diff(starts)
    order = np.argsort(lengths, kind="stable")
    rarest_first = rank[items]
    rarest_first = rarest_first[np.lexsort((rarest_first, np.repeat(np.arange(len(lengths)), lengths)))]
    count = _join_sets(starts, rarest_first, order, vocabulary, tau, np.empty((0, 2), dtype=np.int64))
    if count > MAX_PAIRS:
        raise _too_many(tau)
    found = np.empty((count, 2), dtype=np.int64)
    _join_sets(starts, rarest_first, order, vocabulary, tau, found)
    return found[:, 0].copy(), found[:, 1].copy()


@njit(cache=True, nogil=True)
def _join_sets(starts, items, order, vocabulary, tau, found):  # type: ignore[no-untyped-def]
    """Return how many pairs share one of their rarest items, and write as many as `found` holds into it.

    Items of a set are ranks, rarest first; sets come in the order of size. Two sets with similarity s or more, of
    sizes a <= b, share an item among the first b - ceil(s b) + 1 of the larger and the first a - ceil(s a) + 1 of the
    smaller, and a >= s b.
    """
    similarity = 1.0 - tau
    size = len(order)
    prefix = np.zeros(size, dtype=np.int64)
    used = np.zeros(vocabulary + 1, dtype=np.int64)
    for i in range(size):
        begin = starts[i]
        length = starts[i + 1] - begin
        prefix[i] = min(length, length - int(np.ceil(similarity * length - 1e-9)) + 1)
        for at in range(begin, begin + prefix[i]):
            used[items[at] + 1] += 1
    for item in range(vocabulary):
        used[item + 1] += used[item]
    holders = np.empty(used[-1], dtype=np.int64)
    filled = used[:-1].copy()
    oldest = used[:-1].copy()
    seen = np.full(size, -1, dtype=np.int64)
    count = 0
    empty_before = 0
    for place in range(size):
        i = order[place]
        begin = starts[i]
        length = starts[i + 1] - begin
        if length == 0:
            # Empty sets come first, share no item, and are at distance 0 of each other.
            for other in range(empty_before):
                if count < len(found):
                    found[count, 0], found[count, 1] = order[other], i
                count += 1
            empty_before += 1
        for at in range(begin, begin + prefix[i]):
            item = items[at]
            while oldest[item] < filled[item]:
                j = holders[oldest[item]]
                if starts[j + 1] - starts[j] >= similarity * length - 1e-9:
                    break
                oldest[item] += 1
            for held in range(oldest[item], filled[item]):
                j = holders[held]
                if seen[j] != i:
                    seen[j] = i
                    if count < len(found):
                        found[count, 0], found[count, 1] = j, i
                    count += 1
            holders[filled[item]] = i
            filled[item] += 1
    return count


def _near_codes(words: NDArray[np.uint64], planes: int, places: int, *, limit: int) -> Pairs | None:
    """Return the pairs that agree on one of ``places + 1`` parts: differing in `places` places leaves one equal."""
    size, width = words.shape
    # Axes: object, word, byte of the word, plane; a byte of all planes holds 8 places.
    by_word = words.view(np.uint8).reshape(size, width // planes, planes, 8).transpose(0, 1, 3, 2)
    places_bytes = np.ascontiguousarray(by_word).reshape(size, width // planes * 8, planes)
    varying = np.flatnonzero((places_bytes != places_bytes[:1]).any(axis=(0, 2)))
    parts = places + 1
    if len(varying) == 0:
        varying = np.zeros(1, dtype=np.int64)
    if parts > len(varying):
        return None
    owners = np.arange(size, dtype=np.int32)
    codes: list[NDArray[np.int64]] = []
    total = 0
    for part in np.array_split(varying, parts):
        columns = np.ascontiguousarray(places_bytes[:, part].reshape(size, -1))
        keys = _row_hashes(columns)
        shared = _sharing(keys, owners, size, limit=limit)
        if shared is None:
            return None
        codes.append(shared[0] * size + shared[1])
        total += len(codes[-1])
        if total >= limit or total > MAX_PAIRS:
            return None
    unique = np.unique(np.concatenate(codes))
    return unique // size, unique % size


@njit(cache=True, nogil=True)
def _row_hashes(rows):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(rows), dtype=np.uint64)
    for i in range(len(rows)):
        value = np.uint64(0x9E3779B97F4A7C15)
        for symbol in rows[i]:
            value = _mixed(value, np.uint64(symbol))
        hashes[i] = value
    return hashes
