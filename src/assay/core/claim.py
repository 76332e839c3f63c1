"""What is concluded: a claim, the test that decides it, and the verdict.

Each test turns the trials of a study into a number with an interval and compares it with what is claimed. A verdict is
``holds`` only when the 95 % bound lies on the claim's side, ``fails`` when it lies on the other, ``undecided`` between.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.errors import AssayError
from assay.core.intervals import CONFIDENCE, Interval, locate, violation_bound, violation_p

if TYPE_CHECKING:
    from assay.core.ledger import Record
    from assay.core.study import Study

__all__ = [
    "Always",
    "Better",
    "CaseFinding",
    "Claim",
    "Conclusion",
    "Grows",
    "NoWorse",
    "Outcome",
    "PaperFigure",
    "Ratio",
    "Test",
    "Verdict",
    "Within",
    "always",
    "better",
    "conclude",
    "grows",
    "holm",
    "no_worse",
    "ratio",
    "within",
]

Outcome = Literal["holds", "fails", "undecided", "not run"]
Measurements = Mapping[str, float]
METHOD_ARMS = ()
"""No patterns: the arms whose role is "method"."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure that the paper (or its code's result files) gives for the quantity of a claim."""

    label: str
    value: float


@dataclass(frozen=True)
class CaseFinding:
    """The quantity of a claim on one case, for the interval plots."""

    case: str
    estimate: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Conclusion:
    """What a test found.

    Attributes
    ----------
    outcome : str
        ``holds``, ``fails`` or ``undecided``.
    finding : str
        One line, with the numbers.
    quantity : str
        What was estimated ("median ratio of seconds, mfc over mlpack").
    estimate, low, high, confidence
        The estimate with its two-sided interval.
    threshold_low, threshold_high : float or None
        Between what the claim says that the quantity lies (one of the two, or both).
    n : int
        How many values, pairs or trials it rests on.
    p : float
        The p-value of the claim's opposite.
    method : str
        How the interval was made.
    by_case : tuple of CaseFinding
    """

    outcome: Outcome
    finding: str
    quantity: str
    estimate: float
    low: float
    high: float
    confidence: float
    threshold_low: float | None
    threshold_high: float | None
    n: int
    p: float
    method: str
    by_case: tuple[CaseFinding, ...] = ()


class Test(ABC):
    """Decides a claim from the trials of a study.

    Attributes
    ----------
    arms, cases : tuple of str
        Patterns of the arms and cases that it looks at; no arms means the arms with the role "method", no cases all.
    """

    __test__ = False  # not a test case of pytest

    arms: tuple[str, ...]
    cases: tuple[str, ...]

    @abstractmethod
    def conclude(self, records: Sequence[Record]) -> Conclusion:
        """Decide from finished trials of the test's arms and cases."""

    def wants(self, arm: str, case: str, study: Study) -> bool:
        """Whether a trial of `arm` on `case` is evidence for this test."""
        if self.cases and not any(fnmatchcase(case, pattern) for pattern in self.cases):
            return False
        if not self.arms:
            return arm in study.arms and study.arms[arm].role == "method"
        return any(fnmatchcase(arm, pattern) for pattern in self.arms)


