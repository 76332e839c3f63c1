"""The whole of the mathematics: causality, prefixes, streaming, packing, padding, gradients."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.fast_weights import FastState, FastWeights, Rule, fast_weight_apply, fast_weight_update, start
from assay.lact.functional import lact
from assay.lact.plans import Plan, Segment
from assay.lact.reference import reference_lact
from assay.lact.streaming import Piece, Reading, Stream, end_of_input
from tests.lact.problems import RULES, Problem, betas, problem

CHUNK = 8
every_rule = pytest.mark.parametrize("rule", RULES)


def read(p: Problem, **settings: object) -> Tensor:
    return lact(*p, **{"chunk_size": CHUNK, **settings})


def read_pieces(p: Problem, cuts: list[int], *, momentum: Tensor | None, **settings: object) -> Tensor:
    state: FastState | None = None
    answers = []
    for begin, end in pairwise([0, *cuts, p.q.shape[1]]):
        answer, state = lact(
            *p.tokens(slice(begin, end)),
            momentum=None if momentum is None else momentum[:, begin:end],
            state=state,
            return_state=True,
            **{"chunk_size": CHUNK, **settings},
        )
        answers.append(answer)
    return torch.cat(answers, 1)


@pytest.mark.parametrize("ns", ["keller", "tuned"])
@pytest.mark.parametrize("prenorm", [False, True])
@every_rule
def test_equals_the_reference(rule: Rule, prenorm: bool, ns: str) -> None:
    p = problem(37)
    given = {"rule": rule, "momentum": betas(rule, p), "prenorm": prenorm, "ns": ns}
    torch.testing.assert_close(read(p, **given), reference_lact(*p, chunk_size=CHUNK, **given), atol=1e-10, rtol=0)


@pytest.mark.parametrize("chunk_size", [1, 5, 8, 37, 100])
def test_the_shifted_mode_is_its_plan(chunk_size: int) -> None:
    p = problem(37)
    planned = read(p, plan=Plan.shifted(37, chunk_size=chunk_size))
    torch.testing.assert_close(read(p, chunk_size=chunk_size), planned, atol=1e-10, rtol=0)


@every_rule
def test_full_is_one_step_and_then_all_ask(rule: Rule) -> None:
    p = problem(13)
    beta = betas(rule, p)
    state = fast_weight_update(start(p.w_init, rule=rule), p.k, p.v, p.lr, momentum=beta, rule=rule)
    expected = fast_weight_apply(state.weights, p.q)
    torch.testing.assert_close(read(p, mode="full", rule=rule, momentum=beta), expected, atol=1e-12, rtol=0)


def test_an_answer_depends_on_its_query_and_on_earlier_chunks_only() -> None:
    p = problem(30)
    expected = read(p)
    for token in range(30):
        changed = [one.clone() for one in p[:4]]
        for one in changed[1:]:
            one[:, token] += 0.5
        difference = (read(Problem(*changed, p.w_init)) - expected).abs().amax((0, 2))
        next_chunk = (token // CHUNK + 1) * CHUNK
        assert not difference[:next_chunk].any()
        assert (difference[next_chunk:] > 1e-9).all()
        asked = p.q.clone()
        asked[:, token] += 0.5
        moved = (read(p._replace(q=asked)) - expected).abs().amax((0, 2)) > 0
        assert moved.nonzero().flatten().tolist() == [token]


@every_rule
def test_a_prefix_reads_as_it_does_in_the_whole(rule: Rule) -> None:
    p = problem(27)
    beta = betas(rule, p)
    whole = read(p, rule=rule, momentum=beta)
    for length in range(1, 28):
        prefix = read(p.tokens(slice(length)), rule=rule, momentum=None if beta is None else beta[:, :length])
        torch.testing.assert_close(prefix, whole[:, :length], atol=1e-10, rtol=0)


@pytest.mark.parametrize("prenorm", [False, True])
@every_rule
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 37), max_size=8))
def test_any_split_reads_as_the_whole(rule: Rule, prenorm: bool, cuts: list[int]) -> None:
    p = problem(37)
    beta = betas(rule, p)
    whole = read(p, rule=rule, momentum=beta, prenorm=prenorm)
    pieces = read_pieces(p, sorted(cuts), momentum=beta, rule=rule, prenorm=prenorm)
    torch.testing.assert_close(pieces, whole, atol=1e-10, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 7, CHUNK, CHUNK + 1])
@pytest.mark.parametrize("linear", [False, True], ids=["swiglu", "linear"])
def test_equal_pieces_read_as_the_whole_in_float32(size: int, linear: bool) -> None:
    p = problem(37, dtype=torch.float32, linear=linear)
    pieces = read_pieces(p, list(range(size, 37, size)), momentum=None)
    torch.testing.assert_close(pieces, read(p), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("flush_every", [1, 3, 5, 100])
@every_rule
def test_a_stream_answers_alike_however_often_it_flushes(rule: Rule, flush_every: int) -> None:
    p = problem(37)
    beta = betas(rule, p)
    stream = Stream(start(p.w_init, rule=rule), Reading(CHUNK, rule), flush_every=flush_every)
    answers = []
    for begin, end in pairwise([0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 20, *range(21, 38)]):
        momentum = None if beta is None else beta[:, begin:end]
        answers.append(stream.feed(Piece(*p.tokens(slice(begin, end))[:4], momentum)))
    expected, state = read(p, rule=rule, momentum=beta, return_state=True)
    torch.testing.assert_close(torch.cat(answers, 1), expected, atol=1e-10, rtol=0)
    for ours, theirs in zip(stream.state.pending, state.pending, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)
    stream.end_of_input()
    closed = end_of_input(state, Reading(CHUNK, rule))
    torch.testing.assert_close(stream.state.weights.w1, closed.weights.w1, atol=1e-10, rtol=0)


def test_the_end_of_input_takes_the_mean_over_the_tokens_that_are_there() -> None:
    p = problem(5)
    beta = betas("momentum", p)
    _, state = read(p, rule="momentum", momentum=beta, return_state=True)
    closed = end_of_input(state, Reading(CHUNK, "momentum"))
    expected = fast_weight_update(start(p.w_init, rule="momentum"), p.k, p.v, p.lr, momentum=beta, rule="momentum")
    torch.testing.assert_close(closed.weights.w0, expected.weights.w0)
    assert not closed.filled.any() and not closed.beta_sum.any()


def test_without_norms_and_with_zero_weights_it_is_chunked_linear_attention() -> None:
    p = problem(29, linear=True)
    rates = torch.full_like(p.lr, 0.3)
    zero = FastWeights(None, torch.zeros_like(p.w_init.w1), None)
    found = lact(p.q, p.k, p.v, rates, zero, chunk_size=CHUNK, rule="gd", weight_norm=False)
    for t in range(29):
        seen = slice(0, t // CHUNK * CHUNK)
        scores = torch.einsum("bd,bjd->bj", p.q[:, t], p.k[:, seen])
        expected = 0.3 * torch.einsum("bj,bjo->bo", scores, p.v[:, seen])
        torch.testing.assert_close(found[:, t], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("mode", ["shifted", "block", "full"])
def test_packed_documents_read_as_if_apart(mode: str) -> None:
    p = problem(31)
    bounds = torch.tensor([0, 3, 3, 20, 31])
    packed, state = read(p, cu_seqlens=bounds, mode=mode, return_state=True)
    apart = [read(p.tokens(slice(a, b)), mode=mode, return_state=True) for a, b in ((0, 3), (3, 20), (20, 31))]
    torch.testing.assert_close(packed, torch.cat([answers for answers, _ in apart], 1), atol=1e-12, rtol=0)
    torch.testing.assert_close(state.weights.w1, apart[-1][1].weights.w1, atol=1e-12, rtol=0)


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("mode", ["shifted", "block", "full"])
@every_rule
def test_padded_rows_read_as_if_alone(rule: Rule, mode: str, side: str) -> None:
    p = problem(21, rows=3)
    beta = betas(rule, p)
    lengths = (21, 16, 5)
    mask = torch.zeros(3, 21, dtype=torch.bool)
    for row, length in enumerate(lengths):
        begin = {"left": 21 - length, "right": 0, "both": (21 - length) // 2}[side]
        mask[row, begin : begin + length] = True
    found, state = read(p, mask=mask, rule=rule, momentum=beta, mode=mode, return_state=True)
    assert not found[~mask].any()
    for row in range(3):
        kept = [one[row : row + 1, mask[row]] for one in p[:4]]
        alone, alone_state = lact(
            *kept,
            p.w_init.map(lambda w, row=row: w[row : row + 1]),
            rule=rule,
            momentum=None if beta is None else beta[row : row + 1, mask[row]],
            mode=mode,
            chunk_size=CHUNK,
            return_state=True,
        )
        torch.testing.assert_close(found[row : row + 1, mask[row]], alone, atol=1e-10, rtol=0)
        torch.testing.assert_close(state.weights.w0[row], alone_state.weights.w0[0], atol=1e-10, rtol=0)
        assert int(state.filled[row]) == int(alone_state.filled[0])


def test_padded_rows_go_on_streaming_as_if_alone() -> None:
    p = problem(40, rows=2)
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[1, :6] = False
    whole = read(p, mask=mask, rule="muon")
    state, answers = None, []
    for begin, end in pairwise([0, 11, 12, 13, 29, 40]):
        part = p.tokens(slice(begin, end))
        answer, state = read(part, mask=mask[:, begin:end], state=state, return_state=True)
        answers.append(answer)
    torch.testing.assert_close(torch.cat(answers, 1), whole, atol=1e-10, rtol=0)


def test_a_plan_applies_and_updates_as_it_says() -> None:
    p = problem(12)
    plan = Plan([Segment(0, 4, apply=False), Segment(6, 12, update=False), Segment(4, 6, order="apply_first")])
    found = read(p, plan=plan)
    state = fast_weight_update(start(p.w_init), p.k[:, :4], p.v[:, :4], p.lr[:, :4])
    torch.testing.assert_close(found[:, 4:], fast_weight_apply(state.weights, p.q[:, 4:]), atol=1e-12, rtol=0)
    assert not found[:, :4].any()


def test_reading_and_asking_apart_equals_both_at_once() -> None:
    p = problem(20)
    together = read(p, plan=Plan.strided([(0, 12)], length=20))
    _, state = read(p.tokens(slice(0, 12)), mode="full", return_state=True)
    asked = read(p.tokens(slice(12, 20)), plan=Plan.strided([], length=8), state=state)
    torch.testing.assert_close(together[:, 12:], asked, atol=1e-12, rtol=0)


@pytest.mark.parametrize("prenorm", [False, True])
@every_rule
def test_gradients_through_two_chunks_equal_finite_differences(rule: Rule, prenorm: bool) -> None:
    p = problem(5, rows=1, key_dim=2, hidden=3, value_dim=2)
    beta = betas(rule, p)
    leaves = [one.clone().requires_grad_() for one in (*p[:4], *p.w_init, *(() if beta is None else (beta,)))]

    def answers(*given: Tensor) -> Tensor:
        momentum = given[7] if beta is not None else None
        weights = FastWeights(*given[4:7])
        return lact(*given[:4], weights, chunk_size=2, rule=rule, momentum=momentum, prenorm=prenorm)

    assert torch.autograd.gradcheck(answers, leaves, atol=1e-6)


@every_rule
def test_recomputed_chunks_have_the_same_gradients(rule: Rule) -> None:
    p = problem(21)
    beta = betas(rule, p)
    found = []
    for recompute in (False, True):
        leaves = [one.clone().requires_grad_() for one in (*p[:4], *p.w_init)]
        answers = lact(
            *leaves[:4],
            FastWeights(*leaves[4:]),
            chunk_size=CHUNK,
            rule=rule,
            momentum=beta,
            recompute=recompute,
        )
        found.append(torch.autograd.grad(answers.square().sum(), leaves))
    for kept, again in zip(*found, strict=True):
        torch.testing.assert_close(again, kept, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("what", ["zero keys", "constant inputs", "zero rates"])
@every_rule
def test_gradients_of_degenerate_inputs_are_finite(rule: Rule, what: str) -> None:
    p = problem(20)
    if what == "zero keys":
        p = p._replace(k=torch.zeros_like(p.k))
    elif what == "constant inputs":
        p = p._replace(q=torch.ones_like(p.q), k=torch.ones_like(p.k), v=torch.ones_like(p.v))
    else:
        p = p._replace(lr=torch.zeros_like(p.lr))
    leaves = [one.clone().requires_grad_() for one in (*p[:4], *p.w_init)]
    answers = lact(*leaves[:4], FastWeights(*leaves[4:]), chunk_size=CHUNK, rule=rule, momentum=betas(rule, p))
    for gradient in torch.autograd.grad(answers.sum(), leaves):
        assert torch.isfinite(gradient).all()


def test_the_norm_may_be_cut_from_the_graph() -> None:
    p = problem(12)
    gradients = []
    for detach_norm in (False, True):
        w1 = p.w_init.w1.clone().requires_grad_()
        answers = read(p._replace(w_init=p.w_init._replace(w1=w1)), detach_norm=detach_norm)
        gradients.append(torch.autograd.grad(answers[:, CHUNK:].sum(), w1)[0])
    assert float((gradients[0] - gradients[1]).abs().max()) > 1e-3


def test_the_state_has_one_size_from_a_thousand_to_a_million_tokens() -> None:
    features = problem(4096, rows=1, key_dim=4, hidden=4, value_dim=4, dtype=torch.float32)
    sizes, state, fed = {}, None, 0
    for target in (1024, 4096, 65_536, 1_048_576):
        while fed < target:
            part = features.tokens(slice(0, min(4096, target - fed)))
            _, state = lact(*part, chunk_size=2048, state=state, return_state=True)
            fed += part.q.shape[1]
        assert state is not None
        sizes[fed] = state.nbytes
    assert list(sizes) == [1024, 4096, 65_536, 1_048_576]
    assert len(set(sizes.values())) == 1


def test_an_empty_sequence_leaves_the_state_as_it_is() -> None:
    p = problem(11)
    _, state = read(p, return_state=True)
    for settings_ in ({"mode": "shifted"}, {"mode": "full"}):
        answers, after = read(p.tokens(slice(0, 0)), state=state, return_state=True, **settings_)
        assert answers.shape == (2, 0, 6)
        assert after is state


def test_an_earlier_state_stays_as_it_was() -> None:
    p = problem(30)
    _, state = read(p.tokens(slice(0, 11)), return_state=True)
    kept = state.map(Tensor.clone)
    read(p.tokens(slice(11, 30)), state=state, return_state=True)
    for ours, theirs in zip(state.pending, kept.pending, strict=True):
        assert torch.equal(ours, theirs)


BAD = {
    "negative rates": ({"lr": torch.full((2, 9, 3), -0.1).double()}, "lr has negative rates or NaN"),
    "NaN rates": ({"lr": torch.full((2, 9, 3), float("nan")).double()}, "lr has negative rates or NaN"),
    "two rates": ({"lr": torch.ones(2, 9, 2).double()}, r"lr has the shape \(2, 9, 2\); expected \(2, 9, 3\)"),
    "other keys": ({"k": torch.ones(2, 9, 4).double()}, "q, k, v have the shapes"),
    "no chunk": ({"chunk_size": 0}, "chunk_size is 0; expected at least 1"),
    "unknown mode": ({"mode": "causal"}, "mode is 'causal'"),
    "unknown rule": ({"rule": "adam"}, "rule is 'adam'"),
    "missing momentum": ({"rule": "momentum"}, "momentum is not given"),
    "useless momentum": ({"momentum": torch.ones(2, 9).double()}, "momentum is given"),
    "all padding": ({"mask": torch.zeros(2, 9, dtype=torch.bool)}, "mask is all padding"),
    "mask of numbers": ({"mask": torch.zeros(2, 9)}, "mask is torch.float32"),
    "long plan": ({"plan": Plan.full(10)}, "the plan ends at 10; expected at most the 9 tokens given"),
    "packing beyond": ({"cu_seqlens": torch.tensor([0, 10])}, r"cu_seqlens is \[0, 10\]"),
    "packed and masked": (
        {"cu_seqlens": torch.tensor([0, 9]), "mask": torch.ones(2, 9, dtype=torch.bool)},
        "cu_seqlens together with",
    ),
    "no weights": ({"w_init": None}, "neither w_init nor state"),
    "other rows": ({"w_init": problem(1, rows=3).w_init}, "the fast weights are for 3 rows"),
    "lower dtype": ({"w_init": problem(1, dtype=torch.float32).w_init}, "expected at least the input's torch.float64"),
    "other rule": ({"state": start(problem(1).w_init, rule="momentum")}, "the state is of another rule"),
    "other device": (
        {"state": start(problem(1).w_init).map(lambda one: one.to("meta") if one.is_floating_point() else one)},
        "the fast weights are on meta; expected the device of the input, cpu",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
def test_what_is_wrong_is_said(name: str) -> None:
    changes, message = BAD[name]
    p = problem(9)
    given = {**p._asdict(), "chunk_size": CHUNK, **changes}
    with pytest.raises(InputError, match=message):
        lact(given.pop("q"), given.pop("k"), given.pop("v"), given.pop("lr"), given.pop("w_init"), **given)


def test_an_open_chunk_is_not_given_to_a_plan() -> None:
    p = problem(9)
    _, state = read(p, return_state=True)
    with pytest.raises(InputError, match="the state has an open chunk"):
        read(p, mode="full", state=state)
