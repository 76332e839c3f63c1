"""Hugging Face: an optimiser for ``Trainer``, and a callback that logs what the projection keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assay.core.errors import InputError, MissingPackageError
from assay.lowrank.adamw import DCTAdamW
from assay.lowrank.groups import EXCLUDE, low_rank_param_groups
from assay.lowrank.optimizer import LowRankOptimizer
from assay.lowrank.references import Dion, LDAdamW
from assay.lowrank.trion import Trion
from assay.lowrank.variants import DCTFiraAdamW, DCTFrugalAdamW, DCTGaLoreAdamW

if TYPE_CHECKING:
    from torch import nn

__all__ = ["OPTIMIZER_CLASSES", "projection_callback", "trainer_optimizer"]

OPTIMIZER_CLASSES: dict[str, Callable[..., LowRankOptimizer]] = {
    "dct-adamw": DCTAdamW,
    "trion": Trion,
    "dct-galore": DCTGaLoreAdamW,
    "dct-frugal": DCTFrugalAdamW,
    "dct-fira": DCTFiraAdamW,
    "dion": Dion,
    "ldadamw": LDAdamW,
}


def trainer_optimizer(
    model: nn.Module,
    args: Any,
    *,
    optimizer: str = "dct-adamw",
    rank: float = 0.25,
    include: str = r"",
    exclude: str = EXCLUDE,
    **settings: Any,
) -> LowRankOptimizer:
    """An optimiser for ``transformers.Trainer(..., optimizers=(optimizer, None))``, with the arguments' settings.

    Parameters
    ----------
    model : Module
        The model.
    args : TrainingArguments
        ``learning_rate`` and ``weight_decay`` are read, and for the AdamW family the betas and epsilon.
    optimizer : str
        ``dct-adamw``, ``trion``, ``dct-galore``, ``dct-frugal``, ``dct-fira``, ``dion`` or ``ldadamw``.
    rank : int or float
        Kept columns, or their share.
    include, exclude : str
        As in `low_rank_param_groups`.
    **settings
        More settings of the optimiser.

    Returns
    -------
    Optimizer

    Raises
    ------
    InputError
        An unknown optimiser or a wrong setting.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from torch import nn
    >>> betas = {"adam_beta1": 0.9, "adam_beta2": 0.999}
    >>> args = SimpleNamespace(learning_rate=1e-3, weight_decay=0.0, adam_epsilon=1e-8, **betas)
    >>> type(trainer_optimizer(nn.Linear(8, 8), args)).__name__
    'DCTAdamW'
    """
    if optimizer not in OPTIMIZER_CLASSES:
        raise InputError(f"optimizer is {optimizer!r}", expected=f"one of: {', '.join(OPTIMIZER_CLASSES)}")
    chosen = {"lr": args.learning_rate, "weight_decay": args.weight_decay}
    if optimizer.startswith("dct"):
        chosen |= {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    groups, _ = low_rank_param_groups(model, rank=rank, include=include, exclude=exclude)
    return OPTIMIZER_CLASSES[optimizer](groups, rank=rank, **{**chosen, **settings})


def projection_callback() -> Any:
    """A callback for ``Trainer`` that logs energy kept, index churn and the state's bytes at every logging step.

    Returns
    -------
    TrainerCallback
        Logs ``energy_kept`` and ``index_churn`` (means over the projected parameters) and ``optimizer_state_bytes``.

    Raises
    ------
    MissingPackageError
        transformers isn't installed.

    Examples
    --------
    >>> type(projection_callback()).__name__
    'ProjectionCallback'
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise MissingPackageError("transformers", what="a callback of its Trainer", extra="lowrank") from error

    class ProjectionCallback(TrainerCallback):
        def __init__(self) -> None:
            self.optimizer: LowRankOptimizer | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # accelerate wraps the optimiser and keeps it under this name.
            found = kwargs.get("optimizer")
            found = getattr(found, "optimizer", found)
            if isinstance(found, LowRankOptimizer):
                self.optimizer = found
                found.track = True

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
        ) -> None:
            if self.optimizer is None or logs is None:
                return
            found = {**self.optimizer.mean_statistics(), "optimizer_state_bytes": self.optimizer.memory_report().total}
            logs.update(found)
            # The trainer has put a copy of the logs into its history already.
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1].update(found)

    return ProjectionCallback()
