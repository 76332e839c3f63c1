"""A training loop for language models with any of the optimisers: metrics, checkpoints, and a way to go on."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.core.files import atomic_path
from assay.core.interruption import stop_between_steps
from assay.lowrank.groups import low_rank_param_groups
from assay.lowrank.models import errors_of_the_disk
from assay.lowrank.optimizer import LowRankOptimizer
from assay.lowrank.texts import Corpus, StreamCorpus
from assay.lowrank.trainer import OPTIMIZER_CLASSES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "LEARNING_RATES",
    "OPTIMIZER_NAMES",
    "MuonAdamW",
    "Plan",
    "live_bytes",
    "loss_figure",
    "make_optimizer",
    "train",
    "validation_loss",
]

LEARNING_RATES = {
    "adamw": 3e-3,
    "muon": 2e-2,
    "dct-adamw": 6e-3,
    "trion": 2e-2,
    "dct-galore": 1.2e-2,
    "dct-frugal": 1e-3,
    "dct-fira": 1.2e-2,
    "galore": 1.2e-2,
    "frugal": 1e-3,
    "fira": 1.2e-2,
    "dion": 1e-2,
    "ldadamw": 6e-3,
}
"""Learning rates for small models from scratch, of the order that the study's tuning found."""
OPTIMIZER_NAMES = tuple(LEARNING_RATES)
FINETUNING = 1 / 30
"""The learning rate of fine-tuning over that of training from scratch."""
PLUGGED = {"galore": "dct-galore", "frugal": "dct-frugal", "fira": "dct-fira"}
VALIDATION_ROWS = 32
OF_OPTIMIZER = re.compile(r"optimizer\.(\d+)\.(\w+)")
FORMAT = "assay.lowrank training 3"
"""What a checkpoint says it is; another number means other contents."""


class MuonAdamW(torch.optim.Optimizer):
    """torch's Muon for what would be projected and AdamW for the rest, as one optimiser.

    Parameters
    ----------
    groups : list of dict
        As `low_rank_param_groups` gives them.
    lr : float
        Muon's learning rate.
    weight_decay : float
        Of both.
    adamw_lr : float
        AdamW's learning rate.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, *, weight_decay: float, adamw_lr: float) -> None:
        low = [parameter for group in groups if group["low_rank"] for _, parameter in group["params"]]
        rest = [parameter for group in groups if not group["low_rank"] for _, parameter in group["params"]]
        self.parts: list[torch.optim.Optimizer] = []
        if low:
            self.parts.append(torch.optim.Muon(low, lr=lr, weight_decay=weight_decay))
        if rest:
            self.parts.append(torch.optim.AdamW(rest, lr=adamw_lr, betas=(0.9, 0.95), weight_decay=weight_decay))
        super().__init__([*low, *rest], {})
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do one step of both."""
        loss = None if closure is None else closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of both, numbered through."""
        state: dict[int, Any] = {}
        groups = []
        for shift, part in self._shifts():
            saved = part.state_dict()
            state |= {number + shift: value for number, value in saved["state"].items()}
            groups += [
                {**group, "params": [number + shift for number in group["params"]]} for group in saved["param_groups"]
            ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        for (shift, part), group in zip(self._shifts(), state_dict["param_groups"], strict=True):
            size = len(part.param_groups[0]["params"])
            own = {
                number: state_dict["state"][number + shift]
                for number in range(size)
                if number + shift in state_dict["state"]
            }
            part.load_state_dict({"state": own, "param_groups": [{**group, "params": list(range(size))}]})
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def _shifts(self) -> list[tuple[int, torch.optim.Optimizer]]:
        """Each part with the number of parameters before it."""
        found, before = [], 0
        for part in self.parts:
            found.append((before, part))
            before += len(part.param_groups[0]["params"])
        return found


def make_optimizer(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    rank: float = 0.25,
    weight_decay: float = 0.0,
    adamw_lr: float = 3e-3,
    include: str = r"",
    exclude: str = r"(embed|lm_head|norm)",
    **settings: Any,
) -> torch.optim.Optimizer:
    """An optimiser by name for a model, the same parameters projected whichever it is.

    Raises
    ------
    InputError
        An unknown name or a wrong setting.
    """
    groups, _ = low_rank_param_groups(model, rank=rank, include=include, exclude=exclude)
    if name == "adamw":
        parameters = [parameter for group in groups for _, parameter in group["params"]]
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay, **settings)
    if name == "muon":
        return MuonAdamW(groups, lr, weight_decay=weight_decay, adamw_lr=adamw_lr)
    kind = OPTIMIZER_CLASSES.get(PLUGGED.get(name, name))
    if kind is None:
        raise InputError(f"optimizer is '{name}'", expected=f"one of: {', '.join(OPTIMIZER_NAMES)}")
    if name in PLUGGED:
        settings = {"projection": "svd", **settings}
    if name in ("trion", "dion"):
        settings = {"adamw_lr": adamw_lr, **settings}
    return kind(groups, lr=lr, rank=rank, weight_decay=weight_decay, **settings)


def live_bytes(optimizer: torch.optim.Optimizer) -> int:
    """The bytes of an optimiser's state, with its bases where it keeps any."""
    if isinstance(optimizer, LowRankOptimizer):
        return optimizer.memory_report().total
    parts = optimizer.parts if isinstance(optimizer, MuonAdamW) else [optimizer]
    states = [value for part in parts for state in part.state.values() for value in state.values()]
    # galore-torch keeps a projection as an object with a matrix.
    tensors = [getattr(value, "ortho_matrix", value) for value in states]
    return sum(value.nbytes for value in tensors if isinstance(value, Tensor))


