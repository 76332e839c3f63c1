"""The chunked memories against loops over tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from assay.core.errors import InputError
from assay.lact.baselines import (
    MEMORIES,
    RecurrentMemory,
    delta_rule,
    gated_linear_attention,
    linear_attention,
    mamba2,
)

ATOL = 1e-10
"""Float64 over some dozens of tokens."""


def inputs(length: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys of length one, values; a gate a token, a gate a channel, a state."""
    draw = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 3, length, 4, generator=draw, dtype=torch.float64)
    v = torch.randn(3, length, 5, generator=draw, dtype=torch.float64)
    gates = torch.rand(3, length, 5, generator=draw, dtype=torch.float64)
    state = torch.randn(3, 5, 4, generator=draw, dtype=torch.float64)
    return q, functional.normalize(k, dim=-1), v, gates[..., 4], gates[..., :4], state


def token_loop(q: Tensor, k: Tensor, v: Tensor, state: Tensor, transition) -> tuple[Tensor, Tensor]:
    """S_t = transition(t, S_{t-1}) and o_t = S_t q_t."""
    outs = []
    for t in range(q.shape[1]):
        state = transition(t, state)
        outs.append(torch.einsum("bvk,bk->bv", state, q[:, t]))
    return torch.stack(outs, 1), state


def outer(v: Tensor, k: Tensor) -> Tensor:
    return v[:, :, None] * k[:, None, :]


FORMS = {
    "linear": (
        lambda q, k, v, beta, decay, state, chunk: linear_attention(q, k, v, state_BVK=state, chunk=chunk),
        lambda q, k, v, beta, decay: lambda t, state: state + outer(v[:, t], k[:, t]),
    ),
    "mamba2": (
        lambda q, k, v, beta, decay, state, chunk: mamba2(q, k, v, -beta, state_BVK=state, chunk=chunk),
        lambda q, k, v, beta, decay: lambda t, state: (-beta[:, t, None, None]).exp() * state + outer(v[:, t], k[:, t]),
    ),
    "gla": (
        lambda q, k, v, beta, decay, state, chunk: gated_linear_attention(
            q, k, v, decay.log(), state_BVK=state, chunk=chunk
        ),
        lambda q, k, v, beta, decay: lambda t, state: state * decay[:, t, None, :] + outer(v[:, t], k[:, t]),
    ),
    "deltanet": (
        lambda q, k, v, beta, decay, state, chunk: delta_rule(q, k, v, beta, state_BVK=state, chunk=chunk),
        lambda q, k, v, beta, decay: (
            lambda t, state: (
                state @ (torch.eye(4, dtype=state.dtype) - beta[:, t, None, None] * outer(k[:, t], k[:, t]))
                + beta[:, t, None, None] * outer(v[:, t], k[:, t])
            )
        ),
    ),
}


@pytest.mark.parametrize("kind", sorted(FORMS))
@settings(deadline=None, max_examples=15)
@given(length=st.integers(1, 40), chunk=st.integers(1, 17))
def test_chunked_form_equals_the_token_loop(kind, length, chunk):
    q, k, v, beta, decay, state = inputs(length)
    chunked, loop = FORMS[kind]
    out, end = chunked(q, k, v, beta, decay, state, chunk)
    expected, expected_end = token_loop(q, k, v, state, loop(q, k, v, beta, decay))
    torch.testing.assert_close(out, expected, rtol=0, atol=ATOL)
    torch.testing.assert_close(end, expected_end, rtol=0, atol=ATOL)


def test_delta_rule_in_single_precision_stays_within_rounding_of_the_loop():
    q, k, v, beta, decay, state = (x.float() for x in inputs(200))
    out, _ = delta_rule(q, k, v, beta, state_BVK=state)
    expected, _ = token_loop(q, k, v, state, FORMS["deltanet"][1](q, k, v, beta, decay))
    torch.testing.assert_close(out, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_memory_is_causal_and_can_be_read_in_pieces(kind):
    torch.manual_seed(0)
    memory = RecurrentMemory(kind, 8, 2, chunk=4).double()
    x, q, k, v = torch.randn(4, 2, 11, 8, dtype=torch.float64)
    k = functional.normalize(k, dim=-1)
    whole, end = memory(x, q, k, v)
    first, state = memory(*(y[:, :6] for y in (x, q, k, v)))
    second, state = memory(*(y[:, 6:] for y in (x, q, k, v)), state=state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=0, atol=ATOL)
    torch.testing.assert_close(state, end, rtol=0, atol=ATOL)


@pytest.mark.parametrize("kind", MEMORIES)
def test_padding_neither_writes_nor_forgets(kind):
    torch.manual_seed(0)
    memory = RecurrentMemory(kind, 8, 2, chunk=4).double()
    x, q, k, v = torch.randn(4, 2, 9, 8, dtype=torch.float64)
    k = functional.normalize(k, dim=-1)
    mask = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    out, state = memory(x, q, k, v, mask_BL=mask)
    alone, alone_state = memory(*(y[1:, :5] for y in (x, q, k, v)))
    torch.testing.assert_close(out[1:, :5], alone, rtol=0, atol=ATOL)
    torch.testing.assert_close(state[2:], alone_state, rtol=0, atol=ATOL)


def test_an_unknown_memory_is_refused():
    with pytest.raises(InputError, match="kind is 'rwkv'; expected one of: linear, gla, deltanet, mamba2"):
        RecurrentMemory("rwkv", 8, 2)
