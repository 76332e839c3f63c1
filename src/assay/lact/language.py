"""A causal language model of `LaCTBlock`s for Hugging Face: configuration, files, generation with a real cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from assay.core.errors import InputError
from assay.lact.cache import LaCTCache
from assay.lact.causal import CausalLaCT, CausalState, LaCTBlock
from assay.lact.fast_branch import FastBranch, MixerSettings
from assay.lact.state import LaCTState, config_hash
from assay.lact.token_stream import TokenStream

__all__ = ["LaCTConfig", "LaCTForCausalLM", "LaCTOutput"]

MLP_MULTIPLE = 256
IGNORED = -100
"""The label that doesn't count."""
SAMPLED = 64
"""Values of each weight that a model's fingerprint looks at."""
MIXER_FIELDS = tuple(MixerSettings.__dataclass_fields__)


class LaCTConfig(PreTrainedConfig):
    """What a `LaCTForCausalLM` is built from; the mixer's fields are those of `MixerSettings`.

    Attributes
    ----------
    vocab_size : int
        How many tokens there are; 256 for bytes.
    hidden_size, num_hidden_layers, num_attention_heads : int
        The width, the blocks, and the attention heads of each.
    intermediate_size : int or None
        The MLP's hidden width; by default 8/3 of the width, rounded up to a multiple of 256.
    max_position_embeddings : int
        The length that the model was trained at, for information: rotary positions go on after it.
    rms_norm_eps : float
        Of the blocks' norms.
    initializer_range : float
        The standard deviation of initial weights.
    num_fast_heads, window, chunk_size, expand, memory, fast_net, rule, ns, base_lr, init_rank, prenorm, detach_norm
        As in `assay.lact.fast_branch.MixerSettings`, and so are the next.
    qk_norm, value_silu, rope_fast, rope_base, scale_attention, output_gate, zero_gate, recompute, force_window
    tie_word_embeddings : bool
        Whether the embeddings are the output's weights too.
    use_cache : bool
        Whether generation goes on from a state.
    pad_token_id, bos_token_id, eos_token_id : int or None
        The tokens of padding, beginning and end.
    transformers_version, architectures, output_hidden_states, return_dict, dtype, chunk_size_feed_forward
        Those of every configuration of transformers, and so are the next.
    is_encoder_decoder, id2label, label2id, problem_type

    Examples
    --------
    >>> config = LaCTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, window=32, chunk_size=32)
    >>> config.mixer().window, config.intermediate_size
    (32, 256)
    """

    model_type = "lact"
    keys_to_ignore_at_inference = ("cache",)

    vocab_size: int = 256
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    intermediate_size: int | None = None
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    num_fast_heads: int = 4
    window: int = 2048
    chunk_size: int = 2048
    expand: float = 1.0
    memory: str = "lact"
    fast_net: str = "swiglu"
    rule: str = "muon_momentum"
    ns: str = "tuned"
    base_lr: float = 1e-3
    init_rank: int | None = 32
    prenorm: bool = False
    detach_norm: bool = False
    qk_norm: bool = False
    value_silu: bool = True
    rope_fast: bool = True
    rope_base: float = 1e6
    scale_attention: bool = False
    output_gate: bool = True
    zero_gate: bool = False
    recompute: bool = False
    force_window: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", expected="at least 1")
        if self.intermediate_size is None:
            self.intermediate_size = -(-8 * self.hidden_size // (3 * MLP_MULTIPLE)) * MLP_MULTIPLE
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    def mixer(self) -> MixerSettings:
        """The mixer's settings."""
        return MixerSettings(**{name: getattr(self, name) for name in MIXER_FIELDS})


@dataclass
class LaCTOutput(ModelOutput):
    """What a language model returns.

    Attributes
    ----------
    loss : Tensor or None
        The mean over the labels, in nats a token.
    logits : Tensor, shape (batch, length, vocabulary)
    cache : LaCTCache or None
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    cache: LaCTCache | None = None


class LaCTPreTrainedModel(PreTrainedModel):
    """How weights begin, and what transformers must know."""

    config_class = LaCTConfig
    base_model_prefix = "model"
    _no_split_modules = ["LaCTBlock"]  # noqa: RUF012
    _is_stateful = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        if isinstance(module, FastBranch) and module.settings.zero_gate and module.settings.output_gate:
            module.reset_gate()


class LaCTModel(LaCTPreTrainedModel):
    """The blocks without the head.

    Parameters
    ----------
    config : LaCTConfig
    """

    def __init__(self, config: LaCTConfig) -> None:
        super().__init__(config)
        settings = asdict(config.mixer())
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            LaCTBlock(
                CausalLaCT(config.hidden_size, config.num_attention_heads, **settings),
                mlp_dim=config.intermediate_size or 0,
                norm_eps=config.rms_norm_eps,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Embedding:
        """The embeddings of tokens."""
        return self.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embeddings of tokens."""
        self.embeddings = cast(nn.Embedding, value)

    @property
    def blocks(self) -> list[LaCTBlock]:
        """The blocks, from the first to the last."""
        return [cast(LaCTBlock, block) for block in self.layers]

    def start(self, batch: int) -> LaCTCache:
        """What the model knows before it has read anything."""
        return LaCTCache([block.attn.start(batch) for block in self.blocks])

    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask_BL: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        cache: LaCTCache | None = None,
        in_place: bool = False,
    ) -> tuple[Tensor, LaCTCache | None]:
        after: list[CausalState] = []
        for number, block in enumerate(self.blocks):
            before = None if cache is None else cache.states[number]
            x_BLD, state = block.read(x_BLD, mask_BL=mask_BL, cu_seqlens=cu_seqlens, state=before, in_place=in_place)
            if state is not None:
                after.append(state)
        if cache is not None:
            cache.states = after
        return self.norm(x_BLD), cache


