"""The search for target keys: batches, limits, and what the keys do when they are put in by a hook."""

from __future__ import annotations

import pytest
import torch

from assay.core.errors import InputError
from assay.core.lm import find_anatomy, random_llama, score_answers
from assay.edit.requests import EditRequest, Prompts
from assay.edit.targets import Drift, TargetSettings, _divergence, find_targets
from tests.core.lm.test_anatomy import ANSWERS, PROMPTS, made

LAYER = 1


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
@pytest.mark.parametrize("rate", ["auto", 0.5])
def test_a_batch_follows_the_paths_that_each_request_takes_alone(name, rate):
    model = made(name)
    anatomy = find_anatomy(model)
    settings = TargetSettings(steps=12, rate=rate, radius=1.5)
    together = find_targets(model, anatomy, LAYER, PROMPTS, ANSWERS, settings=settings)
    for row in range(2):
        alone = find_targets(
            model, anatomy, LAYER, PROMPTS[row : row + 1], ANSWERS[row : row + 1], settings=settings, keep_prefix=False
        )
        assert torch.allclose(
            alone.delta[0], together.delta[row], rtol=1e-4, atol=1e-4 * float(alone.delta.abs().max())
        )
        assert torch.allclose(alone.path[:, 0], together.path[:, row], rtol=1e-4)


def test_the_shift_stays_in_its_ball_at_every_step_and_none_is_made_in_one_step():
    model = made("llama")
    anatomy = find_anatomy(model)
    for steps in (1, 2, 5, 9):
        settings = TargetSettings(steps=steps, rate=3.0, radius=0.5)
        found = find_targets(model, anatomy, LAYER, PROMPTS, ANSWERS, settings=settings)
        assert (found.delta.norm(dim=1) <= 0.5 * found.base.norm(dim=1) * (1 + 1e-6)).all()
        if steps == 1:
            assert not found.delta.any()
            assert torch.equal(found.nll, found.nll_before)


def test_the_first_step_is_adam_s_on_the_loss_as_written():
    """Adam's first step is the rate times the gradient's sign; here against a plain full forward pass with a hook."""
    model = made("llama")
    anatomy = find_anatomy(model)
    found = find_targets(
        model, anatomy, LAYER, PROMPTS[:1], ANSWERS[:1], settings=TargetSettings(steps=2, rate=0.01, radius=9)
    )
    delta = torch.zeros(32, requires_grad=True)
    at = len(PROMPTS[0]) - 1

    def shift(_module, _args, output):
        output = output.clone()
        output[0, at] = output[0, at] + delta
        return output

    hook = anatomy.blocks[LAYER].register_forward_hook(shift)
    logits = model(input_ids=torch.tensor([PROMPTS[0] + ANSWERS[0]])).logits[0, at:-1]
    hook.remove()
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ANSWERS[0]))
    [gradient] = torch.autograd.grad(loss, delta)
    assert float(found.nll_before[0]) == pytest.approx(loss.item(), abs=1e-5)
    assert torch.allclose(found.delta[0], -0.01 * gradient / (gradient.abs() + 1e-8), rtol=1e-3, atol=1e-6)


def test_keys_put_in_by_a_hook_give_the_reported_cost_of_the_answer():
    lm = random_llama()
    anatomy = find_anatomy(lm.model)
    prompts = Prompts(lm.tokenizer)
    request = EditRequest("Where is the town?", "In the north.")
    [question], [answer] = prompts.pairs([request])
    found = find_targets(lm.model, anatomy, LAYER, [question], [answer], settings=TargetSettings(steps=15))

    def put(_module, _args, output):
        output = output.clone()
        output[0, len(question) - 1] = found.keys[0]
        return output

    hook = anatomy.blocks[LAYER].register_forward_hook(put)
    [score] = score_answers(lm.model, lm.tokenizer, [prompts.text(request.question)], [request.answer + "<|end|>"])
    hook.remove()
    assert score.nll == pytest.approx(float(found.nll[0]), abs=1e-5)
    assert score.nll < float(found.nll_before[0])


