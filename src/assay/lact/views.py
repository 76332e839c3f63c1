"""View synthesis: posed images become a memory of constant size, and the memory is asked for images from new cameras.

A model without rendering (Zhang et al., section 4.1 and appendix B.1): patches of rays and colours are tokens; a block
is attention within each image, the memory over all images, and an MLP. The input views change the memory and every view
asks it, so that ``reconstruct`` and ``render`` can be separate. Beside it, for comparison: attention over all input
tokens, a Perceiver's registers, and no memory at all.

Axes: B scenes, V views, n tokens of a view, D channels.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.lact.cameras import RAY_CHANNELS, Cameras, camera_rays
from assay.lact.fast_weights import FastWeights, Rule, start
from assay.lact.layers import FastNet, LaCT
from assay.lact.orthogonal import Coefficients
from assay.lact.plans import Plan, Segment
from assay.lact.state import LaCTState, config_hash

__all__ = [
    "LaCTViewSynthesis",
    "TrainedViews",
    "ViewConfig",
    "ViewSynthesis",
    "load_view_model",
    "make_view_model",
    "save_view_model",
]

ViewMemory = Literal["lact", "full", "perceiver", "none"]
COLOUR_CHANNELS = 3
PUBLISHED_GAIN = math.sqrt(2)
"""Of the initial fast weights, in the view code."""
MODEL_FILE, CONFIG_FILE = "model.safetensors", "config.json"
KIND = "assay.lact views 1"
"""What a model's folder says it is; another number means other contents."""
Kept = Mapping[str, Tensor]


