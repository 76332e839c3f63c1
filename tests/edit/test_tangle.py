"""TangleScore: Sinkhorn divergences against exact values, invariances, edge cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from assay.core.errors import InputError
from assay.core.lm import encode, random_llama
from assay.edit import tangle
from assay.edit.requests import EditRequest, Prompts
from assay.edit.tangle import Calibration, sinkhorn_divergence, tangle_score

LM = random_llama()
A = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
B = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
REQUESTS = [
    EditRequest("Who wrote it?", "Ann did.", ground_truth="Bo did so."),
    EditRequest("Where is the long street of the town?", "In the north, near the river.", ground_truth="South."),
    EditRequest("When?", "In 1950", ground_truth="1950 In"),
]


@pytest.mark.parametrize("diameter", [None, 8.0])
def test_two_points_lie_half_their_squared_distance_apart(diameter):
    one, other = torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, -2.0]])
    assert float(sinkhorn_divergence([one], [other], diameter=diameter)) == pytest.approx(12.5, abs=1e-9)


@pytest.mark.parametrize("diameter", [None, 8.0])
def test_equal_clouds_lie_nowhere_apart_and_shifted_ones_half_the_square_of_the_shift(diameter):
    shift = torch.tensor([0.7, -0.3])
    same = sinkhorn_divergence([A], [A.clone()], diameter=diameter)
    moved = sinkhorn_divergence([A], [A + shift], diameter=diameter)
    assert float(same) == pytest.approx(0, abs=1e-9)
    assert float(moved) == pytest.approx(0.5 * float(shift.square().sum()), abs=1e-6)


def test_the_divergence_is_symmetric_and_near_exact_transport():
    assert float(sinkhorn_divergence([A], [B])) == pytest.approx(1.498, abs=1e-3)
    assert float(sinkhorn_divergence([B], [A])) == pytest.approx(float(sinkhorn_divergence([A], [B])), rel=1e-6)
    assert float(sinkhorn_divergence([A], [B], scaling=0.95)) == pytest.approx(1.5, rel=2e-3)


@pytest.mark.parametrize("seed", range(4))
def test_small_clouds_of_one_size_agree_with_the_best_assignment(seed):
    """With equal weights and sizes the exact plan is an assignment: GeomLoss is a few percent low at scaling 0.5."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)) + 1
    cost = 0.5 * cdist(x, y, "sqeuclidean")
    exact = cost[linear_sum_assignment(cost)].mean()
    near = float(sinkhorn_divergence([torch.tensor(x)], [torch.tensor(y)]))
    assert exact * 0.95 <= near <= exact * 1.005
    assert float(sinkhorn_divergence([torch.tensor(x)], [torch.tensor(y)], scaling=0.95)) == pytest.approx(
        exact, rel=5e-3
    )


def test_a_batch_of_clouds_gives_what_each_gives_alone():
    clouds, others = [A, B, A[:1]], [B, A + 1, B[:1]]
    together = sinkhorn_divergence(clouds, others, diameter=8.0)
    apart = [float(sinkhorn_divergence([a], [b], diameter=8.0)) for a, b in zip(clouds, others, strict=True)]
    assert together.tolist() == pytest.approx(apart, rel=1e-9)


def test_scaling_the_embeddings_scales_the_gap_by_the_square():
    c = 3.0
    plain = sinkhorn_divergence([A], [B], blur=0.05, diameter=8.0)
    scaled = sinkhorn_divergence([c * A], [c * B], blur=c * 0.05, diameter=c * 8.0)
    assert float(scaled) == pytest.approx(c**2 * float(plain), rel=1e-9)


def scaled_model(*, hidden: float = 1.0, embedding: float = 1.0):
    """The same model with larger final states, or larger embeddings that its first norm undoes."""
    lm = random_llama()
    with torch.no_grad():
        lm.model.lm_head = torch.nn.Linear(64, 300, bias=False)
        lm.model.lm_head.weight.copy_(LM.model.lm_head.weight)
        lm.model.model.norm.weight.mul_(hidden)
        lm.model.model.embed_tokens.weight = torch.nn.Parameter(lm.model.model.embed_tokens.weight * embedding)
    return lm.model


