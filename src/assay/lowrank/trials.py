"""One trial of the study: an arm on a case, measured.

A case says what kind of trial it is: check the choice of columns by brute force, project recorded gradients, train a
model, time steps, time the transform, or count bytes.
"""

from __future__ import annotations

import contextlib
import io
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.device import resolve_device
from assay.core.errors import InputError
from assay.core.study import Trial
from assay.core.texts import ByteTokens, hub_documents, standard_library
from assay.lowrank.allocation import LiveBytes
from assay.lowrank.basis import Basis, Transform, make_basis
from assay.lowrank.groups import EXCLUDE, low_rank_param_groups
from assay.lowrank.memory import state_bytes
from assay.lowrank.models import LlamaSettings, SmallLlama, load_tokens
from assay.lowrank.optimizer import LowRankOptimizer
from assay.lowrank.probe import energy_kept, svd_energy_kept
from assay.lowrank.published import PublishedQuantiserAdamW
from assay.lowrank.selection import projects_right, resolve_rank, select_columns
from assay.lowrank.texts import Corpus, StreamCorpus
from assay.lowrank.training import Plan, live_bytes, make_optimizer, train

__all__ = ["run_trial"]

Measurements = dict[str, float]

TEXT_BYTES = 3_000_000
"""How much of the standard library is read."""
SHARES = {"16": 1 / 16, "4": 1 / 4, "2": 1 / 2}
RECORDED = (20, 60)
"""Steps of training at which gradients and momenta are projected."""
MOMENTUM = 0.95
ROUNDING = 1e-10


def run_trial(trial: Trial) -> Measurements:
    """Run one arm on one case with one seed.

    Parameters
    ----------
    trial : Trial
        ``case_settings["kind"]`` is one of ``selection``, ``gradients``, ``ordered``, ``training``, ``step``, ``rank``,
        ``transform`` and ``bytes``. A user's own arm trains.

    Returns
    -------
    dict of str to float
        See the study's `measures`.
    """
    torch.set_num_threads(trial.threads)
    return _KINDS[trial.case_settings["kind"]](trial)


def _seed(trial: Trial, purpose: str) -> int:
    return int(trial.rng(purpose).integers(2**31))


def _generator(trial: Trial, purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(_seed(trial, purpose))


def _selection(trial: Trial) -> Measurements:
    """Compare the choice with all others on small random matrices, and the error with its identity and its bound."""
    rng = trial.rng("matrices")
    violations, worst = 0, 0.0
    count = trial.case_settings["matrices"]
    for _ in range(count):
        rows, n = int(rng.integers(1, 12)), int(rng.integers(1, 11))
        r = int(rng.integers(1, n + 1))
        A = torch.from_numpy(rng.standard_normal((rows, n)) * rng.exponential(1.0, n) ** 2)
        B = make_basis(trial.arm_settings["basis"], n, dtype=torch.float64).columns(torch.arange(n))
        index, coefficients = select_columns(A, r, basis=trial.arm_settings["basis"])
        powers, whole = (A @ B).square().sum(0), A.square().sum().item()
        chosen = B[:, index.long()]
        error = (A - A @ chosen @ chosen.mT).square().sum().item()
        best = whole - max(powers[list(subset)].sum().item() for subset in combinations(range(n), r))
        room = ROUNDING * whole
        identity = abs(error - (whole - coefficients.square().sum().item()))
        violations += error > best + room or error > (1 - r / n) * whole + room or identity > room
        worst = max(worst, (error - best) / whole)
    return {"checks": float(count), "violations": float(violations), "excess": worst}


def _corpus(settings: Mapping[str, Any]) -> Corpus | StreamCorpus:
    context = settings["context"]
    if "stream" not in settings:
        return _standard_library(context)
    source = settings["stream"]
    return StreamCorpus(
        lambda seed: hub_documents(source, seed=seed),
        hub_documents(source, split="validation"),
        load_tokens(settings["tokenizer"]),
        context=context,
    )


@lru_cache(maxsize=2)
def _standard_library(context: int) -> Corpus:
    return Corpus([standard_library(TEXT_BYTES)], ByteTokens(), context=context)


def _model(settings: Mapping[str, Any], seed: int) -> SmallLlama:
    width = settings["width"]
    inner = max(8, round(width * 8 / 3 / 8) * 8)
    size = LlamaSettings(width, inner, settings["layers"], settings["heads"])
    if "tokenizer" in settings:
        size = replace(size, vocab_size=load_tokens(settings["tokenizer"]).size)
    return SmallLlama(size, seed=seed)


@lru_cache(maxsize=1)
def _recorded(key: tuple[Any, ...], width: int, layers: int, heads: int, context: int, batch: int) -> list[Tensor]:
    """Gradients and accumulated momenta of every projected layer as rows, at some steps of a run with AdamW."""
    seed = key[-1]
    model = _model({"width": width, "layers": layers, "heads": heads}, seed)
    corpus = _corpus({"context": context})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    layers_ = [parameter for _, parameter in low_rank_param_groups(model)[0][0]["params"]]
    momenta = [torch.zeros_like(parameter) for parameter in layers_]
    found = []
    for step in range(max(RECORDED)):
        rows = corpus.batch(step, size=batch, seed=seed)
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows).loss.backward()
        for momentum, parameter in zip(momenta, layers_, strict=True):
            momentum.mul_(MOMENTUM).add_(parameter.grad)
            if step + 1 in RECORDED:
                for one in (parameter.grad, momentum):
                    found.append((one if projects_right("auto", *one.shape) else one.mT).detach().clone())
        optimizer.step()
    return found


