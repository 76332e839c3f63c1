"""Edit distances among strings, by rapidfuzz."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError
from assay.mst._contract import Indices, Metric, as_array, square_in_strips

__all__ = ["STRING_METRICS", "StringMetric", "texts"]

STRING_METRICS = ("levenshtein", "levenshtein_normalized", "osa", "jaro_winkler")

ROWS_AT_ONCE = 64
"""Rows of a square computed at a time: the scorers compare up to 32 queries with a string at once."""


class StringMetric(Metric):
    """An edit distance among strings.

    Parameters
    ----------
    strings : list of str or bytes
        Compared by code points (str) or bytes (bytes).
    name : str
        One of `STRING_METRICS`. Only levenshtein is a metric: a length-normalised edit distance, the optimal string
        alignment (osa) and 1 - Jaro-Winkler similarity break the triangle inequality.
    """

    trusted = True

    def __init__(self, strings: list[str] | list[bytes], name: str) -> None:
        self.strings, self.name = strings, name
        self.is_metric = name == "levenshtein"
        self._scorer = _scorer(name)
        # An object array gathers with one call; a list would loop in Python for every tile.
        self._array = np.empty(len(strings), dtype=object)
        self._array[:] = strings

    def __len__(self) -> int:
        return len(self.strings)

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        from rapidfuzz.process import cdist

        rows, columns = self._array[queries], self._array[targets]
        return cdist(rows, columns, scorer=self._scorer, dtype=np.float64)

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`; see :meth:`Metric.square`."""
        return square_in_strips(self, members, rows=ROWS_AT_ONCE)

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        from rapidfuzz.process import cpdist

        return cpdist(self._array[first], self._array[second], scorer=self._scorer, dtype=np.float64)

    def subset(self, members: NDArray[np.int64]) -> StringMetric:
        """Return the metric on the strings `members`; see :meth:`Metric.subset`."""
        return StringMetric([self.strings[i] for i in as_array(members, len(self))], self.name)


def _scorer(name: str) -> Callable[..., Any]:
    try:
        from rapidfuzz.distance import OSA, JaroWinkler, Levenshtein
    except ImportError as error:
        raise MissingPackageError("rapidfuzz", what=f"metric={name!r}", extra="mst") from error
    return {  # type: ignore[return-value]
        "levenshtein": Levenshtein.distance,
        "levenshtein_normalized": Levenshtein.normalized_distance,
        "osa": OSA.distance,
        "jaro_winkler": JaroWinkler.distance,
    }[name]


def texts(X: Any, *, name: str, unit: str) -> list[str] | list[bytes]:
    """Return `X` as a list of str, or of UTF-8 bytes where `unit` is "byte".

    Raises
    ------
    InputError
        Where `X` is no sequence of strings, naming the first element that is none, or `unit` is unknown.
    """
    if unit not in ("codepoint", "byte"):
        raise InputError(f"unit is {unit!r}", expected="'codepoint' or 'byte'")
    if isinstance(X, str | bytes) or (not isinstance(X, Sequence | np.ndarray) and not hasattr(X, "__iter__")):
        raise InputError(f"X is a {type(X).__name__}", expected=f"a sequence of strings for metric={name!r}")
    strings = X.to_pylist() if hasattr(X, "to_pylist") else list(X)
    for at, string in enumerate(strings):
        if not isinstance(string, str | bytes):
            raise InputError(f"X[{at}] is a {type(string).__name__}", expected=f"a string for metric={name!r}")
    if unit == "byte":
        return [string.encode() if isinstance(string, str) else bytes(string) for string in strings]
    return [string if isinstance(string, str) else string.decode() for string in strings]
