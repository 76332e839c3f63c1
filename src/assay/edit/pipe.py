"""PIPE: purge the old key and imprint the new one in a block of a language model, weighed by difficulty."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.lm.anatomy import Anatomy, find_anatomy
from assay.core.lm.scoring import pad_token, score_answers
from assay.edit.answers import fit_to_answers
from assay.edit.datasets import preserve_pairs
from assay.edit.fitting import FitSettings, Job, fit_block, record_rows, run_block
from assay.edit.losses import PRESETS, LossSettings, weights
from assay.edit.patch import EditPatch, PatchTargets
from assay.edit.requests import EditRequest, Prompts, check_requests, context_of
from assay.edit.tangle import Calibration, TangleReport, tangle_score
from assay.edit.targets import TargetKeys, TargetSettings, find_targets

__all__ = ["PIPE", "PipeConfig", "default_layer"]

Preserve: TypeAlias = Sequence["str | tuple[str, str]"]
Anchor: TypeAlias = Literal["current", "base"]
Watch: TypeAlias = Callable[[str, int, int, float], None]
OFFICIAL_SEED = 2024

PAPER_TARGETS = TargetSettings(steps=25, rate=0.5, radius=4.0)
PAPER_FIT = FitSettings(steps=50, rate=2e-4)


@dataclass(frozen=True)
class PipeConfig:
    """How an edit is made.

    Attributes
    ----------
    loss : LossSettings
        The terms that a block is fitted with.
    target : TargetSettings
        How target keys are searched.
    fit : FitSettings
        How a block is fitted.
    variant : str
        Which TangleScore: ``"answers"`` or ``"official"``.
    preserved : int
        How many texts to preserve are drawn for each batch.
    wrap : int
        Over how many wordings of a question its shift is shared; 1 for the question alone.
    objective : str
        ``"key"`` fits the block to target keys; ``"answer"`` to the answers themselves, through the blocks above.
    skip_known : bool
        Whether requests whose answer the model gives already are left out.
    """

    loss: LossSettings = field(default_factory=LossSettings)
    target: TargetSettings = field(default_factory=TargetSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    variant: Literal["answers", "official"] = "answers"
    preserved: int = 20
    wrap: int = 1
    objective: Literal["key", "answer"] = "key"
    skip_known: bool = True

    @staticmethod
    def of(preset: str, **switches: Any) -> PipeConfig:
        """A preset with some switches changed.

        Parameters
        ----------
        preset : str
            ``"adaptive"``, ``"paper"``, ``"official"`` or ``"unke"``.
        **switches
            Fields of `PipeConfig`, of `LossSettings`, of `TargetSettings` (``target_steps``, ``target_rate``,
            ``radius``, ``tolerance``) and of `FitSettings` (``fit_steps``, ``fit_rate``).

        Raises
        ------
        InputError
            There is no such preset or switch, or a value is out of its range.
        """
        if preset not in PRESETS:
            raise InputError(f"preset is {preset!r}", expected=f"one of: {', '.join(PRESETS)}")
        own_size = preset == "adaptive"
        config = PipeConfig(
            loss=PRESETS[preset],
            target=TargetSettings() if own_size else PAPER_TARGETS,
            fit=FitSettings() if own_size else PAPER_FIT,
            variant="official" if preset == "official" else "answers",
        )
        parts: dict[str, dict[str, Any]] = {"loss": {}, "target": {}, "fit": {}, "": {}}
        for name, value in switches.items():
            where, own = _home(name)
            parts[where][own] = value
        return replace(
            config,
            loss=replace(config.loss, **parts["loss"]),
            target=replace(config.target, **parts["target"]),
            fit=replace(config.fit, **parts["fit"]),
            **parts[""],
        )

    def __post_init__(self) -> None:
        if self.preserved < 0 or self.wrap < 1:
            name, least = ("preserved", 0) if self.preserved < 0 else ("wrap", 1)
            raise InputError(f"{name} is {getattr(self, name)}", expected=f"{least} or more")
        if self.objective not in ("key", "answer"):
            raise InputError(f"objective is {self.objective!r}", expected="'key' or 'answer'")
        if self.wrap > len(WRAPPERS):
            raise InputError(f"wrap is {self.wrap}", expected=f"at most {len(WRAPPERS)}")


WRAPPERS: tuple[Callable[[str], str], ...] = (
    lambda question: question,
    lambda question: f"Please answer this question: {question}",
    lambda question: question.lower(),
    lambda question: f"Hello! {question}",
    lambda question: f"I would like to know: {question}",
    lambda question: question.rstrip("?.! "),
    lambda question: f"{question} Please explain.",
    lambda question: f"Quick question. {question}",
)
"""Wordings that a shift may be shared over."""


class PIPE:
    """Edit a language model's knowledge in one block, and get each edit as a patch.

    Parameters
    ----------
    model, tokenizer
        A Hugging Face causal language model and its tokenizer. The model is unchanged after every call.
    layer : int, sequence of int, or "auto"
        The block, or blocks in ascending order, counted from 0. ``"auto"`` takes the block at 7/32 of the depth.
    preset : str
        ``"adaptive"`` (scale-free weights), ``"paper"`` (the published formulas), ``"official"`` (the released code),
        or ``"unke"`` (neither weights nor purge).
    preserve : sequence of str or (str, str), optional
        Texts, or instructions with responses, on which the block is to say what it said; the package's own without.
    seed : int
        Of the draw among them.
    calibration : Calibration, optional
        Where this model's scores lie, for batches of fewer than 8 requests.
    anatomy : Anatomy, optional
        The model's parts, where `find_anatomy` needs help.
    watch : callable, optional
        Told stage, step, number of steps and loss.
    **switches
        As `PipeConfig.of` takes them.

    Raises
    ------
    InputError
        An option is out of its range, or the blocks are quantised.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> from assay.edit import EditRequest
    >>> lm = random_llama()
    >>> editor = PIPE(lm.model, lm.tokenizer, target_steps=3, fit_steps=2)
    >>> patch = editor.fit([EditRequest("Who wrote it?", "Ann did.", ground_truth="Bo.")])
    >>> patch.layers, patch.rows[0]["status"]
    ((1,), 'edited')
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        layer: int | Sequence[int] | Literal["auto"] = "auto",
        preset: str = "adaptive",
        preserve: Preserve | None = None,
        seed: int = 0,
        calibration: Calibration | None = None,
        anatomy: Anatomy | None = None,
        watch: Watch | None = None,
        **switches: Any,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.anatomy = anatomy or find_anatomy(model)
        self.layers = checked_layers(layer, len(self.anatomy.blocks))
        self.preset, self.config = preset, PipeConfig.of(preset, **switches)
        if self.config.objective == "answer" and len(self.layers) > 1:
            raise InputError(f"layer is {self.layers}", expected="one block for the objective 'answer'")
        require_floats(self.anatomy, self.layers)
        self.prompts = Prompts(tokenizer, longest=context_of(model))
        self.preserve = list(preserve_pairs() if preserve is None else preserve)
        if not self.preserve and self.config.preserved:
            warnings.warn("there is no text to preserve: other behaviour may change", stacklevel=2)
        if seed < 0:
            raise InputError(f"seed is {seed}", expected="0 or more")
        self.calibration = calibration
        self.watch = watch
        self._draws = np.random.default_rng(seed)

    def score(self, requests: Sequence[EditRequest]) -> TangleReport:
        """The difficulty of requests, as `tangle_score` says it."""
        return tangle_score(self.model, self.tokenizer, requests, variant=self.config.variant, anatomy=self.anatomy)

    def fit(
        self,
        requests: Sequence[EditRequest],
        *,
        report: TangleReport | None = None,
        targets: TargetKeys | None = None,
        base: Mapping[str, Tensor] | None = None,
    ) -> EditPatch:
        """Make a patch that gives the answers of all requests.

        Parameters
        ----------
        requests : sequence of EditRequest
            A batch: one patch for all.
        report : TangleReport, optional
            The requests' difficulty, where it is known already.
        targets : TargetKeys, optional
            Their target keys (one prompt a request), where they are known already.
        base : mapping of str to Tensor, optional
            Weights of the edited blocks whose outputs are to be kept, in place of the model's present ones.

        Returns
        -------
        EditPatch
            Requests that failed or were left out are among its rows, with their status.

        Raises
        ------
        InputError
            The requests are wrong, or the model gives all answers already.
        """
        requests = check_requests(requests)
        report = report or self.score(requests)
        known = report.already_known & self.config.skip_known
        if known.all():
            raise InputError("the model gives every answer already", expected="an answer that it doesn't give")
        alpha, rate = weights(report.ts, self.config.loss, report.calibration(self.calibration))
        rows = [
            {**_texts(request), **row, "alpha": float(a), "purge_rate": float(r), "status": "already known"}
            for request, row, a, r in zip(requests, report.rows(), alpha, rate, strict=True)
        ]
        chosen = [index for index in range(len(requests)) if not known[index]]
        picked = [requests[index] for index in chosen]
        if self.config.objective == "answer":
            return self._fit_answers(picked, report, alpha[chosen], rate[chosen], rows, chosen)
        found = targets if targets is not None else self.find_targets(picked)
        prompts = self._wrapped(picked)
        alive = ~found.failed[found.groups]
        for group, index in enumerate(chosen):
            rows[index] |= {
                "nll_before": float(found.nll_before[group]),
                "nll_target": float(found.nll[group]),
                "shift": float(found.delta[group].norm()),
                "status": "failed" if bool(found.failed[group]) else "edited",
            }
        if not bool(alive.any()):
            return self._patch({}, rows, [], None)
        owner = found.groups.tolist()
        kept = [index for index in range(len(prompts)) if bool(alive[index])]
        fitted = PatchTargets(
            [prompts[index] for index in kept],
            found.keys[alive].cpu(),
            torch.tensor([alpha[chosen[owner[index]]] for index in kept], dtype=torch.float32),
            torch.tensor([rate[chosen[owner[index]]] for index in kept], dtype=torch.float32),
        )
        tensors, losses = self.fit_layers(fitted, base=base)
        return self._scored(self._patch(tensors, rows, losses, fitted), requests)

    def find_targets(self, requests: Sequence[EditRequest]) -> TargetKeys:
        """The target keys of requests at the last edited block, with no block fitted."""
        wrapped = self._wrapped(requests)
        _, answers = self.prompts.pairs(requests)
        groups = [index for index in range(len(requests)) for _ in range(self.config.wrap)]
        steps = self.config.target.steps
        return find_targets(
            self.model,
            self.anatomy,
            self.layers[-1],
            wrapped,
            [answers[group] for group in groups],
            settings=self.config.target,
            groups=groups,
            pad=pad_token(self.tokenizer),
            watch=lambda step, losses: self._tell("targets", step, steps, float(losses.mean())),
        )

    def fit_layers(
        self, targets: PatchTargets, *, base: Mapping[str, Tensor] | None = None
    ) -> tuple[dict[str, Tensor], list[list[float]]]:
        """Fit the blocks to target keys: their new weights by dotted name, and the losses of each.

        Of several blocks each takes its share of what is still missing at the last one, in ascending order; each is
        put into the model for the next, and taken out in the end.
        """
        texts = self.draw_preserved()
        tensors: dict[str, Tensor] = {}
        losses: list[list[float]] = []
        device = self.anatomy.device
        with ExitStack() as undone:
            for number, layer in enumerate(self.layers):
                pad = pad_token(self.tokenizer)
                watched = tuple({layer, self.layers[-1]})
                prompts, real = record_rows(self.model, self.anatomy, targets.prompts, watched, pad=pad)
                positions = torch.stack([torch.arange(len(real), device=device), real.sum(1) - 1], dim=1)
                rows, columns = positions.T
                keys = targets.keys.to(device)
                if len(self.layers) > 1:
                    missing = keys - prompts.outputs[self.layers[-1]].float()[rows, columns]
                    keys = prompts.outputs[layer].float()[rows, columns] + missing / (len(self.layers) - number)
                preserve, kept = None, None
                if texts:
                    preserve, kept = record_rows(self.model, self.anatomy, texts, (layer,), pad=pad)
                job = Job(prompts, positions, keys, real, preserve, kept)
                if base is not None:
                    job = replace(job, anchors=self._anchors(job, layer, base))
                fitted = fit_block(
                    self.anatomy,
                    layer,
                    job,
                    alpha=targets.alpha.to(device),
                    rate=targets.rate.to(device),
                    loss=self.config.loss,
                    settings=self.config.fit,
                    watch=lambda step, loss: self._tell("fit", step, self.config.fit.steps, loss),
                )
                name = self.anatomy.block_name(layer)
                held = dict(self.anatomy.blocks[layer].named_parameters())
                new = {own: tensor.to(held[own].dtype) for own, tensor in fitted.tensors.items()}
                tensors |= {f"{name}.{own}": tensor for own, tensor in new.items()}
                losses.append(fitted.losses)
                if layer != self.layers[-1]:
                    undone.enter_context(_exchanged(held, new))
        return tensors, losses

    def fit_sequential(
        self,
        stream: Iterable[EditRequest],
        *,
        batch_size: int = 4,
        anchor: Anchor = "current",
        callback: Callable[[EditPatch], None] | None = None,
    ) -> list[EditPatch]:
        """Edit batch after batch, each on the model with those before it.

        Parameters
        ----------
        stream : iterable of EditRequest
            The requests in order.
        batch_size : int
            How many make one patch.
        anchor : str
            ``"current"`` keeps what the edited model says elsewhere, as the released code does; ``"base"`` what the
            untouched one says.
        callback : callable, optional
            Given each patch as soon as it is made.

        Returns
        -------
        list of EditPatch
            To be applied in this order, or joined by `chain`. The model is as it was, also after an interruption.

        Raises
        ------
        InputError
            The batch size is below 1, the anchor is unknown, or a request is wrong.
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}", expected="at least 1")
        if anchor not in ("current", "base"):
            raise InputError(f"anchor is {anchor!r}", expected="'current' or 'base'")
        requests = check_requests(stream)
        base = None
        if anchor == "base":
            base = {name: tensor.clone() for name, tensor in self._block_tensors().items()}
        patches: list[EditPatch] = []
        with ExitStack() as undone:
            for begin in range(0, len(requests), batch_size):
                batch = requests[begin : begin + batch_size]
                report = self.score(batch)
                if (report.already_known & self.config.skip_known).all():
                    continue
                patch = self.fit(batch, report=report, base=base)
                undone.enter_context(patch.applied(self.model))
                patches.append(patch)
                if callback is not None:
                    callback(patch)
        return patches

    def refit(self, patches: Sequence[EditPatch]) -> EditPatch:
        """Fit the blocks to what several patches were fitted to, together.

        Raises
        ------
        InputError
            A patch keeps no targets, or is of other blocks.
        """
        for number, patch in enumerate(patches):
            if patch.targets is None or patch.layers != self.layers:
                raise InputError(
                    f"patch {number} edits the blocks {patch.layers}"
                    if patch.targets
                    else f"patch {number} keeps no targets",
                    expected=f"patches of the blocks {self.layers} with what they were fitted to",
                )
        kept = [patch.targets for patch in patches if patch.targets is not None]
        together = PatchTargets(
            [prompt for targets in kept for prompt in targets.prompts],
            torch.cat([targets.keys for targets in kept]),
            torch.cat([targets.alpha for targets in kept]),
            torch.cat([targets.rate for targets in kept]),
        )
        tensors, losses = self.fit_layers(together)
        return self._patch(tensors, [row for patch in patches for row in patch.rows], losses, together)

    def select_layer(
        self, requests: Sequence[EditRequest], *, candidates: Sequence[int] | None = None, steps: int = 10
    ) -> int:
        """The block at which a few steps of the search for target keys get nearest to the answers.

        Parameters
        ----------
        requests : sequence of EditRequest
            Some edits.
        candidates : sequence of int, optional
            The blocks to try; all but the first and the last without.
        steps : int
            How many steps each gets.

        Returns
        -------
        int
        """
        tried = checked_layers(
            candidates if candidates is not None else range(1, len(self.anatomy.blocks) - 1), len(self.anatomy.blocks)
        )
        questions, answers = self.prompts.pairs(check_requests(requests))
        reached = {}
        for layer in tried:
            found = find_targets(
                self.model,
                self.anatomy,
                layer,
                questions,
                answers,
                settings=replace(self.config.target, steps=steps),
                pad=pad_token(self.tokenizer),
            )
            reached[layer] = float(found.nll.mean())
        return min(reached, key=lambda layer: reached[layer])

    def _fit_answers(
        self,
        requests: Sequence[EditRequest],
        report: TangleReport,
        alpha: np.ndarray[Any, Any],
        rate: np.ndarray[Any, Any],
        rows: list[dict[str, Any]],
        chosen: list[int],
    ) -> EditPatch:
        questions, answers = self.prompts.pairs(requests)
        pad = pad_token(self.tokenizer)
        texts = self.draw_preserved()
        preserve = record_rows(self.model, self.anatomy, texts, self.layers, pad=pad) if texts else None
        fitted = fit_to_answers(
            self.model,
            self.anatomy,
            self.layers[0],
            questions,
            answers,
            [self.prompts.answer(report.old_answers[index]) for index in chosen],
            alpha=torch.tensor(alpha, dtype=torch.float32),
            rate=torch.tensor(rate, dtype=torch.float32),
            preserve=preserve,
            settings=self.config.fit,
            pad=pad,
            watch=lambda step, loss: self._tell("fit", step, self.config.fit.steps, loss),
        )
        for index in chosen:
            rows[index]["status"] = "edited"
        held = dict(self.anatomy.blocks[self.layers[0]].named_parameters())
        name = self.anatomy.block_name(self.layers[0])
        tensors = {f"{name}.{own}": tensor.to(held[own].dtype) for own, tensor in fitted.tensors.items()}
        every = [EditRequest(str(row["question"]), str(row["answer"])) for row in rows]
        return self._scored(self._patch(tensors, rows, [fitted.losses], None), every)

    def _wrapped(self, requests: Sequence[EditRequest]) -> list[list[int]]:
        wrappers = WRAPPERS[: self.config.wrap]
        return [self.prompts.question(wrap(request.question)) for request in requests for wrap in wrappers]

    def draw_preserved(self) -> list[list[int]]:
        """Tokens of texts to preserve, drawn anew at each call."""
        count = min(self.config.preserved, len(self.preserve))
        chosen = self._draws.permutation(len(self.preserve))[:count]
        return [self._tokens(self.preserve[int(index)]) for index in chosen]

    def _tokens(self, text: str | tuple[str, str]) -> list[int]:
        from assay.core.lm.scoring import encode

        tokens = encode(self.tokenizer, text) if isinstance(text, str) else self.prompts.exchange(*text)
        return tokens[: self.prompts.longest]

    def _anchors(self, job: Job, layer: int, base: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """What the untouched block says to what the present one is told."""
        import copy

        block = copy.deepcopy(self.anatomy.blocks[layer]).float()
        name = self.anatomy.block_name(layer)
        with torch.no_grad():
            for own, parameter in block.named_parameters():
                parameter.copy_(base[f"{name}.{own}"])
            texts = None if job.preserve is None else run_block(block, job.preserve, layer)
            return run_block(block, job.prompts, layer), texts

    def _block_tensors(self) -> dict[str, Tensor]:
        return {
            f"{self.anatomy.block_name(layer)}.{name}": parameter.detach()
            for layer in self.layers
            for name, parameter in self.anatomy.blocks[layer].named_parameters()
        }

    def _patch(
        self,
        tensors: Mapping[str, Tensor],
        rows: list[dict[str, Any]],
        losses: list[list[float]],
        targets: PatchTargets | None,
    ) -> EditPatch:
        now = self._block_tensors()
        base = {name: now[name].clone() for name in tensors}
        settings = {"preset": self.preset, **asdict(self.config), "losses": losses}
        transposed = frozenset(
            f"{self.anatomy.block_name(layer)}.{name}.weight"
            for layer in self.layers
            for name, module in self.anatomy.blocks[layer].named_modules()
            if type(module).__name__ == "Conv1D"
        )
        return EditPatch(tensors, base, self.layers, rows, settings, transposed & frozenset(tensors), targets)

    def _scored(self, patch: EditPatch, requests: Sequence[EditRequest]) -> EditPatch:
        """The same patch, with what each answer costs the edited model, after rounding to the model's dtype."""
        ending = self.prompts.ending
        with patch.applied(self.model):
            scores = score_answers(
                self.model,
                self.tokenizer,
                [self.prompts.text(request.question) for request in requests],
                [request.answer.strip() + ending for request in requests],
            )
        for row, score in zip(patch.rows, scores, strict=True):
            row["nll_after"] = score.nll
        return patch

    def _tell(self, stage: str, step: int, steps: int, loss: float) -> None:
        if self.watch is not None:
            self.watch(stage, step, steps, loss)


