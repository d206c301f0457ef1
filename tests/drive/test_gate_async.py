from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from resilient_io.control import law
from resilient_io.control.scopes import scope_path
from resilient_io.drive.clock import Clock, SystemClock
from resilient_io.drive.gate import Gate, Outcome, Permit, WaitedTooLong
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train/a", op_class="read")
ONE = Policy(max_concurrency=1)


def gate_of(clock: Clock | None = None) -> Gate:
    return Gate(clock if clock is not None else SystemClock(), Random(7))


def waiting(gate: Gate) -> int:
    return sum(len(lane.waiting) for lane in gate.lanes())


def queued(gate: Gate, count: int) -> bool:
    return waiting(gate) == count


def in_flight(gate: Gate) -> int:
    return sum(lane.in_flight for lane in gate.lanes())


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_first_come_first_served_among_tasks() -> None:
    async def main() -> list[int]:
        gate, order = gate_of(), []
        held = await gate.acquire_async(TRAIN, ONE)

        async def enter(number: int) -> None:
            permit = await gate.acquire_async(TRAIN, ONE)
            order.append(number)
            permit.free()

        tasks = [asyncio.ensure_future(enter(number)) for number in range(6)]
        await turns()
        held.free()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(main()) == list(range(6))


def test_one_queue_for_threads_and_two_event_loops() -> None:
    gate, order = gate_of(), []
    held = gate.acquire(TRAIN, ONE)

    def in_thread(name: str) -> None:
        permit = gate.acquire(TRAIN, ONE)
        order.append(name)
        permit.free()

    async def in_task(name: str) -> None:
        permit = await gate.acquire_async(TRAIN, ONE)
        order.append(name)
        permit.free()

    works: list[Callable[[], Any]] = [
        lambda: in_thread("thread 1"),
        lambda: asyncio.run(in_task("loop 1")),
        lambda: in_thread("thread 2"),
        lambda: asyncio.run(in_task("loop 2")),
    ]
    running = []
    for number, work in enumerate(works):
        running.append(threading.Thread(target=work, daemon=True))
        running[-1].start()
        eventually(partial(queued, gate, number + 1))
    held.free()
    for one in running:
        one.join(5)
    assert order == ["thread 1", "loop 1", "thread 2", "loop 2"]


def test_the_cap_holds_across_threads_and_two_event_loops() -> None:
    gate, policy = gate_of(), Policy(max_concurrency=7)
    lock, inside, peak = threading.Lock(), 0, 0

    def came(change: int) -> None:
        nonlocal inside, peak
        with lock:
            inside += change
            peak = max(peak, inside)

    def in_thread() -> None:
        for _ in range(20):
            permit = gate.acquire(TRAIN, policy)
            came(1)
            time.sleep(0.0002)
            came(-1)
            permit.free(Outcome.SUCCEEDED)

    async def in_task() -> None:
        for _ in range(20):
            permit = await gate.acquire_async(TRAIN, policy)
            came(1)
            await asyncio.sleep(0.0002)
            came(-1)
            permit.free(Outcome.SUCCEEDED)

    async def many() -> None:
        await asyncio.gather(*(in_task() for _ in range(8)))

    works: list[Callable[[], object]] = [*[in_thread] * 16, *[lambda: asyncio.run(many())] * 2]
    running = [threading.Thread(target=work, daemon=True) for work in works]
    for one in running:
        one.start()
    for one in running:
        one.join(20)
        assert not one.is_alive(), "somebody hangs"
    assert peak == 7
    assert (in_flight(gate), waiting(gate)) == (0, 0)


def test_a_cancelled_wait_leaves_the_queue() -> None:
    async def main() -> None:
        gate = gate_of()
        held = await gate.acquire_async(TRAIN, ONE)
        task = asyncio.ensure_future(gate.acquire_async(TRAIN, ONE))
        await turns()
        assert waiting(gate) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting(gate) == 0
        held.free()
        assert in_flight(gate) == 0

    asyncio.run(main())


