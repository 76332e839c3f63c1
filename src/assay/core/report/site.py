"""The site on disk: built beside its place and put there whole, over nothing but an older report."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from assay.core.card import Card
from assay.core.errors import AssayError, InputError
from assay.core.ledger import Ledger, Record
from assay.core.report.pages import Artifact, Media, index_page, method_page, page_name, slug
from assay.core.report.results import Results, gather_results
from assay.core.study import Study

__all__ = ["write_report"]

MARKER = ".assay-report.json"
FORMAT = 1
MOST_ARTIFACTS = 120
"""So many artifacts of a method are shown and copied; the ledger has the others."""
TABLE_ROWS = 12
TABLE_BYTES = 20_000
KINDS = {
    "image": (".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp"),
    "audio": (".wav", ".mp3", ".ogg", ".flac", ".m4a"),
    "video": (".mp4", ".webm"),
    "table": (".csv", ".tsv"),
}


def write_report(
    ledger: Ledger,
    folder: str | os.PathLike[str],
    *,
    cards: Mapping[str, Card],
    studies: Mapping[str, Study],
    scale: str | None = None,
    force: bool = False,
) -> Path:
    """Write the scoreboard and a page a method, which open from disk without a network.

    The methods are those with trials in the ledger and those with a study. One without a study gets a page of its
    trials, without verdicts.

    Parameters
    ----------
    ledger : Ledger
        What was measured.
    folder : path
        Where the report goes. It is replaced as a whole when it holds an older report; a folder of anything else is
        refused.
    cards, studies : mapping of str to Card, Study
        What is installed, by the methods' names.
    scale : str, optional
        Which scale; for each method the largest with trials when left out.
    force : bool
        Replace an older report although files were added to its folder.

    Returns
    -------
    Path
        The scoreboard, ``index.html``.

    Raises
    ------
    InputError
        `folder` is a file, or holds something else than a report, or its parent is missing; no method has the scale.
    AssayError
        The report can't be written.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_report(Ledger(folder / "ledger"), folder / "report", cards={}, studies={}).name
    'index.html'
    """
    place, target = Path(folder), Path(folder).resolve()
    _check_place(place, force=force)
    if scale is not None and studies and not any(scale in study.scales for study in studies.values()):
        known = dict.fromkeys(name for study in studies.values() for name in study.scales)
        raise InputError(f"no scale '{scale}'", expected=f"one of: {', '.join(known)}")
    methods = [
        gather_results(ledger, name, card=cards.get(name), study=studies.get(name), scale=scale)
        for name in sorted({*ledger.methods(), *studies})
    ]
    methods = [results for results in methods if results.records or results.study or results.other_scales]
    methods.sort(key=lambda results: not results.verdicts)
    try:
        building = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-", suffix=".part"))
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", file=place, expected="a writable folder") from error
    try:
        building.chmod(0o777 & ~_umask())
        _build(building, methods, ledger)
        _swap(building, target)
    except OSError as error:
        raise AssayError(f"the report {place} can't be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return place / "index.html"


def _build(folder: Path, methods: list[Results], ledger: Ledger) -> None:
    made = datetime.now(UTC).isoformat(timespec="seconds")
    _write(folder / "index.html", index_page(methods, ledger=ledger.url, made=made))
    for results in methods:
        media = _copy_artifacts(folder, results, ledger)
        page = method_page(results, media=media, ledger=ledger.url, made=made)
        _write(folder / page_name(results.method), page)
    manifest = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    _write(folder / MARKER, json.dumps({"format": FORMAT, "made": made, "files": manifest}, indent=1))


def _copy_artifacts(folder: Path, results: Results, ledger: Ledger) -> Media:
    by_seed = sorted(results.records, key=lambda record: record.seed)
    kept = [(record, name) for record in by_seed for name in sorted(record.artifacts)]
    shown = [_copy_artifact(folder, record, name, ledger) for record, name in kept[:MOST_ARTIFACTS]]
    return Media(tuple(shown), len(kept) - len(shown))


def _copy_artifact(folder: Path, record: Record, name: str, ledger: Ledger) -> Artifact:
    suffix = PurePosixPath(name).suffix.lower()
    kind = next((kind for kind, suffixes in KINDS.items() if suffix in suffixes), "file")
    try:
        data = ledger.artifact(record, name)
    except OSError:
        return Artifact(name, record.arm, record.case, record.seed, "", "lost")
    target = PurePosixPath(
        "artifacts", slug(record.method), slug(record.key), f"{slug(name.removesuffix(suffix))}{suffix}"
    )
    file = folder / target
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    table, more = _small_table(data, suffix) if kind == "table" else ((), 0)
    return Artifact(name, record.arm, record.case, record.seed, quote(str(target)), kind, table, more)


def _small_table(data: bytes, suffix: str) -> tuple[tuple[tuple[str, ...], ...], int]:
    """The first rows of a table, and how many more there are; nothing where it isn't one that fits a page."""
    if len(data) > TABLE_BYTES:
        return (), 0
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig")), delimiter="\t" if suffix == ".tsv" else ","))
    except (UnicodeDecodeError, csv.Error):
        return (), 0
    rows = [row for row in rows if row]
    if len(rows) < 2 or len({len(row) for row in rows}) != 1:
        return (), 0
    return tuple(tuple(row) for row in rows[: TABLE_ROWS + 1]), max(0, len(rows) - TABLE_ROWS - 1)


def _check_place(place: Path, *, force: bool) -> None:
    if place.is_symlink() and not place.exists():
        raise InputError("is a link to nothing", file=place, expected="a folder for the report")
    if place.exists() and not place.is_dir():
        raise InputError("is a file", file=place, expected="a folder for the report")
    if not place.absolute().parent.is_dir():
        raise InputError(f"the folder {place.parent} doesn't exist", file=place, expected="an existing folder")
    if not place.exists() or not any(place.iterdir()):
        return
    known = _manifest(place)
    if known is None:
        raise InputError("holds files that aren't a report", file=place, expected="a new folder, or an older report")
    added = sorted({file.relative_to(place).as_posix() for file in place.rglob("*") if not file.is_dir()} - known)
    if added and not force:
        raise InputError(
            f"holds {added[0]}, which isn't of the report", file=place, expected="another folder, or --force"
        )


def _manifest(place: Path) -> set[str] | None:
    try:
        data = json.loads((place / MARKER).read_text(encoding="utf-8"))
        return {MARKER, *data["files"]} if data["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _swap(new: Path, place: Path) -> None:
    """Put `new` where `place` is; an older report comes back when that fails."""
    if not place.exists():
        os.rename(new, place)
        return
    old = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}-", suffix=".old"))
    os.rename(place, old / "report")
    try:
        os.rename(new, place)
    except OSError:
        os.rename(old / "report", place)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="replace")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
