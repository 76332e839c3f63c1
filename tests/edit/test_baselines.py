"""The other editors: what they change, what they leave, and what their formulas promise."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from assay.core.errors import InputError
from assay.core.lm import find_anatomy, random_llama, score_answers
from assay.core.lm.scoring import pad_token
from assay.edit.closed_form import KeyStatistics, closed_form_edit
from assay.edit.composing import compose
from assay.edit.fine_tuning import fine_tune, fine_tune_lora
from assay.edit.fitting import record_rows
from assay.edit.gated import GatedPatch, fit_gated
from assay.edit.pipe import PIPE
from assay.edit.reference import edit_plainly
from assay.edit.requests import EditRequest
from assay.edit.targets import find_targets
from assay.edit.windows import any_edit, window_targets
from tests.edit.test_pipe import QUICK, REQUESTS, same, state


def cost(lm, requests, patch) -> float:
    texts = [f"<|user|>{one.question}<|end|><|assistant|>" for one in requests]
    with patch.applied(lm.model):
        scores = score_answers(lm.model, lm.tokenizer, texts, [f"{one.answer}<|end|>" for one in requests])
    return float(np.mean([score.nll for score in scores]))


@pytest.mark.parametrize(
    ("tune", "options", "blocks"),
    [
        (fine_tune, {"rate": 5e-3}, {"1"}),
        (fine_tune, {"rate": 3e-3, "layers": "all"}, {"0", "1", "2", "3"}),
        (fine_tune_lora, {"rate": 1e-2}, {"0", "1", "2", "3"}),
    ],
)
def test_tuning_lowers_the_answers_cost_in_its_blocks_alone(tune, options, blocks):
    lm = random_llama()
    before = state(lm.model)
    flags = [parameter.requires_grad for parameter in lm.model.parameters()]
    patch = tune(lm.model, lm.tokenizer, REQUESTS, **options)
    assert same(lm.model, before)
    assert [parameter.requires_grad for parameter in lm.model.parameters()] == flags
    assert list(state(lm.model)) == list(before)
    assert {name.split(".")[2] for name in patch.tensors} == blocks
    assert patch.settings["losses"][0][-1] < patch.settings["losses"][0][0] - 0.5
    assert cost(lm, REQUESTS, patch) < patch.settings["losses"][0][0] - 0.5
    assert same(lm.model, before)


def test_tuning_stops_where_the_answers_are_cheap_enough():
    lm = random_llama()
    patch = fine_tune(lm.model, lm.tokenizer, REQUESTS, rate=5e-3, steps=50, stop_below=4.0)
    assert patch.settings["losses"][0][-1] < 4.0 <= patch.settings["losses"][0][-2]


def test_an_interrupted_tuning_restores_the_model():
    lm = random_llama()
    before = state(lm.model)

    def stop(_stage, step, _steps, _loss):
        if step == 2:
            raise KeyboardInterrupt

    for tune in (fine_tune, fine_tune_lora):
        with pytest.raises(KeyboardInterrupt):
            tune(lm.model, lm.tokenizer, REQUESTS, watch=stop)
        assert same(lm.model, before)
        assert list(state(lm.model)) == list(before)


def editor(lm, **options):
    return PIPE(lm.model, lm.tokenizer, **{**QUICK, **options})


def test_one_window_over_the_whole_answer_is_the_ordinary_search():
    lm = random_llama()
    one = editor(lm, preset="unke", target_rate="auto", target_steps=12)
    [question], [answer] = one.prompts.pairs(REQUESTS[:1])
    columns, keys, losses = window_targets(one, question, answer, window=100)
    found = find_targets(
        lm.model, one.anatomy, 1, [question], [answer], settings=one.config.target, pad=pad_token(lm.tokenizer)
    )
    assert columns.tolist() == [len(question) - 1]
    assert torch.allclose(keys, found.keys, atol=1e-4)
    assert losses[0] == pytest.approx(float(found.nll[0]), abs=1e-4)


def test_windows_shift_the_token_before_each_and_are_fitted_there():
    lm = random_llama()
    before = state(lm.model)
    one = editor(lm, preset="unke", target_rate="auto", fit_steps=60, fit_rate=2e-3)
    [question], [answer] = one.prompts.pairs(REQUESTS[1:2])
    columns, keys, _ = window_targets(one, question, answer, window=3)
    assert columns.tolist() == [len(question) - 1 + begin for begin in range(0, len(answer), 3)]
    assert len(keys) == len(columns)
    patch = any_edit(one, REQUESTS[:2], window=3)
    assert same(lm.model, before)
    unedited = any_edit(editor(lm, preset="unke", fit_steps=0), REQUESTS[:2], window=3)
    assert cost(lm, REQUESTS[:2], patch) < cost(lm, REQUESTS[:2], unedited) - 0.1
    with pytest.raises(InputError, match="window is 0"):
        any_edit(one, REQUESTS, window=0)


def value_moved(lm, patch, one, at):
    """How far the residual after block 1 moves at a token."""
    rows = [one.prompts.question(REQUESTS[0].question)]
    recording, _ = record_rows(lm.model, one.anatomy, rows, (1,), pad=0)
    with patch.applied(lm.model):
        edited, _ = record_rows(lm.model, one.anatomy, rows, (1,), pad=0)
    return edited.outputs[1][0, at] - recording.outputs[1][0, at]


def test_rome_moves_the_value_of_its_key_by_the_shift_and_by_rank_one():
    lm = random_llama()
    one = editor(lm)
    patch = closed_form_edit(one, REQUESTS[:1], method="rome")
    [question], [answer] = one.prompts.pairs(REQUESTS[:1])
    found = find_targets(lm.model, one.anatomy, 1, [question], [answer], settings=one.config.target)
    assert torch.allclose(value_moved(lm, patch, one, len(question) - 1), found.delta[0], atol=1e-3)
    [delta] = patch.deltas().values()
    values = torch.linalg.svdvals(delta)
    assert values[1] < 1e-5 * values[0]


def test_memit_solves_its_normal_equations_and_alphaedit_leaves_used_directions():
    lm = random_llama()
    one = editor(lm)
    before = state(lm.model)
    rng = torch.Generator().manual_seed(0)
    used = torch.randn(128, 40, generator=rng, dtype=torch.float64)
    statistics = KeyStatistics({1: used @ used.T}, 40)
    [delta] = closed_form_edit(one, REQUESTS, method="alphaedit", statistics=statistics).deltas().values()
    assert float((delta @ used).norm()) < 1e-4 * float(delta.norm() * used.norm())
    assert float(delta.norm()) > 0
    weak, strong = (
        closed_form_edit(one, REQUESTS, method="memit", statistics=statistics, covariance_weight=weight)
        for weight in (1e-4, 1e4)
    )
    assert strong.size() < weak.size()
    assert same(lm.model, before)
    assert cost(lm, REQUESTS, weak) < cost(lm, REQUESTS, strong)


def test_the_key_is_taken_at_the_subject_s_last_token_where_the_question_holds_it():
    from assay.edit.closed_form import _subject_end

    one = editor(random_llama())
    request = EditRequest("Who wrote Hamlet in London?", "Ann.", subject="Hamlet")
    question = one.prompts.question(request.question)
    at = _subject_end(one, request, question)
    assert one.tokenizer.decode(question[: at + 1]).endswith("wrote Hamlet")
    assert _subject_end(one, EditRequest("Who?", "Ann.", subject="Hamlet"), question) == len(question) - 1


def test_key_statistics_are_second_moments_and_come_back_from_their_file(tmp_path):
    lm = random_llama()
    one = editor(lm)
    rows = [[5, 6, 7, 8], [9, 10]]
    found = KeyStatistics.of(one, rows, [1])
    keys: list[torch.Tensor] = []
    memory = lm.model.model.layers[1].mlp.down_proj
    hook = memory.register_forward_pre_hook(lambda _module, args: keys.append(args[0][0].detach().double()))
    with torch.no_grad():
        for row in rows:
            lm.model(input_ids=torch.tensor([row]))
    hook.remove()
    every = torch.cat(keys)
    assert torch.allclose(found.moments[1], every.T @ every / 6, atol=1e-6)
    found.save(tmp_path / "keys.safetensors")
    loaded = KeyStatistics.load(tmp_path / "keys.safetensors")
    assert torch.equal(loaded.moments[1], found.moments[1])
    assert loaded.tokens == 6
    with pytest.raises(InputError, match="no such file"):
        KeyStatistics.load(tmp_path / "absent.safetensors")


def test_closed_gates_change_nothing_and_open_ones_add_the_shift():
    lm = random_llama()
    before = state(lm.model)
    one = editor(lm)
    gated = fit_gated(one, [EditRequest("Who wrote it?", "Ann.", paraphrases=("Who wrote it? ",))])
    assert gated.thresholds[0] <= 1
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    question = torch.tensor([one.prompts.question("Who wrote it?")])
    with torch.no_grad():
        plain = [lm.model(input_ids=one_ids).logits for one_ids in (ids, question)]
        with gated.applied(lm.model):
            shifted = [lm.model(input_ids=one_ids).logits for one_ids in (ids, question)]
    assert torch.equal(plain[0], shifted[0])
    assert not torch.equal(plain[1], shifted[1])
    assert torch.equal(plain[1][0, :-1], shifted[1][0, :-1])
    assert same(lm.model, before)
    with pytest.raises(InputError, match="one block"):
        fit_gated(editor(lm, layer=[1, 2]), REQUESTS)


def test_added_patches_are_the_base_with_both_changes():
    lm = random_llama()
    one, other = editor(lm).fit(REQUESTS[:1]), editor(lm, seed=1).fit(REQUESTS[1:2])
    both = compose([one, other])
    for name, delta in both.deltas().items():
        assert torch.allclose(delta, one.deltas()[name] + other.deltas()[name], atol=1e-6)
    assert [row["question"] for row in both.rows] == [request.question for request in REQUESTS[:2]]
    joint = compose([one, other], mode="joint", editor=editor(lm, fit_steps=40, fit_rate=1e-3))
    assert cost(lm, REQUESTS[:2], joint) < cost(lm, REQUESTS[:2], editor(lm, fit_steps=0).fit(REQUESTS[:2]))
    with pytest.raises(InputError, match="at least two"):
        compose([one])
    with pytest.raises(InputError, match="lacks its editor"):
        compose([one, other], mode="joint")
    foreign = editor(random_llama(seed=1)).fit(REQUESTS[:1])
    with pytest.raises(InputError, match="patches 0 and 1 have different bases"):
        compose([one, foreign])


def test_the_plain_procedure_and_ours_find_the_same_block():
    """Without padding (prompts and texts of one length) released code and ours differ in cost, not in result."""
    lm = random_llama()
    before = state(lm.model)
    requests = [EditRequest("Who wrote it?", "Ann did."), EditRequest("Who wrote at?", "Bo.")]
    one = editor(lm, preset="unke", target_rate="auto", target_steps=6, fit_steps=5)
    [layer] = one.layers
    texts = one.draw_preserved()[:1]
    plain = edit_plainly(one, requests, texts, pad=0)
    assert same(lm.model, before)
    ours = PIPE(
        lm.model, lm.tokenizer, **{**QUICK, "fit_steps": 5, "target_steps": 6}, preset="unke", target_rate="auto"
    )
    ours.draw_preserved = lambda: texts  # type: ignore[method-assign]
    found = ours.fit([EditRequest(r.question, r.answer, ground_truth="No.") for r in requests])
    name = find_anatomy(lm.model).block_name(layer)
    lengths = {len(one.prompts.question(request.question)) for request in requests}
    assert len(lengths) == 1
    for own, tensor in plain.items():
        assert torch.allclose(tensor, found.tensors[f"{name}.{own}"], atol=2e-4)


def test_rome_keeps_what_a_subject_is_where_that_is_weighed():
    lm = random_llama()
    one = editor(lm, target_steps=25, radius=6.0)
    request = EditRequest("Who wrote Carmen today?", "Ann Weld did.", subject="Carmen")
    ids = lm.tokenizer("Carmen is a", return_tensors="pt", add_special_tokens=False).input_ids

    def next_token():
        with torch.no_grad():
            return lm.model(ids).logits[0, -1].log_softmax(-1)

    before, drifts = next_token(), []
    for weight in (0.0, 1e3):
        with closed_form_edit(one, [request], method="rome", drift_weight=weight).applied(lm.model):
            after = next_token()
        drifts.append(float((after.exp() * (after - before)).sum()))
    assert drifts[1] < 0.5 * drifts[0]


def test_gates_are_saved_and_loaded_whole_and_refuse_another_model(tmp_path):
    lm = random_llama()
    gates = fit_gated(editor(lm), REQUESTS[:2])
    again = GatedPatch.load(gates.save(tmp_path / "gates.safetensors"))
    assert again.layer == gates.layer
    for name in ("keys", "deltas", "thresholds", "overlaps"):
        assert torch.equal(getattr(again, name), getattr(gates, name))
    assert cost(lm, REQUESTS[:2], again) == cost(lm, REQUESTS[:2], gates) != cost(lm, REQUESTS[:2], nullpatch())
    with pytest.raises(InputError, match="exists already"):
        gates.save(tmp_path / "gates.safetensors")
    with pytest.raises(InputError, match="4 blocks of width 32"), again.applied(random_llama(width=32).model):
        pass
    with pytest.raises(InputError, match="isn't a gated patch"):
        GatedPatch.load(fine_tune(lm.model, lm.tokenizer, REQUESTS, steps=1).save(tmp_path / "patch.safetensors"))


class nullpatch:
    """A patch that changes nothing."""

    def applied(self, _model):
        return nullcontext()


def test_key_statistics_are_saved_and_loaded_whole(tmp_path):
    lm = random_llama()
    one = editor(lm)
    found = KeyStatistics.of(one, [[5, 6, 7], [8, 9]], (1, 2))
    again = KeyStatistics.load(found.save(tmp_path / "keys.safetensors"))
    assert again.tokens == found.tokens == 5
    assert all(torch.equal(again.moments[layer], found.moments[layer]) for layer in (1, 2))
    with pytest.raises(InputError, match="isn't key statistics"):
        KeyStatistics.load(fit_gated(one, REQUESTS[:1]).save(tmp_path / "gates.safetensors"))
