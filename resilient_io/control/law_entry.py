"""Entry: what the first refusals of an open scope mean, and with which rate it goes on.

The cautious rate is what came through. It is right at a ceiling, and far too low if the refusal was random; the answers
to what else was in flight tell. With many in flight they are a sample. With few, the scope goes on as before for some
answers first. What follows is an *overload* (most were refused: the cautious rate, no tolerance, `law_rate` looks for
the share) or a *trial* of more than the cautious rate, which has to pass checks.
"""

from __future__ import annotations

import math
from typing import Final

from resilient_io.control.law_record import (
    BEGAN_AT,
    CHALLENGE,
    CHECKS,
    CLEAN_BAD,
    CLEAN_N,
    CREDIT,
    ENTERED_AT,
    ENTERING,
    ENTRY_BAD,
    ENTRY_DEMAND,
    ENTRY_OK,
    ENTRY_OTHERS,
    ENTRY_RATE,
    ENTRY_SENT_AT,
    EPOCHS,
    FLOOR,
    GROWN_AT,
    IN_FLIGHT,
    LIMITED,
    LOCKED_UNTIL,
    OUTAGE,
    OVERLOADED,
    RATE,
    RECOVERING,
    REFUSED_AT,
    SLOW_START,
    STREAK,
    TOKENS,
    TOKENS_AT,
    WEAK,
    WORST,
    YOUNG,
    YOUNG_SERVED,
    Constants,
    Record,
    delivered_per_s,
    forget,
    has_few_callers,
    is_alone,
    is_one_of_many,
)

_CLEARED: Final = (
    OUTAGE, RECOVERING, CREDIT, FLOOR, YOUNG, YOUNG_SERVED, OVERLOADED, CHECKS, WORST, WEAK, ENTRY_OK, ENTRY_BAD,
    EPOCHS, CLEAN_N, CLEAN_BAD,
)  # fmt: skip


def enter(rec: Record, now: float, sent_at: float, u: float, law: Constants) -> None:
    """Become limited at the first refusal, to a request that was sent at `sent_at`."""
    came = delivered_per_s(rec, now)
    run_s = min(1.0, max(0.05, now - rec[BEGAN_AT]))
    for index in _CLEARED:
        rec[index] = 0.0
    rec[LIMITED] = rec[SLOW_START] = rec[STREAK] = 1.0
    rec[TOKENS_AT] = rec[GROWN_AT] = rec[ENTERED_AT] = rec[REFUSED_AT] = now
    rec[TOKENS] = -u
    few = law.rate_caller * (1.0 + rec[IN_FLIGHT]) if rec[IN_FLIGHT] <= law.small else 0.0
    rec[RATE] = rec[ENTRY_RATE] = max(law.rate_initial, few, law.entry_share * came / max(law.run_min_s, run_s))
    rec[ENTRY_SENT_AT] = sent_at
    rec[ENTRY_OTHERS] = rec[IN_FLIGHT]
    rec[ENTRY_DEMAND] = (came + rec[IN_FLIGHT] + 1.0) / run_s
    trial = law.trial and not is_one_of_many(rec, law)
    rec[ENTERING] = 1.0 if trial else 0.0
    if trial and has_few_callers(rec, law):  # as before, until some answers are in
        rec[RATE] = max(rec[RATE], rec[ENTRY_DEMAND])
        rec[TOKENS] = 0.0
    forget(rec, now)


def on_earlier_success(rec: Record, now: float, law: Constants) -> None:
    """What had left before the entry and came through teaches the rate: refusals come home sooner than successes."""
    if is_alone(rec, law):
        run_s = min(1.0, max(law.run_min_s, rec[ENTERED_AT] - rec[BEGAN_AT]))
        step = law.entry_share / run_s
        rec[ENTRY_RATE] += step
        if rec[CHALLENGE] == 0.0:  # by its own step: what was cut meanwhile was cut for a reason
            rec[RATE] = max(rec[RATE], min(rec[ENTRY_RATE], rec[RATE] + step))
    else:
        rec[RATE] = max(rec[RATE], law.entry_share * delivered_per_s(rec, now))


def on_entry_answer(rec: Record, now: float, sent_at: float, bad: float, law: Constants) -> None:
    """Count an answer (`bad`: 1.0 for a refusal) while the entry is undecided; decide when there are enough."""
    few = has_few_callers(rec, law)
    if sent_at >= rec[ENTRY_SENT_AT] and (few or sent_at < rec[ENTERED_AT]):
        rec[ENTRY_BAD] += bad
        rec[ENTRY_OK] += 1.0 - bad
    if few:
        _decide_few(rec, now, law)
    elif now - rec[ENTERED_AT] >= law.trial_s:
        _decide_many(rec, now, law)


