from __future__ import annotations

from slimexp.pipeline.doctor.rates import Rate


def test_the_median_and_the_spread() -> None:
    rate = Rate.of([90.0, 120.0, 100.0])
    assert rate == Rate(median=100.0, low=90.0, high=120.0)
    assert rate.spread == 0.3
    assert Rate.of([5.0]).spread == 0
    assert Rate.of([0.0]).spread == 0
