"""Which parameter goes where, the probe against numpy, and Hugging Face's Trainer."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.fft
import torch
from torch import nn

from assay.core.errors import InputError
from assay.lowrank import DCTAdamW, low_rank_param_groups, probe_projection, projection_callback, trainer_optimizer
from assay.lowrank.probe import energy_kept
from assay.lowrank.trainer import OPTIMIZER_CLASSES


class Small(nn.Module):
    """An embedding, a block, and a head that is tied to the embedding or not."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.up = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.down = nn.Linear(16, 8, bias=False)
        self.conv = nn.Conv1d(8, 8, 3)
        self.lm_head = nn.Linear(8, 20, bias=False)
        if tied:
            self.lm_head.weight = self.embed.weight

    def forward(self, x):
        return self.lm_head(self.down(self.norm(self.up(self.embed(x)))))


@pytest.mark.parametrize("tied", [True, False])
def test_linear_layers_are_projected_and_nothing_else(tied):
    groups, table = low_rank_param_groups(Small(tied), rank=4, lr=0.5)
    assert [row[0] for row in table.rows if row[2] == "low rank"] == ["up.weight", "down.weight"]
    assert [name for name, _ in groups[0]["params"]] == ["up.weight", "down.weight"]
    assert groups[0]["lr"] == 0.5
    assert sum(len(group["params"]) for group in groups) == len(list(Small(tied).parameters()))
    assert "up.bias" in str(table)
    DCTAdamW(groups, 1e-3)


def test_convolutions_and_patterns_are_as_asked_for():
    _, table = low_rank_param_groups(Small(), include="conv|up", convolutions=True)
    assert [row[0] for row in table.rows if row[2] == "low rank"] == ["up.weight", "conv.weight"]


def test_frozen_parameters_are_left_out():
    model = Small()
    model.up.weight.requires_grad_(False)
    assert "up.weight" not in [row[0] for row in low_rank_param_groups(model)[1].rows]


def test_a_projected_head_and_an_empty_choice_are_warned_of():
    with pytest.warns(UserWarning, match=r"lm_head\.weight looks like a head"):
        low_rank_param_groups(Small(), exclude="norm")
    with pytest.warns(UserWarning, match="no parameter is projected"):
        groups, _ = low_rank_param_groups(Small(), include="nothing")
    assert [group["low_rank"] for group in groups] == [False]


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"include": "("}, {"exclude": "["}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(InputError):
        low_rank_param_groups(Small(), **wrong)


def squares(model, batch):
    return model(batch).square().mean()


def test_the_probe_gives_scipys_energies_of_the_gradient():
    model, x = nn.Sequential(nn.Linear(12, 20, bias=False), nn.Tanh(), nn.Linear(20, 6, bias=False)), torch.randn(5, 12)
    before = [p.detach().clone() for p in model.parameters()]
    report = probe_projection(model, [x, x], [3, 0.5], ["dct2", "dct3", "identity", "svd"], 1, loss=squares)
    assert report.steps == 1
    squares(model, x).backward()
    gradient = model[0].weight.grad.double().numpy()
    columns = {
        "dct2": scipy.fft.dct(gradient, norm="ortho"),
        "dct3": scipy.fft.idct(gradient, norm="ortho"),
        "identity": gradient,
    }
    for row in report.rows:
        if row["layer"] != "0.weight":
            continue
        powers = np.linalg.svd(gradient)[1] ** 2 if row["basis"] == "svd" else (columns[row["basis"]] ** 2).sum(0)
        assert row["energy"] == pytest.approx(np.sort(powers)[::-1][: row["rank"]].sum() / powers.sum(), abs=1e-5)
        assert row["error"] == pytest.approx(math.sqrt(max(0, 1 - row["energy"])), abs=1e-9)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert json.loads(report.to_json())["steps"] == 1
    assert report.to_csv().count("\n") == len(report.rows) + 1
    assert list(report.to_frame()["layer"].unique()) == ["0.weight", "2.weight"]
    assert {row["basis"] for row in report.means()} == {"dct2", "dct3", "identity", "svd"}
    assert report.plot().axes


