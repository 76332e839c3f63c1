"""The command `assay`: what it prints, its exit statuses, and what it doesn't import."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from assay.core.template import write_template

OWN_ARM = """
def zeros(*arguments, **options):
    raise RuntimeError("my arm fails")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that, on the path, makes a method of the template an installed one."""
    folder = tmp_path_factory.mktemp("site")
    project = write_template("wobble", tmp_path_factory.mktemp("project") / "assay-wobble")
    (package,) = (project / "src").iterdir()
    package.rename(folder / package.name)
    information = folder / "assay_wobble-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: assay-wobble\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text(f"[assay.methods]\nwobble = {package.name}\n")
    (folder / "my_arms.py").write_text(OWN_ARM)
    return folder


@pytest.fixture
def assay(run, installed):
    """Run `assay` in an empty folder with the sample method installed."""

    def run_(*arguments, **options):
        paths = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
        return run("assay", *arguments, PYTHONPATH=paths, **options)

    return run_


def test_list_shows_methods_of_other_packages(assay):
    answer = assay("list", "--json")
    assert answer.returncode == 0
    names = [card["name"] for card in json.loads(answer.stdout)]
    assert "wobble" in names and names == sorted(names)
    assert "wobble" in assay("list").stdout


def test_check_runs_once_and_then_knows(assay):
    first = json.loads(assay("check", "wobble", "--json").stdout)[0]
    again = json.loads(assay("check", "wobble", "--json").stdout)[0]
    assert first["trials"]["run"] == first["trials"]["planned"] > 0
    assert again["trials"]["run"] == 0
    assert again["verdicts"] == first["verdicts"]
    assert all(verdict["finding"] for verdict in first["verdicts"])
    assert first["arms"]


def test_check_and_show_and_report_agree(assay, tmp_path):
    assert assay("check", "wobble").returncode == 0
    checked = json.loads(assay("check", "wobble", "--json").stdout)[0]["verdicts"]
    shown = json.loads(assay("show", "wobble", "--json").stdout)
    assert shown["verdicts"] == checked
    assert shown["scale"] == "smoke"
    plain = assay("show", "wobble").stdout
    assert all(verdict["claim"] in plain and verdict["source"] in plain for verdict in checked)
    answer = assay("report", "--out", "my report")
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "my report" / "index.html").read_text(encoding="utf-8").count("wobble") > 0
    assert "index.html" in answer.stdout


def test_users_own_arm_is_shown_beside_the_others_and_its_failure_is_status_one(assay):
    answer = assay("check", "wobble", "--arm", "my_arms:zeros", "--seeds", "1")
    assert answer.returncode == 1
    assert "my_arms:zeros (yours)" in answer.stdout
    assert "my arm fails" in answer.stderr
    assert "--retry runs them again" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["check", "nothing"], "no method 'nothing'; expected one of: "),
        (["show", "nothing"], "no method 'nothing'; expected one of: "),
        (["check", "wobble", "--scale", "huge"], "no scale 'huge'; expected one of: smoke, laptop, paper"),
        (["check", "wobble", "--seeds", "0"], "seeds is 0; expected at least 1"),
        (["check", "wobble", "--seeds", "many"], "assay: --seeds is 'many'; expected an integer\n"),
        (["check", "wobble", "--case", "nothing"], "no case 'nothing'; expected one of: "),
        (["check", "wobble", "--arm", "nobody"], "no arm 'nobody'; expected one of: "),
        (["check", "wobble", "--arm", "no_such_module:f"], "arm 'no_such_module:f': No module named"),
        (["check", "wobble", "--arm", "my_arms:nothing"], "my_arms has no function nothing"),
        (["check", "wobble", "--arm", "my_arms:"], "expected module:function"),
        (["check", "wobble", "--on", "moon"], "on is 'moon'; expected local, ray"),
        (["check", "wobble", "--on", "tcp://127.0.0.1:1"], "no Dask scheduler at 'tcp://127.0.0.1:1'"),
        (["check", "wobble", "--ledger", "nonsense://x"], "ledger 'nonsense://x'"),
        (["check", "wobble", "--bogus"], "Unknown option"),
        (["bogus"], "Unknown command"),
        (["report"], "holds no trial; expected a run of `assay check` before"),
        (["new", "Not A Name"], "Not A Name"),
    ],
)
def test_wrong_input_is_one_line_and_status_two(assay, arguments, line):
    answer = assay(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert line in answer.stderr
    assert answer.stderr.count("\n") == 1 and answer.stderr.startswith("assay: ")


def test_foreign_folder_is_not_replaced_by_a_report(assay, tmp_path):
    assay("check", "wobble", "--seeds", "1")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    answer = assay("report", "--out", "mine")
    assert answer.returncode == 2
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_method_that_lacks_packages_says_how_to_install_them(assay, installed, run, tmp_path):
    card = next(installed.glob("*/card.toml"))
    broken = tmp_path / "site"
    package = broken / card.parent.name
    package.mkdir(parents=True)
    for file in card.parent.glob("*.*"):
        (package / file.name).write_bytes(file.read_bytes())
    lines = [
        'needs = ["no_such_module"]' if line.startswith("needs") else line for line in card.read_text().splitlines()
    ]
    (package / "card.toml").write_text("\n".join(lines))
    for entry in installed.glob("*.dist-info"):
        (broken / entry.name).mkdir()
        for file in entry.iterdir():
            (broken / entry.name / file.name).write_bytes(file.read_bytes())
    answer = run("assay", "check", "wobble", PYTHONPATH=str(broken))
    assert answer.returncode == 1
    assert "the study of wobble needs the package no_such_module" in answer.stderr
    everything = run("assay", "list", "--json", PYTHONPATH=str(broken))
    assert {card["name"]: card["missing"] for card in json.loads(everything.stdout)}["wobble"] == ["no_such_module"]


BREAKAGES = {
    "card that isn't TOML": ("card.toml", "name = ", "expected TOML", "list show check wobble"),
    "card without a title": ("card.toml", 'name = "wobble"', "lacks the field title", "list show check wobble"),
    "study that isn't there": ("study.py", None, "can't be loaded: ModuleNotFoundError", "show check"),
    "study without STUDY": ("study.py", "", "holds no STUDY", "show check"),
    "study that raises": ("study.py", "1 / 0", "can't be loaded: ZeroDivisionError", "show check"),
    "study that exits": ("study.py", "import sys; sys.exit(3)", "can't be loaded: SystemExit", "show check"),
    "jobs that raise": ("jobs.py", "import no_such_module", "can't be loaded: ModuleNotFoundError", "wobble"),
    "jobs without an app": ("jobs.py", "", "holds no app", "wobble"),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_broken_method_is_said_in_one_line_and_harms_no_other(run, installed, tmp_path, breakage):
    file, text, line, shown_by = BREAKAGES[breakage]
    site = tmp_path / "site"
    shutil.copytree(installed, site)
    broken = next(site.glob("*/card.toml")).parent / file
    broken.unlink()
    if text is not None:
        broken.write_text(text)
    for command in (["show", "wobble"], ["check", "wobble"], ["wobble", "--help"], ["list"], ["--help"]):
        answer = run("assay", *command, PYTHONPATH=str(site))
        assert "Traceback" not in answer.stderr + answer.stdout
        if command[0] in shown_by.split() and command[0] != "list":
            assert answer.returncode in (1, 2)
            assert line in answer.stderr and answer.stderr.count("\n") == 1
        if command[0] in ("list", "--help"):
            assert answer.returncode == 0 and "mst" in answer.stdout
            said = " ".join(answer.stdout.replace("│", " ").split())  # a long path breaks the line in its cell
            assert (line in said) == ("list" in shown_by.split())


def test_two_packages_with_one_name_are_named(run, installed, tmp_path):
    information = tmp_path / "site" / "other-0.1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text("[assay.methods]\nmst = json\nlist = json\n")
    listed = run("assay", "list", "--json", PYTHONPATH=str(tmp_path / "site"))
    errors = {method["name"]: method.get("error") for method in json.loads(listed.stdout)}
    assert "several packages bring a method mst" in errors["mst"]
    assert "assay has a command of that name" in errors["list"]


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-"])
def test_closed_streams_are_no_reason_to_fail(tmp_path, stream):
    command = f"{sys.executable} -m assay list {stream}"
    answer = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_interrupt_says_in_one_line_what_is_kept(installed, tmp_path):
    command = [sys.executable, "-m", "assay", "check", "wobble", "--scale", "laptop", "--seeds", "400"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores it
    )
    try:
        while len(list(tmp_path.glob("assay-ledger/wobble/*.json"))) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert re.match(r"assay: stopped; \d+ trials of this run are kept, and the same command goes on\n", stderr)


def test_doctor_tells_the_machine_and_every_extra(assay):
    found = json.loads(assay("doctor", "--json").stdout)
    assert found["cores"] == os.cpu_count()
    assert found["python"] == sys.version.split()[0]
    assert {"all", "dask", "dev", "docs", "mst", "peers", "ray"} <= set(found["extras"])
    assert "numpy" in found["packages"]
    assert "extra" in assay("doctor").stdout


def test_broken_pipe_is_quiet(installed, tmp_path):
    command = f"{sys.executable} -m assay list --json | head -c 1"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    answer = subprocess.run(
        command, shell=True, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.stderr == ""


@pytest.mark.parametrize(
    "statement", ["import assay", "import assay.cli", "from assay.cli import run; run(['--help'])"]
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement):
    script = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(answer.stdout.splitlines())
    heavy = {"torch", "pandas", "ray", "numba", "scipy", "pyarrow", "dask", "numpy", "assay.mst"}
    assert not heavy & modules


@pytest.mark.serial
def test_help_takes_at_most_three_times_as_long_as_importing_cyclopts():
    commands = ([sys.executable, "-m", "assay", "--help"], [sys.executable, "-c", "import cyclopts"])
    ratios = []
    for _ in range(9):
        seconds = []
        for command in commands:
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - started)
        ratios.append(seconds[0] / seconds[1])
    assert statistics.median(ratios) <= 3


def test_module_runs_as_the_command_does():
    answer = subprocess.run([sys.executable, "-m", "assay", "--version"], capture_output=True, text=True, check=True)
    assert (
        answer.stdout.strip() == Path(__file__).parents[2].joinpath("src/assay/__init__.py").read_text().split('"')[-2]
    )
