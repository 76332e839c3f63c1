"""The replay gives back bit for bit what it was given, in fewer bytes, and forgets the oldest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.marl.replay import Episode, EpisodeReplay, padded_layout_bytes
from assay.marl.spec import EnvSpec

SPEC = EnvSpec(n_agents=3, n_actions=5, obs_size=4, state_size=12, horizon=9)


def episode(rng: np.random.Generator, steps: int, *, spec: EnvSpec = SPEC, joined: bool = False) -> Episode:
    """Observations of which some are small whole numbers, some not, some −0, some too large for a byte."""
    obs = rng.integers(0, 3, (steps + 1, spec.n_agents, spec.obs_size)).astype(np.float32)
    obs[..., 1] = rng.normal(size=obs.shape[:2])
    obs[0, 0, 2] = rng.choice(np.array([-0.0, 255, 256, -1, 1e9, 1]))
    state = obs.reshape(steps + 1, -1) if joined else rng.normal(size=(steps + 1, spec.state_size)).astype(np.float32)
    return Episode(
        obs,
        state,
        rng.integers(0, spec.n_actions, (steps, spec.n_agents)),
        rng.random((steps + 1, spec.n_agents, spec.n_actions)) < 0.5,
        rng.normal(size=steps).astype(np.float32),
        bool(rng.random() < 0.5),
    )


@given(seed=st.integers(0, 10_000), lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), joined=st.booleans())
def test_episodes_come_back_bit_for_bit(seed: int, lengths: list[int], joined: bool) -> None:
    rng = np.random.default_rng(seed)
    given_ = [episode(rng, steps, joined=joined) for steps in lengths]
    replay = EpisodeReplay(SPEC, capacity=10)
    for one in given_:
        replay.add(one)
    again = EpisodeReplay(SPEC, capacity=10)
    again.load_state_dict(replay.state_dict())
    for held in (replay, again):
        batch = held.batch(range(len(lengths)))
        assert batch.reward.shape == (len(lengths), max(lengths))
        for row, one in enumerate(given_):
            steps = one.length
            assert batch.obs[row, : steps + 1].numpy().tobytes() == one.obs.tobytes()
            assert batch.state[row, : steps + 1].numpy().tobytes() == one.state.tobytes()
            assert np.array_equal(batch.actions[row, :steps], one.actions)
            assert np.array_equal(batch.avail[row, : steps + 1], one.avail)
            assert np.array_equal(batch.reward[row, :steps], one.reward)
            assert batch.filled[row].sum() == steps
            assert batch.terminated[row].sum() == one.terminated == batch.terminated[row, steps - 1]
            assert not batch.obs[row, steps + 1 :].any() and not batch.reward[row, steps:].any()
    assert again.nbytes == replay.nbytes


def test_the_oldest_episode_is_dropped() -> None:
    rng = np.random.default_rng(0)
    replay = EpisodeReplay(SPEC, capacity=3)
    given_ = [episode(rng, steps) for steps in (1, 2, 3, 4)]
    for one in given_:
        replay.add(one)
    assert len(replay) == 3
    assert replay.batch([0, 1, 2]).filled.sum(1).tolist() == [2, 3, 4]


def test_draws_repeat_nothing_while_there_is_enough_and_all_are_drawn() -> None:
    rng = np.random.default_rng(0)
    replay = EpisodeReplay(SPEC, capacity=9)
    for steps in range(1, 10):
        replay.add(episode(rng, steps))
    lengths = replay.sample(9, rng).filled.sum(1)
    assert sorted(lengths.tolist()) == list(range(1, 10))
    counts = np.zeros(10)
    for _ in range(600):
        counts[replay.sample(3, rng).filled.sum(1).int().numpy()] += 1
    assert np.abs(counts[1:] - 200).max() < 5 * np.sqrt(200 * (2 / 3))


def test_batches_may_come_in_few_lengths() -> None:
    rng = np.random.default_rng(0)
    replay = EpisodeReplay(SPEC)
    replay.add(episode(rng, 5))
    assert replay.sample(1, rng, bucket=4).reward.shape == (1, 8)


@pytest.mark.parametrize(
    ("spec", "steps", "values"),
    [
        (EnvSpec(n_agents=2, n_actions=6, obs_size=15, state_size=30, horizon=50), 50, "joined"),
        (EnvSpec(n_agents=4, n_actions=6, obs_size=77, state_size=108, horizon=50), 50, "planes"),
    ],
    ids=["foraging", "grid"],
)
def test_it_takes_at_most_two_fifths_of_the_padded_layout(spec: EnvSpec, steps: int, values: str) -> None:
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 2, (steps + 1, spec.n_agents, spec.obs_size)).astype(np.float32)
    joined = obs.reshape(steps + 1, -1)
    state = joined if values == "joined" else rng.integers(0, 2, (steps + 1, spec.state_size)).astype(np.float32)
    if values == "planes":
        obs[..., -2:] = rng.normal(size=(*obs.shape[:2], 2))
    replay = EpisodeReplay(spec)
    for _ in range(3):
        replay.add(
            Episode(
                obs,
                state,
                np.zeros((steps, spec.n_agents), np.int64),
                np.ones((steps + 1, spec.n_agents, spec.n_actions), np.bool_),
                np.zeros(steps, np.float32),
                terminated=False,
            )
        )
    assert replay.nbytes <= 0.4 * padded_layout_bytes(spec, episodes=3, steps=steps)


def test_many_actions_are_kept_whole() -> None:
    spec = EnvSpec(n_agents=1, n_actions=300, obs_size=1, state_size=1, horizon=1)
    replay = EpisodeReplay(spec)
    zero = np.zeros((2, 1), np.float32)
    mask = np.ones((2, 1, 300), np.bool_)
    replay.add(Episode(zero[:, None], zero, np.array([[299]]), mask, np.zeros(1, np.float32), terminated=True))
    again = EpisodeReplay(spec)
    again.load_state_dict(replay.state_dict())
    assert torch.equal(again.batch([0]).actions, torch.tensor([[[299]]]))


def test_wrong_sizes_are_named() -> None:
    rng = np.random.default_rng(0)
    good = episode(rng, 2)
    bad = Episode(good.obs[:, :2], good.state, good.actions, good.avail, good.reward, terminated=True)
    with pytest.raises(InputError, match=r"obs of an episode has the shape \(3, 2, 4\); expected \(3, 3, 4\)"):
        EpisodeReplay(SPEC).add(bad)
    with pytest.raises(InputError, match="capacity is 0"):
        EpisodeReplay(SPEC, capacity=0)
    with pytest.raises(InputError, match="the replay is empty"):
        EpisodeReplay(SPEC).sample(1, rng)
