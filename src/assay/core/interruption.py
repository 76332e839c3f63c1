"""Ctrl-C that waits until a loop is at a place where its state is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stop_between_steps"]


@contextmanager
def stop_between_steps() -> Iterator[Callable[[], bool]]:
    """Let an interrupt wait for the end of a step, which else would leave things half changed; a second one doesn't.

    Outside the main thread, and where interrupts are ignored, nothing is changed.

    Yields
    ------
    callable
        Says whether a stop was asked for.

    Examples
    --------
    >>> with stop_between_steps() as asked_to_stop:
    ...     for step in range(3):
    ...         if asked_to_stop():
    ...             break
    >>> step
    2
    """
    asked: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
