"""What optimisers keep: the live bytes of one, and what each would take for a model that is known only by its
shapes.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from assay.core.errors import InputError
from assay.lowrank.selection import projects_right, resolve_rank

if TYPE_CHECKING:
    import torch

__all__ = ["OPTIMIZERS", "MemoryReport", "estimate_memory", "read_shapes", "report_of", "state_bytes"]

OPTIMIZERS = (
    "adamw",
    "adamw-8bit",
    "muon",
    "galore",
    "ldadamw",
    "dion",
    "trion",
    "dct-adamw",
    "dct-adamw-ef",
    "dct-adamw-ef8",
    "dct-adamw-ef4",
    "dct-frugal",
    "dct-fira",
)
"""What `estimate_memory` knows."""
STEP = 4
"""Bytes of a parameter's step counter."""
MOST_LAYERS = 100_000
"""More than any model has, so that a wrong number isn't listed for hours."""
LARGEST = 10**12
"""Beyond any size of a model, so that a wrong number isn't counted with."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class MemoryReport:
    """Bytes that an optimiser keeps in this process.

    Attributes
    ----------
    moments, indices, error_feedback, projector, other : int
        By category; `other` holds step counters and master weights.
    basis : int
        Matrices that are kept once a size and device; none where the fast transform is used.
    by_parameter : dict of str to dict of str to int
        Each parameter's states.
    """

    moments: int
    indices: int
    error_feedback: int
    projector: int
    other: int
    basis: int
    by_parameter: Mapping[str, Mapping[str, int]] = field(repr=False)

    @property
    def state(self) -> int:
        """All but the bases."""
        return self.moments + self.indices + self.error_feedback + self.projector + self.other

    @property
    def total(self) -> int:
        """Everything."""
        return self.state + self.basis

    def as_dict(self) -> dict[str, int]:
        """The categories and sums, without the parameters."""
        values = {key: value for key, value in asdict(self).items() if key != "by_parameter"}
        return {**values, "state": self.state, "total": self.total}


def report_of(rows: Mapping[str, Mapping[str, int]], categories: Mapping[str, str], *, basis: int) -> MemoryReport:
    """Sum the bytes of states by category."""
    sums = dict.fromkeys(("moments", "indices", "error feedback", "projector", "other"), 0)
    for states in rows.values():
        for name, size in states.items():
            sums[categories.get(name, "other")] += size
    return MemoryReport(
        sums["moments"], sums["indices"], sums["error feedback"], sums["projector"], sums["other"], basis, rows
    )


def state_bytes(optimizer: str, shape: Shape, *, rank: float, itemsize: int = 4, side: str = "auto") -> int:
    """The bytes of one matrix's state, without the shared basis.

    Parameters
    ----------
    optimizer : str
        One of `OPTIMIZERS`.
    shape : tuple of int
        Rows and columns of the weight.
    rank : int or float
        Kept columns, or their share.
    itemsize : int
        Bytes of a number.
    side : str
        As for the optimisers.

    Returns
    -------
    int
        For a right projection of R × C: AdamW 2RC s, Muon RC s, GaLore (2Rr + Cr) s, LDAdamW the same and RC s of
        error, Dion (RC + Cr) s, Trion RC s + 4r, DCT-AdamW 2Rr s + 4r and 0, RC s, RC + 8R or R⌈C/2⌉ + 8R of error;
        and 4 of a step counter where there is one.
    """
    rows, columns = shape[0], _product(shape[1:])
    right = projects_right(side, rows, columns)
    long, n = (rows, columns) if right else (columns, rows)
    r = resolve_rank(rank, n)
    whole, low, s = rows * columns, long * r, itemsize
    sizes = {
        "adamw": 2 * whole * s + STEP,
        # One byte a number, and the largest value of each block of 256 (bitsandbytes) in float32.
        "adamw-8bit": 2 * (whole + 4 * -(-whole // 256)) + STEP,
        "muon": whole * s,
        "galore": (2 * low + n * r) * s + STEP,
        "ldadamw": (2 * low + n * r + whole) * s + STEP,
        "dion": (whole + n * r) * s,
        "trion": whole * s + 4 * r,
        "dct-adamw": 2 * low * s + 4 * r + STEP,
        "dct-adamw-ef": (2 * low + whole) * s + 4 * r + STEP,
        "dct-adamw-ef8": 2 * low * s + 4 * r + whole + 8 * long + STEP,
        "dct-adamw-ef4": 2 * low * s + 4 * r + long * -(-n // 2) + 8 * long + STEP,
        "dct-frugal": 2 * low * s + 4 * r + STEP,
        "dct-fira": 2 * low * s + 4 * r + 4 + STEP,
    }
    if optimizer not in sizes:
        raise InputError(f"optimizer '{optimizer}'", expected=f"one of: {', '.join(OPTIMIZERS)}")
    return sizes[optimizer]


def estimate_memory(
    model_or_shapes: torch.nn.Module | Mapping[str, Shape],
    *,
    optimizers: Sequence[str] = OPTIMIZERS,
    rank: Sequence[float] = (0.25,),
    itemsize: int = 4,
    include: str = r"",
    exclude: str = r"(embed|lm_head|norm|wte|wpe)",
    matrix_free: bool = True,
) -> list[dict[str, Any]]:
    """What optimisers would keep for a model, from its shapes alone.

    Matrices whose names match `include` and not `exclude` are projected; all other parameters get AdamW.

    Parameters
    ----------
    model_or_shapes : Module, or mapping of str to tuple of int
        A model, on the ``meta`` device too, or parameters' shapes by name.
    optimizers : sequence of str
        Of `OPTIMIZERS`.
    rank : sequence of int or float
        One or more ranks, or shares.
    itemsize : int
        Bytes of a state's number: 4 for float32, 2 for bfloat16.
    include, exclude : str
        Regular expressions.
    matrix_free : bool
        Whether the DCT is computed by FFT; otherwise a matrix for each size counts too.

    Returns
    -------
    list of dict
        ``optimizer``, ``rank``, ``bytes``, ``share_of_adamw``, and ``basis_bytes``, one for each pair.

    Warns
    -----
    UserWarning
        A rank is larger than some matrices allow.

    Raises
    ------
    InputError
        An unknown optimiser or a wrong rank.

    Examples
    --------
    >>> rows = estimate_memory({"layer.weight": (1024, 1024)}, optimizers=["adamw", "dct-adamw"], rank=[0.25])
    >>> [row["bytes"] for row in rows]
    [8388612, 2098180]
    """
    # A model has few shapes and many parameters of each.
    low: Counter[Shape] = Counter()
    high: Counter[Shape] = Counter()
    for name, shape in _shapes(model_or_shapes).items():
        (low if _is_projected(name, shape, include, exclude) else high)[shape] += 1

    def total(optimizer: str, shapes: Counter[Shape], one: float) -> int:
        return sum(
            count * state_bytes(optimizer, shape, rank=one, itemsize=itemsize) for shape, count in shapes.items()
        )

    rest = total("adamw", high, 1.0)
    whole = rest + total("adamw", low, 1.0)
    rows = []
    for one in rank:
        small = sum(count for shape, count in low.items() if one > min(shape[0], _product(shape[1:])))
        if small:
            warnings.warn(f"rank {one} is larger than {small} matrices allow, whose columns are all kept", stacklevel=2)
        for optimizer in optimizers:
            uses_basis = optimizer.startswith("dct") or optimizer == "trion"
            lengths = {min(shape[0], _product(shape[1:])) for shape in low}
            basis = sum(n * n * itemsize for n in lengths) if uses_basis and not matrix_free else 0
            size = rest + total(optimizer, low, one) + basis
            rows.append(
                {
                    "optimizer": optimizer,
                    "rank": one,
                    "bytes": size,
                    "share_of_adamw": size / whole,
                    "basis_bytes": basis,
                }
            )
    return rows


def _shapes(model_or_shapes: Any) -> dict[str, Shape]:
    if isinstance(model_or_shapes, Mapping):
        return {name: tuple(shape) for name, shape in model_or_shapes.items()}
    return {name: tuple(parameter.shape) for name, parameter in model_or_shapes.named_parameters()}


def _is_projected(name: str, shape: Shape, include: str, exclude: str) -> bool:
    return len(shape) >= 2 and re.search(include, name) is not None and re.search(exclude, name) is None


def _product(sizes: Iterable[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def read_shapes(config: Mapping[str, Any]) -> dict[str, Shape]:
    """The parameters of a Llama-like model from its configuration: no weights, no imports.

    Parameters
    ----------
    config : mapping
        The fields of a Hugging Face ``config.json``.

    Returns
    -------
    dict of str to tuple of int

    Raises
    ------
    InputError
        A field is missing or no whole number.
    """

    def size(name: str, default: int | None = None) -> int:
        value = config.get(name, default)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"the configuration's {name} is {json.dumps(value)}", expected="a whole number from 1 on")
        if value > LARGEST:
            raise InputError(f"the configuration's {name} is beyond any model's", expected=f"at most {LARGEST}")
        return value

    def flag(name: str, default: bool) -> bool:
        value = config.get(name, default)
        if not isinstance(value, bool | None):
            raise InputError(f"the configuration's {name} is {json.dumps(value)}", expected="true or false")
        return default if value is None else value

    d, inner, layers, vocabulary = (
        size(one) for one in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")
    )
    if layers > MOST_LAYERS:
        raise InputError(f"the configuration's num_hidden_layers is {layers}", expected=f"at most {MOST_LAYERS}")
    heads = size("num_attention_heads")
    key_heads, head = size("num_key_value_heads", heads), size("head_dim", max(1, d // heads))
    if heads % key_heads:
        raise InputError(
            f"the configuration's num_key_value_heads is {key_heads} with {heads} heads", expected="a divisor of these"
        )
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (vocabulary, d)}
    # Qwen2's queries, keys and values always have a bias, and Mistral has none; Llama's configuration says so.
    kind = config.get("model_type", "llama")
    bias = kind == "qwen2" or (kind == "llama" and flag("attention_bias", False))
    output_bias = kind == "llama" and bias
    inner_bias = kind == "llama" and flag("mlp_bias", False)
    for number in range(layers):
        block = f"model.layers.{number}"
        outputs = {"q_proj": heads * head, "k_proj": key_heads * head, "v_proj": key_heads * head}
        for name, rows in outputs.items():
            shapes[f"{block}.self_attn.{name}.weight"] = (rows, d)
            if bias:
                shapes[f"{block}.self_attn.{name}.bias"] = (rows,)
        shapes[f"{block}.self_attn.o_proj.weight"] = (d, heads * head)
        if output_bias:
            shapes[f"{block}.self_attn.o_proj.bias"] = (d,)
        for name, sizes in {"gate_proj": (inner, d), "up_proj": (inner, d), "down_proj": (d, inner)}.items():
            shapes[f"{block}.mlp.{name}.weight"] = sizes
            if inner_bias:
                shapes[f"{block}.mlp.{name}.bias"] = sizes[:1]
        shapes[f"{block}.input_layernorm.weight"] = (d,)
        shapes[f"{block}.post_attention_layernorm.weight"] = (d,)
    shapes["model.norm.weight"] = (d,)
    if not flag("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (vocabulary, d)
    return shapes
