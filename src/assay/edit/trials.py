"""One trial: an arm edits some records, or is timed at it, and what came of it is measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.lm import LanguageModel, collate, load_language_model, random_llama, score_answers
from assay.core.lm.scoring import pad_token
from assay.core.measure import peak_memory, stopwatch
from assay.core.study import Trial
from assay.edit.benchmarks import kebench_scores
from assay.edit.closed_form import closed_form_edit
from assay.edit.composing import compose
from assay.edit.datasets import entrenched_records, locality_pairs, neutral_prompts, novel_records, short_records
from assay.edit.fine_tuning import fine_tune, fine_tune_lora
from assay.edit.fitting import Job, fit_block, record_rows
from assay.edit.gated import fit_gated
from assay.edit.losses import PRESETS, Parts, block_loss
from assay.edit.metrics import Locality, evaluate_edits, judged_right, locality
from assay.edit.patch import EditPatch
from assay.edit.pipe import PIPE, WRAPPERS
from assay.edit.plots import (
    picture_bytes,
    plot_decay,
    plot_difficulty,
    plot_interference,
    plot_old_answers,
    plot_shifts,
)
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
        patch = _made(arm, lm, prepared, trial)
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
            if trial.arm == "adaptive" and case.get("again", False):
                numbers |= _scored_again(lm, prepared)
    if case.get("structured", False):
        found = kebench_scores(lm.model, lm.tokenizer, prepared.records, patch=patch, max_new_tokens=10)
        numbers |= {f"right_{name}": value for name, value in found.items()}
    if trial.arm == "adaptive" and trial.seed == 0 and isinstance(patch, EditPatch):
        _draw_edits(trial, prepared.report, rows, patch)
    return {name: value for name, value in numbers.items() if not np.isnan(value)}


def _made(arm: Mapping[str, Any], lm: LanguageModel, prepared: _Prepared, trial: Trial) -> Any:
    """The arm's patch; None for arms that edit nothing."""
    make = str(arm["make"])
    records = prepared.records
    if make in ("none", "in-context"):
        return None
    if make == "user":
        assert trial.function is not None
        return trial.function(lm.model, lm.tokenizer, records, trial.seed)
    if make == "ft":
        return fine_tune(lm.model, lm.tokenizer, records, **arm.get("settings", {}))
    if make == "lora":
        return fine_tune_lora(lm.model, lm.tokenizer, records, seed=trial.seed, **arm.get("settings", {}))
    editor = _editor(lm, trial)
    if make == "gated":
        # The gates see other wordings than those that the edit is rated by.
        worded = [replace(one, paraphrases=tuple(wrap(one.question) for wrap in WRAPPERS[1:4])) for one in records]
        return fit_gated(editor, worded, targets=prepared.targets)
    if make == "windows":
        return any_edit(editor, records, window=int(arm["window"]))
    if make == "closed-form":
        options: dict[str, Any] = {
            option: float(arm[name]) for name, option in CLOSED_FORM_OPTIONS.items() if name in arm
        }
        return closed_form_edit(editor, records, method=arm["method"], **options)
    own_targets = any(name in arm.get("settings", {}) for name in ("wrap", "layer", "objective"))
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


def _draw_edits(trial: Trial, report: TangleReport, rows: list[dict[str, Any]], patch: EditPatch) -> None:
    cost = [row["nll_paraphrase"] for row in rows]
    pictures = {
        "difficulty": plot_difficulty(report.ts, cost, outcome="reworded question, nats a token", title=trial.case),
        "old-answers": plot_old_answers(
            report.nll_old, [row["old_nll_original"] for row in rows], title=f"{trial.case}: what the old answers cost"
        ),
        "shifts": plot_shifts([row["shift"] for row in patch.rows if "shift" in row], title=trial.case),
    }
    for name, figure in pictures.items():
        trial.keep(f"{name}.svg", picture_bytes(figure))


def _invented(case: Mapping[str, Any], seed: int) -> list[EditRequest]:
    """Invented records with one rewording each, whose old answer needn't be asked for."""
    return [
        replace(one, paraphrases=one.paraphrases[:1], ground_truth="It is not known.")
        for one in novel_records(int(case["count"]), seed=seed)
    ]


def _editor(lm: LanguageModel, trial: Trial) -> PIPE:
    """An editor with the settings of case and arm."""
    case = trial.case_settings
    steps = {"target_steps": 50, "fit_steps": 50, "preserved": 20}
    switches: dict[str, Any] = {name: int(case.get(name, usual)) for name, usual in steps.items()}
    switches |= trial.arm_settings.get("settings", {})
    calibration = Calibration(tuple(case["calibration"])) if "calibration" in case else None
    return PIPE(lm.model, lm.tokenizer, seed=trial.seed, skip_known=False, calibration=calibration, **switches)


