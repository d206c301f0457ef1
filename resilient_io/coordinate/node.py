"""One record for all processes of a machine, stepped by each of them in turn, without a daemon.

While the level is open each process steps a record of its own and shows its numbers (`joining`). From the first
refusal on all step the record in the table, and send in turns (`turns`). A process that cannot have the lock goes on
*alone* with what it last saw, at its part of the rate, and tries again after `ALONE_S`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from resilient_io.control import blame, joining, law, turns
from resilient_io.control.law import COUNT, IN_FLIGHT, LIMITED, TOKENS, Record
from resilient_io.control.law_record import ASSUMED, CHALLENGE
from resilient_io.coordinate.fleet import Job, share_of
from resilient_io.coordinate.pace import UNSURE
from resilient_io.coordinate.slot import Slot
from resilient_io.coordinate.table import Table

# Seconds for which a process that was locked out decides by itself.
ALONE_S: Final = 0.5
# A holder of the lock may lose its core, on a busy machine for a tenth of a second; for so long others wait, and owe
# what they learnt. Not again before they had the lock: it may be stopped. And for so many tries: they lose theirs too.
_GRACE_S: Final = 0.1
_GRACE_TRIES: Final = 8
# When to ask again meanwhile.
_HELD_UP_S: Final = 0.002
# A waiting process looks at the record this often at least, because no other process can wake it ...
_LOOK_S: Final = 0.25
# ... and at most, but for a time that is sure.
_LOOK_LEAST_S: Final = 0.004
# How often the processes that use a level are counted.
_COUNT_S: Final = 5.0
# Answers that may wait for the next question: more are told at once, by a process that only waits for answers.
_OWED_MOST: Final = 8
# How often a place in the table is looked for by a level that has none; in a full one that takes a millisecond. First
# after a moment: processes that start together hold each other up, and a limit is met within their first half second.
_AGAIN_S: Final = 1.0
_AGAIN_FIRST_S: Final = 0.01
# How often a process shows itself while the level is limited: its row says only that it is there.
_SHOW_S: Final = 1.0


# A step that is owed: since when, and what.
_Owed = tuple[float, Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_NOTHING: Final[list[_Owed]] = []


class _Where(Enum):
    """Whose record is stepped."""

    SHARED = "shared"
    ALONE = "alone"
    HELD_UP = "held up"


class Link(Protocol):
    """What tells the other nodes of a cluster how the levels of this one are."""

    def wake(self, *, news: bool = False) -> None:
        """See that the exchange runs; with `news` at once. Never waits."""


class NodePace:
    """The rate of a level that the processes of this machine share. See `pace.Pace`."""

    __slots__ = (
        "_again_at",
        "_again_s",
        "_alone_until",
        "_counted_at",
        "_fleet_size",
        "_is_part",
        "_job",
        "_link",
        "_mine",
        "_missed",
        "_missed_at",
        "_name",
        "_owed",
        "_place",
        "_rec",
        "_shown_at",
        "_slot",
        "_table",
        "flag_at",
        "flags",
    )

    def __init__(
        self,
        rec: Record,
        table: Table,
        name: str,
        now: float,
        job: Job,
        fleet_size: int | None = None,
        link: Link | None = None,
    ) -> None:
        self._rec = rec
        self.flags, self.flag_at = UNSURE, 0
        self._link: Link | None = None
        self._job, self._fleet_size = job, fleet_size
        self._counted_at = self._shown_at = -math.inf
        self._again_at, self._again_s = now + _AGAIN_FIRST_S, _AGAIN_FIRST_S
        self._missed, self._missed_at = 0, math.inf
        self._owed: list[_Owed] = []
        self._table = table
        self._name = name
        self._mine = 0.0
        self._place = turns.Place()
        self._alone_until = -math.inf
        self._is_part = False
        self._slot: Slot | None = None
        self._attached(now)
        if link is not None:
            self.share_further(link)

    def share_further(self, link: Link) -> None:
        """Share the level with other nodes too, from now on."""
        self._link = link
        if self._slot is not None:
            self._slot.want_cluster()
        link.wake()

    # -- what the gate asks ------------------------------------------------------------------------

    def ready_at(self, now: float, weight: float = 1.0) -> float:
        """See Pace; earlier than the truth where that is far off, so that the change of others is seen."""
        if self._is_open(now):
            return now
        ready: float | None = self._stepped(now, self._turn_ready_at, weight)
        if ready is None:
            self._owed.pop()  # a question is asked again, not owed
            return now + _HELD_UP_S
        if ready <= now:
            return ready
        return min(ready, now + max(_LOOK_LEAST_S, (ready - now) / 2.0), now + _LOOK_S)

    def on_open(self, now: float, at: float, sent: int, succeeded: int) -> None:
        """See Pace."""
        is_open = self._is_open(now)
        self._mine += sent - succeeded
        if is_open:
            law.on_open(self._rec, at, sent, succeeded)
            self._table.renew(now)
            self._attach_again(now)
            self._show(at)
        else:  # another process met the limit meanwhile
            self._stepped(now, _add, sent, succeeded)

    def on_send(self, now: float, u: float) -> None:
        """See Pace."""
        is_open = self._is_open(now)
        self._mine += 1.0
        if is_open or now < self._alone_until:
            law.on_send(self._rec, now, u)
            self._attach_again(now)
            self._show(now)
        elif self._place.turn:
            self._place.turn = 0.0  # paid for when it came
        else:
            self._stepped(now, _pay, u)

    def on_success(self, now: float, sent_at: float, backlog: bool) -> None:
        """See Pace."""
        is_open = self._is_open(now)
        self._mine -= 1.0
        if is_open:
            law.on_success(self._rec, now, sent_at, backlog=backlog)
            self._show(now)
        elif now < self._alone_until or len(self._owed) >= _OWED_MOST:
            self._stepped(now, law.on_success, sent_at, backlog=backlog)
        else:
            # Told with the next question, which comes with the next request: half of all locking is saved.
            self._owed.append((now, law.on_success, (sent_at,), {"backlog": backlog}))

    def on_refusal(self, now: float, sent_at: float, u: float) -> None:
        """See Pace. The first one of an open level makes it limited for all."""
        was_open = self._is_open(now)
        self._stepped(now, law.on_refusal, sent_at, u, join=was_open)
        self._mine -= 1.0
        if was_open:
            self._tell_of_entry(now)

    def on_suspected(self, now: float, sent_at: float, u: float) -> None:
        """See Pace."""
        if self._is_open(now):
            guess = list(self._rec)
            law.on_suspected(guess, now, sent_at, u)
            if guess[LIMITED] == 0.0:
                self._mine -= 1.0
                self._rec[:] = guess
                self._show(now)
                return
        was_open = self._is_open(now)
        self._stepped(now, law.on_suspected, sent_at, u, join=was_open)
        self._mine -= 1.0
        if was_open:
            self._tell_of_entry(now)

    def on_dropped(self, now: float) -> None:
        """See Pace."""
        is_open = self._is_open(now)
        self._mine -= 1.0
        if is_open:
            law.on_dropped(self._rec, now)
            self._show(now)
        else:
            self._stepped(now, law.on_dropped)

    def give_back(self, now: float) -> None:
        """See Pace; for all processes of the machine, in one step under the lock."""
        if not self._is_open(now):
            self._stepped(now, _give_back)
            if self._rec[LIMITED] == 0.0:
                self._reopen(now)

    def close(self) -> None:
        """See Pace."""
        if self._slot is not None and self._slot.is_mine():
            self._slot.release_row()

    def _tell_of_entry(self, now: float) -> None:
        """Tell the cluster, if it was the answer at `now` that made the level limited."""
        if self._link is not None and self._rec[LIMITED] != 0.0 and self._rec[law.ENTERED_AT] == now:
            self._link.wake(news=True)

    # -- between this process and the table ----------------------------------------------------------

    def _is_open(self, now: float) -> bool:
        """Say whether nothing limits the level, without a lock; what was lifted by another is noted."""
        slot, rec = self._slot, self._rec
        if now < self._alone_until or slot is None:
            return rec[LIMITED] == 0.0
        if slot.is_limited():
            return False
        if rec[LIMITED] != 0.0:
            self._reopen(now)
        self.flags, self.flag_at = slot.flags, slot.flag_at
        return True

    def _reopen(self, now: float) -> None:
        rec = self._rec
        rec[:] = law.fresh(now)
        rec[IN_FLIGHT] = self._mine
        self._place.turn, self._is_part = 0.0, False

    def _turn_ready_at(self, rec: Record, now: float, weight: float) -> float:
        slot, place = self._slot, self._place
        if now < self._alone_until or slot is None:
            return law.ready_at(rec, now)
        part, waited = slot.part(weight, now), place.turn
        ready = turns.ready_at(rec, now, place, part)
        if part < 1.0 and place.turn != waited and rec[TOKENS] >= 0.0:
            slot.lead(weight, now)  # a token was left over: those who are heavier do not wait any more
        return ready

    def _stepped(self, now: float, step: Callable[..., Any], *args: Any, join: bool = False, **options: Any) -> Any:
        """Step the shared record under its lock, or this process's own where it is alone.

        What cannot be done because another process is inside the lock is owed, and done with the next step.
        """
        try:
            # A refusal that is owed on an open level ends that.
            where = self._load(now, join or any(owed[1] is not law.on_success for owed in self._owed))
            if where is _Where.HELD_UP:
                self._owed.append((now, step, args, options))
                return None
            for owed in self._paid_now():
                self._safely(*owed)
            result = self._safely(now, step, args, options)
            if where is _Where.SHARED:
                self._store(now)
            return result
        finally:
            if self._slot is not None:
                self._slot.unlock()

    def _paid_now(self) -> list[_Owed]:
        if not self._owed:
            return _NOTHING
        owed, self._owed = self._owed, []
        return owed

    def _safely(self, now: float, step: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            return step(self._rec, now, *args, **options)
        except (ArithmeticError, ValueError):  # cannot happen by the law; a lie in the table could lead to it
            self._reopen(now)
            return now

    def _load(self, now: float, join: bool) -> _Where:
        """Lock the slot and bring its record here, unless this process is alone, or held up for a moment."""
        if now < self._alone_until:
            return _Where.ALONE
        if join or now - self._counted_at > _COUNT_S:
            self._table.renew(now)
        slot = self._slot
        if slot is None or not slot.lock():
            if slot is not None and slot.is_mine() and not self._is_part and self._is_held_up(now):
                return _Where.HELD_UP
            slot = self._attached(now)
            if slot is None or not slot.lock():
                self._go_alone(now)
                return _Where.ALONE
        self._missed, self._missed_at = 0, math.inf
        self._bring(slot, now, join)
        return _Where.SHARED

    def _is_held_up(self, now: float) -> bool:
        """Say whether the lock, which could not be had now, may only be held for a moment."""
        self._missed, self._missed_at = self._missed + 1, min(self._missed_at, now)
        return self._missed < _GRACE_TRIES or now - self._missed_at < _GRACE_S

    def _bring(self, slot: Slot, now: float, join: bool) -> None:
        """Take over the shared record; an open one is what all who use the level did, put together."""
        shared, self._is_part = slot.read(now), False
        if shared[LIMITED] != 0.0:
            self._rec[:] = shared
            if now - self._counted_at > _COUNT_S:
                self._count(sum(joining.is_live(row, now) for row in slot.rows()), now)
            return
        if self._rec[LIMITED] != 0.0:
            self._reopen(now)
        if join:
            self._count(joining.join(self._rec, slot.rows(), now), now)

    def _count(self, others: int, now: float) -> None:
        """Note what part of the fleet this machine is."""
        self._counted_at = now
        told = share_of(self._job, self._fleet_size, 1 + others, shared=True)
        if self._link is not None and self._slot is not None:
            # Who asks for a cluster is hardly all of it, whatever no launcher said.
            told = self._slot.share or (told if told != ASSUMED else 0.0)
        if self._rec[CHALLENGE] == 0.0:  # a test under way is judged by what it began with
            self._rec[law.SHARE] = told

    def _store(self, now: float) -> None:
        slot = self._slot
        assert slot is not None
        slot.write(self._rec)
        slot.claim_row(now)  # where the lock could not be had when it was attached
        if now - self._shown_at > _SHOW_S:
            self._show(now)

    def _show(self, now: float) -> None:
        self._shown_at = now
        if self._slot is not None:
            self._slot.show(joining.row_of(self._rec, now, self._mine))
            if self._link is not None:
                self._slot.want_cluster()

    def _attach_again(self, now: float) -> None:
        """Look for a place of the open level in the table, where it has lost its own or could not have one."""
        slot = self._slot
        if slot is not None and slot.has_row and slot.is_mine():
            return
        if now >= self._again_at:
            self._again_s = min(_AGAIN_S, 2.0 * self._again_s)
            self._again_at = now + self._again_s
            if slot is not None and slot.is_mine():
                self._claim(slot, now)
            else:
                self._attached(now)

    def _attached(self, now: float) -> Slot | None:
        """Return the level's slot with a row for this process; None if it is held up, or the table is full."""
        slot = self._slot
        if slot is not None and slot.is_mine():
            return None
        slot = self._table.slot(self._name, now)
        if slot is not None:
            self._claim(slot, now)
        self._slot = slot
        self.flags, self.flag_at = UNSURE, 0
        return slot

    def _claim(self, slot: Slot, now: float) -> None:
        """Take a row there, if the lock can be had."""
        try:
            if slot.lock():
                slot.claim_row(now)
        finally:
            slot.unlock()

    def _go_alone(self, now: float) -> None:
        """Decide by what was last seen, at this process's part of the rate."""
        self.flags, self.flag_at = UNSURE, 0
        self._alone_until = now + ALONE_S
        self._missed, self._missed_at = 0, math.inf
        self._place.turn = 0.0
        slot, rec = self._slot, self._rec
        if self._is_part or slot is None or not slot.is_mine() or not slot.is_limited():
            return
        rec[:] = slot.read(now)
        if rec[LIMITED] != 0.0:
            self._is_part = True
            others = sum(joining.is_live(row, now) for row in slot.rows())
            joining.part(rec, 1.0 + others, self._mine, now)
        else:
            rec[IN_FLIGHT] = self._mine


def _add(rec: Record, now: float, sent: int, succeeded: int) -> None:
    rec[IN_FLIGHT] = max(0.0, rec[IN_FLIGHT] + sent - succeeded)
    rec[COUNT] += succeeded


def _give_back(rec: Record, now: float) -> None:
    blame.give_back(rec)


def _pay(rec: Record, now: float, u: float) -> None:
    turns.pay(rec, u)
