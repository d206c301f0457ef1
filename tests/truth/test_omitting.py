"""`on_error="omit"` leaves out what is not there, and nothing that was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import fsspec
import pytest

from resilient_io.errors import ThrottledError
from resilient_io.testing import FaultAction, Match

from .conftest import DATA, Cloud

pytestmark = pytest.mark.wire
# A refusal of one object: (status, codes by cloud).
REFUSALS: dict[int, dict[str, str]] = {
    403: {"s3": "AccessDenied", "abfs": "AuthorizationPermissionMismatch"},
    409: {"s3": "OperationAborted", "abfs": "BlobArchived"},
    412: {"s3": "PreconditionFailed", "abfs": "ConditionNotMet"},
    400: {"s3": "InvalidRequest", "abfs": "InvalidInput"},
    503: {"s3": "SlowDown", "abfs": "ServerBusy"},
}


async def cat_async(cloud: Cloud, paths: Any) -> Any:
    options: dict[str, Any] = {**cloud.options, "asynchronous": True, "skip_instance_cache": True}
    fs = type(cloud.fs)(**options)
    try:
        return await fs._cat(paths, on_error="omit")
    finally:
        if cloud.name == "abfs":
            await fs.service_client.close()
        else:
            await fs._s3.close()


# Each is called with a cloud and asks for train/1, which is refused, train/2 and, but for the pattern, train/no.
ASKING: dict[str, Callable[[Cloud], Any]] = {
    "cat": lambda c: c.fs.cat([f"{c.bucket}/train/{x}" for x in (1, 2, "no")], on_error="omit"),
    "cat of a pattern": lambda c: c.fs.cat(f"{c.bucket}/train/*", on_error="omit"),
    "cat of a tree": lambda c: c.fs.cat(f"{c.bucket}/train", recursive=True, on_error="omit"),
    "cat of a bucket": lambda c: c.fs.cat(c.bucket, recursive=True, on_error="omit"),
    "cat, async": lambda c: asyncio.run(cat_async(c, [f"{c.bucket}/train/{x}" for x in (1, 2, "no")])),
    "map": lambda c: c.fs.get_mapper(f"{c.bucket}/train").getitems(["1", "2", "no"], on_error="omit"),
    "map above a folder": lambda c: (
        fsspec.filesystem("dir", path=c.bucket, fs=c.fs).get_mapper("train").getitems(["1", "2", "no"], on_error="omit")
    ),
}


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("status", REFUSALS)
def test_omit_does_not_leave_out_what_was_refused(cloud: Cloud, status: int, name: str) -> None:
    code = REFUSALS[status][cloud.name]
    refused = Match(op="GetObject" if cloud.name == "s3" else "GetBlob", key="train/1")
    cloud.refuse(action=FaultAction.ERROR, match=refused, status=status, code=code)
    with pytest.raises(ThrottledError if status == 503 else Exception) as caught:
        ASKING[name](cloud)
    assert not isinstance(caught.value, (FileNotFoundError, KeyError))
    assert cloud.server.stats().count(status=status) >= 1


@pytest.mark.parametrize("name", ASKING)
def test_omit_leaves_out_what_is_not_there(cloud: Cloud, name: str) -> None:
    found = ASKING[name](cloud)
    objects = {key.rpartition("train/")[2]: data for key, data in found.items()}
    assert objects["1"] == objects["2"] == DATA
    assert "no" not in objects
    assert all(data == DATA for data in found.values())


def test_a_switched_off_library_omits_as_fsspec_does(cloud: Cloud) -> None:
    fs = type(cloud.fs)(**{**cloud.options, "resilience": False}, skip_instance_cache=True)
    op = "GetObject" if cloud.name == "s3" else "GetBlob"
    code = REFUSALS[403][cloud.name]
    cloud.refuse(action=FaultAction.ERROR, match=Match(op=op, key="train/1"), status=403, code=code)
    assert list(fs.cat([f"{cloud.bucket}/train/{x}" for x in (1, 2)], on_error="omit")) == [f"{cloud.bucket}/train/2"]
    assert list(fs.get_mapper(f"{cloud.bucket}/train").getitems(["1", "2"], on_error="omit")) == ["2"]


def test_a_map_of_another_filesystem_is_as_it_was() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/omitting/1", DATA)
    fs.mkdir("/omitting/2")
    assert fs.get_mapper("/omitting").getitems(["1", "2", "no"], on_error="omit") == {"1": DATA}
