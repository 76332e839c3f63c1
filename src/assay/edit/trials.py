"""One trial: an arm edits some records, or is timed at it, and what came of it is measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.lm import LanguageModel, collate, load_language_model, random_llama, score_answers
from assay.core.lm.scoring import pad_token
from assay.core.measure import peak_memory, stopwatch
from assay.core.study import Trial
from assay.edit.closed_form import closed_form_edit
from assay.edit.datasets import entrenched_records, locality_pairs, neutral_prompts, novel_records, short_records
from assay.edit.fine_tuning import fine_tune, fine_tune_lora
from assay.edit.fitting import Job, fit_block, record_rows
from assay.edit.gated import fit_gated
from assay.edit.losses import PRESETS, Parts, block_loss
from assay.edit.metrics import Locality, evaluate_edits, judged_right, locality
from assay.edit.patch import EditPatch
from assay.edit.pipe import PIPE
from assay.edit.reference import edit_plainly
from assay.edit.request_files import read_requests
from assay.edit.requests import EditRequest
from assay.edit.tangle import Calibration, TangleReport, old_answers, tangle_score
from assay.edit.targets import TargetKeys
from assay.edit.windows import any_edit

__all__ = ["run_trial"]

Numbers = dict[str, float]
FACTS_FOLDER = "ASSAY_DATA"
TOLERANCE = 1e-5
CLOSED_FORM_OPTIONS = {"weight": "covariance_weight", "threshold": "null_space", "ridge": "ridge"}
"""What arms call the numbers that MEMIT and AlphaEdit take."""


def run_trial(trial: Trial) -> Mapping[str, float]:
    """Run one trial of the study."""
    torch.set_num_threads(trial.threads)
    return _KINDS[str(trial.case_settings["kind"])](trial)


@dataclass(frozen=True)
class _Prepared:
    """What all arms of a case and seed share: the records, their difficulty, their target keys, and the rest's
    answers.
    """

    records: list[EditRequest]
    report: TangleReport
    official: TangleReport
    targets: TargetKeys
    rest: Locality


@lru_cache(maxsize=2)
def _model(name: str, device: str) -> LanguageModel:
    return load_language_model(name, device=device)


@lru_cache(maxsize=2)
def _rest(name: str, device: str) -> Locality:
    """What the model says to unrelated prompts, which no seed changes."""
    lm = _model(name, device)
    return locality(lm.model, lm.tokenizer, locality_pairs(), neutral_prompts(), max_new_tokens=10)


@lru_cache(maxsize=4)
def _prepared(model: str, device: str, facts: str, count: int, seed: int, steps: int) -> _Prepared:
    lm = _model(model, device)
    records = _records(lm, facts, count, seed)
    report = tangle_score(lm.model, lm.tokenizer, records, max_old_tokens=32)
    editor = PIPE(lm.model, lm.tokenizer, target_steps=steps, skip_known=False)
    told = [replace(one, ground_truth=old or " ") for one, old in zip(records, report.old_answers, strict=True)]
    official = tangle_score(lm.model, lm.tokenizer, told, variant="official")
    return _Prepared(records, report, official, editor.find_targets(records), _rest(model, device))


def _records(lm: LanguageModel, facts: str, count: int, seed: int) -> list[EditRequest]:
    if facts == "novel":
        return novel_records(count, seed=seed)
    if facts in ("entrenched", "short"):
        maker = entrenched_records if facts == "entrenched" else short_records
        candidates = maker(2 * count, seed=seed)
        said = old_answers(
            lm.model, lm.tokenizer, [replace(one, ground_truth=None) for one in candidates], max_new_tokens=24
        )
        # The last word of the true answer is the fact: who knows it says it.
        known = [
            one
            for one, text in zip(candidates, said, strict=True)
            if judged_right(one.question, str(one.ground_truth).rstrip(".").rpartition(" ")[2], text)
        ]
        rest = [one for one in candidates if one not in known]
        return (known + rest)[:count]
    every = read_requests(Path(os.environ[FACTS_FOLDER]) / facts)
    chosen = np.random.default_rng(seed).choice(len(every), size=min(count, len(every)), replace=False)
    return [every[int(index)] for index in chosen]


def _edit(trial: Trial) -> Numbers:
    """An arm edits the case's records as one batch."""
    case, arm = trial.case_settings, trial.arm_settings
    steps = int(case.get("target_steps", 50))
    model = str(case["model"])
    prepared = _prepared(model, trial.device, str(case["facts"]), int(case["count"]), trial.seed, steps)
    lm = _model(model, trial.device)
    with stopwatch() as watch:
        patch = _made(arm, lm, prepared, trial, case)
    generated = bool(arm.get("generated", True))
    rows = evaluate_edits(
        lm.model,
        lm.tokenizer,
        prepared.records,
        patch=patch,
        generated=generated,
        max_new_tokens=int(case.get("new_tokens", 40)),
        old_answers=prepared.report.old_answers,
        context=_in_context if arm["make"] == "in-context" else None,
        similarity=bool(case.get("similarity", False)) and generated,
        paraphrases_said=1,
    )
    numbers = {
        name: float(np.nanmean([row[name] for row in rows]))
        for name in rows[0]
        if isinstance(rows[0][name], float) and not all(np.isnan(row[name]) for row in rows)
    }
    numbers |= {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds, "records": float(len(rows))}
    numbers |= _difficulty(prepared, rows)
    if isinstance(patch, EditPatch):
        numbers["change"] = patch.size()
    if patch is not None:
        with patch.applied(lm.model):
            numbers |= prepared.rest.compare(lm.model, lm.tokenizer, max_new_tokens=10)
            if arm["make"] == "pipe" and case.get("again", False):
                numbers |= _scored_again(lm, prepared)
    return {name: value for name, value in numbers.items() if not np.isnan(value)}


