"""A forked child that reports what it did, and threads of its parent that go on meanwhile: for both clouds."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

TIMEOUT_S = 30.0


class Child:
    """A forked child that runs one function; what that returned or raised comes through a pipe."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            self._run(work, write)
        os.close(write)

    def _run(self, work: Callable[[], Any], write: int) -> None:
        signal.alarm(int(TIMEOUT_S) + 5)
        try:
            try:
                said: tuple[str, Any] = ("returned", work())
            except BaseException as error:
                said = ("raised", (error, traceback.format_exc()))
            os.write(write, pickle.dumps(said))
        finally:
            os._exit(0)

    def result(self) -> Any:
        """Return what the child's function returned; fail if the child hangs, and raise what it raised."""
        try:
            data, end = b"", time.monotonic() + TIMEOUT_S
            while True:
                if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                    pytest.fail(f"the child hangs: no answer in {TIMEOUT_S:g} s")
                piece = os.read(self._read, 65536)
                if not piece:
                    break
                data += piece
        finally:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._read)
        assert data, "the child died"
        kind, value = pickle.loads(data)
        if kind == "raised":
            print(value[1])
            raise value[0]
        return value


class Traffic:
    """Threads of the parent that go on reading, and count what was wrong."""

    def __init__(self, read: Callable[[str], bytes], right: dict[str, bytes], threads: int = 4) -> None:
        self._keys = sorted(right)
        self._stop = threading.Event()
        self.wrong: list[Any] = []
        self.reads = 0
        self._threads = [threading.Thread(target=self._run, args=(read, right, n), daemon=True) for n in range(threads)]

    def _run(self, read: Callable[[str], bytes], right: dict[str, bytes], offset: int) -> None:
        number = offset
        while not self._stop.is_set():
            key = self._keys[number % len(self._keys)]
            try:
                if read(key) != right[key]:
                    self.wrong.append(key)
            except Exception as error:
                self.wrong.append(error)
            number += 7
            self.reads += 1

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        self.go_on(len(self._threads))
        return self

    def go_on(self, reads: int) -> None:
        """Wait until the threads have read so many times more."""
        wanted, end = self.reads + reads, time.monotonic() + TIMEOUT_S
        while self.reads < wanted:
            assert time.monotonic() < end, "the reads hang"
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), "the parent hangs"
