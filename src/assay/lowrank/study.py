"""What is claimed of Trion and DCT-AdamW, by their paper and by us, and the trials that decide it.

Each arm's learning rate was chosen on the seeds 1000 to 1003 (`assay.lowrank.tuning`); the seeds that decide start at
0. Speed is CPU time of one thread on the same gradients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.core.claim import Claim, PaperFigure, always, better, grows, no_worse, ratio, within
from assay.core.device import gpu_names
from assay.core.study import Arm, Case, Scale, Study
from assay.lowrank.trials import run_trial

__all__ = ["STUDY"]

TUNED = {
    "dct-adamw": 0.01,
    "trion": 0.02,
    "dct-galore": 0.08,
    "dct-fira": 0.08,
    "dct-frugal": 0.002,
    "dct-adamw-ef": 0.01,
    "dct-adamw-ef8": 0.01,
    "dct-adamw-ef4": 0.01,
    "dct-adamw-published8": 0.01,
    "dct-adamw-published4": 0.01,
    "dct-adamw-stay": 0.02,
    "dct-adamw-age": 0.01,
    "dct-adamw-norm1": 0.01,
    "dct-adamw-ordered": 0.01,
    "trion-bf16": 0.02,
    "dct-adamw-random": 0.01,
    "dct-adamw-identity": 0.02,
    "trion-random": 0.02,
    "adamw": 0.0015,
    "muon": 0.02,
    "dion": 0.01,
    "ldadamw": 0.01,
    "galore": 0.08,
    "galore-torch": 0.08,
    "fira": 0.08,
    "frugal": 0.004,
}
"""The learning rate of each arm, by mean held-out loss on the seeds for tuning; see `assay.lowrank.tuning`."""
ADAMW_LR = 3e-3
"""Of what isn't projected, with the optimisers that have two rates: one of AdamW's two best, which are level; the same
for all of them."""
GAP = 25
"""Steps between choices of directions in GaLore, FIRA and FRUGAL: their 200 would be as long as the whole run."""


def _trained(
    label: str, optimizer: str, *, role: Any = "method", formula: str = "", step: Any = None, **settings: Any
) -> Arm:
    values: dict[str, Any] = {"optimizer": optimizer, "settings": settings}
    values |= {"formula": formula} if formula else {}
    values |= {"step_settings": step} if step else {}
    if optimizer in ("trion", "dion", "muon"):
        values["adamw_lr"] = ADAMW_LR
    return Arm(values, role=role, label=label)


def _dct(label: str, *, role: Any = "ablation", formula: str = "", **settings: Any) -> Arm:
    return _trained(label, "dct-adamw", role=role, formula=formula, **settings)


def _published(bits: int) -> Arm:
    settings = {"optimizer": "published", "bits": bits}
    return Arm(settings, role="ablation", label=f"DCT-AdamW, error in {bits} bits as published")


def _basis(label: str, basis: str, *, role: Any = "control") -> Arm:
    return Arm({"basis": basis}, role=role, label=label)


_ARMS = {
    "dct-adamw": _dct("DCT-AdamW", role="method", formula="dct-adamw"),
    "trion": _trained("Trion", "trion", formula="trion"),
    "dct": _basis("cosines (DCT-II)", "dct2", role="method"),
    "dct-galore": _trained("GaLore with cosines", "dct-galore", role="ablation", update_gap=GAP),
    "dct-fira": _trained("FIRA with cosines", "dct-fira", role="method", update_gap=GAP, formula="dct-fira"),
    "dct-frugal": _trained("FRUGAL with cosines", "dct-frugal", role="method", update_gap=GAP, formula="dct-frugal"),
    "dct-adamw-ef": _dct("DCT-AdamW, error in full", error_feedback="fp", formula="dct-adamw-ef"),
    "dct-adamw-ef8": _dct("DCT-AdamW, error in 8 bits", error_feedback=8, formula="dct-adamw-ef8"),
    "dct-adamw-ef4": _dct("DCT-AdamW, error in 4 bits", error_feedback=4, formula="dct-adamw-ef4"),
    "dct-adamw-published8": _published(8),
    "dct-adamw-published4": _published(4),
    "dct-adamw-stay": _dct("DCT-AdamW, moments stay in place", rotate=False),
    "dct-adamw-age": _dct("DCT-AdamW, bias corrected by age", age_correction=True),
    "dct-adamw-norm1": _dct("DCT-AdamW, 1-norm", norm=1),
    "dct-adamw-ordered": _dct("DCT-AdamW, axis in the leading vector's order", order="leading", order_gap=GAP),
    "trion-bf16": _trained("Trion, iteration in bfloat16 as published", "trion", role="ablation", ns_dtype="bfloat16"),
    "dct-adamw-random": _dct("DCT-AdamW on a random basis", role="control", basis="random"),
    "dct-adamw-identity": _dct("DCT-AdamW on columns of the gradient", role="control", basis="identity"),
    "trion-random": _trained("Trion on a random basis", "trion", role="control", basis="random"),
    "adamw": _trained("AdamW (torch)", "adamw", role="baseline", formula="adamw"),
    "muon": _trained("Muon (torch) and AdamW", "muon", role="baseline"),
    "dion": _trained("Dion", "dion", role="baseline", formula="dion"),
    "ldadamw": _trained("LDAdamW", "ldadamw", role="baseline", formula="ldadamw"),
    "galore": _trained(
        "GaLore (SVD)", "galore", role="baseline", update_gap=GAP, formula="galore", step={"update_gap": 1}
    ),
    "galore-torch": replace(
        _trained("GaLore (galore-torch)", "galore-torch", role="peer", update_gap=GAP, step={"update_gap": 1}),
        needs=("galore_torch",),
    ),
    "fira": _trained("FIRA (SVD)", "fira", role="baseline", update_gap=GAP),
    "frugal": _trained("FRUGAL (SVD)", "frugal", role="baseline", update_gap=GAP),
    "dct3-basis": _basis("the DCT's transpose (DCT-III)", "dct3"),
    "random-basis": _basis("a random orthogonal basis", "random"),
    "hadamard-basis": _basis("Hadamard's matrix", "hadamard"),
    "identity-basis": _basis("columns of the gradient", "identity"),
    "svd": _basis("the best subspace (SVD)", "svd"),
}
TRAINED = tuple(name for name, arm in _ARMS.items() if "optimizer" in arm.settings)
ARMS = {
    name: replace(arm, settings={**arm.settings, "lr": TUNED[name]}) if name in TRAINED else arm
    for name, arm in _ARMS.items()
}
BASES = ("dct", "*-basis", "svd")
COUNTED = tuple(name for name, arm in ARMS.items() if "formula" in arm.settings)
FAST_STEP = ("dct-adamw", "trion", "trion-bf16", "adamw", "muon", "dion", "ldadamw")
TIMED = (*FAST_STEP, "galore", "galore-torch")


_PYTHON = {"kind": "training", "width": 64, "layers": 2, "heads": 4, "batch": 8, "context": 64}
LONG = ("adamw", "dct-adamw", "trion", "dion")


def _lm(
    name: str, *, width: int, steps: int, batch: int, context: int, layers: int = 2, seeds: int | None = None
) -> tuple[Case, Case]:
    size = {"width": width, "layers": layers, "heads": 4, "batch": batch, "context": context}
    return (
        Case(f"gradients-{name}", {"kind": "gradients", **size}, BASES, seeds=seeds),
        Case(f"train-{name}", {"kind": "training", "steps": steps, **size}, TRAINED, seeds=seeds),
    )


def _speed(n: int, rows: int, *, steps: int, seeds: int) -> tuple[Case, Case]:
    """Whole steps at r = n/4 and n/2; those with an SVD only at the first."""
    settings = {"kind": "step", "n": n, "rows": rows, "steps": steps}
    return tuple(  # type: ignore[return-value]
        Case(f"step-{rows}x{n}-{share}", {**settings, "rank": rank}, arms, seeds=seeds, alone=True)
        for share, rank, arms in (("quarter", 0.25, TIMED), ("half", 0.5, FAST_STEP))
    )


def _ranks(n: int, rows: int, *, steps: int, step_repeats: int, seeds: int) -> Case:
    settings = {"kind": "rank", "n": n, "rows": rows, "steps": steps, "step_repeats": step_repeats}
    return Case(f"ranks-{n}", settings, ("dct", "trion", "dion"), seeds=seeds, alone=True)


def _transform(sizes: tuple[int, ...], *, rows: int, steps: int, seeds: int) -> Case:
    return Case(
        "transform",
        {"kind": "transform", "sizes": list(sizes), "rows": rows, "steps": steps},
        ("dct",),
        seeds=seeds,
        alone=True,
    )


def _bytes(shapes: int, *, rows: int, n: int, room: float, seeds: int) -> Case:
    return Case(
        "bytes", {"kind": "bytes", "shapes": shapes, "rows": rows, "n": n, "max_temp_mb": room}, COUNTED, seeds=seeds
    )


def _growth(count: int, *, seeds: int) -> Case:
    settings = {"kind": "step", "n": 256, "rows": 512, "rank": 0.25, "steps": 5, "count": count}
    return Case(f"growth-{count}", settings, ("dct-adamw", "trion"), seeds=seeds, alone=True)


SMOKE = Scale(
    cases=(
        Case("selection", {"kind": "selection", "matrices": 100}, ("dct",), seeds=3),
        Case("ordered", {"kind": "ordered", "rho": 0.98, "n": 64}, BASES, seeds=2),
        *_lm("python", width=16, steps=8, batch=2, context=32, seeds=1),
        *_speed(64, 128, steps=3, seeds=1),
        _ranks(64, 128, steps=5, step_repeats=3, seeds=1),
        _transform((64, 256), rows=64, steps=3, seeds=1),
        _bytes(5, rows=600, n=128, room=1.0, seeds=2),
        _growth(1, seeds=1),
        _growth(4, seeds=1),
    ),
    seeds=2,
    limit_seconds=60.0,
)

LAPTOP = Scale(
    cases=(
        Case("selection", {"kind": "selection", "matrices": 200}, ("dct",), seeds=3),
        Case("ordered", {"kind": "ordered", "rho": 0.98, "n": 128}, BASES),
        *_lm("python", width=64, steps=200, batch=8, context=64),
        Case("long-python", {**_PYTHON, "steps": 800}, LONG),
        *_speed(1024, 1024, steps=3, seeds=6),
        *_speed(1024, 2048, steps=3, seeds=6),
        *_speed(1024, 4096, steps=3, seeds=6),
        *(_ranks(n, 1024, steps=15, step_repeats=3, seeds=6) for n in (512, 1024, 2048)),
        _transform((64, 128, 256, 512, 1024, 2048, 4096), rows=256, steps=3, seeds=6),
        _bytes(20, rows=2000, n=512, room=8.0, seeds=6),
        *(_growth(count, seeds=6) for count in (1, 2, 4, 8)),
    ),
    seeds=6,
    limit_seconds=300.0,
)

PAPER_RATES = {"trion": 1e-2, "dion": 1e-2}
"""The paper's; it trains both at Dion's best. What we don't know of it is as at the laptop scale."""
GLOBAL_BATCH, PAPER_CONTEXT = 512, 512


