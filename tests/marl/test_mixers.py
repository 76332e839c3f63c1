"""Mixers: monotone, their best joint action made of each agent's best, and equal to another library's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.marl.losses import chosen_values
from assay.marl.mixers import QMixer, make_mixer
from assay.marl.networks import one_hot

N, A, S = 3, 4, 5


def joint_values(mixer: nn.Module, q_NA: Tensor, state: Tensor) -> Tensor:
    """The mixer's value of every joint action, shape (A, …, A)."""
    actions = torch.tensor(list(itertools.product(range(A), repeat=N)))
    chosen = chosen_values(q_NA.expand(len(actions), N, A), actions)
    best = q_NA.amax(-1).expand(len(actions), N)
    given = one_hot(actions, A, dtype=q_NA.dtype)
    return mixer(chosen, state.expand(len(actions), S), best=best, actions=given).reshape((A,) * N)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["qmix", "vdn", "qplex"])
def test_the_best_joint_action_is_each_agents_best(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    mixer = make_mixer(name, n_agents=N, n_actions=A, state_size=S).double()
    q, state = torch.randn(N, A, dtype=torch.float64), 3 * torch.randn(S, dtype=torch.float64)
    with torch.no_grad():
        values = joint_values(mixer, q, state)
    assert np.unravel_index(int(values.argmax()), values.shape) == tuple(q.argmax(-1).tolist())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("layers", [1, 2])
def test_qmix_never_falls_when_an_agents_utility_rises(layers: int, seed: int) -> None:
    torch.manual_seed(seed)
    mixer = QMixer(N, S, hypernet_layers=layers).double()
    chosen, state = 5 * torch.randn(50, N, dtype=torch.float64), 3 * torch.randn(50, S, dtype=torch.float64)
    with torch.no_grad():
        before = mixer(chosen, state)
        for agent in range(N):
            higher = chosen.clone()
            higher[:, agent] += 0.1
            assert (mixer(higher, state) >= before).all()


def test_vdn_is_the_sum() -> None:
    chosen = torch.tensor([[1.0, -2.0, 0.5]])
    assert make_mixer("vdn", n_agents=3, n_actions=2, state_size=1)(chosen).tolist() == [-0.5]


def test_qmix_with_linear_weights_equals_torchrl() -> None:
    torchrl = pytest.importorskip("torchrl.modules")
    torch.manual_seed(0)
    theirs = torchrl.QMixer(state_shape=(S,), mixing_embed_dim=32, n_agents=N, device="cpu")
    ours = QMixer(N, S, embed=32, hypernet_layers=1)
    pairs = {
        "weight_1": theirs.hyper_w_1,
        "weight_2": theirs.hyper_w_final,
        "bias_1": theirs.hyper_b_1,
        "bias_2": theirs.V,
    }
    for name, module in pairs.items():
        getattr(ours, name).load_state_dict(module.state_dict())
    chosen, state = torch.randn(6, N), torch.randn(6, S)
    torch.testing.assert_close(ours(chosen, state), theirs(chosen.unsqueeze(-1), state).squeeze(-1))


@pytest.mark.parametrize(("seed", "least"), [(0, 288.0), (4, 320.0)], ids=["best-fit", "local-optimum"])
def test_a_trained_qmix_comes_to_the_best_fit_of_the_basin_that_it_is_in(seed: int, least: float) -> None:
    """The best monotone fit of this game, 8 above −6, leaves the squared error 288; −8 and 0 is a local optimum with
    320. Which of them gradient descent finds depends on the start."""
    payoff = torch.tensor([[8.0, -12, -12], [-12, 0, 0], [-12, 0, 0]])
    actions = torch.tensor(list(itertools.product(range(3), repeat=2)))
    torch.manual_seed(seed)
    mixer, table = QMixer(2, 1, embed=16, hypernet=16), nn.Parameter(torch.randn(2, 3))
    optimizer = torch.optim.Adam([*mixer.parameters(), table], lr=2e-2, fused=True)
    for _ in range(500):
        fit = mixer(chosen_values(table.expand(9, 2, 3), actions), torch.ones(9, 1)).reshape(3, 3)
        error = (fit - payoff).square().sum()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    assert least * (1 - 1e-5) <= float(error.detach()) <= least * 1.02


def test_an_unknown_mixer_is_refused() -> None:
    with pytest.raises(InputError, match="mixer 'qtran'; expected one of qmix, vdn, qplex, none"):
        make_mixer("qtran", n_agents=2, n_actions=2, state_size=1)
    with pytest.raises(InputError, match="hypernet_layers is 3"):
        QMixer(2, 2, hypernet_layers=3)
