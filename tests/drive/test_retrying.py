from __future__ import annotations

import asyncio
import contextlib
import functools
import pickle
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any

import pytest

import resilient_io as rio
from resilient_io import policy as policies
from resilient_io.classify.fault import FaultKind, Load, Verdict
from resilient_io.control.scopes import scope_path
from resilient_io.drive.runtime import reset, runtime
from resilient_io.drive.scope import Level
from resilient_io.errors import DeadlineExceeded, GiveUp, RetriesExhausted, public_error
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

ELSEWHERE = scope_path(endpoint="https://s3.test", bucket="elsewhere", op_class="read")


class Refusal(Exception):
    """Looks like botocore's ClientError for a SlowDown."""

    def __init__(self, code: str = "SlowDown", status: int = 503) -> None:
        super().__init__(f"An error occurred ({code}) when calling the PutObject operation: Please reduce")
        self.response = {
            "Error": {"Code": code, "Message": "Please reduce your request rate."},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}, "RequestId": "R1"},
        }
        self.operation_name = "PutObject"

    verdict: Verdict
    attempts: int
    elapsed_s: float
    resilient_io_gave_up: bool


Refusal.__module__, Refusal.__qualname__ = "botocore.exceptions", "ClientError"


@pytest.fixture(autouse=True)
def clock() -> Iterator[ManualClock]:
    clock = ManualClock()
    reset(clock, Random(11))
    yield clock
    policies.reset()