def _lacks_gpu() -> str:
    return "" if gpu_names() else "a GPU of 80 GB"


def _c4(name: str, *, width: int, layers: int, tokens: float, arms: tuple[str, ...]) -> Case:
    """A Llama from scratch on C4, at rank 256, for so many tokens."""
    return Case(
        f"c4-{name}",
        {
            "kind": "training",
            "stream": "allenai/c4:en",
            "tokenizer": "huggyllama/llama-7b",
            "device": "cuda",
            "half": True,
            "width": width,
            "layers": layers,
            "heads": width // 64,
            "rank": 256,
            "rates": PAPER_RATES,
            "batch": GLOBAL_BATCH,
            "micro": 16,
            "context": PAPER_CONTEXT,
            "steps": round(tokens / (GLOBAL_BATCH * PAPER_CONTEXT)),
        },
        arms,
        needs=("datasets", "transformers"),
        lacks=_lacks_gpu,
        alone=True,
    )


PAPER = Scale(
    cases=(
        *(
            _c4(name, width=width, layers=layers, tokens=tokens, arms=("trion", "dion", "muon"))
            for name, width, layers, tokens in (
                ("350m", 1024, 24, 7e9),
                ("800m", 2048, 16, 16e9),
                ("1300m", 2048, 24, 26e9),
            )
        ),
        _c4("800m-long", width=2048, layers=16, tokens=80e9, arms=("dct-adamw", "ldadamw", "adamw")),
    ),
    seeds=1,
    limit_seconds=1e7,
    requires="C4 from the hub, and a GPU of 80 GB for weeks",
)

