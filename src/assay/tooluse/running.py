"""Live runs: many tasks against a client at once, kept line by line, so that a stopped run goes on where it stopped."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, InputError
from assay.tooluse.agents import Setting, find_agent, run_task
from assay.tooluse.clients import Answerer, as_client
from assay.tooluse.formats._benchmarks import read_native, write_native
from assay.tooluse.formats._builder import dump, load_json
from assay.tooluse.retrieval import Retriever, parse_pool, pool_tools
from assay.tooluse.trajectories import Gold, Trajectory
from assay.tooluse.world import ToolWorld

__all__ = ["Kept", "evaluate", "evaluate_async", "parse_part"]

LEAST_TURNS = 8


@dataclass
class Kept:
    """A file of finished runs, one line each; a line that was cut off is dropped.

    Parameters
    ----------
    path : path
        The file; made at the first run.
    settings : str
        What the runs were made with; a file made with something else is refused.
    """

    path: Path
    settings: str = ""

    def load(self) -> dict[tuple[str, int], Trajectory]:
        """The finished runs by task and trial; those that failed for the service are run again.

        Raises
        ------
        InputError
            The file was made with other settings, or isn't such a file.
        """
        found: dict[tuple[str, int], Trajectory] = {}
        if not self.path.exists():
            return found
        lines = self.path.read_bytes().splitlines(keepends=True)
        kept: list[bytes] = []
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n") and (kept or line.startswith(b'{"')):
                break
            try:
                record = load_json(line)
                (run,) = read_native(record)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    "not a finished run", file=self.path, row=number, expected="a file of this command's"
                ) from error
            if record.get("settings", "") != self.settings:
                raise InputError(
                    f"was made with other settings ({record.get('settings')})",
                    file=self.path,
                    row=number,
                    expected=f"{self.settings}, or another file",
                )
            if run.error is None:
                found[run.id, run.trial] = run
                kept.append(line)
        if len(kept) < len(lines):
            from assay.core.files import write_bytes

            write_bytes(self.path, b"".join(kept), force=True)
        return found

    def append(self, run: Trajectory) -> None:
        """Keep one run, whole and on the disk."""
        line = dump({**write_native(run), "settings": self.settings}).encode() + b"\n"
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                before = os.fstat(handle).st_size
                if os.write(handle, line) < len(line):
                    os.ftruncate(handle, before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise AssayError(f"{self.path}: {error.strerror or error}; finished runs are kept") from error


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that stopped the others."""
    first = several.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def parse_part(part: str) -> tuple[int, int]:
    """``"2/5"`` as the second of five parts.

    Raises
    ------
    InputError
        It isn't of that form, or out of range.
    """
    first, _, second = part.partition("/")
    if not (first.isdecimal() and second.isdecimal()) or not 1 <= int(first) <= int(second):
        raise InputError(f"part is '{part}'", expected="i/N with i from 1 to N, such as 2/5")
    return int(first), int(second)


