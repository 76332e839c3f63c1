"""What the paper claims of large-chunk test-time training, and what we claim of speed and memory.

Settings of training (learning rates, steps, sizes, the rates of gradient descent) were fixed on seeds from 1000 on.
"""

from __future__ import annotations

from typing import Any

from assay.core.claim import Claim, PaperFigure, always, better, grows, no_worse, ratio, within
from assay.core.study import Arm, Case, Scale, Study
from assay.lact.trials import run_trial

__all__ = ["STUDY"]

RECALLERS = (
    "lact",
    "lact-muon",
    "lact-momentum",
    "lact-gd",
    "lact-linear",
    "lact-linear-gd",
    "lact-8-heads",
    "window",
    "full",
    "gla",
    "deltanet",
    "mamba2",
)
WRITERS = ("lact", "window", "deltanet")
VIEWERS = ("lact", "lact-gd", "full", "perceiver", "none")
LENGTHS = (1024, 2048, 4096, 8192, 16_384)


def exact(*, seeds: int, length: int, dim: int) -> tuple[Case, ...]:
    """What holds exactly, whatever the weights."""
    return (
        Case("exact", {"kind": "exactness"}, arms=("lact",), seeds=seeds),
        Case("rates", {"kind": "rates"}, arms=("lact", "lact-gd"), seeds=seeds),
        Case("state", {"kind": "state"}, arms=("lact",), seeds=1),
        Case(
            "two processes",
            {"kind": "parallel", "length": length, "chunk_size": length // 4, "dim": dim},
            arms=("lact", "lact-gd"),
            seeds=min(seeds, 5),
        ),
    )


def utilisation(chunks: tuple[int, ...], *, dim: int, rounds: int, seeds: int | None = None) -> Case:
    """Useful operations against the fastest matrix product."""
    settings = {"kind": "utilisation", "chunks": list(chunks), "dim": dim, "rounds": rounds}
    settings |= {"least_chunks": 4, "least_length": 512}
    return Case("chunks", settings, arms=("lact", "lact-gd"), alone=True, seeds=seeds)


def timed(
    *lengths: int, dim: int, chunk: int, rounds: int, titans: tuple[int, ...], seeds: int | None = None
) -> tuple[Case, ...]:
    """Reading without gradients, beside attention and others."""
    shared = {"kind": "seconds", "dim": dim, "chunk_size": chunk, "rounds": rounds}
    arms = ("lact", "lact-gd", "sdpa")
    return (
        *(
            Case(
                f"read {length}",
                {**shared, "length": length},
                arms=(*arms, "titans") if length in titans else arms,
                alone=True,
                seeds=seeds,
            )
            for length in lengths
        ),
        *(
            Case(
                f"same maths {rule}",
                {**shared, "length": 4 * chunk, "rule": rule},
                arms=("lact", "eager"),
                alone=True,
                seeds=seeds,
            )
            for rule in ("gd", "muon")
        ),
    )


def training(*, chunk: int, dim: int, rounds: int, seeds: int | None = None) -> tuple[Case, ...]:
    """Forward and backward through 16 chunks."""
    shared = {"kind": "training-memory", "chunks": 16, "chunk_size": chunk, "dim": dim, "rounds": rounds}
    return tuple(
        Case(
            f"train {rule}", {**shared, "rule": rule}, arms=("lact", "eager"), own_process=True, alone=True, seeds=seeds
        )
        for rule in ("gd", "muon")
    )


def decoding(*positions: int, dim: int, window: int, anew: int, seeds: int | None = None) -> Case:
    """One token at several positions."""
    settings = {"kind": "decoding", "positions": list(positions), "dim": dim, "window": window, "anew": anew}
    return Case("decode", settings, arms=("lact",), alone=True, seeds=seeds)


def recall(
    *, steps: int, batch: int, width: int, window: int, length: int, arms: tuple[str, ...] = RECALLERS, **more: Any
) -> Case:
    """Pairs at the beginning of a row, asked at its end, beyond the reach of the windows of all layers."""
    return Case(
        "recall",
        {
            "kind": "recall",
            "task": {"length": length, "pairs": 4, "keys": 16, "values": 16, "fillers": 16},
            "plan": {"steps": steps, "batch": batch, "lr": 5e-3, "warmup": 20, "weight_decay": 0.01},
            "model": {
                "hidden_size": width,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_fast_heads": 2,
                "intermediate_size": 2 * width,
                "window": window,
                "chunk_size": window,
                "init_rank": None,
            },
        },
        arms=arms,
        **more,
    )


def text(*, steps: int, batch: int, context: int, width: int, window: int, **more: Any) -> Case:
    """The bytes of Python's own library."""
    return Case(
        "text",
        {
            "kind": "text",
            "context": context,
            "plan": {"steps": steps, "batch": batch, "lr": 2e-3, "warmup": 10},
            "model": {
                "hidden_size": width,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_fast_heads": 1,
                "intermediate_size": 2 * width,
                "window": window,
                "chunk_size": window,
                "init_rank": None,
                "base_lr": 0.01,
                "rope_base": 1e4,
            },
        },
        arms=WRITERS,
        **more,
    )


def views(*, plan: dict[str, Any], counts: tuple[int, ...], rounds: int, **more: Any) -> tuple[Case, ...]:
    """Spheres from new cameras; and what input views cost."""
    return (
        Case("views", {"kind": "views", "plan": plan}, arms=VIEWERS, **more),
        Case(
            "view costs",
            {"kind": "view-costs", "views": list(counts), "size": 32, "rounds": rounds, "fitted": 3},
            arms=("lact", "full"),
            alone=True,
        ),
    )


def video(*, plan: dict[str, Any], **more: Any) -> Case:
    """Squares that are hidden for longer than the window."""
    return Case("video", {"kind": "video", "plan": plan}, arms=("lact", "window", "full"), **more)


MEASURES = {
    "checks": "comparisons made",
    "violations": "comparisons beyond the tolerance",
    "worst": "largest error over its tolerance",
    "rate_change": "relative change of the answers where all rates are a thousand times as large",
    "parallel_error": "largest relative difference between two processes and one",
    "parallel_overhead": "time of the exchange over that of the computation",
    "peak_gflops": "fastest matrix product (10⁹ operations/s)",
    **{
        f"utilisation_{chunk}": f"useful operations over the peak, chunk {chunk}" for chunk in (16, 64, 256, 1024, 2048)
    },
    "rise": "utilisation at the largest chunk over that at the smallest",
    "least_step": "smallest ratio of the utilisations at neighbouring chunks",
    "cpu_seconds": "CPU time (s)",
    "tokens_per_second": "tokens a second of CPU time",
    "n": "tokens",
    "peak_bytes": "peak memory of forward and backward (bytes)",
    "training_seconds": "CPU time of forward and backward (s)",
    **{f"decode_seconds_{position}": f"time of a token at position {position} (s)" for position in (512, 4096, 16_384)},
    "decode_growth": "time of a token at the later positions over that at the first",
    "anew_over_decode": "time of reading the text anew over that of a token",
    "state_bytes": "bytes of the state",
    "state_growth": "largest state over smallest",
    "cache_over_state": "bytes of keys and values over those of the state, at the longest",
    "accuracy": "share of the questions answered right",
    "chance": "accuracy of a guess",
    "over_chance": "accuracy above chance",
    "loss": "loss (nats)",
    "first_quarter": "loss in the first quarter of a row (nats a byte)",
    "last_quarter": "loss in the last quarter of a row (nats a byte)",
    "slope": "loss over the logarithm of the position",
    "parameters": "parameters",
    "seconds": "time of training (s)",
    **{f"psnr_{n}": f"PSNR with {n} input views (dB)" for n in (1, 2, 4, 8)},
    **{f"wrong_scene_{n}": f"the same with another scene's inputs, {n} views (dB)" for n in (1, 2, 4, 8)},
    "constant": "PSNR of a constant colour (dB)",
    "over_wrong_scene": "PSNR above that with another scene's inputs, 4 views (dB)",
    "over_constant": "PSNR above the constant colour, 4 views (dB)",
    "gain_of_8_over_4": "PSNR with 8 input views above that with 4 (dB)",
    "gain_of_4_over_1": "PSNR with 4 input views above that with 1 (dB)",
    "train_psnr": "PSNR in training (dB)",
    "prefill_exponent": "exponent of reading time in the number of views, at the largest",
    "render_growth": "time of rendering a view with the most input views over that with the fewest",
    "loss_0": "denoising loss of the first chunk, before the memory has read anything",
    "loss_before": "denoising loss of the last chunk before the square is hidden",
    "loss_after": "denoising loss of the first chunk after it",
    "train_loss": "denoising loss in training",
}

ARMS = {
    "lact": Arm(
        {"rule": "muon", "model": "lact", "text": "lact-muon-momentum", "views": "lact", "video": "lact"}, label="LaCT"
    ),
    "lact-muon": Arm({"text": "lact-muon"}, role="ablation", label="LaCT, Muon without momentum"),
    "lact-momentum": Arm(
        {"text": "lact-momentum", "changes": {"base_lr": 1.0}}, role="ablation", label="LaCT, momentum"
    ),
    "lact-gd": Arm(
        {"rule": "gd", "model": "lact", "text": "lact-gd", "views": "lact-gd", "changes": {"base_lr": 1.0}},
        role="ablation",
        label="LaCT, gradient descent",
    ),
    "lact-linear": Arm({"text": "lact-linear"}, role="ablation", label="LaCT, linear memory"),
    "lact-linear-gd": Arm(
        {"text": "lact-linear-gd", "changes": {"base_lr": 1.0}},
        role="ablation",
        label="LaCT, linear memory, gradient descent",
    ),
    "lact-8-heads": Arm(
        {"text": "lact-muon-momentum", "changes": {"num_fast_heads": 8}},
        role="ablation",
        label="LaCT, a quarter of the state",
    ),
    "eager": Arm({"model": "eager"}, role="baseline", label="the same mathematics, written plainly"),
    "window": Arm({"text": "window", "video": "swa"}, role="baseline", label="window attention alone"),
    "full": Arm({"text": "full", "views": "full", "video": "full"}, role="baseline", label="full attention"),
    "gla": Arm({"text": "gla", "plan": {"lr": 1e-2}}, role="baseline", label="gated linear attention and window"),
    "deltanet": Arm({"text": "deltanet"}, role="baseline", label="DeltaNet and window"),
    "mamba2": Arm({"text": "mamba2", "plan": {"lr": 1e-2}}, role="baseline", label="Mamba-2 form and window"),
    "perceiver": Arm({"views": "perceiver"}, role="baseline", label="Perceiver"),
    "none": Arm({"views": "none"}, role="control", label="no memory"),
    "sdpa": Arm({"model": "sdpa", "head_dim": 64}, role="peer", label="causal attention (SDPA)"),
    "titans": Arm(
        {"model": "titans", "chunk_size": 64}, role="peer", label="titans-pytorch", needs=("titans_pytorch",)
    ),
}

SCALES = {
    "smoke": Scale(
        cases=(
            *exact(seeds=2, length=128, dim=8),
            utilisation((16, 64, 256), dim=64, rounds=2, seeds=1),
            *timed(512, 1024, dim=64, chunk=256, rounds=2, titans=(512,), seeds=1),
            *training(chunk=64, dim=64, rounds=1, seeds=1),
            decoding(128, 512, dim=32, window=64, anew=512, seeds=1),
            recall(steps=3, batch=4, width=16, window=16, length=64, seeds=1),
            text(steps=2, batch=2, context=128, width=16, window=32, seeds=1),
            *views(plan={"steps": 3, "batch": 2}, counts=(1, 2, 4), rounds=1, seeds=1),
            video(plan={"steps": 3, "batch": 2, "dim": 32}, seeds=1),
        ),
        seeds=1,
    ),
    "laptop": Scale(
        cases=(
            *exact(seeds=10, length=4096, dim=64),
            utilisation((16, 64, 256, 1024, 2048), dim=256, rounds=4),
            *timed(*LENGTHS, dim=256, chunk=2048, rounds=2, titans=(4096,)),
            *training(chunk=512, dim=256, rounds=2),
            decoding(512, 4096, 16_384, dim=512, window=256, anew=4096),
            recall(steps=200, batch=16, width=64, window=16, length=64),
            text(steps=100, batch=4, context=512, width=64, window=64),
            *views(plan={"steps": 600}, counts=(4, 8, 16, 32, 64), rounds=3),
            video(plan={}),
        ),
        seeds=5,
        limit_seconds=900,
    ),
    "paper": Scale(
        cases=(
            *exact(seeds=30, length=65_536, dim=768),
            utilisation((16, 64, 256, 1024, 2048), dim=768, rounds=20),
            *timed(*LENGTHS, 32_768, 65_536, dim=768, chunk=2048, rounds=20, titans=(4096,)),
            *training(chunk=2048, dim=768, rounds=5),
            decoding(512, 4096, 16_384, dim=768, window=2048, anew=4096),
            recall(steps=20_000, batch=64, width=256, window=128, length=2048),
            text(steps=50_000, batch=16, context=8192, width=768, window=1024),
            *views(plan={"steps": 30_000, "batch": 32}, counts=(4, 8, 16, 32, 64), rounds=10),
            video(plan={"steps": 20_000, "dim": 256, "chunks": 9}),
        ),
        seeds=10,
        limit_seconds=86_400,
        requires="some weeks of a machine with many cores",
    ),
}

MEASURED = ("laptop", "paper")

CLAIMS = (
    Claim(
        "streaming-exact",
        "Pieces of any size, prefixes and packed documents read as the whole does, to 1e-10 in float64, and in float32 "
        "to 1e-5 without Muon and 1e-3 with it",
        source="ours",
        test=always(lambda t: t["violations"] == 0, checks="checks", rate=0.01, cases=["exact"]),
    ),
    Claim(
        "rises-gd",
        "Larger chunks lift the use of the machine: at 2048 tokens at least 3 times that at 16 (gradient descent)",
        source="Figure 1a",
        test=within("rise", "lact-gd", low=3.0, cases=["chunks"]),
        scales=MEASURED,
        paper=(PaperFigure("the paper, A100: 70 % over less than 5 %", 14.0),),
    ),
    Claim(
        "rises-muon",
        "With Muon at least 30 times",
        source="Figure 1a",
        test=within("rise", "lact", low=30.0, cases=["chunks"]),
        scales=MEASURED,
    ),
    Claim(
        "monotone",
        "Each larger chunk uses the machine better (gradient descent)",
        source="Figure 1a",
        test=within("least_step", "lact-gd", low=1.0, cases=["chunks"]),
        scales=MEASURED,
    ),
    Claim(
        "utilisation",
        "Chunks of 2048 tokens reach 70 % of the fastest matrix product (gradient descent)",
        source="Figure 1a; ours on a CPU",
        test=within("utilisation_2048", "lact-gd", low=0.70, cases=["chunks"]),
        scales=MEASURED,
        paper=(PaperFigure("the paper, A100", 0.70),),
    ),
    Claim(
        "utilisation-muon",
        "With Muon they reach 45 %",
        source="ours",
        test=within("utilisation_2048", "lact", low=0.45, cases=["chunks"]),
        scales=MEASURED,
    ),
    Claim(
        "ahead-of-attention",
        "From 4096 tokens on it reads faster than causal attention of equal width, with Muon",
        source="ours",
        test=ratio("cpu_seconds", "lact", over="sdpa", at_most=1.0, cases=["read 4096", "read 8192", "read 16384"]),
        scales=MEASURED,
    ),
    Claim(
        "five-times",
        "At 16 384 tokens at least 5 times as fast, with Muon",
        source="ours",
        test=ratio("cpu_seconds", "lact", over="sdpa", at_most=1 / 5, cases=["read 16384"]),
        scales=MEASURED,
    ),
    Claim(
        "five-times-gd",
        "And with gradient descent",
        source="ours",
        test=ratio("cpu_seconds", "lact-gd", over="sdpa", at_most=1 / 5, cases=["read 16384"]),
        scales=MEASURED,
    ),
    Claim(
        "linear-time",
        "The time of reading grows linearly with the length",
        source="Section 3",
        test=grows("cpu_seconds", "lact-gd", exponent_at_most=1.1, cases=["read *"]),
        scales=MEASURED,
    ),
    Claim(
        "ahead-of-titans",
        "It reads 4096 tokens faster than titans-pytorch's memory of equal width",
        source="ours",
        test=ratio("cpu_seconds", "lact", over="titans", at_most=1.0, cases=["read 4096"]),
        scales=MEASURED,
    ),
    Claim(
        "faster-than-eager",
        "It takes at most 1 / 1.2 of the time of the same mathematics written plainly (gradient descent)",
        source="ours",
        test=ratio("cpu_seconds", "lact", over="eager", at_most=1 / 1.2, cases=["same maths gd"]),
        scales=MEASURED,
    ),
    Claim(
        "faster-than-eager-muon",
        "And with Muon",
        source="ours",
        test=ratio("cpu_seconds", "lact", over="eager", at_most=1 / 1.2, cases=["same maths muon"]),
        scales=MEASURED,
    ),
    Claim(
        "training-memory",
        "Recomputed chunks train 16 chunks with Muon in a quarter of the memory of plain autograd",
        source="ours",
        test=ratio("peak_bytes", "lact", over="eager", at_most=1 / 4, cases=["train muon"]),
        scales=MEASURED,
    ),
    Claim(
        "training-memory-gd",
        "And with gradient descent",
        source="ours",
        test=ratio("peak_bytes", "lact", over="eager", at_most=1 / 4, cases=["train gd"]),
        scales=MEASURED,
    ),
    Claim(
        "training-time",
        "In at most 1.35 times the time",
        source="ours",
        test=ratio("training_seconds", "lact", over="eager", at_most=1.35, cases=["train *"]),
        scales=MEASURED,
    ),
    Claim(
        "constant-decoding",
        "A token takes as long at position 16 384 as at 512, within 20 %",
        source="ours",
        test=within("decode_growth", "lact", high=1.2, cases=["decode"]),
        scales=MEASURED,
    ),
    Claim(
        "decoding-anew",
        "At 4096 tokens that is at most a hundredth of reading the text anew, which the published code does",
        source="ours",
        test=within("anew_over_decode", "lact", low=100.0, cases=["decode"]),
        scales=MEASURED,
    ),
    Claim(
        "constant-state",
        "The state has the same size after a thousand and after a million tokens",
        source="Section 3",
        test=always(lambda t: t["state_growth"] == 1.0, rate=1.0, cases=["state"]),
    ),
    Claim(
        "bigger-state",
        "A state four times as large recalls more",
        source="Figure 7a",
        test=better("accuracy", "lact", than="lact-8-heads", higher=True, cases=["recall"]),
    ),
    Claim(
        "muon-over-gd",
        "Muon recalls no less than gradient descent",
        source="Figure 7b, Table 8",
        test=no_worse("accuracy", "lact-muon", than="lact-gd", margin=0.02, higher=True, cases=["recall"]),
        paper=(PaperFigure("760M at 4K, difference of accuracies", 0.074),),
        note="Momentum beats Muon in one of the paper's own rows; it is reported beside, and not claimed.",
    ),
    Claim(
        "momentum-over-gd",
        "Momentum recalls more than plain gradient descent",
        source="Figure 7b, Table 8",
        test=better("accuracy", "lact-momentum", than="lact-gd", higher=True, cases=["recall"]),
        paper=(PaperFigure("760M at 4K, difference of accuracies", 0.194),),
    ),
    Claim(
        "nonlinear",
        "A nonlinear memory recalls more than a linear one",
        source="Figure 8a",
        test=better("accuracy", "lact", than="lact-linear", higher=True, cases=["recall"]),
    ),
    Claim(
        "nonlinear-smaller",
        "Even one whose state is three quarters of the linear one's",
        source="Figure 8a",
        test=better("accuracy", "lact-8-heads", than="lact-linear", higher=True, cases=["recall"]),
    ),
    Claim(
        "over-deltanet",
        "It recalls more than DeltaNet with the same window",
        source="Table 8, 3B at 16K",
        test=better("accuracy", "lact", than="deltanet", higher=True, cases=["recall"]),
        paper=(PaperFigure("3B at 16K, difference of accuracies", 0.305),),
    ),
    Claim(
        "over-gla",
        "And more than gated linear attention with the same window",
        source="Table 8, 3B at 16K",
        test=better("accuracy", "lact", than="gla", higher=True, cases=["recall"]),
        paper=(PaperFigure("3B at 16K, difference of accuracies", 0.514),),
    ),
    Claim(
        "beyond-the-window",
        "It recalls at least 0.2 above chance what lies beyond the window",
        source="Table 8",
        test=within("over_chance", "lact", low=0.2, cases=["recall"]),
    ),
    Claim(
        "window-at-chance",
        "The window alone is at chance there, within 0.03",
        source="ours: the control",
        test=within("over_chance", "window", low=-0.03, high=0.03, cases=["recall"]),
    ),
    Claim(
        "linear-worse-on-text",
        "A linear memory in large chunks recalls less than a recurrence token by token",
        source="Figure 8b",
        test=better("accuracy", "gla", than="lact-linear-gd", higher=True, cases=["recall"]),
    ),
    Claim(
        "text-beyond-the-window",
        "On real text the last quarter of a row is foreseen better than by the window alone",
        source="Figure 7",
        test=better("last_quarter", "lact", than="window", cases=["text"]),
    ),
    Claim(
        "views-near-attention",
        "New views are at most 0.5 dB worse than with full attention, 4 input views",
        source="Table 2, 8 inputs",
        test=no_worse("psnr_4", "lact", than="full", margin=0.5, higher=True, cases=["views"]),
        paper=(PaperFigure("GSO 256, 8 inputs: 35.3 against 35.6 dB", -0.3),),
    ),
    Claim(
        "views-over-perceiver",
        "And better than with a Perceiver",
        source="Table 2, 8 inputs",
        test=better("psnr_4", "lact", than="perceiver", higher=True, cases=["views"]),
        paper=(PaperFigure("GSO 256, 8 inputs: 35.3 against 32.8 dB", 2.5),),
    ),
    Claim(
        "views-from-memory",
        "More than 2 dB better than without memory",
        source="ours: the control",
        test=no_worse("psnr_4", "lact", than="none", margin=-2.0, higher=True, cases=["views"]),
    ),
    Claim(
        "views-of-this-scene",
        "More than 2 dB better than with another scene's inputs",
        source="ours: the control",
        test=within("over_wrong_scene", "lact", low=2.0, cases=["views"]),
    ),
    Claim(
        "muon-for-views",
        "Muon gives better views than gradient descent",
        source="Figure 7b",
        test=better("psnr_4", "lact", than="lact-gd", higher=True, cases=["views"]),
    ),
    Claim(
        "more-views-help",
        "8 input views are better than 4, though 4 were trained with",
        source="Table 4",
        test=within("gain_of_8_over_4", "lact", low=0.0, cases=["views"]),
    ),
    Claim(
        "four-views-over-one",
        "4 input views are better than 1",
        source="Table 4",
        test=within("gain_of_4_over_1", "lact", low=0.0, cases=["views"]),
    ),
    Claim(
        "views-linear",
        "Reading time grows with the number of views with an exponent of at most 1.15",
        source="Table 2: 1.4 s against 16.1 s",
        test=within("prefill_exponent", "lact", high=1.15, cases=["view costs"]),
        scales=MEASURED,
    ),
    Claim(
        "views-attention-grows",
        "That of full attention with one of at least 1.6",
        source="Table 2",
        test=within("prefill_exponent", "full", low=1.6, cases=["view costs"]),
        scales=MEASURED,
    ),
    Claim(
        "render-independent",
        "Rendering a view takes as long with 64 input views as with 4, within 10 %",
        source="Table 2: 38.7 against 2.3 images a second",
        test=within("render_growth", "lact", high=1.1, cases=["view costs"]),
        scales=MEASURED,
    ),
    Claim(
        "parallel-exact",
        "Two processes that share each chunk equal one to 1e-5",
        source="Algorithm 3",
        test=always(lambda t: t["parallel_error"] <= 1e-5, rate=0.3, arms=["lact", "lact-gd"], cases=["two processes"]),
    ),
    Claim(
        "parallel-cheap",
        "The exchange takes at most 3 % of the time",
        source="Section 3.4: 1 to 3 %",
        test=within("parallel_overhead", "lact", high=0.03, cases=["two processes"]),
        paper=(PaperFigure("the paper, at most", 0.03),),
    ),
    Claim(
        "video-after-hiding",
        "After a square was hidden for longer than the window it is denoised better than by the window alone",
        source="Figure 6",
        test=better("loss_after", "lact", than="window", cases=["video"]),
        note="How much of it the memory gives shows beside loss_0, the loss before anything was read.",
    ),
    Claim(
        "video-near-attention",
        "With a loss at most 0.05 above that of full block-causal attention",
        source="Figure 6",
        test=no_worse("loss_after", "lact", than="full", margin=0.05, cases=["video"]),
    ),
    Claim(
        "rates-only-rank",
        "With Muon rates a thousand times as large change the answers by less than a thousandth",
        source="Section 3.2",
        test=within("rate_change", "lact", high=1e-3, cases=["rates"]),
    ),
    Claim(
        "rates-matter-to-gd",
        "With gradient descent they change them by more than a twentieth",
        source="Section 3.2",
        test=within("rate_change", "lact-gd", low=0.05, cases=["rates"]),
    ),
)

STUDY = Study(trial=run_trial, arms=ARMS, scales=SCALES, claims=CLAIMS, measures=MEASURES)
