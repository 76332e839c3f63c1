"""The language layer: against a plain loop, and its causality, streaming, padding and documents."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from assay.core.errors import InputError
from assay.lact.causal import CausalLaCT, CausalState, LaCTBlock
from assay.lact.layers import SmallChunkWarning
from assay.lact.state import LaCTState

pytestmark = pytest.mark.filterwarnings("ignore::assay.lact.layers.SmallChunkWarning")

ATOL = 1e-10
"""Float64 over some dozens of tokens."""
DIM, HEADS = 8, 2
SETTINGS = {
    "muon_momentum": {},
    "gd": {"rule": "gd"},
    "momentum, prenorm": {"rule": "momentum", "prenorm": True, "ns": "keller"},
    "muon, one head": {"rule": "muon", "num_fast_heads": 1, "expand": 2.0},
    "no rotation, no gate": {"rope_fast": False, "output_gate": False, "value_silu": False},
    "norm of queries": {"qk_norm": True, "scale_attention": True, "init_rank": 2},
    "linear net": {"fast_net": "linear"},
    "window only": {"memory": "none"},
    "gla": {"memory": "gla"},
    "deltanet": {"memory": "deltanet"},
}


def layer_of(seed: int = 0, **changes) -> CausalLaCT:
    torch.manual_seed(seed)
    asked = {"num_fast_heads": 2, "window": 6, "chunk_size": 4, "init_rank": None, "base_lr": 0.5, **changes}
    layer = CausalLaCT(DIM, HEADS, **asked).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith(("qk_scale", "qk_offset")):
                parameter += 0.3 * torch.randn_like(parameter)
    return layer


def tokens(length: int, *, batch: int = 2, seed: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, DIM, dtype=torch.float64, generator=draw)


def rotated(x: Tensor, position: int, base: float) -> Tensor:
    """One head's vector as complex numbers turned by the angles of a position."""
    half = len(x) // 2
    angles = position * base ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag])


def plain_gd(layer: CausalLaCT, x: Tensor) -> Tensor:
    """One row through the layer with plain gradient descent, token by token, gradients from autograd."""
    asked, branch = layer.settings, layer.branch
    head, fast = DIM // HEADS, DIM // asked.num_fast_heads
    q, k, v = (x @ layer.qkv.weight.T).split(DIM, dim=1)
    turn = lambda z, t: torch.cat([rotated(one, t, asked.rope_base) for one in z.split(head)])  # noqa: E731
    rows = torch.zeros(len(x), DIM, dtype=x.dtype)
    for t in range(len(x)):
        for h in range(HEADS):
            own = slice(h * head, (h + 1) * head)
            first = max(0, t - asked.window + 1)
            scores = torch.stack([turn(q[t], t)[own] @ turn(k[s], s)[own] for s in range(first, t + 1)])
            rows[t, own] = (scores / math.sqrt(head)).softmax(0) @ v[first : t + 1, own]

    def fast_side(z: Tensor, column: int, t: int) -> Tensor:
        z = functional.silu(z * branch.qk_scale[:, column] + branch.qk_offset[:, column])
        z = torch.cat([one / (one.norm() + 1e-5) for one in z.split(fast)])
        return turn(z, t)

    rates = functional.softplus(branch.rates.projection(x) + math.log(math.expm1(asked.base_lr)))
    gates = functional.silu(branch.gate_proj(x))
    for h in range(asked.num_fast_heads):
        own = slice(h * fast, (h + 1) * fast)
        weights = [one[h].detach() for one in (branch.fast.w0, branch.fast.w1, branch.fast.w2)]
        norms = [one.norm(dim=1, keepdim=True) for one in weights]
        answer = lambda w, z: w[1] @ (functional.silu(w[0] @ z) * (w[2] @ z))  # noqa: E731
        for start in range(0, len(x), asked.chunk_size):
            chunk = range(start, min(start + asked.chunk_size, len(x)))
            for t in chunk:
                out = answer(weights, fast_side(q[t], 0, t)[own])
                out = out / (out.square().mean() + 1e-5).sqrt() * branch.norm.weight
                rows[t, own] += gates[t, h] * out
            steps = [torch.zeros_like(one) for one in weights]
            for t in chunk:
                leaves = [one.clone().requires_grad_() for one in weights]
                agreement = answer(leaves, fast_side(k[t], 1, t).detach()[own]) @ functional.silu(v[t]).detach()[own]
                for j, gradient in enumerate(torch.autograd.grad(agreement, leaves)):
                    steps[j] += rates[t, 3 * h + j].detach() * gradient
            moved = [one + step for one, step in zip(weights, steps, strict=True)]
            weights = [
                one / (one.norm(dim=1, keepdim=True) + 1e-5) * norm for one, norm in zip(moved, norms, strict=True)
            ]
    return rows @ layer.o_proj.weight.T


