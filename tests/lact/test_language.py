"""The language model: generation with its cache, padding, beams, streams, files, and published names."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from assay.core.errors import InputError
from assay.lact.language import LaCTConfig, LaCTForCausalLM
from assay.lact.published import load_published_language, published_language_config, published_language_weights
from assay.lact.state import LaCTState

pytestmark = pytest.mark.filterwarnings("ignore::assay.lact.layers.SmallChunkWarning")

ATOL = 1e-10
SMALL = {"hidden_size": 8, "vocab_size": 11, "intermediate_size": 16, "window": 6, "chunk_size": 4, "base_lr": 0.5}
SHARP = 0.5
"""Of the initial weights: tokens differ in what they say."""


def model_of(**changes) -> LaCTForCausalLM:
    return LaCTForCausalLM.small(**{**SMALL, "initializer_range": SHARP, **changes}).double()


def tokens(length: int, *, batch: int = 2, seed: int = 1) -> Tensor:
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(seed))


def by_recomputation(model: LaCTForCausalLM, prompt: Tensor, count: int) -> Tensor:
    text = prompt
    with torch.no_grad():
        for _ in range(count):
            text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], 1)
    return text


@pytest.mark.parametrize("memory", ["lact", "none", "gla", "mamba2", "full"])
def test_generate_with_its_cache_equals_recomputing_the_text(memory):
    model, prompt = model_of(memory=memory), tokens(7)
    assert len(set(by_recomputation(model, prompt, 12)[:, 7:].flatten().tolist())) > 1
    generated = model.generate(prompt, max_new_tokens=12, do_sample=False)
    assert torch.equal(generated, by_recomputation(model, prompt, 12))


def test_generate_reads_each_token_once(monkeypatch):
    model, read = model_of(), []
    forward = LaCTForCausalLM.forward

    def counted(self, input_ids, **kwargs):
        read.append(input_ids.shape[1])
        return forward(self, input_ids, **kwargs)

    monkeypatch.setattr(LaCTForCausalLM, "forward", counted)
    model.generate(tokens(9), max_new_tokens=5, do_sample=False)
    assert read == [9, 1, 1, 1, 1]


def test_left_padded_prompts_are_continued_as_if_alone():
    model = model_of()
    short, long = tokens(3, batch=1), tokens(9, batch=1, seed=2)
    padded = torch.cat([torch.zeros(1, 6, dtype=torch.int64), short], 1)
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[0, :6] = 0
    both = model.generate(torch.cat([padded, long]), attention_mask=mask, max_new_tokens=10, do_sample=False)
    assert torch.equal(both[:1, 6:], by_recomputation(model, short, 10))
    assert torch.equal(both[1:], by_recomputation(model, long, 10))


def test_beams_fork_the_state():
    model, prompt = model_of(), tokens(6)
    asked = {"max_new_tokens": 9, "num_beams": 3, "do_sample": False}
    with_cache = model.generate(prompt, **asked)
    without = model.generate(prompt, use_cache=False, **asked)
    assert torch.equal(with_cache, without)
    assert not torch.equal(with_cache, by_recomputation(model, prompt, 9))


def test_logits_with_a_cache_are_those_of_one_pass():
    model, text = model_of(), tokens(23)
    whole = model(text).logits
    cache, parts = None, []
    for part in text.split([5, 1, 1, 9, 7], dim=1):
        out = model(part, cache=cache, use_cache=True)
        assert cache in (None, out.cache)
        cache = out.cache
        parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=ATOL)
    assert cache.get_seq_length() == 23


def test_loss_is_that_of_the_next_token():
    model, text = model_of(), tokens(10)
    logits = model(text).logits.log_softmax(-1)
    expected = -logits[:, :-1].gather(2, text[:, 1:, None]).mean()
    found = model(text, labels=text, logits_to_keep=1)
    torch.testing.assert_close(found.loss, expected)
    assert torch.equal(found.logits, model(text).logits)
    assert torch.equal(model(text, logits_to_keep=3).logits, found.logits[:, -3:])
    assert torch.equal(model(text, logits_to_keep=torch.tensor([4, 1])).logits, found.logits[:, [4, 1]])


def test_packed_documents_do_not_see_one_another():
    model, text = model_of(), tokens(14)
    packed = model(text, cu_seqlens=torch.tensor([0, 5, 14])).logits
    torch.testing.assert_close(packed[:, 5:], model(text[:, 5:]).logits, rtol=0, atol=ATOL)


def test_a_saved_model_gives_the_same_logits_and_is_found_by_transformers(tmp_path):
    model, text = model_of(init_rank=2, qk_norm=True), tokens(13)
    model.save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    for found in (LaCTForCausalLM, AutoModelForCausalLM):
        again = found.from_pretrained(tmp_path, dtype=torch.float64)
        assert torch.equal(again(text).logits, model(text).logits)
    assert again.config.rule == "muon_momentum"


def test_tied_embeddings_are_one_tensor(tmp_path):
    model = model_of(tie_word_embeddings=True)
    assert model.lm_head.weight is model.model.embeddings.weight
    model.save_pretrained(tmp_path)
    again = LaCTForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert torch.equal(again(tokens(5)).logits, model(tokens(5)).logits)


def test_streaming_equals_one_pass_and_a_state_can_be_taken_up():
    model, text = model_of(), tokens(31)
    with model.stream(batch=2) as reader:
        losses = torch.cat([reader.loss(text[:, :13]), reader.loss(text[:, 13:20])], 1)
        kept = reader.state()
    with model.stream(kept) as reader:
        logits = reader.feed(text[:, 20:])
    whole = model(text).logits
    torch.testing.assert_close(logits, whole[:, -1], rtol=0, atol=ATOL)
    expected = torch.nn.functional.cross_entropy(whole[:, :19].mT, text[:, 1:20], reduction="none")
    torch.testing.assert_close(losses[:, 1:], expected, rtol=0, atol=ATOL)
    assert losses[:, 0].isnan().all()


def test_a_stream_writes_what_generate_writes_and_leaves_the_given_state():
    model, prompt = model_of(), tokens(7)
    with model.stream(batch=2) as reader:
        reader.feed(prompt[:, :4])
        kept = reader.state()
    before = kept.clone()
    with model.stream(kept) as reader:
        reader.feed(prompt[:, 4:])
        written = torch.stack(list(reader.generate(8)), 1)
    assert torch.equal(written, by_recomputation(model, prompt, 8)[:, 7:])
    assert all(torch.equal(kept[name], before[name]) for name in kept)


def test_a_forked_stream_leaves_the_other_alone():
    model, text = model_of(), tokens(12)
    with model.stream(batch=2) as reader:
        reader.feed(text[:, :9])
        forked = reader.fork([1, 1])
        forked.feed(text[:, :3])
        logits = reader.feed(text[:, 9:])
    torch.testing.assert_close(logits, model(text).logits[:, -1], rtol=0, atol=ATOL)


def test_draws_follow_their_generator_and_stop_at_a_token():
    model, prompt = model_of(), tokens(5)
    drawn = []
    for seed in (0, 0, 1):
        with model.stream(batch=2) as reader:
            reader.feed(prompt)
            source = torch.Generator().manual_seed(seed)
            drawn.append(torch.stack(list(reader.generate(20, temperature=1.0, top_k=5, generator=source)), 1))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    with model.stream(batch=2) as reader:
        reader.feed(prompt)
        assert len(list(reader.generate(50, stop=range(11)))) == 1


def test_state_bytes_do_not_grow_with_the_text():
    model = model_of()
    sizes = set()
    with model.stream() as reader:
        for length in (1, 100, 5000):
            reader.feed(tokens(length, batch=1))
            sizes.add(reader.state().nbytes)
    assert len(sizes) == 1


def test_state_of_another_model_is_refused():
    model = model_of()
    with model.stream() as reader:
        reader.feed(tokens(3, batch=1))
        state = reader.state()
    for other in (model_of(seed=1), model_of(chunk_size=3), model_of(rule="gd")):
        with pytest.raises(InputError, match="another configuration"), other.stream(state):
            pass


def test_a_memory_file_is_used_by_another_process(tmp_path):
    model, text = model_of(), tokens(29, batch=1)
    model.save_pretrained(tmp_path / "model")
    with model.stream() as reader:
        reader.feed(text[:, :21])
        reader.state().save(tmp_path / "memory.safetensors")
    program = f"""