@dataclass(frozen=True)
class ViewConfig:
    """The sizes of a view model; the defaults are the published object models'.

    Attributes
    ----------
    dim, layers, patch : int
        Width, blocks, and pixels of a patch's side.
    head_dim : int
        Width of an attention head.
    fast_heads : int
        Heads of the memory.
    expand : float
        Hidden units of the memory over its keys' width.
    rule, ns, fast_net, base_lr
        As of the layer `LaCT`.
    memory : {'lact', 'full', 'perceiver', 'none'}
        What carries over from the input views to the others: fast weights, attention over all input tokens, registers
        that the first half of the blocks writes and the second reads, or nothing.
    registers : int
        Of the Perceiver.
    init_std : float
        Of the initial weights.
    """

    dim: int = 768
    layers: int = 24
    patch: int = 8
    head_dim: int = 64
    fast_heads: int = 1
    expand: float = 2.0
    rule: Rule = "muon"
    ns: Coefficients = "keller"
    fast_net: FastNet = "swiglu"
    base_lr: float = 0.01
    memory: ViewMemory = "lact"
    registers: int = 4096
    init_std: float = 0.02

    def __post_init__(self) -> None:
        for name in ("dim", "layers", "patch", "head_dim", "fast_heads", "registers"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", expected="at least 1")
        for name in ("head_dim", "fast_heads"):
            if self.dim % getattr(self, name):
                raise InputError(f"dim is {self.dim}", expected=f"a multiple of {name}, {getattr(self, name)}")
        if self.memory not in get_args(ViewMemory):
            raise InputError(f"memory is {self.memory!r}", expected=f"one of: {', '.join(get_args(ViewMemory))}")
        if self.memory == "perceiver" and self.layers < 2:
            raise InputError("layers is 1", expected="at least 2: a Perceiver writes in one and reads in another")

    @property
    def digest(self) -> str:
        """A hash of all sizes, by which a state knows its model."""
        return config_hash(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ViewConfig:
        """The configuration that `dataclasses.asdict` of one gave.

        Raises
        ------
        InputError
            A name is unknown.
        """
        known = {field.name for field in fields(cls)}
        for name in values:
            if name not in known:
                raise InputError(f"the view model has no setting {name!r}", expected=f"some of: {', '.join(known)}")
        return cls(**values)


class ViewSynthesis(nn.Module):
    """A view model with any of the memories; `LaCTViewSynthesis` is the one with fast weights.

    Parameters
    ----------
    config : ViewConfig
        Sizes and memory.

    Examples
    --------
    >>> import torch
    >>> from assay.lact.scenes import sphere_views
    >>> model = ViewSynthesis(ViewConfig(dim=16, layers=1, patch=4, head_dim=16, memory="full"))
    >>> images, cameras = sphere_views(2, 3, size=8, generator=torch.Generator().manual_seed(0))
    >>> model(images[:, :2], cameras.views([0, 1]), cameras.views([2])).shape
    torch.Size([2, 1, 3, 8, 8])
    """

    def __init__(self, config: ViewConfig) -> None:
        super().__init__()
        self.config = config
        patch_channels = (RAY_CHANNELS + COLOUR_CHANNELS) * config.patch**2
        self.patch_linear = nn.Linear(patch_channels, config.dim, bias=False)
        self.patch_norm = nn.LayerNorm(config.dim, bias=False)
        perceiver = config.memory == "perceiver"
        self.writers = config.layers // 2 if perceiver else 0
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.registers = nn.Parameter(torch.randn(config.registers, config.dim)) if perceiver else None
        self.decoder_norm = nn.LayerNorm(config.dim, bias=False)
        self.decoder = nn.Linear(config.dim, COLOUR_CHANNELS * config.patch**2, bias=False)
        self._initialise()

    def forward(self, images: Tensor, cameras: Cameras, targets: Cameras) -> Tensor:
        """Images of new views.

        Parameters
        ----------
        images : Tensor
            Colours of the input views in [0, 1], shape (B, V, 3, height, width).
        cameras : Cameras
            Of the input views, shape (B, V).
        targets : Cameras
            Of the new views, shape (B, T), and of the same image size.

        Returns
        -------
        Tensor
            Colours in [0, 1], shape (B, T, 3, height, width).

        Raises
        ------
        InputError
            Images and cameras don't fit each other or the patches.
        """
        if (targets.height, targets.width) != (cameras.height, cameras.width):
            raise InputError(
                f"targets are {targets.height} x {targets.width}",
                expected=f"the input views' {cameras.height} x {cameras.width}; reconstruct and render take any",
            )
        if self.writers:
            return self.render(self.reconstruct(images, cameras), targets)
        known = self._tokens(images, cameras)
        asked = self._tokens(None, targets)
        tokens = torch.cat((known, asked), dim=1)
        for block in self.blocks:
            tokens, _ = block(tokens, read=known.shape[1], kept=None)
        return self._decoded(tokens[:, known.shape[1] :], targets)

    def reconstruct(self, images: Tensor, cameras: Cameras) -> LaCTState:
        """What the model keeps of input views.

        Parameters
        ----------
        images : Tensor
            Colours in [0, 1], shape (B, V, 3, height, width).
        cameras : Cameras
            Shape (B, V).

        Returns
        -------
        LaCTState
            With fast weights or registers its size doesn't depend on the number of views.

        Raises
        ------
        InputError
            Images and cameras don't fit each other or the patches.
        """
        tokens = self._tokens(images, cameras)
        found: dict[str, Tensor] = {}
        if self.registers is not None:
            registers = self.registers.expand(len(tokens), -1, -1)
            for block in self._blocks()[: self.writers]:
                tokens, registers = block.write(tokens, registers)
            found["registers"] = registers
        for number, block in enumerate(self._blocks()[self.writers :]):
            if self.registers is not None:
                _, kept = block(None, read=0, kept={"registers": registers})
            else:
                tokens, kept = block(tokens, read=tokens.shape[1], kept=None)
            found |= {f"{number}.{name}": value for name, value in kept.items()}
        found.pop("registers", None)
        return LaCTState(found, config=self.config.digest)

    def render(self, state: LaCTState, cameras: Cameras) -> Tensor:
        """Images that a state shows from cameras; each is rendered independently of the others.

        Parameters
        ----------
        state : LaCTState
            From `reconstruct`.
        cameras : Cameras
            Shape (B, T).

        Returns
        -------
        Tensor
            Colours in [0, 1], shape (B, T, 3, height, width).

        Raises
        ------
        InputError
            The state is another model's, or of another number of scenes.
        """
        state.require(self.config.digest)
        tokens = self._tokens(None, cameras)
        if state and state.batch_size != len(tokens):
            raise InputError(f"the state holds {state.batch_size} scenes", expected=f"the cameras' {len(tokens)}")
        for number, block in enumerate(self._blocks()[self.writers :]):
            tokens, _ = block(tokens, read=0, kept=state.part(str(number)))
        return self._decoded(tokens, cameras)

    def require_size(self, height: int, width: int) -> None:
        """Refuse images that can't be cut into patches.

        Raises
        ------
        InputError
            A side is no multiple of the patch's; the nearest sizes are named.
        """
        patch = self.config.patch
        if height % patch or width % patch or not height or not width:
            nearest = [max(1, round(side / patch)) * patch for side in (height, width)]
            raise InputError(
                f"images are {height} x {width} (height x width)",
                expected=f"multiples of the patch, {patch}; the nearest are {nearest[0]} x {nearest[1]}",
            )

    def _tokens(self, images: Tensor | None, cameras: Cameras) -> Tensor:
        """Patches of rays and colours as tokens, (B, V, n, D); views to be rendered have the colour 0."""
        patch = self.config.patch
        self.require_size(cameras.height, cameras.width)
        if cameras.c2w.ndim != 4:
            raise InputError(f"c2w has the shape {tuple(cameras.c2w.shape)}", expected="(scenes, views, 4, 4)")
        rays = camera_rays(cameras).to(self.patch_linear.weight.dtype)
        if images is None:
            colours = rays.new_zeros((*rays.shape[:-1], COLOUR_CHANNELS))
        else:
            expected = (*cameras.c2w.shape[:2], COLOUR_CHANNELS, cameras.height, cameras.width)
            if images.shape != expected or 0 in expected[:2]:
                raise InputError(
                    f"images have the shape {tuple(images.shape)}",
                    expected=f"at least one view, and {expected} as the cameras have",
                )
            colours = 2 * images.movedim(-3, -1).to(rays.dtype) - 1
        pixels = torch.cat((rays, colours), dim=-1)
        rows = pixels.unflatten(2, (-1, patch)).unflatten(4, (-1, patch))  # (B, V, H/p, p, W/p, p, channels)
        patches = rows.transpose(3, 4).flatten(2, 3).flatten(3)
        tokens: Tensor = self.patch_norm(self.patch_linear(patches))
        return tokens

    def _decoded(self, tokens: Tensor, cameras: Cameras) -> Tensor:
        patch = self.config.patch
        colours = torch.sigmoid(self.decoder(self.decoder_norm(tokens)))
        grid = colours.unflatten(2, (cameras.height // patch, cameras.width // patch))
        cells = grid.unflatten(-1, (patch, patch, COLOUR_CHANNELS))  # (B, V, H/p, W/p, p, p, 3)
        images: Tensor = cells.transpose(3, 4).flatten(4, 5).flatten(2, 3).movedim(-1, -3)
        return images

    def _blocks(self) -> list[_Block]:
        return cast("list[_Block]", list(self.blocks))

    def _initialise(self) -> None:
        std = self.config.init_std
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                last = name.rpartition(".")[2] in ("out", "down")
                nn.init.normal_(module.weight, std=std / math.sqrt(3 * self.config.layers) if last else std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class LaCTViewSynthesis(ViewSynthesis):
    """The view model whose memory is fast weights.

    Parameters
    ----------
    config : ViewConfig
        Its `memory` is ``"lact"``.

    Raises
    ------
    InputError
        The configuration asks for another memory.

    Examples
    --------
    >>> import torch
    >>> from assay.lact.scenes import sphere_views
    >>> model = LaCTViewSynthesis(ViewConfig(dim=16, layers=1, patch=4, head_dim=16))
    >>> images, cameras = sphere_views(1, 3, size=8, generator=torch.Generator().manual_seed(0))
    >>> state = model.reconstruct(images[:, :2], cameras.views([0, 1]))
    >>> model.render(state, cameras.views([2])).shape
    torch.Size([1, 1, 3, 8, 8])
    """

    def __init__(self, config: ViewConfig | None = None) -> None:
        config = config or ViewConfig()
        if config.memory != "lact":
            raise InputError(f"memory is {config.memory!r}", expected="lact; ViewSynthesis takes the others")
        super().__init__(config)

    @classmethod
    def from_published(cls, tensors: Mapping[str, Tensor]) -> LaCTViewSynthesis:
        """A model with the weights of a published checkpoint, its sizes read off the tensors.

        Parameters
        ----------
        tensors : mapping of str to Tensor
            The file's content, or what stands in it under ``model``.

        Raises
        ------
        InputError
            Tensors are missing, of unknown names, or of shapes that don't fit each other.
        """
        tensors = _without_prefixes(tensors)
        config = _published_config(tensors)
        model = cls(config)
        names = published_names(config)
        for name in names.values():
            if name not in tensors:
                raise InputError(f"the checkpoint lacks {name}", expected="the tensors of a published view model")
        for name in tensors:
            if name not in names.values():
                raise InputError(f"the checkpoint holds {name}", expected="the tensors of a published view model")
        own = model.state_dict()
        found = {ours: _turned(ours, tensors[theirs]) for ours, theirs in names.items()}
        for ours, value in found.items():
            if value.shape != own[ours].shape:
                raise InputError(
                    f"{names[ours]} has the shape {tuple(tensors[names[ours]].shape)}",
                    expected=f"{tuple(_turned(ours, own[ours]).shape)} as the other tensors have it",
                )
        model.load_state_dict(found)
        return model

    def to_published(self) -> dict[str, Tensor]:
        """The weights under the names and in the layout of the published checkpoints."""
        own = self.state_dict()
        return {theirs: _turned(ours, own[ours]) for ours, theirs in published_names(self.config).items()}


def make_view_model(config: ViewConfig) -> ViewSynthesis:
    """The model that a configuration describes.

    Parameters
    ----------
    config : ViewConfig
        Sizes and memory.

    Returns
    -------
    ViewSynthesis
        A `LaCTViewSynthesis` where the memory is fast weights.

    Examples
    --------
    >>> type(make_view_model(ViewConfig(dim=16, layers=1, head_dim=16))).__name__
    'LaCTViewSynthesis'
    """
    return LaCTViewSynthesis(config) if config.memory == "lact" else ViewSynthesis(config)


class TrainedViews(NamedTuple):
    """A model and how it was trained.

    Attributes
    ----------
    model : ViewSynthesis
        In evaluation mode.
    size : tuple of int or None
        Height and width of the images that it was trained on; a published file doesn't say.
    normalise : bool
        Whether it was trained on poses in the frame of the mean camera.
    """

    model: ViewSynthesis
    size: tuple[int, int] | None
    normalise: bool


def save_view_model(
    model: ViewSynthesis, folder: str | os.PathLike[str], *, size: tuple[int, int], normalise: bool = False
) -> None:
    """Write a model's weights and sizes into a folder.

    Parameters
    ----------
    model : ViewSynthesis
        The model.
    folder : path
        Made when it doesn't exist; an earlier model in it is replaced.
    size : tuple of int
        Height and width of the images that it was trained on.
    normalise : bool
        Whether it was trained on poses in the frame of the mean camera.

    Examples
    --------
    >>> import tempfile
    >>> model = make_view_model(ViewConfig(dim=16, layers=1, head_dim=16))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_view_model(model, folder, size=(16, 16))
    ...     load_view_model(folder).size
    (16, 16)
    """
    from safetensors.torch import save_file

    from assay.core.files import atomic_path, write_text

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with atomic_path(place / MODEL_FILE, force=True) as temporary:
        save_file(tensors, temporary, metadata={"format": KIND})
    content = {"kind": KIND, "image_size": list(size), "normalise": normalise, "model": asdict(model.config)}
    write_text(place / CONFIG_FILE, json.dumps(content, indent=1) + "\n", force=True)


def load_view_model(source: str | os.PathLike[str]) -> TrainedViews:
    """A model from a folder that `save_view_model` wrote, or from a published ``.pt`` file.

    Parameters
    ----------
    source : path
        The folder or the file.

    Returns
    -------
    TrainedViews

    Raises
    ------
    InputError
        Something is missing, damaged or of another kind.

    Examples
    --------
    >>> import tempfile, torch
    >>> model = make_view_model(ViewConfig(dim=16, layers=1, head_dim=16))
    >>> with tempfile.NamedTemporaryFile(suffix=".pt") as file:
    ...     torch.save({"model": model.to_published()}, file.name)
    ...     same = load_view_model(file.name).model
    >>> torch.equal(same.decoder.weight, model.decoder.weight)
    True
    """
    place = Path(source)
    if place.suffix.lower() in (".pt", ".pth"):
        return TrainedViews(_load_published(place), None, normalise=False)
    if place.exists() and not place.is_dir():
        raise InputError("is a file", file=place, expected="a model's folder, or a published .pt file")
    if not (place / CONFIG_FILE).is_file():
        raise InputError(
            f"holds no {CONFIG_FILE}" if place.exists() else "no such folder", file=place, expected="a model's folder"
        )
    config, size, normalise = _read_config(place / CONFIG_FILE)
    model = make_view_model(config)
    tensors = _read_tensors(place / MODEL_FILE)
    own = model.state_dict()
    for name in {*own, *tensors}:
        if name not in own or name not in tensors or own[name].shape != tensors[name].shape:
            raise InputError(f"doesn't fit {CONFIG_FILE}: {name}", file=place / MODEL_FILE, expected="the same model's")
    model.load_state_dict(tensors)
    return TrainedViews(model.eval(), size, normalise)


class _Block(nn.Module):
    """Attention within each image, the memory over all, an MLP: each before its own LayerNorm and added."""

    def __init__(self, config: ViewConfig) -> None:
        super().__init__()
        dim = config.dim
        self.attention_norm = nn.LayerNorm(dim, bias=False)
        self.attention = _ImageAttention(dim, config.head_dim)
        self.memory: _FastMemory | _AttentionMemory | None = None
        if config.memory != "none":
            self.memory_norm = nn.LayerNorm(dim, bias=False)
            self.memory = _FastMemory(config) if config.memory == "lact" else _AttentionMemory(dim, config.head_dim)
        self.mlp_norm = nn.LayerNorm(dim, bias=False)
        self.mlp = _MLP(dim)

    def forward(self, tokens: Tensor | None, *, read: int, kept: Kept | None) -> tuple[Tensor | None, Kept]:
        """The tokens of views, the first `read` of which are remembered; and what is kept of those."""
        if tokens is None:
            assert isinstance(self.memory, _AttentionMemory) and kept is not None
            return None, self.memory.keys_values(kept["registers"])
        tokens = tokens + self.attention(self.attention_norm(tokens))
        found: Kept = {}
        if self.memory is not None:
            flat = self.memory_norm(tokens).flatten(1, 2)
            answers, found = self.memory(flat, read=read * tokens.shape[2], kept=kept)
            tokens = tokens + answers.view_as(tokens)
        return tokens + self.mlp(self.mlp_norm(tokens)), found

    def write(self, tokens: Tensor, registers: Tensor) -> tuple[Tensor, Tensor]:
        """Let registers attend to the input views and to themselves."""
        assert isinstance(self.memory, _AttentionMemory)
        tokens = tokens + self.attention(self.attention_norm(tokens))
        own = self.memory_norm(registers)
        seen = torch.cat((own, self.memory_norm(tokens).flatten(1, 2)), dim=1)
        registers = registers + self.memory.attend(own, self.memory.keys_values(seen))
        return tokens + self.mlp(self.mlp_norm(tokens)), registers + self.mlp(self.mlp_norm(registers))


class _MLP(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.down(F.gelu(self.up(tokens)))
        return found


class _ImageAttention(nn.Module):
    """Attention among the tokens of one image."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.q_norm = nn.RMSNorm(head_dim)
        self.k_norm = nn.RMSNorm(head_dim)
        self.out = nn.Linear(dim, dim, bias=False)
        self.head_dim = head_dim

    def forward(self, tokens: Tensor) -> Tensor:
        heads = self.qkv(tokens).flatten(0, 1).unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
        q, k, v = self.q_norm(heads[0]), self.k_norm(heads[1]), heads[2]
        answers = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        found: Tensor = self.out(answers)
        return found.view_as(tokens)


class _FastMemory(nn.Module):
    """The layer `LaCT`: input tokens change the weights in one step, all tokens ask."""

    def __init__(self, config: ViewConfig) -> None:
        super().__init__()
        self.layer = LaCT(
            config.dim,
            config.fast_heads,
            expand=config.expand,
            mode="full",
            rule=config.rule,
            ns=config.ns,
            base_lr=config.base_lr,
            fast_net=config.fast_net,
            init_gain=PUBLISHED_GAIN,
            detach_norm=True,
        )

    def forward(self, tokens: Tensor, *, read: int, kept: Kept | None) -> tuple[Tensor, Kept]:
        length = tokens.shape[1]
        if kept is not None:
            asking = Plan([Segment(0, length, update=False)])
            answers: Tensor = self.layer(tokens, plan=asking, state=self._state(kept))
            return answers, kept
        answers, state = self.layer(tokens, plan=Plan.strided([(0, read)], length=length), return_state=True)
        begin = "weights."
        return answers, {name.removeprefix(begin): value for name, value in state.items() if name.startswith(begin)}

    def _state(self, kept: Kept) -> LaCTState:
        """The whole state of the layer around the weights, which are all that rendering needs."""
        w0, w1, w2 = (kept[name].flatten(0, 1) if name in kept else None for name in ("w0", "w1", "w2"))
        assert w1 is not None
        state = start(FastWeights(w0, w1, w2), rule=self.layer.rule)
        return LaCTState.of_fast(state, heads=self.layer.num_heads, config=self.layer.config)


class _AttentionMemory(nn.Module):
    """Attention of all tokens to what is kept: the input tokens, or a Perceiver's registers."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * dim, bias=False)
        self.q_norm = nn.RMSNorm(head_dim)
        self.k_norm = nn.RMSNorm(head_dim)
        self.out = nn.Linear(dim, dim, bias=False)
        self.head_dim = head_dim

    def forward(self, tokens: Tensor, *, read: int, kept: Kept | None) -> tuple[Tensor, Kept]:
        kept = self.keys_values(tokens[:, :read]) if kept is None else kept
        return self.attend(tokens, kept), kept

    def keys_values(self, tokens: Tensor) -> Kept:
        keys, values = self.kv(tokens).unflatten(-1, (2, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
        return {"k": self.k_norm(keys), "v": values}

    def attend(self, tokens: Tensor, kept: Kept) -> Tensor:
        q = self.q_norm(self.q(tokens).unflatten(-1, (-1, self.head_dim))).transpose(1, 2)
        answers = F.scaled_dot_product_attention(q, kept["k"], kept["v"])
        found: Tensor = self.out(answers.transpose(1, 2).flatten(2))
        return found


def published_names(config: ViewConfig) -> dict[str, str]:
    """Our name of each tensor to that of the published checkpoints."""
    names = {
        "patch_linear.weight": "input_linear.weight",
        "patch_norm.weight": "input_layernorm.weight",
        "decoder_norm.weight": "image_token_decoder.0.weight",
        "decoder.weight": "image_token_decoder.1.weight",
    }
    attention = {"qkv": "to_qkv", "out": "c_proj", "q_norm": "q_norm", "k_norm": "k_norm"}
    fast = {"qkv": "to_qkv", "out": "c_proj", "rates.projection": "lr_fc", "norm": "o_norm"}
    for number in range(config.layers):
        ours, theirs = f"blocks.{number}", f"blocks.{number}.module_list"
        for place, part in enumerate(("attention", "memory", "mlp")):
            names[f"{ours}.{part}_norm.weight"] = f"{theirs}.{place}.ln.weight"
        for own, published in attention.items():
            names[f"{ours}.attention.{own}.weight"] = f"{theirs}.0.f.{published}.weight"
        for own, published in fast.items():
            names[f"{ours}.memory.layer.{own}.weight"] = f"{theirs}.1.f.{published}.weight"
        names[f"{ours}.memory.layer.rates.projection.bias"] = f"{theirs}.1.f.lr_fc.bias"
        for matrix in ("w0", "w1", "w2"):
            names[f"{ours}.memory.layer.fast.{matrix}"] = f"{theirs}.1.f.{matrix}"
        names[f"{ours}.mlp.up.weight"] = f"{theirs}.2.f.c_fc.weight"
        names[f"{ours}.mlp.down.weight"] = f"{theirs}.2.f.c_proj.weight"
    return names


def _turned(ours: str, tensor: Tensor) -> Tensor:
    """Fast weights are published as (heads, in, out), and are (heads, out, in) here."""
    return tensor.mT.contiguous() if ".fast." in ours else tensor


def _without_prefixes(tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    inner = tensors.get("model", tensors)
    if not isinstance(inner, Mapping):
        raise InputError("'model' holds no tensors", expected="the tensors of a published view model")
    found = {}
    for name, value in inner.items():
        for prefix in ("_checkpoint_wrapped_module.", "_orig_mod.", "module."):
            name = str(name).replace(prefix, "")
        if isinstance(value, Tensor):
            found[name] = value.float()
    return found


def _published_config(tensors: Mapping[str, Tensor]) -> ViewConfig:
    first = "blocks.0.module_list"
    wanted = {"input_linear.weight": 2, f"{first}.0.f.q_norm.weight": 1, f"{first}.1.f.w0": 3}
    for name, axes in wanted.items():
        if name not in tensors or tensors[name].ndim != axes:
            raise InputError(f"the checkpoint lacks {name}", expected="the tensors of a published view model")
    dim, channels = tensors["input_linear.weight"].shape
    heads, key_dim, hidden = tensors[f"{first}.1.f.w0"].shape
    layers = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
    return ViewConfig(
        dim=dim,
        layers=layers,
        patch=math.isqrt(channels // (RAY_CHANNELS + COLOUR_CHANNELS)),
        head_dim=len(tensors[f"{first}.0.f.q_norm.weight"]),
        fast_heads=heads,
        expand=hidden / key_dim,
    )


def _load_published(file: Path) -> LaCTViewSynthesis:
    import pickle

    from assay.core.files import existing_file
    from assay.core.jobs import naming

    try:
        content = torch.load(existing_file(file), map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"can't be read: {reason}", file=file, expected="a published checkpoint") from error
    if not isinstance(content, Mapping):
        raise InputError("holds no tensors", file=file, expected="a published checkpoint")
    with naming(str(file)):
        model = LaCTViewSynthesis.from_published(content)
    return model.eval()


def _read_config(file: Path) -> tuple[ViewConfig, tuple[int, int], bool]:
    from assay.core.files import read_lines

    try:
        content = json.loads("\n".join(read_lines(file)))
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error.msg}", file=file, row=error.lineno, expected="a view model's") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError("is another kind of model", file=file, expected=f"'{KIND}' as its kind")
    try:
        height, width = content["image_size"]
        return ViewConfig.from_dict(content["model"]), (int(height), int(width)), bool(content["normalise"])
    except InputError as error:
        raise InputError(error.message, file=file, expected=error.expected) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("lacks sizes", file=file, expected="image_size, normalise and model") from error


def _read_tensors(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from assay.core.files import existing_file

    try:
        tensors: dict[str, Tensor] = load_file(existing_file(file))
    except (SafetensorError, OSError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a model's weights") from error
    return tensors
