"""Turns: how several processes that step one record take its tokens in order.

A process whose next request finds no token takes one *in advance*: TOKENS goes down by one, and the number of the
token, its *turn*, is kept by the process. The turn has come when so many tokens have been filled in; that is asked
anew each time, so a rate that changes meanwhile moves all turns. A process holds one turn at a time. So those who wait
go round, however many callers each has; and the turn of a process that was killed costs one token, no more.

Turns reach `wait_max_s` ahead at most. Who finds more taken than that asks again later.
"""

from __future__ import annotations

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

# A token that was filled in to within this is there.
_CLOSE: Final = 1e-9
# Turns that may be out at any rate: the one who goes next, and one after.
_LEAST_AHEAD: Final = 2.0


def fill(rec: Record, now: float, law: Constants = LAW) -> None:
    """Top the tokens up to `now`."""
    elapsed_s = now - rec[TOKENS_AT]
    if elapsed_s > 0.0:
        held = max(1.0, rec[RATE] * law.burst_s)
        rec[TOKENS] = min(held, rec[TOKENS] + elapsed_s * rec[RATE])
        rec[TOKENS_AT] = now  # never back: one who lost its core before it had the lock would have time filled twice


def ready_at(rec: Record, now: float, turn: float, law: Constants = LAW) -> tuple[float, float]:
    """Return when the next request may leave, and the turn that it holds then (0.0: none).

    `turn` is the one held so far, 0.0 for none. A time `<= now` means at once, and the token is taken: what is sent
    with that turn is paid for. A later time is an estimate, after which to ask again.
    """
    if rec[LIMITED] == 0.0:
        return now, 0.0
    fill(rec, now, law)
    if turn == 0.0 or turn > rec[ISSUED]:  # of a record that was made anew since
        ahead = max(_LEAST_AHEAD, law.wait_max_s * rec[RATE])
        if rec[TOKENS] <= 2.0 - ahead:
            return _at_least_now_and_then(rec, now, now + (3.0 - ahead - rec[TOKENS]) / rec[RATE], law), 0.0
        rec[TOKENS] -= 1.0
        rec[ISSUED] += 1.0
        turn = rec[ISSUED]
    missing = turn - (rec[TOKENS] + rec[ISSUED])
    ready = now if missing <= _CLOSE else _at_least_now_and_then(rec, now, now + missing / rec[RATE], law)
    if ready <= now:
        rec[SENT_AT] = now
    return ready, turn


def _at_least_now_and_then(rec: Record, now: float, ready: float, law: Constants) -> float:
    """Turns of processes that are gone must not keep a slow scope from probing."""
    return min(ready, max(now, rec[SENT_AT] + law.wait_max_s))


def pay(rec: Record, u: float, law: Constants = LAW) -> None:
    """Take the token of a request that leaves without a turn."""
    if rec[LIMITED] != 0.0:
        rec[TOKENS] -= 1.0 - (u - 0.5) * law.jitter