import torch
from assay.lact.language import LaCTForCausalLM
from assay.lact.state import LaCTState
model = LaCTForCausalLM.from_pretrained({str(tmp_path / "model")!r}, dtype=torch.float64)
with model.stream(LaCTState.load({str(tmp_path / "memory.safetensors")!r})) as reader:
    print(reader.feed(torch.tensor({text[:, 21:].tolist()}))[0].tolist())
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120, env=environment
    )
    got = torch.tensor(json.loads(done.stdout.splitlines()[-1]), dtype=torch.float64)
    torch.testing.assert_close(got, model(text).logits[0, -1], rtol=0, atol=ATOL)


def test_a_forced_memory_of_another_kind_is_refused(tmp_path):
    LaCTState({"a": torch.zeros(1, 1)}, config="x").save(tmp_path / "memory.safetensors")
    state = LaCTState.load(tmp_path / "memory.safetensors")
    with pytest.raises(InputError, match="another configuration"), model_of().stream(state):
        pass


WRONG_CONFIG = {
    "hidden_size is 0": {"hidden_size": 0},
    "dim is 8; expected a multiple of num_heads=3": {"num_attention_heads": 3},
    "window is 3, shorter than chunk_size=4": {"window": 3},
    "chunk_size is 0": {"chunk_size": 0},
}


@pytest.mark.parametrize("message", sorted(WRONG_CONFIG))
def test_wrong_configurations_are_refused(message):
    with pytest.raises(InputError, match=message):
        model_of(**WRONG_CONFIG[message])


