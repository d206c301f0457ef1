"""Real processes at one ceiling, counted at the server: killed, stopped, in other namespaces, on a spoilt table."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from resilient_io.control import joining, law
from resilient_io.control.law_record import SHARE
from resilient_io.coordinate.layout import FILE_BYTES, HEADER_BYTES, SLOTS
from resilient_io.coordinate.slot import Slot
from resilient_io.coordinate.table import Table
from resilient_io.drive.urls import scope_of_url
from resilient_io.policy import Policy
from resilient_io.testing import Ceiling, Exchange, FaultPlan, FaultServer, Latency

from .worker import NOBODY, OBJECTS

pytestmark = pytest.mark.wire

WORKER = Path(__file__).with_name("worker.py")
ROOT = Path(__file__).resolve().parents[2]
CEILING_PER_S = 80.0
AS_ROOT = os.geteuid() == 0


class Job:
    """Processes that run `worker.py` and share the table of one folder."""

    def __init__(self, server: FaultServer, folder: Path, **environment: str) -> None:
        self.server, self.folder = server, folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RESILIENT_IO_COORD_DIR": str(folder),
            "RESILIENT_IO_COORDINATION": "node",
            **environment,
        }
        self.processes: list[subprocess.Popen[str]] = []

    def add(
        self, operations: int, *, threads: int = 2, action: str = "", before: Sequence[str] = (), **environment: str
    ) -> None:
        """Start a process, and wait until it has imported all."""
        rank = f"p{len(self.processes)}"
        arguments = [self.server.url, rank, str(threads), str(operations), *([action] if action else [])]
        pipe: Any = subprocess.PIPE
        command = [*before, sys.executable, str(WORKER), *arguments]
        environment = {**self._environment, **environment}
        process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.processes.append(process)
        line = process.stdout.readline()  # type: ignore[union-attr]
        assert line == "ready\n", process.communicate()[1]

    def begin(self) -> None:
        """Let all go at once; the second time, let all come to an end."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def done(self, rank: int) -> int:
        """Wait for a process and return how many of its operations ended well."""
        stdout = self.processes[rank].stdout
        assert stdout is not None
        words = stdout.readline().split()
        assert words[:1] == ["done"], self.end()
        return int(words[1])

    def end(self) -> list[str]:
        """Let all go, and return what each wrote to standard error."""
        return [process.communicate()[1] for process in self.processes]

    def kill(self) -> None:
        """Leave nothing behind."""
        for process in self.processes:
            process.kill()
            process.communicate()

    @property
    def slot(self) -> Slot:
        """The place of the prefix in the table."""
        path = scope_of_url("s3://bucket/train/x", op="get", policy=Policy(), endpoint=self.server.url)
        table, until = Table(self.folder), time.monotonic() + 5.0
        while (found := table.slot(path.leaf, time.monotonic())) is None:  # a lock is tried for a millisecond
            assert time.monotonic() < until
        return found

    def members(self) -> int:
        """How many processes use the prefix."""
        now = time.monotonic()
        return sum(joining.is_live(row, now) for row in self.slot.rows())


Start = Callable[..., Job]


@pytest.fixture
def start(fault_server: Callable[..., FaultServer], folder: Path) -> Iterator[Start]:
    """Start a job without processes on a server with a ceiling: `start(folder, VARIABLE=...)`."""
    jobs: list[Job] = []

    def job(where: Path = folder, *, ceiling_per_s: float = CEILING_PER_S, **environment: str) -> Job:
        ceiling = Ceiling(rate_per_s=ceiling_per_s, burst_s=1.0)
        server = fault_server(FaultPlan(ceilings=(ceiling,), latency=Latency(base_s=0.01)))
        for rank in range(6):
            server.fill("bucket", count=OBJECTS, size_bytes=10, key=f"train/p{rank}-" + "{}")
        jobs.append(Job(server, where, **environment))
        return jobs[-1]

    yield job
    for each in jobs:
        each.kill()


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def served(log: Sequence[Exchange]) -> list[Exchange]:
    return [one for one in log if one.status == 200]