def _sequence(trial: Trial) -> Numbers:
    """Batches one after another: what the first edit and everything else are worth as more follow."""
    case, arm = trial.case_settings, trial.arm_settings
    lm = _model(str(case["model"]), trial.device)
    records, size = _invented(case, trial.seed), int(case["batch"])
    rest = locality(lm.model, lm.tokenizer, [], neutral_prompts())
    before = _costs(lm, records[:size])
    editor = _editor(lm, trial)
    patches = editor.fit_sequential(records, batch_size=size, anchor=arm.get("anchor", "current"))
    costs, drifts = [], []
    with ExitStack() as undone:
        for patch in patches:
            undone.enter_context(patch.applied(lm.model))
            costs.append(_costs(lm, records[:size]))
            drifts.append(rest.compare(lm.model, lm.tokenizer)["locality_kl"])
        last = _costs(lm, records)
    kept = [_share(before, costs[0], cost, "original") for cost in costs]
    numbers: Numbers = {"batches": float(len(patches)), "share_kept": kept[-1], "locality_kl": drifts[-1]}
    numbers |= {f"nll_{side}": value for side, value in last.items()}
    for count in (1, 2, 5, 10):
        if count < len(patches):
            numbers |= {f"share_kept_{count}": kept[count - 1], f"locality_kl_{count}": drifts[count - 1]}
    if trial.seed == 0:
        curves = {
            "first edit, nats a token": [cost["original"] for cost in costs],
            "first edit reworded, nats a token": [cost["paraphrase"] for cost in costs],
            "unrelated prompts, divergence in nats": drifts,
        }
        trial.keep("decay.svg", picture_bytes(plot_decay(curves, title=trial.arm)))
    return numbers


def _costs(lm: LanguageModel, records: list[EditRequest]) -> dict[str, float]:
    """What the answers cost after the questions and after their rewordings, in nats a token."""
    rows = evaluate_edits(lm.model, lm.tokenizer, [replace(one, ground_truth=None) for one in records], generated=False)
    return {side: float(np.mean([row[f"nll_{side}"] for row in rows])) for side in ("original", "paraphrase")}


def _share(before: Mapping[str, float], best: Mapping[str, float], now: Mapping[str, float], side: str) -> float:
    """The share of what was gained that is left; 0 where nothing was."""
    gained = before[side] - best[side]
    return (before[side] - now[side]) / gained if gained > 0 else 0.0


def _batches(trial: Trial) -> Numbers:
    """The same records edited in batches of several sizes, each batch on the unedited model."""
    case = trial.case_settings
    lm = _model(str(case["model"]), trial.device)
    records = _invented(case, trial.seed)
    rest = locality(lm.model, lm.tokenizer, [], neutral_prompts())
    editor = _editor(lm, trial)
    targets, report = editor.find_targets(records), editor.score(records)
    before = _costs(lm, records)
    numbers: Numbers = {}
    for size in case["sizes"]:
        found: list[dict[str, float]] = []
        for begin in range(0, len(records), size):
            ours = slice(begin, begin + size)
            patch = editor.fit(records[ours], report=_part(report, ours), targets=_targets_of(targets, ours))
            with patch.applied(lm.model):
                found.append(_costs(lm, records[ours]) | rest.compare(lm.model, lm.tokenizer))
        means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        numbers |= {f"gain_{side}_{size}": before[side] - means[side] for side in ("original", "paraphrase")}
        numbers[f"locality_kl_{size}"] = means["locality_kl"]
    first, last = case["sizes"][0], case["sizes"][-1]
    for side in ("original", "paraphrase"):
        alone, together = numbers[f"gain_{side}_{first}"], numbers[f"gain_{side}_{last}"]
        numbers[f"batch_kept_{side}"] = together / alone if alone > 0 else 0.0
    return numbers


def _part(report: TangleReport, chosen: slice) -> TangleReport:
    """The report of some of the requests."""
    values: dict[str, Any] = {one.name: getattr(report, one.name) for one in fields(report)}
    return replace(report, **{name: one[chosen] for name, one in values.items() if not isinstance(one, str)})


def _targets_of(targets: TargetKeys, chosen: slice) -> TargetKeys:
    """The target keys of some of the requests, one prompt each."""
    return TargetKeys(
        targets.base[chosen],
        targets.delta[chosen],
        torch.arange(len(targets.base[chosen]), device=targets.base.device),
        targets.nll_before[chosen],
        targets.nll[chosen],
        targets.path[:, chosen],
        targets.failed[chosen],
    )