def _made(arm: Mapping[str, Any], lm: LanguageModel, prepared: _Prepared, trial: Trial, case: Mapping[str, Any]) -> Any:
    """The arm's patch; None for arms that edit nothing."""
    make = str(arm["make"])
    records = prepared.records
    steps = {"fit_steps": int(case.get("fit_steps", 50)), "preserved": int(case.get("preserved", 20))}
    if make in ("none", "in-context"):
        return None
    if make == "user":
        assert trial.function is not None
        return trial.function(lm.model, lm.tokenizer, records, trial.seed)
    if make == "ft":
        return fine_tune(lm.model, lm.tokenizer, records, **arm.get("settings", {}))
    if make == "lora":
        return fine_tune_lora(lm.model, lm.tokenizer, records, seed=trial.seed, **arm.get("settings", {}))
    switches = {**steps, **arm.get("settings", {})}
    calibration = Calibration(tuple(case["calibration"])) if "calibration" in case else None
    editor = PIPE(lm.model, lm.tokenizer, seed=trial.seed, skip_known=False, calibration=calibration, **switches)
    if make == "gated":
        questions = [question for question, _ in locality_pairs()[::2]]
        return fit_gated(
            editor,
            [replace(one, paraphrases=one.paraphrases[:1]) for one in records],
            negatives=questions,
            targets=prepared.targets,
        )
    if make == "windows":
        return any_edit(editor, records, window=int(arm["window"]))
    if make == "closed-form":
        options = {option: float(arm[name]) for name, option in CLOSED_FORM_OPTIONS.items() if name in arm}
        return closed_form_edit(editor, records, method=arm["method"], **options)
    own_targets = any(name in switches for name in ("wrap", "layer", "objective"))
    report = prepared.official if editor.config.variant == "official" else prepared.report
    return editor.fit(records, report=report, targets=None if own_targets else prepared.targets)


def _in_context(request: EditRequest) -> str:
    return request.answer


def _difficulty(prepared: _Prepared, rows: list[dict[str, Any]]) -> Numbers:
    """Rank correlations of what was known beforehand with what the paraphrases cost afterwards."""
    from scipy.stats import spearmanr

    cost = np.array([row["nll_paraphrase"] for row in rows])
    report = prepared.report
    numbers: Numbers = {}
    for name, values in (("ts", report.ts), ("nll", report.nll_new), ("shift", report.shift), ("gap", -report.gap)):
        if np.ptp(values) > 0 and np.ptp(cost) > 0:
            numbers[f"spearman_{name}"] = float(spearmanr(values, cost).statistic)
    if {"spearman_ts", "spearman_nll"} <= set(numbers):
        numbers["ts_over_nll"] = numbers["spearman_ts"] - numbers["spearman_nll"]
    hard = report.ts > np.median(report.ts)
    if hard.any() and not hard.all():
        numbers["hard_minus_easy"] = float(cost[hard].mean() - cost[~hard].mean())
    return numbers


