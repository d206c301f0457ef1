"""An object that was put together from several ranges: its checksum, which no range carries, is compared here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from resilient_io.drive.bodies import Damaged
from resilient_io.drive.landing import Landing
from resilient_io.errors import GiveUp, public_error

# A second look at a whole object costs as much as the first one.
_READS: Final = 2


class Checksum(Protocol):
    """What hashlib and botocore call a checksum."""

    def update(self, piece: Any, /) -> object:
        """Take the next bytes."""

    def digest(self) -> bytes:
        """Return the checksum of what came."""


async def is_sound(landing: Landing, checksum: Checksum, expected: bytes) -> bool:
    """Say whether all that landed has this checksum; computed in a thread, about a millisecond a MiB."""
    await asyncio.to_thread(landing.show, checksum.update)
    return checksum.digest() == expected


async def again_if_damaged(read: Callable[[bool], Awaitable[None]], *, operation: str, path: str) -> None:
    """Read an object, and once more if its checksum was another: nobody can tell which range it was.

    `read` is told whether it is that once more: in one piece, where the SDK compares as it reads, if it can be had so.

    Raises RetriesExhausted the second time.
    """
    for number in range(1, _READS + 1):
        try:
            await read(number > 1)
            return
        except Damaged as error:
            if number == _READS:
                record = GiveUp(
                    operation=operation, path=path, verdict=error.verdict, attempts=number, reason="attempts"
                )
                raise public_error(record, error) from error
