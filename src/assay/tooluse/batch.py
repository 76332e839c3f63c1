"""Many trajectories against their references: a table, means with intervals, and what went wrong how often."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import InputError
from assay.tooluse.failures import LABELS, Similarity, first_error
from assay.tooluse.matchers import Matcher
from assay.tooluse.provenance import Derive
from assay.tooluse.resampling import Estimate, cluster_bootstrap, pass_at_k, pass_hat_k
from assay.tooluse.scoring import EXACT_METRICS, OFFICIAL_METRICS, Profile, Scores, score
from assay.tooluse.trajectories import Gold, Tool, Trajectory

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Report", "pair_runs", "score_many"]

BATCH = 250
"""Runs that a worker scores at a time."""
SHOWN = 6
"""Ids that an error names."""
HEADLINE = ("name_em", "name_f1", "call_em", "call_f1", "args_accuracy", "order_accuracy", "dependency_satisfaction",
            "unsupported_rate", "redundancy")  # fmt: skip
"""What is shown first."""


@dataclass(slots=True)
class Report:
    """Scores of many runs.

    Attributes
    ----------
    profile : {'exact', 'official'}
        Which metrics.
    scores : list of Scores
        One a run.
    runs : list of Trajectory
        What was scored, in the same order.
    golds : dict of str to Gold
        The references by id.
    tools : list of Tool
        What was on offer, where known.
    matcher : Matcher or None
        How arguments were compared.
    """

    profile: Profile
    scores: list[Scores]
    runs: list[Trajectory]
    golds: dict[str, Gold]
    tools: list[Tool] = field(default_factory=list)
    matcher: Matcher | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The profile's metrics."""
        return EXACT_METRICS if self.profile == "exact" else OFFICIAL_METRICS

    @property
    def errors(self) -> list[Scores]:
        """Runs that failed for a reason of the service; they count in no mean."""
        return [one for one in self.scores if one.error is not None]

    @property
    def table(self) -> pd.DataFrame:
        """A row a run: id, trial, what is known of the task, the metrics, labels, first error."""
        import pandas as pd

        rows = []
        for one in self.scores:
            gold = self.golds[one.id]
            rows.append(
                {
                    "id": one.id,
                    "trial": one.trial,
                    "structure": gold.structure,
                    "difficulty": gold.difficulty,
                    "domain": gold.domain,
                    "n_tools": len(gold.calls),
                    "cluster": gold.cluster,
                    **one.values,
                    "labels": " ".join(one.labels),
                    "first_error": first_error(one.labels),
                    "error": one.error or "",
                }
            )
        columns = ["id", "trial", "structure", "difficulty", "domain", "n_tools", "cluster", *self.metrics]
        return pd.DataFrame(rows, columns=[*columns, "labels", "first_error", "error"])

    def summary(self) -> dict[str, Estimate]:
        """Each metric's mean with a 95 % interval, clustered by reference trajectory.

        Returns
        -------
        dict of str to Estimate
            Under the official profile `usage` is the mean over all tools in common (micro) and `usage_macro` that over
            queries.
        """
        return self._estimates(self._counted())

    def by(self, column: str) -> pd.DataFrame:
        """Means by a column of the table: n_tools, structure, difficulty, domain.

        Parameters
        ----------
        column : str
            The column's name.

        Returns
        -------
        DataFrame
            A row a value; for every metric its mean, ``_low`` and ``_high``, and the number of runs.

        Raises
        ------
        InputError
            There is no such column.
        """
        import pandas as pd

        known = ("n_tools", "structure", "difficulty", "domain", "trial")
        if column not in known:
            raise InputError(f"column '{column}'", expected=f"one of: {', '.join(known)}")
        groups: dict[Any, list[Scores]] = defaultdict(list)
        for one in self._counted():
            groups[self._value(one, column)].append(one)
        rows = []
        for value, chosen in sorted(groups.items()):
            row: dict[str, Any] = {column: value, "runs": len(chosen)}
            for metric, found in self._estimates(chosen).items():
                row |= {metric: found.mean, f"{metric}_low": found.low, f"{metric}_high": found.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def failures(self) -> pd.DataFrame:
        """The rows of runs with at least one label, and those of errors."""
        table = self.table
        return table[(table["labels"] != "") | (table["error"] != "")]

    def labels(self) -> dict[str, int]:
        """How many runs have each label, in the order of explanation."""
        counted = Counter(label for one in self.scores for label in one.labels)
        return {label: counted[label] for label in LABELS if counted[label]}

    def first_errors(self) -> dict[str, int]:
        """How many runs fail first by each label; the rest is under ``none``."""
        counted = Counter(first_error(one.labels) or "none" for one in self._counted())
        return {label: counted[label] for label in ("none", *LABELS) if counted[label]}

    def passes(self, k: int, *, metric: str = "call_em") -> dict[str, Estimate]:
        """pass@k and pass^k over repeated trials.

        Parameters
        ----------
        k : int
            How many trials are looked at.
        metric : str
            A trial passes where this metric is 1.

        Returns
        -------
        dict of str to Estimate
            ``pass@k`` and ``pass^k``, over the tasks with at least k trials.

        Raises
        ------
        InputError
            No task has that many trials.
        """
        trials: dict[str, list[bool]] = defaultdict(list)
        for one in self._counted():
            trials[one.id].append(one.values[metric] == 1)
        enough = {id_: passed for id_, passed in trials.items() if len(passed) >= k}
        if not enough:
            most = max(map(len, trials.values()), default=0)
            raise InputError(f"k is {k}", expected=f"at most {most}, the trials of a task")
        clusters = [self.golds[id_].cluster for id_ in enough]
        rates = {"pass@k": pass_at_k, "pass^k": pass_hat_k}
        return {
            name: cluster_bootstrap([rate(len(p), sum(p), k) for p in enough.values()], clusters)
            for name, rate in rates.items()
        }

    def confusion(self) -> pd.DataFrame:
        """Which tool was called where another was wanted: rows are the reference's tools, columns the called ones.

        A reference call without partner and a predicted call without partner make a pair where they are at the same
        place among such calls of their run; ``(none)`` stands for nothing.
        """
        import pandas as pd

        counts: Counter[tuple[str, str]] = Counter()
        for one, run in zip(self.scores, self.runs, strict=True):
            if one.alignment is None:
                continue
            plan = (self.golds[one.id], *self.golds[one.id].alternatives)[one.plan]
            partner = dict(one.alignment.pairs)
            called = {j for _, j in one.alignment.pairs}
            missing = [call.name for i, call in enumerate(plan.calls) if i not in partner and i not in plan.optional]
            extra = [call.name for j, call in enumerate(run.calls) if j not in called]
            for place in range(max(len(missing), len(extra))):
                wanted = missing[place] if place < len(missing) else "(none)"
                got = extra[place] if place < len(extra) else "(none)"
                counts[wanted, got] += 1
        names = sorted({wanted for wanted, _ in counts}), sorted({got for _, got in counts})
        return pd.DataFrame(
            [[counts[wanted, got] for got in names[1]] for wanted in names[0]], index=names[0], columns=names[1]
        )

    def to_arrow(self) -> Any:
        """The table as a pyarrow Table."""
        import pyarrow as pa

        return pa.Table.from_pandas(self.table, preserve_index=False)

    def to_html(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """A page that stands alone: summary, curves, first errors, confusions, and the differences call by call.

        Parameters
        ----------
        path : path, optional
            Where to write it.
        force : bool
            Replace an existing file.

        Returns
        -------
        str
        """
        from assay.core.files import write_text
        from assay.tooluse.pages import page

        text = page(self)
        if path is not None:
            write_text(path, text, force=force)
        return text

    def to_junit(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        thresholds: Mapping[str, float] | None = None,
        force: bool = False,
    ) -> str:
        """The runs as test cases in JUnit's XML; those below a threshold fail, with the difference as message.

        Parameters
        ----------
        path : path, optional
            Where to write it.
        thresholds : mapping of str to float, optional
            The least value of each metric; ``{"call_f1": 1}`` (under the official profile ``{"em": 1}``) by default.
        force : bool
            Replace an existing file.

        Returns
        -------
        str
        """
        from assay.core.files import write_text
        from assay.tooluse.pages import junit

        text = junit(self, thresholds or ({"call_f1": 1.0} if self.profile == "exact" else {"em": 1.0}))
        if path is not None:
            write_text(path, text, force=force)
        return text

    def as_dict(self) -> dict[str, Any]:
        """What a program reads: means, labels, numbers of runs."""
        return {
            "profile": self.profile,
            "runs": len(self.scores),
            "tasks": len({one.id for one in self.scores}),
            "errors": len(self.errors),
            "structures": dict(Counter(self.golds[one.id].structure for one in self.scores)),
            "metrics": {
                name: {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}
                for name, found in self.summary().items()
            },
            "labels": self.labels(),
            "unparsable_calls": sum(call.parse_error is not None for run in self.runs for call in run.calls),
            "notes": sum(len(run.notes) for run in self.runs),
        }

    def _counted(self) -> list[Scores]:
        return [one for one in self.scores if one.error is None]

    def _value(self, one: Scores, column: str) -> Any:
        gold = self.golds[one.id]
        return len(gold.calls) if column == "n_tools" else one.trial if column == "trial" else getattr(gold, column)

    def _estimates(self, chosen: Sequence[Scores]) -> dict[str, Estimate]:
        clusters = [self.golds[one.id].cluster for one in chosen]
        if self.profile == "exact":
            return {name: cluster_bootstrap([one.values[name] for one in chosen], clusters) for name in EXACT_METRICS}
        found = {
            name: cluster_bootstrap([one.values[name] for one in chosen], clusters) for name in ("em", "inclusion")
        }
        singles = [
            (float(right), cluster) for one, cluster in zip(chosen, clusters, strict=True) for right in one.usage
        ]
        found["usage"] = cluster_bootstrap([right for right, _ in singles], [cluster for _, cluster in singles])
        found["usage_macro"] = cluster_bootstrap([one.values["usage"] for one in chosen], clusters)
        return found


def score_many(
    preds: Iterable[Trajectory],
    golds: Iterable[Gold],
    *,
    n_jobs: int = 1,
    profile: Profile = "exact",
    matcher: Matcher | None = None,
    tools: Iterable[Tool] = (),
    similarity: Similarity | None = None,
    derive: Derive | None = None,
    partial: bool = False,
) -> Report:
    """Score runs against the references with the same ids.

    Parameters
    ----------
    preds : iterable of Trajectory
        The runs; several with one id are trials of one task.
    golds : iterable of Gold
        The references.
    n_jobs : int
        Processes; -1 for all cores. The result doesn't depend on it.
    profile : {'exact', 'official'}
        Which metrics.
    matcher, tools, similarity, derive
        As for `score`.
    partial : bool
        Let references without runs pass, and leave out runs without reference.

    Returns
    -------
    Report

    Raises
    ------
    InputError
        A run has no reference, or a reference no run; the message names them.

    Examples
    --------
    >>> from assay.tooluse.trajectories import make_calls
    >>> golds = [Gold(make_calls([("a", {})]), id=str(i)) for i in range(4)]
    >>> runs = [gold.as_trajectory() for gold in golds]
    >>> runs[0].calls = []
    >>> report = score_many(runs, golds)
    >>> report.summary()["name_em"].mean, report.labels()
    (0.75, {'no_tool_used': 1})
    """
    runs, by_id = pair_runs(preds, golds, partial=partial)
    tools = list(tools)
    matcher = matcher or (Matcher(tools=tools) if tools else None)
    options = {"profile": profile, "matcher": matcher, "tools": tools, "similarity": similarity, "derive": derive}
    batches = [runs[start : start + BATCH] for start in range(0, len(runs), BATCH)]
    if n_jobs == 1 or len(batches) == 1:
        found = [_score_batch(batch, [by_id[run.id] for run in batch], options) for batch in batches]
    else:
        from joblib import Parallel, delayed

        jobs = (delayed(_score_batch)(batch, [by_id[run.id] for run in batch], options) for batch in batches)
        found = Parallel(n_jobs=n_jobs)(jobs)
    scores = [one for batch in found for one in batch]
    return Report(profile, _with_intent(scores, by_id), runs, by_id, tools, matcher)


def _score_batch(runs: Sequence[Trajectory], golds: Sequence[Gold], options: Mapping[str, Any]) -> list[Scores]:
    return [score(run, gold, **options) for run, gold in zip(runs, golds, strict=True)]


def pair_runs(
    preds: Iterable[Trajectory], golds: Iterable[Gold], *, partial: bool = False
) -> tuple[list[Trajectory], dict[str, Gold]]:
    """Runs that have a reference, with trials numbered, and references by id."""
    by_id = {gold.id: gold for gold in golds}
    runs: list[Trajectory] = []
    strangers: list[str] = []
    seen: dict[str, set[int]] = defaultdict(set)
    for run in preds:
        if run.id not in by_id:
            strangers.append(run.id)
            continue
        if run.trial in seen[run.id]:
            run = replace(run, trial=next(n for n in range(len(seen[run.id]) + 1) if n not in seen[run.id]))
        seen[run.id].add(run.trial)
        runs.append(run)
    if strangers and not partial:
        raise InputError(f"no reference for the runs {_some(strangers)}", expected="a reference of the same id")
    missing = [id_ for id_ in by_id if id_ not in seen]
    if missing and runs and not partial:
        raise InputError(f"no run for the references {_some(missing)}", expected="at least one run of each")
    if not runs and not strangers:
        raise InputError("there are no runs", expected="at least one")
    if not runs:
        known = f"{_some(list(by_id))} have references" if by_id else "there are no references"
        raise InputError(f"no run has a reference: {_some(strangers)} are runs, {known}", expected="the same ids")
    return runs, by_id


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(repr(one) for one in ids[:SHOWN]) + more


def _with_intent(scores: list[Scores], golds: Mapping[str, Gold]) -> list[Scores]:
    """Label hard twins that fail where the simple twin passes: the words hid what was meant."""
    passed: dict[str, list[bool]] = defaultdict(list)
    for one in scores:
        if golds[one.id].difficulty == "simple" and one.error is None and "call_em" in one.values:
            passed[golds[one.id].cluster].append(one.values["call_em"] == 1)
    return [
        replace(one, labels=(*one.labels, "intent"))
        if golds[one.id].difficulty == "hard"
        and one.error is None
        and one.values.get("call_em") == 0
        and _mostly(passed.get(golds[one.id].cluster, []))
        else one
        for one in scores
    ]


def _mostly(passed: Sequence[bool]) -> bool:
    return bool(passed) and sum(passed) * 2 > len(passed)


def failing(report: Report, thresholds: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """The metrics whose mean is below its threshold: name, mean, threshold."""
    means = report.summary()
    for metric, least in thresholds.items():
        if metric not in means:
            raise InputError(f"metric '{metric}'", expected=f"one of: {', '.join(means)}")
        mean = means[metric].mean
        if math.isnan(mean) or mean < least:
            yield metric, mean, least


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a name is that of a table file."""
    return Path(path).suffix.lower() in (".csv", ".parquet")
