"""The cache of an open file against a plain buffer, with fetches that come when they are waited for."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_io.drive.ahead import AheadCache

DATA = bytes(range(256)) * 40_000
READS = st.lists(st.tuples(st.booleans(), st.integers(0, len(DATA) + 10), st.integers(1, 3_000_000)), max_size=12)


class Late(Future[bytes]):
    """A fetch that has brought its bytes when somebody waits for them."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        self.span = start, end

    def result(self, timeout: float | None = None) -> bytes:
        return DATA[slice(*self.span)]


class Store:
    """Counts what is asked for."""

    def __init__(self, block_bytes: int, first_bytes: int = 0, size: int = len(DATA)) -> None:
        self.asked: list[tuple[int, int]] = []
        self.later: list[Any] = []
        self.cache = AheadCache(block_bytes, self.fetch, size, later=self.fetch_later, first=DATA[:first_bytes])

    def fetch(self, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        return DATA[start:end]

    def fetch_later(self, start: int, end: int) -> Future[bytes]:
        self.later.append(Late(start, end))
        return self.later[-1]  # type: ignore[no-any-return]


@given(reads=READS, block_bytes=st.integers(1, 12_000_000), first_bytes=st.sampled_from([0, 256 * 1024]))
def test_whatever_is_read_in_whatever_order_is_right(
    reads: list[tuple[bool, int, int]], block_bytes: int, first_bytes: int
) -> None:
    store, at = Store(max(block_bytes, 1000), first_bytes), 0
    for goes_on, start, length in reads:
        start = at if goes_on else start
        assert store.cache._fetch(start, start + length) == DATA[start : start + length]
        at = start + length
        held = sum(len(data) for _, data in store.cache._held[1:])
        assert held <= max(block_bytes, 1000)


def test_streaming_does_not_wait_for_each_block_nor_ask_twice() -> None:
    store = Store(2 * 2**20, 256 * 1024)
    for start in range(0, len(DATA), 10_240):
        store.cache._fetch(start, start + 10_240)
    spans = sorted(store.asked + [late.span for late in store.later])
    assert spans[0][0] == 256 * 1024
    assert all(left[1] == right[0] for left, right in itertools.pairwise(spans))
    assert spans[-1][1] == len(DATA)
    assert len(store.later) > 2 * len(store.asked)


def test_random_access_does_not_fetch_ahead() -> None:
    store = Store(50 * 2**20)
    for start in (9_000_000, 100, 5_000_000, 2_000_000):
        store.cache._fetch(start, start + 100)
    assert not store.later
    assert all(end - start == 256 * 1024 for start, end in store.asked)


def test_a_large_read_is_one_fetch_without_a_copy_of_it_kept() -> None:
    store = Store(2 * 2**20, 256 * 1024)
    assert store.cache._fetch(0, len(DATA)) == DATA
    assert store.asked == [(0, len(DATA))]
    assert sum(len(data) for _, data in store.cache._held) == 256 * 1024


def test_what_was_fetched_in_vain_is_given_up() -> None:
    store = Store(2 * 2**20, 256 * 1024)
    for start in range(0, 2_000_000, 10_000):
        store.cache._fetch(start, start + 10_000)
    (*_, coming) = store.later
    store.cache._fetch(9_000_000, 9_000_010)
    assert coming.cancelled()
    for start in range(9_300_000, 10_100_000, 10_000):
        store.cache._fetch(start, start + 10_000)
    store.cache.end()


def test_an_error_ahead_is_raised_to_who_reads_there_and_to_nobody_else() -> None:
    store = Store(2 * 2**20, 256 * 1024)
    failed: Future[bytes] = Future()
    failed.set_exception(OSError("gone"))
    store.cache._later = lambda start, end: failed
    with pytest.raises(OSError, match="gone"):
        for start in range(0, len(DATA), 10_000):
            store.cache._fetch(start, start + 10_000)
    # The next read asks by itself.
    store.cache._later = store.fetch_later
    assert store.cache._fetch(start, start + 10_000) == DATA[start : start + 10_000]


def test_what_was_on_its_way_at_a_fork_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(2 * 2**20, 256 * 1024)
    start = 0
    while not store.later:
        store.cache._fetch(start, start + 10_000)
        start += 10_000
    store.later[0].result = lambda: pytest.fail("the parent's loop does not run here")
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    for at in range(start, start + 3_000_000, 10_000):
        assert store.cache._fetch(at, at + 10_000) == DATA[at : at + 10_000]
