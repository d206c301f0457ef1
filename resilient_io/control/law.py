"""The admission law: how many requests a second one scope may send, learnt from its answers alone.

The state of a scope is one record: a sequence of SIZE floats, named by the indices below. Pure functions step it, so
the same record can be a list, a slice of shared memory or a value in a store. Nothing here reads a clock or draws a
random number: callers pass `now` (seconds, any monotonic origin, one for all who share the record) and `u` in [0, 1).

A scope is *open* (nothing waits) until its first refusal, then *limited* to RATE by a token bucket. In short:
entry      what became of the requests in flight at the first refusal tells a ceiling from random refusals
growth     each success raises the rate, slowly after a cut and faster the longer there was none
cut        each refusal lowers it by `cut / rate`, so 0.5 and 5000 requests a second behave alike
young      after a sure overload a slow scope looks for its share in larger steps for `young_s`
tolerance  a refusal ratio that did not move while the rate fell, nor when it is put back, is not load: it is tolerated
recovery   when nothing came through for seconds the rate before is remembered, and taken again when something does
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
ENTERING: Final = 15  # flag: the requests in flight at entry are still coming home
ENTRY_OK: Final = 16  # of those, successes; later the same for the check of a trial
ENTRY_BAD: Final = 17  # of those, refusals
ENTRY_OTHERS: Final = 18  # requests in flight besides the refused one at entry
ENTRY_DEMAND: Final = 19  # requests per second that the scope sent before entry
ENTRY_SENT_AT: Final = 20  # when the first refused request had been sent
ENTRY_RATE: Final = 21  # cautious estimate at entry, requests per second
WEAK: Final = 22  # 1.0: few answers decided about the entry; 2.0: and the one late challenge was used
OVERLOADED: Final = 23  # flag: the refusals of this scope are known to be load; no tolerance
YOUNG: Final = 24  # flag: entry was a sure overload
CHECKS: Final = 25  # batches of answers that a trial rate has still to pass
TRIAL_AT: Final = 26  # when the trial rate was set
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
CHALLENGE: Final = 43  # flag: the rate is back at the reference, to see whether the ratio rises
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
SIZE: Final = 64  # floats in a record; the rest is kept for later


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The numbers of the law and the switches of its rules. The defaults are the law; docs/control-law.md says why.

    A test changes one at a time to show what it is for. Rates are requests per second, times seconds, shares 0 to 1.
    """

    growth: float = 0.03  # growth per second = growth * (pull + (epochs / regrow_s) ** 2)
    regrow_s: float = 6.0  # seconds without a cut after which growth has clearly sped up
    growth_cap: float = 0.1  # per second; at .5 one client takes all after a jump of the ceiling (Jain .05)
    pull_low: float = 0.1  # pull = 1 / rate within these bounds: the poor grow faster, which makes shares equal
    pull_high: float = 8.0
    cut: float = 0.5  # a refusal takes cut / max(1, rate) of the rate
    cut_max: float = 0.15
    epochs_lost: float = 20.0  # a refusal takes epochs_lost / max(1, rate) of the regrowth
    slow_start_per_s: float = 0.2  # growth until the first refusal that counts
    entry_share: float = 0.8  # of what came through in the last second
    run_min_s: float = 0.5  # a run shorter than this counts as this long: what it got was mostly a saved burst
    rate_initial: float = 1.0  # least rate at entry
    rate_small: float = 3.0  # the same for a scope of at most `small` + 1 callers
    rate_min: float = 0.2  # one probe in 5 s
    rate_max: float = 1e7
    wait_max_s: float = 5.0  # a scope with waiters sends at least that often
    burst_s: float = 0.05  # the bucket holds max(1, burst_s * rate) requests
    release_s: float = 60.0  # without a refusal, and not binding: open again
    entry_s: float = 1.0  # answers to requests from before entry still teach the rate for that long
    jitter: float = 0.02  # of a token, so that clients do not march in step
    # entry
    trial: bool = True  # judge the entry by the requests in flight
    trial_s: float = 0.25  # refusals come home sooner than successes: wait for both
    trial_share: float = 0.5  # of those in flight must succeed, or the entry is an overload
    trial_rate: float = 0.9  # of demand * share that succeeded
    small: float = 4.0  # others in flight up to which the scope goes on as before for a few answers
    small_answers: float = 6.0  # that many (8 if there were no others)
    small_ok: float = 4.0  # of which that many must succeed
    sure: float = 6.0  # answers from which the trial rate has no cap
    settled: float = 20.0  # answers below which the entry is weak: judged later and with more care
    small_cap: float = 40.0  # requests per second, most that a trial with few answers gives
    batch: float = 16.0  # answers per check of a trial
    batch_bad: float = 9.0  # refusals among them that end it
    batch_bad_weak: float = 7.0  # the same when few answers decided
    # young scopes
    young: bool = True
    young_s: float = 20.0
    young_step: float = 0.2  # of the entry rate per second, added
    young_cut: float = 0.5  # taken at most once in young_hold_s
    young_hold_s: float = 0.2
    young_low: float = 4.0  # only scopes between these rates: slower ones see too few refusals, faster ones need it not
    young_high: float = 30.0
    young_regrow_s: float = 4.0
    young_growth_cap: float = 0.2
    # tolerance
    tolerance: bool = True
    balance_base: float = 0.018  # at a ceiling that this law governs a client of rate r sees balance_base +
    balance_per: float = 0.16  # balance_per / r of its requests refused (simulated, 64 to 8192 clients)
    suspicious: float = 1.5  # times that balance, before refusals can be taken for other than load
    quiet_s: float = 2.0  # after entry, in which nothing is judged: the opening storm
    quiet_weak_s: float = 10.0
    weak_min: float = 0.1  # share of refusals below which a scope with a weak entry never suspects
    rate_floor: float = 2.0  # requests per second below which nothing can be told
    fall: float = 1.5  # the rate must have fallen by this factor
    kept: float = 0.7  # and the share of refusals have kept this much
    risen: float = 1.4  # a share that grew by this is another situation
    answered: float = 1.3  # during the challenge the share may rise by this
    overload: float = 0.55  # a block with more refusals than this is an overload
    faded: float = 0.35  # a block with less than this of the worst one: the refusals followed the load
    floor_max: float = 0.5
    earn: float = 1.1  # credit per answer = earn * floor
    credit_max: float = 10.0
    pay_s: float = 20.0  # a tolerance that has not freed the scope or raised it 1.5 times by then is dropped
    lock_s: float = 10.0  # after a failed challenge; doubled each time
    lock_max_s: float = 600.0
    # recovery
    recovery: bool = True
    outage_s: float = 3.0  # without a success
    outage_refusals: float = 10.0  # and as many refusals in a row
    restart: float = 0.25  # of GOOD, at the first success
    recover_per_s: float = 0.7  # growth from there to GOOD
    # suspected
    suspect_window_s: float = 60.0  # a real refusal within it makes a suspected answer count
    suspect_share: float = 0.5
    suspect_n: float = 20.0


