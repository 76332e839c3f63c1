"""An interrupt waits for the end of a step."""

import os
import signal
import threading

import pytest

from assay.core.interruption import stop_between_steps


def test_a_first_interrupt_asks_and_a_second_one_stops():
    before = signal.getsignal(signal.SIGINT)
    with stop_between_steps() as asked_to_stop:
        assert not asked_to_stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert asked_to_stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_nothing_is_changed_outside_the_main_thread_or_where_interrupts_are_ignored():
    found = []

    def work():
        with stop_between_steps() as asked_to_stop:
            found.append((signal.getsignal(signal.SIGINT), asked_to_stop()))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(before, False)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work()
    finally:
        signal.signal(signal.SIGINT, before)
    assert found[1] == (signal.SIG_IGN, False)
