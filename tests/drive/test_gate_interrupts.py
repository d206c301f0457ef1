"""Real signals against the gate: KeyboardInterrupts that strike between any two of its steps."""

from __future__ import annotations

import signal
import threading
import time
from random import Random

import pytest

from resilient_io.control.scopes import scope_path
from resilient_io.drive.clock import SystemClock
from resilient_io.drive.gate import Gate, Outcome
from resilient_io.policy import Policy

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train", op_class="read")
POLICY = Policy(max_concurrency=3)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_step_lose_no_permit_and_block_nobody() -> None:
    gate, rng, stop = Gate(SystemClock(), Random(7)), Random(3), threading.Event()

    def work() -> None:
        while not stop.is_set():
            gate.acquire(TRAIN, POLICY).free(Outcome.SUCCEEDED)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    others = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    before = signal.signal(signal.SIGALRM, interrupt)
    struck = 0
    try:
        for one in others:
            one.start()
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            try:
                # Again and again, because one that strikes in a finalizer is swallowed by Python.
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + rng.random() * 0.001, 0.02)
                while time.monotonic() < end:
                    gate.acquire(TRAIN, POLICY).free(Outcome.SUCCEEDED)
            except KeyboardInterrupt:
                struck += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
        for one in others:
            one.join(20)
    assert struck > 50
    assert not any(one.is_alive() for one in others), "a thread hangs"
    # Whatever an interrupt left half done is finished by those who come after.
    held = [gate.acquire(TRAIN, POLICY, deadline_at=time.monotonic() + 20) for _ in range(3)]
    (lane,) = gate.lanes()
    assert (lane.in_flight, len(lane.waiting)) == (3, 0)
    for permit in held:
        permit.free()
    assert lane.in_flight == 0
