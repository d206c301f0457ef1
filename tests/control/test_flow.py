"""Bytes a second, and the plateau that a cap on bytes makes."""

from __future__ import annotations

from resilient_io.control.flow import SPELL_S, Flow

PLACES = 32


def moved(flow: Flow, began_at: float, seconds: float, in_flight: int, per_s: float, size_bytes: int) -> float:
    """Note what a steady job moves, and return when it ends."""
    answers = int(per_s * seconds)
    for number in range(answers):
        flow.note(began_at + number * seconds / answers, 1, size_bytes, in_flight)
    return began_at + seconds


def test_more_in_flight_that_move_no_more_are_a_plateau() -> None:
    """A cap on egress: 8 in flight get 100 MB/s, and so do 32."""
    flow = Flow()
    now = moved(flow, 0.0, 3 * SPELL_S, 8, 100.0, 1_000_000)
    now = moved(flow, now, 4 * SPELL_S, 32, 101.0, 1_000_000)
    assert flow.plateau_bytes_per_s(PLACES) is not None
    assert 95e6 <= (flow.plateau_bytes_per_s(PLACES) or 0.0) <= 105e6
    assert 95e6 <= flow.bytes_per_s(now) <= 105e6


def test_more_in_flight_that_move_more_are_none() -> None:
    """Twice the requests and twice the bytes: nothing holds them up."""
    flow = Flow()
    now = moved(flow, 0.0, 3 * SPELL_S, 8, 100.0, 1_000_000)
    moved(flow, now, 4 * SPELL_S, 32, 300.0, 1_000_000)
    assert flow.plateau_bytes_per_s(PLACES) is None


def test_a_job_that_wants_no_more_has_no_plateau() -> None:
    """In flight goes up and down with the latency, and places are free all the time."""
    flow = Flow()
    now = moved(flow, 0.0, 3 * SPELL_S, 4, 100.0, 1_000_000)
    moved(flow, now, 4 * SPELL_S, 16, 100.0, 1_000_000)
    assert flow.plateau_bytes_per_s(PLACES) is None


def test_requests_of_another_size_are_not_compared() -> None:
    """Small reads then large ones: the bytes differ for another reason."""
    flow = Flow()
    now = moved(flow, 0.0, 3 * SPELL_S, 8, 100.0, 1_000_000)
    moved(flow, now, 4 * SPELL_S, 32, 25.0, 4_000_000)
    assert flow.plateau_bytes_per_s(PLACES) is None


def test_a_refusal_makes_a_plateau_no_news() -> None:
    """Then there is a limit on requests, which is reported as such."""
    flow = Flow()
    now = moved(flow, 0.0, 3 * SPELL_S, 8, 100.0, 1_000_000)
    moved(flow, now, 4 * SPELL_S, 32, 100.0, 1_000_000)
    flow.forget()
    assert flow.plateau_bytes_per_s(PLACES) is None


def test_a_flow_that_ended_is_none_now() -> None:
    """What was moved a minute ago is not moved now."""
    flow = Flow()
    now = moved(flow, 0.0, 3 * SPELL_S, 8, 100.0, 1_000_000)
    assert flow.bytes_per_s(now + 60.0) == 0.0
    assert flow.total_bytes == 1500 * 1_000_000


def test_few_large_answers_a_second_are_a_flow_too() -> None:
    """One object of a megabyte a second: too few to compare, and still a megabyte a second."""
    flow = Flow()
    now = moved(flow, 0.0, 4 * SPELL_S, 1, 1.0, 1_000_000)
    assert 0.9e6 <= flow.bytes_per_s(now) <= 1.1e6
    assert flow.plateau_bytes_per_s(1) is None
