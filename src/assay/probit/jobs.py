"""The commands on a user's files: ``assay probit fit``, ``check``, ``predict``, ``slate``, ``design``, ``sample-size``,
``simulate`` and ``plot``.
"""

from __future__ import annotations

import csv
import io
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import InputError
from assay.core.jobs import (
    STREAM,
    Flag,
    Reporting,
    WholeNumber,
    naming,
    naming_options,
    print_summary,
    require_other_file,
    require_streams,
    shows_progress,
    stop_that_says,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    from assay.probit.choices import ChoiceData
    from assay.probit.model import CorrelatedProbit

__all__ = ["app", "check", "design", "fit", "plot", "predict", "sample_size", "simulate", "slate"]

app = App(
    name="probit",
    help="Who likes what together: correlated preferences from rankings and best-of-three answers.",
    help_format="rst",
    version_flags=[],
)

STOPPED = "stopped; nothing was written"
OPTION_OF = {
    "n_init": "--starts",
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "max_triples_per_user": "--max-triples",
    "k": "-k",
    "n": "ITEMS",
    "people": "PEOPLE",
    **{
        name: f"--{name}"
        for name in (
            *(
                "budget",
                "delta",
                "eps",
                "estimator",
                "exact",
                "format",
                "item",
                "kind",
                "method",
                "rank",
                "ridge",
                "size",
            ),
            *("user", "value", "values", "weight"),
        )
    },
}
"""What the command calls an argument of the library."""

File: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]
Answers: TypeAlias = Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)]
Question: TypeAlias = Literal["ranking", "best"]
STRONGEST = 5
TABLES = (".csv",)


def _require_out(
    out: str | None, suffixes: tuple[str, ...], *inputs: str, reporting: Reporting, stream: bool = False
) -> None:
    """Refuse an output that can't be written, before any work is done."""
    from assay.core.files import check_output

    if out is None:
        return
    if stream:
        require_streams(out, reporting)
        if out == STREAM:
            return
    if not out or os.path.isdir(out):
        check_output(out)
    if not out.lower().endswith(suffixes):
        also = ", or -" if stream else ""
        raise InputError("unknown ending", file=out, expected=f"a name that ends in {', '.join(suffixes)}{also}")
    require_other_file(out, *inputs)
    check_output(out, force=reporting.force)


@Parameter(name="*", group=Group("Reading the choices", sort_key=2))
@dataclass(frozen=True)
class Reading:
    """How the choices are read.

    Parameters
    ----------
    format
        csv, tsv, parquet, txt, jsonl, order, soc, soi, toc or toi, where the name doesn't tell.
    values
        What the numbers of a table mean: rating (higher is better) or rank (1 is best); by default what the column is
        called, and ratings in a table with one column an item.
    user
        The column of the person in a table with one row a rating.
    item
        The column of the item.
    value
        The column of the rating or rank.
    max_triples
        At most so many triples of a person, drawn at random.
    """

    format: str | None = None
    values: Literal["auto", "rating", "rank"] = "auto"
    user: str | None = None
    item: str | None = None
    value: str | None = None
    max_triples: WholeNumber = 2000


AS_FILE, AS_USUAL = Reading(), Reporting()


