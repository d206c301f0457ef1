"""How the nodes of a cluster divide a limit: each keeps its own record and law, and moves towards its fair part.

A *node* is all that step one record: the processes of a machine. Now and then each says what it has (`Entry`) to a
hub, and hears the sum of what the others said (`Sums`). From that it moves its RATE, and learns its SHARE:
part      what the nodes together may send, less what those need that do not use theirs, divided by the processes of
          those that do. So all get the same while all are busy, and busy ones get what idle ones leave
transfer  who has more than its part leaves some of that in a *pot* at the hub, who has less takes it from there, so
          that the sum stays as it is however the nodes take turns; each node's law alone makes it grow or shrink
entry     who hears that others are limited becomes limited too, and begins with what it got so far, not with a storm
release   the last refusal of any node counts for all, so that none opens while another is at the ceiling
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from resilient_io.control import joining
from resilient_io.control.law_record import (
    ASSUMED,
    CHALLENGE,
    CHECKS,
    ENTERED_AT,
    ENTERING,
    ENTRY_DEMAND,
    ENTRY_OTHERS,
    ENTRY_RATE,
    ENTRY_SENT_AT,
    FLOOR,
    IN_FLIGHT,
    LAW,
    LIMITED,
    OUTAGE,
    RATE,
    RECOVERING,
    REFUSED_AT,
    SHARE,
    SLOW_START,
    TOKENS,
    TOKENS_AT,
    WEAK,
    YOUNG,
    Record,
    delivered_per_s,
    fresh,
)

# Longer ago than any refusal that matters; finite, so that it can be sent as a number.
LONG_AGO_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The numbers of the division; docs/how-to/cluster.md says what they lead to."""

    gain: float = 0.5  # of the way to its part that a node goes at each exchange
    rise: float = 3.0  # most that a rate is multiplied with at once: one lie in the hub must not make a storm
    rise_by: float = 2.0  # requests per second that may be added to that
    used: float = 0.9  # share of its rate that came through, from which a node could use more
    spare: float = 1.25  # what a node that could not keeps, relative to what came through,
    spare_by: float = 1.0  # and requests per second beside that
    had_share: float = 0.9  # of what came through of late is divided at least; some of it was saved up
    proven_s: float = 20.0  # how long "of late" is,
    refused_keeps: float = 0.5  # and what of the difference is left by a refusal
    quiet_s: float = 0.7  # and that only if nobody was refused for so long
    full: float = 1.1  # times what came through of late is what all may have together while some are refused
    alone_share: float = 0.2  # of the cluster's processes, from which a node's dips tell chance from load
    heard_s: float = 20.0  # how old a refusal of another node may be to limit one that was not refused itself
    heard_share: float = 0.9  # of what came through is where such a node begins

    pause_s: float = 0.5  # between two exchanges of a node
    pause_nodes: float = 128.0  # up to so many; more wait longer in proportion, so that the hub has no more to do


SPLIT: Final = Split()


class Entry(NamedTuple):
    """What a node says of a level. Rates are requests per second."""

    rate: float
    """Its rate, if it is settled, else 0."""
    wanting: float
    """The weights of its processes, added up, if it is settled and could use more, else 0."""
    need: float
    """What it needs, if it is settled and could not use more, else 0."""
    settled: float
    """Its processes, if it is limited and no entry, test or outage is under way, else 0."""
    members: float
    """Its processes."""
    came: float
    """The most that came through in a second of late (`proven`), if it is settled, else 0."""
    refused_ago_s: float
    """Seconds since its last refusal; LONG_AGO_S or more for none."""
    gain: float
    """Of the way to its part that it goes now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What the other nodes of a level say, added up; the refusal is the latest of all. And what this one is given."""

    nodes: float = 0.0
    rate: float = 0.0
    wanting: float = 0.0
    need: float = 0.0
    settled: float = 0.0
    members: float = 0.0
    came: float = 0.0
    refused_ago_s: float = LONG_AGO_S
    given: float = 0.0
    """Requests per second that the node takes from the pot; below 0 what it leaves there."""


