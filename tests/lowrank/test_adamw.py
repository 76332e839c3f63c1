"""DCT-AdamW against AdamW, its own definition written plainly, and the promises of an optimiser."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from assay.core.errors import InputError
from assay.lowrank import DCTAdamW, DCTFiraAdamW, DCTGaLoreAdamW, Dion, LDAdamW, Trion
from assay.lowrank.basis import make_basis
from assay.lowrank.quantisation import dequantise, quantise
from assay.lowrank.selection import select_columns

SHAPES = ((12, 8), (8, 12), (9, 9), (5,), (12, 8))


def parameters(shapes=SHAPES, dtype=torch.float64, seed=0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(*shape, dtype=dtype, generator=generator)) for shape in shapes]


def give_gradients(*groups: list[nn.Parameter], generator: torch.Generator) -> None:
    """The same random gradients for several lists of parameters."""
    for alike in zip(*groups, strict=True):
        gradient = torch.randn(alike[0].shape, dtype=torch.float64, generator=generator)
        for parameter in alike:
            parameter.grad = gradient.to(parameter.dtype)


def plainly(
    W,
    gradients,
    *,
    lr,
    rank,
    basis="dct2",
    betas=(0.9, 0.999),
    eps=1e-8,
    wd=0.0,
    gap=1,
    rotate=True,
    ef=None,
    age=False,
):
    """The algorithm as it is written, in dense matrices: rotation by matmul, one weight, right projection."""
    n = W.shape[1]
    B = make_basis(basis, n, dtype=W.dtype).columns(torch.arange(n))
    W = W.clone()
    m = v = index = ages = None
    E = torch.zeros_like(W)
    for t, gradient in enumerate(gradients, start=1):
        W *= 1 - lr * wd
        A = gradient + E
        refreshed = t == 1 or t % gap == 0
        new = select_columns(A, rank, basis=basis)[0].long() if refreshed else index
        a = A @ B[:, new]
        if ef is not None:
            E = A - a @ B[:, new].mT
            if ef != "fp":
                E = dequantise(quantise(E, bits=ef), bits=ef, columns=n).to(W.dtype)
        if t == 1:
            m, v, ages = torch.zeros_like(a), torch.zeros_like(a), torch.zeros(len(new), dtype=W.dtype)
        elif refreshed and rotate:
            R = B[:, index].mT @ B[:, new]
            m, v, ages = m @ R, (v @ R).abs(), (ages @ R).abs()
        ages = ages + 1
        m = betas[0] * m + (1 - betas[0]) * a
        v = betas[1] * v + (1 - betas[1]) * a * a
        since = ages if age else t
        u = (m / (1 - betas[0] ** since)) / ((v / (1 - betas[1] ** since)).sqrt() + eps)
        W -= lr * u @ B[:, new].mT
        index = new
    return W


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gap": 3},
        {"rotate": False},
        {"ef": "fp"},
        {"ef": 8},
        {"ef": 4},
        {"age": True},
        {"age": True, "gap": 2, "ef": "fp"},
        {"wd": 0.1, "betas": (0.8, 0.95)},
        {"basis": "dct3"},
        {"basis": "random"},
    ],
    ids=str,
)
@pytest.mark.parametrize("transform", ["fft", "matmul"])
def test_the_optimiser_does_what_the_algorithm_says(options, transform):
    generator = torch.Generator().manual_seed(1)
    W = torch.randn(10, 7, dtype=torch.float64, generator=generator)
    gradients = [torch.randn(10, 7, dtype=torch.float64, generator=generator) for _ in range(12)]
    expected = plainly(W, gradients, lr=0.03, rank=3, **options)
    names = {"gap": "update_gap", "ef": "error_feedback", "age": "age_correction", "wd": "weight_decay"}
    settings_ = {names.get(name, name): value for name, value in options.items()}
    right, left = nn.Parameter(W.clone()), nn.Parameter(W.mT.contiguous().clone())
    optimizer = DCTAdamW([right, left], lr=0.03, rank=3, transform=transform, **settings_)
    for gradient in gradients:
        right.grad, left.grad = gradient.clone(), gradient.mT.contiguous().clone()
        optimizer.step()
        assert torch.equal(right.grad, gradient)
    # Float32 scales of the quantised error round apart.
    tolerance = 1e-4 if options.get("ef") in (8, 4) else 1e-11
    assert (right.detach() - expected).abs().max() < tolerance
    assert (left.detach().mT - right.detach()).abs().max() < tolerance


@pytest.mark.parametrize("maximize", [False, True])
def test_all_columns_of_the_identity_are_adamw(maximize):
    ours, theirs = parameters(), parameters()
    one = DCTAdamW(ours, 1e-2, weight_decay=0.1, rank=1.0, basis="identity", maximize=maximize)
    other = torch.optim.AdamW(theirs, 1e-2, weight_decay=0.1, maximize=maximize)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        give_gradients(ours, theirs, generator=generator)
        one.step()
        other.step()
    assert max((a - b).abs().max() for a, b in zip(ours, theirs, strict=True)) < 1e-12


def test_chosen_columns_of_the_identity_are_adamw_and_the_others_only_decay():
    W = torch.randn(8, 6, dtype=torch.float64)
    ours, theirs = nn.Parameter(W.clone()), nn.Parameter(W[:, [1, 4]].clone())
    one = DCTAdamW([ours], 1e-2, weight_decay=0.1, rank=2, basis="identity")
    other = torch.optim.AdamW([theirs], 1e-2, weight_decay=0.1)
    for _ in range(20):
        ours.grad = 0.01 * torch.randn(8, 6, dtype=torch.float64)
        ours.grad[:, [1, 4]] *= 1000
        theirs.grad = ours.grad[:, [1, 4]].clone()
        one.step()
        other.step()
    assert (ours[:, [1, 4]] - theirs).abs().max() < 1e-12
    rest = [0, 2, 3, 5]
    assert (ours[:, rest] - W[:, rest] * (1 - 1e-3) ** 20).abs().max() < 1e-14


@given(seed=st.integers(0, 99), shape=st.sampled_from([(9, 7), (7, 9), (1, 5)]), gap=st.integers(1, 4))
@settings(deadline=None, max_examples=25)
def test_error_feedback_loses_nothing(seed, shape, gap):
    """What was projected, summed over steps, and the last error are the sum of the gradients."""
    generator = torch.Generator().manual_seed(seed)
    parameter = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    # Without second moments' influence the first moment at beta1 = 0 is the coefficient itself.
    optimizer = DCTAdamW([parameter], 0.0, betas=(0.0, 0.5), rank=min(2, *shape), error_feedback="fp", update_gap=gap)
    right = shape[0] >= shape[1]
    n = min(shape)
    basis = make_basis("dct2", n, dtype=torch.float64)
    projected = gradients = 0
    for _ in range(10):
        parameter.grad = torch.randn(shape, dtype=torch.float64, generator=generator)
        gradients = gradients + (parameter.grad if right else parameter.grad.mT)
        optimizer.step()
        state = optimizer.state[parameter]
        projected = projected + basis.lift(state["exp_avg"].unsqueeze(0), state["index"].unsqueeze(0))[0]
    assert (projected + state["error"] - gradients).abs().max() < 1e-12


@pytest.mark.parametrize("shape", [(10, 6), (6, 10)])
def test_without_the_constant_cosine_sums_of_weights_only_decay(shape):
    """Every other cosine sums to zero over the projected axis."""
    parameter = nn.Parameter(torch.randn(shape, dtype=torch.float64))
    axis = 1 if shape[0] >= shape[1] else 0
    before = parameter.detach().sum(axis)
    optimizer = DCTAdamW([parameter], 1e-2, weight_decay=0.3, rank=3)
    for _ in range(15):
        gradient = torch.randn(shape, dtype=torch.float64)
        parameter.grad = gradient - gradient.mean(axis, keepdim=True)
        optimizer.step()
        assert 0 not in optimizer.state[parameter]["index"]
    assert (parameter.detach().sum(axis) * (1 - 1e-2 * 0.3) ** -15 - before).abs().max() < 1e-12


def test_a_late_column_steps_too_far_unless_its_age_is_corrected():
    for corrected in (False, True):
        parameter = nn.Parameter(torch.zeros(4, 4, dtype=torch.float64))
        optimizer = DCTAdamW([parameter], 1.0, rank=1, basis="identity", age_correction=corrected, eps=0.0)
        for column in [0] * 2000 + [2]:
            parameter.grad = torch.zeros(4, 4, dtype=torch.float64)
            parameter.grad[:, column] = 1.0
            optimizer.step()
        expected = 1.0 if corrected else 0.1 / 0.001**0.5 * (1 - 0.999**2001) ** 0.5
        assert parameter[0, 2].item() == pytest.approx(-expected, rel=1e-6)


def test_a_quadratic_is_solved_with_error_feedback_and_by_a_moving_subspace_and_stalls_in_a_fixed_one():
    target = torch.randn(12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def loss_after(**options) -> float:
        W = nn.Parameter(torch.zeros(12, 8, dtype=torch.float64))
        optimizer = DCTAdamW([W], 0.05, rank=2, **options)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=1200)
        for _ in range(1200):
            W.grad = (W - target).detach()
            optimizer.step()
            schedule.step()
        return (0.5 * (W - target).square().sum()).item()

    start = 0.5 * target.square().sum().item()
    assert loss_after(error_feedback="fp") < 1e-3 * start
    assert loss_after() < 1e-2 * start
    assert loss_after(update_gap=10**6) > 0.3 * start


@pytest.mark.parametrize("kind", [DCTAdamW, Trion])
def test_blocks_and_stacks_change_nothing_but_rounding(kind):
    shapes = ((40, 24), (40, 24), (24, 40), (3,), (40, 24))
    results = []
    for room in (256.0, 0.02, 0.002):
        ours = parameters(shapes)
        optimizer = kind(ours, 1e-2, rank=6, max_temp_mb=room)
        generator = torch.Generator().manual_seed(2)
        for _ in range(5):
            give_gradients(ours, generator=generator)
            optimizer.step()
        results.append(ours)
    for other in results[1:]:
        assert max((a - b).abs().max() for a, b in zip(results[0], other, strict=True)) < 1e-9


def test_a_parameter_without_gradient_is_left_alone_with_its_clock():
    ours = parameters(((6, 4), (6, 4)))
    optimizer = DCTAdamW(ours, 1e-2, rank=2)
    for step in range(4):
        ours[0].grad, ours[1].grad = torch.ones_like(ours[0]), torch.ones_like(ours[1]) if step >= 2 else None
        optimizer.step()
    assert [optimizer.state[one]["step"].item() for one in ours] == [4, 2]


@pytest.mark.parametrize("kind", [DCTAdamW, Trion])
def test_schedulers_closures_tensor_rates_groups_and_late_groups(kind):
    ours, theirs = parameters(dtype=torch.float32), parameters(dtype=torch.float32)
    number = kind(ours[:3], 0.1, rank=3)
    tensor = kind([(f"p{i}", p) for i, p in enumerate(theirs[:3])], torch.tensor(0.1), rank=3)
    for optimizer, all_ in ((number, ours), (tensor, theirs)):
        extra = [("late", all_[3]), ("later", all_[4])] if optimizer is tensor else all_[3:]
        optimizer.add_param_group({"params": extra, "lr": 0.1, "rank": 2})
    schedule = torch.optim.lr_scheduler.StepLR(number, 1, gamma=0.5)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        give_gradients(ours, theirs, generator=generator)
        assert number.step(lambda: torch.tensor(7.0)).item() == 7
        tensor.step()
        schedule.step()
        for group in tensor.param_groups:
            group["lr"] = group["lr"] * 0.5
    assert all(torch.equal(a, b) or torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))
    assert number.param_groups[1]["rank"] == 2


def test_half_precision_has_moments_in_single_and_a_master_keeps_small_updates():
    for master in (False, True):
        parameter = nn.Parameter(torch.full((8, 8), 100.0, dtype=torch.bfloat16))
        optimizer = DCTAdamW([parameter], 1e-2, rank=1.0, basis="identity", master_weights=master)
        for _ in range(100):
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        state = optimizer.state[parameter]
        assert state["exp_avg"].dtype == torch.float32
        # Half a unit in the last place of 100 in bfloat16 is 0.25: steps of 0.01 vanish without a master.
        assert parameter[0, 0].item() == (99.0 if master else 100.0)
        reloaded = DCTAdamW([parameter], 1e-2, rank=1.0, basis="identity", master_weights=master)
        reloaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert all(
            torch.equal(value, state[name]) and value.dtype == state[name].dtype
            for name, value in reloaded.state[parameter].items()
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [DCTAdamW, Trion])
def test_every_floating_dtype_descends(kind, dtype):
    parameter = nn.Parameter(torch.ones(8, 6, dtype=dtype))
    optimizer = kind([parameter], 0.1, rank=2)
    for _ in range(20):
        parameter.grad = parameter.detach().clone()
        optimizer.step()
    assert parameter.dtype == dtype
    assert parameter.float().square().sum() < 40


def test_convolutions_are_matrices_of_output_and_rest_in_any_memory_format():
    for layout in (torch.contiguous_format, torch.channels_last):
        conv = nn.Conv2d(4, 8, 3).to(memory_format=layout)
        flat = nn.Parameter(conv.weight.detach().reshape(8, -1).clone())
        optimizer = DCTAdamW([{"params": [conv.weight, flat], "low_rank": True}], 1e-2, rank=3)
        for _ in range(3):
            gradient = torch.randn(8, 36)
            flat.grad = gradient
            conv.weight.grad = gradient.reshape(8, 4, 3, 3).to(memory_format=layout)
            optimizer.step()
        assert torch.allclose(conv.weight.reshape(8, -1), flat, atol=1e-6)


@pytest.mark.parametrize("kind", [DCTAdamW, Trion])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_gradient_is_named_before_anything_changes(kind, bad):
    ours = parameters(dtype=torch.float32)
    named = [(f"layer{i}.weight", p) for i, p in enumerate(ours)]
    optimizer = kind(named, 1e-2, rank=2)
    give_gradients(ours, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    before, state = copy.deepcopy(ours), copy.deepcopy(optimizer.state_dict()["state"])
    ours[3].grad[2] = bad
    with pytest.raises(InputError, match=r"the gradient of layer3\.weight is NaN or infinite"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, before, strict=True))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(after[k][name], state[k][name]) for k in state for name in state[k])
    for group in optimizer.param_groups:
        group["nonfinite"] = "skip"
    optimizer.step()
    after = optimizer.state_dict()["state"]
    assert torch.equal(ours[3], before[3])
    assert all(torch.equal(after[3][name], state[3][name]) for name in state[3])
    assert not torch.equal(ours[0], before[0])


def test_zero_gradients_change_nothing_and_make_no_nan():
    ours = parameters()
    before = copy.deepcopy(ours)
    for optimizer in (DCTAdamW(ours, 1e-2, rank=3, error_feedback=8), Trion(ours, rank=3)):
        for parameter in ours:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, before, strict=True))
    assert optimizer.state[ours[0]]["index"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"rank": 1.5}, "rank is 1.5"),
        ({"basis": "fourier"}, "basis is 'fourier'"),
        ({"basis": 2 * torch.eye(8)}, "not orthogonal: max"),
        ({"basis": "hadamard"}, "basis 'hadamard' for rows of length 12; expected a power of 2"),
        ({"norm": 3}, "norm is 3"),
        ({"side": "up"}, "side is 'up'"),
        ({"transform": "fast"}, "transform is 'fast'"),
        ({"error_feedback": 2}, "error_feedback is 2"),
        ({"update_gap": 0}, "update_gap is 0"),
        ({"state_dtype": torch.int8}, "state_dtype is int8"),
        ({"nonfinite": "maybe"}, "nonfinite is 'maybe'"),
        ({"shard_update": "zero9"}, "shard_update is 'zero9'"),
        ({"lr": -1.0}, "lr is -1.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": float("inf")}, "lr is inf"),
        ({"lr": None}, "lr is None"),
        ({"lr": torch.ones(2)}, "lr is tensor"),
        ({"weight_decay": float("inf")}, "weight_decay is inf"),
        ({"eps": "small"}, "eps is 'small'"),
        ({"max_temp_mb": "much"}, "max_temp_mb is 'much'"),
        ({"max_shape": "large"}, "max_shape is 'large'"),
        ({"rounding_seed": "a"}, "rounding_seed is 'a'"),
        ({"error_feedback": 8.0}, "error_feedback is 8.0"),
        ({"basis": {8: "cosines"}}, "the basis is str"),
        ({"basis": {8: torch.eye(7)}}, "rows of length 8 has size 7"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] is 1.0"),
        ({"betas": (0.9, "b")}, r"betas\[1\] is 'b'"),
        ({"betas": [0.9]}, r"betas is \[0.9\]; expected two numbers"),
        ({"betas": 0.9}, "betas is 0.9"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(options, said):
    settings_ = {"lr": 1e-3, **options}
    with pytest.raises(InputError, match=said) as caught:
        DCTAdamW([nn.Parameter(torch.zeros(16, 12))], **settings_)
    assert "\n" not in str(caught.value)


def test_complex_integer_and_sparse_are_refused():
    with pytest.raises(InputError, match="is complex"):
        DCTAdamW([nn.Parameter(torch.zeros(3, 3, dtype=torch.complex64))], 1e-3)
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = DCTAdamW([("tokens", embedding.weight)], 1e-3)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(InputError, match="tokens has a sparse gradient"):
        optimizer.step()


def test_too_large_a_rank_is_everything_and_warned_of_once():
    parameter = nn.Parameter(torch.zeros(6, 4))
    optimizer = DCTAdamW([parameter], 1e-3, rank=9)
    parameter.grad = torch.ones_like(parameter)
    with pytest.warns(UserWarning, match="rank 9 is larger than 4"):
        optimizer.step()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert optimizer.state[parameter]["exp_avg"].shape == (6, 4)


def test_a_basis_of_ones_own_by_size():
    rotation = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    cosines = make_basis("dct2", 8, dtype=torch.float64).columns(torch.arange(8))
    ours = parameters(((12, 8), (12, 8), (12, 8)))
    ours[1].data.copy_(ours[0])
    ours[2].data.copy_(ours[0])
    optimizers = [
        DCTAdamW([p], 1e-2, rank=3, basis=b) for p, b in zip(ours, (cosines, {8: cosines}, "dct2"), strict=True)
    ]
    for _ in range(4):
        gradient = torch.randn(12, 8, dtype=torch.float64)
        for parameter, optimizer in zip(ours, optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    assert all((ours[0] - other).abs().max() < 1e-12 for other in ours[1:])
    DCTAdamW([ours[0]], 1e-2, basis=rotation)
    optimizer = DCTAdamW([nn.Parameter(torch.ones(5, 4))], 1e-2, basis=rotation)
    optimizer.param_groups[0]["params"][0].grad = torch.ones(5, 4)
    with pytest.raises(InputError, match="user's basis for rows of length 4"):
        optimizer.step()


RESUME = """
import sys, torch
from assay.lowrank import DCTAdamW, Trion, DCTFiraAdamW, LDAdamW, Dion
kinds = {"dct": lambda p: DCTAdamW(p, 1e-2, rank=3, error_feedback=8, age_correction=True, update_gap=2,
weight_decay=0.1),
         "fp": lambda p: DCTAdamW(p, 1e-2, rank=3, error_feedback="fp"), "trion": lambda p: Trion(p, rank=3),
         "fira": lambda p: DCTFiraAdamW(p, 1e-2, rank=3, update_gap=3), "ld": lambda p: LDAdamW(p, 1e-2, rank=3),
         "dion": lambda p: Dion(p, rank=3)}
