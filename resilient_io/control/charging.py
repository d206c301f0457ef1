"""Which level of a scope path an answer is charged to, and what each level learns of it.

A success teaches every level. A failure is charged to one level, never to two: all would be cut for one limit. The
gate and the simulation both ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol

from resilient_io.control import evidence
from resilient_io.control.blame import Blame
from resilient_io.control.evidence import Family, Whose
from resilient_io.control.law_record import BEGAN_AT, COUNT, IN_FLIGHT, LIMITED, Record
from resilient_io.control.scopes import ScopePath


class Outcome(str, Enum):
    """What an answered or lost request says of the load."""

    SUCCEEDED = "succeeded"
    REFUSED = "refused"
    SUSPECTED = "suspected"
    DROPPED = "dropped"


class Steps(Protocol):
    """The rate of one level, as far as a failed request steps it."""

    def on_refusal(self, now: float, sent_at: float, u: float) -> None:
        """Count a refusal."""

    def on_suspected(self, now: float, sent_at: float, u: float) -> None:
        """Count an answer that may speak of load."""

    def on_dropped(self, now: float) -> None:
        """Count a request of which nothing was learnt."""


class Place(Protocol):
    """One level of a path: its record, and what is known of those below it."""

    @property
    def rate(self) -> Record:
        """The record of its rate."""

    @property
    def below(self) -> Family:
        """What became of the requests of its members."""

    blame: Blame | None
    """What it was charged with on account of its members since it is limited."""


def note_success(levels: Sequence[Place], path: ScopePath, blob: str, now: float, answers: int = 1) -> None:
    """Note in each family on the path that its member was served."""
    for above, name in _families(levels, path, blob):
        evidence.note(above.below, name, now, refused=False, answers=answers)


def whose(levels: Sequence[Place], path: ScopePath, said: str | None, outcome: Outcome, blob: str, now: float) -> int:
    """Return the index in `levels` of the one to charge; one past the last is the blob's own, not made yet.

    `levels` are those of the path, maybe without the broadest. `said` is whose limit the service named ("account"),
    None if it named none: then a refusal is noted, and goes as far up as the others of each family say. `blob` is ""
    where objects have no limits of their own.
    """
    if outcome is not Outcome.REFUSED or said is not None:
        return max(0, path.index_of(said) - len(path.levels()) + len(levels))
    for above, name in _families(levels, path, blob):
        evidence.note(above.below, name, now, refused=True)
    prefix = _prefix(levels, path)
    if blob and _is_the_blob_s(levels[prefix], path, blob, now):
        return prefix + 1
    index = _climbed(levels, path, prefix, now)
    if blob and index == prefix:
        _blame(levels[prefix], blob)
    return index


def _is_the_blob_s(prefix: Place, path: ScopePath, blob: str, now: float) -> bool:
    """Say whether a blob is hot; one that is known to be stays so until several others are refused too."""
    if path.blob and evidence.whose(prefix.below, blob, now) is not Whose.FAMILY:
        return True
    return evidence.is_the_blob_s(prefix.below, blob, now)


def _blame(prefix: Place, blob: str) -> None:
    if prefix.blame is None or prefix.rate[LIMITED] == 0.0:
        prefix.blame = Blame()
    prefix.blame.add(blob)


def is_cleared(prefix: Place, now: float) -> bool:
    """Say whether what limits a prefix has turned out to be the limits of blobs in it: then it is to be opened.

    To be asked when another blob was served, and when one was found to be hot; says so once.
    """
    blame = prefix.blame
    if blame is None or now < blame.look_at or not blame.is_of_hot_ones(prefix.below, now):
        return False
    prefix.blame = None
    return True


def _prefix(levels: Sequence[Place], path: ScopePath) -> int:
    return len(levels) - (2 if path.blob else 1)


def _families(levels: Sequence[Place], path: ScopePath, blob: str) -> Iterable[tuple[Place, str]]:
    """Yield each level that has one below it on the path, and the name of that one."""
    prefix, keys = _prefix(levels, path), path.levels()
    left_out = len(keys) - len(levels)
    for at in range(prefix):
        yield levels[at], keys[left_out + at + 1]
    if blob:
        yield levels[prefix], blob


def _climbed(levels: Sequence[Place], path: ScopePath, at: int, now: float) -> int:
    """Return the level whose limit was met, from that at `at` upwards: a limit above that is known stands for more."""
    keys = path.levels()[-len(levels) :]
    while at > 0:
        above = levels[at - 1]
        verdict = evidence.whose(above.below, keys[at], now)
        if verdict is Whose.MEMBER or (verdict is Whose.UNSURE and above.rate[LIMITED] == 0.0):
            return at
        at -= 1
    return at


def begin_hot(rate: Record, prefix: Place, blob: str, now: float) -> None:
    """Tell the record of a blob that has just been found to be hot what came through, and is in flight.

    It was no level so far. Of what the prefix has in flight the blob is taken to have its part; the answers to that are
    to be told to its level too.
    """
    seen = prefix.below[blob]
    if rate[LIMITED] == 0.0:
        asked = sum(one.asked for one in prefix.below.values())
        rate[COUNT], rate[BEGAN_AT] = seen.per_s(now), now - 1.0
        rate[IN_FLIGHT] = max(rate[IN_FLIGHT], round(prefix.rate[IN_FLIGHT] * seen.asked / asked))


def settle_failed(
    levels: Iterable[Steps], charged: Steps, outcome: Outcome, now: float, sent_at: float, u: float
) -> None:
    """Charge one level with what went wrong; the others only count that the request is over."""
    asked = False
    for level in levels:
        if level is charged:
            asked = True
            _charge(level, outcome, now, sent_at, u)
        else:
            level.on_dropped(now)
    if not asked:  # a blob that has just been found to be hot
        _charge(charged, outcome, now, sent_at, u)


def _charge(level: Steps, outcome: Outcome, now: float, sent_at: float, u: float) -> None:
    match outcome:
        case Outcome.REFUSED:
            level.on_refusal(now, sent_at, u)
        case Outcome.SUSPECTED:
            level.on_suspected(now, sent_at, u)
        case _:
            level.on_dropped(now)
