from __future__ import annotations

from random import Random
from typing import Any

import pytest

from resilient_io import events
from resilient_io.classify.fault import Applied, FaultKind, Load, Verdict
from resilient_io.control import budget
from resilient_io.control.scopes import scope_path
from resilient_io.drive.call import Call, outcome_of
from resilient_io.drive.gate import Outcome, WaitedTooLong
from resilient_io.drive.operation import Operation, Surface, body_held
from resilient_io.drive.runtime import reset, runtime
from resilient_io.drive.scope import Level
from resilient_io.errors import AmbiguousWriteError, public_error
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train", op_class="read")

REFUSED = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, retryable=True, rule="slow-down", request_id="R1")
RESET = Verdict(kind=FaultKind.TRANSIENT, load=Load.SUSPECTED, retryable=True, rule="reset")
LOST_WRITE = Verdict(kind=FaultKind.AMBIGUOUS, load=Load.SUSPECTED, applied=Applied.MAYBE, retryable=True)
MISSING = Verdict(kind=FaultKind.NOT_FOUND)
DENIED = Verdict(kind=FaultKind.AUTH)
CHANGED = Verdict(kind=FaultKind.PRECONDITION)
UNKNOWN = Verdict(kind=FaultKind.FATAL)


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    reset(clock, Random(5))
    return clock


def call_of(*, judged_as: str = "GetObject", nested: bool = False, **policy: Any) -> Call:
    return Call(
        runtime(),
        Operation(name="cat_file", surface=Surface.FILESYSTEM),
        name="GetObject",
        judged_as=judged_as,
        place=lambda: "s3://b/train/x",
        path=TRAIN,
        policy=Policy(**policy),
        nested=nested,
    )


def leaf() -> Level:
    return runtime().gate.levels()[-1]


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (REFUSED, Outcome.REFUSED),
        (RESET, Outcome.SUSPECTED),
        (LOST_WRITE, Outcome.SUSPECTED),
        (MISSING, Outcome.SUCCEEDED),
        (DENIED, Outcome.SUCCEEDED),
        (CHANGED, Outcome.SUCCEEDED),
        (UNKNOWN, Outcome.DROPPED),
        (Verdict(kind=FaultKind.CLIENT_BUG, request_id="R1"), Outcome.SUCCEEDED),
        (Verdict(kind=FaultKind.CLIENT_BUG), Outcome.DROPPED),
    ],
)
def test_what_a_verdict_says_of_the_load(verdict: Verdict, outcome: Outcome) -> None:
    assert outcome_of(verdict) is outcome


def test_a_success_frees_the_permit(clock: ManualClock) -> None:
    call = call_of()
    call.admit()
    assert leaf().in_flight == 1
    call.succeeded()
    assert (leaf().in_flight, leaf().tally.succeeded, call.attempts) == (0, 1, 1)
    assert call.decide() is None


def test_a_body_keeps_the_permit_until_it_is_read(clock: ManualClock) -> None:
    call = call_of()
    call.admit()
    with body_held():
        call.succeeded(body_follows=True)
        assert (leaf().in_flight, leaf().tally.succeeded) == (1, 1)
    assert leaf().in_flight == 0


def test_a_second_body_in_one_hold_frees_the_first(clock: ManualClock) -> None:
    with body_held():
        for _ in range(2):
            call = call_of()
            call.admit()
            call.succeeded(body_follows=True)
            assert leaf().in_flight == 1
    assert leaf().in_flight == 0


def test_a_body_that_nobody_holds_frees_at_the_headers(clock: ManualClock) -> None:
    call = call_of()
    call.admit()
    call.succeeded(body_follows=True)
    assert leaf().in_flight == 0


def test_a_fault_frees_the_permit_and_counts(clock: ManualClock) -> None:
    call = call_of()
    call.admit()
    call.failed(REFUSED)
    assert (leaf().in_flight, leaf().tally.refused) == (0, 1)


def test_close_drops_what_was_interrupted(clock: ManualClock) -> None:
    call = call_of()
    call.admit()
    call.close()
    call.close()
    assert (leaf().in_flight, leaf().tally.dropped) == (0, 1)


@pytest.mark.parametrize(
    ("verdict", "judged_as", "reason"),
    [
        (REFUSED, "AppendBlock", None),
        (RESET, "GetObject", None),
        (LOST_WRITE, "PutObject", None),
        (LOST_WRITE, "AppendBlock", "ambiguous"),
        (MISSING, "GetObject", "not_retryable"),
        (DENIED, "GetObject", "not_retryable"),
        (CHANGED, "GetObject", "not_retryable"),
        (UNKNOWN, "GetObject", "not_retryable"),
    ],
)
def test_decide(clock: ManualClock, verdict: Verdict, judged_as: str, reason: str | None) -> None:
    call = call_of(judged_as=judged_as)
    call.admit()
    call.failed(verdict)
    delay_s = call.decide()
    if reason is None:
        assert delay_s is not None
        assert 0 <= delay_s < 0.2
        assert call.give_up is None
    else:
        assert delay_s is None
        assert call.give_up is not None
        assert call.give_up.reason == reason
        assert call.hides_the_truth() == (verdict in (LOST_WRITE, DENIED))


