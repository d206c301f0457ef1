"""The record of one scope, its indices, and the numbers of the law that steps it.

A record is a sequence of SIZE floats, so that it can be a list, a slice of shared memory or a value in a store.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Final

Record = MutableSequence[float]

# Indices. Times are seconds on the caller's clock; flags are 0.0 or 1.0; counts are whole numbers kept as floats.
LIMITED: Final = 0  # flag: requests are paced
RATE: Final = 1  # requests per second admitted while limited; inf while open
TOKENS: Final = 2  # requests that may leave now; below 1 the next one waits
TOKENS_AT: Final = 3  # when TOKENS was last topped up
GROWN_AT: Final = 4  # when RATE last moved
ENTERED_AT: Final = 5  # when the scope became limited
REFUSED_AT: Final = 6  # the last refusal (or suspected answer taken for one)
EPOCHS: Final = 7  # seconds of growth since a cut; shrunk, not always zeroed, by the next
SLOW_START: Final = 8  # flag: no refusal has counted since entry
SECOND: Final = 9  # the whole second that COUNT belongs to
COUNT: Final = 10  # successes in SECOND
COUNT_BEFORE: Final = 11  # successes in the second before it
REFUSED: Final = 12  # refusals in SECOND
IN_FLIGHT: Final = 13  # requests sent and not answered
BEGAN_AT: Final = 14  # start of the present run of traffic
ENTERING: Final = 15  # flag: the entry is not decided yet
ENTRY_OK: Final = 16  # successes that decide about it; later the same for the check of a trial
ENTRY_BAD: Final = 17  # refusals among those answers
ENTRY_OTHERS: Final = 18  # requests in flight besides the refused one at entry
ENTRY_DEMAND: Final = 19  # requests per second that the scope sent before entry
ENTRY_SENT_AT: Final = 20  # when the first refused request had been sent
ENTRY_RATE: Final = 21  # cautious rate at entry, requests per second
WEAK: Final = 22  # 1.0: few answers decided about the entry; 2.0: and the one late challenge was used
OVERLOADED: Final = 23  # flag: the refusals of this scope are known to be load; no tolerance
YOUNG: Final = 24  # flag: it looks for its share after a sure overload
YOUNG_SERVED: Final = 25  # successes since entry, or since the overload was found
CHECKS: Final = 26  # batches of answers that a trial rate has still to pass
CUT_AT: Final = 27  # last large cut of a young scope
GOOD: Final = 28  # requests per second that came through when the scope was last well, smoothed
SUCCEEDED_AT: Final = 29  # the last success
STREAK: Final = 30  # refusals since then
OUTAGE: Final = 31  # flag: nothing comes through
RECOVERING: Final = 32  # flag: on the way back to GOOD
BLOCK_AT: Final = 33  # the block of answers under watch counts requests sent since then
BLOCK_N: Final = 34  # answers in it
BLOCK_BAD: Final = 35  # refusals in it
REF_SET: Final = 36  # flag: a reference block is kept
REF_RATIO: Final = 37  # its share of refusals
REF_SENT: Final = 38  # its requests per second
REF_RATE: Final = 39  # RATE at its end
REF_N: Final = 40  # its answers
REF_BAD: Final = 41  # its refusals
WORST: Final = 42  # largest share of refusals of any block since entry
CHALLENGE: Final = 43  # flag: the rate is back at that of before, to see whether the share of refusals rises
BACK_TO: Final = 44  # rate to return to if it does
LOW_N: Final = 45  # answers of the block at the low rate
LOW_BAD: Final = 46  # its refusals
FLOOR: Final = 47  # share of refusals that is tolerated
FLOOR_PAID_AT: Final = 48  # when the tolerance last showed its use
FLOOR_RATE: Final = 49  # RATE at that time
CREDIT: Final = 50  # refusals that may still be ignored
LOCKED_UNTIL: Final = 51  # no challenge before
LOCK_S: Final = 52  # how long the next lock lasts
SUSPECT_SHARE: Final = 53  # suspected answers among the recent ones, smoothed over about 20
SUSPECT_N: Final = 54  # answers behind that figure, at most 20
REALLY_REFUSED_AT: Final = 55  # the last answer that was a refusal beyond doubt
ISSUED: Final = 56  # tokens ever taken in advance (`turns`); the last turn's number
SENT_AT: Final = 57  # the last request of all who share the record
OVERSHOT_AT: Final = 58  # the first refusal after a long growth, while it may still be answered with a large cut
SHARE: Final = 59  # part of all processes that use the scope which steps this record, above 0 to 1; 0.0: not known
ASKED_UNTIL: Final = 60  # a small share of refusals is no question before
CLEAN_N: Final = 61  # answers of the block with the fewest refusals since entry, of a scope that is alone
CLEAN_BAD: Final = 62  # its refusals
DELAY: Final = 63  # how long a success takes to come, smoothed; while limited
SIZE: Final = 64  # floats in a record


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The numbers of the law and the switches of its rules. The defaults are the law; docs/control-law.md says why.

    A test changes one at a time to show what it is for. Rates are requests per second, times seconds, shares 0 to 1.
    """

    # growth and cuts
    growth: float = 0.03  # growth per second = growth * (pull + (epochs / regrow_s) ** 2)
    regrow_s: float = 6.0  # seconds without a cut after which growth has clearly sped up
    growth_cap: float = 0.1  # per second; at .5 one client takes all after a jump of the ceiling (Jain .05)
    pull_low: float = 0.1  # pull = 1 / rate within these bounds: the poor grow faster, which makes shares equal
    pull_high: float = 8.0
    cut: float = 0.5  # a refusal takes cut / max(1, rate) of the rate
    cut_max: float = 0.15  # share of the rate, or one refusal of a slow client would cost it seconds
    epochs_lost: float = 20.0  # a refusal takes epochs_lost / max(1, rate) of the regrowth
    glut_s: float = 3.0  # seconds of growth without a refusal, after which
    glut: float = 8.0  # so many refusals within a second are, if they are also
    glut_share: float = 0.08  # this share of its answers, reason to go down to what comes through,
    glut_hold_s: float = 0.5  # at most once in this time,
    glut_over_s: float = 2.0  # for so long,
    glut_least: float = 0.5  # and not below this of what came through when the scope was well
    slow_start_per_s: float = 0.7  # growth (x2 per second) until the first refusal that counts
    rate_min: float = 0.2  # one probe in 5 s
    rate_max: float = 1e7  # no bound in practice; keeps the sums finite
    wait_max_s: float = 5.0  # a scope with waiters sends at least that often
    burst_s: float = 0.05  # the bucket holds max(1, burst_s * rate) requests
    jitter: float = 0.02  # of a token, so that clients do not march in step
    release_s: float = 60.0  # without a refusal, and not binding: open again
    # entry
    trial: bool = True  # look at the answers to what was in flight before the entry is judged
    entry_share: float = 0.9  # cautious rate = entry_share * what came through in the last second
    entry_s: float = 1.0  # answers to requests from before entry still teach the rate for that long
    run_min_s: float = 0.5  # a run shorter than this counts as this long: what it got was mostly a saved burst
    rate_initial: float = 1.0  # least cautious rate: a large fleet starts from here
    rate_caller: float = 1.5  # the same for each caller, with at most `small` others in flight: a small job starts too
    small: float = 4.0  # slowly below, and 64 processes of two callers were refused one request in six with 6 each
    trial_rate: float = 0.9  # a trial rate is this of the demand (and of the share that succeeded)
    clear_share: float = 0.9  # of at least `settled` answers that came through, for a scope that is alone:
    clear_trial: float = 2.0  # times the demand, because a first moment shows too little of it
    checks: float = 2.0  # batches of answers that a trial rate has to pass
    batch_bad_weak: float = 7.0  # refusals in a batch that end the trial, but say nothing sure, if the entry was weak
    # entry of scopes with few callers: fewer than `few` others in flight say too little at once
    few: float = 16.0
    few_crowd: float = 10.0  # from so many others on, chance makes half of six refused too often: look at more
    few_answers_min: float = 3.0  # answers that decide: as many as were in flight, within these bounds
    few_answers: float = 6.0
    few_answers_crowd: float = 12.0
    few_bad: float = 0.5  # share of those answers whose refusal is a sure overload
    few_clean: float = 9.0  # successes beside at most one refusal that lift few_cap: a ceiling refuses more
    few_cap: float = 2.0  # of the cautious rate, most that a trial gives; no cap costs fleets of few callers 5 % 503s
    few_batch: float = 8.0  # answers per check of the trial
    few_batch_bad: float = 5.0  # refusals among them that make it an overload
    # entry of scopes with many callers
    trial_s: float = 0.25  # refusals come home sooner than successes: wait for both
    trial_share: float = 0.5  # of those in flight must succeed, or the entry is an overload
    sure: float = 6.0  # answers from which refusals may be among them, and from which the trial has no cap
    settled: float = 20.0  # answers below which the entry is weak: judged later and with more care
    trial_cap: float = 40.0  # requests per second, most that a trial with at most `sure` answers gives
    batch: float = 16.0  # answers per check of the trial
    batch_bad: float = 9.0  # refusals among them that make it an overload
    # young scopes
    young: bool = True  # look for the share in larger steps after a sure overload
    young_s: float = 20.0  # seconds around which that fades
    young_low: float = 2.9  # cautious rates between which it is done: slower ones see too few refusals,
    young_high: float = 30.0  # faster ones do not need it
    young_top: float = 100.0  # rate above which it is over
    young_step: float = 0.05  # of the mean rate since entry, added per second,
    young_silence: float = 0.05  # and this much more per second cubed of silence: a share that is far off shows early
    young_step_max: float = 0.6  # at most so much per second
    young_reach: float = 3.0  # of the cautious rate, up to which those steps go; 6 gives Jain .67 with 256 clients
    young_cut: float = 0.4  # of the rate, taken by a refusal: an overshoot of these steps is large
    young_hold_s: float = 0.05  # at most once in this time: refusals that come together are one piece of news
    young_floor: float = 0.5  # of the cautious rate, which cuts do not pass
    young_floor_s: float = 10.0  # in this time: the opening storm of the others is not this scope's doing
    slow_below: float = 4.0  # cautious rate below which the following hold instead: so few refusals say the same later
    slow_low: float = 1.1  # for young_low,
    slow_s: float = 60.0  # young_s,
    slow_step: float = 0.02  # young_step,
    slow_silence: float = 0.001  # young_silence,
    slow_reach: float = 2.0  # and young_reach
    young_regrow_s: float = 4.0  # regrow_s and growth_cap meanwhile
    young_growth_cap: float = 0.2
    # tolerance
    tolerance: bool = True  # tell refusals that do not follow the rate from load
    balance_base: float = 0.018  # at a ceiling that this law governs a client of rate r sees balance_base +
    balance_per: float = 0.16  # balance_per / r of its requests refused (simulated, 64 to 8192 clients)
    suspicious: float = 1.5  # times that balance, before refusals can be taken for other than load
    quiet_s: float = 2.0  # after entry, in which nothing is judged: the opening storm
    quiet_weak_s: float = 10.0  # the same after a weak entry
    weak_min: float = 0.1  # share of refusals below which a scope with a weak entry never suspects
    rate_floor: float = 2.0  # requests per second below which nothing can be told
    fall: float = 1.5  # the rate must have fallen by this factor
    kept: float = 0.7  # and the share of refusals have kept this much
    risen: float = 1.4  # a share that grew by this is another situation
    answered: float = 1.3  # during the challenge the share may rise by this
    overload: float = 0.55  # a block with more refusals than this is an overload
    faded: float = 0.35  # a block with less than this of the worst one: the refusals followed the load
    floor_max: float = 0.5  # share; more is never tolerated
    earn: float = 1.1  # credit per answer = earn * floor
    credit_max: float = 10.0  # refusals; more would hide the start of a real overload
    pay_s: float = 20.0  # a tolerance that has not freed the scope or raised it 1.5 times by then is dropped
    lock_s: float = 10.0  # after a failed challenge; doubled each time
    lock_max_s: float = 600.0
    follow: float = 0.3  # of the way from the floor to what is refused, per block
    # contradiction and disproof: the tolerance of scopes with few callers
    contra_s: float = 4.0  # after entry, from which it is looked for
    contra_rate_max: float = 40.0  # requests per second sent; faster scopes see enough for the rule of all
    contra_bad: float = 6.0  # refusals
    contra_min: float = 0.15  # share of refusals
    contra_balance: float = 2.5  # times the balance: at a ceiling a scope at its limit sees less
    contra_bind: float = 0.75  # of the rate must be sent, or the limit is not what holds the scope
    contra_leap: float = 12.0  # times the rate, most that the challenge asks for
    contra_block_bad: float = 20.0  # refusals or seconds after which a block starts anew without a verdict
    contra_block_s: float = 60.0
    contra_answers: float = 24.0  # answers (or 5 s) of the challenge
    contra_rise: float = 1.3  # its share of refusals may be contra_rise * that of before + contra_add
    contra_add: float = 0.08
    contra_most: float = 0.34  # and never above this: a store that refuses a third at random is not told from load
    contra_sure: float = 8.0  # refusals in a block above that share that make it an overload
    disproof_bad: float = 15.0  # refusals that a floor lets expect before it is judged
    disproof_low: float = 0.55  # a share of refusals below this of the floor followed the load,
    disproof_high: float = 1.5  # and one above this of the floor plus disproof_add does too
    disproof_add: float = 0.05
    few_follow: float = 0.1  # `follow` for them: slower, or a floor creeps after a load and is never disproved
    # a scope whose record stands for all that use it: a dip of its rate tells load from chance at once
    dip: bool = True
    dip_bad: float = 6.0  # refusals
    dip_min: float = 0.04  # and their share, from which there is a question
    dip_least: float = 0.008  # the same for one that surely is, if no dip has found load of late
    dip_most: float = 0.9  # share above which it is an outage, and says nothing of what could come through
    dip_many: float = 16.0  # refusals that make it one before a second is over
    dip_soon_s: float = 0.4
    dip_delays: float = 4.0  # times the time of a success, least age of a block: where requests queue before any is
    # refused (Azure), the refusals of a block are in long before its successes, and all would seem to be refused
    dip_late_s: float = 0.3  # time of a success from which that matters; on busy cores it is 0.1 to 0.2 s in a burst
    delay_share: float = 0.1  # of the way that a success moves the smoothed time
    dip_balance: float = 2.5  # times the balance, least for one of which it is only assumed
    dip_to: float = 0.85  # of what came through is the rate of the dip: a ceiling refuses next to nothing there
    dip_answers: float = 16.0  # that the dip takes at least, and so many that
    dip_expected: float = 6.0  # so many refusals are to be expected if they are chance
    dip_s: float = 5.0  # at most,
    dip_clear: float = 3.5  # and so many if there is none, or far more
    dip_kept: float = 0.5  # of the share that is left in the dip: chance
    clean_expected: float = 12.0  # refusals that a share lets expect in the cleanest block,
    clean_sigmas: float = 3.0  # and standard deviations below that from which the share was not always so: it is load
    dip_again_s: float = 60.0  # after a dip that found load, for which `dip_least` does not hold
    dip_block_s: float = 4.0  # seconds after which refusals that are no question are forgotten
    dip_wait_s: float = 15.0  # and those that could become one
    # a scope that is known to be one of many
    fleet_share: float = 0.02  # SHARE below which nothing is tried at entry, or while young, or believed of few callers
    fleet_slow_start_per_s: float = 0.2  # slow_start_per_s for it: the last to be refused would have most
    # recovery
    recovery: bool = True  # remember the rate from before an outage
    outage_s: float = 3.0  # without a success
    outage_alone_s: float = 1.0  # the same for a scope that is alone: nobody else takes what comes through
    outage_refusals: float = 10.0  # and as many refusals in a row
    restart: float = 0.25  # of GOOD, at the first success
    recover_per_s: float = 0.7  # growth from there to GOOD
    # suspected answers
    suspect_window_s: float = 60.0  # a real refusal within it makes a suspected answer count
    suspect_share: float = 0.5  # or such a share of suspected ones
    suspect_n: float = 20.0  # among so many


