"""Text as people have it (plain, JSON lines, Parquet, folders, hub data sets) as one long row of tokens, and batches
of it.
"""

from __future__ import annotations

import json
import os
import sysconfig
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import STREAM, existing_file, read_lines

__all__ = ["ByteTokens", "Corpus", "StreamCorpus", "Tokens", "hub_documents", "read_texts", "standard_library"]

PLAIN = (".txt", ".text", ".md", ".py", ".txt.gz", ".text.gz")
LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
TABLE = (".parquet",)
HELD_OUT = 0.1
"""The share of a text's end that is kept for validation."""
DOCUMENTS = 20_000
"""Documents of a hub data set that are read at most where it is read whole; it may be endless."""
SHUFFLED = 10_000
"""Documents among which those of a stream are shuffled."""


class Tokens(Protocol):
    """What turns text into numbers."""

    size: int

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        ...


class ByteTokens:
    """UTF-8 bytes as tokens."""

    size = 256

    def encode(self, text: str) -> Sequence[int]:
        """The bytes of a text."""
        return text.encode("utf-8")


def read_texts(source: str, *, column: str = "text", split: str = "train") -> list[str]:
    """Read documents.

    Parameters
    ----------
    source : str
        A file (.txt, .md, .py, .jsonl, .ndjson, .parquet; text may be gzipped), a folder of such files, ``-`` for text
        on standard input, or the name of a hub data set, ``owner/name`` or ``owner/name:config``.
    column : str
        Which field of JSON lines, Parquet or a data set holds the text.
    split : str
        Which part of a hub data set.

    Raises
    ------
    InputError
        The file is missing, empty, damaged, of another kind, or holds no text.
    """
    path = Path(source)
    if source == STREAM:
        return _with_text([_joined(STREAM)], "standard input")
    if path.is_dir():
        files = sorted(
            file for file in path.rglob("*") if file.is_file() and file.name.lower().endswith((*PLAIN, *LINES, *TABLE))
        )
        if not files:
            raise InputError(
                "the folder holds no text",
                file=source,
                expected=f"files that end in {', '.join((*PLAIN, *LINES, *TABLE))}",
            )
        return _with_text([text for file in files if file.stat().st_size for text in _read_file(file, column)], source)
    if not path.exists() and source.count("/") == 1 and not path.suffix and not source.startswith("."):
        return _with_text(_read_hub(source, column, split), source)
    return _with_text(_read_file(existing_file(source, suffixes=(*PLAIN, *LINES, *TABLE)), column), source)


def _with_text(texts: list[str], source: str) -> list[str]:
    if not any(text.strip() for text in texts):
        raise InputError("holds no text", file=source, expected="at least one line of text")
    return texts


def _joined(source: str | Path) -> str:
    return "\n".join(read_lines(source))


def _read_file(file: Path, column: str) -> list[str]:
    name = file.name.lower()
    if name.endswith(LINES):
        return list(_read_json_lines(file, column))
    return _read_table(file, column) if name.endswith(TABLE) else [_joined(file)]


