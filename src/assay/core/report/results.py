"""What is reported of a method at one scale: trials, verdicts and machines, from a ledger or from committed files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.core.card import Card
from assay.core.claim import Verdict, conclude
from assay.core.errors import AssayError, InputError
from assay.core.files import write_text
from assay.core.ledger import Ledger, Record, current_records, read_parquet, write_parquet
from assay.core.report.wording import format_count
from assay.core.study import Study

__all__ = ["Results", "export_results", "gather_results", "read_results"]

SCALES = ("smoke", "laptop", "paper")
"""The order of scales for methods whose study isn't at hand."""


@dataclass(frozen=True)
class Results:
    """What is known of one method at one scale.

    Attributes
    ----------
    method, scale : str
        Which method, at which scale.
    records : tuple of Record
        The newest trial of each case, arm and seed.
    environments : mapping of str to mapping
        The machines, by the digest that the records name.
    card : Card or None
        None when the method isn't installed.
    study : Study or None
        None when the method, or a package that it needs, isn't installed; then there are no verdicts.
    verdicts : tuple of Verdict
        One a claim.
    notices : tuple of str
        What a reader must know before the numbers.
    other_scales : mapping of str to int
        How many trials there are at scales that aren't shown.
    """

    method: str
    scale: str
    records: tuple[Record, ...]
    environments: Mapping[str, Mapping[str, Any]]
    card: Card | None = None
    study: Study | None = None
    verdicts: tuple[Verdict, ...] = ()
    notices: tuple[str, ...] = ()
    other_scales: Mapping[str, int] | None = None

    @property
    def seconds(self) -> float:
        """Seconds that the trials took, added up."""
        return sum(record.seconds for record in self.records)

    @property
    def when(self) -> str:
        """When the last trial started; empty without trials."""
        return max((record.started for record in self.records), default="")

    @property
    def title(self) -> str:
        """The card's title, or the method's name."""
        return self.card.title if self.card else self.method


def gather_results(
    ledger: Ledger,
    method: str,
    *,
    card: Card | None = None,
    study: Study | None = None,
    scale: str | None = None,
) -> Results:
    """Read a method's trials from a ledger and conclude.

    Parameters
    ----------
    ledger : Ledger
        Where the trials are.
    method : str
        Which method; it needn't be installed.
    card, study : optional
        What is installed of it. With a study, trials of older code are left out, which a notice says.
    scale : str, optional
        Which scale; the largest that has trials when left out.

    Returns
    -------
    Results

    Examples
    --------
    >>> results = gather_results(Ledger("memory://empty-ledger"), "mst")
    >>> len(results.records), results.notices
    (0, ("This method isn't installed here: its trials are shown without claims and verdicts.",))
    """
    stored = ledger.read(method)
    records = current_records(study, stored) if study is not None else _newest(stored)
    scales = tuple(study.scales) if study is not None else SCALES
    chosen = scale or _largest(scales, records)
    notices = []
    older = sum(record.scale == chosen for record in stored) - sum(record.scale == chosen for record in records)
    if study is not None and older:
        verb = "is" if older == 1 else "are"
        notices.append(f"{format_count(older, 'trial')} of older code or settings in the ledger {verb} left out.")
    counts = {name: sum(record.scale == name for record in records) for name in {record.scale for record in records}}
    results = Results(
        method=method,
        scale=chosen,
        records=_at_scale(records, chosen, study),
        environments={},
        card=card,
        study=study,
        notices=tuple(notices),
        other_scales={name: count for name, count in sorted(counts.items()) if name != chosen},
    )
    digests = {record.environment for record in results.records}
    return _concluded(replace(results, environments={digest: ledger.environment(digest) for digest in sorted(digests)}))


def read_results(
    folder: str | os.PathLike[str],
    *,
    method: str,
    scale: str,
    card: Card | None = None,
    study: Study | None = None,
) -> Results:
    """Read results that are kept beside the documentation, as `export_results` writes them.

    Trials are taken as they are: they document the code with which they were run, whatever has changed since.

    Parameters
    ----------
    folder : path
        Holds ``<scale>.parquet`` and, where it is known, ``environment.json``: one machine's description, or several by
        their digests.
    method, scale : str
        Which results.
    card, study : optional
        What is installed of the method; without a study there are no verdicts.

    Returns
    -------
    Results

    Raises
    ------
    InputError
        The table is missing or damaged, holds no trial of the method at that scale, or the description isn't JSON.
    """
    file = Path(folder) / f"{scale}.parquet"
    stored = [record for record in read_parquet(file) if record.method == method]
    records = _at_scale(_newest(stored), scale, study)
    if not records:
        raise InputError(f"no trial of {method} at scale {scale}", file=file, expected="the results of this method")
    environments = _read_environments(Path(folder) / "environment.json", records)
    return _concluded(Results(method, scale, records, environments, card, study))


