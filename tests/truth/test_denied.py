"""A 403 is no absence and no success: PermissionError, from either cloud, in both forms and through every layer."""

from __future__ import annotations

import asyncio
import copy
import errno
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.testing import FaultAction, Match

from .conftest import Cloud

pytestmark = pytest.mark.wire
CODES = {"s3": ["AccessDenied"], "abfs": ["AuthorizationFailure", "AuthorizationPermissionMismatch"]}


def write(fs: Any, path: str) -> None:
    with fs.open(path, "wb") as file:
        file.write(b"1")


# Each with a filesystem and a bucket; the path of what is there is `train/1`.
SYNC: dict[str, Callable[[Any, str], Any]] = {
    "exists": lambda fs, b: fs.exists(f"{b}/train/1"),
    "exists of nothing": lambda fs, b: fs.exists(f"{b}/no"),
    "exists of a bucket": lambda fs, b: fs.exists(b),
    "isfile": lambda fs, b: fs.isfile(f"{b}/train/1"),
    "isfile of nothing": lambda fs, b: fs.isfile(f"{b}/no"),
    "isdir": lambda fs, b: fs.isdir(f"{b}/train"),
    "isdir of a bucket": lambda fs, b: fs.isdir(b),
    "info": lambda fs, b: fs.info(f"{b}/train/1"),
    "info of a bucket": lambda fs, b: fs.info(b),
    "size": lambda fs, b: fs.size(f"{b}/train/1"),
    "ls": lambda fs, b: fs.ls(f"{b}/train"),
    "walk": lambda fs, b: list(fs.walk(b)),
    "walk of a folder": lambda fs, b: list(fs.walk(f"{b}/train")),
    "find": lambda fs, b: fs.find(b),
    "glob": lambda fs, b: fs.glob(f"{b}/*"),
    "du": lambda fs, b: fs.du(b),
    "mkdir": lambda fs, b: fs.mkdir(f"{b}-new"),
    "rm": lambda fs, b: fs.rm(f"{b}/train/1"),
    "rm of a tree": lambda fs, b: fs.rm(f"{b}/train", recursive=True),
    "rm_file": lambda fs, b: fs.rm_file(f"{b}/train/1"),
    "rmdir": lambda fs, b: fs.rmdir(b),
    "cat": lambda fs, b: fs.cat_file(f"{b}/train/1"),
    "cat, omit": lambda fs, b: fs.cat([f"{b}/train/1", f"{b}/train/2"], on_error="omit"),
    "open": lambda fs, b: fs.open(f"{b}/train/1").read(),
    "write": lambda fs, b: write(fs, f"{b}/new"),
    "touch": lambda fs, b: fs.touch(f"{b}/new"),
    "pipe": lambda fs, b: fs.pipe_file(f"{b}/new", b"1"),
    "copy": lambda fs, b: fs.cp_file(f"{b}/train/1", f"{b}/new"),
}


def deny(cloud: Cloud, number: int = 0, **rule: Any) -> None:
    codes = CODES[cloud.name]
    cloud.refuse(action=FaultAction.ERROR, status=403, code=codes[number % len(codes)], **rule)


