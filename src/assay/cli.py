"""The command `assay`: list, show, check, report, doctor, new, and every method's jobs, which are mounted lazily."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from assay import __version__
from assay.core.jobs import WholeNumber

if TYPE_CHECKING:
    from rich.console import Console

    from assay.core.card import Card
    from assay.core.claim import Verdict
    from assay.core.ledger import Ledger, Record
    from assay.core.runner import Run
    from assay.core.study import Study

INTERRUPTED = 130
LEDGER_HELP = "The ledger: a folder, or any fsspec URL."

app = App(
    name="assay",
    help="Methods from recent papers: use them on your own files, and test here what their papers claim.",
    version=__version__,
    version_flags=["--version"],
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status; errors that a user can mend are one line on standard error."""
    with _warnings_in_one_line():
        try:
            mount_methods(app, arguments)
            status = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        except BaseException as error:
            return _answer(error)
    return status if isinstance(status, int) else 0


def _answer(error: BaseException) -> int:
    """Say in one line what stopped the command, and return its exit status."""
    from cyclopts.exceptions import CycloptsError

    from assay.core.errors import InputError

    cause: BaseException | None = error
    while cause is not None:
        # Compiled code turns an interruption into an error of its own.
        if isinstance(cause, KeyboardInterrupt):
            say(str(cause) or "stopped")
            return INTERRUPTED
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, CycloptsError) and isinstance(error.__cause__, InputError):
        # The reader of a command line wraps what an option's own reader says, which names the option already.
        error = error.__cause__
    status = exit_status(error) if isinstance(error, Exception) else None
    if status is None:
        raise error
    say(" ".join(str(error).split()) or type(error).__name__)
    return status


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show warnings as lines of this command, without our source."""
    import warnings

    def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        # joblib renews a worker whose memory has grown, and no trial is lost by it.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given to the executor")
        yield


def exit_status(error: Exception) -> int | None:
    """The exit status that an error stands for; None for a fault of the program itself, which shows its traceback."""
    from cyclopts.exceptions import CycloptsError

    from assay.core.errors import AssayError

    if isinstance(error, CycloptsError):
        return 2
    if isinstance(error, AssayError):
        return error.exit_status
    if isinstance(error, OSError | MemoryError):
        return 1
    return None


def say(line: str) -> None:
    """Write one line to standard error."""
    print(f"assay: {line}", file=sys.stderr)


def mount_methods(onto: App, arguments: Sequence[str]) -> None:
    """Mount each installed method's jobs under its name; only the one that is asked for is ever imported."""
    from importlib.metadata import entry_points

    lines = _job_lines(arguments)
    for point in sorted(entry_points(group="assay.methods"), key=lambda one: one.name):
        if point.name in onto:
            continue
        if point.name in arguments[:1]:
            _require_jobs(point.name)
        line = lines.get(point.name)
        onto.command(f"{point.value}.jobs:app", name=point.name, **({"help": line} if line else {}))


def _require_jobs(name: str) -> None:
    """Import the jobs of a method, so that what is wrong with its package is said in one line."""
    from assay.core.card import find_card
    from assay.core.errors import AssayError, MissingPackageError
    from assay.core.study import load_part

    card = find_card(name)
    if card.missing:
        raise MissingPackageError(card.missing[0], what=f"assay {name}", extra=card.extra or None)
    if not isinstance(getattr(load_part(card, "jobs"), "app", None), App):
        raise AssayError(f"{card.package}.jobs holds no app")


def _job_lines(arguments: Sequence[str]) -> dict[str, str]:
    """The methods' jobs, read from their cards when the list of commands is shown."""
    if arguments and not arguments[0].startswith("-"):
        return {}
    from assay.core.card import job_lines

    return job_lines()


Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
LedgerUrl = Annotated[str, Parameter(name="--ledger", help=LEDGER_HELP)]


@app.command(name="list")
def list_(*, json_: Json = False) -> None:
    """List the installed methods: what each does, its paper, and what it still needs.

    Example: assay list
    """
    from rich.markup import escape

    from assay.core.card import load_cards, unusable_methods

    cards, unusable = load_cards(), unusable_methods()
    if json_:
        print_json(
            [_card_summary(card) for card in cards.values()]
            + [{"name": name, "error": reason} for name, reason in unusable.items()]
        )
        return
    table = _table("method", "job", "paper", "needs")
    for card in cards.values():
        table.add_row(card.name, card.job, f"{card.paper.venue}", ", ".join(card.missing) or "nothing more")
    for name, reason in unusable.items():
        table.add_row(name, f"[red]can't be used[/]: {escape(reason)}", "", "")
    _console().print(table)


