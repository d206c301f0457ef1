"""800 writes and 800 reads of 256 KiB while an eighth of the requests goes wrong: none fails, none is wrong."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Match

pytestmark = pytest.mark.wire

SEED = 20261130
OBJECTS, SIZE_BYTES = 800, 256 * 2**10
SHARE = 0.03


def _plan(op_class: str) -> FaultPlan:
    on = {"match": Match(op_class=op_class), "probability": SHARE}
    return FaultPlan(
        rules=(
            FaultRule(action=FaultAction.RESET_BEFORE, **on),
            FaultRule(action=FaultAction.TRUNCATE, after_bytes=SIZE_BYTES // 3 if op_class == "read" else 0, **on),
            FaultRule(action=FaultAction.ERROR, status=500, code="InternalError", **on),
            FaultRule(action=FaultAction.RESET_AFTER, name="lost answer", **on),
        ),
        seed=SEED,
    )


def _name(index: int) -> str:
    return f"data/part/{index:04d}"


def test_800_writes_and_800_reads_do_not_fail_and_are_right(store: Any, fast_clock: Any) -> None:
    """In 16 threads; each second write is of a file, each fourth must be the first there."""
    fs = store.with_policy({})
    bodies = [random.Random(index).randbytes(SIZE_BYTES) for index in range(OBJECTS)]

    def write(index: int) -> None:
        path, create = store.path(_name(index)), index % 4 < 2
        if index % 2:
            with fs.open(path, "xb" if create else "wb") as file:
                file.write(bodies[index])
        elif create:
            fs.pipe_file(path, bodies[index], mode="create")
        else:
            fs.pipe_file(path, bodies[index])

    def read(index: int) -> bytes:
        path = store.path(_name(index))
        if index % 2:
            with fs.open(path) as file:
                data: bytes = file.read()
            return data
        return bytes(fs.cat_file(path))

    print(f"seed {SEED}")
    with ThreadPoolExecutor(16) as threads:
        store.server.configure(_plan("write"))
        store.server.reset()
        list(threads.map(write, range(OBJECTS)))
        written = store.server.stats()
        store.server.configure(_plan("read"))
        store.server.reset()
        found = list(threads.map(read, range(OBJECTS)))
        told = store.server.stats()
    for index, data in enumerate(found):
        assert hashlib.md5(data).digest() == hashlib.md5(bodies[index]).digest(), _name(index)
    for stats in (written, told):
        print(f"{stats.requests} requests, faults by kind {stats.fired}")
        assert all(count >= 5 for count in stats.fired), stats.fired
