"""A caller that gives up waiting, and a deadline that passes, in the sync forms: they wait on another thread's loop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("s3fs")
import resilient_io as rio
from resilient_io.errors import DeadlineExceeded
from resilient_io.testing import FaultAction, FaultRule, FaultServer

from .conftest import BUCKET, KEY

pytestmark = pytest.mark.wire
Plan = Callable[..., FaultServer]


def filesystem(server: FaultServer, **resilience: Any) -> Any:
    return rio.filesystem("s3", endpoint_url=server.url, key="k", secret="s", resilience=resilience)


def read(fs: Any) -> None:
    with fs.open(f"{BUCKET}/{KEY}") as file:
        file.read()


CALLS: dict[str, Callable[[Any], Any]] = {
    "cat_file": lambda fs: fs.cat_file(f"{BUCKET}/{KEY}"),
    "info": lambda fs: fs.info(f"{BUCKET}/{KEY}"),
    "ls": lambda fs: fs.ls(BUCKET),
    "find": lambda fs: fs.find(BUCKET),
    "walk": lambda fs: list(fs.walk(BUCKET)),
    "exists": lambda fs: fs.exists(f"{BUCKET}/{KEY}"),
    "isfile": lambda fs: fs.isfile(f"{BUCKET}/{KEY}"),
    "pipe_file": lambda fs: fs.pipe_file(f"{BUCKET}/new", b"bytes"),
    "rm": lambda fs: fs.rm(f"{BUCKET}/{KEY}"),
    "open and read": read,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_deadline_is_named_in_the_sync_forms_too(plan_of: Plan, name: str) -> None:
    """fsspec puts an empty FSTimeoutError in the place of a TimeoutError that comes out of its loop."""
    server = plan_of(FaultRule(action=FaultAction.ERROR))
    fs = filesystem(server, total_deadline_s=0.3, deadline_s=0.3)
    with pytest.raises(DeadlineExceeded, match=r"attempt.*s") as caught:
        CALLS[name](fs)
    assert caught.value.attempts >= 1
    assert caught.value.verdict.kind == "throttled"


@pytest.mark.parametrize("name", ["cat_file", "info", "ls", "open and read", "pipe_file"])
def test_the_permit_comes_back_when_an_interrupt_ends_a_sync_call(
    plan_of: Plan, name: str, idle: Callable[[], bool]
) -> None:
    """The wait ends at once; what it waited for, on the loop of another thread, must end too."""
    fs = filesystem(plan_of(FaultRule(action=FaultAction.STALL_BEFORE, limit=1)), max_concurrency=1)
    stalled = threading.Event()

    def interrupt() -> None:
        while idle():
            time.sleep(0.005)
        stalled.set()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        CALLS[name](fs)
    assert stalled.is_set()
    until = time.monotonic() + 5.0
    while not idle() and time.monotonic() < until:
        time.sleep(0.005)
    assert idle()
