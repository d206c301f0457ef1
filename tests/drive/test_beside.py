"""The front of a read and its rest: they end together, however one of them ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from resilient_io.control.ranges import Span
from resilient_io.drive.beside import Beside


class Broken(Exception):
    """Something went wrong."""


async def _ended(event: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        event.set()


async def _fails() -> None:
    raise Broken


def test_a_front_that_fails_ends_the_rest() -> None:
    async def run() -> None:
        beside, ended = Beside(2), asyncio.Event()

        async def front() -> None:
            beside.begin(_ended(ended))
            await asyncio.sleep(0)
            raise Broken

        with pytest.raises(Broken):
            await beside.front(front())
        assert ended.is_set()

    asyncio.run(run())


def test_a_front_does_not_go_on_when_the_rest_has_failed() -> None:
    async def run() -> int:
        beside, steps = Beside(2), 0

        async def front() -> None:
            nonlocal steps
            beside.begin(_fails())
            for _ in range(100):
                beside.must_go_on()
                steps += 1
                await asyncio.sleep(0)

        with pytest.raises(Broken):
            await beside.front(front())
        return steps

    assert asyncio.run(run()) < 5


@pytest.mark.parametrize("cancelled", [False, True])
def test_who_waits_hears_of_the_rest_that_fails_or_ends_it(cancelled: bool) -> None:
    async def run() -> None:
        beside, ended = Beside(2), asyncio.Event()

        async def front() -> None:
            beside.begin(_ended(ended) if cancelled else _fails())

        task = asyncio.ensure_future(beside.front(front()))
        await asyncio.sleep(0.001)
        if cancelled:
            task.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else Broken):
            await task
        assert ended.is_set() == cancelled

    asyncio.run(run())


@pytest.mark.parametrize("side_by_side", [1, 2, 5])
def test_front_and_rest_together_are_not_more_than_was_said(side_by_side: int) -> None:
    async def run() -> tuple[int, list[int]]:
        beside, now, most, done = Beside(side_by_side), 0, 0, []

        async def counted(work: Any) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await work
            now -= 1

        async def fill(span: Span) -> None:
            await counted(asyncio.sleep(0))
            done.append(span.start)

        async def front() -> None:
            spans = [Span(start, start + 1) for start in range(20)]
            if side_by_side > 1:
                beside.begin(beside.fill(spans, fill))
                await counted(asyncio.sleep(0.002))
            else:
                await beside.fill(spans, fill)

        await beside.front(front())
        return most, done

    most, done = asyncio.run(run())
    assert most <= side_by_side
    assert sorted(done) == list(range(20))
