"""What a process hands to its children: filesystems, files and clients work there, or say at once that they do not."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import runpy
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from azure.core.credentials import AccessToken
from azure.storage.blob import BlobServiceClient, ContainerClient
from azure.storage.blob.aio import ContainerClient as AsyncContainerClient

from resilient_io.azure.clients import client_kwargs, harden
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem
from resilient_io.errors import NotForkSafe
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServerProcess, Match

pytestmark = [pytest.mark.wire, pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")]
FORKED = runpy.run_path(str(Path(__file__).parents[1] / "forked.py"))
Child, Traffic, TIMEOUT_S = FORKED["Child"], FORKED["Traffic"], FORKED["TIMEOUT_S"]
KEYS = [f"train/{number:06d}" for number in range(30)]
LONG = "long"
C = f"fork-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def server(azurite: Any) -> Iterator[FaultServerProcess]:
    with FaultServerProcess(FaultPlan(), upstream=azurite.url, protocol="azure") as server:
        yield server


@pytest.fixture(scope="module")
def right(azurite: Any) -> Iterator[dict[str, bytes]]:
    with ContainerClient.from_connection_string(azurite.connection_string, C) as client:
        client.create_container()
        data = {key: os.urandom(20_000) for key in KEYS}
        for key, body in data.items():
            client.upload_blob(key, body)
        client.upload_blob(LONG, os.urandom(300_000))
        yield data
        client.delete_container()


@pytest.fixture
def where(azurite: Any, server: FaultServerProcess, right: Any) -> Iterator[str]:
    """Return the connection string that leads through the server."""
    yield azurite.at(server.url).connection_string
    server.configure(FaultPlan())


@pytest.fixture
def fs(where: str) -> Any:
    return ResilientAzureBlobFileSystem(connection_string=where, skip_instance_cache=True)


def test_a_filesystem_of_the_parent_does_not_hang_in_a_child(fs: Any, right: dict[str, bytes]) -> None:
    FORKED["must_work_in_children"](fs, C, right)


def test_a_child_that_frees_the_filesystem_does_not_stop_the_parents_connections(
    where: str, right: dict[str, bytes]
) -> None:
    make = functools.partial(ResilientAzureBlobFileSystem, connection_string=where, skip_instance_cache=True)
    FORKED["must_survive_its_end_in_children"](make, C, right)


@pytest.mark.parametrize("cache_type", ["readahead", "bytes", "mmap", "background", "all", "none"])
def test_an_open_file_does_not_hang_or_lose_its_place_in_a_child(fs: Any, cache_type: str) -> None:
    FORKED["must_keep_its_place"](fs, f"{C}/{LONG}", cache_type)


def test_a_file_being_written_is_not_written_by_two(fs: Any, server: FaultServerProcess) -> None:
    before = server.stats().count(op="PutBlob")
    FORKED["must_be_written_by_the_parent_only"](fs, f"{C}/made/once")
    assert server.stats().count(op="PutBlob") == before + 1


@pytest.mark.parametrize("how", ["hardened", "made with client_kwargs"])
def test_a_client_does_not_return_another_objects_bytes(where: str, right: dict[str, bytes], how: str) -> None:
    kwargs = client_kwargs() if how != "hardened" else {}
    service = BlobServiceClient.from_connection_string(where, **kwargs)
    client = (harden(service) if how == "hardened" else service).get_container_client(C)

    def read(key: str) -> bytes:
        body: bytes = client.download_blob(key).readall()
        return body

    def many() -> tuple[int, list[Any]]:
        with Traffic(read, right, 8) as traffic:
            traffic.go_on(20)
        return traffic.reads, traffic.wrong

    with Traffic(read, right) as traffic:
        children = [Child(lambda: {key: read(key) for key in KEYS}) for _ in range(4)]
        for child in children:
            assert child.result() == right
    assert not traffic.wrong
    reads, wrong = Child(many).result()
    assert reads > 8
    assert not wrong


def test_an_async_client_of_the_parent_does_not_hang_in_a_child(where: str) -> None:
    async def run() -> None:
        async with AsyncContainerClient.from_connection_string(where, C) as client:
            harden(client)
            await client.get_container_properties()

            def work() -> None:
                # The child has no loop of its own yet, but inherited the mark of its parent's.
                asyncio.events._set_running_loop(None)
                asyncio.run(client.get_container_properties())

            with pytest.raises(NotForkSafe, match="in the worker"):
                Child(work).result()
            await client.get_container_properties()

    asyncio.run(run())


def test_an_async_filesystem_of_the_parent_starts_anew_in_a_child(where: str, right: dict[str, bytes]) -> None:
    async def run() -> None:
        fs = ResilientAzureBlobFileSystem(connection_string=where, asynchronous=True, skip_instance_cache=True)
        assert await fs._cat_file(f"{C}/{KEYS[0]}") == right[KEYS[0]]

        def work() -> Any:
            asyncio.events._set_running_loop(None)
            return asyncio.run(fs._cat_file(f"{C}/{KEYS[1]}"))

        assert Child(work).result() == right[KEYS[1]]
        assert await fs._cat_file(f"{C}/{KEYS[2]}") == right[KEYS[2]]
        await fs.service_client.close()

    asyncio.run(run())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_filesystem_serves_several_loops(
    where: str, right: dict[str, bytes], capfd: pytest.CaptureFixture[str], asynchronous: bool
) -> None:
    fs = ResilientAzureBlobFileSystem(connection_string=where, asynchronous=asynchronous, skip_instance_cache=True)
    for key in KEYS[:3]:
        assert asyncio.run(fs._cat_file(f"{C}/{key}")) == right[key]
        if not asynchronous:
            assert fs.cat_file(f"{C}/{key}") == right[key]
    assert len(fs._other_clients) == 1
    del fs
    gc.collect()
    assert "Unclosed" not in capfd.readouterr().err


def test_a_full_gate_of_the_parent_does_not_block_a_child(
    where: str, server: FaultServerProcess, right: dict[str, bytes]
) -> None:
    fs = ResilientAzureBlobFileSystem(
        connection_string=where, resilience={"max_concurrency": 2}, skip_instance_cache=True
    )
    stalled = FaultRule(action=FaultAction.STALL_BEFORE, delay_s=2, calls=(1, 2), match=Match(op="GetBlob"))
    server.configure(FaultPlan(rules=(stalled,)))
    begun = server.stats().requests
    threads = [threading.Thread(target=fs.cat_file, args=(f"{C}/{key}",), daemon=True) for key in KEYS[:6]]
    for thread in threads:
        thread.start()
    while server.stats().requests < begun + 2:
        time.sleep(0.002)
    assert Child(lambda: fs.cat_file(f"{C}/{KEYS[3]}")).result() == right[KEYS[3]]
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_a_url_does_not_hang_in_a_child(where: str, right: dict[str, bytes]) -> None:
    fsspec.register_implementation("rabfs", ResilientAzureBlobFileSystem, clobber=True)

    def read() -> bytes:
        with fsspec.open(f"rabfs://{C}/{KEYS[5]}", connection_string=where) as file:
            data: bytes = file.read()
        return data

    assert read() == right[KEYS[5]]
    assert Child(read).result() == right[KEYS[5]]


# -- credentials -------------------------------------------------------------------------------------


class Token:
    """An async credential, with connections to who knows where."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken("token", 2**31)

    async def close(self) -> None: ...