def _errors(trial: Trial, matrices: list[Tensor]) -> Measurements:
    """The relative errors of the arm's basis, averaged over matrices."""
    basis = trial.arm_settings["basis"]
    found: Measurements = {"matrices": float(len(matrices))}
    for name, share in SHARES.items():
        kept = [svd_energy_kept(A, share) if basis == "svd" else energy_kept(A, share, basis=basis) for A in matrices]
        found[f"error_{name}"] = sum(math.sqrt(max(0.0, 1 - one)) for one in kept) / len(kept)
    if basis != "svd":
        norm1 = [energy_kept(A, SHARES["4"], basis=basis, norm=1) for A in matrices]
        found["error_4_norm1"] = sum(math.sqrt(max(0.0, 1 - one)) for one in norm1) / len(norm1)
    return found


def _gradients(trial: Trial) -> Measurements:
    """Project gradients and momenta of a language model in training."""
    settings = trial.case_settings
    sizes = {name: settings[name] for name in ("width", "layers", "heads", "context", "batch")}
    return _errors(trial, _recorded((trial.scale, trial.case, trial.seed), **sizes))


def _ordered(trial: Trial) -> Measurements:
    """Project the gradient of a first layer whose inputs are a process with correlated neighbours."""
    rho, n = trial.case_settings["rho"], trial.case_settings["n"]
    generator = _generator(trial, "process")
    columns = [torch.randn(512, generator=generator)]
    for _ in range(n - 1):
        columns.append(rho * columns[-1] + math.sqrt(1 - rho**2) * torch.randn(512, generator=generator))
    inputs = torch.stack(columns, 1)
    hidden = nn.Linear(n, 2 * n, bias=False)
    output = nn.Linear(2 * n, 8, bias=False)
    for layer in (hidden, output):
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
    target = torch.randn(512, 8, generator=generator)
    (output(torch.tanh(hidden(inputs))) - target).square().mean().backward()
    assert hidden.weight.grad is not None
    return _errors(trial, [hidden.weight.grad])


