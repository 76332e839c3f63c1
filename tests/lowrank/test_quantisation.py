"""Rows in few bits: the error bound, exactness and order that the published code lacks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.lowrank.quantisation import dequantise, packed_columns, quantise

BITS = pytest.mark.parametrize("bits", [8, 4])


@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 33),
    seed=st.integers(0, 999),
    bits=st.sampled_from([8, 4]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
@settings(deadline=None, max_examples=60)
def test_the_error_is_at_most_half_a_step_and_a_second_time_changes_nothing(rows, columns, seed, bits, scale):
    x = scale * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    stored = quantise(x, bits=bits)
    assert stored.codes.shape == (rows, packed_columns(columns, bits))
    restored = dequantise(stored, bits=bits, columns=columns)
    step = (x.amax(1) - x.amin(1)) / (255 if bits == 8 else 15)
    assert ((restored - x).abs().amax(1) <= step / 2 * (1 + 1e-3) + 1e-6 * x.abs().amax(1)).all()
    again = dequantise(quantise(restored, bits=bits), bits=bits, columns=columns)
    assert (again - restored).abs().max() <= 2e-6 * x.abs().max()


@BITS
@pytest.mark.parametrize("value", [0.0, -3.25, 1e-30])
def test_constant_rows_come_back_as_they_were(bits, value):
    x = torch.full((3, 7), value)
    assert torch.equal(dequantise(quantise(x, bits=bits), bits=bits, columns=7), x)


@BITS
@pytest.mark.parametrize("columns", [15, 16])
def test_the_order_of_a_ramp_is_kept(bits, columns):
    ramp = torch.arange(columns, dtype=torch.float32).unsqueeze(0)
    restored = dequantise(quantise(ramp, bits=bits), bits=bits, columns=columns)
    assert restored.argsort(dim=1, stable=True).tolist() == ramp.argsort(dim=1).tolist()


def test_the_even_value_is_in_the_high_half():
    assert quantise(torch.tensor([[15.0, 0.0, 7.0]]), bits=4).codes.tolist() == [[0xF0, 0x70]]


def test_eight_bits_have_256_levels():
    ramp = torch.arange(256, dtype=torch.float32).unsqueeze(0)
    assert torch.equal(dequantise(quantise(ramp, bits=8), bits=8, columns=256), ramp)


def test_other_bits_are_refused():
    with pytest.raises(InputError, match="bits is 3"):
        quantise(torch.zeros(1, 1), bits=3)
