"""Which level of a scope path an answer is charged to, and what each level learns of it.

A success teaches every level. A failure is charged to one level, never to two: all would be cut for one limit. The
gate and the simulation both ask here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from resilient_io.control import evidence
from resilient_io.control.evidence import Blobs, Seen
from resilient_io.control.law_record import BEGAN_AT, COUNT, LIMITED, Record
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


def whose(path: ScopePath, said: str | None, outcome: Outcome, blobs: Blobs, blob: str, now: float) -> int:
    """Return the index in `path.levels()` of the level to charge; one past the last is the blob's own, not made yet.

    `said` is whose limit the service named ("account"), None if it named none. `blob` is "" where objects have no
    limits of their own; else `blobs` are those of the prefix, where the answer has been noted.
    """
    if not blob or outcome is not Outcome.REFUSED or said is not None:
        return path.index_of(said)
    prefix = path.index_of(None) - (1 if path.blob else 0)
    return prefix + 1 if evidence.is_the_blob_s(blobs, blob, now) else prefix


def begin_hot(rate: Record, seen: Seen, now: float) -> None:
    """Tell the record of a blob that has just been found to be hot what came through: it was no level so far."""
    if rate[LIMITED] == 0.0:
        rate[COUNT], rate[BEGAN_AT] = seen.per_s(now), now - 1.0


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
