"""Bytes: formulas against live tensors, estimates without weights, and temporaries within their bound."""

from __future__ import annotations

import json
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from assay.core.errors import InputError
from assay.lowrank import DCTAdamW, DCTFiraAdamW, DCTFrugalAdamW, DCTGaLoreAdamW, Dion, LDAdamW, Trion, estimate_memory
from assay.lowrank.allocation import LiveBytes
from assay.lowrank.memory import OPTIMIZERS, read_shapes, state_bytes

MAKERS = {
    "galore": lambda p, r: DCTGaLoreAdamW(p, 1e-3, rank=r, projection="svd"),
    "ldadamw": lambda p, r: LDAdamW(p, 1e-3, rank=r),
    "dion": lambda p, r: Dion(p, 1e-3, rank=r),
    "trion": lambda p, r: Trion(p, 1e-3, rank=r),
    "dct-adamw": lambda p, r: DCTAdamW(p, 1e-3, rank=r),
    "dct-adamw-ef": lambda p, r: DCTAdamW(p, 1e-3, rank=r, error_feedback="fp"),
    "dct-adamw-ef8": lambda p, r: DCTAdamW(p, 1e-3, rank=r, error_feedback=8),
    "dct-adamw-ef4": lambda p, r: DCTAdamW(p, 1e-3, rank=r, error_feedback=4),
    "dct-frugal": lambda p, r: DCTFrugalAdamW(p, 1e-3, rank=r),
    "dct-fira": lambda p, r: DCTFiraAdamW(p, 1e-3, rank=r),
}


@given(
    rows=st.integers(1, 20),
    columns=st.integers(1, 20),
    share=st.floats(0.05, 1),
    name=st.sampled_from([*MAKERS, "adamw", "muon"]),
)
@settings(deadline=None, max_examples=60)
def test_the_formula_is_the_bytes_of_the_live_tensors(rows, columns, share, name):
    parameter = nn.Parameter(torch.randn(rows, columns))
    parameter.grad = torch.randn(rows, columns)
    if name in MAKERS:
        optimizer = MAKERS[name]([parameter], share)
        optimizer.step()
        assert optimizer.memory_report().state == sum(value.nbytes for value in optimizer.state[parameter].values())
    else:
        optimizer = (torch.optim.AdamW if name == "adamw" else torch.optim.Muon)([parameter], lr=1e-3)
        optimizer.step()
    live = sum(value.nbytes for value in optimizer.state[parameter].values())
    assert live == state_bytes(name, (rows, columns), rank=share)


def test_the_report_has_the_categories_and_the_bases():
    weight, bias = nn.Parameter(torch.randn(12, 8)), nn.Parameter(torch.randn(8))
    optimizer = DCTAdamW([("w", weight), ("b", bias)], 1e-3, rank=2, error_feedback=4, transform="matmul")
    weight.grad, bias.grad = torch.randn(12, 8), torch.randn(8)
    optimizer.step()
    report = optimizer.memory_report()
    assert report.as_dict() == {
        "moments": (2 * 12 * 2 + 2 * 8) * 4,
        "indices": 8,
        "error_feedback": 12 * 4 + 12 * 8,
        "projector": 0,
        "other": 8,
        "basis": 8 * 8 * 4,
        "state": (2 * 12 * 2 + 2 * 8) * 4 + 8 + 12 * 4 + 12 * 8 + 8,
        "total": (2 * 12 * 2 + 2 * 8) * 4 + 8 + 12 * 4 + 12 * 8 + 8 + 256,
    }
    assert report.by_parameter["b"] == {"step": 4, "exp_avg": 32, "exp_avg_sq": 32}


def test_an_estimate_for_a_model_equals_its_optimisers_live_bytes():
    model = nn.Sequential(nn.Linear(24, 40), nn.LayerNorm(40), nn.Linear(40, 8))
    optimizer = DCTAdamW(model.parameters(), 1e-3, rank=0.25)
    model(torch.randn(3, 24)).sum().backward()
    optimizer.step()
    (row,) = estimate_memory(model, optimizers=["dct-adamw"], rank=[0.25])
    assert row["bytes"] == optimizer.memory_report().state
    with torch.device("meta"):
        without_weights = nn.Sequential(nn.Linear(24, 40), nn.LayerNorm(40), nn.Linear(40, 8))
    assert estimate_memory(without_weights, optimizers=["dct-adamw"], rank=[0.25]) == [row]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Llama", {}),
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Llama", {"tie_word_embeddings": True, "head_dim": 8}),
        ("Mistral", {"attention_bias": True}),
        ("Qwen2", {}),
    ],
    ids=str,
)
def test_shapes_of_a_configuration_are_those_of_the_model(kind, more):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
        **{"tie_word_embeddings": False, **more},
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert read_shapes(json.loads(config.to_json_string(use_diff=False))) == {
        name: tuple(p.shape) for name, p in model.named_parameters()
    }


@pytest.mark.parametrize("wrong", [{}, {"hidden_size": "large"}, {"hidden_size": 0}, {"hidden_size": True}])
def test_an_incomplete_configuration_is_refused(wrong):
    with pytest.raises(InputError, match="the configuration's hidden_size is"):
        read_shapes(wrong)


def test_a_hundred_thousand_matrices_are_counted_at_once():
    shapes = {f"layer.{number}.weight": (4 + number % 2, 4) for number in range(100_000)}
    start = time.perf_counter()
    rows = estimate_memory(shapes, rank=[0.25, 0.5])
    assert time.perf_counter() - start < 10  # It took minutes when each was counted by itself.
    found = {(row["optimizer"], row["rank"]): row["bytes"] for row in rows}
    for name in OPTIMIZERS:
        each = sum(state_bytes(name, shape, rank=0.5) for shape in ((4, 4), (5, 4)))
        assert found[name, 0.5] == 50_000 * each


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(InputError, match="optimizer 'sgd'; expected one of: adamw"):
        estimate_memory({"w": (4, 4)}, optimizers=["sgd"])


@pytest.mark.parametrize("kind", ["dct-adamw", "dct-adamw-ef8", "dct-adamw-ef", "trion"])
@pytest.mark.parametrize("transform", ["fft", "matmul"])
def test_temporaries_stay_within_their_bound(kind, transform):
    room = 1.0
    options = {"max_temp_mb": room, "rank": 64, "transform": transform}
    bits = {"dct-adamw-ef8": 8, "dct-adamw-ef": "fp"}.get(kind)
    shapes = ((1500, 256), (256, 1500), (64, 300), (64, 300), (64, 300), (5000,))
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    # Trion's coefficients are whole: as large as a share of the weight, in the iteration a few times.
    extra = 6 * 1500 * 64 * 4 if kind == "trion" else 0
    optimizer = (
        Trion(parameters, **options) if kind == "trion" else DCTAdamW(parameters, 1e-3, error_feedback=bits, **options)
    )
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        with LiveBytes() as counter:
            optimizer.step()
        if optimizer.param_groups[0].get("warm"):
            assert counter.peak <= room * 1e6 + extra
        optimizer.param_groups[0]["warm"] = True
    assert counter.peak > 1e5
