"""The scopes of this process: what is in flight, who waits, and the records that are stepped."""

from __future__ import annotations

import math
import weakref
from collections import OrderedDict, deque
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final, Protocol

from resilient_io.control import budget, given, law, opening
from resilient_io.control.blame import Blame
from resilient_io.control.evidence import Family, note
from resilient_io.control.flow import Flow
from resilient_io.control.hedge import Hedging
from resilient_io.control.line import Line, Place
from resilient_io.control.scopes import ScopePath
from resilient_io.coordinate.pace import Pace, ProcessPace
from resilient_io.coordinate.places import Places
from resilient_io.coordinate.sharing import ProcessSharing, Sharing
from resilient_io.policy import Policy

if TYPE_CHECKING:
    from resilient_io.drive.gate import Outcome, Permit

# A lane with its level is about 2 KB; a job that walks a million prefixes must not keep them all.
MAX_LANES: Final = 8_192
# A limit that nobody has met for so long is worth no more than what a fresh start learns.
_STALE_S: Final = 300.0
# For so long what happened on an open level may stay untold: an entry is decided on a second's answers.
_TELL_S: Final = 0.02


class Waiter(Protocol):
    """One caller that waits in a lane."""

    policy: Policy
    blob: str
    again: bool
    permit: Permit | None
    queued_at: float
    alarm_at: float
    due_at: float

    def alive(self) -> bool:
        """Say whether the caller could still run."""

    def notify(self) -> bool:
        """Wake the caller: it was granted a permit, or must set its alarm anew; False if it is gone.

        Called from any thread, with the gate's lock held.
        """


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a level has seen since the process started; only ever grows."""

    sent: int = 0
    succeeded: int = 0
    refused: int = 0
    charged: int = 0
    suspected: int = 0
    dropped: int = 0
    waited: int = 0
    waited_s: float = 0.0
    unverified: int = 0
    hedged: int = 0
    hedges_won: int = 0

    def count(self, outcome: Outcome) -> None:
        """Count a request that did not succeed."""
        match outcome.value:
            case "refused":
                self.refused += 1
            case "suspected":
                self.suspected += 1
            case "dropped":
                self.dropped += 1


@dataclass(slots=True, kw_only=True, eq=False)
class Level:
    """One level of a scope path in this process: its rate record and what steps it, and its retry budget.

    While nothing limits it, what is sent is only counted here, and told to its pace with the next answer, when more is
    in flight than it was told, when that is `_TELL_S` old, and before anything else is told. So an open level costs a
    request next to nothing, whoever shares it.
    """

    key: str
    rate: MutableSequence[float]
    pace: Pace
    budget: MutableSequence[float]
    tally: Tally = field(default_factory=Tally)
    own: bool = False
    in_flight: int = 0
    peak_in_flight: int = 0
    users: int = 0
    line: Line[Lane]
    """Who waits for it while it is limited."""
    untold_sent: int = 0
    untold_succeeded: int = 0
    untold_at: float = 0.0
    told_in_flight: int = 0
    tell_at: float = -math.inf
    below: Family = field(default_factory=OrderedDict)
    blame: Blame | None = None
    above: Level | None = None
    given_requests: given.Given = field(default_factory=given.fresh)
    given_bytes: given.Given = field(default_factory=given.fresh)
    flow: Flow = field(default_factory=Flow)
    hedging: Hedging | None = None
    places: Places | None = None
    """Of all processes of the machine, where a policy bounds them."""

    def is_limited(self) -> bool:
        """Say whether requests may have to wait for it, whoever limits it."""
        return self.pace.flags[self.pace.flag_at] != 0.0

    def ready_at(self, now: float, weight: float) -> float:
        """Return when the next request may leave as far as this level goes; `weight` is that of who asks."""
        self.tell(now)
        return self.pace.ready_at(now, weight)

    def note(self, now: float, succeeded: int) -> None:
        """Note in the level above that requests of this one were served."""
        if self.above is not None:
            note(self.above.below, self.key, now, refused=False, answers=succeeded)

    def tell(self, now: float) -> None:
        """Tell the pace what it was not told yet; to be called before it is told or asked anything else."""
        sent, succeeded = self.untold_sent, self.untold_succeeded
        if sent or succeeded:
            self.untold_sent = self.untold_succeeded = 0
            self.told_in_flight, self.tell_at = self.in_flight, now + _TELL_S
            self.tally.sent += sent
            self.tally.succeeded += succeeded
            self.pace.on_open(now, self.untold_at, sent, succeeded)
            if succeeded:
                self.note(self.untold_at, succeeded)


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """Callers of one scope whose policies are of one kind: one semaphore, one queue.

    Policies that meet on a scope share its rate but each keeps its own cap, so the count is here
    and the rate record at the level.
    """

    path: ScopePath
    cap: float
    """In flight at most, at present."""
    full_cap: float
    """The same from `opens_at` on: a large fleet begins with less (`control.opening`)."""
    opens_at: float = -math.inf
    levels: tuple[Level, ...]
    open: dict[int, weakref.ref[Permit]] = field(default_factory=dict)
    waiting: deque[Waiter] = field(default_factory=deque)
    kin: list[Lane] = field(default_factory=list)
    """Lanes with the same semaphore: those of the hot blobs of a prefix, and the prefix's."""
    kind: tuple[int, str, float, int | None] = (0, "", 1.0, None)
    """What its policies have in common: `max_concurrency`, whom they share with, `weight`, `max_concurrency_node`."""
    places: Places | None = None
    """Where its requests need a place, as those of other processes do; of the prefix."""
    place: Place[Lane] = field(init=False)
    """Where it stands while levels are limited."""

    def __post_init__(self) -> None:
        self.place = Place(self, self.levels, self.kind, self.kind[2])

    @property
    def in_flight(self) -> int:
        """How many permits are out."""
        return len(self.open)

    @property
    def leaf(self) -> Level:
        """The narrowest level, whose semaphore this is."""
        return self.levels[-1]

    @property
    def prefix(self) -> Level:
        """The prefix's level, which is the narrowest but in the lane of a hot blob."""
        return self.levels[-2 if self.path.blob else -1]

    def on_send(self, now: float, u: float) -> None:
        """Count a request that leaves now; `u` is uniform in [0, 1)."""
        for level in self.levels:
            pace = level.pace
            in_flight = level.in_flight = level.in_flight + 1
            if in_flight > level.peak_in_flight:
                level.peak_in_flight = in_flight
            if pace.flags[pace.flag_at] != 0.0:
                level.tell(now)
                level.tally.sent += 1
                pace.on_send(now, u)
                continue
            level.untold_sent += 1
            level.untold_at = now
            if in_flight > level.told_in_flight or now >= level.tell_at:
                level.tell(now)

    def join(self, waiter: Waiter) -> None:
        """Let a caller queue: a retry behind the other retries, and before those who have not sent yet."""
        if waiter.again:
            self.waiting.insert(sum(1 for _ in takewhile(lambda one: one.again, self.waiting)), waiter)
        else:
            self.waiting.append(waiter)

    def is_full(self, now: float) -> bool:
        """Say whether as many are in flight as may be."""
        if self.cap < self.full_cap and now >= self.opens_at:
            self.cap = self.full_cap
        return len(self.open) >= self.cap

    def on_success(self, now: float, sent_at: float) -> None:
        """Count a request that was answered."""
        if self.cap < self.full_cap:
            self.cap += opening.GAIN
        for level in self.levels:
            pace = level.pace
            if pace.flags[pace.flag_at] != 0.0:
                level.tell(now)
                level.tally.succeeded += 1
                level.note(now, 1)
                pace.on_success(now, sent_at, bool(self.waiting))
            else:
                level.untold_succeeded += 1
                level.untold_at = now
                level.tell(now)

    def moved(self, moved_bytes: int, now: float) -> None:
        """Count the bytes of one answer or of what was written."""
        self.prefix.flow.note(now, 1, moved_bytes, len(self.open))

    def reserve_bytes(self, per_s: float) -> float:
        """Take what a request will move, as far as one can know it, from a given rate; return what was taken.

        As much as requests moved so far; before the first answer a second's worth, so that they come one by one.
        """
        known = self.prefix.flow.mean_bytes()
        reserved = per_s if known is None else known
        given.take(self.leaf.given_bytes, reserved)
        return reserved

    def note(self, blob: str, now: float) -> None:
        """Note that a request for an object of the prefix was served."""
        note(self.prefix.below, blob, now, refused=False)

    def hot_level(self, blob: str) -> Level | None:
        """Return the level of a blob of this prefix that was found to be hot after it was asked for here."""
        if not self.path.blob:
            for lane in self.kin:
                if lane.path.blob == blob:
                    return lane.leaf
        return None

    def busy(self) -> bool:
        """Say whether somebody has a permit of this lane or waits for one."""
        return bool(self.open or self.waiting)

    def idle(self, now: float) -> bool:
        """Say whether next to nothing would be lost if this lane were forgotten."""
        if self.waiting or (self.open and not self.path.blob):
            return False
        rate = self.leaf.rate
        return not law.is_limited(rate) or now - rate[law.REFUSED_AT] > _STALE_S

    def ready_at(self, now: float, policy: Policy) -> float:
        """Return when the next request may leave as far as the rates of all levels go, and those that were given."""
        ready = now
        if self.places is not None:
            ready = self.placed_at(now)
            if ready > now:
                return ready
        for level in self.levels:
            pace = level.pace
            if pace.flags[pace.flag_at] != 0.0:
                level.tell(now)
                at = pace.ready_at(now, policy.weight)
                if at > ready:
                    ready = at
        if policy.rate_per_s is None and policy.bytes_per_s is None:
            return ready
        return max(ready, self.given_at(now, policy))

    def given_at(self, now: float, policy: Policy) -> float:
        """Return when the next request may leave as far as the rates go that a policy gives."""
        ready = now
        if policy.rate_per_s is not None:
            ready = max(ready, given.requests_ready_at(self.leaf.given_requests, now, policy.rate_per_s))
        if policy.bytes_per_s is not None:
            ready = max(ready, given.bytes_ready_at(self.leaf.given_bytes, now, policy.bytes_per_s))
        return ready

    def held_until(self, now: float, policy: Policy) -> float:
        """Return when a caller may go as far as this lane goes, whatever others do: its semaphore and given rates.

        `inf` is when a permit comes back.
        """
        if self.is_full(now):
            return self.opens_at if self.cap < self.full_cap else math.inf
        ready = self.given_at(now, policy)
        return ready if self.places is None or ready > now else self.placed_at(now)

    def placed_at(self, now: float) -> float:
        """Return when to ask again for a place of the machine's; `now` if one is taken or none is needed."""
        places, most = self.places, self.kind[3]
        return now if places is None or most is None else places.ready_at(now, most)

    def leave_places(self) -> None:
        """Keep no place for callers that wait no more."""
        if self.places is not None and not self.waiting:
            self.places.leave()


