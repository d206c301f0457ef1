from __future__ import annotations

import asyncio
import threading
import time

import pytest

from resilient_io.testing import Clock, ManualClock


def test_it_moves_only_by_hand() -> None:
    clock: Clock = ManualClock(5.0)
    assert (clock.now(), clock.now()) == (5.0, 5.0)


def test_a_sleep_moves_it_and_takes_no_time() -> None:
    clock = ManualClock()
    started = time.monotonic()
    clock.sleep(1000)
    asyncio.run(clock.sleep_async(500))
    assert (clock.now(), clock.sleeps) == (1500, [1000, 500])
    assert time.monotonic() - started < 1


def test_it_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-1)


def test_without_auto_a_thread_sleeps_until_it_is_woken() -> None:
    clock = ManualClock(auto=False)
    order: list[int] = []
    threads = [threading.Thread(target=lambda s=s: (clock.sleep(s), order.append(s))) for s in (1, 2)]
    for thread in threads:
        thread.start()
    while clock.sleepers < 2:
        time.sleep(0.001)
    clock.advance(1)
    threads[0].join(5)
    assert order == [1]
    clock.advance(1)
    threads[1].join(5)
    assert order == [1, 2]


def test_without_auto_a_task_sleeps_and_can_be_cancelled() -> None:
    async def run() -> None:
        clock = ManualClock(auto=False)
        short, long = (asyncio.ensure_future(clock.sleep_async(s)) for s in (1, 2))
        await asyncio.sleep(0)
        assert clock.sleepers == 2
        clock.advance(1)
        await short
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        assert clock.sleepers == 0

    asyncio.run(run())


def test_waiting_for_an_event_ends_with_it_or_in_time() -> None:
    clock, event = ManualClock(), threading.Event()
    assert not clock.wait(event, 3)
    event.set()
    assert clock.wait(event, 3)
    assert clock.wait(event, None)
    assert clock.now() == 3


def test_waiting_without_auto_ends_when_the_clock_moves() -> None:
    clock, event = ManualClock(auto=False), threading.Event()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(clock.wait(event, 3)))
    thread.start()
    while not clock.sleepers:
        time.sleep(0.001)
    clock.advance(3)
    thread.join(5)
    assert seen == [False]


def test_waiting_for_a_future_does_not_cancel_it() -> None:
    async def run() -> None:
        clock = ManualClock()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert not await clock.wait_async(future, 3)
        assert not future.cancelled()
        future.set_result(None)
        assert await clock.wait_async(future, 3)
        assert await clock.wait_async(future, None)
        assert clock.now() == 3

    asyncio.run(run())
