"""The memory as a scikit-learn estimator: store patterns, recall them from corrupted or partly erased cues, keep it in
a file.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from assay.core.errors import InputError
from assay.core.files import atomic_path, existing_file
from assay.memory._capacity import replica_symmetric
from assay.memory._packed import PackedPatterns, pack_signs, pack_words
from assay.memory.dynamics import STATES_AT_ONCE, Dynamics, Tie, run_dynamics
from assay.memory.interactions import (
    Kind,
    PrecisionWarning,
    counted,
    distinct_tuples,
    field_tables,
    load_factor,
    require_kind,
    require_order,
)
from assay.memory.patterns import (
    Coding,
    Decorrelation,
    encode,
    signs_of_cues,
    signs_of_patterns,
    unpack_octets,
)

__all__ = ["CapacityWarning", "DenseAssociativeMemory", "DuplicateWarning", "RecallResult"]

FILE_FORMAT = "assay.memory"
FILE_VERSION = "1"
SUFFIX = ".dam"
WEIGHTS_AT_ONCE = 2**24
"""Patterns times states that are weighed together: 128 MiB a table. Fewer states are taken at a time of more
patterns."""
SOFTMAX_TOLERANCE = 1e-6
"""A continuous state whose entries move by less has converged."""

Progress = Callable[[int, int], None]
Self = TypeVar("Self", bound="DenseAssociativeMemory")


class CapacityWarning(UserWarning):
    """More patterns than the order can hold."""


class DuplicateWarning(UserWarning):
    """Some patterns are stored more than once, and weigh more than the others."""


@dataclass
class RecallResult:
    """Where the cues went.

    Attributes
    ----------
    states : ndarray or tensor, shape (cues, bits)
        What is recalled, in the coding of the patterns; real numbers for ``softmax``.
    sweeps : ndarray of int64, shape (cues,)
        Sweeps until no unit changed any more, or that were done.
    converged : ndarray of bool, shape (cues,)
        Whether no unit changes any more.
    cycle : ndarray of int64, shape (cues,)
        2 where parallel updates alternate between two states, else 0.
    nearest : ndarray of int64, shape (cues,)
        The stored pattern that is nearest to the state.
    distance : ndarray of int64, shape (cues,)
        In how many bits the state differs from it.
    history : ndarray of float64, shape (cues, sweeps + 1), or None
        The overlap with the target after each sweep, from the cue on: m(t).
    """

    states: Any
    sweeps: NDArray[np.int64]
    converged: NDArray[np.bool_]
    cycle: NDArray[np.int64]
    nearest: NDArray[np.int64]
    distance: NDArray[np.int64]
    history: NDArray[np.float64] | None = None


class DenseAssociativeMemory(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A dense associative memory: stored bit patterns, recalled from what is left of them.

    Parameters
    ----------
    order : int
        The order n of the interaction, at least 2. N bits hold of the order of ``N**(n-1)`` patterns; 2 is the
        classical Hopfield model.
    kind : str
        ``"krotov"``: ``F(x) = x**n / (2 N**(n-1))``, leading order, self term excluded; the model of the theory.
        ``"abbott"``: the same over distinct units. ``"exact"``: the full difference of the energies, which never rises
        under asynchronous updates. ``"rectified"``: ``max(x, 0)**n``. ``"exp"``: ``exp(beta x)``. ``"softmax"``:
        continuous states, one sweep is ``softmax(beta X s) X``. The last three have no theory here.
    update : str
        ``"parallel"``, or ``"asynchronous"``: unit after unit, in a new random order each sweep.
    max_sweeps : int
        Where recall stops at the latest.
    temperature : float
        ``P(h = +1) = (1 + tanh(u / T)) / 2`` with u in units where a whole pattern gives 1.
    tie : str
        What a unit does whose field is zero: ``"keep"`` its value, ``"+1"``, or ``"random"``.
    random_state : int, Generator or None
        Seeds ties, temperature and the order of asynchronous updates; a cue's path doesn't depend on the other cues.
    n_jobs : int
        Threads. No result depends on it.
    beta : float
        The steepness of ``exp`` and ``softmax``.
    packed : bool
        Patterns and cues are octets as ``numpy.packbits`` writes them.
    n_bits : int, optional
        With `packed`, how many bits of each row count; all when left out.
    decorrelate : str
        ``"none"``; ``"drop"``: constant bits aren't stored, and are put back into what is recalled; ``"project"``: the
        signs of `n_projected` random combinations of the bits are stored instead, so that states are such codes and
        `nearest` says which pattern is meant.
    n_projected : int, optional
        As many as there are bits when left out.
    path : str
        ``"packed"``, ``"gemm"``, or ``"auto"``: which kernels compute a sweep. No result depends on it.

    Attributes
    ----------
    n_features_in_ : int
        Bits of a pattern as given.
    n_patterns_ : int
        Stored patterns.
    n_duplicates_ : int
        How many of them are copies of an earlier one.
    first_copy_ : tuple of int
        Where there are copies: the number of the first one, and of the pattern that it equals.
    load_ : float
        The normalised load ``alpha'``: patterns over what the noise of the kind allows.
    coding_ : str
        ``"pm1"``, ``"01"`` or ``"bool"``.

    Raises
    ------
    InputError
        A parameter has no meaning, when `fit` or `recall` meets it.

    Notes
    -----
    The model and its dynamics: Mimura et al., "Dynamical properties of dense associative memory", arXiv 2506.00851.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.memory import DenseAssociativeMemory
    >>> X = np.random.default_rng(0).integers(0, 2, size=(300, 64))
    >>> memory = DenseAssociativeMemory(order=4).fit(X)
    >>> cue = X[:1].copy()
    >>> cue[0, :6] = 1 - cue[0, :6]
    >>> result = memory.recall(cue)
    >>> int(result.nearest[0]), int(result.distance[0]), bool((result.states == X[:1]).all())
    (0, 0, True)
    """

    def __init__(
        self,
        order: int = 3,
        kind: Kind = "krotov",
        *,
        update: Literal["parallel", "asynchronous"] = "parallel",
        max_sweeps: int = 100,
        temperature: float = 0.0,
        tie: Tie = "keep",
        random_state: int | np.random.Generator | None = None,
        n_jobs: int = 1,
        beta: float = 1.0,
        packed: bool = False,
        n_bits: int | None = None,
        decorrelate: Literal["none", "drop", "project"] = "none",
        n_projected: int | None = None,
        path: Literal["auto", "packed", "gemm"] = "auto",
    ) -> None:
        self.order = order
        self.kind = kind
        self.update = update
        self.max_sweeps = max_sweeps
        self.temperature = temperature
        self.tie = tie
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.beta = beta
        self.packed = packed
        self.n_bits = n_bits
        self.decorrelate = decorrelate
        self.n_projected = n_projected
        self.path = path

    def fit(self: Self, X: ArrayLike, y: object = None) -> Self:
        """Store patterns, forgetting what was stored before.

        Parameters
        ----------
        X : array_like or tensor, shape (patterns, bits)
            Truth values, 0/1 or ±1; packed octets with ``packed=True``.
        y : object
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        InputError
            There are no patterns, or a value is NaN or none of two levels (naming the first row and column).

        Warns
        -----
        CapacityWarning, DuplicateWarning, PrecisionWarning
        """
        self.check_parameters()
        signs, coding = self._signs_of_patterns(X)
        self.coding_: Coding = coding
        self.n_features_in_ = signs.shape[1]
        self._decorrelation = Decorrelation.learn(
            signs,
            method=self.decorrelate,
            width=self.n_projected,
            seed=_seed(self.random_state) if self.decorrelate == "project" else 0,
        )
        stored = self._decorrelation.apply(signs)
        if self.kind == "abbott" and stored.shape[1] < self.order:
            raise InputError(
                f"order is {self.order} for patterns of {counted(stored.shape[1], 'bit')}",
                expected="no more than their bits for kind='abbott'",
            )
        self._patterns = PackedPatterns(pack_words(stored > 0), bits=stored.shape[1])
        self._settle()
        return self

    def partial_fit(self: Self, X: ArrayLike, y: object = None) -> Self:
        """Store more patterns.

        Parameters
        ----------
        X : array_like or tensor, shape (patterns, bits)
            As for `fit`, and as wide.
        y : object
            Ignored.

        Returns
        -------
        self
        """
        if not hasattr(self, "_patterns"):
            return self.fit(X)
        signs, coding = self._signs_of_patterns(X)
        if signs.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {signs.shape[1]} features, but DenseAssociativeMemory is expecting "
                f"{self.n_features_in_} features as input"
            )
        if "bool" not in (coding, self.coding_) and coding != self.coding_ and bool((signs < 0).any()):
            raise InputError("X is coded otherwise than the stored patterns", expected="the same two levels")
        added = self._decorrelation.apply(signs)
        if self.decorrelate == "drop" and not np.array_equal(self._decorrelation.restore(added), signs):
            raise InputError(
                "X differs in bits that were constant when the memory was made", expected="fit with all patterns"
            )
        self._patterns.append(pack_words(added > 0))
        self._settle()
        return self

    def recall(
        self,
        cues: ArrayLike,
        *,
        history: bool = False,
        targets: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> RecallResult:
        """Let cues run until they rest.

        Parameters
        ----------
        cues : array_like or tensor, shape (cues, bits)
            Coded as the patterns; or ±1 with 0 for an erased bit, whatever the patterns are.
        history : bool
            Also give the overlap with the target after each sweep.
        targets : array_like of int, shape (cues,), optional
            The numbers of the patterns that are meant; the nearest to the final state when left out.
        progress : callable, optional
            Called with (cues done, cues) now and then.

        Returns
        -------
        RecallResult
            States are a tensor on the cues' device when the cues are one.

        Raises
        ------
        InputError
            The cues are of another width, or a value is no level.
        NotFittedError
            Nothing is stored yet.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.array([[1, 1, 1, 1, -1, -1, -1, -1], [1, -1, 1, -1, 1, -1, 1, -1]])
        >>> memory = DenseAssociativeMemory(order=3).fit(X)
        >>> memory.recall([[1, 1, 1, 0, 0, 0, -1, 1]]).states
        array([[ 1,  1,  1,  1, -1, -1, -1, -1]], dtype=int8)
        """
        self._check_fitted()
        self.check_parameters()
        tensor = cues if _is_tensor(cues) else None
        if self.kind == "softmax":
            return self._recall_softmax(cues, tensor, progress)
        signs = self._signs_of_cues(cues)
        wanted = self._targets(targets, len(signs))
        entropy = _seed(self.random_state) if self._dynamics().random else 0
        parts = []
        together = max(1, min(STATES_AT_ONCE, WEIGHTS_AT_ONCE // self.n_patterns_))
        for first in range(0, len(signs), together):
            last = min(first + together, len(signs))
            parts.append(self._recall_part(signs[first:last], first, wanted, entropy=entropy, history=history))
            if progress is not None:
                progress(last, len(signs))
        if history:
            longest = max(part.history.shape[1] for part in parts if part.history is not None)
            for part in parts:
                assert part.history is not None
                part.history = np.pad(part.history, ((0, 0), (0, longest - part.history.shape[1])), mode="edge")
        result = RecallResult(
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in ("states", "sweeps", "converged", "cycle", "nearest", "distance")
            },
            history=np.concatenate([part.history for part in parts]) if history else None,
        )
        result.states = self._answer(result.states, tensor)
        return result

    def transform(self, X: ArrayLike) -> Any:
        """The recalled states alone: ``recall(X).states``.

        Parameters
        ----------
        X : array_like or tensor, shape (cues, bits)

        Returns
        -------
        ndarray or tensor, shape (cues, bits)
        """
        return self.recall(X).states

    def overlaps(self, states: ArrayLike) -> NDArray[np.int32]:
        """Sums over the bits of pattern times state; the Hamming distance is ``(bits - overlap) / 2``.

        Parameters
        ----------
        states : array_like, shape (states, bits)
            As cues; erased bits count nothing.

        Returns
        -------
        ndarray of int32, shape (states, patterns)
        """
        self._check_fitted()
        return self._patterns.overlaps(*pack_signs(self._signs_of_cues(states)), threads=self._threads())

    def energy(self, states: ArrayLike) -> NDArray[np.float64]:
        """The energy ``H = -sum F(overlap)`` of states.

        ``krotov`` and ``exact``: ``F(x) = x**n / (2 N**(n-1))``; ``abbott``: the same over distinct units;
        ``rectified``: ``max(x, 0)**n / (2 N**(n-1))``; ``exp``: the logarithm is given, ``-log sum exp(beta x)``;
        ``softmax``: ``-log sum exp(beta x) / beta + |s|**2 / 2``.

        Parameters
        ----------
        states : array_like, shape (states, bits)
            As cues.

        Returns
        -------
        ndarray of float64, shape (states,)
        """
        self._check_fitted()
        signs = self._signs_of_cues(states)
        overlaps = self._patterns.overlaps(*pack_signs(signs), threads=self._threads())
        if self.kind in ("exp", "softmax"):
            from scipy.special import logsumexp

            energy = -logsumexp(self.beta * overlaps.astype(np.float64), axis=1)
            if self.kind == "exp":
                return np.asarray(energy)
            return np.asarray(energy / self.beta + 0.5 * (signs.astype(np.float64) ** 2).sum(axis=1))
        bits = self._patterns.bits
        scale = 2.0 * float(bits) ** (self.order - 1)
        if self.kind == "abbott":
            rows = []
            for row, state in zip(overlaps, signs, strict=True):
                units = int(np.count_nonzero(state))
                values, counts = np.unique(row, return_counts=True)
                votes = (distinct_tuples(int(y), order=self.order, units=units) for y in values)
                rows.append(sum(int(count) * vote for count, vote in zip(counts, votes, strict=True)))
            return -np.array(rows, dtype=np.float64) / scale
        base = np.maximum(overlaps, 0) if self.kind == "rectified" else overlaps
        return np.asarray(-(base.astype(np.float64) ** self.order).sum(axis=1) / scale)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the memory with its settings, whole or not at all.

        Parameters
        ----------
        path : path
            Ends in ``.dam``. A safetensors file: the packed patterns, and the settings as metadata.
        force : bool
            Replace an existing file.

        Returns
        -------
        Path

        Raises
        ------
        InputError
            The file exists, or can't be written there.
        """
        from safetensors.numpy import save

        self._check_fitted()
        if Path(path).suffix != SUFFIX:
            raise InputError(
                f"unknown ending '{Path(path).suffix}'", file=path, expected=f"a name that ends in {SUFFIX}"
            )
        settings = {name: value for name, value in self.get_params().items() if name != "random_state"}
        settings["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        decorrelation = self._decorrelation
        metadata = {
            "format": FILE_FORMAT,
            "version": FILE_VERSION,
            "settings": json.dumps(settings),
            "bits": str(self._patterns.bits),
            "features": str(self.n_features_in_),
            "coding": self.coding_,
            "shape": json.dumps(getattr(self, "image_shape_", None)),
            "projection": json.dumps({"seed": str(decorrelation.seed), "width": decorrelation.width}),
        }
        tensors: dict[str, NDArray[Any]] = {
            "rows": self._patterns.rows,
            "kept": decorrelation.kept,
            "constants": decorrelation.constants,
            "mean": decorrelation.mean,
        }
        with atomic_path(path, force=force) as temporary:
            temporary.write_bytes(save(tensors, metadata=metadata))
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DenseAssociativeMemory:
        """Read what `save` wrote.

        Parameters
        ----------
        path : path

        Returns
        -------
        DenseAssociativeMemory

        Raises
        ------
        InputError
            The file is missing, damaged, or of another kind or version.
        """
        from safetensors import SafetensorError, safe_open

        file = existing_file(path)
        try:
            with safe_open(os.fspath(file), framework="numpy") as opened:
                metadata = opened.metadata() or {}
                if metadata.get("format") != FILE_FORMAT:
                    raise InputError(
                        "isn't a memory", file=file, expected=f"a file that DenseAssociativeMemory wrote ({SUFFIX})"
                    )
                if metadata.get("version") != FILE_VERSION:
                    raise InputError(
                        f"is of version {metadata.get('version')}", file=file, expected=f"version {FILE_VERSION}"
                    )
                tensors = {name: opened.get_tensor(name) for name in ("rows", "kept", "constants", "mean")}
            memory = cls(**json.loads(metadata["settings"]))
            projection = json.loads(metadata["projection"])
            memory.coding_ = metadata["coding"]
            memory.n_features_in_ = int(metadata["features"])
            shape = json.loads(metadata["shape"])
            if shape is not None:
                memory.image_shape_ = tuple(shape)
            memory._decorrelation = Decorrelation(
                memory.decorrelate,
                memory.n_features_in_,
                tensors["kept"],
                tensors["constants"],
                tensors["mean"],
                seed=int(projection["seed"]),
                width=projection["width"],
            )
            memory._patterns = PackedPatterns(tensors["rows"], bits=int(metadata["bits"]))
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            reason = " ".join(str(error).split())
            raise InputError(f"damaged or no memory: {reason}", file=file, expected=f"a whole {SUFFIX} file") from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            memory._settle()
        return memory

    @property
    def nbytes_(self) -> int:
        """Bytes that the stored patterns take in memory."""
        self._check_fitted()
        return self._patterns.nbytes

    def patterns(self, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """The stored patterns, in their coding.

        Parameters
        ----------
        first, last : int
            From where on, and where to end (exclusive); all when left out.

        Returns
        -------
        ndarray, shape (patterns, bits)
        """
        self._check_fitted()
        return encode(self._decorrelation.restore(self._patterns.signs(first, last)), self.coding_)

    def _settle(self) -> None:
        """What follows from the stored patterns, and warnings about them."""
        self.n_patterns_ = len(self._patterns)
        bits = self._patterns.bits
        self.load_ = load_factor(self.order, self.kind) * self.n_patterns_ / float(bits) ** (self.order - 1)
        copies, first = _duplicates(self._patterns.rows)
        self.n_duplicates_ = len(copies)
        if len(copies):
            self.first_copy_ = (int(copies[0]), first)
            warnings.warn(
                f"{len(copies):,} of {counted(self.n_patterns_, 'pattern')} are copies of earlier ones: pattern "
                f"{copies[0]} equals pattern {first}",
                DuplicateWarning,
                stacklevel=3,
            )
        capacity = replica_symmetric(self.order).load
        if self.kind in ("krotov", "abbott", "exact") and self.load_ > capacity:
            warnings.warn(
                f"{counted(self.n_patterns_, 'pattern')} of {counted(bits, 'bit')} load order {self.order} to alpha' = "
                f"{self.load_:.3g}, beyond its "
                f"capacity of {capacity:.3g}: recall fails, unless the cues are near or the patterns far from random",
                CapacityWarning,
                stacklevel=3,
            )
        if self.kind not in ("exp", "softmax"):
            tables = field_tables(self.kind, self.order, bits=bits, known=bits, patterns=self.n_patterns_)
            if not tables.exact:
                warnings.warn(
                    f"order {self.order} with {counted(bits, 'bit')} and {counted(self.n_patterns_, 'pattern')} sums "
                    "votes beyond 2**53: they are scaled and rounded as float64",
                    PrecisionWarning,
                    stacklevel=3,
                )

    def check_parameters(self) -> None:
        """Refuse parameters that have no meaning, before anything is read.

        Raises
        ------
        InputError
            Naming the parameter.
        """
        require_order(self.order)
        require_kind(self.kind)
        for name, allowed in (
            ("update", ("parallel", "asynchronous")),
            ("tie", ("keep", "+1", "random")),
            ("path", ("auto", "packed", "gemm")),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} is {getattr(self, name)!r}", expected=f"one of {', '.join(allowed)}")
        if not isinstance(self.max_sweeps, int | np.integer) or self.max_sweeps < 1:
            raise InputError(f"max_sweeps is {self.max_sweeps!r}", expected="an integer of at least 1")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise InputError(f"temperature is {self.temperature!r}", expected="a finite number of at least 0")
        if not (self.beta > 0 and math.isfinite(self.beta)):
            raise InputError(f"beta is {self.beta!r}", expected="a positive number")
        if self.temperature > 0 and self.kind in ("exp", "softmax"):
            raise InputError(
                f"temperature is {self.temperature!r} for kind={self.kind!r}", expected="0: beta is its steepness"
            )
        if self.decorrelate != "none" and self.kind == "softmax":
            raise InputError(
                f"decorrelate is {self.decorrelate!r} for kind='softmax'", expected="none: its states are continuous"
            )
        if self.update == "asynchronous" and self.kind == "softmax":
            raise InputError(
                "update is 'asynchronous' for kind='softmax'", expected="parallel: its states are continuous"
            )
        if self.n_projected is not None and (
            not isinstance(self.n_projected, int | np.integer) or self.n_projected < 1
        ):
            raise InputError(f"n_projected is {self.n_projected!r}", expected="an integer of at least 1")
        if not isinstance(self.random_state, np.random.Generator) and self.random_state is not None:
            _seed(self.random_state)
        self._threads()

    def _threads(self) -> int:
        if not isinstance(self.n_jobs, int | np.integer) or self.n_jobs == 0:
            raise InputError(f"n_jobs is {self.n_jobs!r}", expected="a positive number of threads, or -1 for all cores")
        return int(self.n_jobs) if self.n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + int(self.n_jobs))

    def _check_fitted(self) -> None:
        if not hasattr(self, "_patterns"):
            raise NotFittedError("This DenseAssociativeMemory instance is not fitted yet: call fit, or load a file")

    def _signs_of_patterns(self, X: ArrayLike) -> tuple[NDArray[np.int8], Coding]:
        values = _as_numpy(X)
        if self.packed:
            return signs_of_patterns(unpack_octets(values, bits=self.n_bits, name="X"), name="X")
        return signs_of_patterns(values)

    def _signs_of_cues(self, cues: ArrayLike) -> NDArray[np.int8]:
        values = _as_numpy(cues)
        if self.packed and np.asarray(values).dtype == np.uint8 and np.asarray(values).shape[-1] != self.n_features_in_:
            values = unpack_octets(values, bits=self.n_features_in_, name="cues")
        signs = signs_of_cues(values, coding=self.coding_, bits=self.n_features_in_)
        return self._decorrelation.apply(signs)

    def _targets(self, targets: ArrayLike | None, count: int) -> NDArray[np.int64] | None:
        if targets is None:
            return None
        wanted = np.asarray(targets)
        if wanted.shape != (count,) or wanted.dtype.kind not in "iu":
            raise InputError(f"targets has shape {wanted.shape}", expected=f"{count} numbers of patterns")
        if count and not (wanted.min() >= 0 and wanted.max() < self.n_patterns_):
            raise InputError(
                f"targets reach from {wanted.min()} to {wanted.max()}",
                expected=f"numbers from 0 to {self.n_patterns_ - 1}",
            )
        return wanted.astype(np.int64)

    def _dynamics(self) -> Dynamics:
        return Dynamics(
            kind=self.kind,
            order=self.order,
            beta=self.beta,
            update=self.update,
            max_sweeps=self.max_sweeps,
            temperature=self.temperature,
            tie=self.tie,
            path=self.path,
            threads=self._threads(),
        )

    def _recall_part(
        self, signs: NDArray[np.int8], first: int, targets: NDArray[np.int64] | None, *, entropy: int, history: bool
    ) -> RecallResult:
        dynamics = self._dynamics()
        generators = None
        if dynamics.random:
            generators = [
                np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy, spawn_key=(first + cue,))))
                for cue in range(len(signs))
            ]
        found = run_dynamics(self._patterns, signs, dynamics, generators=generators, keep_visited=history)
        overlaps = self._patterns.overlaps(*pack_signs(found.states), threads=dynamics.threads)
        nearest = overlaps.argmax(axis=1)
        distance = (self._patterns.bits - overlaps.max(axis=1).astype(np.int64)) // 2
        path = None
        if history:
            meant = nearest if targets is None else targets[first : first + len(signs)]
            rows = np.stack([self._patterns.signs(pattern, pattern + 1)[0] for pattern in meant]).astype(np.float64)
            path = np.stack(
                [np.einsum("ij,ij->i", rows, state) / self._patterns.bits for state in found.visited], axis=1
            )
        return RecallResult(found.states, found.sweeps, found.converged, found.cycle, nearest, distance, path)

    def _recall_softmax(self, cues: ArrayLike, tensor: Any, progress: Progress | None) -> RecallResult:
        answer: Any
        if tensor is not None and tensor.is_floating_point():
            from assay.memory.module import softmax_recall

            patterns = tensor.new_tensor(self._patterns.signs())
            if tensor.shape[-1] != self.n_features_in_:
                raise InputError(
                    f"cues has {tensor.shape[-1]} features, but the memory is expecting {self.n_features_in_} "
                    f"features as input"
                )
            answer, sweeps, settled = softmax_recall(tensor, patterns, beta=self.beta, max_sweeps=self.max_sweeps)
            final = answer.detach().cpu().numpy()
            counted, converged = sweeps.cpu().numpy(), settled.cpu().numpy()
        else:
            final = np.asarray(_as_numpy(cues), dtype=np.float64)
            if final.ndim != 2 or final.shape[1] != self.n_features_in_ or not np.isfinite(final).all():
                self._signs_of_cues(cues)  # says what is wrong
            final = np.asarray(self._signs_of_cues(cues), dtype=np.float64) if _is_coded(final) else final
            counted = np.full(len(final), self.max_sweeps)
            converged = np.zeros(len(final), dtype=np.bool_)
            for sweep in range(self.max_sweeps):
                going = np.flatnonzero(~converged)
                new = self._softmax_sweep(final[going])
                settled_now = np.abs(new - final[going]).max(axis=1) <= SOFTMAX_TOLERANCE
                final[going] = new
                counted[going[settled_now]], converged[going[settled_now]] = sweep, True
                if converged.all():
                    break
            answer = final if tensor is None else tensor.new_tensor(final)
        if progress is not None:
            progress(len(final), len(final))
        nearest, distance = self._nearest(final)
        return RecallResult(
            answer, counted.astype(np.int64), converged, np.zeros(len(final), dtype=np.int64), nearest, distance
        )

    def _softmax_sweep(self, states: NDArray[np.float64]) -> NDArray[np.float64]:
        logits = np.empty((len(states), len(self._patterns)))
        for first, last in self._patterns.blocks():
            logits[:, first:last] = self.beta * (states @ self._patterns.signs(first, last).astype(np.float64).T)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return self._patterns.dense_votes(weights / weights.sum(axis=1, keepdims=True))

    def _nearest(self, states: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        signs = np.where(states >= 0, np.int8(1), np.int8(-1))
        overlaps = self._patterns.overlaps(*pack_signs(signs), threads=self._threads())
        return overlaps.argmax(axis=1), (self._patterns.bits - overlaps.max(axis=1).astype(np.int64)) // 2

    def _answer(self, states: NDArray[np.int8], tensor: Any) -> Any:
        decorrelation = self._decorrelation
        answer = states if decorrelation.method == "project" else encode(decorrelation.restore(states), self.coding_)
        if tensor is None:
            return answer
        return tensor.new_tensor(answer, dtype=None if tensor.dtype.is_floating_point else tensor.dtype)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_patterns")


def _duplicates(rows: NDArray[np.uint64]) -> tuple[NDArray[np.int64], int]:
    """The patterns that are copies of an earlier one, and which one the first of them copies."""
    drawn = np.random.default_rng(0).integers(1, 2**62, size=rows.shape[1], dtype=np.uint64)
    mixers: NDArray[np.uint64] = np.asarray(drawn * np.uint64(2) + np.uint64(1))
    scrambled = rows ^ (rows >> np.uint64(31))
    forward: NDArray[np.uint64] = (scrambled * mixers).sum(axis=1, dtype=np.uint64)
    backward: NDArray[np.uint64] = (rows * mixers[::-1]).sum(axis=1, dtype=np.uint64)
    digests = forward ^ (backward >> np.uint64(7))
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    repeated: NDArray[np.bool_] = np.asarray(counts)[inverse] > 1
    suspects = np.flatnonzero(repeated)
    _, originals, which = np.unique(rows[suspects], axis=0, return_index=True, return_inverse=True)
    first: NDArray[np.int64] = suspects[originals][which.ravel()]
    copied: NDArray[np.bool_] = np.asarray(first != suspects)
    return suspects[copied], int(first[copied][0]) if copied.any() else -1


def _seed(random_state: int | np.random.Generator | None) -> int:
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise InputError(f"random_state is {random_state!r}", expected="an integer, a numpy Generator, or None")
    if random_state < 0:
        raise InputError(f"random_state is {random_state!r}", expected="an integer of at least 0")
    return int(random_state)


def _is_tensor(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "torch"


def _as_numpy(values: Any) -> Any:
    return values.detach().cpu().numpy() if _is_tensor(values) else values


def _is_coded(values: NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (-1.0, 0.0, 1.0)).all())
