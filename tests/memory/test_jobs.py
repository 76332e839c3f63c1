"""The commands on files as people have them: every format, every bad input, and nothing half-written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from assay.cli import run as command
from assay.memory.pattern_files import read_bits, two_level_image
from assay.memory.patterns import corrupt, random_patterns

X = random_patterns(60, 64, seed=3)
CUES = corrupt(X[:8], flips=6, rng=np.random.default_rng(0))
BITS, CUE_BITS = (X > 0).astype(np.uint8), (CUES > 0).astype(np.uint8)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def text(bits, *, separator="", end="\n"):
    return "".join(separator.join(map(str, row)) + end for row in bits.tolist())


def save_images(folder: str, bits, *, shape=(8, 8)):
    os.mkdir(folder)
    for number, row in enumerate(bits):
        Image.fromarray((row.reshape(shape) * 200 + 20).astype(np.uint8)).save(f"{folder}/{number:03d} ü.png")


WRITERS: dict[str, Callable[[str, np.ndarray], object]] = {
    "p.npy": lambda name, bits: np.save(name, bits),
    "p.npz": lambda name, bits: np.savez(name, bits=bits),
    "p.csv": lambda name, bits: Path(name).write_text(text(bits, separator=",")),
    "p.tsv": lambda name, bits: Path(name).write_text(text(bits, separator="\t")),
    "p.txt": lambda name, bits: Path(name).write_text(text(bits)),
    "with blank ü.txt": lambda name, bits: Path(name).write_text(text(bits, separator=" ")),
    "crlf.txt": lambda name, bits: Path(name).write_bytes(("\ufeff" + text(bits, end="\r\n")).encode()),
    "p.csv.gz": lambda name, bits: Path(name).write_bytes(gzip.compress(text(bits, separator=",").encode())),
    "header.csv": lambda name, bits: Path(name).write_text(
        ",".join(f"bit{i}" for i in range(bits.shape[1])) + "\n" + text(bits, separator=",")
    ),
    "p.safetensors": lambda name, bits: save_file({"bits": bits}, name),
    "images": save_images,
}


@pytest.mark.parametrize("name", list(WRITERS))
def test_patterns_and_cues_of_every_format_are_stored_and_recalled(name, capsys):
    WRITERS[name](name, BITS)
    other = f"c{name}" if name != "images" else "cues"
    WRITERS[name](other, CUE_BITS)
    assert command(["memory", "store", name, "--order", "4", "-o", "codes.dam"]) == 0
    assert "60 patterns of 64 bits, order 4" in capsys.readouterr().out
    assert command(["memory", "recall", "codes.dam", other, "-o", "out.npy"]) == 0
    assert np.array_equal(np.load("out.npy") > 0, BITS[:8] > 0)


@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".txt", ".safetensors"])
def test_states_are_written_in_every_format(ending, capsys):
    np.save("p.npy", BITS)
    np.save("c.npy", CUE_BITS)
    command(["memory", "store", "p.npy", "--order", "4", "-o", "codes.dam"])
    assert command(["memory", "recall", "codes.dam", "c.npy", "-o", f"out{ending}", "--table", "t.csv", "--json"]) == 0
    name = f"out{ending}"
    found = load_file(name)["states"] if ending == ".safetensors" else read_bits(name).values
    assert np.array_equal(found, BITS[:8])
    rows = Path("t.csv").read_text().splitlines()
    assert rows[0] == "cue,nearest,distance,sweeps,converged,cycle"
    assert rows[3].startswith("2,2,0,")
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["cues"], summary["exact"], summary["converged"]) == (8, 8, 8)


def test_erased_bits_in_text_and_by_a_mask(capsys):
    Path("p.txt").write_text(text(BITS))
    command(["memory", "store", "p.txt", "--order", "4", "-o", "codes.dam"])
    gaps = [["?" if column % 4 == 0 else str(bit) for column, bit in enumerate(row)] for row in BITS[:5].tolist()]
    Path("c.txt").write_text("".join("".join(row) + "\n" for row in gaps))
    assert command(["memory", "recall", "codes.dam", "c.txt", "-o", "out.txt"]) == 0
    assert Path("out.txt").read_text() == text(BITS[:5])
    mask = np.zeros((8, 64), dtype=np.uint8)
    mask[:, ::4] = 1
    np.save("mask.npy", mask)
    np.save("c.npy", BITS[:8] ^ mask)
    assert command(["memory", "recall", "codes.dam", "c.npy", "--erased", "mask.npy", "-o", "masked.npy"]) == 0
    assert np.array_equal(np.load("masked.npy"), BITS[:8])
    np.save("mask.npy", mask[:3])
    assert command(["memory", "recall", "codes.dam", "c.npy", "--erased", "mask.npy", "-o", "again.npy"]) == 2
    assert "mask.npy: has 3 rows of 64 marks; expected 8 rows of 64, as the cues have" in capsys.readouterr().err
    np.save("mask.npy", np.full((8, 64), 7))
    assert command(["memory", "recall", "codes.dam", "c.npy", "--erased", "mask.npy", "-o", "again.npy"]) == 2
    assert "mask.npy, row 1, column 1: is 7; expected 1 for an erased bit" in capsys.readouterr().err


def test_streams_of_text(run):
    Path("p.txt").write_text(text(BITS))
    store = "assay memory store - -o codes.dam --order 4 --quiet < p.txt"
    done = run("sh", "-c", f"{store} && head -3 p.txt | assay memory recall codes.dam - -o -")
    assert done.returncode == 0, done.stderr
    assert done.stdout == text(BITS[:3])
    assert "recalled     3 cues" in done.stderr


def test_pictures_before_and_after_and_of_the_curve(capsys):
    save_images("images", BITS)
    save_images("cues", CUE_BITS)
    command(["memory", "store", "images", "--order", "4", "-o", "codes.dam"])
    assert (
        command(["memory", "recall", "codes.dam", "cues", "--picture", "a.png", "--plot", "b.svg", "--table", "t.csv"])
        == 0
    )
    assert Image.open("a.png").size[0] > 300
    assert "<svg" in Path("b.svg").read_text()
    np.save("p.npy", BITS)
    command(["memory", "store", "p.npy", "-o", "plain.dam", "--order", "4"])
    assert command(["memory", "recall", "plain.dam", "p.npy", "--picture", "c.png"]) == 2
    assert "holds no images" in capsys.readouterr().err


def test_images_become_two_levels():
    grey = np.array([[10, 20, 30], [200, 210, 220]], dtype=np.uint8)
    for threshold in ("otsu", "median", "128"):
        assert two_level_image(grey, threshold).tolist() == [[False] * 3, [True] * 3]


def test_predictions_as_text_and_json(capsys):
    arguments = ["memory", "predict", "--order", "3", "--bits", "1024", "--patterns", "70000", "--corruption", "0.15"]
    assert command([*arguments, "--paths", "20000", "--plot", "m.png"]) == 0
    assert "recall       succeeds" in capsys.readouterr().out
    assert command([*arguments, "--paths", "20000", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["load"] == pytest.approx(0.20027, abs=1e-5)
    assert summary["overlap"][:3] == pytest.approx([0.7, 0.7268, 0.825], abs=0.01)
    assert summary["without_self_interaction"][1] == pytest.approx(summary["overlap"][1], abs=1e-3)
    assert Path("m.png").stat().st_size > 5000


def test_plan_capacity_and_basin(capsys):
    plan = ["memory", "plan", "--bits", "256", "--patterns", "3000", "--corruption", "0.1", "--paths", "500", "--json"]
    assert command(plan) == 0
    assert json.loads(capsys.readouterr().out)["recommended"] == 3
    assert command(["memory", "capacity", "--order", "3", "--bits", "1024", "--paths", "1000", "--horizon", "20"]) == 0
    out = capsys.readouterr().out
    assert "rs           alpha' = 0.2522, 88,146 patterns" in out
    assert "1rsb         alpha' = 0.2666" in out
    assert "after 20 sweeps" in out
    basin = ["memory", "basin", "--load", "0.1", "--paths", "500", "--horizon", "10", "--bits", "100"]
    assert command([*basin, "--plot", "b.png"]) == 0
    assert "flipped bits" in capsys.readouterr().out
    assert Path("b.png").exists()
    assert command(["memory", "basin", "--load", "0.9", "--paths", "1000"]) == 0
    assert "basin        none" in capsys.readouterr().out


def test_the_audit_of_a_file(capsys):
    np.save("p.npy", (random_patterns(2000, 256, seed=5) > 0))
    command(["memory", "store", "p.npy", "-o", "codes.dam"])
    capsys.readouterr()
    assert command(["memory", "audit", "codes.dam", "--plot", "m.png"]) == 0
    assert "theory applies" in capsys.readouterr().out
    np.save("c.npy", np.load("p.npy")[:5])
    assert command(["memory", "audit", "codes.dam", "c.npy", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["cues"] == 5
    assert summary["measured"][0] == 1.0
    assert (
        command(["memory", "audit", "codes.dam", "--decorrelate", "project", "--projected-bits", "128", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["bits"] == 128


def test_a_memory_beyond_its_capacity_is_stored_with_a_warning_in_one_line(capsys):
    np.save("p.npy", np.concatenate([BITS, BITS[:2]]))
    assert command(["memory", "store", "p.npy", "--order", "2", "-o", "codes.dam"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("warning: 62 patterns of 64 bits load order 2 to alpha' = 0.969") for line in lines)
    assert any(line == "warning: 2 of 62 patterns are copies of earlier ones: row 61 equals row 1" for line in lines)
    assert command(["memory", "store", "p.npy", "--order", "2", "-o", "quiet.dam", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


BAD_PATTERNS = {
    "missing": (lambda: "none.npy", "none.npy: no such file"),
    "empty": (lambda: write("e.csv", ""), "e.csv: the file is empty"),
    "blank": (lambda: write("e.txt", "\n\n"), "e.txt: holds no patterns"),
    "ending": (lambda: write("p.doc", "01\n"), "unknown ending '.doc'"),
    "empty-folder": (lambda: os.mkdir("d") or "d", "d: holds no .png file"),
    "value": (lambda: write("p.csv", "0,1\n1,2\n"), "p.csv, row 2, column 2: '2' is no bit"),
    "nan": (lambda: write("p.csv", "0,1\n1,nan\n"), "p.csv, row 2, column 2: 'nan' is no bit"),
    "ragged": (lambda: write("p.csv", "0,1\n1\n"), "p.csv, row 2: has 1 bit; expected 2 as above"),
    "latin": (lambda: write("p.txt", b"01\n\xff1\n"), "p.txt, row 2: byte 0xff is not UTF-8"),
    "truncated-npy": (lambda: write("p.npy", b"\x93NUMPY\x01\x00"), "p.npy: damaged, or not an array"),
    "truncated-npz": (lambda: write("p.npz", b"PK\x03\x04"), "p.npz: damaged"),
    "truncated-tensors": (lambda: write("p.safetensors", b"\x10\x00"), "p.safetensors: damaged"),
    "no-image": (lambda: os.mkdir("i") or (write("i/a.png", "x") and "i"), "damaged or no image"),
    "gzip": (lambda: write("p.csv.gz", gzip.compress(b"0,1\n1,0\n")[:12]), "p.csv.gz: damaged"),
    "nan-array": (
        lambda: np.save("n.npy", np.array([[0.0, np.nan]])) or "n.npy",
        "n.npy, row 1, column 2: is NaN; expected 0 or 1, or -1 or 1",
    ),
    "no-rows": (
        lambda: np.save("z.npy", np.zeros((0, 4))) or "z.npy",
        "z.npy: holds no bits: its shape is (0, 4); expected at least one pattern of one bit",
    ),
    "vector": (
        lambda: np.save("v.npy", np.zeros(4)) or "v.npy",
        "v.npy: holds an array of shape (4,); expected a matrix with a pattern a row",
    ),
    "three-levels": (
        lambda: np.save("t.npy", np.array([[0, -1, 1]])) or "t.npy",
        "t.npy, row 1, column 1: is 0 among -1 and 1",
    ),
    "level": (lambda: np.save("l.npy", np.array([[0, 1], [1, 3]])) or "l.npy", "l.npy, row 2, column 2: is 3"),
    "words": (lambda: np.save("w.npy", np.array([["0"]])) or "w.npy", "w.npy: holds dtype <U1; expected real numbers"),
    "four-axes": (lambda: np.save("f.npy", np.zeros((2, 2, 2, 2))) or "f.npy", "shape (2, 2, 2, 2)"),
    "after-header": (lambda: write("h.csv", "a,b\n\n0,1\n1,x\n"), "h.csv, row 4, column 2: 'x' is no bit"),
    "two-headers": (lambda: write("h.csv", "a,b\nc,d\n0,1\n"), "h.csv, row 2, column 1: 'c' is no bit"),
    "gap": (lambda: write("g.txt", "0110\n01?0\n"), "g.txt, row 2, column 3: '?' marks an erased bit"),
    "long": (lambda: write("g.csv", f"0,{'x' * 5000}\n"), f"'{'x' * 20}…' is no bit"),
    "tensor-axis": (
        lambda: save_file({"x": np.zeros(3)}, "s.safetensors") or "s.safetensors",
        "an array of shape (3,)",
    ),
    "two-arrays": (lambda: np.savez("m.npz", a=BITS, b=BITS) or "m.npz", "m.npz: holds 2 arrays; expected --key"),
}


@pytest.mark.parametrize("name", list(BAD_PATTERNS))
def test_a_bad_file_is_one_line_and_status_two(name, capsys):
    make, message = BAD_PATTERNS[name]
    assert command(["memory", "store", make(), "-o", "codes.dam"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("codes.dam").exists()


BAD_ARGUMENTS = {
    "order": (["store", "p.npy", "-o", "a.dam", "--order", "1"], "assay: --order is 1"),
    "order-word": (["store", "p.npy", "-o", "a.dam", "--order", "2.5"], "order is '2.5'"),
    "kind": (["store", "p.npy", "-o", "a.dam", "--kind", "magic"], "magic"),
    "abbott": (
        ["store", "narrow.npy", "-o", "a.dam", "--kind", "abbott", "--order", "4"],
        "assay: --order is 4 for patterns of 3 bits; expected no more than their bits for --kind abbott",
    ),
    "out-ending": (["store", "p.npy", "-o", "a.npz"], "unknown ending '.npz'"),
    "out-exists": (["store", "p.npy", "-o", "codes.dam"], "exists already"),
    "out-folder": (["store", "p.npy", "-o", "no/a.dam"], "doesn't exist"),
    "threshold": (["store", "images", "-o", "a.dam", "--threshold", "300"], "assay: --threshold is '300'"),
    "key": (["store", "p.npz", "-o", "a.dam", "--key", "x"], "holds no array 'x'"),
    "width": (
        ["recall", "codes.dam", "narrow.npy", "-o", "a.npy"],
        "narrow.npy: has 3 bits a row; expected 64, as the memory's patterns have",
    ),
    "no-memory": (["recall", "p.npy", "p.npy", "-o", "a.npy"], "p.npy: damaged or no memory"),
    "states-ending": (["recall", "codes.dam", "p.npy", "-o", "a.doc"], "unknown ending '.doc'"),
    "both-streams": (["recall", "codes.dam", "p.npy", "-o", "-", "--json"], "both write to standard output"),
    "table-ending": (["recall", "codes.dam", "p.npy", "--table", "t.txt"], "unknown ending '.txt'"),
    "picture-ending": (["recall", "codes.dam", "p.npy", "--plot", "t.bmp"], "unknown ending '.bmp'"),
    "corruption": (["predict", "--load", "0.1", "--corruption", "1.2"], "corruption is 1.2"),
    "no-load": (["predict", "--corruption", "0.1"], "expected --bits and --patterns, or --load"),
    "both-loads": (["predict", "--corruption", "0.1", "--load", "1", "--patterns", "3"], "both --load and --patterns"),
    "no-bits": (["predict", "--corruption", "0.1", "--bits", "0", "--patterns", "3"], "bits is 0"),
    "negative-load": (["basin", "--load", "-0.1"], "load is -0.1"),
    "overlap": (["capacity", "--overlap", "1.5"], "overlap is 1.5"),
    "capacity-order": (["capacity", "--order", "1"], "order is 1"),
    "plan": (["plan", "--bits", "64", "--patterns", "0", "--corruption", "0.1"], "patterns is 0"),
    "max-sweeps": (["store", "p.npy", "-o", "a.dam", "--max-sweeps", "0"], "assay: --max-sweeps is 0"),
    "max-sweeps-part": (["store", "p.npy", "-o", "a.dam", "--max-sweeps", "1e3"], "--max-sweeps is '1e3'"),
    "temperature": (["store", "p.npy", "-o", "a.dam", "--temperature", "nan"], "assay: --temperature is nan"),
    "temperature-kind": (
        ["store", "p.npy", "-o", "a.dam", "--temperature", "1", "--kind", "exp"],
        "assay: --temperature is 1.0 for --kind exp",
    ),
    "beta": (["store", "p.npy", "-o", "a.dam", "--beta", "0"], "assay: --beta is 0.0"),
    "store-seed": (
        ["store", "p.npy", "-o", "a.dam", "--seed", "-1"],
        "--seed is -1; expected an integer of at least 0",
    ),
    "projected": (["store", "p.npy", "-o", "a.dam", "--projected-bits", "0"], "assay: --projected-bits is 0"),
    "constant": (["store", "one.npy", "-o", "a.dam", "--decorrelate", "drop"], "assay: --decorrelate is 'drop'"),
    "no-key": (["store", "p.npy", "-o", "a.dam", "--key", "x"], "p.npy: holds nothing named 'x'"),
    "bits-unpacked": (["store", "p.npy", "-o", "a.dam", "--bits", "5"], "--bits is given without --packed"),
    "packed-bits": (
        ["store", "octets.npy", "-o", "a.dam", "--packed", "--bits", "50"],
        "octets.npy: has 8 octets a row; expected 7 for 50 bits",
    ),
    "packed-dtype": (["store", "wide.npy", "-o", "a.dam", "--packed"], "holds int64, and --packed reads octets"),
    "store-stream": (["store", "p.npy", "-o", "-"], "-: unknown ending ''"),
    "store-nameless": (["store", "p.npy", "-o", ""], "the file's name is empty"),
    "store-folder": (["store", "p.npy", "-o", "images"], "images: is a folder"),
    "jobs": (["recall", "codes.dam", "p.npy", "--jobs", "0"], "assay: --jobs is 0"),
    "recall-seed": (["recall", "codes.dam", "p.npy", "--seed", "-1"], "assay: --seed is -1"),
    "cue-nan": (["recall", "codes.dam", "nan.npy"], "nan.npy, row 3, column 8: is NaN"),
    "cue-coding": (["recall", "signs.dam", "p.npy"], "p.npy: has 0 and 1 only, and the memory's patterns -1 and 1"),
    "own-input": (["recall", "codes.dam", "p.npy", "-o", "p.npy", "--force"], "p.npy: is also an input"),
    "own-table": (["recall", "codes.dam", "c.csv", "--table", "c.csv", "--force"], "expected another name for --table"),
    "one-name": (
        ["recall", "codes.dam", "p.npy", "-o", "a.csv", "--table", "a.csv"],
        "a.csv: is the name for --out too",
    ),
    "two-stdins": (["recall", "codes.dam", "-", "--erased", "-"], "are both standard input"),
    "continuous-plot": (["recall", "softmax.dam", "p.npy", "--plot", "a.svg"], "states are continuous"),
    "sweeps": (["predict", "--load", "0.1", "--corruption", "0.1", "--sweeps", "0"], "assay: --sweeps is 0"),
    "sweeps-part": (["predict", "--load", "0.1", "--corruption", "0.1", "--sweeps", "3.7"], "--sweeps is '3.7'"),
    "paths": (["predict", "--load", "0.1", "--corruption", "0.1", "--paths", "0"], "assay: --paths is 0"),
    "theory-seed": (["predict", "--load", "0.1", "--corruption", "0.1", "--seed", "-2"], "assay: --seed is -2"),
    "horizon": (["basin", "--load", "0.1", "--horizon", "0"], "assay: --horizon is 0"),
    "error": (["plan", "--bits", "9", "--patterns", "9", "--corruption", "0", "--error", "1"], "assay: --error is 1.0"),
    "capacity-bits": (["capacity", "--bits", "0"], "assay: --bits is 0"),
    "sample": (["audit", "codes.dam", "--sample", "0"], "assay: --sample is 0"),
    "audit-width": (["audit", "codes.dam", "narrow.npy"], "narrow.npy: has 3 bits a row; expected 64"),
    "audit-kind": (["audit", "exp.dam"], "exp.dam: is a memory of kind exp, for which there is no theory"),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder of patterns, cues and memories, which no command that is refused may change."""
    folder = tmp_path_factory.mktemp("stored")
    before = Path.cwd()
    os.chdir(folder)
    np.save("p.npy", BITS)
    np.save("wide.npy", BITS.astype(np.int64))
    np.save("one.npy", BITS[:1])
    np.save("octets.npy", np.packbits(BITS, axis=1))
    np.save("signs.npy", X)
    broken = BITS.astype(np.float64)
    broken[2, 7] = np.nan
    np.save("nan.npy", broken)
    Path("c.csv").write_text(text(BITS, separator=","))
    np.savez("p.npz", bits=BITS)
    np.save("narrow.npy", BITS[:5, :3])
    save_images("images", BITS[:3])
    for name, source, *options in (
        ("codes.dam", "p.npy", "--order", "4"),
        ("signs.dam", "signs.npy", "--order", "4"),
        ("exp.dam", "p.npy", "--kind", "exp"),
        ("softmax.dam", "p.npy", "--kind", "softmax"),
    ):
        assert command(["memory", "store", source, "-o", name, "--quiet", *options]) == 0
    os.chdir(before)
    return folder


