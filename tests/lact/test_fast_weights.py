"""Gradients against autograd, steps by hand, and what a step leaves as it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.fast_weights import (
    FastWeights,
    Rule,
    accumulate,
    close,
    fast_weight_apply,
    fast_weight_grads,
    fast_weight_update,
    start,
)
from assay.lact.reference import reference_newton_schulz
from tests.lact.problems import RULES, Problem, betas, problem


def by_autograd(p: Problem) -> FastWeights:
    """The gradient of the loss, rated per matrix and token, with the sign turned."""
    found = []
    for index, matrix in enumerate(p.w_init):
        if matrix is None:
            found.append(None)
            continue
        leaf = matrix.clone().requires_grad_()
        weights = p.w_init._replace(**{f"w{index}": leaf})
        loss = -(p.lr[..., index] * (network(weights, p.k) * p.v).sum(-1)).sum()
        found.append(-torch.autograd.grad(loss, leaf)[0])
    return FastWeights(*found)


def network(weights: FastWeights, x: Tensor) -> Tensor:
    w0, w1, w2 = weights
    if w0 is None or w2 is None:
        return torch.einsum("boh,blh->blo", w1, x)
    gate = torch.einsum("bhd,bld->blh", w0, x)
    hidden = gate / (1 + torch.exp(-gate)) * torch.einsum("bhd,bld->blh", w2, x)
    return torch.einsum("boh,blh->blo", w1, hidden)


def assert_close(found: FastWeights, expected: FastWeights, *, atol: float) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)


@pytest.mark.parametrize("linear", [False, True], ids=["swiglu", "linear"])
@pytest.mark.parametrize("graph", [False, True], ids=["in-place", "graph"])
def test_gradients_equal_autograd(linear: bool, graph: bool) -> None:
    p = problem(11, linear=linear)
    keys = p.k.clone().requires_grad_(graph)
    found = fast_weight_grads(p.w_init, keys, p.v, p.lr)
    assert_close(found.map(Tensor.detach), by_autograd(p), atol=1e-12)


def test_gradients_of_the_linear_memory_are_outer_products() -> None:
    p = problem(6, linear=True)
    expected = torch.einsum("bl,blo,bld->bod", p.lr[..., 1], p.v, p.k)
    torch.testing.assert_close(fast_weight_grads(p.w_init, p.k, p.v, p.lr).w1, expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("length", [1, 700])
def test_blocks_in_place_compute_what_the_graph_does(length: int) -> None:
    p = problem(length, rows=3, key_dim=8, hidden=4, value_dim=9)
    asked = p.q.clone().requires_grad_()
    torch.testing.assert_close(fast_weight_apply(p.w_init, p.q), fast_weight_apply(p.w_init, asked).detach())
    with_graph = fast_weight_grads(p.w_init, p.k.clone().requires_grad_(), p.v, p.lr)
    assert_close(fast_weight_grads(p.w_init, p.k, p.v, p.lr), with_graph.map(Tensor.detach), atol=1e-11)


def test_blocks_leave_their_inputs_alone() -> None:
    p = problem(20)
    copies = [one.clone() for one in p[:4]]
    fast_weight_apply(p.w_init, p.q)
    fast_weight_grads(p.w_init, p.k, p.v, p.lr)
    assert all(torch.equal(one, copy) for one, copy in zip(p[:4], copies, strict=True))


def test_two_tokens_in_closed_form() -> None:
    """One channel, one hidden unit, written out."""
    weights = FastWeights(*(torch.full((1, 1, 1), value, dtype=torch.float64) for value in (0.5, 2.0, -1.5)))
    k, v = (torch.tensor([[[a], [b]]], dtype=torch.float64) for a, b in ((1.0, -2.0), (0.3, 0.7)))
    lr = torch.tensor([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]], dtype=torch.float64)
    expected = [0.0, 0.0, 0.0]
    for key, value, (e0, e1, e2) in zip(k[0, :, 0], v[0, :, 0], lr[0], strict=True):
        z, u, back = 0.5 * key, -1.5 * key, 2.0 * value
        sigma = 1 / (1 + torch.exp(-z))
        expected[0] += e0 * back * u * sigma * (1 + z * (1 - sigma)) * key
        expected[1] += e1 * value * z * sigma * u
        expected[2] += e2 * back * z * sigma * key
    found = fast_weight_grads(weights, k, v, lr)
    torch.testing.assert_close(torch.stack([one.squeeze() for one in found]), torch.stack(expected))


@pytest.mark.parametrize("rule", RULES)
def test_a_step_is_what_it_is_by_hand(rule: Rule) -> None:
    p = problem(9)
    beta = betas(rule, p)
    first = fast_weight_update(start(p.w_init, rule=rule), p.k, p.v, p.lr, momentum=beta, rule=rule)
    second = fast_weight_update(first, p.k, p.v, p.lr, momentum=beta, rule=rule)
    weights, moment = p.w_init, [torch.zeros_like(one) for one in p.w_init]
    for after in (first, second):
        step = list(by_autograd(p._replace(w_init=weights)))
        if beta is not None:
            share = beta.mean(1)[:, None, None]
            step = moment = [share * m + g for m, g in zip(moment, step, strict=True)]
        if rule.startswith("muon"):
            step = [reference_newton_schulz(one) for one in step]
        weights = FastWeights(
            *(
                (w + d) / ((w + d).norm(dim=2, keepdim=True) + 1e-5) * w_init.norm(dim=2, keepdim=True)
                for w, d, w_init in zip(weights, step, p.w_init, strict=True)
            )
        )
        assert_close(after.weights, weights, atol=1e-11)


@pytest.mark.parametrize("rule", ["gd", "muon"])
def test_rates_of_zero_change_nothing_but_by_the_floor_of_the_norm(rule: Rule) -> None:
    p = problem(9)
    after = fast_weight_update(start(p.w_init), p.k, p.v, torch.zeros_like(p.lr), rule=rule)
    for now, before in zip(after.weights, p.w_init, strict=True):
        bound = 1.0001 * 1e-5 / before.norm(dim=2, keepdim=True) * before.abs()
        assert ((now - before).abs() <= bound + 1e-15).all()


@pytest.mark.parametrize("prenorm", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_rows_keep_their_norms(rule: Rule, prenorm: bool) -> None:
    p = problem(9)
    state = start(p.w_init, rule=rule, prenorm=prenorm)
    for _ in range(12):
        state = fast_weight_update(state, p.k, p.v, p.lr, momentum=betas(rule, p), rule=rule, prenorm=prenorm)
    for now, before in zip(state.weights, p.w_init, strict=True):
        torch.testing.assert_close(
            now.norm(dim=2) / before.norm(dim=2), torch.ones_like(now[..., 0]), atol=1e-5, rtol=0
        )


def test_the_unnormalised_copy_is_the_sum_of_the_steps() -> None:
    p = problem(9)
    first = fast_weight_update(start(p.w_init, prenorm=True, rule="gd"), p.k, p.v, p.lr, rule="gd", prenorm=True)
    second = fast_weight_update(first, p.k, p.v, p.lr, rule="gd", prenorm=True)
    grads = [fast_weight_grads(one, p.k, p.v, p.lr) for one in (p.w_init, first.weights)]
    expected = p.w_init.map(lambda w, a, b: w + a + b, *grads)
    assert second.main is not None
    assert_close(second.main, expected, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_tokens_of_a_chunk_may_be_permuted(rule: Rule) -> None:
    p = problem(9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    beta = betas(rule, p)
    shuffled = p.tokens(order)
    before = fast_weight_update(start(p.w_init, rule=rule), p.k, p.v, p.lr, momentum=beta, rule=rule)
    after = fast_weight_update(
        start(p.w_init, rule=rule),
        shuffled.k,
        shuffled.v,
        shuffled.lr,
        momentum=None if beta is None else beta[:, order],
        rule=rule,
    )
    torch.testing.assert_close(
        fast_weight_apply(after.weights, p.q), fast_weight_apply(before.weights, p.q), atol=1e-12, rtol=0
    )


def test_the_size_of_the_rates_matters_to_gd_and_not_to_muon() -> None:
    p = problem(20)
    change = {}
    for rule in ("muon", "gd"):
        one, thousand = (
            fast_weight_apply(fast_weight_update(start(p.w_init), p.k, p.v, rates, rule=rule).weights, p.q)
            for rates in (p.lr, 1000 * p.lr)
        )
        change[rule] = float((one - thousand).norm() / one.norm())
    assert change["muon"] < 1e-3 < 0.05 < change["gd"]


def test_a_chunk_without_tokens_is_not_closed() -> None:
    p = problem(4)
    state = start(p.w_init, rule="momentum")
    assert close(state, rule="momentum") is state


def test_sums_are_kept_in_float32_where_products_are_in_bfloat16() -> None:
    p = problem(40, dtype=torch.float32)
    state = start(p.w_init)
    q, k, v = (one.bfloat16() for one in p[:3])
    state = accumulate(state, k, v, p.lr)
    state = close(state, rule="muon")
    assert {one.dtype for one in (*state.weights, *state.norms, state.beta_sum)} == {torch.float32}
    answers = fast_weight_apply(state.weights, q)
    assert answers.dtype == torch.bfloat16
    exact = fast_weight_update(start(p.w_init), p.k, p.v, p.lr)
    error = (answers.float() - fast_weight_apply(exact.weights, p.q)).norm() / answers.float().norm()
    assert float(error) < 0.1


def test_what_does_not_fit_is_refused() -> None:
    p = problem(4)
    with pytest.raises(InputError, match="rule is 'adam'"):
        start(p.w_init, rule="adam")
    with pytest.raises(InputError, match="both, or neither"):
        start(p.w_init._replace(w2=None))
    with pytest.raises(InputError, match="have the shapes"):
        start(p.w_init._replace(w1=p.w_init.w1[:, :, :3]))
