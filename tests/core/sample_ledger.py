"""A small ledger with all that a report has to show: verdicts, failures, a user's arm, artifacts, odd names."""

from __future__ import annotations

import io
import math
import struct
import wave
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from assay.core.card import Card, JobCard, Paper
from assay.core.claim import Claim, PaperFigure, always, better, grows, ratio, within
from assay.core.ledger import Ledger, Record, describe_environment, trial_key, trial_source
from assay.core.study import Arm, Case, Scale, Study, Trial

SCRIPT = "<script>alert('x')</script>"
EVIL_ARM = f'peer"{SCRIPT}'
EVIL_CASE = f"Wörter & {SCRIPT} 単語 n=4000"
USER_ARM = "my.module:my_tree"
PLUGIN = "löst & <b>bold"
TRACEBACK = (
    'Traceback (most recent call last):\n  File "trees.py", line 3, in grow\nMemoryError: <img src=x onerror=alert(1)>'
)


def measure(trial: Trial) -> dict[str, float]:
    """Measurements of a made-up method whose cost grows as n^1.5 and a peer whose cost grows as n^2."""
    rng = trial.rng(trial.arm)
    n = float(trial.case_settings["n"])
    mine = trial.arm in ("mfc", USER_ARM)
    cost = 2e-6 * n**1.5 if mine else 1e-7 * n**2
    return {
        "n": n,
        "seconds": cost * float(rng.lognormal(0, 0.1)),
        "weight_ratio": (1.05 if mine else 1.0) + float(rng.exponential(0.02)),
        "gain": float(rng.normal(0.0, 1.0)),
        "odd": math.nan if trial.arm == "mfc" else math.inf,
        "huge": math.inf if trial.seed == 0 else 1e9,
    }


STUDY = Study(
    trial=measure,
    arms={
        "mfc": Arm(label="metric forest completion"),
        "mfc-plain": Arm(role="ablation", label="without the extra edge", settings={"edge": False}),
        EVIL_ARM: Arm(role="peer"),
        "absent": Arm(role="peer", needs=("no_such_module_here",)),
    },
    scales={
        "smoke": Scale(cases=(Case("n=1000", {"n": 1000, "data": "uniform"}),), seeds=2),
        "laptop": Scale(
            cases=(
                Case("n=1000", {"n": 1000, "data": "uniform"}),
                Case("n=2000", {"n": 2000, "data": "uniform"}),
                Case(EVIL_CASE, {"n": 4000, "data": "uniform"}),
            ),
            seeds=12,
        ),
        "paper": Scale(cases=(Case("n=1e6", {"n": 10**6}),), seeds=10, requires="64 GB of memory"),
    },
    claims=(
        Claim(
            "bound", "The tree weighs at most twice the minimum", "Theorem 3", always(lambda t: t["weight_ratio"] <= 2)
        ),
        Claim(
            "exact",
            f"The tree is the minimum {SCRIPT}",
            "ours",
            always(lambda t: t["weight_ratio"] <= 1.01),
            note="It can't be: the method is approximate.",
        ),
        Claim(
            "faster",
            "It takes at most 0.9 of the peer's time",
            "Table 2",
            ratio("seconds", "mfc", over=EVIL_ARM, at_most=0.9),
            paper=(PaperFigure("Table 2, GoogleNews", 0.31), PaperFigure(f"Table 2, {SCRIPT}", 0.62)),
        ),
        Claim(
            "gain", "It gains more than its ablation", "Section 5", better("gain", "mfc", than="mfc-plain", higher=True)
        ),
        Claim("growth", "Its time grows at most as n^1.6", "Section 4", grows("seconds", "mfc", exponent_at_most=1.6)),
        Claim("large", "A million points fit", "Section 6", within("seconds", "mfc", high=600.0), scales=("paper",)),
        Claim("peer", "It beats the absent peer", "ours", better("seconds", "mfc", than="absent")),
        Claim("odd", "Nothing can be said of what isn't a number", "ours", within("odd", "mfc", high=1.0)),
        Claim("infinite", "An infinite value is beyond all limits", "ours", within("odd", "mfc-plain", high=1.0)),
    ),
    arm_signature="(points) -> edges",
    measures={
        "n": "number of points",
        "seconds": "wall-clock time (s)",
        "weight_ratio": "weight over the minimum",
        "gain": "a gain without effect",
    },
)

