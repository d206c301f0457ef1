"""What an answered request teaches: who is charged, what each level of its lane learns of it, and who is told.

All but `tell` is called with the gate's lock held.
"""

from __future__ import annotations

import math
import random
from collections import deque

from resilient_io import events
from resilient_io.control import budget, charging, given, law
from resilient_io.control.charging import Outcome
from resilient_io.control.scopes import label
from resilient_io.drive.permit import Permit
from resilient_io.drive.scope import Lane, Level, ScopeTable


class Answers:
    """Tells the levels of a table what became of requests. Not thread-safe: the gate's lock guards it."""

    __slots__ = ("_rng", "_table", "news")

    def __init__(self, table: ScopeTable, rng: random.Random) -> None:
        """Begin with no news; `news` is what `tell` has still to emit."""
        self._table, self._rng = table, rng
        self.news: deque[events.LimitChanged] = deque()

    def settle(self, permit: Permit, outcome: Outcome, sent_at: float, now: float) -> None:
        """Tell every level of the scope how a request ended that was sent at `sent_at`."""
        permit.sent_at = None
        lane = permit.lane
        if permit.blob and outcome is Outcome.SUCCEEDED:
            lane.note(permit.blob, now)
            if lane.prefix.blame is not None:
                self._clear(lane.prefix, now)
        hot = lane.hot_level(permit.blob) if permit.blob and lane.kin else None
        charged = lane.leaf if outcome is Outcome.SUCCEEDED else self._charged(permit, outcome, now)
        before = law.rate_per_s(charged.rate) if events.listening() else None
        if outcome is Outcome.SUCCEEDED:
            policy = permit.policy
            lane.on_success(now, sent_at)
            budget.on_success(charged.budget, policy.retry_budget, policy.retry_budget_burst)
            if permit.moved_bytes:
                lane.moved(permit.moved_bytes, now)
        else:
            self._settle_failed(lane, charged, outcome, sent_at, now)
        if hot is not None and hot is not charged:
            _tell_hot(hot, outcome, sent_at, now)
        if permit.reserved_bytes:
            moved_bytes = permit.moved_bytes if outcome is Outcome.SUCCEEDED else 0
            given.take(lane.leaf.given_bytes, moved_bytes - permit.reserved_bytes)
        if before is not None:
            self._note_change(charged, before, now)

    def _charged(self, permit: Permit, outcome: Outcome, now: float) -> Level:
        """Return the level to charge: that of a blob which has just been found to be hot is made."""
        lane, path, blob = permit.lane, permit.lane.path, permit.blob
        for level in lane.levels:
            level.tell(now)
        index = charging.whose(lane.levels, path, permit.charge, outcome, blob, now)
        if index < len(lane.levels):
            return lane.levels[index]
        hot = self._table.lane(path.of_blob(blob), permit.policy, now).leaf
        hot.tell(now)
        charging.begin_hot(hot.rate, lane.prefix, blob, now)
        self._clear(lane.prefix, now)
        return hot

    def _clear(self, prefix: Level, now: float) -> None:
        """Open a prefix that was charged with what only a hot blob of it was refused."""
        if charging.is_cleared(prefix, now):
            before = law.rate_per_s(prefix.rate)
            prefix.tell(now)
            prefix.pace.give_back(now)
            if events.listening():
                self._note_change(prefix, before, now)

    def _settle_failed(self, lane: Lane, charged: Level, outcome: Outcome, sent_at: float, now: float) -> None:
        if outcome is Outcome.REFUSED:
            lane.prefix.flow.forget()
            charged.tally.charged += 1
        for level in lane.levels:
            level.tally.count(outcome)
        paces = [level.pace for level in lane.levels]
        charging.settle_failed(paces, charged.pace, outcome, now, sent_at, self._rng.random())

    def _note_change(self, level: Level, before: float, now: float) -> None:
        """Keep the news that a limit was entered, cut or lifted; its slow growth is none."""
        after = law.rate_per_s(level.rate)
        if before == after or (after > before and after != math.inf):
            return
        reason = "lifted" if after == math.inf else "entered" if before == math.inf else "cut"
        self.news.append(
            events.LimitChanged(
                at_s=now,
                scope=label(level.key),
                rate_per_s=None if after == math.inf else after,
                previous_rate_per_s=None if before == math.inf else before,
                reason=reason,
            )
        )

    def tell(self) -> None:
        """Emit one piece of news; outside the lock, because an observer may do anything."""
        try:
            event = self.news.popleft()
        except IndexError:
            return
        events.emit(event)


def _tell_hot(hot: Level, outcome: Outcome, sent_at: float, now: float) -> None:
    """Tell the level of a hot blob of an answer to what left before it was one."""
    hot.tell(now)
    if outcome is Outcome.SUCCEEDED:
        hot.pace.on_success(now, sent_at, backlog=False)
    else:
        hot.pace.on_dropped(now)
