"""The state of this process: one gate, made when first needed, and made anew in a forked child."""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass

from resilient_io.coordinate.sharing import NodeSharing, Sharing
from resilient_io.drive.clock import Clock, SystemClock
from resilient_io.drive.gate import Gate
from resilient_io.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What all calls of this process share."""

    clock: Clock
    gate: Gate
    sharing: Sharing | None = None


_runtime: Runtime | None = None
_making = threading.Lock()


def runtime() -> Runtime:
    """Return the runtime of this process."""
    return _runtime or _first()


def expect(policy: Policy) -> None:
    """Get ready what requests under this policy will need, where that takes time: the way to a cluster's hub.

    Called when a client is hardened. Waits for nothing, and raises nothing that the first request would not.
    """
    if policy.enabled and policy.coordination == "cluster":
        run = runtime()
        with run.gate.locked():
            if run.sharing is not None:
                run.sharing.expect(policy)


def _first() -> Runtime:
    # Two threads that come first together must not get a gate each: neither would keep the cap.
    with _making:
        return _runtime or reset()


def reset(clock: Clock | None = None, rng: random.Random | None = None) -> Runtime:
    """Forget all scopes and start anew; for tests, and in a forked child.

    The generator is seeded by the operating system: DataLoader seeds the global one alike in every
    worker, and ranks that draw the same jitter retry in step.
    """
    global _runtime
    # Times in the table of the machine are of its own clock; those of another clock stay in the process.
    sharing = NodeSharing() if clock is None else None
    clock = clock if clock is not None else SystemClock()
    rng = rng if rng is not None else random.Random(os.urandom(16))
    _runtime = Runtime(clock=clock, gate=Gate(clock, rng, sharing), sharing=sharing)
    return _runtime


def _after_fork() -> None:
    # The parent's lock may be held and its permits taken by threads that do not exist here.
    global _runtime, _making
    if _runtime is not None:
        _runtime.gate.after_fork()
    _runtime, _making = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
