"""One trial of the study: an arm on a case, measured.

A case says what kind of trial it is: exactness, rates, context parallelism, utilisation, time, training memory,
decoding, the size of the state, recall, text, views, what views cost, or video.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.core.measure import peak_memory
from assay.core.study import Trial
from assay.lact.fast_weights import (
    FastState,
    FastWeights,
    Rule,
    fast_weight_apply,
    fast_weight_update,
    has_momentum,
    start,
)
from assay.lact.functional import lact
from assay.lact.language import LaCTConfig, LaCTForCausalLM
from assay.lact.layers import SmallChunkWarning
from assay.lact.recall import RecallTask
from assay.lact.reference import reference_lact
from assay.lact.text_training import TrainingPlan, train_byte_model, train_recall
from assay.lact.video_training import VideoPlan, train_video
from assay.lact.view_training import ViewPlan, measure_view_costs, train_views

__all__ = ["context_parallel_part", "run_trial"]

Measurements = dict[str, float]

RULES: tuple[Rule, ...] = ("gd", "momentum", "muon", "muon_momentum")
EXACT, EXACT_32, EXACT_32_MUON = 1e-10, 1e-5, 1e-3
"""Newton–Schulz multiplies what is rounding along weak directions by up to 3.4445⁵, about 500."""
FULL_RANK = 16
"""Gradients of so many tokens have the full rank of the small problems. Newton–Schulz takes those of fewer tokens apart
along directions that are only rounding, which in float32 outgrows any tolerance, in one call as in several."""
THOUSANDFOLD = 1000.0
LENGTHS_OF_STATE = (1024, 16_384, 131_072, 1_048_576)
DECODED = 24
"""Tokens whose median time is that of one token."""
WORLD = 2


def run_trial(trial: Trial) -> Measurements:
    """Run one arm on one case with one seed.

    Parameters
    ----------
    trial : Trial
        ``case_settings["kind"]`` is one of the keys of `_KINDS`.

    Returns
    -------
    dict of str to float
        See the study's `measures`.
    """
    torch.set_num_threads(trial.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallChunkWarning)
        return _KINDS[trial.case_settings["kind"]](trial)


def _seed(trial: Trial, purpose: str) -> int:
    return int(trial.rng(purpose).integers(2**31))


def _problem(
    seed: int, *, length: int, dim: int, rows: int = 1, hidden: int | None = None, dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], FastWeights]:
    """Queries and keys of unit length, values, rates; and initial weights."""
    g = torch.Generator().manual_seed(seed)
    hidden = hidden or dim
    q, k, v = torch.randn(3, rows, length, dim, generator=g, dtype=dtype)
    lr = 0.02 * torch.rand(rows, length, 3, generator=g, dtype=dtype)
    w0, w2 = torch.randn(2, rows, hidden, dim, generator=g, dtype=dtype) / dim**0.5
    w1 = torch.randn(rows, dim, hidden, generator=g, dtype=dtype) / hidden**0.5
    return [F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, lr], FastWeights(w0, w1, w2)


def _answers(tokens: Sequence[Tensor], w_init: FastWeights, **given: Any) -> Tensor:
    q, k, v, lr = tokens
    answers: Tensor = lact(q, k, v, lr, w_init, **given)
    return answers


def _reference_answers(tokens: Sequence[Tensor], w_init: FastWeights, **given: Any) -> Tensor:
    q, k, v, lr = tokens
    return reference_lact(q, k, v, lr, w_init, **given)


def _exactness(trial: Trial) -> Measurements:
    """Streaming in random splits, prefixes and packed documents against one shot and separate calls."""
    rng = trial.rng("splits")
    checks, violations, worst = 0, 0, 0.0
    for dtype, least in ((torch.float64, 1), (torch.float32, FULL_RANK)):
        for rule in RULES:
            bound = EXACT if dtype == torch.float64 else EXACT_32_MUON if rule.startswith("muon") else EXACT_32
            for prenorm in (False, True):
                length, chunk = int(rng.integers(2, 90)), int(rng.integers(least, least + 20))
                tokens, w_init = _problem(_seed(trial, f"{rule} {prenorm}"), length=length, dim=8, rows=2, dtype=dtype)
                beta = torch.sigmoid(tokens[0].sum(-1)) if has_momentum(rule) else None
                given: dict[str, Any] = {"rule": rule, "prenorm": prenorm, "chunk_size": chunk}
                whole = _answers(tokens, w_init, momentum=beta, **given)
                cuts = sorted(rng.choice(range(1, length), size=min(length - 1, 4), replace=False).tolist())
                errors = [_streamed(tokens, beta, w_init, cuts, given) - whole]
                part = [one[:, : cuts[-1]] for one in tokens]
                prefix = _answers(part, w_init, momentum=None if beta is None else beta[:, : cuts[-1]], **given)
                errors.append(prefix - whole[:, : cuts[-1]])
                packed = _answers(tokens, w_init, momentum=beta, cu_seqlens=torch.tensor([0, *cuts, length]), **given)
                apart = [
                    _answers(
                        [one[:, a:b] for one in tokens],
                        w_init,
                        momentum=None if beta is None else beta[:, a:b],
                        **given,
                    )
                    for a, b in pairwise([0, *cuts, length])
                ]
                errors.append(packed - torch.cat(apart, 1))
                for error in errors:
                    relative = float(error.abs().max() / whole.abs().max())
                    checks += 1
                    violations += relative > bound
                    worst = max(worst, relative / bound)
    return {"checks": float(checks), "violations": float(violations), "worst": worst}


def _streamed(
    tokens: Sequence[Tensor], beta: Tensor | None, w_init: FastWeights, cuts: list[int], given: Mapping[str, Any]
) -> Tensor:
    state, answers = None, []
    for begin, end in pairwise([0, *cuts, tokens[0].shape[1]]):
        q, k, v, lr = (one[:, begin:end] for one in tokens)
        momentum = None if beta is None else beta[:, begin:end]
        answer, state = lact(q, k, v, lr, w_init, momentum=momentum, state=state, return_state=True, **given)
        answers.append(answer)
    return torch.cat(answers, 1)


def _rates(trial: Trial) -> Measurements:
    """How much the answers change when all rates are a thousand times as large."""
    (q, k, v, lr), w_init = _problem(_seed(trial, "tokens"), length=256, dim=32, dtype=torch.float64)
    rule = trial.arm_settings["rule"]
    before, after = (
        fast_weight_apply(fast_weight_update(start(w_init), k, v, factor * lr, rule=rule).weights, q)
        for factor in (1.0, THOUSANDFOLD)
    )
    return {"rate_change": float((after - before).norm() / before.norm())}


def context_parallel_part(rank: int, folder: str, seed: int, length: int, chunk_size: int, dim: int, rule: str) -> None:
    """What one of two processes does: read its part, and compare with the whole.

    Parameters
    ----------
    rank : int
    folder : str
        Where the processes meet.
    seed, length, chunk_size, dim : int
        The problem.
    rule : str

    Notes
    -----
    Process 0 prints the largest relative difference of answers in float64, and its time with and without the exchange
    in float32.
    """
    import torch.distributed as dist

    from assay.lact.parallel import context_parallel_lact, gather_chunks, shard_chunks

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    given: dict[str, Any] = {"rule": rule}
    tokens, w_init = _problem(seed, length=length, dim=dim)
    mine = [shard_chunks(one, chunk_size=chunk_size) for one in tokens]
    q, k, v, lr = mine
    times: dict[str, list[float]] = {"divided": [], "alone": []}
    for _ in range(4):
        for name in times:
            dist.barrier()
            begin = time.perf_counter()
            if name == "divided":
                context_parallel_lact(q, k, v, lr, w_init, chunk_size=chunk_size, **given)
            else:
                _answers(mine, w_init, chunk_size=chunk_size // WORLD, **given)
            times[name].append(time.perf_counter() - begin)
    tokens, w_init = _problem(seed, length=length, dim=dim, dtype=torch.float64)
    q, k, v, lr = (shard_chunks(one, chunk_size=chunk_size) for one in tokens)
    found = context_parallel_lact(q, k, v, lr, w_init, chunk_size=chunk_size, **given)
    together = gather_chunks(found, chunk_size=chunk_size)
    whole = _answers(tokens, w_init, chunk_size=chunk_size, **given)
    if rank == 0:
        error = float((together - whole).abs().max() / whole.abs().max())
        print(error, min(times["divided"][1:]), min(times["alone"][1:]))
    dist.destroy_process_group()


def _parallel(trial: Trial) -> Measurements:
    """Two gloo processes against one."""
    settings = trial.case_settings
    with tempfile.TemporaryDirectory() as folder:
        code = "import sys; from assay.lact.trials import context_parallel_part as part; "
        code += "part(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:7]), sys.argv[7])"
        given = [_seed(trial, "tokens"), settings["length"], settings["chunk_size"], settings["dim"]]
        words = [folder, *map(str, given), trial.arm_settings["rule"]]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(folder),
            )
            for rank in range(WORLD)
        ]
        ended = [process.communicate() for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("\n".join(said[1] for said in ended))
    error, divided, alone = map(float, ended[0][0].split())
    return {"parallel_error": error, "parallel_overhead": divided / alone - 1}


def _fastest(work: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """CPU seconds of each piece of work, the fastest of rounds in which all take turns."""
    found = dict.fromkeys(work, math.inf)
    for turn in range(rounds + 1):
        for name, run in work.items():
            begin = time.process_time()
            run()
            if turn:  # the first round warms up
                found[name] = min(found[name], time.process_time() - begin)
    return found


def _utilisation(trial: Trial) -> Measurements:
    """Useful operations a second over those of the fastest matrix product, for several chunks."""
    settings = trial.case_settings
    dim, chunks, rule = settings["dim"], settings["chunks"], trial.arm_settings["rule"]
    seed = _seed(trial, "tokens")
    g = torch.Generator().manual_seed(seed)
    square = torch.randn(1024, 1024, generator=g)
    tall, wide = torch.randn(2048, dim, generator=g), torch.randn(dim, 2 * dim, generator=g)
    products = {"square": (square, square, 2 * 1024**3), "tall": (tall, wide, 4 * 2048 * dim**2)}
    work: dict[str, Callable[[], object]] = {name: partial(torch.matmul, a, b) for name, (a, b, _) in products.items()}
    useful = {}
    for chunk in chunks:
        length = max(settings["least_chunks"] * chunk, settings["least_length"])
        given = _problem(seed, length=length, dim=dim)
        work[str(chunk)] = partial(_answers, *given, chunk_size=chunk, rule=rule)
        useful[chunk] = dim**2 * (18 * (length - chunk) + 6 * chunk)
    with torch.no_grad():
        seconds = _fastest(work, rounds=settings["rounds"])
    peak = max(operations / seconds[name] for name, (_, _, operations) in products.items())
    shares = [useful[chunk] / seconds[str(chunk)] / peak for chunk in chunks]
    found = {f"utilisation_{chunk}": share for chunk, share in zip(chunks, shares, strict=True)}
    least = min(after / before for before, after in pairwise(shares))
    return found | {"peak_gflops": peak / 1e9, "rise": shares[-1] / shares[0], "least_step": least}


def _seconds(trial: Trial) -> Measurements:
    """CPU time of reading a sequence, without gradients or with them."""
    settings = trial.case_settings
    length, dim, chunk = settings["length"], settings["dim"], settings["chunk_size"]
    run = _reader(trial, length, dim, chunk)
    with torch.no_grad():
        seconds = _fastest({"run": run}, rounds=settings["rounds"])["run"]
    return {"cpu_seconds": seconds, "tokens_per_second": length / seconds, "n": float(length)}


def _reader(trial: Trial, length: int, dim: int, chunk: int) -> Callable[[], object]:
    """The arm's work on a sequence of that width."""
    model = trial.arm_settings["model"]
    seed = _seed(trial, "tokens")
    if model == "titans":
        from titans_pytorch import NeuralMemory

        torch.manual_seed(seed)
        memory = NeuralMemory(dim=dim, chunk_size=trial.arm_settings["chunk_size"])
        x = torch.randn(1, length, dim)
        return lambda: memory(x)
    if model == "sdpa":
        heads = dim // trial.arm_settings["head_dim"]
        g = torch.Generator().manual_seed(seed)
        q, k, v = torch.randn(3, 1, heads, length, dim // heads, generator=g)
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    rule = trial.case_settings.get("rule", trial.arm_settings.get("rule", "muon"))
    given = _problem(seed, length=length, dim=dim)
    if model == "eager":
        return partial(_reference_answers, *given, chunk_size=chunk, rule=rule)
    return partial(_answers, *given, chunk_size=chunk, rule=rule)


def _training_memory(trial: Trial) -> Measurements:
    """Peak memory and CPU time of a forward and backward pass through many chunks; in a process of its own."""
    settings = trial.case_settings
    chunk, dim, rule = settings["chunk_size"], settings["dim"], settings["rule"]
    length = settings["chunks"] * chunk
    tokens, weights = _problem(_seed(trial, "tokens"), length=length, dim=dim)
    leaves = [one.requires_grad_() for one in (*tokens, *(one for one in weights if one is not None))]
    w_init = FastWeights(leaves[4], leaves[5], leaves[6])

    def run(upto: int) -> None:
        parts = [one[:, :upto] for one in leaves[:4]]
        if trial.arm_settings["model"] == "eager":
            answers = _reference_answers(parts, w_init, chunk_size=chunk, rule=rule)
        else:
            answers = _answers(parts, w_init, chunk_size=chunk, rule=rule, recompute=True)
        answers.backward(torch.ones_like(answers))

    run(2 * chunk)
    for leaf in leaves:
        leaf.grad = torch.zeros_like(leaf)
    with peak_memory() as peak:
        run(length)
    seconds = _fastest({"run": lambda: run(length)}, rounds=settings["rounds"])["run"]
    return {"peak_bytes": peak.bytes, "training_seconds": seconds}


def _decoding(trial: Trial) -> Measurements:
    """Time of a token at several positions, against a model that reads the whole text anew for each."""
    settings = trial.case_settings
    torch.manual_seed(_seed(trial, "weights"))
    config = LaCTConfig(
        hidden_size=settings["dim"],
        num_hidden_layers=2,
        num_attention_heads=4,
        num_fast_heads=4,
        intermediate_size=2 * settings["dim"],
        window=settings["window"],
        chunk_size=settings["window"],
        rule=trial.arm_settings["rule"],
    )
    model = LaCTForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    text = torch.randint(256, (1, max(settings["positions"]) + 8 * DECODED), generator=torch.Generator().manual_seed(0))
    found: dict[int, float] = {}
    at = 0
    with model.stream() as reader:
        for position in settings["positions"]:
            # A chunk closes where it is full: begin within one, so that every position times the same work.
            reader.feed(text[:, at : position + 8])
            at, times = position + 8, []
            for _ in range(DECODED):
                begin = time.process_time()
                reader.feed(text[:, at : at + 1])
                times.append(time.process_time() - begin)
                at += 1
            found[position] = sorted(times)[DECODED // 4]
    anew = settings["anew"]
    with torch.no_grad():
        again = _fastest({"run": lambda: model(text[:, :anew], logits_to_keep=1)}, rounds=2)["run"]
    first, *later = found.values()
    return {
        **{f"decode_seconds_{position}": seconds for position, seconds in found.items()},
        "decode_growth": max(later) / first,
        "anew_over_decode": again / found[min(found, key=lambda position: abs(position - anew))],
    }


def _state_size(trial: Trial) -> Measurements:
    """Bytes of the state after a thousand and up to a million tokens."""
    tokens, w_init = _problem(_seed(trial, "tokens"), length=4096, dim=8)
    state: FastState | None = None
    fed, sizes = 0, []
    for target in LENGTHS_OF_STATE:
        while fed < target:
            q, k, v, lr = (one[:, : target - fed] for one in tokens)
            _, state = lact(q, k, v, lr, w_init, chunk_size=2048, state=state, return_state=True, rule="gd")
            fed += q.shape[1]
        assert state is not None
        sizes.append(state.nbytes)
    keys_and_values = 2 * LENGTHS_OF_STATE[-1] * 8 * 4
    return {
        "state_bytes": float(sizes[-1]),
        "state_growth": max(sizes) / min(sizes),
        "cache_over_state": keys_and_values / sizes[-1],
    }


def _recall(trial: Trial) -> Measurements:
    """Recall of pairs from beyond the window, after training."""
    settings = trial.case_settings
    plan = TrainingPlan(**{**settings["plan"], **trial.arm_settings.get("plan", {})}, seed=trial.seed)
    changes = {**settings["model"], **trial.arm_settings.get("changes", {})}
    found = train_recall(trial.arm_settings["text"], RecallTask(**settings["task"]), plan, **changes)
    return found | {"over_chance": found["accuracy"] - found["chance"]}


def _text(trial: Trial) -> Measurements:
    """The loss of a byte model on held-out text, by the place in a row."""
    settings = trial.case_settings
    plan = TrainingPlan(**settings["plan"], seed=trial.seed)
    return train_byte_model(trial.arm_settings["text"], plan, context=settings["context"], **settings["model"])


def _views(trial: Trial) -> Measurements:
    """Pictures of spheres from new cameras, by the number of input views."""
    settings = trial.case_settings
    plan = ViewPlan(**settings["plan"])
    found = train_views(trial.arm_settings["views"], seed=trial.seed, steps=plan.steps, plan=plan)
    return found | {
        "over_wrong_scene": found["psnr_4"] - found["wrong_scene_4"],
        "over_constant": found["psnr_4"] - found["constant"],
        "gain_of_8_over_4": found["psnr_8"] - found["psnr_4"],
        "gain_of_4_over_1": found["psnr_4"] - found["psnr_1"],
    }


def _view_costs(trial: Trial) -> Measurements:
    """How reading and rendering grow with the number of input views."""
    settings = trial.case_settings
    counts = settings["views"]
    costs = [
        measure_view_costs(trial.arm_settings["views"], views=views, size=settings["size"], repeats=settings["rounds"])
        for views in counts
    ]
    largest = costs[-settings["fitted"] :]
    sizes = [math.log(cost["tokens"]) for cost in largest]
    seconds = [math.log(cost["prefill_seconds"]) for cost in largest]
    return {
        **{f"prefill_seconds_{n}": cost["prefill_seconds"] for n, cost in zip(counts, costs, strict=True)},
        **{f"render_seconds_{n}": cost["render_seconds"] for n, cost in zip(counts, costs, strict=True)},
        "prefill_exponent": _slope(sizes, seconds),
        "render_growth": costs[-1]["render_seconds"] / costs[0]["render_seconds"],
        "state_growth": costs[-1]["state_bytes"] / costs[0]["state_bytes"],
    }


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def _video(trial: Trial) -> Measurements:
    """The denoising loss before, and after, a square was hidden for longer than the window."""
    return train_video(trial.arm_settings["video"], seed=trial.seed, plan=VideoPlan(**trial.case_settings["plan"]))


_KINDS: dict[str, Callable[[Trial], Measurements]] = {
    "exactness": _exactness,
    "rates": _rates,
    "parallel": _parallel,
    "utilisation": _utilisation,
    "seconds": _seconds,
    "training-memory": _training_memory,
    "decoding": _decoding,
    "state": _state_size,
    "recall": _recall,
    "text": _text,
    "views": _views,
    "view-costs": _view_costs,
    "video": _video,
}
