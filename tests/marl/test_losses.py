"""The losses against the formulas written out step by step, and what must not change them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from assay.core.errors import InputError
from assay.marl.losses import (
    S2QLoss,
    candidate_distribution,
    greedy_actions,
    masked_mean,
    suppressed_target,
)
from assay.marl.spec import EnvSpec
from tests.marl.batches import SPEC, random_batch, rows

SMALL = {"hidden": 8, "embed": 4, "hypernet": 6, "critic_width": 8}


def make(seed: int = 0, **settings: Any) -> S2QLoss:
    return S2QLoss(SPEC, **{**SMALL, **settings}, seed=seed).double()


def loosened(loss: S2QLoss, seed: int = 5) -> S2QLoss:
    """With target copies that differ from what is learnt, and weights large enough to tell actions apart."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return loss


def utilities(net: Any, obs_TNO: Tensor, actions_TN: Tensor) -> tuple[Tensor, Tensor]:
    """The agents' values step by step, shape (T + 1, N, A), with the GRU's equations written out."""
    q, hidden, h = [], [], torch.zeros(SPEC.n_agents, net.hidden, dtype=torch.float64)
    for t, obs in enumerate(obs_TNO):
        last = torch.zeros(SPEC.n_agents, SPEC.n_actions, dtype=torch.float64)
        if t > 0:
            last[torch.arange(SPEC.n_agents), actions_TN[t - 1]] = 1
        x = torch.relu(net.into(torch.cat([obs, last], -1)))
        if net.recurrent:
            gates_x = x @ net.core.weight_ih_l0.T + net.core.bias_ih_l0
            gates_h = h @ net.core.weight_hh_l0.T + net.core.bias_hh_l0
            r, z = ((a + b).sigmoid() for a, b in zip(gates_x.chunk(3, -1)[:2], gates_h.chunk(3, -1)[:2], strict=True))
            new = torch.tanh(gates_x.chunk(3, -1)[2] + r * gates_h.chunk(3, -1)[2])
            h = (1 - z) * new + z * h
        else:
            h = torch.relu(net.core(x))
        hidden.append(h)
        q.append(net.out(h))
    return torch.stack(q), torch.stack(hidden)


def by_the_book(loss: S2QLoss, batch: dict[str, Tensor]) -> dict[str, float]:
    """All losses, episode by episode and step by step, without padding."""
    sums: dict[str, float] = {}
    count = 0
    for row in range(len(batch["reward"])):
        steps = int(batch["filled"][row].sum())
        episode = {name: value[0] for name, value in rows(batch, [row], steps=steps).items()}
        count += steps
        for name, value in _episode_sums(loss, episode, steps).items():
            sums[name] = sums.get(name, 0.0) + value
    return {name: value / count for name, value in sums.items()}


