"""The plain layer: against its definition, in pieces, masked and packed, and what it refuses."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from assay.core.errors import InputError
from assay.lact.fast_weights import FastWeights, Rule
from assay.lact.layers import InitialFastWeights, LaCT, SmallChunkWarning, TokenRates, inverse_softplus, muon_pays_from
from assay.lact.plans import Plan
from assay.lact.reference import reference_lact
from tests.lact.problems import RULES

pytestmark = pytest.mark.filterwarnings("ignore::assay.lact.layers.SmallChunkWarning")


def layer(**settings: object) -> LaCT:
    torch.manual_seed(0)
    made = LaCT(12, 2, **{"mode": "shifted", "chunk_size": 5, "expand": 1.5, **settings}).double()
    with torch.no_grad():
        made.norm.weight.add_(torch.randn(6).double() / 10)
    return made


def tokens(length: int, *, batch: int = 2) -> Tensor:
    return torch.randn(batch, length, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("rule", RULES)
def test_it_is_algorithm_1(rule: Rule) -> None:
    """Head by head, written out with the layer's own parameters."""
    m, x = layer(rule=rule), tokens(17)
    q, k, v = functional.silu(x @ m.qkv.weight.T).chunk(3, -1)
    rates = functional.softplus(x @ m.rates.projection.weight.T + m.rates.projection.bias + m.rates.offset)
    merged = []
    for head in range(2):
        channels = slice(6 * head, 6 * head + 6)
        qh, kh = (one[..., channels] / (one[..., channels].norm(dim=-1, keepdim=True) + 1e-5) for one in (q, k))
        lr = rates[..., [head, 2 + head, 4 + head]]
        w = FastWeights(*(one[head].expand(2, *one.shape[1:]) for one in (m.fast.w0, m.fast.w1, m.fast.w2)))
        beta = None
        if m.beta is not None:
            beta = torch.sigmoid(x @ m.beta.weight[head] + m.beta.bias[head])
        o = reference_lact(qh, kh, v[..., channels], lr, w, chunk_size=5, rule=rule, momentum=beta)
        merged.append(o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt() * m.norm.weight)
    torch.testing.assert_close(m(x), torch.cat(merged, -1) @ m.out.weight.T, atol=1e-9, rtol=0)


@pytest.mark.parametrize("fast_net", ["swiglu", "linear"])
@pytest.mark.parametrize("rule", RULES)
def test_token_after_token_equals_one_shot(rule: Rule, fast_net: str) -> None:
    m, x = layer(rule=rule, fast_net=fast_net, prenorm=True), tokens(17)
    state, answers = m.init_state(2), []
    for token in x.unbind(1):
        answer, state = m.step(token, state)
        answers.append(answer)
    torch.testing.assert_close(torch.stack(answers, 1), m(x), atol=1e-10, rtol=0)


def test_what_was_read_serves_later_queries() -> None:
    m, x = layer(mode="full"), tokens(17)
    together = m(x, Plan.strided([(0, 9)], length=17))
    _, state = m(x[:, :9], return_state=True)
    apart = m(x[:, 9:], Plan.strided([], length=8), state=state)
    torch.testing.assert_close(apart, together[:, 9:], atol=1e-11, rtol=0)


