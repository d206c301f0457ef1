"""Turns: how several processes that step one record take its tokens in order.

A process whose next request finds no token takes one *in advance*: TOKENS goes down by one, and the number of the
token, its *turn*, is kept by the process. The turn has come when so many tokens have been filled in; that is asked
anew each time, so a rate that changes meanwhile moves all turns. A process holds one turn at a time. So those who wait
go round, however many callers each has; and the turn of a process that was killed costs one token, no more.

A process of less *weight* than the heaviest of those who wait takes part in so many of the rounds as its part says. It
lets the others go round: a round is over when all turns that were out at its beginning have come, and in each of them
everyone of full weight has had one turn. A token that nobody has taken is anybody's.

Turns reach `wait_max_s` ahead at most. Who finds more taken than that asks again later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from resilient_io.control.law_record import (
    ISSUED,
    LAW,
    LIMITED,
    RATE,
    SENT_AT,
    TOKENS,
    TOKENS_AT,
    Constants,
    Record,
)

# What a process may weigh: more than a hundred to one would be next to nothing for the lighter ones.
WEIGHT_LEAST: Final = 0.1
WEIGHT_MOST: Final = 10.0
# A token that was filled in to within this is there.
_CLOSE: Final = 1e-9
# Turns that may be out at any rate: the one who goes next, and one after.
_LEAST_AHEAD: Final = 2.0
# How long the place of a turn that came is left to those who found all taken; they look four times a second.
_LEAVE_S: Final = 0.3
# Of a token, by which a round ends late for who lets it pass: those whose turn was its last have their next one then.
_LATE: Final = 0.5


def fill(rec: Record, now: float, law: Constants = LAW) -> None:
    """Top the tokens up to `now`."""
    elapsed_s = now - rec[TOKENS_AT]
    if elapsed_s > 0.0:
        held = max(1.0, rec[RATE] * law.burst_s)
        rec[TOKENS] = min(held, rec[TOKENS] + elapsed_s * rec[RATE])
        rec[TOKENS_AT] = now  # never back: one who lost its core before it had the lock would have time filled twice


@dataclass(slots=True, kw_only=True)
class Place:
    """Where a process is in the round. Changed by `ready_at`; not thread-safe."""

    turn: float = 0.0
    """The turn that it holds; 0.0 for none."""
    until: float = 0.0
    """Tokens that are filled in when the round is over that it lets pass."""
    due: float = 1.0
    """Rounds that it may still take part in; from 1.0 on it takes a turn."""


def ready_at(rec: Record, now: float, mine: Place, part: float = 1.0, law: Constants = LAW) -> float:
    """Return when the next request of a process may leave; its place in the round is kept in `mine`.

    A time `<= now` means at once, and the token is taken: what is sent with that turn is paid for, and the turn is to
    be set to 0.0 then. A later time is an estimate, after which to ask again. `part` is the weight of the process
    relative to the heaviest of those who wait, above 0 to 1.
    """
    if rec[LIMITED] == 0.0:
        mine.turn = 0.0
        return now
    fill(rec, now, law)
    if mine.turn == 0.0 or mine.turn > rec[ISSUED]:  # of a record that was made anew since
        mine.turn = 0.0
        # What nobody has taken is anybody's.
        missing = 0.0 if rec[TOKENS] >= _left_over(rec, part, law) - _CLOSE else _lets_pass(rec, mine, part, law)
        if missing <= 0.0:
            rec[TOKENS] -= 1.0
            rec[ISSUED] += 1.0
            mine.turn, mine.due = rec[ISSUED], max(0.0, mine.due - 1.0)
    if mine.turn:
        missing = mine.turn - (rec[TOKENS] + rec[ISSUED])
    ready = now if missing <= _CLOSE else _at_least_now_and_then(rec, now, now + missing / rec[RATE], law)
    if ready <= now:
        rec[SENT_AT] = now
    return ready


def _lets_pass(rec: Record, mine: Place, part: float, law: Constants) -> float:
    """Return how many tokens are to be filled in before a process may take a turn; 0.0: it may now."""
    tokens, ahead = rec[TOKENS], max(_LEAST_AHEAD, law.wait_max_s * rec[RATE])
    filled = tokens + rec[ISSUED]
    last = max(filled, rec[ISSUED])
    if mine.due < 1.0 - _CLOSE and not filled < mine.until - _CLOSE <= last + 2.0:  # no more: of another record
        mine.due += part
        if mine.due < 1.0 - _CLOSE:
            mine.until = last + (_LATE if tokens < 0.0 else 1.0 + _LATE)
        elif tokens <= 3.0 - ahead:
            mine.until = filled + max(1.0 + _LATE, _LEAVE_S * rec[RATE])
    if filled < mine.until - _CLOSE <= last + 2.0:
        return min(mine.until - filled, max(_LATE, _left_over(rec, part, law) - tokens))
    return 3.0 - ahead - tokens if tokens <= 2.0 - ahead else 0.0


def _left_over(rec: Record, part: float, law: Constants) -> float:
    """Return how many tokens lie there when nobody wants them: those of full weight may be late for theirs."""
    return 1.0 if part >= 1.0 else max(1.0, 0.5 * law.burst_s * rec[RATE])


def _at_least_now_and_then(rec: Record, now: float, ready: float, law: Constants) -> float:
    """Turns of processes that are gone must not keep a slow scope from probing."""
    return min(ready, max(now, rec[SENT_AT] + law.wait_max_s))


def pay(rec: Record, u: float, law: Constants = LAW) -> None:
    """Take the token of a request that leaves without a turn."""
    if rec[LIMITED] != 0.0:
        rec[TOKENS] -= 1.0 - (u - 0.5) * law.jitter
