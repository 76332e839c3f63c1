"""The commands, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.cli import run
from assay.core.lm import load_language_model, random_llama
from assay.edit.patch import EditPatch

FACTS = (
    "question,answer,paraphrase,paraphrase_2,ground_truth\n"
    "Who wrote it?,Ann did.,By whom is it?,Whose is it?,Bo did.\n"
    "Where is it?,In the north.,In which place?,,In the south.\n"
)
RANDOM = ("--model", "random-llama")
QUICK = (*RANDOM, "--target-steps", "4", "--fit-steps", "3", "--preserved", "3")


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dátà with spaces"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("facts.csv").write_text(FACTS, encoding="utf-8")


def edit(*arguments: str) -> int:
    return run(["edit", *arguments])


def summary_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert edit(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    capsys.readouterr()
    before = sorted(path.name for path in Path().iterdir())
    assert edit(*arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before
    return err


@pytest.mark.parametrize(
    "command", [("score", "facts.csv"), ("apply", "facts.csv", "-o", "x.safetensors"), ("eval", "facts.csv")]
)
def test_a_wrong_device_is_no_fault_of_the_file(capsys, command):
    assert refusal_of(capsys, *command, *RANDOM, "--device", "tpu").startswith("assay: device 'tpu'")


def test_a_patch_is_scored_in_the_dtype_that_it_was_made_in(capsys):
    edit("apply", "facts.csv", *QUICK, "--dtype", "bfloat16", "-o", "half.safetensors", "-q")
    found = summary_of(capsys, "eval", "facts.csv", *RANDOM, "--patch", "half.safetensors", "--no-generate")
    assert found["nll_original"] > 0


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_score_writes_a_row_a_request(capsys, ending):
    summary = summary_of(capsys, "score", "facts.csv", *RANDOM, "-o", f"hard{ending}")
    text = Path(f"hard{ending}").read_text(encoding="utf-8")
    if ending == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
    else:
        rows = list(csv.DictReader(text.splitlines(), delimiter="\t" if ending == ".tsv" else ","))
    assert [row["question"] for row in rows] == ["Who wrote it?", "Where is it?"]
    assert [float(row["ts"]) for row in rows] == pytest.approx([row["ts"] for row in summary["rows"]])
    assert summary["requests"] == 2


def test_score_reads_and_writes_streams(run):
    command = "cat facts.csv | assay edit score - --model random-llama -o - 2>/dev/null"
    done = run("bash", "-c", command, folder=Path.cwd())
    assert done.returncode == 0
    assert [row["answer"] for row in csv.DictReader(done.stdout.splitlines())] == ["Ann did.", "In the north."]


def test_a_patch_goes_in_and_comes_out_bit_for_bit_by_commands(capsys):
    summary = summary_of(capsys, "apply", "facts.csv", *QUICK, "-o", "fix.safetensors")
    assert (summary["edited"], summary["layers"], summary["failed"]) == (2, [1], 0)
    assert summary["rows"][0]["nll_after"] > 0
    shown = summary_of(capsys, "inspect", "fix.safetensors")
    assert shown["sha256"] == EditPatch.load("fix.safetensors").hashes
    assert shown["rows"][1]["question"] == "Where is it?"
    summary_of(capsys, "export", "fix.safetensors", *RANDOM, "--merged", "edited model")
    summary_of(capsys, "revert", "edited model", "--patch", "fix.safetensors", "-o", "as it was")
    base = dict(random_llama().model.named_parameters())
    edited = dict(load_language_model("edited model").model.named_parameters())
    back = dict(load_language_model("as it was").model.named_parameters())
    assert any(not torch.equal(base[name], edited[name]) for name in base)
    assert all(torch.equal(base[name], back[name]) for name in base)
    assert "isn't what" in refusal_of(capsys, "revert", "as it was", "--patch", "fix.safetensors", "-o", "other")
    line = refusal_of(capsys, "export", "fix.safetensors", "--model", "edited model", "--merged", "twice")
    assert "fix.safetensors: the patch is applied already" in line


def test_eval_scores_the_edited_model_and_what_must_not_change(capsys):
    edit("apply", "facts.csv", *RANDOM, "--fit-rate", "3e-3", "-o", "fix.safetensors", "-q")
    plain = summary_of(capsys, "eval", "facts.csv", *RANDOM, "--no-generate")
    patched = summary_of(
        capsys, "eval", "facts.csv", *RANDOM, "--patch", "fix.safetensors", "--max-new-tokens", "3", "-o", "rows.csv"
    )
    assert patched["nll_original"] < plain["nll_original"]
    assert patched["locality_kl"] > 0
    assert "locality_kl" not in plain
    rows = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    assert {"rougeL_recall_paraphrase", "bleu_char_original", "said"} <= set(rows[0])
    told = summary_of(capsys, "eval", "facts.csv", *RANDOM, "--in-context", "--no-generate")
    assert told["nll_original"] != plain["nll_original"]


def test_compose_adds_or_fits_together_and_refuses_other_bases(capsys):
    Path("one.csv").write_text("question,answer,ground_truth\nWho?,Ann.,Bo.\n")
    Path("two.csv").write_text("question,answer,ground_truth\nWhere?,North.,South.\n")
    for name in ("one", "two"):
        edit("apply", f"{name}.csv", *QUICK, "-o", f"{name}.safetensors", "-q")
    for mode in ("add", "joint"):
        out = f"{mode}.safetensors"
        summary = summary_of(
            capsys, "compose", "one.safetensors", "two.safetensors", *RANDOM, "--mode", mode, "-o", out
        )
        assert [row["question"] for row in summary["rows"]] == ["Who?", "Where?"]
    assert "there is 1 patch" in refusal_of(capsys, "compose", "one.safetensors", "-o", "c.safetensors")
    line = refusal_of(capsys, "compose", "one.safetensors", "two.safetensors", "-o", "one.safetensors", "--force")
    assert "is also an input" in line


def test_export_writes_an_adapter(capsys):
    edit("apply", "facts.csv", *QUICK, "-o", "fix.safetensors", "-q")
    summary = summary_of(capsys, "export", "fix.safetensors", "--peft", "adapter", "--rank", "4")
    assert summary["rank"] == 4
    assert json.loads(Path("adapter/adapter_config.json").read_text())["r"] == 4
    assert 0 < max(summary["relative_errors"].values()) < 1
    assert "one thing at a time" in refusal_of(capsys, "export", "fix.safetensors")
    assert "exists already" in refusal_of(capsys, "export", "fix.safetensors", "--peft", "adapter")


def test_apply_takes_presets_layers_batches_and_texts_to_preserve(capsys):
    Path("keep.txt").write_text("the sea is wide\nit is late\n")
    common = ("apply", "facts.csv", *QUICK)
    one = summary_of(capsys, *common, "--preset", "official", "--layer", "2", "-o", "a.safetensors")
    assert one["layers"] == [2]
    several = summary_of(capsys, *common, "--layer", "1", "--layer", "2", "-o", "b.safetensors")
    assert several["layers"] == [1, 2]
    batches = summary_of(capsys, *common, "--batch-size", "1", "--preserve", "keep.txt", "-o", "c.safetensors")
    assert (batches["batches"], batches["requests"]) == (2, 2)
    with EditPatch.load("c.safetensors").applied(random_llama().model):
        pass
    assert summary_of(capsys, *common, "--objective", "answer", "-o", "d.safetensors")["edited"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("apply", "facts.csv", "--layer", "9", "-o", "x.safetensors", *RANDOM),
            "layer is 9; expected blocks from 0 to 3",
        ),
        (("apply", "facts.csv", "-o", "x.bin", *RANDOM), "expected a name that ends in .safetensors"),
        (("apply", "absent.csv", "-o", "x.safetensors", *RANDOM), "absent.csv: no such file"),
        (("apply", "facts.csv", "-o", "no/x.safetensors", *RANDOM), "doesn't exist"),
        (("apply", "facts.csv", "-o", "x.safetensors", "--model", "absent/model/here"), "no such folder"),
        (("apply", "facts.csv", "-o", "x.safetensors", "--fit-steps", "3.5", *RANDOM), "expected an integer"),
        (("score", "facts.csv", "-o", "x.xlsx", *RANDOM), "expected a name that ends in .csv, .tsv, .jsonl"),
        (("score", "facts.csv", "-o", "facts.csv", "--force", *RANDOM), "is also an input"),
        (("inspect", "facts.csv"), "unknown ending"),
        (("inspect", "absent.safetensors"), "no such file"),
        (("score", ".", *RANDOM), "is a folder"),
        (("score", "-", "--json", "-o", "-", *RANDOM), "both write to standard output"),
    ],
)
def test_wrong_input_is_refused_in_one_line(capsys, arguments, message):
    assert message in refusal_of(capsys, *arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,answer\nWho?,\n", "bad.csv, row 2, column answer: the answer is empty"),
        ("question,answer\n,Ann\n", "bad.csv, row 2, column question: the question is empty"),
        ("question,answer\nWho?,Ann\nWho?,Bo\n", "rows 2 and 3 give 'Who?' two answers"),
        ("question,answer\nWho?," + "very " * 5000 + "long\n", "bad.csv: request 0: the question has"),
        ("question,answer,ground_truth\nWho?,Ann,Ann\n", "the model gives every answer already"),
    ],
)
def test_wrong_requests_are_refused_and_nothing_is_written(capsys, text, message):
    Path("bad.csv").write_text(text)
    assert message in refusal_of(capsys, "apply", "bad.csv", *RANDOM, "-o", "x.safetensors")
    if "every answer" not in message:
        assert message in refusal_of(capsys, "eval", "bad.csv", *RANDOM)


def test_the_last_of_two_answers_wins_where_that_is_asked(capsys):
    Path("two.csv").write_text("question,answer,ground_truth\nWho?,Ann,Cy\nWho?,Bo,Cy\n")
    found = summary_of(capsys, "apply", "two.csv", *QUICK, "--last-wins", "-o", "x.safetensors")
    assert [row["answer"] for row in found["rows"]] == ["Bo"]


def test_existing_patches_stay_without_force(capsys):
    Path("x.safetensors").write_bytes(b"precious")
    assert "exists already" in refusal_of(capsys, "apply", "facts.csv", *QUICK, "-o", "x.safetensors")
    assert Path("x.safetensors").read_bytes() == b"precious"
    assert edit("apply", "facts.csv", *QUICK, "-o", "x.safetensors", "--force", "-q") == 0
    assert EditPatch.load("x.safetensors").layers == (1,)


def test_a_patch_of_another_model_is_refused_with_both_hashes(capsys):
    edit("apply", "facts.csv", *QUICK, "-o", "fix.safetensors", "-q")
    other = random_llama(seed=5)
    other.model.save_pretrained("other")
    other.tokenizer.save_pretrained("other")
    line = refusal_of(capsys, "export", "fix.safetensors", "--model", "other", "--merged", "x")
    assert "for another base" in line
    assert line.count("…") == 2


SAYS_WHEN_A_BATCH_IS_FITTED = """
import sys
from assay.cli import run
from assay.edit.pipe import PIPE

