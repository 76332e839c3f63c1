"""Games of one step: what all seeds at once learn, against each seed alone, exact fits, and what must happen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from assay.core.errors import InputError
from assay.marl.losses import S2QLoss
from assay.marl.monotone import monotone_projection
from assay.marl.one_step import OneStepRun, OneStepSettings, _schedule, _Trainer, train_one_step
from assay.marl.spec import EnvSpec

DIAGONAL = np.diag([8.0, 4.0, 6.0])
MOVED = np.diag([8.0, 4.0, 12.0])
SMALL = {"hidden": 8, "embed": 4, "hypernet": 8, "critic_width": 8, "batch": 16, "replay": 100}


def trainer_of(payoff: np.ndarray = DIAGONAL, seeds: tuple[int, ...] = (0, 1), **settings) -> _Trainer:
    return _Trainer(_schedule(payoff, [], 10), 10, seeds, OneStepSettings(**{**SMALL, **settings}))


@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["merged", "plain"])
@pytest.mark.parametrize("mixer", ["qmix", "vdn", "qplex"])
def test_gradients_of_all_seeds_are_those_of_each_seeds_own_loss(mixer, noise):
    """The plain loss on the sampled episodes one by one, with autograd, is the oracle."""
    trainer = trainer_of(mixer=mixer, noise=noise)
    rng = np.random.default_rng(3)
    trainer.stored = 100
    trainer.memory_cell[:] = rng.integers(0, 9, size=trainer.memory_cell.shape)
    trainer.memory_reward[:] = DIAGONAL.ravel()[trainer.memory_cell]
    draws = rng.random((2, 16))
    batch = trainer._merged_batch(draws) if trainer.merged else trainer._plain_batch(draws)
    assert trainer.merged is (noise == 0)
    gradients = torch.func.vmap(torch.func.grad_and_value(trainer._losses, has_aux=True))
    found, (losses, _) = gradients(trainer.learnt, {**trainer.fixed, **trainer.buffers}, *batch)
    spec = EnvSpec(n_agents=2, n_actions=3, obs_size=1, state_size=1, horizon=1, agent_ids=True)
    for place, seed in enumerate(trainer.seeds):
        alone = S2QLoss(
            spec, mixer=mixer, temperature=1.0, recurrent=False, hidden=8, embed=4, hypernet=8, critic_width=8,
            last_action=False, seed=seed,
        )  # fmt: skip
        cells = trainer.memory_cell[place, (draws[place] * 100).astype(int)]
        loss = alone(
            obs=torch.ones(16, 2, 2, 1),
            state=torch.ones(16, 2, 1),
            actions=torch.from_numpy(np.stack(np.unravel_index(cells, (3, 3)), axis=1))[:, None],
            avail=torch.ones(16, 2, 2, 3, dtype=torch.bool),
            reward=torch.from_numpy(DIAGONAL.ravel()[cells].astype(np.float32))[:, None],
            terminated=torch.ones(16, 1),
            filled=torch.ones(16, 1),
        )["loss"]
        loss.backward()
        torch.testing.assert_close(losses[place], loss.detach(), rtol=1e-4, atol=1e-5)
        for name, parameter in alone.named_parameters():
            if parameter.requires_grad and parameter.grad is not None:
                torch.testing.assert_close(found[f"learner.{name}"][place], parameter.grad, rtol=1e-3, atol=1e-4)


def test_a_seed_learns_the_same_beside_others_as_alone():
    """Up to rounding, which differs with the number of seeds in a batch."""
    settings = {"updates": 30, "epsilon_updates": 20, **SMALL}
    together = train_one_step(DIAGONAL, seeds=(3, 4, 5), **settings)
    alone = train_one_step(DIAGONAL, seeds=(4,), **settings)
    assert np.array_equal(together.visits[:, 1], alone.visits[:, 0])
    np.testing.assert_allclose(together.values[1], alone.values[0], atol=1e-3)


def test_the_same_call_gives_the_same_run_bit_for_bit():
    first, again = (train_one_step(DIAGONAL, updates=40, seeds=(0, 1), **SMALL) for _ in range(2))
    assert np.array_equal(first.greedy, again.greedy)
    assert np.array_equal(first.values, again.values)


@pytest.fixture(scope="module")
def moved() -> dict[str, OneStepRun]:
    """The study's game with an early move, for the method and for QMIX, with seeds that decide nothing."""
    schedule = {"shifts": [(300, MOVED)], "updates": 600, "seeds": range(1000, 1004)}
    return {name: train_one_step(DIAGONAL, name, **schedule) for name in ("s2q", "qmix")}