def sums_of(entries: Iterable[Entry]) -> Sums:
    """Add entries up."""
    kept = list(entries)
    rate, wanting, need, settled, members, came = (math.fsum(entry[at] for entry in kept) for at in range(6))
    return Sums(
        nodes=float(len(kept)),
        rate=rate,
        wanting=wanting,
        need=need,
        settled=settled,
        members=members,
        came=came,
        refused_ago_s=min((entry.refused_ago_s for entry in kept), default=LONG_AGO_S),
    )


def is_settled(rec: Record) -> bool:
    """Say whether RATE is what the law has learnt, and not what it is trying out."""
    if rec[LIMITED] == 0.0:
        return False
    return not any(rec[index] for index in (ENTERING, CHECKS, OUTAGE, CHALLENGE, RECOVERING))


def is_held_back(rec: Record, now: float) -> bool:
    """Say whether a process waits: those who do have taken their tokens in advance (`turns`)."""
    return rec[TOKENS] + max(0.0, now - rec[TOKENS_AT]) * rec[RATE] < -0.05


def gain_after(elapsed_s: float, split: Split = SPLIT) -> float:
    """Return how far a node goes that last went `elapsed_s` ago: one that exchanges more often goes no faster."""
    return split.gain * min(1.0, max(0.0, elapsed_s) / split.pause_s)


def proven(rec: Record, now: float, before: float, before_at: float, split: Split = SPLIT) -> float:
    """Return what is known to come through: what did in the last second, or what was known at `before_at`, which fades.

    A refusal since then makes it fade at once, half of the way: what comes through beside it is all there is.
    """
    came = delivered_per_s(rec, now)
    kept = before * math.exp(min(0.0, before_at - now) / split.proven_s)
    if before_at < rec[REFUSED_AT] <= now and rec[LIMITED] != 0.0:
        kept = came + split.refused_keeps * (kept - came)
    return max(came, kept)


def entry_of(
    rec: Record,
    now: float,
    members: float,
    backlog: bool,
    *,
    had: float = 0.0,
    gain: float = SPLIT.gain,
    weight: float = 1.0,
    split: Split = SPLIT,
) -> Entry:
    """Return what a node of `members` processes of this `weight` on average says.

    `backlog`: callers wait for admission; `had`: see `proven`.
    """
    limited = rec[LIMITED] != 0.0
    ago_s = min(LONG_AGO_S, max(0.0, now - rec[REFUSED_AT])) if limited else LONG_AGO_S
    if not is_settled(rec):
        return Entry(0.0, 0.0, 0.0, 0.0, members, 0.0, ago_s, gain)
    rate, came = rec[RATE], delivered_per_s(rec, now)
    if backlog or came >= split.used * rate:
        return Entry(rate, members * weight, 0.0, members, members, max(had, came), ago_s, gain)
    need = min(rate, split.spare * came + split.spare_by)
    return Entry(rate, 0.0, need, members, members, max(had, came), ago_s, gain)


def transfer(mine: Entry, others: Sums, pot: float, split: Split = SPLIT) -> float:
    """Return what a node takes from the pot, or leaves there (below 0). The hub does this sum: it has the pot.

    Without others there is nothing to divide; and what nobody could use is no one's to give away, or a pause of a whole
    job would cost it what it learnt.
    """
    wanting = mine.wanting + others.wanting
    if mine.settled == 0.0 or others.settled == 0.0 or wanting <= 0.0:
        return 0.0
    part = mine.need
    if mine.wanting:
        part = max(0.0, mine.rate + others.rate + pot - others.need) * mine.wanting / wanting
    most = min(pot, (split.rise - 1.0) * mine.rate + split.rise_by)
    return min(most, mine.gain * (part - mine.rate))