LAW: Final = Constants()


def fresh(now: float) -> list[float]:
    """Return the record of a scope that has seen nothing: open, so that nothing waits."""
    rec = [0.0] * SIZE
    rec[RATE] = math.inf
    for index in (TOKENS_AT, GROWN_AT, ENTERED_AT, REFUSED_AT, BEGAN_AT, SUCCEEDED_AT, BLOCK_AT):
        rec[index] = now
    rec[SECOND] = float(math.floor(now))
    rec[REALLY_REFUSED_AT] = -math.inf
    rec[LOCK_S] = LAW.lock_s
    return rec


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
    elapsed = now - rec[TOKENS_AT]
    tokens = rec[TOKENS] + elapsed * rate if elapsed > 0.0 else rec[TOKENS]
    if tokens > held and tokens > 1.0:
        tokens = held if held > 1.0 else 1.0
    rec[TOKENS_AT] = now
    if tokens >= 1.0 - 1e-9:
        rec[TOKENS] = tokens
        return now
    least = 1.0 - law.wait_max_s * rate  # so that the wait is bounded in truth, not only in what is returned
    rec[TOKENS] = tokens = tokens if tokens > least else least
    return now + (1.0 - tokens) / rate


def on_send(rec: Record, now: float, u: float, law: Constants = LAW) -> None:
    """Count a request that leaves now. `u` spreads the clients apart."""
    if rec[IN_FLIGHT] <= 0.0 and now - rec[SECOND] > 3.0:
        rec[BEGAN_AT] = now
    rec[IN_FLIGHT] += 1.0
    if rec[LIMITED] != 0.0:
        rec[TOKENS] -= 1.0 - (u - 0.5) * law.jitter


