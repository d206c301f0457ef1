"""The processes of a run, seen from the parent: started afresh (no fork), told what to do, and ended for sure."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

from resilient_io.rehearse.outcomes import Outcome

#: Seconds that a process may take to import its SDKs and make its clients; on two busy cores some take 20.
READY_TIMEOUT_S = 120.0
#: Seconds that a process may take to leave after its standard input has ended; it needs milliseconds.
STOP_TIMEOUT_S = 5.0
_ERROR_LINES = 15


class WorkerDied(RuntimeError):
    """A process of the fleet ended by itself; the text has the end of what it wrote to standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of a run: all processes began at `started_s`, the last operation ended at `ended_s`."""

    started_s: float
    ended_s: float
    outcomes: Sequence[Outcome]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def makespan_s(self) -> float:
        """Seconds from the common start to the end of the last operation."""
        return self.ended_s - self.started_s


class Fleet:
    """Processes that run `command`, one for each task; a context manager.

    They are `nodes` machines as far as limits go: processes share them with those of the same node
    (each `nodes`-th), and with nobody outside, whatever ran on this machine before.
    """

    def __init__(
        self, command: Sequence[str], tasks: Sequence[Mapping[str, Any]], *, env: Mapping[str, str], nodes: int = 1
    ) -> None:
        self._command, self._tasks, self._env = list(command), list(tasks), dict(env)
        self._folders = [tempfile.TemporaryDirectory(prefix="resilient-io-") for _ in range(nodes)]
        self._processes: list[subprocess.Popen[str]] = []
        self._said: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._errors: IO[bytes] | None = None

    def __enter__(self) -> Fleet:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, phase: str, *, watch: Callable[[Outcome], None] = lambda outcome: None) -> Phase:
        """Let every process do its work of a phase, from one moment on; `watch` is told of each operation."""
        started_s = time.monotonic()
        for process in self._processes:
            _tell(process, phase)
        outcomes: list[Outcome] = []
        counts: Counter[str] = Counter()
        running = len(self._processes)
        while running:
            rank, said = self._next()
            if isinstance(said, dict):
                counts.update(said["end"])
                running -= 1
                continue
            outcome = _outcome(rank, said)
            outcomes.append(outcome)
            watch(outcome)
        ended_s = max((one.ended_s for one in outcomes), default=started_s)
        return Phase(started_s=started_s, ended_s=ended_s, outcomes=outcomes, counts=counts)

    def stop(self) -> None:
        """End every process and wait for it."""
        processes, self._processes = self._processes, []
        for process in processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
        for process in processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._errors is not None:
            self._errors.close()
        for folder in self._folders:
            folder.cleanup()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by stop(), which outlives this method
        with interrupts_held():
            for rank in range(len(self._tasks)):
                self._processes.append(self._one(rank, self._errors))
        for rank, (process, task) in enumerate(zip(self._processes, self._tasks, strict=True)):
            threading.Thread(target=self._read, args=(rank, process), daemon=True).start()
            _tell(process, task)
        for _ in self._processes:
            self._next(READY_TIMEOUT_S)

    def _one(self, rank: int, errors: IO[bytes]) -> subprocess.Popen[str]:
        env = {**self._env, "RESILIENT_IO_COORD_DIR": self._folders[rank % len(self._folders)].name}
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, text=True
        )

    def _read(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._said.put((rank, json.loads(line)))
        self._said.put((rank, None))

    def _next(self, timeout_s: float | None = None) -> tuple[int, Any]:
        try:
            rank, said = self._said.get(timeout=timeout_s)
        except queue.Empty:
            raise WorkerDied(f"a process was not ready within {timeout_s:g} s{self._last_errors()}") from None
        if said is None:
            raise WorkerDied(f"process {rank} of the job ended before its work was done{self._last_errors()}")
        return rank, said

    def _last_errors(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return ":\n" + "\n".join(lines[-_ERROR_LINES:]) if lines else ""


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Start child processes that Ctrl-C does not reach: their parent ends them, in order.

    The signal mask is inherited. What the parent gets meanwhile is delivered at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _tell(process: subprocess.Popen[str], value: object) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has died: the reader says so
        process.stdin.write(json.dumps(value) + "\n")
        process.stdin.flush()


def _outcome(rank: int, said: Sequence[Any]) -> Outcome:
    kind, started_s, ended_s, error, checked_bytes, wrong_bytes = said
    return Outcome(
        rank=rank,
        kind=kind,
        started_s=started_s,
        ended_s=ended_s,
        error=error,
        checked_bytes=checked_bytes,
        wrong_bytes=wrong_bytes,
    )
