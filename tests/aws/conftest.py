"""A store with twenty small objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resilient_io.drive import runtime as runtimes
from resilient_io.testing import FaultPlan, FaultServer

BUCKET = "b"
KEY = "train/000001"
SIZE_BYTES = 4096


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


def nothing_in_flight() -> bool:
    """Say whether no permit is held and nobody waits."""
    gate = runtimes.runtime().gate
    return not any(lane.busy() for lane in gate.lanes()) and not any(level.in_flight for level in gate.levels())


@pytest.fixture
def idle() -> Callable[[], bool]:
    """Return the question whether no permit is held and nobody waits."""
    return nothing_in_flight
