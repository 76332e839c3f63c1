"""The commands for text: ``assay lact train-lm``, ``generate``, ``memorize``, ``ask``, ``loss`` and ``needle``, which
``jobs.py`` mounts.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Group, Parameter

from assay.core.errors import InputError
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
    stop_that_says,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    from torch import Tensor

    from assay.lact.state import LaCTState
    from assay.lact.text_models import TextModel
    from assay.lact.text_training import TextRows, TrainingPlan

__all__ = ["ask", "generate", "loss", "memorize", "needle", "train_lm"]

TextSource: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
ModelSource: TypeAlias = Annotated[str, Parameter(alias="-m", allow_leading_hyphen=True)]
OutFolder: TypeAlias = Annotated[str, Parameter(alias="-o", allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]
Counts: TypeAlias = Annotated[tuple[WholeNumber, ...], Parameter(negative="")]
Shares: TypeAlias = Annotated[tuple[float, ...], Parameter(negative="")]

CHECKPOINT = "checkpoint.safetensors"
METRICS, FIGURE = "metrics.jsonl", "loss.svg"
LIBRARY = "stdlib"
"""The word for the source text of the running interpreter's own library."""
LIBRARY_CHARACTERS = 4_000_000
LARGEST_SEED = (1 << 20) - 1
OPTION_OF = {
    "hidden_size": "--width",
    "num_hidden_layers": "--layers",
    "num_attention_heads": "--heads",
    "num_heads": "--heads",
    "num_fast_heads": "--fast-heads",
    "chunk_size": "--chunk",
    "window": "--window",
    "expand": "--expand",
    "init_rank": "--init-rank",
    "base_lr": "--base-lr",
    "dim": "--width",
    "depth": "--depths",
    "length": "--lengths",
}


@Parameter(name="*", group=Group("The model", sort_key=2))
@dataclass(frozen=True)
class Sizes:
    """The model.

    Parameters
    ----------
    width
        Size of the hidden state; a multiple of the heads.
    layers
        Blocks.
    heads
        Attention heads.
    fast_heads
        Heads of the memory; fewer make a larger state.
    window
        Tokens that attention sees; at least a chunk.
    chunk
        Tokens of one step of the memory.
    expand
        Hidden units of the memory's networks over their keys' width.
    memory
        lact; or to compare with: none (the window alone), full (attention to everything), linear, gla, deltanet,
        mamba2.
    rule
        The memory's step: muon_momentum, muon, momentum or gd.
    init_rank
        Rank of the learned initial weights beside half the identity; full matrices when left out.
    base_lr
        The memory's rate for every token before training.
    """

    width: WholeNumber = 128
    layers: WholeNumber = 2
    heads: WholeNumber = 4
    fast_heads: WholeNumber = 2
    window: WholeNumber = 128
    chunk: WholeNumber = 128
    expand: float = 1.0
    memory: Literal["lact", "none", "full", "linear", "gla", "deltanet", "mamba2"] = "lact"
    rule: Literal["muon_momentum", "muon", "momentum", "gd"] = "muon_momentum"
    init_rank: WholeNumber | None = None
    base_lr: float = 0.01


@Parameter(name="*", group=Group("Learning", sort_key=2))
@dataclass(frozen=True)
class Learning:
    """How the model learns.

    Parameters
    ----------
    steps
        How many steps.
    batch
        Rows of a step.
    context
        Tokens of a row.
    lr
        AdamW's learning rate at its highest.
    warmup
        Steps in which it rises; then it falls as a cosine to a tenth.
    weight_decay
        Decoupled weight decay of the matrices.
    clip
        The norm to which gradients are clipped; 0 for not.
    needles
        The share of rows with a planted fact that is asked for at the end (bytes only): it teaches to look far back.
    evaluate_every
        Steps between measurements of the held-out loss; 0 for the end only.
    save_every
        Steps between checkpoints; 0 for none but that of a stopped run.
    """

    steps: WholeNumber = 200
    batch: WholeNumber = 8
    context: WholeNumber = 512
    lr: float = 1e-3
    warmup: WholeNumber = 20
    weight_decay: float = 0.1
    clip: float = 1.0
    needles: float = 0.0
    evaluate_every: WholeNumber = 50
    save_every: WholeNumber = 0


