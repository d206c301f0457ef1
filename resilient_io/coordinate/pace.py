"""What the gate asks of a level's rate, and the form of it that one process keeps for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from resilient_io.control import blame, law
from resilient_io.control.law import LIMITED, Record

# What a pace shows as its flag while nothing but its own steps can tell whether the level is open.
UNSURE: Final[Sequence[float]] = (1.0,)


class Pace(Protocol):
    """The rate of one level. Not thread-safe: the gate's lock guards it. Nothing here blocks for more than 1 ms.

    `flags[flag_at]` is 0.0 while the level is open, whoever limits it: what a request costs there is this look, and
    what was sent and answered meanwhile is told by `on_open`, many together.
    """

    flags: Sequence[float]
    flag_at: int

    def ready_at(self, now: float, weight: float = 1.0) -> float:
        """Return when the next request may leave; `<= now` is at once. Ask again then, and after each answer.

        `weight` (0.1 to 10) is that of who asks: among processes that wait for one record, who weighs three times as
        much gets three times as many. Whoever waits alone gets all.
        """

    def on_open(self, now: float, at: float, sent: int, succeeded: int) -> None:
        """Count what was sent and answered while the level was open, the last of it at `at`."""

    def on_send(self, now: float, u: float) -> None:
        """Count a request that leaves now."""

    def on_success(self, now: float, sent_at: float, backlog: bool) -> None:
        """Count a request that was answered; `backlog`: callers of this process wait."""

    def on_refusal(self, now: float, sent_at: float, u: float) -> None:
        """Count a refusal."""

    def on_suspected(self, now: float, sent_at: float, u: float) -> None:
        """Count an answer that may speak of load."""

    def on_dropped(self, now: float) -> None:
        """Count a request of which nothing was learnt."""

    def give_back(self, now: float) -> None:
        """Open the level: its refusals were not its own."""

    def close(self) -> None:
        """Give up what is held of things shared; the level is forgotten."""


class ProcessPace:
    """A record that this process keeps for itself."""

    __slots__ = ("_rec", "flag_at", "flags")

    def __init__(self, rec: Record) -> None:
        self._rec = rec
        self.flags: Sequence[float] = rec
        self.flag_at = LIMITED

    def ready_at(self, now: float, weight: float = 1.0) -> float:
        """See Pace; nobody else waits for the record."""
        return law.ready_at(self._rec, now)

    def on_open(self, now: float, at: float, sent: int, succeeded: int) -> None:
        """See Pace."""
        law.on_open(self._rec, at, sent, succeeded)

    def on_send(self, now: float, u: float) -> None:
        """See Pace."""
        law.on_send(self._rec, now, u)

    def on_success(self, now: float, sent_at: float, backlog: bool) -> None:
        """See Pace."""
        law.on_success(self._rec, now, sent_at, backlog=backlog)

    def on_refusal(self, now: float, sent_at: float, u: float) -> None:
        """See Pace."""
        law.on_refusal(self._rec, now, sent_at, u)

    def on_suspected(self, now: float, sent_at: float, u: float) -> None:
        """See Pace."""
        law.on_suspected(self._rec, now, sent_at, u)

    def on_dropped(self, now: float) -> None:
        """See Pace."""
        law.on_dropped(self._rec, now)

    def give_back(self, now: float) -> None:
        """See Pace."""
        blame.give_back(self._rec)

    def close(self) -> None:
        """See Pace."""