def run(optimizer, parameters, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
"""


def test_a_run_resumed_in_another_process_equals_an_uninterrupted_one_bit_for_bit(tmp_path):
    names: dict = {}
    exec(RESUME, names)
    ends = {}
    for kind in names["kinds"]:
        whole = parameters(dtype=torch.float32)
        optimizer = names["kinds"][kind](whole)
        names["run"](optimizer, whole, range(4))
        torch.save({"optimizer": optimizer.state_dict(), "parameters": whole}, tmp_path / f"{kind}.pt")
        names["run"](optimizer, whole, range(4, 9))
        ends[kind] = (whole, optimizer.state_dict()["state"])
    go_on = """
for kind in kinds:
    saved = torch.load(f"{kind}.pt", weights_only=True)
    optimizer = kinds[kind](saved["parameters"])
    optimizer.load_state_dict(saved["optimizer"])
    run(optimizer, saved["parameters"], range(4, 9))
    torch.save({"parameters": saved["parameters"], "state": optimizer.state_dict()["state"]}, f"{kind}-end.pt")
"""
    subprocess.run([sys.executable, "-c", RESUME + go_on], check=True, cwd=tmp_path)
    for kind, (whole, state) in ends.items():
        resumed = torch.load(tmp_path / f"{kind}-end.pt", weights_only=True)
        assert all(torch.equal(a, b) for a, b in zip(whole, resumed["parameters"], strict=True)), kind
        for number, values in resumed["state"].items():
            for name, value in values.items():
                assert value.dtype == state[number][name].dtype
                assert torch.equal(value, state[number][name])


def test_a_checkpoint_of_other_settings_is_refused_and_says_which():
    def trained(kind=DCTAdamW, **options):
        ours = parameters(((8, 6), (4,)))
        optimizer = kind(ours, 1e-2, **{"rank": 4, **options})
        give_gradients(ours, generator=torch.Generator().manual_seed(0))
        optimizer.step()
        return optimizer

    saved = trained().state_dict()
    for options, said in (
        ({"basis": "dct3"}, "checkpoint has basis 'dct2', this optimiser 'dct3'"),
        ({"rank": 5}, "checkpoint has rank 4 for parameter 0 of group 0, this optimiser 5"),
        ({"error_feedback": 8}, "checkpoint has error_feedback None, this optimiser 8"),
        ({"side": "left"}, "checkpoint has side 'auto', this optimiser 'left'"),
        ({"kind": Trion}, "checkpoint has kind 'DCTAdamW', this optimiser 'Trion'"),
    ):
        with pytest.raises(InputError, match=said):
            trained(**options).load_state_dict(saved)
    with pytest.raises(InputError, match="the checkpoint has 0 parameter groups"):
        trained().load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(InputError, match="holds no param_groups and state"):
        trained().load_state_dict({"param_groups": saved["param_groups"]})
    with pytest.raises(InputError, match="has another basis for rows of length 6"):
        trained(basis=torch.eye(6)).load_state_dict(trained(basis=torch.eye(6).flip(0)).state_dict())


@pytest.mark.parametrize(
    "other", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad], ids=lambda kind: kind.__name__
)
def test_a_checkpoint_of_torchs_own_optimisers_is_refused_and_changes_nothing(other):
    ours = parameters(((8, 6), (4,)))
    theirs = other(ours, 1e-2)
    give_gradients(ours, generator=torch.Generator().manual_seed(0))
    theirs.step()
    optimizer = DCTAdamW(ours, 1e-2)
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(InputError, match="the checkpoint is of another optimiser; expected one of DCTAdamW"):
        optimizer.load_state_dict(theirs.state_dict())
    assert optimizer.state_dict()["param_groups"] == before["param_groups"]
    optimizer.step()


MAKERS = {
    "dct": lambda p, rank=0.5: DCTAdamW(p, 1e-2, rank=rank),
    "eight bits": lambda p, rank=0.5: DCTAdamW(p, 1e-2, rank=rank, error_feedback=8, age_correction=True),
    "trion": lambda p, rank=0.5: Trion(p, rank=rank),
    "galore": lambda p, rank=0.5: DCTGaLoreAdamW(p, 1e-2, rank=rank),
    "svd": lambda p, rank=0.5: DCTGaLoreAdamW(p, 1e-2, rank=rank, projection="svd"),
    "fira": lambda p, rank=0.5: DCTFiraAdamW(p, 1e-2, rank=rank),
    "dion": lambda p, rank=0.5: Dion(p, rank=rank),
    "ldadamw": lambda p, rank=0.5: LDAdamW(p, 1e-2, rank=rank),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_damaged_checkpoint_is_refused_by_the_part_that_is_wrong(make):
    def trained():
        ours = parameters(((8, 6), (4,)))
        optimizer = make(ours)
        give_gradients(ours, generator=torch.Generator().manual_seed(0))
        optimizer.step()
        return optimizer

    whole = trained().state_dict()
    for number, state in whole["state"].items():
        for part in state:
            for damaged, said in (
                ({key: value for key, value in state.items() if key != part}, f"has no {part} of parameter {number}"),
                ({**state, part: "text"}, f"has no {part} of parameter {number}"),
                ({**state, part: torch.zeros(3, 5, 2)}, f"{part} of parameter {number} .* has shape"),
            ):
                optimizer = trained()
                before = copy.deepcopy(optimizer.state_dict()["state"])
                with pytest.raises(InputError, match=said):
                    optimizer.load_state_dict({**whole, "state": {**whole["state"], number: damaged}})
                after = optimizer.state_dict()["state"]
                assert all(torch.equal(after[k][name], v) for k in before for name, v in before[k].items())
    with pytest.raises(InputError, match="group 0 of the checkpoint has 1 parameters; expected 2"):
        trained().load_state_dict({**whole, "param_groups": [{**whole["param_groups"][0], "params": [0]}]})
    with pytest.raises(InputError, match="nonfinite is 'maybe'"):
        trained().load_state_dict({**whole, "param_groups": [{**whole["param_groups"][0], "nonfinite": "maybe"}]})
    with pytest.raises(InputError, match="is no mapping"):
        trained().load_state_dict({**whole, "state": {0: "text"}})


def test_columns_outside_the_basis_are_refused():
    ours = parameters(((8, 6),))
    optimizer = DCTAdamW(ours, 1e-2, rank=2)
    give_gradients(ours, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["index"][1] = 6
    with pytest.raises(InputError, match="index of parameter 0 of group 0 has wrong columns; expected 0 to 5"):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize("name", ["svd", "dion", "ldadamw"])
def test_a_checkpoint_of_vectors_of_another_rank_is_refused(name):
    ours = parameters(((8, 6),))
    optimizer = MAKERS[name](ours, 4)
    give_gradients(ours, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    for rank in (3, 5):
        with pytest.raises(InputError, match=f"has rank 4 for parameter 0 of group 0, this optimiser {rank}"):
            MAKERS[name](parameters(((8, 6),)), rank).load_state_dict(optimizer.state_dict())


def test_trions_momentum_goes_on_with_any_rank():
    ours = parameters(((8, 6),))
    optimizer = Trion(ours, rank=4)
    give_gradients(ours, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    for rank in (2, 6):
        other = parameters(((8, 6),))
        loaded = Trion(other, rank=rank)
        loaded.load_state_dict(optimizer.state_dict())
        assert torch.equal(loaded.state[other[0]]["momentum"], optimizer.state[ours[0]]["momentum"])
        give_gradients(other, generator=torch.Generator().manual_seed(1))
        loaded.step()
        assert loaded.state[other[0]]["index"].shape == (rank,)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (2, 0, 3)], ids=str)
def test_a_parameter_without_entries_is_left_to_adamw(make, shape):
    empty, other = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.ones(4, 3))
    optimizer = make([empty, other])
    for _ in range(2):
        empty.grad, other.grad = torch.zeros(shape), torch.ones(4, 3)
        optimizer.step()
    assert "index" not in optimizer.state[empty]
    assert (other < 1).all()


@pytest.mark.parametrize("kind", [DCTAdamW, Trion])
def test_gradients_whose_squares_overflow_leave_no_nan_behind(kind):
    # In AdamW a second moment of infinity stops an entry; when its column leaves it must not become NaN in another.
    (W,) = ours = parameters(((12, 8),), dtype=torch.float32)
    optimizer = kind(ours, 1e-2, rank=2)
    W.grad = torch.full_like(W, 1e30)
    optimizer.step()
    for step in range(4):
        give_gradients(ours, generator=torch.Generator().manual_seed(step))
        optimizer.step()
        assert torch.isfinite(W).all()


def test_a_checkpoint_of_a_larger_rank_is_converted_by_keeping_the_strongest_columns():
    ours = parameters(((8, 6),))
    large = DCTAdamW(ours, 1e-2, rank=5, age_correction=True)
    for step in range(3):
        give_gradients(ours, generator=torch.Generator().manual_seed(step))
        large.step()
    state = large.state[ours[0]]
    small = DCTAdamW(ours, 1e-2, rank=2, age_correction=True)
    small.load_state_dict(large.state_dict())
    strongest = state["exp_avg_sq"].sum(0).topk(2).indices.sort().values
    found = small.state[ours[0]]
    assert torch.equal(found["index"], state["index"][strongest])
    assert torch.equal(found["exp_avg"], state["exp_avg"][:, strongest])
    assert small.param_groups[0]["rank"] == 2
    give_gradients(ours, generator=torch.Generator().manual_seed(9))
    small.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: DCTAdamW(p, torch.tensor(1e-2), rank=0.25),
        lambda p: DCTAdamW(p, torch.tensor(1e-2), rank=0.25, update_gap=3, error_feedback=8, age_correction=True),
        lambda p: Trion(p, torch.tensor(1e-2), rank=0.25),
    ],
    ids=["adamw", "adamw-gap-error-age", "trion"],
)
def test_a_step_is_traced_without_a_break(make):
    shapes = ((12, 8), (8, 12), (5,), (12, 8), (270, 260))
    traced, plain = parameters(shapes, torch.float32), parameters(shapes, torch.float32)
    one, other = make(traced), make(plain)
    torch._dynamo.reset()
    step = torch.compile(one.step, backend="eager", fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        give_gradients(traced, plain, generator=generator)
        step()
        other.step()
    assert all(torch.allclose(a, b, atol=2e-6) for a, b in zip(traced, plain, strict=True))


def test_large_named_and_flat_parameters_are_left_to_adamw_where_nothing_is_said():
    shapes = {"embed_tokens": (6, 4), "q_proj": (6, 4), "norm": (4,), "table": (40, 4)}
    named = [(name, nn.Parameter(torch.zeros(shape))) for name, shape in shapes.items()]
    optimizer = DCTAdamW(named, 1e-2, rank=2, max_shape=40)
    for _, parameter in named:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert [name for name, parameter in named if "index" in optimizer.state[parameter]] == ["q_proj"]


def test_energy_and_churn_are_tracked_when_asked_for():
    parameter = nn.Parameter(torch.zeros(6, 8, dtype=torch.float64))
    optimizer = DCTAdamW([("w", parameter)], 1e-2, rank=3, side="right")
    optimizer.track = True
    for step in range(2):
        parameter.grad = torch.randn(6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        before = optimizer.state[parameter].get("index", torch.arange(3)).clone()
        optimizer.step()
    index, coefficients = select_columns(parameter.grad, 3)
    found = optimizer.mean_statistics()
    assert found["energy_kept"] == pytest.approx((coefficients.square().sum() / parameter.grad.square().sum()).item())
    assert found["index_churn"] == pytest.approx(sum(one not in before for one in index) / 3)