def test_a_given_async_credential_does_not_cross_a_fork() -> None:
    fs = ResilientAzureBlobFileSystem(account_name="acct", credential=Token(), skip_instance_cache=True)
    for call in (fs.isfile, fs.exists, fs.isdir, fs.cat_file, fs.open, fs.ls):
        with pytest.raises(NotForkSafe, match=r"Token of this filesystem was made before .* in the worker"):
            Child(lambda call=call: call("c/x")).result()

    def in_a_loop() -> Any:
        return asyncio.run(fs._isdir("c/x"))

    with pytest.raises(NotForkSafe):
        Child(in_a_loop).result()


def test_a_credential_that_adlfs_made_is_made_anew_in_a_child() -> None:
    pytest.importorskip("azure.identity")
    fs = ResilientAzureBlobFileSystem(account_name="acct", anon=False, skip_instance_cache=True)
    before = id(fs.service_client.credential)
    assert Child(lambda: id(fs.service_client.credential)).result() != before
    assert id(fs.service_client.credential) == before


# -- the end of a process ----------------------------------------------------------------------------

ENDING = """
import gc, os, sys, weakref
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

fs = ResilientAzureBlobFileSystem(connection_string=sys.argv[1])
whole = fs.cat_file(sys.argv[2])
file = fs.open(sys.argv[2])
pid = os.fork()
if pid == 0:
    if sys.argv[3] == "used":
        assert fs.cat_file(sys.argv[2]) == whole == file.read()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
file.close()
gone = weakref.ref(fs)
del fs, file
ResilientAzureBlobFileSystem.clear_instance_cache()
gc.collect()
assert gone() is None, gc.get_referrers(gone())
print("well")
"""


