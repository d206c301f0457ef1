"""Who gets how much of a limited scope: callers of two presets beside each other, in one process and in two."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from resilient_io.control import law
from resilient_io.control.scopes import scope_path
from resilient_io.coordinate.sharing import NodeSharing, ProcessSharing, Sharing
from resilient_io.coordinate.table import Table
from resilient_io.drive.gate import Gate, Outcome
from resilient_io.policy import Policy
from resilient_io.testing.clock import ManualClock

PATH = scope_path(endpoint="https://store", bucket="bucket", prefix="train", op_class="write")
RATE_PER_S = 50.0
SECONDS = 12.0
STEP_S = 0.005
WARM_S = 1.0  # the first ones meet an open scope
WEIGHTS: dict[str, float] = {}


class Process:
    """A gate, and callers of some presets that send as fast as they may; to be made in an event loop."""

    def __init__(self, clock: ManualClock, sharing: Sharing, callers: Mapping[str, int], seed: int) -> None:
        self._clock = clock
        self.gate = Gate(clock, Random(seed), sharing)
        self.got: Counter[str] = Counter()
        self.tasks = [asyncio.create_task(self._toil(name)) for name, n in callers.items() for _ in range(n)]

    async def _toil(self, preset: str) -> None:
        policy = replace(Policy.preset(preset), weight=WEIGHTS.get(preset, 1.0))
        while True:
            permit = await self.gate.acquire_async(PATH, policy)
            await self._clock.sleep_async(2 * STEP_S)
            permit.free(Outcome.SUCCEEDED)
            self.got[preset] += 1


def hold(rec: MutableSequence[float], now: float) -> None:
    """Keep the scope limited, at one rate."""
    if rec[law.LIMITED] == 0.0:
        law.on_refusal(rec, now, now, 0.5)
    rec[law.RATE], rec[law.ENTERING], rec[law.REFUSED_AT] = RATE_PER_S, 0.0, now


async def play(callers: Sequence[Mapping[str, int]], folder: Path, *, shared: bool = True) -> list[Counter[str]]:
    """Let processes with these callers go on for a while, with one rate for the scope; return what each got."""
    clock, table = ManualClock(1000.0, auto=False), Table(folder)
    sharings = [NodeSharing() if shared else ProcessSharing() for _ in callers]
    processes = [Process(clock, sharing, one, 1) for sharing, one in zip(sharings, callers, strict=True)]
    for step in range(int((WARM_S + SECONDS) / STEP_S)):
        clock.advance(STEP_S)
        if step * STEP_S == WARM_S:
            for process in processes:
                process.got.clear()
        now, slot = clock.now(), table.slot(PATH.leaf, clock.now())
        assert slot is not None
        if shared:
            rec = slot.read(now)
            hold(rec, now)
            slot.write(rec)
        for process in processes:
            for level in process.gate.levels()[-1:] if not shared else ():
                hold(level.rate, now)
        for _ in range(3):
            await asyncio.sleep(0)
    for process in processes:
        for task in process.tasks:
            task.cancel()
        await asyncio.gather(*process.tasks, return_exceptions=True)
    got = [process.got for process in processes]
    del processes, process, sharings
    gc.collect()  # permits that were cut off are given back here, and not within another test
    return got


@pytest.mark.parametrize(("training", "checkpoint"), [(4, 16), (40, 1)])
@pytest.mark.parametrize("shared", [False, True])
def test_two_presets_of_one_process_starve_neither(
    folder: Path, monkeypatch: pytest.MonkeyPatch, shared: bool, training: int, checkpoint: int
) -> None:
    """However many callers each has: their queues go in turn."""
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(folder))
    (got,) = asyncio.run(play([{"training": training, "checkpoint": checkpoint}], folder, shared=shared))
    print(got)
    assert sum(got.values()) >= 0.9 * RATE_PER_S * SECONDS
    assert min(got.values()) >= 0.35 * sum(got.values())


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("weight", [3.0, 0.5])
def test_a_preset_beside_another_one_gets_its_weight(
    folder: Path, monkeypatch: pytest.MonkeyPatch, shared: bool, weight: float
) -> None:
    """Three to one within 10 %, with fewer callers than the other has; and neither starves."""
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(folder))
    monkeypatch.setattr(sys.modules[__name__], "WEIGHTS", {"checkpoint": weight})
    (got,) = asyncio.run(play([{"training": 40, "checkpoint": 8}], folder, shared=shared))
    print(got)
    assert sum(got.values()) >= 0.9 * RATE_PER_S * SECONDS
    assert got["checkpoint"] / got["training"] == pytest.approx(weight, rel=0.1)


@pytest.mark.parametrize("weight", [3.0, 0.5])
def test_a_preset_beside_that_of_another_process_gets_its_weight(
    folder: Path, monkeypatch: pytest.MonkeyPatch, weight: float
) -> None:
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(folder))
    monkeypatch.setattr(sys.modules[__name__], "WEIGHTS", {"checkpoint": weight})
    saves, reads = asyncio.run(play([{"checkpoint": 8}, {"training": 40}], folder))
    print(saves, reads)
    assert sum(saves.values()) + sum(reads.values()) >= 0.9 * RATE_PER_S * SECONDS
    assert saves["checkpoint"] / reads["training"] == pytest.approx(weight, rel=0.1)


def test_a_process_that_saves_beside_those_that_read_gets_its_turn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of four processes, with one caller beside forty of each other one: turns go round the processes."""
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(folder))
    callers = [{"checkpoint": 1}, *[{"training": 40}] * 3]
    got = [sum(one.values()) for one in asyncio.run(play(callers, folder))]
    print(got)
    assert sum(got) >= 0.9 * RATE_PER_S * SECONDS
    assert min(got) >= 0.8 * max(got)
