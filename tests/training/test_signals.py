"""A stop signal raises at once, or after the step that is running."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from slimexp.errors import Interrupted
from slimexp.training.signals import StopSignals


def test_at_once_outside_of_a_step():
    with StopSignals(), pytest.raises(Interrupted, match="stopped by SIGTERM") as caught:
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.signum == signal.SIGTERM


def test_after_the_step_within_one():
    with StopSignals() as signals, signals.deferred():
        signals.check()
        os.kill(os.getpid(), signal.SIGINT)
        finished = True
        with pytest.raises(Interrupted, match="stopped by SIGINT"):
            signals.check()
        signals.check()
    assert finished


def test_a_second_signal_does_not_wait():
    with StopSignals() as signals, signals.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)


def test_held_signals_stay_out():
    with StopSignals() as signals:
        signals.hold()
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_closed_terminal_stops_it_unless_that_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with StopSignals(), pytest.raises(Interrupted, match="stopped by SIGHUP") as caught:
            os.kill(os.getpid(), signal.SIGHUP)
        assert caught.value.signum == signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopSignals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_of_before_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_another_thread_can_use_it_without_handlers():
    failures = []

    def work():
        try:
            with StopSignals() as signals, signals.deferred():
                signals.check()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
