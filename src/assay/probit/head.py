"""The same model as a head for reward models: a mean reward, directions of taste, and losses for answers among K
completions.

Axes: B prompts, K completions of a prompt, N completions of a batch in all, R taste directions, H hidden width, T
events about three completions, P pairs, C one person's comparisons. Rewards are U = mean + factor z + sqrt(psi) e
with z and e standard normal. Only the ratio of the three parts shows in answers, so psi is 1 unless you say
otherwise.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import atomic_path, existing_file
from assay.probit._likelihood import QUADS
from assay.probit.bivariate import bvn_logcdf
from assay.probit.choices import BEST, ORDER, WORST
from assay.probit.person import laplace

if TYPE_CHECKING:
    from assay.probit.person import Floats

__all__ = [
    "BestOfThreeTrainer",
    "CompletionCollator",
    "CorrelatedProbitHead",
    "CorrelatedRewardModel",
    "best_of_three_loss",
    "choice_loss",
    "event_loss",
    "log_bivariate",
    "pairwise_loss",
    "personal_reward",
]

FORMAT, VERSION = "assay.probit.head", "1"
DRAWS = 128
HERMITE = 24
"""Points of the quadrature over the chosen completion's own noise."""

START_SCALE = 0.02
FLOOR = 1e-9


class _LogBivariate(torch.autograd.Function):
    """log Phi2(h, k; rho) and its three derivatives by the exact kernel, in float64, for inputs on any device."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
        values = [np.asarray(one.detach().to("cpu", torch.float64)) for one in (h, k, rho)]
        log_p, *slopes = bvn_logcdf(*values)
        ctx.save_for_backward(*(torch.from_numpy(slope).to(h) for slope in slopes))
        return torch.from_numpy(log_p).to(h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return tuple(gradient * slope for slope in ctx.saved_tensors)


def log_bivariate(h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
    """Log P(X <= h, Y <= k), differentiable.

    Parameters
    ----------
    h, k, rho : Tensor of float64
        Of one shape, with abs(rho) < 1.

    Returns
    -------
    Tensor
    """
    result: Tensor = _LogBivariate.apply(h, k, rho)  # type: ignore[no-untyped-call]
    return result


class CorrelatedProbitHead(nn.Module):
    """A linear layer from hidden states to a mean reward and R directions of taste.

    Parameters
    ----------
    hidden : int
        Width of the encoder's output.
    rank : int
        Directions of taste.

    Examples
    --------
    >>> head = CorrelatedProbitHead(8, rank=2)
    >>> mean, factor = head(torch.zeros(5, 3, 8))
    >>> tuple(mean.shape), tuple(factor.shape)
    ((5, 3), (5, 3, 2))
    """

    def __init__(self, hidden: int, rank: int = 4) -> None:
        super().__init__()
        if hidden < 1 or rank < 1:
            raise InputError(f"hidden is {hidden} and rank {rank}", expected="both at least 1")
        self.hidden, self.rank = hidden, rank
        self.linear = nn.Linear(hidden, 1 + rank, bias=False)
        # A factor of zeros would have no gradient.
        nn.init.normal_(self.linear.weight, std=START_SCALE)
        self.register_buffer("log_psi", torch.zeros((), dtype=torch.float64))
        self.log_psi: Tensor

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (B, K) and factor (B, K, R) of hidden states (B, K, H); any leading axes do."""
        out = self.linear(hidden_states.to(self.linear.weight.dtype))
        return out[..., 0], out[..., 1:]

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the head to a ``.safetensors`` file."""
        from safetensors.torch import save_file

        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "settings": json.dumps({"hidden": self.hidden, "rank": self.rank}),
        }
        with atomic_path(path, force=force) as temporary:
            save_file(
                {name: value.contiguous() for name, value in self.state_dict().items()}, temporary, metadata=metadata
            )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> CorrelatedProbitHead:
        """Read a head that `save` wrote.

        Raises
        ------
        InputError
            The file is missing, damaged, of another kind or version.
        """
        from safetensors import SafetensorError, safe_open

        file = existing_file(path)
        try:
            with safe_open(file, framework="pt") as archive:
                metadata = archive.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise InputError(
                        "holds another kind of object",
                        file=file,
                        expected="a file that CorrelatedProbitHead.save wrote",
                    )
                if metadata["version"] != VERSION:
                    raise InputError(f"is of version {metadata['version']}", file=file, expected=f"version {VERSION}")
                head = cls(**json.loads(metadata["settings"]))
                head.load_state_dict({name: archive.get_tensor(name) for name in archive.keys()})  # noqa: SIM118
        except SafetensorError as error:
            raise InputError(
                f"damaged: {error}", file=file, expected="a file that CorrelatedProbitHead.save wrote"
            ) from error
        return head


def _differences(
    mean: Tensor, factor: Tensor, log_psi: Tensor | float, places: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Means of X_a - X_b and X_c - X_d, their variances and covariance, each (T,), for places (T, 4) into (N,) "
    "and (N, R).
    """
    a, b, c, d = places.unbind(-1)
    psi = torch.exp(torch.as_tensor(log_psi, dtype=torch.float64, device=mean.device))
    first, second = factor[a] - factor[b], factor[c] - factor[d]
    shared = (a == c).double() + (b == d).double() - (a == d).double() - (b == c).double()
    return (
        mean[a] - mean[b],
        mean[c] - mean[d],
        (first**2).sum(-1) + 2 * psi + FLOOR,
        (second**2).sum(-1) + 2 * psi + FLOOR,
        (first * second).sum(-1) + shared * psi,
    )