def per_s(log: Sequence[Exchange], start_s: float, end_s: float) -> float:
    return sum(start_s <= one.start_s < end_s for one in served(log)) / (end_s - start_s)


def counted(log: Sequence[Exchange], ranks: range) -> Counter[str]:
    """How often each object of some processes was served."""
    own = tuple(f"train/p{rank}-" for rank in ranks)
    return Counter(one.key for one in served(log) if one.key.startswith(own))


def now_at(server: FaultServer) -> float:
    """The time of the server's log."""
    return max((one.start_s for one in server.log()), default=0.0)


# -- killed and stopped ------------------------------------------------------------------------------


def test_a_third_of_the_processes_is_killed_and_the_rest_finish_at_the_rate(start: Start) -> None:
    """Two seconds later the ceiling is used as before: what the dead held of it is not lost."""
    job = start()
    for _ in range(6):
        job.add(110 if len(job.processes) < 4 else 250)
    job.begin()
    wait_for(lambda: len(served(job.server.log())) >= 2 * CEILING_PER_S)
    for process in job.processes[4:]:
        process.send_signal(signal.SIGKILL)
    killed_s = now_at(job.server)
    assert [job.done(rank) for rank in range(4)] == [110] * 4
    log = job.server.log()
    assert per_s(log, killed_s + 2.0, killed_s + 3.0) >= 0.65 * CEILING_PER_S
    got = counted(log, range(4))
    assert len(got) == 440
    assert set(got.values()) == {1}


def test_a_third_is_killed_in_two_pid_namespaces(start: Start) -> None:
    """One of each: nobody can ask whether a process of the other one lives, and nobody needs to."""
    job, apart = start(), unshared()
    for number in range(6):
        job.add(110 if number < 4 else 250, before=apart if number % 2 else ())
    job.begin()
    wait_for(lambda: len(served(job.server.log())) >= 2 * CEILING_PER_S)
    for process in job.processes[4:]:
        process.send_signal(signal.SIGKILL)
    killed_s = now_at(job.server)
    assert [job.done(rank) for rank in range(4)] == [110] * 4
    log = job.server.log()
    late = [one for one in log if one.start_s > killed_s + 0.5]
    assert not counted(late, range(4, 6))
    assert per_s(log, killed_s + 2.0, killed_s + 3.0) >= 0.65 * CEILING_PER_S
    got = counted(log, range(4))
    assert len(got) == 440
    assert set(got.values()) == {1}