def export_results(
    ledger: Ledger, method: str, *, study: Study, scale: str, folder: str | os.PathLike[str], force: bool = False
) -> list[Path]:
    """Write a method's current trials at one scale as ``<scale>.parquet``, and their machines as ``environment.json``.

    Parameters
    ----------
    ledger : Ledger
        Where the trials are.
    method : str
        Which method.
    study : Study
        Says which trials are current.
    scale : str
        Which scale.
    folder : path
        Where the files go; it is made when it is missing.
    force : bool
        Replace an older table of this scale.

    Returns
    -------
    list of Path
        The two files.

    Raises
    ------
    InputError
        There is no such trial, or a file exists and `force` is false.
    """
    results = gather_results(ledger, method, study=study, scale=scale)
    if not results.records:
        raise InputError(f"no trial of {method} at scale {scale} in the ledger {ledger.url}", expected="a finished run")
    Path(folder).mkdir(parents=True, exist_ok=True)
    table, description = Path(folder) / f"{scale}.parquet", Path(folder) / "environment.json"
    known = {digest: machine for digest, machine in _read_object(description).items() if _is_digest(digest)}
    write_parquet(table, results.records, force=force)
    text = json.dumps({**known, **results.environments}, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(description, text + "\n", force=force or bool(known))
    return [table, description]


def _concluded(results: Results) -> Results:
    if results.study is None:
        reason = (
            f"Its study needs {', '.join(results.card.missing)}, which isn't installed here; so there are no verdicts."
            if results.card and results.card.missing
            else "This method isn't installed here: its trials are shown without claims and verdicts."
        )
        return replace(results, notices=(reason, *results.notices))
    if results.scale not in results.study.scales:
        return replace(results, notices=(f"Its study has no scale {results.scale}.", *results.notices))
    try:
        verdicts = tuple(conclude(results.study, results.method, results.scale, results.records))
    except AssayError as error:
        return replace(results, notices=(f"There are no verdicts: {error}.", *results.notices))
    places = {case: place for place, case in enumerate(dict.fromkeys(record.case for record in results.records))}
    return replace(results, verdicts=tuple(_ordered(verdict, places) for verdict in verdicts))


def _ordered(verdict: Verdict, places: Mapping[str, int]) -> Verdict:
    """The verdict with its cases in the order of the study."""
    if verdict.conclusion is None:
        return verdict
    by_case = sorted(verdict.conclusion.by_case, key=lambda finding: places.get(finding.case, len(places)))
    return replace(verdict, conclusion=replace(verdict.conclusion, by_case=tuple(by_case)))


def _newest(records: Iterable[Record]) -> list[Record]:
    newest: dict[tuple[str, str, str, int], Record] = {}
    for record in records:
        place = (record.scale, record.case, record.arm, record.seed)
        if place not in newest or newest[place].started < record.started:
            newest[place] = record
    return list(newest.values())


def _at_scale(records: Iterable[Record], scale: str, study: Study | None) -> tuple[Record, ...]:
    """The trials of a scale, with cases and arms in the order of the study."""
    found = [record for record in records if record.scale == scale]
    cases: dict[str, int] = {}
    arms: dict[str, int] = {}
    if study is not None:
        arms = {name: place for place, name in enumerate(study.arms)}
        if scale in study.scales:
            cases = {case.name: place for place, case in enumerate(study.scales[scale].cases)}

    def place(record: Record) -> tuple[int, str, int, str, int]:
        known_case, known_arm = cases.get(record.case, len(cases)), arms.get(record.arm, len(arms))
        return known_case, record.case, known_arm, record.arm, record.seed

    return tuple(sorted(found, key=place))


def _largest(scales: Sequence[str], records: Sequence[Record]) -> str:
    present = {record.scale for record in records}
    known = [name for name in scales if name in present]
    if known:
        return known[-1]
    return min(present) if present else scales[0]


def _read_environments(file: Path, records: Sequence[Record]) -> dict[str, Mapping[str, Any]]:
    data = _read_object(file)
    used = {record.environment for record in records} & data.keys()
    if used:
        return {digest: data[digest] for digest in sorted(used)}
    return {"": data} if data and not all(map(_is_digest, data)) else {}


def _read_object(file: Path) -> dict[str, Any]:
    """A JSON object from a file; empty when there is no file."""
    if not file.exists():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(str(error), file=file, expected="JSON") from error
    if not isinstance(data, dict):
        raise InputError(
            "is no JSON object", file=file, expected="a machine's description, or several by their digests"
        )
    return data


def _is_digest(name: str) -> bool:
    return re.fullmatch("[0-9a-f]{24}", name) is not None
