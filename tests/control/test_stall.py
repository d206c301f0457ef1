"""A body that trickles is stalled; one that nobody reads is not."""

from __future__ import annotations

import random

import pytest

from resilient_io.control.stall import Meter


def test_a_trickle_is_not_taken_for_progress() -> None:
    meter = Meter(1024, 30)
    waits = [meter.is_stalled(1.0, 100) for _ in range(30)]
    assert waits == [False] * 29 + [True]


def test_a_slow_body_above_the_least_is_not_ended() -> None:
    meter = Meter(1024, 30)
    assert not any(meter.is_stalled(1.0, 1025) for _ in range(1000))


def test_a_burst_does_not_excuse_the_next_windows() -> None:
    meter = Meter(1024, 30)
    assert not meter.is_stalled(30.0, 10**9)
    assert meter.is_stalled(30.0, 0)


def test_a_silence_that_ends_late_counts_as_long_as_it_was() -> None:
    assert Meter(1024, 30).is_stalled(100.0, 60 * 1024)


def test_a_caller_that_takes_its_time_is_not_a_stall() -> None:
    # Only waits are told to the meter: what passes between two reads is nobody's fault.
    meter = Meter(1024, 30)
    assert not any(meter.is_stalled(0.001, 1) for _ in range(1000))
    assert meter.left_s == pytest.approx(29.0)


def test_zero_turns_it_off() -> None:
    chance = random.Random(1)
    meter = Meter(0, 30)
    assert meter.is_off
    assert not any(meter.is_stalled(chance.uniform(0, 1000), 0) for _ in range(100))
