"""What a process hands to its children: filesystems, files and clients work there, or say at once that they do not."""

from __future__ import annotations

import asyncio
import functools
import os
import runpy
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
from aiobotocore.session import get_session

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.aws.hooks import harden
from resilient_io.errors import NotForkSafe
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServerProcess, Latency, Match

pytestmark = [pytest.mark.wire, pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")]
FORKED = runpy.run_path(str(Path(__file__).parents[1] / "forked.py"))
Child, Traffic, TIMEOUT_S = FORKED["Child"], FORKED["Traffic"], FORKED["TIMEOUT_S"]
KEYS = [f"train/{number:06d}" for number in range(30)]


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServerProcess]:
    with FaultServerProcess(FaultPlan()) as server:
        server.fill("b", count=30, size_bytes=20_000)
        server.fill("one", count=3, size_bytes=300_000)
        yield server


@pytest.fixture(autouse=True)
def _no_faults(server: FaultServerProcess) -> Iterator[None]:
    yield
    server.configure(FaultPlan())


@pytest.fixture(scope="module")
def right(server: FaultServerProcess) -> dict[str, bytes]:
    client = boto3.session.Session().client("s3", endpoint_url=server.url)
    return {key: client.get_object(Bucket="b", Key=key)["Body"].read() for key in KEYS}


@pytest.fixture
def fs(server: FaultServerProcess) -> Any:
    return ResilientS3FileSystem(endpoint_url=server.url, skip_instance_cache=True)


# -- fork --------------------------------------------------------------------------------------------


def test_a_filesystem_of_the_parent_does_not_hang_in_a_child(fs: Any, right: dict[str, bytes]) -> None:
    FORKED["must_work_in_children"](fs, "b", right)


def test_a_child_that_frees_the_filesystem_does_not_stop_the_parents_connections(
    server: FaultServerProcess, right: dict[str, bytes]
) -> None:
    make = functools.partial(ResilientS3FileSystem, endpoint_url=server.url, skip_instance_cache=True)
    FORKED["must_survive_its_end_in_children"](make, "b", right)


@pytest.mark.parametrize("cache_type", ["readahead", "bytes", "mmap", "background", "all", "none"])
def test_an_open_file_does_not_lose_its_place_in_a_child(fs: Any, server: FaultServerProcess, cache_type: str) -> None:
    FORKED["must_keep_its_place"](fs, "one/train/000001", cache_type)


def test_a_file_being_written_is_not_written_by_two(fs: Any, server: FaultServerProcess) -> None:
    before = server.stats().count(op="PutObject")
    FORKED["must_be_written_by_the_parent_only"](fs, "b/made/once")
    assert server.stats().count(op="PutObject") == before + 1


def test_a_boto3_client_does_not_return_another_objects_bytes(
    server: FaultServerProcess, right: dict[str, bytes]
) -> None:
    client = harden(boto3.session.Session().client("s3", endpoint_url=server.url))

    def read(key: str) -> bytes:
        body: bytes = client.get_object(Bucket="b", Key=key)["Body"].read()
        return body

    with Traffic(read, right) as traffic:
        children = [Child(lambda: {key: read(key) for key in KEYS}) for _ in range(6)]
        for child in children:
            assert child.result() == right
    assert not traffic.wrong


def test_a_hardened_client_of_the_parent_works_in_many_threads_of_a_child(
    server: FaultServerProcess, right: dict[str, bytes]
) -> None:
    client = harden(boto3.session.Session().client("s3", endpoint_url=server.url))
    client.head_bucket(Bucket="b")

    def work() -> tuple[int, list[Any]]:
        with Traffic(lambda key: client.get_object(Bucket="b", Key=key)["Body"].read(), right, 8) as traffic:
            traffic.go_on(20)
        return traffic.reads, traffic.wrong

    reads, wrong = Child(work).result()
    assert reads > 8
    assert not wrong


def test_an_async_client_of_the_parent_does_not_hang_in_a_child(server: FaultServerProcess) -> None:
    async def run() -> None:
        async with get_session().create_client("s3", endpoint_url=server.url) as client:
            harden(client)
            await client.head_bucket(Bucket="b")

            def work() -> None:
                # The child has no loop of its own yet, but inherited the mark of its parent's.
                asyncio.events._set_running_loop(None)
                asyncio.run(client.head_bucket(Bucket="b"))

            with pytest.raises(NotForkSafe, match=r"make the client .* in the worker"):
                Child(work).result()
            await client.head_bucket(Bucket="b")

    asyncio.run(run())


