"""Editing as a whole: the model stays as it was, patches come and go bit for bit, and blocks are fitted to what is
asked."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from assay.core.errors import AssayError, InputError
from assay.core.lm import Anatomy, Recording, find_anatomy, random_llama
from assay.edit.fitting import FitSettings, Job, fit_block
from assay.edit.losses import PRESETS
from assay.edit.patch import EditPatch, chain, tensor_hash
from assay.edit.pipe import PIPE, PipeConfig, default_layer
from assay.edit.requests import EditRequest, check_requests
from tests.core.lm.test_anatomy import made

REQUESTS = [
    EditRequest("Who wrote it?", "Ann did.", ground_truth="Bo did."),
    EditRequest("Where is the long street?", "In the north.", ground_truth="South."),
    EditRequest("What is the town?", "Corbel.", ground_truth="Melt."),
]
QUICK = {"target_steps": 8, "fit_steps": 6, "preserved": 4}


def editor(lm, **options):
    return PIPE(lm.model, lm.tokenizer, **{**QUICK, **options})


def state(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(model, before) -> bool:
    return all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"preset": "paper"},
        {"preset": "official"},
        {"preset": "unke"},
        {"layer": [1, 2]},
        {"wrap": 3},
        {"objective": "answer"},
    ],
)
def test_fitting_leaves_the_model_as_it_was_and_the_patch_lowers_the_answers_cost(options):
    lm = random_llama()
    before = state(lm.model)
    patch = editor(lm, **{**options, "fit_steps": 40, "fit_rate": 1e-3}).fit(REQUESTS)
    assert same(lm.model, before)
    assert all(parameter.requires_grad for parameter in lm.model.parameters())
    assert patch.layers == tuple(options.get("layer", [1]))
    report = editor(lm).score(REQUESTS)
    cost = [row["nll_after"] for row in patch.rows]
    assert np.mean(cost) < report.nll_new.mean() - 0.05
    assert {row["status"] for row in patch.rows} == {"edited"}


def test_the_same_seed_gives_the_same_patch_and_another_seed_another():
    patches = [editor(random_llama(), seed=seed).fit(REQUESTS) for seed in (1, 1, 2)]
    name = "model.layers.1.mlp.down_proj.weight"
    assert torch.equal(patches[0].tensors[name], patches[1].tensors[name])
    assert not torch.equal(patches[0].tensors[name], patches[2].tensors[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_patch_is_undone_bit_for_bit(dtype, tmp_path):
    lm = random_llama(dtype=dtype)
    before = state(lm.model)
    patch = editor(lm).fit(REQUESTS[:2])
    assert {tensor.dtype for tensor in patch.tensors.values()} == {dtype}
    patch.save(tmp_path / "a.safetensors")
    loaded = EditPatch.load(tmp_path / "a.safetensors")
    loaded.apply_(lm.model)
    assert not same(lm.model, before)
    loaded.revert_(lm.model)
    assert same(lm.model, before)
    with pytest.raises(RuntimeError, match="in the middle"), loaded.applied(lm.model):
        raise RuntimeError("in the middle")
    assert same(lm.model, before)


def test_patches_of_different_blocks_commute_bit_for_bit():
    lm = random_llama()
    one, other = editor(lm, layer=1).fit(REQUESTS[:1]), editor(lm, layer=2).fit(REQUESTS[1:2])
    states = []
    for order in ((one, other), (other, one)):
        for patch in order:
            patch.apply_(lm.model)
        states.append(state(lm.model))
        for patch in order:
            patch.revert_(lm.model)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_another_base_a_second_application_and_a_foreign_reversal_are_refused():
    lm, foreign = random_llama(), random_llama(seed=1)
    patch = editor(lm).fit(REQUESTS[:1])
    with pytest.raises(InputError, match=r"for another base: model\.layers\.1\.\S+ has the SHA-256 \w{16}…"):
        patch.apply_(foreign.model)
    with pytest.raises(InputError, match="isn't what"):
        patch.revert_(lm.model)
    patch.apply_(lm.model)
    with pytest.raises(InputError, match="applied already"):
        patch.apply_(lm.model)
    with pytest.raises(InputError, match=r"which the model lacks|has the shape"):
        patch.apply_(made("gpt2"))


def test_a_file_of_another_kind_or_version_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    patch = editor(random_llama()).fit(REQUESTS[:1])
    file = patch.save(tmp_path / "a patch.safetensors")
    loaded = EditPatch.load(file)
    assert loaded.hashes == patch.hashes
    assert loaded.rows[0]["question"] == "Who wrote it?"
    assert loaded.rows[0]["ts"] == patch.rows[0]["ts"]
    assert torch.equal(loaded.targets.keys, patch.targets.keys)
    with pytest.raises(InputError, match="exists already"):
        patch.save(file)
    tensors = load_file(file)
    other = tmp_path / "other.safetensors"
    for metadata, message in (
        (None, "isn't a patch"),
        ({"format": "assay.edit.patch", "version": "99", "info": "{}"}, "is of version 99"),
    ):
        save_file(tensors, other, metadata=metadata)
        with pytest.raises(InputError, match=message):
            EditPatch.load(other)
    (tmp_path / "cut.safetensors").write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        EditPatch.load(tmp_path / "cut.safetensors")
    with pytest.raises(InputError, match="unknown ending"):
        patch.save(tmp_path / "patch.bin")


def test_a_linear_block_is_fitted_to_the_least_squares_solution():
    """Stage two with a linear map in place of the block, no purge, and plain squared errors."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(6, 6, bias=False)

        def forward(self, hidden_states):
            return self.map(hidden_states)

    torch.manual_seed(0)
    block = Linear()
    anatomy = Anatomy(nn.ModuleList([block]), "blocks", (), nn.Identity(), nn.Embedding(2, 6), lambda one: one)
    inputs = torch.randn(4, 5, 6)
    outputs = block(inputs).detach()
    from assay.core.lm.recording import _Call

    recording = Recording(anatomy, {0: inputs}, {0: outputs}, {0: _Call((), {})})
    positions = torch.tensor([[row, 4] for row in range(4)])
    keys = torch.randn(4, 6)
    job = Job(recording, positions, keys, torch.ones(4, 5, dtype=torch.bool))
    wanted = outputs.clone()
    wanted[:, 4] = keys
    best = torch.linalg.lstsq(inputs.reshape(-1, 6), wanted.reshape(-1, 6)).solution.T
    found = fit_block(
        anatomy,
        0,
        job,
        alpha=torch.full((4,), 0.5),
        rate=torch.zeros(4),
        loss=PRESETS["unke"],
        settings=FitSettings(steps=3000, rate=3e-3, weight_decay=0.0),
    )
    assert torch.allclose(found.tensors["map.weight"], best, atol=1e-4)
    assert found.losses[-1] < found.losses[0]
    assert torch.equal(block.map.weight, anatomy.blocks[0].map.weight)