def _decide_few(rec: Record, now: float, law: Constants) -> None:
    others, ok, bad = rec[ENTRY_OTHERS], rec[ENTRY_OK], rec[ENTRY_BAD]
    crowd = others >= law.few_crowd
    need = min(law.few_answers_crowd if crowd else law.few_answers, max(law.few_answers_min, others))
    if bad >= law.few_bad * need:
        overloaded(rec, now, law)
    elif ok + bad >= need or (not crowd and ok > (1.0 - law.few_bad) * need):
        clean = (bad <= 1.0 and ok >= law.few_clean) or is_alone(rec, law)
        most = math.inf if clean else law.few_cap * rec[ENTRY_RATE]
        rec[ENTERING] = 0.0
        rec[SLOW_START] = rec[WEAK] = 1.0
        _begin_trial(rec, max(rec[ENTRY_RATE], min(most, law.trial_rate * rec[ENTRY_DEMAND])), law)
        forget(rec, now)


def _decide_many(rec: Record, now: float, law: Constants) -> None:
    ok, n = rec[ENTRY_OK], rec[ENTRY_OK] + rec[ENTRY_BAD]
    rec[ENTERING] = 0.0
    rec[WEAK] = 1.0 if n < law.settled else 0.0
    if n >= 2.0 and ok < law.trial_share * n:
        overloaded(rec, now, law)
        return
    if is_alone(rec, law):  # a wrong trial costs its checks, and nobody else's share
        clear = law.clear_trial if n >= law.settled and ok >= law.clear_share * n else law.trial_rate
        _begin_trial(rec, max(rec[RATE], clear * rec[ENTRY_DEMAND] * max(ok, 1.0) / max(n, 1.0)), law)
    elif _is_no_ceiling(ok, n, law):  # else no trial, or one client in ten of a large fleet gets ten times its share
        share = ok / n - (0.25 / math.sqrt(n) if n > 8.0 else 0.0)
        trial = law.trial_rate * rec[ENTRY_DEMAND] * share
        if n <= law.sure:
            trial = min(trial, max(law.trial_cap, 2.0 * rec[ENTRY_RATE]))
        _begin_trial(rec, max(rec[RATE], trial), law)
    forget(rec, now)


def _is_no_ceiling(ok: float, n: float, law: Constants) -> bool:
    """All of at least three succeeded, or of more so many that the true share is hardly below `trial_share`."""
    return n >= 3.0 and (ok == n or (n >= law.sure and ok / n - 0.4 / math.sqrt(n) >= law.trial_share))


def _begin_trial(rec: Record, rate: float, law: Constants) -> None:
    rec[RATE] = rate
    rec[CHECKS] = law.checks
    rec[ENTRY_OK] = rec[ENTRY_BAD] = 0.0


def overloaded(rec: Record, now: float, law: Constants) -> None:
    """The ceiling is far below what this scope asked for: back to the cautious rate, and no tolerance."""
    rec[YOUNG] = rec[OVERLOADED] = 1.0
    if is_alone(rec, law):  # the first refusal may have come before any success
        came = rec[ENTRY_OK] / max(law.trial_s, now - rec[ENTRY_SENT_AT])
        rec[ENTRY_RATE] = max(rec[ENTRY_RATE], law.entry_share * came)
        rec[LOCKED_UNTIL] = max(rec[LOCKED_UNTIL], now + law.lock_s)  # see what this rate is refused before
    rec[ENTERING] = rec[CHECKS] = rec[SLOW_START] = rec[YOUNG_SERVED] = 0.0
    rec[RATE] = rec[ENTRY_RATE]
    forget(rec, now)


def check_trial(rec: Record, now: float, bad: float, law: Constants) -> None:
    """Give a trial rate back at once if most of a batch of its first answers are refusals."""
    rec[ENTRY_BAD] += bad
    rec[ENTRY_OK] += 1.0 - bad
    few = has_few_callers(rec, law)
    if rec[ENTRY_OK] + rec[ENTRY_BAD] < (law.few_batch if few else law.batch):
        return
    if rec[WEAK] != 0.0 and rec[ENTRY_BAD] >= law.batch_bad_weak:
        rec[RATE] = min(rec[RATE], rec[ENTRY_RATE])
        rec[CHECKS] = 0.0
    elif rec[ENTRY_BAD] >= (law.few_batch_bad if few else law.batch_bad):
        if is_alone(rec, law):  # what was cut meanwhile is not given back
            rec[ENTRY_RATE] = min(rec[ENTRY_RATE], rec[RATE])
        overloaded(rec, now, law)
    else:
        rec[CHECKS] -= 1.0
    rec[ENTRY_OK] = rec[ENTRY_BAD] = 0.0