LM = ("train-*",)
GRADIENTS = ("gradients-*",)
QUARTER, HALF = ("step-*-quarter",), ("step-*-half",)
HERE = ("smoke", "laptop")


def _selection() -> tuple[Claim, ...]:
    return (
        Claim(
            "selection-optimal",
            "The chosen columns err least of all subsets of r columns, e² is at most 1 - r/n, and e² is what the "
            "norms say",
            "Section 3",
            always(lambda m: m["violations"] == 0, checks="checks", rate=0.01, arms=("dct",), cases=("selection",)),
            scales=HERE,
            note="By brute force over all subsets of up to 10 columns.",
        ),
        *(
            Claim(
                f"cosines-beat-random-{name}",
                f"On gradients and momenta of a language model, the r = n/{name} most similar cosines err less than "
                f"as many of a random "
                "orthogonal basis",
                "Section 3, qualitative",
                better(f"error_{name}", "dct", than="random-basis", cases=GRADIENTS),
                scales=HERE,
            )
            for name in ("16", "4", "2")
        ),
        Claim(
            "cosines-near-svd",
            "On gradients and momenta of a language model, at r = n/4, they err at most 10 % more than the best "
            "subspace",
            "Section 3, qualitative",
            ratio("error_4", "dct", over="svd", at_most=1.1, cases=GRADIENTS),
            scales=HERE,
        ),
        Claim(
            "cosines-on-ordered-axis",
            "Where the projected axis is ordered (inputs of correlation 0.98 between neighbours), they err at most "
            "half as much as a "
            "random basis, at r = n/16",
            "ours",
            ratio("error_16", "dct", over="random-basis", at_most=0.5, cases=("ordered",)),
            scales=HERE,
        ),
        Claim(
            "dct2-is-the-right-one",
            "On an ordered axis the DCT-II errs less than its transpose, which the published code uses where it "
            "multiplies",
            "ours",
            better("error_16", "dct", than="dct3-basis", cases=("ordered",)),
            scales=HERE,
        ),
        Claim(
            "trion-projects-better-than-dion",
            "In training, Trion's momentum is projected with a smaller error than Dion's",
            "Section 5",
            better("projection_error", "trion", than="dion", cases=LM),
            scales=HERE,
        ),
    )