def test_a_loss_that_is_no_number_is_an_error_and_leaves_the_model():
    lm = random_llama()
    before = state(lm.model)
    with pytest.raises(AssayError, match="the loss of block 1 is nan"):
        editor(lm, fit_rate=1e30, fit_steps=9).fit(REQUESTS[:1])
    assert same(lm.model, before)


def test_several_blocks_share_what_is_missing_in_equal_parts():
    lm = random_llama()
    both = editor(lm, layer=[1, 2], fit_steps=60, fit_rate=2e-3, preserved=0, preserve=["the"]).fit(REQUESTS[:1])
    assert {name.split(".")[2] for name in both.tensors} == {"1", "2"}
    assert both.rows[0]["nll_after"] < both.rows[0]["nll_before"]


def test_requests_that_are_known_already_are_left_out_and_flagged():
    lm = random_llama()
    known = EditRequest("Which?", "This.", ground_truth="This.")
    patch = editor(lm).fit([REQUESTS[0], known])
    assert [row["status"] for row in patch.rows] == ["edited", "already known"]
    assert len(patch.targets.prompts) == 1
    with pytest.raises(InputError, match="gives every answer already"):
        editor(lm).fit([known])
    assert editor(lm, skip_known=False).fit([known]).rows[0]["status"] == "edited"


