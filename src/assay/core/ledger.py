"""What was measured: one small JSON file a trial, written whole or not at all, in a folder or at any fsspec URL.

Layout::

    <ledger>/<method>/<key>.json               a trial
    <ledger>/<method>/artifacts/<key>/<name>   what the trial kept
    <ledger>/environments/<digest>.json        the machine and versions that a trial ran on

The key is a digest of what determines the result: method, arm, case and their settings, seed, scale, and the source of
the code that runs the trial. Numbers that JSON doesn't know are written as null (not a number), "inf" and "-inf".
"""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import AssayError, InputError
from assay.core.files import atomic_path, existing_file, write_bytes
from assay.core.study import Study, Trial

__all__ = [
    "Ledger",
    "Record",
    "Status",
    "current_records",
    "describe_environment",
    "read_parquet",
    "source_digest",
    "trial_key",
    "trial_source",
    "write_parquet",
]

FORMAT = 1
DEFAULT = "assay-ledger"
Status = Literal["done", "failed", "timed out", "died"]


@dataclass(frozen=True)
class Record:
    """A trial that was run.

    Attributes
    ----------
    key, method, arm, case, seed, scale
        Which trial.
    status : str
        ``done``, ``failed`` (it raised), ``timed out``, or ``died`` (its process ended).
    measurements : dict of str to float
        What it returned.
    seconds : float
        Wall-clock seconds of the whole trial.
    started : str
        When, in ISO 8601 with the zone.
    source : str
        The digest of the code.
    environment : str
        The digest of the machine's description.
    error : str
        The traceback, or why it was stopped.
    artifacts : dict of str to str
        File names, and where they lie below the method's folder.
    """

    key: str
    method: str
    arm: str
    case: str
    seed: int
    scale: str
    status: Status
    measurements: Mapping[str, float]
    seconds: float
    started: str
    source: str
    environment: str
    arm_settings: Mapping[str, Any] = field(default_factory=dict)
    case_settings: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The file's text."""
        data = {**self.__dict__, "format": FORMAT}
        data["measurements"] = {name: _to_json_number(value) for name, value in self.measurements.items()}
        return json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read a file's text.

        Raises
        ------
        ValueError
            The text isn't a record of this format.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"expected a trial of format {FORMAT}")
        try:
            data["measurements"] = {name: _from_json_number(value) for name, value in data["measurements"].items()}
            return cls(**data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a trial: {error}") from error


class Ledger:
    """The trials on disk.

    Parameters
    ----------
    url : str or path
        A folder, or any URL that fsspec knows ("s3://bucket/ledger", "memory://ledger").

    Raises
    ------
    InputError
        The URL's protocol is unknown, or the place can't be reached.
    """

    def __init__(self, url: str | os.PathLike[str] = DEFAULT) -> None:
        import fsspec

        self.url = os.fspath(url)
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            raise InputError(f"ledger '{self.url}': {error}", expected="a folder or an fsspec URL") from error
        self._local = self._fs.protocol == "file" or "file" in self._fs.protocol
        if self._local and Path(self._root).exists() and not Path(self._root).is_dir():
            raise InputError("is a file", file=self._root, expected="a folder for the ledger")

    def add(self, record: Record, *, artifacts: Mapping[str, bytes] | None = None) -> Record:
        """Write a trial, its artifacts first, and return it with their places."""
        places = {}
        for name, data in (artifacts or {}).items():
            places[name] = f"artifacts/{record.key}/{name}"
            self._write(f"{record.method}/{places[name]}", data)
        record = Record(**{**record.__dict__, "artifacts": places})
        self._write(f"{record.method}/{record.key}.json", record.to_json().encode())
        return record

    def add_environment(self, environment: Mapping[str, Any]) -> str:
        """Write a machine's description and return its digest."""
        text = json.dumps(environment, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        digest = _digest(text)
        self._write(f"environments/{digest}.json", text.encode())
        return digest

    def environment(self, digest: str) -> dict[str, Any]:
        """Read a machine's description; empty when it is lost."""
        try:
            data: dict[str, Any] = json.loads(self._fs.cat_file(self._path(f"environments/{digest}.json")))
        except (OSError, ValueError):
            return {}
        return data

    def methods(self) -> list[str]:
        """The methods that have trials."""
        if not self._fs.exists(self._root):
            return []
        folders = [entry["name"] for entry in self._fs.ls(self._root, detail=True) if entry["type"] == "directory"]
        return sorted(name for folder in folders if (name := folder.rstrip("/").rsplit("/", 1)[-1]) != "environments")

    def read(self, method: str) -> list[Record]:
        """Read all trials of a method, sorted by case, arm and seed.

        A file that can't be read counts as a missing trial; one warning names the first of them.
        """
        records, damaged = [], []
        for file in self._files(method):
            try:
                record = Record.from_json(self._fs.cat_file(file).decode())
                if not file.endswith(f"/{record.key}.json"):
                    raise ValueError(f"it holds the trial {record.key}")
                records.append(record)
            except (OSError, ValueError) as error:
                damaged.append(f"{file}: {error}")
        if damaged:
            count = "a trial's file is" if len(damaged) == 1 else f"{len(damaged)} trials' files are"
            warnings.warn(f"{count} damaged, as if missing: {damaged[0]}", stacklevel=2)
        return sorted(records, key=lambda record: (record.scale, record.case, record.arm, record.seed))

    def artifact(self, record: Record, name: str) -> bytes:
        """Read an artifact of a trial."""
        data: bytes = self._fs.cat_file(self._path(f"{record.method}/{record.artifacts[name]}"))
        return data

    def remove(self, record: Record) -> None:
        """Forget a trial, so that it is run again."""
        self._fs.rm_file(self._path(f"{record.method}/{record.key}.json"))

    def _files(self, method: str) -> list[str]:
        folder = self._path(method)
        if not self._fs.exists(folder):
            return []
        self._fs.invalidate_cache(folder)
        return sorted(file for file in self._fs.ls(folder, detail=False) if file.endswith(".json") and "/." not in file)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            if self._local:
                write_bytes(path, data, force=True)
            else:
                self._fs.pipe_file(path, data)
        except InputError as error:
            raise InputError(
                f"the ledger {self.url} can't be written: {error.message}", expected=error.expected
            ) from error
        except OSError as error:
            kind = AssayError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else InputError
            raise kind(f"the ledger {self.url} can't be written: {error.strerror or error}") from error


def current_records(study: Study, records: Iterable[Record]) -> list[Record]:
    """Keep the trials that the study as it stands would run, so that results of older code don't mix in.

    Trials of a user's own arm are kept where the function isn't at hand, the newest of each case and seed.
    """
    source = source_digest(study.trial)
    newest: dict[tuple[str, str, str, int], Record] = {}
    for record in records:
        arm = study.arms.get(record.arm)
        if not record.source.startswith(source):
            continue
        if arm is not None and _canonical(arm.settings) != _canonical(record.arm_settings):
            continue
        if arm is not None and arm.function is not None and record.source != trial_source(study.trial, arm.function):
            continue
        scale = study.scales.get(record.scale)
        cases = {case.name: case.settings for case in scale.cases} if scale else {}
        if _canonical(cases.get(record.case, {})) != _canonical(record.case_settings):
            continue
        place = (record.scale, record.case, record.arm, record.seed)
        if place not in newest or newest[place].started < record.started:
            newest[place] = record
    return list(newest.values())


def trial_source(trial: Callable[..., Any], function: Callable[..., Any] | None) -> str:
    """The digest of the code that a trial runs: the study's, followed by that of a user's own function."""
    return source_digest(trial) + ("" if function is None else f"+{source_digest(function)}")


def trial_key(trial: Trial, *, source: str) -> str:
    """The digest of what determines a trial's result."""
    identity = {
        "method": trial.method,
        "arm": trial.arm,
        "arm_settings": dict(trial.arm_settings),
        "case": trial.case,
        "case_settings": dict(trial.case_settings),
        "seed": trial.seed,
        "scale": trial.scale,
        "source": source,
    }
    return _digest(json.dumps(identity, sort_keys=True, ensure_ascii=False))


def source_digest(function: Callable[..., Any]) -> str:
    """The digest of a function's module and of all modules of its package that it reaches by imports.

    Comments, docstrings and layout don't count. For a module of ``assay.mst`` the package is ``assay.mst``; for others
    it is the outermost package, or the module itself.
    """
    return _source_digest(function.__module__)


@cache
def _source_digest(module: str) -> str:
    parts = module.split(".")
    package = ".".join(parts[:2]) if parts[0] == "assay" else parts[0]
    texts: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in texts or not (name == package or name.startswith(f"{package}.")):
            continue
        file = _source_file(name)
        if file is None:
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        waiting.extend(_imported(tree, name, is_package=file.name == "__init__.py"))
        texts[name] = ast.dump(_without_docstrings(tree))
    return _digest(json.dumps(texts, sort_keys=True))


def _source_file(module: str) -> Path | None:
    loaded = sys.modules.get(module)
    if loaded is not None and getattr(loaded, "__file__", None):
        file = Path(str(loaded.__file__))
    else:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is None:
            return None
        file = Path(spec.origin)
    return file if file.suffix == ".py" and file.exists() else None


def _imported(tree: ast.AST, module: str, *, is_package: bool) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module if is_package else module.rpartition(".")[0]
                for _ in range(node.level - 1):
                    parent = parent.rpartition(".")[0]
                base = f"{parent}.{base}".rstrip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return tree


def describe_environment() -> dict[str, Any]:
    """The machine and the versions that matter for a measurement."""
    packages = ("assay", "numpy", "scipy", "numba", "torch", "scikit-learn", "joblib", "ray", "dask", "transformers")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "packages": versions,
    }


def write_parquet(path: str | os.PathLike[str], records: Iterable[Record], *, force: bool = False) -> None:
    """Write trials as one Parquet file, a row a measurement.

    Columns: the fields of `Record`, with settings as JSON, and ``measure`` and ``value``. A trial without measurements
    has one row with an empty measure. Artifacts stay in the ledger.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for record in records:
        shared = {name: value for name, value in record.__dict__.items() if name not in ("measurements", "artifacts")}
        for name in ("arm_settings", "case_settings"):
            shared[name] = json.dumps(shared[name], sort_keys=True)
        for measure, value in record.measurements.items() or [("", math.nan)]:
            rows.append({**shared, "measure": measure, "value": float(value)})
    with atomic_path(path, force=force) as temporary:
        pq.write_table(pa.Table.from_pylist(rows), temporary, compression="zstd")


def read_parquet(path: str | os.PathLike[str]) -> list[Record]:
    """Read what `write_parquet` wrote.

    Raises
    ------
    InputError
        The file is missing, damaged, or not a table of trials.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = existing_file(path, suffixes=(".parquet",))
    try:
        rows = pq.read_table(file).to_pylist()
        grouped: dict[str, dict[str, Any]] = {}
        for row in rows:
            measure, value = row.pop("measure"), row.pop("value")
            fields = grouped.setdefault(row["key"], {**row, "measurements": {}})
            if measure:
                fields["measurements"][measure] = value
        for fields in grouped.values():
            for name in ("arm_settings", "case_settings"):
                fields[name] = json.loads(fields[name])
        return [Record(**fields) for fields in grouped.values()]
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a table of trials: {error}", file=file, expected="a ledger as Parquet") from error


def _canonical(settings: Mapping[str, Any]) -> str:
    """Settings as the ledger keeps them, where a tuple is a list."""
    return json.dumps(dict(settings), sort_keys=True, ensure_ascii=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _to_json_number(value: float) -> float | str | None:
    value = float(value)
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def _from_json_number(value: float | str | None) -> float:
    return math.nan if value is None else float(value)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
