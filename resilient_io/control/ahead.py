"""How much more than asked for an open file fetches: more and more for who streams, little for others. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from resilient_io.control.ranges import NEAR_BYTES, Span

#: The least that is fetched, where the block is not smaller: small reads of a header cost one request together.
LEAST_BYTES: Final = 256 * 2**10
#: What is fetched when a reader first goes on behind what it has; a shard's index or header is no longer than that.
FIRST_WINDOW_BYTES: Final = 8 * 2**20
# tarfile reads the last byte before a header again.
_BACK_BYTES: Final = 1024


@dataclass(slots=True, kw_only=True)
class Streak:
    """What the reads of one open file were like so far.

    A reader streams while each read begins where the last one ended, or a little behind it. Each time that it goes on
    behind what it has, more is fetched: LEAST_BYTES, FIRST_WINDOW_BYTES, then half a block, and from the second time on
    ahead of it. A read elsewhere begins anew. `block_bytes` is the file's block size: what is held and what is on its
    way take no more than that together. `fetched` says how often that has happened: 1 for a file whose opening brought
    its first bytes.
    """

    size_bytes: int
    block_bytes: int
    fetched: int = 0
    _next: int = 0

    @property
    def most_bytes(self) -> int:
        """Half a block: one half is being read while the other one comes. Tiny blocks are not worth halving."""
        return self.block_bytes // 2 if self.block_bytes >= 4 * LEAST_BYTES else self.block_bytes

    def note(self, start: int, end: int) -> None:
        """Note a read of [start, end)."""
        if not -_BACK_BYTES <= start - self._next <= NEAR_BYTES:
            self.fetched = 0
        self._next = end

    def fetch(self, start: int, end: int) -> Span:
        """Return what to fetch when the bytes from `start` on, of a read that ends at `end`, are not there.

        Never less than what is asked for, and not more where that is much. Near the end of the object all of its end:
        the indices of zip and parquet files are found from there backwards.
        """
        window_bytes = min(self.most_bytes, (LEAST_BYTES, FIRST_WINDOW_BYTES, self.block_bytes)[min(self.fetched, 2)])
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
        return Span(held.end, min(self.size_bytes, held.end + self.most_bytes))

    def leaves(self, coming: Span) -> bool:
        """Say whether what is on its way is of no use to this reader any more."""
        return not self.fetched or not coming.start - self.block_bytes <= self._next <= coming.end
