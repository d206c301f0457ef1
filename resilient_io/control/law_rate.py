"""Growth, cuts and recovery: how the rate of a limited scope moves with each answer."""

from __future__ import annotations

import math
from typing import Final

from resilient_io.control.law_record import (
    COUNT,
    CUT_AT,
    ENTERED_AT,
    ENTRY_RATE,
    EPOCHS,
    FLOOR,
    GOOD,
    GROWN_AT,
    LIMITED,
    OUTAGE,
    OVERSHOT_AT,
    RATE,
    RECOVERING,
    REFUSED,
    REFUSED_AT,
    SLOW_START,
    STREAK,
    SUCCEEDED_AT,
    YOUNG,
    YOUNG_SERVED,
    Constants,
    Record,
    delivered_per_s,
    forget,
    is_alone,
    is_one_of_many,
)

_YOUNG: Final = 0.3  # youth above which cuts and the usual growth are those of a young scope


def youth(rec: Record, now: float, law: Constants) -> float:
    """Return 1.0 for a scope that is looking for its share after a sure overload, falling to 0.0 around `young_s`."""
    if rec[YOUNG] == 0.0 or not law.young or is_one_of_many(rec, law):
        return 0.0
    low, lasts_s = (law.slow_low, law.slow_s) if _is_slow(rec, law) else (law.young_low, law.young_s)
    age = (now - rec[ENTERED_AT]) / lasts_s
    if age > 3.0 or not low <= rec[ENTRY_RATE] <= law.young_high or rec[RATE] > law.young_top:
        return 0.0
    return 1.0 / (1.0 + age * age * age * age)


def _is_slow(rec: Record, law: Constants) -> bool:
    return rec[ENTRY_RATE] < law.slow_below


def grow(rec: Record, now: float, elapsed_s: float, law: Constants) -> None:
    """Raise the rate for a success, `elapsed_s` (at most 1) after the last change."""
    rate = rec[RATE]
    if rec[RECOVERING] != 0.0:
        rec[RATE] = min(rate * math.exp(law.recover_per_s * elapsed_s), max(rate, rec[GOOD]))
        rec[RECOVERING] = 1.0 if rec[RATE] < rec[GOOD] else 0.0
        return
    if rec[SLOW_START] != 0.0:
        per_s = law.fleet_slow_start_per_s if is_one_of_many(rec, law) else law.slow_start_per_s
        rec[RATE] = min(law.rate_max, rate * math.exp(per_s * elapsed_s))
        return
    regrow_s, cap = law.regrow_s, law.growth_cap
    young = youth(rec, now, law)
    if young > 0.0:
        rate = _grown_young(rec, now, young, elapsed_s, law)
        if young > _YOUNG:
            regrow_s, cap = law.young_regrow_s, law.young_growth_cap
    epochs = rec[EPOCHS] = rec[EPOCHS] + elapsed_s
    pull = min(law.pull_high, max(law.pull_low, 1.0 / rate))
    silence = epochs / regrow_s
    rec[RATE] = min(law.rate_max, rate * (1.0 + min(cap, law.growth * (pull + silence * silence)) * elapsed_s))


def _grown_young(rec: Record, now: float, young: float, elapsed_s: float, law: Constants) -> float:
    """Steps of the mean rate, not of the present one: those who are below their share catch up with the others."""
    rate = rec[RATE]
    mean = rec[YOUNG_SERVED] / max(0.5, now - rec[ENTERED_AT])
    silence_s: float = now - max(rec[CUT_AT], rec[ENTERED_AT])
    first, more, reach = law.young_step, law.young_silence, law.young_reach
    if _is_slow(rec, law):
        first, more, reach = law.slow_step, law.slow_silence, law.slow_reach
    step = min(law.young_step_max, first + more * silence_s**3)
    return max(rate, min(reach * rec[ENTRY_RATE], rate + step * young * mean * elapsed_s))


def cut(rec: Record, now: float, law: Constants) -> None:
    """Lower the rate for a refusal."""
    rec[GROWN_AT] = now
    rate = rec[RATE]
    if rec[OUTAGE] == 0.0:
        if youth(rec, now, law) > _YOUNG:
            _cut_young(rec, now, law)
            return
        rec[SLOW_START] = 0.0
    weight = 1.0 / max(1.0, rate)
    rec[RECOVERING] = 0.0
    if rec[EPOCHS] >= law.glut_s and rec[FLOOR] == 0.0:
        rec[OVERSHOT_AT] = now
    rec[EPOCHS] *= max(0.0, 1.0 - law.epochs_lost * weight)
    rec[RATE] = max(law.rate_min, rate * (1.0 - min(law.cut_max, law.cut * weight)))
    if now - rec[OVERSHOT_AT] <= law.glut_over_s and now - rec[CUT_AT] >= law.glut_hold_s:
        _end_glut(rec, now, law)


def _end_glut(rec: Record, now: float, law: Constants) -> None:
    """Many refusals within a second after a long growth: what comes through is known better than small cuts find it.

    Growth passes the ceiling by a fifth then, and the way back in small cuts cost more refusals than all the rest of a
    small job. Not for longer than `glut_over_s`, or refusals that do not follow the rate would starve the scope; in an
    outage nothing comes through, hence the bound by GOOD.
    """
    refused = rec[REFUSED]
    if refused >= law.glut and refused >= law.glut_share * (refused + rec[COUNT]):
        rec[CUT_AT] = now
        least = max(law.rate_min, law.glut_least * rec[GOOD])
        rec[RATE] = min(rec[RATE], max(least, delivered_per_s(rec, now)))


def _cut_young(rec: Record, now: float, law: Constants) -> None:
    if now - max(rec[CUT_AT], rec[ENTERED_AT]) < law.young_hold_s:
        return
    rate = rec[RATE]
    rec[CUT_AT] = now
    rec[EPOCHS] = 0.0
    least = law.young_floor * rec[ENTRY_RATE] if now - rec[ENTERED_AT] < law.young_floor_s else 0.0
    rec[RATE] = max(law.rate_min, min(rate, least), rate * (1.0 - law.young_cut))


def is_demanded(rec: Record, now: float, law: Constants) -> bool:
    """Without a backlog: open the scope if it was not limited by us for long, and say whether growth makes sense."""
    delivered = delivered_per_s(rec, now)
    if now - rec[REFUSED_AT] > law.release_s and rec[RATE] > 1.5 * delivered:
        rec[LIMITED] = rec[FLOOR] = 0.0
        rec[RATE] = math.inf
        return False
    return rec[RATE] <= 2.0 * delivered + 1.0


def is_outage(rec: Record, now: float, law: Constants) -> bool:
    """Say whether nothing has come through for so long that refusals teach no rate any more."""
    least_s = law.outage_alone_s if is_alone(rec, law) else law.outage_s
    return law.recovery and rec[STREAK] >= law.outage_refusals and now - rec[SUCCEEDED_AT] >= least_s


def begin_outage(rec: Record, now: float) -> None:
    """Nothing comes through: what was known of the refusals is of no use."""
    if rec[OUTAGE] == 0.0:
        rec[OUTAGE] = 1.0
        rec[FLOOR] = 0.0
        forget(rec, now)


def restart(rec: Record, now: float, law: Constants) -> None:
    """Something came through after an outage: take a quarter of the rate before it, and the rest within seconds."""
    rec[OUTAGE] = rec[SLOW_START] = rec[EPOCHS] = 0.0
    rec[RECOVERING] = 1.0
    rec[RATE] = max(rec[RATE], law.restart * rec[GOOD])
    forget(rec, now)
