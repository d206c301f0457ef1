"""Multipart uploads that do not end well: none is left open, whatever ended them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resilient_io as rio
from resilient_io.errors import ResilientIOError
from resilient_io.testing import FaultAction

pytestmark = pytest.mark.wire
MIB = 2**20
DATA = bytes(11 * MIB)


@pytest.fixture
def s3(s3_store: Any) -> Any:
    """Return an S3 store with an object of several parts; Azure's uncommitted blocks need no care."""
    s3_store.server.fill("b", count=1, size_bytes=12 * MIB, key="big/{}")
    s3_store.server.reset()
    return s3_store


def put_file(fs: Any, path: str, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(DATA)
    fs.put_file(str(tmp_path / "local"), path, chunksize=5 * MIB)


# name -> (call, the operation of a part)
CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "pipe_file": (lambda fs, path, _: fs.pipe_file(path, DATA, chunksize=5 * MIB), "UploadPart"),
    "put_file": (put_file, "UploadPart"),
    "merge": (lambda fs, path, _: fs.merge(path, ["b/big/0", "b/big/0"]), "UploadPartCopy"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fails_leaves_no_upload(s3: Any, tmp_path: Path, name: str) -> None:
    call, op = CALLS[name]
    s3.break_it(op, status=500, code="InternalError", calls=(1, 2, 3, 4, 5, 6, 7, 8, 9))
    with pytest.raises(ResilientIOError, match=op):
        call(s3.fs, "b/new", tmp_path)
    assert s3.uploads() == 0
    assert s3.sent()["AbortMultipartUpload"] == 1
    s3.break_it("none")
    call(s3.fs, "b/new", tmp_path)
    assert (s3.uploads(), s3.sent()["AbortMultipartUpload"]) == (0, 0)
    assert s3.content_of("new") is not None


def test_a_managed_copy_that_fails_leaves_no_upload(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s3fs.core.MANAGED_COPY_THRESHOLD", MIB)
    s3.break_it("UploadPartCopy", status=403, code="AccessDenied")
    with pytest.raises(PermissionError):
        s3.fs.cp_file("b/big/0", "b/new", block=5 * MIB)
    assert s3.uploads() == 0


def test_the_abort_that_fails_does_not_hide_what_happened(s3: Any, caplog: pytest.LogCaptureFixture) -> None:
    refused = {"status": 500, "code": "InternalError"}
    s3.break_it("UploadPart", **refused)
    rules = s3.server.plan.rules
    s3.break_it("AbortMultipartUpload", **refused)
    s3.server.configure(type(s3.server.plan)(rules=(*rules, *s3.server.plan.rules)))
    with pytest.raises(ResilientIOError, match="UploadPart"):
        s3.fs.pipe_file("b/new", DATA, chunksize=5 * MIB)
    assert "could not be aborted" in caplog.text
    assert "mpu abort" in caplog.text


def _when(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return condition()


def _upload(s3: Any, how: str) -> None:
    if how == "pipe_file":
        s3.fs.pipe_file("b/new", DATA, chunksize=5 * MIB)
    elif how == "open":
        with s3.fs.open("b/new", "wb", block_size=5 * MIB) as file:
            file.write(DATA[: 6 * MIB])
            file.write(DATA[: 6 * MIB])
    else:
        boto3 = pytest.importorskip("boto3")
        from boto3.s3.transfer import TransferConfig

        client = rio.harden(boto3.client("s3", endpoint_url=s3.server.url, region_name="us-east-1"))
        config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
        client.upload_fileobj(io.BytesIO(DATA), "b", "new", Config=config)


@pytest.mark.parametrize("how", ["pipe_file", "open", "boto3"])
def test_an_interrupted_call_leaves_no_upload(s3: Any, how: str) -> None:
    # s3transfer waits for the parts that are on their way.
    s3.break_it("UploadPart", FaultAction.STALL_BEFORE, calls=(2,), limit=1, delay_s=1.0 if how == "boto3" else 0.0)

    caught = threading.Event()

    def interrupt() -> None:
        _when(lambda: s3.sent()["UploadPart"] >= 2)
        # Python drops one that strikes inside a finalizer.
        while not caught.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            caught.wait(5)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        _upload(s3, how)
    caught.set()
    thread.join()
    assert _when(lambda: s3.uploads() == 0)
    assert s3.content_of("new") is None


def test_a_cancelled_call_leaves_no_upload(s3: Any) -> None:
    async def run() -> None:
        options = {**s3.options, "asynchronous": True, "skip_instance_cache": True}
        fs = rio.filesystem("s3", **options)
        session = await fs.set_session()
        writing = asyncio.ensure_future(fs._pipe_file("b/new", DATA, chunksize=5 * MIB))
        while not s3.sent()["UploadPart"]:
            await asyncio.sleep(0.005)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await session.close()

    s3.break_it("UploadPart", FaultAction.STALL_BEFORE)
    asyncio.run(run())
    assert s3.uploads() == 0
    assert s3.sent()["AbortMultipartUpload"] == 1


INTERRUPTED = """
import os, signal, sys, threading, time
import resilient_io as rio
fs = rio.filesystem("s3", **eval(sys.argv[1]))
def interrupt():
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
fs.pipe_file("b/new", bytes(11 * 2**20), chunksize=5 * 2**20)
"""


def test_a_program_that_an_interrupt_ends_leaves_no_upload(s3: Any) -> None:
    s3.break_it("UploadPart", FaultAction.STALL_BEFORE, delay_s=60)
    command = [sys.executable, "-c", INTERRUPTED, repr(s3.options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert _when(lambda: s3.sent()["UploadPart"] >= 1)
        _, told = child.communicate("\n", timeout=60)
    assert "KeyboardInterrupt" in told
    assert _when(lambda: s3.uploads() == 0)


def test_switched_off_it_is_stock(s3: Any) -> None:
    fs = rio.filesystem("s3", **{**s3.options, "resilience": False}, skip_instance_cache=True)
    s3.break_it("UploadPart", status=403, code="AccessDenied")
    with pytest.raises(PermissionError):
        fs.pipe_file("b/new", DATA, chunksize=5 * MIB)
    assert s3.sent()["AbortMultipartUpload"] == 1
    with contextlib.suppress(FileNotFoundError):
        fs.clear_multipart_uploads("b")