def test_a_signature_that_ran_out_is_made_anew_once_and_at_once(clock: ManualClock) -> None:
    call = call_of(judged_as="AppendBlock")
    for delay_s in (0.0, None):
        call.admit()
        call.failed(Verdict(kind=FaultKind.AUTH, rule="credentials-expired", resign=True))
        assert call.decide() == delay_s
    assert call.attempts == 2
    assert call.give_up is not None
    assert call.give_up.reason == "not_retryable"
    call.close()


@pytest.mark.parametrize(("verdict", "sent", "reason"), [(REFUSED, 4, "throttle_attempts"), (RESET, 3, "attempts")])
def test_a_permanent_fault_costs_what_the_policy_says(
    clock: ManualClock, verdict: Verdict, sent: int, reason: str
) -> None:
    call = call_of(max_attempts=3, max_throttle_attempts=4)
    while True:
        call.admit()
        call.failed(verdict)
        delay_s = call.decide()
        if delay_s is None:
            break
        clock.sleep(delay_s)
    assert call.give_up is not None
    assert (call.give_up.attempts, call.give_up.reason, leaf().tally.sent) == (sent, reason, sent)
    assert call.give_up.scope == "s3://b/train (read)"
    assert call.give_up.elapsed_s == pytest.approx(clock.now())
    assert leaf().in_flight == 0


def test_refusals_draw_nothing_from_the_budget_and_other_faults_do(clock: ManualClock) -> None:
    for verdict, left in ((REFUSED, 2.0), (RESET, 1.0), (RESET, 0.0)):
        call = call_of(retry_budget_burst=2)
        call.admit()
        call.failed(verdict)
        assert call.decide() is not None
        assert leaf().budget[budget.TOKENS] == left
    call = call_of(retry_budget_burst=2)
    call.admit()
    call.failed(RESET)
    assert call.decide() is None
    assert call.give_up is not None
    assert call.give_up.reason == "budget"


def test_a_wait_for_a_permit_ends_at_the_deadline(clock: ManualClock) -> None:
    held = runtime().gate.acquire(TRAIN, Policy(max_concurrency=1))
    call = call_of(max_concurrency=1, deadline_s=40)
    with pytest.raises(WaitedTooLong):
        call.admit()
    assert clock.now() == 40
    assert call.give_up is not None
    assert (call.give_up.reason, call.give_up.attempts) == ("deadline", 0)
    assert call.verdict is not None
    assert call.verdict.rule == "waited-for-permit"
    assert call.hides_the_truth()
    held.free()


def test_a_region_redirect_goes_again_without_a_decision(clock: ManualClock) -> None:
    call = call_of()
    for _ in range(2):
        call.admit()
        call.succeeded()
    assert (call.attempts, leaf().tally.sent, leaf().in_flight) == (2, 2, 0)


def test_what_happens_is_told(clock: ManualClock) -> None:
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    try:
        call = call_of(max_throttle_attempts=2, backoff_base_s=0)
        call.admit()
        call.failed(REFUSED)
        delay_s = call.decide()
        assert delay_s is not None
        call.admit()  # waits: the scope is paced now
        call.failed(REFUSED)
        call.decide()
        assert not isinstance(seen[-1], events.OperationGaveUp)  # a look at the store may tell that it went well
        call.gave_up(OSError())
    finally:
        unsubscribe()
    told = [event for event in seen if not isinstance(event, events.LimitChanged)]
    assert [type(event).__name__ for event in told] == [
        *("AttemptFailed", "RetryScheduled"),
        *("PermitWaited", "AttemptFailed", "OperationGaveUp"),
    ]
    assert isinstance(seen[0], events.LimitChanged)
    waited = told[2]
    assert isinstance(waited, events.PermitWaited)
    assert waited.waited_s == pytest.approx(clock.now())


def test_a_write_that_the_store_tells_apart_is_repeated_and_its_give_up_is_ambiguous(clock: ManualClock) -> None:
    call = call_of(judged_as="PutObject-IfNoneMatch", max_attempts=9, max_throttle_attempts=1)
    call.admit()
    call.failed(Verdict(kind=FaultKind.TRANSIENT, load=Load.SUSPECTED, applied=Applied.MAYBE, retryable=True))
    assert call.decide() is not None
    call.admit()
    call.failed(REFUSED)
    assert call.decide() is None
    assert call.give_up is not None
    assert call.give_up.verdict is call.verdict
    assert (call.give_up.reason, call.verdict and call.verdict.kind) == ("throttle_attempts", FaultKind.AMBIGUOUS)
    assert isinstance(public_error(call.give_up, None), AmbiguousWriteError)


def test_a_refusal_alone_leaves_no_doubt_about_such_a_write(clock: ManualClock) -> None:
    call = call_of(judged_as="PutObject-IfNoneMatch", max_throttle_attempts=1)
    call.admit()
    call.failed(REFUSED)
    assert call.decide() is None
    assert call.verdict is REFUSED


def test_a_nested_call_takes_no_permit_and_counts_its_attempts(clock: ManualClock) -> None:
    outer, inner = call_of(max_concurrency=1), call_of(max_concurrency=1, nested=True)
    outer.admit()
    inner.admit()
    assert (leaf().in_flight, inner.attempts) == (1, 1)
    inner.failed(REFUSED)
    outer.close()
    assert leaf().in_flight == 0