def _losses() -> tuple[Claim, ...]:
    return (
        Claim(
            "trion-beats-dion",
            "At equal rank (n/4) and steps, Trion reaches a lower held-out loss than Dion",
            "Table 1",
            better("validation_loss", "trion", than="dion", cases=LM),
            paper=(
                PaperFigure("350M, in nats", -0.02198),
                PaperFigure("800M", -0.01650),
                PaperFigure("1.3B", -0.01670),
            ),
            scales=HERE,
            note="The paper's perplexities as differences of their logarithms.",
        ),
        Claim(
            "muon-beats-trion",
            "Muon, which projects nothing, reaches a lower held-out loss than Trion",
            "Table 1",
            better("validation_loss", "muon", than="trion", cases=LM),
            paper=(PaperFigure("350M, in nats", -0.02047),),
            scales=HERE,
        ),
        Claim(
            "dct-adamw-beats-ldadamw",
            "DCT-AdamW reaches a lower held-out loss than LDAdamW",
            "Table 2",
            better("validation_loss", "dct-adamw", than="ldadamw", cases=LM),
            paper=(PaperFigure("800M, in nats", -0.01594),),
            scales=HERE,
        ),
        Claim(
            "adamw-beats-dct-adamw",
            "AdamW with full moments reaches a lower held-out loss than DCT-AdamW",
            "Table 2",
            better("validation_loss", "adamw", than="dct-adamw", cases=LM),
            paper=(PaperFigure("800M, in nats", -0.15461),),
            scales=HERE,
        ),
        *(
            Claim(
                f"{first}-beats-{second}-in-long-runs",
                f"In runs of four times as many steps, {first} reaches a lower held-out loss than {second}",
                source,
                better("validation_loss", first, than=second, cases=("long-*",)),
                scales=("laptop",),
                note="At the rates that were chosen for the short runs.",
            )
            for first, second, source in (("adamw", "dct-adamw", "Table 2"), ("trion", "dion", "Table 1"))
        ),
        Claim(
            "eight-bits-suffice",
            "Error feedback in 8 bits is at most 0.01 nats worse than in full",
            "Section 4",
            no_worse("validation_loss", "dct-adamw-ef8", than="dct-adamw-ef", margin=0.01, cases=LM),
            scales=HERE,
        ),
        Claim(
            "four-bits-lose",
            "Error feedback in 4 bits is worse than in 8",
            "Section 4",
            better("validation_loss", "dct-adamw-ef8", than="dct-adamw-ef4", cases=LM),
            scales=HERE,
            note="With quantisers that are right; the published 8-bit one has the resolution of 4.",
        ),
        Claim(
            "four-bits-suffice",
            "Error feedback in 4 bits, done right, is at most 0.01 nats worse than in full",
            "ours",
            no_worse("validation_loss", "dct-adamw-ef4", than="dct-adamw-ef", margin=0.01, cases=LM),
            scales=HERE,
        ),
        *(
            Claim(
                f"{name}-keeps-quality",
                f"{name.upper()} with cosines is at most 0.02 nats worse than with an SVD",
                "Appendix",
                no_worse("validation_loss", f"dct-{name}", than=name, margin=0.02, cases=LM),
                scales=HERE,
            )
            for name in ("fira", "frugal")
        ),
        *(
            Claim(
                f"our-galore-no-{word}",
                f"Our GaLore is within 0.02 nats of galore-torch's, {word} included",
                "ours",
                no_worse("validation_loss", first, than=second, margin=0.02, cases=LM),
                scales=HERE,
                note="So that a comparison with it isn't one with a weakened copy.",
            )
            for word, first, second in (("worse", "galore", "galore-torch"), ("better", "galore-torch", "galore"))
        ),
        Claim(
            "carrying-helps",
            "DCT-AdamW whose moments follow their columns reaches a lower loss than with moments that stay in place",
            "Section 4",
            better("validation_loss", "dct-adamw", than="dct-adamw-stay", cases=LM),
            scales=HERE,
        ),
        Claim(
            "age-correction-helps",
            "Correcting the bias by each column's age lowers the loss",
            "ours",
            better("validation_loss", "dct-adamw-age", than="dct-adamw", cases=LM),
            scales=HERE,
        ),
        Claim(
            "order-keeps-more",
            "With its axis in the order of the leading singular vector, DCT-AdamW's projection errs less in training",
            "ours",
            better("projection_error", "dct-adamw-ordered", than="dct-adamw", cases=LM),
            scales=HERE,
        ),
        Claim(
            "order-helps",
            "And it reaches a lower loss",
            "ours",
            better("validation_loss", "dct-adamw-ordered", than="dct-adamw", cases=LM),
            scales=HERE,
        ),
        Claim(
            "random-basis-does-as-well",
            "DCT-AdamW on a random basis is at most 0.01 nats worse than on cosines",
            "ours",
            no_worse("validation_loss", "dct-adamw-random", than="dct-adamw", margin=0.01, cases=LM),
            scales=HERE,
            note="The control that the paper lacks.",
        ),
        Claim(
            "trion-random-does-as-well",
            "Trion on a random basis is at most 0.01 nats worse than on cosines",
            "ours",
            no_worse("validation_loss", "trion-random", than="trion", margin=0.01, cases=LM),
            scales=HERE,
        ),
    )


