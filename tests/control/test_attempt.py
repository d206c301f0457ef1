from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_io.classify.fault import Applied, FaultKind, Load, Verdict
from resilient_io.control import budget as retry_budget
from resilient_io.control.attempt import AttemptMachine, GiveUpNow, IllegalTransition, Retry
from resilient_io.policy import Policy

REFUSED = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, retryable=True)
RESET = Verdict(kind=FaultKind.TRANSIENT, load=Load.SUSPECTED, retryable=True)
LOST_WRITE = Verdict(kind=FaultKind.AMBIGUOUS, load=Load.SUSPECTED, applied=Applied.MAYBE, retryable=True)
TIMED_OUT_WRITE = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, applied=Applied.MAYBE, retryable=True)
DENIED = Verdict(kind=FaultKind.AUTH)
RETRYABLE = (REFUSED, RESET, LOST_WRITE, TIMED_OUT_WRITE)


def machine(now: float = 0.0, **fields: Any) -> AttemptMachine:
    return AttemptMachine(Policy(**{"deadline_s": 1e9, **fields}), now)


def fault(
    m: AttemptMachine,
    verdict: Verdict,
    now: float = 0.0,
    u: float = 0.0,
    *,
    idempotent: bool = True,
    budget: list[float] | None = None,
) -> Retry | GiveUpNow:
    m.on_send(now)
    return m.on_fault(verdict, now, u, idempotent=idempotent, budget=budget)


def requests_until_give_up(m: AttemptMachine, verdict: Verdict) -> tuple[int, str]:
    for sent in itertools.count(1):
        decision = fault(m, verdict)
        if isinstance(decision, GiveUpNow):
            return sent, decision.reason
    raise AssertionError


@pytest.mark.parametrize("most", [1, 2, 6])
def test_permanent_fault_costs_exactly_max_attempts_requests(most: int) -> None:
    m = machine(max_attempts=most)
    assert requests_until_give_up(m, RESET) == (most, "attempts")
    assert m.attempts == most


@pytest.mark.parametrize("most", [1, 2, 30])
def test_permanent_refusal_costs_exactly_max_throttle_attempts_requests(most: int) -> None:
    assert requests_until_give_up(machine(max_throttle_attempts=most), REFUSED) == (most, "throttle_attempts")


@given(
    verdicts=st.lists(st.sampled_from(RETRYABLE), min_size=60, max_size=60),
    uniforms=st.lists(st.floats(0, 1, exclude_max=True), min_size=60, max_size=60),
    most=st.integers(1, 12),
    most_refused=st.integers(1, 12),
)
def test_no_sequence_of_faults_sends_more_than_the_sum_of_the_limits(
    verdicts: list[Verdict], uniforms: list[float], most: int, most_refused: int
) -> None:
    m = machine(max_attempts=most, max_throttle_attempts=most_refused)
    for verdict, u in zip(verdicts, uniforms, strict=True):
        if isinstance(fault(m, verdict, u=u), GiveUpNow):
            break
    assert m.state == "gave_up"
    assert m.attempts < most + most_refused
    assert m.faults <= most
    assert m.refusals <= most_refused


@given(steps=st.lists(st.tuples(st.sampled_from(RETRYABLE), st.booleans(), st.floats(0, 5)), max_size=80))
def test_a_retry_is_never_begun_that_would_reach_a_deadline(steps: list[tuple[Verdict, bool, float]]) -> None:
    m = machine(deadline_s=20.0, total_deadline_s=60.0, max_attempts=99, max_throttle_attempts=99)
    now = progress_at = 0.0
    for verdict, progress, took_s in steps:
        m.on_send(now)
        now += took_s
        if progress:
            m.on_progress(now)
            progress_at = now
        decision = m.on_fault(verdict, now, 0.9, idempotent=True, budget=None)
        if isinstance(decision, GiveUpNow):
            assert decision.reason in ("deadline", "total_deadline")
            break
        now += decision.delay_s
        assert now < progress_at + 20.0
        assert now < 60.0


def test_progress_forgets_faults_and_restarts_the_deadline() -> None:
    m = machine(max_attempts=2, deadline_s=10.0)
    assert isinstance(fault(m, RESET, now=8.0), Retry)
    m.on_send(9.0)
    m.on_progress(9.5)
    assert (m.faults, m.deadline_at()) == (0, 19.5)
    assert isinstance(m.on_fault(RESET, 18.0, 0.0, idempotent=True, budget=None), Retry)
    assert m.attempts == 2


def test_total_deadline_is_not_moved_by_progress() -> None:
    m = machine(deadline_s=10.0, total_deadline_s=15.0)
    m.on_send(0.0)
    m.on_progress(9.0)
    assert m.deadline_at() == 15.0
    assert m.passed_deadline(14.9) is None
    assert m.passed_deadline(15.0) == "total_deadline"
    assert m.on_fault(RESET, 15.0, 0.0, idempotent=True, budget=None) == GiveUpNow("total_deadline")


