"""Open files: the bytes, their version, what opening tells, and what a write leaves behind."""

from __future__ import annotations

import inspect
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adlfs import AzureBlobFileSystem
from azure.storage.blob import ContentSettings

from resilient_io import events
from resilient_io.azure.file import ResilientAzureBlobFile
from resilient_io.errors import AmbiguousWriteError, ObjectChanged, ResilientIOError
from resilient_io.testing import FaultAction

pytestmark = pytest.mark.wire
Break = Callable[..., None]
BIG = 1_000_000


@pytest.fixture
def big(box: Any, azure_store: Any) -> tuple[str, bytes]:
    data = random.Random(5).randbytes(BIG)
    box.upload_blob("big", data, metadata={"a": "b"}, content_settings=ContentSettings(content_type="x/y"))
    return f"{azure_store.container}/big", data


def test_opening_tells_what_info_tells(fs: Any, big: tuple[str, bytes], azure_store: Any) -> None:
    path, data = big
    stock = AzureBlobFileSystem(connection_string=azure_store.account.connection_string, skip_instance_cache=True)
    with fs.open(path) as file:
        told, wanted = dict(file.details), dict(stock.info(path))
        # The MD5 of a range's answer is that of the whole blob in one, and missing in the other.
        for details in (told, wanted):
            details["content_settings"] = {**details["content_settings"], "content_md5": None}
        assert told == wanted
        assert (file.size, file.metadata) == (len(data), {"a": "b"})
        assert type(file) is ResilientAzureBlobFile


@pytest.mark.parametrize("cache_type", ["readahead", "bytes", "none", "blockcache", "first", "all", "background"])
def test_each_cache_reads_each_byte_right(fs: Any, big: tuple[str, bytes], cache_type: str) -> None:
    path, data = big
    draw = random.Random(7)
    with fs.open(path, block_size=50_000, cache_type=cache_type) as file:
        for _ in range(20):
            start, length = draw.randrange(BIG), draw.randrange(100_000)
            file.seek(start)
            assert file.read(length) == data[start : start + length]
        file.seek(0)
        assert file.read() == data
        assert file.read() == b""