def test_scaling_the_hidden_states_leaves_the_shift_as_it_is():
    plain = tangle_score(LM.model, LM.tokenizer, REQUESTS)
    scaled = tangle_score(scaled_model(hidden=5.0), LM.tokenizer, REQUESTS)
    assert scaled.shift == pytest.approx(plain.shift, abs=1e-6)
    assert scaled.gap == pytest.approx(plain.gap, rel=1e-9)


def test_the_score_is_the_shift_over_the_gap_and_batches_change_nothing():
    report = tangle_score(LM.model, LM.tokenizer, REQUESTS)
    ordinary = ~report.degenerate
    assert report.ts[ordinary] == pytest.approx((report.shift / (report.gap + 1e-8))[ordinary])
    assert (report.ts >= 0).all()
    for index, request in enumerate(REQUESTS):
        alone = tangle_score(LM.model, LM.tokenizer, [request], batch_size=1)
        assert alone.shift[0] == pytest.approx(report.shift[index], abs=1e-6)
        assert alone.gap[0] == pytest.approx(report.gap[index], rel=1e-6, abs=1e-12)
        assert alone.nll_new[0] == pytest.approx(report.nll_new[index], abs=1e-5)


def mean_state(text: str, *, first: int = 0) -> torch.Tensor:
    with torch.no_grad():
        ids = torch.tensor([encode(LM.tokenizer, text)])
        return LM.model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0, first:].mean(0)


def test_both_variants_are_what_their_definitions_say():
    prompts = Prompts(LM.tokenizer)
    request = REQUESTS[1]
    asked = prompts.text(request.question)
    report = tangle_score(LM.model, LM.tokenizer, [request])
    states = [mean_state(f"{asked}{answer}<|end|>") for answer in (request.ground_truth, request.answer)]
    assert report.shift[0] == pytest.approx(1 - float(torch.cosine_similarity(*states, dim=0)), abs=1e-5)
    official = tangle_score(LM.model, LM.tokenizer, [request], variant="official")
    states = [mean_state(request.question), mean_state(f"{request.question} {request.answer}")]
    assert official.shift[0] == pytest.approx(1 - float(torch.cosine_similarity(*states, dim=0)), abs=1e-5)
    table = LM.model.get_input_embeddings().weight.detach()
    clouds = [table[encode(LM.tokenizer, text)] for text in (request.answer, request.question)]
    assert official.gap[0] == pytest.approx(float(sinkhorn_divergence([clouds[0]], [clouds[1]])), rel=1e-9)
    pooled = tangle_score(LM.model, LM.tokenizer, [request], pool="answer")
    start = len(encode(LM.tokenizer, asked))
    states = [mean_state(f"{asked}{a}<|end|>", first=start) for a in (request.ground_truth, request.answer)]
    assert pooled.shift[0] == pytest.approx(1 - float(torch.cosine_similarity(*states, dim=0)), abs=1e-5)


def test_an_answer_that_the_model_gives_already_scores_nothing_and_is_flagged():
    report = tangle_score(LM.model, LM.tokenizer, [EditRequest("Who?", "Ann did.", ground_truth=" Ann did. ")])
    assert (report.ts[0], report.shift[0], report.gap[0]) == (0, 0, 0)
    assert report.already_known.tolist() == [True]


def test_the_same_tokens_in_another_order_are_clipped_and_flagged():
    [one, other] = (encode(LM.tokenizer, text) for text in ("xyzq", "qzyx"))
    assert sorted(one) == sorted(other)
    report = tangle_score(LM.model, LM.tokenizer, [EditRequest("Who?", "xyzq", ground_truth="qzyx")])
    assert report.degenerate.tolist() == [True]
    assert report.ts[0] == 100.0


