"""Fleets of processes whose work is a line of Python: no SDK, no store."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from resilient_io.rehearse.fleet import Fleet, WorkerDied
from resilient_io.rehearse.outcomes import Outcome

ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
CREW = """
import time
from resilient_io.rehearse.crew import Crew, Work, serve

def fail():
    raise OSError("the store said no")

def prepare(task):
    print("a library prints something")
    works = {
        "good": [Work(kind="read", do=lambda: b"abc", wanted=lambda: b"abc")] * task["works"],
        "bad": [Work(kind="read", do=lambda: b"abd", wanted=lambda: b"abc"), Work(kind="write", do=fail)],
        "slow": [Work(kind="write", do=lambda: time.sleep(0.01))],
        "long": [Work(kind="write", do=lambda: time.sleep(60))],
    }
    return Crew(threads=2, phase=works.__getitem__, counts=lambda: {"sent": 3})

serve(prepare)
"""


def fleet(*tasks: dict[str, Any], code: str = CREW) -> Fleet:
    return Fleet([sys.executable, "-c", code], tasks, env=ENV)


def test_every_operation_of_every_process_is_told() -> None:
    seen: list[Outcome] = []
    with fleet({"works": 5}, {"works": 3}) as running:
        phase = running.run("good", watch=seen.append)
        again = running.run("slow")
    assert sorted(one.rank for one in phase.outcomes) == [0] * 5 + [1] * 3
    assert list(phase.outcomes) == seen
    assert sum(one.checked_bytes for one in phase.outcomes) == 8 * 3
    assert phase.counts == {"sent": 6}
    assert len(again.outcomes) == 2
    assert again.makespan_s >= max(one.latency_s for one in again.outcomes) >= 0.01


def test_failures_and_wrong_bytes_are_results() -> None:
    with fleet({"works": 1}) as running:
        found = {one.kind: one for one in running.run("bad").outcomes}
    assert found["write"].error == "OSError: the store said no"
    assert found["write"].checked_bytes == 0
    assert (found["read"].error, found["read"].wrong_bytes) == ("", 1)


def test_a_process_that_dies_is_an_error_with_its_last_words() -> None:
    with pytest.raises(WorkerDied, match="no such module"), fleet({}, code="raise ImportError('no such module')"):
        pass


def test_a_process_that_dies_at_work_is_an_error() -> None:
    with fleet({"works": 1}) as running, pytest.raises(WorkerDied, match="KeyError"):
        running.run("a phase that is not there")


def test_the_end_of_the_block_ends_processes_at_work() -> None:
    with fleet({"works": 1}) as running:
        pids = [process.pid for process in running._processes]
        for process in running._processes:
            assert process.stdin is not None
            process.stdin.write('"long"\n')
            process.stdin.flush()
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 4
    assert not any(psutil.pid_exists(pid) for pid in pids)
