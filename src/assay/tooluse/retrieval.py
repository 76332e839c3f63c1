"""Which tools a query calls for: the pools that an agent is given, and the retrievers that choose among many tools."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.tooluse.trajectories import Gold, Tool

__all__ = ["Embed", "Retriever", "minilm", "parse_pool", "pool_tools"]

Embed: TypeAlias = Callable[[Sequence[str]], Any]
Text: TypeAlias = Literal["description", "name+description"]
TEXTS: tuple[Text, ...] = ("description", "name+description")


@lru_cache(maxsize=1)
def minilm() -> Embed:
    """Sentence embeddings of all-MiniLM-L6-v2 from the package that holds it; unit vectors of 384 numbers.

    Raises
    ------
    MissingPackageError
        The extras ``embeddings`` and ``lm`` aren't installed.
    """
    from assay.core.lm import sentence_embeddings

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray(sentence_embeddings(list(texts)).numpy(), dtype=np.float32)

    return embed


class Retriever:
    """Ranks tools by a query.

    Parameters
    ----------
    encoder : {'minilm', 'bm25'} or callable
        Sentence embeddings, word statistics, or a function that turns texts into rows of an array.
    text : {'description', 'name+description'}
        What of a tool is looked at; the released code looks at descriptions only.

    Raises
    ------
    InputError
        The encoder or text is unknown.

    Examples
    --------
    >>> tools = [Tool("a", "Weather of a city"), Tool("b", "Price of a share"), Tool("c", "Time in a city")]
    >>> Retriever("bm25").top("what does this share cost, its price", tools, k=1)
    ['b']
    """

    def __init__(self, encoder: str | Embed = "minilm", *, text: Text = "description") -> None:
        if isinstance(encoder, str) and encoder not in ("minilm", "bm25"):
            raise InputError(f"encoder is '{encoder}'", expected="minilm, bm25, or a function")
        if text not in TEXTS:
            raise InputError(f"text is '{text}'", expected=f"one of: {', '.join(TEXTS)}")
        self.encoder, self.text = encoder, text
        self._indexed: tuple[str, Any] | None = None

    def top(self, query: str, tools: Sequence[Tool], *, k: int) -> list[str]:
        """The names of the k best tools, best first; equally good ones in the order of `tools`.

        Parameters
        ----------
        query : str
            What the user asks, or a thought.
        tools : sequence of Tool
            What there is.
        k : int
            How many.

        Returns
        -------
        list of str

        Raises
        ------
        InputError
            `k` is below 1.
        """
        if k < 1:
            raise InputError(f"k is {k}", expected="at least 1")
        scores = self.scores([query], tools)[0]
        return [tools[i].name for i in np.argsort(-scores, kind="stable")[:k]]

    def scores(self, queries: Sequence[str], tools: Sequence[Tool]) -> NDArray[np.float64]:
        """How well each tool fits each query.

        Parameters
        ----------
        queries : sequence of str
            The queries.
        tools : sequence of Tool
            What there is.

        Returns
        -------
        ndarray of float64, shape (queries, tools)
        """
        texts = [f"{tool.name}: {tool.description}" if "name" in self.text else tool.description for tool in tools]
        index = self._index(texts)
        if self.encoder == "bm25":
            return np.stack([_bm25_scores(index, query, len(texts)) for query in queries])
        embed = minilm() if isinstance(self.encoder, str) else self.encoder
        asked = np.asarray(embed(queries), dtype=np.float64)
        norms = np.linalg.norm(asked, axis=1, keepdims=True) * np.linalg.norm(index, axis=1)
        found: NDArray[np.float64] = asked @ index.T / np.where(norms == 0, 1, norms)
        return found

    def _index(self, texts: Sequence[str]) -> Any:
        key = hashlib.sha256("\0".join(texts).encode()).hexdigest()
        if self._indexed is None or self._indexed[0] != key:
            if self.encoder == "bm25":
                import bm25s

                index: Any = bm25s.BM25()
                index.index(_bm25_tokens(texts), show_progress=False)
            else:
                embed = minilm() if isinstance(self.encoder, str) else self.encoder
                index = np.asarray(embed(texts), dtype=np.float64)
            self._indexed = key, index
        return self._indexed[1]


def _bm25_tokens(texts: Sequence[str]) -> Any:
    import bm25s

    return bm25s.tokenize(list(texts), stopwords="en", show_progress=False, return_ids=False)


def _bm25_scores(index: Any, query: str, count: int) -> NDArray[np.float64]:
    tokens = _bm25_tokens([query])[0]
    known = [token for token in tokens if token in index.vocab_dict]
    if not known:
        return np.zeros(count)
    return np.asarray(index.get_scores(known), dtype=np.float64)


def parse_pool(pool: str) -> tuple[str, int | None]:
    """``"retrieval:20"`` as ``("retrieval", 20)``.

    Raises
    ------
    InputError
        The pool is unknown, or its number isn't a positive one.
    """
    kind, _, number = pool.partition(":")
    sized = kind in ("fixed", "retrieval", "dynamic")
    if kind not in ("domain", "all", "fixed", "retrieval", "dynamic") or (number and not sized):
        raise InputError(f"pool is '{pool}'", expected="domain, all, fixed:K, retrieval:K or dynamic:K")
    if number and (not number.isdecimal() or int(number) < 1):
        raise InputError(f"pool is '{pool}'", expected=f"a number of at least 1, such as {kind}:20")
    return kind, (int(number) if number else 20) if sized else None


def pool_tools(
    pool: str, task: Gold, tools: Sequence[Tool], *, retriever: Retriever | None = None, seed: int = 0
) -> list[Tool]:
    """The tools that an agent is shown for a task.

    Parameters
    ----------
    pool : str
        ``all``; ``domain``: those of the task's domain, or of its reference's domains; ``fixed:K``: the reference's and
        others of the domain, drawn by `seed` and the task's id; ``retrieval:K`` (also the start of ``dynamic:K``).
    task : Gold
        The task.
    tools : sequence of Tool
        All tools.
    retriever : Retriever, optional
        For ``retrieval``; by default sentence embeddings of descriptions.
    seed : int
        For ``fixed``.

    Returns
    -------
    list of Tool
        In the order of `tools`, except retrieved ones: best first.
    """
    kind, count = parse_pool(pool)
    if kind == "all":
        return list(tools)
    needed = {call.name for call in task.calls}
    domains = {task.domain} if task.domain else {tool.domain for tool in tools if tool.name in needed}
    if kind == "domain":
        return [tool for tool in tools if tool.domain in domains]
    if kind == "fixed":
        assert count is not None
        others = [tool.name for tool in tools if tool.name not in needed and tool.domain in domains]
        digest = hashlib.sha256(f"{seed} {task.cluster}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        drawn = rng.permutation(len(others))[: max(0, count - len(needed))]
        chosen = needed | {others[i] for i in drawn}
        return [tool for tool in tools if tool.name in chosen]
    by_name = {tool.name: tool for tool in tools}
    return [by_name[name] for name in (retriever or Retriever()).top(task.query, tools, k=count or 20)]
