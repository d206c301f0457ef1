from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resilient_io.control.backoff import delay_s, full_jitter

ATTEMPTS = st.integers(1, 10_000)
SECONDS = st.floats(0, 1e6)
UNIFORMS = st.floats(0, 1, exclude_max=True)


@given(attempt=ATTEMPTS, base_s=SECONDS, cap_s=SECONDS, u=UNIFORMS)
def test_jitter_stays_between_zero_and_the_capped_exponential(
    attempt: int, base_s: float, cap_s: float, u: float
) -> None:
    delay = full_jitter(attempt, base_s=base_s, cap_s=cap_s, u=u)
    assert 0 <= delay <= cap_s
    assert delay <= base_s * 2.0 ** min(attempt - 1, 1000)


def test_jitter_doubles_from_the_base_up_to_the_cap() -> None:
    highest = [full_jitter(attempt, base_s=0.2, cap_s=20, u=1.0) for attempt in range(1, 10)]
    assert highest == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20, 20]


def test_jitter_is_spread_over_the_whole_interval() -> None:
    assert [full_jitter(3, base_s=1, cap_s=20, u=u) for u in (0, 0.25, 0.5, 0.75)] == [0, 1, 2, 3]


@given(attempt=ATTEMPTS, u=UNIFORMS, floor_s=st.floats(-10, 1e9))
def test_delay_is_never_below_the_clamped_floor_nor_above_the_cap(attempt: int, u: float, floor_s: float) -> None:
    delay = delay_s(attempt, base_s=0.2, cap_s=20, u=u, floor_s=floor_s)
    assert min(floor_s, 20) <= delay <= 20


def test_floor_does_not_shorten_a_longer_jitter() -> None:
    assert delay_s(7, base_s=0.2, cap_s=20, u=0.5, floor_s=1.0) == 6.4


def test_absurd_floor_is_clamped_to_the_cap_or_to_what_is_given() -> None:
    assert delay_s(1, base_s=0.2, cap_s=20, u=0, floor_s=3600.0) == 20
    assert delay_s(1, base_s=0.2, cap_s=20, u=0, floor_s=3600.0, floor_clamp_s=120.0) == 120


def test_no_floor_and_a_zero_floor_leave_the_jitter() -> None:
    jitter = full_jitter(2, base_s=0.2, cap_s=20, u=0.3)
    assert delay_s(2, base_s=0.2, cap_s=20, u=0.3) == jitter
    assert delay_s(2, base_s=0.2, cap_s=20, u=0.3, floor_s=0.0) == jitter
