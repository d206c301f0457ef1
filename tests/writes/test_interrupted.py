"""Ctrl-C at any moment of an upload, in real processes: the store holds no upload that nobody will complete."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Latency, Match

pytestmark = [pytest.mark.wire, pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")]
PROGRAM = Path(__file__).with_name("interrupted.py")
MIB = 2**20
HOWS = ["put_file", "put", "pipe_file", "merge", "open", "boto3"]
# Of a latency of 5 to 10 ms: a call of three parts takes about so long here.
LONGEST_S = 0.3
SEED = int(os.environ.get("RIO_SEED", "20261130"))


class Program:
    """The program that forks, and what its children leave at the store."""

    def __init__(self, server: FaultServer, local: Path) -> None:
        options = {
            "endpoint_url": server.url,
            "use_listings_cache": False,
            "resilience": {"backoff_base_s": 0.005},
            "client_kwargs": {"region_name": "us-east-1"},
        }
        command = [sys.executable, str(PROGRAM), repr(options), str(local)]
        self.server = server
        # Not a pipe: nobody reads the children's tracebacks, and they are many.
        self.told = local.with_name("stderr")
        with self.told.open("w") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, bufsize=1
            )

    @property
    def uploads(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server._engine.backend.objects.uploads  # type: ignore[attr-defined]
        return found

    def _heard(self, *words: str) -> tuple[str, int]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, pid = line.split()
            if word in words:
                return word, int(pid)
        raise AssertionError(self.told.read_text())

    def interrupted(self, how: str, wait: Any) -> None:
        """Run one child, and interrupt it when `wait()` returns; return when it is gone."""
        assert self.process.stdin is not None
        self.uploads.clear()
        self.server.reset()
        self.process.stdin.write(f"{how}\n")
        _, pid = self._heard("begins")
        wait()
        with contextlib.suppress(ProcessLookupError):  # it was quicker
            os.kill(pid, signal.SIGINT)
        self._heard("ended")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    pytest.importorskip("s3fs")
    local = tmp_path_factory.mktemp("interrupted") / "local"
    local.write_bytes(bytes(12 * MIB))
    with FaultServer() as server:
        server.fill("b", count=1, size_bytes=6 * MIB, key="big/{}")
        program = Program(server, local)
        yield program
        program.process.kill()
        program.process.communicate()


# s3transfer, below a client of boto3, ends what it began by itself.
@pytest.mark.parametrize("how", [how for how in HOWS if how != "boto3"])
def test_an_upload_that_has_just_begun_was_left_behind(program: Program, how: str) -> None:
    # The store has begun it, and the answer is on its way.
    slow = FaultRule(action=FaultAction.STALL_BODY, match=Match(op="CreateMultipartUpload"), delay_s=0.3)
    program.server.configure(FaultPlan(rules=(slow,)))
    program.interrupted(how, lambda: time.sleep(0.15))
    assert not program.uploads


@pytest.mark.parametrize(
    ("how", "times"), [("put", 2), ("open", 2), *(pytest.param(how, 40, marks=pytest.mark.soak) for how in HOWS)]
)
def test_an_interrupt_at_some_moments_left_an_upload(program: Program, how: str, times: int) -> None:
    """The abort is an operation too: it was cancelled with those that the interrupt ended."""
    print(f"RIO_SEED={SEED}")
    moments = random.Random(f"{SEED} {how}")
    program.server.configure(FaultPlan(latency=Latency(base_s=0.005, jitter_s=0.005)))
    for _ in range(times):
        moment_s = moments.uniform(0, LONGEST_S)
        program.interrupted(how, lambda moment_s=moment_s: time.sleep(moment_s))
        assert not program.uploads, f"{how}, {moment_s:.3f} s"
