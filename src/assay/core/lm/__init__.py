"""Language models: load them, talk to them, score answers, and take their blocks apart.

Nothing here imports torch or transformers before a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.core.lm.anatomy import Anatomy as Anatomy
    from assay.core.lm.anatomy import find_anatomy as find_anatomy
    from assay.core.lm.chat import chat_prompt as chat_prompt
    from assay.core.lm.chat import end_of_turn as end_of_turn
    from assay.core.lm.embeddings import sentence_embeddings as sentence_embeddings
    from assay.core.lm.generation import generate as generate
    from assay.core.lm.loading import LanguageModel as LanguageModel
    from assay.core.lm.loading import load_language_model as load_language_model
    from assay.core.lm.recording import Recording as Recording
    from assay.core.lm.recording import record as record
    from assay.core.lm.recording import record_after_prefix as record_after_prefix
    from assay.core.lm.recording import replay as replay
    from assay.core.lm.scoring import AnswerBatch as AnswerBatch
    from assay.core.lm.scoring import AnswerScore as AnswerScore
    from assay.core.lm.scoring import answer_logits as answer_logits
    from assay.core.lm.scoring import collate as collate
    from assay.core.lm.scoring import encode as encode
    from assay.core.lm.scoring import next_token_log_probabilities as next_token_log_probabilities
    from assay.core.lm.scoring import score_answers as score_answers
    from assay.core.lm.small_model import random_llama as random_llama

__all__ = [
    "Anatomy",
    "AnswerBatch",
    "AnswerScore",
    "LanguageModel",
    "Recording",
    "answer_logits",
    "chat_prompt",
    "collate",
    "encode",
    "end_of_turn",
    "find_anatomy",
    "generate",
    "load_language_model",
    "next_token_log_probabilities",
    "random_llama",
    "record",
    "record_after_prefix",
    "replay",
    "score_answers",
    "sentence_embeddings",
]

_MODULE_OF = {
    "Anatomy": "anatomy",
    "AnswerBatch": "scoring",
    "AnswerScore": "scoring",
    "LanguageModel": "loading",
    "Recording": "recording",
    "answer_logits": "scoring",
    "chat_prompt": "chat",
    "collate": "scoring",
    "encode": "scoring",
    "end_of_turn": "chat",
    "find_anatomy": "anatomy",
    "generate": "generation",
    "load_language_model": "loading",
    "next_token_log_probabilities": "scoring",
    "random_llama": "small_model",
    "record": "recording",
    "record_after_prefix": "recording",
    "replay": "recording",
    "score_answers": "scoring",
    "sentence_embeddings": "embeddings",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.core.lm' has no attribute '{name}'")
    value = getattr(import_module(f"assay.core.lm.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
