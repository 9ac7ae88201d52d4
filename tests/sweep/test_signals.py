from __future__ import annotations

import signal

import pytest

from slimexp.sweep.signals import SweepSignals
from slimexp.sweep.stopping import Stop


@pytest.fixture
def before():
    """What SIGHUP, SIGTERM and SIGINT do outside; SIGHUP is ignored, as under nohup."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield handlers
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_signals_are_counted_and_passed_on_and_only_the_first_is_announced(before, capsys):
    stops: list[Stop] = []
    signals = SweepSignals(stops.append)
    signals.take()
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert stops == [Stop(signal.SIGTERM, 1), Stop(signal.SIGINT, 2)]
    assert (signals.count, signals.first) == (2, signal.SIGTERM)
    assert capsys.readouterr().err.count("slimexp: stopping: what runs saves its checkpoint;") == 1
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signals.restore()
    assert signal.getsignal(signal.SIGTERM) is before[signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]


def test_who_insists_ends_the_process(before):
    signals = SweepSignals(lambda stop: None)
    signals.take()
    try:
        for _ in range(4):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signals.restore()
