"""The pictures that the commands draw of a user's edits, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import InputError
from assay.core.files import check_output, write_bytes
from assay.core.lm.scoring import score_answers
from assay.edit.datasets import neutral_prompts
from assay.edit.metrics import locality
from assay.edit.patch import EditPatch
from assay.edit.plots import (
    picture_bytes,
    plot_decay,
    plot_difficulty,
    plot_interference,
    plot_old_answers,
    plot_shifts,
)
from assay.edit.requests import Prompts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.core.lm import LanguageModel

__all__ = ["check_pictures", "draw", "edit_pictures", "evaluation_pictures", "joined_pictures"]

Pictures = Mapping[str, Callable[[], "Figure"]]
EDIT, EVALUATION, JOINED = ("shifts", "decay"), ("difficulty", "old-answers"), ("interference",)
"""What each command draws."""


def check_pictures(folder: str, names: Sequence[str], *, force: bool = False) -> None:
    """Refuse a folder that pictures can't be written to, before any work is done.

    Raises
    ------
    InputError
        It is a file, its parent is missing, or a picture exists already and `force` is false.
    """
    place = Path(folder)
    if not folder:
        raise InputError("the folder's name is empty", expected="the name of a folder for pictures")
    if place.exists() and not place.is_dir():
        raise InputError("is a file", file=place, expected="a folder for pictures")
    if not place.exists():
        if not place.parent.is_dir():
            raise InputError(f"the folder {place.parent} doesn't exist", file=place, expected="an existing folder")
        if not os.access(place.parent, os.W_OK):
            raise InputError(f"no permission to write in {place.parent}", file=place, expected="a writable folder")
        return
    for name in names:
        check_output(place / f"{name}.svg", force=force)


def draw(folder: str, pictures: Pictures, *, force: bool = False) -> list[str]:
    """Write each picture that there is something for, as ``.svg``; the files' names."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    written = []
    for name, make in pictures.items():
        try:
            figure = make()
        except InputError:
            # Such as old answers where no request has one.
            continue
        written.append(str(write_bytes(place / f"{name}.svg", picture_bytes(figure), force=force)))
    return written


def edit_pictures(lm: LanguageModel, patches: Sequence[EditPatch]) -> Pictures:
    """How long the shifts are; and where there were several batches, what became of the first one's edits."""
    shifts = [row["shift"] for patch in patches for row in patch.rows if "shift" in row]
    pictures: dict[str, Callable[[], Figure]] = {"shifts": lambda: plot_shifts(shifts)}
    if len(patches) > 1:
        pictures["decay"] = lambda: plot_decay(_decay(lm, patches))
    return pictures


def evaluation_pictures(
    scores: Sequence[float],
    rows: Sequence[Mapping[str, Any]],
    *,
    before: Sequence[float],
) -> Pictures:
    """Difficulty against what the reworded questions cost, and what the old answers cost before and after.

    Parameters
    ----------
    scores : sequence of float
        TangleScores before the edit.
    rows : sequence of mappings
        Of `evaluate_edits`, after the edit.
    before : sequence of float
        What the old answers cost before.
    """
    worded = any(np.isfinite(row["nll_paraphrase"]) for row in rows)
    side, words = ("paraphrase", "reworded question") if worded else ("original", "question")
    return {
        "difficulty": lambda: plot_difficulty(
            scores, [row[f"nll_{side}"] for row in rows], outcome=f"{words}, nats a token"
        ),
        "old-answers": lambda: plot_old_answers(before, [row["old_nll_original"] for row in rows]),
    }


def joined_pictures(lm: LanguageModel, patches: Sequence[EditPatch], names: Sequence[str]) -> Pictures:
    """What each patch does to the edits of each."""

    def figure() -> Figure:
        before = np.array([_cost(lm, patch) for patch in patches])
        columns = []
        for patch in patches:
            with patch.applied(lm.model):
                columns.append(before - [_cost(lm, other) for other in patches])
        return plot_interference(np.stack(columns, axis=1), names=names)

    return {"interference": figure}


def _decay(lm: LanguageModel, patches: Sequence[EditPatch]) -> dict[str, list[float]]:
    """The first batch's cost and the divergence on unrelated prompts after each batch."""
    rest = locality(lm.model, lm.tokenizer, [], neutral_prompts())
    costs, drifts, applied = [], [], []
    try:
        for patch in patches:
            patch.apply_(lm.model)
            applied.append(patch)
            costs.append(_cost(lm, patches[0]))
            drifts.append(rest.compare(lm.model, lm.tokenizer)["locality_kl"])
    finally:
        for patch in reversed(applied):
            patch.revert_(lm.model)
    return {"first batch, nats a token": costs, "unrelated prompts, divergence in nats": drifts}


def _cost(lm: LanguageModel, patch: EditPatch) -> float:
    """What the answers of a patch's requests cost the model now, in nats a token."""
    prompts = Prompts(lm.tokenizer)
    scores = score_answers(
        lm.model,
        lm.tokenizer,
        [prompts.text(str(row["question"])) for row in patch.rows],
        [str(row["answer"]).strip() + prompts.ending for row in patch.rows],
    )
    return float(np.mean([score.nll for score in scores]))