def _episode_sums(loss: S2QLoss, e: dict[str, Tensor], steps: int) -> dict[str, float]:
    assert loss.critic is not None and loss.target_critic is not None and loss.coordinator is not None
    everyone = torch.arange(SPEC.n_agents)
    levels = [utilities(net, e["obs"], e["actions"]) for net in loss.agents]
    online, _ = utilities(loss.critic.agent, e["obs"], e["actions"])
    slow, _ = utilities(loss.target_critic.agent, e["obs"], e["actions"])

    def best(k: int, t: int) -> list[int]:
        allowed = [[a for a in range(SPEC.n_actions) if e["avail"][t, i, a]] for i in everyone]
        return [max(allowed[i], key=lambda a: float(levels[k][0][t, i, a])) for i in everyone]

    def critic(net: Any, q: Tensor, t: int, actions: list[int]) -> float:
        chosen = torch.stack([q[t, i, a] for i, a in enumerate(actions)])
        hidden = net.first(torch.cat([chosen, e["state"][t]]))
        return float(net.rest(torch.relu(hidden)) + net.baseline(e["state"][t]))

    target = [0.0] * steps
    for t in reversed(range(steps)):
        b = critic(loss.target_critic, slow, t + 1, best(0, t + 1))
        ahead = b if t == steps - 1 else (1 - loss.td_lambda) * b + loss.td_lambda * target[t + 1]
        target[t] = float(e["reward"][t]) + loss.gamma * (1 - float(e["terminated"][t])) * ahead
    sums: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        sums[name] = sums.get(name, 0.0) + value

    for t in range(steps):
        taken = e["actions"][t].tolist()
        held = [best(k, t) for k in range(loss.K + 1)]
        values = [critic(loss.target_critic, slow, t, actions) for actions in held]
        now = critic(loss.critic, online, t, taken)
        add("loss_reference", (now - target[t]) ** 2)
        for k in range(loss.K + 1):
            chosen = torch.stack([levels[k][0][t, i, a] for i, a in enumerate(taken)])
            value = float(loss.mixers[k](chosen, e["state"][t]))
            y = target[t]
            if taken in held[:k]:
                reference = critic(loss.target_critic, slow, t, taken)
                y -= loss.alpha * max(reference, loss.floor) if loss.suppression == "paper" else loss.alpha * now
            if loss.weighting == "none":
                weight = 1.0
            elif k > 0 or loss.weighting == "ow":
                weight = 1.0 if value < y else loss.w_c
            elif loss.weighting == "cw":
                weight = 1.0 if taken == held[0] or now > values[0] else loss.w_c
            else:
                weight = 1.0 if all(now >= other for other in values) else loss.w_c
            add(f"loss_{k}", weight * (value - y) ** 2)
        guess, logits = loss.coordinator(levels[0][1][t].flatten())
        p = np.exp(np.array(values) / loss.temperature - max(values) / loss.temperature)
        p /= p.sum()
        kl = float((p * (np.log(p) - torch.log_softmax(logits, -1).numpy())).sum())
        add("loss_coordinator", kl / (loss.K + 1) + float((guess - e["state"][t]).square().mean()))
    return sums


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("weighting", ["s2q", "ow", "cw", "none"])
@pytest.mark.parametrize("suppression", ["paper", "code"])
def test_every_loss_equals_the_formulas_written_out_for_each_episode(
    suppression: str, weighting: str, recurrent: bool
) -> None:
    loss = loosened(
        make(suppression=suppression, weighting=weighting, recurrent=recurrent, w_c=0.3, temperature=0.7, alpha=1.3)
    )
    batch = random_batch(lengths=(6, 3, 1, 5, 2, 6), dtype=torch.float64)
    batch["actions"][:3] = _greedy_of_a_level(loss, batch, level=0)[:3]
    with torch.no_grad():
        found = loss(**batch)
        wanted = by_the_book(loss, batch)
    for name, value in wanted.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-9), name
    assert float(found["loss"]) == pytest.approx(sum(wanted.values()), rel=1e-9)


def _greedy_of_a_level(loss: S2QLoss, batch: dict[str, Tensor], *, level: int) -> Tensor:
    """Actions that are that level's greedy ones for feed-forward and recurrent agents: chosen step by step."""
    actions = batch["actions"].clone()
    for row, t in itertools.product(range(len(actions)), range(actions.shape[1])):
        if batch["filled"][row, t]:
            q, _ = utilities(loss.agents[level], batch["obs"][row, : t + 1], actions[row])
            actions[row, t] = greedy_actions(q[t], batch["avail"][row, t])
    return actions


def test_suppression_was_met_in_the_comparison_above() -> None:
    """Batches with greedy actions give level 1 another target than batches without."""
    loss = loosened(make(alpha=1.3))
    batch = random_batch(lengths=(6, 6), dtype=torch.float64)
    batch["actions"] = _greedy_of_a_level(loss, batch, level=0)
    with torch.no_grad():
        strong = loss(**batch)
        loss.alpha = 1e-12
        weak = loss(**batch)
    assert float(strong["loss_0"]) == float(weak["loss_0"])
    assert abs(float(strong["loss_1"]) - float(weak["loss_1"])) > 0.1


