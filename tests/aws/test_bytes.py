"""What a scope moves is counted, and held at a rate that was given."""

from __future__ import annotations

import time
from typing import Any

import boto3
import pytest

import resilient_io as rio
from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.aws.hooks import harden
from resilient_io.testing import FaultServer

from .conftest import BUCKET

KIB = 1024


def moved(op_class: str) -> int:
    return sum(one.moved_bytes for one in rio.report().scopes if one.leaf and one.op_class == op_class)


@pytest.fixture(params=["s3fs", "boto3"])
def surface(request: pytest.FixtureRequest, store: FaultServer) -> Any:
    """Return the two doors' ways to write and to read an object: `write(key, body)`, `read(key)`."""
    if request.param == "boto3":
        client = harden(boto3.client("s3", endpoint_url=store.url))
        return (
            lambda key, body: client.put_object(Bucket=BUCKET, Key=key, Body=body),
            lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read(),
        )
    fs = ResilientS3FileSystem(endpoint_url=store.url, skip_instance_cache=True, use_listings_cache=False)
    return (lambda key, body: fs.pipe_file(f"{BUCKET}/{key}", body), lambda key: fs.cat_file(f"{BUCKET}/{key}"))


def test_the_bytes_of_reads_and_of_writes_are_reported(surface: Any) -> None:
    """Apart, by the lengths that the headers tell."""
    write, read = surface
    write("flow/a", b"x" * 300 * KIB)
    assert read("flow/a") == b"x" * 300 * KIB
    assert (moved("write"), moved("read")) == (300 * KIB, 300 * KIB)


def test_given_bytes_a_second_hold_reads_back(store: FaultServer) -> None:
    """A tenth of a second's bytes are free, the rest takes its time; counted by the clock from below only."""
    fs = ResilientS3FileSystem(
        endpoint_url=store.url, skip_instance_cache=True, resilience={"bytes_per_s": 20_000_000.0}
    )
    fs.pipe_file(f"{BUCKET}/flow/b", b"x" * 1_000_000)
    began = time.monotonic()
    for _ in range(5):
        fs.cat_file(f"{BUCKET}/flow/b")
    assert time.monotonic() - began >= (4 * 1_000_000 - 2_000_000) / 20_000_000 * 0.9