@app.command
def show(
    method: str,
    /,
    *,
    scale: Annotated[
        str | None, Parameter(help="Which scale's verdicts; the largest in the ledger when left out.")
    ] = None,
    ledger: LedgerUrl = "assay-ledger",
    json_: Json = False,
) -> None:
    """Show a method: its card, its claims with the paper's figures, and the last verdicts.

    Example: assay show mst

    Parameters
    ----------
    method
        The method's name, as in `assay list`.
    """
    from assay.core.card import find_card
    from assay.core.claim import conclude
    from assay.core.ledger import Ledger, current_records
    from assay.core.study import load_study

    card = find_card(method)
    study = load_study(card)
    records = current_records(study, Ledger(ledger).read(method))
    scale = scale or _largest_scale(study, records)
    study.scale(scale)
    verdicts = conclude(study, method, scale, records)
    if json_:
        print_json({**_card_summary(card), "scale": scale, "verdicts": [verdict.as_dict() for verdict in verdicts]})
        return
    console = _console()
    console.print(f"[bold]{card.name}[/]  {card.title}", highlight=False)
    console.print(card.summary, highlight=False)
    console.print(f"{', '.join(card.paper.authors)}: {card.paper.title}. {card.paper.venue}.", highlight=False)
    for job in card.jobs:
        console.print(f"  [bold]assay {card.name} {job.verb}[/]  {job.summary}", highlight=False)
    console.print(_verdict_table(verdicts, scale))


@app.command
def check(
    *methods: str,
    scale: Annotated[
        str, Parameter(help="smoke (seconds), laptop (minutes), or paper (the paper's own data).")
    ] = "smoke",
    seeds: Annotated[WholeNumber | None, Parameter(help="Seeds 0 … N-1 instead of the scale's own number.")] = None,
    case: Annotated[tuple[str, ...], Parameter(help="Only the cases that match this pattern; may be repeated.")] = (),
    arm: Annotated[
        tuple[str, ...],
        Parameter(
            help="Add your own arm as module:function, or run only the arms that match a pattern; may be repeated."
        ),
    ] = (),
    on: Annotated[
        str, Parameter(help="local, ray, ray://HOST:PORT, dask, or a Dask scheduler's tcp://HOST:PORT.")
    ] = "local",
    jobs: Annotated[
        WholeNumber | None, Parameter(help="Trials at a time on this machine; one a core when left out.")
    ] = None,
    retry: Annotated[bool, Parameter(negative="", help="Run trials again that failed before.")] = False,
    holm: Annotated[
        bool, Parameter(negative="", help="Let p-values corrected for the number of claims decide.")
    ] = False,
    ledger: LedgerUrl = "assay-ledger",
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", help="No progress.")] = False,
    json_: Json = False,
) -> int:
    """Test on this machine what the papers claim; all installed methods when none is named.

    Trials that the ledger holds aren't run again, so a stopped run goes on.

    The exit status is 1 when a trial failed; a claim that fails is a result.

    Example: assay check mst --scale smoke

    Parameters
    ----------
    methods
        Names as in `assay list`.
    """
    from assay.core.card import find_card, load_cards
    from assay.core.ledger import Ledger
    from assay.core.study import load_study, user_arm

    sys.path.insert(0, os.getcwd())
    place = Ledger(ledger)
    cards = [find_card(name) for name in methods] or [card for card in load_cards().values() if not _left_out(card)]
    own = [reference for reference in arm if ":" in reference]
    patterns = [pattern for pattern in arm if ":" not in pattern]
    results = []
    for card in cards:
        study = load_study(card)
        for reference in own:
            study = study.with_arm(*user_arm(study, reference))
        options = {"seeds": seeds, "cases": case, "arms": [*patterns, *own] if patterns else (), "on": on, "jobs": jobs}
        done = _run_study(study, card.name, scale, place, {**options, "retry": retry}, show=not (quiet or json_))
        results.append(_result(study, card.name, scale, place, done, correct=holm))
        if not json_:
            _print_result(results[-1], study, scale, own)
    if json_:
        print_json([_result_summary(result) for result in results])
    return int(any(result["failed"] for result in results))