def test_padding_of_any_length_and_content_changes_no_loss() -> None:
    loss = loosened(make())
    batch = random_batch(lengths=(4, 2, 1), steps=4, dtype=torch.float64)
    longer = random_batch(lengths=(4, 2, 1), steps=9, dtype=torch.float64)
    for name, value in batch.items():
        longer[name] = torch.zeros_like(longer[name])
        longer[name][:, : value.shape[1]] = value
    longer["obs"][:, 5:], longer["state"][:, 5:] = 50.0, -50.0
    longer["actions"][:, 4:] = 1
    with torch.no_grad():
        short, long = loss(**batch), loss(**longer)
    for name in short:
        assert float(long[name]) == pytest.approx(float(short[name]), rel=1e-12), name


def test_a_batch_split_in_two_gives_the_mean_of_its_parts() -> None:
    loss = loosened(make())
    batch = random_batch(lengths=(6, 3, 1, 5), dtype=torch.float64)
    with torch.no_grad():
        whole, parts = loss(**batch), [loss(**rows(batch, keep)) for keep in ([0, 1], [2, 3])]
    for name in [name for name in whole if name.startswith("loss")]:
        mean = (9 * float(parts[0][name]) + 6 * float(parts[1][name])) / 15
        assert float(whole[name]) == pytest.approx(mean, rel=1e-12), name


def test_gradients_of_a_batch_are_the_mean_of_its_parts() -> None:
    """Which is what training on several machines adds up."""
    loss = loosened(make())
    batch = random_batch(lengths=(6, 3, 1, 5), dtype=torch.float64)
    gradients = []
    for keep in ([0, 1, 2, 3], [0, 1], [2, 3]):
        loss.zero_grad()
        loss(**rows(batch, keep))["loss"].backward()
        gradients.append([p.grad.clone() for p in loss.parameters() if p.grad is not None])
    for whole, first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, (9 * first + 6 * second) / 15, rtol=1e-9, atol=1e-12)


def test_the_order_of_agents_doesnt_matter_where_they_share_everything() -> None:
    loss = loosened(make(mixer="vdn", K=1))
    assert loss.critic is not None and loss.target_critic is not None
    with torch.no_grad():
        for critic in (loss.critic, loss.target_critic):
            critic.first.weight[:, 1] = critic.first.weight[:, 0]
    batch = random_batch(dtype=torch.float64)
    swapped = dict(batch)
    for name in ("obs", "avail"):
        swapped[name] = batch[name].flip(2)
    swapped["actions"] = batch["actions"].flip(2)
    with torch.no_grad():
        before, after = loss(**batch), loss(**swapped)
    for name in ("loss_0", "loss_1", "loss_reference"):
        assert float(after[name]) == pytest.approx(float(before[name]), rel=1e-12), name


def test_further_sub_values_dont_feed_back_into_the_first() -> None:
    """Same Q₀, same gradient of it, whatever K is, where its weight doesn't look at their candidates."""
    batch = random_batch(dtype=torch.float64)
    gradients = []
    for K in (0, 1, 3):
        loss = make(K=K, weighting="cw")
        loss(**batch)["loss"].backward()
        gradients.append([p.grad for part in (loss.agents[0], loss.mixers[0]) for p in part.parameters()])
    for other in gradients[1:]:
        for first, second in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(first, second, rtol=1e-12, atol=0)


def test_without_further_sub_values_and_weights_it_is_a_central_target_alone() -> None:
    batch = random_batch(dtype=torch.float64)
    with torch.no_grad():
        losses = make(K=0, weighting="none")(**batch)
    assert {"loss_0", "loss_reference"} == {name for name in losses if name.startswith("loss_")}
    assert float(losses["loss"]) == pytest.approx(float(losses["loss_0"] + losses["loss_reference"]))


def test_only_q_zero_and_reference_targets_are_followed_by_no_gradient() -> None:
    loss = make(K=2)
    loss(**random_batch(dtype=torch.float64))["loss"].backward()
    assert loss.target_critic is not None and loss.critic is not None
    assert all(p.grad is None for p in loss.target_critic.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for net in loss.agents for p in net.parameters())
    assert all(p.grad is not None for p in loss.critic.parameters())


