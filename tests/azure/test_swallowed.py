"""What adlfs and fsspec make of a refusal, and what this library makes of it: the refusal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from resilient_io.classify.fault import FaultKind
from resilient_io.errors import ThrottledError
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Match

pytestmark = [pytest.mark.wire, pytest.mark.usefixtures("fast_clock")]
Break = Callable[..., None]


@pytest.fixture
def filled(fs: Any, box: Any) -> Any:
    for name in ("x", "d/y", "d/z", "e/f/g"):
        box.upload_blob(name, b"0123456789")
    return fs


# Each method with a path of the container, as users call it.
ASKING: dict[str, Callable[[Any, str, Path], Any]] = {
    "exists": lambda fs, c, _: fs.exists(f"{c}/x"),
    "exists of a container": lambda fs, c, _: fs.exists(c),
    "isfile": lambda fs, c, _: fs.isfile(f"{c}/x"),
    "isdir": lambda fs, c, _: fs.isdir(f"{c}/d"),
    "isdir of a file": lambda fs, c, _: fs.isdir(f"{c}/x"),
    "isdir of a container": lambda fs, c, _: fs.isdir(c),
    "info": lambda fs, c, _: fs.info(f"{c}/x"),
    "info of a container": lambda fs, c, _: fs.info(c),
    "size": lambda fs, c, _: fs.size(f"{c}/x"),
    "ls": lambda fs, c, _: fs.ls(c),
    "ls of the account": lambda fs, c, _: fs.ls(""),
    "walk": lambda fs, c, _: list(fs.walk(c)),
    "find": lambda fs, c, _: fs.find(c),
    "find of a file": lambda fs, c, _: fs.find(f"{c}/x"),
    "glob": lambda fs, c, _: fs.glob(f"{c}/*"),
    "du": lambda fs, c, _: fs.du(c),
    "cat": lambda fs, c, _: fs.cat(f"{c}/x"),
    "cat of several": lambda fs, c, _: fs.cat([f"{c}/x", f"{c}/d/y"]),
    "cat_file": lambda fs, c, _: fs.cat_file(f"{c}/x"),
    "cat_ranges": lambda fs, c, _: fs.cat_ranges([f"{c}/x"], 0, 3, on_error="raise"),
    "get": lambda fs, c, p: fs.get(f"{c}/x", str(p / "x")),
    "get_file": lambda fs, c, p: fs.get_file(f"{c}/x", str(p / "x")),
    "open": lambda fs, c, _: fs.open(f"{c}/x"),
    "expand_path": lambda fs, c, _: fs.expand_path(f"{c}/d", recursive=True),
    "getxattr": lambda fs, c, _: fs.getxattr(f"{c}/x", "a"),
}
CHANGING: dict[str, Callable[[Any, str, Path], Any]] = {
    "mkdir": lambda fs, c, _: fs.mkdir(f"{c}-new"),
    "makedir": lambda fs, c, _: fs.makedir(f"{c}-new"),
    "rmdir": lambda fs, c, _: fs.rmdir(c),
    "rm": lambda fs, c, _: fs.rm(f"{c}/x"),
    "rm of a tree": lambda fs, c, _: fs.rm(f"{c}/d", recursive=True),
    "rm_file": lambda fs, c, _: fs.rm_file(f"{c}/x"),
    "setxattrs": lambda fs, c, _: fs.setxattrs(f"{c}/x", a="b"),
    "touch": lambda fs, c, _: fs.touch(f"{c}/new"),
    "touch of what may exist": lambda fs, c, _: fs.touch(f"{c}/x", truncate=False),
    "pipe": lambda fs, c, _: fs.pipe({f"{c}/new": b"a", f"{c}/new2": b"b"}),
    "pipe_file": lambda fs, c, _: fs.pipe_file(f"{c}/new", b"a"),
    "put": lambda fs, c, p: fs.put(str(p / "local"), f"{c}/new"),
    "put_file": lambda fs, c, p: fs.put_file(str(p / "local"), f"{c}/new"),
    "cp_file": lambda fs, c, _: fs.cp_file(f"{c}/x", f"{c}/new"),
    "copy": lambda fs, c, _: fs.copy(f"{c}/x", f"{c}/new"),
    "mv": lambda fs, c, _: fs.mv(f"{c}/x", f"{c}/new"),
    "write": lambda fs, c, _: write(fs, f"{c}/new", b"abc"),
    "write much": lambda fs, c, _: write(fs, f"{c}/new", bytes(50), block_size=10),
    "append": lambda fs, c, _: write(fs, f"{c}/new", b"abc", "ab"),
    "write what must not exist": lambda fs, c, _: write(fs, f"{c}/new", b"abc", "xb"),
}
METHODS = {**ASKING, **CHANGING}


def write(fs: Any, path: str, data: bytes, mode: str = "wb", **options: Any) -> None:
    with fs.open(path, mode, **options) as file:
        file.write(data)


@pytest.mark.parametrize("name", METHODS)
def test_a_refusal_is_raised_and_never_an_answer(
    filled: Any, box: Any, azure_store: Any, break_it: Break, tmp_path: Path, name: str
) -> None:
    (tmp_path / "local").write_bytes(b"abc")
    before = sorted(blob.name for blob in box.list_blobs())
    break_it()
    with pytest.raises(ThrottledError) as caught:
        METHODS[name](filled, azure_store.container, tmp_path)
    error = caught.value
    assert error.verdict is not None
    assert error.verdict.kind is FaultKind.THROTTLED
    assert error.attempts == 4
    assert error.operation
    assert azure_store.container in str(error) or "account" in name
    assert "throttled" in str(error)
    assert sorted(blob.name for blob in box.list_blobs()) == before
    assert not (tmp_path / "x").exists()


# One operation fails for good, and what adlfs asks next is answered: (what is called, what fails).
ONE_FAILS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "find of an existing file is not []": ("GetBlobProperties", lambda fs, c: fs.find(f"{c}/x")),
    "isdir of an existing file is not True": ("GetBlobProperties", lambda fs, c: fs.isdir(f"{c}/x")),
    "isfile is not False": ("GetBlobProperties", lambda fs, c: fs.isfile(f"{c}/x")),
    "exists is not True for a container that is not there": (
        "GetContainerProperties",
        lambda fs, c: fs.exists(f"{c}-not-there"),
    ),
    "mkdir does not do nothing": ("GetContainerProperties", lambda fs, c: fs.mkdir(f"{c}-new")),
    "a refused creation is not a bad name": ("CreateContainer", lambda fs, c: fs.mkdir(f"{c}-new")),
    "walk does not leave out what it may not see": ("ListBlobs", lambda fs, c: list(fs.walk(c))),
    "setxattrs does not say that nothing is there": ("SetBlobMetadata", lambda fs, c: fs.setxattrs(f"{c}/x", a="b")),
    "rm is not a RuntimeError": ("DeleteBlob", lambda fs, c: fs.rm(f"{c}/x")),
    "rm of a tree is not a RuntimeError": ("DeleteBlob", lambda fs, c: fs.rm(f"{c}/d", recursive=True)),
    "a block is not a RuntimeError": ("PutBlock", lambda fs, c: write(fs, f"{c}/n", bytes(30), block_size=10)),
    "a list of blocks is sent no second time": (
        "PutBlockList",
        lambda fs, c: write(fs, f"{c}/n", bytes(30), block_size=10),
    ),
}


@pytest.mark.parametrize("name", ONE_FAILS)
def test_what_one_refused_request_hides_is_raised(filled: Any, azure_store: Any, break_it: Break, name: str) -> None:
    operation, call = ONE_FAILS[name]
    break_it(operation)
    with pytest.raises(ThrottledError) as caught:
        call(filled, azure_store.container)
    assert caught.value.attempts == 4
    assert azure_store.server.stats().count(op=operation, status=503) >= 4


@pytest.mark.parametrize("name", ["exists", "cat_file", "info", "isfile", "open", "get_file"])
def test_a_refused_version_is_not_a_missing_one(
    make_fs: Callable[..., Any], box: Any, azure_store: Any, break_it: Break, tmp_path: Path, name: str
) -> None:
    box.upload_blob("x", b"0123456789")
    versioned = make_fs(version_aware=True)
    path = f"{azure_store.container}/x?versionid=2026-01-01T00:00:00.0000000Z"
    break_it()
    with pytest.raises(ThrottledError):
        getattr(versioned, name)(path, *([str(tmp_path / "x")] if name == "get_file" else []))


@pytest.mark.parametrize(
    "name", ["exists", "isfile", "isdir", "info", "ls", "find", "du", "cat_file", "rm", "size", "mkdir", "async_walk"]
)
def test_the_async_forms_do_the_same(filled: Any, azure_store: Any, break_it: Break, name: str) -> None:
    break_it()
    path = f"{azure_store.container}-new" if name == "mkdir" else f"{azure_store.container}/x"

    async def call() -> None:
        try:
            if name == "async_walk":
                assert [step async for step in filled._async_walk(path)]
            else:
                await getattr(filled, f"_{name}")(path)
        finally:
            await filled.service_client.close()

    with pytest.raises(ThrottledError):
        asyncio.run(call())


def test_isfile_does_not_swallow_a_cancellation(filled: Any, azure_store: Any, break_it: Break) -> None:
    break_it("GetBlobProperties", FaultAction.STALL_BEFORE, delay_s=20)

    async def ask() -> Any:
        task = asyncio.ensure_future(filled._isfile(f"{azure_store.container}/x"))
        while not azure_store.server.stats().requests:
            await asyncio.sleep(0.002)
        task.cancel()
        try:
            return await task
        finally:
            await filled.service_client.close()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask())


def test_an_error_of_one_path_is_that_paths_value(filled: Any, azure_store: Any) -> None:
    paths = [f"{azure_store.container}/{name}" for name in ("d/y", "x")]
    rule = FaultRule(action=FaultAction.ERROR, match=Match(op="GetBlob", key="x"))
    azure_store.server.configure(FaultPlan(rules=(rule,)))
    found = filled.cat(paths, on_error="return")
    assert found[paths[0]] == b"0123456789"
    assert isinstance(found[paths[1]], ThrottledError)
    with pytest.raises(ThrottledError):
        filled.cat(paths, on_error="omit")
    ranges = filled.cat_ranges(paths, 0, 3)
    assert ranges[0] == b"012"
    assert isinstance(ranges[1], ThrottledError)
    with pytest.raises(ThrottledError):
        filled.cat_ranges(paths, [0, 0], [3, 3], None, None, "raise")


def test_one_blob_that_is_gone_does_not_save_the_others(filled: Any, box: Any, azure_store: Any) -> None:
    with BlobServiceClient.from_connection_string(azure_store.direct.connection_string) as service:
        other = service.create_container(f"{azure_store.container}-2")
        other.upload_blob("x", b"1")
        other.upload_blob("d", b"")
        other.upload_blob("d/y", b"1")
        paths = [f"{azure_store.container}/gone", f"{azure_store.container}/d/y"]
        filled.rm(
            [*paths, *(f"{other.container_name}/{name}" for name in ("d", "d/y", "gone", "x"))], expand_path=False
        )
        assert [blob.name for blob in other.list_blobs()] == []
        other.delete_container()
    assert sorted(blob.name for blob in box.list_blobs()) == ["d/z", "e/f/g", "x"]


@pytest.mark.parametrize("maxdepth", [1, 2, 3])
def test_find_counts_the_depth(filled: Any, azure_store: Any, maxdepth: int) -> None:
    container = azure_store.container
    found = [name.removeprefix(f"{container}/") for name in filled.find(container, maxdepth=maxdepth)]
    assert found == {1: ["x"], 2: ["d/y", "d/z", "x"], 3: ["d/y", "d/z", "e/f/g", "x"]}[maxdepth]
    with pytest.raises(ValueError, match="at least 1"):
        filled.find(container, maxdepth=0)


def test_patterns_in_a_list_are_expanded(filled: Any, azure_store: Any) -> None:
    container = azure_store.container
    assert filled.expand_path([f"{container}/d/*", f"{container}/x"]) == [
        f"{container}/{name}" for name in ("d/y", "d/z", "x")
    ]
    with pytest.raises(FileNotFoundError):
        filled.expand_path([f"{container}/no/*"])


def test_a_missing_object_is_still_missing(filled: Any, azure_store: Any, tmp_path: Path) -> None:
    container = azure_store.container
    assert not filled.exists(f"{container}/no")
    assert not filled.isfile(f"{container}/no")
    assert not filled.isdir(f"{container}/no")
    assert filled.find(f"{container}/no") == []
    for call in (filled.info, filled.cat_file, filled.cat, filled.open, filled.rm_file):
        with pytest.raises(FileNotFoundError):
            call(f"{container}/no")
    with pytest.raises(FileNotFoundError):
        filled.get_file(f"{container}/no", str(tmp_path / "no"))
    assert os.listdir(tmp_path) == []
