"""The cache of a file that is open for reading: fsspec's "readahead", which reads ahead for those who stream."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from resilient_io.control.ahead import Streak
from resilient_io.control.ranges import Span

Fetch = Callable[[int, int], bytes]
Later = Callable[[int, int], "Future[bytes]"]

_NOTHING: Final = (Span(0, 0), b"")


class AheadCache:
    """Holds what was read last, at most half a block, and fetches the next half while this one is read.

    It has the form of fsspec's caches. `later` begins to fetch a range and returns at once. For one thread at a time,
    as fsspec's files are.
    """

    name = "readahead"

    def __init__(self, blocksize: int, fetcher: Fetch, size: int, *, later: Later, first: bytes = b"") -> None:
        self.blocksize, self.fetcher, self.size, self.nblocks = blocksize, fetcher, size, 0
        self._later = later
        self._streak = Streak(size_bytes=size, block_bytes=blocksize, fetched=1 if first else 0)
        # The newest last.
        self._held: list[tuple[Span, bytes]] = [(Span(0, len(first)), first)] if first else []
        self._coming: tuple[Span, Future[bytes]] | None = None
        self._pid = os.getpid()
        self._reset_stats()

    def _reset_stats(self) -> None:
        self.hit_count = self.miss_count = self.total_requested_bytes = 0

    def _log_stats(self) -> str:
        return f" , {self.name}: {self.hit_count} hits, {self.miss_count} misses, {self.total_requested_bytes} bytes"

    def _fetch(self, start: int | None, end: int | None) -> bytes:
        start, end = start or 0, self.size if end is None else min(end, self.size)
        if start >= end:
            return b""
        if self._pid != os.getpid():
            # What was on its way came to the parent of this process.
            self._pid, self._coming = os.getpid(), None
        self._streak.note(start, end)
        span, held = self._held[-1] if self._held else _NOTHING
        if span.start <= start and end <= span.end:
            # Most reads: text is read 8 KiB at a time.
            self.hit_count += 1
            data = held[start - span.start : end - span.start]
        else:
            data = self._joined(start, end)
        self._read_ahead()
        return data

    def _joined(self, start: int, end: int) -> bytes:
        """Return [start, end) from what is held, what is coming, and what must be fetched."""
        if end - start > self._streak.most_bytes and self._at_hand(start) < (end - start) // 4:
            # In one go, and not joined: each copy of much costs as much as its way through the kernel.
            return self._asked(Span(start, end))
        pieces = []
        while start < end:
            piece = self._found(start, end) or self._missing(start, end)
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _found(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` on that are here or on their way; none if there are none."""
        coming = self._coming
        if coming is not None and coming[0].start <= start < coming[0].end:
            self._coming = None
            self._hold(coming[0], coming[1].result())
        for span, held in reversed(self._held):
            if span.start <= start < span.end:
                self.hit_count += 1
                return held[start - span.start : end - span.start]
        return b""

    def _missing(self, start: int, end: int) -> bytes:
        """Fetch the bytes from `start` on, as far as nothing else brings them."""
        span = self._streak.fetch(start, end)
        others = [held for held, _ in self._held] + ([self._coming[0]] if self._coming is not None else [])
        span = Span(span.start, min([span.end, *(other.start for other in others if other.start > start)]))
        data = self._asked(span)
        if len(data) <= self._streak.most_bytes:
            self._hold(span, data)
        return data[start - span.start : end - span.start]

    def _at_hand(self, start: int) -> int:
        """Return how many bytes from `start` on need not be asked for."""
        spans = [held for held, _ in self._held] + ([self._coming[0]] if self._coming is not None else [])
        return max((span.end - start for span in spans if span.start <= start < span.end), default=0)

    def _asked(self, span: Span) -> bytes:
        data: bytes = self.fetcher(span.start, span.end)
        if len(data) != len(span):
            raise EOFError(f"asked for {len(span)} bytes at {span.start} and got {len(data)}")
        self.miss_count += 1
        self.total_requested_bytes += len(data)
        return data

    def _hold(self, span: Span, data: bytes) -> None:
        """Keep what came, and let go of the oldest, so that it is half a block at most."""
        self._held.append((span, data))
        kept_bytes = 0
        for number in range(len(self._held) - 1, -1, -1):
            kept_bytes += len(self._held[number][0])
            if kept_bytes > self._streak.most_bytes and number < len(self._held) - 1:
                del self._held[: number + 1]
                return

    def _read_ahead(self) -> None:
        coming = self._coming
        if coming is not None:
            if not self._streak.leaves(coming[0]):
                return
            coming[1].cancel()
            self._coming = None
        span = self._streak.ahead(self._held[-1][0]) if self._held else None
        if span is not None:
            self._coming = span, self._later(span.start, span.end)

    def end(self) -> None:
        """Let go of all, and end what is on its way."""
        coming, self._coming = self._coming, None
        self._held.clear()
        if coming is not None and self._pid == os.getpid():
            coming[1].cancel()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a cache that reads ahead belongs to an open file, which is pickled by its position")


def reads_ahead(file: Any, later: Later, first: bytes) -> None:
    """Let a file that is open for reading with fsspec's read-ahead cache read ahead as this one does."""
    cache = getattr(file, "cache", None)
    if cache is not None and cache.name == AheadCache.name and file.size is not None:
        file.cache = AheadCache(cache.blocksize, cache.fetcher, file.size, later=later, first=first)


def stop_reading_ahead(file: Any) -> None:
    """Give up what is on its way to a file that is closed."""
    cache = getattr(file, "cache", None)
    if isinstance(cache, AheadCache):
        cache.end()
