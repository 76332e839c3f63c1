"""The study's own machinery: its trials against what is known, and one smoke run of it."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from assay.core.errors import InputError
from assay.core.study import Trial
from assay.core.texts import ByteTokens, hub_documents, read_texts
from assay.lowrank import trials, tuning
from assay.lowrank.published import PublishedQuantiserAdamW, published_round_trip
from assay.lowrank.quantisation import dequantise, quantise
from assay.lowrank.study import ARMS, BASES, SMOKE, STUDY, TRAINED, TUNED
from assay.lowrank.texts import StreamCorpus
from assay.lowrank.trials import run_trial
from assay.lowrank.tuning import best_rates

ROOT = Path(__file__).parents[2]


def trial_of(arm: str, case: str, seed: int = 0) -> Trial:
    settings = next(one.settings for one in SMOKE.cases if one.name == case)
    return Trial("lowrank", arm, case, seed, "smoke", ARMS[arm].settings, settings)


def test_no_choice_violates_and_the_best_subspace_is_best():
    found = run_trial(trial_of("dct", "selection"))
    assert found["violations"] == 0
    assert found["excess"] < 1e-12
    errors = {
        arm: run_trial(trial_of(arm, "ordered"))
        for arm in ARMS
        if any(arm == one or (one == "*-basis" and arm.endswith("-basis")) for one in BASES)
    }
    for name in ("16", "4", "2"):
        assert all(errors["svd"][f"error_{name}"] <= one[f"error_{name}"] + 1e-6 for one in errors.values())
    assert errors["dct"]["error_16"] < 0.3 < errors["random-basis"]["error_16"]


def test_arms_are_trained_on_the_same_weights_and_batches_and_again_the_same():
    first = run_trial(trial_of("dct-adamw", "train-python"))
    again = run_trial(trial_of("dct-adamw", "train-python"))
    assert first["validation_loss"] == again["validation_loss"]
    assert first["validation_loss"] != run_trial(trial_of("dct-adamw", "train-python", seed=1))["validation_loss"]
    assert math.isfinite(first["projection_error"])


@pytest.mark.parametrize("arm", TRAINED)
def test_every_arm_trains(arm):
    assert run_trial(trial_of(arm, "train-python"))["validation_loss"] < 6


def test_a_users_own_optimiser_trains():
    trial = trial_of("adamw", "train-python")
    trial.function = lambda model: torch.optim.SGD(model.parameters(), lr=0.1)
    assert run_trial(trial)["state_bytes"] == 0


@pytest.mark.parametrize("arm", [name for name, arm in ARMS.items() if "formula" in arm.settings])
def test_live_bytes_are_the_formulas(arm):
    found = run_trial(trial_of(arm, "bytes"))
    assert found["violations"] == 0
    assert found.get("temporaries_over_bound", 0) <= 1


def test_the_published_quantisers_lose_what_the_specification_says():
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    right = dequantise(quantise(x, bits=8), bits=8, columns=8)
    assert (published_round_trip(x, bits=8) - x).abs().max() > 10 * (right - x).abs().max()
    ramp = torch.arange(16.0).unsqueeze(0)
    assert published_round_trip(ramp, bits=4).tolist() != ramp.tolist()
    assert torch.equal(published_round_trip(ramp, bits=4).sort().values, ramp)
    layer = torch.nn.Linear(8, 8, bias=False)
    optimizer = PublishedQuantiserAdamW(layer.parameters(), 1e-3, bits=8, rank=2)
    layer(x).square().sum().backward()
    optimizer.step()
    assert optimizer.state[layer.weight]["error"].unique(dim=1).shape[1] <= 16


def test_claims_look_at_measurements_that_are_named():
    for claim in STUDY.claims:
        measure = getattr(claim.test, "measure", None)
        assert measure is None or measure in STUDY.measures


def test_every_arm_was_tuned_alike_and_its_best_rate_is_inside_its_grid():
    table = json.loads((ROOT / "docs/results/lowrank/tuning.json").read_text(encoding="utf-8"))
    assert set(table) == set(TRAINED) == set(TUNED)
    assert best_rates(table) == TUNED
    for arm, row in table.items():
        rates = sorted(float(rate) for rate in row)
        assert len(rates) >= 5, arm
        assert rates[0] < TUNED[arm] < rates[-1], arm
        assert all(after == pytest.approx(2 * before, rel=1e-4) for before, after in pairwise(rates)), arm


def test_a_grid_grows_until_the_best_rate_is_inside(tmp_path, monkeypatch):
    calls = []

    def loss(arm, rate, seed):
        calls.append((arm, rate, seed))
        return abs(math.log(rate / 0.3))

    monkeypatch.setattr(tuning, "_loss", loss)
    monkeypatch.setattr(tuning, "TRAINED", ("trion",))
    table = tuning.tune(tmp_path / "table.json", workers=1)
    assert best_rates(table) == {"trion": 0.32}
    assert [float(rate) for rate in table["trion"]] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64]
    assert {seed for _, _, seed in calls} == {1000, 1001, 1002, 1003}
    assert [rate for _, rate, seed in calls if seed == 1003] == [0.16, 0.32, 0.64]
    assert tuning.tune(tmp_path / "table.json", workers=1) == table
    assert len(calls) == 16 + 6


def test_the_papers_cases_stream_their_text_and_add_up_gradients(monkeypatch):
    """Their code on a small model: documents in place of the hub's, bytes in place of its tokenizer's tokens."""
    asked = []

    def documents(source, *, seed=None, split="train"):
        asked.append((source, split))
        return (f"document {number} of {split}. " * 9 for number in range(400))

    monkeypatch.setattr(trials, "hub_documents", documents)
    monkeypatch.setattr(trials, "load_tokens", lambda name: ByteTokens())
    small = {"device": "cpu", "width": 16, "heads": 2, "layers": 1, "rank": 4, "batch": 4, "context": 16, "steps": 6}
    case = next(one for one in STUDY.scales["paper"].cases if one.name == "c4-350m")
    losses = []
    for micro in (0, 2):
        settings = {**case.settings, **small, "half": False, "micro": micro}
        for arm in ("trion", "dion", "muon", "dct-adamw"):
            trial = Trial("lowrank", arm, case.name, 0, "paper", ARMS[arm].settings, settings)
            losses.append(run_trial(trial)["validation_loss"])
    assert losses[:4] == pytest.approx(losses[4:], abs=1e-4)
    assert max(losses) < 5.6
    assert set(asked) == {("allenai/c4:en", "train"), ("allenai/c4:en", "validation")}
    assert case.lacks is not None


def test_a_stream_gives_the_rows_of_its_documents_in_order_and_again_after_a_jump():
    def documents(seed):
        return iter([f"{seed}abcdef", "ghij", "klm"])

    stream = StreamCorpus(documents, ["validate", "d"], ByteTokens(), context=4)
    rows = [bytes(row.tolist()).decode() for step in range(3) for row in stream.batch(step, size=2, seed=7)]
    assert rows == ["7abc", "defg", "hijk", "lm7a", "bcde", "fghi"]
    assert [bytes(row.tolist()).decode() for row in stream.batch(1, size=2, seed=7)] == rows[2:4]
    assert [bytes(row.tolist()).decode() for row in stream.validation(rows=9)] == ["vali", "date"]
    with pytest.raises(InputError, match="no documents"):
        StreamCorpus(lambda seed: [], [], ByteTokens(), context=4).batch(0, size=1, seed=0)
    with pytest.raises(InputError, match="too short"):
        stream.__class__(documents, ["abc"], ByteTokens(), context=4).validation(rows=1)


def test_documents_of_the_hub_are_streamed_and_its_errors_told(monkeypatch):
    datasets = pytest.importorskip("datasets")
    rows = [{"text": "one"}, {"text": "two"}]
    made = datasets.IterableDataset.from_generator(lambda: iter(rows))
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: made)
    assert list(hub_documents("owner/name")) == ["one", "two"]
    assert sorted(hub_documents("owner/name", seed=3)) == ["one", "two"]
    assert read_texts("owner/name:config") == ["one", "two"]
    with pytest.raises(InputError, match="has no field 'body'"):
        list(hub_documents("owner/name", column="body"))
