"""Training of language models on text or on recall: AdamW with a cosine, checkpoints, and a way to go on."""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import InputError
from assay.core.files import atomic_path
from assay.core.interruption import stop_between_steps
from assay.core.texts import ByteTokens, standard_library
from assay.lact.language import LaCTConfig, LaCTForCausalLM
from assay.lact.recall import DIGITS, IGNORED, RecallTask, plant_needle, recall_accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.core.texts import Tokens

__all__ = [
    "TextRows",
    "TrainingPlan",
    "arm_model",
    "loss_by_position",
    "loss_figure",
    "state_bytes",
    "train_byte_model",
    "train_language",
    "train_on_text",
    "train_recall",
]

FORMAT, VERSION = "assay.lact.training", "1"
HELD_OUT = 0.1
"""The share of a text's end that is kept for validation."""
VALIDATION_ROWS = 16
LEARNING_RATE = 1e-3
FIRST_SETTLED = 16
"""The first position that counts for the slope: before, hardly anything is known of a row."""
SMALLEST_SHARE = 0.1
"""Of the learning rate, at the end of the cosine."""
ARMS: Mapping[str, Mapping[str, Any]] = {
    "lact-muon-momentum": {"rule": "muon_momentum"},
    "lact-muon": {"rule": "muon"},
    "lact-momentum": {"rule": "momentum"},
    "lact-gd": {"rule": "gd"},
    "lact-linear": {"rule": "muon_momentum", "fast_net": "linear"},
    "lact-linear-gd": {"rule": "gd", "fast_net": "linear"},
    "window": {"memory": "none"},
    "full": {"memory": "full"},
    "linear": {"memory": "linear"},
    "gla": {"memory": "gla"},
    "deltanet": {"memory": "deltanet"},
    "mamba2": {"memory": "mamba2"},
}
"""What competes, with the fields of `LaCTConfig` that differ."""


@dataclass(frozen=True)
class TrainingPlan:
    """How long and how a model is trained.

    Attributes
    ----------
    steps, batch : int
        Steps, and rows of each.
    lr : float
        AdamW's peak learning rate.
    warmup : int
        Steps in which it rises; then it falls as a cosine to a tenth.
    weight_decay : float
        On matrices.
    clip : float
        The norm to which gradients are clipped; 0 for not.
    seed : int
        Of the order of the data.
    evaluate_every, save_every : int
        Steps between validations and between checkpoints; 0 for the end only, and for none.
    """

    steps: int
    batch: int = 8
    lr: float = LEARNING_RATE
    warmup: int = 20
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    evaluate_every: int = 0
    save_every: int = 0

    def factor(self, step: int) -> float:
        """The share of the learning rate at a step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return SMALLEST_SHARE + (1 - SMALLEST_SHARE) * (1 + math.cos(math.pi * done)) / 2


class TextRows:
    """Tokens of documents in one row, divided into a part to train on and an end that is held out.

    Parameters
    ----------
    texts : sequence of str
        Documents, joined in their order.
    tokens : Tokens
        What turns them into numbers.
    context : int
        Tokens of a row.
    source : str
        Their name, for messages.

    Attributes
    ----------
    train, held_out : Tensor of int64
    fingerprint : str
        A checksum of the tokens, by which a resumed run knows its text again.

    Raises
    ------
    InputError
        There are too few tokens for one row of each part.

    Examples
    --------
    >>> from assay.core.texts import ByteTokens
    >>> rows = TextRows(["to be or not to be " * 20], ByteTokens(), context=16)
    >>> rows.batch(0, size=2, seed=0).shape
    torch.Size([2, 16])
    """

    def __init__(self, texts: Sequence[str], tokens: Tokens, *, context: int, source: str = "the text") -> None:
        numbers = torch.cat([torch.tensor(list(tokens.encode(text)), dtype=torch.int64) for text in texts])
        held = max(context, int(len(numbers) * HELD_OUT))
        if len(numbers) < held + context:
            raise InputError(
                f"has {len(numbers)} tokens", file=source, expected=f"at least {2 * context} for rows of {context}"
            )
        self.train, self.held_out, self.context = numbers[:-held], numbers[-held:], context
        self.fingerprint = f"{zlib.crc32(numbers.numpy().tobytes()):08x}"

    def batch(self, step: int, *, size: int, seed: int, needles: float = 0.0) -> Tensor:
        """Rows of one step, shape (size, context), which depend on seed and step alone; a share has a planted fact."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(len(self.train) - self.context + 1, (size,), generator=generator)
        rows = torch.stack([self.train[start : start + self.context] for start in starts.tolist()])
        for row in (torch.rand(size, generator=generator) < needles).nonzero()[:, 0].tolist():
            depth = float(torch.rand((), generator=generator))
            planted = plant_needle(
                bytes(rows[row].tolist()), length=self.context - DIGITS, depth=depth, generator=generator
            )
            rows[row] = torch.tensor(list(planted.text + planted.answer))
        return rows

    def validation(self, *, rows: int = VALIDATION_ROWS) -> Tensor:
        """Evenly spaced rows of the held-out part, shape (at most rows, context)."""
        room = len(self.held_out) - self.context
        starts = torch.linspace(0, room, min(rows, room + 1)).long()
        return torch.stack([self.held_out[start : start + self.context] for start in starts.tolist()])


