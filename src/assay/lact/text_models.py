"""Language models with what turns text into their tokens: made anew, saved as a folder, loaded from one or the hub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from assay.core.errors import InputError
from assay.core.files import existing_file
from assay.core.lm.loading import quiet_transformers
from assay.core.texts import ByteTokens
from assay.lact.language import LaCTForCausalLM
from assay.lact.published import load_published_language

__all__ = ["TextModel", "TextTokens", "load_text_model", "load_tokens", "save_text_model", "written_text"]

BYTES = "bytes"
PUBLISHED = "lact_swiglu"
FILES = ["*.json", "*.safetensors", "*.bin", "*.model", "*.txt"]
"""What is fetched from the hub."""
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class TextTokens(Protocol):
    """What turns text into numbers and back."""

    size: int

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        ...


class ByteText(ByteTokens):
    """UTF-8 bytes as tokens, and back."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text; what is no UTF-8 becomes a replacement character."""
        return bytes(tokens).decode("utf-8", errors="replace")


class TokenizerText:
    """The tokens of a tokenizer of transformers, without special ones.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.size = len(tokenizer)

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


@dataclass(frozen=True)
class TextModel:
    """A language model with its tokens.

    Attributes
    ----------
    model : LaCTForCausalLM
        In evaluation mode.
    tokens : TextTokens
    name : str
        What it was loaded from.
    """

    model: LaCTForCausalLM
    tokens: TextTokens
    name: str


def load_tokens(name: str = BYTES) -> TextTokens:
    """What turns text into tokens.

    Parameters
    ----------
    name : str
        ``bytes``; a ``tokenizer.json``; a folder with one; or a model's name on the hub.

    Returns
    -------
    TextTokens

    Raises
    ------
    InputError
        Nothing of that name can be loaded.

    Examples
    --------
    >>> list(load_tokens().encode("hé"))
    [104, 195, 169]
    """
    if name == BYTES:
        return ByteText()
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        with quiet_transformers():
            if name.lower().endswith(".json"):
                file = existing_file(name)
                return TokenizerText(PreTrainedTokenizerFast(tokenizer_file=str(file)))
            return TokenizerText(AutoTokenizer.from_pretrained(name, local_files_only=Path(name).exists()))
    except InputError:
        raise
    except Exception as error:  # tokenizers and the hub raise errors of many kinds
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"no tokenizer can be loaded: {reason}",
            file=name,
            expected="bytes, a tokenizer.json, a folder, or owner/name",
        ) from error


def save_text_model(language: TextModel, folder: Path) -> None:
    """Write a model as a folder that transformers reads; with its tokenizer unless tokens are bytes.

    Parameters
    ----------
    language : TextModel
    folder : Path
        Made if need be.
    """
    with quiet_transformers():
        language.model.save_pretrained(folder)
        if isinstance(language.tokens, TokenizerText):
            language.tokens.tokenizer.save_pretrained(folder)


def load_text_model(name: str, *, device: str | torch.device = "cpu") -> TextModel:
    """Load a language model.

    Parameters
    ----------
    name : str
        A folder that `save_text_model` or the paper's code wrote, or a name on the hub, ``owner/name``.
    device : str or torch.device
        Where to.

    Returns
    -------
    TextModel

    Raises
    ------
    InputError
        There is no such model, it is of another architecture, or it has no tokenizer where one is needed.
    """
    folder = Path(name)
    if not folder.exists() and name.count("/") == 1 and not name.startswith((".", "~", "/")):
        folder = _fetched(name)
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "no such folder"
        raise InputError(what, file=name, expected="a folder of assay lact train-lm, or owner/name on the hub")
    kind = _model_type(folder, name)
    if kind == PUBLISHED:
        model = load_published_language(folder)
    elif kind == "lact":
        model = _own_model(folder, name)
    else:
        raise InputError(f"holds a model of type '{kind}'", file=name, expected="a model of assay lact train-lm")
    has_tokenizer = any((folder / one).is_file() for one in ("tokenizer.json", "tokenizer_config.json"))
    tokens = load_tokens(str(folder)) if has_tokenizer else ByteText()
    if tokens.size > model.config.vocab_size or (not has_tokenizer and model.config.vocab_size != tokens.size):
        raise InputError(
            f"has {model.config.vocab_size} tokens, and {tokens.size} are needed",
            file=name,
            expected="the tokenizer of the model in its folder",
        )
    torch.nn.Module.to(model, torch.device(device))
    model.eval()  # type: ignore[no-untyped-call]
    return TextModel(model, tokens, name)


def _fetched(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=FILES))
    except Exception as error:  # the hub's client raises errors of many kinds
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"neither a folder nor a model of the hub: {reason}", file=name, expected="a folder, or owner/name"
        ) from error


def _model_type(folder: Path, name: str) -> str:
    file = folder / "config.json"
    if not file.is_file():
        raise InputError("holds no config.json", file=name, expected="a folder of assay lact train-lm")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not JSON: {error}", file=file, expected="a model's configuration") from error
    return str(config.get("model_type")) if isinstance(config, dict) else type(config).__name__


def _own_model(folder: Path, name: str) -> LaCTForCausalLM:
    try:
        with quiet_transformers():
            loaded: Any = LaCTForCausalLM.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    except InputError:
        raise
    except Exception as error:  # transformers raises errors of many kinds
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"can't be loaded: {reason}", file=name, expected="a folder of assay lact train-lm") from error
    model, said = loaded
    absent = sorted(said["missing_keys"])
    if absent:
        raise InputError(f"lacks {absent[0]}", file=name, expected="all weights of the model")
    found: LaCTForCausalLM = model
    return found


def written_text(chosen: Iterable[int], tokens: TextTokens) -> Iterator[str]:
    """Text piece by piece as tokens come; a character is held back until it is whole.

    Parameters
    ----------
    chosen : iterable of int
    tokens : TextTokens

    Yields
    ------
    str

    Examples
    --------
    >>> list(written_text("hé!".encode(), load_tokens()))
    ['h', 'é', '!']
    """
    line: list[int] = []
    written = ""
    for token in chosen:
        line.append(token)
        text = tokens.decode(line)
        if text.endswith(UNFINISHED):
            continue
        if len(text) > len(written):
            yield text[len(written) :]
        written = text
        if text.endswith("\n"):
            line, written = [], ""
    rest = tokens.decode(line)[len(written) :]
    if rest:
        yield rest
