"""Real processes under `max_concurrency_node`, counted at the server: never more at once, and none of it lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from resilient_io.testing import Exchange, FaultPlan, FaultServer, Latency

from .test_processes import ROOT, Job, served, unshared, wait_for
from .worker import OBJECTS

pytestmark = pytest.mark.wire

MOST = 3
LATENCY_S = 0.03


@pytest.fixture
def start(fault_server: Callable[..., FaultServer], folder: Path) -> Iterator[Callable[..., Job]]:
    """Start a job without processes on a server that refuses nothing: `start(VARIABLE=...)`."""
    jobs: list[Job] = []

    def job(**environment: str) -> Job:
        server = fault_server(FaultPlan(latency=Latency(base_s=LATENCY_S)))
        for rank in range(4):
            server.fill("bucket", count=OBJECTS, size_bytes=10, key=f"train/p{rank}-" + "{}")
        environment = {"RESILIENT_IO_MAX_CONCURRENCY_NODE": str(MOST), **environment}
        jobs.append(Job(server, folder, **environment))
        return jobs[-1]

    yield job
    for each in jobs:
        each.kill()


def peak(log: Sequence[Exchange]) -> int:
    """How many requests were at the server at once."""
    ends = [(one.end_s, -1) for one in log if one.end_s is not None]
    most = now = 0
    for _, step in sorted([*((one.start_s, 1) for one in log), *ends]):
        now += step
        most = max(most, now)
    return most


def of_ranks(log: Sequence[Exchange], *ranks: int) -> list[Exchange]:
    return [one for one in log if one.key.startswith(tuple(f"train/p{rank}-" for rank in ranks))]


def test_four_processes_had_four_times_as_many_in_flight_as_the_machine_may(start: Callable[..., Job]) -> None:
    """Eight callers in four processes: three at once, all the time, and in equal parts."""
    job = start()
    for _ in range(4):
        job.add(45)
    job.begin()
    assert [job.done(rank) for rank in range(4)] == [45] * 4
    log = served(job.server.log())
    assert peak(log) == MOST
    took_s = max(one.start_s for one in log) - min(one.start_s for one in log)
    ideal_s = 180 * LATENCY_S / MOST
    print(f"{took_s:.2f} s, ideal {ideal_s:.2f} s")
    assert took_s <= 2.5 * ideal_s  # the workers' own time is in it
    half = Counter(one.key[:8] for one in sorted(log, key=lambda one: one.start_s)[:100])
    print(half)
    assert min(half.values()) >= 10


def test_a_killed_process_takes_no_places_with_it(start: Callable[..., Job]) -> None:
    """All that hold one are killed at a moment: the next one has all of them at once."""
    job = start()
    job.add(1_000_000, threads=MOST)
    job.add(1_000_000, threads=MOST)
    job.begin()
    wait_for(lambda: len(served(job.server.log())) >= 40)
    before = job.server.log()  # requests of the dead go on at the server, while others have their places
    for process in job.processes:
        process.send_signal(signal.SIGKILL)
    for process in job.processes:
        process.wait()
    job.add(60, threads=2 * MOST)
    process = job.processes[2]
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert job.done(2) == 60
    assert peak(before) <= MOST
    assert peak(of_ranks(job.server.log(), 2)) == MOST


def test_processes_of_two_pid_namespaces_count_together(start: Callable[..., Job]) -> None:
    job = start()
    job.add(60)
    job.add(60, before=unshared())
    job.begin()
    assert [job.done(rank) for rank in range(2)] == [60, 60]
    assert peak(served(job.server.log())) == MOST


FORK = """
import os, sys
import resilient_io as rio

endpoint = sys.argv[1]
held = [rio.limit("s3://bucket/train/x", endpoint=endpoint) for _ in range(3)]
for one in held:
    one.__enter__()
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_forked_child_kept_the_places_of_its_killed_parent(start: Callable[..., Job]) -> None:
    """It has the parent's file open as long as it keeps anything of the parent's gate."""
    job = start()
    environment = {**job._environment, "PYTHONPATH": str(ROOT)}
    pipe: Any = subprocess.PIPE
    command = [sys.executable, "-c", FORK, job.server.url]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "held\n"
        parent.kill()
        job.add(9)
        job.begin()
        assert job.done(0) == 9