@dataclass(frozen=True)
class Claim:
    """One testable statement.

    Parameters
    ----------
    id : str
        Short and unique in the study.
    statement : str
        What is claimed, in one sentence.
    source : str
        Where it is claimed: "Theorem 3", "Table 2", "ours".
    test : Test
        What decides it.
    paper : sequence of PaperFigure
        The paper's own figures for the tested quantity, on the same axis.
    scales : sequence of str
        The scales at which it can be decided; all when empty.
    note : str
        What a reader must know to read the verdict.
    """

    id: str
    statement: str
    source: str
    test: Test
    paper: tuple[PaperFigure, ...] = ()
    scales: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """A claim with what was concluded."""

    claim: str
    statement: str
    source: str
    outcome: Outcome
    finding: str
    paper: tuple[PaperFigure, ...] = ()
    note: str = ""
    conclusion: Conclusion | None = None
    p_holm: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON values; infinities and NaN become None."""
        values: dict[str, Any] = _json_values(asdict(self))
        return values


@dataclass(frozen=True)
class Always(Test):
    """See `always`."""

    holds: Callable[[Measurements], bool]
    rate: float
    checks: str | None
    arms: tuple[str, ...]
    cases: tuple[str, ...]

    def conclude(self, records: Sequence[Record]) -> Conclusion:
        """Count violations and bound their rate."""
        n = violations = 0
        by_case: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for record in records:
            checks = 1 if self.checks is None else round(record.measurements[self.checks])
            violated = 0 if self.holds(record.measurements) else 1
            n, violations = n + checks, violations + violated
            by_case[record.case][0] += checks
            by_case[record.case][1] += violated
        bound = violation_bound(violations, n)
        outcome: Outcome = "fails" if violations else ("holds" if bound <= self.rate else "undecided")
        what = "trials" if self.checks is None else self.checks
        finding = (
            f"violated in {violations} of {n} {what}"
            if violations
            else f"no violation in {n} {what}; at 95 % that excludes violation rates above {_number(bound)}"
        )
        if outcome == "undecided":
            finding += f" ({_number(self.rate)} is asked for)"
        return Conclusion(
            outcome=outcome,
            finding=finding,
            quantity="violation rate",
            estimate=violations / n if n else math.nan,
            low=1 - violation_bound(n - violations, n, confidence=(1 + CONFIDENCE) / 2) if n else 0.0,
            high=violation_bound(violations, n, confidence=(1 + CONFIDENCE) / 2) if violations else bound,
            confidence=CONFIDENCE,
            threshold_low=None,
            threshold_high=self.rate,
            n=n,
            p=violation_p(violations, n, rate=self.rate),
            method="Clopper–Pearson",
            by_case=tuple(
                CaseFinding(
                    case,
                    violated / count if count else math.nan,
                    1 - violation_bound(count - violated, count, confidence=(1 + CONFIDENCE) / 2) if count else 0.0,
                    violation_bound(violated, count),
                    count,
                )
                for case, (count, violated) in by_case.items()
            ),
        )


@dataclass(frozen=True)
class _Bounded(Test):
    """A test of a located quantity against a lower or upper limit, or both."""

    measure: str
    arm: str
    cases: tuple[str, ...]

    @abstractmethod
    def _values(self, records: Sequence[Record]) -> dict[str, list[float]]:
        """The quantity's values by case."""

    @abstractmethod
    def _quantity(self) -> str:
        """The quantity in words, without its centre."""

    @abstractmethod
    def _limits(self) -> tuple[float | None, float | None, bool]:
        """The lower limit, the upper limit, and whether the limit itself is excluded."""

    _log = False

    def conclude(self, records: Sequence[Record]) -> Conclusion:
        """Locate the quantity and compare its one-sided bounds with the limits."""
        values = {case: np.array(found, dtype=np.float64) for case, found in self._values(records).items()}
        located = self._locate(list(values.values()))
        low, high, strict = self._limits()
        outcome = _decide(located, low=self._scaled(low), high=self._scaled(high), strict=strict)
        p = max(
            1.0 if located.n == 0 else 0.0,
            0.0 if high is None else located.p_below(_or_zero(self._scaled(high))),
            0.0 if low is None else located.p_above(_or_zero(self._scaled(low))),
        )
        center = "geometric mean" if self._log and located.center == "mean" else located.center
        quantity = f"{center} {self._quantity()}"
        shown = {name: self._unscaled(getattr(located, name)) for name in ("estimate", "low", "high", "lower", "upper")}
        return Conclusion(
            outcome=outcome,
            finding=_sentence(quantity, shown, low=low, high=high, strict=strict, n=located.n),
            quantity=quantity,
            estimate=shown["estimate"],
            low=shown["low"],
            high=shown["high"],
            confidence=located.confidence,
            threshold_low=low,
            threshold_high=high,
            n=located.n,
            p=p,
            method=located.method,
            by_case=tuple(self._case(case, found) for case, found in values.items()),
        )

    def _case(self, case: str, found: np.ndarray[Any, np.dtype[np.float64]]) -> CaseFinding:
        located = self._locate([found])
        return CaseFinding(
            case,
            self._unscaled(located.estimate),
            self._unscaled(located.low),
            self._unscaled(located.high),
            located.n,
        )

    def _locate(self, groups: list[np.ndarray[Any, np.dtype[np.float64]]]) -> Interval:
        return locate([np.log(group) if self._log else group for group in groups])

    def _scaled(self, limit: float | None) -> float | None:
        return math.log(limit) if self._log and limit is not None else limit

    def _unscaled(self, value: float) -> float:
        return math.exp(value) if self._log else value


