"""Judges: a model's opinion of a run, cached by what it was asked. A failed judgement is missing, never 0."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from assay.core.errors import InputError
from assay.tooluse.clients import Answerer, Client, ServiceError, as_client
from assay.tooluse.formats._builder import dump, load_json
from assay.tooluse.scoring import show_call
from assay.tooluse.trajectories import Gold, Tool, Trajectory

__all__ = ["JUDGES", "JudgeKind", "Judgement", "judge", "judge_many"]

JudgeKind: TypeAlias = Literal["brief", "full", "answer", "compare"]
JUDGES: tuple[JudgeKind, ...] = ("brief", "full", "answer", "compare")
ATTEMPTS = 3
DESCRIPTION = 120
"""Characters of a tool's description that the official judge sees."""

BRIEF = """A user asked something of an assistant that can call tools. Judge whether these tools can satisfy the
request.

Request: {query}

Tools that were called:
{calls}

Give a number from 0 to 10: up to 2 irrelevant, 3 or 4 unlikely, 5 or 6 in part, 7 or 8 well, 9 or 10 completely.
Answer with JSON: {{"score": number}}"""

FULL = """A user asked something of an assistant that can call tools. Judge the calls that it made.

Request: {query}

Calls with their arguments and results:
{calls}

Rate relevance of the tools from 0 to 3, the arguments from 0 to 4, and completeness from 0 to 3.
Answer with JSON: {{"relevance": number, "arguments": number, "completeness": number}}"""

ANSWER = """Do these two answers to a request mean the same?

Request: {query}

Reference answer: {reference}

Given answer: {given}

Answer with JSON: {{"same": true}} or {{"same": false}}"""

COMPARE = """Two assistants worked on the same request by calling tools. Which one served the user better?

Request: {query}

S1:
{first}

S2:
{second}

Answer with JSON: {{"better": "S1"}}, {{"better": "S2"}} or {{"better": "TIE"}}"""


@dataclass(slots=True)
class Judgement:
    """What a judge said.

    Attributes
    ----------
    id : str
        The run's task.
    kind : str
        Which judge.
    value : float
        0 to 10 (brief, full), 0 or 1 (answer), or the share of wins of the first (compare); NaN where the judgement
        failed.
    judge : str
        Who judged.
    prompt_hash : str
        Of what was asked.
    replies : list of str
        Raw answers, one an attempt.
    """

    id: str
    kind: JudgeKind
    value: float
    judge: str
    prompt_hash: str
    replies: list[str]


def _within(value: Any, most: float) -> float:
    """A number, not below 0 and not above the most; NaN where it isn't one."""
    number = float(value)
    return min(float(most), max(0.0, number)) if math.isfinite(number) else math.nan


def _read(kind: JudgeKind, text: str) -> float:
    """The value in a judge's answer; NaN where there is none."""
    found = re.search(r"\{.*?\}", text, re.DOTALL)
    try:
        given = load_json(found[0]) if found else {}
        if kind == "brief":
            return _within(given["score"], 10)
        if kind == "full":
            limits = (("relevance", 3), ("arguments", 4), ("completeness", 3))
            return sum(_within(given[name], most) for name, most in limits)
        if kind == "answer":
            return {True: 1.0, False: 0.0}.get(given["same"], math.nan)
        return {"S1": 1.0, "TIE": 0.5, "S2": 0.0}.get(str(given["better"]).upper(), math.nan)
    except (ValueError, KeyError, TypeError):
        return math.nan


def _brief(run: Trajectory, tools: Sequence[Tool]) -> str:
    known = {one.name: one.description[:DESCRIPTION] for one in tools}
    return "\n".join(f"- {call.name}: {known.get(call.name, '')}" for call in run.calls) or "none"


def _full(run: Trajectory) -> str:
    return "\n".join(f"- {show_call(call)} -> {dump(call.result)}" for call in run.calls) or "none"


def _prompts(
    kind: JudgeKind, run: Trajectory, task: Gold, tools: Sequence[Tool], other: Trajectory | None
) -> list[str]:
    if kind == "brief":
        return [BRIEF.format(query=task.query, calls=_brief(run, tools))]
    if kind == "full":
        return [FULL.format(query=task.query, calls=_full(run))]
    if kind == "answer":
        given = run.final_answer or "(no answer)"
        return [ANSWER.format(query=task.query, reference=task.final_answer or "(none)", given=given)]
    if other is None:
        raise InputError("the judge compare has one run", expected="two runs of each task")
    one, two = _full(run), _full(other)
    return [COMPARE.format(query=task.query, first=a, second=b) for a, b in ((one, two), (two, one))]


