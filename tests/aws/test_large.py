"""Large objects: ranges beside the first block, one version, no half file, read-ahead, merged ranges."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import os
import random
import tarfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiobotocore.session
import boto3
import pytest
from boto3.s3.transfer import TransferConfig

import resilient_io
from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.errors import ObjectChanged, ResilientIOError, ThrottledError
from resilient_io.testing import FaultAction, FaultRule, FaultServer

pytestmark = pytest.mark.wire
POLICY = {"backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 4, "max_throttle_attempts": 4}
MIB = 2**20
DATA = random.Random(11).randbytes(5 * MIB)
PATH = "big/data"


@pytest.fixture(scope="module")
def store() -> Iterator[FaultServer]:
    with FaultServer() as server:
        client = boto3.session.Session().client("s3", endpoint_url=server.url)
        client.create_bucket(Bucket="big")
        client.put_object(Bucket="big", Key="data", Body=DATA)
        yield server


@pytest.fixture(scope="module")
def fs(store: FaultServer) -> Any:
    return _filesystem(store)


def _filesystem(store: FaultServer, **options: Any) -> Any:
    made: dict[str, Any] = {"resilience": POLICY, "skip_instance_cache": True, "use_listings_cache": False, **options}
    return ResilientS3FileSystem(endpoint_url=store.url, **made)


def _ops(server: FaultServer) -> list[str]:
    return [exchange.op for exchange in server.log()]


# -- beside the first block --------------------------------------------------------------------------


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.002)


async def _rest_comes_beside(store: FaultServer, read: str, target: Path) -> None:
    fs = _filesystem(store, asynchronous=True)
    chunks = {"chunksize": MIB, "max_concurrency": 3}
    pending = fs._cat_file(PATH, **chunks) if read == "cat_file" else fs._get_file(PATH, str(target), **chunks)
    task = asyncio.ensure_future(pending)
    # The first body stands still for ever; all four ranges of the rest come in spite of it.
    await asyncio.wait_for(_until(lambda: sum(e.status == 206 and e.outcome == "ok" for e in store.log()) == 4), 30)
    assert store.stats().peak_of(bucket="big") <= 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await (await fs.set_session()).close()


@pytest.mark.parametrize("read", ["cat_file", "get_file"])
def test_the_rest_does_not_wait_for_the_first_block(
    store: FaultServer, plan_of: Callable[..., FaultServer], tmp_path: Path, idle: Callable[[], bool], read: str
) -> None:
    plan_of(FaultRule(action=FaultAction.STALL_BODY, after_bytes=100_000, calls=(1,)))
    asyncio.run(_rest_comes_beside(store, read, tmp_path / "local"))
    assert os.listdir(tmp_path) == []
    assert idle()


def test_a_large_object_is_not_in_memory_twice(fs: Any) -> None:
    fs.cat_file(PATH, chunksize=MIB)
    gc.collect()
    tracemalloc.start()
    try:
        data = fs.cat_file(PATH, chunksize=MIB)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data == DATA
    # Besides the whole: what aiohttp has read of five bodies.
    assert peak_bytes < len(DATA) + 5 * 2.5 * MIB


def test_a_refused_range_does_not_leave_a_hole_or_the_other_ranges_alone(
    fs: Any, plan_of: Callable[..., FaultServer], tmp_path: Path, idle: Callable[[], bool]
) -> None:
    server = plan_of(FaultRule(action=FaultAction.ERROR, calls=(2, 3, 4)))
    assert fs.cat_file(PATH, chunksize=MIB) == DATA
    assert server.stats().requests == 5 + 3
    plan_of(FaultRule(action=FaultAction.ERROR, calls=tuple(range(2, 100))))
    with pytest.raises(ThrottledError):
        fs.get_file(PATH, str(tmp_path / "local"), chunksize=MIB)
    assert os.listdir(tmp_path) == []
    assert idle()


@pytest.mark.parametrize("action", [FaultAction.TRUNCATE, FaultAction.RESET_BODY, FaultAction.IGNORE_RANGE], ids=str)
def test_a_range_that_dies_or_is_ignored_does_not_shift_the_bytes(
    fs: Any, plan_of: Callable[..., FaultServer], tmp_path: Path, action: FaultAction
) -> None:
    plan_of(FaultRule(action=action, after_bytes=300_000, calls=(1, 3, 5)))
    assert fs.cat_file(PATH, chunksize=MIB) == DATA
    plan_of(FaultRule(action=action, after_bytes=300_000, calls=(1, 3, 5)))
    fs.get_file(PATH, str(tmp_path / "local"), chunksize=MIB)
    assert (tmp_path / "local").read_bytes() == DATA


def test_a_failed_get_does_not_touch_what_is_there(
    fs: Any, plan_of: Callable[..., FaultServer], tmp_path: Path
) -> None:
    target = tmp_path / "local"
    target.write_bytes(b"mine")
    plan_of(FaultRule(action=FaultAction.RESET_BODY, after_bytes=200_000, calls=tuple(range(3, 50))))
    with pytest.raises(ResilientIOError):
        fs.get_file(PATH, str(target), chunksize=MIB)
    assert target.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["local"]


def test_a_folder_that_is_not_there_is_told_as_that(fs: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.get_file(PATH, str(tmp_path / "none" / "local"))


# -- while the object is overwritten -----------------------------------------------------------------


def _version(number: int, size_bytes: int) -> bytes:
    return bytes([number]) * (size_bytes + number)


def _must_be_one_version(data: bytes, size_bytes: int) -> None:
    assert data.count(data[:1]) == len(data) == size_bytes + data[0], "bytes of several versions, or not all of one"


@contextlib.contextmanager
def _overwritten(store: FaultServer, size_bytes: int) -> Iterator[None]:
    """Overwrite `moving` until the block ends."""
    client, over = boto3.session.Session().client("s3", endpoint_url=store.url), threading.Event()

    def overwrite() -> None:
        number = 0
        while not over.is_set():
            number = (number + 1) % 256
            client.put_object(Bucket="big", Key="moving", Body=_version(number, size_bytes))

    client.put_object(Bucket="big", Key="moving", Body=_version(0, size_bytes))
    thread = threading.Thread(target=overwrite)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _opened(fs: Any, block_bytes: int) -> bytes:
    with fs.open("big/moving", block_size=block_bytes) as file:
        return b"".join(iter(lambda: file.read(100_000), b""))


def _downloaded(client: Any, target: Path) -> bytes:
    client.download_file("big", "moving", str(target), Config=_TRANSFER)
    data = target.read_bytes()
    target.unlink()
    return data


def _got(fs: Any, target: Path, block_bytes: int) -> bytes:
    fs.get_file("big/moving", str(target), chunksize=block_bytes)
    data = target.read_bytes()
    target.unlink()
    return data


def _ranges(fs: Any, size_bytes: int) -> bytes:
    starts = [number * size_bytes // 8 for number in range(8)]
    paths = ["big/moving"] * 8
    return b"".join(fs.cat_ranges(paths, starts, [*starts[1:], None], max_gap=-1, on_error="raise"))


async def _read_by_aiobotocore(store: FaultServer) -> bytes:
    async with aiobotocore.session.get_session().create_client("s3", endpoint_url=store.url) as client:
        answer = await resilient_io.harden(client, POLICY).get_object(Bucket="big", Key="moving")
        return b"".join([piece async for piece in answer["Body"].iter_chunks(100_000)])


_TRANSFER = TransferConfig(multipart_threshold=MIB, multipart_chunksize=MIB)


@pytest.mark.parametrize(
    "size_bytes", [2 * MIB, pytest.param(60 * MIB, marks=pytest.mark.soak)], ids=["2-MiB", "60-MiB"]
)
@pytest.mark.parametrize(
    "read",
    ["cat_file", "cat_ranges", "get_file", "open", "open_whole", "lines", "download_file", "get_object", "aiobotocore"],
)
def test_a_read_during_overwrites_is_never_of_two_versions(
    store: FaultServer, tmp_path: Path, size_bytes: int, read: str
) -> None:
    from s3transfer.exceptions import S3DownloadFailedError

    fs, block_bytes, target = _filesystem(store), size_bytes // 8, tmp_path / "local"
    client = resilient_io.harden(boto3.session.Session().client("s3", endpoint_url=store.url), POLICY)
    reads: dict[str, Callable[[], bytes]] = {
        "cat_file": lambda: fs.cat_file("big/moving", chunksize=block_bytes),
        "get_file": lambda: _got(fs, target, block_bytes),
        "open": lambda: _opened(fs, block_bytes),
        "open_whole": lambda: fs.open("big/moving", block_size=block_bytes).read(),
        "cat_ranges": lambda: _ranges(fs, size_bytes),
        "lines": lambda: b"".join(fs.open("big/moving", block_size=block_bytes)),
        "download_file": lambda: _downloaded(client, target),
        "get_object": lambda: b"".join(client.get_object(Bucket="big", Key="moving")["Body"].iter_chunks(100_000)),
        "aiobotocore": lambda: asyncio.run(_read_by_aiobotocore(store)),
    }
    whole = 0
    with _overwritten(store, size_bytes):
        for _ in range(15):
            # The error of s3transfer is what a caller of boto3 knows.
            with contextlib.suppress(ObjectChanged, S3DownloadFailedError):
                _must_be_one_version(reads[read](), size_bytes)
                whole += 1
            assert os.listdir(tmp_path) == []
    _must_be_one_version(reads[read](), size_bytes)
    print(f"{read}: {whole} of 15 reads were not overtaken")


# -- open files --------------------------------------------------------------------------------------


def test_streaming_is_fetched_ahead_and_not_twice(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of()
    with fs.open(PATH, block_size=2 * MIB) as file:
        assert b"".join(iter(lambda: file.read(50_000), b"")) == DATA
    sent = [exchange.sent_bytes for exchange in server.log()]
    assert sum(sent) == len(DATA)
    assert len(sent) == 1 + 5


def test_the_next_block_comes_while_this_one_is_read(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of()
    with fs.open(PATH, block_size=2 * MIB) as file:
        file.read(300_000)
        assert len(_ops(server)) == 2
        file.read(800_000)
        for _ in range(10_000):
            if len([each for each in server.log() if each.outcome == "ok"]) == 3:
                break
            threading.Event().wait(0.002)
        assert len(_ops(server)) == 3
        before = len(_ops(server))
        file.read(300_000)
        assert len(_ops(server)) == before
    assert file.closed


def test_closing_gives_up_what_was_fetched_ahead(
    fs: Any, plan_of: Callable[..., FaultServer], idle: Callable[[], bool]
) -> None:
    server = plan_of(FaultRule(action=FaultAction.STALL_BODY, after_bytes=1000, calls=(3,)))
    with fs.open(PATH, block_size=2 * MIB) as file:
        file.read(300_000)
        file.read(800_000)
        for _ in range(5000):
            if server.stats().requests == 3:
                break
            threading.Event().wait(0.002)
    for _ in range(5000):
        if idle() and all(each.end_s is not None for each in server.log()):
            break
        threading.Event().wait(0.002)
    assert idle()


def test_random_access_costs_what_it_reads(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of()
    with fs.open(PATH) as file:
        for at in (4 * MIB, 2 * MIB, 3 * MIB):
            file.seek(at)
            assert file.read(100) == DATA[at : at + 100]
    sent = [exchange.sent_bytes for exchange in server.log()]
    assert sent == [256 * 1024] * 4


def test_an_archive_is_listed_and_read_as_it_is(
    store: FaultServer, fs: Any, plan_of: Callable[..., FaultServer]
) -> None:
    packed, members = io.BytesIO(), {f"{n}.bin": random.Random(n).randbytes(30_000 + n * 999) for n in range(40)}
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    fs.pipe_file("big/tar", packed.getvalue())
    for mode in ("r:", "r|"):
        server = plan_of()
        with fs.open("big/tar") as file, tarfile.open(fileobj=file, mode=mode) as tar:  # type: ignore[call-overload]
            found = {each.name: tar.extractfile(each).read() for each in tar}
        assert found == members
        assert _ops(server) == ["GetObject"] * 2


def test_a_large_read_of_an_open_file_comes_side_by_side(
    store: FaultServer, plan_of: Callable[..., FaultServer]
) -> None:
    fs = _filesystem(store, default_block_size=MIB)
    server = plan_of()
    with fs.open(PATH) as file:
        assert file.read() == DATA
    assert _ops(server) == ["GetObject"] * 6
    assert sum(exchange.sent_bytes for exchange in server.log()) == len(DATA)


# -- many ranges -------------------------------------------------------------------------------------


def test_near_ranges_cost_one_request(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of()
    starts = [0, 1000, 2000, 4 * MIB, 500, 4 * MIB + 10]
    found = fs.cat_ranges([PATH] * 6, starts, [start + 100 for start in starts])
    assert found == [DATA[start : start + 100] for start in starts]
    assert _ops(server) == ["GetObject"] * 2
    server = plan_of()
    assert fs.cat_ranges([PATH] * 6, starts, [start + 100 for start in starts], max_gap=-1) == found
    assert _ops(server) == ["GetObject"] * 5, "two of them overlap"


def test_ranges_without_an_end_or_behind_it_are_what_they_are_alone(fs: Any) -> None:
    size = len(DATA)
    wanted = [
        (None, 10),
        (size - 50, size + 50),
        (size - 60, size - 40),
        (-5, None),
        (5, None),
        (0, None),
        (10, -size + 20),
    ]
    found = fs.cat_ranges([PATH] * len(wanted), *zip(*wanted, strict=True))
    assert found == [DATA[start:end] for start, end in wanted]
    beyond = fs.cat_ranges([PATH, PATH], [size - 10, size + 10], [size, size + 20])
    assert beyond[0] == DATA[-10:]
    assert isinstance(beyond[1], OSError)


def test_an_error_stands_for_each_range_that_it_kept_from_coming(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    paths = [PATH, "big/none", "big/none", PATH]
    found = fs.cat_ranges(paths, [0, 0, 50, 50], [10, 10, 60, 60])
    assert (found[0], found[3]) == (DATA[:10], DATA[50:60])
    assert [type(each) for each in found[1:3]] == [FileNotFoundError] * 2
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, [0, 0, 50, 50], [10, 10, 60, 60], on_error="raise")
    plan_of(FaultRule(action=FaultAction.ERROR))
    refused = fs.cat_ranges([PATH, PATH], [0, 50], [10, 60])
    assert [type(each) for each in refused] == [ThrottledError] * 2
    with pytest.raises(ValueError, match="as many"):
        fs.cat_ranges([PATH], [0, 1], [2, 3])


def test_ranges_side_by_side_are_right_in_the_async_form_too(store: FaultServer) -> None:
    async def read() -> list[bytes]:
        fs = _filesystem(store, asynchronous=True)
        found: list[bytes] = await fs._cat_ranges([PATH] * 3, [0, 20, 3 * MIB], [10, 30, 3 * MIB + 5])
        found.append(await fs._cat_file(PATH, chunksize=MIB))
        await (await fs.set_session()).close()
        return found

    assert asyncio.run(read()) == [DATA[:10], DATA[20:30], DATA[3 * MIB : 3 * MIB + 5], DATA]
