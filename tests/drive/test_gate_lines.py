"""Who goes first where callers of several prefixes, blobs or policies wait for one limit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from resilient_io.control import law
from resilient_io.control.scopes import ScopePath, scope_path
from resilient_io.drive.gate import Gate, Outcome, Permit, WaitedTooLong
from resilient_io.drive.scope import Level
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

POLICY = Policy()
RATE_PER_S = 10.0


def prefix(number: int, container: str = "c") -> ScopePath:
    return scope_path(
        endpoint="https://a.blob.test", account="a", bucket=container, prefix=f"p{number}", op_class="read"
    )


def limited(gate: Gate, path: ScopePath, depth: int, rate_per_s: float = RATE_PER_S) -> Level:
    """Limit one level, without a token, as a refusal would; what is dropped later leaves the rate as it is."""
    now = gate.clock.now()
    with gate.locked():
        level = gate.lane_of(path, POLICY, now).levels[depth]
    law.on_refusal(level.rate, now, now, 0.0)
    level.rate[law.RATE], level.rate[law.TOKENS], level.rate[law.TOKENS_AT] = rate_per_s, 0.0, now
    level.rate[law.ENTERING] = 0.0
    return level


def waiting(gate: Gate) -> int:
    return sum(len(lane.waiting) for lane in gate.lanes())


class Tasks:
    """Tasks that ask a gate on a clock that stands still, and in which order they went."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0, auto=False)
        self.gate = Gate(self.clock, Random(7))
        self.order: list[object] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(
        self,
        path: ScopePath,
        name: object,
        policy: Policy = POLICY,
        again: bool = False,
        held_s: float = 0.0,
        step_s: float = 1e-6,
    ) -> None:
        async def caller() -> None:
            permit = await self.gate.acquire_async(path, policy, again=again)
            self.order.append(name)
            if held_s:
                await self.clock.sleep_async(held_s)
            permit.free()

        self.tasks.append(asyncio.create_task(caller()))
        await asyncio.sleep(0)
        self.clock.advance(step_s)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            self.clock.advance(0.01)
            for _ in range(8):
                await asyncio.sleep(0)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def test_tasks_of_many_prefixes_under_one_account_limit_go_in_the_order_in_which_they_came() -> None:
    """One hurried prefix and many slow ones: whoever's lane was looked at first went first."""

    async def main() -> None:
        world = Tasks()
        limited(world.gate, prefix(0), 1)
        numbers = [0 if number % 3 else number for number in range(60)]
        for name, number in enumerate(numbers):
            await world.ask(prefix(number), name)
        await world.pass_time(7.0)
        assert world.order == list(range(60))
        await world.end()

    asyncio.run(main())


def test_threads_of_many_prefixes_under_one_account_limit_go_in_the_order_in_which_they_came() -> None:
    clock = ManualClock(100.0, auto=False)
    gate, order = Gate(clock, Random(7)), list[int]()
    limited(gate, prefix(0), 1)

    def ask(number: int) -> None:
        permit = gate.acquire(prefix(number % 5), POLICY)
        order.append(number)
        permit.free()

    threads = []
    for number in range(15):
        threads.append(threading.Thread(target=ask, args=(number,), daemon=True))
        threads[-1].start()
        eventually(lambda wanted=number + 1: waiting(gate) == wanted)  # type: ignore[misc]
        clock.advance(1e-6)
    deadline = time.monotonic() + 10
    while waiting(gate) and time.monotonic() < deadline:
        clock.advance(0.05)
        time.sleep(0.003)
    for thread in threads:
        thread.join(5)
    assert order == list(range(15))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


