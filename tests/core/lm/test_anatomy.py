"""Blocks, norms and heads of several architectures, and replays of their blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from assay.core.errors import InputError
from assay.core.lm import collate, find_anatomy, random_llama, record, record_after_prefix, replay

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "initializer_range": 0.1,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}

MODELS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)), "model.layers", 1),
    "qwen2": (lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED)), "model.layers", 1),
    "qwen3": (lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=8)), "model.layers", 1),
    "mistral, sliding": (lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=4)), "model.layers", 1),
    "gemma2": (
        lambda: Gemma2ForCausalLM(Gemma2Config(**GROUPED, head_dim=8, sliding_window=4, final_logit_softcapping=3.0)),
        "model.layers",
        1,
    ),
    "gpt2": (
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=32, n_layer=4, n_head=4, initializer_range=0.1)),
        "transformer.h",
        1,
    ),
    "gpt-neox": (lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES)), "gpt_neox.layers", 1),
    "phi": (lambda: PhiForCausalLM(PhiConfig(**SIZES)), "model.layers", 1),
    "opt": (
        lambda: OPTForCausalLM(
            OPTConfig(
                vocab_size=60,
                hidden_size=32,
                ffn_dim=48,
                num_hidden_layers=4,
                num_attention_heads=4,
                word_embed_proj_dim=16,
                init_std=0.1,
            )
        ),
        "model.decoder.layers",
        2,
    ),
}


def made(name: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return MODELS[name][0]().eval()


PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13, 14]]
ANSWERS = [[20, 21], [22, 23, 24, 25]]


@pytest.mark.parametrize("name", MODELS)
def test_blocks_and_what_follows_them_are_found(name):
    anatomy = find_anatomy(made(name))
    assert (anatomy.name, len(anatomy.blocks), len(anatomy.tail)) == (MODELS[name][1], 4, MODELS[name][2])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_replayed_upper_blocks_give_the_model_s_logits(name, align):
    model = made(name)
    anatomy = find_anatomy(model)
    batch = collate(PROMPTS, ANSWERS, pad=0, align_prompts=align)
    recording = record(model, anatomy, batch.input_ids, batch.attention_mask, keep=(1,))
    with torch.no_grad():
        replayed = anatomy.logits(replay(recording, recording.outputs[1], first=2))
        for row, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
            alone = model(input_ids=torch.tensor([prompt + answer])).logits[0]
            own = replayed[row][batch.attention_mask[row].bool()]
            assert torch.allclose(own, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_kept_prefix_changes_nothing_in_a_replay_after_a_change_of_the_stream(name):
    model = made(name)
    anatomy = find_anatomy(model)
    batch = collate(PROMPTS, ANSWERS, pad=0, align_prompts=True)
    column = int(batch.last_prompt[0])
    assert (batch.last_prompt == column).all()
    whole = record(model, anatomy, batch.input_ids, batch.attention_mask, keep=(1,))
    short = record_after_prefix(model, anatomy, batch.input_ids, batch.attention_mask, prefix=column, keep=(1,))
    shift = torch.linspace(-1, 1, 32)
    logits, gradients = [], []
    for recording, at in ((whole, column), (short, 0)):
        delta = torch.zeros(2, 32, requires_grad=True)
        hidden = recording.outputs[1].clone()
        hidden = torch.cat([hidden[:, :at], (hidden[:, at] + shift + delta)[:, None], hidden[:, at + 1 :]], dim=1)
        found = anatomy.logits(replay(recording, hidden, first=2))[:, at:]
        real = batch.attention_mask[:, column:].bool()
        logits.append(found[real])
        gradients.append(torch.autograd.grad(found[real].square().mean(), delta)[0])
    assert torch.allclose(logits[0], logits[1], rtol=1e-4, atol=1e-5)
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-6)


def test_a_replay_can_be_repeated_with_a_kept_prefix():
    model = random_llama().model
    anatomy = find_anatomy(model)
    batch = collate(PROMPTS, ANSWERS, pad=0, align_prompts=True)
    recording = record_after_prefix(
        model, anatomy, batch.input_ids, batch.attention_mask, prefix=int(batch.last_prompt[0]), keep=(0, 3)
    )
    first = replay(recording, recording.outputs[0], first=1)
    assert torch.equal(first, replay(recording, recording.outputs[0], first=1))
    assert torch.allclose(first, recording.outputs[3], atol=1e-5)


def test_recording_stops_where_it_may_and_leaves_no_hooks():
    model = random_llama().model
    anatomy = find_anatomy(model)
    ids = torch.tensor([[5, 6, 7]])
    recording = record(model, anatomy, ids, torch.ones_like(ids), keep=(1,), stop_after=1)
    assert sorted(recording.calls) == [0, 1]
    with_hooks = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert with_hooks == []


def test_an_adapter_s_wrapper_hides_nothing():
    peft = pytest.importorskip("peft")
    model = random_llama().model
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    anatomy = find_anatomy(wrapped)
    assert anatomy.name == "base_model.model.model.layers"
    ids = torch.tensor([[5, 6, 7]])
    recording = record(wrapped, anatomy, ids, torch.ones_like(ids), keep=(1,))
    logits = anatomy.logits(replay(recording, recording.outputs[1], first=2))
    assert torch.allclose(logits, wrapped(input_ids=ids).logits, atol=1e-5)


def test_parts_can_be_named_and_wrong_names_are_refused():
    model = random_llama().model
    anatomy = find_anatomy(model, blocks="model.layers", tail=("model.norm",))
    assert anatomy.tail == (model.model.norm,)
    assert anatomy.block_name(2) == "model.layers.2"
    with pytest.raises(InputError, match=r"blocks is 'model\.nothing'; expected the dotted name"):
        find_anatomy(model, blocks="model.nothing")
    with pytest.raises(InputError, match=r"blocks is 'model\.norm', a LlamaRMSNorm"):
        find_anatomy(model, blocks="model.norm")


def test_a_model_without_blocks_or_head_is_refused():
    class Headless(nn.Module):
        def get_output_embeddings(self):
            return None

    with pytest.raises(InputError, match="no output embeddings"):
        find_anatomy(Headless())

    class Blockless(Headless):
        def get_output_embeddings(self):
            return nn.Linear(2, 2)

    with pytest.raises(InputError, match="no list of identical blocks"):
        find_anatomy(Blockless())
