"""Learners: one code path with switches, state that is whole, and stops that lose nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError, InputError
from assay.marl.environments import ChainGame, MatrixGame, StandardisedRewards, Step
from assay.marl.environments.vector import VecEnv
from assay.marl.learner import IQL, QMIX, S2Q, VDN, WQMIX, Learner, load_learner
from assay.marl.replay import Episode
from assay.marl.settings import Settings

PAYOFF = np.diag([8.0, 4.0, 6.0])
LITTLE: dict[str, Any] = {"hidden": 8, "embed": 4, "hypernet": 8, "critic_width": 8, "batch_size": 8}
EVERY = {
    "s2q": lambda env, **k: S2Q(env.spec, K=2, mix=1.0, **LITTLE, **k),
    "s2q-comm": lambda env, **k: S2Q(env.spec, K=1, mix=1.0, comm=True, **LITTLE, **k),
    "s2q-auto": lambda env, **k: S2Q(env.spec, K=1, mix=1.0, temperature="auto", alpha="auto", **LITTLE, **k),
    "oracle": lambda env, **k: S2Q(env.spec, K=1, mix=1.0, selector="oracle", **LITTLE, **k),
    "independent": lambda env, **k: S2Q(env.spec, K=1, mix=1.0, selector="independent", **LITTLE, **k),
    "uniform-qplex": lambda env, **k: S2Q(env.spec, K=1, mix=1.0, selector="uniform", mixer="qplex", **LITTLE, **k),
    "qmix": lambda env, **k: QMIX(env.spec, **LITTLE, **k),
    "vdn": lambda env, **k: VDN(env.spec, **LITTLE, **k),
    "iql": lambda env, **k: IQL(env.spec, **LITTLE, **k),
    "owqmix": lambda env, **k: WQMIX(env.spec, weighting="ow", **LITTLE, **k),
    "cwqmix": lambda env, **k: WQMIX(env.spec, weighting="cw", **LITTLE, **k),
}


def chain(n: int = 8) -> ChainGame:
    return ChainGame([PAYOFF] * 3, n=n, goes_on=np.ones((3, 3, 3), np.bool_), seed=0)


def weights(learner: Learner) -> list[torch.Tensor]:
    return list(learner.loss.state_dict().values())


def same(one: Learner, other: Learner) -> bool:
    """Weights, moments, episodes and all random numbers to come."""
    draws = ("_explore_rng", "_level_rng", "_replay_rng")
    ours, theirs = one.replay.state_dict(), other.replay.state_dict()
    return (
        all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))
        and all(
            torch.equal(one.optimizer.state[p][name], other.optimizer.state[q][name])
            for p, q in zip(one._trained, other._trained, strict=True)
            for name in one.optimizer.state[p]
        )
        and all(np.array_equal(ours[name], theirs[name]) for name in ours)
        and all(getattr(one, rng).bit_generator.state == getattr(other, rng).bit_generator.state for rng in draws)
        and (one.steps, one.episodes, one.updates) == (other.steps, other.episodes, other.updates)
    )


class Faulty(VecEnv):
    """An environment that is wrong from some step on."""

    def __init__(self, env: VecEnv, fault: str, at: int) -> None:
        self.env, self.fault, self.at, self.count = env, fault, at, 0
        self.spec, self.n = env.spec, env.n

    def reset(self, seed: int | None = None) -> Any:
        return self.env.reset(seed)

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        self.count += 1
        if self.count >= self.at:
            if self.fault == "reward":
                step.reward = step.reward.copy()
                step.reward[3] = np.nan
            elif self.fault == "observation":
                step.obs = step.obs.copy()
                step.obs[2, 1, 0] = np.nan
            elif self.fault == "mask":
                step.avail = step.avail.copy()
                step.avail[1, 1] = False
            elif self.fault == "stop":
                os.kill(os.getpid(), signal.SIGINT)
        return step

    def get_rng_state(self) -> dict[str, Any]:
        return self.env.get_rng_state()

    def set_rng_state(self, state: dict[str, Any]) -> None:
        self.env.set_rng_state(state)


@pytest.mark.parametrize("name", list(EVERY))
def test_learning_goes_on_bit_for_bit_from_a_file(name: str, tmp_path: Path) -> None:
    whole = EVERY[name](chain(), seed=1)
    whole.fit(chain(), 480, log_every=120)
    first = EVERY[name](chain(), seed=1)
    first.fit(chain(), 240, log_every=120, checkpoint=tmp_path / "half")
    again = load_learner(tmp_path / "half")
    assert type(again) is type(first)
    assert same(first, again)
    again.fit(chain(), 480, log_every=120)
    assert whole.updates >= 10
    assert same(whole, again)
    timed = ("seconds", "steps_per_second")
    for ours, theirs in zip(whole.log, again.log, strict=True):
        assert {k: v for k, v in ours.items() if k not in timed and v == v} == {
            k: v for k, v in theirs.items() if k not in timed and v == v
        }


def test_a_shifting_game_with_noise_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def game() -> VecEnv:
        return StandardisedRewards(MatrixGame(PAYOFF, n=8, shifts=[(200, PAYOFF.T * 2)], noise=0.5, seed=3))

    whole = EVERY["s2q"](game(), seed=1)
    whole.fit(game(), 320)
    first = EVERY["s2q"](game(), seed=1)
    first.fit(game(), 160)
    first.save(tmp_path / "half")
    again = S2Q.load(tmp_path / "half")
    again.fit(game(), 320)
    assert same(whole, again)


def test_evaluating_on_the_way_changes_nothing() -> None:
    plain, watched = (EVERY["s2q"](chain(), seed=1) for _ in range(2))
    plain.fit(chain(), 240)
    log = watched.fit(chain(), 240, eval_every=48, eval_episodes=5)
    assert same(plain, watched)
    assert sum("eval_return" in row for row in log) == 5


def test_s2q_without_further_sub_values_is_weighted_qmix() -> None:
    one = S2Q(chain().spec, K=0, mix=0.0, weighting="ow", w_c=0.5, **LITTLE, seed=2)
    other = WQMIX(chain().spec, weighting="ow", w_c=0.5, **LITTLE, seed=2)
    for learner in (one, other):
        learner.fit(chain(), 240)
    assert one.updates > 5
    assert same(one, other)


def test_a_greedy_team_learns_the_same_first_value_whatever_k_is() -> None:
    """With weights that don't look at the candidates and a norm of gradients that is never reached."""
    learners = [
        S2Q(chain().spec, K=K, selector="greedy", weighting="cw", clip=1e9, dtype="float64", **LITTLE, seed=2)
        for K in (0, 2)
    ]
    for learner in learners:
        learner.fit(chain(), 240)
    first, second = learners
    assert first.updates > 5
    for a, b in zip(first.loss.agents[0].parameters(), second.loss.agents[0].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def trained() -> S2Q:
    env = MatrixGame(PAYOFF, n=32)
    agent = S2Q(
        env.spec, K=2, mix=1.0, recurrent=False, learning_rate=5e-3, epsilon_steps=6000, w_c=0.5, temperature=1.0,
        hidden=16, embed=16, hypernet=16, critic_width=32, batch_size=64, buffer_size=1000, target_every=64, seed=0,
    )  # fmt: skip
    agent.fit(env, 3000)
    return agent


def test_the_optimum_of_a_game_is_learned_and_the_levels_are_its_ranking(trained: S2Q) -> None:
    held = trained.candidates(np.ones((2, 1)), np.ones(1))
    assert held.actions.tolist() == [[0, 0], [2, 2], [1, 1]]
    np.testing.assert_allclose(held.reference, [8, 6, 4], atol=1.0)
    assert held.probability.sum() == pytest.approx(1)
    assert trained.evaluate(MatrixGame(PAYOFF, n=32), 16).mean == 8
    trained.reset()
    assert trained.act(np.ones((2, 1))).tolist() == [0, 0]


def test_a_temperature_far_below_the_gaps_is_warned_of(trained: S2Q, tmp_path: Path) -> None:
    trained.save(tmp_path / "game")
    agent = S2Q.load(tmp_path / "game")
    agent.loss.temperature = 0.1
    with pytest.warns(UserWarning, match="temperature='auto' follows them"):
        agent.fit(MatrixGame(PAYOFF, n=32), agent.steps + 320, log_every=160)


def test_acting_remembers_until_it_is_reset() -> None:
    agent = EVERY["s2q"](chain(), seed=0)
    frame = chain(4).reset()
    many = agent.act(frame.obs, frame.avail, frame.state)
    assert many.shape == (4, 2) and many.dtype == np.int64
    agent.reset()
    one = agent.act(frame.obs[0])
    assert np.array_equal(one, many[0])
    assert agent._memory is not None
    before = agent._memory.hidden[0]
    agent.act(frame.obs[0])
    assert not torch.equal(agent._memory.hidden[0], before)
    agent.reset(np.array([True]))
    agent.act(frame.obs[0])
    torch.testing.assert_close(agent._memory.hidden[0], before)


def test_acting_takes_available_actions_only() -> None:
    agent = EVERY["qmix"](chain(), seed=0)
    obs = chain(1).reset().obs[0]
    for action in range(3):
        mask = np.zeros((2, 3), np.bool_)
        mask[:, action] = True
        agent.reset()
        assert agent.act(obs, mask).tolist() == [action, action]
    mask[1] = False
    with pytest.raises(InputError, match="agent 1 has no available action"):
        agent.act(obs, mask)


def test_candidates_of_a_history_are_those_that_collection_sees() -> None:
    agent = EVERY["s2q"](chain(), seed=0)
    agent.fit(chain(), 120)
    env = chain(1)
    frame, obs, states, done = env.reset(), [], [], []
    for _ in range(3):
        obs.append(frame.obs[0])
        states.append(frame.state[0])
        if len(obs) < 3:
            done.append([0, 1])
            frame = env.step(np.array([[0, 1]]))
    held = agent.candidates(np.stack(obs), np.stack(states), actions=np.array(done))
    replay = agent.replay
    replay.clear()
    replay.add(
        Episode(
            np.stack([*obs, obs[-1]]), np.stack([*states, states[-1]]), np.array([*done, [0, 0]]),
            np.ones((4, 2, 3), np.bool_), np.zeros(3, np.float32), terminated=True,
        )
    )  # fmt: skip
    batch = replay.batch([0])
    with torch.no_grad():
        inputs = agent.loss._inputs(batch.obs.transpose(0, 1), batch.actions.transpose(0, 1))
        for level, net in enumerate(agent.loss.agents):
            q, _ = net(inputs.flatten(1, 2))
            assert q[2].argmax(-1).tolist() == held.actions[level].tolist()
    with pytest.raises(InputError, match="what was done before the last step"):
        agent.candidates(np.stack(obs), np.stack(states))


@pytest.mark.parametrize("name", ["qmix", "iql"])
def test_candidates_without_a_central_value_have_no_reference(name: str) -> None:
    held = EVERY[name](chain(), seed=0).candidates(chain(1).reset().obs[0], chain(1).reset().state[0])
    assert held.actions.shape == (1, 2) and np.isnan(held.reference).all()
    assert np.isfinite(held.values).all() and held.probability.tolist() == [1]


def test_a_shared_level_is_followed_by_all_and_an_own_one_is_not() -> None:
    rates = {}
    for name in ("s2q", "independent"):
        agent = EVERY[name](chain(), seed=1)
        agent.loss.temperature = 1e6
        log = agent.fit(chain(), 480, log_every=480)
        rates[name] = log[-1]["coordination"]
    assert rates["s2q"] == 1
    assert 0.3 < rates["independent"] < 0.9


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reward", "environment 3, step 0: the reward is nan"),
        ("observation", "environment 2, step 1, agent 1, number 0: the observation is nan"),
        ("mask", "environment 1, step 1: agent 1 has no available action"),
    ],
)
def test_what_an_environment_does_wrong_is_named_and_the_last_good_state_kept(
    fault: str, message: str, tmp_path: Path
) -> None:
    good = EVERY["s2q"](chain(), seed=1)
    good.fit(chain(), 240)
    agent = EVERY["s2q"](chain(), seed=1)
    with pytest.raises(InputError, match=message):
        agent.fit(Faulty(chain(), fault, at=31), 1000, log_every=240, checkpoint=tmp_path / "kept")
    assert same(good, S2Q.load(tmp_path / "kept"))