def test_delays_grow_with_the_count_of_their_own_kind() -> None:
    m = machine(backoff_base_s=1.0, backoff_cap_s=100.0)
    kinds = [REFUSED, REFUSED, RESET, REFUSED, RESET]
    delays = [decision.delay_s for v in kinds if isinstance(decision := fault(m, v, u=0.5), Retry)]
    assert delays == [0.5, 1.0, 0.5, 2.0, 1.0]


def test_retry_after_is_a_floor_and_clamped_to_the_cap() -> None:
    asked = [Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, retryable=True, retry_after_s=s) for s in (3.0, 3600)]
    m = machine(backoff_cap_s=20.0)
    assert fault(m, asked[0]) == Retry(3.0)
    assert fault(m, asked[1]) == Retry(20.0)


def test_absurd_retry_after_never_waits_beyond_the_deadline() -> None:
    asked = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, retryable=True, retry_after_s=1e9)
    m, now, waited_s = machine(deadline_s=50.0), 0.0, []
    while isinstance(decision := fault(m, asked, now=now), Retry):
        waited_s.append(decision.delay_s)
        now += decision.delay_s
    assert decision == GiveUpNow("deadline")
    assert waited_s == [20.0, 20.0]


def test_refusals_draw_nothing_from_the_budget() -> None:
    budget = retry_budget.fresh(1)
    m = machine()
    assert all(isinstance(fault(m, REFUSED, budget=budget), Retry) for _ in range(10))
    assert budget == [1.0]


def test_other_faults_draw_from_the_budget_until_it_is_empty() -> None:
    budget = retry_budget.fresh(2)
    m = machine(max_attempts=10)
    decisions = [fault(m, RESET, budget=budget) for _ in range(3)]
    assert decisions == [Retry(0.0), Retry(0.0), GiveUpNow("budget")]


@pytest.mark.parametrize(
    ("verdict", "fields"),
    [(RESET, {"max_attempts": 1}), (RESET, {"deadline_s": 1e-9, "backoff_base_s": 0.1}), (DENIED, {})],
)
def test_a_call_that_ends_anyway_takes_nothing_from_the_budget(verdict: Verdict, fields: dict[str, Any]) -> None:
    budget = retry_budget.fresh(5)
    assert isinstance(fault(machine(**fields), verdict, u=0.9, budget=budget), GiveUpNow)
    assert budget == [5.0]


@pytest.mark.parametrize("verdict", [LOST_WRITE, TIMED_OUT_WRITE])
def test_a_write_that_may_have_happened_is_repeated_only_if_idempotent(verdict: Verdict) -> None:
    assert fault(machine(), verdict, idempotent=False) == GiveUpNow("ambiguous")
    assert isinstance(fault(machine(), verdict, idempotent=True), Retry)


def test_a_refused_write_that_did_not_happen_is_repeated_for_any_operation() -> None:
    assert isinstance(fault(machine(), REFUSED, idempotent=False), Retry)


def test_a_timed_out_operation_counts_as_a_refusal() -> None:
    m = machine(max_throttle_attempts=3, max_attempts=1)
    assert requests_until_give_up(m, TIMED_OUT_WRITE) == (3, "throttle_attempts")


def test_a_fault_that_is_not_retryable_ends_the_call_at_once() -> None:
    assert fault(machine(), DENIED) == GiveUpNow("not_retryable")


@pytest.mark.parametrize("inputs", ["ss", "f", "sff", "sp" + "ff", "sg" + "s", "sg" + "p", "sg" + "f"])
def test_an_illegal_input_raises_and_changes_nothing(inputs: str) -> None:
    m = machine()
    budget = retry_budget.fresh(5)

    def step(letter: str) -> None:
        if letter == "s":
            m.on_send(0.0)
        elif letter == "p":
            m.on_progress(1.0)
        else:
            m.on_fault(DENIED if letter == "g" else RESET, 0.0, 0.0, idempotent=True, budget=budget)

    for letter in inputs[:-1]:
        step(letter)
    before = [m.state, m.attempts, m.faults, m.refusals, m.deadline_at(), *budget]
    with pytest.raises(IllegalTransition, match=m.state):
        step(inputs[-1])
    assert [m.state, m.attempts, m.faults, m.refusals, m.deadline_at(), *budget] == before


def test_a_call_of_many_pages_sends_again_after_progress_without_a_fault() -> None:
    m = machine()
    for page in range(3):
        m.on_send(float(page))
        m.on_progress(float(page))
        m.on_progress(page + 0.5)
    assert (m.attempts, m.state) == (3, "open")
