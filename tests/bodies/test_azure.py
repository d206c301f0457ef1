"""The body of a blob is what was asked for, whole and of one version, or an error: sync and aio clients, and adlfs."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("azure.storage.blob")

from azure.core.exceptions import AzureError
from azure.storage.blob import BlobServiceClient

import resilient_io as rio
from resilient_io import report
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import ObjectChanged, ResilientIOError

from .azure_clients import CHECKING_MODES, MODES, Clients, Read, where
from .odd_store import Ask, OddStore, Reply, odd_store
from .stalls import must_not_wait_for_a_stall

pytestmark = pytest.mark.wire
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 3, "retry_budget_burst": 1000,
}  # fmt: skip
DATA = random.Random(8).randbytes(300_000)
RANGES: dict[str, tuple[int | None, int | None]] = {
    "whole": (None, None), "head": (0, 1000), "middle": (1000, 200_000), "open end": (1000, None),
}  # fmt: skip
UNREADABLE = [
    "bytes {first}-{last}/*", "bytes {first}-{last}", "bytes={first}-{last}/{size}", "bytes zz", "bytes */{size}",
    "bytes {first}-{last}/123", "bytes {last}-{first}/{size}",
]  # fmt: skip
each_range = pytest.mark.parametrize("asked", RANGES)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[OddStore, Clients]]:
    with odd_store(DATA) as store:
        clients = Clients(store.url, POLICY)
        yield store, clients
        clients.close()


@pytest.fixture
def store(running: tuple[OddStore, Clients]) -> Iterator[OddStore]:
    runtimes.reset()
    running[0].begin_anew(DATA)
    yield running[0]
    rio.policy.reset()


@pytest.fixture(params=[*MODES, *CHECKING_MODES])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def read(running: tuple[OddStore, Clients], store: OddStore, mode: str) -> Read:
    return running[1].reader(mode)


def expected(asked: str) -> bytes:
    return DATA[slice(*RANGES[asked])]


def told(store: OddStore, first: int, end: int) -> Reply:
    """A 206 of these bytes."""
    end = min(end, len(DATA))
    says = f"bytes {first}-{end - 1}/{len(DATA)}"
    headers = {"ETag": store.etag, "Content-Length": str(end - first), "Content-Range": says}
    return Reply(status=206, headers=headers, pieces=[DATA[first:end]])


def whole(store: OddStore, **headers: str | None) -> Reply:
    """A 200 of the whole blob."""
    found = {"ETag": store.etag, "Content-Length": str(len(DATA)), **headers}
    return Reply(headers=found, pieces=[DATA])


@each_range
def test_a_sound_body_costs_one_request(store: OddStore, read: Read, asked: str) -> None:
    assert read(*RANGES[asked]) == expected(asked)
    assert len(store.asks) == 1


@each_range
def test_the_wrong_range_is_not_data(store: OddStore, read: Read, asked: str) -> None:
    store.how = lambda ask: told(store, 7, 1007) if ask.number == 1 else None
    assert read(*RANGES[asked]) == expected(asked)
    store.begin_anew(DATA, lambda ask: told(store, 7, 1007))
    with pytest.raises((AzureError, ResilientIOError), match="wrong-range"):
        read(*RANGES[asked])
    assert len(store.asks) == 3


def saying(store: OddStore, says: str) -> Callable[[Ask], Reply]:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        reply.status = 206
        reply.headers["Content-Range"] = says.format(first=ask.first, last=ask.end - 1, size=len(DATA))
        return reply

    return how


@each_range
@pytest.mark.parametrize("says", UNREADABLE)
def test_a_content_range_that_cannot_be_read_is_not_short_data(
    store: OddStore, read: Read, asked: str, says: str
) -> None:
    """The SDK itself reads some of them below its retry policy, and ends in a ValueError or an IndexError."""
    wrong = saying(store, says)
    store.how = lambda ask: wrong(ask) if ask.number == 1 else None
    assert read(*RANGES[asked]) == expected(asked)
    store.begin_anew(DATA, wrong)
    with pytest.raises((AzureError, ResilientIOError), match="wrong-range"):
        read(*RANGES[asked])
    assert len(store.asks) == 3


@each_range
def test_a_short_range_is_not_the_end(store: OddStore, read: Read, asked: str) -> None:
    store.how = lambda ask: told(store, ask.first, ask.first + 500) if ask.number == 1 else None
    assert read(*RANGES[asked]) == expected(asked)
    assert [ask.first for ask in store.asks] == [RANGES[asked][0] or 0, (RANGES[asked][0] or 0) + 500]
    assert store.asks[1].headers["if-match"] == store.etag


@each_range
def test_the_whole_blob_for_a_range_is_cut(store: OddStore, read: Read, asked: str) -> None:
    """The stock SDK ends in a ValueError."""
    store.how = lambda ask: whole(store)
    assert read(*RANGES[asked]) == expected(asked)


@pytest.mark.parametrize("what", ["error", "empty"])
def test_an_answer_without_etag_is_not_a_blob(store: OddStore, read: Read, what: str) -> None:
    body = b"<?xml version='1.0'?><Error><Code>ServerBusy</Code></Error>" if what == "error" else b""

    def how(ask: Ask) -> Reply | None:
        headers: dict[str, str | None] = {"Content-Length": str(len(body)), "Content-Type": "application/xml"}
        return Reply(headers=headers, pieces=[body]) if ask.number <= fails else None

    fails = 2
    store.how = how
    assert read() == DATA
    assert len(store.asks) == 3
    store.begin_anew(DATA, how)
    fails = 100
    with pytest.raises((AzureError, ResilientIOError)):
        read()
    assert len(store.asks) == 3


@pytest.mark.parametrize("mode", MODES)
def test_progress_forgets_the_faults(store: OddStore, read: Read) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        reply.pieces = [DATA[ask.first : ask.first + 40_000]]
        return reply

    store.how = how
    assert read(policy={"max_attempts": 2}) == DATA
    assert len(store.asks) == 8


def without_length(store: OddStore, keep: int | None = None) -> Callable[[Ask], Reply]:
    """A part without the size of the blob would be refused by the SDK, so the length of a later range is left out."""

    def how(ask: Ask) -> Reply:
        if ask.first == 0:
            return store.sound(ask)
        reply = store.sound(ask)
        if reply.status == 416:
            return reply
        reply.headers.update({"Content-Length": None, "Content-Range": None})
        reply.status, reply.pieces = 200, [DATA[: keep if len(store.asks) == 2 else None]]
        return reply

    return how


@pytest.mark.parametrize("keep", [None, 150_000])
def test_a_body_without_length_is_reported_and_not_cut(
    store: OddStore, running: tuple[OddStore, Clients], keep: int | None
) -> None:
    store.how = without_length(store, keep)
    ranges = {"max_single_get_size": 100_000, "max_chunk_get_size": 200_000}
    clients = _sized(running[0], ranges)
    assert clients() == DATA
    assert sum(scope.unverified for scope in report().scopes if scope.leaf) == 1


def test_a_body_without_length_fails_under_strict(store: OddStore, running: tuple[OddStore, Clients]) -> None:
    store.how = without_length(store)
    ranges = {"max_single_get_size": 100_000, "max_chunk_get_size": 200_000}
    with pytest.raises(AzureError, match="unverifiable-body"):
        _sized(running[0], ranges, verify="strict")()


def _sized(store: OddStore, ranges: dict[str, int], **policy: object) -> Callable[[], bytes]:
    made: dict[str, Any] = {**rio.azure.client_kwargs({**POLICY, **policy}), **ranges}
    client = BlobServiceClient(f"{store.url}/acct", **made)
    return lambda: bytes(client.get_blob_client("c", "train/000001").download_blob().readall())


@pytest.mark.parametrize("dies", [False, True], ids=["one answer", "spliced"])
def test_the_md5_of_a_whole_blob_is_compared_under_strict(store: OddStore, read: Read, dies: bool) -> None:
    md5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    damaged = bytearray(DATA)
    damaged[250_000] ^= 1

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **{"x-ms-blob-content-md5": md5})
        if ask.number == 1 and dies:
            reply.pieces = [DATA[:1000]]
        elif ask.number == 1 + dies:
            reply.pieces = [bytes(damaged[ask.first : ask.end])]
        return reply

    store.how = how
    assert read(policy={"verify": "strict"}) == DATA
    assert len(store.asks) == 2 + dies
    store.begin_anew(DATA, lambda ask: Reply(**vars(how(ask)) | {"pieces": [bytes(damaged[ask.first : ask.end])]}))
    with pytest.raises((AzureError, ResilientIOError), match="checksum"):
        read(policy={"verify": "strict"})
    assert len(store.asks) == 3, "what is read for the second time is no progress"
    store.begin_anew(DATA, how)
    assert read(0, 1000, policy={"verify": "strict"}) == DATA[:1000], "a part has no such MD5"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_md5_of_a_blob_in_parallel_ranges_is_compared_under_strict(store: OddStore, is_damaged: bool) -> None:
    md5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    damaged = bytearray(DATA)
    damaged[250_000] ^= is_damaged

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **{"x-ms-blob-content-md5": md5})
        if ask.number <= breaks:
            reply.pieces = [bytes(damaged[ask.first : ask.end])]
        return reply

    fs = ResilientAzureBlobFileSystem(
        connection_string=where(store.url),
        skip_instance_cache=True,
        blocksize=100_000,
        resilience={**POLICY, "verify": "strict"},
    )
    breaks = 3
    store.how = how
    assert fs.cat_file("c/train/000001") == DATA
    assert len(store.asks) == (6 if is_damaged else 3)
    if is_damaged:
        breaks = 100
        store.begin_anew(DATA, how)
        with pytest.raises(ResilientIOError, match="checksum"):
            fs.cat_file("c/train/000001")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pause_s", [0.02, 30.0], ids=["trickle", "silence"])
def test_a_body_that_stalls_is_not_waited_for(store: OddStore, read: Read, pause_s: float) -> None:
    must_not_wait_for_a_stall(store, read, DATA, pause_s)


@pytest.mark.parametrize("on_error", ["return", "raise"])
@pytest.mark.parametrize("other", [(200_000, 200_010), (None, None), (299_000, None)], ids=["range", "whole", "tail"])
def test_ranges_of_one_call_are_not_of_two_versions(
    running: tuple[OddStore, Clients], store: OddStore, on_error: str, other: tuple[int | None, int | None]
) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if ask.number == 1:
            store.etag = '"two"'
        return reply

    def ask() -> list[Any]:
        rio.configure(**POLICY)
        paths = ["c/train/000001"] * 2
        return list(running[1].fs.cat_ranges(paths, [0, other[0]], [10, other[1]], max_gap=0, on_error=on_error))

    store.how = how
    if on_error == "raise":
        with pytest.raises(ObjectChanged):
            ask()
    else:
        assert sorted(type(each).__name__ for each in ask()) == ["ObjectChanged", "bytes"]
    store.begin_anew(DATA)
    assert ask() == [DATA[:10], DATA[slice(*other)]]
    assert ask() == [DATA[:10], DATA[slice(*other)]]


@pytest.mark.parametrize("mode", MODES)
def test_an_encoded_body_that_always_dies_is_not_read_for_ever(store: OddStore, read: Read) -> None:
    """Its pieces cannot be kept: what comes since it began anew is no progress."""
    packed = gzip.compress(DATA)

    def how(ask: Ask) -> Reply:
        says = f"bytes 0-{len(packed) - 1}/{len(packed)}"
        headers: dict[str, str | None] = {
            "ETag": store.etag, "Content-Length": str(len(packed)), "Content-Encoding": "gzip", "Content-Range": says,
        }  # fmt: skip
        return Reply(status=206, headers=headers, pieces=[packed[:100_000]])

    store.how = how
    with pytest.raises((AzureError, ResilientIOError)):
        read()
    assert len(store.asks) == 3
