"""`ManualClock`: time that a test moves by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """Where the library gets the time from, and how it waits; the same as `resilient_io.drive.clock.Clock`.

    It stands here again so that the server can be imported without the library around it.
    """

    def now(self) -> float:
        """Return monotonic seconds."""

    def sleep(self, seconds: float) -> None:
        """Block the thread for `seconds`."""

    async def sleep_async(self, seconds: float) -> None:
        """Suspend the task for `seconds`."""

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Block until `event` is set or `timeout_s` have passed; return whether it is set."""

    async def wait_async(self, future: asyncio.Future[Any], timeout_s: float | None) -> bool:
        """Suspend until `future` is done or `timeout_s` have passed; return whether it is done."""


class ManualClock:
    """A clock that stands still until it is told otherwise; thread-safe, takes no real time.

    By default (`auto`) a sleep moves the clock by its own length and returns at once, which is what
    a test with one thread wants. With `auto=False` a sleep ends when `advance` or another thread
    has moved the clock far enough. `sleeps` lists the seconds of every sleep asked for.
    """

    def __init__(self, start_s: float = 0.0, *, auto: bool = True) -> None:
        self._now = start_s
        self._auto = auto
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, Callable[[], None]]] = []
        self.sleeps: list[float] = []

    def __repr__(self) -> str:
        return f"<ManualClock now={self._now:g} sleepers={self.sleepers}>"

    @property
    def sleepers(self) -> int:
        """How many sleeps have not ended (always 0 with `auto`)."""
        with self._lock:
            return len(self._waiting)

    def now(self) -> float:
        """Return the seconds that the clock shows."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock by `seconds` (0 or more) and wake whoever slept that long."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock does not go back: advance({seconds})")
        with self._lock:
            self._now += seconds
            due = sorted((one for one in self._waiting if one[0] <= self._now), key=lambda one: one[0])
            self._waiting = [one for one in self._waiting if one[0] > self._now]
        for _, wake in due:
            wake()

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of this clock; see the class for what that means."""
        awake = threading.Event()
        if not self._sleep_until(seconds, awake.set):
            awake.wait()

    async def sleep_async(self, seconds: float) -> None:
        """Sleep in a task for `seconds` of this clock; gives way to other tasks at least once."""
        loop = asyncio.get_running_loop()
        awake: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            loop.call_soon_threadsafe(_fulfil, awake)

        if self._sleep_until(seconds, wake):
            await asyncio.sleep(0)
            return
        try:
            await awake
        finally:
            self._forget(wake)

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Wait for the event; with `auto` a timeout passes at once where the event is not set yet."""
        if event.is_set() or timeout_s is None:
            return event.wait()
        timed_out = threading.Event()
        if not self._sleep_until(timeout_s, timed_out.set):
            # Nobody tells us of both at once: look at each every millisecond of real time.
            while not event.wait(0.001) and not timed_out.is_set():
                pass
            self._forget(timed_out.set)
        return event.is_set()

    async def wait_async(self, future: asyncio.Future[Any], timeout_s: float | None) -> bool:
        """Wait for the future without cancelling it; a timeout passes as in `wait`."""
        await asyncio.sleep(0)
        if future.done() or timeout_s is None:
            await asyncio.wait((future,))
            return future.done()
        timeout = asyncio.ensure_future(self.sleep_async(timeout_s))
        try:
            await asyncio.wait((future, timeout), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timeout.cancel()
        return future.done()

    def _forget(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._waiting = [one for one in self._waiting if one[1] != wake]

    def _sleep_until(self, seconds: float, wake: Callable[[], None]) -> bool:
        """Note a sleep; return whether it is over already."""
        with self._lock:
            self.sleeps.append(seconds)
            if seconds > 0 and not self._auto:
                self._waiting.append((self._now + seconds, wake))
                return False
        if seconds > 0:
            self.advance(seconds)
        return True


def _fulfil(awake: asyncio.Future[None]) -> None:
    if not awake.done():
        awake.set_result(None)
