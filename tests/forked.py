"""A forked child that reports what it did, and threads of its parent that go on meanwhile: for both clouds."""

from __future__ import annotations

import gc
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

from resilient_io.errors import NotForkSafe

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


def must_work_in_children(fs: Any, place: str, right: dict[str, bytes]) -> None:
    """Use a filesystem of the parent in children while the parent goes on."""
    keys = sorted(right)
    assert fs.cat_file(f"{place}/{keys[0]}") == right[keys[0]]

    def work() -> Any:
        fs.pipe_file(f"{place}/made/in-child", b"yes")
        return {key: fs.cat_file(f"{place}/{key}") for key in keys}, len(fs.ls(f"{place}/train"))

    children = [Child(work) for _ in range(3)]
    with Traffic(lambda key: fs.cat_file(f"{place}/{key}"), right) as traffic:
        assert [child.result() for child in children] == [(right, len(keys))] * 3
    assert not traffic.wrong
    assert fs.cat_file(f"{place}/made/in-child") == b"yes"


def must_survive_its_end_in_children(make: Callable[[], Any], place: str, right: dict[str, bytes]) -> None:
    """Free a filesystem of the parent in children: the parent's connections stay."""
    held = [make()]
    fs = held[0]
    with Traffic(lambda key: fs.cat_file(f"{place}/{key}"), right) as traffic:

        def work() -> int:
            nonlocal fs
            fs.cat_file(f"{place}/{min(right)}")
            held.clear()
            fs = None
            traffic.__dict__.clear()
            return gc.collect()

        for _ in range(3):
            Child(work).result()
        traffic.go_on(20)
    assert not traffic.wrong


def must_keep_its_place(fs: Any, path: str, cache_type: str) -> None:
    """Read an open file of the parent in children: each goes on where the parent stood."""
    whole = fs.cat_file(path)
    with fs.open(path, block_size=30_000, cache_type=cache_type) as file:
        assert file.read(1000) == whole[:1000]
        children = [Child(file.read) for _ in range(2)]
        assert [child.result() for child in children] == [whole[1000:]] * 2
        assert Child(lambda: (file.seek(250_000), file.read(10), file.close())).result()[1] == whole[250_000:250_010]
        assert file.read() == whole[1000:]


def must_be_written_by_the_parent_only(fs: Any, path: str) -> None:
    """Write, flush, close and free in children what the parent is writing."""
    with fs.open(path, "wb") as file:
        file.write(b"parent")
        for method in (lambda: file.write(b"child"), file.flush, file.close):
            with pytest.raises(NotForkSafe, match="opened for writing before the process forked; close it before"):
                Child(method).result()

        def forget() -> None:
            nonlocal file
            file = None
            gc.collect()

        Child(forget).result()
    assert fs.cat_file(path) == b"parent"
