"""λ-returns of padded episodes, each from its own end.

The recursion of TD(λ) with bootstrap values b:
G_t = r_t + γ (1 − d_t) [(1 − λ) b_{t+1} + λ G_{t+1}], with G_{T'} = b_{T'} after an episode's last real step T' − 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["lambda_return"]


def lambda_return(
    reward: Tensor,
    bootstrap: Tensor,
    terminated: Tensor,
    filled: Tensor,
    *,
    gamma: float = 0.99,
    lam: float = 0.6,
    dim: int = 1,
) -> Tensor:
    """The λ-return of every step; what is stored behind an episode's end has no influence on it.

    Parameters
    ----------
    reward : Tensor, shape (B, T)
        Rewards; any further axes are carried along.
    bootstrap : Tensor, shape (B, T + 1)
        Values of the states, that after the last step included. Not finite values are allowed in padding only.
    terminated : Tensor, shape (B, T)
        1 where the episode truly ended with this step; 0 at a time limit, behind which values still count.
    filled : Tensor, shape (B, T)
        1 for real steps, which come before all padding.
    gamma : float
        Discount γ, a step.
    lam : float
        λ: 0 gives one-step targets, 1 discounted returns.
    dim : int
        The axis of time.

    Returns
    -------
    Tensor, shape (B, T)
        G in the unit of the rewards; 0 in padding.

    Notes
    -----
    Differentiable in rewards and bootstrap values, and free of data-dependent control flow.

    Examples
    --------
    >>> import torch
    >>> reward, value = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[9.0, 0.5, 0.4, 0.3]])
    >>> lambda_return(reward, value, torch.tensor([[0.0, 0.0, 1.0]]), torch.ones(1, 3), gamma=0.9, lam=0.6)
    tensor([[1.8410, 1.2240, 2.0000]])
    """
    real, ended = filled > 0, terminated > 0
    ahead = bootstrap.narrow(dim, 1, bootstrap.shape[dim] - 1)
    # Padding may hold anything, so it is replaced and not multiplied away: 0 · nan is nan.
    ahead = torch.where(real & ~ended, ahead, 0.0)
    after = torch.cat([real.narrow(dim, 1, real.shape[dim] - 1), torch.zeros_like(real.narrow(dim, 0, 1))], dim)
    known = torch.where(real, reward + gamma * (1 - lam * after.to(reward.dtype)) * ahead, 0.0)
    carried = gamma * lam * (real & after & ~ended).to(reward.dtype)
    return_ = torch.zeros_like(known.select(dim, 0))
    returns: list[Tensor] = []
    for now, factor in zip(reversed(known.unbind(dim)), reversed(carried.unbind(dim)), strict=True):
        return_ = torch.addcmul(now, factor, return_)
        returns.append(return_)
    return torch.stack(returns[::-1], dim)
