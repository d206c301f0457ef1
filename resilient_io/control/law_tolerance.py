"""Refusals that do not follow the rate: how a scope finds that they are not load, and tolerates their share.

Answers are watched in blocks. A share of refusals far above the balance of a governed ceiling is put to the test: the
rate goes back to what it was (the *challenge*). If the share does not rise with it, it becomes the *floor*: that share
of refusals is pardoned. Scopes of many callers come to a challenge by a fall of the rate that left the share as it was.
Scopes of few callers see too few refusals for that; one block that contradicts the balance is enough for them, and what
follows is disproved as easily.
"""

from __future__ import annotations

import math

from resilient_io.control.law_entry import check_trial, overloaded
from resilient_io.control.law_record import (
    ASKED_UNTIL,
    ASSUMED,
    BACK_TO,
    BLOCK_AT,
    BLOCK_BAD,
    BLOCK_N,
    CHALLENGE,
    CHECKS,
    CLEAN_BAD,
    CLEAN_N,
    CREDIT,
    DELAY,
    ENTERED_AT,
    ENTRY_DEMAND,
    ENTRY_OTHERS,
    ENTRY_RATE,
    EPOCHS,
    FLOOR,
    FLOOR_PAID_AT,
    FLOOR_RATE,
    LOCK_S,
    LOCKED_UNTIL,
    LOW_BAD,
    LOW_N,
    OVERLOADED,
    RATE,
    REF_BAD,
    REF_N,
    REF_RATE,
    REF_RATIO,
    REF_SENT,
    REF_SET,
    SHARE,
    SLOW_START,
    TOKENS,
    WEAK,
    WORST,
    YOUNG,
    Constants,
    Record,
    delivered_per_s,
    forget,
    has_few_callers,
    is_alone,
    is_one_of_many,
    new_block,
)


def is_pardoned(rec: Record, law: Constants) -> bool:
    """Each answer earns FLOOR of a credit; a refusal that finds one is not a cut."""
    if rec[FLOOR] == 0.0:
        return False
    credit = min(law.credit_max, rec[CREDIT] + law.earn * rec[FLOOR])
    rec[CREDIT] = credit - 1.0 if credit >= 1.0 else credit
    return credit >= 1.0


def observe(rec: Record, now: float, sent_at: float, bad: float, law: Constants) -> None:
    """Count an answer (`bad`: 1.0 for a refusal) into the block and the check of a trial."""
    if sent_at < rec[BLOCK_AT]:
        return
    if rec[CHECKS] != 0.0:
        check_trial(rec, now, bad, law)
    if not law.tolerance or (is_one_of_many(rec, law) and has_few_callers(rec, law)):
        return
    if rec[FLOOR] != 0.0 and bad == 0.0:
        rec[CREDIT] = min(law.credit_max, rec[CREDIT] + law.earn * rec[FLOOR])
    rec[BLOCK_N] += 1.0
    rec[BLOCK_BAD] += bad
    age_s = now - rec[BLOCK_AT]
    if is_alone(rec, law):
        _look_alone(rec, now, age_s, bad, law)
    elif age_s >= 1.0:
        _look(rec, now, age_s, law)


def _look(rec: Record, now: float, age_s: float, law: Constants) -> None:
    """A block of at least a second: decide a challenge, or start one, or go on counting."""
    n, bad = rec[BLOCK_N], rec[BLOCK_BAD]
    ratio, sent = bad / n, n / age_s
    if ratio > law.overload and bad >= 12.0:
        rec[OVERLOADED] = 1.0
    if has_few_callers(rec, law):
        if rec[CHALLENGE] != 0.0:
            _end_challenge_of_few(rec, now, ratio, sent, age_s, law)
            return
        if rec[FLOOR] == 0.0 and rec[OVERLOADED] == 0.0 and bad >= law.contra_sure and ratio > law.contra_most:
            overloaded(rec, now, law)
            return
        if (
            rec[FLOOR] == 0.0
            and rec[OVERLOADED] == 0.0
            and sent <= law.contra_rate_max
            and not is_one_of_many(rec, law)
        ):
            _contradict(rec, now, ratio, sent, age_s, law)
            return
    balance = _balance(sent, law)
    if now - rec[ENTERED_AT] < (law.quiet_weak_s if rec[WEAK] != 0.0 else law.quiet_s):
        new_block(rec, now)
    elif rec[CHALLENGE] != 0.0:
        _end_challenge(rec, now, ratio, sent, age_s, law)
    elif bad >= (14.0 if ratio > 2.0 * balance else 40.0) or n >= min(2000.0, 40.0 / balance) or age_s >= 120.0:
        _weigh_block(rec, now, ratio, sent, balance, law)


