"""What admission costs: acquire, settle and free of one permit, in one thread.

    python benchmarks/gate.py

Prints microseconds for one request and the ratio to a plain `threading.Semaphore`. Each figure is
the best of many short rounds: other load on the machine makes rounds longer, never shorter.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import resilient_io
from resilient_io.control import law
from resilient_io.control.scopes import scope_path
from resilient_io.coordinate.sharing import NodeSharing
from resilient_io.coordinate.table import Table
from resilient_io.drive.clock import SystemClock
from resilient_io.drive.gate import Gate, Outcome
from resilient_io.policy import Policy

ROUNDS, REQUESTS = 300, 300
AIM_US = 15.0
TRAIN = scope_path(endpoint="https://s3.test", bucket="bucket", prefix="train/imagenet", op_class="read")
POLICY = Policy()


def best_us(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(REQUESTS):
            work()
        best = min(best, time.perf_counter() - started)
    return best / REQUESTS * 1e6


def plain_semaphore() -> float:
    semaphore = threading.Semaphore(POLICY.max_concurrency)

    def work() -> None:
        semaphore.acquire()
        semaphore.release()

    return best_us(work)


def in_two_steps() -> float:
    gate = Gate(SystemClock(), Random(1))

    def work() -> None:
        permit = gate.acquire(TRAIN, POLICY)
        permit.settle(Outcome.SUCCEEDED)
        permit.free()

    return best_us(work)


def in_one_step() -> float:
    gate = Gate(SystemClock(), Random(1))

    def work() -> None:
        gate.acquire(TRAIN, POLICY).free(Outcome.SUCCEEDED)

    return best_us(work)


def in_a_task() -> float:
    async def main() -> float:
        gate, best = Gate(SystemClock(), Random(1)), float("inf")
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(REQUESTS):
                (await gate.acquire_async(TRAIN, POLICY)).free(Outcome.SUCCEEDED)
            best = min(best, time.perf_counter() - started)
        return best / REQUESTS * 1e6

    return asyncio.run(main())


def while_limited() -> float:
    """A scope that was refused, kept at a rate that one thread cannot reach: the law steps, nothing waits."""
    gate = Gate(SystemClock(), Random(1))
    gate.acquire(TRAIN, POLICY).free(Outcome.REFUSED)
    rate = gate.levels()[-1].rate

    def work() -> None:
        rate[law.RATE] = rate[law.TOKENS] = 1e7
        gate.acquire(TRAIN, POLICY).free(Outcome.SUCCEEDED)

    return best_us(work)


def _shared(folder: str) -> Gate:
    """A gate whose levels lie in a table of the machine, as by default."""
    os.environ["RESILIENT_IO_COORD_DIR"] = folder
    return Gate(SystemClock(), Random(1), NodeSharing())


def shared_while_open() -> float:
    with tempfile.TemporaryDirectory() as folder:
        gate = _shared(folder)
        return best_us(lambda: gate.acquire(TRAIN, POLICY).free(Outcome.SUCCEEDED))


def shared_while_limited() -> float:
    """The same with the record of the table, kept at a rate that is not reached: three steps under its lock."""
    with tempfile.TemporaryDirectory() as folder:
        gate = _shared(folder)
        gate.acquire(TRAIN, POLICY).free(Outcome.REFUSED)
        slot = Table(Path(folder)).slot(TRAIN.leaf, time.monotonic())
        assert slot is not None

        def work() -> None:
            gate.acquire(TRAIN, POLICY).free(Outcome.SUCCEEDED)

        def fast() -> None:
            rec = slot.read(time.monotonic())
            rec[law.RATE], rec[law.TOKENS] = 1e7, 5e5
            slot.write(rec)

        best = float("inf")
        for _ in range(ROUNDS):
            fast()
            started = time.perf_counter()
            for _ in range(REQUESTS):
                work()
            best = min(best, time.perf_counter() - started)
        return best / REQUESTS * 1e6


def counted_over_the_machine() -> float:
    """One that also takes a place of the machine's: two system calls more."""
    policy = Policy(max_concurrency_node=POLICY.max_concurrency)
    with tempfile.TemporaryDirectory() as folder:
        gate = _shared(folder)
        return best_us(lambda: gate.acquire(TRAIN, policy).free(Outcome.SUCCEEDED))


def main() -> int:
    print(f"python benchmarks/gate.py, resilient-io {resilient_io.__version__}")
    print(f"Python {platform.python_version()}, {platform.machine()}, {platform.processor() or platform.system()}")
    plain = plain_semaphore()
    print(f"{'threading.Semaphore, acquire + release':<46}{plain:8.2f} us")
    slowest = 0.0
    for name, measure in (
        ("permit, acquire + free(outcome)", in_one_step),
        ("permit, acquire + settle + free", in_two_steps),
        ("permit in a task, acquire_async + free(outcome)", in_a_task),
        ("permit of a limited scope, no wait", while_limited),
        ("permit, shared by the machine's processes", shared_while_open),
        ("permit of a limited scope that they share", shared_while_limited),
        ("permit, with max_concurrency_node", counted_over_the_machine),
    ):
        cost = measure()
        slowest = max(slowest, cost)
        print(f"{name:<46}{cost:8.2f} us  {cost / plain:6.1f} x")
    print(f"aim: below {AIM_US:g} us; {'met' if slowest < AIM_US else 'MISSED'}")
    return 0 if slowest < AIM_US else 1


if __name__ == "__main__":
    sys.exit(main())