def _scored_again(lm: LanguageModel, prepared: _Prepared) -> Numbers:
    """TangleScore with the same old answers, on the edited model."""
    from scipy.stats import ks_2samp, spearmanr

    texts = [
        replace(one, ground_truth=old or " ")
        for one, old in zip(prepared.records, prepared.report.old_answers, strict=True)
    ]
    again = tangle_score(lm.model, lm.tokenizer, texts)
    return {
        "ts_rank_kept": float(spearmanr(prepared.report.ts, again.ts).statistic),
        "ts_ks_p": float(ks_2samp(prepared.report.ts, again.ts).pvalue),
    }


def _sequence(trial: Trial) -> Numbers:
    """Batches one after another: what the first edit and everything else are worth at the end."""
    case, arm = trial.case_settings, trial.arm_settings
    lm = _model(str(case["model"]), trial.device)
    records = novel_records(int(case["count"]), seed=trial.seed)
    size = int(case["batch"])
    rest = locality(lm.model, lm.tokenizer, [], neutral_prompts())
    editor = PIPE(
        lm.model,
        lm.tokenizer,
        seed=trial.seed,
        skip_known=False,
        target_steps=int(case.get("target_steps", 50)),
        fit_steps=int(case.get("fit_steps", 50)),
        **arm.get("settings", {}),
    )
    patches = editor.fit_sequential(records, batch_size=size, anchor=arm.get("anchor", "current"))
    numbers: Numbers = {"batches": float(len(patches))}
    costs = []
    try:
        for patch in patches:
            patch.apply_(lm.model)
            costs.append(_cost(lm, records[:size]))
        numbers |= rest.compare(lm.model, lm.tokenizer)
        numbers["nll_all"] = _cost(lm, records)
    finally:
        for patch in reversed(patches[: len(costs)]):
            patch.revert_(lm.model)
    numbers |= {"nll_before": _cost(lm, records[:size]), "nll_first": costs[0], "nll_last": costs[-1]}
    gained = numbers["nll_before"] - costs[0]
    numbers["share_kept"] = (numbers["nll_before"] - costs[-1]) / gained if gained > 0 else 0.0
    numbers.pop("locality_kept")
    return numbers


def _cost(lm: LanguageModel, records: list[EditRequest]) -> float:
    rows = evaluate_edits(lm.model, lm.tokenizer, records, generated=False)
    return float(np.mean([row["nll_original"] for row in rows]))


def _exact(trial: Trial) -> Numbers:
    """What must hold to the bit or to rounding, on models of random weights; how often it doesn't."""
    rng = trial.rng("models")
    checks = violations = 0
    for _ in range(int(trial.case_settings["models"])):
        dtype = (torch.float32, torch.bfloat16, torch.float16)[int(rng.integers(3))]
        lm = random_llama(seed=int(rng.integers(1 << 30)), dtype=dtype)
        before = {name: parameter.detach().clone() for name, parameter in lm.model.named_parameters()}
        records = novel_records(2, seed=int(rng.integers(1 << 30)))
        records = [replace(one, ground_truth="None of that.") for one in records]
        patch = PIPE(lm.model, lm.tokenizer, target_steps=4, fit_steps=3, preserved=3).fit(records)
        patch.apply_(lm.model)
        changed = any(not torch.equal(parameter, before[name]) for name, parameter in lm.model.named_parameters())
        patch.revert_(lm.model)
        same = all(torch.equal(parameter, before[name]) for name, parameter in lm.model.named_parameters())
        outcomes = [changed, same, _purge_is_still(rng), _loop_is_one_evaluation(rng)]
        checks += len(outcomes)
        violations += outcomes.count(False)
    return {"checks": float(checks), "violations": float(violations)}


def _random_parts(rng: np.random.Generator) -> tuple[Parts, torch.Tensor, torch.Tensor]:
    def draw(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape))

    original = draw(3, 4, 6)
    real = torch.ones(3, 4, dtype=torch.bool)
    edited = torch.zeros(3, 4, dtype=torch.bool)
    edited[:, -1] = True
    keys = torch.where(edited[..., None], original + draw(3, 4, 6), original)
    preserved = draw(2, 5, 6)
    parts = Parts(keys, original, real, edited, preserved, torch.ones(2, 5, dtype=torch.bool))
    return parts, original + 0.3 * draw(3, 4, 6), preserved + 0.3 * draw(2, 5, 6)