HOLD = """
import sys, time
from pathlib import Path
from resilient_io.coordinate.table import Table
slot = Table(Path(sys.argv[1])).slot(sys.argv[2], time.monotonic())
while not slot.lock():
    pass
print("held", flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_stopped_with_the_lock_holds_nobody_up(start: Start) -> None:
    """The others decide alone meanwhile, and nothing is lost."""
    job = start()
    for _ in range(4):
        job.add(120)
    job.begin()
    wait_for(lambda: job.slot.is_limited())
    path = scope_of_url("s3://bucket/train/x", op="get", policy=Policy(), endpoint=job.server.url)
    command = [sys.executable, "-c", HOLD, str(job.folder), path.leaf]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            holder.send_signal(signal.SIGSTOP)
            stopped_s = now_at(job.server)
            assert [job.done(rank) for rank in range(4)] == [120] * 4
        finally:
            holder.kill()
    log = job.server.log()
    assert per_s(log, stopped_s + 0.2, stopped_s + 1.2) >= 0.4 * CEILING_PER_S
    assert per_s(log, stopped_s + 2.0, stopped_s + 3.0) >= 0.65 * CEILING_PER_S
    got = counted(log, range(4))
    assert len(got) == 480
    assert set(got.values()) == {1}
    assert "Traceback" not in "".join(job.end())


def test_a_process_that_is_stopped_for_a_second_goes_on_where_it_was(start: Start) -> None:
    """The others have what it leaves, and its requests are sent when it goes on: none is lost, none sent twice."""
    job = start()
    for _ in range(3):
        job.add(100)
    job.begin()
    wait_for(lambda: job.slot.is_limited())
    job.processes[0].send_signal(signal.SIGSTOP)
    stopped_s = now_at(job.server)
    wait_for(lambda: now_at(job.server) >= stopped_s + 1.5)
    job.processes[0].send_signal(signal.SIGCONT)
    assert [job.done(rank) for rank in range(3)] == [100] * 3
    log = job.server.log()
    assert per_s(log, stopped_s + 0.5, stopped_s + 1.5) >= 0.5 * CEILING_PER_S
    got = counted(log, range(3))
    assert len(got) == 300
    assert set(got.values()) == {1}


def test_a_process_of_weight_three_gets_three_times_as_much(start: Start) -> None:
    """While both wait; then the light one has all, as long as it asks."""
    job = start()
    job.add(320, threads=4, RESILIENT_IO_WEIGHT="3")
    job.add(10_000, threads=4, RESILIENT_IO_WEIGHT="1")
    job.begin()
    assert job.done(0) == 320
    last_s = max(one.start_s for one in served(job.server.log()) if one.key.startswith("train/p0-"))
    wait_for(lambda: now_at(job.server) >= last_s + 2.0)
    job.begin()
    assert 0 < job.done(1) < 10_000
    log = served(job.server.log())
    before = tenths(log, last_s - 2.5, 24)
    after = tenths(log, last_s + 0.3, 17)
    print(before, after)
    # By medians: a machine that is busy elsewhere lets nobody send in some tenths, or one of the two alone.
    assert 0.65 <= median(got["train/p0"] / got.total() for got in before if got) <= 0.85
    assert median(got["train/p1"] for got in after) >= 0.65 * 0.1 * CEILING_PER_S


def tenths(log: Sequence[Exchange], start_s: float, count: int) -> list[Counter[str]]:
    """How much each process sent in each of so many tenths of a second."""
    numbers = [((one.start_s - start_s) * 10.0 // 1.0, one.key[:8]) for one in log]
    return [Counter(rank for number, rank in numbers if number == tenth) for tenth in range(count)]


def unshared() -> list[str]:
    """The command that gives a process PIDs of its own; skips where that is not permitted."""
    found = shutil.which("unshare")
    for options in (["--pid", "--kill-child"], ["--user", "--map-root-user", "--pid", "--kill-child"]):
        if found and subprocess.run([found, *options, "true"], capture_output=True, check=False).returncode == 0:
            return [found, *options]
    pytest.skip("unshare --pid is not permitted here")


def test_processes_of_two_pid_namespaces_share_a_folder(start: Start) -> None:
    """As containers of one machine do: a process is known by a number that it drew, and lives by its lease."""
    job = start()
    job.add(80)
    job.add(80, before=unshared())
    job.begin()
    wait_for(lambda: job.members() == 2)
    assert [job.done(rank) for rank in range(2)] == [80, 80]
    assert job.slot.is_limited()
    first = Counter(one.key[:8] for one in served(job.server.log())[:120])
    assert min(first.values()) >= 40


# -- a table that cannot be used ---------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def warnings_of(stderr: str) -> list[str]:
    assert "Traceback" not in stderr
    return [line for line in stderr.splitlines() if "limits" in line]


def test_a_folder_that_may_not_be_written_costs_one_warning(start: Start, open_folder: Path) -> None:
    where = open_folder / "limits"
    where.mkdir(mode=0o500)
    if AS_ROOT:  # who may write anywhere
        os.chown(where, NOBODY, NOBODY)
    job = start(where)
    job.add(30, action="as-nobody" if AS_ROOT else "")
    job.begin()
    assert job.done(0) == 30, job.end()
    stderr = job.end()[0]
    (warning,) = warnings_of(stderr)
    assert "not shared" in warning
    assert str(where) in warning


@pytest.mark.skipif(not AS_ROOT, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_costs_one_warning(start: Start, folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)
    job = start()
    job.add(30)
    job.begin()
    assert job.done(0) == 30
    (warning,) = warnings_of(job.end()[0])
    assert "belongs to another user" in warning


def test_a_full_table_costs_one_warning(start: Start, folder: Path) -> None:
    table, now = Table(folder), time.monotonic()
    for number in range(8 * SLOTS):
        slot = table.slot(str(number), now)
        if slot is not None:
            slot.claim_row(now)
    job = start()
    for _ in range(2):
        job.add(30)
    job.begin()
    assert [job.done(rank) for rank in range(2)] == [30, 30]
    for stderr in job.end():
        (warning,) = warnings_of(stderr)
        assert "is full" in warning


# -- a table that is spoilt under way ----------------------------------------------------------------


def scribbled(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES)
        for _ in range(SLOTS):
            file.write(os.urandom((FILE_BYTES - HEADER_BYTES) // SLOTS))


def zeroed(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES)
        file.write(bytes(FILE_BYTES - HEADER_BYTES))


def grown(path: Path) -> None:
    os.truncate(path, 2 * FILE_BYTES)


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("no table at all")
    other.replace(path)


@pytest.mark.parametrize("spoil", [scribbled, zeroed, grown, removed, replaced])
def test_a_table_that_is_spoilt_under_way(start: Start, spoil: Callable[[Path], None]) -> None:
    """Nothing is lost, nobody dies, and soon all share one table again; who notices warns once."""
    job = start()
    for _ in range(3):
        job.add(1_000_000)
    job.begin()
    wait_for(lambda: job.slot.is_limited())
    path = Table(job.folder).path
    before = path.stat().st_ino
    job.server.set_rate(1e6)
    spoil(path)
    wait_for(lambda: job.members() == 3 and (spoil not in (removed, replaced) or path.stat().st_ino != before))
    job.begin()
    assert sum(job.done(rank) for rank in range(3)) == len(served(job.server.log()))
    warned = [len(warnings_of(stderr)) for stderr in job.end()]
    assert max(warned) <= 1
    assert sum(warned) == (3 if spoil in (removed, replaced) else 0)


# -- how processes are started -----------------------------------------------------------------------

CHILDREN = """
import multiprocessing, sys
import resilient_io as rio

