"""Autoregressive video: noisy and clean chunks of frames in turn, attention within a window, and a memory of the rest.

In training, every noisy chunk stands before its clean version: noise 1, clean 1, noise 2, …, the last noise. A clean
chunk changes the memory and asks it together with the noise that follows (Zhang et al., section 4.3 and appendix B.3).
Attention sees the own chunk, and from noise the clean chunk before it.

Axes: B videos, H heads, L tokens, D channels.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.lact.attention import apply_rope, rope_tables
from assay.lact.fast_weights import Rule
from assay.lact.functional import lact
from assay.lact.layers import InitialFastWeights, TokenRates, l2_normalised
from assay.lact.orthogonal import Coefficients
from assay.lact.plans import Plan

__all__ = [
    "InterleavedVideoLaCT",
    "add_noise",
    "block_causal_attention",
    "interleaved",
    "interleaved_window_attention",
    "logit_normal_weight",
    "moving_shapes",
    "noise_chunks",
    "shift_time",
    "video_rope_tables",
]

NORM_EPS = 1e-5
TIME_BINS = 1000


def add_noise(clean: Tensor, noise: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Flow matching's line from data to noise, and the velocity along it.

    Parameters
    ----------
    clean, noise : Tensor
        Of one shape.
    time : Tensor
        From 0, which is clean, to 1, which is noise; broadcast.

    Returns
    -------
    noisy : Tensor
        clean (1 - time) + noise time.
    velocity : Tensor
        noise - clean, which a model learns.

    Examples
    --------
    >>> import torch
    >>> add_noise(torch.tensor([2.0]), torch.tensor([4.0]), torch.tensor(0.25))
    (tensor([2.5000]), tensor([2.]))
    """
    return clean * (1 - time) + noise * time, noise - clean


def shift_time(time: Tensor, *, shift: float = 3.0) -> Tensor:
    """Move times towards the noisy end: u becomes s u / (1 + (s - 1) u).

    Parameters
    ----------
    time : Tensor
        From 0 to 1.
    shift : float
        s; 1 changes nothing.

    Returns
    -------
    Tensor
        From 0 to 1.

    Raises
    ------
    InputError
        The shift isn't above 0.

    Examples
    --------
    >>> import torch
    >>> shift_time(torch.tensor([0.0, 0.5, 1.0]))
    tensor([0.0000, 0.7500, 1.0000])
    """
    if not shift > 0:
        raise InputError(f"shift is {shift}", expected="a number above 0")
    shifted: Tensor = shift * time / (1 + (shift - 1) * time)
    return shifted


def logit_normal_weight(time: Tensor, *, mean: float = 0.0, std: float = 1.0, bins: int = TIME_BINS) -> Tensor:
    """How much a sample of some time counts: the share of a logit-normal distribution in the time's bin.

    Parameters
    ----------
    time : Tensor
        From 0 to 1.
    mean, std : float
        Of the logits. The released code has mean 0, the paper 0.5.
    bins : int
        So many bins of equal width are there.

    Returns
    -------
    Tensor
        The probability of each time's bin, times their number: all bins together average 1.

    Raises
    ------
    InputError
        `std` isn't above 0.

    Examples
    --------
    >>> import torch
    >>> logit_normal_weight(torch.tensor([0.25, 0.75]), bins=2)
    tensor([1., 1.])
    """
    if not std > 0:
        raise InputError(f"std is {std}", expected="a number above 0")
    index = (time.double() * bins).floor().clamp(0, bins - 1)

    def below(edge: Tensor) -> Tensor:
        share: Tensor = torch.special.ndtr((torch.logit(edge) - mean) / std)
        return share

    return (bins * (below((index + 1) / bins) - below(index / bins))).to(time.dtype)