def on_dropped(rec: Record, now: float) -> None:
    """Count an answer that says nothing of load, or a request that was cancelled."""
    rec[IN_FLIGHT] = max(0.0, rec[IN_FLIGHT] - 1.0)


def on_success(rec: Record, now: float, sent_at: float, *, backlog: bool, law: Constants = LAW) -> None:
    """Count a request that was answered; `backlog` says whether callers were waiting for admission."""
    _answered(rec, now, suspected=0.0)
    rec[COUNT] += 1.0
    rec[SUCCEEDED_AT] = now
    rec[STREAK] = 0.0
    if rec[LIMITED] == 0.0:
        return
    if rec[ENTERING] != 0.0:
        _entering(rec, now, sent_at, 0.0, law)
    if sent_at < rec[ENTERED_AT]:
        if now - rec[ENTERED_AT] < law.entry_s:
            rec[RATE] = max(rec[RATE], law.entry_share * _delivered(rec, now))
        return
    _observe(rec, now, sent_at, 0.0, law)
    if rec[FLOOR] != 0.0:
        _judge_use(rec, now, backlog, law)
    elapsed = min(max(0.0, now - rec[GROWN_AT]), 1.0)
    rec[GROWN_AT] = now
    if rec[OUTAGE] != 0.0:
        _restart(rec, now, law)
    elif backlog or _demanded(rec, now, law):
        _grow(rec, now, elapsed, law)


def on_refusal(rec: Record, now: float, sent_at: float, u: float, law: Constants = LAW) -> None:
    """Count a refusal that speaks of load (503 SlowDown, ServerBusy, 429)."""
    rec[REALLY_REFUSED_AT] = now
    _answered(rec, now, suspected=0.0)
    _refused(rec, now, sent_at, u, law)


def on_suspected(rec: Record, now: float, sent_at: float, u: float, law: Constants = LAW) -> None:
    """Count an answer that may or may not speak of load (timeout, reset, 500).

    It is taken for a refusal if the scope was really refused within `suspect_window_s`, or if at least `suspect_share`
    of the last `suspect_n` answers were like it; otherwise it only frees its place.
    """
    _answered(rec, now, suspected=1.0)
    many = rec[SUSPECT_N] >= law.suspect_n and rec[SUSPECT_SHARE] >= law.suspect_share
    if many or now - rec[REALLY_REFUSED_AT] <= law.suspect_window_s:
        _refused(rec, now, sent_at, u, law)


def _answered(rec: Record, now: float, *, suspected: float) -> None:
    in_flight = rec[IN_FLIGHT] - 1.0
    rec[IN_FLIGHT] = in_flight if in_flight > 0.0 else 0.0
    if now - rec[SECOND] >= 1.0:
        _roll(rec, now)
    if suspected != 0.0 or rec[SUSPECT_N] != 0.0:
        n = min(20.0, rec[SUSPECT_N] + 1.0)
        rec[SUSPECT_N] = n
        rec[SUSPECT_SHARE] += (suspected - rec[SUSPECT_SHARE]) / n
        if rec[SUSPECT_SHARE] < 1e-3:
            rec[SUSPECT_N] = rec[SUSPECT_SHARE] = 0.0


def _roll(rec: Record, now: float) -> None:
    """Begin a new second; a whole one in which most came through moves GOOD, up quickly and down slowly."""
    second = float(math.floor(now))
    came, refused, good = rec[COUNT], rec[REFUSED], rec[GOOD]
    if came > 0.0 and refused <= came and rec[SECOND] >= rec[BEGAN_AT]:
        rec[GOOD] = came if good == 0.0 else good + (came - good) * (0.5 if came > good else 0.1)
    rec[COUNT_BEFORE] = came if second == rec[SECOND] + 1.0 else 0.0
    rec[COUNT] = rec[REFUSED] = 0.0
    rec[SECOND] = second


