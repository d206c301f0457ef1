from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

import resilient_io as rio
from resilient_io.control import law
from resilient_io.drive.limit import Limit
from resilient_io.drive.runtime import reset, runtime
from resilient_io.drive.scope import Level
from resilient_io.testing import ManualClock

URL = "s3://b/train/0001.tar"
Body = Callable[[object], None]


@pytest.fixture(autouse=True)
def clock() -> ManualClock:
    clock = ManualClock()
    reset(clock, Random(11))
    return clock


def leaf() -> Level:
    return runtime().gate.levels()[-1]


def blocking(limit: Limit, body: Body = lambda permit: None) -> None:
    with limit as permit:
        body(permit)


def suspending(limit: Limit, body: Body = lambda permit: None) -> None:
    async def main() -> None:
        async with limit as permit:
            body(permit)

    asyncio.run(main())


both_forms = pytest.mark.parametrize("enter", [blocking, suspending], ids=["with", "async with"])
Enter = Callable[..., None]


def failing(error: BaseException) -> Body:
    def body(permit: object) -> None:
        raise error

    return body


class Answer503(OSError):
    """What requests raises for an S3 refusal, as far as classify looks."""


@both_forms
def test_a_permit_for_the_block(enter: Enter) -> None:
    seen = []
    enter(rio.limit(URL), lambda permit: seen.append((leaf().in_flight, permit.scope)))
    assert seen == [(1, "s3://b/train (read)")]
    assert (leaf().in_flight, leaf().tally.succeeded) == (0, 1)


@both_forms
def test_an_error_is_classified_and_goes_on(enter: Enter) -> None:
    error = ConnectionResetError("reset")
    with pytest.raises(ConnectionResetError) as raised:
        enter(rio.limit(URL), failing(error))
    assert raised.value is error
    assert vars(error) == {}
    assert (leaf().in_flight, leaf().tally.suspected) == (0, 1)


@both_forms
def test_a_refusal_slows_the_scope(enter: Enter) -> None:
    class ClientError(Exception):
        response = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}  # noqa: RUF012 - as botocore has it

    ClientError.__module__ = "botocore.exceptions"
    with pytest.raises(ClientError):
        enter(rio.limit(URL), failing(ClientError()))
    assert leaf().tally.refused == 1
    assert law.is_limited(leaf().rate)


@both_forms
def test_an_unrelated_error_says_nothing_of_the_load(enter: Enter) -> None:
    with pytest.raises(KeyError):
        enter(rio.limit(URL), failing(KeyError("x")))
    assert (leaf().tally.dropped, leaf().tally.succeeded) == (1, 0)


@both_forms
@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_an_interrupt_gives_the_permit_back(enter: Enter, kind: type[BaseException]) -> None:
    with pytest.raises((kind, RuntimeError)):
        enter(rio.limit(URL), failing(kind()))
    assert (leaf().in_flight, leaf().tally.dropped) == (0, 1)


@both_forms
def test_a_refusal_as_a_value(enter: Enter) -> None:
    enter(rio.limit(URL, op="put"), lambda permit: permit.refused())
    assert leaf().key.endswith("|write")
    assert (leaf().tally.refused, leaf().tally.succeeded) == (1, 0)
    assert law.is_limited(leaf().rate)


@both_forms
def test_the_rate_is_waited_for(enter: Enter, clock: ManualClock) -> None:
    for _ in range(3):
        enter(rio.limit(URL, policy={"rate_per_s": 2.0}))
    assert clock.now() == pytest.approx(1.0)


@both_forms
@pytest.mark.parametrize(
    ("policy", "after_s", "reason"),
    [
        ({"deadline_s": 5.0}, 5.0, "deadline"),
        ({"deadline_s": 5.0, "total_deadline_s": 3.0}, 3.0, "total_deadline"),
        ({"deadline_s": 5.0, "total_deadline_s": 9.0}, 5.0, "deadline"),
    ],
)
def test_no_permit_in_time(
    enter: Enter, clock: ManualClock, policy: dict[str, float], after_s: float, reason: str
) -> None:
    one = {"max_concurrency": 1, **policy}
    limit = rio.limit(URL + "?versionId=3", policy=one)
    with rio.limit(URL, policy={"max_concurrency": 1}):
        with pytest.raises(rio.DeadlineExceeded) as raised:
            enter(limit)
    assert clock.now() == after_s
    assert (raised.value.record.reason, raised.value.attempts, raised.value.scope) == (reason, 0, "s3://b/train (read)")
    assert "limit(get) s3://b/train/0001.tar: throttled (waited-for-permit)" in str(raised.value)
    # The same object may be used again afterwards.
    enter(limit)
    assert leaf().in_flight == 0


@both_forms
def test_switched_off_it_does_nothing(enter: Enter) -> None:
    enter(rio.limit(URL, policy=False), lambda permit: permit.refused())
    assert runtime().gate.levels() == []


def test_one_block_at_a_time() -> None:
    limit = rio.limit(URL)
    with limit:
        with pytest.raises(RuntimeError, match="call limit\\(\\) anew"):
            limit.__enter__()
        assert leaf().in_flight == 1
    with limit:
        pass
    assert leaf().in_flight == 0


def test_mistakes_are_found_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="scheme"):
        rio.limit("b/train")
    with pytest.raises(ValueError, match="did you mean 'get'"):
        rio.limit(URL, op="gett")
    with pytest.raises(ValueError, match="max_concurrency"):
        rio.limit(URL, policy={"max_concurency": 3})


def test_configure_is_obeyed_by_a_limit_made_before() -> None:
    limit = rio.limit(URL)
    try:
        rio.configure(prefix_depth=0)
        with limit as permit:
            assert permit.scope == "s3://b/ (read)"
    finally:
        rio.policy.reset()


def test_requests_of_a_client_and_of_limit_share_one_scope() -> None:
    with (
        rio.limit(URL, endpoint="http://127.0.0.1:9"),
        rio.limit("http://127.0.0.1:9/b/train/2", endpoint="http://127.0.0.1:9"),
    ):
        assert leaf().in_flight == 2