def interleaved(noisy: Tensor, clean: Tensor) -> Tensor:
    """The training sequence: noise 1, clean 1, noise 2, …, the last noise.

    Parameters
    ----------
    noisy : Tensor
        Shape (B, chunks, repeats, tokens, ...): independent noisy versions of each chunk.
    clean : Tensor
        Shape (B, chunks, tokens, ...); the last is left out, since nothing comes after it.

    Returns
    -------
    Tensor
        Shape (B, (chunks repeats + chunks - 1) tokens, ...).

    Examples
    --------
    >>> import torch
    >>> interleaved(torch.tensor([[[[1.0]], [[2.0]]]]), torch.tensor([[[8.0], [9.0]]]))
    tensor([[1., 8., 2.]])
    """
    groups = torch.cat((noisy, clean[:, :, None]), dim=2).flatten(1, 3)
    sequence: Tensor = groups[:, : groups.shape[1] - clean.shape[2]]
    return sequence


def noise_chunks(sequence: Tensor, chunks: int, *, chunk_size: int, repeats: int = 1) -> Tensor:
    """The noisy chunks of a training sequence, (B, chunks, repeats, tokens, ...): the inverse of `interleaved`.

    Parameters
    ----------
    sequence : Tensor
        Shape (B, L, ...).
    chunks, chunk_size, repeats : int
        As the sequence was made.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import torch
    >>> noise_chunks(torch.tensor([[1.0, 8.0, 2.0]]), 2, chunk_size=1).flatten()
    tensor([1., 2.])
    """
    pad = sequence.new_zeros((sequence.shape[0], chunk_size, *sequence.shape[2:]))
    groups = torch.cat((sequence, pad), dim=1).unflatten(1, (chunks, repeats + 1, chunk_size))
    noisy: Tensor = groups[:, :, :repeats]
    return noisy


def interleaved_window_attention(
    q_BHLD: Tensor, k_BHLD: Tensor, v_BHLD: Tensor, chunks: int, *, chunk_size: int, repeats: int = 1
) -> Tensor:
    """Attention of each chunk to itself, and of noise to the clean chunk before it too.

    Noisy versions of one chunk don't see one another. No mask of the whole length is made.

    Parameters
    ----------
    q_BHLD, k_BHLD, v_BHLD : Tensor
        In the order of `interleaved`, shape (B, H, L, D).
    chunks, chunk_size, repeats : int
        As the sequence was made.

    Returns
    -------
    Tensor
        Shape (B, H, L, D).

    Raises
    ------
    InputError
        The length isn't that of such a sequence.

    Examples
    --------
    >>> import torch
    >>> q, k, v = torch.randn(3, 1, 2, 9, 4)
    >>> interleaved_window_attention(q, k, v, 2, chunk_size=3).shape
    torch.Size([1, 2, 9, 4])
    """
    return _attention(q_BHLD, k_BHLD, v_BHLD, chunks, chunk_size=chunk_size, repeats=repeats, window=1)


def block_causal_attention(
    q_BHLD: Tensor, k_BHLD: Tensor, v_BHLD: Tensor, chunks: int, *, chunk_size: int, repeats: int = 1
) -> Tensor:
    """Attention of each chunk to itself and to all clean chunks before it: what the window and the memory stand for.

    Parameters
    ----------
    q_BHLD, k_BHLD, v_BHLD : Tensor
        In the order of `interleaved`, shape (B, H, L, D).
    chunks, chunk_size, repeats : int
        As the sequence was made.

    Returns
    -------
    Tensor
        Shape (B, H, L, D).

    Raises
    ------
    InputError
        The length isn't that of such a sequence.

    Examples
    --------
    >>> import torch
    >>> q, k, v = torch.randn(3, 1, 2, 9, 4)
    >>> same = interleaved_window_attention(q, k, v, 2, chunk_size=3)
    >>> bool(torch.allclose(block_causal_attention(q, k, v, 2, chunk_size=3), same, atol=1e-6))
    True
    """
    return _attention(q_BHLD, k_BHLD, v_BHLD, chunks, chunk_size=chunk_size, repeats=repeats, window=chunks)


