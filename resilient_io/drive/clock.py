"""The clock that everything waits by, so that tests can put their own in its place."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Protocol


class Clock(Protocol):
    """What waiting needs of time: monotonic seconds and ways to let them pass."""

    def now(self) -> float:
        """Return monotonic seconds; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""

    async def sleep_async(self, seconds: float) -> None:
        """Suspend this task for `seconds`."""

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Block until `event` is set or `timeout_s` have passed; say whether it is set."""

    async def wait_async(self, future: asyncio.Future[Any], timeout_s: float | None) -> bool:
        """Suspend until `future` is done or `timeout_s` have passed; say whether it is done."""


class SystemClock:
    """The machine's monotonic clock. Safe in any thread and any event loop."""

    __slots__ = ()

    def now(self) -> float:
        """Return `time.monotonic()`: it does not jump when the wall clock is set."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Suspend this task on the running asyncio loop."""
        await asyncio.sleep(seconds)

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Block on the event; KeyboardInterrupt passes through."""
        return event.wait(timeout_s)

    async def wait_async(self, future: asyncio.Future[Any], timeout_s: float | None) -> bool:
        """Suspend on the future without cancelling it on timeout."""
        await asyncio.wait((future,), timeout=timeout_s)
        return future.done()