def test_an_async_filesystem_of_the_parent_starts_anew_in_a_child(
    server: FaultServerProcess, right: dict[str, bytes]
) -> None:
    async def run() -> None:
        fs = ResilientS3FileSystem(endpoint_url=server.url, asynchronous=True, skip_instance_cache=True)
        session = await fs.set_session()
        assert await fs._cat_file(f"b/{KEYS[0]}") == right[KEYS[0]]

        def work() -> Any:
            asyncio.events._set_running_loop(None)
            return asyncio.run(fs._cat_file(f"b/{KEYS[1]}"))

        assert Child(work).result() == right[KEYS[1]]
        assert await fs._cat_file(f"b/{KEYS[2]}") == right[KEYS[2]]
        await session.close()

    asyncio.run(run())


def test_a_full_gate_of_the_parent_does_not_block_a_child(server: FaultServerProcess, right: dict[str, bytes]) -> None:
    fs = ResilientS3FileSystem(endpoint_url=server.url, resilience={"max_concurrency": 2}, skip_instance_cache=True)
    stalled = FaultRule(action=FaultAction.STALL_BEFORE, delay_s=2, calls=(1, 2), match=Match(op="GetObject"))
    server.configure(FaultPlan(rules=(stalled,)))
    begun = server.stats().requests
    threads = [threading.Thread(target=fs.cat_file, args=(f"b/{key}",), daemon=True) for key in KEYS[:6]]
    for thread in threads:
        thread.start()
    while server.stats().requests < begun + 2:
        time.sleep(0.002)
    assert Child(lambda: fs.cat_file(f"b/{KEYS[3]}")).result() == right[KEYS[3]]
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_a_url_does_not_hang_in_a_child(server: FaultServerProcess, right: dict[str, bytes]) -> None:
    fsspec.register_implementation("rs3", ResilientS3FileSystem, clobber=True)

    def read() -> bytes:
        with fsspec.open(f"rs3://b/{KEYS[5]}", endpoint_url=server.url) as file:
            data: bytes = file.read()
        return data

    assert read() == right[KEYS[5]]
    assert Child(read).result() == right[KEYS[5]]


def test_children_under_latency_do_not_share_sockets(fs: Any, server: FaultServerProcess, right: Any) -> None:
    server.configure(FaultPlan(latency=Latency(base_s=0.005)))
    with Traffic(lambda key: fs.cat_file(f"b/{key}"), right, 8) as traffic:
        children = [Child(lambda: {key: fs.cat_file(f"b/{key}") for key in KEYS}) for _ in range(4)]
        assert [child.result() == right for child in children] == [True] * 4
    assert not traffic.wrong


# -- spawn and forkserver ----------------------------------------------------------------------------

SCRIPT = """
import multiprocessing, sys
import boto3
from resilient_io.aws.filesystem import ResilientS3FileSystem

URL, METHOD = sys.argv[1:]

def by_filesystem(fs, key):
    return fs.cat_file(key)

def by_file(file):
    return file.read()

def by_url(url):
    import fsspec
    fsspec.register_implementation("rs3", ResilientS3FileSystem, clobber=True)
    with fsspec.open("rs3://one/train/000001", endpoint_url=url) as file:
        return file.read()

if __name__ == "__main__":
    fs = ResilientS3FileSystem(endpoint_url=URL, resilience={"max_attempts": 3})
    whole = fs.cat_file("one/train/000001")
    file = fs.open("one/train/000001", block_size=30_000)
    assert file.read(1000) == whole[:1000]
    with multiprocessing.get_context(METHOD).Pool(2) as pool:
        assert pool.apply_async(by_filesystem, (fs, "one/train/000001")).get(40) == whole
        assert pool.apply_async(by_file, (file,)).get(40) == whole[1000:]
        assert pool.apply_async(by_url, (URL,)).get(40) == whole
    assert file.read() == whole[1000:]
    print("well")
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_what_is_pickled_to_a_worker_does_not_lose_its_place(
    server: FaultServerProcess, tmp_path: Path, method: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(SCRIPT))
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(
        [sys.executable, str(script), server.url, method], capture_output=True, text=True, timeout=90, env=environment
    )
    assert done.stdout == "well\n", done.stderr