def test_wrong_inputs_are_refused():
    model = model_of()
    with pytest.raises(InputError, match="input_ids reach from 3 to 11; expected tokens from 0 to 10"):
        model(torch.tensor([[3, 11]]))
    with pytest.raises(InputError, match="both or neither given"):
        model()
    with pytest.raises(InputError, match="mask_BL is all padding"):
        model(tokens(3), attention_mask=torch.zeros(2, 3))
    with pytest.raises(InputError, match="nothing has been read"), model.stream() as reader:
        reader.feed(tokens(0, batch=1))
    with pytest.raises(InputError, match="nothing has been read"), model.stream() as reader:
        list(reader.generate(1))


def test_an_empty_text_gives_no_logits():
    assert model_of()(tokens(0)).logits.shape == (2, 0, 11)


PUBLISHED = {
    "model_type": "lact_swiglu",
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attn_heads": 2,
    "num_lact_heads": 3,
    "inter_multi": 2,
    "lact_chunk_size": 4,
    "window_size": 4,
    "use_muon": True,
    "use_momentum": True,
    "w0_w2_low_rank": 2,
    "attn_qk_norm": True,
    "vocab_size": 11,
    "intermediate_size": 16,
    "rope_theta": 1000000.0,
}


def published_shapes() -> dict[str, tuple[int, ...]]:
    """What the paper's code saves for that configuration."""
    layer = {
        "attn_norm.weight": (12,),
        "attn.qkv.weight": (36, 12),
        "attn.q_norm.weight": (12,),
        "attn.k_norm.weight": (12,),
        "attn.o_proj.weight": (12, 12),
        "attn.w0.w_left": (3, 8, 2),
        "attn.w0.w_right": (3, 2, 4),
        "attn.w1": (3, 4, 8),
        "attn.w2.w_left": (3, 8, 2),
        "attn.w2.w_right": (3, 2, 4),
        "attn.lr_proj.weight": (9, 12),
        "attn.lr_proj.bias": (9,),
        "attn.qk_scale": (12, 2),
        "attn.qk_offset": (12, 2),
        "attn.ttt_scale_proj.weight": (3, 12),
        "attn.ttt_scale_proj.bias": (3,),
        "attn.ttt_norm.weight": (4,),
        "attn.momentum_proj.0.weight": (3, 12),
        "attn.momentum_proj.0.bias": (3,),
        "mlp_norm.weight": (12,),
        "mlp.gate_proj.weight": (16, 12),
        "mlp.up_proj.weight": (16, 12),
        "mlp.down_proj.weight": (12, 16),
    }
    whole = {f"model.layers.{n}.{name}": shape for n in range(2) for name, shape in layer.items()}
    return whole | {"model.embeddings.weight": (11, 12), "model.norm.weight": (12,), "lm_head.weight": (11, 12)}


@pytest.mark.parametrize("form", ["one file", "several", "bin"])
def test_a_published_checkpoint_is_loaded_whole(tmp_path, form):
    draw = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=draw) for name, shape in published_shapes().items()}
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    if form == "bin":
        torch.save(weights, tmp_path / "pytorch_model.bin")
    elif form == "one file":
        save_file(weights, tmp_path / "model.safetensors")
    else:
        names = sorted(weights)
        parts = {"a.safetensors": names[:20], "b.safetensors": names[20:]}
        for file, own in parts.items():
            save_file({name: weights[name] for name in own}, tmp_path / file)
        index = {"weight_map": {name: file for file, own in parts.items() for name in own}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    model = load_published_language(tmp_path)
    back = published_language_weights(model.state_dict(), back=True)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)
    assert model(tokens(9)).logits.isfinite().all()


def test_what_is_wrong_with_a_published_checkpoint_is_said(tmp_path):
    with pytest.raises(InputError, match=r"holds no config\.json"):
        load_published_language(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    with pytest.raises(InputError, match="holds no weights"):
        load_published_language(tmp_path)
    weights = {name: torch.zeros(shape) for name, shape in published_shapes().items()}
    del weights["model.layers.1.attn.w1"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"model.layers.1.attn.branch.fast.w1 is missing; expected \(3, 4, 8\)"):
        load_published_language(tmp_path)
    with pytest.raises(InputError, match="model_type is 'llama'; expected 'lact_swiglu'"):
        published_language_config({"model_type": "llama"})
    with pytest.raises(InputError, match="lr_dim is 2; expected 1"):
        published_language_config({**PUBLISHED, "lr_dim": 2})


def test_the_papers_model_has_the_papers_size():
    config = LaCTConfig(
        vocab_size=32000, hidden_size=1536, num_hidden_layers=24, num_attention_heads=24, tie_word_embeddings=False
    )
    with torch.device("meta"):
        model = LaCTForCausalLM(config)
    assert 0.7e9 < sum(parameter.numel() for parameter in model.parameters()) < 0.85e9
