"""The solver of the dynamics written down plainly, as a reference for the fast one and as the clock that it is held
against.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from assay.memory._gfa import covariance_polynomial
from assay.memory.interactions import load_factor

__all__ = ["plain_retrieval"]


def plain_retrieval(
    order: int, load: float, m0: float, *, steps: int, paths: int, kind: str = "krotov", seed: int = 0
) -> NDArray[np.float64]:
    """The overlaps m(0), …, m(steps), sampled in float64 with all paths at once; zero temperature."""
    power, alpha = order - 1, load / load_factor(order, kind)
    rng = np.random.default_rng(seed)
    h, z = np.empty((steps + 1, paths)), np.empty((steps, paths))
    h[0] = rng.permutation(np.where(np.arange(paths) < round(paths * (1 + m0) / 2), 1.0, -1.0))
    C, G, L = np.eye(steps + 1), np.zeros((steps + 1, steps + 1)), np.zeros((steps, steps))
    m = np.full(steps + 1, m0, dtype=float)
    for t in range(steps):
        now = slice(0, t + 1)
        if order == 2:
            A = np.linalg.inv(np.eye(t + 1) - G[now, now])
            R, Gamma = alpha * A @ C[now, now] @ A.T, alpha * (A - np.eye(t + 1))
        else:
            R = alpha * covariance_polynomial(power, C[now, now], kind=kind)
            Gamma = alpha * power**2 * covariance_polynomial(power - 1, C[now, now], kind=kind) * G[now, now]
        for s in range(t):
            if L[s, s] > 1e-7:
                L[t, s] = (R[t, s] - L[t, :s] @ L[s, :s]) / L[s, s]
        L[t, t] = math.sqrt(max(R[t, t] - L[t, :t] @ L[t, :t], 1e-12))
        a = m[t] ** power + L[t, :t] @ z[:t] + Gamma[t, :t] @ h[:t]
        z[t] = rng.standard_normal(paths)
        h[t + 1] = np.where(a + L[t, t] * z[t] >= 0, 1.0, -1.0)
        scaled = np.clip(a / L[t, t], -40, 40)
        E = 2 * ndtr(scaled) - 1
        m[t + 1] = E.mean()
        C[t + 1, : t + 1] = C[: t + 1, t + 1] = h[: t + 1] @ h[t + 1] / paths
        g = np.append(z[:t] @ E / paths, 2 * np.mean(np.exp(-(scaled**2) / 2)) / math.sqrt(2 * math.pi))
        values, vectors = np.linalg.eigh(R)
        kept = values > 1e-4 * values[-1]
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        G[t + 1, : t + 1] = (L[now, now] @ g) @ inverse
        if C[t + 1, t] > 1 - 1e-9:
            m[t + 1 :] = m[t + 1]
            break
    return m