def test_calibration_is_by_median_and_deviation_of_the_batch_or_a_stored_set():
    scores = [1.0, 2.0, 3.0, 4.0, 100.0]
    calibration = Calibration.of(scores)
    assert calibration.standardised([3.0, 4.0]) == pytest.approx([0, 1 / 1.4826])
    assert calibration.rank([0.0, 3.0, 200.0]) == pytest.approx([0, 0.5, 1])
    assert Calibration(()).standardised([5.0]).tolist() == [0]
    assert Calibration(()).rank([5.0]).tolist() == [0.5]
    report = tangle_score(LM.model, LM.tokenizer, REQUESTS)
    assert report.calibration(calibration) == calibration
    assert report.calibration() == Calibration(())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "paper"}, "variant is 'paper'"),
        ({"pool": "last"}, "pool is 'last'"),
        ({"blur": 0.0}, "blur is 0.0"),
        ({"hidden_layer": 9}, "hidden_layer is 9; expected numbers from -5 to 4"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        tangle_score(LM.model, LM.tokenizer, REQUESTS[:1], **options)


def test_hidden_layers_are_counted_and_averaged_as_asked():
    one, two, both = (
        tangle_score(LM.model, LM.tokenizer, REQUESTS[:1], hidden_layer=layer) for layer in (2, 0, [2, 0])
    )
    assert len({float(report.shift[0]) for report in (one, two, both)}) == 3
    with torch.no_grad():
        states = []
        for answer in (REQUESTS[0].ground_truth, REQUESTS[0].answer):
            text = Prompts(LM.tokenizer).text(REQUESTS[0].question) + f"{answer}<|end|>"
            hidden = LM.model(
                input_ids=torch.tensor([encode(LM.tokenizer, text)]), output_hidden_states=True
            ).hidden_states
            states.append(((hidden[2] + hidden[0]) / 2)[0].mean(0))
    assert both.shift[0] == pytest.approx(1 - float(torch.cosine_similarity(*states, dim=0)), abs=1e-5)


def test_calibrations_are_saved_and_loaded_whole_and_others_refused(tmp_path):
    stored = Calibration.of([0.3, 0.1, 0.2])
    file = stored.save(tmp_path / "scores.json")
    assert Calibration.load(file) == stored
    with pytest.raises(InputError, match="exists already"):
        stored.save(file)
    with pytest.raises(InputError, match=r"ends in \.json"):
        stored.save(tmp_path / "scores.txt")
    for text, message in (
        ("{", "damaged JSON"),
        ("[" * 100_000, "damaged JSON"),
        ("[1]", "holds no calibration"),
        ('{"format": "assay.edit.calibration", "version": 9}', "is of version 9"),
        ('{"format": "assay.edit.calibration", "version": 1, "scores": [-1]}', "no score"),
        ('{"format": "assay.edit.calibration", "version": 1, "scores": [NaN]}', "no score"),
        ('{"format": "assay.edit.calibration", "version": 1, "scores": [true]}', "no score"),
        ('{"format": "assay.edit.calibration", "version": 1}', "no score"),
    ):
        other = tmp_path / "other.json"
        other.write_text(text)
        with pytest.raises(InputError, match=message):
            Calibration.load(other)


def test_divergences_in_small_groups_are_those_of_all_at_once(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    clouds = [torch.randn(count, 3, generator=rng) for count in (2, 7, 1, 4)]
    others = [torch.randn(count, 3, generator=rng) for count in (5, 2, 3, 4)]
    whole = sinkhorn_divergence(clouds, others, diameter=9.0)
    monkeypatch.setattr(tangle, "MOST_NUMBERS", 30)
    assert torch.allclose(sinkhorn_divergence(clouds, others, diameter=9.0), whole, rtol=1e-12)
    assert [len(group) for group in tangle._of_like_size([5, 7, 3, 4], width=3)] == [1, 1, 1, 1]


@pytest.mark.parametrize("option", ["batch_size", "max_old_tokens"])
def test_numbers_below_one_are_refused(option):
    lm = random_llama()
    with pytest.raises(InputError, match=f"{option} is 0"):
        tangle_score(lm.model, lm.tokenizer, [EditRequest("Who?", "Ann")], **{option: 0})