def _balance(sent_per_s: float, law: Constants) -> float:
    """Return the share of refusals that a client of that rate sees at a ceiling which this law governs."""
    return law.balance_base + law.balance_per / max(sent_per_s, 0.3)


# ---- the test --------------------------------------------------------------------------------------------------------


def _challenge(rec: Record, now: float, rate: float) -> None:
    rec[CHALLENGE] = 1.0
    rec[BACK_TO] = rec[RATE]
    rec[LOW_N], rec[LOW_BAD] = rec[BLOCK_N], rec[BLOCK_BAD]
    rec[RATE] = max(rec[RATE], rate)
    rec[TOKENS] = min(rec[TOKENS], 1.0)
    new_block(rec, now)


def _accept(rec: Record, share: float, sent: float, now: float, law: Constants) -> None:
    rec[FLOOR] = min(law.floor_max, share)
    rec[FLOOR_PAID_AT] = now
    rec[FLOOR_RATE] = sent
    rec[CREDIT] = 1.0
    rec[EPOCHS] = 0.0
    forget(rec, now)


def _give_back(rec: Record, now: float, law: Constants) -> None:
    rec[RATE] = min(rec[RATE], rec[BACK_TO])
    _lock(rec, now, law)
    forget(rec, now)


def _lock(rec: Record, now: float, law: Constants) -> None:
    rec[LOCKED_UNTIL] = now + rec[LOCK_S]
    rec[LOCK_S] = min(law.lock_max_s, 2.0 * rec[LOCK_S])


def _end_challenge(rec: Record, now: float, ratio: float, sent: float, age_s: float, law: Constants) -> None:
    """Back at the reference rate: if the ratio did not rise it is no load, and is tolerated from now on."""
    n, bad = rec[BLOCK_N], rec[BLOCK_BAD]
    most = law.answered * max(rec[REF_RATIO], rec[LOW_BAD] / max(1.0, rec[LOW_N]))
    risen = bad >= 20.0 and ratio > 2.0 * most
    if n < max(20.0, 20.0 / max(rec[REF_RATIO], 0.01)) and not risen and age_s < 20.0:
        return
    if ratio <= most and n >= 20.0:
        rec[SLOW_START] = 1.0
        _accept(rec, (rec[REF_BAD] + rec[LOW_BAD] + bad) / (rec[REF_N] + rec[LOW_N] + n), sent, now, law)
    else:
        _give_back(rec, now, law)


def _end_challenge_of_few(rec: Record, now: float, ratio: float, sent: float, age_s: float, law: Constants) -> None:
    n, bad = rec[BLOCK_N], rec[BLOCK_BAD]
    if n < law.contra_answers and age_s <= 5.0:
        return
    if ratio <= min(law.contra_most, law.contra_rise * rec[REF_RATIO] + law.contra_add):
        _accept(rec, (rec[LOW_BAD] + bad) / (rec[LOW_N] + n), sent, now, law)
    else:
        _give_back(rec, now, law)
        if ratio > law.contra_most:
            overloaded(rec, now, law)


# ---- what leads to it ------------------------------------------------------------------------------------------------


def _contradict(rec: Record, now: float, ratio: float, sent: float, age_s: float, law: Constants) -> None:
    """A slow scope of few callers, at its limit: far more refusals than a ceiling gives such a scope are a question."""
    entered_s = now - rec[ENTERED_AT]
    many = rec[BLOCK_BAD] >= law.contra_bad and ratio >= max(law.contra_min, law.contra_balance * _balance(sent, law))
    bound = sent >= law.rate_floor and sent >= law.contra_bind * rec[RATE]
    if entered_s < 1.0:
        new_block(rec, now)
    elif many and bound and entered_s >= law.contra_s and now >= rec[LOCKED_UNTIL]:
        rec[REF_RATIO] = ratio
        _challenge(rec, now, min(law.contra_leap * rec[RATE], law.trial_rate * rec[ENTRY_DEMAND]))
    elif rec[BLOCK_BAD] >= law.contra_block_bad or age_s >= law.contra_block_s:
        new_block(rec, now)


