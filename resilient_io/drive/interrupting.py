"""Ctrl-C in a blocking call: it ends the work, and not only the wait for it.

The work runs on the event loop of another thread. What a call began there is told that nobody waits any more, also what
begins a moment later, and has a bounded time to end: uploads are taken back meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from resilient_io.drive.operation import Operation

#: How long an interrupted caller, and the end of the program, wait for what is being taken back: some round trips of a
#: request on a busy machine. A second Ctrl-C ends the wait.
END_S: Final = 2.0
_LOOK_S: Final = 0.005


class Wait:
    """The operations that a blocked caller waits for. Each method is safe in any thread.

    There is no lock: an interrupt can strike while one is held. Who begins enters itself and then looks, who is
    interrupted says so and then looks; one of the two sees the other.
    """

    __slots__ = ("_is_over", "_operations")

    def __init__(self) -> None:
        self._operations: set[Operation] = set()
        self._is_over = False

    def begins(self, operation: Operation) -> None:
        """Note an operation. Raises CancelledError where the caller is gone: nothing has been sent."""
        self._operations.add(operation)
        if self._is_over:
            self._operations.discard(operation)
            raise asyncio.CancelledError

    def ended(self, operation: Operation) -> None:
        """Note that nothing of an operation runs any more."""
        self._operations.discard(operation)

    def abandon(self) -> None:
        """Cancel all operations, and those that begin from now on."""
        self._is_over = True
        for operation in tuple(self._operations):
            operation.abandon()

    def until_ended(self) -> None:
        """Block until all have ended, for `END_S` at most."""
        end_at = time.monotonic() + END_S
        while self._operations and time.monotonic() < end_at:
            time.sleep(_LOOK_S)


# The loop's thread inherits the context of who hands it the work.
_wait: ContextVar[Wait | None] = ContextVar("resilient_io_wait", default=None)


def waiting() -> Wait | None:
    """Return what the blocked caller of this work waits with, if there is one."""
    return _wait.get()


@contextmanager
def for_nobody() -> Iterator[None]:
    """Let what runs inside go on whether or not anybody waits: it cleans up."""
    token = _wait.set(None)
    try:
        yield
    finally:
        _wait.reset(token)


def interruptible(blocking: Callable[..., Any], coroutine: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """Return the sync form of a method, of which a KeyboardInterrupt ends the work and not only the wait."""

    @functools.wraps(blocking)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        wait = Wait()
        token = _wait.set(wait)
        try:
            return blocking(self, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            wait.abandon()
            wait.until_ended()
            raise
        finally:
            _wait.reset(token)

    call.__wrapped__ = coroutine  # as fsspec's own sync forms have it
    return call