@dataclass(frozen=True)
class Better(_Bounded):
    """See `better`."""

    than: str
    higher: bool

    @property
    def arms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The two arms."""
        return (self.arm, self.than)

    def _values(self, records: Sequence[Record]) -> dict[str, list[float]]:
        return _paired(records, self.measure, self.arm, self.than, lambda ours, theirs: ours - theirs)

    def _quantity(self) -> str:
        return f"difference in {self.measure}, {self.arm} minus {self.than}"

    def _limits(self) -> tuple[float | None, float | None, bool]:
        return (0.0, None, True) if self.higher else (None, 0.0, True)


@dataclass(frozen=True)
class NoWorse(Better):
    """See `no_worse`."""

    margin: float

    def _limits(self) -> tuple[float | None, float | None, bool]:
        return (-self.margin, None, False) if self.higher else (None, self.margin, False)


@dataclass(frozen=True)
class Ratio(_Bounded):
    """See `ratio`."""

    over: str
    at_most: float | None
    at_least: float | None
    _log = True

    @property
    def arms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The two arms."""
        return (self.arm, self.over)

    def _values(self, records: Sequence[Record]) -> dict[str, list[float]]:
        return _paired(records, self.measure, self.arm, self.over, _positive_ratio)

    def _quantity(self) -> str:
        return f"ratio of {self.measure}, {self.arm} over {self.over}"

    def _limits(self) -> tuple[float | None, float | None, bool]:
        return self.at_least, self.at_most, False


@dataclass(frozen=True)
class Within(_Bounded):
    """See `within`."""

    low: float | None
    high: float | None

    @property
    def arms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The arm."""
        return (self.arm,)

    def _values(self, records: Sequence[Record]) -> dict[str, list[float]]:
        values: dict[str, list[float]] = defaultdict(list)
        for record in records:
            if record.arm == self.arm:
                values[record.case].append(_measured(record, self.measure))
        return values

    def _quantity(self) -> str:
        return f"{self.measure} of {self.arm}"

    def _limits(self) -> tuple[float | None, float | None, bool]:
        return self.low, self.high, False


@dataclass(frozen=True)
class Grows(_Bounded):
    """See `grows`."""

    size: str
    exponent_at_most: float

    @property
    def arms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The arm."""
        return (self.arm,)

    def _values(self, records: Sequence[Record]) -> dict[str, list[float]]:
        points: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for record in records:
            if record.arm == self.arm:
                points[record.seed].append((_measured(record, self.size), _measured(record, self.measure)))
        slopes = []
        for seed in sorted(points):
            sizes, values = np.array(points[seed]).T
            if len(np.unique(sizes)) >= 2 and (values > 0).all():
                slopes.append(float(np.polyfit(np.log(sizes), np.log(values), 1)[0]))
        return {"all sizes": slopes} if slopes else {}

    def _quantity(self) -> str:
        return f"exponent of {self.measure} in {self.size}, {self.arm}"

    def _limits(self) -> tuple[float | None, float | None, bool]:
        return None, self.exponent_at_most, False


def always(
    holds: Callable[[Measurements], bool],
    *,
    rate: float = 0.1,
    checks: str | None = None,
    arms: Sequence[str] = METHOD_ARMS,
    cases: Sequence[str] = (),
) -> Always:
    """A guarantee: no trial violates it, and there are enough trials to exclude violations at `rate` or more.

    Parameters
    ----------
    holds : callable
        ``(measurements) -> bool``.
    rate : float
        The claim holds when the 95 % upper bound on the violation rate is at most this. 0.1 needs 29 trials, 0.05
        needs 59, 0.01 needs 299.
    checks : str, optional
        The measurement that counts the independent checks within a trial, where `holds` judges all of them together.
    arms, cases : sequence of str
        Patterns; no arms means the arms with the role "method".

    Examples
    --------
    >>> always(lambda t: t["ratio"] <= t["alpha"]).rate
    0.1
    """
    return Always(holds, rate, checks, tuple(arms), tuple(cases))