def _weigh_block(rec: Record, now: float, ratio: float, sent: float, balance: float, law: Constants) -> None:
    """A full block: does its share of refusals speak of load, and is it time to put that to the test?"""
    if rec[BLOCK_BAD] >= 8.0:
        rec[WORST] = max(rec[WORST], ratio)
    if rec[FLOOR] != 0.0:
        _revise_floor(rec, now, ratio, balance, law)
        return
    if ratio < law.faded * rec[WORST] and rec[BLOCK_N] >= 14.0 / max(0.01, rec[WORST]):
        rec[OVERLOADED] = 1.0
    least = max(law.suspicious * balance, law.weak_min if rec[WEAK] != 0.0 else 0.0)
    if ratio <= least or max(sent, rec[REF_SENT] if rec[REF_SET] != 0.0 else 0.0) < law.rate_floor:
        forget(rec, now)
        return
    _late_reference(rec, ratio, balance, law)
    same = law.kept * rec[REF_RATIO] <= ratio <= law.risen * rec[REF_RATIO]
    if rec[REF_SET] == 0.0 or not same or sent >= rec[REF_SENT]:
        _set_reference(rec, ratio, sent, rec[RATE])
    elif _has_fallen(rec, sent, law) and now >= rec[LOCKED_UNTIL] and rec[OVERLOADED] == 0.0:
        before = law.trial_rate * rec[ENTRY_DEMAND] if has_few_callers(rec, law) else 0.0
        _challenge(rec, now, max(rec[REF_SENT], before))
    new_block(rec, now)


def _late_reference(rec: Record, ratio: float, balance: float, law: Constants) -> None:
    """Once for a scope of few callers that fell far before it could be judged: take the entry as the reference."""
    few = rec[WEAK] == 1.0 and rec[ENTRY_OTHERS] <= law.small and rec[REF_SET] == 0.0
    if few and rec[RATE] < 0.4 * rec[ENTRY_DEMAND] and ratio > 2.0 * balance:
        rec[WEAK] = 2.0
        before = rec[ENTRY_DEMAND] * (1.0 - ratio)
        _set_reference(rec, ratio, before, before)


def _set_reference(rec: Record, ratio: float, sent: float, rate: float) -> None:
    rec[REF_SET] = 1.0
    rec[REF_RATIO], rec[REF_SENT], rec[REF_RATE] = ratio, sent, rate
    rec[REF_N], rec[REF_BAD] = rec[BLOCK_N], rec[BLOCK_BAD]


def _has_fallen(rec: Record, sent: float, law: Constants) -> bool:
    """Say whether the rate fell so far that, were all clients to fall alike, the ratio would have halved."""
    ratio = rec[REF_RATIO]
    factor = max(law.fall, min(4.0, (1.0 - 0.5 * ratio) / (1.0 - min(0.95, ratio))))
    return sent <= rec[REF_SENT] / factor and rec[RATE] <= rec[REF_RATE] / factor


# ---- while a share is tolerated --------------------------------------------------------------------------------------


def _revise_floor(rec: Record, now: float, ratio: float, balance: float, law: Constants) -> None:
    """Let the tolerance follow what is refused; well above it the refusals are load again."""
    floor, follow = rec[FLOOR], law.follow
    if has_few_callers(rec, law):
        follow = law.few_follow
        if rec[BLOCK_N] * floor < law.disproof_bad:
            return
        if ratio < law.disproof_low * floor or ratio > law.disproof_high * floor + law.disproof_add:
            _disprove(rec, now)
            return
    if ratio > 1.3 * floor + law.suspicious * balance:
        rec[FLOOR] = 0.0
        forget(rec, now)
        return
    floor = min(law.floor_max, 1.3 * floor, floor + follow * (ratio - floor))
    rec[FLOOR] = floor if floor >= 0.005 else 0.0
    new_block(rec, now)


def _disprove(rec: Record, now: float) -> None:
    """The share moved with the load after all: this is what makes wrong floors harmless in a fleet."""
    rec[FLOOR] = 0.0
    rec[OVERLOADED] = rec[YOUNG] = 1.0
    rec[RATE] = min(rec[RATE], rec[ENTRY_RATE])
    forget(rec, now)


def judge_use(rec: Record, now: float, backlog: bool, law: Constants) -> None:
    """Drop a tolerance that frees nobody: at a real ceiling the rate stays bound however much is tolerated."""
    if not backlog:
        rec[FLOOR_PAID_AT] = now
    elif rec[RATE] > 1.5 * rec[FLOOR_RATE]:
        rec[FLOOR_RATE] = rec[RATE]
        rec[FLOOR_PAID_AT] = now
    elif now - rec[FLOOR_PAID_AT] > law.pay_s:
        rec[FLOOR] = 0.0
        _lock(rec, now, law)
        forget(rec, now)


# ---- a scope that is alone -------------------------------------------------------------------------------------------


