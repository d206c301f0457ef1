"""When a read is sent twice: never without enough answers, beyond the budget, or near a limit."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_io.control import hedge
from resilient_io.control.hedge import Hedging


def _seasoned(latency_s: float = 0.1) -> Hedging:
    hedging = Hedging()
    for _ in range(hedge.LEAST_ANSWERS):
        hedging.answered(latency_s)
    return hedging


def test_few_answers_do_not_tell_what_late_is() -> None:
    hedging = Hedging()
    for _ in range(hedge.LEAST_ANSWERS - 1):
        assert hedging.begin(0.0) is None
        hedging.answered(0.1)
    hedging.answered(0.1)
    assert hedging.begin(0.0) == 0.1


def test_quick_answers_are_not_hedged_below_the_floor() -> None:
    assert _seasoned(0.001).begin(0.0) == hedge.FLOOR_S


@settings(max_examples=20)
@given(st.lists(st.floats(0.02, 10.0), min_size=200, max_size=500))
def test_five_percent_are_later_than_the_delay(latencies_s: list[float]) -> None:
    hedging = Hedging()
    for latency_s in latencies_s:
        hedging.answered(latency_s)
    delay_s = hedging.begin(0.0)
    assert delay_s is not None
    kept = latencies_s[-hedge.KEPT_ANSWERS :]
    assert sum(each > delay_s for each in kept) <= 0.05 * len(kept)
    assert sum(each >= delay_s for each in kept) >= 0.05 * len(kept)


def test_the_delay_follows_a_store_that_changes() -> None:
    hedging = _seasoned(0.1)
    assert hedging.begin(0.0) == 0.1
    for _ in range(hedge.KEPT_ANSWERS):
        hedging.answered(0.3)
    assert hedging.begin(0.0) == 0.3


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_the_budget_is_never_passed(seed: int) -> None:
    chance, hedging, sent = random.Random(seed), _seasoned(), 0
    for reads in range(1, 2000):
        assert hedging.begin(0.0) is not None
        sent += chance.random() < 0.5 and hedging.take(0.0)
        assert sent <= hedge.BURST + hedge.SHARE * reads + 1e-6


def test_a_limit_keeps_hedges_away_for_a_minute_after_it() -> None:
    hedging = _seasoned()
    hedging.limited_at(100.0)
    assert hedging.begin(159.9) is None
    assert not hedging.take(159.9)
    assert hedging.begin(160.0) == 0.1
    assert hedging.take(160.0)
