"""Places: how many requests of a scope are in flight at once, over all processes of a machine.

A place is one byte beyond the end of the table's file, and who has a request in flight holds the kernel's lock of it.
The kernel gives it back at once when its process dies, however it dies and in whatever PID namespace; a process that
is stopped keeps its places, because its requests are still under way. Nothing is ever waited for: who finds no place
asks again soon, and who gives one back that others wait for leaves it to them for a moment.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from typing import Final, Protocol

from resilient_io.coordinate.bytelock import free_byte, is_wanted, take_byte, want_byte
from resilient_io.coordinate.table import Table

# Where the first place is; each scope has room for so many, and as many bytes for those who wait.
_FIRST_AT: Final = 1 << 40
_MOST: Final = 1 << 20
# Locks that are tried at one go: some microseconds in all.
_TRIES: Final = 64
# Who waits looks again after a quarter of the time that it has waited, and who gives a place back leaves it to the
# others for a quarter of the time that it had it; within these bounds. A look costs a wake-up of a caller.
_LOOK_SHARE: Final = 0.25
_LOOK_LEAST_S: Final = 0.004
_LOOK_MOST_S: Final = 0.02


class Places(Protocol):
    """The places of one scope. Not thread-safe: the gate's lock guards it. Nothing here waits."""

    def ready_at(self, now: float, most: int) -> float:
        """Take one of `most` places for the next request; return `now` if there was one, else when to ask again."""

    def fill(self, number: int, now: float) -> None:
        """Let the request of this number have the place that was taken."""

    def free(self, number: int, now: float) -> None:
        """Give the place of this request back; no harm if it has none."""

    def leave(self) -> None:
        """Nobody of this process waits any more: keep no place for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    number: int
    fd: int
    since: float


class NodePlaces:
    """Places of all processes of this machine. See the module."""

    __slots__ = ("_base", "_held", "_left_until", "_next", "_spare", "_table", "_waits_since", "_wanted_in")

    def __init__(self, table: Table, name: str) -> None:
        """Take nothing yet. `name` is that of the scope."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).digest()
        self._base = _FIRST_AT + int.from_bytes(digest, "big") * 2 * _MOST
        self._table = table
        self._held: dict[int, _Held] = {}
        self._spare: _Held | None = None
        # Places that were given back and are left to others, and until when.
        self._left_until: dict[int, float] = {}
        self._next = int.from_bytes(os.urandom(2), "big")
        self._waits_since = math.inf
        self._wanted_in: int | None = None

    def ready_at(self, now: float, most: int) -> float:
        """See Places."""
        if self._spare is not None:
            return now
        self._table.renew(now)
        self._spare = self._taken(now, min(most, _MOST))
        if self._spare is not None:
            self._unwant()
            return now
        self._waits_since = min(now, self._waits_since)
        if self._wanted_in != self._table.fd:
            self._unwant(waits=True)
            want_byte(self._table.fd, self._base + _MOST)
            self._wanted_in = self._table.fd
        return now + _pause_s(now - self._waits_since)

    def fill(self, number: int, now: float) -> None:
        """See Places."""
        spare, self._spare = self._spare, None
        if spare is not None:
            self._held[number] = spare

    def free(self, number: int, now: float) -> None:
        """See Places."""
        held = self._held.get(number)
        if held is None:
            return
        self._give_back(held)
        if is_wanted(self._table.fd, self._base + _MOST):
            self._left_until[held.number] = now + _pause_s(now - held.since)
        self._held.pop(number, None)

    def leave(self) -> None:
        """See Places."""
        spare, self._spare = self._spare, None
        if spare is not None:
            self._give_back(spare)
        self._unwant()

    def _taken(self, now: float, most: int) -> _Held | None:
        fd, mine = self._table.fd, {held.number for held in self._held.values()}
        if self._left_until:
            self._left_until = {number: until for number, until in self._left_until.items() if now < until}
        for _ in range(min(most, _TRIES)):
            number = self._next % most
            self._next = number + 1
            if number not in mine and number not in self._left_until and take_byte(fd, self._base + number):
                return _Held(number=number, fd=fd, since=now)
        return None

    def _give_back(self, held: _Held) -> None:
        free_byte(held.fd, self._base + held.number)

    def _unwant(self, *, waits: bool = False) -> None:
        """Take the mark away by which others see that this process waits."""
        if self._wanted_in is not None:
            free_byte(self._wanted_in, self._base + _MOST)
            self._wanted_in = None
        if not waits:
            self._waits_since = math.inf


class OwnPlaces:
    """Places of this process alone."""

    __slots__ = ("_held", "_spare")

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._spare = False

    def ready_at(self, now: float, most: int) -> float:
        """See Places."""
        self._spare = self._spare or len(self._held) < most
        return now if self._spare else now + _LOOK_MOST_S

    def fill(self, number: int, now: float) -> None:
        """See Places."""
        self._held.add(number)
        self._spare = False

    def free(self, number: int, now: float) -> None:
        """See Places."""
        self._held.discard(number)

    def leave(self) -> None:
        """See Places."""
        self._spare = False


def _pause_s(waited_s: float) -> float:
    return min(_LOOK_MOST_S, max(_LOOK_LEAST_S, _LOOK_SHARE * waited_s))