def test_prompts_of_a_group_share_a_shift():
    model = made("llama")
    found = find_targets(
        model,
        find_anatomy(model),
        LAYER,
        [PROMPTS[0], PROMPTS[1], PROMPTS[1]],
        [ANSWERS[0], ANSWERS[0], ANSWERS[1]],
        settings=TargetSettings(steps=6),
        groups=[0, 0, 1],
    )
    assert found.delta.shape == (2, 32)
    assert torch.equal(found.keys[0] - found.base[0], found.keys[0] - found.base[0])
    assert torch.allclose(found.keys[1] - found.base[1], found.delta[0], atol=1e-5)
    assert (found.nll < found.nll_before).all()


def test_a_request_that_is_near_enough_stops_and_keeps_its_shift():
    model = made("llama")
    anatomy = find_anatomy(model)
    free = find_targets(model, anatomy, LAYER, PROMPTS, ANSWERS, settings=TargetSettings(steps=20))
    limit = float(free.path[10].max()) + 1e-3
    found = find_targets(model, anatomy, LAYER, PROMPTS, ANSWERS, settings=TargetSettings(steps=20, tolerance=limit))
    assert len(found.path) <= 11
    assert (found.nll < limit).all()


def test_a_request_whose_loss_is_no_number_fails_alone_and_flags_come_back():
    model = made("llama")
    with torch.no_grad():
        model.lm_head.weight[ANSWERS[0][0]] = float("nan")
    model.lm_head.weight.requires_grad_(False)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    found = find_targets(model, find_anatomy(model), LAYER, PROMPTS[:1], ANSWERS[:1], settings=TargetSettings(steps=3))
    assert found.failed.tolist() == [True]
    assert not found.delta.any()
    assert [parameter.requires_grad for parameter in model.parameters()] == flags


@pytest.mark.parametrize("options", [{"steps": 0}, {"rate": 0.0}, {"rate": -1.0}, {"radius": 0.0}, {"tolerance": -1.0}])
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(InputError):
        TargetSettings(**options)


def test_searching_a_few_requests_at_a_time_changes_nothing_but_rounding():
    model = made("llama")
    anatomy = find_anatomy(model)
    groups = [1, 0, 1, 2]
    prompts, answers = [PROMPTS[row % 2] for row in groups], [ANSWERS[row % 2] for row in groups]
    found = [
        find_targets(
            model,
            anatomy,
            LAYER,
            prompts,
            answers,
            groups=groups,
            settings=TargetSettings(steps=8, radius=1.5, tolerance=1e-9, at_once=count),
        )
        for count in (32, 2, 1)
    ]
    for parts in found[1:]:
        assert torch.equal(parts.groups, found[0].groups)
        for name in ("base", "delta", "keys", "nll", "nll_before", "path"):
            assert torch.allclose(getattr(parts, name), getattr(found[0], name), rtol=1e-4, atol=1e-4), name
    with pytest.raises(InputError, match="target_at_once is 0"):
        TargetSettings(at_once=0)


def test_a_drift_is_what_a_plain_forward_pass_with_a_hook_says_and_its_weight_keeps_it_small():
    model = made("llama")
    anatomy = find_anatomy(model)
    other, rest = [3, 4, 5], [6, 7]

    def moved(delta):
        """The next token's log-probabilities after the other prompt, with a shift at its third token."""

        def shift(_module, _args, output):
            output = output.clone()
            output[0, 2] = output[0, 2] + delta
            return output

        hook = anatomy.blocks[LAYER].register_forward_hook(shift)
        with torch.no_grad():
            logits = model(torch.tensor([other + rest])).logits[0, -1]
        hook.remove()
        return logits.log_softmax(-1)

    drifts, measured = [], []
    for factor in (0.0, 1e4):
        found = find_targets(
            model,
            anatomy,
            LAYER,
            PROMPTS[:1],
            ANSWERS[:1],
            settings=TargetSettings(steps=15, rate=0.1, radius=9),
            drift=Drift([other], [rest], factor),
        )
        after, before = moved(found.delta[0]), moved(0 * found.delta[0])
        drifts.append(float((after.exp() * (after - before)).sum()))
        with torch.no_grad():
            measured.append(float(_divergence(model, anatomy, LAYER, Drift([other], [rest]), pad=0)(found.delta)[0]))
    assert measured == pytest.approx(drifts, rel=1e-3, abs=1e-6)
    assert drifts[1] < 0.5 * drifts[0]