LAW: Final = Constants()


ASSUMED: Final = 0.995  # SHARE of a record of which nobody said that it is alone, and nothing speaks against it
NEVER: Final = -1e12  # finite, so that the sum of a record tells whether it is sound
LAYOUT: Final = 2  # changes with the meaning of any index: records that are kept outside the process carry it


def fresh(now: float) -> list[float]:
    """Return the record of a scope that has seen nothing: open, so that nothing waits."""
    rec = [0.0] * SIZE
    rec[RATE] = math.inf
    for index in (TOKENS_AT, GROWN_AT, ENTERED_AT, REFUSED_AT, BEGAN_AT, SUCCEEDED_AT, BLOCK_AT, SENT_AT):
        rec[index] = now
    rec[SECOND] = float(math.floor(now))
    rec[REALLY_REFUSED_AT] = rec[OVERSHOT_AT] = NEVER
    rec[LOCK_S] = LAW.lock_s
    return rec


def delivered_per_s(rec: Record, now: float) -> float:
    """Return the successes of about the last second."""
    inside = now - rec[SECOND]
    return rec[COUNT_BEFORE] * (1.0 - inside) + rec[COUNT] if 0.0 <= inside < 1.0 else rec[COUNT]


def is_alone(rec: Record, law: Constants) -> bool:
    """Say whether all that use the scope step this record, as far as is known."""
    return rec[SHARE] >= ASSUMED and law.dip


def is_one_of_many(rec: Record, law: Constants) -> bool:
    """Say whether this record is known to be a small part of a fleet: what it sees of refusals is the fleet's doing."""
    return 0.0 < rec[SHARE] < law.fleet_share


def has_few_callers(rec: Record, law: Constants) -> bool:
    """Say whether fewer than `few` other requests were in flight at entry."""
    return rec[ENTRY_OTHERS] < law.few


def new_block(rec: Record, now: float) -> None:
    """Count answers afresh; only those to requests sent from now on."""
    rec[BLOCK_AT] = now
    rec[BLOCK_N] = rec[BLOCK_BAD] = 0.0


def forget(rec: Record, now: float) -> None:
    """Drop what was observed of the refusals so far: the situation is another."""
    rec[REF_SET] = rec[CHALLENGE] = 0.0
    new_block(rec, now)