def _delivered(rec: Record, now: float) -> float:
    """Return the successes of about the last second."""
    inside = now - rec[SECOND]
    return rec[COUNT_BEFORE] * (1.0 - inside) + rec[COUNT] if 0.0 <= inside < 1.0 else rec[COUNT]


# ---- growth and cuts -------------------------------------------------------------------------------------------------


def _demanded(rec: Record, now: float, law: Constants) -> bool:
    """Without a backlog: open the scope if it was not limited by us for long, and say whether growth makes sense."""
    delivered = _delivered(rec, now)
    if now - rec[REFUSED_AT] > law.release_s and rec[RATE] > 1.5 * delivered:
        rec[LIMITED] = rec[FLOOR] = 0.0
        rec[RATE] = math.inf
        return False
    return rec[RATE] <= 2.0 * delivered + 1.0


def _youth(rec: Record, now: float, law: Constants) -> float:
    """Return 1.0 for a scope that is looking for its share after a sure overload, falling to 0.0 around `young_s`."""
    if rec[YOUNG] == 0.0 or not law.young:
        return 0.0
    age = (now - rec[ENTERED_AT]) / law.young_s
    if age > 3.0 or rec[ENTRY_RATE] < law.young_low or max(rec[RATE], rec[ENTRY_RATE]) > law.young_high:
        return 0.0
    return 1.0 / (1.0 + age * age * age * age)


def _grow(rec: Record, now: float, elapsed: float, law: Constants) -> None:
    rate = rec[RATE]
    if rec[RECOVERING] != 0.0:
        rec[RATE] = min(rate * math.exp(law.recover_per_s * elapsed), max(rate, rec[GOOD]))
        rec[RECOVERING] = 1.0 if rec[RATE] < rec[GOOD] else 0.0
        return
    youth = _youth(rec, now, law)
    if rec[SLOW_START] != 0.0 and youth == 0.0:
        rec[RATE] = min(law.rate_max, rate * math.exp(law.slow_start_per_s * elapsed))
        return
    regrow_s, cap = law.regrow_s, law.growth_cap
    if youth > 0.0:
        rate += law.young_step * youth * rec[ENTRY_RATE] * elapsed
        if youth > 0.3:
            regrow_s, cap = law.young_regrow_s, law.young_growth_cap
    epochs = rec[EPOCHS] = rec[EPOCHS] + elapsed
    pull = min(law.pull_high, max(law.pull_low, 1.0 / rate))
    silence = epochs / regrow_s
    rec[RATE] = min(law.rate_max, rate * (1.0 + min(cap, law.growth * (pull + silence * silence)) * elapsed))


def _refused(rec: Record, now: float, sent_at: float, u: float, law: Constants) -> None:
    rec[REFUSED] += 1.0
    if rec[LIMITED] == 0.0:
        _enter(rec, now, sent_at, u, law)
        return
    rec[STREAK] += 1.0
    if rec[ENTERING] != 0.0:
        _entering(rec, now, sent_at, 1.0, law)
        if rec[ENTERING] != 0.0 and rec[ENTRY_OTHERS] <= law.small:
            return
    if sent_at < rec[ENTERED_AT]:
        return
    rec[REFUSED_AT] = now
    if law.recovery and rec[STREAK] >= law.outage_refusals and now - rec[SUCCEEDED_AT] >= law.outage_s:
        if rec[OUTAGE] == 0.0:
            rec[OUTAGE] = 1.0
            rec[FLOOR] = 0.0
            _forget(rec, now)
    else:
        _observe(rec, now, sent_at, 1.0, law)
    if rec[CHALLENGE] == 0.0 and not _pardoned(rec, law):
        _cut(rec, now, law)


def _cut(rec: Record, now: float, law: Constants) -> None:
    rec[GROWN_AT] = now
    rate = rec[RATE]
    if rec[OUTAGE] == 0.0:
        rec[SLOW_START] = 0.0
        if _youth(rec, now, law) > 0.3:
            if now - max(rec[CUT_AT], rec[ENTERED_AT]) >= law.young_hold_s:
                rec[CUT_AT] = now
                rec[EPOCHS] = 0.0
                rec[RATE] = max(law.rate_min, rate * (1.0 - law.young_cut))
            return
    weight = 1.0 / max(1.0, rate)
    rec[RECOVERING] = 0.0
    rec[EPOCHS] *= max(0.0, 1.0 - law.epochs_lost * weight)
    rec[RATE] = max(law.rate_min, rate * (1.0 - min(law.cut_max, law.cut * weight)))


