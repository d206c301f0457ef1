"""Admission for threads and event loops alike: one counter, one first-in-first-out queue a lane.

All state changes under one thread lock, held for microseconds; only the wake-ups differ between a
blocked thread and a suspended task. A permit is handed over by the one who releases (no race for
it afterwards), and whatever ends a wait early (KeyboardInterrupt, CancelledError, GeneratorExit, a
deadline) gives it back.

Answers go through an inbox, and whoever holds the lock reads it before and after its own work. So a
finalizer (a suspended generator that is collected with a permit in it) may give a permit back even
while its own thread is inside the lock: it only leaves a note.

A KeyboardInterrupt may strike between any two steps, inside the lock too. What is in flight is
therefore known by the permits that exist and not by a counter, each step can be done twice, and
nothing is taken from a queue before it is dealt with: what an interrupt left half done is finished
by the next who comes by, at the latest by the first of the queue, who looks every `_LOOK_AGAIN_S`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import threading
import weakref
from collections import deque
from collections.abc import Iterator, MutableSequence
from threading import get_ident
from typing import Final

from resilient_io.control import given, line
from resilient_io.control.charging import Outcome as Outcome
from resilient_io.control.scopes import ScopePath
from resilient_io.coordinate.sharing import Sharing
from resilient_io.drive.answering import Answers
from resilient_io.drive.clock import Clock
from resilient_io.drive.permit import Permit as Permit
from resilient_io.drive.scope import Lane, Level, ScopeTable, Waiter
from resilient_io.drive.waiters import AnyWaiter, TaskWaiter, ThreadWaiter
from resilient_io.policy import Policy

# An alarm that is this much early is as good as right; it saves a wake-up.
_SLACK_S: Final = 0.0005
# The first of a queue looks by itself this often: a permit that was lost by all tells nobody.
_LOOK_AGAIN_S: Final = 5.0


class WaitedTooLong(Exception):
    """Raised by a wait for a permit that reached the caller's deadline; the caller turns it into its own error."""