def _read_json_lines(file: Path, column: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(file), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(
                f"is not JSON: {error.msg}", file=file, row=number, expected="one JSON value a line"
            ) from error
        text = value.get(column) if isinstance(value, dict) else value
        if not isinstance(text, str):
            fields = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise InputError(
                f"has no text in '{column}' ({fields})",
                file=file,
                row=number,
                expected="--column with the field that holds the text",
            )
        yield text


def _read_table(file: Path, column: str) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(file).names
        if column not in names:
            raise InputError(f"has no column '{column}'", file=file, expected=f"--column, one of: {', '.join(names)}")
        values = pq.read_table(file, columns=[column]).column(column)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a Parquet file") from error
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise InputError(f"holds {values.type}", file=file, column=column, expected="a column of text")
    return [text for text in values.to_pylist() if text is not None]


def _read_hub(source: str, column: str, split: str) -> list[str]:
    return list(islice(hub_documents(source, column=column, split=split), DOCUMENTS))


def hub_documents(source: str, *, column: str = "text", split: str = "train", seed: int | None = None) -> Iterator[str]:
    """The documents of a hub data set as they come over the network.

    Parameters
    ----------
    source : str
        ``owner/name`` or ``owner/name:config``.
    column, split : str
        Which field of which part.
    seed : int, optional
        Shuffle within a buffer of documents.

    Raises
    ------
    InputError
        There is no such data set, or it has no such field.
    MissingPackageError
        datasets isn't installed.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingPackageError("datasets", what=f"the hub data set {source}", extra="peers") from error
    name, _, config = source.partition(":")
    try:
        rows = load_dataset(name, config or None, split=split, streaming=True)
        if seed is not None:
            rows = rows.shuffle(seed=seed, buffer_size=SHUFFLED)
        for row in rows:
            if column not in row:
                raise InputError(
                    f"the data set {source} has no field '{column}'", expected=f"--column, one of: {', '.join(row)}"
                )
            yield str(row[column])
    except InputError:
        raise
    except Exception as error:  # the hub's client raises errors of many kinds
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"neither a file nor a data set of the hub: {reason}",
            file=source,
            expected="a text file, a folder, or owner/name",
        ) from error


def standard_library(limit: int) -> str:
    """The running interpreter's own library as one text of at least `limit` characters where it has so many."""
    folder = Path(sysconfig.get_path("stdlib"))
    parts: list[str] = []
    size = 0
    for file in sorted(folder.glob("*.py")):
        text = file.read_text(encoding="utf-8", errors="ignore")
        parts.append(text)
        size += len(text)
        if size >= limit:
            break
    return "\n".join(parts)


class Corpus:
    """Tokens, divided into a part to train on and an end that is held out.

    Parameters
    ----------
    texts : sequence of str
        Documents, joined in their order.
    tokens : Tokens
        What turns them into numbers.
    context : int
        Tokens that a model sees at once.
    source : str
        Their name, for messages.

    Attributes
    ----------
    train, held_out : Tensor of int64
        The two parts.
    fingerprint : str
        A checksum of the tokens, by which a resumed run knows its text again.

    Raises
    ------
    InputError
        There are too few tokens for one batch row of each part.
    """

    def __init__(self, texts: Sequence[str], tokens: Tokens, *, context: int, source: str = "the text") -> None:
        numbers = torch.cat([torch.tensor(list(tokens.encode(text)), dtype=torch.int64) for text in texts])
        held = max(context + 1, int(len(numbers) * HELD_OUT))
        if len(numbers) < held + context + 1:
            raise InputError(
                f"has {len(numbers)} tokens",
                file=source,
                expected=f"at least {2 * (context + 1)} for a context of {context}",
            )
        self.train, self.held_out = numbers[:-held], numbers[-held:]
        self.context = context
        self.fingerprint = f"{zlib.crc32(numbers.numpy().tobytes()):08x}"

    def batch(self, step: int, *, size: int, seed: int) -> Tensor:
        """The rows of one step, shape (size, context): they depend on seed and step alone, so a resumed run sees the
        same.
        """
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(len(self.train) - self.context, (size,), generator=generator)
        return torch.stack([self.train[start : start + self.context] for start in starts.tolist()])

    def validation(self, *, rows: int) -> Tensor:
        """Evenly spaced rows of the held-out part, shape (rows, context), the same for everyone."""
        room = len(self.held_out) - self.context
        starts = torch.linspace(0, room, min(rows, room + 1)).long()
        return torch.stack([self.held_out[start : start + self.context] for start in starts.tolist()])


class StreamCorpus:
    """Tokens of documents that come one after the other, in rows: for more text than memory holds.

    Parameters
    ----------
    documents : callable
        Called with a seed, gives the documents to train on in the order of that seed; begun again when they end.
    held_out : iterable of str
        Documents for validation.
    tokens : Tokens
        What turns them into numbers.
    context : int
        Tokens of a row; a row may hold the end of one document and the beginning of another.
    """

    def __init__(
        self,
        documents: Callable[[int], Iterable[str]],
        held_out: Iterable[str],
        tokens: Tokens,
        *,
        context: int,
    ) -> None:
        self.context = context
        self._documents, self._held_out, self._tokens = documents, held_out, tokens
        self._rows: Iterator[Tensor] = iter(())
        self._at: tuple[int, int] | None = None

    def batch(self, step: int, *, size: int, seed: int) -> Tensor:
        """The rows of one step, shape (size, context): the next ones, or after a jump those at that place."""
        wanted = step * size
        if self._at is None or self._at[0] != seed or self._at[1] > wanted:
            self._rows, self._at = self._packed(self._again(seed)), (seed, 0)
        for _ in range(wanted - self._at[1]):
            next(self._rows)
        self._at = (seed, wanted + size)
        return torch.stack(list(islice(self._rows, size)))

    def validation(self, *, rows: int) -> Tensor:
        """The first rows of the held-out documents, shape (rows, context)."""
        found = list(islice(self._packed(self._held_out), rows))
        if not found:
            raise InputError("the held-out documents are too short", expected=f"at least {self.context} tokens")
        return torch.stack(found)

    def _again(self, seed: int) -> Iterator[str]:
        while True:
            empty = True
            for document in self._documents(seed):
                empty = False
                yield document
            if empty:
                raise InputError("there are no documents", expected="at least one")

    def _packed(self, documents: Iterable[str]) -> Iterator[Tensor]:
        held: list[int] = []
        for document in documents:
            held += self._tokens.encode(document)
            whole = len(held) // self.context * self.context
            yield from torch.tensor(held[:whole], dtype=torch.int64).view(-1, self.context)
            held = held[whole:]


def name_of(source: str) -> str:
    """A source in words."""
    return "standard input" if source == STREAM else os.fspath(source)
