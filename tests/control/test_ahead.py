"""What an open file fetches besides what is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resilient_io.control.ahead import FIRST_WINDOW_BYTES, LEAST_BYTES, Streak
from resilient_io.control.ranges import Span

MIB = 2**20


def _streak(size_bytes: int = 1000 * MIB, block_bytes: int = 50 * MIB, fetched: int = 1) -> Streak:
    return Streak(size_bytes=size_bytes, block_bytes=block_bytes, fetched=fetched)


def _read(streak: Streak, start: int, length: int) -> Span:
    streak.note(start, start + length)
    return streak.fetch(start, start + length)


def test_a_reader_that_streams_gets_more_each_time() -> None:
    streak, at, windows = _streak(fetched=0), 0, []
    for _ in range(4):
        span = _read(streak, at, 1000)
        windows.append(len(span))
        streak.note(at + 1000, span.end)
        at = span.end
    assert windows == [LEAST_BYTES, FIRST_WINDOW_BYTES, 25 * MIB, 25 * MIB]


def test_a_reader_that_jumps_gets_little() -> None:
    streak = _streak()
    assert [len(_read(streak, at * MIB, 1000)) for at in (500, 100, 900, 30)] == [LEAST_BYTES] * 4
    assert streak.ahead(Span(30 * MIB, 30 * MIB + LEAST_BYTES)) is None


def test_a_reader_of_records_far_apart_gets_little_more_than_each() -> None:
    streak = _streak()
    for at in (500 * MIB, 100 * MIB, 900 * MIB):
        head = _read(streak, at, 30)
        streak.note(at + 30, at + 400_000)
        rest = streak.fetch(head.end, at + 400_000)
        assert len(head) + len(rest) == 5 * LEAST_BYTES
        assert streak.ahead(rest) is None


def test_a_reader_that_streams_from_the_middle_on_gets_more_each_time() -> None:
    streak, at, windows = _streak(), 300 * MIB, []
    for _ in range(5):
        span = _read(streak, at, 1000)
        windows.append(len(span) // LEAST_BYTES)
        streak.note(at + 1000, span.end)
        at = span.end
    assert windows == [1, 4, 20, 100, 100]


def test_nothing_is_fetched_ahead_of_who_reads_a_header_alone() -> None:
    streak = _streak()
    streak.note(0, LEAST_BYTES - 1)
    assert streak.ahead(Span(0, LEAST_BYTES)) is None


def test_the_next_half_block_is_fetched_when_half_of_this_one_is_read() -> None:
    streak = _streak()
    span = _read(streak, LEAST_BYTES, 1000)
    assert streak.ahead(span) is None
    streak.note(span.start + 1000, span.start + len(span) // 2)
    ahead = streak.ahead(span)
    assert ahead == Span(span.end, span.end + 25 * MIB)
    assert not streak.leaves(ahead)
    streak.note(500 * MIB, 500 * MIB + 1)
    assert streak.leaves(ahead)


def test_the_end_of_an_object_is_fetched_as_a_whole() -> None:
    # The last 22 bytes of a zip file lead to its index before them.
    assert _read(_streak(), 1000 * MIB - 22, 22) == Span(1000 * MIB - LEAST_BYTES, 1000 * MIB)
    assert _read(_streak(size_bytes=300_000, block_bytes=MIB // 2), 299_000, 22) == Span(300_000 - 262_144, 300_000)


def test_what_tarfile_does_between_two_members_is_streaming() -> None:
    streak = _streak()
    streak.note(0, LEAST_BYTES)
    streak.note(LEAST_BYTES - 1, LEAST_BYTES)  # it reads the byte before a header again
    streak.note(LEAST_BYTES, LEAST_BYTES + 512)
    assert len(streak.fetch(LEAST_BYTES, LEAST_BYTES + 512)) == FIRST_WINDOW_BYTES


@given(
    size_bytes=st.integers(1, 5 * MIB),
    block_bytes=st.integers(1, 4 * MIB),
    reads=st.lists(st.tuples(st.integers(0, 5 * MIB), st.integers(1, MIB)), max_size=10),
)
def test_what_is_asked_for_is_always_in_it(size_bytes: int, block_bytes: int, reads: list[tuple[int, int]]) -> None:
    streak = _streak(size_bytes, block_bytes, 0)
    for start, length in reads:
        start %= size_bytes
        end = min(size_bytes, start + length)
        streak.note(start, end)
        span = streak.fetch(start, end)
        assert 0 <= span.start <= start < end <= span.end <= size_bytes
        assert len(span) <= max(end - start, block_bytes)
        ahead = streak.ahead(span)
        assert ahead is None or (ahead.start == span.end and 0 < len(ahead) <= block_bytes)
