"""The command that finds uploads which nobody completed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from resilient_io import cli
from resilient_io.testing import FaultAction

pytestmark = pytest.mark.wire
DAY_S = 86_400


@pytest.fixture
def uploads(s3_store: Any) -> Any:
    """Return a store with uploads of 3 and 1 days, and of now, one of them elsewhere."""
    objects = s3_store.server._engine.backend.objects
    for key, days in (("ckpt/a", 3), ("ckpt/b", 1), ("ckpt/c", 0), ("other/d", 9)):
        name = objects.start_upload("b", key, ())
        objects.uploads[name].started_s = int(time.time()) - days * DAY_S
    return s3_store


@pytest.fixture
def mpu(s3_store: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return the command: exit status, what it printed, and what it complained of."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["mpu", *arguments, "--endpoint-url", s3_store.server.url])
        return (status, *capsys.readouterr())

    return run


def keys_left(store: Any) -> list[str]:
    return sorted(upload.key for upload in store.server._engine.backend.objects.uploads.values())


def test_ls_shows_what_is_open_and_changes_nothing(uploads: Any, mpu: Any) -> None:
    status, told, _ = mpu("ls", "s3://b/ckpt/")
    assert status == 0
    assert [line.split()[4] for line in told.splitlines()[:-1]] == ["s3://b/ckpt/a", "s3://b/ckpt/b", "s3://b/ckpt/c"]
    assert "3.0 d" in told
    assert told.endswith("3 uploads open\n")
    status, told, _ = mpu("ls", "rs3://b", "--older-than", "2d", "--json")
    found = json.loads(told)
    assert status == 0
    assert [(one["key"], one["age_s"] // DAY_S) for one in found["uploads"]] == [("ckpt/a", 3), ("other/d", 9)]
    assert len(keys_left(uploads)) == 4


def test_ls_counts_what_they_hold(uploads: Any, mpu: Any) -> None:
    objects = uploads.server._engine.backend.objects
    boto3 = pytest.importorskip("boto3")
    name = next(name for name, one in objects.uploads.items() if one.key == "ckpt/a")
    client = boto3.client("s3", endpoint_url=uploads.server.url)
    for number in (1, 2):
        client.upload_part(Bucket="b", Key="ckpt/a", UploadId=name, PartNumber=number, Body=bytes(1000))
    _, told, _ = mpu("ls", "s3://b/ckpt/", "--parts")
    assert "2 parts, 2,000 bytes" in told
    assert told.endswith("3 uploads open, with 2,000 bytes\n")


def test_abort_ends_the_old_ones_alone(uploads: Any, mpu: Any) -> None:
    status, told, _ = mpu("abort", "--older-than", "2d", "s3://b/ckpt")
    assert status == 0
    assert told.endswith("1 of 1 uploads aborted\n")
    assert keys_left(uploads) == ["ckpt/b", "ckpt/c", "other/d"]
    status, told, _ = mpu("abort", "--older-than", "12h", "s3://b/", "--json")
    assert [one["aborted"] for one in json.loads(told)["uploads"]] == [True, True]
    assert keys_left(uploads) == ["ckpt/c"]


def test_abort_without_an_age_is_refused(uploads: Any, mpu: Any) -> None:
    status, _, told = mpu("abort", "s3://b/ckpt")
    assert status == 2
    assert "abort needs --older-than" in told
    assert len(keys_left(uploads)) == 4


def test_an_abort_that_fails_is_told(uploads: Any, mpu: Any) -> None:
    uploads.break_it("AbortMultipartUpload", status=403, code="AccessDenied")
    status, told, _ = mpu("abort", "--older-than", "2d", "s3://b/ckpt")
    assert status == 1
    assert "NOT ABORTED: An error occurred (AccessDenied)" in told
    assert "0 of 1 uploads aborted" in told
    status, told, _ = mpu("abort", "--older-than", "2d", "s3://b/ckpt", "--json")
    assert status == 1
    assert json.loads(told)["uploads"][0]["aborted"] is False


def test_a_throttled_listing_is_survived_and_a_lost_abort_is_done(uploads: Any, mpu: Any, fast_clock: Any) -> None:
    uploads.break_it("ListMultipartUploads", calls=(1, 2))
    assert mpu("ls", "s3://b")[0] == 0
    uploads.break_it("AbortMultipartUpload", FaultAction.RESET_AFTER, calls=(1,))
    assert mpu("abort", "--older-than", "2d", "s3://b/ckpt")[0] == 0
    assert keys_left(uploads) == ["ckpt/b", "ckpt/c", "other/d"]


@pytest.mark.parametrize("url", ["abfs://box/ckpt", "az://box", "https://account.blob.core.windows.net/box"])
def test_azure_has_none(s3_store: Any, mpu: Any, url: str) -> None:
    status, told, _ = mpu("abort", url)
    assert status == 0
    assert "a week after the last one was sent" in told
    assert json.loads(mpu("ls", url, "--json")[1])["uploads"] == []
    assert not s3_store.sent()


@pytest.mark.parametrize(
    ("url", "said"), [("ckpt", "no URL of a bucket"), ("gs://b/c", "no URL"), ("s3:///key", "names no bucket")]
)
def test_what_is_no_bucket_is_named(mpu: Any, url: str, said: str) -> None:
    status, _, told = mpu("ls", url)
    assert status == 2
    assert said in told


def test_a_bucket_that_is_not_there_is_named(s3_store: Any, mpu: Any) -> None:
    status, _, told = mpu("ls", "s3://none/x")
    assert status == 2
    assert "NoSuchBucket" in told
