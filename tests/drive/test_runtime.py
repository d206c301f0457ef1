from __future__ import annotations

import os
import subprocess
import sys
import threading
from random import Random

import pytest

from resilient_io.control.scopes import scope_path
from resilient_io.drive.runtime import Runtime, reset, runtime
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train", op_class="read")
ONE = Policy(max_concurrency=1)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_one_runtime_for_a_process() -> None:
    assert runtime() is runtime()
    before = runtime()
    assert reset() is not before


def test_a_clock_and_a_generator_can_be_put_in() -> None:
    clock = ManualClock(5.0)
    run = reset(clock, Random(3))
    assert (runtime(), run.clock, run.gate.clock) == (run, clock, clock)
    assert run.gate.draw() == Random(3).random()


def test_threads_that_come_first_together_get_one_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        monkeypatch.setattr("resilient_io.drive.runtime._runtime", None)
        found: list[Runtime] = []
        start = threading.Barrier(8)

        def look(start: threading.Barrier = start, found: list[Runtime] = found) -> None:
            start.wait()
            found.append(runtime())

        running = [threading.Thread(target=look) for _ in range(8)]
        for one in running:
            one.start()
        for one in running:
            one.join()
        assert len({id(run) for run in found}) == 1


def test_jitter_does_not_follow_the_seed_of_the_global_generator() -> None:
    import random

    draws = []
    for _ in range(2):
        random.seed(0)
        draws.append(reset().gate.draw())
    assert draws[0] != draws[1]


def in_child(work: object) -> int:
    """Run `work()` in a forked child and return its exit code: 0 if it returned True; -14 if it hung."""
    import signal

    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            signal.alarm(10)
            code = 0 if work() else 1  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs_fork
def test_a_forked_child_has_a_fresh_gate_although_the_lock_was_held() -> None:
    run = reset()
    held = run.gate.acquire(TRAIN, ONE)

    def child() -> bool:
        fresh = runtime()
        fresh.gate.acquire(TRAIN, ONE).free()
        return fresh is not run and not fresh.gate.levels()[-1].in_flight

    entered, leave = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with run.gate.locked():
            entered.set()
            leave.wait(10)

    holder = threading.Thread(target=hold_the_lock, daemon=True)
    holder.start()
    assert entered.wait(10)
    try:
        assert in_child(child) == 0
    finally:
        leave.set()
        holder.join(10)
    # The parent lost nothing.
    assert run.gate.levels()[-1].in_flight == 1
    held.free()
    assert runtime() is run


@needs_fork
def test_a_permit_from_before_the_fork_can_be_freed_in_the_child() -> None:
    run = reset()
    held = run.gate.acquire(TRAIN, ONE)
    entered, leave = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with run.gate.locked():
            entered.set()
            leave.wait(10)

    def child() -> bool:
        held.free()
        return True

    holder = threading.Thread(target=hold_the_lock, daemon=True)
    holder.start()
    assert entered.wait(10)
    try:
        assert in_child(child) == 0
    finally:
        leave.set()
        holder.join(10)
    held.free()


@needs_fork
def test_children_draw_different_jitter() -> None:
    code = (
        "import os\n"
        "from resilient_io.drive.runtime import runtime\n"
        "runtime()\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        "        print(runtime().gate.draw(), flush=True); os._exit(0)\n"
        "    os.wait()\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert len(set(printed.stdout.split())) == 2
