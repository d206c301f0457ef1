"""One who steps records: a process or a machine. It asks and charges every level of a scope path, as the gate does."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from resilient_io.control import charging, opening
from resilient_io.control import law as law_of
from resilient_io.control.blame import Blame, give_back
from resilient_io.control.charging import Outcome
from resilient_io.control.evidence import Family
from resilient_io.control.law import Constants, Record
from resilient_io.control.line import Line, Place
from resilient_io.control.scopes import ScopePath

# The gate forgets the lane of a hot blob whose limit nobody has met for so long.
_STALE_S: Final = 300.0

Waiting = TypeVar("Waiting")


class Level:
    """The record of one level, stepped by a law."""

    __slots__ = ("below", "blame", "law", "line", "rec")

    def __init__(self, rec: Record, law: Constants, line: Line[Lane[Any]]) -> None:
        self.rec, self.law, self.line = rec, law, line
        self.below: Family = OrderedDict()
        self.blame: Blame | None = None

    def is_limited(self) -> bool:
        """Say whether requests may have to wait for it."""
        return self.rec[law_of.LIMITED] != 0.0

    def ready_at(self, now: float, weight: float) -> float:
        """Return when the next request may leave as far as this level goes; a machine has one queue for all of it."""
        return law_of.ready_at(self.rec, now, self.law)

    @property
    def rate(self) -> Record:
        """The record, by the name that the gate has for it."""
        return self.rec

    def on_refusal(self, now: float, sent_at: float, u: float) -> None:
        """Count a refusal."""
        law_of.on_refusal(self.rec, now, sent_at, u, self.law)

    def on_suspected(self, now: float, sent_at: float, u: float) -> None:
        """Count an answer that may speak of load."""
        law_of.on_suspected(self.rec, now, sent_at, u, self.law)

    def on_dropped(self, now: float) -> None:
        """Count a request of which nothing was learnt."""
        law_of.on_dropped(self.rec, now)


@dataclass(slots=True, eq=False)
class Lane(Generic[Waiting]):
    """Those who wait for one scope; retries go before new ones."""

    client: Client[Waiting]
    path: ScopePath
    levels: tuple[Level, ...]
    new: deque[Waiting] = field(default_factory=deque)
    again: deque[Waiting] = field(default_factory=deque)
    wake_at: float = -1.0
    in_flight: int = 0
    most: float = math.inf
    """In flight at present; it is held back for a moment at first (`control.opening`)."""
    made_at: float = 0.0
    place: Place[Lane[Waiting]] = field(init=False)
    """Where it stands while levels are limited."""

    def __post_init__(self) -> None:
        self.place = Place(self, self.levels)

    @property
    def leaf(self) -> Record:
        """The record of the narrowest level."""
        return self.levels[-1].rec

    def held_until(self, now: float) -> float:
        """Return when one may go as far as this lane goes, whatever others do; an answer may come before."""
        return self._open_at(now) if self.in_flight >= self.most else now

    def _open_at(self, now: float) -> float:
        """Return when more than `most` may go."""
        if now < self.made_at + opening.FOR_S:
            return self.made_at + opening.FOR_S
        self.most = math.inf
        return now

    def on_send(self, now: float, u: float) -> None:
        """Count a request that leaves now."""
        self.in_flight += 1
        for level in self.levels:
            law_of.on_send(level.rec, now, u, level.law)

    def on_served(self, now: float, sent_at: float, blob: str) -> None:
        """Let every level learn of a success."""
        self.in_flight -= 1
        self.most += opening.GAIN
        backlog = bool(self.again or self.new)
        charging.note_success(self.levels, self.path, blob, now)
        for level in self.levels:
            law_of.on_success(level.rec, now, sent_at, backlog=backlog, law=level.law)
        if blob:
            self._clear(now)
            hot = self.client.hot(self.path.of_blob(blob)) if not self.path.blob else None
            if hot is not None:  # it was found to be hot after this request had left
                law_of.on_success(hot.rec, now, sent_at, backlog=False, law=hot.law)

    def on_refused(self, now: float, sent_at: float, u: float, said: str | None, blob: str) -> None:
        """Charge one level with a refusal."""
        self.in_flight -= 1
        charged = self._charged(said, blob, now)
        charging.settle_failed(self.levels, charged, Outcome.REFUSED, now, sent_at, u)

    def _charged(self, said: str | None, blob: str, now: float) -> Level:
        path, levels = self.path, self.levels
        index = charging.whose(levels, path, said, Outcome.REFUSED, blob, now)
        if index < len(levels):
            return levels[index]
        hot = self.client.lane(path.of_blob(blob), now).levels[-1]
        charging.begin_hot(hot.rec, self._prefix, blob, now)
        self._clear(now)
        return hot

    @property
    def _prefix(self) -> Level:
        return self.levels[-2 if self.path.blob else -1]

    def _clear(self, now: float) -> None:
        """Open a prefix that was charged with what only a hot blob of it was refused."""
        if charging.is_cleared(self._prefix, now):
            give_back(self._prefix.rec)


class Client(Generic[Waiting]):
    """The levels and lanes of one who steps records."""

    def __init__(self, law: Constants, share: float | None, members: float, *, whole_path: bool) -> None:
        """Know nothing yet. `whole_path`: admission asks all levels; else the prefix alone, which is quicker."""
        self._law, self._share, self._whole_path = law, share, whole_path
        # Each process has a window of its own; they are simulated as one.
        self._opening = members * opening.window((share or 0.0) / members)
        self._levels: dict[str, Level] = {}
        self._lanes: dict[ScopePath, Lane[Waiting]] = {}
        self.lines: set[Line[Lane[Any]]] = set()

    def lane(self, path: ScopePath, now: float = 0.0) -> Lane[Waiting]:
        """Return the lane of a path, made if it is not there."""
        lane = self._lanes.get(path)
        if lane is None:
            keys = path.levels() if self._whole_path else path.levels()[-1:]
            levels = tuple(self._level(key) for key in keys)
            lane = self._lanes[path] = Lane(self, path, levels, most=self._opening, made_at=now)
        return lane

    def lane_of(self, path: ScopePath, blob: str, now: float) -> Lane[Waiting]:
        """Return the lane of the blob if it is known to be hot, else that of the path."""
        hot = self._lanes.get(path.of_blob(blob)) if blob else None
        if hot is None or not law_of.is_limited(hot.leaf) or now - hot.leaf[law_of.REFUSED_AT] > _STALE_S:
            return self.lane(path, now)
        return hot

    def hot(self, path: ScopePath) -> Level | None:
        """Return the level of a blob that was found to be hot."""
        lane = self._lanes.get(path)
        return None if lane is None else lane.levels[-1]

    def limited(self) -> list[str]:
        """Return the keys of the levels that are limited, in the order in which they were first used."""
        return [key for key, level in self._levels.items() if law_of.is_limited(level.rec)]

    def _level(self, key: str) -> Level:
        level = self._levels.get(key)
        if level is None:
            rec = law_of.fresh(0.0)
            rec[law_of.SHARE] = self._share or 0.0
            level = self._levels[key] = Level(rec, self._law, Line(self.lines))
        return level