def use(_):
    with rio.limit("s3://bucket/train/x", endpoint=sys.argv[1]):
        return 1

if __name__ == "__main__":
    use(0)
    context = multiprocessing.get_context(sys.argv[2])
    with context.Pool(2) as pool:
        used = pool.map(use, range(8), chunksize=4)
        print(sum(used), flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_share_with_their_parent(start: Start, tmp_path: Path, method: str) -> None:
    """However they are started; the parent used the table before they were."""
    job = start()
    script = tmp_path / "job.py"
    script.write_text(CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RESILIENT_IO_COORD_DIR": str(job.folder)}
    command = [sys.executable, str(script), job.server.url, method]
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "8\n"
        assert 2 <= job.members() <= 3  # one of the two may have done all
        process.communicate()


def test_the_ranks_of_a_launcher_know_their_part_of_the_job(start: Start) -> None:
    """Two local ranks of eight: torchrun says so."""
    job = start(ceiling_per_s=20.0, WORLD_SIZE="8", LOCAL_WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")
    for _ in range(2):
        job.add(40)
    job.begin()
    assert [job.done(rank) for rank in range(2)] == [40, 40]
    rec = job.slot.read(time.monotonic())
    assert rec[law.LIMITED] == 1.0
    assert rec[SHARE] == 0.25
