from __future__ import annotations

import asyncio
import contextvars
import threading
from random import Random

import pytest

from resilient_io import policy as policies
from resilient_io.control.scopes import scope_path
from resilient_io.drive.gate import Gate
from resilient_io.drive.operation import (
    Operation,
    Surface,
    body_held,
    body_hold,
    current,
    entered,
)
from resilient_io.errors import GaveUp, GiveUp
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train", op_class="read")


def operation(name: str = "cat_file", **fields: object) -> Operation:
    return Operation(name=name, surface=Surface.FILESYSTEM, **fields)  # type: ignore[arg-type]


def test_nothing_is_current_outside() -> None:
    assert current() is None
    with entered(operation()):
        pass
    assert current() is None


def test_the_outermost_operation_stays() -> None:
    outer, inner = operation("outer"), operation("inner")
    with entered(outer) as found:
        assert found is outer
        with entered(inner) as found:
            assert found is outer
        assert current() is outer


def test_an_error_ends_the_operation() -> None:
    with pytest.raises(ZeroDivisionError), entered(operation()):
        raise ZeroDivisionError
    assert current() is None


def test_the_ledger_is_shared_with_child_tasks() -> None:
    async def child() -> None:
        found = current()
        assert found is not None
        found.ledger.append(GaveUp(GiveUp(operation="GetObject"), OSError()))

    async def main() -> Operation:
        with entered(operation()) as outer:
            await asyncio.gather(child(), asyncio.ensure_future(child()))
        return outer

    outer = asyncio.run(main())
    assert len(outer.ledger) == 2
    assert [one.record.operation for one in outer.ledger] == ["GetObject"] * 2


def test_a_worker_thread_sees_it_only_through_a_copied_context() -> None:
    seen: list[Operation | None] = []
    with entered(operation()) as outer:
        carried = contextvars.copy_context()
        works = [lambda: seen.append(current()), lambda: carried.run(lambda: seen.append(current()))]
        for work in works:
            one = threading.Thread(target=work)
            one.start()
            one.join()
    assert seen == [None, outer]


def test_tasks_of_one_loop_do_not_mix_their_operations() -> None:
    async def call(name: str) -> str:
        with entered(operation(name)):
            await asyncio.sleep(0)
            found = current()
            assert found is not None
            return found.name

    async def main() -> list[str]:
        return list(await asyncio.gather(call("a"), call("b"), call("c")))

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_the_policy_is_resolved_when_it_is_asked_for() -> None:
    one = operation(overlay=policies.overlay({"max_attempts": 3}))
    try:
        policies.configure(max_attempts=9, max_concurrency=5)
        assert (one.policy().max_attempts, one.policy().max_concurrency) == (3, 5)
        assert one.policy(policies.overlay({"max_attempts": 2})).max_attempts == 2
        policies.configure(max_concurrency=6)
        assert one.policy(None).max_concurrency == 6
    finally:
        policies.reset()


def test_a_body_hold_frees_its_permit_at_the_end_of_the_block() -> None:
    gate = Gate(ManualClock(), Random(1))
    assert body_hold() is None
    with pytest.raises(ZeroDivisionError), body_held() as hold:
        assert body_hold() is hold
        hold.permit = gate.acquire(TRAIN, Policy())
        raise ZeroDivisionError
    assert body_hold() is None
    assert gate.levels()[-1].in_flight == 0
    hold.free()


def test_what_sends_in_other_tasks_is_cancelled_with_the_operation_and_its_own_task_is_not() -> None:
    async def main() -> tuple[bool, bool]:
        home = asyncio.current_task()
        one = operation(home=home)
        other = asyncio.ensure_future(asyncio.Event().wait())
        done = asyncio.ensure_future(asyncio.sleep(0))
        for task in (home, other, done, None):
            one.works_in(task)
        await done
        one.end_tasks()
        await asyncio.wait((other,))
        return other.cancelled(), done.cancelled()

    assert asyncio.run(main()) == (True, False)
