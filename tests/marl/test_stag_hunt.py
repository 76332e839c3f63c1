"""Stag hunt, step by step against the same rules in plain Python, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from assay.core.errors import InputError
from assay.marl.environments import PettingZooView, StagHunt, random_actions
from tests.marl.reference_stag_hunt import PlainStagHunt

CATCH = 5


def places(flat: np.ndarray, env: StagHunt) -> list:
    """Row and column of those who stand on the board, from the environment's flat indices with its margin of 3."""
    wide = env.grid[1] + 6
    return [[(int(cell) // wide - 3, int(cell) % wide - 3) for cell in row] for row in flat]


def eager(avail: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random actions, but a catch wherever there is one in three of four cases."""
    chosen = random_actions(avail, rng)
    return np.where(avail[..., CATCH] & (rng.random(chosen.shape) < 0.75), CATCH, chosen)


@pytest.mark.parametrize(
    ("grid", "n_agents", "n_stags", "needs"),
    [((6, 6), 4, 2, 2), ((3, 4), 5, 3, 2), ((2, 5), 3, 2, 1), ((4, 4), 4, 2, 3)],
)
def test_every_step_is_that_of_the_rules_in_plain_python(
    grid: tuple[int, int], n_agents: int, n_stags: int, needs: int
) -> None:
    n, rng = 12, np.random.default_rng(5)
    env = StagHunt(n, grid=grid, n_agents=n_agents, n_stags=n_stags, catch_needs=needs, penalty=-1.5, horizon=30)
    caught = failed = 0
    for episode in range(3):
        frame = env.reset(episode)
        plain = [
            PlainStagHunt(grid, agents, stags, needs=needs, penalty=-1.5)
            for agents, stags in zip(places(env._agents, env), places(env._stags, env), strict=True)
        ]
        running = np.ones(n, dtype=bool)
        for t in range(1, 31):
            actions = eager(frame.avail, rng)
            twin = np.random.default_rng()
            twin.bit_generator.state = env.get_rng_state()["generator"]
            turns = twin.random((n, n_agents), dtype=np.float32).argsort(axis=1)
            keys = twin.random((n_stags, n, 4), dtype=np.float32)
            frame = env.step(actions)
            for i, game in enumerate(plain):
                reward = 0.0
                if running[i]:
                    reward = game.step(actions[i].tolist(), turns[i].tolist(), keys[:, i].tolist())
                    caught += reward >= 10
                    failed += reward < 0
                assert frame.reward[i] == reward
                np.testing.assert_allclose(frame.obs[i], [game.observation(a) for a in range(n_agents)], atol=1e-6)
                np.testing.assert_array_equal(frame.state[i], game.state())
                np.testing.assert_array_equal(frame.avail[i], [game.available(a) for a in range(n_agents)])
                gone = all(stag is None for stag in game.stags)
                few = sum(agent is not None for agent in game.agents) < needs
                assert frame.terminated[i] == (gone or few)
                assert frame.truncated[i] == (t == 30 and not (gone or few))
            running = ~(frame.terminated | frame.truncated)
    assert caught >= 5
    assert failed > 5 or needs == 1


def test_a_stag_takes_two_and_trying_alone_costs() -> None:
    env = StagHunt(1, grid=(1, 4), n_agents=2, n_stags=1, penalty=-2.0)
    env.reset(0)
    layouts = {0: (0, 3, 1), 1: (0, 2, 1)}
    for case, (first, second, stag) in layouts.items():
        frame = env.reset(0)
        base = 3 * env._wide + 3
        env._cells[:] = env._empty
        env._agents[:], env._stags[:] = [base + first, base + second], [base + stag]
        env._cells[0, env._agents[0]], env._cells[0, env._stags[0]] = 1, 2
        frame = env._frame()
        step = env.step(np.where(frame.avail[..., CATCH], CATCH, 4))
        assert step.reward[0] == (-2.0 if case == 0 else 10.0)
        assert step.terminated[0] == (case == 1)


def test_ended_episodes_stand_still_and_pay_nothing() -> None:
    env = StagHunt(32, grid=(3, 3), n_agents=4, n_stags=1, horizon=40)
    rng, frame = np.random.default_rng(0), env.reset(1)
    ended = np.zeros(32, dtype=bool)
    while not ended.all():
        before = frame
        frame = env.step(eager(frame.avail, rng))
        assert (frame.reward[ended] == 0).all()
        np.testing.assert_array_equal(frame.obs[ended], before.obs[ended])
        np.testing.assert_array_equal(frame.state[ended], before.state[ended])
        assert frame.avail.any(-1).all()
        ended = frame.terminated | frame.truncated
    assert frame.terminated.any()


def test_the_same_seed_gives_the_same_episodes_and_the_generator_can_be_put_back() -> None:
    def play(env: StagHunt, seed: int | None) -> list:
        rng, frame, seen = np.random.default_rng(3), env.reset(seed), []
        for _ in range(20):
            frame = env.step(random_actions(frame.avail, rng))
            seen.append((frame.obs.copy(), frame.reward.copy()))
        return seen

    env, other = StagHunt(4, seed=1), StagHunt(4, seed=9)
    for first, second in zip(play(env, 7), play(other, 7), strict=True):
        np.testing.assert_array_equal(first[0], second[0])
        np.testing.assert_array_equal(first[1], second[1])
    state = env.get_rng_state()
    once = play(env, None)
    fresh = StagHunt(4, seed=5)
    fresh.set_rng_state(state)
    for first, second in zip(once, play(fresh, None), strict=True):
        np.testing.assert_array_equal(first[0], second[0])


def test_no_two_stand_on_one_cell_and_stags_move_to_every_free_side() -> None:
    env = StagHunt(64, grid=(5, 5), n_agents=3, n_stags=2, horizon=60)
    rng, frame = np.random.default_rng(0), env.reset(0)
    moved = set()
    for _ in range(50):
        before = env._stags.copy()
        frame = env.step(np.where(frame.avail[..., 5], 4, random_actions(frame.avail, rng)))
        everyone = np.sort(np.concatenate([env._agents, env._stags], axis=1))
        assert (np.diff(everyone) > 0).all()
        moved |= set((env._stags - before).ravel().tolist())
    assert moved >= set(env._neighbours.tolist())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"penalty": 1.0}, "penalty is 1.0"),
        ({"grid": (2, 2)}, "4 agents and 2 stags are on 2x2 cells"),
        ({"catch_needs": 5}, "catch_needs is 5"),
        ({"n": 0}, "n is 0"),
        ({"horizon": 0}, "horizon is 0"),
    ],
    ids=["penalty", "grid", "needs", "n", "horizon"],
)
def test_impossible_hunts_are_refused(wrong: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        StagHunt(**wrong)


def test_an_unavailable_action_is_refused_with_environment_and_agent() -> None:
    env = StagHunt(3, grid=(8, 8), n_agents=2, n_stags=1)
    frame = env.reset(0)
    index, agent = map(int, np.argwhere(~frame.avail[..., CATCH])[0])
    actions = np.full((3, 2), 4)
    actions[index, agent] = CATCH
    with pytest.raises(InputError, match=f"agent {agent} of environment {index} takes action 5; expected one of 0, 1"):
        env.step(actions)
    with pytest.raises(InputError, match=r"actions have the shape \(2, 3\)"):
        env.step(actions.T)
    with pytest.raises(InputError, match="actions are of type float64"):
        env.step(actions.astype(float))


def test_a_picture_shows_who_stands_where() -> None:
    env = StagHunt(1, grid=(4, 5))
    env.reset(0)
    picture = env.render()
    assert picture.shape == (6 * 32, 7 * 32, 3)
    assert picture.dtype == np.uint8
    colours = {tuple(colour) for colour in picture[16::32, 16::32].reshape(-1, 3).tolist()}
    assert len(colours) == 4


@pytest.mark.serial
def test_a_core_steps_256_instances_100_000_times_a_second_and_20_times_as_fast_as_a_pettingzoo_loop() -> None:
    """In seconds of this process, because other processes may share the machine; the least of several rounds."""

    def rate(play: Callable[[], int], rounds: int) -> float:
        best = 0.0
        for _ in range(rounds):
            start = time.process_time()
            steps = play()
            best = max(best, steps / (time.process_time() - start))
        return best

    env, rng = StagHunt(256, penalty=-2.0), np.random.default_rng(0)

    def together() -> int:
        frame = env.reset()
        for _ in range(50):
            frame = env.step(random_actions(frame.avail, rng))
        return 50 * 256

    one = PettingZooView(lambda: StagHunt(1, penalty=-2.0))

    def alone() -> int:
        obs, _ = one.reset()
        steps = 0
        while one.agents:
            actions = {agent: int(rng.choice(np.flatnonzero(seen["action_mask"]))) for agent, seen in obs.items()}
            obs, *_ = one.step(actions)
            steps += 1
        return steps

    fast, slow = rate(together, 8), rate(alone, 8)
    assert fast >= 100_000
    assert fast >= 20 * slow