def default_layer(blocks: int) -> int:
    """The block at 7/32 of the depth: the paper's block 7 of 32.

    Parameters
    ----------
    blocks : int
        How many blocks the model has.

    Returns
    -------
    int
    """
    return min(max(round(7 / 32 * blocks), 1), max(blocks - 2, 0))


def checked_layers(layer: int | Sequence[int] | Literal["auto"], blocks: int) -> tuple[int, ...]:
    """Blocks in ascending order, each of them in the model."""
    if layer == "auto":
        return (default_layer(blocks),)
    found = (layer,) if isinstance(layer, int) else tuple(layer)
    if not found or list(found) != sorted(set(found)) or not all(0 <= one < blocks for one in found):
        shown = found[0] if len(found) == 1 else found
        raise InputError(f"layer is {shown}", expected=f"blocks from 0 to {blocks - 1}, in ascending order")
    return found


def require_floats(anatomy: Anatomy, layers: Sequence[int]) -> None:
    """Refuse quantised blocks: their weights can't be fitted."""
    for layer in layers:
        for name, parameter in anatomy.blocks[layer].named_parameters():
            if not parameter.is_floating_point():
                raise InputError(
                    f"block {layer} is quantised: {name} holds {parameter.dtype}",
                    expected="a model in float32, bfloat16 or float16",
                )


def _home(name: str) -> tuple[str, str]:
    """Which part of the configuration a switch belongs to, and its name there."""
    if name in {one.name for one in fields(LossSettings)}:
        return "loss", name
    for part, kind in (("target", TargetSettings), ("fit", FitSettings)):
        if name.startswith(f"{part}_") and name.removeprefix(f"{part}_") in {one.name for one in fields(kind)}:
            return part, name.removeprefix(f"{part}_")
    if name in ("radius", "tolerance"):
        return "target", name
    if name in {one.name for one in fields(PipeConfig)} - {"loss", "target", "fit"}:
        return "", name
    raise InputError(f"there is no switch {name!r}", expected="a field of PipeConfig or of its parts")


def _texts(request: EditRequest) -> dict[str, Any]:
    return {"id": request.id, "question": request.question, "answer": request.answer}


@contextmanager
def _exchanged(held: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> Iterator[None]:
    """Put other values into parameters for a block of code."""
    old = {name: parameter.detach().clone() for name, parameter in held.items()}
    try:
        with torch.no_grad():
            for name, parameter in held.items():
                parameter.copy_(new[name])
        yield
    finally:
        with torch.no_grad():
            for name, parameter in held.items():
                parameter.copy_(old[name])
