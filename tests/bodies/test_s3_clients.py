"""The body of a hardened client's get_object is what was asked for, whole and of one version, or an error."""

from __future__ import annotations

import asyncio
import base64
import io
import pickle
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import aiobotocore.session
import boto3
import pytest
from aiobotocore.response import StreamingBody as AioStreamingBody
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError
from botocore.response import StreamingBody

import resilient_io as rio
from resilient_io import classify, report
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import ObjectChanged

from .odd_store import Ask, OddStore, Reply, odd_store
from .stalls import must_not_wait_for_a_stall

pytestmark = pytest.mark.wire
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 3, "retry_budget_burst": 1000,
}  # fmt: skip
DATA = random.Random(7).randbytes(300_000)
WHERE = {"Bucket": "b", "Key": "train/000001"}
MODES = ["sync", "aio"]
RANGES: dict[str, tuple[str | None, slice]] = {
    "whole": (None, slice(None)),
    "head": ("bytes=0-999", slice(0, 1000)),
    "middle": ("bytes=1000-199999", slice(1000, 200_000)),
    "open end": ("bytes=1000-", slice(1000, None)),
    "tail": ("bytes=-1000", slice(-1000, None)),
}
each_range = pytest.mark.parametrize("asked", RANGES)
Read = Callable[..., bytes]


