"""What comes from a socket in small pieces, as with TLS, does not go through all layers of the client for each."""

from __future__ import annotations

import base64
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from azure.storage.blob import BlobClient

import resilient_io as rio
from resilient_io.drive import runtime as runtimes

from .odd_store import Ask, OddStore, Reply, odd_store

pytestmark = pytest.mark.wire
DATA = random.Random(9).randbytes(2**20)
PIECE_BYTES = 2**14
KEY = base64.b64encode(b"key").decode()


@pytest.fixture
def store() -> Iterator[OddStore]:
    """One that sends 16 KiB at a time, with a pause between, so that each is a read of the socket."""
    runtimes.reset()

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        parts = [DATA[at : min(at + PIECE_BYTES, ask.end)] for at in range(ask.first, ask.end, PIECE_BYTES)]
        reply.pieces = [each for part in parts for each in (part, 0.001)]
        return reply

    with odd_store(DATA, how) as store:
        yield store


def of_boto3(store: OddStore, ours: bool) -> Callable[[], bytes]:
    made = {"endpoint_url": store.url, "aws_access_key_id": "k", "aws_secret_access_key": "s"}
    client = boto3.session.Session().client("s3", region_name="us-east-1", **made)  # type: ignore[call-overload]
    client = rio.harden(client) if ours else client
    body = client.get_object(Bucket="b", Key="train/000001")["Body"]
    return lambda: b"".join(iter(lambda: body.read(2**18), b""))


def of_azure(store: OddStore, ours: bool) -> Callable[[], bytes]:
    where = f"DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={KEY};BlobEndpoint={store.url}/acct;"
    client = BlobClient.from_connection_string(where, "c", "train/000001")
    client = rio.harden(client) if ours else client
    return lambda: bytes(client.download_blob().readall())


def calls_during(read: Callable[[], bytes], named: str = "") -> tuple[bytes, int]:
    """Return what a read brings, and how many functions it called: all, or those of this name."""
    calls = 0

    def note(frame: Any, event: str, argument: object) -> None:
        nonlocal calls
        if named:
            calls += event == "call" and frame.f_code.co_name == named
        else:
            calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        return read(), calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("opened", [of_boto3, of_azure])
def test_a_body_that_comes_in_small_pieces_costs_hardly_more_calls_than_stock(
    store: OddStore, opened: Callable[[OddStore, bool], Callable[[], bytes]]
) -> None:
    for ours in (False, True):
        opened(store, ours)()  # connections, imports
    stock, ours = (calls_during(opened(store, hardened)) for hardened in (False, True))
    assert stock[0] == ours[0] == DATA
    assert ours[1] < 1.3 * stock[1]


def test_a_range_that_the_sdk_of_azure_joins_is_one_piece(store: OddStore) -> None:
    of_azure(store, ours=True)()
    store.asks.clear()
    data, reads = calls_during(of_azure(store, ours=True), named="_raw_read")
    assert data == DATA
    assert len(store.asks) == reads == 1


def test_a_body_that_is_read_at_once_takes_its_memory_once(store: OddStore) -> None:
    size = 2**23
    store.begin_anew(bytes(size))
    client = boto3.session.Session().client(
        "s3", endpoint_url=store.url, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )
    body = rio.harden(client).get_object(Bucket="b", Key="train/000001")["Body"]
    tracemalloc.start()
    try:
        assert len(body.read()) == size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * size