def _speeds() -> tuple[Claim, ...]:
    return (
        Claim(
            "selection-flat-in-rank",
            "Transform and selection take at most 1.15 times as long at r = n/2 as at r = n/16",
            "Section 5",
            within("rank_ratio", "dct", high=1.15, cases=("ranks-*",)),
            scales=HERE,
        ),
        Claim(
            "trion-grows-less-than-dion",
            "From r = n/16 to r = n/2 the time of Trion's step grows by a smaller factor than Dion's",
            "Section 5",
            ratio("rank_ratio", "trion", over="dion", at_most=1.0, cases=("ranks-*",)),
            scales=HERE,
            note="Newton and Schulz work on r columns, so Trion's step isn't flat in rank.",
        ),
        Claim(
            "trion-time-muon",
            "Trion's step takes at most 0.8 times as long as torch's Muon at r = n/4",
            "ours",
            ratio("cpu_ms", "trion", over="muon", at_most=0.8, cases=QUARTER),
            scales=HERE,
        ),
        Claim(
            "trion-time-dion",
            "Trion's step takes at most as long as Dion's at r = n/4",
            "ours, after Section 5",
            ratio("cpu_ms", "trion", over="dion", at_most=1.0, cases=QUARTER),
            scales=HERE,
        ),
        Claim(
            "trion-time-dion-half",
            "Trion's step takes at most 0.6 times as long as Dion's at r = n/2",
            "ours, after Section 5",
            ratio("cpu_ms", "trion", over="dion", at_most=0.6, cases=HALF),
            scales=HERE,
        ),
        Claim(
            "dct-adamw-time-ldadamw",
            "DCT-AdamW's step takes at most half as long as LDAdamW's at r = n/4",
            "ours, after Table 2",
            ratio("cpu_ms", "dct-adamw", over="ldadamw", at_most=0.5, cases=QUARTER),
            scales=HERE,
        ),
        Claim(
            "trion-bf16-time-dion-half",
            "With its iteration in bfloat16, as published, Trion's step takes at most 0.6 times as long as Dion's at "
            "r = n/2",
            "ours, after Section 5",
            ratio("cpu_ms", "trion-bf16", over="dion", at_most=0.6, cases=HALF),
            scales=HERE,
            note="Where the processor multiplies matrices in bfloat16; without that it is slower than in float32.",
        ),
        Claim(
            "dct-adamw-time-galore-torch",
            "DCT-AdamW's step, which chooses columns anew, takes at most a quarter of galore-torch's step with an SVD",
            "ours",
            ratio("cpu_ms", "dct-adamw", over="galore-torch", at_most=0.25, cases=QUARTER),
            scales=HERE,
        ),
        Claim(
            "dct-adamw-time-galore",
            "DCT-AdamW's step, which chooses columns anew, takes at most a quarter of GaLore's step with an SVD",
            "ours",
            ratio("cpu_ms", "dct-adamw", over="galore", at_most=0.25, cases=QUARTER),
            scales=HERE,
        ),
        Claim(
            "transform-beats-product",
            "At n = 4096 the fast transform is at least 4 times as fast as the product with the matrix",
            "Section 4",
            within("speedup_4096", "dct", low=4.0, cases=("transform",)),
            paper=(PaperFigure("weaker GPUs, low", 8.0), PaperFigure("weaker GPUs, high", 50.0)),
            scales=("laptop",),
        ),
        Claim(
            "transform-crossover",
            "On one CPU core the fast transform wins from n = 512 on at the latest",
            "ours",
            within("crossover", "dct", high=512.0, cases=("transform",)),
            scales=HERE,
        ),
        *(
            Claim(
                f"{name}-linear-in-parameters",
                f"The time of {label}'s step grows with the number of matrices with an exponent of at most 1.1",
                "ours",
                grows("cpu_ms", name, exponent_at_most=1.1, size="parameters", cases=("growth-*",)),
                scales=HERE,
            )
            for name, label in (("dct-adamw", "DCT-AdamW"), ("trion", "Trion"))
        ),
    )


