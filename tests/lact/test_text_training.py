"""Training on text and on recall: schedules, batches, checkpoints, and that memory is learned."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from assay.core.errors import InputError
from assay.core.texts import ByteTokens
from assay.lact.language import LaCTForCausalLM
from assay.lact.recall import DIGITS, IGNORED, RecallTask
from assay.lact.text_training import (
    ARMS,
    TextRows,
    TrainingPlan,
    arm_model,
    loss_by_position,
    next_tokens,
    train_byte_model,
    train_language,
    train_on_text,
    train_recall,
)

pytestmark = pytest.mark.filterwarnings("ignore::assay.lact.layers.SmallChunkWarning")

TEXT = "".join(f"{number} bottles hang on the wall.\n" for number in range(400))
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_fast_heads": 1,
    "intermediate_size": 32,
    "window": 8,
    "chunk_size": 8,
    "init_rank": None,
}


def corpus(context: int = 24) -> TextRows:
    return TextRows([TEXT], ByteTokens(), context=context)


def tiny(seed: int = 0, **changes) -> LaCTForCausalLM:
    return LaCTForCausalLM.small(seed=seed, **{**TINY, **changes})


def test_learning_rate_rises_and_falls_as_a_cosine():
    plan = TrainingPlan(110, warmup=10)
    assert [plan.factor(step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert plan.factor(10) == pytest.approx(1)
    assert plan.factor(60) == pytest.approx(0.55)
    assert plan.factor(110) == pytest.approx(0.1)


def test_rows_are_of_the_text_and_the_held_out_end_is_not_trained_on():
    rows = corpus()
    whole = TEXT.encode()
    assert bytes(rows.train.tolist()) + bytes(rows.held_out.tolist()) == whole
    assert len(rows.held_out) == int(len(whole) * 0.1)
    for row in rows.batch(3, size=5, seed=1):
        assert bytes(row.tolist()) in bytes(rows.train.tolist())
    for row in rows.validation(rows=4):
        assert bytes(row.tolist()) in bytes(rows.held_out.tolist())
    assert torch.equal(rows.batch(3, size=5, seed=1), rows.batch(3, size=5, seed=1))
    assert not torch.equal(rows.batch(3, size=5, seed=1), rows.batch(4, size=5, seed=1))


def test_a_share_of_rows_has_a_fact_that_is_asked_for_at_the_end():
    rows = corpus(context=96).batch(0, size=200, seed=0, needles=0.5)
    planted = [bytes(row.tolist()) for row in rows if b"The number of" in bytes(row.tolist())]
    assert 70 < len(planted) < 130
    for row in planted:
        assert row.count(row[-DIGITS:]) >= 2
        assert row[:-DIGITS].endswith(b" is ")


def test_labels_are_the_tokens_after():
    rows, labels = next_tokens(torch.tensor([[1, 2, 3]]))
    assert rows.tolist() == [[1, 2, 3]]
    assert labels.tolist() == [[2, 3, IGNORED]]


def test_training_lowers_the_loss_and_measures_it_on_held_out_rows():
    model, rows = tiny(), corpus()
    before = loss_by_position(model, rows.validation()).mean()
    assert before == pytest.approx(math.log(256), rel=0.05)
    history = train_on_text(model, rows, TrainingPlan(30, batch=8, lr=1e-2, evaluate_every=10))
    assert [entry["step"] for entry in history if "validation_loss" in entry] == [10, 20, 30]
    assert history[-1]["validation_loss"] < 0.7 * before
    assert history[-1]["validation_loss"] == pytest.approx(float(loss_by_position(model, rows.validation()).mean()))


def test_same_seed_same_model():
    losses = [
        [entry["loss"] for entry in train_on_text(tiny(), corpus(), TrainingPlan(4, seed=seed))] for seed in (0, 0, 1)
    ]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


@pytest.mark.parametrize("when", ["saved as planned", "interrupted"])
def test_a_stopped_run_goes_on_to_the_same_end(tmp_path, when):
    plan = TrainingPlan(9, batch=4, lr=1e-2, save_every=4 if when == "saved as planned" else 0)
    whole = tiny()
    history = train_on_text(whole, corpus(), plan)
    file = tmp_path / "checkpoint.safetensors"

    def stop(entry):
        if entry["step"] == 6:
            # As a person would: the step is finished and kept where nothing else was planned.
            if when == "interrupted":
                import signal

                signal.raise_signal(signal.SIGINT)
            else:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_on_text(tiny(), corpus(), plan, checkpoint=file, settings={"a": 1}, watch=stop)
    resumed = tiny(seed=7)
    again = train_on_text(resumed, corpus(), plan, checkpoint=file, settings={"a": 1}, resume=True)
    assert [entry["loss"] for entry in again] == [entry["loss"] for entry in history]
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())


def test_what_is_wrong_with_a_checkpoint_is_said(tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    plan = TrainingPlan(3, save_every=2)

    def resume(**settings):
        return train_on_text(tiny(), corpus(), plan, checkpoint=file, settings=settings, resume=True)

    train_on_text(tiny(), corpus(), plan, checkpoint=file, settings={"width": 16})
    with pytest.raises(InputError, match="was made with width 16, not 32"):
        resume(width=32)
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    with pytest.raises(InputError, match="can't be read"):
        resume(width=16)
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(InputError, match="is another kind of file"):
        resume(width=16)


def test_too_short_a_text_is_refused():
    with pytest.raises(InputError, match=r"notes\.txt: has 10 tokens; expected at least 32 for rows of 16"):
        TextRows(["0123456789"], ByteTokens(), context=16, source="notes.txt")


def test_loss_by_position_is_that_of_each_place():
    model, rows = tiny(), corpus().validation(rows=5)
    logits = model(rows).logits.log_softmax(-1)
    expected = -logits[:, :-1].gather(2, rows[:, 1:, None])[..., 0].mean(0).double()
    torch.testing.assert_close(loss_by_position(model, rows, batch=2), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arm", sorted(ARMS))
def test_every_arm_is_trained_and_measured(arm):
    found = train_recall(arm, RecallTask(24, pairs=2), TrainingPlan(2, batch=2), test_rows=4, **TINY)
    assert 0 <= found["accuracy"] <= 1
    assert found["chance"] == 1 / 32
    assert math.isfinite(found["loss"])
    assert (found["state_bytes"] == 0) == (arm == "full")


def test_arms_differ_in_their_memory_alone():
    models = {arm: arm_model(arm, seed=3, **TINY) for arm in ("lact-muon", "window", "full")}
    weights = {arm: model.model.layers[0].attn.qkv.weight for arm, model in models.items()}
    assert torch.equal(weights["window"], weights["full"])
    assert models["window"].config.memory == "none"
    with pytest.raises(InputError, match="arm is 'rwkv'"):
        arm_model("rwkv", seed=0)


def test_the_memory_recalls_what_the_window_cannot():
    """Facts in the first chunk, a question two windows later, and pairings that change from row to row."""
    task = RecallTask(24, pairs=2, queries=1, keys=2, values=2, fillers=1)
    settings = {**TINY, "num_hidden_layers": 2, "window": 8, "chunk_size": 8, "base_lr": 0.1, "rope_fast": False}
    plan = TrainingPlan(120, batch=32, lr=1e-2, warmup=5, weight_decay=0.0)
    window = train_recall("window", task, plan, **settings)
    # Five standard errors of a coin's share in the 256 rows that are judged.
    margin = 5 * math.sqrt(task.chance * (1 - task.chance) / 256)
    assert window["accuracy"] == pytest.approx(task.chance, abs=margin)
    memory = train_recall("lact-muon-momentum", task, plan, **settings)
    assert memory["accuracy"] > task.chance + margin


def test_the_byte_model_is_measured_by_position(monkeypatch):
    monkeypatch.setattr("assay.lact.text_training.standard_library", lambda characters: TEXT[:characters])
    found = train_byte_model("lact-gd", TrainingPlan(2, batch=2), context=48, characters=4000, **TINY)
    assert found["loss"] == pytest.approx(math.log(256), rel=0.1)
    assert found["first_quarter"] == pytest.approx(found["last_quarter"], rel=0.1)
    assert abs(found["slope"]) < 0.3
    assert found["state_bytes"] > 0


def test_rows_of_training_can_be_anything(tmp_path: Path):
    model = tiny()
    seen: list[int] = []

    def rows(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(step)
        return next_tokens(torch.full((2, 8), step))

    train_language(model, rows, TrainingPlan(3))
    assert seen == [0, 1, 2]
    assert not model.training
