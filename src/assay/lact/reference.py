"""The mathematics written down as it stands in the paper, matrix by matrix, with everything kept for autograd.

What the tests hold the fast form to, and what the study's speed claims are relative to.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.lact.fast_weights import FastWeights, Rule
from assay.lact.orthogonal import COEFFICIENTS, Coefficients

__all__ = ["reference_lact", "reference_newton_schulz"]


def reference_newton_schulz(gradient: Tensor, *, coefficients: Coefficients = "keller") -> Tensor:
    """Newton–Schulz of matrices (B, rows, columns), in the wide orientation."""
    X: Tensor = gradient.mT if gradient.shape[1] > gradient.shape[2] else gradient
    X = X / (torch.linalg.matrix_norm(X, keepdim=True) + 1e-7)
    for a, b, c in COEFFICIENTS[coefficients]:
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if gradient.shape[1] > gradient.shape[2] else X


def reference_lact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    w_init: FastWeights,
    *,
    chunk_size: int,
    rule: Rule = "muon",
    momentum: Tensor | None = None,
    ns: Coefficients = "keller",
    prenorm: bool = False,
) -> Tensor:
    """Answers of a SwiGLU memory in the mode ``shifted``.

    Parameters
    ----------
    q, k : Tensor, shape (B, l, d)
    v : Tensor, shape (B, l, o)
    lr : Tensor, shape (B, l, 3)
    w_init : FastWeights
    chunk_size : int
    rule : {"gd", "momentum", "muon", "muon_momentum"}
    momentum : Tensor, shape (B, l), optional
    ns : {"keller", "tuned"}
    prenorm : bool

    Returns
    -------
    Tensor, shape (B, l, o)
    """
    w0, w1, w2 = w_init
    assert w0 is not None and w2 is not None
    norms = [torch.linalg.vector_norm(w, dim=2, keepdim=True) for w in (w0, w1, w2)]
    main = [w0, w1, w2]
    moments = [torch.zeros_like(w) for w in main]
    answers = []
    for begin in range(0, q.shape[1], chunk_size):
        end = min(begin + chunk_size, q.shape[1])
        asked = q[:, begin:end]
        hidden = F.silu(asked @ w0.mT) * (asked @ w2.mT)
        answers.append(hidden @ w1.mT)
        if end == q.shape[1]:
            break
        keys, values = k[:, begin:end], v[:, begin:end]
        eta0, eta1, eta2 = lr[:, begin:end].split(1, dim=2)
        gate, up = keys @ w0.mT, keys @ w2.mT
        back = values @ w1
        slope = torch.sigmoid(gate) * (1 + gate * (1 - torch.sigmoid(gate)))
        steps = [
            (back * up * slope).mT @ (eta0 * keys),
            values.mT @ (eta1 * F.silu(gate) * up),
            (back * F.silu(gate)).mT @ (eta2 * keys),
        ]
        if momentum is not None:
            share = momentum[:, begin:end].mean(1)[:, None, None]
            steps = moments = [share * moment + step for moment, step in zip(moments, steps, strict=True)]
        if rule.startswith("muon"):
            steps = [reference_newton_schulz(step, coefficients=ns) for step in steps]
        before = main if prenorm else [w0, w1, w2]
        main = [w + step for w, step in zip(before, steps, strict=True)]
        w0, w1, w2 = (
            w / (torch.linalg.vector_norm(w, dim=2, keepdim=True) + 1e-5) * norm
            for w, norm in zip(main, norms, strict=True)
        )
    return torch.cat(answers, dim=1)