def test_a_layer_with_an_ordered_input_is_recognised_and_an_exchangeable_one_is_not():
    generator = torch.Generator().manual_seed(0)
    rho, n = 0.98, 64
    rows = [torch.randn(256, generator=generator)]
    for _ in range(n - 1):
        rows.append(rho * rows[-1] + math.sqrt(1 - rho**2) * torch.randn(256, generator=generator))
    ordered = torch.stack(rows, 1)
    model = nn.Linear(n, 96, bias=False)
    target = torch.randn(256, 96, generator=generator)
    for x, expected in ((ordered, True), (torch.randn(256, n, generator=generator), False)):
        report = probe_projection(
            model, [x], [1 / 16], ["dct2", "random", "svd"], 1, loss=lambda m, b: (m(b) - target).square().mean()
        )
        assert report.ordered == {"weight": expected}


def test_where_all_is_kept_rounding_makes_no_axis_ordered():
    x = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(*[nn.Linear(12, 12) for _ in range(8)])
    assert not any(probe_projection(model, [x], [12], ["dct2"], 1, loss=squares).ordered.values())


def test_the_smallest_rank_says_whether_an_axis_is_ordered_shares_or_not():
    x = torch.linspace(-1, 1, 64).repeat(8, 1) * torch.linspace(1, 2, 8)[:, None]
    for ranks in ([64, 1 / 32], [2, 1.0], [1.0, 2]):
        report = probe_projection(nn.Linear(64, 64), [x], ranks, ["dct2"], 1, loss=squares)
        assert report.ordered == {"weight": True}


@pytest.mark.parametrize("bases", [["dct2"], ["svd"]], ids=str)
def test_a_gradient_that_is_not_finite_is_no_energy(bases):
    with pytest.raises(InputError, match="the gradient of weight is NaN or infinite"):
        probe_projection(nn.Linear(4, 4), [torch.full((2, 4), float("inf"))], [2], bases, 1, loss=squares)


def test_a_zero_gradient_is_kept_whole():
    assert energy_kept(torch.zeros(3, 4), 2) == 1


@pytest.mark.parametrize(
    "wrong", [{"bases": ["sine"]}, {"ranks": [0]}, {"steps": 0}, {"data_iter": []}, {"include": "nothing"}]
)
@pytest.mark.filterwarnings("ignore:no parameter")
def test_a_wrong_probe_is_refused(wrong):
    arguments = {"data_iter": [torch.randn(2, 4)], "ranks": [1], "loss": squares, **wrong}
    with pytest.raises(InputError):
        probe_projection(nn.Linear(4, 4), **arguments)


def test_the_trainer_takes_the_optimiser_and_logs_what_it_keeps(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
    )
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-2,
    )
    model = transformers.LlamaForCausalLM(config)
    optimizer = trainer_optimizer(model, arguments, rank=4, error_feedback=8)
    trainer = transformers.Trainer(
        model, arguments, train_dataset=data, optimizers=(optimizer, None), callbacks=[projection_callback()]
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "energy_kept" in entry]
    assert len(logs) >= 3
    assert all(0 < entry["energy_kept"] <= 1 and 0 <= entry["index_churn"] <= 1 for entry in logs)
    assert logs[0]["optimizer_state_bytes"] == optimizer.memory_report().total
    model = transformers.LlamaForCausalLM(config)
    trainer = transformers.Trainer(
        model, arguments, train_dataset=data, optimizer_cls_and_kwargs=(DCTAdamW, {"lr": 1e-2, "rank": 4})
    )
    trainer.train()


@pytest.mark.parametrize("name", list(OPTIMIZER_CLASSES))
def test_every_optimiser_can_be_had_for_a_trainer_and_learns(name):
    from types import SimpleNamespace

    arguments = SimpleNamespace(
        learning_rate=1e-2, weight_decay=0.0, adam_beta1=0.9, adam_beta2=0.99, adam_epsilon=1e-8
    )
    torch.manual_seed(0)
    model, x = Small(), torch.randint(20, (4, 6))
    optimizer = trainer_optimizer(model, arguments, optimizer=name, rank=4)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
    with pytest.raises(InputError, match="optimizer is 'sgd'"):
        trainer_optimizer(model, arguments, optimizer="sgd")