@dataclass(frozen=True)
class Plan:
    """How long and on what a model is trained.

    Attributes
    ----------
    steps, batch : int
        Steps, and rows a step.
    warmup : int
        Steps in which the learning rate rises; it falls as a cosine to a tenth after that.
    seed : int
        Of the order of the data.
    evaluate_every, save_every : int
        Steps between validations and between checkpoints; 0 for none before the end.
    clip : float
        The norm to which gradients are clipped; 0 for none.
    micro : int
        Rows that the model sees at once, whose gradients are added up; 0 for all of a step.
    half : bool
        Whether the model computes in bfloat16 where that is safe (autocast); its weights stay as they are.
    """

    steps: int
    batch: int = 8
    warmup: int = 10
    seed: int = 0
    evaluate_every: int = 0
    save_every: int = 0
    clip: float = 1.0
    micro: int = 0
    half: bool = False

    def factor(self, step: int) -> float:
        """The share of the learning rate at a step."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    corpus: Corpus | StreamCorpus,
    plan: Plan,
    *,
    checkpoint: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    watch: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> list[dict[str, Any]]:
    """Train a model.

    Parameters
    ----------
    model : Module
        Called with ``input_ids`` and ``labels``.
    optimizer : Optimizer
        Its groups' learning rates are scheduled.
    corpus : Corpus or StreamCorpus
        The text.
    plan : Plan
        How long.
    checkpoint : Path, optional
        The file that holds everything to go on from; also written when the run is interrupted. What a model draws in
        training, as for dropout, follows from the plan's seed and the step, so that a resumed run draws the same.
    settings : mapping, optional
        What a checkpoint must agree with.
    resume : bool
        Go on from `checkpoint`.
    watch : callable
        Gets each step's entry.

    Returns
    -------
    list of dict
        One entry a step: step, loss, tokens_per_second, optimizer_ms, and where known energy_kept, index_churn and
        validation_loss (nats a token).

    Raises
    ------
    InputError
        A loss is NaN or infinite, or the checkpoint is damaged or of another run.
    """
    device = next(model.parameters()).device
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    history: list[dict[str, Any]] = []
    first = 0
    if resume and checkpoint is not None:
        first, history = _load_checkpoint(checkpoint, model, optimizer, settings or {})
    held_out = corpus.validation(rows=VALIDATION_ROWS).to(device)
    model.train()
    with stop_between_steps() as asked_to_stop:
        for step in range(first, plan.steps):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * plan.factor(step)
            rows = corpus.batch(step, size=plan.batch, seed=plan.seed).to(device)
            with _draws(plan.seed, step, device):
                entry = _one_step(model, optimizer, rows, plan)
            entry = {"step": step + 1, **entry}
            last = step + 1 == plan.steps
            if last or (plan.evaluate_every and (step + 1) % plan.evaluate_every == 0):
                entry["validation_loss"] = validation_loss(model, held_out)
            _require_finite(entry)
            history.append(entry)
            watch(entry)
            due = plan.save_every and (step + 1) % plan.save_every == 0 and not last
            if checkpoint is not None and (due or asked_to_stop()):
                _save_checkpoint(checkpoint, model, optimizer, history, settings or {})
            if asked_to_stop():
                raise KeyboardInterrupt
    return history


@contextmanager
def _draws(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Let what is drawn in a step depend on the seed and the step alone, and leave the caller's generators alone."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed * 1_000_003 + step)
        yield


def _require_finite(entry: Mapping[str, Any]) -> None:
    for name in ("loss", "validation_loss"):
        if not math.isfinite(entry.get(name, 0.0)):
            raise InputError(
                f"the {name.replace('_', ' ')} is {entry[name]} at step {entry['step']}",
                expected="a finite loss (a lower learning rate, or clipping)",
            )


def _one_step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor, plan: Plan) -> dict[str, Any]:
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = torch.zeros((), device=rows.device)
    for part in torch.split(rows, plan.micro or len(rows)):
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=plan.half):
            share = model(input_ids=part, labels=part).loss * (len(part) / len(rows))
        share.backward()
        loss += share.detach()
    if plan.clip:
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
    before = time.perf_counter()
    optimizer.step()
    end = time.perf_counter()
    entry = {
        "loss": loss.item(),
        "tokens_per_second": round(rows.numel() / (end - start), 1),
        "optimizer_ms": round(1000 * (end - before), 3),
    }
    if isinstance(optimizer, LowRankOptimizer):
        entry |= optimizer.mean_statistics()
    return entry


@torch.no_grad()
def validation_loss(model: nn.Module, rows: Tensor, *, batch: int = 16) -> float:
    """The mean loss of held-out rows, in nats a token."""
    model.eval()
    total = sum(model(input_ids=part, labels=part).loss.item() * len(part) for part in torch.split(rows, batch))
    model.train()
    return float(total / len(rows))


def _save_checkpoint(
    file: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[dict[str, Any]],
    settings: Mapping[str, Any],
) -> None:
    """Everything in one file, so that it is whole or absent."""
    from safetensors.torch import save_file

    saved = optimizer.state_dict()
    tensors = {f"model.{name}": value for name, value in _unique(model).items()}
    for number, state in saved["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
    metadata = {
        "format": FORMAT,
        "groups": json.dumps(saved["param_groups"]),
        "history": json.dumps(history),
        "settings": json.dumps(dict(settings), sort_keys=True),
    }
    with atomic_path(file, force=True) as temporary:
        whole = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        with errors_of_the_disk():
            save_file(whole, temporary, metadata=metadata)


def _load_checkpoint(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> tuple[int, list[dict[str, Any]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"can't be read: {str(error).splitlines()[0]}", file=file, expected="a checkpoint of a stopped run"
        ) from error
    kind = metadata.get("format", "")
    if kind != FORMAT:
        older = kind.startswith(FORMAT.rpartition(" ")[0])
        said = f"has the format '{kind}'" if older else "is another kind of file"
        raise InputError(said, file=file, expected=f"'{FORMAT}', the checkpoint of a stopped run")
    try:
        had, groups, history = (json.loads(metadata[name]) for name in ("settings", "groups", "history"))
    except (KeyError, ValueError) as error:
        raise _damaged(file, f"{type(error).__name__} {error}") from error
    if not isinstance(had, dict) or not _are_objects(groups) or not _are_objects(history):
        raise _damaged(file, "its settings, groups or history are no objects")
    for name, value in settings.items():
        if had.get(name) != value:
            raise InputError(
                f"was made with {name} {had.get(name)}, not {value}",
                file=file,
                expected="the same settings, or --force to begin anew",
            )
    if [entry.get("step") for entry in history] != list(range(1, len(history) + 1)):
        raise _damaged(file, "its history lacks steps")
    own = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    expected = {name: value.shape for name, value in _unique(model).items()}
    if {name: value.shape for name, value in own.items()} != expected:
        raise _damaged(file, "its weights are of another model, or some are missing")
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        found = OF_OPTIMIZER.fullmatch(name)
        if found is not None:
            state.setdefault(int(found[1]), {})[found[2]] = value
        elif not name.startswith("model."):
            raise _damaged(file, f"it holds '{name}'")
    for group in groups:
        # JSON has lists where torch has tuples.
        group |= {key: tuple(value) for key, value in group.items() if key.endswith("betas")}
    if not state.keys() <= {number for group in groups for number in group.get("params", ())}:
        raise _damaged(file, "it holds states of parameters that no group has")
    try:
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise _damaged(file, str(error).splitlines()[0]) from error
    model.load_state_dict(own, strict=False)
    return len(history), history


def _damaged(file: Path, reason: str) -> InputError:
    return InputError(f"is damaged: {reason}", file=file, expected="the checkpoint of a stopped run")


def _are_objects(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(one, dict) for one in values)


def _unique(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors, tied ones once."""
    seen: set[int] = set()
    found = {}
    for name, value in model.state_dict().items():
        if value.data_ptr() not in seen:
            seen.add(value.data_ptr())
            found[name] = value
    return found


def loss_figure(history: list[dict[str, Any]], *, title: str) -> Figure:
    """The losses by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [entry["step"] for entry in history], [entry["loss"] for entry in history], linewidth=0.9, label="training"
    )
    held = [(entry["step"], entry["validation_loss"]) for entry in history if "validation_loss" in entry]
    if held:
        axes.plot(*zip(*held, strict=True), marker="o", markersize=4, label="held out")
    axes.set(xlabel="step", ylabel="loss (nats a token)", title=title)
    axes.legend()
    return figure
