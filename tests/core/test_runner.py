"""The runner: what runs, what is recorded, and what an interruption loses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import joblib
import psutil
import pytest

from assay.core.claim import conclude
from assay.core.errors import InputError
from assay.core.ledger import Ledger, current_records
from assay.core.runner import run
from assay.core.study import Arm, Case, Scale
from tests.core.sample_study import STUDY

HERE = Path(__file__).resolve().parents[2]


def _with_conduct(conduct: str, *, limit: float = 300.0, own_process: bool = False, seeds: int = 3):
    scale = Scale(cases=(Case("small", {"n": 10}, own_process=own_process),), seeds=seeds, limit_seconds=limit)
    arms = {"ours": STUDY.arms["ours"], "odd": Arm(role="baseline", settings={"conduct": conduct})}
    return replace(STUDY, arms=arms, scales={"smoke": scale}, claims=())


def _statuses(records, arm):
    return [record.status for record in records if record.arm == arm]


def test_second_run_has_nothing_to_do(tmp_path):
    ledger = Ledger(tmp_path)
    first = run(STUDY, "sample", "smoke", ledger=ledger)
    assert (first.planned, first.known, len(first.records)) == (30, 0, 20)
    assert first.lacking == {"no_such_module": 10}
    second = run(STUDY, "sample", "smoke", ledger=ledger)
    assert (second.known, second.records) == (20, [])


def test_same_seed_same_result_for_any_number_of_jobs(tmp_path):
    def costs(name, jobs):
        done = run(STUDY, "sample", "smoke", ledger=Ledger(tmp_path / name), jobs=jobs)
        return {record.key: record.measurements["cost"] for record in done.records}

    assert costs("one", 1) == costs("two", 2)


def test_joblib_runs_before_and_after_a_study(tmp_path):
    def doubled():
        return joblib.Parallel(n_jobs=2)(joblib.delayed(int.__mul__)(2, number) for number in range(5))

    assert doubled() == [0, 2, 4, 6, 8]
    assert len(run(STUDY, "sample", "smoke", ledger=Ledger(tmp_path), jobs=2).records) == 20
    assert doubled() == [0, 2, 4, 6, 8]


def test_paired_arms_see_equal_inputs_and_other_seeds_others():
    trials = list(STUDY.trials("sample", "smoke"))
    draws = {(trial.arm, trial.case, trial.seed): trial.rng().random() for trial in trials}
    assert draws["ours", "small", 0] == draws["slow", "small", 0]
    assert len(set(draws.values())) == 10


def test_arms_are_interleaved_and_take_turns_to_be_first():
    order = [(trial.seed, trial.case, trial.arm) for trial in STUDY.trials("sample", "smoke")]
    firsts = [order[position][2] for position in range(0, len(order), 3)]
    assert [place[:2] for place in order[:3]] == [(0, "small")] * 3
    assert set(firsts) == set(STUDY.arms)


@pytest.mark.parametrize("own_process", [False, True])
def test_raising_trial_is_recorded_and_the_rest_goes_on(tmp_path, own_process):
    done = run(_with_conduct("raises", own_process=own_process), "sample", "smoke", ledger=Ledger(tmp_path))
    assert _statuses(done.records, "odd") == ["failed"] * 3
    assert _statuses(done.records, "ours") == ["done"] * 3
    assert "this arm always raises" in next(record.error for record in done.records if record.arm == "odd")


@pytest.mark.parametrize("own_process", [False, True])
def test_trial_that_takes_too_long_is_stopped(tmp_path, own_process):
    study = _with_conduct("sleeps", limit=1.0, own_process=own_process, seeds=1)
    started = time.monotonic()
    done = run(study, "sample", "smoke", ledger=Ledger(tmp_path))
    assert time.monotonic() - started < 30
    assert _statuses(done.records, "odd") == ["timed out"]
    assert _statuses(done.records, "ours") == ["done"]


@pytest.mark.parametrize("own_process", [False, True])
def test_trial_that_ends_its_process_is_recorded_and_the_rest_goes_on(tmp_path, own_process):
    done = run(_with_conduct("dies", own_process=own_process, seeds=2), "sample", "smoke", ledger=Ledger(tmp_path))
    assert _statuses(done.records, "odd") == ["died"] * 2
    assert _statuses(done.records, "ours") == ["done"] * 2


def test_retry_runs_failed_trials_again_and_no_others(tmp_path):
    study, ledger = _with_conduct("raises"), Ledger(tmp_path)
    run(study, "sample", "smoke", ledger=ledger)
    assert run(study, "sample", "smoke", ledger=ledger).records == []
    again = run(study, "sample", "smoke", ledger=ledger, retry=True)
    assert {record.arm for record in again.records} == {"odd"}


def test_damaged_trial_is_run_again(tmp_path):
    ledger = Ledger(tmp_path)
    run(STUDY, "sample", "smoke", ledger=ledger)
    damaged = sorted((tmp_path / "sample").glob("*.json"))[:3]
    for file in damaged:
        file.write_bytes(b"")
    with pytest.warns(UserWarning, match="3 trials' files are damaged, as if missing"):
        again = run(STUDY, "sample", "smoke", ledger=ledger)
    assert {record.key for record in again.records} == {file.stem for file in damaged}


def test_ledger_that_cannot_be_written_is_found_before_the_work(tmp_path):
    (tmp_path / "sample").write_text("a file where the folder should be")
    (tmp_path / "environments").write_text("and another")
    with pytest.raises(InputError, match="can't be written"):
        run(STUDY, "sample", "smoke", ledger=Ledger(tmp_path))


def test_own_process_gives_every_trial_another_process_and_one_thread(tmp_path):
    study = replace(STUDY, scales={"smoke": Scale(cases=(Case("small", own_process=True),), seeds=3)}, claims=())
    done = run(study, "sample", "smoke", ledger=Ledger(tmp_path))
    pids = [record.measurements["pid"] for record in done.records]
    assert len(set(pids)) == len(pids) == 6
    assert {record.measurements["threads"] for record in done.records} == {1.0}


def test_artifacts_lie_beside_the_trial(tmp_path):
    ledger = Ledger(tmp_path)
    record = run(STUDY, "sample", "smoke", ledger=ledger, seeds=1, arms=["ours"]).records[0]
    assert ledger.artifact(record, "note.txt") == b"ours 0"


def test_what_trials_print_stays_out_of_standard_output(tmp_path):
    script = f"""
        from dataclasses import replace
        from assay.core.ledger import Ledger
        from assay.core.runner import run
        from tests.core.test_runner import _with_conduct
        run(_with_conduct("prints"), "sample", "smoke", ledger=Ledger({str(tmp_path)!r}))
    """
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=HERE, capture_output=True, text=True, check=True
    )
    assert answer.stdout == ""
    assert "noise on standard output" in answer.stderr


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_killed_run_loses_only_the_trials_in_flight(tmp_path, stop):
    script = f"""
        import time
        from dataclasses import replace
        from assay.core.ledger import Ledger
        from assay.core.runner import run
        from assay.core.study import Case, Scale
        from tests.core.sample_study import STUDY
        scale = Scale(cases=(Case("small", {{"n": 10}}),), seeds=60)
        study = replace(STUDY, scales={{"smoke": scale}}, claims=())
        def pause(record): time.sleep(0.05)
        run(study, "sample", "smoke", ledger=Ledger({str(tmp_path)!r}), jobs=2, progress=pause)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=HERE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores it
    )
    ledger = Ledger(tmp_path)
    deadline = time.monotonic() + 60
    while len({record.key for record in ledger.read("sample")}) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, stop)
    process.communicate(timeout=30)
    kept = len({record.key for record in ledger.read("sample")})
    assert 5 <= kept < 120
    assert all(record.status == "done" for record in ledger.read("sample"))
    study = replace(STUDY, scales={"smoke": Scale(cases=(Case("small", {"n": 10}),), seeds=60)}, claims=())
    again = run(study, "sample", "smoke", ledger=ledger)
    assert again.known == kept
    assert len(again.records) == 120 - kept


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_interrupt_while_the_workers_start_is_heard_and_only_by_the_command(tmp_path, processes):
    script = f"""
        import time
        from dataclasses import replace
        from assay.core.ledger import Ledger
        from assay.core.runner import run
        from assay.core.study import Case, Scale
        from tests.core.sample_study import STUDY
        scale = Scale(cases=(Case("small", {{"n": 10}}),), seeds=60)
        def pause(record): time.sleep(1.0)
        run(replace(STUDY, scales={{"smoke": scale}}, claims=()), "sample", "smoke",
            ledger=Ledger({str(tmp_path)!r}), jobs=2, progress=pause)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=HERE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores it
    )
    deadline = time.monotonic() + 60
    group = psutil.Process(process.pid)
    while 1 + len(group.children(recursive=True)) < processes and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert said.count("KeyboardInterrupt") == 1


def test_changed_settings_are_another_trial(tmp_path):
    ledger = Ledger(tmp_path)
    run(STUDY, "sample", "smoke", ledger=ledger)
    changed = replace(STUDY, arms={**STUDY.arms, "slow": Arm(role="baseline", settings={"factor": 3.0})})
    again = run(changed, "sample", "smoke", ledger=ledger)
    assert {record.arm for record in again.records} == {"slow"}
    kept = current_records(changed, ledger.read("sample"))
    assert len(kept) == 20
    assert {record.arm_settings["factor"] for record in kept if record.arm == "slow"} == {3.0}


def test_verdicts_of_a_whole_run(tmp_path):
    ledger = Ledger(tmp_path)
    run(STUDY, "sample", "smoke", ledger=ledger)
    outcomes = {verdict.claim: verdict.outcome for verdict in conclude(STUDY, "sample", "smoke", ledger.read("sample"))}
    assert outcomes == {"positive": "holds", "cheaper": "holds", "half": "holds", "peer": "not run", "huge": "not run"}


def _user_arm(seed):
    return seed + 0.5


@pytest.mark.parametrize("on", ["local", "ray", "dask"])
def test_every_executor_runs_the_same_trials(tmp_path, on):
    study = STUDY.with_arm("mine", Arm(role="user", function=_user_arm, settings={"function": "mine"}))
    done = run(study, "sample", "smoke", ledger=Ledger(tmp_path), on=on, seeds=1, cases=["small"], jobs=2)
    costs = {record.arm: record.measurements["cost"] for record in done.records}
    assert [record.status for record in done.records] == ["done"] * 3
    here = run(study, "sample", "smoke", ledger=Ledger(f"memory://{tmp_path.name}"), seeds=1, cases=["small"], jobs=1)
    assert costs == {record.arm: record.measurements["cost"] for record in here.records} | {"mine": 0.5}


def test_dask_runs_on_a_scheduler_at_an_address(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        done = run(
            STUDY, "sample", "smoke", ledger=Ledger(tmp_path), on=cluster.scheduler_address, seeds=1, cases=["small"]
        )
    assert [record.status for record in done.records] == ["done"] * 2


@pytest.mark.parametrize("on", ["slurm", "http://x", ""])
def test_unknown_executor_is_refused(tmp_path, on):
    with pytest.raises(InputError, match="expected local, ray"):
        run(STUDY, "sample", "smoke", ledger=Ledger(tmp_path), on=on)


@pytest.mark.parametrize(
    ("option", "value"), [("cases", ["nothing*"]), ("arms", ["nobody"]), ("seeds", 0), ("jobs", 0)]
)
def test_wrong_option_is_refused(tmp_path, option, value):
    with pytest.raises(InputError):
        run(STUDY, "sample", "smoke", ledger=Ledger(tmp_path), **{option: value})


@pytest.mark.parametrize("case", [Case("small", {"n": 10}), Case("small", {"n": 10}, alone=True)])
def test_one_trial_at_a_time_still_runs_outside_this_process(tmp_path, case):
    study = replace(STUDY, scales={"smoke": Scale(cases=(case,), seeds=2)}, claims=())
    done = run(study, "sample", "smoke", ledger=Ledger(tmp_path), jobs=1)
    pids = {record.measurements["pid"] for record in done.records}
    assert len(pids) == 1 and os.getpid() not in pids
