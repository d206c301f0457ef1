"""How much more than asked for an open file fetches: more and more for who streams, little for others. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from resilient_io.control.ranges import NEAR_BYTES, Span

#: The least that is fetched, where the block is not smaller: small reads of a header cost one request together.
LEAST_BYTES: Final = 256 * 2**10
#: What is fetched when a reader first goes on behind what it has; a shard's index or header is no longer than that.
FIRST_WINDOW_BYTES: Final = 8 * 2**20
_GROWTH: Final = 4
# Lines are found in pieces of 64 KiB, and what reads on behind a line reads the rest of its piece again; tarfile reads
# the last byte before a header again.
_BACK_BYTES: Final = 64 * 2**10


@dataclass(slots=True, kw_only=True)
class Streak:
    """What the reads of one open file were like so far.

    A reader streams while each read begins where the last one ended, or a little behind it. Each time that it goes on
    behind what it has, more is fetched, and from the second time on ahead of it. Who began at the object's beginning
    gets LEAST_BYTES, FIRST_WINDOW_BYTES, then half a block; who began elsewhere gets four times what it has read,
    because it may be after one record. A read elsewhere begins anew.

    `block_bytes` is the file's block size: what is held and what is on its way take no more than that together.
    `fetched` says how often the reader has got something: 1 for a file whose opening brought its first bytes.
    """

    size_bytes: int
    block_bytes: int
    fetched: int = 0
    _began_at: int = 0
    _next: int = 0

    @property
    def most_bytes(self) -> int:
        """Half a block: one half is being read while the other one comes. Tiny blocks are not worth halving."""
        return self.block_bytes // 2 if self.block_bytes >= 4 * LEAST_BYTES else self.block_bytes

    def note(self, start: int, end: int) -> None:
        """Note a read of [start, end)."""
        if not -_BACK_BYTES <= start - self._next <= NEAR_BYTES:
            self.fetched, self._began_at = 0, start
        self._next = end

    def _window_bytes(self, at: int) -> int:
        """Return how much this reader deserves from the byte `at` on."""
        if not self.fetched:
            wanted_bytes = LEAST_BYTES
        elif self._began_at:
            wanted_bytes = max(LEAST_BYTES, _GROWTH * (at - self._began_at))
        else:
            wanted_bytes = FIRST_WINDOW_BYTES if self.fetched == 1 else self.block_bytes
        return min(self.most_bytes, wanted_bytes)

    def fetch(self, start: int, end: int) -> Span:
        """Return what to fetch when the bytes from `start` on, of a read that ends at `end`, are not there.

        Never less than what is asked for, and not more where that is much. Near the end of the object all of its end:
        the indices of zip and parquet files are found from there backwards.
        """
        window_bytes = self._window_bytes(start)
        if not self.fetched and start + window_bytes > self.size_bytes:
            start = max(0, min(start, self.size_bytes - window_bytes))
        self.fetched += 1
        return Span(start, min(self.size_bytes, max(end, start + window_bytes)))

    def ahead(self, held: Span) -> Span | None:
        """Return what to fetch before it is asked for, when `held` was fetched last; None for nothing."""
        if self.fetched < 2 or held.end >= self.size_bytes:
            return None
        if not held.start + len(held) // 2 <= self._next <= held.end:
            return None
        return Span(held.end, min(self.size_bytes, held.end + self._window_bytes(held.end)))

    def leaves(self, coming: Span) -> bool:
        """Say whether what is on its way is of no use to this reader any more."""
        return not self.fetched or not coming.start - self.block_bytes <= self._next <= coming.end
