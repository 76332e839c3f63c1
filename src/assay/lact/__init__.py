"""Large-chunk test-time training: layers of linear cost whose memory is a small network, trained as it reads.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.lact.attention import window_attention as window_attention
    from assay.lact.baselines import RecurrentMemory as RecurrentMemory
    from assay.lact.cache import LaCTCache as LaCTCache
    from assay.lact.cameras import read_posed_images as read_posed_images
    from assay.lact.cameras import turntable as turntable
    from assay.lact.causal import CausalLaCT as CausalLaCT
    from assay.lact.causal import LaCTBlock as LaCTBlock
    from assay.lact.convert import branch_parameters as branch_parameters
    from assay.lact.convert import convert_attention_to_lact as convert_attention_to_lact
    from assay.lact.convert import freeze_host as freeze_host
    from assay.lact.convert import parameter_groups as parameter_groups
    from assay.lact.convert import unfreeze_host as unfreeze_host
    from assay.lact.fast_weights import FastState as FastState
    from assay.lact.fast_weights import FastWeights as FastWeights
    from assay.lact.fast_weights import fast_weight_apply as fast_weight_apply
    from assay.lact.fast_weights import fast_weight_grads as fast_weight_grads
    from assay.lact.fast_weights import fast_weight_update as fast_weight_update
    from assay.lact.fast_weights import start as start
    from assay.lact.functional import lact as lact
    from assay.lact.language import LaCTConfig as LaCTConfig
    from assay.lact.language import LaCTForCausalLM as LaCTForCausalLM
    from assay.lact.layers import LaCT as LaCT
    from assay.lact.layers import SmallChunkWarning as SmallChunkWarning
    from assay.lact.metrics import psnr as psnr
    from assay.lact.metrics import ssim as ssim
    from assay.lact.orthogonal import newton_schulz as newton_schulz
    from assay.lact.parallel import context_parallel_lact as context_parallel_lact
    from assay.lact.parallel import gather_chunks as gather_chunks
    from assay.lact.parallel import head_parallel_lact as head_parallel_lact
    from assay.lact.parallel import shard_chunks as shard_chunks
    from assay.lact.plans import Plan as Plan
    from assay.lact.plans import Segment as Segment
    from assay.lact.recall import RecallTask as RecallTask
    from assay.lact.state import LaCTState as LaCTState
    from assay.lact.streaming import Piece as Piece
    from assay.lact.streaming import Reading as Reading
    from assay.lact.streaming import Stream as Stream
    from assay.lact.streaming import end_of_input as end_of_input
    from assay.lact.token_stream import TokenStream as TokenStream
    from assay.lact.video import InterleavedVideoLaCT as InterleavedVideoLaCT
    from assay.lact.views import LaCTViewSynthesis as LaCTViewSynthesis
    from assay.lact.views import ViewConfig as ViewConfig
    from assay.lact.views import load_view_model as load_view_model
    from assay.lact.views import make_view_model as make_view_model
    from assay.lact.views import save_view_model as save_view_model

__all__ = [
    "CausalLaCT",
    "FastState",
    "FastWeights",
    "InterleavedVideoLaCT",
    "LaCT",
    "LaCTBlock",
    "LaCTCache",
    "LaCTConfig",
    "LaCTForCausalLM",
    "LaCTState",
    "LaCTViewSynthesis",
    "Piece",
    "Plan",
    "Reading",
    "RecallTask",
    "RecurrentMemory",
    "Segment",
    "SmallChunkWarning",
    "Stream",
    "TokenStream",
    "ViewConfig",
    "branch_parameters",
    "context_parallel_lact",
    "convert_attention_to_lact",
    "end_of_input",
    "fast_weight_apply",
    "fast_weight_grads",
    "fast_weight_update",
    "freeze_host",
    "gather_chunks",
    "head_parallel_lact",
    "lact",
    "load_view_model",
    "make_view_model",
    "newton_schulz",
    "parameter_groups",
    "psnr",
    "read_posed_images",
    "save_view_model",
    "shard_chunks",
    "ssim",
    "start",
    "turntable",
    "unfreeze_host",
    "window_attention",
]

_MODULE_OF = {
    "CausalLaCT": "causal",
    "FastState": "fast_weights",
    "FastWeights": "fast_weights",
    "InterleavedVideoLaCT": "video",
    "LaCT": "layers",
    "LaCTBlock": "causal",
    "LaCTCache": "cache",
    "LaCTConfig": "language",
    "LaCTForCausalLM": "language",
    "LaCTState": "state",
    "LaCTViewSynthesis": "views",
    "Piece": "streaming",
    "Plan": "plans",
    "Reading": "streaming",
    "RecallTask": "recall",
    "RecurrentMemory": "baselines",
    "Segment": "plans",
    "SmallChunkWarning": "layers",
    "Stream": "streaming",
    "TokenStream": "token_stream",
    "ViewConfig": "views",
    "branch_parameters": "convert",
    "context_parallel_lact": "parallel",
    "convert_attention_to_lact": "convert",
    "end_of_input": "streaming",
    "fast_weight_apply": "fast_weights",
    "fast_weight_grads": "fast_weights",
    "fast_weight_update": "fast_weights",
    "freeze_host": "convert",
    "gather_chunks": "parallel",
    "head_parallel_lact": "parallel",
    "lact": "functional",
    "load_view_model": "views",
    "make_view_model": "views",
    "newton_schulz": "orthogonal",
    "parameter_groups": "convert",
    "psnr": "metrics",
    "read_posed_images": "cameras",
    "save_view_model": "views",
    "shard_chunks": "parallel",
    "ssim": "metrics",
    "start": "fast_weights",
    "turntable": "cameras",
    "unfreeze_host": "convert",
    "window_attention": "attention",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.lact' has no attribute '{name}'")
    value = getattr(import_module(f"assay.lact.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
