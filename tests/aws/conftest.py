"""A store with twenty small objects, and a clock that runs a hundred times as fast."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resilient_io.drive import runtime as runtimes
from resilient_io.testing import FaultPlan, FaultServer

BUCKET = "b"
KEY = "train/000001"
SIZE_BYTES = 4096


class FastClock:
    """Time that runs `speed` times as fast: paced attempts take milliseconds, and all waits keep their order."""

    def __init__(self, speed: float = 100.0) -> None:
        self._speed = speed

    def now(self) -> float:
        return time.monotonic() * self._speed

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._speed)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        return event.wait(None if timeout_s is None else timeout_s / self._speed)

    async def wait_async(self, future: asyncio.Future[Any], timeout_s: float | None) -> bool:
        await asyncio.wait((future,), timeout=None if timeout_s is None else timeout_s / self._speed)
        return future.done()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave fsspec's suites without faults, and their edge cases of globs, to `make soak`: moto takes minutes."""
    for item in items:
        slow = "glob_edge_cases" in item.name or "[plain" in item.name
        if item.path.name == "test_fsspec_abstract.py" and slow:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="module")
def store() -> Iterator[FaultServer]:
    """Yield a server for the whole module; `plan_of` changes what it does."""
    with FaultServer() as server:
        server.fill(BUCKET, count=20, size_bytes=SIZE_BYTES)
        yield server


@pytest.fixture
def plan_of(store: FaultServer) -> Iterator[Callable[..., FaultServer]]:
    """Put rules in force with clean counters, until the test ends: `plan_of(rule, rule)`."""

    def put(*rules: Any) -> FaultServer:
        store.configure(FaultPlan(rules=rules))
        store.reset()
        return store

    yield put
    store.configure(FaultPlan())


@pytest.fixture
def fast_clock() -> FastClock:
    """Make the library live a hundred times as fast for one test."""
    clock = FastClock()
    runtimes.reset(clock=clock)
    return clock


def nothing_in_flight() -> bool:
    """Say whether no permit is held and nobody waits."""
    gate = runtimes.runtime().gate
    return not any(lane.busy() for lane in gate.lanes()) and not any(level.in_flight for level in gate.levels())


@pytest.fixture
def idle() -> Callable[[], bool]:
    """Return the question whether no permit is held and nobody waits."""
    return nothing_in_flight
