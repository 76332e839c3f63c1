"""The picture of the README: docs/scoreboard.svg, the verdicts on each method's claims from the committed results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from assay.core.card import Card, load_cards
from assay.core.claim import Outcome, Verdict
from assay.core.report import read_results
from assay.core.study import load_study

DOCS = Path(__file__).parent
SCALE = "laptop"
WIDTH, MARGIN, GAP = 880, 24, 8
CHIP_HEIGHT, LINE = 26, 22
CHARACTER = 6.7
"""Width of a character of the chips' 12 px type, on the generous side."""
CHIP_PADDING = 34
SYMBOLS: dict[Outcome, str] = {"holds": "✓", "fails": "✗", "undecided": "?", "not run": "–"}
WORDS: dict[Outcome, str] = {"holds": "hold", "fails": "fail", "undecided": "undecided", "not run": "not run"}

STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1c2024 }
.name { font-weight: 700 } .quiet, .quiet tspan { fill: #5b6470 } .chip text { font-size: 12px }
.page { fill: #ffffff; stroke: #d7dbe0 }
.holds rect { fill: #e3f4e6; stroke: #2b7a3d } .holds text { fill: #14532d }
.fails rect { fill: #fde8e8; stroke: #b42318 } .fails text { fill: #7a1a12 }
.undecided rect { fill: #fff4d6; stroke: #9a6700 } .undecided text { fill: #6b4700 }
.not-run rect { fill: #eef0f3; stroke: #8b949e } .not-run text { fill: #4b5563 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet, .quiet tspan { fill: #9aa5b1 } .page { fill: #14181d; stroke: #343b44 }
.holds rect { fill: #12301c; stroke: #4cae63 } .holds text { fill: #a9e5b6 }
.fails rect { fill: #3a1512; stroke: #f0736a } .fails text { fill: #ffc9c4 }
.undecided rect { fill: #35280a; stroke: #d9a72b } .undecided text { fill: #f6dc9b }
.not-run rect { fill: #232a32; stroke: #6b7683 } .not-run text { fill: #b7c0ca }
}
""".strip()


def scoreboard() -> str:
    """The picture as SVG: a row for each method, in it a chip for each claim that this scale can decide."""
    cards = [card for card in load_cards().values() if card.package.startswith("assay.")]
    parts: list[str] = []
    told: list[str] = []
    y = float(MARGIN + 14)
    for card in cards:
        every = committed_verdicts(card)
        here = {claim.id for claim in load_study(card).claims if not claim.scales or SCALE in claim.scales}
        verdicts = [verdict for verdict in every if verdict.claim in here]
        counts = Counter(verdict.outcome for verdict in verdicts)
        summary = ", ".join(f"{counts[outcome]} {WORDS[outcome]}" for outcome in SYMBOLS if counts[outcome])
        if len(verdicts) < len(every):
            summary += f", {len(every) - len(verdicts)} more at another scale"
        summary = summary or "no results yet"
        told.append(f"{card.name}: {summary}")
        parts.append(
            f'<text x="{MARGIN}" y="{y:g}"><tspan class="name">{escape(card.name)}</tspan>'
            f'<tspan dx="10">{escape(card.title)}</tspan></text>'
            f'<text class="quiet" x="{WIDTH - MARGIN}" y="{y:g}" text-anchor="end">{escape(summary)}</text>'
        )
        y += 14
        for row in rows_of(verdicts):
            parts.extend(chips(row, y))
            y += CHIP_HEIGHT + GAP
        y += LINE + 6
    height = y - LINE + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
        f'role="img" aria-labelledby="title description">\n<title id="title">Scoreboard at {SCALE} scale</title>\n'
        f'<desc id="description">{escape("; ".join(told))}</desc>\n<style>{STYLE}</style>\n'
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="10"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def committed_verdicts(card: Card) -> Sequence[Verdict]:
    """What the committed results say; nothing where there are none."""
    folder = DOCS / "results" / card.name
    if not (folder / f"{SCALE}.parquet").exists():
        return ()
    return read_results(folder, method=card.name, scale=SCALE, card=card, study=load_study(card)).verdicts


def rows_of(verdicts: Sequence[Verdict]) -> Iterator[list[Verdict]]:
    """Break the chips into lines."""
    line: list[Verdict] = []
    used = 0.0
    for verdict in verdicts:
        width = chip_width(verdict) + GAP
        if line and used + width > WIDTH - 2 * MARGIN:
            yield line
            line, used = [], 0.0
        line.append(verdict)
        used += width
    if line:
        yield line


def chips(line: Sequence[Verdict], y: float) -> Iterator[str]:
    """One line of chips: symbol and claim, with the statement and the finding as its title."""
    x = float(MARGIN)
    for verdict in line:
        width = chip_width(verdict)
        title = f"{verdict.statement}: {verdict.outcome}. {verdict.finding}"
        yield (
            f'<g class="chip {verdict.outcome.replace(" ", "-")}"><title>{escape(title)}</title>'
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{CHIP_HEIGHT}" rx="6"/>'
            f'<text x="{x + 10:g}" y="{y + 17:g}">{SYMBOLS[verdict.outcome]}</text>'
            f'<text x="{x + 25:g}" y="{y + 17:g}">{escape(verdict.claim)}</text></g>'
        )
        x += width + GAP


def chip_width(verdict: Verdict) -> float:
    """Pixels that a chip takes."""
    return round(len(verdict.claim) * CHARACTER) + CHIP_PADDING


if __name__ == "__main__":
    (DOCS / "scoreboard.svg").write_text(scoreboard(), encoding="utf-8")