def better(measure: str, arm: str, *, than: str, higher: bool = False, cases: Sequence[str] = ()) -> Better:
    """`arm` has the lower `measure` (the higher one with `higher`) than another arm, paired by case and seed."""
    return Better(measure, arm, tuple(cases), than, higher)


def no_worse(
    measure: str, arm: str, *, than: str, margin: float, higher: bool = False, cases: Sequence[str] = ()
) -> NoWorse:
    """`arm` is worse than another arm by less than `margin` (in units of `measure`), paired by case and seed."""
    return NoWorse(measure, arm, tuple(cases), than, higher, margin)


def ratio(
    measure: str,
    arm: str,
    *,
    over: str,
    at_most: float | None = None,
    at_least: float | None = None,
    cases: Sequence[str] = (),
) -> Ratio:
    """`measure` of `arm` divided by that of another arm, paired by case and seed, respects a limit.

    Parameters
    ----------
    measure : str
        A positive measurement.
    arm, over : str
        Numerator and denominator.
    at_most, at_least : float
        The limit; one of the two, or both.
    """
    if at_most is None and at_least is None:
        raise ValueError("ratio: expected at_most, at_least, or both")
    return Ratio(measure, arm, tuple(cases), over, at_most, at_least)


def within(
    measure: str, arm: str, *, low: float | None = None, high: float | None = None, cases: Sequence[str] = ()
) -> Within:
    """`measure` of `arm` lies between `low` and `high` (two one-sided tests)."""
    if low is None and high is None:
        raise ValueError("within: expected low, high, or both")
    return Within(measure, arm, tuple(cases), low, high)


def grows(measure: str, arm: str, *, exponent_at_most: float, size: str = "n", cases: Sequence[str] = ()) -> Grows:
    """`measure` of `arm` grows as a power of the measurement `size` with at most this exponent.

    Each seed's log–log slope over its sizes is one value.
    """
    return Grows(measure, arm, tuple(cases), size, exponent_at_most)


def conclude(
    study: Study, method: str, scale_name: str, records: Iterable[Record], *, correct: bool = False
) -> list[Verdict]:
    """Give the verdict on each claim of a study at one scale.

    Parameters
    ----------
    study : Study
        With any user's arms added.
    method, scale_name : str
        Whose trials, at which scale.
    records : iterable of Record
        Trials of the ledger; those of other scales are ignored.
    correct : bool
        Let the Holm-corrected p-values decide: a claim that holds alone, and not after the correction for the number of
        claims, is ``undecided``.

    Returns
    -------
    list of Verdict
        In the order of the claims. A claim whose evidence has gaps (missing or failed trials) never holds.
    """
    found = [record for record in records if record.scale == scale_name]
    verdicts = [_verdict(study, method, scale_name, claim, found) for claim in study.claims]
    decided = [number for number, verdict in enumerate(verdicts) if verdict.conclusion is not None]
    for number, p in zip(decided, holm([_p(verdicts[number]) for number in decided]), strict=True):
        verdict = replace(verdicts[number], p_holm=p)
        if correct and verdict.outcome == "holds" and p > 1 - CONFIDENCE:
            verdict = replace(
                verdict,
                outcome="undecided",
                finding=f"{verdict.finding}; not after Holm's correction (p = {_number(p)})",
            )
        verdicts[number] = verdict
    return verdicts


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979, step-down).

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda one: p_values[one])):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _verdict(study: Study, method: str, scale_name: str, claim: Claim, found: Sequence[Record]) -> Verdict:
    def verdict(outcome: Outcome, finding: str, conclusion: Conclusion | None = None) -> Verdict:
        return Verdict(claim.id, claim.statement, claim.source, outcome, finding, claim.paper, claim.note, conclusion)

    if claim.scales and scale_name not in claim.scales:
        needs = "; ".join(filter(None, (study.scales[name].requires for name in claim.scales if name in study.scales)))
        return verdict("not run", f"needs the {' or '.join(claim.scales)} scale{': ' if needs else ''}{needs}")
    planned = [trial for trial in study.trials(method, scale_name) if claim.test.wants(trial.arm, trial.case, study)]
    evidence = [record for record in found if claim.test.wants(record.arm, record.case, study)]
    have = {(record.arm, record.case, record.seed) for record in evidence}
    absent = [trial for trial in planned if (trial.arm, trial.case, trial.seed) not in have]
    lacking = sorted({module for trial in absent for module in study.lacking(trial)})
    if lacking:
        return verdict("not run", f"needs {', '.join(lacking)}")
    done = [record for record in evidence if record.status == "done"]
    if not done:
        reason = f"all {len(evidence)} trials failed" if evidence else "no trial yet"
        return verdict("undecided" if evidence else "not run", reason)
    try:
        conclusion = claim.test.conclude(done)
    except KeyError as error:
        raise AssayError(f"claim {claim.id} of {method} looks at a measurement that a trial lacks: {error}") from error
    except _UnusableMeasurement as error:
        return verdict("undecided", str(error))
    outcome, finding = conclusion.outcome, conclusion.finding
    gaps = [f"{len(evidence) - len(done)} of {len(evidence)} trials failed"] if len(done) < len(evidence) else []
    gaps += [f"{len(absent)} of {len(planned)} trials are missing"] if absent else []
    if gaps:
        finding = f"{finding}; {', '.join(gaps)}"
        outcome = "undecided" if outcome == "holds" else outcome
    return verdict(outcome, finding, replace(conclusion, outcome=outcome))


