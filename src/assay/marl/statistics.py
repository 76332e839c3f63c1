"""Aggregates over seeds, and the tests of claims about shares of seeds and interquartile means.

Outcomes of a game are yes or no for each seed, so shares have Clopper–Pearson intervals and two arms are compared by
Fisher's exact test. Returns are aggregated by interquartile means with percentile bootstrap intervals, and compared by
the probability that a run of one arm is better than a run of the other (Agarwal et al., 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import fisher_exact, norm, trim_mean

from assay.core.claim import CaseFinding, Conclusion, Outcome, Test
from assay.core.intervals import CONFIDENCE, violation_bound, violation_p

if TYPE_CHECKING:
    from assay.core.ledger import Record

__all__ = [
    "HigherReturn",
    "MoreOften",
    "Share",
    "Summary",
    "interquartile_mean",
    "probability_of_improvement",
    "summarise",
]

RESAMPLES = 2000
FEWEST_FOR_BOOTSTRAP = 5
"""With fewer runs an interval by resampling is narrower than it claims, so no verdict rests on one."""
GAMES = "games"
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Summary:
    """Runs of one arm over seeds.

    Attributes
    ----------
    mean, interquartile_mean : float
        Of all runs, and of the middle half of them.
    low, high : float
        The 95 % percentile bootstrap interval of the interquartile mean.
    n : int
        How many runs.
    """

    mean: float
    interquartile_mean: float
    low: float
    high: float
    n: int


def interquartile_mean(values: ArrayLike) -> float:
    """The mean of the middle half of some values.

    Parameters
    ----------
    values : array_like, shape (n,)
        At least one.

    Returns
    -------
    float

    Examples
    --------
    >>> interquartile_mean([0, 1, 2, 3, 4, 5, 6, 100])
    3.5
    """
    return float(trim_mean(np.asarray(values, dtype=np.float64), 0.25))


def probability_of_improvement(ours: ArrayLike, theirs: ArrayLike) -> float:
    """The probability that a run of the first arm is above a run of the second; ties count half.

    Parameters
    ----------
    ours, theirs : array_like, shapes (n,) and (m,)
        Values of each run.

    Returns
    -------
    float

    Examples
    --------
    >>> probability_of_improvement([1, 3], [0, 3])
    0.625
    """
    first, second = np.asarray(ours, dtype=np.float64)[:, None], np.asarray(theirs, dtype=np.float64)[None]
    return float(np.mean((first > second) + 0.5 * (first == second)))


def summarise(values: ArrayLike, *, seed: int = 0) -> Summary:
    """Mean and interquartile mean of runs, with the interval of 2000 resamples.

    Parameters
    ----------
    values : array_like, shape (n,)
        One value a run.
    seed : int
        Of the resampling.

    Returns
    -------
    Summary

    Examples
    --------
    >>> summarise([1.0, 1.0, 1.0])
    Summary(mean=1.0, interquartile_mean=1.0, low=1.0, high=1.0, n=3)
    """
    runs = np.asarray(values, dtype=np.float64)
    low, high = np.quantile(_resampled(runs, np.random.default_rng(seed)), [0.025, 0.975])
    return Summary(float(runs.mean()), interquartile_mean(runs), float(low), float(high), len(runs))


def _resampled(runs: Values, rng: np.random.Generator) -> Values:
    drawn = runs[rng.integers(0, len(runs), size=(RESAMPLES, len(runs)))]
    return np.asarray(trim_mean(drawn, 0.25, axis=1), dtype=np.float64)


@dataclass(frozen=True)
class Share(Test):
    """The share of seeds with an outcome respects a limit.

    Parameters
    ----------
    measure : str
        The measurement that holds the share of a trial's games with the outcome.
    arm : str
        Whose games.
    cases : tuple of str
        Patterns of the cases; all when empty.
    at_least, at_most : float
        The limit: one of the two.
    """

    measure: str
    arm: str
    cases: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None

    @property
    def arms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The arm."""
        return (self.arm,)

    def conclude(self, records: Sequence[Record]) -> Conclusion:
        """Compare the limit with the one-sided Clopper–Pearson bounds."""
        hits, games = _counted(records, self.arm, self.measure)
        share = hits / games
        lower, upper = _bounds(hits, games, CONFIDENCE)
        low, high = _bounds(hits, games, (1 + CONFIDENCE) / 2)
        outcome: Outcome = "undecided"
        if self.at_least is not None:
            outcome = "holds" if lower >= self.at_least else "fails" if upper < self.at_least else outcome
            p, claimed, bound = violation_p(games - hits, games, rate=1 - self.at_least), "at least", lower
        else:
            assert self.at_most is not None
            outcome = "holds" if upper <= self.at_most else "fails" if lower > self.at_most else outcome
            p, claimed, bound = violation_p(hits, games, rate=self.at_most), "at most", upper
        limit = self.at_least if self.at_least is not None else self.at_most
        finding = f"{hits} of {games} seeds ({share:.0%}; at 95 % {claimed} {bound:.0%}); claimed {claimed} {limit:.0%}"
        return Conclusion(
            outcome=outcome,
            finding=finding,
            quantity=f"share of seeds: {self.measure} of {self.arm}",
            estimate=share,
            low=low,
            high=high,
            confidence=CONFIDENCE,
            threshold_low=self.at_least,
            threshold_high=self.at_most,
            n=games,
            p=p,
            method="Clopper–Pearson",
            by_case=tuple(
                CaseFinding(case, count / of, *_bounds(count, of, (1 + CONFIDENCE) / 2), of)
                for case, (count, of) in _counted_by_case(records, self.arm, self.measure).items()
            ),
        )


