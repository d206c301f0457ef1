"""A blob that the SDK downloads in several ranges is right or an error, whichever of their answers is odd."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("azure.storage.blob")

from azure.core.exceptions import AzureError

import resilient_io as rio
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import ObjectChanged

from .azure_clients import Clients, Read
from .odd_store import Ask, OddStore, Reply, odd_store

pytestmark = pytest.mark.wire
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 3, "retry_budget_burst": 1000,
}  # fmt: skip
DATA = random.Random(9).randbytes(250_000)
RANGE_BYTES = 100_000


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[OddStore, Clients]]:
    with odd_store(DATA) as store:
        clients = Clients(store.url, POLICY, max_single_get_size=RANGE_BYTES, max_chunk_get_size=RANGE_BYTES)
        yield store, clients
        clients.close()


@pytest.fixture
def store(running: tuple[OddStore, Clients]) -> Iterator[OddStore]:
    runtimes.reset()
    running[0].begin_anew(DATA)
    yield running[0]
    rio.policy.reset()


@pytest.fixture(params=["sync", "aio", "sync-md5", "aio-md5"])
def read(request: pytest.FixtureRequest, running: tuple[OddStore, Clients], store: OddStore) -> Read:
    return running[1].reader(request.param)


each_way = pytest.mark.parametrize("how", ["readall", "readinto", "read"])


def part(store: OddStore, ask: Ask, first: int, data: bytes, last: int | None = None) -> Reply:
    """A 206 that says it brings the bytes from `first` on (to `last`), and brings these."""
    last = first + len(data) - 1 if last is None else last
    says = f"bytes {first}-{last}/{len(DATA)}"
    headers = {"ETag": store.etag, "Content-Length": str(len(data)), "Content-Range": says}
    return Reply(status=206, headers=headers, pieces=[data])


def success(body: bytes) -> Reply:
    """A 200 that is no blob."""
    return Reply(headers={"Content-Length": str(len(body)), "Content-Type": "application/xml"}, pieces=[body])


ODD: dict[str, Callable[[OddStore, Ask], Reply]] = {
    "short": lambda store, ask: part(store, ask, ask.first, DATA[ask.first :][:100]),
    "short, and says it is not": lambda store, ask: part(store, ask, ask.first, DATA[ask.first :][:100], ask.end - 1),
    "nothing, and says it is not": lambda store, ask: part(store, ask, ask.first, b"", ask.end - 1),
    "long": lambda store, ask: part(store, ask, ask.first, DATA[ask.first : ask.end] + b"more", ask.end - 1),
    "another": lambda store, ask: part(store, ask, 7, DATA[7 : 7 + ask.end - ask.first]),
    "no content range": lambda store, ask: Reply(
        status=206, headers={"ETag": store.etag, "Content-Length": "50"}, pieces=[DATA[:50]]
    ),
    "whole": lambda store, ask: Reply(
        headers={"ETag": store.etag, "Content-Length": str(len(DATA))}, pieces=[DATA]
    ),
    "error document": lambda store, ask: success(b"<?xml version='1.0'?><Error><Code>ServerBusy</Code></Error>"),
    "html": lambda store, ask: success(b"<html>log in</html>"),
    "empty": lambda store, ask: success(b""),
}  # fmt: skip

# What follows can be asked for, and what is too much be cut.
CURABLE = ("short", "short, and says it is not", "long", "whole")


@each_way
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_to_one_range_does_no_harm(
    store: OddStore, read: Read, idle: Callable[[], bool], odd: str, number: int, how: str
) -> None:
    store.how = lambda ask: ODD[odd](store, ask) if ask.number == number else None
    assert read(how=how, policy={"verify": "strict"}) == DATA
    assert idle()


@pytest.mark.parametrize("odd", [each for each in ODD if each not in CURABLE])
def test_an_answer_that_stays_odd_is_an_error(store: OddStore, read: Read, odd: str) -> None:
    store.how = lambda ask: ODD[odd](store, ask) if ask.number > 1 else None
    with pytest.raises(AzureError):
        read()
    assert len(store.asks) == 4


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_range_is_compared_with_its_md5(store: OddStore, running: tuple[OddStore, Clients], at: int) -> None:
    def how(ask: Ask) -> Reply | None:
        if ask.number not in (at, *after):
            return None
        reply = store.sound(ask)
        reply.headers["Content-MD5"] = "AAAAAAAAAAAAAAAAAAAAAA=="
        return reply

    for mode in ("sync-md5", "aio-md5"):
        after: tuple[int, ...] = ()
        store.begin_anew(DATA, how)
        assert running[1].reader(mode)() == DATA
        assert len(store.asks) == 4
        after = tuple(range(at, 20))
        store.begin_anew(DATA, how)
        with pytest.raises(AzureError, match="MD5 mismatch"):
            running[1].reader(mode)()


@pytest.mark.parametrize("mode", ["sync-md5", "aio-md5"])
def test_the_rest_of_a_short_range_is_compared_with_its_md5(
    store: OddStore, running: tuple[OddStore, Clients], mode: str
) -> None:
    def how(ask: Ask) -> Reply | None:
        if ask.number == 2:
            return ODD["short"](store, ask)
        if ask.number != 3:
            return None
        reply = store.sound(ask)
        damaged = bytes([DATA[ask.first] ^ 1]) + DATA[ask.first + 1 : ask.end]
        reply.headers["Content-MD5"] = "AAAAAAAAAAAAAAAAAAAAAA=="
        reply.pieces = [damaged]
        return reply

    store.how = how
    assert running[1].reader(mode)() == DATA
    assert [ask.first for ask in store.asks] == [0, 100_000, 100_100, 100_100, 200_000]
    assert all("x-ms-range-get-content-md5" in ask.headers for ask in store.asks)


@each_way
@pytest.mark.parametrize("number", [2, 3])
def test_ranges_of_two_versions_are_not_joined(store: OddStore, read: Read, number: int, how: str) -> None:
    """By a store, or a cache before it, that ignores If-Match."""

    def answer(ask: Ask) -> Reply:
        return store.sound(ask, ETag='"one"' if ask.number < number else '"two"')

    store.how = answer
    with pytest.raises(ObjectChanged):
        read(how=how)
    assert len(store.asks) == number


@pytest.mark.parametrize("number", [2, 3])
def test_a_weak_etag_is_that_of_the_same_version(store: OddStore, read: Read, number: int) -> None:
    store.how = lambda ask: store.sound(ask, ETag='W/"one"') if ask.number == number else None
    assert read() == DATA
