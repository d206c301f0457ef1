"""Blocks of the rest of an object, and near ranges in one request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resilient_io.control.ranges import Span, blocks, comparable, merged

SPANS = st.tuples(st.integers(0, 2000), st.integers(1, 500)).map(lambda each: Span(each[0], sum(each)))
WANTED = st.lists(st.tuples(st.sampled_from("ab"), st.none() | SPANS), max_size=20)


@given(start=st.integers(0, 10_000), length=st.integers(-5, 10_000), block_bytes=st.integers(1, 3000))
def test_blocks_do_not_leave_a_byte_out_or_take_one_twice(start: int, length: int, block_bytes: int) -> None:
    spans = blocks(start, start + length, block_bytes)
    assert [byte for span in spans for byte in (span.start, span.end)] == sorted(
        [span.start for span in spans] + [span.end for span in spans]
    )
    assert sum(map(len, spans)) == max(0, length)
    if spans:
        assert (spans[0].start, spans[-1].end) == (start, start + length)
        assert max(map(len, spans)) <= block_bytes
        assert max(map(len, spans)) - min(map(len, spans)) <= 1
        assert len(spans) == -(-length // block_bytes)


@given(wanted=WANTED, near_bytes=st.integers(-1, 300), most_bytes=st.integers(1, 1500))
def test_each_wanted_range_lies_in_the_one_that_is_asked_for(
    wanted: list[tuple[str, Span | None]], near_bytes: int, most_bytes: int
) -> None:
    paths, spans = [path for path, _ in wanted], [span for _, span in wanted]
    groups = merged(paths, spans, near_bytes=near_bytes, most_bytes=most_bytes)
    assert sorted(n for group in groups for n in group.wanted) == [n for n, span in enumerate(spans) if span]
    for group in groups:
        for number in group.wanted:
            span = spans[number]
            assert span is not None
            assert group.path == paths[number]
            assert group.span.start <= span.start < span.end <= group.span.end
        assert len(group.span) <= max([most_bytes, *(len(spans[n] or "") for n in group.wanted)])
        covered = sorted((spans[n].start, spans[n].end) for n in group.wanted if spans[n])  # type: ignore[union-attr]
        until = covered[0][1]
        for start, end in covered[1:]:
            assert start - until <= near_bytes, "bytes that nobody wants were asked for"
            until = max(until, end)


def test_near_ranges_are_one_request_and_far_ones_are_not() -> None:
    spans = [Span(0, 10), Span(300_000, 300_010), Span(12, 20), Span(0, 10)]
    groups = merged(["k", "k", "k", "other"], spans)
    assert [(group.path, group.span, group.wanted) for group in groups] == [
        ("k", Span(0, 20), (0, 2)),
        ("k", Span(300_000, 300_010), (1,)),
        ("other", Span(0, 10), (3,)),
    ]


def test_a_range_whose_bytes_depend_on_the_size_is_not_compared() -> None:
    assert comparable(None, 5) == Span(0, 5)
    assert [comparable(*each) for each in ((-5, None), (0, None), (3, -1), (5, 5), (6, 5), (None, None))] == [None] * 6
