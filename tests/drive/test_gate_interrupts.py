"""Real signals against the gate: KeyboardInterrupts that strike between any two of its steps."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

from resilient_io.control import law
from resilient_io.control.scopes import ScopePath, scope_path
from resilient_io.coordinate.sharing import NodeSharing
from resilient_io.drive.clock import SystemClock
from resilient_io.drive.gate import Gate, Outcome
from resilient_io.policy import Policy

POLICY = Policy(max_concurrency=3)


def prefix(number: int) -> ScopePath:
    return scope_path(endpoint="https://s3.test", bucket="b", prefix=f"train/{number}", op_class="read")


def limit(gate: Gate, path: ScopePath) -> None:
    """Pace the broadest level at three thousand a second."""
    now = gate.clock.now()
    with gate.locked():
        rate = gate.lane_of(path, POLICY, now).levels[0].rate
    law.on_refusal(rate, now, now, 0.0)
    rate[law.RATE], rate[law.ENTERING] = 3000.0, 0.0


class Striking:
    """A signal handler that raises once each time it is armed, so that none strikes while another one is dealt with."""

    def __init__(self) -> None:
        self.is_armed = False

    def __call__(self, *_: object) -> None:
        if self.is_armed:
            self.is_armed = False
            raise KeyboardInterrupt


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.parametrize(
    ("limited", "policy"),
    [(False, POLICY), (True, POLICY), (False, Policy(max_concurrency=8, max_concurrency_node=3))],
    ids=["one prefix", "five prefixes of a limited account", "one prefix, by places of the machine"],
)
def test_interrupts_at_any_step_lose_no_permit_and_block_nobody(
    limited: bool, policy: Policy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "limits").mkdir(mode=0o700)
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(tmp_path / "limits"))
    # One that strikes in a finalizer is told to this hook.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    sharing = NodeSharing() if policy is not POLICY else None
    gate, rng, stop = Gate(SystemClock(), Random(7), sharing), Random(3), threading.Event()
    paths = [prefix(number if limited else 0) for number in range(5)]
    outcome = Outcome.DROPPED if limited else Outcome.SUCCEEDED  # which leaves a rate as it is
    if limited:
        limit(gate, paths[0])

    def work(number: int) -> None:
        while not stop.is_set():
            gate.acquire(paths[number], policy).free(outcome)

    interrupt = Striking()
    others = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(1, 5)]
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
                    interrupt.is_armed = True
                    gate.acquire(paths[0], policy).free(outcome)
                interrupt.is_armed = False
            except KeyboardInterrupt:
                struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
        for one in others:
            one.join(20)
    assert struck > 50
    assert not any(one.is_alive() for one in others), "a thread hangs"
    # Whatever an interrupt left half done is finished by those who come after.
    for path in set(paths):
        held = [gate.acquire(path, policy, deadline_at=time.monotonic() + 20) for _ in range(3)]
        assert sum(lane.in_flight for lane in gate.lanes()) == 3
        for permit in held:
            permit.free()
    assert sum(lane.in_flight + len(lane.waiting) for lane in gate.lanes()) == 0