def test_sequential_patches_follow_on_each_other_and_join_to_one():
    lm = random_llama()
    before = state(lm.model)
    for anchor in ("current", "base"):
        seen = []
        patches = editor(lm).fit_sequential(REQUESTS, batch_size=1, anchor=anchor, callback=seen.append)
        assert same(lm.model, before)
        assert seen == patches
        for patch in patches:
            patch.apply_(lm.model)
        final = state(lm.model)
        for patch in reversed(patches):
            patch.revert_(lm.model)
        with chain(patches).applied(lm.model):
            assert same(lm.model, final)
        with pytest.raises(InputError, match="wasn't made on a model with the patches before it"):
            chain(patches[::-1])
        with pytest.raises(InputError, match=r"isn't what|another base"):
            patches[1].apply_(lm.model)


def test_an_interruption_restores_the_model_and_the_finished_patches_are_there():
    lm = random_llama()
    before = state(lm.model)
    finished = []

    def stop(stage, step, _steps, _loss):
        if finished and stage == "fit" and step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        editor(lm, watch=stop).fit_sequential(REQUESTS, batch_size=1, callback=finished.append)
    assert same(lm.model, before)
    assert [patch.rows[0]["question"] for patch in finished] == ["Who wrote it?"]


def test_joint_refitting_uses_what_each_patch_was_fitted_to():
    lm = random_llama()
    maker = editor(lm, fit_steps=40, fit_rate=1e-3)
    patches = [maker.fit([request]) for request in REQUESTS[:2]]
    joint = maker.refit(patches)
    assert len(joint.targets.prompts) == 2
    assert torch.equal(joint.targets.keys, torch.cat([patch.targets.keys for patch in patches]))
    with pytest.raises(InputError, match="edits the blocks"):
        editor(lm, layer=2).refit(patches)


@pytest.mark.parametrize("name", ["gpt2", "qwen2", "gemma2", "opt", "gpt-neox"])
def test_other_architectures_are_edited_by_the_same_code(name):
    model, tokenizer = made(name), random_llama().tokenizer
    model.resize_token_embeddings(300)
    before = state(model)
    patch = PIPE(model, tokenizer, **{**QUICK, "fit_steps": 30, "fit_rate": 2e-3}, layer=1).fit(REQUESTS[:2])
    assert same(model, before)
    assert np.mean([row["nll_after"] - row["nll_before"] for row in patch.rows]) < -0.02
    assert {one.split(".")[-3] if "." in one else one for one in patch.transposed} <= {"1", "attn", "mlp", "h"}
    assert bool(patch.transposed) is (name == "gpt2")


def test_the_layer_is_at_seven_thirty_seconds_of_the_depth_and_checked():
    assert [default_layer(blocks) for blocks in (32, 30, 28, 4, 3, 2, 1)] == [7, 7, 6, 1, 1, 0, 0]
    lm = random_llama()
    with pytest.raises(InputError, match="layer is 4; expected blocks from 0 to 3"):
        editor(lm, layer=4)
    with pytest.raises(InputError, match="in ascending order"):
        editor(lm, layer=[2, 1])
    assert editor(lm).select_layer(REQUESTS[:1], steps=3) in (1, 2)


def test_quantised_blocks_are_refused():
    lm = random_llama()
    anatomy = find_anatomy(lm.model)
    weight = lm.model.model.layers[1].mlp.up_proj.weight
    lm.model.model.layers[1].mlp.up_proj.weight = nn.Parameter(weight.detach().to(torch.int8), requires_grad=False)
    with pytest.raises(InputError, match=r"block 1 is quantised: mlp\.up_proj\.weight holds torch\.int8"):
        editor(lm, anatomy=anatomy)


def test_nothing_to_preserve_is_allowed_with_a_warning():
    lm = random_llama()
    with pytest.warns(UserWarning, match="no text to preserve"):
        patch = editor(lm, preserve=[]).fit(REQUESTS[:1])
    assert patch.rows[0]["status"] == "edited"