CARD = Card(
    name="trees",
    package="assay.trees",
    title="Trees that are nearly minimal",
    job="Build a spanning tree of anything that has a distance.",
    summary="A forest first, then a few edges between its trees. <em>Not markup.</em>",
    extra="trees",
    needs=(),
    paper=Paper(
        "Better trees & forests",
        ("Ann Élan", "Bo <b>"),
        "ICLR 2026",
        2026,
        "abc123",
        "2601.00001",
        "",
        "javascript:alert(1)",
    ),
    jobs=(JobCard("tree", "Build a tree", "assay trees tree points.npy"),),
    folder=Path("trees"),
)


def record(trial: Trial, *, environment: str = "", study: Study = STUDY, **changes: object) -> Record:
    """A finished trial of the sample study."""
    source = trial_source(study.trial, None)
    fields: dict[str, object] = {
        "key": trial_key(trial, source=source),
        "method": trial.method,
        "arm": trial.arm,
        "case": trial.case,
        "seed": trial.seed,
        "scale": trial.scale,
        "status": "done",
        "measurements": dict(study.trial(trial)),
        "seconds": 1.5,
        "started": f"2026-01-{trial.seed % 28 + 1:02d}T10:00:00+00:00",
        "source": source,
        "environment": environment,
        "arm_settings": trial.arm_settings,
        "case_settings": trial.case_settings,
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def fill_ledger(folder: Path, *, seeds: int | None = None) -> Ledger:
    """Write the sample ledger: the study at two scales, and a method that isn't installed."""
    ledger = Ledger(folder)
    machine = ledger.add_environment({**describe_environment(), "processor": "Example <CPU> 3000"})
    for scale in ("smoke", "laptop"):
        for trial in _trials(scale, seeds):
            changes: dict[str, object] = {}
            if trial.arm == "mfc-plain" and trial.seed == 1 and trial.case == "n=2000":
                changes = {"status": "failed", "measurements": {}, "error": TRACEBACK}
            if trial.arm == EVIL_ARM and trial.seed == 11 and trial.case == "n=1000" and scale == "smoke":
                changes = {"status": "timed out", "measurements": {}, "error": "stopped after 300 s"}
            artifacts = _artifacts() if trial.arm == "mfc" and trial.seed == 0 and trial.case != "n=2000" else {}
            ledger.add(record(trial, environment=machine, **changes), artifacts=artifacts)
    for arm, status in (("one", "done"), (SCRIPT, "died"), ("三", "done")):
        trial = Trial(PLUGIN, arm, EVIL_CASE, 0, "laptop", {}, {"n": 4, "list": [1, 2]})
        changes = {"status": status, "measurements": {"loss": math.inf, "n": 4.0} if status == "done" else {}}
        ledger.add(record(trial, **changes, error="" if status == "done" else "the process ended with signal 9"))
    return ledger


def _trials(scale: str, seeds: int | None) -> Iterable[Trial]:
    for trial in STUDY.trials("trees", scale, seeds=seeds, arms=["mfc", "mfc-plain", "peer*"]):
        yield trial
        if trial.arm == "mfc":
            own = {**trial.__dict__, "arm": USER_ARM, "arm_settings": {"function": USER_ARM}}
            yield Trial(**own)


def _artifacts() -> dict[str, bytes]:
    return {
        "tree & <b>.png": png(8, 8),
        "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><circle cx="2" cy="2" r="2"/></svg>',
        "sound #1.wav": wav(),
        "moving.gif": bytes.fromhex(
            "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
        ),
        "mesh.glb": b"glTF\x02\x00\x00\x00",
        "edges.csv": b"u,v,weight\n0,1,0.5\n1,2,<i>0.25</i>\n",
        "summary.json": b'{"edges": 2}',
        "ünï?code.txt": b"text",
    }


def png(width: int, height: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\x00" + b"\x20\x60\xa0" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def wav() -> bytes:
    """A tenth of a second of sound."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes((1000 * np.sin(np.arange(800) / 3)).astype("<i2").tobytes())
    return stream.getvalue()
