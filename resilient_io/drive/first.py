"""The first bytes of an object, with which a file that is opened for reading begins instead of a HEAD."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

# A file opened to be read begins with a GET of this many bytes instead of a HEAD: a small object
# is then whole, and a large one has cost no request more.
FIRST_READ_BYTES: Final = 256 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """What opening a file brought: its first bytes, and what a HEAD would have told."""

    data: bytes
    details: dict[str, Any]


async def all_or_none(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all and return what they return; where one fails, the others are ended before its error goes on."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