def test_the_learner_holds_the_ranked_joint_actions_and_follows_the_move(moved):
    run = moved["s2q"]
    assert run.lock_rate(299).tolist() == [1.0, 1.0, 1.0]
    assert run.seeds_recovered(0).all()
    assert run.seeds_recovered(1).all()
    assert 0 < run.recovery(1) < 200


def test_qmix_stays_at_the_old_optimum(moved):
    run = moved["qmix"]
    assert run.seeds_recovered(0).all()
    assert run.recovery(1) is None
    assert not run.seeds_recovered(1).any()
    assert (run.greedy[-1, :, 0] == 0).all()


def test_a_trained_mixer_reaches_the_exact_fit_of_its_basin():
    """Uniform data: full exploration throughout. Within 2 % of the best fit with the same joint action on top."""
    payoff = np.array([[8.0, -12, -12], [-12, 0, 0], [-12, 0, 0]]) / 10
    run = train_one_step(
        payoff, "qmix", updates=1500, seeds=(1000, 1001), epsilon_end=1.0, replay=4000, batch=256, lr=3e-3
    )
    basins = monotone_projection(payoff).error_by_top
    for game in range(2):
        squared = float(((run.values[game, 0] - payoff) ** 2).sum())
        basin = basins[tuple(run.greedy[-1, game, 0])]
        assert basin <= squared <= 1.02 * basin


def test_every_algorithm_is_the_same_code_with_a_switch_and_finds_an_easy_optimum():
    payoff = np.array([[5.0, 1.0], [1.0, 0.0]])
    for algorithm in ("s2q", "qmix", "vdn", "iql", "owqmix", "cwqmix"):
        run = train_one_step(payoff, algorithm, updates=200, seeds=(0,), epsilon_updates=100, lr=1e-2, **SMALL)
        assert run.optimal[-20:].all(), algorithm


def test_levels_are_drawn_for_the_team_except_by_independent_agents():
    """With ε = 0 a team plays only its levels' joint actions; agents who draw alone play mixtures too."""
    played = {}
    for selector in ("uniform", "independent", "greedy"):
        settings = {"selector": selector, "epsilon_end": 0.0, "epsilon_updates": 1, **SMALL}
        run = train_one_step(DIAGONAL, updates=30, seeds=(0, 1, 2), **settings)
        levels = np.ravel_multi_index(tuple(np.moveaxis(run.greedy.astype(int), -1, 0)), (3, 3))
        held = [set(levels[:, game].ravel().tolist()) for game in range(3)]
        first = [set(levels[:, game, 0].ravel().tolist()) for game in range(3)]
        taken = [set(np.flatnonzero(run.visits[:, game].sum(axis=0)).tolist()) for game in range(3)]
        played[selector] = [
            len(mine - (first if selector == "greedy" else held)[game]) for game, mine in enumerate(taken)
        ]
    warm_up = 9  # joint actions explored at most before the first update, where ε is still 1
    assert max(played["uniform"]) <= warm_up
    assert sum(played["independent"]) >= sum(played["uniform"])


def test_probabilities_are_those_of_the_selector():
    uniform = train_one_step(DIAGONAL, updates=5, seeds=(0,), selector="uniform", **SMALL)
    np.testing.assert_allclose(uniform.probabilities, 1 / 3, rtol=1e-6)
    greedy = train_one_step(DIAGONAL, updates=5, seeds=(0,), selector="greedy", **SMALL)
    assert (greedy.probabilities == [1, 0, 0]).all()
    learnt = train_one_step(DIAGONAL, updates=5, seeds=(0,), **SMALL)
    np.testing.assert_allclose(learnt.probabilities.sum(axis=-1), 1, rtol=1e-5)


