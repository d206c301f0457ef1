"""One script, driven through the sync and the async forms: the same decisions, in the same order, at the same times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

import resilient_io as rio
from resilient_io import events
from resilient_io.classify.fault import Applied, FaultKind, Load, Verdict
from resilient_io.control.scopes import scope_path
from resilient_io.drive.call import Call
from resilient_io.drive.gate import WaitedTooLong
from resilient_io.drive.operation import Operation, Surface, body_held
from resilient_io.drive.runtime import Runtime, reset, runtime
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train", op_class="read")
REFUSED = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, retryable=True, rule="slow-down")
ASKED = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, retryable=True, retry_after_s=1.5)
RESET = Verdict(kind=FaultKind.TRANSIENT, load=Load.SUSPECTED, retryable=True, rule="reset")
LOST = Verdict(kind=FaultKind.AMBIGUOUS, load=Load.SUSPECTED, applied=Applied.MAYBE, retryable=True)
MISSING = Verdict(kind=FaultKind.NOT_FOUND)
# What each call gets back, attempt by attempt; None is a success.
SCRIPTS: list[tuple[bool, list[Verdict | None]]] = [
    (True, [None]),
    (True, [REFUSED, None]),
    (True, [ASKED, REFUSED, RESET, None]),
    (True, [MISSING]),
    (False, [LOST]),
    (True, [LOST, None]),
    (True, [RESET] * 9),
    (False, [REFUSED] * 9),
    (True, [None]),
]
POLICY = Policy(max_attempts=3, max_throttle_attempts=4, max_concurrency=2)


def new_call(idempotent: bool) -> Call:
    operation = Operation(name="cat_file", surface=Surface.FILESYSTEM)
    return Call(
        runtime(),
        operation,
        name="GetObject",
        judged_as="GetObject" if idempotent else "AppendBlock",
        place=lambda: "s3://b/train/x",
        path=TRAIN,
        policy=POLICY,
    )


def answered(call: Call, verdict: Verdict | None) -> float | None:
    if verdict is None:
        with body_held():
            call.succeeded(body_follows=True)
        return None
    call.failed(verdict)
    return call.decide()


def calls_sync() -> None:
    for idempotent, script in SCRIPTS:
        call = new_call(idempotent)
        for verdict in script:
            call.admit()
            delay_s = answered(call, verdict)
            if delay_s is None:
                break
            runtime().clock.sleep(delay_s)
    held = [runtime().gate.acquire(TRAIN, POLICY) for _ in range(2)]
    with pytest.raises(WaitedTooLong):
        new_call(True).admit()
    for permit in held:
        permit.free()


async def calls_async() -> None:
    for idempotent, script in SCRIPTS:
        call = new_call(idempotent)
        for verdict in script:
            await call.admit_async()
            delay_s = answered(call, verdict)
            if delay_s is None:
                break
            await runtime().clock.sleep_async(delay_s)
    held = [await runtime().gate.acquire_async(TRAIN, POLICY) for _ in range(2)]
    with pytest.raises(WaitedTooLong):
        await new_call(True).admit_async()
    for permit in held:
        permit.free()


ERRORS: list[list[BaseException]] = [
    [],
    [ConnectionResetError(), TimeoutError()],
    [KeyError("k")],
    [ConnectionResetError() for _ in range(9)],
    [asyncio.CancelledError()],
]


def work_of(errors: list[BaseException]) -> Callable[[], str]:
    left = [type(error)(*error.args) for error in errors]

    def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


def retrying_sync() -> None:
    for scope in (None, "s3://b/train"):
        for errors in ERRORS:
            work = work_of(errors)
            with pytest.raises(BaseException) if errors[-1:] and len(errors) != 2 else _nothing():  # noqa: PT011

                @rio.retrying({"max_attempts": 3}, scope=scope)
                def load(work: Callable[[], str] = work) -> str:
                    return work()

                load()
            work = work_of(errors[:2] if len(errors) == 2 else [])
            for attempt in rio.retrying(POLICY, scope=scope):
                with attempt, rio.limit("s3://b/other/x"):
                    work()


async def retrying_async() -> None:
    for scope in (None, "s3://b/train"):
        for errors in ERRORS:
            work = work_of(errors)
            with pytest.raises(BaseException) if errors[-1:] and len(errors) != 2 else _nothing():  # noqa: PT011

                @rio.retrying({"max_attempts": 3}, scope=scope)
                async def load(work: Callable[[], str] = work) -> str:
                    return work()

                await load()
            work = work_of(errors[:2] if len(errors) == 2 else [])
            async for attempt in rio.retrying(POLICY, scope=scope):
                with attempt:
                    async with rio.limit("s3://b/other/x"):
                        work()


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def log_of(drive: Callable[[], object]) -> tuple[list[Any], list[float], Runtime]:
    clock = ManualClock()
    seen: list[events.Event] = []
    run = reset(clock, Random(23))
    unsubscribe = events.subscribe(seen.append)
    try:
        drive()
    finally:
        unsubscribe()
    return [str(event).replace("retrying_async", "retrying_sync") for event in seen], clock.sleeps, run


@pytest.mark.parametrize(
    ("blocking", "suspending", "at_least"),
    [(calls_sync, calls_async, 30), (retrying_sync, retrying_async, 20)],
    ids=["calls", "retrying and limit"],
)
def test_sync_and_async_do_the_same(
    blocking: Callable[[], None], suspending: Callable[[], Awaitable[None]], at_least: int
) -> None:
    first, slept, run = log_of(blocking)
    second, slept_async, run_async = log_of(lambda: asyncio.run(suspending()))  # type: ignore[arg-type]
    assert len(first) >= at_least
    assert first == second
    assert slept == slept_async
    for one, other in zip(run.gate.levels(), run_async.gate.levels(), strict=True):
        assert (one.key, one.tally, list(one.rate), list(one.budget)) == (
            other.key,
            other.tally,
            list(other.rate),
            list(other.budget),
        )
        assert (one.in_flight, other.in_flight) == (0, 0)
