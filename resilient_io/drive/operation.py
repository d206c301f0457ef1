"""The operation: what the user called, carried from the outermost public call down to each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

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
    """One public call: its name and path, the policy it runs under, and the ledger of what was given up.

    In a `bulk` operation each item is an operation of its own: what one path came to is that path's
    value, not the end of the others. The ledger is a plain list, shared with child tasks and worker
    threads: a copied context copies the reference. What a layer in between swallows is still in it
    when the call ends.
    """

    name: str
    path: str
    surface: Surface
    overlay: Mapping[str, object] | None = None
    bulk: bool = False
    ledger: list[GaveUp] = field(default_factory=list)

    def policy(self, *nearer: Mapping[str, object] | None) -> Policy:
        """Return the policy in force now; `configure()` is obeyed at once, also by what was made before."""
        layers = [layer for layer in (*nearer, self.overlay) if layer]
        return policies.resolve(*layers)


class Reads(Protocol):
    """The call whose body is being read; see `drive.call.Call`."""

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

    def free(self) -> None:
        """Give back the permit, if an answer left one here."""
        permit, self.permit = self.permit, None
        if permit is not None:
            permit.free()


_current: ContextVar[Operation | None] = ContextVar("resilient_io_operation", default=None)
_hold: ContextVar[BodyHold | None] = ContextVar("resilient_io_body", default=None)


def current() -> Operation | None:
    """Return the operation that this task or thread works for, if any."""
    return _current.get()


@contextmanager
def entered(operation: Operation) -> Iterator[Operation]:
    """Make `operation` the current one; one that is current already stays, and is given instead."""
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    token = _current.set(operation)
    try:
        yield operation
    finally:
        _current.reset(token)


@contextmanager
def made_current(operation: Operation) -> Iterator[Operation]:
    """Make `operation` the current one, whatever stands above it."""
    token = _current.set(operation)
    try:
        yield operation
    finally:
        _current.reset(token)


@contextmanager
def body_held() -> Iterator[BodyHold]:
    """Keep the permit of the request sent inside until the block ends: its body is read here."""
    hold = BodyHold()
    token = _hold.set(hold)
    try:
        yield hold
    finally:
        _hold.reset(token)
        hold.free()


def body_hold() -> BodyHold | None:
    """Return where the current attempt should leave its permit, if anybody wants it."""
    return _hold.get()