class LaCTForCausalLM(LaCTPreTrainedModel, GenerationMixin):
    """A causal language model whose blocks have a window and a memory that is trained as it reads.

    Parameters
    ----------
    config : LaCTConfig

    Examples
    --------
    >>> import torch
    >>> model = LaCTForCausalLM.small()
    >>> model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=4, do_sample=False).shape
    torch.Size([1, 7])
    """

    # transformers reads these as dict and list.
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}  # noqa: RUF012

    def __init__(self, config: LaCTConfig) -> None:
        super().__init__(config)
        self.model = LaCTModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]
        if config.memory == "full" and self.generation_config is not None:
            # Attention to everything has no state of constant size: each token reads the text anew.
            self.generation_config.use_cache = False

    @classmethod
    def small(cls, *, seed: int = 0, **changes: Any) -> LaCTForCausalLM:
        """Two narrow blocks with random weights, for a first look.

        Parameters
        ----------
        seed : int
            Of the weights; torch's own generator is left as it was.
        **changes
            Other fields of `LaCTConfig`.

        Returns
        -------
        LaCTForCausalLM
            In evaluation mode.
        """
        settings: dict[str, Any] = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_fast_heads": 2,
            "intermediate_size": 64,
            "window": 32,
            "chunk_size": 32,
            "init_rank": None,
            **changes,
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls(LaCTConfig(**settings))
        model.eval()  # type: ignore[no-untyped-call]
        return model

    @property
    def state_config(self) -> str:
        """The digest of everything on which the meaning of a state depends: the mixers and the weights."""
        sampled = hashlib.sha256()
        for name, weight in sorted(self.state_dict().items()):
            flat = weight.detach().flatten()
            chosen = flat[torch.linspace(0, len(flat) - 1, SAMPLED, device=flat.device).long()]
            sampled.update(f"{name}{tuple(weight.shape)}".encode())
            sampled.update(chosen.to("cpu", torch.float32).numpy().tobytes())
        return config_hash({"layers": [block.attn.config for block in self.model.blocks], "w": sampled.hexdigest()})

    def get_input_embeddings(self) -> nn.Module:
        """The embeddings of tokens."""
        return cast(nn.Module, self.model.embeddings)

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embeddings of tokens."""
        self.model.embeddings = cast(nn.Embedding, value)

    def get_output_embeddings(self) -> nn.Module:
        """The output's weights."""
        return cast(nn.Module, self.lm_head)

    def set_output_embeddings(self, value: nn.Module) -> None:
        """Replace the output's weights."""
        self.lm_head = cast(nn.Linear, value)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        # The model makes its own cache at the first call.
        return False

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: LaCTCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        cu_seqlens: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> LaCTOutput | tuple[Any, ...]:
        """Read tokens.

        Parameters
        ----------
        input_ids : Tensor of int64, shape (batch, length)
            The tokens after those that `cache` has read.
        attention_mask : Tensor, shape (batch, at least length), optional
            1 at real tokens, 0 at padding on either side; the last `length` columns count.
        inputs_embeds : Tensor, shape (batch, length, width), optional
            Instead of tokens.
        cache : LaCTCache, optional
            What came before. It goes on with these tokens, as caches of transformers do.
        labels : Tensor of int64, shape (batch, length), optional
            The tokens themselves, -100 where the loss doesn't count: each is predicted from those before it.
        use_cache : bool, optional
            Return what has been read; by default when `cache` is given.
        logits_to_keep : int or Tensor
            Logits of so many tokens at the end, or at these places; 0 for all. With labels, all in any case.
        cu_seqlens : Tensor of int, shape (documents + 1,), optional
            Where documents in the rows begin, and the end.
        return_dict : bool, optional
            False for a tuple.

        Returns
        -------
        LaCTOutput

        Raises
        ------
        InputError
            Neither tokens nor embeddings, or both; tokens outside the vocabulary; what `CausalLaCT.forward` refuses.
        """
        x = self._embedded(input_ids, inputs_embeds)
        length = x.shape[1]
        mask = None
        if attention_mask is not None and not bool(attention_mask[:, attention_mask.shape[1] - length :].all()):
            mask = attention_mask[:, attention_mask.shape[1] - length :].bool()
        if cache is None and use_cache and self.config.memory != "full":
            cache = self.model.start(len(x))
        hidden, after = self.model(
            x, mask_BL=mask, cu_seqlens=cu_seqlens, cache=cache, in_place=not torch.is_grad_enabled()
        )
        if labels is None:
            hidden = hidden[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep]
        logits = self.lm_head(hidden)
        loss = None if labels is None else _shifted_loss(logits, labels)
        out = LaCTOutput(loss=loss, logits=logits, cache=after)
        return out.to_tuple() if return_dict is False else out

    def _embedded(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise InputError("input_ids and inputs_embeds: both or neither given", expected="one of them")
        if inputs_embeds is not None:
            return inputs_embeds
        assert input_ids is not None
        if input_ids.numel() and not 0 <= int(input_ids.min()) <= int(input_ids.max()) < self.config.vocab_size:
            raise InputError(
                f"input_ids reach from {int(input_ids.min())} to {int(input_ids.max())}",
                expected=f"tokens from 0 to {self.config.vocab_size - 1}",
            )
        embedded: Tensor = self.model.embeddings(input_ids)
        return embedded

    @contextmanager
    def stream(self, state: LaCTState | None = None, *, batch: int = 1) -> Iterator[TokenStream]:
        """A context in which text is read piece by piece, without gradients, in constant memory.

        Parameters
        ----------
        state : LaCTState, optional
            What was read before; it stays as it is.
        batch : int
            Rows, where there is no state.

        Yields
        ------
        TokenStream

        Raises
        ------
        InputError
            The state is of another model.

        Examples
        --------
        >>> import torch
        >>> model = LaCTForCausalLM.small()
        >>> with model.stream() as reader:
        ...     logits = reader.feed(torch.arange(50)[None])
        ...     memory = reader.state()
        >>> logits.shape, memory["layer0.position"].tolist()
        (torch.Size([1, 256]), [50])
        """
        was_training = self.training
        self.eval()  # type: ignore[no-untyped-call]
        try:
            with torch.inference_mode(False), torch.no_grad():
                yield TokenStream(self, state, batch=batch)
        finally:
            self.train(was_training)


def _shifted_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)


AutoConfig.register("lact", LaCTConfig, exist_ok=True)
AutoModelForCausalLM.register(LaCTConfig, LaCTForCausalLM, exist_ok=True)