@app.command
def report(
    *,
    out: Annotated[Path, Parameter(help="The folder to write; an older report there is replaced.")] = Path(
        "assay-report"
    ),
    ledger: LedgerUrl = "assay-ledger",
    scale: Annotated[str | None, Parameter(help="Which scale; each method's largest when left out.")] = None,
    open_: Annotated[bool, Parameter(name="--open", negative="", help="Open it in the browser.")] = False,
    force: Annotated[
        bool, Parameter(negative="", help="Replace an older report although files were added to it.")
    ] = False,
    json_: Json = False,
) -> None:
    """Write the report: a folder of pages that opens from disk, a scoreboard and a page a method.

    Example: assay report --open
    """
    import webbrowser

    from assay.core.card import load_cards
    from assay.core.errors import InputError
    from assay.core.ledger import Ledger
    from assay.core.report import write_report
    from assay.core.study import load_study

    place = Ledger(ledger)
    methods = place.methods()
    if not methods:
        raise InputError(f"the ledger {ledger} holds no trial", expected="a run of `assay check` before")
    cards = {name: card for name, card in load_cards().items() if name in methods}
    studies = {name: load_study(card) for name, card in cards.items() if not card.missing}
    page = write_report(place, out, cards=cards, studies=studies, scale=scale, force=force)
    if json_:
        print_json({"page": str(page), "methods": methods})
    else:
        print(page)
    if open_:
        webbrowser.open(page.resolve().as_uri())


@app.command
def doctor(*, json_: Json = False) -> None:
    """Say what is installed, what each extra lacks, and what this machine has.

    Example: assay doctor
    """
    from assay.core.card import unusable_methods
    from assay.core.device import gpu_names
    from assay.core.doctor import extras
    from assay.core.ledger import describe_environment

    found = {
        "assay": __version__,
        **describe_environment(),
        "gpus": gpu_names(),
        "extras": extras(),
        "unusable_methods": unusable_methods(),
    }
    if json_:
        print_json(found)
        return
    console = _console()
    table = _table("what", "here")
    for name in ("assay", "python", "system", "processor", "cores", "memory_gib"):
        table.add_row(name.replace("_gib", " (GiB)"), str(found[name]))
    table.add_row("GPUs", ", ".join(found["gpus"]) or "none")
    console.print(table)
    table = _table("extra", "lacks")
    for name, lacking in found["extras"].items():
        table.add_row(name, ", ".join(lacking) or "nothing")
    console.print(table)
    for name, reason in found["unusable_methods"].items():
        console.print(f"{name} can't be used: {reason}", markup=False)


@app.command
def new(
    name: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(help="The folder to make; assay-NAME here when left out.")] = None,
) -> None:
    """Make a package for a method of your own: a plug-in that `assay list`, `check` and `report` find once installed.

    Example: assay new mymethod

    Parameters
    ----------
    name
        The method's name: small letters, digits and underscores.
    """
    from assay.core.template import write_template

    folder = write_template(name, out or Path(f"assay-{name}"))
    print(f"{folder}: pip install -e {folder} && assay check {name}")


def print_json(value: Any) -> None:
    """Print one JSON document to standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _run_study(study: Study, method: str, scale: str, ledger: Ledger, options: Mapping[str, Any], *, show: bool) -> Run:
    """Run what is missing, with a progress bar when a person watches."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from assay.core.runner import run as run_study

    console = _console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as bar:
        line = bar.add_task(f"{method}, {scale}", total=None)
        ended = 0

        def progress(record: Record) -> None:
            nonlocal ended
            ended += 1
            bar.update(line, advance=1, description=f"{method}, {scale}: {record.arm} on {record.case}")
            if record.status != "done" and show:
                reason = (record.error.strip().splitlines() or [""])[-1]
                bar.console.print(
                    f"{record.arm} on {record.case}, seed {record.seed} {record.status}: {reason}", markup=False
                )

        try:
            return run_study(
                study,
                method,
                scale,
                ledger=ledger,
                planned=lambda result: bar.update(line, total=result.to_run),
                progress=progress,
                **options,
            )
        except KeyboardInterrupt:
            # A thread of the pool stumbles over the trials that were taken from it, and would say so at length.
            threading.excepthook = lambda _: None
            raise KeyboardInterrupt(
                f"stopped; {ended} trials of this run are kept, and the same command goes on"
            ) from None


