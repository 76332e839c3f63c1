"""A Llama of four blocks with random weights, for tests of mechanics: it knows nothing and answers at once."""

from __future__ import annotations

from typing import Any

import torch

from assay.core.lm.loading import LanguageModel, require

__all__ = ["NAME", "random_llama"]

NAME = "random-llama"
VOCABULARY = 300
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
SPREAD = 0.08
"""Of the weights: wide enough for logits that differ, narrow enough for gradients that don't explode."""

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
COMMON = "the and ing ion ent ter of is in to an er on at re or en al it th he st"
"""Letters that stand together often, which become tokens of their own."""


def random_llama(*, seed: int = 0, blocks: int = 4, width: int = 64, dtype: Any = torch.float32) -> LanguageModel:
    """A small Llama with random weights and a tokenizer of bytes and 39 letter groups.

    Parameters
    ----------
    seed : int
        Of the weights. torch's own generator is left as it was.
    blocks : int
        How many blocks.
    width : int
        Of the residual stream; a multiple of 16.
    dtype : torch.dtype
        Of the weights.

    Returns
    -------
    LanguageModel

    Examples
    --------
    >>> lm = random_llama()
    >>> sum(weight.numel() for weight in lm.model.parameters()) < 300_000
    True
    """
    require("transformers", what="a language model")
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=blocks,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=SPREAD,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    return LanguageModel(model.to(dtype).eval(), _tokenizer(), NAME)


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *letters])}
    merges: list[tuple[str, str]] = []
    for group in COMMON.split():
        built = group[0]
        for letter in group[1:]:
            joined = built + letter
            if joined not in vocabulary and len(vocabulary) < VOCABULARY:
                vocabulary[joined] = len(vocabulary)
                merges.append((built, letter))
            built = joined
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        chat_template=TEMPLATE,
        model_max_length=4096,
    )
