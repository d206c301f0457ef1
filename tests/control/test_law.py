"""The law as a step function: what holds after any sequence of calls, and each rule by itself."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_io.control import law
from resilient_io.control.law import LAW, Record

_STEP = st.tuples(
    st.sampled_from(["send", "success", "refusal", "suspected", "dropped", "ready"]),
    st.one_of(st.floats(0, 0.2), st.floats(0, 90)),
    st.floats(0, 1, exclude_max=True),
    st.booleans(),
)


def _check(rec: Record, now: float) -> None:
    assert len(rec) == law.SIZE
    assert all(not math.isnan(value) for value in rec)
    assert rec[law.IN_FLIGHT] >= 0.0
    rate = law.rate_per_s(rec)
    if law.is_limited(rec):
        assert LAW.rate_min <= rate <= LAW.rate_max
    else:
        assert rate == math.inf
    assert 0.0 <= rec[law.FLOOR] <= LAW.floor_max
    assert 0.0 <= rec[law.CREDIT] <= LAW.credit_max
    ready = law.ready_at(rec, now)
    if law.is_limited(rec):
        assert rec[law.TOKENS] <= max(1.0, rate * LAW.burst_s) + 1e-6
    assert now <= ready <= now + LAW.wait_max_s + 1e-6


@settings(max_examples=150, deadline=None)
@given(st.lists(_STEP, max_size=120))
def test_any_sequence_leaves_a_sound_record(steps: list[tuple[str, float, float, bool]]) -> None:
    """Rates, tokens, credit and waits stay in bounds, and in-flight requests never go negative."""
    rec, now, sent = law.fresh(0.0), 0.0, [0.0]
    for kind, elapsed, u, backlog in steps:
        now += elapsed
        sent_at = sent[-1] if backlog else sent[0]
        match kind:
            case "send":
                law.on_send(rec, now, u)
                sent.append(now)
            case "success":
                law.on_success(rec, now, sent_at, backlog=backlog)
            case "refusal":
                law.on_refusal(rec, now, sent_at, u)
            case "suspected":
                law.on_suspected(rec, now, sent_at, u)
            case "dropped":
                law.on_dropped(rec, now)
        _check(rec, now)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 60))
def test_a_waiting_scope_sends_within_five_seconds(u: float, refusals: int) -> None:
    """However often it was refused, whoever asks again at the time that was named may go."""
    rec = law.fresh(0.0)
    for step in range(refusals):
        law.on_send(rec, step * 0.1, u)
        law.on_refusal(rec, step * 0.1 + 0.05, step * 0.1, u)
    now = refusals * 0.1
    ready = law.ready_at(rec, now)
    assert law.ready_at(rec, ready) <= ready <= now + 5.0


def test_an_open_scope_never_waits() -> None:
    """Nothing is limited before the first refusal, and nobody counts as limited."""
    rec = law.fresh(7.0)
    for step in range(1000):
        assert law.ready_at(rec, 7.0 + step * 1e-4) == 7.0 + step * 1e-4
        law.on_send(rec, 7.0 + step * 1e-4, 0.5)
    assert not law.is_limited(rec)
    assert law.rate_per_s(rec) == math.inf


def _limited(rate: float, now: float = 100.0) -> list[float]:
    rec = law.fresh(now - 50.0)
    law.on_send(rec, now - 50.0, 0.0)
    law.on_refusal(rec, now - 50.0, now - 50.0, 0.0)
    rec[law.ENTERING] = rec[law.SLOW_START] = rec[law.YOUNG] = 0.0
    rec[law.RATE], rec[law.SUCCEEDED_AT], rec[law.GROWN_AT] = rate, now, now
    return rec


def test_a_cut_weighs_less_at_a_high_rate() -> None:
    """The same share of refusals means the same at 5 and at 5000 requests a second."""
    for rate in (5.0, 50.0, 5000.0):
        rec = _limited(rate)
        law.on_refusal(rec, 100.1, 100.0, 0.5)
        assert law.rate_per_s(rec) == rate * (1.0 - min(LAW.cut_max, LAW.cut / rate))


def test_a_refusal_sent_before_the_limit_is_no_news() -> None:
    """The storm in flight at entry is counted once."""
    rec = _limited(50.0)
    law.on_refusal(rec, 100.1, rec[law.ENTERED_AT] - 0.01, 0.5)
    assert law.rate_per_s(rec) == 50.0


def test_a_scope_that_is_not_bound_opens_after_a_minute() -> None:
    """No refusal for 60 s and nobody waiting: no limit."""
    rec = _limited(50.0)
    law.on_success(rec, 110.0 + LAW.release_s, 110.0, backlog=True)
    assert law.is_limited(rec)
    law.on_success(rec, 110.1 + LAW.release_s, 110.0, backlog=False)
    assert not law.is_limited(rec)


def test_suspected_answers_alone_do_not_limit() -> None:
    """Some resets and 500s on a scope that was never refused change nothing."""
    rec = law.fresh(0.0)
    for step in range(60):
        law.on_send(rec, step * 0.1, 0.5)
        if step % 3:
            law.on_success(rec, step * 0.1, step * 0.1, backlog=False)
        else:
            law.on_suspected(rec, step * 0.1, step * 0.1, 0.5)
    assert not law.is_limited(rec)


def test_many_suspected_answers_limit() -> None:
    """Half of at least twenty recent answers are too many to be chance."""
    rec = law.fresh(0.0)
    for step in range(19):
        law.on_suspected(rec, step * 0.1, step * 0.1, 0.5)
        assert not law.is_limited(rec)
    law.on_suspected(rec, 2.0, 2.0, 0.5)
    assert law.is_limited(rec)


def test_suspected_answers_count_for_a_minute_after_a_refusal() -> None:
    """A timeout soon after a real refusal is taken for one; suspected ones do not keep that minute going."""
    rec = _limited(50.0)
    rec[law.REALLY_REFUSED_AT] = 100.0
    law.on_suspected(rec, 159.0, 158.0, 0.5)
    assert law.rate_per_s(rec) < 50.0
    before = law.rate_per_s(rec)
    law.on_suspected(rec, 161.0, 160.0, 0.5)
    assert law.rate_per_s(rec) == before


def test_a_pardoned_refusal_is_not_a_cut() -> None:
    """With a tolerated share each answer earns part of a refusal."""
    rec = _limited(50.0)
    rec[law.FLOOR], rec[law.CREDIT] = 0.2, 1.0
    law.on_refusal(rec, 100.1, 100.0, 0.5)
    assert law.rate_per_s(rec) == 50.0


def test_an_outage_is_left_for_a_quarter_of_the_former_rate() -> None:
    """The first success after it takes GOOD / 4 at once."""
    rec = _limited(50.0)
    rec[law.GOOD] = 400.0
    for step in range(40):
        law.on_refusal(rec, 101.0 + step * 0.2, 100.9 + step * 0.2, 0.5)
    assert law.describe(rec)["outage"]
    assert law.rate_per_s(rec) < 50.0
    law.on_success(rec, 110.0, 109.9, backlog=True)
    assert law.rate_per_s(rec) == 100.0


def test_slow_start_grows_without_waiting_for_silence() -> None:
    """Until the first cut the rate doubles every second."""
    rec = _limited(50.0)
    rec[law.SLOW_START], rec[law.COUNT] = 1.0, 100.0
    law.on_success(rec, 101.0, 100.5, backlog=True)
    assert law.rate_per_s(rec) == 50.0 * math.exp(LAW.slow_start_per_s)


def test_the_poor_grow_faster() -> None:
    """Right after a cut a client of one request a second grows ten times as fast as one of a hundred."""
    grown = []
    for rate in (1.0, 100.0):
        rec = _limited(rate)
        law.on_success(rec, 100.1, 100.0, backlog=True)
        grown.append(law.rate_per_s(rec) / rate - 1.0)
    assert grown[0] > 9.0 * grown[1] > 0.0


def test_a_scope_that_asks_for_less_does_not_grow() -> None:
    """Without a backlog and well above what comes through a higher rate would mean nothing."""
    rec = _limited(50.0)
    law.on_success(rec, 100.5, 100.4, backlog=False)
    assert law.rate_per_s(rec) == 50.0


def test_one_request_costs_little() -> None:
    """ready_at, on_send and on_success together take under 5 microseconds on a quiet core; 20 are allowed here."""
    rec, best = _limited(1e6), math.inf
    for _ in range(5):
        start = time.perf_counter()
        for step in range(2000):
            now = 100.0 + step * 1e-4
            law.ready_at(rec, now)
            law.on_send(rec, now, 0.5)
            law.on_success(rec, now, now, backlog=True)
        best = min(best, (time.perf_counter() - start) / 2000)
    assert best < 20e-6


def test_a_constant_can_be_changed_for_one_call() -> None:
    """The rules are data; the default is the law."""
    rec = _limited(50.0)
    law.on_refusal(rec, 100.1, 100.0, 0.5, replace(LAW, cut=0.0))
    assert law.rate_per_s(rec) == 50.0