def _purge_is_still(rng: np.random.Generator) -> bool:
    """At the old key the purge has no gradient."""
    parts, _, _ = _random_parts(rng)
    gradients = []
    for rate in (0.0, float(rng.uniform(1, 1000))):
        output = parts.original.clone().requires_grad_(True)
        weights = torch.full((3,), 0.5, dtype=torch.float64), torch.full((3,), rate, dtype=torch.float64)
        total = block_loss(output, None, parts, alpha=weights[0], rate=weights[1], settings=PRESETS["adaptive"])
        gradients.append(torch.autograd.grad(total, output)[0])
    return torch.equal(*gradients)


def _loop_is_one_evaluation(rng: np.random.Generator) -> bool:
    """The released loop over requests with whole-batch losses is one evaluation of weighted sums."""
    parts, outputs, said = _random_parts(rng)
    alpha, rate = torch.from_numpy(rng.uniform(0.5, 1, 3)), torch.from_numpy(rng.uniform(0, 1, 3))
    once = block_loss(outputs, said, parts, alpha=alpha, rate=rate, settings=PRESETS["official"])
    assert parts.preserved is not None
    edit = (outputs - parts.keys).square().mean()
    keep = (said - parts.preserved).square().mean()
    push = torch.relu(1 - (outputs - parts.keys).abs()).square().mean()
    looped = sum(float(a * edit + (1 - a) * keep + r * push) for a, r in zip(alpha, rate, strict=True))
    return abs(float(once) - looped) <= TOLERANCE * abs(looped)


def _stability(trial: Trial) -> Numbers:
    """How far a block's weights move with the number of steps."""
    case = trial.case_settings
    steps = int(case["fit_steps"])
    lm = random_llama(seed=trial.seed)
    records = [replace(one, ground_truth="None of that.") for one in novel_records(4, seed=trial.seed)]
    switches = {"fit_steps": steps, "target_steps": 20, "preserved": 8, **trial.arm_settings.get("settings", {})}
    patch = PIPE(lm.model, lm.tokenizer, seed=trial.seed, **switches).fit(records)
    moved = sum(float(delta.square().sum()) for delta in patch.deltas().values()) ** 0.5
    return {"steps": float(steps), "moved": moved, "loss": float(patch.settings["losses"][0][-1])}


def _speed(trial: Trial) -> Numbers:
    """A whole edit, from the search to the fitted block, in CPU seconds of one thread."""
    case = trial.case_settings
    lm = _model(str(case["model"]), trial.device)
    count, steps = int(case["count"]), int(case["steps"])
    records = [replace(one, ground_truth="It is not known.") for one in novel_records(count, seed=trial.seed)]
    editor = PIPE(
        lm.model,
        lm.tokenizer,
        preset="unke",
        target_steps=steps,
        target_rate="auto",
        fit_steps=steps,
        seed=trial.seed,
        layer=trial.arm_settings.get("layer", "auto"),
    )
    texts = editor.draw_preserved()
    pad = pad_token(lm.tokenizer)
    _warm(lm)
    make = str(trial.arm_settings["make"])
    with stopwatch() as watch:
        if make == "reference":
            edit_plainly(editor, records, texts, pad=pad)
        elif make == "ft":
            fine_tune(lm.model, lm.tokenizer, records, steps=15, stop_below=0.0)
        elif make == "lora":
            fine_tune_lora(lm.model, lm.tokenizer, records, steps=15, stop_below=0.0)
        else:
            targets = editor.find_targets(records)
            editor.fit(records, report=_no_report(records), targets=targets)
    return {"cpu_seconds": watch.cpu_seconds, "seconds": watch.seconds, "edits_per_minute": 60 * count / watch.seconds}


def _warm(lm: LanguageModel) -> None:
    score_answers(lm.model, lm.tokenizer, ["one"], ["two"])


def _no_report(records: list[EditRequest]) -> TangleReport:
    zeros, no = np.zeros(len(records)), np.zeros(len(records), dtype=np.bool_)
    return TangleReport(zeros, zeros, zeros, zeros, zeros, ("",) * len(records), no, no, "answers")


