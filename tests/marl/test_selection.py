"""How levels and actions are drawn, against the probabilities that they are drawn with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.core.errors import InputError
from assay.marl.losses import S2QLoss, candidate_distribution
from assay.marl.selection import LinearSchedule, TeamMemory, choose_actions, choose_levels, require_selector
from tests.marl.batches import SPEC, random_batch


def test_levels_come_with_their_probability_and_a_team_shares_one() -> None:
    p = np.tile([0.5, 0.3, 0.2], (20_000, 1))
    levels = choose_levels(p, np.ones(20_000, np.bool_), 3, shared=True, rng=np.random.default_rng(0))
    assert (levels == levels[:, :1]).all()
    np.testing.assert_allclose(np.bincount(levels[:, 0]) / 20_000, [0.5, 0.3, 0.2], atol=0.015)


def test_agents_that_draw_for_themselves_agree_only_by_chance() -> None:
    p = np.tile([0.5, 0.3, 0.2], (20_000, 1))
    levels = choose_levels(p, np.ones(20_000, np.bool_), 2, shared=False, rng=np.random.default_rng(0))
    agree = float((levels[:, 0] == levels[:, 1]).mean())
    assert agree == pytest.approx(0.25 + 0.09 + 0.04, abs=0.015)


def test_only_mixed_instances_leave_level_zero() -> None:
    p, mixed = np.tile([0.0, 1.0], (4, 1)), np.array([True, False, True, False])
    levels = choose_levels(p, mixed, 2, shared=True, rng=np.random.default_rng(0))
    assert levels.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]


def test_exploration_takes_available_actions_with_equal_probability() -> None:
    rng = np.random.default_rng(0)
    avail = np.tile([True, False, True, True], (30_000, 1, 1))
    greedy = np.zeros((30_000, 1), np.int64)
    actions = choose_actions(greedy, avail, epsilon=0.6, rng=rng)
    np.testing.assert_allclose(np.bincount(actions[:, 0], minlength=4) / 30_000, [0.6, 0, 0.2, 0.2], atol=0.012)
    assert (choose_actions(greedy, avail, epsilon=0.0, rng=rng) == 0).all()


def test_random_numbers_are_used_up_alike_whatever_the_settings() -> None:
    avail, greedy = np.ones((5, 2, 3), np.bool_), np.zeros((5, 2), np.int64)
    after = []
    for epsilon, shared in ((0.0, True), (0.9, False)):
        rng = np.random.default_rng(0)
        choose_actions(greedy, avail, epsilon=epsilon, rng=rng)
        choose_levels(np.ones((5, 1)), np.zeros(5, np.bool_), 2, shared=shared, rng=rng)
        after.append(rng.random())
    assert after[0] == after[1]


def test_epsilon_falls_in_a_straight_line_and_stays() -> None:
    schedule = LinearSchedule(1.0, 0.05, 100_000)
    assert [schedule(step) for step in (0, 50_000, 100_000, 10**9)] == pytest.approx([1.0, 0.525, 0.05, 0.05])
    assert LinearSchedule(1.0, 0.1, 0)(0) == pytest.approx(0.1)


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("comm", [True, False])
def test_acting_step_by_step_sees_what_training_sees_of_the_whole_episode(comm: bool, recurrent: bool) -> None:
    """Utilities, greedy actions, P̂ and P at every step of two episodes."""
    loss = S2QLoss(SPEC, K=1, hidden=8, comm=comm, recurrent=recurrent, seed=0).double()
    batch = random_batch(lengths=(6, 6), dtype=torch.float64)
    obs, actions, state = (batch[name].transpose(0, 1) for name in ("obs", "actions", "state"))
    inputs = loss._inputs(obs, actions)
    memory = TeamMemory(loss, 2, levels=2, reference=True)
    with torch.no_grad():
        whole = [net(inputs.flatten(1, 2)) for net in loss.agents]
        assert loss.target_critic is not None and loss.coordinator is not None
        slow = loss.target_critic.agent(inputs.flatten(1, 2))[0].unflatten(1, (2, 2))
        for t in range(7):
            mask = batch["avail"][:, t].numpy()
            mask[..., 0] = True
            q, greedy = memory.look(obs[t].numpy(), mask)
            for level in range(2):
                torch.testing.assert_close(q[level], whole[level][0][t].unflatten(0, (2, 2)))
            _, logits = loss.coordinator(whole[0][1][t].unflatten(0, (2, 2)).flatten(1))
            np.testing.assert_allclose(memory.coordinator_distribution(), torch.softmax(logits, -1), rtol=1e-9)
            chosen = slow[t].expand(2, 2, 2, 3).gather(-1, torch.from_numpy(greedy).unsqueeze(-1)).squeeze(-1)
            wanted = candidate_distribution(loss.target_critic(chosen, state[t]), 0.1).T
            np.testing.assert_allclose(memory.oracle_distribution(greedy, state[t].numpy()), wanted, rtol=1e-9)
            if t < 6:
                memory.last_actions = actions[t].numpy()


def test_a_team_that_begins_anew_forgets_and_its_neighbour_doesnt() -> None:
    loss = S2QLoss(SPEC, K=0, hidden=8, seed=0).double()
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(2, 2, 4))
    mask = np.ones((2, 2, 3), np.bool_)
    memory, fresh = (TeamMemory(loss, 2, levels=1) for _ in range(2))
    for _ in range(3):
        memory.last_actions = memory.look(obs, mask)[1][0]
    memory.reset(np.array([True, False]))
    after, anew = memory.look(obs, mask)[0][0], fresh.look(obs, mask)[0][0]
    assert torch.allclose(after[0], anew[0])
    assert not torch.allclose(after[1], anew[1])


def test_selectors_are_checked() -> None:
    with pytest.raises(InputError, match="selector 'best'; expected one of coordinator, oracle"):
        require_selector("best", central=True)
    with pytest.raises(InputError, match="selector 'oracle' without a central value"):
        require_selector("oracle", central=False)
