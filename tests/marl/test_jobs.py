"""The commands, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from safetensors.numpy import load_file

from assay.cli import run
from assay.marl.environments import ChainGame, StagHunt, Step
from assay.marl.jobs import _progress_line, _seeds
from assay.marl.learner import load_learner
from assay.marl.runs import RunPlan, curve_of, make_learner, read_plan

CHAIN = {
    "env": "chain:2",
    "steps": "96",
    "seeds": "0-1",
    "eval_every": "32",
    "eval_episodes": "8",
    "instances": "4",
    "hidden": "8",
    "batch_size": "4",
    "buffer_size": "40",
}
PAYOFF, LATER = "8,0,0\n0,4,0\n0,0,6\n", "8,0,0\n0,4,0\n0,0,12\n"
STEPS_UNTIL_STOP = {"left": math.inf}


class Stops(ChainGame):
    """A chain of two stages in which somebody presses Ctrl-C at some step."""

    def step(self, actions: np.ndarray) -> Step:
        STEPS_UNTIL_STOP["left"] -= 1
        if STEPS_UNTIL_STOP["left"] == 0:
            raise KeyboardInterrupt
        return super().step(actions)


class Breaks(ChainGame):
    """A chain of two stages whose reward is NaN at some step."""

    def step(self, actions: np.ndarray) -> Step:
        step = super().step(actions)
        STEPS_UNTIL_STOP["left"] -= 1
        if STEPS_UNTIL_STOP["left"] == 0:
            step.reward[2] = np.nan
        return step


def stops() -> Stops:
    return Stops(2, 4)


def breaks() -> Breaks:
    return Breaks(2, 4)


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dátà with spaces"
    folder.mkdir()
    monkeypatch.chdir(folder)
    STEPS_UNTIL_STOP["left"] = math.inf
    Path("payoff.csv").write_text(PAYOFF)
    Path("later.csv").write_text(LATER)


def marl(*arguments: str) -> int:
    return run(["marl", *arguments])


def train(*others: str, **changed: str) -> list[str]:
    """A small training in a chain of two stages, with some of its options changed."""
    options = {f"--{name.replace('_', '-')}": value for name, value in {**CHAIN, **changed}.items()}
    return ["train", *(word for option in options.items() for word in option), *others]


def summary_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert marl(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    before = sorted(path.name for path in Path().iterdir())
    assert marl(*arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before
    return err


def rows_of(file: str | Path) -> list[dict]:
    with Path(file).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def without_clock(rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if "second" not in name} for row in rows]


class TestTrain:
    def test_a_folder_holds_log_curves_summary_and_a_learner_a_run(self, capsys: pytest.CaptureFixture[str]) -> None:
        summary = summary_of(capsys, *train("--algo", "s2q", "--algo", "vdn"), "--out", "räns")
        names = {path.name for path in Path("räns").iterdir()}
        checkpoints = {f"{algo}-{seed}.safetensors" for algo in ("s2q", "vdn") for seed in (0, 1)}
        assert names == {"run.json", "log.csv", "curves.png", "summary.json", *checkpoints}
        rows = rows_of("räns/log.csv")
        assert {(row["algorithm"], row["seed"]) for row in rows} == {(a, s) for a in ("s2q", "vdn") for s in "01"}
        for algorithm, found in summary["results"].items():
            for seed in "01":
                own = [row for row in rows if (row["algorithm"], row["seed"]) == (algorithm, seed)]
                assert int(own[-1]["steps"]) >= 96
                assert [int(row["steps"]) for row in own] == sorted(int(row["steps"]) for row in own)
                assert float(own[-1]["eval_return"]) == found["by_seed"][seed]
            assert found["mean"] == pytest.approx(np.mean(list(found["by_seed"].values())))
            assert found["interval"] == "range of the seeds"
        assert json.loads(Path("räns/summary.json").read_text())["results"] == summary["results"]
        picture = imageio.imread("räns/curves.png")
        assert picture.std() > 1
        learner = load_learner("räns/s2q-1.safetensors")
        assert (learner.algorithm, learner.seed, learner.settings.K, len(learner.replay)) == ("s2q", 1, 2, 0)
        plan = read_plan(Path("räns"))
        assert plan is not None
        assert (plan.env, plan.algorithms, plan.seeds) == ("chain:2", ("s2q", "vdn"), (0, 1))

    def test_a_stopped_command_keeps_its_log_and_goes_on_bit_for_bit(self, capsys: pytest.CaptureFixture[str]) -> None:
        word = train(env="factory:tests.marl.test_jobs:stops")
        assert marl(*word, "--out", "whole", "-q") == 0
        STEPS_UNTIL_STOP["left"] = 70
        assert marl(*word, "--out", "stopped", "-q") == 130
        said = capsys.readouterr().err
        assert "stopped holds log and checkpoint, and the same command with --resume goes on" in said
        partial = rows_of("stopped/log.csv")
        whole = rows_of("whole/log.csv")
        assert 0 < len(partial) < len(whole)
        assert without_clock(partial) == without_clock(whole)[: len(partial)]
        assert "exists already; expected --resume to go on, or --force" in refusal_of(capsys, *word, "--out", "stopped")
        STEPS_UNTIL_STOP["left"] = math.inf
        assert marl(*word, "--out", "stopped", "--resume", "-q") == 0
        assert without_clock(rows_of("stopped/log.csv")) == without_clock(whole)
        for seed in "01":
            once, again = (load_file(f"{folder}/s2q-{seed}.safetensors") for folder in ("whole", "stopped"))
            assert once.keys() == again.keys()
            for name, array in once.items():
                np.testing.assert_array_equal(array, again[name])
        assert marl(*word, "--out", "stopped", "--resume", "-q") == 0
        assert without_clock(rows_of("stopped/log.csv")) == without_clock(whole)

    def test_a_reward_that_is_not_finite_leaves_the_last_good_learner(self, capsys: pytest.CaptureFixture[str]) -> None:
        STEPS_UNTIL_STOP["left"] = 20
        word = train(env="factory:tests.marl.test_jobs:breaks")
        assert marl(*word, "--out", "run") == 2
        assert "environment 2, step" in capsys.readouterr().err
        learner = load_learner("run/s2q-0.safetensors")
        assert learner.steps > 0
        assert all(np.isfinite(parameter.detach().numpy()).all() for parameter in learner.loss.parameters())

    def test_only_the_same_command_goes_on(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert marl(*train(seeds="3", steps="32"), "--out", "run", "-q") == 0
        for changed, says in (
            ({"seeds": "3,4"}, "seeds was (3,) and is (3, 4)"),
            ({"k": "1"}, "K was 2 and is 1"),
            ({"algo": "iql"}, "algorithms was ('s2q',) and is ('iql',)"),
        ):
            asked = train(**{"seeds": "3", "steps": "32", **changed})
            assert says in refusal_of(capsys, *asked, "--out", "run", "--resume")
        Path("empty").mkdir()
        assert "holds no runs" in refusal_of(capsys, *train(), "--out", "empty", "--resume")
        Path("run/run.json").write_text("{}")
        assert "run.json: is damaged" in refusal_of(capsys, *train(), "--out", "run", "--resume")

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"env": "stag:3"}, "the environment is 'stag:3'"),
            ({"env": "staghunt:penalty=2"}, "penalty is 2"),
            ({"env": "matrix:absent.csv"}, "absent.csv: no such file"),
            ({"env": "gym:CartPole-v1"}, "the actions of CartPole-v1 are Discrete(2)"),
            ({"env": "gym:Pendulum-v1"}, "the actions of Pendulum-v1 are Box("),
            ({"seeds": "4-2"}, "--seeds is '4-2'; expected seeds such as 0-4 or 0,2,5"),
            ({"seeds": "0-5000"}, "at most 1000 seeds"),
            ({"steps": "0"}, "--steps is 0; expected at least 1"),
            ({"steps": "1e3"}, "--steps is '1e3'; expected an integer"),
            ({"k": "-1"}, "--k is -1"),
            ({"temperature": "warm"}, "--temperature is 'warm'; expected a number above 0, or auto"),
            ({"alpha": "0"}, "--alpha is '0'"),
            ({"floor": "nan"}, "--floor is nan"),
            ({"gamma": "1.5"}, "--gamma is 1.5"),
            ({"mix": "2"}, "--mix is 2"),
            ({"lr": "0"}, "--lr is 0"),
            ({"device": "tpu"}, "tpu"),
            ({"eval_every": "0"}, "--eval-every is 0"),
            ({"out": "payoff.csv"}, "payoff.csv: is a file"),
            ({"out": "no/such/folder"}, "the folder no/such doesn't exist"),
            ({"out": "-"}, "--out is -"),
        ],
        ids=lambda value: " ".join(next(iter(value.items()))) if isinstance(value, dict) else "",
    )
    def test_wrong_input_gets_a_line_and_leaves_nothing(
        self, capsys: pytest.CaptureFixture[str], wrong: dict[str, str], says: str
    ) -> None:
        assert says in refusal_of(capsys, *train(**{"out": "new", **wrong}))

    def test_rewards_that_differ_are_said_to_need_an_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        asked = train(env="mpe:simple_spread_v3", steps="30", seeds="0")
        assert marl(*asked, "--out", "run", "-q") == 2
        assert "--reward sum or --reward mean" in capsys.readouterr().err
        assert marl(*asked, "--reward", "mean", "--out", "run", "--force", "-q") == 0

    def test_quiet_says_nothing_and_force_replaces(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert marl(*train(seeds="0", steps="32"), "--out", "run", "-q") == 0
        assert capsys.readouterr() == ("", "")
        assert marl(*train(seeds="0", steps="32", algo="iql"), "--out", "run", "--force") == 0
        out, _ = capsys.readouterr()
        assert out.splitlines()[1].startswith("iql")
        assert out.splitlines()[-1].split() == ["wrote", "run"]


class TestEval:
    @pytest.fixture
    def team(self) -> str:
        word = "staghunt:grid=3x3,n_agents=2,n_stags=1,horizon=6"
        tiny = ("--hidden", "8", "--batch-size", "2", "--instances", "2", "--eval-episodes", "2")
        assert marl("train", "--env", word, "--steps", "24", "--seeds", "0", *tiny, "--out", "hunt", "-q") == 0
        return "hunt/s2q-0.safetensors"

    def test_episodes_are_played_where_the_team_was_trained_and_filmed(
        self, team: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        summary = summary_of(capsys, "eval", team, "--episodes", "7", "--render", "gif", "--out", "table.csv")
        rows = rows_of("table.csv")
        assert len(rows) == summary["episodes"] == 7
        assert np.mean([float(row["return"]) for row in rows]) == pytest.approx(summary["mean_return"])
        assert [row["level"] for row in summary["candidates"]] == [0, 1, 2]
        assert sum(row["probability"] for row in summary["candidates"]) == pytest.approx(1)
        frames = imageio.imread("hunt/s2q-0.gif", index=None)
        assert frames.shape[1:] == (5 * 32, 5 * 32, 3)
        assert 2 <= len(frames) <= 7
        again = summary_of(capsys, "eval", team, "--episodes", "7")
        assert again["mean_return"] == summary["mean_return"]

    def test_the_films_episode_is_the_one_that_its_seed_starts(
        self, team: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        summary = summary_of(capsys, "eval", team, "--episodes", "1", "--render", "film.gif", "--seed", "5")
        learner, env = load_learner(team), StagHunt(1, grid=(3, 3), n_agents=2, n_stags=1, horizon=6)
        frame, total = env.reset(5), 0.0
        for _ in range(6):
            frame = env.step(learner.act(frame.obs, frame.avail))
            total += float(frame.reward[0])
        assert summary["film_return"] == total

    def test_another_environment_of_the_same_sizes_can_be_played(
        self, team: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = "staghunt:grid=3x3,n_agents=2,n_stags=1,horizon=3"
        assert summary_of(capsys, "eval", team, "--episodes", "4", "--env", other)["mean_length"] <= 3
        said = refusal_of(capsys, "eval", team, "--env", "chain:3")
        assert "the environment's n_actions is 3; expected 6" in said

    def test_a_table_goes_to_standard_output(self, team: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert marl("eval", team, "--episodes", "3", "--out", "-") == 0
        out, err = capsys.readouterr()
        assert out.splitlines()[0] == "episode,return,length"
        assert len(out.splitlines()) == 4
        assert err.startswith("team         s2q, trained for 24 steps")

    def test_wrong_input_gets_a_line(self, team: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert "no such file" in refusal_of(capsys, "eval", "absent.safetensors")
        assert "is damaged, or no safetensors file" in refusal_of(capsys, "eval", "payoff.csv")
        assert "--render is 'film.mp4'" in refusal_of(capsys, "eval", team, "--render", "film.mp4")
        assert "unknown ending '.xlsx'" in refusal_of(capsys, "eval", team, "--out", "table.xlsx")
        assert "--episodes is 0" in refusal_of(capsys, "eval", team, "--episodes", "0")
        assert "--json both write" in refusal_of(capsys, "eval", team, "--out", "-", "--json")
        assert "payoff.csv: exists already" in refusal_of(capsys, "eval", team, "--out", "payoff.csv")
        assert "expected --env with them" in refusal_of(capsys, "eval", team, "--horizon", "3")
        Path("alone").mkdir()
        Path("alone/team.safetensors").write_bytes(Path(team).read_bytes())
        assert "has no run.json beside it" in refusal_of(capsys, "eval", "alone/team.safetensors")

    def test_a_game_without_pictures_is_not_filmed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert marl(*train(seeds="0", steps="32"), "--out", "run", "-q") == 0
        said = refusal_of(capsys, "eval", "run/s2q-0.safetensors", "--render", "gif", status=1)
        assert "chain game draws no pictures" in said


class TestGame:
    def test_a_payoff_that_moves_is_reported_learned_and_drawn(self, capsys: pytest.CaptureFixture[str]) -> None:
        summary = summary_of(
            capsys, "game", "payoff.csv", "--shift", "later.csv@30", "--algo", "s2q", "--algo", "vdn",
            "--updates", "60", "--seeds", "0-2", "--out", "game",
        )  # fmt: skip
        before, after = summary["payoffs"]
        assert (before["best"], after["best"]) == ([[0, 0]], [[2, 2]])
        assert before["monotone_error"] == pytest.approx(36.8)
        assert after["monotone_error"] == pytest.approx(55.467, abs=1e-3)
        assert before["monotone_ranking"] == [[0, 0], [2, 2], [1, 1]]
        assert summary["settings"]["floor"] == 1.0
        for found in summary["results"].values():
            assert [part["from_update"] for part in found["payoffs"]] == [0, 30]
            assert [part["seeds"] for part in found["payoffs"]] == [3, 3]
        assert {path.name for path in Path("game").iterdir()} == {
            "game.json",
            "recovery.csv",
            "recovery.png",
            "levels.png",
        }
        rows = rows_of("game/recovery.csv")
        assert {row["algorithm"] for row in rows} == {"s2q", "vdn"}
        assert json.loads(Path("game/game.json").read_text())["payoffs"] == summary["payoffs"]
        for name in ("recovery.png", "levels.png"):
            assert imageio.imread(f"game/{name}").std() > 1

    def test_people_read_which_methods_can_and_the_words_of_their_file(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("named.csv").write_text(",x,y,z\nx,12,0,10\ny,0,10,10\nz,10,10,10\n")
        assert marl("game", "named.csv", "--algo", "qmix", "--updates", "20", "--seeds", "0") == 0
        out, _ = capsys.readouterr()
        assert "best (x, x) with 12" in out
        assert "QMIX's best fit (squared error 69.6667) puts (z, z) on top instead" in out
        assert "by value: (x, x)" in out
        assert out.splitlines()[-2].startswith("qmix")

    def test_negative_payoffs_get_a_floor_that_sorts_them_and_can_be_rescaled(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("low.csv").write_text("-2,-4,-4\n-4,-3,-4\n-4,-4,-2.5\n")
        quick = ("--algo", "vdn", "--updates", "8", "--seeds", "0")
        assert summary_of(capsys, "game", "low.csv", *quick)["settings"]["floor"] == 2.0
        scaled = summary_of(capsys, "game", "low.csv", *quick, "--rescale")
        assert scaled["payoffs"][0]["value"] == -2
        assert scaled["payoffs"][0]["table_ranking"] == [[0, 0], [2, 2], [1, 1]]

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            (("absent.csv",), "absent.csv: no such file"),
            (("oblong.csv",), "oblong.csv: payoff has the shape (2, 3); expected a square, or a hypercube"),
            (("payoff.csv", "--shift", "later.csv"), "--shift is 'later.csv'; expected a file, @ and the update"),
            (("payoff.csv", "--shift", "later.csv@9000"), "--shift is at update 9000"),
            (("payoff.csv", "--shift", "later.csv@9", "--shift", "payoff.csv@5"), "--shift is at update 5"),
            (("payoff.csv", "--shift", "two.csv@9"), "two.csv: has the shape (2, 2); expected (3, 3)"),
            (("payoff.csv", "--k", "9"), "--k is 9; expected less than the 9 joint actions"),
            (("payoff.csv", "--alpha", "0"), "--alpha is 0"),
            (("payoff.csv", "--floor", "-1"), "--floor is -1"),
            (("payoff.csv", "--temperature", "-1"), "--temperature is '-1'"),
            (("payoff.csv", "--mix", "3"), "--mix is 3"),
            (("payoff.csv", "--updates", "0"), "--updates is 0"),
            (("payoff.csv", "--seeds", "x"), "--seeds is 'x'"),
            (("payoff.csv", "--out", "later.csv"), "later.csv: is a file"),
        ],
        ids=lambda value: "".join(value) if isinstance(value, tuple) else "",
    )
    def test_wrong_input_gets_a_line(
        self, capsys: pytest.CaptureFixture[str], wrong: tuple[str, ...], says: str
    ) -> None:
        Path("oblong.csv").write_text("1,2,3\n4,5,6\n")
        Path("two.csv").write_text("1,2\n3,4\n")
        assert says in refusal_of(capsys, "game", *wrong)

    def test_what_was_learned_before_a_stop_is_kept(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import assay.marl.one_step as one_step

        learn = one_step.train_one_step

        def until_vdn(payoff: np.ndarray, algorithm: str, **given: object) -> object:
            if algorithm == "vdn":
                raise KeyboardInterrupt
            return learn(payoff, algorithm, **given)

        monkeypatch.setattr(one_step, "train_one_step", until_vdn)
        quick = ("--algo", "iql", "--algo", "vdn", "--updates", "8", "--seeds", "0", "--out", "game", "-q")
        assert marl("game", "payoff.csv", *quick) == 130
        assert "stopped; iql was learned" in capsys.readouterr().err
        assert list(json.loads(Path("game/game.json").read_text())["results"]) == ["iql"]


def test_seeds_are_spans_and_lists() -> None:
    assert _seeds("0-3") == (0, 1, 2, 3)
    assert _seeds("5,2-3, 2") == (5, 2, 3)


def test_the_progress_line_says_speed_exploration_returns_and_entropy() -> None:
    row = {"steps_per_second": 1234.5, "epsilon": 0.43, "train_return": 3.25, "entropy": float("nan")}
    line = _progress_line("s2q", 2, row, 4.5)
    assert line == "s2q seed 2  1,234 steps/s  ε 0.43  return 3.25 (greedy 4.5)  P̂ entropy –"
    assert _progress_line("s2q", 2, {**row, "entropy": 0.7}, math.nan).endswith("(greedy –)  P̂ entropy 0.70")


def test_a_curve_is_the_interquartile_mean_at_the_first_runs_evaluations() -> None:
    logs = [
        [{"steps": 10, "eval_return": seed}, {"steps": 15}, {"steps": 20, "eval_return": 2 * seed}] for seed in range(8)
    ]
    curve = curve_of(logs)
    assert curve.steps.tolist() == [10, 20]
    assert curve.middle.tolist() == [3.5, 7.0]
    assert (curve.low < curve.middle).all()
    assert (curve.middle < curve.high).all()
    few = curve_of(logs[:3])
    assert (few.low.tolist(), few.high.tolist()) == ([0, 0], [2, 4])


@pytest.mark.parametrize(
    ("algorithm", "K", "weighting", "mixer"),
    [
        ("s2q", 1, "s2q", "qplex"),
        ("qmix", 0, "none", "qmix"),
        ("vdn", 0, "none", "vdn"),
        ("iql", 0, "none", "none"),
        ("owqmix", 0, "ow", "qplex"),
        ("cwqmix", 0, "cw", "qplex"),
    ],
)
def test_an_algorithm_keeps_what_makes_it_itself(algorithm: str, K: int, weighting: str, mixer: str) -> None:
    settings = {"K": 1, "weighting": "s2q", "w_c": 0.9, "mixer": "qplex", "hidden": 8}
    learner = make_learner(algorithm, ChainGame(2).spec, seed=0, settings=settings)
    own = learner.settings
    assert (own.K, own.weighting, own.mixer, own.hidden) == (K, weighting, mixer, 8)


def test_a_plan_makes_its_environment() -> None:
    plan = RunPlan("staghunt:", ("s2q",), (0,), 10, 3, None, "scale", 7, 5, 2, {})
    env = plan.make_env()
    assert (env.n, env.spec.horizon, plan.make_env(instances=1).n) == (3, 7, 1)
