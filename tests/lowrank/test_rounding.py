"""Stochastic rounding, and the order of the projected axis."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from assay.core.errors import InputError
from assay.lowrank import DCTAdamW, DCTFiraAdamW, Trion
from assay.lowrank.rounding import generator_of, round_stochastically


def test_rounding_is_right_on_average_and_to_a_neighbour():
    x = torch.full((200_000,), 1.0 + 0.3 * 2**-7)
    found = round_stochastically(x, torch.Generator().manual_seed(0)).float()
    assert set(found.tolist()) == {1.0, 1.0 + 2**-7}
    # Five standard deviations of a mean of 200 000.
    assert found.mean().item() == pytest.approx(x[0].item(), abs=5 * 2**-7 * (0.21 / 200_000) ** 0.5)
    special = torch.tensor([0.0, -1.5, float("inf"), float("-inf"), float("nan")])
    rounded = round_stochastically(special, torch.Generator().manual_seed(0))
    assert rounded[:4].tolist() == special[:4].tolist()
    assert rounded[4].isnan()


def test_generators_differ_by_step_place_and_process():
    seeds = {
        generator_of(0, step, place, rank, torch.device("cpu")).initial_seed()
        for step in (1, 2)
        for place in (0, 1)
        for rank in (0, 1)
    }
    assert len(seeds) == 8


@pytest.mark.parametrize(
    "make",
    [
        lambda p, **more: DCTAdamW(p, 2e-4, rank=4, **more),
        lambda p, **more: Trion(p, 8e-3, rank=4, scale="kimi", adamw_lr=2e-4, **more),
        lambda p, **more: DCTFiraAdamW(p, 2e-4, rank=4, **more),
    ],
    ids=["dct-adamw", "trion", "fira"],
)
def test_updates_below_half_a_unit_are_lost_without_it_and_add_up_with_it(make):
    """Weights of 1 have units of 2**-7 in bfloat16: steps of 2e-4 vanish."""
    moved = {}
    for name, dtype, more in (
        ("exact", torch.float32, {}),
        ("nearest", torch.bfloat16, {}),
        ("random", torch.bfloat16, {"stochastic_rounding": True}),
    ):
        weight, bias = (nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in ((64, 16), (64,)))
        optimizer = make([weight, bias], **more)
        direction = torch.randn(1, 16, generator=torch.Generator().manual_seed(0)).expand(64, -1)
        for _ in range(200):
            weight.grad, bias.grad = direction.to(dtype).clone(), torch.ones_like(bias)
            optimizer.step()
        moved[name] = [(1 - one.detach().float()).mean(0).norm().item() for one in (weight, bias)]
    for exact, nearest, random in zip(*(moved[name] for name in ("exact", "nearest", "random")), strict=True):
        assert nearest == 0
        assert random == pytest.approx(exact, rel=0.25)


def test_a_resumed_run_rounds_as_the_first_did():
    first = nn.Parameter(torch.randn(12, 8).bfloat16())
    gradients = [torch.randn(12, 8).bfloat16() for _ in range(6)]
    one = DCTAdamW([first], 1e-3, rank=2, stochastic_rounding=True)
    for gradient in gradients[:3]:
        first.grad = gradient
        one.step()
    second = nn.Parameter(first.detach().clone())
    other = DCTAdamW([second], 1e-3, rank=2, stochastic_rounding=True)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for gradient in gradients[3:]:
        for parameter, optimizer in ((first, one), (second, other)):
            parameter.grad = gradient
            optimizer.step()
    assert torch.equal(first, second)


def near_one_vector(rows: int, n: int, seed: int) -> torch.Tensor:
    """A gradient whose rows are nearly multiples of one vector, in no order."""
    generator = torch.Generator().manual_seed(seed)
    vector, sizes, noise = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((n,), (rows, 1), (rows, n))
    )
    return sizes * vector + 0.01 * noise


@pytest.mark.parametrize("shape", [(24, 32), (40, 32)])
def test_in_the_leading_order_few_cosines_keep_what_they_lose_in_none(shape):
    kept = {}
    for order in (None, "leading"):
        weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        optimizer = DCTAdamW([weight], 1e-3, rank=4, order=order, side="right")
        optimizer.track = True
        weight.grad = near_one_vector(*shape, seed=3)
        optimizer.step()
        kept[order] = optimizer.mean_statistics()["energy_kept"]
    assert kept["leading"] > 0.9 > 0.7 > kept[None]


def test_the_order_is_that_of_the_leading_singular_vector():
    G = near_one_vector(24, 32, seed=1)
    weight = nn.Parameter(torch.zeros(24, 32, dtype=torch.float64))
    optimizer = DCTAdamW([weight], 1e-3, rank=4, order="leading", side="right")
    weight.grad = G
    optimizer.step()
    order = optimizer.state[weight]["order"]
    assert order.dtype == torch.int32
    expected = torch.linalg.svd(G).Vh[0].argsort()
    assert order.tolist() in (expected.tolist(), expected.flip(0).tolist())
    assert optimizer.memory_report().indices == 4 * (32 + 4)


def test_when_the_order_changes_moments_turn_as_the_directions_do():
    """With all columns kept nothing is lost: the lifted first moment stays the mean of the gradients."""
    weight = nn.Parameter(torch.zeros(20, 12, dtype=torch.float64))
    optimizer = DCTAdamW([weight], 1e-3, rank=12, order="leading", order_gap=3)
    expected = torch.zeros(20, 12, dtype=torch.float64)
    for step in range(7):
        G = near_one_vector(20, 12, seed=step)
        weight.grad = G.clone()
        optimizer.step()
        expected = 0.9 * expected + 0.1 * G
        group, state = optimizer.param_groups[0], optimizer.state[weight]
        (stack,) = optimizer._stacks(group, optimizer._targets(group))
        lifted = optimizer._basis_of(group, stack).lift(state["exp_avg"].unsqueeze(0), state["index"].unsqueeze(0))[0]
        assert (lifted - expected).abs().max() < 1e-12
        assert (state["exp_avg_sq"] >= 0).all()


def test_an_ordered_run_goes_on_after_loading():
    weight = nn.Parameter(torch.randn(20, 12))
    optimizer = DCTAdamW([weight], 1e-2, rank=3, order="leading", order_gap=4, error_feedback=8)
    runs = [(weight, optimizer)]
    for step in range(10):
        if step == 6:
            copied = nn.Parameter(weight.detach().clone())
            other = DCTAdamW([copied], 1e-2, rank=3, order="leading", order_gap=4, error_feedback=8)
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            runs.append((copied, other))
        for parameter, one in runs:
            parameter.grad = torch.randn(20, 12, generator=torch.Generator().manual_seed(step))
            one.step()
    assert torch.equal(weight, copied)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"order": "random"}, "order is 'random'"),
        ({"order_gap": 0}, "order_gap is 0"),
        ({"order": "leading", "shard_update": "zero1"}, "order with shard_update"),
        ({"stochastic_rounding": True, "master_weights": True}, "stochastic_rounding with master_weights"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(more, said):
    with pytest.raises(InputError, match=said):
        DCTAdamW([nn.Parameter(torch.zeros(4, 4))], 1e-3, **more)