def test_the_coordinator_teaches_the_agents_nothing() -> None:
    loss = make(K=1)
    losses = loss(**random_batch(dtype=torch.float64))
    losses["loss_coordinator"].backward()
    assert all(p.grad is None for net in loss.agents for p in net.parameters())
    assert loss.coordinator is not None
    assert all(p.grad is not None for p in loss.coordinator.parameters())


def test_softmax_over_candidates() -> None:
    q = torch.tensor([1.0, 0.9, 0.5], dtype=torch.float64)
    np.testing.assert_allclose(candidate_distribution(q, 0.1), [0.72748, 0.26762, 0.00490], atol=5e-6)
    torch.testing.assert_close(candidate_distribution(q + 100, 0.1), candidate_distribution(q, 0.1))
    np.testing.assert_allclose(candidate_distribution(q, 1e9), [1 / 3] * 3, atol=1e-9)
    assert candidate_distribution(q, 1e-9).tolist() == [1, 0, 0]


def test_with_negative_returns_only_the_paper_rule_lowers_the_target() -> None:
    y, value, hit = torch.tensor(-2.0), torch.tensor(-2.0), torch.tensor(True)
    assert float(suppressed_target(y, hit, value, alpha=1.0, floor=3.0)) == -5
    assert float(suppressed_target(y, hit, value, alpha=1.0, floor=None)) == 0


def test_unavailable_actions_are_never_greedy_and_their_placeholder_goes_nowhere() -> None:
    q = torch.tensor([[5.0, -1e30, 2.0]], requires_grad=True)
    assert greedy_actions(q, torch.tensor([[False, True, True]])).tolist() == [2]
    loss, batch = make(), random_batch(dtype=torch.float64)
    batch["avail"][:, :, 0, 1:] = False
    batch["actions"][:, :, 0] = 0
    losses = loss(**batch)
    losses["loss"].backward()
    assert all(torch.isfinite(value) for value in losses.values())
    assert max(value.item() for value in losses.values()) < 1e4


def test_masked_mean_ignores_what_is_left_out() -> None:
    mask = torch.tensor([1.0, 1.0, 0.0])
    assert float(masked_mean(torch.tensor([1.0, 3.0, torch.nan]), mask)) == 2


@pytest.mark.parametrize("mixer", ["qmix", "vdn", "qplex", "none"])
def test_plain_q_learning_targets_come_from_a_copy_of_itself(mixer: str) -> None:
    """One terminated step: the target is the reward, whatever the networks say."""
    loss = make(K=0, mixer=mixer, central=False, weighting="none")
    batch = random_batch(lengths=(1, 1), steps=1, dtype=torch.float64)
    batch["terminated"][:] = 1
    losses = loss(**batch)
    assert float(losses["target_mean"]) == pytest.approx(float(batch["reward"].mean()))


def test_double_q_learning_chooses_with_the_online_values() -> None:
    settings = {"K": 0, "mixer": "vdn", "central": False, "weighting": "none", "td_lambda": 0.0, "gamma": 1.0}
    double, single = (loosened(make(double_q=double, **settings)) for double in (True, False))
    batch = random_batch(lengths=(1,) * 8, steps=1, dtype=torch.float64)
    batch["terminated"][:], batch["reward"][:] = 0, 0
    with torch.no_grad():
        found = [float(loss(**batch)["target_mean"]) for loss in (double, single)]
        expected = {True: [], False: []}
        for row in range(8):
            online, _ = utilities(double.agents[0], batch["obs"][row], batch["actions"][row])
            slow, _ = utilities(double.target_agent, batch["obs"][row], batch["actions"][row])
            mask = batch["avail"][row, 1]
            for kind, chooser in ((True, online), (False, slow)):
                action = greedy_actions(chooser[1], mask)
                expected[kind].append(float(slow[1].gather(-1, action[:, None]).sum()))
    assert found == pytest.approx([np.mean(expected[True]), np.mean(expected[False])])
    assert found[0] < found[1]