def run_of(best: list[list[int]], payoffs: tuple[tuple[int, np.ndarray], ...]) -> OneStepRun:
    """A run with two levels in which seed g's level 0 takes joint action (a, a), a = best[g][update]."""
    actions = np.array(best, dtype=np.uint8).T
    greedy = np.stack([actions, (actions + 1) % 3], axis=2)[..., None].repeat(2, axis=-1)
    empty = np.zeros((len(actions), len(best)))
    return OneStepRun(payoffs, greedy, empty, empty.astype(int), empty, empty, 1.0, 8)


def test_recovery_counts_updates_until_nine_tenths_are_optimal_for_good():
    payoffs = ((0, DIAGONAL), (200, MOVED))
    stays = [0] * 400
    follows = [0] * 200 + [2, 0, 2] * 10 + [2] * 170  # the last lapse is 28 updates after the move
    assert run_of([follows] * 10, payoffs).recovery(1) == 29
    assert run_of([follows] * 9 + [stays], payoffs).recovery(1) == 29
    assert run_of([follows] * 8 + [stays] * 2, payoffs).recovery(1) is None
    late = [0] * 350 + [2] * 50
    assert run_of([late] * 10, payoffs).recovery(1) is None
    assert run_of([follows] * 9 + [stays], payoffs).seeds_recovered(1).tolist() == [True] * 9 + [False]
    assert run_of([stays], payoffs).seeds_recovered(0).tolist() == [True]
    assert run_of([stays], payoffs).returns[[0, -1], 0].tolist() == [8.0, 8.0]


def test_a_level_that_repeats_a_lower_one_is_not_locked():
    run = run_of([[0] * 5], ((0, np.ones((3, 3))),))
    assert run.lock_rate(0).tolist() == [1.0, 1.0]
    run.greedy[:, :, 1] = run.greedy[:, :, 0]
    assert run.lock_rate(0).tolist() == [1.0, 0.0]
    assert run_of([[0] * 5], ((0, DIAGONAL),)).lock_rate(0).tolist() == [1.0, 0.0]


def test_a_flushed_replay_forgets_and_a_kept_one_does_not():
    shifts = [(5, MOVED)]
    kept = train_one_step(DIAGONAL, shifts=shifts, updates=6, seeds=(0,), **SMALL)
    flushed = train_one_step(DIAGONAL, shifts=shifts, updates=6, seeds=(0,), flush=True, **SMALL)
    assert kept.entries[5, 0] > 0 or kept.entries[4, 0] > 0
    assert flushed.entries[5, 0] <= 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "mappo"}, "algorithm 'mappo'; expected one of s2q"),
        ({"payoff": np.ones((2, 3))}, r"payoff has the shape \(2, 3\)"),
        ({"shifts": [(3, np.ones((2, 2)))]}, "has the shape"),
        ({"shifts": [(50, MOVED)]}, "changes at update 50; expected updates that rise, below 10"),
        ({"selector": "best"}, "selector 'best'"),
        ({"replay": 5}, "replay is 5; expected at least the batch's 16"),
        ({"mix": 1.5}, "mix is 1.5"),
        ({"environments": 0}, "environments is 0"),
        ({"speed": 3}, "speed is no setting"),
        ({"seeds": ()}, "0 seeds"),
    ],
    ids=["algorithm", "shape", "shift-shape", "late", "selector", "replay", "mix", "none", "unknown", "seeds"],
)
def test_what_cannot_be_trained_is_refused_in_one_line(change, message):
    arguments = {"payoff": DIAGONAL, "algorithm": "s2q", "updates": 10, **SMALL, **change}
    with pytest.raises(InputError, match=message):
        train_one_step(arguments.pop("payoff"), arguments.pop("algorithm"), **arguments)


def test_three_agents_are_trained_too():
    payoff = np.zeros((2, 2, 2))
    payoff[0, 0, 0], payoff[1, 1, 1] = 4, 2
    run = train_one_step(payoff, updates=120, seeds=(0, 1), epsilon_updates=60, **SMALL)
    assert run.greedy.shape == (120, 2, 3, 3)
    assert run.values.shape == (2, 3, 2, 2, 2)
    assert run.visits.sum() == 2 * 8 * (120 + 16 // 8 - 1)
    for cell in itertools.product(range(2), repeat=3):
        assert np.isfinite(run.values[(..., *cell)]).all()