def _interference(trial: Trial) -> Numbers:
    """Patches of one edit each: what each does to the others' edits, and what they are worth joined."""
    case = trial.case_settings
    lm = _model(str(case["model"]), trial.device)
    records = _invented(case, trial.seed)
    editor = _editor(lm, trial)
    targets, report = editor.find_targets(records), editor.score(records)
    before = np.array([_costs(lm, [one])["original"] for one in records])
    alone = [slice(number, number + 1) for number in range(len(records))]
    patches = [editor.fit(records[one], report=_part(report, one), targets=_targets_of(targets, one)) for one in alone]

    def gains(patch: EditPatch) -> np.ndarray[Any, np.dtype[np.float64]]:
        with patch.applied(lm.model):
            return before - [_costs(lm, [one])["original"] for one in records]

    matrix = np.stack([gains(patch) for patch in patches], axis=1)
    own = np.diag(matrix)
    others = matrix[~np.eye(len(records), dtype=bool)]
    added, joint = (gains(compose(patches, mode=mode, editor=editor)).mean() for mode in ("add", "joint"))
    if trial.seed == 0:
        names = [one.question for one in records]
        picture = plot_interference(matrix, names=names, title="what a patch does to each edit")
        trial.keep("interference.svg", picture_bytes(picture))
    return {
        "gain_own": float(own.mean()),
        "gain_others": float(others.mean()),
        "gain_added": float(added),
        "gain_joint": float(joint),
        "joint_over_added": float(joint - added),
    }


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
    work = _fit_alone(editor, novel_records(8, seed=trial.seed))
    work()
    with stopwatch() as watch:
        work()
    return {"blocks": float(blocks), "cpu_seconds": watch.cpu_seconds}


def _memory(trial: Trial) -> Numbers:
    """The peak of a whole edit, or of the fit alone, above the loaded model, in sizes of the edited block."""
    case = trial.case_settings
    lm = _model(str(case["model"]), trial.device)
    records = _invented(case, trial.seed)
    editor = PIPE(lm.model, lm.tokenizer, target_steps=3, fit_steps=3, seed=trial.seed)
    [layer] = editor.layers
    _warm(lm)
    block = sum(p.numel() * p.element_size() for p in editor.anatomy.blocks[layer].parameters())
    kept = _kept_bytes(editor, records)
    if case["part"] == "fit":
        work = _fit_alone(editor, records)
    else:

        def work() -> None:
            targets = editor.find_targets(records)
            editor.fit(records, report=_no_report(records), targets=targets)

    with peak_memory() as peak:
        work()
    saved = _saved_bytes(lm, work)
    return {
        "peak_bytes": peak.bytes,
        "block_bytes": float(block),
        "kept_bytes": float(kept),
        "activation_bytes": float(saved),
        "blocks_of_memory": (peak.bytes - kept) / block,
        "blocks_beside_activations": (peak.bytes - kept - saved) / block,
    }


def _kept_bytes(editor: PIPE, records: list[EditRequest]) -> int:
    """Of the block's inputs, outputs and targets on prompts and texts."""
    tokens = sum(map(len, editor.prompts.pairs(records)[0])) + sum(map(len, editor.draw_preserved()))
    return 3 * tokens * int(editor.anatomy.vectors.shape[1]) * 4


def _saved_bytes(lm: LanguageModel, work: Callable[[], None]) -> int:
    """The most that a backward pass of some work finds kept for it, the model's weights left out."""
    own = {parameter.untyped_storage().data_ptr() for parameter in lm.model.parameters()}
    sizes: dict[int, int] = {}
    most = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal most
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and not isinstance(tensor, torch.nn.Parameter):
            sizes[storage.data_ptr()] = storage.nbytes()
            most = max(most, sum(sizes.values()))
        return tensor

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        # The backward pass begins: what the next forward pass keeps is counted anew.
        sizes.clear()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        work()
    return most


def _fit_alone(editor: PIPE, records: list[EditRequest]) -> Callable[[], None]:
    """The fit of a block to given keys, with all that it is fitted to made beforehand."""
    [layer] = editor.layers
    rows, pad = editor.prompts.pairs(records)[0], pad_token(editor.tokenizer)
    prompts, real = record_rows(editor.model, editor.anatomy, rows, (layer,), pad=pad)
    preserve, kept = record_rows(editor.model, editor.anatomy, editor.draw_preserved(), (layer,), pad=pad)
    positions = torch.stack([torch.arange(len(real)), real.sum(1) - 1], dim=1)
    keys = prompts.outputs[layer][positions[:, 0], positions[:, 1]] + 1
    job = Job(prompts, positions, keys, real, preserve, kept)
    half, none = torch.full((len(rows),), 0.5), torch.zeros(len(rows))

    def work() -> None:
        fit_block(
            editor.anatomy,
            layer,
            job,
            alpha=half,
            rate=none,
            loss=editor.config.loss,
            settings=editor.config.fit,
        )

    return work


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
    "batches": _batches,
    "depth": _depth,
    "edit": _edit,
    "exact": _exact,
    "interference": _interference,
    "memory": _memory,
    "scoring": _scoring,
    "sequence": _sequence,
    "speed": _speed,
    "stability": _stability,
}
