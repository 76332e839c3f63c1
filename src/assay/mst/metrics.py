"""Distances on vectors, codes, sets, strings, matrices and functions, behind one contract.

:func:`make_metric` looks at the data and the name of a metric, checks both, and returns a :class:`Metric`.

======================  ===========================================  ==========  =====================================
name                    objects                                      is metric   unit of a distance
======================  ===========================================  ==========  =====================================
euclidean               rows of numbers                              yes         that of the coordinates
cityblock, chebyshev    rows of numbers                              yes         that of the coordinates
minkowski               rows of numbers, exponent p >= 1             yes         that of the coordinates
sqeuclidean             rows of numbers                              no          its square
cosine                  rows of numbers                              yes         chord sqrt(2 - 2 cos), 0 to 2
haversine               (latitude, longitude) in radians             yes         radians; times 6371.0088 for kilometres
hamming                 aligned sequences, strings, codes            yes         places that differ
jaccard                 sets, membership matrices                    yes         1 - shared / united, 0 to 1
levenshtein             strings                                      yes         insertions, deletions, substitutions
levenshtein_normalized  strings                                      no          share of the longer string's length
osa                     strings                                      no          as levenshtein, with transpositions
jaro_winkler            strings                                      no          1 - similarity, 0 to 1
precomputed             square or condensed array of distances       declared    as given
a function              anything                                     declared    as given
======================  ===========================================  ==========  =====================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from assay.core.errors import InputError
from assay.mst._contract import (
    CountedMetric,
    Indices,
    Metric,
    MetricCheck,
    MetricWarning,
    check_metric,
)
from assay.mst._given import CallableMetric, given_distances
from assay.mst._reachability import MutualReachability, core_distances
from assay.mst._strings import STRING_METRICS, StringMetric, texts
from assay.mst._vectors import VECTOR_METRICS, VectorMetric, chord_to_cosine, dense_rows

__all__ = [
    "METRICS",
    "CountedMetric",
    "Indices",
    "Metric",
    "MetricCheck",
    "MetricWarning",
    "MutualReachability",
    "check_metric",
    "chord_to_cosine",
    "core_distances",
    "make_metric",
]

METRICS = (*VECTOR_METRICS, "hamming", "jaccard", *STRING_METRICS, "precomputed")
"""Names that :func:`make_metric` knows."""

_ALIASES = {"manhattan": "cityblock", "l1": "cityblock", "l2": "euclidean", "linf": "chebyshev"}


def make_metric(
    X: Any,
    metric: str | Callable[..., Any] | Metric = "euclidean",
    *,
    p: float | None = None,
    unit: str = "codepoint",
    packed: bool = False,
    vectorized: bool = False,
    is_metric: bool = True,
) -> Metric:
    """Return the metric `metric` on the objects `X`, after checking both.

    Parameters
    ----------
    X : array, torch tensor, sparse matrix or sequence
        The n objects; the table in :mod:`assay.mst.metrics` says which metric takes which. Arrays and CPU tensors are
        used without a copy where they are float32, float64 or uint8 in C order; CUDA tensors stay on their device. A
        :class:`Metric` is returned as it is.
    metric : str, callable or Metric
        One of `METRICS`, or a function of two objects.
    p : float, optional
        Exponent of ``"minkowski"``, at least 1 (infinity allowed).
    unit : {"codepoint", "byte"}
        What an edit distance counts: code points, or bytes of UTF-8.
    packed : bool
        For ``"hamming"``: `X` holds bits, packed into uint8 or uint64.
    vectorized : bool
        For a function: it takes two collections of objects and returns their (q, m) distances.
    is_metric : bool
        For a function or ``"precomputed"``: whether you vouch for the triangle inequality. Without it, alpha and beta
        are not certified.

    Returns
    -------
    Metric

    Raises
    ------
    InputError
        Where the name is unknown, an option does not belong to the metric, or `X` is not what the metric needs.
    MissingPackageError
        Where a metric on strings lacks rapidfuzz.

    Examples
    --------
    >>> import numpy as np
    >>> make_metric(["kitten", "sitting"], "levenshtein").pairs(np.array([0]), np.array([1])).tolist()
    [3.0]
    >>> make_metric([{1, 2}, {2, 3}], "jaccard").block(slice(0, 1), slice(0, 2)).round(3).tolist()
    [[0.0, 0.667]]
    """
    if isinstance(X, Metric):
        return X
    if isinstance(metric, Metric):
        return metric
    name = _ALIASES.get(metric, metric) if isinstance(metric, str) else None
    _require_options(name, p=p, unit=unit, packed=packed, vectorized=vectorized)
    _require_collection(X)
    if callable(metric):
        return _checked_size(CallableMetric(_objects(X), metric, vectorized=vectorized, is_metric=is_metric))
    if name in VECTOR_METRICS:
        return _checked_size(_vectors(X, name, p=p))
    if name in STRING_METRICS:
        return _checked_size(StringMetric(texts(X, name=name, unit=unit), name))
    if name == "hamming":
        from assay.mst._codes import HammingMetric, packed_words, symbol_planes

        words, planes = (packed_words(X), 1) if packed else symbol_planes(X)
        return _checked_size(HammingMetric(words, planes=planes))
    if name == "jaccard":
        from assay.mst._sets import JaccardMetric, set_rows

        starts, items, vocabulary = set_rows(X)
        return _checked_size(JaccardMetric(starts, items, vocabulary=vocabulary))
    if name == "precomputed":
        given = given_distances(X)
        given.is_metric = is_metric
        return _checked_size(given)
    raise InputError(f"metric is {metric!r}", expected=f"a function, or one of {', '.join(METRICS)}")


def _require_options(name: str | None, *, p: float | None, unit: str, packed: bool, vectorized: bool) -> None:
    if name == "minkowski":
        if p is None or math.isnan(p) or p < 1:
            raise InputError(f"metric='minkowski' got p={p}", expected="p >= 1")
    elif p is not None:
        raise InputError(f"p is {p}", expected="p only with metric='minkowski'")
    if unit != "codepoint" and name not in STRING_METRICS:
        raise InputError(f"unit is {unit!r}", expected=f"unit only with {', '.join(STRING_METRICS)}")
    if packed and name != "hamming":
        raise InputError("packed is True", expected="packed only with metric='hamming'")
    if vectorized and name is not None:
        raise InputError("vectorized is True", expected="vectorized only with a function as metric")


def _require_collection(X: Any) -> None:
    if isinstance(X, Mapping | AbstractSet | Iterator):
        raise InputError(f"X is a {type(X).__name__}", expected="an array or a list, whose objects have numbers")
    if np.ma.is_masked(X):
        masked = int(np.ma.getmaskarray(X).sum())
        raise InputError(f"X is an array with {masked} masked values", expected="no gaps: fill or drop them")


def _vectors(X: Any, name: str, *, p: float | None) -> Metric:
    exponent = 2.0 if p is None else float(p)
    if type(X).__module__.partition(".")[0] == "torch":
        from assay.mst._torch import TorchMetric, in_host_memory, on_device

        if on_device(X):
            return TorchMetric(X, name, p=exponent)
        X = in_host_memory(X, name)
    if hasattr(X, "tocsr"):
        raise InputError("X is a sparse matrix", expected=f"a dense array (n, d) for metric={name!r}")
    return VectorMetric(dense_rows(X, name), name, p=exponent)


def _objects(X: Any) -> Any:
    if hasattr(X, "to_pylist"):
        return X.to_pylist()
    if isinstance(X, Sequence) or (hasattr(X, "__len__") and hasattr(X, "__getitem__")):
        return X
    raise InputError(f"X is a {type(X).__name__}", expected="a sequence of objects for a function as metric")


def _checked_size(metric: Metric) -> Metric:
    if len(metric) == 0:
        raise InputError("X is empty", expected="at least one object")
    return metric
