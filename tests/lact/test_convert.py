"""Existing language models with a memory beside their attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from assay.core.errors import InputError
from assay.core.lm import random_llama
from assay.lact.convert import (
    branch_parameters,
    convert_attention_to_lact,
    freeze_host,
    parameter_groups,
    unfreeze_host,
)
from assay.lact.fast_branch import FastBranch, MixerSettings

pytestmark = pytest.mark.filterwarnings("ignore::assay.lact.layers.SmallChunkWarning")

ATOL = 1e-10
SMALL = MixerSettings(num_fast_heads=2, chunk_size=4, window=4, init_rank=None, base_lr=0.5)


def tokens(length: int, *, batch: int = 2) -> Tensor:
    return torch.randint(5, 250, (batch, length), generator=torch.Generator().manual_seed(3))


def opened(model: Any) -> Any:
    """The same model with gates that let the memory speak."""
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, FastBranch):
                module.gate_proj.weight.normal_(generator=draw)
                module.gate_proj.bias.fill_(0.7)
    return model


def llama() -> Any:
    return random_llama(dtype=torch.float64).model


def qwen() -> Any:
    """Norms of queries and keys, and heads that are together wider than the model."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
    )
    return Qwen3ForCausalLM(config).double().eval()


@pytest.mark.parametrize("make", [llama, qwen])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_converted_model_gives_bitwise_the_same_logits(make, dtype):
    model = make().to(dtype)
    before = model(tokens(13)).logits
    convert_attention_to_lact(model, settings=SMALL)
    assert torch.equal(model(tokens(13)).logits, before)
    assert not torch.equal(opened(model)(tokens(13)).logits, before)


@pytest.mark.parametrize("make", [llama, qwen])
def test_generate_with_the_hosts_cache_equals_recomputing_the_text(make):
    model, text = opened(convert_attention_to_lact(make(), settings=SMALL)), tokens(7)
    generated = model.generate(text, max_new_tokens=10, do_sample=False, eos_token_id=None)
    with torch.no_grad():
        for _ in range(10):
            text = torch.cat([text, model(text, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(generated, text)


def test_beams_fork_the_memory():
    model = opened(convert_attention_to_lact(llama(), settings=SMALL))
    asked = {"max_new_tokens": 8, "num_beams": 3, "do_sample": False, "eos_token_id": None}
    assert torch.equal(model.generate(tokens(6), **asked), model.generate(tokens(6), use_cache=False, **asked))


def test_left_padding_moves_no_chunk():
    model, text = opened(convert_attention_to_lact(llama(), settings=SMALL)), tokens(12)
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[0, :5] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    padded = model(text, attention_mask=mask, position_ids=positions).logits
    torch.testing.assert_close(padded[:1, 5:], model(text[:1, 5:]).logits, rtol=0, atol=ATOL)
    torch.testing.assert_close(padded[1:], model(text[1:]).logits, rtol=0, atol=ATOL)


def test_the_whole_stays_causal():
    model, text = opened(convert_attention_to_lact(llama(), settings=SMALL)), tokens(14)
    changed = text.clone()
    changed[:, 9] = 251
    difference = (model(changed).logits - model(text).logits).abs().sum(-1)
    assert difference[:, :9].max() < ATOL
    assert difference[:, 9:].min() > 0


def test_a_window_hides_what_is_before_it_from_attention_alone():
    whole, windowed = llama(), llama()
    convert_attention_to_lact(windowed, settings=SMALL, window=6, layers=[0, 1, 2, 3])
    text = tokens(9)
    torch.testing.assert_close(windowed(text[:, :6]).logits, whole(text[:, :6]).logits, rtol=0, atol=ATOL)
    assert not torch.allclose(windowed(text).logits[:, -1], whole(text).logits[:, -1])
    # Four blocks with a window of 6 reach 20 tokens back: the closed memory adds nothing beyond.
    text = tokens(30)
    changed = text.clone()
    changed[:, 2] = 251
    difference = (windowed(changed).logits - windowed(text).logits).abs().sum(-1)
    assert difference[:, 23:].max() == 0
    heard = opened(windowed)
    assert (heard(changed).logits - heard(text).logits).abs().sum(-1)[:, 23:].min() > 0
    decoded = heard.generate(text, max_new_tokens=4, do_sample=False, eos_token_id=None)
    again = heard.generate(text, max_new_tokens=4, do_sample=False, eos_token_id=None, use_cache=False)
    assert torch.equal(decoded, again)


def test_only_chosen_blocks_get_a_memory_and_names_stay():
    model = llama()
    names = set(model.state_dict())
    convert_attention_to_lact(model, settings=SMALL, layers=[1, 3])
    new = set(model.state_dict()) - names
    assert {name.split(".")[2] for name in new} == {"1", "3"}
    assert all(".self_attn.lact." in name for name in new)
    assert names <= set(model.state_dict())


def test_a_saved_model_is_loaded_by_converting_its_host_again(tmp_path):
    from safetensors.torch import load_model

    model = opened(convert_attention_to_lact(llama(), settings=SMALL))
    model.save_pretrained(tmp_path)
    host = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    again = convert_attention_to_lact(host, settings=SMALL)
    load_model(again, tmp_path / "model.safetensors", strict=False)
    assert torch.equal(again(tokens(11)).logits, model(tokens(11)).logits)


def test_training_can_be_of_the_new_parameters_alone_and_faster():
    model = convert_attention_to_lact(llama(), settings=SMALL, layers=[0])
    new = list(branch_parameters(model))
    slow, fast = parameter_groups(model, lr=1e-3)
    assert fast["lr"] == pytest.approx(1e-2)
    assert {id(one) for one in fast["params"]} == {id(one) for one in new}
    assert len(slow["params"]) + len(new) == len(list(model.parameters()))
    freeze_host(model)
    (alone,) = parameter_groups(model, lr=1e-3)
    assert alone["lr"] == pytest.approx(1e-2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD([alone])
    for _ in range(2):
        optimizer.zero_grad()
        model(tokens(12), labels=tokens(12)).loss.backward()
        optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert any("gate_proj" in name for name in changed)
    assert all(".lact." in name for name in changed)
    unfreeze_host(model)
    assert all(one.requires_grad for one in model.parameters())


def test_what_cannot_be_converted_is_refused():
    with pytest.raises(InputError, match="block 0 of GPT2LMHeadModel has no attention with q_proj"):
        convert_attention_to_lact(GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9)))
    with pytest.raises(InputError, match="layers holds 4; expected numbers from 0 to 3"):
        convert_attention_to_lact(llama(), layers=[4])
    with pytest.raises(InputError, match="block 0 is converted already"):
        convert_attention_to_lact(convert_attention_to_lact(llama(), settings=SMALL), settings=SMALL)
    with pytest.raises(InputError, match="window is 3, shorter than chunk_size=4"):
        convert_attention_to_lact(llama(), settings=SMALL, window=3)
    with pytest.raises(InputError, match="lr is 0"):
        parameter_groups(nn.Linear(2, 2), lr=0)
    model = llama()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(InputError, match="window with attn_implementation 'flash_attention_2'"):
        convert_attention_to_lact(model, settings=SMALL, window=4)