def _look_alone(rec: Record, now: float, age_s: float, refused: float, law: Constants) -> None:
    """Nobody else is on this scope: what is left of the refusals a little below what comes through is no load."""
    n, bad = rec[BLOCK_N], rec[BLOCK_BAD]
    ratio = bad / n
    if rec[CHALLENGE] != 0.0:
        _end_dip(rec, now, ratio, age_s, law)
    elif rec[FLOOR] == 0.0 and refused != 0.0 and bad == 1.0 and n > 1.0:
        _file_block(rec)
        new_block(rec, now)  # what a bucket had saved came through before: count from the first refusal
        rec[BLOCK_N] = rec[BLOCK_BAD] = 1.0
    elif age_s < max(law.dip_soon_s if bad >= law.dip_many else 1.0, law.dip_delays * _late_s(rec, law)):
        return
    elif rec[FLOOR] != 0.0:
        _revise_alone(rec, now, ratio, law)
    elif bad >= law.dip_bad and _question(rec, now, n / age_s, law) <= ratio <= law.dip_most:
        _begin_dip(rec, now, ratio, age_s, law)
    elif age_s >= (law.dip_wait_s if bad >= 2.0 and ratio >= law.dip_least else law.dip_block_s):
        _file_block(rec)
        new_block(rec, now)


def _late_s(rec: Record, law: Constants) -> float:
    """Return how long successes are behind refusals; 0.0 where that is too little to matter."""
    return rec[DELAY] if rec[DELAY] > law.dip_late_s else 0.0


def _question(rec: Record, now: float, sent: float, law: Constants) -> float:
    """Return the share of refusals that is a question; in a fleet at its ceiling all see the balance."""
    if rec[SHARE] > ASSUMED:
        return law.dip_least if now >= rec[ASKED_UNTIL] else law.dip_min
    return max(law.dip_min, law.dip_balance * _balance(sent, law))


def _file_block(rec: Record) -> None:
    """Remember the block with the fewest refusals: chance refuses the same share at all times, load does not."""
    n, bad = rec[BLOCK_N], rec[BLOCK_BAD]
    if (bad + 2.0) * rec[CLEAN_N] <= (rec[CLEAN_BAD] + 2.0) * n:
        rec[CLEAN_N], rec[CLEAN_BAD] = n, bad


def _was_always(rec: Record, share: float, law: Constants) -> bool:
    expected = rec[CLEAN_N] * share
    least = expected - law.clean_sigmas * math.sqrt(expected)
    return expected < law.clean_expected or rec[CLEAN_BAD] >= least


def _begin_dip(rec: Record, now: float, ratio: float, age_s: float, law: Constants) -> None:
    served_per_s = (rec[BLOCK_N] - rec[BLOCK_BAD]) / max(0.1, age_s - _late_s(rec, law))
    _file_block(rec)
    rec[REF_RATIO] = ratio
    _challenge(rec, now, 0.0)
    came = min(served_per_s, delivered_per_s(rec, now))
    rec[RATE] = max(law.rate_min, min(rec[RATE], law.dip_to * came))


def _end_dip(rec: Record, now: float, ratio: float, age_s: float, law: Constants) -> None:
    n, bad, before = rec[BLOCK_N], rec[BLOCK_BAD], rec[REF_RATIO]
    most = min(law.floor_max, 1.5 * before + 0.1)
    clear = n * before >= law.dip_clear and (bad == 0.0 or ratio > most)
    if not clear and n < max(law.dip_answers, law.dip_expected / before) and age_s < law.dip_s:
        return
    _file_block(rec)
    kept = bad >= 3.0 and law.dip_kept * before <= ratio <= most
    if kept and now >= rec[LOCKED_UNTIL] and _was_always(rec, ratio, law):
        leap = min(law.contra_leap * rec[BACK_TO], law.trial_rate * rec[ENTRY_DEMAND])
        rec[RATE] = max(rec[BACK_TO], leap)
        rec[SLOW_START] = 1.0
        _accept(rec, (rec[LOW_BAD] + bad) / (rec[LOW_N] + n), n / max(age_s, 0.1), now, law)
        return
    rec[RATE] /= law.dip_to
    rec[EPOCHS] = 0.0
    rec[ASKED_UNTIL] = now + law.dip_again_s
    forget(rec, now)


def _revise_alone(rec: Record, now: float, ratio: float, law: Constants) -> None:
    """Follow what is refused; a share that was once far smaller is load, and others are on this scope after all."""
    floor, expected = rec[FLOOR], rec[BLOCK_N] * rec[FLOOR]
    if expected < law.disproof_bad:
        return
    _file_block(rec)
    if not _was_always(rec, floor, law):
        rec[FLOOR] = rec[CLEAN_N] = rec[CLEAN_BAD] = 0.0
        rec[OVERLOADED] = rec[YOUNG] = 1.0
        _lock(rec, now, law)
        forget(rec, now)
    elif ratio < law.disproof_low * floor or ratio > law.disproof_high * floor + law.disproof_add:
        rec[FLOOR] = 0.0
        forget(rec, now)
    else:
        rec[FLOOR] = min(law.floor_max, floor + law.follow * (ratio - floor))
        new_block(rec, now)