def _memories() -> tuple[Claim, ...]:
    return (
        Claim(
            "bytes-are-the-formulas",
            "The live bytes of every optimiser's state equal its formula, to the byte",
            "ours",
            always(lambda m: m["violations"] == 0, checks="checks", rate=0.01, arms=COUNTED, cases=("bytes",)),
            scales=HERE,
        ),
        Claim(
            "dct-adamw-bytes-ldadamw",
            "DCT-AdamW's state with its error in 8 bits is at most 0.8 times LDAdamW's at r = n/4",
            "Table 2",
            ratio("state_bytes", "dct-adamw-ef8", over="ldadamw", at_most=0.8, cases=("bytes",)),
            paper=(PaperFigure("all memory of training, 800M", 57.82 / 72.10),),
            scales=HERE,
            note="States only, equally sharded; the paper's figure is all memory, with states that are sharded for "
            "one of the two.",
        ),
        Claim(
            "trion-bytes-dion",
            "Trion's state is smaller than Dion's at r = n/4",
            "Table 1",
            ratio("state_bytes", "trion", over="dion", at_most=1.0, cases=("bytes",)),
            paper=(PaperFigure("all memory of training, 350M", 42.42 / 45.59),),
            scales=HERE,
        ),
        Claim(
            "temporaries-bounded",
            "A step of DCT-AdamW, with any error feedback, holds at most `max_temp_mb` of temporary tensors",
            "ours",
            always(
                lambda m: m["temporaries_over_bound"] <= 1.0,
                rate=0.3,
                arms=("dct-adamw", "dct-adamw-ef", "dct-adamw-ef8", "dct-adamw-ef4"),
                cases=("bytes",),
            ),
            scales=HERE,
        ),
    )


