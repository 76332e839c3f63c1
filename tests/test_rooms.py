"""Every method's folder against the floor plan, and the house against its rules."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from assay.core.card import Card, load_cards
from assay.core.claim import conclude
from assay.core.ledger import read_parquet
from assay.core.rooms import CHECKS, imports_of
from assay.core.study import load_study

CARDS = [card for card in load_cards().values() if card.package.startswith("assay.")]
IDS = [card.name for card in CARDS]
HEAVY = ("torch", "pandas", "ray", "dask", "numba", "sklearn", "matplotlib", "tensorflow")
PARTS = [
    "The job",
    "An example",
    "The method",
    "Options",
    "What it costs",
    "What the study found",
    "Limits",
    "Source",
]
STATEMENTS = ["import assay", "import assay.cli", "from assay.cli import run; run(['--help'])"]

every_method = pytest.mark.parametrize("card", CARDS, ids=IDS)


def test_every_folder_with_a_card_is_an_installed_method(root: Path) -> None:
    folders = {file.parent.name for file in (root / "src" / "assay").glob("*/card.toml")}
    assert folders == {card.name for card in CARDS}


@pytest.mark.parametrize("check", list(CHECKS))
@every_method
def test_method(card: Card, check: str) -> None:
    faults = list(CHECKS[check](card))
    assert not faults, "\n".join(faults)


@every_method
def test_every_claim_has_a_verdict_in_the_committed_laptop_results(card: Card, root: Path) -> None:
    folder = root / "docs" / "results" / card.name
    study = load_study(card)
    verdicts = conclude(study, card.name, "laptop", read_parquet(folder / "laptop.parquet"))
    decided = [verdict for verdict in verdicts if verdict.outcome != "not run" or verdict.finding.startswith("needs ")]
    assert [verdict.claim for verdict in decided] == [claim.id for claim in study.claims]
    assert json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert (folder / "laptop.parquet").stat().st_size < 2_000_000


@every_method
def test_the_page_has_the_parts_that_a_reader_looks_for(card: Card, root: Path) -> None:
    text = (root / "docs" / "methods_text" / f"{card.name}.md").read_text(encoding="utf-8")
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "The job",
        "An example",
        "The method",
        "Options",
        "What it costs",
        "What the study found",
        "Limits",
        "Source",
    ]


@every_method
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_extra_is_enough_for_every_public_name(card: Card, root: Path, tmp_path: Path) -> None:
    """In an empty environment, with the versions of constraints.txt."""
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile"]
    install += ["-c", root / "constraints.txt", f"{root}[{card.extra}]"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = f"import {card.package} as package; [getattr(package, name) for name in package.__all__]"
    done = subprocess.run([python, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "statement", ["import assay", "import assay.cli", "from assay.cli import run; run(['--help'])"]
)
def test_nothing_heavy_and_no_method_is_imported_before_it_is_asked_for(statement: str) -> None:
    names = [*HEAVY, *(card.package for card in CARDS)]
    code = f"{statement}\nimport sys\nprint('loaded:', *(name for name in {names} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_core_imports_no_method(root: Path) -> None:
    """At any depth and in any function, and whatever the methods are called."""
    methods = {folder.name for folder in (root / "src" / "assay").iterdir() if (folder / "card.toml").is_file()}
    forbidden = {f"assay.{name}" for name in methods}
    found = [
        f"{used.file.name}, line {used.line}: {used.module}"
        for used in imports_of(root / "src" / "assay" / "core")
        if ".".join(used.module.split(".")[:2]) in forbidden
    ]
    assert found == []
