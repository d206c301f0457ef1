"""The scopes of this process: what is in flight, who waits, and the records that are stepped."""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from resilient_io.control import budget, law
from resilient_io.control.evidence import Blobs
from resilient_io.control.scopes import ScopePath
from resilient_io.coordinate.pace import Pace, ProcessPace
from resilient_io.coordinate.sharing import ProcessSharing, Sharing
from resilient_io.policy import Policy

if TYPE_CHECKING:
    from resilient_io.drive.gate import Outcome, Permit

# A lane with its level is about 2 KB; a job that walks a million prefixes must not keep them all.
MAX_LANES: Final = 8_192
# A limit that nobody has met for so long is worth no more than what a fresh start learns.
_STALE_S: Final = 300.0
# Seconds of a given rate that may be saved up: a thread that wakes a little late must not lose its turn.
_GIVEN_BURST_S: Final = 0.02


class Waiter(Protocol):
    """One caller that waits in a lane."""

    policy: Policy
    blob: str
    permit: Permit | None
    queued_at: float
    alarm_at: float

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
    suspected: int = 0
    dropped: int = 0
    waited: int = 0
    waited_s: float = 0.0
    peak_in_flight: int = 0

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
    """One level of a scope path in this process: its rate record and what steps it, its retry budget and lanes."""

    key: str
    rate: MutableSequence[float]
    pace: Pace
    budget: MutableSequence[float]
    tally: Tally = field(default_factory=Tally)
    own: bool = False
    in_flight: int = 0
    users: int = 0
    blobs: Blobs = field(default_factory=OrderedDict)
    given: MutableSequence[float] = field(default_factory=lambda: [1.0, 0.0])


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """Callers of one scope whose policies have the same `max_concurrency`: one semaphore, one queue.

    Policies that meet on a scope share its rate but each keeps its own cap, so the count is here
    and the rate record at the level.
    """

    path: ScopePath
    cap: int
    levels: tuple[Level, ...]
    open: dict[int, weakref.ref[Permit]] = field(default_factory=dict)
    waiting: deque[Waiter] = field(default_factory=deque)
    kin: list[Lane] = field(default_factory=list)
    """Lanes with the same semaphore: those of the hot blobs of a prefix, and the prefix's."""

    @property
    def in_flight(self) -> int:
        """How many permits are out."""
        return len(self.open)

    @property
    def leaf(self) -> Level:
        """The narrowest level, whose semaphore this is."""
        return self.levels[-1]

    def busy(self) -> bool:
        """Say whether somebody has a permit of this lane or waits for one."""
        return bool(self.open or self.waiting)

    def idle(self, now: float) -> bool:
        """Say whether next to nothing would be lost if this lane were forgotten."""
        if self.waiting or (self.open and not self.path.blob):
            return False
        rate = self.leaf.rate
        return not law.is_limited(rate) or now - rate[law.REFUSED_AT] > _STALE_S

    def ready_at(self, now: float, given_per_s: float | None) -> float:
        """Return when the next request may leave as far as the rates of all levels go."""
        ready = now
        for level in self.levels:
            at = level.pace.ready_at(now)
            if at > ready:
                ready = at
        return ready if given_per_s is None else max(ready, _given_ready_at(self.leaf.given, now, given_per_s))


class ScopeTable:
    """The lanes and levels of this process, the least recently used idle ones forgotten first.

    Not thread-safe: the gate's lock guards it. Holds `limit` lanes; more (up to twice as many) only
    while those are limited, and beyond that only while they are busy.
    """

    __slots__ = ("_evict_above", "_lanes", "_levels", "_limit", "_sharing")

    def __init__(self, limit: int = MAX_LANES, sharing: Sharing | None = None) -> None:
        self._limit = self._evict_above = limit
        self._sharing = sharing or ProcessSharing()
        self._levels: dict[tuple[str, bool], Level] = {}
        self._lanes: OrderedDict[tuple[ScopePath, int, str], Lane] = OrderedDict()

    def lane(self, path: ScopePath, policy: Policy, now: float) -> Lane:
        """Return the lane of this path and of the policy's cap and coordination, made if it is not there."""
        key = (path, policy.max_concurrency, _reach(policy))
        lane = self._lanes.get(key)
        if lane is not None:
            self._lanes.move_to_end(key)
            return lane
        if len(self._lanes) >= self._evict_above:
            self._evict(now)
        levels = tuple(self._level(level, policy, now) for level in path.levels())
        lane = self._lanes[key] = Lane(path=path, cap=policy.max_concurrency, levels=levels)
        if path.blob:
            self._join(lane, self.lane(path.of_blob(""), policy, now))
        return lane

    def narrowed(self, path: ScopePath, blob: str, policy: Policy, now: float) -> ScopePath:
        """Return the path of the blob if it is known to be hot, else `path`."""
        cap, reach = policy.max_concurrency, _reach(policy)
        prefix = self._lanes.get((path, cap, reach))
        if prefix is None or not prefix.kin:
            return path  # as nearly always; a path for each blob would cost its making, and crowd the cache
        hot = path.of_blob(blob)
        lane = self._lanes.get((hot, cap, reach))
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

    def levels(self) -> list[Level]:
        """Return all levels, in the order in which they were first used."""
        return list(self._levels.values())

    def isolate(self) -> None:
        """Let no level of this table touch what is shared any more: it was left over by a fork."""
        for level in self._levels.values():
            level.pace = ProcessPace(level.rate)

    def _level(self, key: str, policy: Policy, now: float) -> Level:
        own = policy.coordination == "process"
        level = self._levels.get((key, own))
        if level is None:
            # The budget is made full; the policy of the first caller says how much that is.
            full, rate = budget.fresh(policy.retry_budget_burst), law.fresh(now)
            pace = self._sharing.pace(rate, key, policy, now)
            level = self._levels[key, own] = Level(key=key, rate=rate, pace=pace, budget=full, own=own)
        elif policy.coordination == "cluster":
            self._sharing.widen(level.pace, policy)
        level.users += 1
        return level

    def _evict(self, now: float) -> None:
        """Forget a sixteenth of the lanes at once, so that a long walk does not pay a scan for each prefix."""
        some = 1 + self._limit // 16
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


def _reach(policy: Policy) -> str:
    """Return with whom a policy shares its limits; what is not said is "node", where that works."""
    return policy.coordination or "node"


def _given_ready_at(rec: MutableSequence[float], now: float, per_s: float) -> float:
    """Return when a bucket of `per_s` requests a second has its next token.

    It holds what `_GIVEN_BURST_S` bring, and at least one.
    """
    rec[0] = min(max(1.0, per_s * _GIVEN_BURST_S), rec[0] + max(0.0, now - rec[1]) * per_s)
    rec[1] = now
    return now if rec[0] >= 1.0 - 1e-9 else now + (1.0 - rec[0]) / per_s