def evaluate(
    client: Answerer,
    tasks: Sequence[Gold],
    pool: str = "domain",
    agent: str = "native",
    trials: int = 1,
    concurrency: int = 8,
    *,
    world: ToolWorld | None = None,
    retriever: Retriever | None = None,
    max_turns: int | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    part: str = "1/1",
    settings: str = "",
    watch: Callable[[int, int], Any] | None = None,
) -> list[Trajectory]:
    """Let a client work on tasks in the offline world.

    Parameters
    ----------
    client : Client or callable
        What answers: an `EndpointClient`, a `LocalClient`, or a function of messages and tool definitions.
    tasks : sequence of Gold
        What is asked; the references decide the pools `domain` and `fixed:K` and nothing else.
    pool : str
        Which tools are shown: ``all``, ``domain``, ``fixed:K``, ``retrieval:K`` or ``dynamic:K``.
    agent : str
        ``native``, ``direct``, ``cot``, ``react``, ``dynamic`` (react that retrieves anew), or ``select``.
    trials : int
        Repetitions of each task.
    concurrency : int
        Runs that are under way at once.
    world : ToolWorld, optional
        The world; every run has an office of its own in it.
    retriever : Retriever, optional
        For pools and agents that retrieve.
    max_turns : int, optional
        After how many turns a run is stopped; by default max(8, 2n + 2) for n reference calls, since a fixed limit of 8
        makes longer chains unsolvable.
    seed : int
        Of the pools.
    out : path, optional
        Where finished runs are kept, a line each. The same call goes on from there.
    part : str
        ``i/N``: only that part of the tasks; files of all parts together are the whole.
    settings : str
        What the runs are made with, in words; kept with each, and a file with others is refused.
    watch : callable, optional
        Called with the numbers of finished and of all runs.

    Returns
    -------
    list of Trajectory
        In the order of tasks and trials. A run that failed for the service has an `error`.

    Raises
    ------
    InputError
        A number or word is out of range, or `out` was made with other settings.

    Examples
    --------
    >>> from assay.tooluse.tasks import make_tasks
    >>> task = make_tasks(1, difficulty="simple", per_n=1)[0]
    >>> def model(messages, tools):
    ...     if messages[-1]["role"] == "tool":
    ...         return "Done."
    ...     call = {"name": task.calls[0].name, "arguments": task.calls[0].args}
    ...     return {"tool_calls": [{"id": "1", "function": call}]}
    >>> [call.result == task.calls[0].result for call in evaluate(model, [task])[0].calls]
    [True]
    """
    return asyncio.run(
        evaluate_async(
            client,
            tasks,
            pool,
            agent,
            trials,
            concurrency,
            world=world,
            retriever=retriever,
            max_turns=max_turns,
            seed=seed,
            out=out,
            part=part,
            settings=settings,
            watch=watch,
        )
    )


async def evaluate_async(
    client: Answerer,
    tasks: Sequence[Gold],
    pool: str = "domain",
    agent: str = "native",
    trials: int = 1,
    concurrency: int = 8,
    *,
    world: ToolWorld | None = None,
    retriever: Retriever | None = None,
    max_turns: int | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    part: str = "1/1",
    settings: str = "",
    watch: Callable[[int, int], Any] | None = None,
) -> list[Trajectory]:
    """`evaluate` within a running loop."""
    for name, value in (("trials", trials), ("concurrency", concurrency), ("max_turns", max_turns)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}", expected="at least 1")
    if seed < 0:
        raise InputError(f"seed is {seed}", expected="0 or more")
    if not tasks:
        raise InputError("there are no tasks", expected="at least one")
    if mute := [task.id for task in tasks if not task.query.strip()]:
        raise InputError(f"the task '{mute[0]}' has no query", expected="what is asked of the model")
    kind, size = parse_pool(pool)
    step = find_agent(agent)
    world = world or ToolWorld.load()
    every = tuple(world.tools())
    if agent in ("dynamic", "select") or kind in ("retrieval", "dynamic"):
        retriever = retriever or Retriever()
    answerer = as_client(client)
    number, parts = parse_part(part)
    chosen = [task for place, task in enumerate(tasks) if place % parts == number - 1]
    kept = Kept(Path(out), settings) if out is not None else None
    done = kept.load() if kept is not None else {}
    wanted = [(task, trial) for task in chosen for trial in range(trials)]
    gate = asyncio.Semaphore(concurrency)
    shown = pool if kind != "dynamic" else f"retrieval:{size}"

    async def work(task: Gold, trial: int) -> None:
        async with gate:
            own = ToolWorld(world.declarations)
            tools = tuple(pool_tools(shown, task, every, retriever=retriever, seed=seed))
            setting = Setting(
                answerer,
                tools,
                own.call,
                max_turns or max(LEAST_TURNS, 2 * len(task.calls) + 2),
                retriever if agent in ("dynamic", "select") else None,
                every,
                size or 20,
            )
            run = await run_task(task, setting, step, world=own, trial=trial)
        done[task.id, trial] = run
        if kept is not None:
            kept.append(run)
        if watch is not None:
            watch(sum((task.id, trial) in done for task, trial in wanted), len(wanted))

    try:
        async with asyncio.TaskGroup() as group:
            for task, trial in wanted:
                if (task.id, trial) not in done:
                    group.create_task(work(task, trial))
    except BaseExceptionGroup as several:
        raise _first(several) from None
    return [done[task.id, trial] for task, trial in wanted]