# ---- entry -----------------------------------------------------------------------------------------------------------


_CLEARED_AT_ENTRY: Final = (
    OUTAGE, RECOVERING, CREDIT, FLOOR, YOUNG, OVERLOADED, CHECKS, WORST, WEAK, ENTRY_OK, ENTRY_BAD, EPOCHS,
)  # fmt: skip


def _enter(rec: Record, now: float, sent_at: float, u: float, law: Constants) -> None:
    """Become limited: a cautious rate from what came through, and a look at what is in flight (`_entering`)."""
    came = _delivered(rec, now)
    run_s = min(1.0, max(0.05, now - rec[BEGAN_AT]))
    for index in _CLEARED_AT_ENTRY:
        rec[index] = 0.0
    rec[LIMITED] = rec[SLOW_START] = rec[STREAK] = 1.0
    rec[TOKENS_AT] = rec[GROWN_AT] = rec[ENTERED_AT] = rec[REFUSED_AT] = now
    rec[TOKENS] = -u
    least = law.rate_small if rec[IN_FLIGHT] <= law.small else law.rate_initial
    rec[RATE] = rec[ENTRY_RATE] = max(least, law.entry_share * came / max(law.run_min_s, run_s))
    rec[ENTRY_SENT_AT] = sent_at
    rec[ENTRY_OTHERS] = rec[IN_FLIGHT]
    rec[ENTRY_DEMAND] = (came + rec[IN_FLIGHT] + 1.0) / run_s
    rec[ENTERING] = 1.0 if law.trial else 0.0
    if law.trial and rec[ENTRY_OTHERS] <= law.small:  # too little in flight to learn from: go on as before for a while
        rec[RATE] = max(rec[RATE], rec[ENTRY_DEMAND])
        rec[TOKENS] = 0.0
    _forget(rec, now)


def _entering(rec: Record, now: float, sent_at: float, bad: float, law: Constants) -> None:
    """Count what became of the requests sent since the first refused one left, and decide when they are home.

    Earlier ones say nothing: they may have been served from a burst that is used up by now.
    """
    small = rec[ENTRY_OTHERS] <= law.small
    if sent_at >= rec[ENTRY_SENT_AT] and (small or sent_at < rec[ENTERED_AT]):
        rec[ENTRY_BAD] += bad
        rec[ENTRY_OK] += 1.0 - bad
    if not small:
        if now - rec[ENTERED_AT] >= law.trial_s:
            _entered(rec, now, law)
    elif rec[ENTRY_OTHERS] <= 1.0 and rec[ENTRY_BAD] >= 4.0 and rec[ENTRY_OK] <= 3.0:
        _overloaded(rec, now, law)
    elif rec[ENTRY_OK] + rec[ENTRY_BAD] >= (8.0 if rec[ENTRY_OTHERS] <= 1.0 else law.small_answers):
        _entered(rec, now, law)


def _entered(rec: Record, now: float, law: Constants) -> None:
    ok, bad = rec[ENTRY_OK], rec[ENTRY_BAD]
    n = ok + bad
    small = rec[ENTRY_OTHERS] <= law.small
    rec[ENTERING] = 0.0
    rec[WEAK] = 1.0 if n < law.settled else 0.0
    if n >= 2.0 and ok < (law.small_ok if small and n < 8.0 else law.trial_share * n):
        _overloaded(rec, now, law)
        return
    least = ok / n - 0.4 / math.sqrt(n) if n > 0.0 else 0.0
    sure = n >= 3.0 and (bad == 0.0 or (n >= law.sure and least >= law.trial_share))
    if ok > 0.0 and (small or sure):  # else no trial, or one client in ten of a large fleet gets ten times its share
        share = ok / n - (0.25 / math.sqrt(n) if n > 8.0 else 0.0)
        trial = law.trial_rate * rec[ENTRY_DEMAND] * share
        if n <= law.sure:
            trial = min(trial, max(law.small_cap, 2.0 * rec[ENTRY_RATE]))
        rec[RATE] = max(rec[ENTRY_RATE] if small else rec[RATE], trial)
        rec[CHECKS] = 2.0
        rec[TRIAL_AT] = now
        rec[ENTRY_OK] = rec[ENTRY_BAD] = 0.0
    elif small:
        rec[RATE] = rec[ENTRY_RATE]
    _forget(rec, now)