class Clients:
    """A sync and an async client of one store, hardened anew for each policy."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        made = {"endpoint_url": url, "aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        self._sync = boto3.session.Session().client("s3", **made)  # type: ignore[call-overload]
        self._context = aiobotocore.session.get_session().create_client("s3", **made)
        self._aio = self._loop.run_until_complete(self._context.__aenter__())

    def close(self) -> None:
        self._loop.run_until_complete(self._context.__aexit__(None, None, None))
        self._loop.close()

    def reader(self, mode: str) -> Read:
        return self._read_sync if mode == "sync" else lambda **ask: self._loop.run_until_complete(self._read_aio(**ask))

    def _read_sync(self, policy: Any = None, amt: int | None = None, seen: Any = None, **ask: Any) -> bytes:
        answer = rio.harden(self._sync, {**POLICY, **(policy or {})}).get_object(**WHERE, **ask)
        if seen is not None:
            seen.append(answer)
        if amt is None:
            return bytes(answer["Body"].read())
        return b"".join(iter(lambda: answer["Body"].read(amt), b""))

    async def _read_aio(self, policy: Any = None, amt: int | None = None, seen: Any = None, **ask: Any) -> bytes:
        answer = await rio.harden(self._aio, {**POLICY, **(policy or {})}).get_object(**WHERE, **ask)
        if seen is not None:
            seen.append(answer)
        pieces = [await answer["Body"].read(amt)]
        while amt is not None and pieces[-1]:
            pieces.append(await answer["Body"].read(amt))
        return b"".join(pieces)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[OddStore, Clients]]:
    with odd_store(DATA) as store:
        clients = Clients(store.url)
        yield store, clients
        clients.close()


@pytest.fixture
def store(running: tuple[OddStore, Clients]) -> OddStore:
    runtimes.reset()
    running[0].begin_anew(DATA)
    return running[0]


@pytest.fixture(params=MODES)
def read(running: tuple[OddStore, Clients], store: OddStore, request: pytest.FixtureRequest) -> Read:
    return running[1].reader(request.param)


def _range(asked: str) -> dict[str, str]:
    text = RANGES[asked][0]
    return {} if text is None else {"Range": text}


def told(store: OddStore, first: int, end: int) -> Reply:
    """A 206 of these bytes."""
    says = f"bytes {first}-{end - 1}/{len(store.data)}"
    headers = {"ETag": store.etag, "Content-Length": str(end - first), "Content-Range": says}
    return Reply(status=206, headers=headers, pieces=[store.data[first:end]])


@each_range
@pytest.mark.parametrize("amt", [None, 70_000])
def test_a_sound_body_costs_one_request(store: OddStore, read: Read, asked: str, amt: int | None) -> None:
    seen: list[Any] = []
    assert read(amt=amt, seen=seen, **_range(asked)) == DATA[RANGES[asked][1]]
    assert len(store.asks) == 1
    # By its type: the bodies of aiobotocore before 3.8 are proxies, and say that they are what they wrap.
    assert issubclass(type(seen[0]["Body"]), (StreamingBody, AioStreamingBody))
    assert seen[0]["ContentLength"] == len(DATA[RANGES[asked][1]])


@each_range
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_body_that_dies_goes_on_from_the_next_byte(store: OddStore, read: Read, asked: str, ending: str) -> None:
    def how(ask: Ask) -> Reply | None:
        reply = store.sound(ask)
        if ask.number <= 2:
            reply.pieces, reply.reset = [DATA[ask.first : ask.first + 400], 0.03], ending == "reset"
        return reply

    store.how = how
    assert read(**_range(asked)) == DATA[RANGES[asked][1]]
    first, second, third = store.asks
    assert [second.first - first.first, third.first - second.first] == [400, 400]
    assert second.headers["if-match"] == third.headers["if-match"] == store.etag
    assert second.end == third.end == first.end


def test_progress_forgets_the_faults(store: OddStore, read: Read) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        reply.pieces = [DATA[ask.first : ask.first + 40_000]]
        return reply

    store.how = how
    assert read(policy={"max_attempts": 2}) == DATA
    assert len(store.asks) == 8


def test_a_body_that_never_comes_costs_what_the_policy_says(store: OddStore, read: Read) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        reply.pieces = []
        return reply

    store.how = how
    with pytest.raises(Exception) as raised:  # noqa: PT011  # botocore's or aiohttp's
        read()
    assert raised.value.attempts == len(store.asks) == 3  # type: ignore[attr-defined]
    assert classify(raised.value).retryable is False


def test_a_body_that_failed_does_not_pass_for_one_that_is_over(
    store: OddStore, running: tuple[OddStore, Clients]
) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        reply.headers["Content-Length"] = None if ask.number == 1 else "1000"
        reply.pieces = [DATA[:1000]] if ask.number == 1 else []
        return reply

    store.how = how
    body = rio.harden(running[1]._sync, POLICY).get_object(**WHERE)["Body"]
    assert body.read(1000) == DATA[:1000]
    for _ in range(2):
        with pytest.raises(BotoCoreError):
            body.read(10)


@each_range
def test_the_wrong_range_is_not_data(store: OddStore, read: Read, asked: str) -> None:
    store.how = lambda ask: told(store, 7, 1007) if ask.number == 1 else None
    assert read(**_range(asked)) == DATA[RANGES[asked][1]]
    store.how = lambda ask: told(store, 7, 1007)
    with pytest.raises(BotoCoreError, match="wrong-range"):
        read(**_range(asked))


@each_range
def test_a_short_range_is_not_the_end(store: OddStore, read: Read, asked: str) -> None:
    store.how = lambda ask: told(store, ask.first, ask.first + 500) if ask.number == 1 else None
    seen: list[Any] = []
    assert read(seen=seen, **_range(asked)) == DATA[RANGES[asked][1]]
    assert seen[0]["ContentLength"] == len(DATA[RANGES[asked][1]])


@each_range
def test_the_whole_object_for_a_range_is_cut(store: OddStore, read: Read, asked: str) -> None:
    crc32 = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
    whole = {"ETag": store.etag, "Content-Length": str(len(DATA)), "x-amz-checksum-crc32": crc32}
    store.how = lambda ask: Reply(headers=dict(whole), pieces=[DATA])
    seen: list[Any] = []
    assert read(seen=seen, **_range(asked)) == DATA[RANGES[asked][1]]
    assert seen[0]["ContentLength"] == len(DATA[RANGES[asked][1]])


def test_an_object_of_another_version_is_not_joined(store: OddStore, read: Read) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if ask.number == 1:
            reply.pieces = [DATA[:1000]]
            store.etag = '"two"'
        elif ask.headers.get("if-match") == '"one"' and refuses:
            body = b"<Error><Code>PreconditionFailed</Code></Error>"
            return Reply(status=412, headers={"Content-Length": str(len(body))}, pieces=[body])
        return reply

    for each in (True, False):
        refuses = each
        store.begin_anew(DATA, how)
        with pytest.raises(ClientError, match="replaced while it was being read") as raised:
            read()
        for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
            assert isinstance(error, ObjectChanged)
            assert error.response["Error"]["Code"] == "PreconditionFailed"
            assert error.path == "s3://b/train/000001"


def test_a_checksum_is_compared_over_the_spliced_whole(store: OddStore, read: Read) -> None:
    crc32 = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
    damaged = bytearray(DATA)

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **({} if ask.is_range else {"x-amz-checksum-crc32": crc32}))
        reply.pieces = [DATA[:1000]] if ask.number == 1 else [bytes(damaged[ask.first : ask.end])]
        return reply

    store.how = how
    assert read() == DATA
    store.begin_anew(DATA, how)
    damaged[2000] ^= 1
    with pytest.raises(FlexibleChecksumError):
        read()


def without_length(store: OddStore, keep: int | None = None) -> Callable[[Ask], Reply]:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if reply.status != 416:
            reply.headers["Content-Length"] = None
            reply.pieces = [DATA[ask.first : ask.end][: keep if ask.number == 1 else None]]
        return reply

    return how


@pytest.mark.parametrize("keep", [None, 1000])
def test_a_body_without_length_is_reported_and_not_cut(store: OddStore, read: Read, keep: int | None) -> None:
    store.how = without_length(store, keep)
    assert read() == DATA
    assert [scope.unverified for scope in report().scopes if scope.leaf] == [1]


def test_a_body_without_length_fails_under_strict(store: OddStore, read: Read) -> None:
    store.how = without_length(store)
    with pytest.raises(BotoCoreError, match="no length and no checksum"):
        read(policy={"verify": "strict"})
    assert len(store.asks) == 3


@pytest.mark.parametrize("pause_s", [0.02, 30.0], ids=["trickle", "silence"])
def test_a_body_that_stalls_is_not_waited_for(store: OddStore, read: Read, pause_s: float) -> None:
    must_not_wait_for_a_stall(store, read, DATA, pause_s)


# -- what callers of botocore do with a body ---------------------------------------------------------


def test_all_the_ways_to_read_a_body_work(store: OddStore, running: tuple[OddStore, Clients]) -> None:
    lines = b"".join(b"line\r %d\n" % number for number in range(500)) + b"and no end"
    client = rio.harden(running[1]._sync, POLICY)

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if not ask.is_range:
            reply.pieces = [lines[:1000]]
        return reply

    ways: dict[str, Callable[[Any], Any]] = {
        "read": lambda body: body.read(),
        "iter_chunks": lambda body: b"".join(body.iter_chunks(100)),
        "iter": lambda body: b"".join(body),
        "iter_lines": lambda body: b"".join(body.iter_lines(keepends=True)),
        "readlines": lambda body: b"".join(body.readlines()),
        "with": lambda body: body.__enter__().read(),
        "text": lambda body: io.TextIOWrapper(io.BufferedReader(body), newline="").read().encode(),
        "lines": lambda body: b"".join(iter(body.__enter__().readline, b"")),
        "readinto": lambda body: _read_into(body, len(lines)),
        "stream": lambda body: b"".join(body.__enter__().stream(100)),
    }
    for name, way in ways.items():
        store.begin_anew(lines, how)
        body = client.get_object(**WHERE)["Body"]
        body.set_socket_timeout(5)
        assert way(body) == lines, name
        assert len(store.asks) == 2, name
        body.close()


def _read_into(body: Any, size: int) -> bytes:
    buffer = bytearray(size)
    assert body.readinto(buffer) == size
    return bytes(buffer)


async def _lines(body: Any) -> bytes:
    return b"".join(await body.readlines())


async def _joined(pieces: Any) -> bytes:
    return b"".join([piece async for piece in pieces])


async def _within(body: Any) -> bytes:
    async with body as stream:
        read: bytes = await stream.read()
        return read


async def _in_pieces_within(body: Any) -> bytes:
    async with body as stream:
        return b"".join([piece async for piece in stream.iter_chunks(100)])


async def _read_into_async(body: Any, size: int) -> bytes:
    read, buffer = b"", bytearray(size)
    while count := await body.readinto(buffer):
        read += buffer[:count]
    return read


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize("name", "read iter_chunks iter iter_lines readlines readinto with within".split())
def test_all_the_ways_to_read_an_async_body_are_checked(
    store: OddStore, running: tuple[OddStore, Clients], name: str, is_damaged: bool
) -> None:
    """`async with` gave the bare answer once, with nothing of what is spliced, and no checksum."""
    lines = b"".join(b"line %d\n" % number for number in range(500)) + b"and no end"
    crc32 = base64.b64encode(zlib.crc32(lines).to_bytes(4, "big")).decode()
    stored = lines[:-1] + b"!" if is_damaged else lines
    ways: dict[str, Callable[[Any], Any]] = {
        "read": lambda body: body.read(),
        "iter_chunks": lambda body: _joined(body.iter_chunks(100)),
        "iter": lambda body: _joined(body),
        "iter_lines": lambda body: _joined(body.iter_lines(keepends=True)),
        "readlines": lambda body: _lines(body),
        "readinto": lambda body: _read_into_async(body, 100),
        "with": _within,
        "within": _in_pieces_within,
    }

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **({} if ask.is_range else {"x-amz-checksum-crc32": crc32}))
        if not ask.is_range:
            reply.pieces = [lines[:1000]]
        return reply

    async def read() -> bytes:
        body = (await rio.harden(running[1]._aio, POLICY).get_object(**WHERE))["Body"]
        try:
            found: bytes = await ways[name](body)
            return found
        finally:
            body.close()

    store.begin_anew(stored, how)
    if is_damaged:
        with pytest.raises(FlexibleChecksumError):
            running[1]._loop.run_until_complete(read())
    else:
        found = running[1]._loop.run_until_complete(read())
        assert found == (lines.replace(b"\n", b"") if name == "readlines" else lines)
    assert len(store.asks) == 2


def test_a_body_that_was_closed_is_not_read_on(store: OddStore, running: tuple[OddStore, Clients]) -> None:
    body = rio.harden(running[1]._sync, POLICY).get_object(**WHERE)["Body"]
    body.read(10)
    body.close()
    assert len(store.asks) == 1


def test_switched_off_it_is_stock(store: OddStore, running: tuple[OddStore, Clients]) -> None:
    body = rio.harden(running[1]._sync, {"enabled": False}).get_object(**WHERE)["Body"]
    assert type(body._raw_stream).__module__.startswith("urllib3")
    body.close()


# -- boto3's managed downloads -----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["wrong", "short", "ignored", "dies", "stalls"])
def test_a_managed_download_brings_no_other_bytes(
    store: OddStore, running: tuple[OddStore, Clients], idle: Callable[[], bool], fault: str
) -> None:
    """Each part is asked for by range: the whole object in its place would be written over the other parts."""
    faulty: dict[str, Callable[[Ask], Reply]] = {
        "wrong": lambda ask: told(store, 7, 7 + ask.end - ask.first),
        "short": lambda ask: told(store, ask.first, ask.first + 500),
        "ignored": lambda ask: Reply(
            headers={"ETag": store.etag, "Content-Length": str(len(DATA))}, pieces=[DATA]
        ),
        "dies": lambda ask: _cut(store.sound(ask), [DATA[ask.first : ask.first + 1000]]),
        "stalls": lambda ask: _cut(store.sound(ask), [DATA[ask.first : ask.first + 1000], 30.0]),
    }  # fmt: skip

    out = io.BytesIO()
    policy = {**POLICY, "min_throughput_bytes_per_s": 50_000, "stall_window_s": 0.1, "max_attempts": 6}
    client = rio.harden(running[1]._sync, policy)
    parts = TransferConfig(multipart_threshold=100_000, multipart_chunksize=100_000, max_concurrency=2)
    store.how = lambda ask: faulty[fault](ask) if ask.number % 3 == 1 else None
    client.download_fileobj("b", "train/000001", out, Config=parts)
    assert out.getvalue() == DATA
    assert idle()


def _cut(reply: Reply, pieces: list[bytes | float]) -> Reply:
    reply.pieces = pieces
    return reply