def train_language(
    model: LaCTForCausalLM,
    rows: Callable[[int], tuple[Tensor, Tensor]],
    plan: TrainingPlan,
    *,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    checkpoint: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    watch: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> list[dict[str, Any]]:
    """Train a model.

    Parameters
    ----------
    model : LaCTForCausalLM
    rows : callable
        From the number of a step, counted from 0, to tokens and labels of shape (batch, length); labels aren't shifted:
        each is what should be said at its place, or -100.
    plan : TrainingPlan
    evaluate : callable, optional
        Gives measurements that join the entry of a step, at the end and as often as the plan says.
    checkpoint : Path, optional
        The file that holds everything to go on from; also written when the run is interrupted.
    settings : mapping, optional
        What a checkpoint must agree with.
    resume : bool
        Go on from `checkpoint`.
    watch : callable
        Gets each step's entry.

    Returns
    -------
    list of dict
        One entry a step: step, loss, tokens_per_second, and what was evaluated.

    Raises
    ------
    InputError
        The checkpoint is damaged, of another kind, or was made with other settings.
    """
    device = next(model.parameters()).device
    optimizer = _adamw(model, plan)
    history: list[dict[str, Any]] = []
    if resume and checkpoint is not None:
        history = _load_checkpoint(checkpoint, model, optimizer, settings or {})
    model.train()
    with stop_between_steps() as asked_to_stop:
        for step in range(len(history), plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = plan.lr * plan.factor(step)
            entry: dict[str, Any] = {"step": step + 1, **_one_step(model, optimizer, rows(step), plan, device)}
            last = step + 1 == plan.steps
            if evaluate is not None and (last or _due(step, plan.evaluate_every)):
                model.eval()  # type: ignore[no-untyped-call]
                entry |= evaluate()
                model.train()
            history.append(entry)
            watch(entry)
            if checkpoint is not None and not last and (_due(step, plan.save_every) or asked_to_stop()):
                _save_checkpoint(checkpoint, model, optimizer, history, settings or {})
            if asked_to_stop():
                raise KeyboardInterrupt
    model.eval()  # type: ignore[no-untyped-call]
    return history


def _due(step: int, every: int) -> bool:
    return bool(every) and (step + 1) % every == 0


def _adamw(model: nn.Module, plan: TrainingPlan) -> torch.optim.AdamW:
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    plain = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": decayed, "weight_decay": plan.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=plan.lr, betas=(0.9, 0.95))


def _one_step(
    model: LaCTForCausalLM,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    plan: TrainingPlan,
    device: torch.device,
) -> dict[str, float]:
    begin = time.perf_counter()
    tokens, labels = (one.to(device) for one in batch)
    logits = model(tokens).logits
    loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if plan.clip:
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
    optimizer.step()
    seconds = time.perf_counter() - begin
    return {"loss": loss.item(), "tokens_per_second": round(tokens.numel() / seconds, 1)}


def next_tokens(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and, for each place, the token after it."""
    labels = torch.full_like(rows, IGNORED)
    labels[:, :-1] = rows[:, 1:]
    return rows, labels


@torch.no_grad()
def loss_by_position(model: LaCTForCausalLM, rows: Tensor, *, batch: int = 8) -> Tensor:
    """How well each place of rows is foreseen.

    Parameters
    ----------
    model : LaCTForCausalLM
    rows : Tensor of int64, shape (rows, length)
    batch : int
        Rows at once.

    Returns
    -------
    Tensor of float64, shape (length - 1,)
        Nats at the second, third, … token, mean over the rows.

    Examples
    --------
    >>> import torch
    >>> model = LaCTForCausalLM.small()
    >>> loss_by_position(model, torch.zeros(2, 5, dtype=torch.int64)).shape
    torch.Size([4])
    """
    total = torch.zeros(rows.shape[1] - 1, dtype=torch.float64)
    for part in rows.split(batch):
        logits = model(part.to(model.device)).logits[:, :-1]
        losses = functional.cross_entropy(logits.mT, part[:, 1:].to(model.device), reduction="none")
        total += losses.sum(0).double().cpu()
    return total / len(rows)


def train_on_text(
    model: LaCTForCausalLM,
    corpus: TextRows,
    plan: TrainingPlan,
    *,
    needles: float = 0.0,
    checkpoint: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    watch: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> list[dict[str, Any]]:
    """Train a model to foresee the next token of a text.

    Parameters
    ----------
    model : LaCTForCausalLM
    corpus : TextRows
    plan : TrainingPlan
    needles : float
        The share of rows with a planted fact that is asked for at the end; tokens are bytes then.
    checkpoint, settings, resume, watch
        As for `train_language`.

    Returns
    -------
    list of dict
        As for `train_language`, with validation_loss (nats a token on held-out rows) where it was measured.
    """
    held_out = corpus.validation()
    return train_language(
        model,
        lambda step: next_tokens(corpus.batch(step, size=plan.batch, seed=plan.seed, needles=needles)),
        plan,
        evaluate=lambda: {"validation_loss": float(loss_by_position(model, held_out).mean())},
        checkpoint=checkpoint,
        settings=settings,
        resume=resume,
        watch=watch,
    )


def arm_model(arm: str, *, seed: int, **changes: Any) -> LaCTForCausalLM:
    """A model of one of the `ARMS`.

    Parameters
    ----------
    arm : str
    seed : int
        Of its weights.
    **changes
        Fields of `LaCTConfig`.

    Returns
    -------
    LaCTForCausalLM
    """
    if arm not in ARMS:
        raise InputError(f"arm is {arm!r}", expected=f"one of: {', '.join(ARMS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LaCTForCausalLM(LaCTConfig(**{**changes, **ARMS[arm]}))


def train_recall(
    arm: str,
    task: RecallTask,
    plan: TrainingPlan,
    *,
    test_rows: int = 256,
    **changes: Any,
) -> dict[str, float]:
    """Train an arm on recall and measure it on rows that it hasn't seen.

    Parameters
    ----------
    arm : str
        One of `ARMS`.
    task : RecallTask
    plan : TrainingPlan
        Its seed is that of the weights and of the training rows too.
    test_rows : int
        Rows of the measurement, drawn with a seed of their own.
    **changes
        Fields of `LaCTConfig`.

    Returns
    -------
    dict of str to float
        accuracy, chance, loss, parameters, state_bytes (0 without a state of constant size), seconds.
    """
    model = arm_model(arm, seed=plan.seed, vocab_size=task.vocabulary, **changes)
    begin = time.perf_counter()

    def rows(step: int) -> tuple[Tensor, Tensor]:
        return task.rows(plan.batch, generator=torch.Generator().manual_seed(plan.seed * 1_000_003 + step))

    history = train_language(model, rows, plan)
    seconds = time.perf_counter() - begin
    tokens, labels = task.rows(test_rows, generator=torch.Generator().manual_seed(2**40 + plan.seed))
    with torch.no_grad():
        logits = torch.cat([model(part).logits for part in tokens.split(plan.batch)])
    return {
        "accuracy": recall_accuracy(logits, labels),
        "chance": task.chance,
        "loss": history[-1]["loss"],
        "parameters": float(sum(parameter.numel() for parameter in model.parameters())),
        "state_bytes": float(state_bytes(model)),
        "seconds": seconds,
    }


def train_byte_model(
    arm: str,
    plan: TrainingPlan,
    *,
    context: int,
    characters: int = 2_000_000,
    test_rows: int = 32,
    **changes: Any,
) -> dict[str, float]:
    """Train an arm on the bytes of Python's own library and measure where in a row it foresees them.

    Parameters
    ----------
    arm : str
        One of `ARMS`.
    plan : TrainingPlan
        Its seed is that of the weights and of the rows.
    context : int
        Bytes of a row.
    characters : int
        Of the library, at most.
    test_rows : int
        Held-out rows of the measurement.
    **changes
        Fields of `LaCTConfig`.

    Returns
    -------
    dict of str to float
        loss, first_quarter and last_quarter (nats a byte on held-out rows), slope (of the loss over the natural
        logarithm of the position, from the sixteenth byte on), parameters, state_bytes, seconds.
    """
    corpus = TextRows([standard_library(characters)], ByteTokens(), context=context, source="Python's library")
    model = arm_model(arm, seed=plan.seed, vocab_size=ByteTokens.size, **changes)
    begin = time.perf_counter()
    train_on_text(model, corpus, plan)
    seconds = time.perf_counter() - begin
    losses = loss_by_position(model, corpus.validation(rows=test_rows))
    quarter = len(losses) // 4
    return {
        "loss": float(losses.mean()),
        "first_quarter": float(losses[:quarter].mean()),
        "last_quarter": float(losses[-quarter:].mean()),
        "slope": _slope(losses),
        "parameters": float(sum(parameter.numel() for parameter in model.parameters())),
        "state_bytes": float(state_bytes(model)),
        "seconds": seconds,
    }


def _slope(losses: Tensor) -> float:
    """Least squares of the loss over the logarithm of the position."""
    position = torch.arange(FIRST_SETTLED, len(losses), dtype=torch.float64).log()
    centred = position - position.mean()
    return float((centred * losses[FIRST_SETTLED:]).sum() / centred.square().sum())


def state_bytes(model: LaCTForCausalLM) -> int:
    """What one row's state takes; 0 where it isn't of constant size."""
    if model.config.memory == "full":
        return 0
    with model.stream() as reader:
        return reader.state().nbytes


def loss_figure(history: list[dict[str, Any]], *, title: str) -> Figure:
    """The losses by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    steps = [entry["step"] for entry in history]
    axes.plot(steps, [entry["loss"] for entry in history], linewidth=0.9, label="training")
    held = [(entry["step"], entry["validation_loss"]) for entry in history if "validation_loss" in entry]
    if held:
        axes.plot(*zip(*held, strict=True), marker="o", markersize=4, label="held out")
    axes.set(xlabel="step", ylabel="loss (nats a token)", title=title)
    axes.legend()
    return figure


def _save_checkpoint(
    file: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[dict[str, Any]],
    settings: Mapping[str, Any],
) -> None:
    """Everything in one file, so that it is whole or absent."""
    from safetensors.torch import save_file

    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "history": json.dumps(history),
        "settings": json.dumps(dict(settings), sort_keys=True),
    }
    with atomic_path(file, force=True) as temporary:
        whole = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
        save_file(whole, str(temporary), metadata=metadata)


def _load_checkpoint(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"can't be read: {str(error).splitlines()[0]}", file=file, expected="a checkpoint of a stopped run"
        ) from error
    if (metadata.get("format"), metadata.get("version")) != (FORMAT, VERSION):
        raise InputError("is another kind of file, or of another version", file=file, expected="a stopped run's")
    had = json.loads(metadata["settings"])
    for name, value in settings.items():
        if had.get(name) != value:
            raise InputError(
                f"was made with {name} {had.get(name)}, not {value}",
                file=file,
                expected="the same settings, or --force to begin anew",
            )
    model.load_state_dict(_beginning(tensors, "model."))
    saved = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in _beginning(tensors, "optimizer.").items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": saved["param_groups"]})
    history: list[dict[str, Any]] = json.loads(metadata["history"])
    return history


def _beginning(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
