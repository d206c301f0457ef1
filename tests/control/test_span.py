"""No answer is taken for other bytes than it brings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_io.control.span import Asked, Wanted, WrongRange, asked_for, bytes_before, span_of, told_by


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (None, Asked()),
        ("bytes=0-", Asked(first=0)),
        ("bytes=5-9", Asked(first=5, last=9)),
        ("bytes=-7", Asked(suffix_bytes=7)),
        ("bytes=-", Asked()),
        ("bytes=0-1,5-6", Asked()),
        ("lines=0-1", Asked()),
    ],
)
def test_a_range_header_is_not_misread(text: str | None, asked: Asked) -> None:
    assert asked_for(text) == asked


@pytest.mark.parametrize(
    ("asked", "content_range", "length", "span"),
    [
        ("bytes=10-19", "bytes 10-19/100", 10, Wanted(begin=10, end=20)),
        ("bytes=10-19", "bytes 10-14/100", 5, Wanted(begin=10, end=20)),
        ("bytes=10-19", "bytes 10-29/100", 20, Wanted(begin=10, end=20)),
        ("bytes=90-199", "bytes 90-99/100", 10, Wanted(begin=90, end=100)),
        ("bytes=10-", "bytes 10-14/100", 5, Wanted(begin=10, end=100)),
        ("bytes=-10", "bytes 90-99/100", 10, Wanted(begin=90, end=100)),
        ("bytes=-200", "bytes 0-99/100", 100, Wanted(begin=0, end=100)),
        ("bytes=10-19", None, 100, Wanted(begin=10, end=20)),
        ("bytes=10-19", None, 15, Wanted(begin=10, end=15)),
        ("bytes=-10", None, 100, Wanted(begin=90, end=100)),
        (None, None, 100, Wanted(begin=0, end=100)),
        (None, "bytes 0-49/100", 50, Wanted(begin=0, end=100)),
        (None, None, None, Wanted(begin=0, end=None)),
        ("bytes=10-19", None, None, Wanted(begin=10, end=None, limit_bytes=10)),
        ("bytes=10-", None, None, Wanted(begin=10, end=None)),
        ("bytes=10-", "bytes 10-14/*", None, Wanted(begin=10, end=None)),
        ("bytes=10-19", "bytes 10-14/*", None, Wanted(begin=10, end=None, limit_bytes=10)),
        ("bytes=10-19", "bytes 10-19/*", None, Wanted(begin=10, end=20)),
    ],
)
def test_a_body_is_not_longer_or_shorter_than_was_asked_for(
    asked: str | None, content_range: str | None, length: int | None, span: Wanted
) -> None:
    assert span_of(asked_for(asked), told_by(content_range, length)) == span


def test_a_numbered_part_is_as_long_as_it_says() -> None:
    asked = asked_for(None, is_part=True)
    assert span_of(asked, told_by("bytes 50-99/200", 50)) == Wanted(begin=50, end=100)


def test_what_does_not_say_what_it_is_is_refused() -> None:
    with pytest.raises(WrongRange, match="does not say which"):
        told_by(None, 10, 206)
    for says in ("bytes 10-14", "bytes=10-14/20", "10-14/20", "bytes */20", "bytes zz"):
        with pytest.raises(WrongRange, match="cannot be read"):
            told_by(says, 5)
    for says in ("bytes 10-14/12", "bytes 14-10/20"):
        with pytest.raises(WrongRange, match="says that it has"):
            told_by(says, 5)
    with pytest.raises(WrongRange, match="size nobody tells"):
        span_of(asked_for("bytes=-10"), told_by(None, None))


@settings(max_examples=200)
@given(st.data())
def test_the_bytes_of_the_span_are_found_in_every_sound_answer(data: st.DataObject) -> None:
    whole = bytes(range(64))
    first = data.draw(st.integers(0, 63))
    last = data.draw(st.integers(first, 80))
    asked = asked_for(f"bytes={first}-{last}")
    ends_at = data.draw(st.integers(first + 1, 64))
    ignored = data.draw(st.booleans())
    told = told_by(None, 64) if ignored else told_by(f"bytes {first}-{ends_at - 1}/64", ends_at - first)
    body = whole if ignored else whole[first:ends_at]
    span = span_of(asked, told)
    assert span.end is not None
    expected = whole[first : last + 1]
    came = body[bytes_before(told, span.begin) :][: span.end - span.begin]
    assert expected.startswith(came)
    assert span.end - span.begin == len(expected), "a short answer does not shorten the body"


def test_bytes_from_elsewhere_are_refused() -> None:
    with pytest.raises(WrongRange, match="from 10 on and got those from 11 on"):
        bytes_before(told_by("bytes 11-20/100", 10), 10)
    assert bytes_before(told_by(None, 100), 10) == 10
