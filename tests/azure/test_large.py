"""Large blobs: ranges beside the first one, one version, no half file, read-ahead, merged ranges."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceModifiedError
from azure.storage.blob import ContentSettings

import resilient_io
from resilient_io.errors import ObjectChanged, ThrottledError
from resilient_io.testing import FaultAction

pytestmark = pytest.mark.wire
Break = Callable[..., None]
MIB = 2**20
DATA = random.Random(12).randbytes(5 * MIB)


@pytest.fixture
def path(box: Any, azure_store: Any) -> str:
    box.upload_blob("data", DATA)
    return f"{azure_store.container}/data"


@pytest.fixture
def in_mibs(make_fs: Callable[..., Any]) -> Any:
    """Return a filesystem that asks for 1 MiB at a time."""
    return make_fs(blocksize=MIB)


def _gets(azure_store: Any) -> int:
    return sum(call.op == "GetBlob" for call in azure_store.server.log())


# -- beside the first range --------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["cat_file", "get_file"])
def test_the_rest_does_not_wait_for_the_first_range(
    make_fs: Callable[..., Any], path: str, azure_store: Any, break_it: Break, tmp_path: Path, read: str
) -> None:
    def have_come() -> bool:
        return sum(each.outcome == "ok" for each in azure_store.server.log()) == 4

    async def run() -> None:
        fs = make_fs(blocksize=MIB, asynchronous=True, loop=asyncio.get_running_loop())
        pending = fs._cat_file(path) if read == "cat_file" else fs._get_file(path, str(tmp_path / "local"))
        task = asyncio.ensure_future(pending)
        for _ in range(5000):
            if have_come():
                break
            await asyncio.sleep(0.002)
        assert have_come(), "the first body stands still for ever, and the four ranges of the rest came not"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await fs.service_client.close()

    break_it("GetBlob", FaultAction.STALL_BODY, after_bytes=100_000, calls=(1,))
    asyncio.run(run())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("max_concurrency", [None, 1])
def test_a_large_blob_costs_a_request_a_block(
    in_mibs: Any, path: str, azure_store: Any, tmp_path: Path, max_concurrency: int | None
) -> None:
    azure_store.server.reset()
    assert in_mibs.cat_file(path, max_concurrency=max_concurrency) == DATA
    assert _gets(azure_store) == 5
    azure_store.server.reset()
    in_mibs.get_file(path, str(tmp_path / "local"), max_concurrency=max_concurrency)
    assert (tmp_path / "local").read_bytes() == DATA
    assert _gets(azure_store) == 5
    assert os.listdir(tmp_path) == ["local"]


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_no_more_requests_are_under_way_than_the_call_says(
    make_fs: Callable[..., Any], path: str, azure_store: Any, at_once: int
) -> None:
    fs = make_fs(blocksize=MIB // 2)
    azure_store.server.reset()
    assert fs.cat_file(path, max_concurrency=at_once) == DATA
    assert azure_store.server.stats().peak_of(op_class="read") <= at_once


def test_an_empty_blob_costs_one_request(fs: Any, box: Any, azure_store: Any, tmp_path: Path) -> None:
    box.upload_blob("empty", b"")
    azure_store.server.reset()
    assert fs.cat_file(f"{azure_store.container}/empty") == b""
    assert _gets(azure_store) == 1
    fs.get_file(f"{azure_store.container}/empty", str(tmp_path / "empty"))
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.parametrize("large", [False, True])
def test_a_blob_with_an_encoding_is_what_the_sdk_makes_of_it(
    make_fs: Callable[..., Any], box: Any, azure_store: Any, large: bool
) -> None:
    packed = gzip.compress(DATA[:MIB], mtime=0)
    box.upload_blob("packed", packed, content_settings=ContentSettings(content_encoding="gzip"))
    fs = make_fs(blocksize=MIB // 2 if large else 8 * MIB)
    assert fs.cat_file(f"{azure_store.container}/packed") == box.download_blob("packed").readall()


@pytest.mark.parametrize("death", [FaultAction.TRUNCATE, FaultAction.RESET_BODY], ids=str)
def test_a_range_that_dies_does_not_shift_the_bytes(
    in_mibs: Any, path: str, break_it: Break, tmp_path: Path, death: FaultAction
) -> None:
    break_it("GetBlob", death, after_bytes=300_000, calls=(1, 3, 5))
    assert in_mibs.cat_file(path) == DATA
    break_it("GetBlob", death, after_bytes=300_000, calls=(1, 3, 5))
    in_mibs.get_file(path, str(tmp_path / "local"))
    assert (tmp_path / "local").read_bytes() == DATA


def test_a_failed_get_does_not_touch_what_is_there(in_mibs: Any, path: str, break_it: Break, tmp_path: Path) -> None:
    target = tmp_path / "local"
    target.write_bytes(b"mine")
    break_it("GetBlob", calls=tuple(range(3, 60)))
    with pytest.raises(ThrottledError):
        in_mibs.get_file(path, str(target))
    assert target.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["local"]


def test_a_folder_that_is_not_there_is_told_as_that(in_mibs: Any, path: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        in_mibs.get_file(path, str(tmp_path / "none" / "local"))
    with pytest.raises(FileNotFoundError):
        in_mibs.get_file(path + "none", str(tmp_path / "local"))
    assert os.listdir(tmp_path) == []


# -- while the blob is overwritten -------------------------------------------------------------------


def _must_be_one_version(data: bytes, size_bytes: int) -> None:
    assert data.count(data[:1]) == len(data) == size_bytes + data[0], "bytes of several versions, or not all of one"


@contextlib.contextmanager
def _overwritten(box: Any, size_bytes: int) -> Iterator[None]:
    """Overwrite `moving` until the block ends."""
    over = threading.Event()

    def overwrite() -> None:
        number = 0
        while not over.is_set():
            number = (number + 1) % 256
            box.upload_blob("moving", bytes([number]) * (size_bytes + number), overwrite=True)

    box.upload_blob("moving", bytes(size_bytes))
    thread = threading.Thread(target=overwrite)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _opened(fs: Any, path: str) -> bytes:
    with fs.open(path) as file:
        return b"".join(iter(lambda: file.read(100_000), b""))


def _got(fs: Any, path: str, target: Path) -> bytes:
    fs.get_file(path, str(target))
    data = target.read_bytes()
    target.unlink()
    return data


def _ranges(fs: Any, path: str, size_bytes: int) -> bytes:
    starts = [number * size_bytes // 8 for number in range(8)]
    return b"".join(fs.cat_ranges([path] * 8, starts, [*starts[1:], None], max_gap=-1, on_error="raise"))


async def _read_by_aio(*where: str, **sizes: Any) -> bytes:
    from azure.storage.blob.aio import ContainerClient

    client = ContainerClient.from_connection_string(*where, **sizes, **resilient_io.azure.client_kwargs(aio=True))
    async with client:
        stream = await client.download_blob("moving", max_concurrency=4)
        data: bytes = await stream.readall()
        return data


@pytest.mark.parametrize(
    "size_bytes", [2 * MIB, pytest.param(60 * MIB, marks=pytest.mark.soak)], ids=["2-MiB", "60-MiB"]
)
@pytest.mark.parametrize(
    "read", ["cat_file", "cat_ranges", "get_file", "open", "open_whole", "lines", "readall", "aio"]
)
def test_a_read_during_overwrites_is_never_of_two_versions(
    make_fs: Callable[..., Any], box: Any, azure_store: Any, tmp_path: Path, size_bytes: int, read: str
) -> None:
    from azure.storage.blob import ContainerClient

    fs, path = make_fs(blocksize=size_bytes // 8), f"{azure_store.container}/moving"
    where = (azure_store.account.connection_string, azure_store.container)
    sizes: dict[str, Any] = {"max_single_get_size": size_bytes // 8, "max_chunk_get_size": size_bytes // 8}
    client = ContainerClient.from_connection_string(*where, **sizes, **resilient_io.azure.client_kwargs())
    reads: dict[str, Callable[[], bytes]] = {
        "cat_file": lambda: fs.cat_file(path),
        "get_file": lambda: _got(fs, path, tmp_path / "local"),
        "open": lambda: _opened(fs, path),
        "open_whole": lambda: fs.open(path).read(),
        "cat_ranges": lambda: _ranges(fs, path, size_bytes),
        "lines": lambda: b"".join(fs.open(path)),
        "aio": lambda: asyncio.run(_read_by_aio(*where, **sizes)),
        "readall": lambda: client.download_blob("moving", max_concurrency=4).readall(),
    }
    whole = 0
    with _overwritten(box, size_bytes):
        for _ in range(10):
            # The error of the SDK is what a caller of its client knows.
            with contextlib.suppress(ObjectChanged, ResourceModifiedError):
                _must_be_one_version(reads[read](), size_bytes)
                whole += 1
            assert os.listdir(tmp_path) == []
    _must_be_one_version(reads[read](), size_bytes)
    client.close()
    print(f"{read}: {whole} of 10 reads were not overtaken")


# -- open files, and many ranges ---------------------------------------------------------------------


def test_streaming_is_fetched_ahead_and_not_twice(fs: Any, path: str, azure_store: Any) -> None:
    azure_store.server.reset()
    with fs.open(path, block_size=2 * MIB) as file:
        assert b"".join(iter(lambda: file.read(50_000), b"")) == DATA
    sent = [exchange.sent_bytes for exchange in azure_store.server.log()]
    assert sum(sent) == len(DATA)
    assert len(sent) == 1 + 5


def test_random_access_costs_what_it_reads(fs: Any, path: str, azure_store: Any) -> None:
    azure_store.server.reset()
    with fs.open(path) as file:
        for at in (4 * MIB, 2 * MIB, 3 * MIB):
            file.seek(at)
            assert file.read(100) == DATA[at : at + 100]
    assert [exchange.sent_bytes for exchange in azure_store.server.log()] == [256 * 1024] * 4


def test_closing_gives_up_what_was_fetched_ahead(fs: Any, path: str, azure_store: Any, break_it: Break) -> None:
    break_it("GetBlob", FaultAction.STALL_BODY, after_bytes=1000, calls=(3,))
    with fs.open(path, block_size=2 * MIB) as file:
        file.read(300_000)
        file.read(800_000)
        for _ in range(5000):
            if azure_store.server.stats().requests == 3:
                break
            threading.Event().wait(0.002)
    for _ in range(5000):
        if azure_store.server.stats().in_flight == 0:
            break
        threading.Event().wait(0.002)
    assert azure_store.server.stats().in_flight == 0


def test_near_ranges_cost_one_request(fs: Any, path: str, azure_store: Any, break_it: Break) -> None:
    azure_store.server.reset()
    starts = [0, 1000, 2000, 4 * MIB, 500]
    assert fs.cat_ranges([path] * 5, starts, [start + 100 for start in starts]) == [DATA[s : s + 100] for s in starts]
    assert _gets(azure_store) == 2
    found = fs.cat_ranges([path, path + "none", path + "none"], [0, 0, 50], [10, 10, 60])
    assert found[0] == DATA[:10]
    assert [type(each) for each in found[1:]] == [FileNotFoundError] * 2
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([path, path + "none"], 0, 10, on_error="raise")
    break_it("GetBlob")
    assert [type(each) for each in fs.cat_ranges([path, path], [0, 50], [10, 60])] == [ThrottledError] * 2
