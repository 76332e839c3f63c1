"""The commands for text, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from assay.cli import run
from assay.core.lm import random_llama
from assay.lact import text_models, text_training
from assay.lact.language import LaCTForCausalLM
from assay.lact.state import LaCTState
from assay.lact.text_jobs import _until
from assay.lact.text_models import ByteText, TextModel, load_text_model, load_tokens, save_text_model, written_text

TEXT = "The number of amber is 1234. The quick brown fox jumps over the lazy dog, naïvely.\n" * 30
TINY = ("--width", "16", "--layers", "1", "--heads", "2", "--fast-heads", "2", "--window", "16", "--chunk", "16")
SMALL = (*TINY, "--steps", "3", "--batch", "2", "--context", "40")


def small_but(*changes: str) -> list[str]:
    """SMALL with other values for some options, or with more of them."""
    options = dict(zip(SMALL[::2], SMALL[1::2], strict=True)) | dict(zip(changes[::2], changes[1::2], strict=True))
    return [word for option in options.items() for word in option]


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dátà with spaces"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("text.txt").write_text(TEXT, encoding="utf-8")


def lact(*arguments: str) -> int:
    return run(["lact", *arguments])


def summary_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert lact(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    before = sorted(path.name for path in Path().iterdir())
    assert lact(*arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before
    return err


def a_model(folder: str = "model", *, seed: int = 0, **changes) -> LaCTForCausalLM:
    """Random weights that say something other than spaces."""
    settings = {"hidden_size": 16, "num_hidden_layers": 1, "window": 16, "chunk_size": 16, "initializer_range": 0.3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LaCTForCausalLM.small(seed=seed, **{**settings, **changes})
    save_text_model(TextModel(model, ByteText(), folder), Path(folder))
    return model


def standard_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))


def write_formats() -> list[str]:
    lines = [TEXT[start : start + 300] for start in range(0, len(TEXT), 300)]
    Path("lines.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines), encoding="utf-8")
    pq.write_table(pa.table({"text": lines}), "table.parquet")
    Path("crlf.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    with gzip.open("packed.txt.gz", "wt", encoding="utf-8") as stream:
        stream.write(TEXT)
    Path("folder").mkdir()
    Path("folder/a.md").write_text(TEXT, encoding="utf-8")
    return ["text.txt", "lines.jsonl", "table.parquet", "crlf.txt", "packed.txt.gz", "folder"]


def test_from_text_to_an_answer(capsys):
    summary = summary_of(capsys, "train-lm", "text.txt", *SMALL, "--needles", "0", "-o", "model")
    assert summary["steps"] == 3
    assert summary["perplexity"] == pytest.approx(2.718281828 ** summary["validation_loss"], rel=1e-6)
    entries = [json.loads(line) for line in Path("model/metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [1, 2, 3]
    assert Path("model/loss.svg").read_text().lstrip().startswith("<?xml")
    assert not Path("model/checkpoint.safetensors").exists()
    memory = summary_of(capsys, "memorize", "text.txt", "--model", "model", "-o", "memory.safetensors")
    size = len(TEXT.rstrip("\n").encode())
    assert memory["tokens"] == memory["tokens_in_memory"] == size
    assert memory["state_bytes"] == summary["state_bytes"] < memory["cache_bytes_of_full_attention"] == 8 * size * 16
    answer = summary_of(
        capsys, "ask", "The number of amber is ", "-m", "model", "--memory", "memory.safetensors", "--tokens", "5"
    )
    assert answer["prompt"] == "The number of amber is "
    assert len(answer["text"]) <= 5


@pytest.mark.parametrize("number", range(6))
def test_every_format_is_read(capsys, number):
    a_model()
    source = write_formats()[number]
    summary = summary_of(capsys, "memorize", source, "-m", "model", "-o", "memory.safetensors")
    assert abs(summary["tokens"] - len(TEXT.encode())) < 12


def test_a_memory_is_the_text_itself(capsys):
    """What is foreseen after a memory equals what is foreseen after the text."""
    # Newton–Schulz lets rounding grow from chunk to chunk; the plain gradient doesn't.
    model = a_model(rule="gd")
    lines = TEXT.splitlines()[:20]
    Path("first.txt").write_text("\n".join(lines[:12]), encoding="utf-8")
    Path("rest.txt").write_text("\n".join(lines[12:]), encoding="utf-8")
    assert lact("memorize", "first.txt", "-m", "model", "-o", "m.safetensors", "-q") == 0
    found = summary_of(capsys, "loss", "rest.txt", "-m", "model", "--with-memory", "m.safetensors")
    whole = torch.tensor([list("\n".join(lines[:12]).encode() + "\n".join(lines[12:]).encode())])
    rest = len("\n".join(lines[12:]).encode())
    with model.stream() as reader:
        expected = reader.loss(whole)[0, -rest + 1 :].mean()
    assert found["loss_with_memory"] == pytest.approx(float(expected), abs=1e-5)
    assert found["gain"] == pytest.approx(found["loss"] - found["loss_with_memory"])


def test_memorizing_in_two_parts_is_memorizing_at_once(capsys):
    a_model(rule="gd")
    half = TEXT[: len(TEXT) // 2].rstrip("\n")
    Path("first.txt").write_text(half, encoding="utf-8")
    Path("second.txt").write_text(TEXT[len(half) :].strip("\n"), encoding="utf-8")
    Path("both.txt").write_text(half + TEXT[len(half) :].strip("\n"), encoding="utf-8")
    assert lact("memorize", "first.txt", "-m", "model", "-o", "one.safetensors", "-q") == 0
    continued = ("--with-memory", "one.safetensors", "-o", "two.safetensors")
    summary = summary_of(capsys, "memorize", "second.txt", "-m", "model", *continued)
    assert lact("memorize", "both.txt", "-m", "model", "-o", "both.safetensors", "-q") == 0
    two, both = (LaCTState.load(f"{name}.safetensors") for name in ("two", "both"))
    assert two.keys() == both.keys()
    assert int(two["layer0.position"][0]) == summary["tokens_in_memory"] == len(Path("both.txt").read_bytes())
    for name in two:
        torch.testing.assert_close(two[name], both[name], rtol=0, atol=1e-4)
    assert lact("memorize", "both.txt", "-m", "model", "-o", "closed.safetensors", "--end-of-input", "-q") == 0
    assert LaCTState.load("closed.safetensors")["layer0.memory.filled"].eq(0).all()
    assert LaCTState.note_of("both.safetensors")["text"] == "both.txt"


def test_a_memory_file_is_asked_in_another_process(capsys):
    a_model()
    assert lact("memorize", "text.txt", "-m", "model", "-o", "memory.safetensors", "-q") == 0
    asked = ["ask", "The ", "-m", "model", "--memory", "memory.safetensors", "--tokens", "12"]
    here = summary_of(capsys, *asked)
    there = subprocess.run(
        [sys.executable, "-m", "assay", "lact", *asked],
        capture_output=True,
        timeout=120,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
    )
    assert there.stdout.decode() == here["text"] + "\n"


def test_a_memory_of_another_model_is_refused(capsys):
    a_model()
    a_model("other", seed=1)
    a_model("larger", window=20)
    assert lact("memorize", "text.txt", "-m", "model", "-o", "memory.safetensors", "-q") == 0
    for other in ("other", "larger"):
        said = refusal_of(capsys, "ask", "x", "-m", other, "--memory", "memory.safetensors")
        assert "memory.safetensors: is of another configuration" in said
    save_file({"a": torch.zeros(1)}, "tensors.safetensors")
    assert "holds no state" in refusal_of(capsys, "ask", "x", "-m", "model", "--memory", "tensors.safetensors")
    Path("cut.safetensors").write_bytes(Path("memory.safetensors").read_bytes()[:300])
    assert "damaged" in refusal_of(capsys, "generate", "x", "-m", "model", "--with-memory", "cut.safetensors")
    assert "no such file" in refusal_of(capsys, "loss", "text.txt", "-m", "model", "--with-memory", "no.safetensors")
    assert "unknown ending" in refusal_of(capsys, "ask", "x", "-m", "model", "--memory", "text.txt")


def test_generate_shows_the_prompt_and_goes_on(capsys, monkeypatch):
    model = a_model()
    assert lact("generate", "The quick", "-m", "model", "--tokens", "9") == 0
    out, err = capsys.readouterr()
    assert err == ""
    expected = model.generate(torch.tensor([list(b"The quick")]), max_new_tokens=9, do_sample=False)
    assert out == bytes(expected[0].tolist()).decode(errors="replace") + "\n"
    standard_input(monkeypatch, "The quick")
    assert lact("generate", "-", "-m", "model", "--tokens", "9", "--out", "written.txt") == 0
    assert Path("written.txt").read_text(encoding="utf-8") == out
    assert "wrote        written.txt" in capsys.readouterr().out
    assert "exists already" in refusal_of(capsys, "generate", "x", "-m", "model", "-o", "written.txt")


def test_draws_follow_the_seed(capsys):
    a_model()
    drawn = [
        summary_of(capsys, "generate", "a", "-m", "model", "--tokens", "30", "--temperature", "1", "--seed", seed)[
            "text"
        ]
        for seed in ("1", "1", "2")
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_needles_are_planted_by_length_and_depth(capsys):
    a_model()
    asked = ("--lengths", "90", "--lengths", "150", "--depths", "0", "--depths", "1", "--trials", "3")
    summary = summary_of(capsys, "needle", "text.txt", "-m", "model", *asked, "-o", "needle.csv")
    with open("needle.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["length"], row["depth"]) for row in rows] == [
        ("90", "0.0"),
        ("90", "1.0"),
        ("150", "0.0"),
        ("150", "1.0"),
    ]
    assert [float(row["loss"]) for row in rows] == pytest.approx([row["loss"] for row in summary["needles"]])
    assert all(0 <= row["digits"] <= 1 for row in summary["needles"])
    assert lact("needle", "-m", "model", "--lengths", "90", "--depths", "0.5", "--trials", "1", "-o", "n.parquet") == 0
    assert pq.read_table("n.parquet").num_rows == 1


def test_a_tokenizer_is_saved_with_the_model_and_used_again(capsys):
    random_llama().tokenizer.save_pretrained("tokenizer")
    for number, given in enumerate(("tokenizer/tokenizer.json", "tokenizer")):
        folder = f"model{number}"
        summary_of(capsys, "train-lm", "text.txt", *SMALL, "--tokenizer", given, "-o", folder)
        loaded = load_text_model(folder)
        assert loaded.model.config.vocab_size == loaded.tokens.size
        assert loaded.tokens.decode(loaded.tokens.encode("naïvely")) == "naïvely"
        tokens = summary_of(capsys, "loss", "text.txt", "-m", folder)["tokens"]
        assert tokens == len(loaded.tokens.encode(TEXT.rstrip("\n"))) < len(TEXT)
    assert "has a tokenizer" in refusal_of(capsys, "needle", "text.txt", "-m", "model0")
    assert "no tokenizer can be loaded" in refusal_of(
        capsys, "train-lm", "text.txt", *SMALL, "--tokenizer", "tokenizer/tokenizer_config.json", "-o", "m"
    )


def test_a_stopped_run_goes_on_where_it_stopped(capsys, monkeypatch):
    asked = ("train-lm", "text.txt", *small_but("--steps", "5"))
    larger = ("train-lm", "text.txt", *small_but("--steps", "5", "--expand", "2"))
    whole = summary_of(capsys, *asked, "-o", "whole")
    one_step, steps = text_training._one_step, []

    def stopped_in_the_third(*arguments):
        steps.append(1)
        if len(steps) == 3:
            signal.raise_signal(signal.SIGINT)
        return one_step(*arguments)

    monkeypatch.setattr(text_training, "_one_step", stopped_in_the_third)
    assert lact(*asked, "-o", "model") == 130
    assert "model/checkpoint.safetensors holds the last step" in capsys.readouterr().err
    assert "--resume to go on" in refusal_of(capsys, *asked, "-o", "model")
    assert "was made with expand 1.0, not 2.0" in refusal_of(capsys, *larger, "-o", "model", "--resume")
    again = summary_of(capsys, *asked, "-o", "model", "--resume")
    assert again["loss"] == whole["loss"]
    assert again["validation_loss"] == whole["validation_loss"]
    assert "exists already" in refusal_of(capsys, *asked, "-o", "model")
    assert "holds no checkpoint.safetensors" in refusal_of(capsys, *asked, "-o", "model", "--resume")


WRONG_TRAINING = {
    "--width is 0; expected at least 1": ("--width", "0"),
    "--window is 8, shorter than --chunk 16": ("--window", "8"),
    "--width is 16; expected a multiple of --heads 3": ("--heads", "3"),
    "--width is 16; expected a multiple of --fast-heads 3": ("--fast-heads", "3"),
    "--chunk is 0": ("--chunk", "0"),
    "--steps is 0": ("--steps", "0"),
    "--context is 1; expected at least 2": ("--context", "1"),
    "--lr is nan": ("--lr", "nan"),
    "--base-lr is -1": ("--base-lr", "-1"),
    "--needles is 2": ("--needles", "2"),
    "--seed is -1": ("--seed", "-1"),
    "'1.5'": ("--batch", "1.5"),
    "tokens; expected at least 4000 for rows of 2000": ("--context", "2000"),
}


@pytest.mark.parametrize("message", sorted(WRONG_TRAINING))
def test_wrong_training_is_refused_in_one_line(capsys, message):
    said = refusal_of(capsys, "train-lm", "text.txt", *small_but(*WRONG_TRAINING[message]), "-o", "model")
    assert message in said


def test_wrong_files_are_refused_in_one_line(capsys):
    a_model()
    Path("empty.txt").touch()
    Path("latin.txt").write_bytes(b"one\ncaf\xe9\n")
    Path("blank.txt").write_text(" \n", encoding="utf-8")
    Path("bad.jsonl").write_text('{"text": "a"}\n{"body": 1}\n', encoding="utf-8")
    Path("picture.png").write_bytes(b"\x89PNG")
    Path("empty folder").mkdir()
    for source, said in {
        "missing.txt": "missing.txt: no such file",
        "empty.txt": "empty.txt: the file is empty",
        "latin.txt": "latin.txt, row 2: byte 0xe9 is not UTF-8",
        "blank.txt": "blank.txt: holds no text",
        "bad.jsonl": "bad.jsonl, row 2: has no text in 'text'",
        "picture.png": "picture.png: unknown ending",
        "empty folder": "empty folder: the folder holds no text",
    }.items():
        assert said in refusal_of(capsys, "train-lm", source, *SMALL, "-o", "m")
        assert said in refusal_of(capsys, "memorize", source, "-m", "model", "-o", "m.safetensors")
        assert said in refusal_of(capsys, "loss", source, "-m", "model")
    assert "unknown ending '.bin'" in refusal_of(capsys, "memorize", "text.txt", "-m", "model", "-o", "m.bin")
    assert "the prompt is empty" in refusal_of(capsys, "generate", "", "-m", "model")
    assert "--temperature is -1" in refusal_of(capsys, "generate", "a", "-m", "model", "--temperature", "-1")
    assert "--trials is 0" in refusal_of(capsys, "needle", "-m", "model", "--trials", "0")
    assert "unknown ending '.xls'" in refusal_of(capsys, "needle", "-m", "model", "-o", "n.xls")
    assert "--lengths is 20; expected at least" in refusal_of(capsys, "needle", "-m", "model", "--lengths", "20")
    assert "--depths is 2" in refusal_of(capsys, "needle", "-m", "model", "--depths", "2", "--lengths", "90")
    assert "--out - and --json" in refusal_of(capsys, "generate", "a", "-m", "model", "-o", "-", "--json")


def test_wrong_models_are_refused_in_one_line(capsys, monkeypatch):
    a_model()
    Path("bare").mkdir()
    Path("llama").mkdir()
    Path("llama/config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    Path("broken").mkdir()
    Path("broken/config.json").write_text("{", encoding="utf-8")
    a_model("lacking")
    weights = load_weights("lacking")
    del weights["model.norm.weight"]
    save_file(weights, "lacking/model.safetensors", metadata={"format": "pt"})
    a_model("cut")
    Path("cut/model.safetensors").write_bytes(Path("cut/model.safetensors").read_bytes()[:500])
    a_model("other tokens", vocab_size=300)

    def no_hub(name, **kwargs):
        raise OSError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", no_hub)
    for model, said in {
        "missing": "missing: no such folder",
        "text.txt": "text.txt: is no folder",
        "bare": "bare: holds no config.json",
        "llama": "llama: holds a model of type 'llama'",
        "broken": "is not JSON",
        "lacking": "lacking: lacks model.norm.weight",
        "cut": "cut: can't be loaded",
        "other tokens": "other tokens: has 300 tokens, and 256 are needed",
        "owner/name": "owner/name: neither a folder nor a model of the hub: offline",
    }.items():
        assert said in refusal_of(capsys, "generate", "a", "-m", model)


def load_weights(folder: str) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(f"{folder}/model.safetensors")


def test_a_model_of_the_hub_is_fetched_and_loaded(monkeypatch, tmp_path):
    asked = []

    def snapshot(name, *, allow_patterns):
        asked.append((name, allow_patterns))
        return str(tmp_path / "fetched")

    a_model(str(tmp_path / "fetched"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert load_text_model("owner/name").model.config.hidden_size == 16
    assert asked == [("owner/name", text_models.FILES)]


def test_characters_appear_when_they_are_whole():
    tokens = load_tokens()
    assert list(written_text("aé😀\nb".encode(), tokens)) == ["a", "é", "😀", "\n", "b"]
    assert "".join(written_text(b"a\xffb\xc3", tokens)) == "a\ufffdb\ufffd"


def test_writing_ends_before_the_stop_text():
    assert "".join(_until(iter("one two"), " t")) == "one"
    assert "".join(_until(iter("one"), "e!")) == "one"
    assert "".join(_until(iter(["ab", "cab", "cd"]), "cd")) == "abcab"
    assert "".join(_until(iter("abc"), None)) == "abc"


def test_people_are_told_and_quiet_is_quiet(capsys, monkeypatch):
    standard_input(monkeypatch, TEXT)
    assert lact("train-lm", "-", *SMALL, "-o", "model") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "3 steps, memory lact" in out
    assert "bytes, whatever the length" in out
    assert "wrote        model" in out
    assert lact("train-lm", "text.txt", *SMALL, "-o", "other", "-q") == 0
    assert capsys.readouterr() == ("", "")
    assert lact("loss", "text.txt", "-m", "model") == 0
    assert "nats a token over" in capsys.readouterr().out


def test_too_small_a_chunk_for_muon_is_one_line_of_warning(capsys):
    asked = ("--width", "32", "--fast-heads", "1", "--rule", "muon")
    assert lact("train-lm", "text.txt", *small_but(*asked), "-o", "model") == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: chunks of 16 tokens")
    assert err.count("\n") == 1
