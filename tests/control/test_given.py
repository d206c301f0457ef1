"""Rates that a person gave."""

from __future__ import annotations

import pytest

from resilient_io.control import given


def test_requests_leave_at_the_given_rate() -> None:
    """Ten a second: the first at once, then one each tenth of a second."""
    rec, now, left = given.fresh(), 100.0, []
    while len(left) < 21:
        ready = given.requests_ready_at(rec, now, 10.0)
        if ready <= now:
            given.take(rec, 1.0)
            left.append(now)
        now = max(now, ready)
    assert left[-1] - left[0] == pytest.approx(2.0, abs=0.01)


def test_an_object_larger_than_a_second_s_bytes_is_paid_for_afterwards() -> None:
    """It may begin, because nobody knows its size before; the next one waits until it is paid."""
    rec = given.fresh()
    assert given.bytes_ready_at(rec, 100.0, 1e6) == 100.0
    given.take(rec, 5e6)
    assert given.bytes_ready_at(rec, 100.0, 1e6) == pytest.approx(104.9, abs=0.01)
    assert given.bytes_ready_at(rec, 105.0, 1e6) == 105.0


def test_no_more_than_a_moment_s_bytes_are_saved_up() -> None:
    """An hour of silence is no right to an hour's bytes at once."""
    rec = given.fresh()
    given.bytes_ready_at(rec, 0.0, 1e6)
    assert given.bytes_ready_at(rec, 3600.0, 1e6) == 3600.0
    given.take(rec, 2e5)
    assert given.bytes_ready_at(rec, 3600.0, 1e6) == pytest.approx(3600.1, abs=0.01)