@pytest.mark.parametrize("name", list(BAD_ARGUMENTS))
def test_a_bad_argument_is_one_line_and_status_two(name, stored, monkeypatch, capsys):
    monkeypatch.chdir(stored)
    before = {file: file.read_bytes() for file in Path().iterdir() if file.is_file()}
    arguments, message = BAD_ARGUMENTS[name]
    assert command(["memory", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert {file: file.read_bytes() for file in Path().iterdir() if file.is_file()} == before


def test_an_interrupted_store_leaves_the_old_file_whole(monkeypatch, capsys):
    import safetensors.numpy

    np.save("p.npy", BITS)
    command(["memory", "store", "p.npy", "-o", "codes.dam", "--order", "4"])
    before = Path("codes.dam").read_bytes()
    monkeypatch.setattr(safetensors.numpy, "save", lambda *_args, **_options: (_ for _ in ()).throw(KeyboardInterrupt))
    assert command(["memory", "store", "p.npy", "-o", "codes.dam", "--order", "3", "--force"]) == 130
    assert "stopped; nothing was written, and files that were there are as before" in capsys.readouterr().err
    assert Path("codes.dam").read_bytes() == before
    assert sorted(file.name for file in Path().iterdir()) == ["codes.dam", "p.npy"]


def test_no_permission_to_write_is_said(capsys, monkeypatch):
    np.save("p.npy", BITS)
    monkeypatch.setattr(os, "access", lambda *_args, **_options: False)
    assert command(["memory", "store", "p.npy", "-o", "codes.dam"]) == 2
    assert "no permission to write" in capsys.readouterr().err


def test_one_pattern_and_a_hundred_thousand(capsys):
    np.save("one.npy", BITS[:1])
    assert command(["memory", "store", "one.npy", "-o", "one.dam"]) == 0
    np.save("many.npy", random_patterns(100_000, 64, seed=0) > 0)
    assert command(["memory", "store", "many.npy", "-o", "many.dam", "--order", "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["patterns"] == 100_000


@pytest.mark.parametrize("order", ["1", "33", "1000", "99999999999999999999"])
def test_an_order_without_bounds_is_refused_before_the_file_is_read(order, capsys):
    assert command(["memory", "store", "none.npy", "-o", "codes.dam", "--order", order]) == 2
    assert capsys.readouterr().err == f"assay: --order is {order}; expected an integer from 2 to 32\n"


def test_an_empty_name_is_no_folder_of_images(capsys):
    assert command(["memory", "store", "", "-o", "codes.dam"]) == 2
    assert "the file's name is empty" in capsys.readouterr().err


def test_cells_are_read_however_a_level_is_written():
    np.savetxt("exponents.txt", BITS)
    Path("words.csv").write_text("True,False\nfalse,true\n")
    assert np.array_equal(read_bits("exponents.txt").values, BITS)
    assert read_bits("words.csv").values.tolist() == [[1, 0], [0, 1]]


def test_rows_of_text_are_bits_for_a_memory_of_signs(capsys):
    np.save("signs.npy", X)
    Path("c.txt").write_text(text(CUE_BITS))
    assert command(["memory", "store", "signs.npy", "-o", "signs.dam", "--order", "4"]) == 0
    assert command(["memory", "recall", "signs.dam", "c.txt", "-o", "out.npy"]) == 0
    assert np.array_equal(np.load("out.npy"), X[:8])


def test_packed_octets_are_stored_and_recalled(capsys):
    np.save("octets.npy", np.packbits(BITS, axis=1))
    assert command(["memory", "store", "octets.npy", "--packed", "--order", "4", "-o", "codes.dam"]) == 0
    assert command(["memory", "recall", "codes.dam", "octets.npy", "-o", "out.npy"]) == 0
    assert np.array_equal(np.load("out.npy"), BITS > 0)


def test_one_of_a_thing_is_told_in_the_singular(capsys):
    np.save("one.npy", BITS[:1, :1])
    assert command(["memory", "store", "one.npy", "-o", "one.dam"]) == 0
    assert command(["memory", "recall", "one.dam", "one.npy"]) == 0
    assert command(["memory", "audit", "one.dam"]) == 0
    predict = ["memory", "predict", "--load", "0.1", "--corruption", "0", "--sweeps", "1", "--paths", "100"]
    assert command([*predict]) == 0
    captured = capsys.readouterr()
    for words in ("1 pattern of 1 bit, order 3", "recalled     1 cue: 1 ended", "measured on 1 cue", "after 1 sweep\n"):
        assert words in captured.out
    assert "warning: 1 pattern of 1 bit load order 3" in captured.err


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGKILL])
def test_a_store_that_is_stopped_while_it_works_leaves_the_old_file_whole(interruption):
    np.save("p.npy", BITS)
    np.save("many.npy", np.packbits(random_patterns(400_000, 256, seed=0) > 0, axis=1))
    command(["memory", "store", "p.npy", "-o", "codes.dam", "--order", "4", "--quiet"])
    before = Path("codes.dam").read_bytes()
    with subprocess.Popen(
        [
            f"{sysconfig.get_path('scripts')}/assay",
            "memory",
            "store",
            "many.npy",
            "--packed",
            "-o",
            "codes.dam",
            "--order",
            "4",
            "--force",
        ],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        time.sleep(1.2)
        assert process.poll() is None
        process.send_signal(interruption)
        _, said = process.communicate(timeout=30)
    assert process.returncode == (130 if interruption == signal.SIGINT else -signal.SIGKILL)
    if interruption == signal.SIGINT:
        assert "stopped" in said
    assert Path("codes.dam").read_bytes() == before


def test_a_full_disk_is_one_line_and_leaves_the_old_file_whole(capsys, monkeypatch):
    np.save("p.npy", BITS)
    command(["memory", "store", "p.npy", "-o", "codes.dam", "--order", "4", "--quiet"])
    before = Path("codes.dam").read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert command(["memory", "store", "p.npy", "-o", "codes.dam", "--force"]) == 1
    assert capsys.readouterr().err == "assay: codes.dam: no space left on the disk; nothing was written\n"
    assert Path("codes.dam").read_bytes() == before
    assert sorted(file.name for file in Path().iterdir()) == ["codes.dam", "p.npy"]