def test_those_who_came_at_the_same_instant_go_round_the_prefixes() -> None:
    """One prefix had all its callers served before the next one's first."""

    async def main() -> None:
        world = Tasks()
        limited(world.gate, prefix(0), 1)
        for name in range(9):
            await world.ask(prefix(name // 3), name // 3, step_s=0.0)
        await world.pass_time(1.2)
        assert world.order == [0, 1, 2] * 3
        await world.end()

    asyncio.run(main())


def test_an_earlier_retry_goes_before_a_later_one_and_both_before_the_new_ones_of_all_prefixes() -> None:
    async def main() -> None:
        world = Tasks()
        limited(world.gate, prefix(0), 1)
        for number in range(3):
            await world.ask(prefix(number), f"new {number}")
        for number in (1, 1, 2):
            await world.ask(prefix(number), f"retry {len(world.tasks)}", again=True)
        await world.pass_time(1.0)
        assert world.order == ["retry 3", "retry 4", "retry 5", "new 0", "new 1", "new 2"]
        await world.end()

    asyncio.run(main())


def test_a_prefix_that_its_own_limit_holds_back_does_not_hold_back_those_behind_it() -> None:
    async def main() -> None:
        world = Tasks()
        limited(world.gate, prefix(0), 1)
        limited(world.gate, prefix(1), -1, rate_per_s=1.0)
        for name in range(4):
            await world.ask(prefix(1), f"slow {name}")
        for name in range(20):
            await world.ask(prefix(2), f"other {name}")
        await world.pass_time(2.5)
        assert Counter(str(name).split()[0] for name in world.order) == {"slow": 2, "other": 20}
        await world.pass_time(2.0)
        assert len(world.order) == 24
        await world.end()

    asyncio.run(main())


def test_a_prefix_whose_semaphore_is_full_does_not_hold_back_those_behind_it() -> None:
    async def main() -> None:
        world, one = Tasks(), Policy(max_concurrency=1)
        limited(world.gate, prefix(0), 1)
        for name in range(3):
            await world.ask(prefix(1), f"full {name}", one, held_s=1.0)
        for name in range(6):
            await world.ask(prefix(2), f"other {name}", one)
        await world.pass_time(1.0)
        assert world.order == ["full 0", *(f"other {name}" for name in range(6))]
        await world.pass_time(3.0)
        assert world.order[-2:] == ["full 1", "full 2"]
        await world.end()

    asyncio.run(main())


def test_a_bucket_limited_under_a_limited_account_lets_its_prefixes_go_in_turn() -> None:
    async def main() -> None:
        world = Tasks()
        limited(world.gate, prefix(0), 1, rate_per_s=20.0)
        limited(world.gate, prefix(0), 2, rate_per_s=5.0)
        for name in range(10):
            await world.ask(prefix(name), ("c", name))
            await world.ask(prefix(name, "d"), ("d", name))
        await world.pass_time(2.2)
        assert [name for name in world.order if isinstance(name, tuple) and name[0] == "c"] == [
            ("c", name) for name in range(10)
        ]
        assert len(world.order) == 20
        await world.end()

    asyncio.run(main())


def test_a_limit_that_is_lifted_lets_all_go() -> None:
    async def main() -> None:
        world = Tasks()
        account = limited(world.gate, prefix(0), 1, rate_per_s=0.5)
        for name in range(30):
            await world.ask(prefix(name), name)
        account.rate[law.LIMITED], account.rate[law.RATE] = 0.0, float("inf")
        await world.ask(prefix(99), 99)  # anybody who comes by
        await world.pass_time(2.5)
        assert set(world.order) == {*range(30), 99}
        await world.end()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_whoever_leaves_a_line_leaves_nobody_asleep(seed: int) -> None:
    """Cancelled in their sleep, at their turn, or past their deadline: the others go on at the full rate."""
    print(seed)

    async def main() -> None:
        world, rng = Tasks(), Random(seed)
        limited(world.gate, prefix(0), 1)
        limited(world.gate, prefix(3), -1, rate_per_s=3.0)
        for name in range(40):
            await world.ask(prefix(rng.randrange(6)), name, again=rng.random() < 0.1)
        for _ in range(20):
            await world.pass_time(0.1)
            rng.choice(world.tasks).cancel()
        await world.pass_time(4.0)
        cancelled = sum(task.cancelled() for task in world.tasks)
        assert len(world.order) + cancelled == 40
        assert (waiting(world.gate), sum(lane.in_flight for lane in world.gate.lanes())) == (0, 0)

    asyncio.run(main())


def test_a_deadline_in_a_line_passes_the_turn_on() -> None:
    clock = ManualClock(auto=True)
    gate = Gate(clock, Random(7))
    account = limited(gate, prefix(0), 1, rate_per_s=0.25)
    with pytest.raises(WaitedTooLong):
        gate.acquire(prefix(1), POLICY, deadline_at=1.0)
    gate.acquire(prefix(2), POLICY).free()
    assert clock.now() == pytest.approx(4.0)
    assert account.line.first() is None


def test_the_permit_that_a_hot_blob_gives_back_goes_to_who_has_waited_longest() -> None:
    """They share a semaphore with their prefix; the lane that gave it back always had it again."""

    async def main() -> None:
        world, policy = Tasks(), Policy(max_concurrency=1)
        for name in ("hot", "a", "b") * 30:
            (await world.gate.acquire_async(prefix(0), policy, blob=name)).free(Outcome.SUCCEEDED)
        (await world.gate.acquire_async(prefix(0), policy, blob="hot")).free(Outcome.REFUSED)
        world.clock.advance(100.0)
        held = await world.gate.acquire_async(prefix(0), policy, blob="hot")
        got: list[tuple[str, Permit]] = []

        async def ask(name: str) -> None:
            got.append((name, await world.gate.acquire_async(prefix(0), policy, blob=name)))

        tasks = []
        for name in ("a", "hot"):
            tasks.append(asyncio.create_task(ask(name)))
            await asyncio.sleep(0)
            world.clock.advance(0.01)
        held.free()
        await world.pass_time(0.1)
        assert [name for name, _ in got] == ["a"]
        got[0][1].free()
        await world.pass_time(10.0)
        assert [name for name, _ in got] == ["a", "hot"]
        got[1][1].free()
        await asyncio.gather(*tasks)

    asyncio.run(main())


# -- weights -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weight", "share"), [(1.0, 0.5), (3.0, 0.75), (0.25, 0.2)])
@pytest.mark.parametrize("spread", [1, 8], ids=["one prefix", "eight prefixes of an account"])
def test_a_policy_gets_its_weight_of_a_limit(weight: float, share: float, spread: int) -> None:
    """Four callers of the one beside forty of the other."""

    async def main() -> None:
        world = Tasks()
        limited(world.gate, prefix(0), -1 if spread == 1 else 1, rate_per_s=50.0)
        weighed = Policy(max_concurrency=32, weight=weight)

        async def toil(number: int, policy: Policy) -> None:
            while True:
                permit = await world.gate.acquire_async(prefix(number % spread), policy)
                world.order.append(policy.weight if policy is weighed else "others")
                await world.clock.sleep_async(0.02)
                permit.free()

        world.tasks = [asyncio.create_task(toil(0, weighed)) for _ in range(4)]
        world.tasks += [asyncio.create_task(toil(number, POLICY)) for number in range(40)]
        for _ in range(1000):
            world.clock.advance(0.01)
            for _ in range(5):
                await asyncio.sleep(0)
        assert len(world.order) >= 0.9 * 500
        assert world.order.count(weight) == pytest.approx(share * len(world.order), rel=0.1)
        await world.end()

    asyncio.run(main())


def test_a_weight_gives_nothing_for_a_time_in_which_nobody_asked() -> None:
    async def main() -> None:
        world = Tasks()
        limited(world.gate, prefix(0), -1)
        for name in range(40):
            await world.ask(prefix(0), name)
        await world.pass_time(2.0)
        for name in range(10):
            await world.ask(prefix(0), f"late {name}", Policy(max_concurrency=32, weight=1.0))
        begun = len(world.order)
        await world.pass_time(1.0)
        late = sum(isinstance(name, str) for name in world.order[begun:])
        assert 4 <= late <= 6
        await world.end()

    asyncio.run(main())