@pytest.mark.parametrize("child", ["used", "unused"])
def test_a_process_and_its_fork_end_without_hanging_or_complaining(where: str, child: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", ENDING, where, f"{C}/{KEYS[0]}", child],
        capture_output=True, text=True, timeout=60, check=False, env=_environment(),
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr
    complaints = [line for line in done.stderr.splitlines() if "fork()" not in line and "os.fork" not in line]
    assert not complaints, done.stderr


def _environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


# -- workers, as a dataloader has them ---------------------------------------------------------------

SCRIPT = """
import multiprocessing, sys
from azure.storage.blob import ContainerClient
import resilient_io as rio
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

WHERE, METHOD, CONTAINER, KEY = sys.argv[1:]

def by_filesystem(fs, key):
    return fs.cat_file(key)

def by_file(file):
    return file.read()

def by_url(url, where):
    with rio.open(url, connection_string=where) as file:
        return file.read()

def by_client(where, container, key):
    return rio.harden(ContainerClient.from_connection_string(where, container)).download_blob(key).readall()

def by_inherited_client(key):
    return client.download_blob(key).readall()

if __name__ == "__main__":
    fs = ResilientAzureBlobFileSystem(connection_string=WHERE, resilience={"max_attempts": 3})
    client = rio.harden(ContainerClient.from_connection_string(WHERE, CONTAINER))
    path = f"{CONTAINER}/{KEY}"
    whole = fs.cat_file(path)
    assert client.download_blob(KEY).readall() == whole
    file = fs.open(path, block_size=30_000)
    assert file.read(1000) == whole[:1000]
    with multiprocessing.get_context(METHOD).Pool(2) as pool:
        assert pool.apply_async(by_filesystem, (fs, path)).get(40) == whole
        assert pool.apply_async(by_file, (file,)).get(40) == whole[1000:]
        assert pool.apply_async(by_url, (f"abfs://{path}", WHERE)).get(40) == whole
        assert pool.apply_async(by_client, (WHERE, CONTAINER, KEY)).get(40) == whole
        if METHOD == "fork":
            assert pool.map(by_inherited_client, [KEY] * 8) == [whole] * 8
    assert file.read() == whole[1000:]
    print("well")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_by_url_by_filesystem_by_file_and_by_client(where: str, tmp_path: Path, method: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script), where, method, C, LONG],
        capture_output=True, text=True, timeout=90, check=False, env=_environment(),
    )  # fmt: skip
    assert done.stdout == "well\n", done.stderr