def _result(study: Study, method: str, scale: str, ledger: Ledger, done: Run, *, correct: bool) -> dict[str, Any]:
    from assay.core.claim import conclude
    from assay.core.ledger import current_records

    records = [record for record in current_records(study, ledger.read(method)) if record.scale == scale]
    return {
        "method": method,
        "scale": scale,
        "run": done,
        "records": records,
        "verdicts": conclude(study, method, scale, records, correct=correct),
        "failed": sum(record.status != "done" for record in records),
    }


def _result_summary(result: Mapping[str, Any]) -> dict[str, Any]:
    done: Run = result["run"]
    return {
        "method": result["method"],
        "scale": result["scale"],
        "trials": {
            "planned": done.planned,
            "known": done.known,
            "run": len(done.records),
            "failed": result["failed"],
            "lacking": done.lacking,
        },
        "verdicts": [verdict.as_dict() for verdict in result["verdicts"]],
        "arms": _arm_rows(result["records"]),
    }


def _print_result(result: Mapping[str, Any], study: Study, scale: str, own: Sequence[str]) -> None:
    done: Run = result["run"]
    console = _console()
    console.print(_verdict_table(result["verdicts"], scale, title=result["method"]))
    parts = [f"{len(done.records)} trials run", f"{done.known} known"]
    parts += [f"{result['failed']} failed (--retry runs them again)"] if result["failed"] else []
    parts += [f"{count} wait for {module}" for module, count in done.lacking.items()]
    console.print(", ".join(parts), highlight=False)
    if own:
        console.print(_arm_table(result["records"], study, own))


def _arm_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Medians of every measurement by case and arm."""
    import math
    from statistics import median

    grouped: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        grouped.setdefault((record.case, record.arm), []).append(record)
    rows = []
    for (case, arm), group in grouped.items():
        done = [record.measurements for record in group if record.status == "done"]
        values = {name: median(one[name] for one in done if name in one) for one in done for name in one}
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        rows.append({"case": case, "arm": arm, "n": len(done), "failed": len(group) - len(done), "medians": finite})
    return rows


def _arm_table(records: Sequence[Record], study: Study, own: Sequence[str]) -> Any:
    """All arms on the cases where a user's own arm ran, that arm marked."""
    rows = _arm_rows(records)
    cases = {row["case"] for row in rows if row["arm"] in own}
    shown = [row for row in rows if row["case"] in cases]
    mine = {name for row in shown if row["arm"] in own for name in row["medians"]}
    measures = [name for name in (*study.measures, *sorted(mine)) if name in mine]
    measures = list(dict.fromkeys(measures))[:6]
    table = _table("case", "arm", "n", *(f"{name} (median)" for name in measures))
    for row in shown:
        values = [row["medians"].get(name) for name in measures]
        name = f"[bold]{row['arm']}[/] (yours)" if row["arm"] in own else row["arm"]
        table.add_row(row["case"], name, str(row["n"]), *("" if value is None else f"{value:.4g}" for value in values))
    return table


def _verdict_table(verdicts: Sequence[Verdict], scale: str, *, title: str = "") -> Any:
    colours = {"holds": "green", "fails": "red", "undecided": "yellow", "not run": "dim"}
    table = _table("claim", "verdict", "finding", "source", "paper", title=f"{title} {scale}".strip())
    for verdict in verdicts:
        paper = "; ".join(f"{figure.label} {figure.value:g}" for figure in verdict.paper)
        outcome = f"[{colours[verdict.outcome]}]{verdict.outcome}[/]"
        table.add_row(f"[bold]{verdict.claim}[/] {verdict.statement}", outcome, verdict.finding, verdict.source, paper)
    return table


def _table(*columns: str, title: str = "") -> Any:
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", show_lines=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    class QuietConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    return QuietConsole(stderr=stderr, width=None if stream.isatty() else 200)


def _card_summary(card: Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "title": card.title,
        "job": card.job,
        "paper": {"title": card.paper.title, "venue": card.paper.venue, "arxiv": card.paper.arxiv},
        "jobs": [job.verb for job in card.jobs],
        "missing": list(card.missing),
    }


def _largest_scale(study: Study, records: Sequence[Record]) -> str:
    present = {record.scale for record in records}
    return next((name for name in reversed(list(study.scales)) if name in present), next(iter(study.scales)))


def _left_out(card: Card) -> bool:
    """Whether a method can't be checked here, which is said in one line."""
    if card.missing:
        hint = f": pip install 'assay[{card.extra}]'" if card.extra else ""
        say(f"{card.name} is left out; it needs {', '.join(card.missing)}{hint}")
    return bool(card.missing)
