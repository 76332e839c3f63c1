"""The reward-model head: its losses against exact probabilities and against autograd's own differences."""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.core.errors import InputError
from assay.probit import (
    BestOfThreeTrainer,
    CompletionCollator,
    CorrelatedProbit,
    CorrelatedProbitHead,
    best_of_three_loss,
    choice_loss,
    pairwise_loss,
    personal_reward,
)
from assay.probit.head import CorrelatedRewardModel, log_bivariate


def rewards(batch: int, count: int, rank: int = 2, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(batch, count, generator=generator, dtype=torch.float64)
    return mean, torch.randn(batch, count, rank, generator=generator, dtype=torch.float64)


def model_of(mean: torch.Tensor, factor: torch.Tensor, psi: float = 1.0) -> CorrelatedProbit:
    covariance = factor @ factor.T + psi * torch.eye(len(mean))
    return CorrelatedProbit.from_parameters(mean.numpy(), covariance.numpy())


def test_the_loss_of_three_is_the_models_log_probability() -> None:
    mean, factor = rewards(5, 3)
    orders = torch.tensor([[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [2, 0, 1]])
    exact = [np.log(model_of(mean[row], factor[row], 0.5).prob(orders[row].tolist())) for row in range(5)]
    assert float(best_of_three_loss(mean, factor, orders, np.log(0.5))) == pytest.approx(-np.mean(exact), abs=1e-7)


@pytest.mark.parametrize(("count", "tolerance"), [(2, 1e-7), (3, 1e-7), (4, 0.01), (6, 0.02)])
def test_the_loss_of_a_choice_is_the_models_log_probability(count: int, tolerance: float) -> None:
    mean, factor = rewards(3, count, seed=1)
    chosen = torch.tensor([0, 1, count - 1])
    exact = [np.log(model_of(mean[row], factor[row]).prob_best(int(chosen[row]), range(count))) for row in range(3)]
    assert float(choice_loss(mean, factor, chosen, draws=1024)) == pytest.approx(-np.mean(exact), abs=tolerance)


def test_masked_completions_are_not_there() -> None:
    mean, factor = rewards(2, 5, seed=2)
    mask = torch.tensor([[True, True, True, False, False]] * 2)
    chosen = torch.tensor([0, 2])
    masked = choice_loss(mean, factor, chosen, mask=mask, draws=2048)
    assert float(masked) == pytest.approx(float(choice_loss(mean[:, :3], factor[:, :3], chosen)), abs=0.01)


def test_gradients_pass_autograds_check() -> None:
    h, k = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64), torch.tensor([0.1, 0.5, -2.0], dtype=torch.float64)
    rho = torch.tensor([0.2, -0.95, 0.97], dtype=torch.float64)
    assert torch.autograd.gradcheck(log_bivariate, [one.requires_grad_() for one in (h, k, rho)], eps=1e-6, atol=1e-5)
    mean, factor = (one.requires_grad_() for one in rewards(2, 3, seed=3))
    order = torch.tensor([[0, 1, 2], [2, 0, 1]])
    assert torch.autograd.gradcheck(lambda m, f: best_of_three_loss(m, f, order), [mean, factor], eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_rewards_give_a_float64_loss_and_finite_gradients_near_one(dtype: torch.dtype) -> None:
    mean = torch.zeros(1, 3, dtype=dtype, requires_grad=True)
    factor = torch.tensor([[[100.0], [-100.0], [-100.0]]], dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = best_of_three_loss(mean, factor, torch.tensor([[1, 0, 2]]))
    loss.backward()
    assert loss.dtype == torch.float64
    assert torch.isfinite(mean.grad).all()
    assert torch.isfinite(factor.grad).all()


def test_pairs_train_the_mean_only_and_say_so() -> None:
    mean, factor = (one.requires_grad_() for one in rewards(4, 2, seed=4))
    order = torch.tensor([[0, 1]] * 4)
    with pytest.warns(UserWarning, match="mean reward only"):
        loss = pairwise_loss(mean, factor, order)
    loss.backward()
    assert mean.grad.abs().sum() > 0
    assert factor.grad is None
    exact = [np.log(model_of(mean[row].detach(), factor[row].detach()).prob([0, 1])) for row in range(4)]
    assert float(loss) == pytest.approx(-np.mean(exact), abs=1e-7)


def test_the_head_learns_the_tastes_that_made_the_answers() -> None:
    rng = np.random.default_rng(0)
    features = torch.tensor(rng.standard_normal((3000, 3, 4)), dtype=torch.float32)
    beta, taste = torch.tensor([1.0, 0, 0, 0]), torch.tensor([[0.0, 0, 1.5, -1.5]]).T
    z = torch.tensor(rng.standard_normal((3000, 1, 1)), dtype=torch.float32)
    noise = torch.tensor(rng.standard_normal((3000, 3)), dtype=torch.float32)
    order = torch.argsort(features @ beta + (features @ taste @ z)[..., 0] + noise, dim=1, descending=True)
    torch.manual_seed(0)
    head = CorrelatedProbitHead(4, rank=1)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        mean, factor = head(features)
        best_of_three_loss(mean, factor, order, head.log_psi).backward()
        optimizer.step()
    weight = head.linear.weight.detach()
    assert weight[0] == pytest.approx(beta.numpy(), abs=0.15)
    assert np.abs(weight[1].numpy()) == pytest.approx(np.abs(taste[:, 0].numpy()), abs=0.25)


def test_personal_rewards_follow_a_persons_answers() -> None:
    mean, factor = torch.zeros(4), torch.tensor([[1.0], [-1.0], [2.0], [-2.0]])
    assert personal_reward(mean, factor, [(0, 1)]).argmax() == 2
    assert personal_reward(mean, factor, [(1, 0)]).argmax() == 3
    assert torch.equal(personal_reward(mean, factor, []), mean)
    with pytest.raises(InputError, match="outside the completions"):
        personal_reward(mean, factor, [(0, 9)])


def test_a_saved_head_is_the_same_head(tmp_path: Path) -> None:
    head = CorrelatedProbitHead(6, rank=3)
    head.save(tmp_path / "head.safetensors")
    again = CorrelatedProbitHead.load(tmp_path / "head.safetensors")
    assert torch.equal(head.linear.weight, again.linear.weight)
    (tmp_path / "other.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(InputError, match="damaged"):
        CorrelatedProbitHead.load(tmp_path / "other.safetensors")
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "kind.safetensors")
    with pytest.raises(InputError, match="another kind"):
        CorrelatedProbitHead.load(tmp_path / "kind.safetensors")


def words(texts: list[str], **_: object) -> dict[str, torch.Tensor]:
    """A tokenizer of a few words."""
    rows = [[1 + hash_of(word) for word in text.split()][:8] for text in texts]
    longest = max(map(len, rows))
    return {
        "input_ids": torch.tensor([row + [0] * (longest - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows]),
    }


def hash_of(word: str) -> int:
    return sum(word.encode()) % 30


ROWS = [
    {"prompt": "say ", "completions": ["yes", "no", "perhaps"], "ranking": [0, 2, 1]},
    {"prompt": "say ", "completions": ["no", "yes"], "ratings": [1, 2]},
    {"prompt": "say ", "completions": ["a", "yes", "no", "b"], "ranking": [1, [0, 3], 2]},
]


def test_the_collator_makes_all_events_of_a_batch() -> None:
    batch = CompletionCollator(words)(ROWS)
    assert len(batch["input_ids"]) == 9
    assert batch["triples"].tolist() == [[0, 2, 1], [6, 5, 8], [6, 5, 7], [6, 8, 7], [5, 8, 7]]
    assert batch["kinds"].tolist() == [0, 1, 0, 0, 2]
    assert batch["pairs"].tolist() == [[4, 3]]
    assert batch["weights"].tolist() == [1, 0.25, 0.25, 0.25, 0.25, 1]


def test_rows_that_prefer_nothing_make_no_event_and_chats_are_read_as_text() -> None:
    chat = [{"role": "user", "content": "?"}]
    tied = {"prompt": chat, "completions": ["x", "y", "z"], "ratings": [1, 1, 1]}
    batch = CompletionCollator(words)([tied, {"prompt": chat, "completions": ["x", "y", "z"], "ranking": [2, 1, 0]}])
    assert batch["triples"].tolist() == [[5, 4, 3]]
    assert batch["weights"].tolist() == [1.0]
    with pytest.raises(InputError, match="row 1: has no 'completions'"):
        CompletionCollator(words)([tied, {"prompt": "?"}])


class Bag(torch.nn.Module):
    """An encoder without layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 8)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> types.SimpleNamespace:
        return types.SimpleNamespace(last_hidden_state=self.embedding(input_ids))


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_the_trainer_lowers_the_loss_on_what_it_is_shown(pooling: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = CorrelatedRewardModel(Bag(), CorrelatedProbitHead(8, rank=2), pooling=pooling)
    batch = CompletionCollator(words)(ROWS)
    before = float(model(**batch)["loss"])
    args = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=30,
        per_device_train_batch_size=3,
        learning_rate=0.05,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = BestOfThreeTrainer(model, args, train_dataset=ROWS, data_collator=CompletionCollator(words))
    assert isinstance(trainer, transformers.Trainer)
    trainer.train()
    assert float(model(**batch)["loss"]) < before / 2
