"""Lines: in which order those go who wait for the same limit.

Callers of one scope with policies of one kind queue in one *place*. While levels of its path are limited, the place
stands in the line of the narrowest one, and there with the one who has waited longest of it: its first caller. Who is
first in a line goes as far as that level goes, then stands in the line of the next limited level above; nobody passes
the same level meanwhile. So nobody who could not go yet holds others up, and a step costs the same, however many wait:
only those who are first are ever asked.

Retries go before those who have not sent, and then whoever waits longest. Between kinds of policies turns go by weight:
start-time fair queueing (Goyal, Vin, Cheng 1996), which gives those that always wait their share, whatever each asks
for, and those that wait at times nothing for the past.

The gate and the simulation both step these lines. An interrupt may strike between any two steps: each can be done
twice, and what is half done is put right when the place is stepped again.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

Owner = TypeVar("Owner")
OwnerAsked = TypeVar("OwnerAsked", contravariant=True)

Rank = tuple[bool, float]
"""Of a caller: False for a retry, and since when it waits; the least goes first."""

# Kinds of policies that a line remembers although none of them waits.
_KINDS: Final = 8


class Stage(Protocol[Owner]):
    """A level that may be limited."""

    @property
    def line(self) -> Line[Owner]:
        """Who waits for it."""

    def is_limited(self) -> bool:
        """Say whether requests may have to wait for it."""

    def ready_at(self, now: float, weight: float) -> float:
        """Return when the next request may leave as far as this level goes; `weight` is that of the one who asks."""


class Server(Protocol[OwnerAsked]):
    """What lets callers go, and wakes them."""

    def rank(self, owner: OwnerAsked, now: float) -> Rank | None:
        """Return the rank of the first caller of a place; None if none waits, or none may go whatever others do."""

    def send(self, owner: OwnerAsked, now: float) -> None:
        """Let the first caller of a place go."""

    def arm(self, owner: OwnerAsked, at: float) -> bool:
        """See that the first caller of a place asks again at `at`; False if it is gone, and taken out."""


class Place(Generic[Owner]):
    """Where the callers of one queue, the owner, stand. Not thread-safe."""

    __slots__ = ("kind", "owner", "spot", "stages", "weight")

    def __init__(
        self, owner: Owner, stages: Sequence[Stage[Owner]], kind: Hashable = None, weight: float = 1.0
    ) -> None:
        """Stand nowhere. `stages` are the levels from broad to narrow; places of one kind go by their age alone."""
        self.owner, self.stages, self.kind, self.weight = owner, tuple(stages), kind, weight
        self.spot: _Spot[Owner] | None = None

    def leave(self) -> None:
        """Stand in no line any more."""
        spot = self.spot
        if spot is None:
            return
        entries = spot.entries
        at = bisect_left(entries, spot.entry)
        if at < len(entries) and entries[at] is spot.entry:
            del entries[at]
        self.spot = None


_Entry = tuple[bool, float, int, Place[Owner]]


class _Spot(Generic[Owner]):
    __slots__ = ("entries", "entry", "line")

    def __init__(self, line: Line[Owner], entries: list[_Entry[Owner]], entry: _Entry[Owner]) -> None:
        self.line, self.entries, self.entry = line, entries, entry


class _Kind(Generic[Owner]):
    """The places of one kind in a line, in their order, and what they had of it: turns divided by their weight."""

    __slots__ = ("entries", "had")

    def __init__(self) -> None:
        self.entries: list[_Entry[Owner]] = []
        self.had = 0.0


class Line(Generic[Owner]):
    """Who waits for one level. Not thread-safe."""

    __slots__ = ("_had", "_kinds", "_numbers", "_used", "is_used", "passed")

    def __init__(self, used: set[Line[Owner]]) -> None:
        """Begin with nobody. `used` is kept to hold all lines in which somebody stands, and maybe more."""
        self._used = used
        self._kinds: dict[Hashable, _Kind[Owner]] = {}
        self._numbers = itertools.count()
        self._had = 0.0
        self.is_used = False
        self.passed: Place[Owner] | None = None

    def put(self, place: Place[Owner], rank: Rank) -> None:
        """Let a place stand here, and nowhere else."""
        spot = place.spot
        if spot is not None and spot.line is self and spot.entry[:2] == rank:
            return
        self.is_used = True
        self._used.add(self)
        kind = self._kinds.get(place.kind) or self._new_kind(place.kind)
        if not kind.entries:
            kind.had = max(kind.had, self._had)  # what it did not ask for before gives it no right now
        entry = (*rank, next(self._numbers), place)
        insort(kind.entries, entry)
        place.leave()
        place.spot = _Spot(self, kind.entries, entry)

    def _new_kind(self, name: Hashable) -> _Kind[Owner]:
        if len(self._kinds) >= _KINDS:
            for old in [old for old, kind in self._kinds.items() if not kind.entries and kind.had <= self._had]:
                del self._kinds[old]
        kind = self._kinds[name] = _Kind()
        return kind

    def first(self) -> Place[Owner] | None:
        """Return whose turn it is; None if nobody stands here."""
        while True:
            waiting = [kind for kind in self._kinds.values() if kind.entries]
            if not waiting:
                self.is_used = False
                self._used.discard(self)
                return None
            kind = waiting[0] if len(waiting) == 1 else min(waiting, key=lambda one: (one.had, one.entries[0][:3]))
            entry = kind.entries[0]
            spot = entry[3].spot
            if spot is not None and spot.entry is entry:
                return entry[3]
            del kind.entries[0]  # left behind by an interrupt

    def has_only(self, place: Place[Owner]) -> bool:
        """Say whether nobody but this place stands here."""
        spot = place.spot
        if spot is None or spot.line is not self or len(spot.entries) != 1 or spot.entries[0] is not spot.entry:
            return False
        return len(self._kinds) == 1 or sum(len(kind.entries) for kind in self._kinds.values()) == 1

    def is_held(self) -> bool:
        """Say whether one that has passed this level stands further up."""
        place = self.passed
        if place is None:
            return False
        if place.spot is not None and place.spot.line is not self:
            return True
        self.passed = None
        return False

    def count(self, place: Place[Owner]) -> None:
        """Count a turn that was had of this level."""
        kind = self._kinds.get(place.kind)
        if kind is not None:
            self._had = max(self._had, kind.had)
            kind.had += 1.0 / place.weight


def is_behind(place: Place[Owner]) -> bool:
    """Say whether others wait for a limited level of this place."""
    return any(stage.line.is_used and stage.is_limited() for stage in place.stages)


def pump(place: Place[Owner], now: float, server: Server[Owner]) -> None:
    """Let go who may: of this place, and of those that wait with it for a level; see that the next ones ask again."""
    only = _only(place)
    if only is not None:
        _pump_alone(place, only, now, server)
        return
    _line_up(place, now, server)
    for stage in reversed(place.stages):
        if stage.line.is_used:
            _serve(stage, now, server)


def _only(place: Place[Owner]) -> Stage[Owner] | None:
    """Return the one level that is limited, if nobody else waits for any."""
    found = None
    for stage in place.stages:
        line = stage.line
        if line.is_used and not line.has_only(place):
            return None
        if stage.is_limited():
            if found is not None:
                return None
            found = stage
    return found


def _pump_alone(place: Place[Owner], stage: Stage[Owner], now: float, server: Server[Owner]) -> None:
    """Do what `pump` does for one limited level with one place, as it is nearly always; in half of the time."""
    while (rank := server.rank(place.owner, now)) is not None:
        ready = stage.ready_at(now, place.weight)
        if ready <= now:
            server.send(place.owner, now)
            stage.line.count(place)
        elif server.arm(place.owner, ready):
            stage.line.put(place, rank)
            return
    place.leave()
    if stage.line.is_used:
        stage.line.first()


def _line_up(place: Place[Owner], now: float, server: Server[Owner]) -> None:
    """Let a place stand where it next has to wait; while nothing is limited its callers go."""
    while (rank := server.rank(place.owner, now)) is not None:
        stage = _next(place)
        if stage is not None:
            stage.line.put(place, rank)
            return
        _go(place, now, server)
    place.leave()


def _next(place: Place[Owner]) -> Stage[Owner] | None:
    """Return the narrowest limited level that this place has not passed."""
    for stage in reversed(place.stages):
        if stage.line.passed is not place and stage.is_limited():
            return stage
    return None


def _go(place: Place[Owner], now: float, server: Server[Owner]) -> None:
    server.send(place.owner, now)
    for stage in place.stages:
        stage.line.count(place)
    _forget_passes(place)


def _forget_passes(place: Place[Owner]) -> None:
    for stage in place.stages:
        if stage.line.passed is place:
            stage.line.passed = None


def _serve(stage: Stage[Owner], now: float, server: Server[Owner]) -> None:
    """Let those who stand in a line go on in their order, until its level is not ready for the next one."""
    line = stage.line
    while not line.is_held():
        place = line.first()
        if place is None:
            return
        rank = server.rank(place.owner, now)
        if rank is None:
            place.leave()
            continue
        if _next(place) is stage:
            ready = stage.ready_at(now, place.weight)
            if ready > now:
                if server.arm(place.owner, ready):
                    return
                continue
            line.passed = place
        _step_on(place, stage, rank, now, server)


def _step_on(place: Place[Owner], stage: Stage[Owner], rank: Rank, now: float, server: Server[Owner]) -> None:
    """Let the first of a line go to where it next has to wait, and those after it in the levels below follow."""
    following = _next(place)
    if following is None:
        _go(place, now, server)
        place.leave()  # or one of the same instant would keep its place
        _line_up(place, now, server)
    else:
        if place.stages.index(following) > place.stages.index(stage):  # limited since
            _forget_passes(place)
        following.line.put(place, rank)
    for below in reversed(place.stages[place.stages.index(stage) + 1 :]):
        if below.line.is_used:
            _serve(below, now, server)
