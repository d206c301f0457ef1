"""The first moment of a large fleet: each process begins with its part of the requests; what succeeds lets more go."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from resilient_io.control import opening
from resilient_io.control.scopes import scope_path
from resilient_io.drive.gate import Gate, Outcome, Permit, WaitedTooLong
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

CKPT = scope_path(endpoint="https://s3.test", bucket="b", prefix="ckpt/step-1", op_class="write")
LARGE = Policy(fleet_size=4096, max_concurrency=16)


def admitted(gate: Gate, policy: Policy, most: int = 100) -> list[Permit]:
    """Take permits until one would have to wait."""
    permits: list[Permit] = []
    now = gate.clock.now()
    while len(permits) < most:
        try:
            permits.append(gate.acquire(CKPT, policy, deadline_at=now))
        except WaitedTooLong:
            break
    return permits


def test_a_burst_of_a_large_fleet_begins_with_one_request_each() -> None:
    """4,096 x 16 at once would be refused 60,000 times before the first of them knows."""
    gate = Gate(ManualClock(), Random(1))
    first = admitted(gate, LARGE)
    assert len(first) == 1
    first[0].free(Outcome.SUCCEEDED)
    assert len(admitted(gate, LARGE)) == 2


def test_each_success_lets_more_go_until_the_cap() -> None:
    gate, now = Gate(ManualClock(), Random(1)), 0
    for _ in range(20):
        permits = admitted(gate, LARGE)
        assert now <= len(permits) <= 16
        now = len(permits)
        for permit in permits:
            permit.free(Outcome.SUCCEEDED)
    assert now == 16


def test_a_refusal_opens_nothing() -> None:
    gate = Gate(ManualClock(), Random(1))
    admitted(gate, LARGE)[0].free(Outcome.REFUSED)
    lane = gate.lanes()[0]
    assert lane.cap == 1


def test_after_a_second_nothing_is_held_back() -> None:
    """Bodies that take long are no reason to read one after the other."""
    clock = ManualClock()
    gate = Gate(clock, Random(1))
    held = admitted(gate, LARGE)
    clock.advance(opening.FOR_S)
    assert len(held) + len(admitted(gate, LARGE)) == 16


def test_a_waiter_is_woken_when_the_second_is_over() -> None:
    clock = ManualClock()
    gate = Gate(clock, Random(1))
    held = gate.acquire(CKPT, LARGE)
    second = gate.acquire(CKPT, LARGE)  # the manual clock moves as far as it is told to wait
    assert clock.now() == pytest.approx(opening.FOR_S)
    held.free()
    second.free()


def test_a_waiting_task_goes_when_a_request_has_succeeded() -> None:
    async def both() -> float:
        gate = Gate(ManualClock(auto=False), Random(1))
        held = await gate.acquire_async(CKPT, LARGE)
        waiting = asyncio.ensure_future(gate.acquire_async(CKPT, LARGE))
        await asyncio.sleep(0)
        assert not waiting.done()
        held.free(Outcome.SUCCEEDED)
        (await waiting).free()
        return gate.clock.now()

    assert asyncio.run(both()) == 0.0


@pytest.mark.parametrize(
    "policy",
    [Policy(max_concurrency=16), Policy(fleet_size=1, max_concurrency=16), Policy(fleet_size=999, max_concurrency=16)],
    ids=["not known", "alone", "small"],
)
def test_nothing_waits_where_the_fleet_is_small_or_not_known(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"):
        monkeypatch.delenv(name, raising=False)
    assert len(admitted(Gate(ManualClock(), Random(1)), policy)) == 16


def test_the_launcher_tells_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1024")
    assert len(admitted(Gate(ManualClock(), Random(1)), Policy(max_concurrency=16))) == 4


@pytest.mark.parametrize(
    ("share", "first"),
    [(0.0, float("inf")), (1.0, float("inf")), (1 / 512, float("inf")), (1 / 1000, 4), (1 / 8192, 1)],
)
def test_the_window(share: float, first: float) -> None:
    assert opening.window(share) == first