def _overloaded(rec: Record, now: float, law: Constants) -> None:
    """The ceiling is far below what this scope asked for: back to the cautious rate, and no tolerance."""
    rec[ENTRY_RATE] = max(rec[ENTRY_RATE], law.entry_share * _delivered(rec, now))
    if rec[ENTRY_OTHERS] <= law.small:
        rec[WEAK] = 1.0
    rec[YOUNG] = rec[OVERLOADED] = 1.0
    rec[ENTERING] = rec[CHECKS] = 0.0
    rec[RATE] = min(rec[RATE], rec[ENTRY_RATE])
    _forget(rec, now)


def _check_trial(rec: Record, now: float, bad: float, law: Constants) -> None:
    """Give a trial rate back at once if most of its first answers are refusals."""
    if now - rec[TRIAL_AT] < 0.2:  # refusals come home first
        return
    rec[ENTRY_BAD] += bad
    rec[ENTRY_OK] += 1.0 - bad
    if rec[ENTRY_OK] + rec[ENTRY_BAD] < law.batch:
        return
    if rec[WEAK] != 0.0 and rec[ENTRY_BAD] >= law.batch_bad_weak:
        rec[RATE] = min(rec[RATE], rec[ENTRY_RATE])
        rec[CHECKS] = 0.0
    elif rec[ENTRY_BAD] >= law.batch_bad:
        _overloaded(rec, now, law)
    else:
        rec[CHECKS] -= 1.0
    rec[ENTRY_OK] = rec[ENTRY_BAD] = 0.0


# ---- refusals that do not follow the rate ----------------------------------------------------------------------------


def _balance(sent_per_s: float, law: Constants) -> float:
    """Return the share of refusals that a client of that rate sees at a ceiling which this law governs."""
    return law.balance_base + law.balance_per / max(sent_per_s, 0.3)


def _forget(rec: Record, now: float) -> None:
    rec[REF_SET] = rec[CHALLENGE] = 0.0
    _new_block(rec, now)


def _new_block(rec: Record, now: float) -> None:
    rec[BLOCK_AT] = now
    rec[BLOCK_N] = rec[BLOCK_BAD] = 0.0


def _lock(rec: Record, now: float, law: Constants) -> None:
    rec[LOCKED_UNTIL] = now + rec[LOCK_S]
    rec[LOCK_S] = min(law.lock_max_s, 2.0 * rec[LOCK_S])


def _pardoned(rec: Record, law: Constants) -> bool:
    """Each answer earns FLOOR of a credit; a refusal that finds one is not a cut."""
    if rec[FLOOR] == 0.0:
        return False
    credit = min(law.credit_max, rec[CREDIT] + law.earn * rec[FLOOR])
    rec[CREDIT] = credit - 1.0 if credit >= 1.0 else credit
    return credit >= 1.0


def _observe(rec: Record, now: float, sent_at: float, bad: float, law: Constants) -> None:
    if sent_at < rec[BLOCK_AT]:
        return
    if rec[CHECKS] != 0.0:
        _check_trial(rec, now, bad, law)
    if not law.tolerance:
        return
    if rec[FLOOR] != 0.0 and bad == 0.0:
        rec[CREDIT] = min(law.credit_max, rec[CREDIT] + law.earn * rec[FLOOR])
    rec[BLOCK_N] += 1.0
    rec[BLOCK_BAD] += bad
    age_s = now - rec[BLOCK_AT]
    if age_s >= 1.0:
        _close_block(rec, now, age_s, law)


