"""What answers an agent: an endpoint that speaks OpenAI's protocol, a function, or a model on this machine."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from assay.core.errors import AssayError, InputError, MissingPackageError

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
            found = await self._client.chat.completions.create(
                model=self.model,
                messages=list(messages),  # type: ignore[arg-type]
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                **options,
            )
        except openai.OpenAIError as error:
            raise ServiceError(f"{type(error).__name__}: {error}") from error
        if not found.choices:
            raise ServiceError("the endpoint gave no choice")
        message = found.choices[0].message
        calls: list[tuple[str | None, Any, Any]] = [
            (one.id, one.function.name, one.function.arguments)
            for one in message.tool_calls or ()
            if one.type == "function"
        ]
        usage = found.usage
        tokens = {"input": usage.prompt_tokens, "output": usage.completion_tokens} if usage is not None else {}
        return Reply(message.content or "", calls, tokens, str(found.choices[0].finish_reason))


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
        self.name = self.model
        self._loaded: Any = None

    async def complete(self, messages: Messages, tools: Definitions | None = None) -> Reply:
        """Answer a conversation.

        Raises
        ------
        InputError
            Tool definitions are given: this client has no tool calling of its own.
        """
        if tools:
            raise InputError("the agent native needs an endpoint's tool calling", expected="direct, cot or react")
        return await asyncio.to_thread(self._answer, messages)

    def _answer(self, messages: Messages) -> Reply:
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