def _attention(q: Tensor, k: Tensor, v: Tensor, chunks: int, *, chunk_size: int, repeats: int, window: int) -> Tensor:
    """Chunk number i sees its own tokens and the clean chunks from i - window on; clean chunks do so with all windows
    but the shortest.
    """
    length = (chunks * repeats + chunks - 1) * chunk_size
    if q.shape[2] != length:
        raise InputError(
            f"the sequence has {q.shape[2]} tokens",
            expected=f"{length} for {chunks} chunks of {chunk_size} with {repeats} noisy versions each",
        )
    pad = (0, 0, 0, chunk_size)
    queries, keys, values = (F.pad(x, pad).unflatten(2, (chunks, repeats + 1, chunk_size)) for x in (q, k, v))
    clean_keys, clean_values = keys[:, :, :, repeats], values[:, :, :, repeats]  # (B, H, chunks, tokens, D)
    if window == 1:
        return _one_before(queries, keys, values, clean_keys, clean_values)[:, :, :length]
    answers = []
    for number in range(chunks):
        past = slice(max(0, number - window), number)
        before = (clean_keys[:, :, past].flatten(2, 3), clean_values[:, :, past].flatten(2, 3))
        for version in range(repeats + 1):
            own = (keys[:, :, number, version], values[:, :, number, version])
            seen, known = (torch.cat(pair, dim=2) for pair in zip(before, own, strict=True))
            answers.append(F.scaled_dot_product_attention(queries[:, :, number, version], seen, known))
    return torch.cat(answers, dim=2)[:, :, :length]


def _one_before(queries: Tensor, keys: Tensor, values: Tensor, clean_keys: Tensor, clean_values: Tensor) -> Tensor:
    """All chunks at once: (B, H, chunks, versions, tokens, D), the last version clean."""
    repeats = queries.shape[3] - 1

    def with_clean_before(own: Tensor, clean: Tensor) -> Tensor:
        before = clean[:, :, :-1, None].expand(-1, -1, -1, repeats, -1, -1)
        return torch.cat((before, own[:, :, 1:, :repeats]), dim=4)

    first = F.scaled_dot_product_attention(
        queries[:, :, :1, :repeats], keys[:, :, :1, :repeats], values[:, :, :1, :repeats]
    )
    later = F.scaled_dot_product_attention(
        queries[:, :, 1:, :repeats], with_clean_before(keys, clean_keys), with_clean_before(values, clean_values)
    )
    clean = F.scaled_dot_product_attention(queries[:, :, :, repeats], clean_keys, clean_values)
    noisy = torch.cat((first, later), dim=2)
    return torch.cat((noisy, clean[:, :, :, None]), dim=3).flatten(2, 4)