def pause_s(nodes: float, split: Split = SPLIT) -> float:
    """Return how long a node of so many waits between two exchanges."""
    return split.pause_s * max(1.0, nodes / split.pause_nodes)


def share(members: float, others: Sums, split: Split = SPLIT) -> float:
    """Return the SHARE of a node of `members` processes.

    A node of a small cluster counts as alone: all are at the same rate, so the dip by which the law tells chance from
    load, taken from the rate of one, is more than the excess of all.
    """
    part = members / (members + max(0.0, others.members))
    return ASSUMED if part >= split.alone_share else part


def note_share(rec: Record, members: float, others: Sums, split: Split = SPLIT) -> float:
    """Write SHARE, unless a test is under way that is judged by it; return what was heard."""
    heard = share(members, others, split)
    if rec[CHALLENGE] == 0.0:
        rec[SHARE] = heard
    return heard


def move(rec: Record, now: float, mine: Entry, others: Sums, split: Split = SPLIT) -> float:
    """Move the rate of a limited record by what was heard in answer to `mine`; return what share of it was kept.

    The refusals of others keep it limited, and end its search for the ceiling. What all got a moment ago can be had
    again: where they may send far less than that, because they were refused before much came through, and are no
    longer, each adds its part of that. While some are refused, what is in the pot beyond that is nobody's.
    """
    if rec[LIMITED] == 0.0:
        return 1.0
    rec[REFUSED_AT] = max(rec[REFUSED_AT], now - others.refused_ago_s)
    if others.settled > 0.0 and others.refused_ago_s <= split.quiet_s and rec[FLOOR] == 0.0:
        rec[SLOW_START] = 0.0  # the ceiling is found, by another
    if mine.settled == 0.0 or others.settled == 0.0 or not is_settled(rec):
        return 1.0
    rec[YOUNG] = 0.0
    given = max(-split.gain * rec[RATE], min((split.rise - 1.0) * rec[RATE] + split.rise_by, others.given))
    total, came = mine.rate + others.rate, mine.came + others.came
    quiet = min(mine.refused_ago_s, others.refused_ago_s) >= split.quiet_s
    if not quiet:
        given = min(given, max(0.0, split.full * came - total))
    before = rec[RATE]
    rate = before + given
    if mine.wanting:
        weight = mine.wanting / (mine.wanting + others.wanting)
        if quiet:
            rate += mine.gain * weight * max(0.0, split.had_share * came - total)
        rec[ENTRY_RATE] = max(0.0, total - others.need) * weight
    rec[RATE] = max(LAW.rate_min, rate)
    return min(1.0, 1.0 + given / before)


def hears_of_limit(others: Sums, split: Split = SPLIT) -> bool:
    """Say whether the other nodes are at a ceiling now, so that an open node must not begin with a storm."""
    return others.settled > 0.0 and others.rate > 0.0 and others.refused_ago_s <= split.heard_s


def enter_heard(
    rows: Iterable[joining.Row], now: float, members: float, others: Sums, split: Split = SPLIT
) -> list[float]:
    """Return the record of a level that becomes limited by what was heard; `rows`: what its processes did so far.

    It begins with what came through, and gets the rest of its part from the pot, as the others make room for it.
    """
    rec = fresh(now)
    joining.join(rec, rows, now)
    part = others.rate * members / (members + others.settled)
    came = split.heard_share * delivered_per_s(rec, now)
    rate = min(part, max(came, split.rise_by))
    rec[LIMITED] = rec[WEAK] = 1.0
    rec[RATE] = rec[ENTRY_RATE] = rate
    rec[ENTERED_AT] = rec[ENTRY_SENT_AT] = now
    rec[ENTRY_OTHERS] = rec[IN_FLIGHT]
    rec[ENTRY_DEMAND] = max(rate, came + rec[IN_FLIGHT])
    rec[REFUSED_AT] = now - others.refused_ago_s
    rec[SHARE] = share(members, others)
    return rec
