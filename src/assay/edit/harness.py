"""General ability of an edited model, by EleutherAI's lm-evaluation-harness: MMLU and its other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from assay.core.errors import AssayError, InputError, MissingPackageError

__all__ = ["harness_scores", "load_harness"]


def harness_scores(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[str] = ("mmlu",),
    *,
    patch: Any = None,
    shots: int = 5,
    limit: int | None = None,
    batch_size: int = 8,
    task_manager: Any = None,
) -> dict[str, float]:
    """Score a model, perhaps with a patch in it, on tasks of the harness.

    Parameters
    ----------
    model, tokenizer
        A Hugging Face causal language model and its tokenizer.
    tasks : sequence of str
        As the harness names them. It fetches their data from the hub when they are first used.
    patch : EditPatch or GatedPatch, optional
        Applied for the evaluation, and undone afterwards.
    shots : int
        How many solved examples stand before each question.
    limit : int, optional
        Score so many questions of each task; all without.
    batch_size : int
        How many questions pass the model at once.
    task_manager : lm_eval.tasks.TaskManager, optional
        Where tasks of your own are.

    Returns
    -------
    dict of str to float
        ``task/metric`` with its value, such as ``mmlu/acc``.

    Raises
    ------
    InputError
        No task is given, or a number is out of its range.
    MissingPackageError
        lm-eval isn't installed.
    AssayError
        The harness fails, such as without the network that a task's data need.

    Examples
    --------
    >>> from assay.core.errors import InputError
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> try:
    ...     harness_scores(lm.model, lm.tokenizer, [])
    ... except InputError as error:
    ...     print(error)
    there is no task; expected at least one, such as mmlu
    """
    if not tasks:
        raise InputError("there is no task", expected="at least one, such as mmlu")
    for name, value, least in (("shots", shots, 0), ("limit", limit, 1), ("batch_size", batch_size, 1)):
        if value is not None and value < least:
            raise InputError(f"{name} is {value}", expected=f"{least} or more")
    simple_evaluate, HFLM = load_harness()
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
    try:
        with patch.applied(model) if patch is not None else nullcontext():
            found = simple_evaluate(
                wrapped,
                tasks=list(tasks),
                num_fewshot=shots,
                limit=limit,
                bootstrap_iters=0,
                log_samples=False,
                task_manager=task_manager,
            )
    except (KeyError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise AssayError(f"the evaluation harness fails on {', '.join(tasks)}: {reason}") from error
    return {
        f"{task}/{name.partition(',')[0]}": float(value)
        for task, values in found["results"].items()
        for name, value in values.items()
        if isinstance(value, int | float) and "stderr" not in name and "," in name
    }


def load_harness() -> tuple[Any, Any]:
    """The harness's function and its class for Hugging Face models.

    Raises
    ------
    MissingPackageError
        The extra ``edit-harness`` isn't installed.
    """
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
    except ImportError as error:
        raise MissingPackageError("lm-eval", what="a task of the evaluation harness", extra="edit-harness") from error
    return simple_evaluate, HFLM
