"""What answers an agent: an endpoint that speaks OpenAI's protocol, a function, or a model on this machine."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from assay.core.errors import AssayError, InputError, MissingPackageError
from assay.tooluse.formats._builder import as_text, load_json
from assay.tooluse.formats._chat import text_of

__all__ = ["Client", "EndpointClient", "FunctionClient", "LocalClient", "Reply", "ServiceError", "as_client"]

Messages: TypeAlias = Sequence[Mapping[str, Any]]
Definitions: TypeAlias = Sequence[Mapping[str, Any]]
DEFAULT_TOKENS = 4096


class ServiceError(AssayError):
    """The service behind a client failed; the run says nothing about the model."""


@dataclass(slots=True)
class Reply:
    """What a model answered.

    Attributes
    ----------
    text : str
        Its words.
    calls : list of (id, name, arguments)
        Its calls through the endpoint's own tool calling; arguments as the endpoint gave them.
    usage : dict of str to int
        Tokens.
    stop_reason : str
        Why it ended.
    """

    text: str = ""
    calls: list[tuple[str | None, Any, Any]] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    stop_reason: str = ""


class Client(Protocol):
    """Answers messages."""

    name: str

    async def complete(self, messages: Messages, tools: Definitions | None = None) -> Reply:
        """Answer a conversation, perhaps by calling tools."""


@dataclass
class EndpointClient:
    """Any endpoint that speaks OpenAI's chat protocol; retries are those of the package ``openai``.

    Parameters
    ----------
    base_url : str
        Such as ``http://localhost:8000/v1``.
    model : str
        The model's name there.
    api_key : str
        The key; servers of one's own mostly take any.
    temperature : float
        0 for the likeliest answer.
    max_tokens : int
        The longest answer.
    timeout : float
        Seconds for one answer.
    retries : int
        How often a failing request is repeated.
    """

    base_url: str
    model: str
    api_key: str = "none"
    temperature: float = 0.0
    max_tokens: int = DEFAULT_TOKENS
    timeout: float = 120.0
    retries: int = 2

    def __post_init__(self) -> None:
        if not self.base_url.lower().startswith(("http://", "https://")):
            raise InputError(f"base_url is '{self.base_url}'", expected="an address such as http://localhost:8000/v1")
        _require_sampling(self.temperature, self.max_tokens)
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise InputError(f"timeout is {self.timeout}", expected="more than 0 seconds")
        if self.retries < 0:
            raise InputError(f"retries is {self.retries}", expected="0 or more")
        try:
            import openai
        except ImportError as error:
            raise MissingPackageError("openai", what="a client of an endpoint", extra="tooluse") from error
        self.name = self.model
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url, api_key=self.api_key, timeout=self.timeout, max_retries=self.retries
        )

    async def complete(self, messages: Messages, tools: Definitions | None = None) -> Reply:
        """Answer a conversation.

        Raises
        ------
        ServiceError
            The endpoint can't be reached, refuses, or answers with something else.
        """
        import openai

        options: dict[str, Any] = {"tools": list(tools)} if tools else {}
        try:
            found = await self._client.chat.completions.with_raw_response.create(
                model=self.model,
                messages=list(messages),  # type: ignore[arg-type]
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                **options,
            )
        except openai.OpenAIError as error:
            raise ServiceError(f"{type(error).__name__}: {error}") from error
        return read_completion(found.content)


def _require_sampling(temperature: float, max_tokens: int) -> None:
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"temperature is {temperature}", expected="0 or more")
    if max_tokens < 1:
        raise InputError(f"max_tokens is {max_tokens}", expected="at least 1")


def read_completion(data: bytes) -> Reply:
    """What a chat completion says.

    Raises
    ------
    ServiceError
        It is something else: a page, an empty body, a list.
    """
    try:
        found = load_json(data)
        (choice, *_) = found["choices"]
        message = choice["message"]
        calls = [
            (_text_or_none(one.get("id")), one["function"].get("name"), one["function"].get("arguments"))
            for one in message.get("tool_calls") or ()
            if one.get("type", "function") == "function"
        ]
        text = text_of(message.get("content"))
        usage = found.get("usage")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        shown = " ".join(data[:80].decode(errors="replace").split())
        raise ServiceError(f"the endpoint's answer is no chat completion: {shown or 'nothing'}") from error
    counts = usage if isinstance(usage, Mapping) else {}
    tokens = {
        kind: counts[name]
        for kind, name in (("input", "prompt_tokens"), ("output", "completion_tokens"))
        if type(counts.get(name)) is int
    }
    return Reply(text, calls, tokens, _text_or_none(choice.get("finish_reason")) or "")


def _text_or_none(value: Any) -> str | None:
    return None if value is None else as_text(value)


@dataclass
class FunctionClient:
    """A function of messages and tool definitions that gives a text, a `Reply`, or an OpenAI message as dictionary.

    Parameters
    ----------
    function : callable
        ``function(messages, tools)``; may be asynchronous.
    name : str
        What reports call it.
    """

    function: Callable[[Messages, Definitions | None], Any]
    name: str = "function"

    async def complete(self, messages: Messages, tools: Definitions | None = None) -> Reply:
        """Answer a conversation."""
        found = self.function(messages, tools)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, Reply):
            return found
        if isinstance(found, Mapping):
            functions = [(one.get("id"), one.get("function", {})) for one in found.get("tool_calls") or ()]
            calls = [(id_, function.get("name"), function.get("arguments")) for id_, function in functions]
            return Reply(found.get("content") or "", calls)
        return Reply(str(found))


@dataclass
class LocalClient:
    """A language model on this machine: text in, text out, one answer at a time.

    Parameters
    ----------
    model : str
        What `assay.core.lm.load_language_model` takes; ``smollm2`` is SmolLM2-135M-Instruct from its package.
    temperature : float
        0 for the likeliest answer.
    max_tokens : int
        The longest answer.
    """

    model: str = "smollm2"
    temperature: float = 0.0
    max_tokens: int = 128

    def __post_init__(self) -> None:
        _require_sampling(self.temperature, self.max_tokens)
        self.name = self.model
        self._loaded: Any = None
        self._one_at_a_time = threading.Lock()
        self._stopped = False

    async def complete(self, messages: Messages, tools: Definitions | None = None) -> Reply:
        """Answer a conversation.

        Raises
        ------
        InputError
            Tool definitions are given: this client has no tool calling of its own.
        """
        if tools:
            raise InputError("the agent native needs an endpoint's tool calling", expected="direct, cot or react")
        self._stopped = False
        try:
            return await asyncio.to_thread(self._answer, messages)
        except asyncio.CancelledError:
            self._stopped = True
            raise

    def _answer(self, messages: Messages) -> Reply:
        with self._one_at_a_time:
            # Who was waiting when the run was stopped doesn't begin.
            return Reply() if self._stopped else self._generate(messages)

    def _generate(self, messages: Messages) -> Reply:
        from assay.core.lm import generate, load_language_model

        if self._loaded is None:
            self._loaded = load_language_model(self.model)
        lm = self._loaded
        prompt = lm.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        (text,) = generate(
            lm.model, lm.tokenizer, [prompt], max_new_tokens=self.max_tokens, temperature=self.temperature
        )
        return Reply(text)


Answerer: TypeAlias = Client | Callable[[Messages, Definitions | None], Any]


def as_client(given: Answerer) -> Client:
    """A client as it is, or a function made into one."""
    if hasattr(given, "complete"):
        return given  # type: ignore[return-value]
    return FunctionClient(given, getattr(given, "__name__", "function"))
