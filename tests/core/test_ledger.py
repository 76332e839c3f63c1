"""The ledger: whole files, keys that follow what determines a result, and a table for keeping."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from assay.core.errors import AssayError, InputError
from assay.core.ledger import (
    Ledger,
    Record,
    describe_environment,
    read_parquet,
    source_digest,
    trial_key,
    write_parquet,
)
from assay.core.study import Trial
from tests.core import sample_study

RECORD = Record(
    key="k1",
    method="sample",
    arm="ours",
    case="small é",
    seed=3,
    scale="smoke",
    status="done",
    measurements={"cost": 1.5, "nan": math.nan, "up": math.inf, "down": -math.inf},
    seconds=0.25,
    started="2026-01-01T00:00:00+00:00",
    source="s",
    environment="e",
    arm_settings={"factor": 2, "name": "ü"},
)


def _same(one, other):
    values = [{**record.__dict__, "measurements": None, "artifacts": None} for record in (one, other)]
    numbers = [{name: repr(float(value)) for name, value in record.measurements.items()} for record in (one, other)]
    return values[0] == values[1] and numbers[0] == numbers[1]


@pytest.mark.parametrize("url", ["{folder}/my ledger é", "memory://ledger-{unique}"])
def test_what_is_added_is_read(tmp_path, url):
    ledger = Ledger(url.format(folder=tmp_path, unique=tmp_path.name))
    added = ledger.add(RECORD, artifacts={"a.txt": b"data"})
    assert ledger.methods() == ["sample"]
    (read,) = ledger.read("sample")
    assert _same(read, RECORD)
    assert ledger.artifact(read, "a.txt") == b"data"
    assert added.artifacts == read.artifacts
    ledger.remove(read)
    assert ledger.read("sample") == []


def test_file_is_plain_json(tmp_path):
    Ledger(tmp_path).add(RECORD)
    text = (tmp_path / "sample" / "k1.json").read_text(encoding="utf-8")
    assert '"nan": null' in text and '"up": "inf"' in text and '"format": 1' in text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "measurements": {}}']
)
def test_torn_or_foreign_file_counts_as_missing(tmp_path, text):
    ledger = Ledger(tmp_path)
    ledger.add(RECORD)
    (tmp_path / "sample" / "torn.json").write_text(text)
    with pytest.warns(UserWarning, match=r"a trial's file is damaged, as if missing: .*torn\.json"):
        assert [record.key for record in ledger.read("sample")] == ["k1"]


def test_file_under_another_trials_name_counts_as_missing(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.add(RECORD)
    (tmp_path / "sample" / "k1.json").rename(tmp_path / "sample" / "k2.json")
    with pytest.warns(UserWarning, match=r"k2\.json: it holds the trial k1"):
        assert ledger.read("sample") == []


def test_half_written_file_is_not_seen(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.add(RECORD)
    (tmp_path / "sample" / ".abc.part.json").write_text("{")
    assert [record.key for record in ledger.read("sample")] == ["k1"]


def test_ledger_that_is_a_file_or_of_unknown_protocol_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        Ledger(tmp_path / "file")
    with pytest.raises(InputError, match="fsspec"):
        Ledger("nonsense://x")


def test_ledger_on_a_full_disk_fails_in_one_line(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("assay.core.files.os.fsync", full)
    with pytest.raises(AssayError, match="no space left"):
        Ledger(tmp_path).add(RECORD)
    assert list((tmp_path / "sample").iterdir()) == []


def test_environment_is_kept_once(tmp_path):
    ledger = Ledger(tmp_path)
    environment = describe_environment()
    digest = ledger.add_environment(environment)
    assert ledger.add_environment(environment) == digest
    assert ledger.environment(digest) == environment
    assert ledger.environment("lost") == {}
    assert ledger.methods() == []


TRIAL = Trial("sample", "ours", "small", 0, "smoke", {"a": 1, "b": 2}, {"n": 3})


@pytest.mark.parametrize(
    "change",
    [
        {"arm": "x"},
        {"case": "x"},
        {"seed": 1},
        {"scale": "x"},
        {"arm_settings": {"a": 2, "b": 2}},
        {"case_settings": {}},
    ],
)
def test_key_follows_everything_that_determines_the_result(change):
    assert trial_key(replace(TRIAL, **change), source="s") != trial_key(TRIAL, source="s")


def test_key_ignores_the_order_of_settings_and_follows_the_source():
    assert trial_key(replace(TRIAL, arm_settings={"b": 2, "a": 1}), source="s") == trial_key(TRIAL, source="s")
    assert trial_key(TRIAL, source="other") != trial_key(TRIAL, source="s")


def _digest_of(folder, monkeypatch, module, files):
    import importlib
    import sys

    from assay.core import ledger

    package = folder / "plugin_package"
    package.mkdir(exist_ok=True)
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.startswith("plugin_package")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    ledger._source_digest.cache_clear()
    return source_digest(importlib.import_module(f"plugin_package.{module}").trial)


FILES = {
    "__init__.py": "",
    "study.py": "from plugin_package.inner import value\ndef trial(t):\n    return value()\n",
    "inner.py": "def value():\n    from . import deep\n    return deep.X\n",
    "deep.py": "X = 1\n",
    "jobs.py": "Y = 1\n",
}


@pytest.mark.parametrize(
    ("file", "text", "changes"),
    [
        ("deep.py", "X = 2\n", True),
        ("inner.py", "def value():\n    from . import deep\n    return deep.X + 0\n", True),
        ("deep.py", "# a comment\nX    =   1\n", False),
        ("deep.py", '"""A docstring."""\nX = 1\n', False),
        ("jobs.py", "Y = 2\n", False),
    ],
    ids=["deep code", "inner code", "comment and layout", "docstring", "a module that the trial doesn't reach"],
)
def test_source_digest_follows_the_code_that_a_trial_reaches(tmp_path, monkeypatch, file, text, changes):
    before = _digest_of(tmp_path, monkeypatch, "study", FILES)
    after = _digest_of(tmp_path, monkeypatch, "study", {**FILES, file: text})
    assert (before != after) == changes


def test_parquet_keeps_every_measurement(tmp_path):
    failed = replace(RECORD, key="k2", status="failed", measurements={}, error="Traceback")
    write_parquet(tmp_path / "laptop.parquet", [RECORD, failed])
    first, second = read_parquet(tmp_path / "laptop.parquet")
    assert _same(first, RECORD)
    assert _same(second, failed)


def test_foreign_parquet_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="not a table of trials"):
        read_parquet(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(InputError, match="not a table of trials"):
        read_parquet(tmp_path / "y.parquet")


def test_digest_is_of_the_sample_studys_module_alone():
    assert source_digest(sample_study.run_trial) == source_digest(sample_study.run_trial)