class ScopeTable:
    """The lanes and levels of this process, the least recently used idle ones forgotten first.

    Not thread-safe: the gate's lock guards it. Holds `limit` lanes; more (up to twice as many) only
    while those are limited, and beyond that only while they are busy.
    """

    __slots__ = ("_evict_above", "_lanes", "_last", "_levels", "_limit", "_sharing", "lines")

    def __init__(self, limit: int = MAX_LANES, sharing: Sharing | None = None) -> None:
        self._limit = self._evict_above = limit
        self._sharing = sharing or ProcessSharing()
        self._levels: dict[tuple[str, bool], Level] = {}
        self._lanes: OrderedDict[tuple[ScopePath, tuple[int, str, float, int | None]], Lane] = OrderedDict()
        # Those in which somebody stands.
        self.lines: set[Line[Lane]] = set()
        # The one that was asked for last: most requests are followed by another one of their kind.
        self._last: tuple[ScopePath, Policy, Lane] | None = None

    def lane(self, path: ScopePath, policy: Policy, now: float) -> Lane:
        """Return the lane of this path and of the policy's kind, made if it is not there."""
        last = self._last
        if last is not None and last[0] is path and last[1] is policy:
            return last[2]
        lane = self._lane(path, policy, now)
        self._last = (path, policy, lane)
        return lane

    def _lane(self, path: ScopePath, policy: Policy, now: float) -> Lane:
        key = (path, _kind(policy))
        lane = self._lanes.get(key)
        if lane is not None:
            self._lanes.move_to_end(key)
            return lane
        if len(self._lanes) >= self._evict_above:
            self._evict(now)
        levels = tuple(self._level(level, policy, now) for level in path.levels())
        for above, level in pairwise(levels[:-1] if path.blob else levels):
            level.above = above
        lane = self._lanes[key] = self._new_lane(path, levels, policy, now)
        if path.blob:
            self._join(lane, self.lane(path.of_blob(""), policy, now))
        return lane

    def _new_lane(self, path: ScopePath, levels: tuple[Level, ...], policy: Policy, now: float) -> Lane:
        most = float(policy.max_concurrency)
        first = most if path.blob else min(most, opening.window(self._sharing.share(policy)))
        until = now + opening.FOR_S
        lane = Lane(path=path, levels=levels, cap=first, full_cap=most, opens_at=until, kind=_kind(policy))
        if policy.max_concurrency_node is not None:
            prefix = lane.prefix
            if prefix.places is None:
                prefix.places = self._sharing.places(prefix.key, policy)
            lane.places = prefix.places
        return lane

    def narrowed(self, path: ScopePath, blob: str, policy: Policy, now: float) -> ScopePath:
        """Return the path of the blob if it is known to be hot, else `path`."""
        kind = _kind(policy)
        prefix = self._lanes.get((path, kind))
        if prefix is None or not prefix.kin:
            return path  # as nearly always; a path for each blob would cost its making, and crowd the cache
        hot = path.of_blob(blob)
        lane = self._lanes.get((hot, kind))
        return path if lane is None or lane.idle(now) else hot

    def _join(self, lane: Lane, prefix: Lane) -> None:
        """Let the lane of a hot blob use the semaphore of its prefix."""
        if not prefix.kin:
            prefix.kin.append(prefix)
        lane.open, lane.kin = prefix.open, prefix.kin
        lane.kin.append(lane)

    def lanes(self) -> list[Lane]:
        """Return all lanes, the least recently used first."""
        return list(self._lanes.values())

    def levels(self, now: float) -> list[Level]:
        """Return all levels, in the order in which they were first used, and up to date."""
        levels = list(self._levels.values())
        for level in levels:
            level.tell(now)
        return levels

    def isolate(self) -> None:
        """Let no level of this table touch what is shared any more: it was left over by a fork.

        Nor keep it open: the locks of the parent would outlive it.
        """
        self._sharing = ProcessSharing()
        for level in self._levels.values():
            level.pace = ProcessPace(level.rate)
            level.places = None
        for lane in self._lanes.values():
            lane.places = None

    def _level(self, key: str, policy: Policy, now: float) -> Level:
        own = policy.coordination == "process"
        level = self._levels.get((key, own))
        if level is None:
            # The budget is made full; the policy of the first caller says how much that is.
            full, rate = budget.fresh(policy.retry_budget_burst), law.fresh(now)
            pace = self._sharing.pace(rate, key, policy, now)
            line: Line[Lane] = Line(self.lines)
            level = self._levels[key, own] = Level(key=key, rate=rate, pace=pace, budget=full, own=own, line=line)
        elif policy.coordination == "cluster":
            self._sharing.widen(level.pace, policy)
        level.users += 1
        return level

    def _evict(self, now: float) -> None:
        """Forget a sixteenth of the lanes at once, so that a long walk does not pay a scan for each prefix."""
        some = 1 + self._limit // 16
        self._last = None
        gone = [key for key, lane in self._lanes.items() if lane.idle(now)]
        if not gone and len(self._lanes) >= 2 * self._limit:
            gone = [key for key, lane in self._lanes.items() if not lane.busy()]
        for key in gone[:some]:
            lane = self._lanes.pop(key)
            if lane in lane.kin:
                lane.kin.remove(lane)
            for level in lane.levels:
                level.users -= 1
                if not level.users:
                    level.pace.close()
                    del self._levels[level.key, level.own]
        # Where nothing could go, the next scan is a while off too.
        self._evict_above = max(self._limit, len(self._lanes) + (0 if gone else some))


def _kind(policy: Policy) -> tuple[int, str, float, int | None]:
    """Return what policies must have in common to share a lane.

    With whom a policy shares its limits and does not say is "node", where that works.
    """
    return policy.max_concurrency, policy.coordination or "node", policy.weight, policy.max_concurrency_node