@app.command
@naming_options(OPTION_OF)
def fit(
    data: File,
    /,
    *,
    out: OutFile = None,
    rank: str = "auto",
    estimator: Literal["moments+mle", "moments", "mle"] = "moments+mle",
    ridge: float = 0.0,
    weight: Literal["user", "triple"] = "user",
    exact: Flag = False,
    starts: WholeNumber = 3,
    seed: WholeNumber = 0,
    jobs: WholeNumber = 2,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Estimate mean utilities and their covariance from choices.

    Reads tables of ratings or ranks (.csv, .tsv, .parquet), rankings (.txt, one a line such as a>b~c), PrefLib (.soc,
    .soi, .toc, .toi), sushi orders (.order) and JSON lines of ranked completions (.jsonl); text may be gzipped, and -
    is standard input. Pairs alone identify no covariance and are refused, with two models that fit them equally well;
    --rank 0 estimates means only.

    Example: ``assay probit fit answers.txt -o model.npz``

    Parameters
    ----------
    data
        The file with the choices.
    out
        Where the model goes: a name that ends in .npz. Without it only the summary is printed.
    rank
        full for any covariance; a number of common directions; 0 for independent utilities; auto for full up to 15
        items and beyond for what predicts held-out people best.
    estimator
        Moments, maximum likelihood, or the second from the first.
    ridge
        Weight of the squared distance from independent utilities; 0.001 helps on few data.
    weight
        Whether every person counts the same, or every triple.
    exact
        Take rankings of more than three items whole, by simulation, instead of as their triples; ratings aren't.
    starts
        Starts of the optimiser.
    seed
        The seed of everything random.
    jobs
        Threads; the result doesn't depend on them.
    """
    from assay.probit.identification import identifiability
    from assay.probit.model import CorrelatedProbit

    chosen = _rank(rank)
    _require_out(out, (".npz",), data, reporting=reporting)
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        _say(f"reading {data}", reporting)
        choices = _read(data, reading, seed)
        if choices.pairs_only and chosen != 0:
            found = identifiability(choices)
            witness = "" if found.witness is None else f": {found.witness.sentence()}"
            raise InputError(
                f"only pairs were asked, which identify no covariance{witness}",
                file=data,
                expected="rankings or best-of-three answers, or --rank 0 for means alone",
            )
        _say(f"fitting {choices.n_events} events of {choices.n_users} people", reporting)
        with naming(data):
            model = CorrelatedProbit(
                chosen,
                estimator=estimator,
                ridge=ridge,
                weight=weight,
                exact=exact,
                n_init=starts,
                random_state=seed,
                n_jobs=jobs,
            ).fit(choices, told=_progress(reporting))
        if out is not None:
            model.save(out, force=reporting.force)
    summary = {**_data_summary(choices), **_model_summary(model), "output": out}
    print_summary(summary, [*_data_lines(summary), *_model_lines(summary)], reporting=reporting, out=out)


@app.command
@naming_options(OPTION_OF)
def check(data: File, /, *, reading: Reading = AS_FILE, reporting: Reporting = AS_USUAL) -> None:
    """Say what choices identify, which pairs are thin, and for pairs alone show two models that fit them equally well.

    Example: ``assay probit check answers.txt``

    Parameters
    ----------
    data
        The file with the choices, as for assay probit fit.
    """
    from assay.probit.identification import identifiability

    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        choices = _read(data, reading, 0)
        with naming(data):
            found = identifiability(choices)
    first, last = choices.extremes()
    witness = found.witness
    summary = {
        **_data_summary(choices),
        "identified": found.identified,
        "means_identified": found.means_identified,
        "rank": None if found.rank < 0 else found.rank,
        "needed": found.needed,
        "reasons": list(found.reasons),
        "free_directions": list(found.free_directions),
        "thin_pairs": [[str(a), str(b), count] for a, b, count in found.thin_pairs[:20]],
        "n_thin_pairs": len(found.thin_pairs),
        "always_first": [str(item) for item in first],
        "always_last": [str(item) for item in last],
        "witness": None
        if witness is None
        else {
            "pair_gap": witness.pair_gap,
            "order": [str(item) for item in witness.triple],
            "probability": witness.probability,
            "other_probability": witness.other_probability,
            "mu": witness.mu.tolist(),
            "covariance": witness.covariance.tolist(),
            "other_mu": witness.other_mu.tolist(),
            "other_covariance": witness.other_covariance.tolist(),
        },
    }
    lines = _data_lines(summary)
    lines.append(f"covariance   {'identified' if found.identified else 'not identified'}")
    lines += [f"             {reason}" for reason in found.reasons]
    lines += [f"free         {direction}" for direction in found.free_directions[:5]]
    lines.append(f"means        {'identified' if found.means_identified else 'not identified'}")
    if witness is not None:
        lines.append(f"witness      {witness.sentence()}")
    if found.thin_pairs:
        shown = ", ".join(f"{a} and {b} ({count})" for a, b, count in found.thin_pairs[:3])
        lines.append(f"thin pairs   {len(found.thin_pairs)} in fewer than 10 answers: {shown}")
    for name, items in (("always first", first), ("always last", last)):
        if items:
            lines.append(f"{name:<12} {', '.join(map(str, items[:6]))}")
    print_summary(summary, lines, reporting=reporting, out=None)


@app.command
@naming_options(OPTION_OF)
def predict(
    model: File,
    /,
    *,
    given: Answers = None,
    pairs: Answers = None,
    method: Literal["auto", "exact", "laplace", "gibbs"] = "auto",
    out: OutFile = None,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Predict what a person prefers, given a few of their answers.

    Writes item, utility and its spread for the person, or probabilities of the orders that --pairs names.

    Example: ``assay probit predict model.npz --given "a>b>c" --pairs "d>e"``

    Parameters
    ----------
    model
        A model that assay probit fit wrote.
    given
        An answer of the person, such as "a>b~c"; may be repeated.
    pairs
        An order whose probability is wanted, such as "d>e" or "d>e>f"; may be repeated.
    method
        exact orthant probabilities (of --pairs only), the laplace approximation, or gibbs draws; auto is exact for
        --pairs up to 12 constraints, and laplace otherwise.
    out
        A .csv file, or - for CSV on standard output; a table on the screen without it.
    """
    from assay.probit.choices import parse_answer

    _require_out(out, TABLES, model, reporting=reporting, stream=True)
    if method == "exact" and not pairs:
        raise InputError("method is 'exact' without --pairs", expected="--pairs, or the laplace or gibbs method")
    fitted = _load(model)
    for option, texts in (("--given", given), ("--pairs", pairs)):
        for text in texts or []:
            if len(parse_answer(text)) < 2:
                raise InputError(f"{option} {text!r} prefers nothing", expected="an item above another, such as 'a>b'")
    known = list(given or [])
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        rows: list[dict[str, Any]]
        if pairs:
            rows = [_predicted(fitted, text, known, method) for text in pairs]
        else:
            means = fitted.posterior(known, method="gibbs" if method == "gibbs" else "laplace")
            order = sorted(range(len(fitted.items_)), key=lambda index: -means.mean[index])
            rows = [
                {
                    "item": str(fitted.items_[index]),
                    "utility": float(means.mean[index]),
                    "spread": math.sqrt(max(float(means.covariance[index, index]), 0.0)),
                }
                for index in order
            ]
    if out is not None:
        _write_table(out, rows, force=reporting.force)
    summary = {"given": known, "predictions": rows, "output": out}
    print_summary(summary, _table_lines(rows), reporting=reporting, out=out)


def _predicted(fitted: CorrelatedProbit, text: str, known: list[str], method: str) -> dict[str, Any]:
    from assay.probit.choices import parse_answer

    groups = parse_answer(text)
    if len({item for group in groups for item in group}) < sum(map(len, groups)):
        raise InputError(f"--pairs {text!r} holds an item twice", expected="each item once")
    found = fitted.probability(text, given=known, method=method)  # type: ignore[arg-type]
    return {"order": text, "probability": found.value, "error": found.error or None}


@app.command
@naming_options(OPTION_OF)
def slate(
    model: File,
    /,
    *,
    k: Annotated[WholeNumber, Parameter(alias="-k")] = 5,
    out: OutFile = None,
    seed: WholeNumber = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Choose items that together serve different tastes, by the expected utility of the best of them.

    Example: ``assay probit slate model.npz -k 3``

    Parameters
    ----------
    model
        A model that assay probit fit wrote.
    k
        How many items.
    out
        A .csv file, or - for CSV on standard output.
    seed
        The seed of the 20 000 people that are drawn.
    """
    _require_out(out, TABLES, model, reporting=reporting, stream=True)
    fitted = _load(model)
    fitted.random_state = seed
    found = fitted.slate(k)
    rows = [{"place": place, "item": str(item)} for place, item in enumerate(found.items, start=1)]
    if out is not None:
        _write_table(out, rows, force=reporting.force)
    summary = {
        "items": [str(item) for item in found.items],
        "expected": found.expected,
        "top": [str(item) for item in found.top],
        "top_expected": found.top_expected,
        "gain": found.gain,
        "gain_error": found.gain_error,
        "output": out,
    }
    top = ", ".join(map(str, found.top))
    lines = [
        f"slate        {', '.join(map(str, found.items))}",
        f"expected     {found.expected:.4f}, the utility of the best of them for a random person",
        f"top {k:<8} {top}: {found.top_expected:.4f}",
        f"gain         {found.gain:.4f} (standard error {found.gain_error:.4f})",
    ]
    print_summary(summary, lines, reporting=reporting, out=out)


@app.command
@naming_options(OPTION_OF)
def design(
    items: WholeNumber,
    /,
    *,
    budget: WholeNumber,
    model: str | None = None,
    kind: Question = "ranking",
    out: OutFile = None,
    seed: WholeNumber = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Choose which triples to ask about: balanced, or D-optimal with a pilot model.

    Example: ``assay probit design 6 --budget 20 -o questions.csv``

    Parameters
    ----------
    items
        How many items.
    budget
        How many questions.
    model
        A pilot model that assay probit fit wrote.
    kind
        Whether all three are ranked, or only the best is named.
    out
        A .csv file, or - for CSV on standard output.
    seed
        Breaks ties among equally good questions.
    """
    from assay.probit.information import design as plan_of

    _require_out(out, TABLES, *([] if model is None else [model]), reporting=reporting, stream=True)
    with stop_that_says(STOPPED):
        plan = plan_of(items, budget, model=None if model is None else _load(model), kind=kind, random_state=seed)
    rows = [{"first": str(a), "second": str(b), "third": str(c)} for a, b, c in plan.triples]
    if out is not None:
        _write_table(out, rows, force=reporting.force)
    identified = None if plan.rank < 0 else plan.rank == plan.needed
    unseen = int((plan.pair_information == 0).sum() - len(plan.pair_information)) // 2
    summary = {
        "questions": len(plan.triples),
        "different": len(plan.counts),
        "rank": None if plan.rank < 0 else plan.rank,
        "needed": plan.needed,
        "identified": identified,
        "log_det": plan.log_det,
        "pairs_never_shown": unseen,
        "triples": [list(row.values()) for row in rows],
        "output": out,
    }
    lines = [
        f"questions    {len(plan.triples)}, {len(plan.counts)} of them different",
        f"identified   {plan.rank} of {plan.needed} directions"
        if plan.rank >= 0
        else f"pairs        {unseen} are never shown",
    ]
    lines += [] if out is not None else [f"             {' '.join(row.values())}" for row in rows]
    print_summary(summary, lines, reporting=reporting, out=out)


@app.command(name="sample-size")
@naming_options(OPTION_OF)
def sample_size(
    model: File, /, *, eps: float, delta: float = 0.05, kind: Question = "ranking", reporting: Reporting = AS_USUAL
) -> None:
    """Say how many answers make all intervals narrow enough, by the information at a pilot model.

    Example: ``assay probit sample-size model.npz --eps 0.1``

    Parameters
    ----------
    model
        A pilot model that assay probit fit wrote.
    eps
        Wanted half-width of every interval, in units of a normalised utility.
    delta
        One minus the confidence of each interval.
    kind
        Whether all three are ranked, or only the best is named.
    """
    from assay.probit.information import sample_size as answers_for

    needed = answers_for(_load(model), eps, delta=delta, kind=kind)
    summary = {"answers": needed, "eps": eps, "delta": delta, "kind": kind}
    print_summary(
        summary,
        [f"answers      {needed}, each from another person, over all triples equally often"],
        reporting=reporting,
        out=None,
    )


@app.command
@naming_options(OPTION_OF)
def simulate(
    model: File,
    people: WholeNumber,
    /,
    *,
    out: OutFile = None,
    size: WholeNumber = 3,
    kind: Question = "ranking",
    seed: WholeNumber = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Draw people from a model and let each answer one random question.

    Example: ``assay probit simulate model.npz 1000 -o simulated.txt``

    Parameters
    ----------
    model
        A model that assay probit fit wrote.
    people
        How many.
    out
        A .txt file with one answer a line, or -; standard output when left out.
    size
        Items in a question.
    kind
        Whether they are ranked, or only the best is named.
    seed
        The seed.
    """
    from assay.core.files import write_text
    from assay.probit.choice_files import choice_text

    target = STREAM if out is None else out
    _require_out(target, (".txt",), model, reporting=reporting, stream=True)
    fitted = _load(model)
    with stop_that_says(STOPPED):
        choices = fitted.simulate(people, size=size, kind=kind, random_state=seed)
        if choices.long_answers:
            # Names that can't be written are refused here as they are in shorter answers.
            list(choice_text(choices.of_users(())))
            text = [
                ">".join("~".join(str(choices.items[item]) for item in group) for group in groups)
                for _, groups in choices.long_answers
            ]
        else:
            text = list(choice_text(choices))
        write_text(target, "\n".join(text) + "\n", force=reporting.force)
    summary = {"people": people, "size": size, "kind": kind, "output": out}
    print_summary(summary, [f"answers      {people}"], reporting=reporting, out=target)


@app.command
@naming_options(OPTION_OF)
def plot(
    kind: Literal["correlation", "map", "reliability", "pairs"],
    source: File,
    /,
    *,
    out: Annotated[str, Parameter(alias="-o", allow_leading_hyphen=True)],
    data: str | None = None,
    centered: Flag = False,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Draw correlations, a map of items, a reliability curve, or how often pairs were shown.

    Example: ``assay probit plot correlation model.npz -o correlation.png``

    Parameters
    ----------
    kind
        correlation, map and reliability draw a model; pairs draws the file with the choices.
    source
        A model that assay probit fit wrote, or choices for pairs.
    out
        The picture: .png, .svg or .pdf.
    data
        Choices of other people, for reliability.
    centered
        Draw centred correlations, in which independent items have -1/(n - 1).
    """
    from assay.probit import plots

    _require_out(out, plots.PICTURE_SUFFIXES, source, *([] if data is None else [data]), reporting=reporting)
    if kind == "reliability" and data is None:
        raise InputError("reliability compares a model with choices, and --data is missing", expected="--data FILE")
    if kind != "reliability" and data is not None:
        raise InputError(f"--data is {data!r}, and {kind} takes none", expected="--data with reliability only")
    if kind != "correlation" and centered:
        raise InputError(f"--centered is given, and {kind} knows no other way", expected="--centered with correlation")
    if kind in ("correlation", "map") and reading != AS_FILE:
        raise InputError(f"{kind} reads no choices", expected="no option about reading them")
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        if kind == "pairs":
            figure = plots.plot_pairs(_read(source, reading, 0))
        elif kind == "map":
            figure = plots.plot_map(_load(source))
        elif kind == "correlation":
            figure = plots.plot_correlation(_load(source), kind="centered" if centered else "shifted")
        else:
            assert data is not None
            fitted, choices = _load(source), _read(data, reading, 0)
            with naming(data):
                figure = plots.plot_reliability(fitted, choices)
        plots.save_figure(figure, out, force=reporting.force)
    print_summary({"kind": kind, "output": out}, [], reporting=reporting, out=out)


def _rank(text: str) -> Any:
    if text in ("auto", "full"):
        return text
    if not text.isdecimal():
        raise InputError(f"--rank {text}", expected="auto, full or a whole number from 0")
    return int(text)


def _read(path: str, reading: Reading, seed: int) -> ChoiceData:
    from assay.probit.choice_files import read_choices

    return read_choices(
        path,
        format=reading.format,
        values=reading.values,
        user=reading.user,
        item=reading.item,
        value=reading.value,
        max_triples_per_user=reading.max_triples,
        random_state=seed,
    )


def _load(path: str) -> CorrelatedProbit:
    from assay.probit.model import CorrelatedProbit

    return CorrelatedProbit.load(path)


def _say(line: str, reporting: Reporting) -> None:
    """Progress, when a person watches."""
    if shows_progress(reporting):
        print(line, file=sys.stderr)


def _progress(reporting: Reporting) -> Callable[[str], None] | None:
    """What shows at most one line of progress a second, when a person watches."""
    if not shows_progress(reporting):
        return None
    last = time.monotonic()

    def told(line: str) -> None:
        nonlocal last
        if time.monotonic() - last > 1.0:
            last = time.monotonic()
            print(line, file=sys.stderr)

    return told


def _write_table(out: str, rows: Sequence[Mapping[str, Any]], *, force: bool) -> None:
    from assay.core.files import write_text

    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    write_text(out, stream.getvalue(), force=force)


def _data_summary(choices: ChoiceData) -> dict[str, Any]:
    from assay.probit.choice_files import kind_counts

    return {
        "items": choices.n_items,
        "users": choices.n_users,
        "events": kind_counts(choices),
        "dropped": dict(choices.dropped),
    }


def _data_lines(summary: Mapping[str, Any]) -> list[str]:
    events = ", ".join(f"{count} {name}" for name, count in summary["events"].items() if count)
    lines = [f"people       {summary['users']}", f"items        {summary['items']}", f"events       {events or 'none'}"]
    lines += [
        f"left out     {count} {reason.replace('max_triples_per_user', OPTION_OF['max_triples_per_user'])}"
        for reason, count in summary["dropped"].items()
    ]
    return lines


def _model_summary(model: CorrelatedProbit) -> dict[str, Any]:
    import numpy as np

    errors = None if model.stderr_ is None else model.stderr_.mu
    order = np.argsort(-model.mu_, kind="stable").tolist()
    matrix = model.correlation()
    first, second = np.triu_indices(len(matrix), 1)
    strength = matrix[first, second]
    strongest = np.argsort(-np.abs(strength), kind="stable")[:STRONGEST].tolist()
    found = model.identified_
    return {
        "rank": model.rank_,
        "loglik": model.loglik_,
        "iterations": model.n_iter_,
        "start_spread": model.init_spread_,
        "identified": None if found is None else found.identified,
        "reasons": [] if found is None else list(found.reasons),
        "means": {str(model.items_[index]): float(model.mu_[index]) for index in order},
        "mean_errors": None if errors is None else {str(model.items_[index]): float(errors[index]) for index in order},
        "strongest": [
            [str(model.items_[first[place]]), str(model.items_[second[place]]), float(strength[place])]
            for place in strongest
        ]
        if model.rank_ > 0
        else [],
    }


def _model_lines(summary: Mapping[str, Any]) -> list[str]:
    rank = summary["rank"]
    family = (
        "independent utilities"
        if rank == 0
        else "free covariance"
        if rank == summary["items"] - 1
        else f"{rank} common directions"
    )
    lines = [
        f"model        {family}",
        f"likelihood   {summary['loglik']:.5f} a mean event (log), {summary['iterations']} iterations",
    ]
    if not summary["identified"]:
        lines += [f"unidentified {reason}" for reason in summary["reasons"]]
    errors = summary["mean_errors"] or {}
    means = list(summary["means"].items())
    for place, (item, value) in enumerate(means[:STRONGEST]):
        error = f" ± {errors[item]:.3f}" if item in errors and math.isfinite(errors[item]) else ""
        lines.append(f"{'means' if place == 0 else '':<12} {value:+.3f}{error}  {item}")
    if len(means) > STRONGEST:
        lines.append(f"             … {len(means) - STRONGEST} more")
    for place, (one, other, value) in enumerate(summary["strongest"]):
        lines.append(f"{'together' if place == 0 else '':<12} {value:+.2f}  {one} and {other}")
    return lines


def _table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        name, *numbers = row.values()
        lines.append(
            "  ".join(
                [*(f"{number:+.4f}" if isinstance(number, float) else "" for number in numbers), str(name)]
            ).strip()
        )
    return lines
