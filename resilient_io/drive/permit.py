"""The right to have one request in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilient_io.control.charging import Outcome
from resilient_io.policy import Policy

if TYPE_CHECKING:
    from resilient_io.drive.gate import Gate
    from resilient_io.drive.scope import Lane


class Permit:
    """The right to have one request in flight; settle it once, free it once.

    `settle` tells the law how the request ended, `free` gives the slot back. Both are idempotent,
    thread-safe, and safe in a finalizer. A permit that is lost without having been freed (a
    KeyboardInterrupt can strike between any two steps) comes back with the next admission.
    """

    __slots__ = (
        "__weakref__", "_gate", "_number", "_open", "blob", "charge", "lane", "moved_bytes", "policy",
        "reserved_bytes", "sent_at", "waited_s",
    )  # fmt: skip

    def __init__(self, gate: Gate, lane: Lane, policy: Policy, sent_at: float, waited_s: float = 0.0) -> None:
        self._gate = gate
        self.lane = lane
        self._number = next(gate._numbers)
        self._open = True
        self.policy = policy
        self.sent_at: float | None = sent_at
        self.waited_s = waited_s
        # Whose limit was passed, where the service says so: "account"; else it is taken for the prefix's.
        self.charge: str | None = None
        # What its body holds, as far as that is known when it is settled.
        self.moved_bytes = 0
        # What was taken for it from a given rate of bytes, before anybody knew.
        self.reserved_bytes = 0.0
        # The object that is asked for, where objects have limits of their own.
        self.blob = ""

    def settle(self, outcome: Outcome) -> None:
        """Tell every level of the scope how the request ended."""
        self._gate._answer(self, outcome, last=False)

    def free(self, outcome: Outcome = Outcome.DROPPED) -> None:
        """Give the slot back and let the next caller go; `outcome` counts if the permit is not settled yet."""
        if self._open:
            self._gate._answer(self, outcome, last=True)

    def __del__(self) -> None:
        # No lock here: the collector may run while this very thread holds it.
        # It may not even be made: an interrupt strikes in __init__ too.
        if getattr(self, "_open", False):
            self._gate._inbox.append((self, Outcome.DROPPED, True))