def test_ctrl_c_keeps_a_whole_state_and_the_log(tmp_path: Path) -> None:
    whole = EVERY["s2q"](chain(), seed=1)
    whole.fit(chain(), 480)
    agent = EVERY["s2q"](chain(), seed=1)
    with pytest.raises(KeyboardInterrupt):
        agent.fit(Faulty(chain(), "stop", at=32), 1000, log_every=48, checkpoint=tmp_path / "kept")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = S2Q.load(tmp_path / "kept")
    assert again.steps == 240 and len(again.log) == 5
    again.fit(chain(), 480)
    assert same(whole, again)


def test_a_loss_that_isnt_finite_stops_with_the_weights_of_the_last_good_step(tmp_path: Path) -> None:
    agent = EVERY["s2q"](chain(), seed=1)
    agent.fit(chain(), 120)
    before = [tensor.clone() for tensor in weights(agent)]
    batch = agent.replay.batch([0])
    batch.reward[0, 0] = 1e38
    with pytest.raises(AssayError, match="the loss is inf"):
        agent.update(batch)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(agent), strict=True))


def test_time_limits_are_no_ends_in_what_is_stored() -> None:
    env = chain()
    agent = EVERY["qmix"](env, seed=0)
    agent.fit(env, 24)
    ended = agent.replay.batch(range(8)).terminated[:, -1]
    outcome = env.reset() and [env.step(np.zeros((8, 2), np.int64)) for _ in range(3)][-1]
    assert ended.tolist() == outcome.terminated.astype(float).tolist()


