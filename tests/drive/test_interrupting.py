"""What becomes of the work of a blocked caller that is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.drive.interrupting import Wait, for_nobody, interruptible, waiting
from resilient_io.drive.operation import Operation, Surface, spared


def operation(home: Any = None) -> Operation:
    return Operation(name="x", surface=Surface.FILESYSTEM, home=home)


def test_what_begins_after_the_interrupt_sends_nothing() -> None:
    wait = Wait()
    wait.begins(operation())
    wait.abandon()
    with pytest.raises(asyncio.CancelledError):
        wait.begins(operation())


def test_the_caller_waits_for_what_has_begun_and_no_longer() -> None:
    wait, one = Wait(), operation()
    wait.begins(one)
    wait.ended(one)
    wait.until_ended()


def call(work: Callable[[], Any]) -> Callable[[], Any]:
    async def coroutine(_: object) -> None: ...

    blocking = interruptible(lambda _: work(), coroutine)
    assert blocking.__wrapped__ is coroutine  # type: ignore[attr-defined]
    return lambda: blocking(None)


def test_an_interrupt_reaches_what_began_in_the_call_and_an_error_does_not() -> None:
    began: list[Wait | None] = []

    def work(error: BaseException) -> None:
        began.append(waiting())
        raise error

    with pytest.raises(ValueError, match="no"):
        call(lambda: work(ValueError("no")))()
    with pytest.raises(KeyboardInterrupt):
        call(lambda: work(KeyboardInterrupt()))()
    failed, interrupted = began
    assert failed is not None
    failed.begins(operation())
    assert interrupted is not None
    with pytest.raises(asyncio.CancelledError):
        interrupted.begins(operation())
    assert waiting() is None


def test_what_cleans_up_is_ended_by_nobody() -> None:
    def work() -> None:
        assert waiting() is not None
        with for_nobody():
            assert waiting() is None
        assert waiting() is not None

    call(work)()


def test_a_task_that_comes_late_to_an_operation_that_is_over_is_cancelled() -> None:
    async def run() -> None:
        one = operation(home=asyncio.current_task())
        one.works_in(asyncio.current_task())
        one.abandon()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(1)  # home itself

        async def part() -> None:
            one.works_in(asyncio.current_task())

        ends = await asyncio.gather(part(), return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError)

    asyncio.run(run())


def test_a_spared_task_goes_on_when_its_operation_ends() -> None:
    async def run() -> None:
        one, sent = operation(), asyncio.Event()

        async def begin() -> str:
            one.works_in(asyncio.current_task())
            await sent.wait()
            return "begun"

        with spared():
            task = asyncio.ensure_future(begin())
        await asyncio.sleep(0)
        one.end_tasks()
        sent.set()
        assert await task == "begun"

    asyncio.run(run())
