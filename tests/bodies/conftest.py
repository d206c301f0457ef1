"""What the tests of bodies share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resilient_io.drive import runtime as runtimes


def _nothing_in_flight() -> bool:
    gate = runtimes.runtime().gate
    return not any(lane.busy() for lane in gate.lanes()) and not any(level.in_flight for level in gate.levels())


@pytest.fixture
def idle() -> Callable[[], bool]:
    """Return the question whether no permit is held and nobody waits."""
    return _nothing_in_flight