@pytest.mark.parametrize("size", [0, 1, 255_999, 256 * 1024, 256 * 1024 + 1])
def test_a_blob_of_each_size_is_whole(fs: Any, box: Any, azure_store: Any, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    box.upload_blob("sized", data)
    path = f"{azure_store.container}/sized"
    with fs.open(path) as file:
        assert (file.size, file.read()) == (size, data)
    assert fs.cat_file(path) == data == fs.cat(path)
    fs.get_file(path, str(tmp_path / "sized"))
    assert (tmp_path / "sized").read_bytes() == data


def test_one_open_file_never_mixes_two_versions(fs: Any, box: Any, big: tuple[str, bytes]) -> None:
    path, data = big
    with fs.open(path, block_size=300_000) as file:
        assert file.read(10) == data[:10]
        box.upload_blob("big", bytes(BIG), overwrite=True)
        file.seek(700_000)
        with pytest.raises(ObjectChanged, match="replaced while it was being read"):
            file.read(10)
    with fs.open(path) as file:
        assert file.read(10) == bytes(10)


@pytest.mark.parametrize("size", [BIG - 1, 10, 0])
def test_an_old_listing_does_not_cut_a_blob(
    fs: Any, box: Any, big: tuple[str, bytes], azure_store: Any, size: int
) -> None:
    path, _ = big
    fs.ls(azure_store.container)
    data = os.urandom(size)
    box.upload_blob("big", data, overwrite=True)
    with pytest.raises(ObjectChanged), fs.open(path) as file:
        file.seek(100)
        file.read()
    with fs.open(path) as file:
        assert file.read() == data


def test_an_old_listing_of_the_same_size_does_no_harm(
    fs: Any, box: Any, big: tuple[str, bytes], azure_store: Any
) -> None:
    path, _ = big
    fs.ls(azure_store.container)
    data = os.urandom(BIG)
    box.upload_blob("big", data, overwrite=True)
    azure_store.server.reset()
    with fs.open(path) as file:
        assert file.read() == data
    assert "GetBlobProperties" not in {call.op for call in azure_store.server.log()}


@pytest.mark.parametrize("how", ["cat_file", "get_file", "open"])
def test_a_large_read_is_of_one_version(
    fs: Any, box: Any, azure_store: Any, break_it: Break, tmp_path: Path, how: str
) -> None:
    config = fs.service_client._config
    config.max_single_get_size = config.max_chunk_get_size = 300_000
    box.upload_blob("big", bytes(BIG))
    path = f"{azure_store.container}/big"
    break_it("GetBlob", calls=(3,), status=500, code="InternalError")

    def replace(event: events.Event) -> None:
        if isinstance(event, events.RetryScheduled):
            box.upload_blob("big", os.urandom(BIG), overwrite=True)

    read = {
        "cat_file": lambda: fs.cat_file(path, max_concurrency=1),
        "get_file": lambda: fs.get_file(path, str(tmp_path / "big"), max_concurrency=1),
        "open": lambda: fs.open(path, block_size=BIG).read(),
    }[how]
    unsubscribe = events.subscribe(replace)
    try:
        with pytest.raises(ObjectChanged):
            read()
    finally:
        unsubscribe()
    assert not (tmp_path / "big").exists()


DEATHS = {"end": FaultAction.TRUNCATE, "reset": FaultAction.RESET_BODY}


@pytest.mark.parametrize("death", DEATHS)
def test_a_body_that_dies_goes_on_where_it_stopped(
    fs: Any, big: tuple[str, bytes], azure_store: Any, break_it: Break, death: str, tmp_path: Path
) -> None:
    path, data = big
    for read in (
        lambda: fs.cat_file(path),
        lambda: fs.open(path, block_size=BIG).read(),
        lambda: (fs.get_file(path, str(tmp_path / "big")), (tmp_path / "big").read_bytes())[1],
    ):
        break_it("GetBlob", DEATHS[death], after_bytes=100_000, calls=(1,))
        assert read() == data
        assert azure_store.server.stats().count(op="GetBlob") <= 3


def test_a_get_that_fails_leaves_no_half_file(fs: Any, big: tuple[str, bytes], break_it: Break, tmp_path: Path) -> None:
    break_it("GetBlob", FaultAction.RESET_BODY, after_bytes=0)
    target = tmp_path / "big"
    with pytest.raises(ResilientIOError):
        fs.get_file(big[0], str(target))
    assert not target.exists()
    break_it("GetBlob", status=500, code="InternalError")
    target.write_bytes(b"mine")
    with pytest.raises(ResilientIOError):
        fs.get_file(big[0], str(target))
    # Nothing had come, so nothing of it was touched.
    assert target.read_bytes() == b"mine"


def test_a_pickled_file_goes_on_at_its_place(fs: Any, big: tuple[str, bytes]) -> None:
    path, data = big
    with fs.open(path, block_size=20_000) as file:
        assert file.read(100) == data[:100]
        again = pickle.loads(pickle.dumps(file))
        assert type(again) is ResilientAzureBlobFile
        assert again.read() == data[100:]
        assert file.read() == data[100:]


def test_a_written_file_has_its_metadata_and_settings(fs: Any, box: Any, azure_store: Any) -> None:
    knows_settings = "content_settings" in inspect.signature(AzureBlobFileSystem._open).parameters
    settings = {"content_settings": {"content_type": "x/y"}} if knows_settings else {}
    for name, data, options in (("one", b"abc", {}), ("blocks", bytes(100), {"block_size": 30})):
        path = f"{azure_store.container}/{name}"
        with fs.open(path, "wb", metadata={"k": "v"}, **settings, **options) as file:
            assert file.metadata == {"k": "v"}
            file.write(data)
        found = box.get_blob_client(name).get_blob_properties()
        assert found.metadata == {"k": "v"}
        assert not settings or found.content_settings.content_type == "x/y"
        assert box.download_blob(name).readall() == data
        with fs.open(path, "wb") as file:
            file.write(data)
        assert box.get_blob_client(name).get_blob_properties().metadata == {"is_directory": "false"}


@pytest.mark.parametrize("block_size", [None, 10])
def test_an_exclusive_write_is_exclusive(fs: Any, box: Any, azure_store: Any, block_size: int | None) -> None:
    path = f"{azure_store.container}/only"
    with fs.open(path, "xb", block_size=block_size) as file:
        file.write(bytes(35))
    with pytest.raises(FileExistsError), fs.open(path, "xb", block_size=block_size) as file:
        file.write(b"other" * 7)
    assert box.download_blob("only").readall() == bytes(35)


@pytest.mark.parametrize("block_size", [None, 10])
def test_a_lost_answer_does_not_make_an_exclusive_write_fail_as_if_another_had_won(
    fs: Any, box: Any, azure_store: Any, break_it: Break, block_size: int | None
) -> None:
    break_it("PutBlockList" if block_size else "PutBlob", FaultAction.RESET_AFTER, calls=(1,))
    with fs.open(f"{azure_store.container}/only", "xb", block_size=block_size) as file:
        file.write(bytes(35))
    assert box.download_blob("only").readall() == bytes(35)


@pytest.mark.parametrize("op", ["CreateAppendBlob", "AppendBlock"])
def test_what_is_appended_is_never_appended_twice(
    fs: Any, box: Any, azure_store: Any, break_it: Break, op: str
) -> None:
    path = f"{azure_store.container}/log"
    break_it(op, FaultAction.RESET_AFTER, calls=(1,))
    if op == "AppendBlock":
        with pytest.raises(AmbiguousWriteError), fs.open(path, "ab") as file:
            file.write(b"line\n")
    else:
        with fs.open(path, "ab") as file:
            file.write(b"line\n")
    assert azure_store.server.stats().count(op="AppendBlock") == 1
    assert box.download_blob("log").readall() == b"line\n"


def test_a_blob_that_another_began_meanwhile_is_not_emptied(fs: Any, box: Any, azure_store: Any) -> None:
    file = fs.open(f"{azure_store.container}/log", "ab")
    file.write(b"second\n")
    fs._exists, exists = _not_there, fs._exists
    try:
        box.get_blob_client("log").create_append_blob()
        box.get_blob_client("log").append_block(b"first\n")
        file.close()
    finally:
        fs._exists = exists
    assert box.download_blob("log").readall() == b"first\nsecond\n"


async def _not_there(path: str) -> bool:
    return False


def test_appends_add_up(fs: Any, box: Any, azure_store: Any) -> None:
    for _ in range(3):
        with fs.open(f"{azure_store.container}/log", "ab") as file:
            file.write(b"line\n")
    assert box.download_blob("log").readall() == b"line\n" * 3