def _training(trial: Trial) -> Measurements:
    """Train a language model, and measure its held-out loss, its projection and its state."""
    settings = trial.case_settings
    model, corpus = _model(settings, _seed(trial, "weights")), _corpus(settings)
    model.to(resolve_device(settings.get("device", trial.device)))
    optimizer = _optimizer(trial, model)
    if isinstance(optimizer, LowRankOptimizer):
        optimizer.track = True
    plan = Plan(
        settings["steps"],
        settings["batch"],
        warmup=max(1, settings["steps"] // 10),
        seed=_seed(trial, "order"),
        micro=settings.get("micro", 0),
        half=settings.get("half", False),
    )
    start = time.process_time()
    history = train(model, optimizer, corpus, plan)
    found = {
        "validation_loss": history[-1]["validation_loss"],
        "perplexity": math.exp(history[-1]["validation_loss"]),
        "training_loss": sum(entry["loss"] for entry in history[-10:]) / len(history[-10:]),
        "state_bytes": float(live_bytes(optimizer)),
        "cpu_seconds": time.process_time() - start,
    }
    kept = [entry["energy_kept"] for entry in history if "energy_kept" in entry]
    if kept:
        found["projection_error"] = sum(math.sqrt(max(0.0, 1 - one)) for one in kept) / len(kept)
        found["churn"] = sum(entry["index_churn"] for entry in history[1:]) / (len(history) - 1)
    if not math.isfinite(found["validation_loss"]):
        raise InputError("the loss is not finite", expected="a lower learning rate")
    return found


def _optimizer(trial: Trial, model: nn.Module) -> Any:
    if trial.function is not None:
        return trial.function(model)
    arm, case = trial.arm_settings, trial.case_settings
    if arm["optimizer"] == "published":
        groups, _ = low_rank_param_groups(model)
        return PublishedQuantiserAdamW(groups, arm["lr"], bits=arm["bits"])
    lr = case.get("rates", {}).get(trial.arm, arm["lr"])
    return _make(arm, model, lr=lr, rank=case.get("rank", 0.25), **arm.get("settings", {}))


def _make(arm: Mapping[str, Any], model: nn.Module, *, lr: float, rank: float = 0.25, **settings: Any) -> Any:
    """The arm's optimiser, the same matrices projected whichever it is."""
    if arm["optimizer"] == "galore-torch":
        return _galore_torch(model, lr=lr, rank=rank, **settings)
    second = {"adamw_lr": arm["adamw_lr"]} if "adamw_lr" in arm else {}
    return make_optimizer(arm["optimizer"], model, lr=lr, rank=rank, **second, **settings)


def _galore_torch(
    model: nn.Module, *, lr: float, rank: float, update_gap: int, include: str = "", exclude: str = EXCLUDE
) -> Any:
    """The authors' own package, with the settings of our arm."""
    # It reports missing kernels of a dependency, which it doesn't use here, on standard error.
    with contextlib.redirect_stderr(io.StringIO()):
        from galore_torch import GaLoreAdamW
    more = {"update_proj_gap": update_gap, "scale": 0.25, "proj_type": "std"}
    made: list[dict[str, Any]] = []
    for group in low_rank_param_groups(model, include=include, exclude=exclude)[0]:
        for _, parameter in group["params"]:
            # Its rank is a number of its own for each shape.
            projected = {"rank": resolve_rank(rank, min(parameter.shape)), **more} if group["low_rank"] else {}
            made.append({"params": [parameter], **projected})
    return GaLoreAdamW(made, lr=lr, eps=1e-8, no_deprecation_warning=True)


def _step(trial: Trial) -> Measurements:
    """Time steps on weights of one shape with random gradients: the median of CPU time after a warm-up.

    A step with an SVD takes so long that one is enough.
    """
    settings = trial.case_settings
    steps = 1 if "step_settings" in trial.arm_settings else settings["steps"]
    return {
        "cpu_ms": _step_ms(trial, settings["rank"], steps=steps),
        "parameters": float(settings["rows"] * settings["n"] * settings.get("count", 1)),
    }


def _step_ms(trial: Trial, rank: float, *, steps: int) -> float:
    settings, arm = trial.case_settings, trial.arm_settings
    generator = _generator(trial, "gradients")
    count = settings.get("count", 1)
    layers = nn.ModuleList([nn.Linear(settings["n"], settings["rows"], bias=False) for _ in range(count)])
    gradients = [torch.randn(settings["rows"], settings["n"], generator=generator) for _ in range(count)]
    # Random gradients without structure would leave the choice of columns to chance; a few strong ones settle it.
    for gradient in gradients:
        gradient *= 0.1 + torch.rand(settings["n"], generator=generator) ** 4
    more = {**arm.get("settings", {}), **arm.get("step_settings", {})}
    optimizer = _make(arm, layers, lr=1e-4, rank=rank, include="weight", exclude="(?!)", **more)
    timings = []
    for _ in range(steps + 1):
        for layer, gradient in zip(layers, gradients, strict=True):
            layer.weight.grad = gradient
        start = time.process_time()
        optimizer.step()
        timings.append(1000 * (time.process_time() - start))
    return sorted(timings[1:])[steps // 2]


def _rank(trial: Trial) -> Measurements:
    """How time grows from rank n/16 to n/2: of transform and selection alone, and of whole steps; interleaved."""
    settings = trial.case_settings
    n, rows = settings["n"], settings["rows"]
    if trial.arm_settings.get("basis"):
        basis = make_basis("dct2", n, transform="fft")
        A = torch.randn(rows, n, generator=_generator(trial, "matrix"))
        times: dict[float, list[float]] = {1 / 16: [], 1 / 2: []}
        for _ in range(settings["steps"] + 1):
            for share, found in times.items():
                start = time.process_time()
                select_columns(A, share, basis=basis)
                found.append(time.process_time() - start)
        medians = {share: sorted(found[1:])[settings["steps"] // 2] for share, found in times.items()}
        return {"rank_ratio": medians[1 / 2] / medians[1 / 16], "cpu_ms": 1000 * medians[1 / 2]}
    small = _step_ms(trial, 1 / 16, steps=settings["step_repeats"])
    large = _step_ms(trial, 1 / 2, steps=settings["step_repeats"])
    return {"rank_ratio": large / small, "cpu_ms": large}


@lru_cache(maxsize=32)
def _cosines(n: int, way: Transform) -> Basis:
    return make_basis("dct2", n, transform=way)


def _transform(trial: Trial) -> Measurements:
    """Time the fast transform and the product with the matrix on square matrices; interleaved."""
    found: Measurements = {}
    crossover = math.inf
    for n in trial.case_settings["sizes"]:
        rows = min(n, trial.case_settings["rows"])
        A = torch.randn(1, rows, n, generator=_generator(trial, f"rows {n}"))
        ways: tuple[Transform, ...] = ("fft", "matmul")
        bases = {way: _cosines(n, way) for way in ways}
        times: dict[str, list[float]] = {"fft": [], "matmul": []}
        for _ in range(trial.case_settings["steps"] + 1):
            for way, basis in bases.items():
                start = time.process_time()
                basis.coordinates(A)
                times[way].append(time.process_time() - start)
        best = {way: sorted(one[1:])[len(one[1:]) // 2] for way, one in times.items()}
        found[f"speedup_{n}"] = best["matmul"] / max(best["fft"], 1e-9)
        if found[f"speedup_{n}"] > 1:
            crossover = min(crossover, float(n))
    found["crossover"] = min(crossover, 2.0 * max(trial.case_settings["sizes"]))
    return found


def _bytes(trial: Trial) -> Measurements:
    """Compare the bytes of live states with the formulas, and the temporaries of a step with their bound."""
    rng = trial.rng("shapes")
    name = trial.arm_settings["formula"]
    violations = 0
    count = trial.case_settings["shapes"]
    for _ in range(count):
        rows, columns, share = int(rng.integers(1, 200)), int(rng.integers(1, 200)), float(rng.uniform(0.02, 1.0))
        layer = nn.Linear(columns, rows, bias=False)
        optimizer = _plain_optimizer(trial, layer, rank=share)
        layer.weight.grad = torch.randn_like(layer.weight)
        optimizer.step()
        states = [state for part in getattr(optimizer, "parts", [optimizer]) for state in part.state.values()]
        live = sum(value.nbytes for state in states for value in state.values())
        violations += live != state_bytes(name, (rows, columns), rank=share)
    rows, columns = trial.case_settings["rows"], trial.case_settings["n"]
    layer = nn.Linear(columns, rows, bias=False)
    found = {
        "checks": float(count),
        "violations": float(violations),
        "state_bytes": float(state_bytes(name, (rows, columns), rank=0.25)),
        "state_share": state_bytes(name, (rows, columns), rank=0.25) / state_bytes("adamw", (rows, columns), rank=0.25),
    }
    if name.startswith("dct-adamw"):
        room = trial.case_settings["max_temp_mb"]
        optimizer = _plain_optimizer(trial, layer, rank=0.25, max_temp_mb=room)
        for _ in range(2):
            layer.weight.grad = torch.randn_like(layer.weight)
            with LiveBytes() as counter:
                optimizer.step()
        found["temporaries_over_bound"] = counter.peak / (room * 1e6)
    return found


def _plain_optimizer(trial: Trial, layer: nn.Module, *, rank: float, **more: Any) -> Any:
    settings = {**trial.arm_settings.get("settings", {}), **more}
    return _make(trial.arm_settings, layer, lr=1e-3, rank=rank, include="weight", exclude="(?!)", **settings)


_KINDS: Mapping[str, Callable[[Trial], Measurements]] = {
    "selection": _selection,
    "gradients": _gradients,
    "ordered": _ordered,
    "training": _training,
    "step": _step,
    "rank": _rank,
    "transform": _transform,
    "bytes": _bytes,
}