def _event_log_likelihood(
    mean_N: Tensor, factor_NR: Tensor, triples_T3: Tensor, kinds_T: Tensor, log_psi: Tensor | float
) -> Tensor:
    table = torch.tensor([QUADS[kind] for kind in (ORDER, BEST, WORST)], device=triples_T3.device)
    places = torch.gather(triples_T3, 1, table[kinds_T])
    first, second, v1, v2, covariance = _differences(mean_N, factor_NR, log_psi, places)
    s1, s2 = torch.sqrt(v1), torch.sqrt(v2)
    return log_bivariate(first / s1, second / s2, covariance / (s1 * s2))


def event_loss(
    mean: Tensor,
    factor: Tensor,
    *,
    triples: Tensor,
    kinds: Tensor,
    pairs: Tensor | None = None,
    log_psi: Tensor | float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """The mean negative log-likelihood of events about completions of one batch.

    Parameters
    ----------
    mean : Tensor, shape (N,)
        Mean rewards of all completions of the batch.
    factor : Tensor, shape (N, R)
        Their tastes.
    triples : Tensor of int64, shape (T, 3)
        Places of the completions i, j, k of each event.
    kinds : Tensor of int64, shape (T,)
        0 for the order i, j, k; 1 for i best; 2 for k worst.
    pairs : Tensor of int64, shape (P, 2), optional
        Winners and losers.
    log_psi : Tensor or float
        Logarithm of the variance of a reward's own noise.
    weights : Tensor, shape (T + P,), optional
        What each event weighs.

    Returns
    -------
    Tensor
        float64, a scalar.
    """
    with torch.autocast(mean.device.type, enabled=False):
        mean, factor = mean.double(), factor.double()
        parts = [_event_log_likelihood(mean, factor, triples, kinds, log_psi)] if len(triples) else []
        if pairs is not None and len(pairs):
            winner, loser = pairs.unbind(-1)
            gap, _, variance, _, _ = _differences(
                mean, factor, log_psi, torch.stack([winner, loser, winner, loser], dim=-1)
            )
            parts.append(torch.special.log_ndtr(gap / torch.sqrt(variance)))
        if not parts:
            return (mean.sum() + factor.sum()) * 0.0
        log_p = torch.cat(parts)
        if weights is None:
            return -log_p.mean()
        return -(weights.double() * log_p).sum() / weights.double().sum()


def _flat(mean: Tensor, factor: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lay out (B, K) completions in one row, with places that point into it."""
    batch, count = mean.shape
    base = count * torch.arange(batch, device=mean.device)[:, None]
    return mean.reshape(-1), factor.reshape(batch * count, -1), order.to(mean.device) + base


def best_of_three_loss(mean: Tensor, factor: Tensor, order: Tensor, log_psi: Tensor | float = 0.0) -> Tensor:
    """The mean of -log P(order) for rankings of three: -log Phi2(h, k; rho).

    Parameters
    ----------
    mean : Tensor, shape (B, 3)
        Mean rewards.
    factor : Tensor, shape (B, 3, R)
        Tastes.
    order : Tensor of int64, shape (B, 3)
        Positions from best to worst.
    log_psi : Tensor or float
        Logarithm of the variance of a reward's own noise.

    Returns
    -------
    Tensor
        float64, a scalar; computed in float64 with autocast off.

    Examples
    --------
    >>> loss = best_of_three_loss(torch.zeros(1, 3), torch.zeros(1, 3, 2), torch.tensor([[0, 1, 2]]))
    >>> round(float(torch.exp(-loss)), 6)  # six equal orders
    0.166667
    """
    if mean.shape[-1] != 3 or order.shape != mean.shape:
        raise InputError(f"mean has shape {tuple(mean.shape)} and order {tuple(order.shape)}", expected="both (B, 3)")
    mean, factor, places = _flat(mean, factor, order)
    kinds = torch.full((len(places),), ORDER, dtype=torch.int64, device=places.device)
    return event_loss(mean, factor, triples=places, kinds=kinds, log_psi=log_psi)


def choice_loss(
    mean: Tensor,
    factor: Tensor,
    chosen: Tensor,
    log_psi: Tensor | float = 0.0,
    *,
    mask: Tensor | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Tensor:
    """The mean of -log P(chosen is the best of K).

    Exact for K = 2 and 3. Above, and with a mask, z is simulated with scrambled Sobol points, given which
    P = integral of phi(e) prod_j Phi(e + (u_i - u_j) / sqrt(psi)), a quadrature in one dimension.

    Parameters
    ----------
    mean : Tensor, shape (B, K)
        Mean rewards.
    factor : Tensor, shape (B, K, R)
        Tastes.
    chosen : Tensor of int64, shape (B,)
        Positions of the best.
    log_psi : Tensor or float
        Logarithm of the variance of a reward's own noise.
    mask : Tensor of bool, shape (B, K), optional
        Which completions there are, where prompts have different numbers of them.
    draws : int
        Points for z.
    seed : int
        Their seed.

    Returns
    -------
    Tensor
        float64, a scalar.

    Examples
    --------
    >>> loss = choice_loss(torch.zeros(1, 5), torch.zeros(1, 5, 2), torch.tensor([0]))
    >>> round(float(torch.exp(-loss)), 4)
    0.2
    """
    batch, count = mean.shape
    if count < 2:
        raise InputError(f"mean has {count} completions a prompt", expected="at least 2")
    if mask is None and count == 2:
        return pairwise_loss(mean, factor, torch.stack([chosen, 1 - chosen], dim=-1), log_psi, warn=False)
    if mask is None and count == 3:
        rest = torch.stack([(chosen + 1) % 3, (chosen + 2) % 3], dim=-1)
        flat_mean, flat_factor, places = _flat(mean, factor, torch.cat([chosen[:, None], rest], dim=-1))
        kinds = torch.full((batch,), BEST, dtype=torch.int64, device=mean.device)
        return event_loss(flat_mean, flat_factor, triples=places, kinds=kinds, log_psi=log_psi)
    with torch.autocast(mean.device.type, enabled=False):
        mean, factor = mean.double(), factor.double()
        scale = torch.exp(0.5 * torch.as_tensor(log_psi, dtype=torch.float64, device=mean.device))
        rank = factor.shape[-1]
        uniform = torch.quasirandom.SobolEngine(rank, scramble=True, seed=seed).draw(draws, dtype=torch.float64)
        z_DR = torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9)).to(mean.device)
        nodes, weights = np.polynomial.hermite_e.hermegauss(HERMITE)
        node_E = torch.from_numpy(nodes).to(mean.device)
        log_weight_E = torch.log(torch.from_numpy(weights / weights.sum()).to(mean.device))
        utility_BDK = mean[:, None, :] + torch.einsum("bkr,dr->bdk", factor, z_DR)
        best_BD = torch.gather(utility_BDK, 2, chosen[:, None, None].expand(-1, draws, 1))
        gap_BDK = (best_BD - utility_BDK) / scale
        log_p_BDEK = torch.special.log_ndtr(gap_BDK[:, :, None, :] + node_E[None, None, :, None])
        kept = torch.ones_like(mean, dtype=torch.bool) if mask is None else mask.to(torch.bool)
        kept = kept & (torch.arange(count, device=mean.device)[None, :] != chosen[:, None])
        log_p_BDE = (log_p_BDEK * kept[:, None, None, :]).sum(-1) + log_weight_E
        return -(torch.logsumexp(log_p_BDE.reshape(batch, -1), dim=1) - math.log(draws)).mean()


def pairwise_loss(
    mean: Tensor, factor: Tensor, order: Tensor, log_psi: Tensor | float = 0.0, *, warn: bool = True
) -> Tensor:
    """The mean of -log P(winner over loser): what pairs can train, which is the mean.

    Parameters
    ----------
    mean : Tensor, shape (B, K)
        Mean rewards.
    factor : Tensor, shape (B, K, R)
        Tastes. Pairs don't identify them (Theorem 3.2): their gradient is stopped.
    order : Tensor of int64, shape (B, 2)
        Positions of winner and loser.
    log_psi : Tensor or float
        Logarithm of the variance of a reward's own noise.
    warn : bool
        Say so, once.

    Returns
    -------
    Tensor
        float64, a scalar.

    Examples
    --------
    >>> loss = pairwise_loss(torch.zeros(1, 2), torch.zeros(1, 2, 1), torch.tensor([[0, 1]]), warn=False)
    >>> round(float(torch.exp(-loss)), 6)
    0.5
    """
    if warn:
        warnings.warn(
            "pairs train the mean reward only; tastes need answers among three or more", UserWarning, stacklevel=2
        )
    flat_mean, flat_factor, places = _flat(mean, factor.detach(), order)
    empty = torch.empty(0, 3, dtype=torch.int64, device=mean.device)
    return event_loss(flat_mean, flat_factor, triples=empty, kinds=empty[:, 0], pairs=places, log_psi=log_psi)


def personal_reward(
    mean: Tensor, factor: Tensor, comparisons: Iterable[Sequence[int]], *, log_psi: float = 0.0
) -> Tensor:
    """Rewards for one person: mean + factor E[z | answers], by Laplace's approximation of the posterior of z.

    Parameters
    ----------
    mean : Tensor, shape (N,)
        Mean rewards of completions, those that the person compared and those to score.
    factor : Tensor, shape (N, R)
        Their tastes.
    comparisons : iterable of (winner, loser)
        The person's answers, as places in `mean`.
    log_psi : float
        Logarithm of the variance of a reward's own noise.

    Returns
    -------
    Tensor
        Shape (N,), of the dtype and device of `mean`.

    Examples
    --------
    >>> mean, factor = torch.zeros(3), torch.tensor([[1.0], [-1.0], [1.0]])
    >>> reward = personal_reward(mean, factor, [(0, 1)])
    >>> bool(reward[2] > 0)  # who likes 0 better than 1 likes 2, which is like 0
    True
    """
    pairs = np.array([list(pair) for pair in comparisons], dtype=np.int64).reshape(-1, 2)
    if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(mean)):
        raise InputError("a comparison points outside the completions", expected=f"places from 0 to {len(mean) - 1}")
    values: Floats = mean.detach().cpu().double().numpy()
    loadings: Floats = factor.detach().cpu().double().numpy()
    z, _ = laplace(values, loadings, pairs, temperature=math.sqrt(2 * math.exp(log_psi)))
    return mean + factor @ torch.from_numpy(z).to(factor)


class CompletionCollator:
    """Turns rows of a data set with K completions a prompt into a batch for `CorrelatedRewardModel`.

    Rows have ``prompt``, ``completions``, and ``ranking`` (positions from best to worst, ties as lists) or
    ``ratings``, and perhaps ``user``. A row of m completions makes all its triples, which together weigh as much as
    another row's.

    Parameters
    ----------
    tokenizer : callable
        A Hugging Face tokenizer.
    max_length : int
        Tokens at which texts are cut.

    Examples
    --------
    >>> def tokenizer(texts, **options):
    ...     shape = (len(texts), 2)
    ...     return {"input_ids": torch.ones(shape, dtype=torch.long), "attention_mask": torch.ones(shape)}
    >>> row = {"prompt": "?", "completions": ["a", "b", "c"], "ranking": [2, 0, 1]}
    >>> batch = CompletionCollator(tokenizer)([row])
    >>> batch["triples"].tolist(), batch["kinds"].tolist()
    ([[2, 0, 1]], [0])
    """

    def __init__(self, tokenizer: Any, *, max_length: int = 512) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """A batch: tokens of all completions in one row, and the events about them."""
        from assay.probit.choices import completion_rankings, text_of

        places = [{**row, "models": list(range(len(row.get("completions") or ())))} for row in rows]
        rankings, _ = completion_rankings(places)
        texts: list[str] = []
        triples: list[tuple[int, int, int]] = []
        kinds: list[int] = []
        pairs: list[tuple[int, int]] = []
        weights: list[float] = []
        pair_weights: list[float] = []
        for row, ranking in zip(rows, rankings, strict=True):
            base = len(texts)
            levels = [group if isinstance(group, list) else [group] for group in ranking]
            texts.extend(f"{text_of(row.get('prompt', ''))}{text_of(completion)}" for completion in row["completions"])
            ranked = [(base + place, level) for level, group in enumerate(levels) for place in group]
            if len(ranked) == 2:
                if ranked[0][1] != ranked[1][1]:
                    pairs.append((ranked[0][0], ranked[1][0]))
                    pair_weights.append(1.0)
                continue
            found = []
            for (i, x), (j, y), (k, w) in combinations(ranked, 3):
                if x < w:
                    found.append(((i, j, k), ORDER if x < y < w else BEST if x < y else WORST))
            triples.extend(triple for triple, _ in found)
            kinds.extend(kind for _, kind in found)
            weights.extend(1.0 / len(found) for _ in found)
        tokens = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        return {
            "input_ids": tokens["input_ids"],
            "attention_mask": tokens["attention_mask"],
            "triples": torch.tensor(triples, dtype=torch.int64).reshape(-1, 3),
            "kinds": torch.tensor(kinds, dtype=torch.int64),
            "pairs": torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
            "weights": torch.tensor([*weights, *pair_weights], dtype=torch.float64),
        }


class CorrelatedRewardModel(nn.Module):
    """An encoder with a `CorrelatedProbitHead`.

    Parameters
    ----------
    encoder : nn.Module
        Takes ``input_ids`` and ``attention_mask``; its output has ``last_hidden_state``.
    head : CorrelatedProbitHead
        As wide as the encoder's output.
    pooling : {"mean", "last"}
        Whether a completion is the mean of its tokens' states, or the last token's.

    Raises
    ------
    InputError
        `pooling` is neither.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> class Words(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.states = nn.Embedding(100, 8)
    ...
    ...     def forward(self, input_ids, attention_mask):
    ...         return SimpleNamespace(last_hidden_state=self.states(input_ids))
    >>> model = CorrelatedRewardModel(Words(), CorrelatedProbitHead(8, rank=2))
    >>> found = model(torch.tensor([[1, 2], [3, 0], [4, 5]]), torch.tensor([[1, 1], [1, 0], [1, 1]]))
    >>> found["mean"].shape, found["factor"].shape
    (torch.Size([3]), torch.Size([3, 2]))
    """

    def __init__(self, encoder: nn.Module, head: CorrelatedProbitHead, *, pooling: str = "mean") -> None:
        super().__init__()
        if pooling not in ("mean", "last"):
            raise InputError(f"pooling is {pooling!r}", expected="'mean' or 'last'")
        self.encoder, self.head, self.pooling = encoder, head, pooling

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        triples: Tensor | None = None,
        kinds: Tensor | None = None,
        pairs: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Mean (N,) and factor (N, R) of the texts, and the loss where there are events."""
        states_NLH = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask_NL = attention_mask.to(states_NLH.dtype)
        if self.pooling == "mean":
            pooled_NH = (states_NLH * mask_NL[..., None]).sum(1) / mask_NL.sum(1, keepdim=True).clamp_min(1)
        else:
            last_N = (attention_mask * torch.arange(attention_mask.shape[1], device=attention_mask.device)).argmax(
                dim=1
            )
            pooled_NH = states_NLH[torch.arange(len(last_N), device=last_N.device), last_N]
        mean, factor = self.head(pooled_NH)
        found = {"mean": mean, "factor": factor}
        if triples is not None and kinds is not None:
            found["loss"] = event_loss(
                mean, factor, triples=triples, kinds=kinds, pairs=pairs, log_psi=self.head.log_psi, weights=weights
            )
        return found


class BestOfThreeTrainer:
    """A Hugging Face `Trainer` for `CorrelatedRewardModel`: making one gives an instance of a subclass of `Trainer`.

    It sets ``remove_unused_columns`` to false, since the collator needs the data set's own columns; everything else
    is the `Trainer`'s, so accelerate, FSDP and checkpoints work as usual.

    Parameters
    ----------
    model : CorrelatedRewardModel
        What is trained.
    args : transformers.TrainingArguments
        As for `Trainer`.
    **options
        As for `Trainer`; ``data_collator`` is a `CompletionCollator`.

    Raises
    ------
    MissingPackageError
        transformers isn't installed.

    Examples
    --------
    >>> trainer = BestOfThreeTrainer(model, args, train_dataset=rows, data_collator=collator)  # doctest: +SKIP
    >>> trainer.train()  # doctest: +SKIP
    """

    def __new__(cls, model: CorrelatedRewardModel, args: Any, **options: Any) -> Any:
        try:
            from transformers import Trainer
        except ImportError as error:
            raise MissingPackageError("transformers", what="BestOfThreeTrainer", extra="hf") from error

        class _BestOfThreeTrainer(Trainer):  # type: ignore[misc, unused-ignore]
            def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *_: Any, **__: Any) -> Any:
                outputs = model(**inputs)
                return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

        args.remove_unused_columns = False
        return _BestOfThreeTrainer(model, args, **options)