def test_a_cancel_after_the_grant_gives_the_permit_on() -> None:
    async def main() -> None:
        gate = gate_of()
        held = await gate.acquire_async(TRAIN, ONE)
        first = asyncio.ensure_future(gate.acquire_async(TRAIN, ONE))
        await turns()
        second = asyncio.ensure_future(gate.acquire_async(TRAIN, ONE))
        await turns()
        held.free()  # granted to the first, which has not run yet
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        (await asyncio.wait_for(second, 5)).free()
        assert (in_flight(gate), waiting(gate)) == (0, 0)
        leaf = gate.levels()[-1]
        assert (leaf.in_flight, leaf.rate[law.IN_FLIGHT]) == (0, 0)

    asyncio.run(main())


def test_a_closed_coroutine_leaves_the_queue() -> None:
    async def main() -> None:
        gate = gate_of()
        held = await gate.acquire_async(TRAIN, ONE)
        waits = gate.acquire_async(TRAIN, ONE)
        waits.send(None)
        assert waiting(gate) == 1
        waits.close()  # GeneratorExit
        assert waiting(gate) == 0
        held.free()

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_dead_event_loop_does_not_swallow_a_permit() -> None:
    gate = gate_of()
    held = gate.acquire(TRAIN, ONE)
    loop = asyncio.new_event_loop()
    task = loop.create_task(gate.acquire_async(TRAIN, ONE))
    loop.run_until_complete(turns())
    loop.close()
    assert waiting(gate) == 1
    held.free()
    assert (in_flight(gate), waiting(gate)) == (0, 0)
    gate.acquire(TRAIN, ONE).free()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is the point of this test
    del task
    gc.collect()


def test_a_loop_that_dies_while_the_scope_is_paced_does_not_block_the_queue() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    gate.acquire(TRAIN, Policy()).free(Outcome.REFUSED)
    paced = gate.levels()[-1]
    paced.rate[law.RATE], paced.rate[law.TOKENS] = 1.0, 0.0

    class Stuck(ManualClock):
        async def wait_async(self, future: asyncio.Future[Any], timeout_s: float | None) -> bool:
            await future
            return True

    gate.clock = Stuck()
    loop = asyncio.new_event_loop()
    waits = gate.acquire_async(TRAIN, Policy())

    async def start() -> None:
        waits.send(None)

    loop.run_until_complete(start())
    loop.close()
    gate.clock = clock
    gate.acquire(TRAIN, Policy(), deadline_at=30.0).free()
    waits.close()
    assert (in_flight(gate), waiting(gate)) == (0, 0)


def test_a_deadline_ends_the_wait_of_a_task() -> None:
    async def main() -> None:
        clock = ManualClock()
        gate = gate_of(clock)
        held = await gate.acquire_async(TRAIN, ONE)
        with pytest.raises(WaitedTooLong):
            await gate.acquire_async(TRAIN, ONE, deadline_at=12.5)
        assert clock.now() == 12.5
        held.free()
        assert (in_flight(gate), waiting(gate)) == (0, 0)

    asyncio.run(main())


def test_a_paced_task_sleeps_once_for_each_permit() -> None:
    async def main() -> None:
        clock = ManualClock()
        gate = gate_of(clock)
        gate.acquire(TRAIN, Policy()).free(Outcome.REFUSED)
        paced = gate.levels()[-1]
        paced.rate[law.RATE], paced.rate[law.TOKENS] = 2.0, 0.0
        permits: list[Permit] = []
        for _ in range(3):
            permits.append(await gate.acquire_async(TRAIN, Policy()))
            paced.rate[law.TOKENS] = 0.0
        assert clock.sleeps == pytest.approx([0.5, 0.5, 0.5])

    asyncio.run(main())


def test_no_task_holds_back_the_loop_while_it_waits() -> None:
    async def main() -> None:
        gate = gate_of()
        held = await gate.acquire_async(TRAIN, ONE)
        task = asyncio.ensure_future(gate.acquire_async(TRAIN, ONE))
        ran = False

        async def other() -> None:
            nonlocal ran
            ran = True

        await turns()
        await other()
        held.free()
        (await task).free()
        assert ran

    asyncio.run(main())