def _at_paper_scale() -> tuple[Claim, ...]:
    """The paper's own perplexities, as ratios within 1 %."""
    pairs = (
        ("trion", "dion", "350m", 15.30 / 15.64),
        ("trion", "muon", "350m", 15.30 / 14.99),
        ("trion", "dion", "800m", 12.22 / 12.42),
        ("trion", "muon", "800m", 12.22 / 12.05),
        ("trion", "dion", "1300m", 11.28 / 11.47),
        ("trion", "muon", "1300m", 11.28 / 11.13),
        ("dct-adamw", "ldadamw", "800m-long", 13.69 / 13.91),
        ("dct-adamw", "adamw", "800m-long", 13.69 / 11.73),
    )
    return tuple(
        Claim(
            f"paper-{arm}-{other}-{size}",
            f"Llama {size.upper()} on C4, rank 256: the perplexity of {arm} over that of {other} is within 1 % of the "
            f"paper's",
            "Tables 1 and 2",
            ratio("perplexity", arm, over=other, at_least=value * 0.99, at_most=value * 1.01, cases=(f"c4-{size}",)),
            paper=(PaperFigure("one run", value),),
            scales=("paper",),
        )
        for arm, other, size, value in pairs
    )


MEASURES = {
    "validation_loss": "held-out loss, nats a token",
    "perplexity": "exp of the held-out loss",
    "training_loss": "mean training loss of the last ten steps, nats a token",
    "state_bytes": "bytes of the optimiser's state",
    "state_share": "bytes of the state over AdamW's",
    "cpu_ms": "CPU milliseconds of one step, median",
    "cpu_seconds": "CPU seconds of the run",
    "projection_error": "relative error of the projection, mean over steps",
    "churn": "share of the columns that are new in a step",
    "error_16": "relative error of the projection onto n/16 directions, mean over layers",
    "error_4": "relative error of the projection onto n/4 directions",
    "error_2": "relative error of the projection onto n/2 directions",
    "error_4_norm1": "relative error onto n/4 directions chosen by the 1-norm",
    "matrices": "gradients and momenta projected",
    "checks": "independent checks",
    "violations": "checks that failed",
    "excess": "largest squared error above the best subset's",
    "rank_ratio": "time at r = n/2 over time at r = n/16",
    "crossover": "smallest size at which the fast transform wins",
    **{
        f"speedup_{n}": f"time of the product over the fast transform's, n = {n}"
        for n in (64, 128, 256, 512, 1024, 2048, 4096)
    },
    "temporaries_over_bound": "bytes of temporaries over their bound",
    "parameters": "parameters",
}

STUDY = Study(
    trial=run_trial,
    arms=ARMS,
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    claims=(*_selection(), *_losses(), *_speeds(), *_memories(), *_at_paper_scale()),
    arm_signature="function(model: torch.nn.Module) -> torch.optim.Optimizer, whose groups' 'lr' is scheduled",
    measures=MEASURES,
)