@dataclass(frozen=True)
class MoreOften(Test):
    """An outcome is seen in a larger share of one arm's seeds than of another's (or not in a smaller, by a margin).

    Parameters
    ----------
    measure : str
        The measurement that holds the share of a trial's games with the outcome.
    arm, than : str
        Whose games are compared.
    cases : tuple of str
        Patterns of the cases; all when empty.
    margin : float
        By how much the first share may be smaller; 0 claims that it is larger.
    """

    measure: str
    arm: str
    than: str
    cases: tuple[str, ...] = ()
    margin: float = 0.0

    @property
    def arms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The two arms."""
        return (self.arm, self.than)

    def conclude(self, records: Sequence[Record]) -> Conclusion:
        """Fisher's exact test where the claim is "larger", Newcombe's interval where it is "not smaller"."""
        ours, theirs = _counted(records, self.arm, self.measure), _counted(records, self.than, self.measure)
        difference = ours[0] / ours[1] - theirs[0] / theirs[1]
        low, high = _newcombe(ours, theirs, CONFIDENCE)
        lower, upper = _newcombe(ours, theirs, 2 * CONFIDENCE - 1)
        table = [[ours[0], ours[1] - ours[0]], [theirs[0], theirs[1] - theirs[0]]]
        p_more, p_less = (float(fisher_exact(table, alternative=way).pvalue) for way in ("greater", "less"))
        outcome: Outcome = "undecided"
        if self.margin:
            outcome = "holds" if lower >= -self.margin else "fails" if upper < -self.margin else outcome
            p = _p_of_margin(ours, theirs, self.margin)
            method, test = "Newcombe", f"90 % interval {lower:+.0%} to {upper:+.0%}"
        else:
            outcome = "holds" if p_more <= 1 - CONFIDENCE else "fails" if p_less <= 1 - CONFIDENCE else outcome
            p, method, test = p_more, "Fisher's exact test, Newcombe's interval", f"one-sided p = {p_more:.2g}"
        finding = (
            f"{ours[0]} of {ours[1]} seeds of {self.arm}, {theirs[0]} of {theirs[1]} of {self.than}: a difference of "
            f"{difference:+.0%} ({test}); claimed " + (f"at least {-self.margin:.0%}" if self.margin else "more")
        )
        return Conclusion(
            outcome=outcome,
            finding=finding,
            quantity=f"difference in the share of seeds: {self.measure}, {self.arm} minus {self.than}",
            estimate=difference,
            low=low,
            high=high,
            confidence=CONFIDENCE,
            threshold_low=-self.margin,
            threshold_high=None,
            n=ours[1] + theirs[1],
            p=p,
            method=method,
        )


@dataclass(frozen=True)
class HigherReturn(Test):
    """The interquartile mean of one arm's runs isn't below that of another's.

    Parameters
    ----------
    measure : str
        One number a run, higher is better.
    arm, than : str
        Whose runs are compared.
    cases : tuple of str
        Patterns of the cases; all when empty.
    learned : float
        What one of the two arms must reach, so that there is something to compare: two that learned nothing are equal.
    """

    measure: str
    arm: str
    than: str
    cases: tuple[str, ...] = ()
    learned: float = -math.inf

    @property
    def arms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The two arms."""
        return (self.arm, self.than)

    def conclude(self, records: Sequence[Record]) -> Conclusion:
        """Resample the runs of each arm and see where the difference of interquartile means lies."""
        ours, theirs = (_runs(records, arm, self.measure) for arm in (self.arm, self.than))
        rng = np.random.default_rng(0)
        differences = _resampled(ours, rng) - _resampled(theirs, rng)
        low, high = (float(end) for end in np.quantile(differences, [0.025, 0.975]))
        lower, upper = (float(end) for end in np.quantile(differences, [1 - CONFIDENCE, CONFIDENCE]))
        estimate = interquartile_mean(ours) - interquartile_mean(theirs)
        n = min(len(ours), len(theirs))
        outcome: Outcome = "holds" if lower >= 0 else "fails" if upper < 0 else "undecided"
        too_few = n < FEWEST_FOR_BOOTSTRAP
        finding = (
            f"interquartile means {interquartile_mean(ours):.3g} and {interquartile_mean(theirs):.3g}, a difference of "
            f"{estimate:+.3g} (95 % interval {low:+.3g} to {high:+.3g}); a run of {self.arm} beats one of {self.than} "
            f"with probability {probability_of_improvement(ours, theirs):.2f}; {len(ours)} and {len(theirs)} runs"
        )
        if too_few:
            finding += f", too few for a verdict ({FEWEST_FOR_BOOTSTRAP} of each are asked for)"
        unlearned = max(interquartile_mean(ours), interquartile_mean(theirs)) < self.learned
        if unlearned:
            finding += f"; neither has learned the task, which {self.learned:g} would show"
        return Conclusion(
            outcome="undecided" if too_few or unlearned else outcome,
            finding=finding,
            quantity=f"difference of interquartile means of {self.measure}, {self.arm} minus {self.than}",
            estimate=estimate,
            low=low,
            high=high,
            confidence=CONFIDENCE,
            threshold_low=0.0,
            threshold_high=None,
            n=n,
            p=float((1 + np.count_nonzero(differences < 0)) / (1 + RESAMPLES)),
            method="percentile bootstrap",
        )


