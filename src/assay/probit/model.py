"""`CorrelatedProbit`: means and covariance of utilities from choices, and what they predict."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from assay.core.errors import InputError
from assay.core.files import atomic_path, existing_file
from assay.probit._arguments import require_seed, require_whole
from assay.probit._likelihood import FLOOR, log_likelihood
from assay.probit.choices import ChoiceData, Weighting, require_choices, shown
from assay.probit.fitting import (
    Fit,
    Settings,
    fit_covariance,
    fit_independent,
    independent_squares,
    squares_of,
    start_from,
    start_of,
)
from assay.probit.geometry import (
    centring,
    check_covariance,
    correlation_of,
    factor,
    normalise,
    normalised,
    squared_distances,
)
from assay.probit.identification import Identifiability, identifiability
from assay.probit.information import fisher, normalising_jacobian, respondent_scores, standard_errors
from assay.probit.moments import moments_of, table_of
from assay.probit.orthant import Probability, conditional_orthant, orthant
from assay.probit.person import Posterior, constraints_of, differences, gibbs, laplace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["CorrelatedProbit", "ProbitWarning", "Slate", "StandardErrors"]

FORMAT, VERSION = "assay.probit.model", 1
FULL_UP_TO = 15
DEFAULT_RANK = 5
CANDIDATE_RANKS = (1, 2, 3, 5)
HELD_OUT = 0.2
LEAST_USERS_TO_HOLD_OUT = 50
EXTREME_RIDGE = 1e-3
"""Ridge on the means when an item is always first or always last, whose mean would be infinite."""

ERRORS_UP_TO = 60
"""Items up to which standard errors are computed with a fit: the information has n(n + 1)/2 rows."""

EXACT_UP_TO = 12
"""Constraints up to which a prediction given answers is an orthant probability; a Laplace approximation beyond."""

SLATE_DRAWS = 20_000
GIBBS_DRAWS = 4000
FITTED = ("items_", "mu_", "stderr_", "loglik_", "n_iter_", "identified_", "rank_", "_covariance", "covariance_")
Method = Literal["auto", "exact", "laplace", "gibbs"]


class ProbitWarning(UserWarning):
    """Something about the data that the fit worked around, or that the reader of its results must know."""


@dataclass(frozen=True)
class StandardErrors:
    """Standard errors of a normalised fit.

    Attributes
    ----------
    mu : ndarray of float64, shape (n,)
        Of the means.
    covariance : ndarray of float64, shape (n, n)
        Of the covariance's entries. NaN where the data identify nothing.
    method : str
        ``sandwich`` or ``bootstrap``.
    """

    mu: Floats
    covariance: Floats
    method: str


@dataclass(frozen=True)
class Slate:
    """A choice of items to show together.

    Attributes
    ----------
    items : tuple
        In the order in which greed took them.
    expected : float
        Expected utility of the best of them for a random person.
    top : tuple
        The items with the largest means.
    top_expected : float
        The same for those.
    gain, gain_error : float
        The difference, and its Monte Carlo standard error over people.
    """

    items: tuple[Hashable, ...]
    expected: float
    top: tuple[Hashable, ...]
    top_expected: float
    gain: float
    gain_error: float


class CorrelatedProbit(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A random-utility model with correlated utilities, fitted to choices among three or more.

    Every person has utilities X ~ N(mu, Sigma) and answers by them. Adding a constant to X or scaling it changes no
    answer, so mu has mean 0, the rows of Sigma sum to 0, and its trace is n.

    Parameters
    ----------
    rank : "full", int or "auto"
        ``"full"`` fits any covariance. An integer r fits r common directions and equal variances beside them, which
        is another family, not a low-rank covariance; 0 fits independent utilities. ``"auto"`` is ``"full"`` up to 15
        items, and beyond the rank among 1, 2, 3 and 5 that predicts held-out people best.
    estimator : {"moments+mle", "moments", "mle"}
        Moments alone, maximum likelihood from noise, or maximum likelihood from the moments.
    features : array of shape (n, d) or mapping, optional
        Item features: in the order of the data's items, or by item. Then mu = X beta and Sigma = X L L' X' + I.
    ridge : float
        Weight of the squared distance of the covariance from that of independent utilities; 1e-3 helps on few data.
    weight : {"user", "triple"}
        Whether everyone counts the same, or every triple.
    exact : bool
        Take answers about more than three items whole (simulated, slower) instead of as all their triples. Rankings
        are kept whole; ratings are not.
    n_init : int
        Starts; the best is kept, and `init_spread_` says how far the others ended from it.
    aggregation : {"lsq", "anchor"}
        How the moments join triangles.
    stderr : {"auto", "sandwich", "none"}
        Whether standard errors come with the fit; ``"auto"`` computes them up to 60 items.
    optimizer : {"auto", "lbfgs", "adam"}
        ``"auto"`` takes mini-batches above a million distinct events.
    tol : float
        Tolerance on the gradient of the mean log-likelihood.
    max_iter : int
        Most iterations of a start.
    random_state : int
        The seed of everything random.
    n_jobs : int
        Threads; the result doesn't depend on it.

    Attributes
    ----------
    items_ : tuple
        The items.
    mu_ : ndarray of float64, shape (n,)
        Mean utilities.
    covariance_ : ndarray of float64, shape (n, n)
        Covariance of utilities; refused after a fit to pairs alone, which can't identify it.
    stderr_ : StandardErrors or None
        Sandwich standard errors, with scores summed per respondent.
    loglik_ : float
        Mean log-likelihood of an event.
    n_iter_ : int
        Iterations of the best start.
    identified_ : Identifiability
        True where the data identify the model; says why not otherwise.
    clipped_eigenvalue_ : float
        How negative the moment covariance's smallest eigenvalue was.
    init_spread_ : float
        Largest difference of a start's mean log-likelihood from the best.
    rank_ : int
        Common directions that were fitted.

    Examples
    --------
    >>> import numpy as np
    >>> truth = CorrelatedProbit.from_parameters([0.5, 0.0, 0.0, -0.5], np.diag([1.0, 2.0, 1.0, 1.0]), items="abcd")
    >>> model = CorrelatedProbit(n_init=1).fit(truth.simulate(4000, size=3))
    >>> model.items_, round(model.prob("a>d"), 1)
    (('a', 'b', 'c', 'd'), 0.8)

    References
    ----------
    Cherapanamjeri, Daskalakis, Farina and Mohammadpour, Learning Correlated Reward Models: Statistical Barriers and
    Opportunities, ICLR 2026.
    """

    def __init__(
        self,
        rank: int | Literal["full", "auto"] = "auto",
        *,
        estimator: Literal["moments+mle", "moments", "mle"] = "moments+mle",
        features: ArrayLike | Mapping[Hashable, ArrayLike] | None = None,
        ridge: float = 0.0,
        weight: Weighting = "user",
        exact: bool = False,
        n_init: int = 3,
        aggregation: Literal["lsq", "anchor"] = "lsq",
        stderr: Literal["auto", "sandwich", "none"] = "auto",
        optimizer: Literal["auto", "lbfgs", "adam"] = "auto",
        tol: float = 1e-7,
        max_iter: int = 300,
        random_state: int = 0,
        n_jobs: int = 2,
    ) -> None:
        self.rank = rank
        self.estimator = estimator
        self.features = features
        self.ridge = ridge
        self.weight = weight
        self.exact = exact
        self.n_init = n_init
        self.aggregation = aggregation
        self.stderr = stderr
        self.optimizer = optimizer
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def from_parameters(
        cls, mu: ArrayLike, covariance: ArrayLike, *, items: Iterable[Hashable] | None = None
    ) -> CorrelatedProbit:
        """A model with given means and covariance, normalised.

        Parameters
        ----------
        mu : array_like, shape (n,)
            Means.
        covariance : array_like, shape (n, n)
            Symmetric, positive semi-definite.
        items : iterable, optional
            Names; 0 to n - 1 when left out.

        Returns
        -------
        CorrelatedProbit

        Raises
        ------
        InputError
            The covariance isn't one (naming its smallest eigenvalue), or sizes differ.
        """
        mean, matrix = normalise(mu, covariance)
        names = tuple(range(len(mean))) if items is None else tuple(items)
        if len(names) != len(mean) or len(set(names)) < len(names):
            raise InputError(f"items has {len(set(names))} different names", expected=f"{len(mean)}")
        model = cls(rank="full")
        model._set(names, mean, matrix, rank=len(mean) - 1)
        return model

    def _set(self, items: tuple[Hashable, ...], mu: Floats, covariance: Floats | None, *, rank: int) -> None:
        self.items_ = items
        self.mu_ = mu
        self._covariance = covariance
        self.rank_ = rank
        self.stderr_: StandardErrors | None = None
        self.loglik_ = float("nan")
        self.n_iter_ = 0
        self.identified_: Identifiability | None = None
        self.clipped_eigenvalue_ = 0.0
        self.init_spread_ = 0.0
        self.beta_: Floats | None = None
        self.taste_: Floats | None = None
        self.feature_width_ = 0

    def __getattr__(self, name: str) -> Any:
        if name in FITTED:
            raise NotFittedError(f"{name} isn't there before fit; call fit, from_parameters or load first")
        raise AttributeError(f"'CorrelatedProbit' object has no attribute {name!r}")

    @property
    def covariance_(self) -> Floats:
        """Covariance of utilities, normalised, shape (n, n)."""
        if self._covariance is None:
            witness = None if self.identified_ is None else self.identified_.witness
            why = "Theorem 3.2" if witness is None else witness.sentence()
            raise InputError(
                f"the covariance isn't identified by pairs: {why}",
                expected="rankings or best-of-three answers, or rank=0",
            )
        return self._covariance

    def fit(self, data: ChoiceData, *, told: Callable[[str], None] | None = None) -> CorrelatedProbit:
        """Estimate means and covariance.

        Parameters
        ----------
        data : ChoiceData
            The choices. Pairs alone give the means of independent utilities; the covariance is then refused.
        told : callable, optional
            Is called with a line about how far the fit is, after every evaluation of the likelihood.

        Returns
        -------
        CorrelatedProbit
            Itself.

        Raises
        ------
        InputError
            An item was never compared, items fall into groups that were never compared with one another (naming
            them), or a parameter is out of range.
        """
        self._check()
        self._told = told
        try:
            return self._fitted_to(data)
        finally:
            del self._told

    def _fitted_to(self, data: ChoiceData) -> CorrelatedProbit:
        require_choices(data)
        _require_comparable(data)
        n = data.n_items
        distinct = data.distinct(self.weight)
        features = self._feature_matrix(data.items)
        mean_ridge = _extreme_ridge(data)
        self._set(data.items, np.zeros(n), None, rank=0)
        self.identified_ = identifiability(data)
        if data.n_users == 1 and data.n_events > 1 and self.rank != 0:
            warnings.warn(
                "all answers are one person's: the covariance is that of the noise in their answers, not of a "
                "population",
                ProbitWarning,
                stacklevel=2,
            )
        if self.exact and not data.long_answers:
            warnings.warn(
                "exact changes nothing: no answer about more than three items is kept whole (rows of ratings aren't; "
                "rankings are)",
                ProbitWarning,
                stacklevel=3,
            )
        if data.pairs_only or self.rank == 0:
            self.mu_ = fit_independent(distinct, n, mean_ridge=mean_ridge, threads=self.n_jobs, max_iter=self.max_iter)
            self._covariance = None if self.rank != 0 else centring(n) * n / (n - 1)
            self.loglik_ = log_likelihood(distinct, self.mu_, independent_squares(n))
            return self
        rank = self._choose_rank(data, mean_ridge)
        self._fit(data, rank, features, mean_ridge)
        wanted = self.stderr == "sandwich" or (self.stderr == "auto" and n <= ERRORS_UP_TO)
        if wanted and self.estimator != "moments":
            self.stderr_ = self._sandwich(data, rank, features)
            if self.identified_ and not mean_ridge and not np.isfinite(self.stderr_.mu).all():
                warnings.warn(
                    "the estimate lies at the edge of the model, where items coincide or take sides completely, and "
                    "standard errors can't be told; more answers or a ridge keep it inside",
                    ProbitWarning,
                    stacklevel=2,
                )
        return self

    def _check(self) -> None:
        if not (self.rank in ("full", "auto") or (isinstance(self.rank, int | np.integer) and self.rank >= 0)):
            raise InputError(f"rank is {self.rank!r}", expected="'full', 'auto' or a whole number from 0")
        if self.estimator not in ("moments+mle", "moments", "mle"):
            raise InputError(f"estimator is {self.estimator!r}", expected="'moments+mle', 'moments' or 'mle'")
        for name, value in (("ridge", self.ridge), ("tol", self.tol)):
            if not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
                raise InputError(f"{name} is {value!r}", expected="a finite number from 0")
        require_whole("n_init", self.n_init, least=1)
        require_whole("n_jobs", self.n_jobs, least=1)
        require_whole("max_iter", self.max_iter, least=1)
        self._seed()
        if self.optimizer not in ("auto", "lbfgs", "adam"):
            raise InputError(f"optimizer is {self.optimizer!r}", expected="'auto', 'lbfgs' or 'adam'")
        if self.aggregation not in ("lsq", "anchor"):
            raise InputError(f"aggregation is {self.aggregation!r}", expected="'lsq' or 'anchor'")
        if self.exact and (self.rank == 0 or self.estimator == "moments"):
            other = "rank is 0" if self.rank == 0 else "estimator is 'moments'"
            raise InputError(f"exact is true, and {other}", expected="a covariance fitted by maximum likelihood")
        if self.stderr not in ("auto", "sandwich", "none"):
            raise InputError(f"stderr is {self.stderr!r}", expected="'auto', 'sandwich' or 'none'")
        if self.features is not None and self.rank == 0:
            raise InputError("rank is 0 with features", expected="a rank of at least 1")
        if self.estimator == "moments" and (self.features is not None or self.rank not in ("full", "auto")):
            raise InputError(
                "estimator is 'moments', which has a free covariance", expected="rank='full' and no features"
            )

    def _seed(self) -> int:
        return require_seed(self.random_state)

    def _feature_matrix(self, items: Sequence[Hashable]) -> Floats | None:
        if self.features is None:
            return None
        if isinstance(self.features, Mapping):
            absent = [item for item in items if item not in self.features]
            if absent:
                raise InputError(f"no features of {shown(absent)}", expected="a row for every item")
            rows: Any = [self.features[item] for item in items]
        else:
            rows = self.features
        try:
            matrix = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                "features holds something else than numbers", expected="a row of numbers an item"
            ) from None
        if matrix.ndim != 2 or len(matrix) != len(items) or not np.isfinite(matrix).all():
            raise InputError(
                f"features has shape {matrix.shape}", expected=f"finite numbers of shape ({len(items)}, d)"
            )
        # A constant column moves all utilities alike, which no choice shows.
        return matrix

    def _choose_rank(self, data: ChoiceData, mean_ridge: float) -> int:
        n = data.n_items
        if self.rank == "full" or (
            self.rank == "auto" and (n <= FULL_UP_TO or self.estimator == "moments") and self.features is None
        ):
            return n - 1
        if self.rank != "auto":
            rank = int(self.rank)
            if rank > n - 1:
                raise InputError(f"rank is {rank}", expected=f"at most {n - 1} for {n} items")
            return rank
        features = self._feature_matrix(data.items)
        width = n - 1 if features is None else features.shape[1]
        candidates = [rank for rank in CANDIDATE_RANKS if rank <= min(n - 1, width)]
        if data.n_users < LEAST_USERS_TO_HOLD_OUT:
            return candidates[-1]
        order = np.random.default_rng(self.random_state).permutation(data.n_users)
        cut = int(HELD_OUT * data.n_users)
        train, test = data.of_users(order[cut:]), data.of_users(order[:cut])
        if not len(train.triples) or not test.n_events:
            return candidates[-1]
        held = test.distinct(self.weight)
        scores = []
        for rank in candidates:
            fit = self._fit_once(train, rank, features, mean_ridge, noise=None)
            scores.append(log_likelihood(held, fit.mu, np.maximum(squared_distances(fit.covariance), 1e-12)))
        return candidates[int(np.argmax(scores))]

    def _settings(self, rank: int, n: int, mean_ridge: float) -> Settings:
        free = rank == n - 1 and self.features is None
        return Settings(
            rank=rank,
            psi=FLOOR if free else 1.0,
            ridge=self.ridge,
            mean_ridge=mean_ridge,
            told=getattr(self, "_told", None),
            tol=self.tol,
            max_iter=self.max_iter,
            threads=self.n_jobs,
            optimizer=self.optimizer,
        )

    def _fit_once(
        self,
        data: ChoiceData,
        rank: int,
        features: Floats | None,
        mean_ridge: float,
        *,
        noise: np.random.Generator | None,
        start: Any = None,
    ) -> Fit:
        n = data.n_items
        settings = self._settings(rank, n, mean_ridge)
        extra, extra_weight = None, 0.0
        used = data
        if self.exact and data.long_answers:
            from assay.probit.long_rankings import exact_long_likelihood

            used = data.short_answers()
            extra, extra_weight = exact_long_likelihood(data, psi=settings.psi, seed=self.random_state)
        if start is None:
            start = start_from(data.distinct(self.weight), n)
        return fit_covariance(
            used.distinct(self.weight),
            n,
            settings,
            start=start,
            features=features,
            noise=noise,
            extra=extra,
            extra_weight=extra_weight,
        )

    def _fit(self, data: ChoiceData, rank: int, features: Floats | None, mean_ridge: float) -> None:
        distinct = data.distinct(self.weight)
        n = data.n_items
        if self.estimator == "moments":
            table = table_of(distinct, n)
            alphas = _pooled_alphas(table.wins, table.orders) if (table.orders.sum(axis=1) == 0).any() else None
            found = moments_of(table, n, aggregation=self.aggregation, alphas=alphas, names=data.items)
            self.mu_, self._covariance, self.clipped_eigenvalue_ = found.mu, found.covariance, found.clipped
            self.rank_ = n - 1
            floored = np.maximum(squared_distances(found.covariance), FLOOR)
            np.fill_diagonal(floored, 0.0)
            self.loglik_ = log_likelihood(distinct, found.mu, floored)
            return
        start = start_from(distinct, n)
        self.clipped_eigenvalue_ = start.clipped
        fits = []
        for number in range(self.n_init):
            from_moments = number == 0 and self.estimator == "moments+mle"
            noise = None if from_moments else np.random.default_rng([self.random_state, number])
            fits.append(self._fit_once(data, rank, features, mean_ridge, noise=noise, start=start))
        best = max(fits, key=lambda one: one.loglik)
        if not best.converged:
            warnings.warn(f"no convergence after {best.n_iter} iterations", ProbitWarning, stacklevel=3)
        self.init_spread_ = float(best.loglik - min(one.loglik for one in fits))
        self.mu_, self._covariance = best.mu, best.covariance
        self.loglik_, self.n_iter_, self.rank_ = best.loglik, best.n_iter, rank
        self._fitted = best
        if features is not None:
            self.beta_, self.taste_, self.feature_width_ = best.beta, best.loadings, features.shape[1]

    def _sandwich(self, data: ChoiceData, rank: int, features: Floats | None) -> StandardErrors:
        distinct = data.distinct(self.weight)
        n = data.n_items
        fit = self._fitted
        # A scale of its own for factor models, whose parameters are those of the fit and not of the normalised model.
        loadings = fit.loadings if features is None else features @ fit.loadings
        squares = squares_of(loadings, fit.psi)
        mu = fit.beta if features is None else features @ fit.beta
        parameters = None
        if fit.psi >= 0.5:
            parameters = _factor_jacobian(loadings, n)
            if features is not None:
                wide = np.kron(features, np.eye(rank))
                parameters = np.column_stack([parameters[:, :n] @ features, parameters[:, n:] @ wide])
        errors, _ = standard_errors(
            fisher(distinct, mu, squares),
            respondent_scores(distinct, data.triple_users, data.pair_users, mu, squares),
            normalising_jacobian(mu, squares),
            parameters=parameters,
        )
        covariance = np.zeros((n, n))
        covariance[np.triu_indices(n)] = errors[n:]
        return StandardErrors(errors[:n], np.maximum(covariance, covariance.T), "sandwich")

    def bootstrap(self, data: ChoiceData, *, draws: int = 100, random_state: int | None = None) -> StandardErrors:
        """Standard errors by drawing respondents with replacement and fitting again, from this fit's estimate.

        Parameters
        ----------
        data : ChoiceData
            What the model was fitted to.
        draws : int
            Resamples.
        random_state : int, optional
            The seed; the model's own when left out.

        Returns
        -------
        StandardErrors
        """
        require_whole("draws", draws, least=2)
        rng = np.random.default_rng(self._seed() if random_state is None else require_seed(random_state))
        features = self._feature_matrix(data.items)
        start = start_of(self.mu_, self.covariance_)
        found = []
        for _ in range(draws):
            chosen = rng.integers(0, data.n_users, data.n_users)
            fit = self._fit_once(_resampled(data, chosen), self.rank_, features, 0.0, noise=None, start=start)
            found.append((fit.mu, fit.covariance))
        return StandardErrors(
            np.std([mu for mu, _ in found], axis=0, ddof=1),
            np.std([covariance for _, covariance in found], axis=0, ddof=1),
            "bootstrap",
        )

    def position(self, item: Hashable) -> int:
        """Where an item is in `items_`; text finds the item whose text it is.

        Raises
        ------
        InputError
            The model has no such item.
        """
        try:
            return self._positions()[item]
        except (KeyError, TypeError):
            by_text = {str(name): index for index, name in enumerate(self.items_)}
            if isinstance(item, str) and item in by_text:
                return by_text[item]
            raise InputError(f"unknown item {item!r}", expected=f"one of {shown(self.items_)}") from None

    def _positions(self) -> dict[Hashable, int]:
        return {name: index for index, name in enumerate(self.items_)}

    def correlation(self, *, kind: Literal["shifted", "centered"] = "shifted") -> Floats:
        """Correlations of utilities.

        Parameters
        ----------
        kind : {"shifted", "centered"}
            Centred utilities of independent items have correlations of -1/(n - 1). ``"shifted"`` moves the mean
            off-diagonal covariance to 0; ``"centered"`` doesn't.

        Returns
        -------
        ndarray of float64, shape (n, n)
        """
        return correlation_of(self.covariance_, kind=kind)

    def prob(self, order: Any, *, given: Any = None, method: Method = "exact", points: int = 1024) -> float:
        """The probability that a person answers so, perhaps given other answers of theirs.

        Parameters
        ----------
        order : str or sequence
            ``"a>b~c"``, or items from best to worst with lists as ties.
        given : str, ranking, or iterable of them, optional
            What is known of the person.
        method : {"exact", "auto", "laplace", "gibbs"}
            As for `predict_pair`.
        points : int
            Points of the simulation, which starts at four constraints.

        Returns
        -------
        float

        Raises
        ------
        InputError
            An item is unknown, the order prefers nothing, or the answers contradict each other.
        """
        return self.probability(order, given=given, method=method, points=points).value

    def probability(
        self, order: Any, *, given: Any = None, method: Method = "exact", points: int = 1024
    ) -> Probability:
        """`prob` with its Monte Carlo error and its logarithm."""
        known = constraints_of(given, self.position)
        asked = constraints_of([order], self.position)
        if not len(asked):
            raise InputError(f"the order {order!r} prefers nothing", expected="an item above another, such as a>b")
        if self._method_for(known, method) != "exact":
            return self._approximate(asked, known, method=self._method_for(known, method), points=points)
        try:
            constraints_of(
                [[self.items_[a], self.items_[b]] for a, b in np.concatenate([known, asked]).tolist()], self.position
            )
        except InputError:
            return Probability(0.0, 0.0, -np.inf)
        rows = differences(np.concatenate([known, asked]), len(self.items_))
        return conditional_orthant(
            rows @ self.mu_, rows @ self.covariance_ @ rows.T, len(known), points=points, seed=self._seed()
        )

    def _method_for(self, known: Any, method: str) -> str:
        if method not in ("auto", "exact", "laplace", "gibbs"):
            raise InputError(f"method is {method!r}", expected="'auto', 'exact', 'laplace' or 'gibbs'")
        if method == "auto":
            return "exact" if len(known) <= EXACT_UP_TO else "laplace"
        return method

    def _approximate(self, asked: Any, known: Any, *, method: str, points: int) -> Probability:
        """The probability of an order in a person's posterior."""
        found = self._posterior(known, method=method, draws=GIBBS_DRAWS)
        if found.draws is None:
            rows = differences(asked, len(self.items_))
            return orthant(rows @ found.mean, rows @ found.covariance @ rows.T, points=points, seed=self._seed())
        share = float((found.draws[:, asked[:, 0]] > found.draws[:, asked[:, 1]]).all(axis=1).mean())
        error = float(np.sqrt(share * (1 - share) / GIBBS_DRAWS))
        return Probability(share, error, float(np.log(share)) if share > 0 else -np.inf)

    def prob_best(self, item: Hashable, among: Iterable[Hashable], *, given: Any = None) -> float:
        """The probability that an item is the best of a set for a person.

        Parameters
        ----------
        item : hashable
            The item.
        among : iterable
            The set; `item` may be left out of it.
        given : str, ranking, or iterable of them, optional
            What is known of the person.

        Returns
        -------
        float
        """
        others = [other for other in among if self.position(other) != self.position(item)]
        if not others:
            raise InputError(f"the set holds nothing but {item!r}", expected="other items")
        return self.prob([item, others], given=given)

    def predict_pair(
        self,
        a: Hashable,
        b: Hashable,
        *,
        given: Any = None,
        method: Method = "auto",
    ) -> float:
        """The probability that a person prefers `a` to `b`, given their answers.

        Parameters
        ----------
        a, b : hashable
            The items.
        given : str, ranking, or iterable of them, optional
            The person's answers.
        method : {"auto", "exact", "laplace", "gibbs"}
            Orthant probabilities, an approximation for many answers, or exact draws. ``"auto"`` is exact up to 12
            constraints and Laplace beyond.

        Returns
        -------
        float
        """
        i, j = self.position(a), self.position(b)
        if i == j:
            raise InputError(f"both items are {a!r}", expected="two different items")
        return self.prob([self.items_[i], self.items_[j]], given=given, method=method)

    def posterior(
        self, answers: Any, *, method: Literal["laplace", "gibbs"] = "laplace", draws: int = 2000
    ) -> Posterior:
        """A person's utilities given their answers.

        Parameters
        ----------
        answers : str, ranking, or iterable of them
            The answers.
        method : {"laplace", "gibbs"}
            A normal approximation that lets answers err a little, or draws that obey them exactly.
        draws : int
            Draws of the Gibbs sampler.

        Returns
        -------
        Posterior
        """
        return self._posterior(constraints_of(answers, self.position), method=method, draws=draws)

    def _posterior(self, known: Any, *, method: str, draws: int) -> Posterior:
        if method not in ("laplace", "gibbs"):
            raise InputError(f"method is {method!r}", expected="'laplace' or 'gibbs'")
        require_whole("draws", draws, least=2)
        loadings = factor(self.covariance_)
        if method == "laplace":
            z, spread = laplace(self.mu_, loadings, known)
            return Posterior(self.mu_ + loadings @ z, loadings @ spread @ loadings.T)
        drawn = gibbs(self.mu_, loadings, known, draws=draws, rng=np.random.default_rng(self._seed()))
        return Posterior(drawn.mean(axis=0), np.cov(drawn.T), drawn)

    def slate(self, k: int, *, draws: int = SLATE_DRAWS) -> Slate:
        """Items that together serve different tastes: greedy maximisation of E max of X over the slate.

        The expectation of a maximum is monotone and submodular, so greed reaches at least 1 - 1/e of the best.

        Parameters
        ----------
        k : int
            How many items.
        draws : int
            People drawn from the model, common to all slates.

        Returns
        -------
        Slate
            Compared with the k items of the largest means.
        """
        n = len(self.items_)
        require_whole("k", k, least=1, most=n, what="items")
        require_whole("draws", draws, least=2)
        people = self.draw(draws, rng=np.random.default_rng(self._seed()))
        chosen: list[int] = []
        best = np.full(draws, -np.inf)
        for _ in range(k):
            means = np.maximum(best[:, None], people).mean(axis=0)
            means[chosen] = -np.inf
            chosen.append(int(means.argmax()))
            best = np.maximum(best, people[:, chosen[-1]])
        top = np.argsort(-self.mu_, kind="stable")[:k].tolist()
        top_best = people[:, top].max(axis=1)
        gain = best - top_best
        return Slate(
            tuple(self.items_[index] for index in chosen),
            float(best.mean()),
            tuple(self.items_[index] for index in top),
            float(top_best.mean()),
            float(gain.mean()),
            float(gain.std(ddof=1) / np.sqrt(draws)),
        )

    def draw(self, people: int, *, rng: np.random.Generator) -> Floats:
        """Utilities of random people, shape (people, n)."""
        loadings = factor(self.covariance_)
        return self.mu_ + rng.standard_normal((people, loadings.shape[1])) @ loadings.T

    def simulate(
        self,
        people: int,
        *,
        size: int = 3,
        kind: Literal["ranking", "best"] = "ranking",
        random_state: int | None = None,
    ) -> ChoiceData:
        """Answers of random people to one random question each.

        Parameters
        ----------
        people : int
            How many.
        size : int
            Items in a question.
        kind : {"ranking", "best"}
            Whether they are ranked, or only the best is named.
        random_state : int, optional
            The seed; the model's own when left out.

        Returns
        -------
        ChoiceData
        """
        n = len(self.items_)
        require_whole("people", people, least=1)
        require_whole("size", size, least=2, most=n, what="items")
        if kind not in ("ranking", "best"):
            raise InputError(f"kind is {kind!r}", expected="'ranking' or 'best'")
        rng = np.random.default_rng(self._seed() if random_state is None else require_seed(random_state))
        utilities = self.draw(people, rng=rng)
        asked = np.argsort(rng.random((people, n)), axis=1)[:, :size]
        order = np.argsort(-np.take_along_axis(utilities, asked, axis=1), axis=1)
        ranked = np.take_along_axis(asked, order, axis=1)
        if kind == "ranking":
            data = ChoiceData.from_rankings(ranked, items=range(n))
        else:
            data = ChoiceData.from_best(ranked.tolist(), ranked[:, 0].tolist(), items=range(n))
        return ChoiceData(
            self.items_,
            data.users,
            data.triples,
            data.kinds,
            data.triple_users,
            data.pairs,
            data.pair_users,
            data.long_answers,
            data.of_long,
        )

    def score(self, data: ChoiceData) -> float:
        """Mean log-likelihood of an event of other people's choices among the same items."""
        require_choices(data)
        if data.items != self.items_:
            none = np.empty(0, np.int64)
            nobody = ChoiceData(self.items_, (), none.reshape(0, 3), none, none, none.reshape(0, 2), none)
            data = ChoiceData.concat([nobody, data])
            if data.items != self.items_:
                raise InputError(
                    f"unknown items: {shown(data.items[len(self.items_) :])}", expected="items of the model"
                )
        squares = np.maximum(squared_distances(self.covariance_), FLOOR)
        np.fill_diagonal(squares, 0.0)
        return log_likelihood(data.distinct(self.weight), self.mu_, squares)

    def transfer(self, items: Sequence[Hashable], features: ArrayLike) -> CorrelatedProbit:
        """The same tastes for other items, of which only features are known: a cold start.

        Parameters
        ----------
        items : sequence
            Names of the new items.
        features : array_like, shape (items, d)
            Their features, in the columns of those that the model was fitted with.

        Returns
        -------
        CorrelatedProbit

        Raises
        ------
        InputError
            The model was fitted without features, or the shapes differ.
        """
        if self.beta_ is None or self.taste_ is None:
            raise InputError("the model was fitted without features", expected="CorrelatedProbit(features=...)")
        matrix = np.asarray(features, dtype=np.float64)
        if matrix.shape != (len(items), self.feature_width_):
            raise InputError(f"features has shape {matrix.shape}", expected=f"({len(items)}, {self.feature_width_})")
        loadings = matrix @ self.taste_
        model = CorrelatedProbit(**self.get_params())
        mu, covariance = normalised(matrix @ self.beta_, loadings @ loadings.T + np.eye(len(items)))
        model._set(tuple(items), mu, covariance, rank=self.rank_)
        model.beta_, model.taste_, model.feature_width_ = self.beta_, self.taste_, self.feature_width_
        return model

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the model to an ``.npz`` file, with its settings.

        Parameters
        ----------
        path : path
            The file; must end in ``.npz``.
        force : bool
            Replace an existing file.

        Raises
        ------
        InputError
            The name ends otherwise, the file exists, or an item is neither text nor a number.
        """
        if not fspath(path).lower().endswith(".npz"):
            raise InputError("unknown ending", file=path, expected="a name that ends in .npz")
        for item in self.items_:
            if not isinstance(item, str | int | float | np.integer | np.floating):
                raise InputError(f"item {item!r} can't be saved", expected="items that are text or numbers")
        settings = {name: value for name, value in self.get_params().items() if name != "features"}
        found = self.identified_
        state = {
            "format": FORMAT,
            "version": VERSION,
            "settings": settings,
            "items": [item.item() if isinstance(item, np.generic) else item for item in self.items_],
            "rank": self.rank_,
            "loglik": None if np.isnan(self.loglik_) else self.loglik_,
            "n_iter": self.n_iter_,
            "clipped_eigenvalue": self.clipped_eigenvalue_,
            "init_spread": self.init_spread_,
            "identified": None
            if found is None
            else {
                "identified": found.identified,
                "reasons": list(found.reasons),
                "rank": found.rank,
                "needed": found.needed,
                "means": found.means_identified,
            },
            "stderr": None if self.stderr_ is None else self.stderr_.method,
        }
        arrays: dict[str, Any] = {"mu": self.mu_}
        if self._covariance is not None:
            arrays["covariance"] = self._covariance
        if self.stderr_ is not None:
            arrays["mu_stderr"], arrays["covariance_stderr"] = self.stderr_.mu, self.stderr_.covariance
        if self.beta_ is not None and self.taste_ is not None:
            arrays["beta"], arrays["taste"] = self.beta_, self.taste_
        with atomic_path(path, force=force) as temporary, temporary.open("wb") as stream:
            np.savez(stream, state=np.array(json.dumps(state)), **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> CorrelatedProbit:
        """Read a model that `save` wrote.

        Raises
        ------
        InputError
            The file is missing, damaged, of another kind, or of a newer version.
        """
        file = existing_file(path, suffixes=(".npz",))
        try:
            with np.load(file, allow_pickle=False) as archive:
                if "state" not in archive.files:
                    raise InputError("holds no model", file=file, expected="a file that CorrelatedProbit.save wrote")
                state = json.loads(str(archive["state"]))
                arrays = {name: archive[name] for name in archive.files if name != "state"}
        except InputError:
            raise
        except Exception as error:
            # A truncated archive raises whatever its damaged part breaks first.
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"damaged: {line}", file=file, expected="a file that CorrelatedProbit.save wrote"
            ) from error
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise InputError(
                "holds another kind of object", file=file, expected="a file that CorrelatedProbit.save wrote"
            )
        if state["version"] > VERSION:
            raise InputError(f"is of version {state['version']}", file=file, expected=f"version {VERSION} or older")
        model = cls(**state["settings"])
        n = len(state["items"])
        covariance = arrays.get("covariance")
        if covariance is not None:
            covariance = check_covariance(covariance, n=n)
        model._set(tuple(state["items"]), arrays["mu"], covariance, rank=int(state["rank"]))
        model.loglik_ = float("nan") if state["loglik"] is None else float(state["loglik"])
        model.n_iter_, model.clipped_eigenvalue_ = int(state["n_iter"]), float(state["clipped_eigenvalue"])
        model.init_spread_ = float(state["init_spread"])
        found = state["identified"]
        if found is not None:
            model.identified_ = Identifiability(
                found["identified"],
                found["means"],
                found["rank"],
                found["needed"],
                tuple(found["reasons"]),
                (),
                (),
                None,
            )
        if state["stderr"] is not None:
            model.stderr_ = StandardErrors(arrays["mu_stderr"], arrays["covariance_stderr"], state["stderr"])
        if "beta" in arrays:
            model.beta_, model.taste_ = arrays["beta"], arrays["taste"]
            model.feature_width_ = len(arrays["beta"])
        return model


def _require_comparable(data: ChoiceData) -> None:
    if not data.n_events:
        raise InputError("the data hold no comparison", expected="answers that prefer something to something")
    counts = data.pair_counts().sum(axis=1)
    never = [data.items[index] for index in np.flatnonzero(counts == 0)]
    if never:
        raise InputError(f"never compared: {shown(never)}", expected="every item in some answer, or without those")
    groups = data.components()
    if len(groups) > 1:
        listed = " | ".join(shown(group, most=4) for group in groups[:4])
        raise InputError(
            f"{len(groups)} groups of items are never compared with one another: {listed}",
            expected="answers that connect them",
        )


def _extreme_ridge(data: ChoiceData) -> float:
    """A ridge on the means where one would be infinite, with a warning."""
    first, last = data.extremes()
    if not first and not last:
        return 0.0
    what = [f"always first: {shown(first)}"] if first else []
    what += [f"always last: {shown(last)}"] if last else []
    warnings.warn(
        f"{'; '.join(what)}: the mean would be infinite, and a ridge of {EXTREME_RIDGE:g} keeps it finite",
        ProbitWarning,
        stacklevel=3,
    )
    return EXTREME_RIDGE


def _pooled_alphas(wins: Floats, orders: Floats) -> Floats | None:
    from scipy.special import ndtri

    asked = wins + wins.T
    n = len(wins)
    if not (asked[~np.eye(n, dtype=bool)] > 0).all():
        return None
    return np.asarray(ndtri((wins + 0.5) / (asked + 1.0)))


def _resampled(data: ChoiceData, chosen: NDArray[np.int64]) -> ChoiceData:
    """The choices of respondents drawn with replacement; each copy is a person of their own."""
    order = np.argsort(data.triple_users, kind="stable")
    starts = np.searchsorted(data.triple_users[order], np.arange(data.n_users + 1))
    pair_order = np.argsort(data.pair_users, kind="stable")
    pair_starts = np.searchsorted(data.pair_users[pair_order], np.arange(data.n_users + 1))

    def rows(starts: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        lengths = starts[chosen + 1] - starts[chosen]
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return order[np.repeat(starts[chosen], lengths) + within], np.repeat(np.arange(len(chosen)), lengths)

    triples, people = rows(starts, order)
    pairs, pair_people = rows(pair_starts, pair_order)
    by_user: dict[int, list[Any]] = {}
    for user, groups in data.long_answers:
        by_user.setdefault(user, []).append(groups)
    long_answers = tuple(
        (copy, groups) for copy, user in enumerate(chosen.tolist()) for groups in by_user.get(user, ())
    )
    return ChoiceData(
        data.items,
        tuple(range(len(chosen))),
        data.triples[triples],
        data.kinds[triples],
        people,
        data.pairs[pairs],
        pair_people,
        long_answers,
        data.long_mask[triples],
    )


def _factor_jacobian(loadings: Floats, n: int) -> Floats:
    """Derivatives of theta = (mu, S) in (mu, A), with S_ij = |A_i - A_j|^2 + 2 psi."""
    rank = loadings.shape[1]
    first, second = np.triu_indices(n, 1)
    jacobian = np.zeros((n + len(first), n + n * rank))
    jacobian[:n, :n] = np.eye(n)
    gaps = 2 * (loadings[first] - loadings[second])
    rows = n + np.arange(len(first))
    for column in range(rank):
        jacobian[rows, n + first * rank + column] = gaps[:, column]
        jacobian[rows, n + second * rank + column] = -gaps[:, column]
    return jacobian