def test_the_order_of_a_set_is_irrelevant() -> None:
    m, x = layer(mode="full"), tokens(17)
    order = torch.randperm(17, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(m(x[:, order]), m(x)[:, order], atol=1e-10, rtol=0)


def test_left_padding_changes_nothing() -> None:
    m, x = layer(), tokens(14)
    padded = torch.cat((tokens(6) * 7, x), 1)
    mask = torch.arange(20).expand(2, -1) >= 6
    torch.testing.assert_close(m(padded, mask=mask)[:, 6:], m(x), atol=1e-10, rtol=0)


def test_packed_documents_read_as_if_apart() -> None:
    m, x = layer(), tokens(20)
    packed = m(x, cu_seqlens=torch.tensor([0, 8, 20]))
    torch.testing.assert_close(packed, torch.cat((m(x[:, :8]), m(x[:, 8:])), 1), atol=1e-10, rtol=0)


def test_recomputation_gives_the_same_gradients() -> None:
    found = []
    for recompute in (False, True):
        m = layer(recompute=recompute)
        m(tokens(17)).square().sum().backward()
        found.append([one.grad for one in m.parameters()])
    for kept, again in zip(*found, strict=True):
        torch.testing.assert_close(again, kept, atol=1e-11, rtol=1e-9)


def test_every_parameter_gets_a_gradient() -> None:
    m = layer(rule="muon_momentum", init_rank=2)
    m(tokens(17)).square().sum().backward()
    assert [name for name, one in m.named_parameters() if one.grad is None or not one.grad.any()] == []


def test_the_end_of_input_brings_the_open_chunk_into_the_weights() -> None:
    m, x = layer(), tokens(7)
    _, state = m(x, return_state=True)
    closed = m.end_of_input(state)
    assert state["filled"].tolist() == [[2, 2], [2, 2]] and not closed["filled"].any()
    assert not torch.equal(closed["weights.w1"], state["weights.w1"])


@pytest.mark.parametrize("value", [1e-3, 0.01, 2.0])
def test_rates_begin_at_base_lr(value: float) -> None:
    assert math.log1p(math.exp(inverse_softplus(value))) == pytest.approx(value)
    rates = TokenRates(4, 3, base_lr=value)
    torch.nn.init.zeros_(rates.projection.weight)
    torch.nn.init.zeros_(rates.projection.bias)
    torch.testing.assert_close(rates(torch.randn(2, 5, 4)), torch.full((6, 5, 3), value))


def test_rates_are_packed_as_asked() -> None:
    x = torch.ones(1, 1, 1)
    for heads_first in (False, True):
        rates = TokenRates(1, 2, base_lr=1.0, heads_first=heads_first)
        with torch.no_grad():
            rates.projection.weight.zero_()
            rates.projection.bias.copy_(torch.arange(6.0))
        order = [[0, 1, 2], [3, 4, 5]] if heads_first else [[0, 2, 4], [1, 3, 5]]
        expected = functional.softplus(torch.tensor(order).float() + inverse_softplus(1.0))
        torch.testing.assert_close(rates(x)[:, 0], expected)


def test_low_rank_weights_are_half_the_identity_and_a_little() -> None:
    torch.manual_seed(0)
    w0, w1, _ = InitialFastWeights(3, key_dim=64, hidden=64, value_dim=64, rank=4)(2)
    assert w0 is not None and w0.shape == w1.shape == (6, 64, 64)
    assert torch.equal(w0[:3], w0[3:])
    rest = w0.detach() - torch.eye(64) / 2
    assert int(torch.linalg.matrix_rank(rest[0], atol=1e-4)) == 4
    assert 0.01 < float(rest.std()) < 0.06


def test_dense_weights_have_unit_rows() -> None:
    torch.manual_seed(0)
    w = InitialFastWeights(2, key_dim=100, hidden=50, value_dim=100, gain=math.sqrt(2))(1)
    assert w.w0 is not None
    assert float(w.w0.detach().std()) == pytest.approx(math.sqrt(2 / 100), rel=0.05)
    assert float(w.w1.detach().std()) == pytest.approx(math.sqrt(2 / 50), rel=0.05)


def test_bfloat16_layers_keep_their_sums_in_float32() -> None:
    m = layer().bfloat16()
    out, state = m(tokens(12).bfloat16(), return_state=True)
    assert out.dtype == torch.bfloat16
    assert {one.dtype for one in state.values() if one.is_floating_point()} == {torch.float32}
    exact = m.double()(tokens(12))
    assert float((out.double() - exact).norm() / exact.norm()) < 0.1


def test_small_chunks_are_warned_of_for_muon_only() -> None:
    assert muon_pays_from(256, 256) == pytest.approx(5 / 3 * 256)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LaCT(64, 1, mode="shifted", chunk_size=16, rule="gd")
        LaCT(64, 1, mode="shifted", chunk_size=128)
        LaCT(64, 1, mode="full", chunk_size=16)
    with pytest.warns(SmallChunkWarning, match="chunks of 16 tokens: .* below 107 for heads of 64"):
        LaCT(64, 1, mode="shifted", chunk_size=16)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 10, "num_heads": 3}, "dim is 10; expected a multiple of num_heads, 3"),
        ({"num_heads": 0}, "num_heads 0"),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"chunk_size": 0}, "chunk_size is 0"),
        ({"rule": "adam"}, "rule is 'adam'"),
        ({"ns": "cubic"}, "ns is 'cubic'"),
        ({"mode": "causal"}, "mode is 'causal'"),
        ({"fast_net": "mlp"}, "fast_net is 'mlp'"),
        ({"base_lr": -1.0}, "base_lr is -1.0"),
        ({"base_lr": math.nan}, "base_lr is nan"),
        ({"init_rank": 0}, "init_rank is 0"),
        ({"expand": 0.01}, "expand is 0.01"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LaCT(**{"dim": 12, "num_heads": 2, **settings})


def test_bad_calls_are_refused() -> None:
    m, x = layer(), tokens(9)
    with pytest.raises(InputError, match=r"x has the shape \(2, 9, 6\); expected \(batch, length, 12\)"):
        m(x[..., :6])
    with pytest.raises(InputError, match="another configuration"):
        m(x, state=layer(chunk_size=6).init_state(2))
    with pytest.raises(InputError, match="for 6 rows"):
        m(x, state=m.init_state(3))
    with pytest.raises(InputError, match="mode is 'full'; expected shifted"):
        layer(mode="full").step(x[:, 0], m.init_state(2))