def test_target_copies_change_only_now_and_then() -> None:
    agent = S2Q(chain().spec, K=1, target_every=10_000, **LITTLE, seed=0)
    assert agent.loss.target_critic is not None and agent.loss.critic is not None
    start = [p.clone() for p in agent.loss.target_critic.parameters()]
    agent.fit(chain(), 240)
    assert all(torch.equal(a, b) for a, b in zip(start, agent.loss.target_critic.parameters(), strict=True))
    assert not torch.equal(start[0], next(agent.loss.critic.parameters()))
    agent.loss.update_targets()
    copies = zip(agent.loss.critic.parameters(), agent.loss.target_critic.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in copies)


def test_callbacks_get_every_row() -> None:
    rows: list[dict[str, float]] = []
    agent = EVERY["qmix"](chain(), seed=0)
    log = agent.fit(chain(), 240, log_every=48, callbacks=[lambda learner, row: rows.append(row)])
    assert rows == log and [row["steps"] for row in rows] == [48, 96, 144, 192, 240]
    assert all(row["epsilon"] == pytest.approx(1 - 0.95 * row["steps"] / 100_000) for row in rows)


def test_a_policy_may_be_kept_without_its_episodes(tmp_path: Path) -> None:
    agent = EVERY["s2q"](chain(), seed=0)
    agent.fit(chain(), 240)
    agent.save(tmp_path / "all")
    agent.save(tmp_path / "policy", replay=False)
    assert len(load_learner(tmp_path / "policy").replay) == 0
    assert (tmp_path / "policy").stat().st_size < (tmp_path / "all").stat().st_size
    obs = chain(4).reset().obs
    assert np.array_equal(load_learner(tmp_path / "policy").act(obs), agent.act(obs))