class Gate:
    """Admission for one process. Safe in any thread and any number of event loops."""

    def __init__(self, clock: Clock, rng: random.Random, sharing: Sharing | None = None) -> None:
        """Make a gate; `sharing` says who shares its limits, by default this process alone."""
        self.clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        # The thread that took the lock last; while the lock is held, the one that holds it.
        self._owner = 0
        self._numbers = itertools.count()
        self._inbox: deque[tuple[Permit | AnyWaiter, Outcome, bool]] = deque()
        self._table = ScopeTable(sharing=sharing)
        self._lines = self._table.lines
        self._answers = Answers(self._table, rng)
        self._news = self._answers.news

    # -- asking ------------------------------------------------------------------------------------

    def acquire(
        self, path: ScopePath, policy: Policy, *, deadline_at: float | None = None, again: bool = False, blob: str = ""
    ) -> Permit:
        """Block until the scope admits one request; first come, first served within a scope.

        `again` puts a retry before those who have not sent yet: it has waited already, and its
        caller's other work waits for it. `blob` names the object in a store where objects have limits of their own:
        one that is found to be hot is paced apart. Raises WaitedTooLong at `deadline_at` (same clock as
        `clock.now()`).
        """
        permit = self._enter(path, policy, blob)
        if permit is not None:
            return permit
        waiter = ThreadWaiter(path, policy, again, blob)
        try:
            while True:
                timeout_s = self._step_queue(waiter, deadline_at)
                if waiter.permit is not None:
                    return waiter.permit
                self.clock.wait(waiter.event, timeout_s)
        except BaseException:
            self._leave(waiter)
            raise

    async def acquire_async(
        self, path: ScopePath, policy: Policy, *, deadline_at: float | None = None, again: bool = False, blob: str = ""
    ) -> Permit:
        """Suspend until the scope admits one request; the same queue as `acquire`."""
        permit = self._enter(path, policy, blob)
        if permit is not None:
            return permit
        waiter = TaskWaiter(path, policy, again, blob)
        try:
            while True:
                timeout_s = self._step_queue(waiter, deadline_at)
                if waiter.permit is not None:
                    return waiter.permit
                await self.clock.wait_async(waiter.future, timeout_s)
        except BaseException:
            self._leave(waiter)
            raise

    def _enter(self, path: ScopePath, policy: Policy, blob: str) -> Permit | None:
        """Return a permit if the scope admits one at once."""
        me, permit = get_ident(), None
        with self._lock:
            self._owner = me
            now = self.clock.now()
            if self._inbox:
                self._read_inbox(now)
            if blob:
                path = self._table.narrowed(path, blob, policy, now)
            lane = self._table.lane(path, policy, now)
            free = not lane.waiting and not lane.is_full(now) and not (self._lines and line.is_behind(lane.place))
            if free and lane.ready_at(now, policy) <= now:
                permit = Permit(self, lane, policy, now)
                permit.blob = blob
                self._send(permit, lane, now)
        if self._inbox or self._news:
            self._drain()
        return permit

    def _step_queue(self, waiter: AnyWaiter, deadline_at: float | None) -> float | None:
        """Step the queue; return how long this waiter may sleep in seconds (None: until it is notified)."""
        me = get_ident()
        with self._lock:
            self._owner = me
            now = self.clock.now()
            waiter.awaken()
            waiter.due_at = math.inf
            # The lane is looked up under the lock that queues: in between it could be forgotten.
            lane = waiter.lane or self._queue(waiter, now)
            self._read_inbox(now)
            if lane.waiting and lane.waiting[0] is waiter and lane.is_full(now):
                self._sweep(lane, now)
            line.pump(lane.place, now, self)
            if waiter.permit is None and deadline_at is not None and now >= deadline_at:
                raise WaitedTooLong
            timeout_s = self._arm(waiter, lane, now, deadline_at)
        self._drain()
        return timeout_s

    def _queue(self, waiter: AnyWaiter, now: float) -> Lane:
        waiter.queued_at = now
        if waiter.blob:
            waiter.path = self._table.narrowed(waiter.path, waiter.blob, waiter.policy, now)
        lane = waiter.lane = self._table.lane(waiter.path, waiter.policy, now)
        lane.leaf.tally.waited += 1
        lane.join(waiter)
        return lane

    def _arm(self, waiter: AnyWaiter, lane: Lane, now: float, deadline_at: float | None) -> float | None:
        """Set the waiter's alarm: who goes next, as far as can be said, has one, and the first of each lane looks."""
        if waiter.permit is not None:
            return 0.0
        until = math.inf if deadline_at is None else deadline_at
        alarm = min(now + _LOOK_AGAIN_S, waiter.due_at) if lane.waiting[0] is waiter else math.inf
        waiter.doze(alarm)
        until = min(until, alarm)
        return None if until == math.inf else until - now

    def _leave(self, waiter: AnyWaiter) -> None:
        """Undo a wait that ended early: the place in the queue, or the permit granted meanwhile."""
        self._inbox.append((waiter, Outcome.DROPPED, True))
        self._drain()

    # -- stepping, with the lock held --------------------------------------------------------------

    def _send(self, permit: Permit, lane: Lane, now: float) -> None:
        places = lane.places
        if places is not None:
            places.fill(permit._number, now)
        lane.open[permit._number] = weakref.ref(permit)
        lane.on_send(now, self._rng.random())
        if permit.policy.rate_per_s is not None:
            given.take(lane.leaf.given_requests, 1.0)
        if permit.policy.bytes_per_s is not None:
            permit.reserved_bytes = lane.reserve_bytes(permit.policy.bytes_per_s)

    # What `control.line` asks of the gate.

    def rank(self, owner: Lane, now: float) -> line.Rank | None:
        """Return the rank of the first of a lane; None if nobody waits there, or the lane itself lets nobody go."""
        while owner.waiting:
            first = owner.waiting[0]
            if first.permit is not None or not first.alive():
                # Granted by one who was interrupted before this step; or its event loop was closed under it.
                self._call(first, owner, now)
                continue
            at = owner.held_until(now, first.policy)
            if at <= now:
                return _age(owner)
            if at == math.inf or self.arm(owner, at):
                return None
        owner.leave_places()
        return None

    def send(self, owner: Lane, now: float) -> None:
        """Grant a permit to the first of a lane."""
        self._grant(owner.waiting[0], owner, now)

    def arm(self, owner: Lane, at: float) -> bool:
        """See that the first of a lane looks again at `at`; take it out and say False if it is gone."""
        first = owner.waiting[0]
        first.due_at = at
        if first.alarm_at <= at + _SLACK_S or first.notify():
            return True
        owner.waiting.popleft()
        return False

    def _grant(self, first: Waiter, lane: Lane, now: float) -> None:
        waited_s = now - first.queued_at
        permit = first.permit = Permit(self, lane, first.policy, now, waited_s)
        permit.blob = first.blob
        self._send(permit, lane, now)
        lane.leaf.tally.waited_s += waited_s
        self._call(first, lane, now)

    def _call(self, first: Waiter, lane: Lane, now: float) -> None:
        """Wake the first of the queue and take it out; what was granted to one who is gone goes to the next."""
        if not first.notify() and first.permit is not None:
            self._take(first.permit, lane, Outcome.DROPPED, True, now, pump=False)
        lane.waiting.popleft()

    # -- answering ---------------------------------------------------------------------------------

    def _answer(self, permit: Permit, outcome: Outcome, *, last: bool) -> None:
        me = get_ident()
        if self._owner == me and self._lock.locked():
            # A finalizer inside this thread's own locked section (or one that looks like it: no harm).
            self._inbox.append((permit, outcome, last))
        else:
            with self._lock:
                self._owner = me
                now = self.clock.now()
                if self._inbox:
                    self._read_inbox(now)
                self._take(permit, permit.lane, outcome, last, now)
        if self._inbox or self._news:
            self._drain()

    def _drain(self) -> None:
        """Read the inbox, unless this thread is inside the lock already: then its end does it."""
        me = get_ident()
        while self._inbox:
            if self._owner == me and self._lock.locked():
                return
            with self._lock:
                self._owner = me
                self._read_inbox(self.clock.now())
        while self._news:
            self._answers.tell()

    def _read_inbox(self, now: float) -> None:
        while self._inbox:
            sender, outcome, last = self._inbox[0]
            if isinstance(sender, Permit):
                self._take(sender, sender.lane, outcome, last, now)
            elif sender.lane is not None:
                _forget(sender.lane, sender)
                sender.lane.leave_places()
                self._take(sender.permit, sender.lane, outcome, last, now)
            self._inbox.popleft()

    def _take(
        self, permit: Permit | None, lane: Lane, outcome: Outcome, last: bool, now: float, *, pump: bool = True
    ) -> None:
        if permit is not None:
            if permit.sent_at is not None:
                self._answers.settle(permit, outcome, permit.sent_at, now)
            if last:
                self._free(permit, lane, now)
        if pump and (lane.waiting or self._lines or lane.kin):
            # Those of hot blobs share the semaphore of their prefix: who has waited longest has what was given back.
            for one in sorted((one for one in lane.kin if one.waiting), key=_age) if lane.kin else ():
                line.pump(one.place, now, self)
            line.pump(lane.place, now, self)

    def _free(self, permit: Permit, lane: Lane, now: float) -> None:
        if lane.places is not None:
            lane.places.free(permit._number, now)
        if lane.open.pop(permit._number, None) is not None:
            for level in lane.levels:
                level.in_flight -= 1
        permit._open = False

    def _sweep(self, lane: Lane, now: float) -> None:
        """Take back the slots of permits that are gone without a word: an interrupt struck in their finalizer."""
        for number in [number for number, permit in lane.open.items() if permit() is None]:
            if lane.places is not None:
                lane.places.free(number, now)
            del lane.open[number]
            for level in lane.levels:
                level.in_flight -= 1
                level.tell(now)
                level.tally.dropped += 1
                level.pace.on_dropped(now)

    # -- looking -----------------------------------------------------------------------------------

    def draw(self) -> float:
        """Return a uniform in [0, 1) from this process's own generator."""
        return self._rng.random()

    def budget_of(self, path: ScopePath, policy: Policy) -> MutableSequence[float]:
        """Return the retry budget of a scope; step it with `locked`."""
        with self.locked():
            return self._table.lane(path, policy, self.clock.now()).leaf.budget

    def lane_of(self, path: ScopePath, policy: Policy, now: float) -> Lane:
        """Return the lane of a scope; to be called and looked at with `locked`."""
        return self._table.lane(path, policy, now)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, for a decision that steps a shared record; never wait inside."""
        me = get_ident()
        try:
            with self._lock:
                self._owner = me
                yield
        finally:
            self._drain()

    def levels(self) -> list[Level]:
        """Return all levels that this process knows; read them as a snapshot."""
        with self.locked():
            return self._table.levels(self.clock.now())

    def lanes(self) -> list[Lane]:
        """Return all lanes that this process knows; read them as a snapshot."""
        with self.locked():
            self._table.levels(self.clock.now())  # brought up to date
            return self._table.lanes()

    def after_fork(self) -> None:
        """Make this gate, left over from the parent, harmless: a permit freed here must not hang on a lock.

        The lock may have been held by a thread that does not exist in the child.
        """
        self._lock = threading.Lock()
        self._owner = 0
        self._inbox.clear()
        self._news.clear()
        self._table.isolate()


def _age(lane: Lane) -> line.Rank:
    first = lane.waiting[0]
    return not first.again, first.queued_at


def _forget(lane: Lane, waiter: AnyWaiter) -> None:
    # An interrupt may have struck before it was queued, or after it was granted.
    with contextlib.suppress(ValueError):
        lane.waiting.remove(waiter)
