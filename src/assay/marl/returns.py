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
    rewards, values = reward.unbind(dim), bootstrap.unbind(dim)
    real, goes_on = (filled > 0).unbind(dim), (gamma * (1 - terminated.to(reward.dtype))).unbind(dim)
    zero = torch.zeros_like(values[0])
    following = values[-1]
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        # Padding may hold anything, so it is replaced and not multiplied away: 0 · nan is nan.
        ahead = (1 - lam) * values[t + 1] + lam * following
        return_ = torch.where(real[t], rewards[t] + torch.where(goes_on[t] > 0, goes_on[t] * ahead, zero), zero)
        following = torch.where(real[t], return_, values[t])
        returns.append(return_)
    return torch.stack(returns[::-1], dim)
