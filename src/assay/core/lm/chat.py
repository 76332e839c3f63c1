"""Questions and answers in a model's own chat format."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["chat_prompt", "end_of_turn", "has_chat_template"]

DEFAULT = "default"
QUESTION, ANSWER = "A question", "An answer"
"""Neither begins or ends with a blank, which templates may strip."""


def has_chat_template(tokenizer: Any) -> bool:
    """Whether the tokenizer knows a chat format."""
    return bool(getattr(tokenizer, "chat_template", None))


def chat_prompt(tokenizer: Any, question: str, *, system: str | None = None) -> str:
    """A question as the model's chat format has it, up to where the answer begins.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Without a chat template the question itself is the prompt, followed by a line end, and a warning says so.
    question : str
        What the user asks.
    system : str, optional
        The system message. Without one there is no system turn, also where the template would put one of its own;
        ``"default"`` leaves that to the template.

    Returns
    -------
    str
        Text that holds all special tokens: encode it without adding any.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> chat_prompt(random_llama().tokenizer, "Who?")
    '<|user|>Who?<|end|><|assistant|>'
    """
    if not has_chat_template(tokenizer):
        warnings.warn("the tokenizer has no chat template: questions are given as plain text", stacklevel=2)
        return f"{tokenizer.bos_token or ''}{question}\n"
    asked = [{"role": "user", "content": question}]
    if system == DEFAULT:
        return _render(tokenizer, asked)
    if system is not None:
        return _render(tokenizer, [{"role": "system", "content": system}, *asked])
    return _without_system_turn(tokenizer, asked)


def end_of_turn(tokenizer: Any) -> str:
    """What follows an answer in the model's chat format, such as ``"<|im_end|>"``; the end-of-text token without one.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        The tokenizer.

    Returns
    -------
    str

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> end_of_turn(random_llama().tokenizer)
    '<|end|>'
    """
    ending = ""
    if has_chat_template(tokenizer):
        whole = _render(tokenizer, _exchange(), prompt=False)
        ending = whole.rpartition(ANSWER)[2].strip()
    return ending or str(tokenizer.eos_token or "")


def _without_system_turn(tokenizer: Any, asked: list[dict[str, str]]) -> str:
    """The prompt as it is in the middle of a conversation, where no template puts a system turn."""
    before = _render(tokenizer, _exchange(), prompt=False)
    whole = _render(tokenizer, [*_exchange(), *asked])
    alone = _render(tokenizer, asked)
    if not whole.startswith(before):
        return alone
    begin = tokenizer.bos_token or ""
    return (
        f"{begin if begin and alone.startswith(begin) and not whole[len(before) :].startswith(begin) else ''}"
        + whole[len(before) :]
    )


def _exchange() -> list[dict[str, str]]:
    return [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]


def _render(tokenizer: Any, messages: list[dict[str, str]], *, prompt: bool = True) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt))
