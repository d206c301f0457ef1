"""Those who wait for a permit: a blocked thread, or a suspended task of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from typing import TYPE_CHECKING

from resilient_io.control.scopes import ScopePath
from resilient_io.policy import Policy

if TYPE_CHECKING:
    from resilient_io.drive.gate import Permit
    from resilient_io.drive.scope import Lane


class AnyWaiter:
    """What a blocked thread and a suspended task have in common; changed with the gate's lock held."""

    __slots__ = ("_awake", "again", "alarm_at", "blob", "due_at", "lane", "path", "permit", "policy", "queued_at")

    def __init__(self, path: ScopePath, policy: Policy, again: bool, blob: str = "") -> None:
        self.path = path
        self.blob = blob
        self.policy = policy
        self.again = again
        self.lane: Lane | None = None
        self.permit: Permit | None = None
        self.queued_at = 0.0
        self.alarm_at = math.inf
        # When it may go, as far as that is known: while it is first of its line.
        self.due_at = math.inf
        self._awake = True

    def awaken(self) -> None:
        """Note that the caller runs, and will look for itself before it sleeps: no alarm, no wake-up."""
        self._awake = True
        self.alarm_at = -math.inf

    def doze(self, alarm_at: float) -> None:
        """Note that the caller sleeps from now on, until `alarm_at` at most."""
        self._awake = False
        self.alarm_at = alarm_at

    def notify(self) -> bool:
        """Wake the caller: it was granted a permit, or must set its alarm anew; False if it is gone."""
        if self._awake:
            return True
        # Woken first, noted after: an interrupt in between makes it be woken twice, not never.
        gone = not self._wake()
        self.awaken()
        return not gone

    def alive(self) -> bool:
        """Say whether the caller could still run; one whose event loop was closed cannot."""
        return True

    def _wake(self) -> bool:
        raise NotImplementedError


class _Bell(threading.Event):
    """An event for one waiter, made of one lock.

    The event it replaces is rung with the gate's lock held, and a KeyboardInterrupt between two of
    its steps can leave its inner lock taken for ever; these are single steps. It is cheaper, too.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def is_set(self) -> bool:
        return not self._silence.locked()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._silence.release()

    def clear(self) -> None:
        self._silence.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        timeout_s = -1.0 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)
        heard = self._silence.acquire(timeout=timeout_s)
        if heard:
            self.set()
        return heard


class ThreadWaiter(AnyWaiter):
    """A blocked thread."""

    __slots__ = ("event",)

    def __init__(self, path: ScopePath, policy: Policy, again: bool, blob: str = "") -> None:
        super().__init__(path, policy, again, blob)
        self.event = _Bell()

    def doze(self, alarm_at: float) -> None:
        """Note that the thread blocks from now on."""
        super().doze(alarm_at)
        self.event.clear()

    def _wake(self) -> bool:
        self.event.set()
        return True


class TaskWaiter(AnyWaiter):
    """A suspended task of one event loop."""

    __slots__ = ("_loop", "future")

    def __init__(self, path: ScopePath, policy: Policy, again: bool, blob: str = "") -> None:
        super().__init__(path, policy, again, blob)
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def doze(self, alarm_at: float) -> None:
        """Note that the task is suspended from now on."""
        super().doze(alarm_at)
        # Always a new one: the wake-up of the last sleep may still be on its way to the old one.
        self.future = self._loop.create_future()

    def alive(self) -> bool:
        """Say whether the task's event loop is still open."""
        return not self._loop.is_closed()

    def _wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(_finish, self.future)
        except RuntimeError:
            return False
        return True


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