def test_presets_hold_the_published_constants_and_switches_go_where_they_belong():
    for preset in ("paper", "official", "unke"):
        config = PipeConfig.of(preset)
        assert (config.target.steps, config.target.rate, config.target.radius) == (25, 0.5, 4.0)
        assert (config.target.weight_decay, config.fit.rate, config.fit.steps, config.preserved) == (1e-3, 2e-4, 50, 20)
    config = PipeConfig.of("adaptive", gain=10.0, radius=2.0, fit_steps=7, wrap=2)
    assert (config.loss.gain, config.target.radius, config.fit.steps, config.wrap) == (10.0, 2.0, 7, 2)
    with pytest.raises(InputError, match="no switch 'purged'"):
        PipeConfig.of("adaptive", purged=True)
    with pytest.raises(InputError, match="preset is 'best'"):
        PipeConfig.of("best")


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "there is no edit request"),
        ([EditRequest("Who?", " ")], "request 0: the answer is empty"),
        ([EditRequest("", "x")], "request 0: the question is empty"),
        (
            [EditRequest("Who?", "a"), EditRequest("Who?", "b")],
            "requests 0 and 1 give the question 'Who\\?' two answers",
        ),
    ],
)
def test_wrong_requests_are_named(requests, message):
    with pytest.raises(InputError, match=message):
        check_requests(requests)


def test_of_two_answers_the_last_wins_where_that_is_asked():
    found = check_requests(
        [EditRequest("Who?", "a"), EditRequest("Where?", "c"), EditRequest("Who?", "b")], last_wins=True
    )
    assert [(one.question, one.answer) for one in found] == [("Where?", "c"), ("Who?", "b")]


def test_a_prompt_longer_than_the_context_is_refused_with_its_length():
    lm = random_llama()
    lm.model.config.max_position_embeddings = 20
    with pytest.raises(InputError, match=r"the question has \d+ tokens and the answer \d+; expected at most 20"):
        editor(lm).fit(REQUESTS[:1])


@pytest.mark.parametrize("rank", [1, 8, 64])
def test_a_low_rank_adapter_leaves_out_the_tail_of_the_singular_values(rank):
    patch = editor(random_llama()).fit(REQUESTS[:1])
    adapter = patch.to_lora(rank)
    deltas, found = patch.deltas(), adapter.deltas()
    for name, delta in deltas.items():
        if delta.ndim < 2:
            assert name in adapter.left_out
            continue
        values = torch.linalg.svdvals(delta)
        assert float((delta - found[name]).norm()) == pytest.approx(float(values[rank:].norm()), abs=1e-6)
    if rank == 64:
        assert all(error < 1e-6 for error in adapter.errors.values())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_saved_adapter_is_what_peft_loads(name, tmp_path):
    peft = pytest.importorskip("peft")
    model, tokenizer = made(name), random_llama().tokenizer
    model.resize_token_embeddings(300)
    patch = PIPE(model, tokenizer, **QUICK, layer=1).fit(REQUESTS[:1])
    folder = patch.to_lora(48).save_pretrained(tmp_path / "adapter")
    before = state(model)
    merged = peft.PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    after = state(merged)
    for one, delta in patch.deltas().items():
        if delta.ndim == 2:
            assert torch.allclose(after[one] - before[one], delta.float(), atol=1e-6)


def test_the_hash_is_of_dtype_shape_and_bytes():
    tensor = torch.arange(4.0)
    hashes = {tensor_hash(one) for one in (tensor, tensor.reshape(2, 2), tensor.double(), tensor + 1)}
    assert len(hashes) == 4
    assert tensor_hash(tensor) == tensor_hash(tensor.clone())


def test_adapters_and_plain_models_share_their_anatomy():
    peft = pytest.importorskip("peft")
    lm = random_llama()
    wrapped = peft.get_peft_model(lm.model, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    patch = PIPE(wrapped, lm.tokenizer, **QUICK, anatomy=find_anatomy(wrapped)).fit(REQUESTS[:1])
    assert all(name.startswith("base_model.model.model.layers.1.") for name in patch.tensors)
    assert dataclasses.replace(patch).size() > 0