def test_files_that_hold_no_learner_are_refused_in_one_line(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    agent = EVERY["qmix"](chain(), seed=0)
    agent.save(tmp_path / "a b ü")
    with pytest.raises(InputError, match="exists already"):
        agent.save(tmp_path / "a b ü")
    agent.save(tmp_path / "a b ü", force=True)
    with pytest.raises(InputError, match="holds the learner qmix; expected S2Q"):
        S2Q.load(tmp_path / "a b ü")
    (tmp_path / "cut").write_bytes((tmp_path / "a b ü").read_bytes()[:-10])
    (tmp_path / "text").write_text("not a learner", encoding="utf-8")
    save_file({"x": np.zeros(1)}, tmp_path / "other")
    save_file({"x": np.zeros(1)}, tmp_path / "later", {"format": "assay.marl.learner", "version": "9"})
    for name, message in {
        "missing": "no such file",
        "cut": "is damaged",
        "text": "is damaged, or no safetensors file",
        "other": "holds something else than a learner",
        "later": "has version 9 of its format; expected at most 1",
    }.items():
        with pytest.raises(InputError, match=message) as caught:
            load_learner(tmp_path / name)
        assert "\n" not in str(caught.value) and name in str(caught.value)


def test_wrong_shapes_and_settings_are_named() -> None:
    agent = EVERY["s2q"](chain(), seed=0)
    with pytest.raises(InputError, match=r"obs has the shape \(3, 1\)"):
        agent.act(np.zeros((3, 1)))
    with pytest.raises(InputError, match=r"avail has the shape \(2, 2\)"):
        agent.act(chain(1).reset().obs[0], np.ones((2, 2), np.bool_))
    with pytest.raises(InputError, match="the environment's n_actions is 2; expected 3"):
        agent.fit(ChainGame([np.eye(2)] * 3, n=2), 10)
    with pytest.raises(InputError, match="there is no setting 'lr'; expected one of K, mixer"):
        S2Q(chain().spec, lr=1.0)
    for wrong in ({"mix": 1.5}, {"batch_size": 0}, {"dtype": "float16"}, {"clip": 0.0}, {"epsilon_steps": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Settings(**wrong)
    with pytest.raises(InputError, match="weighting 's2q'; expected ow or cw"):
        WQMIX(chain().spec, weighting="s2q")