def test_layer_equals_a_loop_over_tokens_with_gradients_from_autograd():
    layer, x = layer_of(rule="gd", window=5), tokens(11, batch=1)
    torch.testing.assert_close(layer(x)[0].detach(), plain_gd(layer, x[0]).detach(), rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_prefix_gives_the_same_outputs(name):
    layer, x = layer_of(**SETTINGS[name]), tokens(14)
    whole = layer(x)
    for length in range(1, 15):
        torch.testing.assert_close(layer(x[:, :length]), whole[:, :length], rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", sorted(SETTINGS))
@settings(deadline=None, max_examples=8)
@given(pieces=st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 11]), min_size=1, max_size=6))
def test_any_split_equals_one_call(name, pieces):
    layer, x = layer_of(**SETTINGS[name]), tokens(sum(pieces))
    parts, state = [], layer.init_state(2)
    for part in x.split(pieces, dim=1):
        y, state = layer(part, state=state, return_state=True)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), layer(x), rtol=0, atol=ATOL)
    assert state["position"].tolist() == [sum(pieces)] * 2


def test_single_precision_streams_to_rounding():
    layer, x = layer_of().float(), tokens(30).float()
    state, parts = layer.init_state(2), []
    for t in range(30):
        y, state = layer.step(x[:, t], state)
        parts.append(y)
    torch.testing.assert_close(torch.stack(parts, 1), layer(x), rtol=0, atol=1e-5)


def reach(layer: CausalLaCT, length: int) -> Tensor:
    """Entry (t, s): how much output t changes with token s."""
    x = tokens(length, batch=1).requires_grad_()
    y = layer(x)[0]
    return torch.stack(
        [torch.autograd.grad(y[t].sum(), x, retain_graph=True)[0][0].abs().sum(-1) for t in range(length)]
    )


@pytest.mark.parametrize("window", [4, 6])
def test_every_token_reaches_all_later_ones_and_no_earlier(window):
    found = reach(layer_of(window=window, rule="muon"), 15)
    assert torch.equal(found > 0, torch.ones(15, 15, dtype=torch.bool).tril())


def test_a_forced_short_window_has_a_blind_spot():
    with pytest.warns(
        UserWarning, match="window is 2, shorter than chunk_size=4: tokens in between are seen by nobody"
    ):
        layer = layer_of(window=2, force_window=True)
    # Token 0 has left the window of token 3, and the chunk of both isn't closed yet.
    assert reach(layer, 8)[3, 0] == 0


def test_the_memory_alone_hears_of_a_token_from_the_next_chunk_on():
    layer = layer_of(window=4)
    with torch.no_grad():
        layer.qkv.weight[2 * DIM :] *= 0
        layer.o_proj.weight.copy_(torch.eye(DIM))
    x = tokens(12, batch=1)
    changed = x.clone()
    changed[0, 5] += 1.0
    with torch.no_grad():
        # Values are zero, so that neither branch moves: only the gate of token 5 itself may differ.
        difference = (layer(changed) - layer(x)).abs().sum(-1)[0]
    assert difference[:5].eq(0).all()
    assert difference[6:8].eq(0).all()


