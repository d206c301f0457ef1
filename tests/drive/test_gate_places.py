"""`max_concurrency_node` in the gate: places are had before a turn, kept until the permit is free, and never lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from resilient_io.control.scopes import scope_path
from resilient_io.coordinate.sharing import NodeSharing, ProcessSharing, Sharing
from resilient_io.drive.clock import SystemClock
from resilient_io.drive.gate import Gate, Outcome, WaitedTooLong
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train/a", op_class="read")
OTHER = scope_path(endpoint="https://s3.test", bucket="b", prefix="train/b", op_class="read")
TWO = Policy(max_concurrency_node=2)

Make = Callable[[], Gate]


@pytest.fixture(params=["own", "shared"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a gate: of a process alone, or of one that shares a table with others."""
    folder = tmp_path / "limits"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(folder))

    def gate() -> Gate:
        sharing: Sharing = NodeSharing() if request.param == "shared" else ProcessSharing()
        return Gate(ManualClock(1000.0), Random(1), sharing)

    return gate


def is_refused(gate: Gate, policy: Policy = TWO) -> bool:
    """Say whether a caller that waits for a tenth of a second gets nothing."""
    try:
        gate.acquire(TRAIN, policy, deadline_at=gate.clock.now() + 0.1).free()
    except WaitedTooLong:
        return True
    return False


def test_more_were_in_flight_than_the_machine_may_have(make: Make) -> None:
    """Per scope; and a place is had until the permit is free, not only until its answer is known."""
    gate = make()
    permits = [gate.acquire(TRAIN, TWO) for _ in range(2)]
    gate.acquire(OTHER, TWO).free()
    permits[0].settle(Outcome.SUCCEEDED)
    assert is_refused(gate)
    permits[0].free()
    assert not is_refused(gate)
    permits[1].free()


def test_policies_with_other_caps_count_together(make: Make) -> None:
    """Those without the field are not counted, and not held up."""
    gate = make()
    one = gate.acquire(TRAIN, TWO)
    other = gate.acquire(TRAIN, Policy(max_concurrency=7, weight=2.0, max_concurrency_node=2))
    assert is_refused(gate)
    gate.acquire(TRAIN, Policy()).free()
    one.free()
    other.free()
    assert not is_refused(gate)


def test_a_caller_that_gave_up_kept_a_place(make: Make) -> None:
    """And a permit that nobody holds any more."""
    gate = make()
    permits = [gate.acquire(TRAIN, TWO) for _ in range(2)]
    for _ in range(5):
        assert is_refused(gate)
    del permits
    gc.collect()
    kept = [gate.acquire(TRAIN, TWO) for _ in range(2)]
    assert is_refused(gate)
    assert len(kept) == 2


def test_waiters_go_in_their_order_as_places_come_back(make: Make) -> None:
    gate, order = make(), list[int]()

    async def caller(number: int) -> None:
        permit = await gate.acquire_async(TRAIN, TWO)
        order.append(number)
        await gate.clock.sleep_async(0.05)
        permit.free(Outcome.SUCCEEDED)

    async def main() -> None:
        await asyncio.gather(*(caller(number) for number in range(8)))

    asyncio.run(main())
    assert order == list(range(8))
    lane = gate.lanes()[-1]
    assert lane.in_flight == 0


def test_a_gate_that_a_fork_left_over_gave_the_places_of_its_parent_back(make: Make) -> None:
    """What is freed there must not touch the locks, which parent and child have in common."""
    gate, other = make(), make()
    permits = [gate.acquire(TRAIN, TWO) for _ in range(2)]
    shared = is_refused(other)
    parents = gate._table._sharing  # whose file it is, too
    gate.after_fork()
    for permit in permits:
        permit.free()
    assert is_refused(other) is shared
    del parents


def test_a_process_that_shares_nothing_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(tmp_path / "limits"))
    gate = Gate(SystemClock(), Random(1), NodeSharing())
    alone = Policy(max_concurrency_node=2, coordination="process")
    permits = [gate.acquire(path, alone) for path in (TRAIN, OTHER, TRAIN)]
    assert [record.message for record in caplog.records if "max_concurrency_node" in record.message] == [
        "max_concurrency_node counts this process alone: it shares no table with others"
    ]
    with pytest.raises(WaitedTooLong):
        gate.acquire(TRAIN, alone, deadline_at=gate.clock.now() + 0.005)
    for permit in permits:
        permit.free()


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4"])
def test_a_bound_that_is_no_number_of_requests_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"max_concurrency_node must be a whole number of at least 1, or None, not "):
        Policy(max_concurrency_node=value)  # type: ignore[arg-type]
