"""The async forms: a refusal is raised, a cancellation goes through, and what is known costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.errors import ThrottledError
from resilient_io.testing import FaultAction

from .conftest import Cloud

pytestmark = pytest.mark.wire


async def _all(steps: Any) -> list[Any]:
    return [step async for step in steps]


METHODS: dict[str, Callable[[Any, str], Any]] = {
    "exists": lambda fs, p: fs._exists(f"{p}/train/1"),
    "exists of the bucket": lambda fs, p: fs._exists(p),
    "isfile": lambda fs, p: fs._isfile(f"{p}/train/1"),
    "isdir": lambda fs, p: fs._isdir(f"{p}/train"),
    "info": lambda fs, p: fs._info(f"{p}/train/1"),
    "ls": lambda fs, p: fs._ls(f"{p}/train"),
    "walk": lambda fs, p: _all(_steps(fs)(f"{p}/train")),
    "find": lambda fs, p: fs._find(f"{p}/train"),
    "glob": lambda fs, p: fs._glob(f"{p}/train/*"),
    "du": lambda fs, p: fs._du(f"{p}/train"),
    "mkdir": lambda fs, p: fs._mkdir(f"{p}-new"),
    "makedirs": lambda fs, p: fs._makedirs(f"{p}-new", exist_ok=True),
    "rm": lambda fs, p: fs._rm(f"{p}/train", recursive=True),
    "rm_file": lambda fs, p: fs._rm_file(f"{p}/train/1"),
    "cat": lambda fs, p: fs._cat([f"{p}/train/1", f"{p}/train/2"]),
    "cat, omit": lambda fs, p: fs._cat([f"{p}/train/1", f"{p}/train/2"], on_error="omit"),
    "cat_file": lambda fs, p: fs._cat_file(f"{p}/train/1"),
    "cat_ranges": lambda fs, p: fs._cat_ranges([f"{p}/train/1"], [0], [3], on_error="raise"),
    "pipe_file": lambda fs, p: fs._pipe_file(f"{p}/train/new", b"x"),
    "cp_file": lambda fs, p: fs._cp_file(f"{p}/train/1", f"{p}/train/new"),
    "set": lambda fs, p: _set(fs, f"{p}/train/1"),
}


def _steps(fs: Any) -> Any:
    return getattr(fs, "_async_walk", None) or fs._walk


def _set(fs: Any, path: str) -> Any:
    return (fs._setxattrs if hasattr(fs, "_setxattrs") else fs._setxattr)(path, colour="red")


def _anew(cloud: Cloud) -> Any:
    return type(cloud.fs)(**cloud.options, asynchronous=True, skip_instance_cache=True)


async def _closed(fs: Any) -> None:
    client = await fs.set_session() if hasattr(fs, "set_session") else fs.service_client
    await client.close()


@pytest.mark.parametrize("name", METHODS)
def test_a_refusal_is_raised_by_the_async_form(cloud: Cloud, name: str) -> None:
    if cloud.name == "abfs" and name == "makedirs":
        pytest.skip("adlfs makes no directories, and asks for none")
    before = cloud.names(), cloud.containers()
    cloud.refuse()

    async def call() -> None:
        fs = _anew(cloud)
        try:
            await METHODS[name](fs, cloud.bucket)
        finally:
            await _closed(fs)

    with pytest.raises(ThrottledError):
        asyncio.run(call())
    assert (cloud.names(), cloud.containers()) == before


@pytest.mark.parametrize("name", METHODS)
def test_a_cancellation_is_not_swallowed(cloud: Cloud, name: str) -> None:
    if cloud.name == "abfs" and name == "makedirs":
        pytest.skip("adlfs makes no directories, and asks for none")
    cloud.refuse("*", FaultAction.STALL_BEFORE, delay_s=20)

    async def call() -> Any:
        fs = _anew(cloud)
        task = asyncio.ensure_future(METHODS[name](fs, cloud.bucket))
        while not cloud.server.stats().requests and not task.done():
            await asyncio.sleep(0.002)
        task.cancel()
        try:
            return await asyncio.wait_for(task, 10)
        finally:
            await _closed(fs)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call())


def test_making_directories_in_a_bucket_that_is_known_costs_nothing(cloud: Cloud) -> None:
    fs = type(cloud.fs)(**cloud.options, skip_instance_cache=True)
    fs.cat_file(f"{cloud.bucket}/train/1")
    cloud.answer()
    fs.makedirs(f"{cloud.bucket}/some/where", exist_ok=True)
    if cloud.name == "s3":
        fs.mkdir(f"{cloud.bucket}/else/where")
    assert cloud.server.stats().requests == 0


@pytest.mark.parametrize("way", ["ls", "pipe", "open", "exists", "mkdir"])
def test_each_answer_of_a_bucket_makes_it_known(cloud: Cloud, way: str) -> None:
    fs, path = type(cloud.fs)(**cloud.options, skip_instance_cache=True), f"{cloud.bucket}/train/1"
    ways: dict[str, Callable[[], Any]] = {
        "ls": lambda: fs.ls(cloud.bucket),
        "pipe": lambda: fs.pipe_file(path, b"0123456789"),
        "open": lambda: fs.open(path).close(),
        "exists": lambda: fs.exists(cloud.bucket),
        "mkdir": lambda: fs.mkdir(f"{cloud.bucket}/x"),
    }
    ways[way]()
    cloud.answer()
    (fs.mkdir if cloud.name == "s3" else fs.makedirs)(f"{cloud.bucket}/some/where")
    assert cloud.server.stats().requests == 0


def test_a_bucket_that_is_gone_is_made_again(cloud: Cloud) -> None:
    if cloud.name == "abfs":
        pytest.skip("adlfs makes no directories, and asks for none")
    fs = type(cloud.fs)(**cloud.options, skip_instance_cache=True)
    fs.mkdir("other")
    fs.mkdir("other/x")
    fs.rmdir("other")
    fs.mkdir("other/x")
    assert fs.exists("other")
    cloud.fs.rmdir("other")  # by somebody else
    with pytest.raises(FileNotFoundError):
        fs.pipe_file("other/x", b"")
    fs.mkdir("other/x")
    fs.pipe_file("other/x", b"")
    fs.rm("other/x")
    fs.rmdir("other")