class Flaky:
    """Raises the errors one after the other, then returns "done"."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def later(self) -> str:
        await asyncio.sleep(0)
        return self()


def leaf() -> Level:
    return runtime().gate.levels()[-1]


# Each form as a function of (what retrying() was given, the work): all behave alike.


def bare_or_called(retry: Any, work: Flaky) -> str:
    def load() -> str:
        return work()

    return str(retry(load)())


def bare_or_called_async(retry: Any, work: Flaky) -> str:
    async def load() -> str:
        return await work.later()

    return str(asyncio.run(retry(load)()))


def in_a_loop(retry: Any, work: Flaky) -> str:
    for attempt in retry:
        with attempt:
            result = work()
    return result


def in_an_async_loop(retry: Any, work: Flaky) -> str:
    async def main() -> str:
        async for attempt in retry:
            with attempt:
                result = await work.later()
        return result

    return asyncio.run(main())


FORMS = [bare_or_called, bare_or_called_async, in_a_loop, in_an_async_loop]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


@every_form
def test_a_refusal_and_a_reset_are_tried_again(form: Callable[..., str], clock: ManualClock) -> None:
    work = Flaky(Refusal(), ConnectionResetError("reset"), Refusal())
    assert form(rio.retrying(), work) == "done"
    assert work.calls == 4
    assert len(clock.sleeps) == 3
    assert 0 < clock.sleeps[0] < 0.2
    assert clock.now() == pytest.approx(sum(clock.sleeps))


@every_form
def test_a_success_at_once_neither_sleeps_nor_touches_a_scope(form: Callable[..., str], clock: ManualClock) -> None:
    assert form(rio.retrying(), Flaky()) == "done"
    assert (clock.sleeps, runtime().gate.levels()) == ([], [])


@every_form
def test_the_last_error_leaves_as_the_object_that_was_raised(form: Callable[..., str]) -> None:
    errors = [Refusal() for _ in range(3)]
    work = Flaky(*errors)
    with pytest.raises(Refusal) as raised:
        form(rio.retrying({"max_throttle_attempts": 3}), work)
    error: Any = raised.value
    assert error is errors[-1]
    assert (error.attempts, error.verdict.kind, error.resilient_io_gave_up) == (3, FaultKind.THROTTLED, True)
    assert error.elapsed_s == pytest.approx(runtime().clock.now())
    assert error.__cause__ is None
    if sys.version_info >= (3, 11):
        (note,) = error.__notes__
        assert "throttled" in note
        assert "3 attempts" in note
        assert "[max_throttle_attempts]" in note
    assert not rio.classify(error).retryable


@every_form
@pytest.mark.parametrize("error", [KeyError("k"), FileNotFoundError("f"), Refusal("AccessDenied", 403)], ids=repr)
def test_what_a_repeat_cannot_cure_passes_untouched(form: Callable[..., str], error: Exception) -> None:
    before = dict(vars(error))
    work = Flaky(error)
    with pytest.raises(type(error)) as raised:
        form(rio.retrying(), work)
    assert raised.value is error
    assert vars(error) == before
    assert not hasattr(error, "__notes__")
    assert work.calls == 1


@every_form
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_interrupts_are_never_tried_again(form: Callable[..., str], kind: type[BaseException]) -> None:
    work = Flaky(kind())
    # asyncio.run gives the loop's end its own shape.
    with pytest.raises((kind, RuntimeError)):
        form(rio.retrying(scope="s3://b/train"), work)
    assert work.calls == 1
    assert (leaf().in_flight, leaf().tally.dropped) == (0, 1)


@every_form
def test_what_was_given_up_already_is_not_tried_again(form: Callable[..., str]) -> None:
    verdict = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, retryable=True)
    public = public_error(GiveUp(verdict=verdict, attempts=30, reason="throttle_attempts"), None)
    marked = Refusal()
    marked.resilient_io_gave_up = True
    wrapped = OSError("s3fs says")
    wrapped.__cause__ = marked
    rebuilt = RetriesExhausted("from text")
    for error in (public, marked, wrapped, rebuilt):
        work = Flaky(error)
        with pytest.raises(type(error)):
            form(rio.retrying(), work)
        assert work.calls == 1


@every_form
def test_nested_retrying_does_not_multiply(form: Callable[..., str]) -> None:
    work = Flaky(*(ConnectionResetError() for _ in range(100)))
    inner = rio.retrying({"max_attempts": 3})(work)
    outer = Flaky()
    outer.__class__ = type("Outer", (Flaky,), {"__call__": lambda self: inner()})
    with pytest.raises(ConnectionResetError) as raised:
        form(rio.retrying({"max_attempts": 5}), outer)
    assert work.calls == 3
    assert raised.value.attempts == 3  # type: ignore[attr-defined]


@every_form
def test_switched_off_it_passes_everything_through(form: Callable[..., str]) -> None:
    error = ConnectionResetError()
    work = Flaky(error)
    with pytest.raises(ConnectionResetError):
        form(rio.retrying({"enabled": False}, scope="s3://b/train"), work)
    assert (work.calls, vars(error)) == (1, {})
    assert form(rio.retrying(False), Flaky()) == "done"
    assert runtime().gate.levels() == []


@every_form
def test_a_scope_gives_each_attempt_a_permit_and_learns_from_it(form: Callable[..., str], clock: ManualClock) -> None:
    work = Flaky(Refusal(), ConnectionResetError())
    assert form(rio.retrying(scope="s3://b/train/imagenet"), work) == "done"
    tally = leaf().tally
    assert (tally.sent, tally.refused, tally.suspected, tally.succeeded) == (3, 1, 1, 1)
    assert leaf().in_flight == 0
    assert leaf().key == "https://s3.amazonaws.com||b|train/imagenet|read"
    assert [scope.limited for scope in rio.report().hot_prefixes()] == [True]


@every_form
def test_no_permit_in_time_is_our_own_deadline(form: Callable[..., str], clock: ManualClock) -> None:
    retry = rio.retrying({"max_concurrency": 1, "deadline_s": 30}, scope="s3://b/train")
    with rio.limit("s3://b/train/x", policy={"max_concurrency": 1}):
        with pytest.raises(DeadlineExceeded, match=r"30\.0 s") as raised:
            form(retry, Flaky())
    assert (raised.value.attempts, raised.value.record.reason) == (0, "deadline")
    assert "s3://b/train" in str(raised.value)
    assert clock.now() == 30
    assert leaf().in_flight == 0


@every_form
def test_no_permit_for_a_retry_raises_the_fault_before(form: Callable[..., str], clock: ManualClock) -> None:
    policy = {"max_concurrency": 1, "deadline_s": 30}
    error, taken, stays = Refusal(), [], runtime().gate.acquire(ELSEWHERE, Policy())

    class TakesTheSlot(Flaky):
        def __call__(self) -> str:
            lane = runtime().gate.lanes()[-1]
            lane.open[-1] = weakref.ref(stays)  # somebody else came in between
            taken.append(lane)
            return super().__call__()

    with pytest.raises(Refusal) as raised:
        form(rio.retrying(policy, scope="s3://b/train"), TakesTheSlot(error))
    assert raised.value is error
    assert error.attempts == 1
    assert "deadline" in str(getattr(error, "__notes__", "deadline"))
    assert taken[0].in_flight == 1


@every_form
def test_a_long_attempt_does_not_use_up_the_deadline_before_the_first_fault(
    form: Callable[..., str], clock: ManualClock
) -> None:
    class Long(Flaky):
        def __call__(self) -> str:
            clock.advance(2000)
            return super().__call__()

    assert form(rio.retrying(), Long(ConnectionResetError())) == "done"
    work = Long(ConnectionResetError(), ConnectionResetError(), ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        form(rio.retrying(), work)
    assert work.calls == 2
    work = Long(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        form(rio.retrying({"total_deadline_s": 1000}), work)
    assert work.calls == 1


@every_form
def test_the_policy_is_resolved_for_each_call(form: Callable[..., str]) -> None:
    retry = rio.retrying({"max_throttle_attempts": 9})
    rio.configure(max_attempts=2)
    work = Flaky(*(ConnectionResetError() for _ in range(9)))
    with pytest.raises(ConnectionResetError):
        form(retry, work)
    assert work.calls == 2
    rio.configure(max_attempts=4)
    work = Flaky(*(ConnectionResetError() for _ in range(9)))
    with pytest.raises(ConnectionResetError):
        form(retry, work)
    assert work.calls == 4


@pytest.mark.parametrize("form", [bare_or_called, bare_or_called_async], ids=lambda form: form.__name__)
def test_without_parentheses(form: Callable[..., str]) -> None:
    work = Flaky(Refusal())
    assert form(rio.retrying, work) == "done"
    assert work.calls == 2


@every_form
def test_a_preset(form: Callable[..., str]) -> None:
    work = Flaky(*(ConnectionResetError() for _ in range(9)))
    assert form(rio.retrying("checkpoint"), work) == "done"
    work = Flaky(*(ConnectionResetError() for _ in range(10)))
    with pytest.raises(ConnectionResetError):
        form(rio.retrying(Policy.preset("checkpoint")), work)
    assert work.calls == 10


def test_arguments_results_and_names_pass_through() -> None:
    @rio.retrying
    def add(a: int, *, b: int = 2) -> int:
        """Adds."""
        return a + b

    @rio.retrying()
    async def add_later(a: int) -> int:
        return a

    assert (add(1), add(1, b=5), add.__name__, add.__doc__) == (3, 6, "add", "Adds.")
    assert asyncio.run(add_later(4)) == 4
    assert asyncio.iscoroutinefunction(add_later)
    assert not asyncio.iscoroutinefunction(add)


def test_methods_and_callable_objects() -> None:
    class Store:
        def __init__(self) -> None:
            self.flaky = Flaky(Refusal())

        @rio.retrying
        def load(self) -> str:
            return self.flaky()

        @classmethod
        @rio.retrying
        def made(cls) -> str:
            return cls.__name__

        @rio.retrying
        @staticmethod
        def static() -> str:
            return "static"

    class Later:
        async def __call__(self) -> str:
            return "later"

    assert (Store().load(), Store.made()) == ("done", "Store")
    assert rio.retrying(Flaky(Refusal()))() == "done"
    assert asyncio.run(rio.retrying(Later())()) == "later"
    assert asyncio.run(rio.retrying(functools.partial(Flaky(Refusal()).later))()) == "done"
    assert rio.retrying(functools.partial(int, "7"))() == 7


def test_generators_are_refused_when_they_are_decorated() -> None:
    def pages() -> Iterator[int]:
        yield 1

    async def pages_later() -> AsyncIterator[int]:
        yield 1

    for function in (pages, pages_later, functools.partial(pages)):
        with pytest.raises(TypeError, match="generator"):
            rio.retrying(function)
        with pytest.raises(TypeError, match="generator"):
            rio.retrying()(function)


def test_what_is_no_callable_is_refused() -> None:
    with pytest.raises(TypeError, match="put @retrying below @classmethod"):
        rio.retrying(classmethod(lambda cls: None))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="put @retrying below @property"):
        rio.retrying()(property(lambda self: None))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callables"):
        rio.retrying()(5)  # type: ignore[arg-type]


def test_a_coroutine_out_of_a_plain_function_is_refused() -> None:
    load = rio.retrying(lambda: Flaky().later())
    with pytest.raises(TypeError, match="async def"):
        load().close()


def test_bad_policies_and_scopes_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="max_attempts"):
        rio.retrying({"max_atempts": 3})
    with pytest.raises(ValueError, match="preset"):
        rio.retrying("chekpoint")
    with pytest.raises(ValueError, match="scheme"):
        rio.retrying(scope="bucket/train")
    with pytest.raises(ValueError, match="did you mean 'put'"):
        rio.retrying(scope="s3://b/train", op="putt")


def test_an_attempt_that_is_not_entered_ends_the_loop() -> None:
    with pytest.raises(RuntimeError, match="with attempt"):
        for _ in rio.retrying(scope="s3://b/train"):
            pass
    assert leaf().in_flight == 0

    async def main() -> None:
        async for _ in rio.retrying():
            pass

    with pytest.raises(RuntimeError, match="with attempt"):
        asyncio.run(main())


def test_an_attempt_is_entered_once() -> None:
    for attempt in rio.retrying():
        with attempt:
            pass
        with pytest.raises(RuntimeError, match="used already"), attempt:
            pass


def test_break_and_return_leave_nothing_behind() -> None:
    def first() -> str:
        for attempt in rio.retrying(scope="s3://b/train"):
            with attempt:
                return "returned"
        return "never"

    assert first() == "returned"
    for attempt in rio.retrying(scope="s3://b/train"):
        with attempt:
            break
    assert (leaf().in_flight, leaf().tally.succeeded) == (0, 2)


def test_attempts_are_numbered() -> None:
    numbers = []
    work = Flaky(Refusal(), Refusal())
    for attempt in rio.retrying():
        with attempt:
            numbers.append(attempt.number)
            work()
    assert numbers == [1, 2, 3]


def test_one_object_serves_many_threads_and_loops() -> None:
    retry = rio.retrying()
    results: list[str] = []

    def in_thread() -> None:
        for attempt in retry:
            with attempt:
                results.append(Flaky()())

    async def many() -> None:
        async def one() -> None:
            work = Flaky(Refusal())
            async for attempt in retry:
                with attempt:
                    results.append(await work.later())

        await asyncio.gather(*(one() for _ in range(5)))

    running = [threading.Thread(target=in_thread) for _ in range(5)]
    for one in running:
        one.start()
    asyncio.run(many())
    for one in running:
        one.join()
    assert results == ["done"] * 10


def test_a_cancelled_backoff_ends_the_call() -> None:
    class Stuck(ManualClock):
        async def sleep_async(self, seconds: float) -> None:
            await asyncio.Event().wait()

    reset(Stuck(), Random(1))
    work = Flaky(Refusal(), Refusal())

    async def main() -> None:
        task = asyncio.ensure_future(rio.retrying(scope="s3://b/train")(work.later)())
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (work.calls, leaf().in_flight) == (1, 0)


def test_tenacitys_own_signal_means_nothing_here() -> None:
    from tenacity import TryAgain

    work = Flaky(TryAgain())
    with pytest.raises(TryAgain):
        rio.retrying(work)()
    assert work.calls == 1


def test_faults_under_a_scope_draw_on_its_budget_and_refusals_do_not() -> None:
    retry = rio.retrying({"retry_budget_burst": 2, "max_attempts": 9}, scope="s3://b/train")
    work = Flaky(Refusal(), *(ConnectionResetError() for _ in range(9)))
    with pytest.raises(ConnectionResetError) as raised:
        retry(work)()
    assert work.calls == 4
    assert "[retry_budget]" in str(getattr(raised.value, "__notes__", "[retry_budget]"))


def test_an_error_with_read_only_attributes_still_leaves() -> None:
    class Strict(ConnectionResetError):
        @property
        def attempts(self) -> str:
            return "mine"

    error = Strict()
    with pytest.raises(Strict) as raised:
        rio.retrying({"max_attempts": 1})(Flaky(error))()
    assert raised.value.attempts == "mine"
    assert raised.value.verdict.kind is FaultKind.TRANSIENT  # type: ignore[attr-defined]


def test_the_annotated_error_survives_pickle() -> None:
    with pytest.raises(ConnectionResetError) as raised:
        rio.retrying({"max_attempts": 1})(Flaky(ConnectionResetError("gone")))()
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.attempts, copy.resilient_io_gave_up) == (1, True)


def test_a_retried_call_leaves_no_task_behind() -> None:
    async def main() -> int:
        await rio.retrying(Flaky(Refusal()).later)()
        with contextlib.suppress(Refusal):
            await rio.retrying({"max_throttle_attempts": 1})(Flaky(Refusal()).later)()
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