@pytest.mark.parametrize("name", SYNC)
def test_isfile_said_false_and_mkdir_only_warned_where_access_is_denied(cloud: Cloud, name: str) -> None:
    before = cloud.names(), cloud.containers()
    deny(cloud, len(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PermissionError) as caught:
            SYNC[name](cloud.fs, cloud.bucket)
    assert not isinstance(caught.value, FileNotFoundError)
    assert cloud.server.stats().count(status=403) >= 1
    assert (cloud.names(), cloud.containers()) == before


@pytest.mark.parametrize("name", ["write", "pipe", "cat", "open", "info", "rm_file", "ls", "copy"])
def test_a_permission_error_named_neither_operation_nor_path_nor_cure(cloud: Cloud, name: str) -> None:
    deny(cloud)
    with pytest.raises(PermissionError) as caught:
        SYNC[name](cloud.fs, cloud.bucket)
    error: Any = caught.value
    assert error.errno == errno.EACCES
    for again in (error, pickle.loads(pickle.dumps(error))):
        assert "the service does not allow this (403)" in str(again)
        assert "; try: give the credentials" in str(again)
    if cloud.name == "s3":
        assert f" {cloud.bucket}" in str(error)
        assert (error.verdict.kind, error.attempts) == ("fatal", 1)
        assert error.__cause__ is not None


def test_mkdir_below_a_container_that_may_not_be_asked_for_failed(cloud: Cloud) -> None:
    """A SAS for blobs: pyarrow makes a directory before it writes, which adlfs does not send."""
    if cloud.name == "s3":
        pytest.skip("s3fs raises, too")
    deny(cloud)
    cloud.fs.mkdir(f"{cloud.bucket}/x")
    with pytest.raises(PermissionError):
        cloud.fs.mkdir(f"{cloud.bucket}/x", create_parents=False)


def test_makedirs_of_a_bucket_that_may_not_be_made_is_no_success(cloud: Cloud) -> None:
    if cloud.name == "abfs":
        pytest.skip("adlfs has no makedirs: fsspec's does and asks nothing")
    deny(cloud)
    with pytest.raises(PermissionError):
        cloud.fs.makedirs(f"{cloud.bucket}-new", exist_ok=True)


ASYNC = ["exists", "isfile", "isdir", "info", "ls", "find", "du", "rm", "mkdir", "cat_file"]


@pytest.mark.parametrize("name", ASYNC)
def test_the_async_form_raises_it_too(cloud: Cloud, name: str) -> None:
    deny(cloud)
    path = f"{cloud.bucket}-new" if name == "mkdir" else f"{cloud.bucket}/train/1"
    with pytest.raises(PermissionError):
        asyncio.run_coroutine_threadsafe(getattr(cloud.fs, f"_{name}")(path), cloud.fs.loop).result(60)


@pytest.mark.parametrize("kind", ["dir", "simplecache", "blockcache"])
@pytest.mark.parametrize("name", ["exists", "isfile", "isdir", "cat_file"])
def test_it_is_raised_through_every_layer(cloud: Cloud, above: Any, kind: str, name: str) -> None:
    fs, path = above(kind)
    deny(cloud)
    with pytest.raises(PermissionError):
        getattr(fs, name)(f"{path}/1" if name != "isdir" else path)


def test_the_error_is_also_what_the_clouds_own_filesystem_raises(cloud: Cloud) -> None:
    deny(cloud)
    with pytest.raises(PermissionError) as caught:
        cloud.fs.info(f"{cloud.bucket}/train/1")
    if cloud.name == "abfs":
        from azure.core.exceptions import HttpResponseError

        error: Any = caught.value
        assert isinstance(error, HttpResponseError)
        assert isinstance(error.__cause__, HttpResponseError)
        for twin in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (twin.status_code, twin.error_code, twin.errno) == (403, CODES["abfs"][0], 13)
            assert "request id" in str(twin)
            assert cloud.bucket in str(twin)
        assert str(type(error)("text")) == "text"


def test_what_one_path_may_not_see_does_not_hide_the_others(cloud: Cloud) -> None:
    one = "GetObject" if cloud.name == "s3" else "GetBlob"
    deny(cloud, match=Match(op=one, key="train/1"))
    paths = [f"{cloud.bucket}/train/{number}" for number in (1, 2)]
    found = cloud.fs.cat(paths, on_error="return")
    assert isinstance(found[paths[0]], PermissionError)
    assert found[paths[1]] == b"0123456789"


def test_an_absence_is_no_denial(cloud: Cloud) -> None:
    fs, bucket = cloud.fs, cloud.bucket
    assert fs.exists(f"{bucket}/no") is fs.isfile(f"{bucket}/no") is fs.isdir(f"{bucket}/no") is False
    assert fs.exists(f"{bucket}-no") is False
    assert fs.isfile(f"{bucket}/train/1") is fs.isdir(f"{bucket}/train") is True


def test_a_container_that_is_assumed_to_exist_is_not_asked_for(cloud: Cloud) -> None:
    if cloud.name == "s3":
        pytest.skip("an option of adlfs")
    fs = type(cloud.fs)(**cloud.options, assume_container_exists=True, skip_instance_cache=True)
    deny(cloud)
    fs.mkdir(f"{cloud.bucket}/x")
    assert fs.exists(cloud.bucket)
    assert not cloud.server.log()


def test_switched_off_it_is_stock(cloud: Cloud) -> None:
    fs = type(cloud.fs)(**{**cloud.options, "resilience": False}, skip_instance_cache=True)
    deny(cloud)
    assert fs.isfile(f"{cloud.bucket}/train/1") is False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fs.exists(cloud.bucket) is (cloud.name == "abfs")
    with pytest.raises(Exception, match=r"Forbidden|Authorization") as caught:
        fs.info(f"{cloud.bucket}/train/1")
    assert isinstance(caught.value, PermissionError) is (cloud.name == "s3")
