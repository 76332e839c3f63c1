"""Devices, dtypes and seeds."""

from __future__ import annotations

import sys

import pytest

from assay.core.device import gpu_names, resolve_device, resolve_dtype, torch_generator
from assay.core.errors import InputError, MissingPackageError


def test_auto_is_the_cpu_where_there_is_no_gpu():
    expected = "cuda" if gpu_names() else "cpu"
    assert resolve_device().type == expected
    assert resolve_device("cpu").type == "cpu"


@pytest.mark.parametrize("name", ["nonsense", "cuda:99", ""])
def test_device_that_is_not_here_is_refused(name):
    with pytest.raises(InputError, match=f"device '{name}'"):
        resolve_device(name)


def test_dtypes_have_their_torch_names():
    import torch

    assert resolve_dtype("float64") is torch.float64
    with pytest.raises(InputError, match="dtype 'int8'; expected one of: float32"):
        resolve_dtype("int8")


def test_generator_repeats():
    import torch

    draws = [torch.rand(3, generator=torch_generator(7)) for _ in range(2)]
    assert torch.equal(*draws)


def test_without_torch_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'assay\[torch\]'"):
        resolve_device()