def video_rope_tables(
    frames: Tensor, height: int, width: int, head_dim: int, *, base: float = 10000.0
) -> tuple[Tensor, Tensor]:
    """Rotary positions along time, height and width, for `apply_rope`.

    Parameters
    ----------
    frames : Tensor of int64
        The time of each frame, shape (F,); noisy and clean versions of a frame share it.
    height, width : int
        Patches of a frame.
    head_dim : int
        Channels of a head: two thirds, rounded down to whole pairs, are shared by height and width, time has the rest.
    base : float
        As for `rope_tables`.

    Returns
    -------
    cosine, sine : Tensor
        Shape (F height width, head_dim / 2).

    Raises
    ------
    InputError
        `head_dim` is odd or below 6.

    Examples
    --------
    >>> import torch
    >>> video_rope_tables(torch.arange(3), 2, 2, 16)[0].shape
    torch.Size([12, 8])
    """
    if head_dim % 2 or head_dim < 6:
        raise InputError(f"head_dim is {head_dim}", expected="an even number from 6 on: a pair for each of three axes")
    across = 2 * (head_dim // 6)
    t, y, x = torch.meshgrid(frames, torch.arange(height), torch.arange(width), indexing="ij")
    parts = [
        rope_tables(axis.flatten(), channels, base=base)
        for axis, channels in ((t, head_dim - 2 * across), (y, across), (x, across))
    ]
    cosine, sine = (torch.cat(tables, dim=-1) for tables in zip(*parts, strict=True))
    return cosine, sine


class InterleavedVideoLaCT(nn.Module):
    """Attention within the window and a memory of all clean chunks before it, in one layer, for video diffusion.

    The memory takes the attention's queries, keys and values (with rotary positions, without SiLU); its answers are
    scaled by a gate that is zero at first, so that a pretrained host model starts unchanged.

    Parameters
    ----------
    dim : int
        Channels of a token.
    num_heads : int
        Attention heads.
    num_fast_heads : int
        Heads of the memory.
    expand : float
        Hidden units of the memory over its keys' width.
    rule : {'gd', 'muon'}
        The memory's step; the paper found no gain from Muon here.
    ns : {'keller', 'tuned'}
        Coefficients of Newton-Schulz.
    base_lr : float
        A token's rate before training.
    memory : bool
        False leaves the memory out: the window alone.
    block_causal : bool
        Attention to all clean chunks before, instead of the window.

    Raises
    ------
    InputError
        `dim` isn't divisible by the heads, or the rule has a momentum.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = InterleavedVideoLaCT(16, 2)
    >>> tables = video_rope_tables(torch.tensor([0, 1, 0, 1, 2, 3]), 1, 2, 8)
    >>> layer(torch.randn(1, 12, 16), tables, chunks=2, chunk_size=4).shape
    torch.Size([1, 12, 16])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_fast_heads: int = 1,
        *,
        expand: float = 2.0,
        rule: Rule = "gd",
        ns: Coefficients = "keller",
        base_lr: float = 0.001,
        memory: bool = True,
        block_causal: bool = False,
    ) -> None:
        super().__init__()
        for name, heads in (("num_heads", num_heads), ("num_fast_heads", num_fast_heads)):
            if heads < 1 or dim % heads:
                raise InputError(f"dim is {dim}", expected=f"a multiple of {name}, {heads}")
        if rule not in ("gd", "muon"):
            raise InputError(f"rule is {rule!r}", expected="gd or muon")
        self.num_heads, self.num_fast_heads = num_heads, num_fast_heads
        self.rule, self.ns, self.block_causal = rule, ns, block_causal
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.out = nn.Linear(dim, dim, bias=False)
        self.rates: TokenRates | None = None
        if memory:
            width = dim // num_fast_heads
            self.rates = TokenRates(dim, num_fast_heads, base_lr=base_lr)
            self.fast = InitialFastWeights(num_fast_heads, key_dim=width, hidden=int(expand * width), value_dim=width)
            self.fast_norm = nn.RMSNorm(width, eps=NORM_EPS)
            self.gate = nn.Linear(dim, 1)
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor] | None, *, chunks: int, chunk_size: int, repeats: int = 1
    ) -> Tensor:
        """Mix a training sequence.

        Parameters
        ----------
        x : Tensor
            In the order of `interleaved`, shape (B, L, dim).
        rope : pair of Tensor, or None
            The host model's rotary tables, shape (L, dim / num_heads / 2) each.
        chunks, chunk_size, repeats : int
            As the sequence was made.

        Returns
        -------
        Tensor
            Shape (B, L, dim).

        Raises
        ------
        InputError
            The length isn't that of such a sequence.
        """
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)
        queries, keys = self._rotated(q, rope), self._rotated(k, rope)
        attend = block_causal_attention if self.block_causal else interleaved_window_attention
        values = v.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        mixed = attend(queries, keys, values, chunks, chunk_size=chunk_size, repeats=repeats).transpose(1, 2).flatten(2)
        if self.rates is not None:
            plan = Plan.interleaved_video(chunks, chunk_size=chunk_size, repeats=repeats)
            mixed = mixed + F.silu(self.gate(x)) * self._remembered(x, q, k, v, rope, plan)
        found: Tensor = self.out(mixed)
        return found

    def _remembered(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor] | None, plan: Plan
    ) -> Tensor:
        assert self.rates is not None
        q, k = (self._turned(l2_normalised(self._folded(one)), rope) for one in (q, k))
        answers = lact(
            q,
            k,
            self._folded(v),
            self.rates(x),
            self.fast(len(x)),
            plan=plan,
            rule=self.rule,
            ns=self.ns,
        )
        unfolded = self.fast_norm(answers).unflatten(0, (-1, self.num_fast_heads))
        merged: Tensor = unfolded.transpose(1, 2).flatten(2)
        return merged

    def _folded(self, x: Tensor) -> Tensor:
        """Fast heads folded into the batch: (B heads, L, D)."""
        folded: Tensor = x.unflatten(-1, (self.num_fast_heads, -1)).transpose(1, 2).flatten(0, 1)
        return folded

    def _turned(self, x: Tensor, rope: tuple[Tensor, Tensor] | None) -> Tensor:
        """Rotate fast heads with the attention's heads and tables."""
        if rope is None:
            return x
        whole = x.unflatten(0, (-1, self.num_fast_heads)).transpose(1, 2).flatten(2)
        return self._folded(self._rotated(whole, rope).transpose(1, 2).flatten(2))

    def _rotated(self, x: Tensor, rope: tuple[Tensor, Tensor] | None) -> Tensor:
        """Attention heads, rotated: (B, heads, L, D)."""
        heads = x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return heads if rope is None else apply_rope(heads, rope)


def moving_shapes(
    videos: int, frames: int, *, size: int, hidden: range = range(0), generator: torch.Generator
) -> Tensor:
    """Videos of a coloured square that moves around a torus and is hidden for a while.

    It moves by a pixel a frame, along a side or a diagonal, so that it is back where it was after `size` frames.

    Parameters
    ----------
    videos, frames : int
        How many, and how long.
    size : int
        Height and width in pixels; the square's side is a third to a half of it.
    hidden : range
        Frames that show the grey background alone, while the square goes on moving.
    generator : Generator
        Where chance comes from.

    Returns
    -------
    Tensor
        Colours in [-1, 1] on grey, 0, shape (videos, frames, 3, size, size).

    Raises
    ------
    InputError
        The size is below 3.

    Examples
    --------
    >>> import torch
    >>> video = moving_shapes(1, 6, size=8, hidden=range(2, 4), generator=torch.Generator().manual_seed(0))
    >>> (video != 0).flatten(2).any(2)
    tensor([[ True,  True, False, False,  True,  True]])
    """
    if size < 3:
        raise InputError(f"size is {size}", expected="at least 3 pixels")
    numbers = torch.rand(videos, 7, generator=generator)
    side = (size * (1 / 3 + numbers[:, 0] / 6)).round().clamp_min(1)
    colour = torch.where(numbers[:, 1:4] < 0.5, numbers[:, 1:4] - 1, numbers[:, 1:4])  # away from the grey
    corner = (numbers[:, 4:6] * size).floor()
    angle = (numbers[:, 6] * 8).floor() * (math.tau / 8)
    velocity = torch.stack((angle.sin(), angle.cos()), dim=-1).round()
    time = torch.arange(frames)
    place = corner[:, None] + velocity[:, None] * time[:, None]  # (videos, frames, 2)
    pixel = torch.arange(size)
    offset = (pixel - place[..., None]) % size  # (videos, frames, 2, size)
    inside = offset < side[:, None, None, None]
    shown = inside[:, :, 0, :, None] & inside[:, :, 1, None, :]
    shown = shown & ~torch.isin(time, torch.tensor(list(hidden), dtype=time.dtype))[:, None, None]
    return torch.where(shown[:, :, None], colour[:, None, :, None, None], 0.0)