fit = PIPE.fit

def fit_and_say(*arguments, **options):
    patch = fit(*arguments, **options)
    print("fitted", file=sys.stderr, flush=True)
    return patch

PIPE.fit = fit_and_say
sys.exit(run(sys.argv[1:]))
"""


def test_ctrl_c_keeps_the_batches_that_are_finished():
    rows = [f"Question number {index}?,Answer {index}.,None." for index in range(200)]
    Path("many.csv").write_text("question,answer,ground_truth\n" + "\n".join(rows) + "\n")
    command = ["edit", "apply", "many.csv", *QUICK, "--batch-size", "1", "-o", "part.safetensors"]
    process = subprocess.Popen(
        [sys.executable, "-c", SAYS_WHEN_A_BATCH_IS_FITTED, *command],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    # When the second is fitted, the first one is kept.
    seen = 0
    while seen < 2:
        line = process.stderr.readline()
        assert line, "it ended before it was stopped"
        seen += line == "fitted\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    last = err.strip().splitlines()[-1]
    assert "stopped; part.safetensors holds the first" in last
    patch = EditPatch.load("part.safetensors")
    assert 0 < len(patch.rows) < 200
    with patch.applied(random_llama().model):
        pass


def test_few_edits_are_weighed_by_stored_scores(capsys):
    rows = [f"Question number {index}?,Answer {index}.,None." for index in range(9)]
    Path("many.csv").write_text("question,answer,ground_truth\n" + "\n".join(rows) + "\n")
    summary = summary_of(capsys, "score", "many.csv", *RANDOM, "--calibration", "scores.json")
    stored = json.loads(Path("scores.json").read_text())["scores"]
    assert stored == sorted(row["ts"] for row in summary["rows"])
    plain = summary_of(capsys, "apply", "facts.csv", *QUICK, "-o", "a.safetensors")
    weighed = summary_of(capsys, "apply", "facts.csv", *QUICK, "--calibration", "scores.json", "-o", "b.safetensors")
    assert [row["alpha"] for row in plain["rows"]] == [0.5, 0.5]
    assert 0.5 not in [row["alpha"] for row in weighed["rows"]]


def test_gates_are_written_and_scored_by_commands(capsys):
    summary = summary_of(capsys, "apply", "facts.csv", *QUICK, "--gated", "-o", "gates.safetensors")
    assert (summary["requests"], summary["layer"]) == (2, 1)
    plain = summary_of(capsys, "eval", "facts.csv", *RANDOM, "--no-generate")
    found = summary_of(capsys, "eval", "facts.csv", *RANDOM, "--no-generate", "--patch", "gates.safetensors")
    assert found["nll_original"] < plain["nll_original"]
    line = refusal_of(capsys, "apply", "facts.csv", *QUICK, "--gated", "--batch-size", "1", "-o", "x.safetensors")
    assert "--gated fits no block" in line
    assert "isn't a patch" in refusal_of(capsys, "inspect", "gates.safetensors")


def test_pictures_of_edits_evaluations_and_joins_are_drawn(capsys):
    Path("one.csv").write_text("question,answer,ground_truth\nWho?,Ann.,Bo.\n")
    found = summary_of(
        capsys, "apply", "facts.csv", *QUICK, "--batch-size", "1", "-o", "a.safetensors", "--plots", "pictures"
    )
    assert [Path(name).name for name in found["plots"]] == ["shifts.svg", "decay.svg"]
    edit("apply", "one.csv", *QUICK, "-o", "one.safetensors", "-q")
    edit("apply", "facts.csv", *QUICK, "-o", "two.safetensors", "-q")
    command = ("eval", "facts.csv", *RANDOM, "--no-generate", "--patch", "two.safetensors", "--plots", "pictures")
    summary_of(capsys, *command)
    both = ("one.safetensors", "two.safetensors")
    summary_of(capsys, "compose", *both, *RANDOM, "-o", "c.safetensors", "--plots", "pictures")
    names = {"shifts", "decay", "difficulty", "old-answers", "interference"}
    assert {file.stem for file in Path("pictures").iterdir()} == names
    assert all(file.read_bytes().startswith(b"<?xml") for file in Path("pictures").iterdir())
    assert "difficulty.svg: exists already" in refusal_of(capsys, *command)
    assert "no patch to draw" in refusal_of(capsys, "eval", "facts.csv", *RANDOM, "--plots", "new")


def test_a_folder_that_holds_more_than_a_model_is_never_replaced(capsys):
    edit("apply", "facts.csv", *QUICK, "-o", "fix.safetensors", "-q")
    Path("work/runs").mkdir(parents=True)
    Path("work/config.json").write_text("{}")
    Path("notes").mkdir()
    Path("notes/thesis.txt").write_text("years of work")
    for folder in ("work", "notes", "."):
        line = refusal_of(capsys, "export", "fix.safetensors", "--peft", folder, "--force")
        assert "holds something else than a model" in line
    assert Path("notes/thesis.txt").read_text() == "years of work"
    summary_of(capsys, "export", "fix.safetensors", "--peft", "adapter")
    summary_of(capsys, "export", "fix.safetensors", "--peft", "adapter", "--rank", "2", "--force")
    assert json.loads(Path("adapter/adapter_config.json").read_text())["r"] == 2
    assert "name is empty" in refusal_of(capsys, "export", "fix.safetensors", "--peft", "")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--fit-rate", "nan"), "--fit-rate is nan; expected a positive number"),
        (("--target-steps", "0"), "--target-steps is 0; expected at least 1"),
        (("--wrap", "9"), "--wrap is 9; expected at most 8"),
        (("--batch-size", "-1"), "--batch-size is -1; expected at least 1"),
        (("--preserved", "-1"), "--preserved is -1; expected 0 or more"),
        (("--seed", "-1"), "--seed is -1; expected 0 or more"),
    ],
)
def test_a_refused_number_is_named_as_it_is_typed(capsys, option, message):
    line = refusal_of(capsys, "apply", "facts.csv", *RANDOM, "-o", "x.safetensors", *option)
    assert line == f"assay: {message}\n"


def test_texts_are_shown_in_one_line_and_can_t_command_the_terminal(capsys):
    Path("odd.csv").write_text('question,answer,ground_truth\n"Who\n\x1b[31mis it?",Ann.,Bo.\n')
    assert edit("score", "odd.csv", *RANDOM) == 0
    out, _ = capsys.readouterr()
    assert "\x1b" not in out
    assert "Who \ufffd[31mis it?" in out


def test_a_full_disk_is_said_and_leaves_nothing(capsys, monkeypatch):
    from safetensors import SafetensorError

    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    edit("apply", "facts.csv", *QUICK, "-o", "fix.safetensors", "-q")
    monkeypatch.setattr("safetensors.torch.save_file", full)
    for command in (
        ("apply", "facts.csv", *QUICK, "-o", "x.safetensors"),
        ("export", "fix.safetensors", "--peft", "adapter"),
    ):
        assert "no space left on the disk; nothing was written" in refusal_of(capsys, *command, status=1)
