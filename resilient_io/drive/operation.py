"""The operation: what the user called, carried from the outermost public call down to each attempt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from resilient_io import policy as policies
from resilient_io.classify.fault import Verdict
from resilient_io.control.attempt import AttemptMachine
from resilient_io.drive.gate import Permit
from resilient_io.errors import GaveUp
from resilient_io.policy import Policy


class Surface(str, Enum):
    """Who is above, which decides the shape of an error: a client's caller knows the SDK's classes."""

    FILESYSTEM = "filesystem"
    CLIENT = "client"


@dataclass(slots=True, kw_only=True, eq=False)
class Operation:
    """One public call: its name, the policy it runs under, and the ledger of what was given up.

    In a `bulk` operation each item is an operation of its own: what one path came to is that path's
    value, not the end of the others. The ledger is a plain list, shared with child tasks and worker
    threads: a copied context copies the reference. What a layer in between swallows is still in it
    when the call ends.

    An `is_hedge` operation is a read that is sent a second time: where it fails, the first one goes on. One that
    `was_hedged` has had its second request: the other ranges of a large object get none.
    An `is_lookup` one looks what became of a write: what it cannot see it does not ask for in another way.

    `home` is the task that made the operation and will end it; most send nothing from any other one.
    `most_attempts` bounds the attempts below what the policy allows.
    `denied` is what the store did not allow on the way, if anything: a method that then says no knows nothing.
    `on_error` is who wants to be told of the errors of a walk.
    """

    name: str
    surface: Surface
    overlay: Mapping[str, object] | None = None
    bulk: bool = False
    is_hedge: bool = False
    was_hedged: bool = False
    is_lookup: bool = False
    home: asyncio.Task[Any] | None = None
    most_attempts: int | None = None
    ledger: list[GaveUp] = field(default_factory=list)
    denied: PermissionError | None = None
    on_error: Callable[[OSError], object] | None = None
    _others: set[asyncio.Task[Any]] | None = None
    _is_over: bool = False

    def works_in(self, task: asyncio.Task[Any] | None) -> None:
        """Note a task that sends for this operation, until it is done. Raises CancelledError where that is over."""
        if task is self.home or task is None:
            return
        if self._is_over:
            raise asyncio.CancelledError
        if _is_spared.get():
            return
        if self._others is None:
            self._others = set()
        if task not in self._others:
            self._others.add(task)
            task.add_done_callback(self._others.discard)

    def end_tasks(self) -> None:
        """Cancel what still sends for an operation that has failed.

        The SDKs send parts side by side, and leave the others alone when one has failed.
        """
        self._is_over = True
        here = asyncio.current_task()
        for task in tuple(self._others or ()):
            if task is not here:
                task.cancel()

    def abandon(self) -> None:
        """Cancel all that works for an operation whose caller is gone: a KeyboardInterrupt ended its wait.

        From any thread. The wait alone would leave the work, and its permits, to go on in the event loop.
        """
        self._is_over = True
        for task in (self.home, *tuple(self._others or ())):
            if task is not None and not task.done():
                with contextlib.suppress(RuntimeError):  # its loop is closed
                    task.get_loop().call_soon_threadsafe(task.cancel)

    def policy(self, nearer: Mapping[str, object] | None = None) -> Policy:
        """Return the policy in force now; `configure()` is obeyed at once, also by what was made before."""
        if nearer and self.overlay and nearer is not self.overlay:
            found = policies.resolve(nearer, self.overlay)
        else:
            found = policies.resolve(nearer or self.overlay)
        if self.most_attempts is None:
            return found
        return replace(found, max_attempts=self.most_attempts, max_throttle_attempts=self.most_attempts)


class Reads(Protocol):
    """The call whose body is being read; see `drive.call.Call`."""

    def progressed(self) -> None:
        """Note that a part of the body arrived."""

    def unverified(self) -> None:
        """Note that nobody can tell whether the body is whole."""

    def failed(self, verdict: Verdict) -> None:
        """Note what reading the body came to."""

    def decide(self) -> float | None:
        """Return the delay in seconds before the next attempt, or None if there is none."""

    def gave_up(self, error: BaseException) -> GaveUp:
        """Return the give-up to raise, and enter it in the ledger."""


@dataclass(slots=True, eq=False)
class BodyHold:
    """Where an attempt leaves its permit, and its counts, while the one who reads the body needs them.

    The next request for the same body goes on with the same machine: headers and body share the
    attempts that the policy allows.
    """

    permit: Permit | None = None
    machine: AttemptMachine | None = None
    call: Reads | None = None
    _token: Token[BodyHold | None] | None = None

    def free(self) -> None:
        """Give back the permit, if an answer left one here."""
        permit, self.permit = self.permit, None
        if permit is not None:
            permit.free()

    def __enter__(self) -> BodyHold:
        self._token = _hold.set(self)
        return self

    def __exit__(self, *about: object) -> None:
        token, self._token = self._token, None
        if token is not None:
            _hold.reset(token)
        self.free()


_current: ContextVar[Operation | None] = ContextVar("resilient_io_operation", default=None)
_is_spared: ContextVar[bool] = ContextVar("resilient_io_spared", default=False)
_hold: ContextVar[BodyHold | None] = ContextVar("resilient_io_body", default=None)


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Let the tasks made inside finish their request when the operation ends: it begins what must be ended too."""
    token = _is_spared.set(True)
    try:
        yield
    finally:
        _is_spared.reset(token)


def current() -> Operation | None:
    """Return the operation that this task or thread works for, if any."""
    return _current.get()


class _Block:
    """A block in which an operation is the current one; a class, because a generator costs a request 1 us more."""

    __slots__ = ("_operation", "_token")

    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def __enter__(self) -> Operation:
        self._token = _current.set(self._operation)
        return self._operation

    def __exit__(self, *about: object) -> None:
        _current.reset(self._token)


def made_current(operation: Operation) -> AbstractContextManager[Operation]:
    """Make `operation` the current one, whatever stands above it."""
    return _Block(operation)


def entered(operation: Operation) -> AbstractContextManager[Operation]:
    """Make `operation` the current one; one that is current already stays, and is given instead."""
    outer = _current.get()
    return _Block(operation) if outer is None else nullcontext(outer)


def body_held() -> BodyHold:
    """Keep the permit of the request sent inside until the block ends: its body is read here."""
    return BodyHold()


def body_hold() -> BodyHold | None:
    """Return where the current attempt should leave its permit, if anybody wants it."""
    return _hold.get()