def test_vdn_trained_on_all_joint_actions_is_the_additive_projection() -> None:
    """Row mean plus column mean minus grand mean."""
    spec = EnvSpec(n_agents=2, n_actions=3, obs_size=1, state_size=1, horizon=1)
    payoff = torch.tensor([[8.0, -12, -12], [-12, 0, 0], [-12, 0, 0]], dtype=torch.float64)
    loss = S2QLoss(
        spec, K=0, mixer="vdn", central=False, weighting="none", recurrent=False, agent_id=True, hidden=8, seed=0
    ).double()
    actions = torch.tensor(list(itertools.product(range(3), repeat=2)))[:, None]
    ones = torch.ones(9, 1, dtype=torch.float64)
    batch = {
        "obs": torch.ones(1, 1, 2, 1, dtype=torch.float64),
        "state": torch.ones(1, 1, 1, dtype=torch.float64),
        "avail": torch.ones(1, 1, 2, 3, dtype=torch.bool),
        "actions": actions,
        "reward": payoff.reshape(9, 1),
        "terminated": ones,
        "filled": ones,
    }
    optimizer = torch.optim.LBFGS(loss.agents.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(**batch)["loss"]
        value.backward()
        return value

    optimizer.step(closure)
    q, _ = loss.act_values(
        torch.cat([torch.ones(1, 2, 1), torch.zeros(1, 2, 3), torch.eye(2)[None]], -1).double(), [None], 1
    )
    fit = (q[0][0, 0][:, None] + q[0][0, 1][None]).detach()
    np.testing.assert_allclose(fit[0, 0], -6.222, atol=1e-3)
    np.testing.assert_allclose(fit[0, 1:], -4.889, atol=1e-3)
    np.testing.assert_allclose(fit[1:, 1:], -3.556, atol=1e-3)


def test_one_step_problems_may_share_what_all_episodes_have_in_common() -> None:
    spec = EnvSpec(n_agents=2, n_actions=3, obs_size=1, state_size=1, horizon=1)
    loss = S2QLoss(spec, recurrent=False, **SMALL, seed=0).double()
    size = 7
    g = torch.Generator().manual_seed(0)
    full = {
        "obs": torch.ones(size, 2, 2, 1, dtype=torch.float64),
        "state": torch.ones(size, 2, 1, dtype=torch.float64),
        "avail": torch.ones(size, 2, 2, 3, dtype=torch.bool),
        "actions": torch.randint(0, 3, (size, 1, 2), generator=g),
        "reward": torch.randn(size, 1, generator=g, dtype=torch.float64),
        "terminated": torch.ones(size, 1),
        "filled": torch.ones(size, 1),
    }
    shared = full | {name: full[name][:1, :1] for name in ("obs", "state", "avail")}
    with torch.no_grad():
        one, other = loss(**full), loss(**shared)
    for name in one:
        assert float(other[name]) == pytest.approx(float(one[name]), rel=1e-12), name


def test_many_seeds_at_once_equal_each_alone() -> None:
    losses = [make(seed, recurrent=False) for seed in range(3)]
    batches = [random_batch(seed=seed, dtype=torch.float64) for seed in range(3)]
    stacked = {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]}
    parameters, buffers = stack_module_state(losses)

    def one(parameters: Any, buffers: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return functional_call(losses[0], (parameters, buffers), kwargs=batch)

    together = vmap(one)(parameters, buffers, stacked)
    for index, (loss, batch) in enumerate(zip(losses, batches, strict=True)):
        for name, value in loss(**batch).items():
            torch.testing.assert_close(together[name][index], value, rtol=1e-9, atol=1e-12)


def test_automatic_temperature_and_alpha_follow_the_scale_of_returns() -> None:
    """P doesn't change when all values are 100 times as large, and α is enough for the theorem."""
    batch = random_batch(dtype=torch.float64)
    loss = loosened(make(temperature="auto", alpha="auto", floor=2.0))
    with torch.no_grad():
        small = loss(**batch)
        for critic in (loss.critic, loss.target_critic):
            assert critic is not None
            for layer in (critic.rest[-1], critic.baseline[-1]):
                layer.weight.mul_(100)
                layer.bias.mul_(100)
        large = loss(**batch)
    assert float(large["temperature"]) == pytest.approx(100 * float(small["temperature"]))
    assert float(large["p_max"]) == pytest.approx(float(small["p_max"]))
    assert float(large["value_range"]) == pytest.approx(100 * float(small["value_range"]))
    loss.track(large)
    assert float(loss.current_temperature()) == pytest.approx(float(large["temperature"]))


def test_running_statistics_move_slowly_once_they_are_tracked() -> None:
    batch = random_batch(dtype=torch.float64)
    loss = loosened(make(temperature="auto"))
    first = loss(**batch)
    loss.track(first)
    doubled = loss(**(batch | {"filled": batch["filled"] * torch.tensor([[1.0], [0.0], [0.0]])}))
    alone = make(temperature="auto")
    alone.load_state_dict({**loss.state_dict(), "tracked": torch.zeros(())})
    fresh = alone(**(batch | {"filled": batch["filled"] * torch.tensor([[1.0], [0.0], [0.0]])}))
    wanted = 0.99 * float(first["value_spread"]) + 0.01 * float(fresh["value_spread"])
    assert float(doubled["value_spread"]) == pytest.approx(wanted)


def test_agents_that_talk_hear_the_code_of_the_step_before() -> None:
    """The sequence of messages equals one made step by step, and the encoder learns from what they are used for."""
    loss = loosened(make(comm=True, K=1))
    assert loss.coordinator is not None
    batch = random_batch(lengths=(6, 6), dtype=torch.float64)
    obs, actions = batch["obs"].transpose(0, 1), batch["actions"].transpose(0, 1)
    inputs = loss._inputs(obs, actions)
    hidden, code = None, loss.coordinator.encode(torch.zeros(2, 16, dtype=torch.float64))
    for t in range(7):
        torch.testing.assert_close(inputs[t, :, 0, -32:], code)
        torch.testing.assert_close(inputs[t, :, 1, -32:], code)
        _, hidden_1RH = loss.agents[0](inputs[t].flatten(0, 1).unsqueeze(0), hidden)
        hidden = hidden_1RH[0]
        code = loss.coordinator.encode(hidden.unflatten(0, (2, 2)).flatten(1))
    loss(**batch)["loss_0"].backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in loss.coordinator.encoder.parameters() if p.grad is not None)
    assert all(p.grad is None for p in loss.coordinator.level_head.parameters())


def test_initial_weights_come_from_the_seed_and_not_from_k() -> None:
    first, second, other = make(3, K=0), make(3, K=2), make(4, K=2)
    for a, b, c in zip(*(loss.agents[0].parameters() for loss in (first, second, other)), strict=True):
        assert torch.equal(a, b) and not torch.equal(a, c)
    assert not torch.equal(second.agents[0].out.weight, second.agents[1].out.weight)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"K": -1}, "K is -1"),
        ({"suppression": "soft"}, "suppression 'soft'; expected one of paper, code"),
        ({"weighting": "x"}, "weighting 'x'; expected one of s2q, ow, cw, none"),
        ({"temperature": 0.0}, "temperature is 0.0; expected a positive number"),
        ({"temperature": "high"}, "temperature 'high'; expected a positive number, or auto"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"floor": -1.0}, "floor is -1.0"),
        ({"w_c": 0.0}, "w_c is 0.0"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"central": False}, "without a central value"),
        ({"K": 0, "central": False, "weighting": "cw"}, "weighting 'cw' without a central value"),
        ({"K": 0, "mixer": "none", "weighting": "none"}, "mixer 'none' with a central value"),
    ],
)
def test_settings_without_meaning_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**settings)