def _close_block(rec: Record, now: float, age_s: float, law: Constants) -> None:
    n, bad = rec[BLOCK_N], rec[BLOCK_BAD]
    ratio, sent = bad / n, n / age_s
    balance = _balance(sent, law)
    if ratio > law.overload and bad >= 12.0:
        rec[OVERLOADED] = 1.0
    if now - rec[ENTERED_AT] < (law.quiet_weak_s if rec[WEAK] != 0.0 else law.quiet_s):
        _new_block(rec, now)
    elif rec[CHALLENGE] != 0.0:
        _end_challenge(rec, now, ratio, sent, age_s, law)
    elif bad >= (14.0 if ratio > 2.0 * balance else 40.0) or n >= min(2000.0, 40.0 / balance) or age_s >= 120.0:
        _weigh_block(rec, now, ratio, sent, balance, law)


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
        _forget(rec, now)
        return
    _late_reference(rec, ratio, balance, law)
    same = law.kept * rec[REF_RATIO] <= ratio <= law.risen * rec[REF_RATIO]
    if rec[REF_SET] == 0.0 or not same or sent >= rec[REF_SENT]:
        _set_reference(rec, ratio, sent, rec[RATE])
    elif _has_fallen(rec, sent, law) and now >= rec[LOCKED_UNTIL] and rec[OVERLOADED] == 0.0:
        rec[CHALLENGE] = 1.0
        rec[BACK_TO] = rec[RATE]
        rec[LOW_N], rec[LOW_BAD] = rec[BLOCK_N], rec[BLOCK_BAD]
        rec[RATE] = max(rec[RATE], rec[REF_SENT])
        rec[TOKENS] = min(rec[TOKENS], 1.0)
    _new_block(rec, now)


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


def _end_challenge(rec: Record, now: float, ratio: float, sent: float, age_s: float, law: Constants) -> None:
    """Back at the reference rate: if the ratio did not rise it is no load, and is tolerated from now on."""
    n, bad = rec[BLOCK_N], rec[BLOCK_BAD]
    most = law.answered * max(rec[REF_RATIO], rec[LOW_BAD] / max(1.0, rec[LOW_N]))
    risen = bad >= 20.0 and ratio > 2.0 * most
    if n < max(20.0, 20.0 / max(rec[REF_RATIO], 0.01)) and not risen and age_s < 20.0:
        return
    if ratio <= most and n >= 20.0:
        rec[FLOOR] = min(law.floor_max, (rec[REF_BAD] + rec[LOW_BAD] + bad) / (rec[REF_N] + rec[LOW_N] + n))
        rec[FLOOR_PAID_AT] = now
        rec[FLOOR_RATE] = sent
        rec[CREDIT] = rec[SLOW_START] = 1.0
        rec[EPOCHS] = 0.0
    else:
        rec[RATE] = min(rec[RATE], rec[BACK_TO])
        _lock(rec, now, law)
    _forget(rec, now)


def _revise_floor(rec: Record, now: float, ratio: float, balance: float, law: Constants) -> None:
    """Let the tolerance follow what is refused; well above it the refusals are load again."""
    floor = rec[FLOOR]
    if ratio > 1.3 * floor + law.suspicious * balance:
        rec[FLOOR] = 0.0
        _forget(rec, now)
        return
    floor = min(law.floor_max, 1.3 * floor, floor + 0.3 * (ratio - floor))
    rec[FLOOR] = floor if floor >= 0.005 else 0.0
    _new_block(rec, now)


def _judge_use(rec: Record, now: float, backlog: bool, law: Constants) -> None:
    """Drop a tolerance that frees nobody: at a real ceiling the rate stays bound however much is tolerated."""
    if not backlog:
        rec[FLOOR_PAID_AT] = now
    elif rec[RATE] > 1.5 * rec[FLOOR_RATE]:
        rec[FLOOR_RATE] = rec[RATE]
        rec[FLOOR_PAID_AT] = now
    elif now - rec[FLOOR_PAID_AT] > law.pay_s:
        rec[FLOOR] = 0.0
        _lock(rec, now, law)
        _forget(rec, now)


# ---- recovery --------------------------------------------------------------------------------------------------------


def _restart(rec: Record, now: float, law: Constants) -> None:
    """Something came through after an outage: take a quarter of the rate before it, and the rest within seconds."""
    rec[OUTAGE] = rec[SLOW_START] = rec[EPOCHS] = 0.0
    rec[RECOVERING] = 1.0
    rec[RATE] = max(rec[RATE], law.restart * rec[GOOD])
    _forget(rec, now)
