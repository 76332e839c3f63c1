"""The evaluation harness: what it is asked, on which weights, and what its answers become.

A stand-in takes the place of the package, whose own tasks need the network.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from assay.core.errors import AssayError, InputError, MissingPackageError
from assay.core.lm import random_llama
from assay.edit.fine_tuning import fine_tune
from assay.edit.harness import harness_scores
from assay.edit.requests import EditRequest

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def asked(monkeypatch):
    """What the stand-in was asked; it takes down a weight of the model that it is given."""
    found = []

    def simple_evaluate(wrapped, *, tasks, **options):
        if "absent" in tasks:
            raise KeyError("absent")
        weight = dict(wrapped.pretrained.named_parameters())[NAME].detach().clone()
        found.append(SimpleNamespace(tasks=tasks, weight=weight, **options))
        row = {"acc,none": 0.25, "acc_stderr,none": 0.1, "alias": "tiny", "sample_len": 4}
        return {"results": dict.fromkeys(tasks, row)}

    class HFLM:
        def __init__(self, *, pretrained, tokenizer, batch_size):
            self.pretrained = pretrained

    for name, attributes in (
        ("lm_eval", {"simple_evaluate": simple_evaluate}),
        ("lm_eval.models", {}),
        ("lm_eval.models.huggingface", {"HFLM": HFLM}),
    ):
        module = ModuleType(name)
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    return found


def test_the_patch_is_in_the_model_while_it_is_scored_and_out_of_it_afterwards(asked):
    lm = random_llama()
    before = dict(lm.model.named_parameters())[NAME].detach().clone()
    patch = fine_tune(lm.model, lm.tokenizer, [EditRequest("Who?", "Ann.")], steps=2)
    assert harness_scores(lm.model, lm.tokenizer, ["mmlu"], shots=3, limit=7) == {"mmlu/acc": 0.25}
    harness_scores(lm.model, lm.tokenizer, ["mmlu"], patch=patch)
    assert (asked[0].tasks, asked[0].num_fewshot, asked[0].limit) == (["mmlu"], 3, 7)
    assert torch.equal(asked[0].weight, before)
    assert torch.equal(asked[1].weight, patch.tensors[NAME])
    assert torch.equal(dict(lm.model.named_parameters())[NAME], before)


def test_what_the_harness_can_t_do_is_said_in_one_line(asked):
    lm = random_llama()
    with pytest.raises(AssayError, match="the evaluation harness fails on absent: 'absent'"):
        harness_scores(lm.model, lm.tokenizer, ["absent"])
    with pytest.raises(InputError, match="there is no task"):
        harness_scores(lm.model, lm.tokenizer, [])
    with pytest.raises(InputError, match="shots is -1"):
        harness_scores(lm.model, lm.tokenizer, ["mmlu"], shots=-1)
    assert not asked


def test_a_missing_harness_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    lm = random_llama()
    with pytest.raises(MissingPackageError, match="edit-harness"):
        harness_scores(lm.model, lm.tokenizer, ["mmlu"])