def _counted(records: Sequence[Record], arm: str, measure: str) -> tuple[int, int]:
    counts = _counted_by_case(records, arm, measure).values()
    return sum(count for count, _ in counts), sum(of for _, of in counts)


def _counted_by_case(records: Sequence[Record], arm: str, measure: str) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for record in records:
        if record.arm == arm:
            games = round(record.measurements[GAMES])
            before = counts.get(record.case, (0, 0))
            counts[record.case] = (before[0] + round(record.measurements[measure] * games), before[1] + games)
    return counts


def _runs(records: Sequence[Record], arm: str, measure: str) -> Values:
    return np.array([record.measurements[measure] for record in records if record.arm == arm], dtype=np.float64)


def _bounds(hits: int, of: int, confidence: float) -> tuple[float, float]:
    """One-sided Clopper–Pearson bounds of a share."""
    return (
        1 - violation_bound(of - hits, of, confidence=confidence),
        violation_bound(hits, of, confidence=confidence),
    )


def _newcombe(ours: tuple[int, int], theirs: tuple[int, int], confidence: float) -> tuple[float, float]:
    """Newcombe's interval of a difference of shares, made of two Wilson intervals (1998, method 10)."""
    (low_1, high_1), (low_2, high_2) = _wilson(*ours, confidence), _wilson(*theirs, confidence)
    share_1, share_2 = ours[0] / ours[1], theirs[0] / theirs[1]
    difference = share_1 - share_2
    return (
        difference - math.hypot(share_1 - low_1, high_2 - share_2),
        difference + math.hypot(high_1 - share_1, share_2 - low_2),
    )


def _wilson(hits: int, of: int, confidence: float) -> tuple[float, float]:
    z = float(norm.ppf((1 + confidence) / 2))
    share = hits / of
    centre = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * math.sqrt(share * (1 - share) / of + z**2 / (4 * of**2))
    return centre - half, centre + half


def _p_of_margin(ours: tuple[int, int], theirs: tuple[int, int], margin: float) -> float:
    """The least level at which the interval's one-sided bound is above the margin."""
    levels: Any = np.linspace(0.0005, 0.5, 1000)
    for level in levels:
        if _newcombe(ours, theirs, 1 - 2 * float(level))[0] >= -margin:
            return float(level)
    return 1.0
