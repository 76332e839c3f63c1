"""The commands on files as people have them: every format, every bad input, and nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
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
    assert "has shape (3, 64)" in capsys.readouterr().err


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
    assert any(line.startswith("warning: 2 of 62 patterns are copies") for line in lines)
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
    "ragged": (lambda: write("p.csv", "0,1\n1\n"), "p.csv, row 2: has 1 bits; expected 2 as above"),
    "latin": (lambda: write("p.txt", b"01\n\xff1\n"), "p.txt, row 2: byte 0xff is not UTF-8"),
    "truncated-npy": (lambda: write("p.npy", b"\x93NUMPY\x01\x00"), "p.npy: damaged or not an array"),
    "truncated-npz": (lambda: write("p.npz", b"PK\x03\x04"), "p.npz: damaged"),
    "truncated-tensors": (lambda: write("p.safetensors", b"\x10\x00"), "p.safetensors: damaged"),
    "no-image": (lambda: os.mkdir("i") or (write("i/a.png", "x") and "i"), "damaged or no image"),
    "gzip": (lambda: write("p.csv.gz", gzip.compress(b"0,1\n1,0\n")[:12]), "p.csv.gz: damaged"),
    "nan-array": (lambda: np.save("n.npy", np.array([[0.0, np.nan]])) or "n.npy", "n.npy: X[0, 1] is NaN"),
    "no-rows": (lambda: np.save("z.npy", np.zeros((0, 4))) or "z.npy", "z.npy: X has 0 samples"),
    "vector": (lambda: np.save("v.npy", np.zeros(4)) or "v.npy", "v.npy: X has shape (4,)"),
    "three-levels": (
        lambda: np.save("t.npy", np.array([[0, -1, 1]])) or "t.npy",
        "t.npy: X[0, 0] is 0 among -1 and +1",
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
    "order": (["store", "p.npy", "-o", "a.dam", "--order", "1"], "order is 1"),
    "order-word": (["store", "p.npy", "-o", "a.dam", "--order", "2.5"], "order is '2.5'"),
    "kind": (["store", "p.npy", "-o", "a.dam", "--kind", "magic"], "magic"),
    "abbott": (
        ["store", "narrow.npy", "-o", "a.dam", "--kind", "abbott", "--order", "4"],
        "3 bits are fewer than order 4",
    ),
    "out-ending": (["store", "p.npy", "-o", "a.npz"], "unknown ending '.npz'"),
    "out-exists": (["store", "p.npy", "-o", "codes.dam"], "exists already"),
    "out-folder": (["store", "p.npy", "-o", "no/a.dam"], "doesn't exist"),
    "threshold": (["store", "images", "-o", "a.dam", "--threshold", "300"], "threshold is 300"),
    "key": (["store", "p.npz", "-o", "a.dam", "--key", "x"], "holds no array 'x'"),
    "width": (["recall", "codes.dam", "narrow.npy", "-o", "a.npy"], "narrow.npy: cues has 3 features, but the memory"),
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
    "audit-kind": (["audit", "exp.dam"], "exp.dam: kind is 'exp'"),
}


@pytest.mark.parametrize("name", list(BAD_ARGUMENTS))
def test_a_bad_argument_is_one_line_and_status_two(name, capsys):
    np.save("p.npy", BITS)
    np.savez("p.npz", bits=BITS)
    np.save("narrow.npy", BITS[:5, :3])
    save_images("images", BITS[:3])
    command(["memory", "store", "p.npy", "-o", "codes.dam", "--order", "4"])
    command(["memory", "store", "p.npy", "-o", "exp.dam", "--kind", "exp"])
    before = Path("codes.dam").read_bytes()
    capsys.readouterr()
    arguments, message = BAD_ARGUMENTS[name]
    assert command(["memory", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert Path("codes.dam").read_bytes() == before
    assert not any(file.name.startswith(".") for file in Path().iterdir())


def test_an_interrupted_store_leaves_the_old_file_whole(monkeypatch, capsys):
    import safetensors.numpy

    np.save("p.npy", BITS)
    command(["memory", "store", "p.npy", "-o", "codes.dam", "--order", "4"])
    before = Path("codes.dam").read_bytes()
    monkeypatch.setattr(
        safetensors.numpy, "save_file", lambda *_args, **_options: (_ for _ in ()).throw(KeyboardInterrupt)
    )
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
