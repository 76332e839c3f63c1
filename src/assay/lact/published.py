"""The published language checkpoints: their configuration and the names of their weights as ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.language import MLP_MULTIPLE, LaCTConfig, LaCTForCausalLM

__all__ = ["load_published_language", "published_language_config", "published_language_weights"]

PUBLISHED_NAMES = {
    "w0": "branch.fast.w0",
    "w1": "branch.fast.w1",
    "w2": "branch.fast.w2",
    "w0.w_left": "branch.fast.w0_left",
    "w0.w_right": "branch.fast.w0_right",
    "w2.w_left": "branch.fast.w2_left",
    "w2.w_right": "branch.fast.w2_right",
    "lr_proj.weight": "branch.rates.projection.weight",
    "lr_proj.bias": "branch.rates.projection.bias",
    "qk_scale": "branch.qk_scale",
    "qk_offset": "branch.qk_offset",
    "ttt_scale_proj.weight": "branch.gate_proj.weight",
    "ttt_scale_proj.bias": "branch.gate_proj.bias",
    "ttt_norm.weight": "branch.norm.weight",
    "momentum_proj.0.weight": "branch.momentum_proj.weight",
    "momentum_proj.0.bias": "branch.momentum_proj.bias",
}
"""What the published language code calls a layer's tensors, and what we do; other names are the same."""


def published_language_weights(weights: Mapping[str, Tensor], *, back: bool = False) -> dict[str, Tensor]:
    """The weights of a published language checkpoint under our names.

    Parameters
    ----------
    weights : mapping of str to Tensor
        A state dict, ``model.layers.0.attn.lr_proj.weight`` and so on.
    back : bool
        From our names to the published ones.

    Returns
    -------
    dict of str to Tensor

    Examples
    --------
    >>> import torch
    >>> list(published_language_weights({"model.layers.3.attn.w0.w_left": torch.zeros(1)}))
    ['model.layers.3.attn.branch.fast.w0_left']
    """
    names = {ours: theirs for theirs, ours in PUBLISHED_NAMES.items()} if back else PUBLISHED_NAMES
    renamed = {}
    for name, weight in weights.items():
        begin, found, end = name.partition(".attn.")
        renamed[f"{begin}{found}{names.get(end, end)}"] = weight
    return renamed


def published_language_config(published: Mapping[str, Any]) -> LaCTConfig:
    """The configuration of a published language checkpoint as ours.

    Parameters
    ----------
    published : mapping
        Its ``config.json``.

    Returns
    -------
    LaCTConfig

    Raises
    ------
    InputError
        It isn't a configuration of that model, or has an option that no published model uses.

    Examples
    --------
    >>> config = published_language_config({"model_type": "lact_swiglu", "hidden_size": 1536, "num_attn_heads": 24})
    >>> config.num_attention_heads, config.intermediate_size, config.rule
    (24, 4096, 'momentum')
    """
    if published.get("model_type") != "lact_swiglu":
        raise InputError(f"model_type is {published.get('model_type')!r}", expected="'lact_swiglu'")
    for name, only in (("qkv_bias", False), ("lr_dim", 1), ("ttt_loss_type", "dot_product"), ("qkv_silu", True)):
        if published.get(name, only) != only:
            raise InputError(f"{name} is {published[name]!r}", expected=repr(only))
    rule = ("muon" if published.get("use_muon") else "gd", "momentum" if published.get("use_momentum", True) else "")
    rank = published.get("w0_w2_low_rank", -1)
    width = published.get("hidden_size", 2048)
    ratio = published.get("hidden_ratio") or 4
    inner = published.get("intermediate_size") or -(-int(width * ratio * 2 / 3) // MLP_MULTIPLE) * MLP_MULTIPLE
    ids: dict[str, Any] = {name: published.get(name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return LaCTConfig(
        vocab_size=published.get("vocab_size", 32000),
        hidden_size=width,
        num_hidden_layers=published.get("num_hidden_layers", 24),
        num_attention_heads=published.get("num_attn_heads", 32),
        intermediate_size=inner,
        max_position_embeddings=published.get("max_position_embeddings", 2048),
        rms_norm_eps=published.get("norm_eps", 1e-6),
        initializer_range=published.get("initializer_range", 0.006),
        tie_word_embeddings=published.get("tie_word_embeddings", False),
        num_fast_heads=published.get("num_lact_heads", 4),
        window=published.get("window_size", 2048),
        chunk_size=published.get("lact_chunk_size", 2048),
        expand=float(published.get("inter_multi", 1)),
        rule={"gd": "gd", "gdmomentum": "momentum", "muon": "muon", "muonmomentum": "muon_momentum"}["".join(rule)],
        init_rank=rank if rank > 0 else None,
        prenorm=published.get("ttt_prenorm", False),
        qk_norm=published.get("attn_qk_norm", False),
        value_silu=not published.get("no_v_silu", False),
        rope_fast=not published.get("ttt_nope", False),
        rope_base=float(published.get("rope_theta") or 10000.0),
        output_gate=published.get("learnable_ttt_scale", True),
        **ids,
    )


def load_published_language(folder: str | Path) -> LaCTForCausalLM:
    """Load a language model that the paper's code has saved.

    Parameters
    ----------
    folder : path
        With ``config.json`` and ``model.safetensors`` (or several with their index), or ``pytorch_model.bin``.

    Returns
    -------
    LaCTForCausalLM
        In evaluation mode.

    Raises
    ------
    InputError
        The folder holds no such model, or tensors are missing, unknown or of another shape.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> from safetensors.torch import save_file
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> weights = LaCTForCausalLM.small().state_dict()
    >>> save_file(published_language_weights(weights, back=True), folder / "model.safetensors")
    >>> sizes = {"vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    >>> heads = {"num_attn_heads": 2, "num_lact_heads": 2, "window_size": 32, "lact_chunk_size": 32, "use_muon": True}
    >>> _ = (folder / "config.json").write_text(json.dumps({"model_type": "lact_swiglu", **sizes, **heads}))
    >>> load_published_language(folder).config.rule
    'muon_momentum'
    """
    place = Path(folder)
    file = place / "config.json"
    if not file.is_file():
        raise InputError("holds no config.json", file=folder, expected="a model's folder")
    config = published_language_config(json.loads(file.read_text(encoding="utf-8")))
    weights = published_language_weights(_tensors_of(place))
    with torch.device("meta"):
        model = LaCTForCausalLM(config)
    own = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    given = {name: tuple(weight.shape) for name, weight in weights.items()}
    if config.tie_word_embeddings:
        weights.setdefault("lm_head.weight", weights["model.embeddings.weight"])
        given.setdefault("lm_head.weight", given["model.embeddings.weight"])
    wrong = sorted(name for name in own.keys() | given.keys() if own.get(name) != given.get(name))
    if wrong:
        raise InputError(
            f"{wrong[0]} is {given.get(wrong[0], 'missing')}",
            file=folder,
            expected=str(own.get(wrong[0], "no such name")),
        )
    model.load_state_dict(weights, assign=True)
    model.eval()  # type: ignore[no-untyped-call]
    return model


def _tensors_of(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        files = [name for name in ("model.safetensors",) if (folder / name).is_file()]
    if files:
        return {name: value for one in files for name, value in load_file(folder / one).items()}
    if (folder / "pytorch_model.bin").is_file():
        return dict(torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True))
    raise InputError("holds no weights", file=folder, expected="model.safetensors, several with an index, or a .bin")
