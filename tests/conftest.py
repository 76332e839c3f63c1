"""What all tests share: a command to run as a user does, and quiet for the tests that measure time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).parents[1]


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command line in an empty folder, with this environment's commands first in the path."""

    def run_(
        *arguments: str, folder: Path = tmp_path, seconds: float = 240, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            arguments,
            cwd=folder,
            env={**os.environ, "PATH": path, "COLUMNS": "200", "NO_COLOR": "1", **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return run_


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let a test that is marked `serial` run alone, whichever worker it is on.

    All tests pass through one door, which an ordinary test leaves open behind itself. A serial test keeps it shut until
    it is done, and starts when those that are inside have ended.
    """
    cache = getattr(item.config, "cache", None)
    if cache is None:
        return (yield)
    folder = cache.mkdir("serial")
    serial = item.get_closest_marker("serial") is not None
    with ExitStack() as after, ExitStack() as at_door:
        at_door.enter_context(_locked(folder / "door", fcntl.LOCK_EX))
        after.enter_context(_locked(folder / "room", fcntl.LOCK_EX if serial else fcntl.LOCK_SH))
        if not serial:
            at_door.close()
        return (yield)


@contextmanager
def _locked(file: Path, kind: int) -> Iterator[None]:
    with file.open("a") as handle:
        fcntl.flock(handle, kind)
        try:
            yield
        finally:
            fcntl.flock(
                handle, fcntl.LOCK_UN
            )  # explicitly, since a process that a test left running may share the handle
