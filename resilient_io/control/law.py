"""The admission law: how many requests a second one scope may send, learnt from its answers alone.

The state of a scope is one record: a sequence of SIZE floats (`law_record`). Pure functions step it. Nothing here reads
a clock or draws a random number: callers pass `now` (seconds, any monotonic origin, one for all who share the record)
and `u` in [0, 1).

A scope is *open* (nothing waits) until its first refusal, then *limited* to RATE by a token bucket. In short:
entry      what became of the requests around the first refusal tells a ceiling from random refusals (`law_entry`)
growth     each success raises the rate, slowly after a cut and faster the longer there was none (`law_rate`)
cut        each refusal lowers it by `cut / rate`, so 0.5 and 5000 requests a second behave alike
young      after a sure overload a slow scope looks for its share in larger steps for `young_s`
tolerance  a share of refusals that does not follow the rate is not load, and is tolerated (`law_tolerance`)
recovery   when nothing came through for seconds the rate before is remembered, and taken again when something does
"""

from __future__ import annotations

import math

from resilient_io.control.law_entry import enter, on_earlier_success, on_entry_answer
from resilient_io.control.law_rate import begin_outage, cut, grow, is_demanded, is_outage, restart
from resilient_io.control.law_record import (
    BEGAN_AT,
    CHALLENGE,
    COUNT,
    COUNT_BEFORE,
    CREDIT,
    DELAY,
    ENTERED_AT,
    ENTERING,
    FLOOR,
    GOOD,
    GROWN_AT,
    IN_FLIGHT,
    LAW,
    LIMITED,
    OUTAGE,
    OVERLOADED,
    RATE,
    REALLY_REFUSED_AT,
    REFUSED,
    REFUSED_AT,
    SECOND,
    SHARE,
    SIZE,
    SLOW_START,
    STREAK,
    SUCCEEDED_AT,
    SUSPECT_N,
    SUSPECT_SHARE,
    TOKENS,
    TOKENS_AT,
    YOUNG,
    YOUNG_SERVED,
    Constants,
    Record,
    fresh,
    has_few_callers,
    is_alone,
    new_block,
)
from resilient_io.control.law_tolerance import is_pardoned, judge_use, observe

__all__ = [
    "BEGAN_AT",
    "COUNT",
    "CREDIT",
    "ENTERED_AT",
    "ENTERING",
    "FLOOR",
    "GOOD",
    "GROWN_AT",
    "IN_FLIGHT",
    "LAW",
    "LIMITED",
    "RATE",
    "REALLY_REFUSED_AT",
    "REFUSED_AT",
    "SHARE",
    "SIZE",
    "SLOW_START",
    "SUCCEEDED_AT",
    "TOKENS",
    "TOKENS_AT",
    "YOUNG",
    "Constants",
    "Record",
    "describe",
    "fresh",
    "is_limited",
    "on_dropped",
    "on_open",
    "on_refusal",
    "on_send",
    "on_success",
    "on_suspected",
    "rate_per_s",
    "ready_at",
]


def is_limited(rec: Record) -> bool:
    """Say whether requests of this scope are paced at present."""
    return rec[LIMITED] != 0.0


def rate_per_s(rec: Record) -> float:
    """Return the admitted rate, requests per second; inf while open."""
    return rec[RATE]


def describe(rec: Record) -> dict[str, float | bool]:
    """Return the parts of the state that a report shows; `good_rate_per_s` is what came through when last well."""
    return {
        "limited": is_limited(rec),
        "rate_per_s": rec[RATE],
        "in_flight": rec[IN_FLIGHT],
        "good_rate_per_s": rec[GOOD],
        "tolerated_share": rec[FLOOR],
        "overloaded": rec[OVERLOADED] != 0.0,
        "outage": rec[OUTAGE] != 0.0,
        "refused_at": rec[REFUSED_AT],
        "entered_at": rec[ENTERED_AT],
        "suspected_share": rec[SUSPECT_SHARE],
    }


def ready_at(rec: Record, now: float, law: Constants = LAW) -> float:
    """Return when the next request may leave: `<= now` is at once, never more than `wait_max_s` ahead.

    Ask again after every answer of the scope: the rate may have changed.
    """
    if rec[LIMITED] == 0.0:
        return now
    rate = rec[RATE]
    held = rate * law.burst_s
    elapsed, tokens = now - rec[TOKENS_AT], rec[TOKENS]
    if elapsed > 0.0:
        tokens += elapsed * rate
        rec[TOKENS_AT] = now  # never back, or time would be filled twice
    if tokens > held and tokens > 1.0:
        tokens = held if held > 1.0 else 1.0
    if tokens >= 1.0 - 1e-9:
        rec[TOKENS] = tokens
        return now
    least = 1.0 - law.wait_max_s * rate  # so that the wait is bounded in truth, not only in what is returned
    rec[TOKENS] = tokens = tokens if tokens > least else least
    return now + (1.0 - tokens) / rate


def on_open(rec: Record, now: float, sent: int, succeeded: int, law: Constants = LAW) -> None:
    """Count together what an open scope sent and was answered of late: before a refusal nothing hangs on each."""
    if sent:
        _left(rec, now, sent)
    if succeeded:
        _answered(rec, now, succeeded)
        for _ in range(succeeded if rec[SUSPECT_N] != 0.0 else 0):
            _weigh(rec, 0.0)
        _came_through(rec, now, succeeded, law)


def on_send(rec: Record, now: float, u: float, law: Constants = LAW) -> None:
    """Count a request that leaves now. `u` spreads the clients apart."""
    _left(rec, now, 1)
    if rec[LIMITED] != 0.0:
        rec[TOKENS] -= 1.0 - (u - 0.5) * law.jitter