async def judge(
    client: Answerer,
    run: Trajectory,
    task: Gold,
    kind: JudgeKind = "brief",
    *,
    tools: Sequence[Tool] = (),
    other: Trajectory | None = None,
    cache: Path | None = None,
) -> Judgement:
    """Let a model judge a run.

    Parameters
    ----------
    client : Client or callable
        The judge.
    run : Trajectory
        What is judged.
    task : Gold
        What was asked, and the reference answer.
    kind : {'brief', 'full', 'answer', 'compare'}
        ``brief`` sees names and descriptions only, as the released judge; ``full`` sees arguments and results;
        ``answer`` compares the final answer with the reference; ``compare`` two runs, in both orders.
    tools : sequence of Tool
        For descriptions.
    other : Trajectory, optional
        The second run of ``compare``.
    cache : Path, optional
        A folder of earlier answers, by judge and prompt.

    Returns
    -------
    Judgement

    Raises
    ------
    InputError
        The kind is unknown, or ``compare`` lacks a second run.
    """
    if kind not in JUDGES:
        raise InputError(f"judge '{kind}'", expected=f"one of: {', '.join(JUDGES)}")
    answerer = as_client(client)
    prompts = _prompts(kind, run, task, tools, other)
    values: list[float] = []
    replies: list[str] = []
    for prompt in prompts:
        value, said = await _ask(answerer, kind, prompt, cache)
        values.append(value)
        replies += said
    if kind == "compare":
        values = [values[0], 1 - values[1]]
    digest = hashlib.sha256("\0".join(prompts).encode()).hexdigest()[:16]
    return Judgement(run.id, kind, sum(values) / len(values), answerer.name, digest, replies)


async def _ask(client: Client, kind: JudgeKind, prompt: str, cache: Path | None) -> tuple[float, list[str]]:
    from assay.core.files import write_bytes

    digest = hashlib.sha256(f"{client.name}\0{prompt}".encode()).hexdigest()
    file = None if cache is None else cache / f"{digest}.json"
    if file is not None and (kept := _kept(file)):
        return _read(kind, kept[-1]), kept
    replies: list[str] = []
    for _ in range(ATTEMPTS):
        try:
            replies.append((await client.complete([{"role": "user", "content": prompt}])).text)
        except ServiceError as error:
            return math.nan, [*replies, f"error: {error}"]
        value = _read(kind, replies[-1])
        if not math.isnan(value):
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(file, dump(replies).encode(), force=True)
            return value, replies
    return math.nan, replies


def _kept(file: Path) -> list[str]:
    """Earlier answers; none where the file is missing or damaged."""
    try:
        found = load_json(file.read_bytes())
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else []


def judge_many(
    client: Answerer,
    runs: Sequence[Trajectory],
    tasks: Sequence[Gold],
    kind: JudgeKind = "brief",
    *,
    tools: Sequence[Tool] = (),
    others: Sequence[Trajectory] = (),
    cache: Path | None = None,
    concurrency: int = 8,
) -> list[Judgement]:
    """Let a model judge runs, several at once.

    Parameters
    ----------
    client, kind, tools, cache
        As for `judge`.
    runs : sequence of Trajectory
        What is judged.
    tasks : sequence of Gold
        The tasks by id.
    others : sequence of Trajectory
        Second runs for ``compare``.
    concurrency : int
        Judgements under way at once.

    Returns
    -------
    list of Judgement
        In the order of the runs.

    Raises
    ------
    InputError
        A run has no task, or `concurrency` is below 1.
    """
    if concurrency < 1:
        raise InputError(f"concurrency is {concurrency}", expected="at least 1")
    by_id = {task.id: task for task in tasks}
    second = {(one.id, one.trial): one for one in others}
    if missing := [run.id for run in runs if run.id not in by_id]:
        raise InputError(f"no task for the run '{missing[0]}'", expected="tasks with the runs' ids")

    async def everything() -> list[Judgement]:
        gate = asyncio.Semaphore(concurrency)

        async def one(run: Trajectory) -> Judgement:
            async with gate:
                other = second.get((run.id, run.trial))
                return await judge(client, run, by_id[run.id], kind, tools=tools, other=other, cache=cache)

        return list(await asyncio.gather(*(one(run) for run in runs)))

    return asyncio.run(everything())


def judgement_to_dict(given: Judgement) -> dict[str, Any]:
    """JSON values; a missing judgement is null."""
    return {**asdict(given), "value": None if math.isnan(given.value) else given.value}