@pytest.mark.parametrize("name", sorted(SETTINGS))
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_on_either_side_changes_nothing(name, side):
    layer, x = layer_of(**SETTINGS[name]), tokens(13, batch=3)
    mask = torch.ones(3, 13, dtype=torch.bool)
    if side in ("left", "both"):
        mask[1, :5] = False
    if side in ("right", "both"):
        mask[2, 10:] = False
        mask[1, 12:] = False
    y = layer(x, mask_BL=mask)
    for row in range(3):
        real = mask[row]
        torch.testing.assert_close(y[row, real], layer(x[row : row + 1, real])[0], rtol=0, atol=ATOL)
        assert y[row, ~real].eq(0).all()


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_decoding_after_a_padded_prompt_equals_decoding_alone(name):
    layer, x = layer_of(**SETTINGS[name]), tokens(18)
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[1, :6] = False
    _, state = layer(x[:, :11], mask_BL=mask, return_state=True)
    assert state["position"].tolist() == [11, 5]
    later = []
    for t in range(11, 18):
        y, state = layer.step(x[:, t], state)
        later.append(y)
    got = torch.stack(later, 1)
    torch.testing.assert_close(got[:1], layer(x[:1])[:, 11:], rtol=0, atol=ATOL)
    torch.testing.assert_close(got[1:], layer(x[1:, 6:])[:, 5:], rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_packed_documents_equal_separate_calls(name):
    layer, x = layer_of(**SETTINGS[name]), tokens(17)
    bounds = [0, 3, 11, 17]
    y = layer(x, cu_seqlens=torch.tensor(bounds))
    apart = [layer(x[:, begin:end]) for begin, end in pairwise(bounds)]
    torch.testing.assert_close(y, torch.cat(apart, 1), rtol=0, atol=ATOL)


def test_a_state_survives_a_file_and_is_refused_by_another_layer(tmp_path):
    layer, x = layer_of(), tokens(20)
    _, state = layer(x[:, :9], return_state=True)
    file = state.save(tmp_path / "state.safetensors")
    loaded = LaCTState.load(file, config=layer.config)
    y, _ = layer(x[:, 9:], state=loaded, return_state=True)
    torch.testing.assert_close(y, layer(x)[:, 9:], rtol=0, atol=ATOL)
    with pytest.raises(InputError, match="the state is of another configuration"):
        layer_of(window=7)(x, state=loaded)
    with pytest.raises(InputError, match="another configuration"):
        LaCTState.load(file, config=layer_of(chunk_size=5).config)


def test_forked_states_go_their_own_ways():
    layer, x = layer_of(), tokens(12, batch=3)
    _, state = layer(x[:, :6], return_state=True)
    forked = state.index_select([2, 0, 0])
    order = x[[2, 0, 0]]
    later = torch.cat([order[:2, 6:], x[1:2, 6:]])
    y, _ = layer(later, state=forked, return_state=True)
    torch.testing.assert_close(y, layer(torch.cat([order[:, :6], later], 1))[:, 6:], rtol=0, atol=ATOL)


def test_closing_a_started_chunk_puts_its_tokens_into_the_weights():
    layer, x = layer_of(), tokens(6)
    _, state = layer(x, return_state=True)
    closed = layer.end_of_input(state)
    assert closed["memory.filled"].eq(0).all()
    assert state["memory.filled"].eq(2).all()
    assert not torch.equal(closed["memory.weights.w1"], state["memory.weights.w1"])


def test_state_takes_the_same_memory_at_every_length():
    layer = layer_of()
    state, sizes = layer.init_state(2), set()
    for length in (1, 10, 100, 1000):
        _, state = layer(tokens(length), state=state, return_state=True)
        sizes.add(state.nbytes)
    assert len(sizes) == 1


def test_a_closed_gate_leaves_attention_alone():
    with_memory, alone = layer_of(zero_gate=True), layer_of(memory="none")
    alone.load_state_dict({name: with_memory.state_dict()[name] for name in alone.state_dict()})
    x = tokens(15)
    assert torch.equal(with_memory(x), alone(x))


def test_full_attention_has_no_state_and_sees_everything():
    layer = layer_of(memory="full")
    assert torch.equal(reach(layer, 12) > 0, torch.ones(12, 12, dtype=torch.bool).tril())
    with pytest.raises(InputError, match="no state of constant size"):
        layer.init_state(1)


def test_recomputing_chunks_gives_the_same_gradients():
    x = tokens(13)
    gradients = []
    for recompute in (False, True):
        layer = layer_of(recompute=recompute)
        layer(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in layer.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=ATOL)


def test_a_block_adds_its_mixer_and_its_mlp_to_the_stream():
    torch.manual_seed(0)
    block = LaCTBlock(layer_of(), mlp_dim=12).double()
    x = tokens(9)
    middle = x + block.attn(block.attn_norm(x))
    torch.testing.assert_close(block(x), middle + block.mlp(block.mlp_norm(middle)))
    y, state = block(x[:, :5], return_state=True)
    rest, _ = block(x[:, 5:], state=state, return_state=True)
    torch.testing.assert_close(torch.cat([y, rest], 1), block(x), rtol=0, atol=ATOL)


def test_an_empty_sequence_gives_nothing_and_leaves_the_state():
    layer = layer_of()
    _, state = layer(tokens(5), return_state=True)
    y, after = layer(tokens(0), state=state, return_state=True)
    assert y.shape == (2, 0, DIM)
    assert all(torch.equal(after[name], state[name]) for name in state)


WRONG = {
    "dim is 8; expected a multiple of num_heads=3": {"num_heads": 3},
    "dim is 8; expected a multiple of num_fast_heads=3": {"num_fast_heads": 3},
    "heads of 1 channels; expected an even number": {"num_heads": 8},
    "window is 3, shorter than chunk_size=4; expected a window of at least a chunk": {"window": 3},
    "chunk_size is 0": {"chunk_size": 0},
    "window is 0": {"window": 0, "memory": "none"},
    "memory is 'rwkv'": {"memory": "rwkv"},
    "fast_net is 'mlp'": {"fast_net": "mlp"},
    "base_lr is -1": {"base_lr": -1},
    "base_lr is nan": {"base_lr": math.nan},
    "expand is 0": {"expand": 0},
    "init_rank is 0": {"init_rank": 0},
    "rule is 'adam'": {"rule": "adam"},
}


@pytest.mark.parametrize("message", sorted(WRONG))
def test_wrong_settings_are_refused(message):
    asked = {"num_heads": 2, "num_fast_heads": 2, "window": 4, "chunk_size": 4, **WRONG[message]}
    with pytest.raises(InputError, match=message):
        CausalLaCT(DIM, **asked)


def test_wrong_inputs_are_refused():
    layer = layer_of()
    with pytest.raises(InputError, match=r"x has the shape \(1, 3, 5\); expected \(batch, length, 8\)"):
        layer(torch.zeros(1, 3, 5))
    with pytest.raises(InputError, match="mask_BL is all padding"):
        layer(tokens(3), mask_BL=torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(InputError, match=r"mask_BL is torch\.float64"):
        layer(tokens(3), mask_BL=torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="the state has 1 rows; expected 2"):
        layer(tokens(3), state=layer.init_state(1))
    with pytest.raises(InputError, match=r"the state is torch\.float32 on cpu; expected torch\.float64 on cpu"):
        layer(tokens(3), state=layer.init_state(2).to(dtype=torch.float32))
    with pytest.raises(InputError, match=r"the state is torch\.float64 on meta"):
        layer(tokens(3), state=layer.init_state(2).to("meta"))
    with pytest.raises(InputError, match="cu_seqlens together with a mask or a state"):
        layer(tokens(3), cu_seqlens=torch.tensor([0, 3]), state=layer.init_state(2))


def test_muon_on_chunks_too_small_for_it_warns():
    with pytest.warns(SmallChunkWarning):
        CausalLaCT(64, 2, num_fast_heads=1, window=8, chunk_size=8)


def test_unnamed_states_can_be_cut_from_the_graph():
    layer = layer_of()
    _, after = layer.read(tokens(6), state=layer.start(2))
    assert after.buffer.keys.requires_grad
    cut = after.detach()
    assert not cut.buffer.keys.requires_grad
    assert not cut.memory.weights.w1.requires_grad
    assert isinstance(cut, CausalState)