def _p(verdict: Verdict) -> float:
    assert verdict.conclusion is not None
    return verdict.conclusion.p


def _decide(located: Interval, *, low: float | None, high: float | None, strict: bool) -> Outcome:
    if located.n == 0:
        return "undecided"
    within_high = high is None or (located.upper < high if strict else located.upper <= high)
    within_low = low is None or (located.lower > low if strict else located.lower >= low)
    holds = within_high and within_low
    beyond_high = high is not None and (located.lower >= high if strict else located.lower > high)
    beyond_low = low is not None and (located.upper <= low if strict else located.upper < low)
    fails = beyond_high or beyond_low
    return "holds" if holds else "fails" if fails else "undecided"


def _sentence(
    quantity: str, shown: Mapping[str, float], *, low: float | None, high: float | None, strict: bool, n: int
) -> str:
    bounds = []
    if high is not None or shown["estimate"] < _or_zero(low):
        bounds.append(f"at most {_number(shown['upper'])}")
    if low is not None or (high is not None and shown["estimate"] > high):
        bounds.append(f"at least {_number(shown['lower'])}")
    claimed = []
    if low is not None:
        claimed.append(f"{'above' if strict else 'at least'} {_number(low)}")
    if high is not None:
        claimed.append(f"{'below' if strict else 'at most'} {_number(high)}")
    if not math.isfinite(shown["lower"]) and not math.isfinite(shown["upper"]):
        sure = f"n = {n} gives no bound"
    else:
        sure = f"at 95 % {' and '.join(bounds)}, n = {n}"
    return f"{quantity} {_number(shown['estimate'])} ({sure}); claimed {' and '.join(claimed)}"


def _paired(
    records: Sequence[Record], measure: str, arm: str, other: str, combine: Callable[[float, float], float]
) -> dict[str, list[float]]:
    by_pair: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for record in records:
        if record.arm in (arm, other):
            by_pair[record.case, record.seed][record.arm] = _measured(record, measure)
    values: dict[str, list[float]] = defaultdict(list)
    for (case, _seed), found in sorted(by_pair.items()):
        if arm in found and other in found:
            values[case].append(combine(found[arm], found[other]))
    return values


def _positive_ratio(ours: float, theirs: float) -> float:
    if not (ours > 0 and theirs > 0):
        raise _UnusableMeasurement(f"a ratio needs positive measurements, not {_number(ours)} and {_number(theirs)}")
    return ours / theirs


def _measured(record: Record, measure: str) -> float:
    value = record.measurements[measure]
    if math.isnan(value):
        raise _UnusableMeasurement(f"{record.arm} on {record.case}, seed {record.seed}: {measure} is not a number")
    return value


class _UnusableMeasurement(AssayError):
    """A trial gave a number that a test can't use."""


def _or_zero(value: float | None) -> float:
    return 0.0 if value is None else value


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else ("∞" if value > 0 else "-∞")


def _json_values(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _json_values(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_values(one) for one in value]
    return value