def _depth(trial: Trial) -> Numbers:
    """The fit of one block in models of several depths."""
    blocks = int(trial.case_settings["blocks"])
    lm = random_llama(seed=trial.seed, blocks=blocks, width=256)
    editor = PIPE(lm.model, lm.tokenizer, layer=1, fit_steps=10, seed=trial.seed)
    targets = [editor.prompts.question(one.question) for one in novel_records(8, seed=trial.seed)]
    pad = pad_token(lm.tokenizer)
    prompts, real = record_rows(lm.model, editor.anatomy, targets, (1,), pad=pad)
    preserve, kept = record_rows(lm.model, editor.anatomy, editor.draw_preserved(), (1,), pad=pad)
    positions = torch.stack([torch.arange(len(real)), real.sum(1) - 1], dim=1)
    keys = prompts.outputs[1][positions[:, 0], positions[:, 1]] + 1
    job = Job(prompts, positions, keys, real, preserve, kept)
    half, none = torch.full((len(targets),), 0.5), torch.zeros(len(targets))
    options: dict[str, Any] = {"alpha": half, "rate": none, "loss": editor.config.loss, "settings": editor.config.fit}
    fit_block(editor.anatomy, 1, job, **{**options, "settings": replace(editor.config.fit, steps=2)})
    with stopwatch() as watch:
        fit_block(editor.anatomy, 1, job, **options)
    return {"blocks": float(blocks), "cpu_seconds": watch.cpu_seconds}


def _memory(trial: Trial) -> Numbers:
    """The peak of a whole edit above the loaded model, against one block's parameters and the activations kept."""
    case = trial.case_settings
    lm = _model(str(case["model"]), trial.device)
    records = [
        replace(one, ground_truth="It is not known.") for one in novel_records(int(case["count"]), seed=trial.seed)
    ]
    editor = PIPE(lm.model, lm.tokenizer, target_steps=3, fit_steps=3, seed=trial.seed)
    _warm(lm)
    block = sum(p.numel() * p.element_size() for p in editor.anatomy.blocks[editor.layers[0]].parameters())
    tokens = sum(len(one) for one in editor.prompts.pairs(records)[0]) + sum(
        len(text) for text in editor.draw_preserved()
    )
    width = editor.anatomy.vectors.shape[1]
    with peak_memory() as peak:
        targets = editor.find_targets(records)
        editor.fit(records, report=_no_report(records), targets=targets)
    kept = 3 * tokens * width * 4
    return {
        "peak_bytes": peak.bytes,
        "block_bytes": float(block),
        "activation_bytes": float(kept),
        "blocks_of_memory": (peak.bytes - kept) / block,
    }


def _scoring(trial: Trial) -> Numbers:
    """TangleScore of short records, and the two plain forward passes that it can't do without."""
    case = trial.case_settings
    lm = _model(str(case["model"]), trial.device)
    records = [
        replace(one, ground_truth=f"{one.subject} is nothing that anybody knows of.")
        for one in novel_records(int(case["count"]), seed=trial.seed)
    ]
    _warm(lm)
    if trial.arm_settings["make"] != "forwards":
        with stopwatch() as watch:
            tangle_score(lm.model, lm.tokenizer, records)
    else:
        editor = PIPE(lm.model, lm.tokenizer)
        with stopwatch() as watch, torch.no_grad():
            questions, new = editor.prompts.pairs(records)
            old = [editor.prompts.answer(str(one.ground_truth)) for one in records]
            for answers in (old, new):
                order = sorted(range(len(records)), key=lambda index: len(questions[index]) + len(answers[index]))
                for begin in range(0, len(order), 16):
                    chosen = order[begin : begin + 16]
                    batch = collate(
                        [questions[index] for index in chosen],
                        [answers[index] for index in chosen],
                        pad=pad_token(lm.tokenizer),
                    )
                    lm.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
    return {"cpu_seconds": watch.cpu_seconds, "records": float(len(records))}


_KINDS: Mapping[str, Callable[[Trial], Numbers]] = {
    "depth": _depth,
    "edit": _edit,
    "exact": _exact,
    "memory": _memory,
    "scoring": _scoring,
    "sequence": _sequence,
    "speed": _speed,
    "stability": _stability,
}
