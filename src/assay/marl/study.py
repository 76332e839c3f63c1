"""What is claimed of successive sub-value Q-learning, by its paper and by us, and the trials that decide it.

Settings were fixed on seeds from 1000 on (see ``docs/results/marl/tuning.json``); the seeds that decide start at 0. In
a game of one step, a trial is a batch of seeds, and its measurements are shares of them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from assay.core.claim import Claim, PaperFigure, always, grows, ratio, within
from assay.core.study import Arm, Case, Role, Scale, Study
from assay.marl.statistics import HigherReturn, MoreOften, Share
from assay.marl.trials import run_trial

__all__ = ["STUDY"]

FIGURE = "motivating figure"
STAYS, FOLLOWS = 0.1, 0.8
"""At most this share of seeds finds a moved optimum where none should, and at least this where all should."""
LOCKS = 0.9
MARGIN = 0.15
"""What "as often" allows: the width of an interval on 40 seeds."""

DIAGONAL = {"kind": "game", "before": [8, 4, 6], "after": [8, 4, 12], "shift": 1500, "updates": 3000}
SMALL = {**DIAGONAL, "scale": 0.1, "settings": {"floor": 0.1}}
NEGATIVE = {
    "kind": "game",
    "before": [-2, -3, -2.5],
    "after": [-2, -3, -1],
    "elsewhere": -4,
    "shift": 1500,
    "updates": 3000,
    "settings": {"temperature": 0.25, "floor": 3.0},
}
FOUR = {"kind": "game", "agents": 4, "before": [8, 4, 6, 2], "after": [8, 4, 12, 2], "shift": 2500, "updates": 4000}
HUNT = {"kind": "team", "env": "staghunt:grid=4x4,n_agents=2,n_stags=1,horizon=20,penalty=-1", "success": 5.0}
FORAGING = {"kind": "team", "env": "lbf:Foraging-5x5-2p-1f-coop-v3", "reward": "sum", "success": 0.5}
TEAM_SETTINGS = {
    "batch_size": 32,
    "buffer_size": 1000,
    "hidden": 32,
    "critic_width": 64,
    "epsilon_steps": 10_000,
    "episodes_per_update": 2,
}
STEP = {"kind": "step", "episodes": 32, "steps": 50}


def _game(label: str, algorithm: str = "s2q", *, role: Role = "ablation", **settings: Any) -> Arm:
    return Arm({"algorithm": algorithm, "game": settings}, role=role, label=label)


def _with_team(arm: Arm, learner: str, *, step: bool = False, **settings: Any) -> Arm:
    timed = {"step": learner} if step else {}
    return Arm({**arm.settings, "learner": learner, "team": settings, **timed}, role=arm.role, label=arm.label)


ARMS: Mapping[str, Arm] = {
    "s2q": _with_team(_game("S2Q", role="method"), "s2q", step=True),
    "code": _game(
        "S2Q with the published code's suppression, levels drawn in half of the episodes", suppression="code", mix=0.5
    ),
    "no-floor": _game("S2Q with the published code's suppression, which has no floor", suppression="code"),
    "greedy": _game("S2Q, level 0 always", selector="greedy"),
    "uniform": _game("S2Q, levels drawn uniformly", selector="uniform"),
    "independent": _game("S2Q, each agent draws its own level", selector="independent"),
    "oracle": _game("S2Q, levels drawn from the exact distribution", selector="oracle"),
    "unweighted": _game("S2Q, unweighted errors", weighting="none"),
    "k0": _game("S2Q with K = 0", K=0),
    "k1": _game("S2Q with K = 1", K=1),
    "k3": _game("S2Q with K = 3", K=3),
    "t0.01": _game("S2Q with T = 0.01", temperature=0.01),
    "t0.1": _game("S2Q with T = 0.1", temperature=0.1),
    "t-auto": _game("S2Q with automatic T", temperature="auto"),
    "s2q-vdn": _game("S2Q on VDN", role="method", mixer="vdn"),
    "s2q-qplex": _game("S2Q on QPLEX", role="method", mixer="qplex"),
    "qmix": _with_team(_game("QMIX", "qmix", role="baseline"), "qmix", step=True),
    "vdn": _with_team(_game("VDN", "vdn", role="baseline"), "vdn"),
    "qplex": _game("QPLEX", "qmix", role="baseline", mixer="qplex"),
    "iql": _with_team(_game("independent Q-learning", "iql", role="baseline"), "iql"),
    "ow": _with_team(_game("OW-QMIX", "owqmix", role="baseline"), "wqmix", weighting="ow"),
    "cw": _with_team(_game("CW-QMIX", "cwqmix", role="baseline"), "wqmix", weighting="cw"),
    "table": Arm(label="successive suppression of a known payoff"),
    "qmix-linear": Arm(
        {"step": "qmix", "step_settings": {"hypernet_layers": 1}},
        role="baseline",
        label="our QMIX with TorchRL's hypernetworks",
    ),
    "torchrl": Arm({"step": "torchrl"}, role="peer", label="TorchRL's QMIX", needs=("torchrl", "tensordict")),
    "vectorised": Arm({"stepping": "vectorised"}, label="our environments, many instances at once"),
    "pettingzoo": Arm({"stepping": "pettingzoo"}, role="peer", label="the same environments in a PettingZoo loop"),
    "adapter": Arm({"stepping": "adapter"}, label="foraging through the adapter"),
    "raw": Arm({"stepping": "raw"}, role="peer", label="foraging as it is"),
    "replay": Arm(label="the replay memory"),
}

BASELINES = ("qmix", "ow", "cw", "vdn", "qplex")
SELECTING = ("s2q", "code", "greedy", "uniform", "independent", "oracle", "unweighted")
TEAMS = ("s2q", "qmix")


def _games(name: str, settings: Mapping[str, Any], arms: tuple[str, ...], games: int, **more: Any) -> Case:
    return Case(name, {**settings, "games": games, **more}, arms)


def _team(name: str, settings: Mapping[str, Any], arms: tuple[str, ...], *, seeds: int, **more: Any) -> Case:
    given = {"environments": 8, "eval_episodes": 32, "episodes": 100, "settings": TEAM_SETTINGS, **settings, **more}
    needs = ("lbforaging",) if settings["env"].startswith("lbf:") else ()
    return Case(name, given, arms, needs=needs, seeds=seeds)


def _steps(*, seeds: int) -> tuple[Case, ...]:
    """Sizes of a gradient step, one thing changed at a time; the first is compared with the peers."""

    def case(name: str, arms: tuple[str, ...] = ("s2q",), **more: Any) -> Case:
        return Case(f"step-{name}", {**STEP, **more}, arms, seeds=seeds, alone=True, own_process=True)

    return (
        case("peers", ("s2q", "qmix", "qmix-linear", "torchrl")),
        *(case(f"levels-{K + 1}", K=K) for K in (0, 3)),
        case("time-100", steps=100),
        case("episodes-64", episodes=64),
        case("agents-8", agents=8),
    )


def _stepping(*, seeds: int, steps: int) -> tuple[Case, ...]:
    own = (("matrix", ("vectorised", "pettingzoo")), ("staghunt", ("vectorised", "pettingzoo")))
    return (
        *(
            Case(
                f"stepping-{env}",
                {"kind": "stepping", "env": env, "instances": 256, "steps": steps},
                arms,
                seeds=seeds,
                alone=True,
            )
            for env, arms in own
        ),
        Case(
            "stepping-foraging",
            {"kind": "stepping", "env": "Foraging-5x5-2p-1f-coop-v3", "instances": 8, "steps": steps},
            ("adapter", "raw"),
            needs=("lbforaging",),
            seeds=seeds,
            alone=True,
        ),
    )


REPLAY = Case(
    "replay-staghunt", {"kind": "replay", "env": "staghunt", "environments": 16, "steps": 4000}, ("replay",), seeds=5
)
TABLE = {"kind": "table", "levels": 6}

SMOKE = Scale(
    cases=(
        _games("shift", DIAGONAL, ("s2q", "qmix"), 8, shift=200, updates=400),
        _games("negative", NEGATIVE, ("s2q", "no-floor"), 8, shift=200, updates=400),
        Case("table", {**TABLE, "payoffs": 300}, ("table",), seeds=1),
        _team("staghunt", HUNT, TEAMS, seeds=1, steps=800, eval_every=400, eval_episodes=8, episodes=8),
        Case("step-peers", {**STEP, "episodes": 4, "steps": 10}, ("s2q", "qmix", "qmix-linear", "torchrl"), seeds=1),
        *_stepping(seeds=1, steps=100),
        Case("replay-staghunt", {**REPLAY.settings, "steps": 1000}, ("replay",), seeds=1),
    ),
    seeds=1,
    limit_seconds=180.0,
)

LAPTOP = Scale(
    cases=(
        _games("shift", DIAGONAL, (*SELECTING, "k0", "t0.1", "s2q-*", *BASELINES), 30),
        _games("small", SMALL, ("s2q", "t0.1"), 20),
        _games("negative", NEGATIVE, ("s2q", "no-floor"), 30),
        _games("four-actions", {**DIAGONAL, "before": [8, 4, 6, 2], "after": [8, 4, 12, 2]}, ("s2q", "k3"), 20),
        _games("four-agents", FOUR, ("s2q", "independent"), 20),
        Case("table", {**TABLE, "payoffs": 400}, ("table",), seeds=1),
        Case("batched", {**DIAGONAL, "games": 20}, ("s2q",), seeds=5, alone=True),
        _team("staghunt", HUNT, TEAMS, seeds=5, steps=15_000, eval_every=5000),
        _team("foraging", FORAGING, TEAMS, seeds=5, steps=15_000, eval_every=5000),
        *_steps(seeds=5),
        *_stepping(seeds=5, steps=1000),
        REPLAY,
    ),
    seeds=1,
    limit_seconds=1500.0,
)


def _lacking_starcraft() -> str:
    return "" if importlib.util.find_spec("smac") and os.environ.get("SC2PATH") else "SMAC and StarCraft II (SC2PATH)"


def _lacking_football() -> str:
    return "" if importlib.util.find_spec("gfootball") else "Google Research Football (gfootball)"


SMAC_HARD = ("5m_vs_6m", "MMM2", "27m_vs_30m", "corridor", "6h_vs_8z", "3s5z_vs_3s6z")
FOOTBALL = ("academy_3_vs_1_with_keeper", "academy_4_vs_3")
PUBLISHED = {"environments": 8, "eval_every": 50_000, "eval_episodes": 100, "episodes": 100}

PAPER = Scale(
    cases=(
        _games("sweep", DIAGONAL, ("k0", "k1", "s2q", "k3", "t0.01", "t0.1", "t-auto", "iql"), 100),
        _games("sweep-small", SMALL, ("s2q", "t0.01", "t0.1", "t-auto"), 100),
        *(
            Case(
                f"smac-{name}",
                {"kind": "team", "env": f"smac:{name}", "steps": 10_050_000, "success": 19.9, **PUBLISHED},
                TEAMS,
                lacks=_lacking_starcraft,
            )
            for name in SMAC_HARD
        ),
        *(
            Case(
                f"football-{name}",
                {
                    "kind": "team",
                    "env": f"football:{name}",
                    "steps": 10_050_000,
                    "success": 0.5,
                    "settings": {"hidden": 256, "agent_id": True},
                    **PUBLISHED,
                },
                TEAMS,
                lacks=_lacking_football,
            )
            for name in FOOTBALL
        ),
    ),
    seeds=5,
    limit_seconds=7 * 86_400.0,
    requires="StarCraft II or Google Research Football, a GPU and days",
)

LATER = ("laptop",)
ANY = ("smoke", "laptop")
SHIFT = ("shift",)


def _followers() -> tuple[Claim, ...]:
    names = {"qmix": "QMIX", "ow": "OW-QMIX", "cw": "CW-QMIX"}
    return (
        *(
            Claim(
                f"{arm}-stays",
                f"When the optimum of a 3 × 3 payoff moves, {name} stays at the old one: at most a tenth of the seeds "
                "follow",
                FIGURE,
                Share("recovered", arm, SHIFT, at_most=STAYS),
                scales=LATER,
            )
            for arm, name in names.items()
        ),
        Claim(
            "s2q-follows",
            "There, S2Q follows within 1500 updates (12 000 steps) in at least four fifths of the seeds",
            FIGURE,
            Share("recovered", "s2q", SHIFT, at_least=FOLLOWS),
            scales=LATER,
        ),
        *(
            Claim(
                f"s2q-over-{arm}",
                f"There, S2Q follows in more seeds than {name}",
                FIGURE,
                MoreOften("recovered", "s2q", arm, SHIFT),
                scales=LATER,
            )
            for arm, name in names.items()
        ),
        *(
            Claim(
                f"level-{level}-locks",
                f"Before the move, level {level} holds the joint action of rank {level + 1} in at least nine tenths of "
                "the seeds",
                "Theorem 4.1",
                Share(f"lock_{level}", "s2q", SHIFT, at_least=LOCKS),
                scales=LATER,
            )
            for level in range(3)
        ),
        Claim(
            "table-sorts",
            "Over a table, with the least sufficient suppression, the levels are the payoff's ranking",
            "Theorem 4.1",
            always(lambda m: m["violations"] == 0, checks="payoffs", rate=0.01, arms=("table",), cases=("table",)),
            scales=ANY,
        ),
    )


def _ablations() -> tuple[Claim, ...]:
    return (
        Claim(
            "softmax-needed",
            "Without drawing levels, S2Q stays at the old optimum in at least nine tenths of the seeds",
            "Table 1, S2Q without softmax",
            Share("recovered", "greedy", SHIFT, at_most=STAYS),
            scales=LATER,
        ),
        Claim(
            "uniform-follows",
            "With levels drawn uniformly, at least four fifths of the seeds follow",
            "ours",
            Share("recovered", "uniform", SHIFT, at_least=FOLLOWS),
            scales=LATER,
        ),
        Claim(
            "uniform-hurts",
            "Levels drawn uniformly cost optimality before the move: S2Q is optimal in more seeds",
            "Table 1, S2Q with random choice",
            MoreOften("optimal_before", "s2q", "uniform", SHIFT),
            scales=LATER,
        ),
        Claim(
            "one-level-for-all",
            "With 4 agents and 4 actions, a team whose agents draw one level follows in more seeds than one whose "
            "agents draw each for themselves",
            "Table 1, S2Q with independent choice",
            MoreOften("recovered", "s2q", "independent", ("four-agents",)),
            scales=LATER,
        ),
        Claim(
            "oracle-bound",
            "Drawing from the exact distribution follows as often as drawing from the coordinator's, within 15 points",
            "Table 1, S2Q with the oracle",
            MoreOften("recovered", "oracle", "s2q", SHIFT, margin=MARGIN),
            scales=LATER,
        ),
        Claim(
            "weights-not-essential",
            "With unweighted errors as many seeds follow, within 15 points",
            "Table 1, S2Q without weighted TD",
            MoreOften("recovered", "unweighted", "s2q", SHIFT, margin=MARGIN),
            scales=LATER,
        ),
        Claim(
            "floor-follows",
            "Where all payoffs are negative, suppression by max(Q, C) follows in at least four fifths of the seeds",
            "ours, from the paper's formula",
            Share("recovered", "s2q", ("negative",), at_least=FOLLOWS),
            scales=LATER,
        ),
        Claim(
            "no-floor-stays",
            "There, the published code's suppression by Q follows in at most a tenth",
            "ours, from the paper's formula",
            Share("recovered", "no-floor", ("negative",), at_most=STAYS),
            scales=LATER,
        ),
        Claim(
            "levels-needed",
            "With K = 0 at most a tenth of the seeds follow",
            "ablation of K",
            Share("recovered", "k0", SHIFT, at_most=STAYS),
            scales=LATER,
        ),
        Claim(
            "third-level-no-gain",
            "With 4 actions, K = 2 follows as often as K = 3, within 15 points",
            "ablation of K",
            MoreOften("recovered", "s2q", "k3", ("four-actions",), margin=MARGIN),
            scales=LATER,
        ),
        Claim(
            "small-T-large-gap",
            "Where candidates are 2 apart, T = 1 follows in more seeds than T = 0.1",
            "ours",
            MoreOften("recovered", "s2q", "t0.1", SHIFT),
            scales=LATER,
        ),
        Claim(
            "small-T-small-gap",
            "Where all payoffs are a tenth as large, T = 0.1 follows in at least four fifths of the seeds",
            "ours",
            Share("recovered", "t0.1", ("small",), at_least=FOLLOWS),
            scales=LATER,
        ),
        *(
            Claim(
                f"on-{mixer}",
                f"On {mixer.upper()}, S2Q follows in more seeds than {mixer.upper()} alone",
                "S2Q on other mixers",
                MoreOften("recovered", f"s2q-{mixer}", mixer, SHIFT),
                scales=LATER,
            )
            for mixer in ("vdn", "qplex")
        ),
    )


def _teams() -> tuple[Claim, ...]:
    return (
        *(
            Claim(
                f"return-{name}",
                f"{title}: the interquartile mean of S2Q's return is at least QMIX's",
                "Table 1, on StarCraft",
                HigherReturn("return", "s2q", "qmix", (name,), learned),
                scales=LATER,
                note="A few thousand episodes of a small task: far from the paper's 10 million steps.",
            )
            for name, title, learned in (
                ("staghunt", "Stag hunt with a penalty", 1.0),
                ("foraging", "Cooperative foraging", 0.1),
            )
        ),
        Claim(
            "smac-hard",
            "On the six SMAC-Hard+ maps, S2Q wins at least as often as QMIX",
            "Table 1",
            HigherReturn("success", "s2q", "qmix", ("smac-*",)),
            paper=(PaperFigure("difference of the mean win rates", 0.7343 - 0.4394),),
            scales=("paper",),
        ),
        Claim(
            "football",
            "In the two football academies, S2Q scores at least as often as QMIX",
            "football curves",
            HigherReturn("success", "s2q", "qmix", ("football-*",)),
            paper=(PaperFigure("3_vs_2, from the curves", 0.2), PaperFigure("4_vs_3, from the curves", 0.25)),
            scales=("paper",),
        ),
    )


def _costs() -> tuple[Claim, ...]:
    peers = ("step-peers",)
    return (
        Claim(
            "step-over-qmix",
            "A gradient step with K = 2 takes at most 3.5 times the CPU time of our QMIX's",
            "ours, after the paper's “moderate”",
            ratio("step_seconds", "s2q", over="qmix", at_most=3.5, cases=peers),
            scales=LATER,
        ),
        Claim(
            "memory-over-qmix",
            "It takes at most 3.5 times its memory",
            "ours, after the paper's “moderate”",
            ratio("peak_bytes", "s2q", over="qmix", at_most=3.5, cases=peers),
            scales=LATER,
        ),
        Claim(
            "step-over-torchrl",
            "At equal networks our QMIX's gradient step is at least 1.3 times as fast as TorchRL's",
            "ours",
            ratio("step_seconds", "qmix-linear", over="torchrl", at_most=1 / 1.3, cases=peers),
            scales=LATER,
        ),
        *(
            Claim(
                f"linear-in-{size}",
                f"A gradient step's time grows at most linearly in the number of {size} (exponent at most 1.1)",
                "ours",
                grows("step_seconds", "s2q", exponent_at_most=1.1, size=size, cases=("step-peers", pattern)),
                scales=LATER,
            )
            for size, pattern in (
                ("levels", "step-levels-*"),
                ("steps", "step-time-*"),
                ("episodes", "step-episodes-*"),
                ("agents", "step-agents-*"),
            )
        ),
        *(
            Claim(
                f"stepping-{env}",
                f"{title}, 256 instances on one core: at least 100 000 joint steps a second",
                "ours",
                within("steps_per_second", "vectorised", low=100_000.0, cases=(f"stepping-{env}",)),
                scales=LATER,
            )
            for env, title in (("matrix", "A matrix game"), ("staghunt", "Stag hunt"))
        ),
        *(
            Claim(
                f"stepping-{env}-over-pettingzoo",
                f"{title}: at least 20 times as many joint steps a second as in a PettingZoo loop",
                "ours",
                ratio("steps_per_second", "vectorised", over="pettingzoo", at_least=20.0, cases=(f"stepping-{env}",)),
                scales=LATER,
            )
            for env, title in (("matrix", "A matrix game"), ("staghunt", "Stag hunt"))
        ),
        Claim(
            "adapter-rate",
            "Foraging through the adapter makes at least 95 % of the joint steps a second that it makes alone",
            "ours",
            ratio("steps_per_second", "adapter", over="raw", at_least=0.95, cases=("stepping-foraging",)),
            scales=LATER,
        ),
        Claim(
            "replay-bytes",
            "Stored episodes take at most 40 % of the usual padded layout with one-hot actions",
            "ours",
            within("share_of_usual", "replay", high=0.4, cases=("replay-staghunt",)),
            scales=LATER,
        ),
        Claim(
            "games-batched",
            "20 seeds of 3000 updates each of a one-step game take less than a minute",
            "ours",
            within("seconds", "s2q", high=60.0, cases=("batched",)),
            scales=LATER,
        ),
    )


STUDY = Study(
    trial=run_trial,
    arms=ARMS,
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    claims=(*_followers(), *_ablations(), *_teams(), *_costs()),
    arm_signature="a function (env: VecEnv, steps: int, seed: int) that gives act(obs, avail, state) -> actions (N, n)",
    measures={
        "recovered": "share of seeds that are optimal over the last 100 updates after the move",
        "optimal_before": "share of seeds that are optimal over the last 100 updates before it",
        "optimal_at_end": "share of seeds that are optimal at the end",
        "recovery_updates": "updates after the move until 90 % of the seeds are optimal and stay so; none where never",
        "recovery_steps": "the same in environment steps",
        "visits_of_new_optimum": "times that a seed played the later optimum before the move, mean",
        "lock_0": "share of seeds whose level 0 is the best joint action before the move",
        "lock_1": "share of seeds whose level 1 is the second best",
        "lock_2": "share of seeds whose level 2 is the third best",
        "return": "mean return of 100 greedy episodes at the end",
        "success": "share of those episodes with success",
        "step_seconds": "CPU seconds of a gradient step",
        "peak_bytes": "bytes by which the resident memory rises in a gradient step",
        "steps_per_second": "joint steps a CPU second",
        "share_of_usual": "bytes over those of the padded layout",
        "seconds": "wall-clock seconds of the training",
    },
)