@Parameter(name="*", group=Group("Reading the text", sort_key=4))
@dataclass(frozen=True)
class ReadingText:
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


@Parameter(name="*", group=Group("Writing", sort_key=2))
@dataclass(frozen=True)
class Writing:
    """How text is written.

    Parameters
    ----------
    tokens
        How many tokens at most.
    temperature
        0 for the most likely token each time; higher for more surprise.
    top_k
        Draw among so many most likely tokens; 0 for all.
    stop
        Text at which writing ends; it is not part of the result.
    seed
        Of the draws.
    """

    tokens: WholeNumber = 200
    temperature: float = 0.0
    top_k: WholeNumber = 0
    stop: str | None = None
    seed: WholeNumber = 0


USUAL_SIZES, BY_DEFAULT, AS_FILE, AS_USUAL, GREEDY = Sizes(), Learning(), ReadingText(), Reporting(), Writing()
ANSWER = Writing(tokens=60, stop="\n")


def train_lm(
    text: TextSource,
    /,
    *,
    out: OutFolder,
    tokenizer: str = "bytes",
    seed: WholeNumber = 0,
    device: str = "auto",
    resume: Flag = False,
    sizes: Sizes = USUAL_SIZES,
    learning: Learning = BY_DEFAULT,
    reading: ReadingText = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Train a language model on your text that has a window and a memory which learns as it reads.

    Reads .txt, .md, .py, .jsonl, .parquet (text may be gzipped), a folder of such files, - for standard input, a hub
    data set (owner/name), or stdlib for the source text of Python's own library. The last tenth is held out.

    Example: ``assay lact train-lm notes.txt --steps 500 -o model``

    Parameters
    ----------
    text
        The text.
    out
        The folder to write: model.safetensors and config.json, the tokenizer if there is one, metrics.jsonl and
        loss.svg. A stopped run leaves checkpoint.safetensors, from which --resume goes on.
    tokenizer
        bytes; a tokenizer.json; a folder with one; or a model's name on the hub.
    seed
        Of the initial weights and the order of the data.
    device
        auto, cpu, cuda or cuda:N.
    resume
        Go on from the checkpoint of a stopped run with the same settings.
    """
    import torch

    from assay.core.device import resolve_device
    from assay.lact.language import LaCTConfig, LaCTForCausalLM
    from assay.lact.run_folder import check_folder, progress, write_lines
    from assay.lact.text_models import TextModel, load_tokens, save_text_model
    from assay.lact.text_training import TrainingPlan, train_on_text

    _require_learning(learning, seed=seed, tokenizer=tokenizer)
    folder = check_folder(out, marker=CHECKPOINT, resume=resume, force=reporting.force)
    place = resolve_device(device)
    tokens = load_tokens(tokenizer)
    plan = TrainingPlan(
        steps=learning.steps,
        batch=learning.batch,
        lr=learning.lr,
        warmup=learning.warmup,
        weight_decay=learning.weight_decay,
        clip=learning.clip,
        seed=seed,
        evaluate_every=learning.evaluate_every,
        save_every=learning.save_every,
    )
    with warnings_in_one_line(reporting):
        with naming_options(OPTION_OF):
            config = LaCTConfig(
                vocab_size=tokens.size,
                hidden_size=sizes.width,
                num_hidden_layers=sizes.layers,
                num_attention_heads=sizes.heads,
                max_position_embeddings=learning.context,
                num_fast_heads=sizes.fast_heads,
                window=sizes.window,
                chunk_size=sizes.chunk,
                expand=sizes.expand,
                memory=sizes.memory,
                rule=sizes.rule,
                init_rank=sizes.init_rank,
                base_lr=sizes.base_lr,
            )
            torch.manual_seed(seed)
            model = LaCTForCausalLM(config)
        torch.nn.Module.to(model, place)
        corpus = _corpus(text, tokens, learning, reading)
        folder.mkdir(exist_ok=True)
        way_on = f"stopped; {folder / CHECKPOINT} holds the last step, and the same command with --resume goes on"
        with progress(learning.steps, reporting) as advance, stop_that_says(way_on):
            history = train_on_text(
                model,
                corpus,
                plan,
                needles=learning.needles,
                checkpoint=folder / CHECKPOINT,
                settings={**asdict(sizes), **_kept(plan), "needles": learning.needles, "text": corpus.fingerprint},
                resume=resume,
                watch=lambda entry: advance(entry["step"], f"loss {entry['loss']:.3f}"),
            )
    save_text_model(TextModel(model, tokens, out), folder)
    write_lines(folder / METRICS, history)
    _write_figure(history, folder / FIGURE, title=f"{sizes.memory}, {tokenizer} of {_named(text)}")
    (folder / CHECKPOINT).unlink(missing_ok=True)
    last = history[-1]
    summary = {
        "steps": len(history),
        "loss": last["loss"],
        "validation_loss": last["validation_loss"],
        "perplexity": math.exp(min(700.0, last["validation_loss"])),
        "tokens_per_second": sorted(entry["tokens_per_second"] for entry in history)[len(history) // 2],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "state_bytes": _state_bytes(model),
        "memory": sizes.memory,
        "output": out,
    }
    print_summary(summary, _training_lines(summary), reporting=reporting, out=out)


def generate(
    prompt: TextSource,
    /,
    *,
    model: ModelSource,
    with_memory: str | None = None,
    out: OutFile = None,
    device: str = "auto",
    writing: Writing = GREEDY,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Go on with a text; what is written appears as it comes.

    Each token takes the same time, however long the text is: the state has a constant size.

    Example: ``assay lact generate "import " --model model --tokens 100 --temperature 0.8``

    Parameters
    ----------
    prompt
        The beginning of the text; - reads it from standard input.
    model
        A folder of assay lact train-lm, or a published checkpoint (a folder, or owner/name on the hub).
    with_memory
        A file of assay lact memorize: the text goes on after what was memorized.
    out
        A file for the text instead of standard output.
    device
        auto, cpu, cuda or cuda:N.
    """
    beginning = _prompt(prompt)
    require_streams(out, reporting)
    _continue(beginning, model, with_memory, out, device, writing, reporting, echo=True)


def ask(
    question: TextSource,
    /,
    *,
    model: ModelSource,
    memory: str,
    out: OutFile = None,
    device: str = "auto",
    writing: Writing = ANSWER,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Ask a memory: the model goes on after the memorized text and your question, without the text itself.

    Example: ``assay lact ask "The number of amber is " --model model --memory notes.safetensors``

    Parameters
    ----------
    question
        What is to be continued; - reads it from standard input.
    model
        The model that memorized.
    memory
        A file of assay lact memorize.
    out
        A file for the answer instead of standard output.
    device
        auto, cpu, cuda or cuda:N.
    """
    asked = _prompt(question)
    require_streams(out, reporting)
    _continue(asked, model, memory, out, device, writing, reporting, echo=False)


def memorize(
    text: TextSource,
    /,
    *,
    model: ModelSource,
    out: OutFolder,
    with_memory: str | None = None,
    end_of_input: Flag = False,
    device: str = "auto",
    reading: ReadingText = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Read a text of any length into a file of constant size, to be asked later.

    Example: ``assay lact memorize notes.txt --model model -o notes.safetensors``

    Parameters
    ----------
    text
        The text, as for assay lact train-lm.
    model
        A folder of assay lact train-lm, or a published checkpoint.
    out
        The memory file to write, .safetensors.
    with_memory
        A memory file that the text follows.
    end_of_input
        Take the memory's step for a started chunk too. Without it, going on later is exactly as if all had been read at
        once.
    device
        auto, cpu, cuda or cuda:N.
    """
    from assay.core.files import check_output

    if not out.lower().endswith(".safetensors"):
        raise InputError(f"unknown ending '{Path(out).suffix}'", file=out, expected="a name that ends in .safetensors")
    check_output(out, force=reporting.force)
    require_other_file(out, text)
    language = _loaded(model, device)
    before = _memory(with_memory, language)
    numbers = _numbers("\n".join(_texts(text, reading)), language, text)
    begin = time.perf_counter()
    with naming(model), stop_that_says("stopped; nothing was written"), language.model.stream(before) as reader:
        reader.feed(numbers)
        if end_of_input:
            reader.end_of_input()
        state = reader.state()
    seconds = time.perf_counter() - begin
    read = int(state["layer0.position"][0])
    state.save(out, force=reporting.force, note={"text": _named(text), "model": model, "tokens": str(read)})
    summary = {
        "tokens": numbers.shape[1],
        "tokens_in_memory": read,
        "state_bytes": state.nbytes,
        "cache_bytes_of_full_attention": _full_cache_bytes(language, read),
        "tokens_per_second": numbers.shape[1] / seconds,
        "output": out,
    }
    speed = summary["tokens_per_second"]
    lines = [
        f"read         {summary['tokens']:,} tokens ({read:,} in the memory), {speed:,.0f} a second",
        f"memory       {state.nbytes:,} bytes; keys and values of full attention would be "
        f"{summary['cache_bytes_of_full_attention']:,}",
    ]
    print_summary(summary, lines, reporting=reporting, out=out)


def loss(
    text: TextSource,
    /,
    *,
    model: ModelSource,
    with_memory: str | None = None,
    device: str = "auto",
    reading: ReadingText = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Measure how well a model foresees a text, and with a memory, how much that helps.

    Example: ``assay lact loss more.txt --model model --with-memory notes.safetensors``

    Parameters
    ----------
    text
        The text, as for assay lact train-lm.
    model
        A folder of assay lact train-lm, or a published checkpoint.
    with_memory
        A file of assay lact memorize that the text follows.
    device
        auto, cpu, cuda or cuda:N.
    """
    language = _loaded(model, device)
    state = _memory(with_memory, language)
    whole = "\n".join(_texts(text, reading))
    numbers = _numbers(whole, language, text, least=2)
    with naming(model):
        alone = _mean_loss(language, None, numbers)
        remembered = None if state is None else _mean_loss(language, state, numbers)
    size = len(whole.encode())
    summary: dict[str, Any] = {"tokens": numbers.shape[1], "bytes": size, "loss": alone}
    lines = [f"loss         {alone:.4f} nats a token over {numbers.shape[1]:,} tokens"]
    if remembered is not None:
        summary |= {"loss_with_memory": remembered, "gain": alone - remembered}
        lines.append(f"with memory  {remembered:.4f} nats a token, {alone - remembered:+.4f} gained")
    print_summary(summary, lines, reporting=reporting)


def needle(
    text: TextSource = LIBRARY,
    /,
    *,
    model: ModelSource,
    lengths: Counts = (256, 512, 1024),
    depths: Shares = (0.0, 0.5, 1.0),
    trials: WholeNumber = 8,
    seed: WholeNumber = 0,
    out: OutFile = None,
    device: str = "auto",
    reading: ReadingText = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Plant a numbered fact in text and ask for it at the end, by length and depth (bytes only).

    A model learns this from text with facts: train it with --needles. The window alone finds what lies inside it.

    Example: ``assay lact needle notes.txt --model model --lengths 512 --lengths 2048 -o needle.csv``

    Parameters
    ----------
    text
        The haystack; stdlib for the source text of Python's own library.
    model
        A folder of assay lact train-lm.
    lengths
        Bytes of a row, with the fact and the question.
    depths
        Where the fact stands: 0 at the beginning, 1 just before the question.
    trials
        Rows for each length and depth.
    seed
        Of the facts and the pieces of text.
    out
        A table to write: .csv, .json or .parquet.
    device
        auto, cpu, cuda or cuda:N.
    """
    from assay.core.files import check_output
    from assay.lact.run_folder import TABLES, write_table

    _require_at_least(1, trials=trials)
    _require_seed(seed)
    if out is not None:
        if not out.lower().endswith(TABLES):
            raise InputError(f"unknown ending '{Path(out).suffix}'", file=out, expected=f"one of: {', '.join(TABLES)}")
        check_output(out, force=reporting.force)
    language = _loaded(model, device)
    if language.tokens.size != 256:
        raise InputError("has a tokenizer", file=model, expected="a model of bytes")
    haystack = "\n".join(_texts(text, reading)).encode()
    with stop_that_says("stopped; nothing was written"), naming_options(OPTION_OF):
        rows = [
            _find(language, haystack, length=length, depth=depth, trials=trials, seed=seed)
            for length in lengths
            for depth in depths
        ]
    if out is not None:
        write_table(rows, out, force=reporting.force)
    summary = {"window": language.model.config.window, "trials": trials, "needles": rows, "output": out}
    lines = [
        f"needle       {row['length']:>7,} bytes, {row['distance']:>7,} back: {row['accuracy']:4.0%} found, "
        f"{row['digits']:4.0%} of the digits (chance 10%), {row['loss']:.2f} nats a digit"
        for row in rows
    ]
    print_summary(summary, lines, reporting=reporting, out=out)


def _find(
    language: TextModel, haystack: bytes, *, length: int, depth: float, trials: int, seed: int
) -> dict[str, float]:
    import torch

    from assay.lact.recall import plant_needle

    source = torch.Generator().manual_seed(seed)
    planted = [plant_needle(haystack, length=length, depth=depth, generator=source) for _ in range(trials)]
    rows = torch.tensor([list(one.text + one.answer) for one in planted], device=language.model.device)
    digits = len(planted[0].answer)
    with torch.no_grad():
        logits = language.model(rows).logits[:, -digits - 1 : -1]
    answers = rows[:, -digits:]
    hits = logits.argmax(-1) == answers
    loss = torch.nn.functional.cross_entropy(logits.mT, answers)
    return {
        "length": length,
        "depth": depth,
        "distance": planted[0].distance,
        "accuracy": float(hits.all(1).double().mean()),
        "digits": float(hits.double().mean()),
        "loss": float(loss),
        "trials": trials,
    }


def _continue(
    beginning: str,
    model: str,
    memory: str | None,
    out: str | None,
    device: str,
    writing: Writing,
    reporting: Reporting,
    *,
    echo: bool,
) -> None:
    from assay.core.files import check_output, write_text

    _require_at_least(0, tokens=writing.tokens, top_k=writing.top_k)
    _require_seed(writing.seed)
    if not 0 <= writing.temperature < math.inf:
        raise InputError(f"--temperature is {writing.temperature}", expected="a number from 0 on")
    if out is not None and out != STREAM:
        check_output(out, force=reporting.force)
    language = _loaded(model, device)
    state = _memory(memory, language)
    numbers = _numbers(beginning, language, "the prompt")
    shown = out in (None, STREAM) and not reporting.json
    if shown and echo:
        sys.stdout.write(beginning)
    begin, pieces = time.perf_counter(), []
    with naming(model), language.model.stream(state) as reader:
        reader.feed(numbers)
        for piece in _until(_pieces(reader, language, writing), writing.stop):
            pieces.append(piece)
            if shown:
                sys.stdout.write(piece)
                sys.stdout.flush()
    seconds = time.perf_counter() - begin
    written = "".join(pieces)
    if shown:
        sys.stdout.write("\n")
    elif out is not None:
        write_text(out, (beginning if echo else "") + written + "\n", force=reporting.force)
    if reporting.json or (out is not None and out != STREAM):
        summary = {"prompt": beginning, "text": written, "seconds": seconds, "output": out}
        print_summary(summary, [], reporting=reporting, out=out)


def _pieces(reader: Any, language: TextModel, writing: Writing) -> Any:
    import torch

    from assay.lact.text_models import written_text

    source = torch.Generator(device=language.model.device).manual_seed(writing.seed)
    drawn = reader.generate(
        writing.tokens, temperature=writing.temperature, top_k=writing.top_k, generator=source, stop=_ends(language)
    )
    return written_text((int(token[0]) for token in drawn), language.tokens)


def _ends(language: TextModel) -> Sequence[int]:
    end = language.model.config.eos_token_id
    return [] if end is None else [end] if isinstance(end, int) else list(end)


def _until(pieces: Any, stop: str | None) -> Any:
    """Pieces up to `stop`; what could be its beginning is held back until it is clear."""
    if not stop:
        yield from pieces
        return
    held = ""
    for piece in pieces:
        held += piece
        if stop in held:
            yield held.partition(stop)[0]
            return
        safe = next(
            (len(held) - size for size in range(min(len(stop) - 1, len(held)), 0, -1) if held.endswith(stop[:size])),
            len(held),
        )
        if safe:
            yield held[:safe]
            held = held[safe:]
    if held:
        yield held


def _prompt(text: str) -> str:
    from assay.core.files import read_lines

    read = "\n".join(read_lines(STREAM)) if text == STREAM else text
    if not read:
        raise InputError("the prompt is empty", expected="at least one character")
    return read


def _loaded(model: str, device: str) -> TextModel:
    from assay.core.device import resolve_device
    from assay.lact.text_models import load_text_model

    return load_text_model(model, device=resolve_device(device))


def _memory(file: str | None, language: TextModel) -> LaCTState | None:
    from assay.lact.state import LaCTState

    if file is None:
        return None
    return LaCTState.load(file, config=language.model.state_config)


def _texts(source: str, reading: ReadingText) -> list[str]:
    from assay.core.texts import read_texts, standard_library

    if source == LIBRARY and not Path(source).exists():
        return [standard_library(LIBRARY_CHARACTERS)]
    return read_texts(source, column=reading.column, split=reading.split)


def _named(source: str) -> str:
    from assay.core.texts import name_of

    return "Python's library" if source == LIBRARY and not Path(source).exists() else name_of(source)


def _numbers(text: str, language: TextModel, source: str, *, least: int = 1) -> Tensor:
    import torch

    numbers = torch.tensor([list(language.tokens.encode(text))], dtype=torch.int64, device=language.model.device)
    if numbers.shape[1] < least:
        raise InputError(f"has {numbers.shape[1]} tokens", file=source, expected=f"at least {least}")
    return numbers


def _mean_loss(language: TextModel, state: LaCTState | None, numbers: Tensor) -> float:
    """Over all tokens but the first, which only a memory could foresee."""
    with language.model.stream(state) as reader:
        return float(reader.loss(numbers)[:, 1:].double().mean())


def _full_cache_bytes(language: TextModel, tokens: int) -> int:
    config = language.model.config
    return 2 * int(config.num_hidden_layers) * tokens * int(config.hidden_size) * language.model.dtype.itemsize


def _state_bytes(model: Any) -> int:
    from assay.lact.text_training import state_bytes

    return state_bytes(model)


def _corpus(text: str, tokens: Any, learning: Learning, reading: ReadingText) -> TextRows:
    from assay.lact.text_training import TextRows

    return TextRows(_texts(text, reading), tokens, context=learning.context, source=_named(text))


def _write_figure(history: list[dict[str, Any]], file: Path, *, title: str) -> None:
    from assay.core.files import atomic_path
    from assay.lact.text_training import loss_figure

    with atomic_path(file, force=True) as temporary:
        loss_figure(history, title=title).savefig(temporary)


def _training_lines(summary: Mapping[str, Any]) -> list[str]:
    state = (
        f"{summary['state_bytes']:,} bytes, whatever the length" if summary["state_bytes"] else "grows with the text"
    )
    return [
        f"model        {summary['parameters']:,} parameters, {summary['steps']} steps, memory {summary['memory']}",
        f"loss         {summary['loss']:.4f} training, {summary['validation_loss']:.4f} held out (nats a token)",
        f"speed        {summary['tokens_per_second']:,.0f} tokens a second (median step)",
        f"state        {state}",
    ]


def _kept(plan: TrainingPlan) -> dict[str, Any]:
    """What of a plan a resumed run must share."""
    return {name: value for name, value in asdict(plan).items() if name not in ("evaluate_every", "save_every")}


def _require_learning(learning: Learning, *, seed: int, tokenizer: str) -> None:
    _require_at_least(1, steps=learning.steps, batch=learning.batch)
    _require_at_least(2, context=learning.context)
    _require_at_least(0, warmup=learning.warmup, evaluate_every=learning.evaluate_every, save_every=learning.save_every)
    for name in ("lr", "weight_decay", "clip"):
        value = getattr(learning, name)
        if not 0 <= value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} is {value}", expected="a number from 0 on")
    if not 0 <= learning.needles <= 1:
        raise InputError(f"--needles is {learning.needles}", expected="a share from 0 to 1")
    if learning.needles and tokenizer != "bytes":
        raise InputError(f"--needles with --tokenizer {tokenizer}", expected="--tokenizer bytes")
    _require_seed(seed)


def _require_seed(seed: int) -> None:
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"--seed is {seed}", expected=f"a whole number from 0 to {LARGEST_SEED}")


def _require_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise InputError(f"--{name.replace('_', '-')} is {value}", expected=f"at least {least}")