def on_dropped(rec: Record, now: float) -> None:
    """Count an answer that says nothing of load, or a request that was cancelled."""
    rec[IN_FLIGHT] = max(0.0, rec[IN_FLIGHT] - 1.0)


def on_success(rec: Record, now: float, sent_at: float, *, backlog: bool, law: Constants = LAW) -> None:
    """Count a request that was answered; `backlog` says whether callers were waiting for admission."""
    _answered(rec, now, 1)
    if rec[SUSPECT_N] != 0.0:
        _weigh(rec, 0.0)
    _came_through(rec, now, 1, law)
    if rec[LIMITED] == 0.0:
        return
    rec[DELAY] += law.delay_share * (now - sent_at - rec[DELAY])
    if rec[ENTERING] != 0.0:
        on_entry_answer(rec, now, sent_at, 0.0, law)
    if sent_at < rec[ENTERED_AT]:
        if now - rec[ENTERED_AT] < law.entry_s:
            on_earlier_success(rec, now, law)
        return
    rec[YOUNG_SERVED] += 1.0
    observe(rec, now, sent_at, 0.0, law)
    if rec[FLOOR] != 0.0:
        judge_use(rec, now, backlog, law)
    elapsed_s = min(max(0.0, now - rec[GROWN_AT]), 1.0)
    rec[GROWN_AT] = now
    if rec[OUTAGE] != 0.0:
        restart(rec, now, law)
    elif (backlog or is_demanded(rec, now, law)) and not (rec[CHALLENGE] != 0.0 and is_alone(rec, law)):
        grow(rec, now, elapsed_s, law)


def on_refusal(rec: Record, now: float, sent_at: float, u: float, law: Constants = LAW) -> None:
    """Count a refusal that speaks of load (503 SlowDown, ServerBusy, 429)."""
    rec[REALLY_REFUSED_AT] = now
    _answered(rec, now, 1)
    if rec[SUSPECT_N] != 0.0:
        _weigh(rec, 0.0)
    _refused(rec, now, sent_at, u, law)


def on_suspected(rec: Record, now: float, sent_at: float, u: float, law: Constants = LAW) -> None:
    """Count an answer that may or may not speak of load (timeout, reset, 500).

    It is taken for a refusal if the scope was really refused within `suspect_window_s`, or if at least `suspect_share`
    of the last `suspect_n` answers were like it; otherwise it only frees its place.
    """
    _answered(rec, now, 1)
    _weigh(rec, 1.0)
    many = rec[SUSPECT_N] >= law.suspect_n and rec[SUSPECT_SHARE] >= law.suspect_share
    if many or now - rec[REALLY_REFUSED_AT] <= law.suspect_window_s:
        _refused(rec, now, sent_at, u, law)


def _refused(rec: Record, now: float, sent_at: float, u: float, law: Constants) -> None:
    rec[REFUSED] += 1.0
    if rec[LIMITED] == 0.0:
        enter(rec, now, sent_at, u, law)
        return
    rec[STREAK] += 1.0
    if rec[ENTERING] != 0.0:
        on_entry_answer(rec, now, sent_at, 1.0, law)
        if rec[ENTERING] != 0.0 and has_few_callers(rec, law):
            return
    if sent_at < rec[ENTERED_AT]:
        return
    rec[REFUSED_AT] = now
    if is_outage(rec, now, law):
        begin_outage(rec, now)
    else:
        observe(rec, now, sent_at, 1.0, law)
    if rec[CHALLENGE] == 0.0 and not is_pardoned(rec, law):
        cut(rec, now, law)


def _left(rec: Record, now: float, sent: int) -> None:
    if rec[IN_FLIGHT] <= 0.0 and now - rec[SECOND] > 3.0:
        rec[BEGAN_AT] = now
    rec[IN_FLIGHT] += sent


def _answered(rec: Record, now: float, answers: int) -> None:
    in_flight = rec[IN_FLIGHT] - answers
    rec[IN_FLIGHT] = in_flight if in_flight > 0.0 else 0.0
    if now - rec[SECOND] >= 1.0:
        _roll(rec, now)


def _weigh(rec: Record, suspected: float) -> None:
    """Note whether an answer was a suspect one (1.0) or not (0.0)."""
    n = min(20.0, rec[SUSPECT_N] + 1.0)
    rec[SUSPECT_N] = n
    rec[SUSPECT_SHARE] += (suspected - rec[SUSPECT_SHARE]) / n
    if rec[SUSPECT_SHARE] < 1e-3:
        rec[SUSPECT_N] = rec[SUSPECT_SHARE] = 0.0


def _came_through(rec: Record, now: float, succeeded: int, law: Constants) -> None:
    rec[COUNT] += succeeded
    rec[SUCCEEDED_AT] = now
    if rec[STREAK] >= law.outage_refusals and is_alone(rec, law):
        new_block(rec, now)  # it came back: what was refused before says nothing of now
    rec[STREAK] = 0.0


def _roll(rec: Record, now: float) -> None:
    """Begin a new second; a whole one in which most came through moves GOOD, up quickly and down slowly."""
    second = float(math.floor(now))
    came, refused, good = rec[COUNT], rec[REFUSED], rec[GOOD]
    if came > 0.0 and refused <= came and rec[SECOND] >= rec[BEGAN_AT]:
        rec[GOOD] = came if good == 0.0 else good + (came - good) * (0.5 if came > good else 0.1)
    rec[COUNT_BEFORE] = came if second == rec[SECOND] + 1.0 else 0.0
    rec[COUNT] = rec[REFUSED] = 0.0
    rec[SECOND] = second
