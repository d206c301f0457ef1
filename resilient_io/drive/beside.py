"""Work that goes on beside other work, and ends with it: the rest of an object beside its first block."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from resilient_io.control.ranges import Span
from resilient_io.drive.first import all_or_none

T = TypeVar("T")


class BesideFailed(BaseException):
    """What goes on beside has failed; the cause is its error, which `Beside.front` raises in its place.

    No Exception, because those of a body are taken for faults of the service, and asked for again.
    """


class Beside:
    """The front and the rest of one read, at most `side_by_side` requests at once together. For one event loop."""

    __slots__ = ("_slots", "_task")

    def __init__(self, side_by_side: int) -> None:
        # One is the front's, until it ends.
        self._slots = asyncio.Semaphore(max(1, side_by_side - 1))
        self._task: asyncio.Future[Any] | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything was begun."""
        return self._task is not None

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin what goes on beside the front; called from within that."""
        self._task = asyncio.ensure_future(work)

    def must_go_on(self) -> None:
        """Raise BesideFailed if it makes no sense for the front to go on."""
        task = self._task
        error = task.exception() if task is not None and task.done() and not task.cancelled() else None
        if error is not None:
            raise BesideFailed from error

    async def front(self, work: Awaitable[T]) -> T:
        """Return what the front comes to, when both have ended; where one fails the other is ended before it raises."""
        try:
            result = await work
            self._slots.release()
            if self._task is not None:
                await self._task
            return result
        except BesideFailed as failed:
            raise failed.__cause__ or failed from None
        except BaseException:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
            raise

    async def fill(self, spans: Sequence[Span], fill: Callable[[Span], Awaitable[None]]) -> None:
        """Call `fill` for each span, as many at a time as there are slots; where one fails the others are ended."""

        async def one(span: Span) -> None:
            async with self._slots:
                await fill(span)

        if len(spans) == 1:
            await one(spans[0])
        else:
            await all_or_none(one(span) for span in spans)
