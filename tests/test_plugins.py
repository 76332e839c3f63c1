"""A method in a package of its own: built, installed beside this one, and found with nothing changed here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.core.errors import InputError
from assay.core.template import write_template


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The new package's folder, and a folder into which its wheel is installed."""
    place = tmp_path_factory.mktemp("plugin")
    folder = write_template("wobble", place / "assay-wobble")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", place / "wheels", folder],
        check=True,
        capture_output=True,
    )
    (wheel,) = (place / "wheels").glob("*.whl")
    subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--no-index", "--target", place / "site", wheel],
        check=True,
        capture_output=True,
    )
    return folder, place / "site"


def test_the_list_shows_it_beside_the_others(plugin, run) -> None:
    done = run("assay", "list", "--json", PYTHONPATH=str(plugin[1]))
    assert {"mst", "wobble"} <= {method["name"] for method in json.loads(done.stdout)}
    assert "wobble" not in run("assay", "list", "--json").stdout


def test_its_study_gets_verdicts_and_a_page_in_the_report(plugin, run, tmp_path) -> None:
    site = {"PYTHONPATH": str(plugin[1])}
    done = run("assay", "check", "wobble", "--scale", "smoke", "--json", **site)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert {verdict["claim"]: verdict["outcome"] for verdict in result["verdicts"]}["bound"] == "holds"
    done = run("assay", "report", **site)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "assay-report" / "wobble.html").read_text(encoding="utf-8")
    assert "the error is within the bound" in page
    assert "wobble.html" in (tmp_path / "assay-report" / "index.html").read_text(encoding="utf-8")


def test_its_job_is_a_command(plugin, run, tmp_path) -> None:
    (tmp_path / "numbers.csv").write_text("a,b\n" + "\n".join(f"{i},{2 * i}" for i in range(1, 75)), encoding="utf-8")
    done = run("assay", "wobble", "mean", "numbers.csv", "--json", PYTHONPATH=str(plugin[1]))
    assert json.loads(done.stdout) == [37.5, 75.0]


def test_wrong_input_is_one_line_with_status_2(plugin, run, tmp_path) -> None:
    (tmp_path / "few.csv").write_text("1\n2\n", encoding="utf-8")
    done = run("assay", "wobble", "mean", "few.csv", PYTHONPATH=str(plugin[1]))
    assert (done.returncode, done.stderr) == (
        2,
        "assay: 2 numbers are too few for delta = 0.01; expected at least 37\n",
    )


def test_its_own_tests_pass_before_anything_is_changed(plugin, run) -> None:
    """They hold all checks of the floor plan, among them that its examples run."""
    done = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=plugin[0], PYTHONPATH=str(plugin[1])
    )
    assert done.returncode == 0, done.stdout
    assert "10 passed" in done.stdout


def test_its_code_follows_the_style_of_the_house(plugin, run) -> None:
    assert run("ruff", "check", "--no-cache", ".", folder=plugin[0]).returncode == 0
    assert run("ruff", "format", "--no-cache", "--check", ".", folder=plugin[0]).returncode == 0


def test_the_command_writes_the_same_package(plugin, run, tmp_path) -> None:
    assert run("assay", "new", "wobble").returncode == 0
    written = {file.relative_to(tmp_path / "assay-wobble") for file in (tmp_path / "assay-wobble").rglob("*.*")}
    assert {Path("pyproject.toml"), Path("src/assay_wobble/card.toml"), Path("tests/test_room.py")} <= written
    assert (tmp_path / "assay-wobble" / "pyproject.toml").read_text() == (plugin[0] / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["Wobble", "1st", "for", "list", "a-b", "", "../x"])
def test_a_name_that_cannot_be_one_is_refused(name, tmp_path) -> None:
    with pytest.raises(InputError, match="expected lower-case letters"):
        write_template(name, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="exists already"):
        write_template("wobble", tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []
