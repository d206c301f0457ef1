"""Hedged reads of Azure, counted at the store: sync and aio clients, and adlfs."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("azure.storage.blob")

from azure.storage.blob import BlobServiceClient
from azure.storage.blob.aio import BlobServiceClient as AioBlobServiceClient

import resilient_io as rio
from resilient_io import report
from resilient_io.control import hedge
from resilient_io.drive import runtime as runtimes

from .azure_clients import MODES, Clients, Read, where
from .odd_store import Ask, OddStore, Reply, odd_store

pytestmark = pytest.mark.wire
POLICY: dict[str, object] = {"backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 3}
DATA = random.Random(9).randbytes(100_000)
# After so long a second request is sent: a busy machine answers sooner.
LATE_S = 0.1


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[OddStore, Clients]]:
    with odd_store(DATA) as store:
        clients = Clients(store.url, {**POLICY, "hedge": True})
        yield store, clients
        clients.close()


@pytest.fixture
def store(running: tuple[OddStore, Clients]) -> Iterator[OddStore]:
    runtimes.reset()
    running[0].begin_anew(DATA)
    yield running[0]
    rio.policy.reset()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def read(running: tuple[OddStore, Clients], store: OddStore, mode: str) -> Read:
    """Return a read whose scope knows what a quick answer is, with answers that nobody had to send."""
    call = running[1].reader(mode)
    call()
    season()
    store.begin_anew(DATA)
    return call


def season() -> None:
    """Let each scope know what a quick answer is, with answers that nobody had to send."""
    for lane in runtimes.runtime().gate.lanes():
        if lane.path.op_class == "read":
            assert lane.leaf.hedging is not None
            for _ in range(hedge.LEAST_ANSWERS):
                lane.leaf.hedging.answered(LATE_S)


def late(store: OddStore, seconds: float, *calls: int) -> Callable[[Ask], Reply | None]:
    """Answer these calls late, and all others at once."""
    waiting = threading.Event()

    def how(ask: Ask) -> Reply | None:
        if ask.number in calls:
            waiting.wait(seconds)
        return None

    return how


def hedges() -> tuple[int, int]:
    leaves = [scope for scope in report().scopes if scope.leaf]
    return sum(scope.hedged for scope in leaves), sum(scope.hedges_won for scope in leaves)


def test_a_late_answer_is_not_waited_for(store: OddStore, read: Read, idle: Callable[[], bool], mode: str) -> None:
    store.how = late(store, 0.5 if mode == "sync" else 30.0, 1)
    assert read() == DATA
    assert len(store.asks) == 2
    assert hedges() == (1, 1)
    for thread in threading.enumerate():
        if thread.name == "resilient-io-hedge":
            thread.join(10)
    assert idle()


def test_a_first_answer_that_is_sooner_wins(store: OddStore, read: Read) -> None:
    store.how = lambda ask: late(store, 0.2 if ask.number == 1 else 0.6, 1, 2)(ask)
    assert read() == DATA
    assert hedges() == (1, 0)


def test_a_second_request_that_fails_fails_nothing(store: OddStore, read: Read) -> None:
    def how(ask: Ask) -> Reply | None:
        late(store, 0.3, 1)(ask)
        busy = {"Content-Length": "0", "x-ms-error-code": "ServerBusy"}
        return Reply(status=503, headers=dict(busy)) if ask.number == 2 else None

    store.how = how
    assert read() == DATA
    assert len(store.asks) == 2
    assert hedges() == (1, 0)


def test_a_first_request_that_fails_leaves_the_second_one(store: OddStore, read: Read) -> None:
    def how(ask: Ask) -> Reply | None:
        late(store, 0.2, 1)(ask)
        late(store, 0.4, 2)(ask)
        gone = {"Content-Length": "0", "x-ms-error-code": "InternalError"}
        return None if ask.number == 2 else Reply(status=500, headers=dict(gone))

    store.how = how
    assert read() == DATA
    assert hedges() == (1, 1)


def test_the_winner_s_body_goes_on_where_it_dies(store: OddStore, read: Read, mode: str) -> None:
    def how(ask: Ask) -> Reply | None:
        late(store, 0.4, 1)(ask)
        reply = store.sound(ask)
        if 1 < ask.number < 4:
            reply.pieces = [DATA[ask.first : ask.first + 1000]]
        return reply

    store.how = how
    assert read() == DATA


def test_off_unless_asked(store: OddStore, read: Read) -> None:
    store.how = late(store, 0.2, 1)
    assert read(policy={"hedge": False}) == DATA
    assert len(store.asks) == 1


def test_a_limited_scope_hedges_nothing(store: OddStore, read: Read) -> None:
    def how(ask: Ask) -> Reply | None:
        busy = {"Content-Length": "0", "x-ms-error-code": "ServerBusy"}
        return Reply(status=503, headers=dict(busy)) if ask.number == 1 else late(store, 0.2, 2, 3)(ask)

    store.how = how
    assert read() == read() == DATA
    assert len(store.asks) == 3
    assert hedges() == (0, 0)


@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
@pytest.mark.parametrize(("late_calls", "hedged"), [((2,), 1), ((2, 4), 2)], ids=["one", "two"])
def test_the_parts_of_a_large_download_are_hedged_each(
    store: OddStore, late_calls: tuple[int, ...], hedged: int, aio: bool, idle: Callable[[], bool]
) -> None:
    """A download of four ranges, of which one or two are late."""
    parts = {"max_single_get_size": 25_000, "max_chunk_get_size": 25_000}
    kind: Any = AioBlobServiceClient if aio else BlobServiceClient
    client = kind.from_connection_string(where(store.url), **rio.azure.client_kwargs(aio=aio), **parts)
    rio.configure(**POLICY, hedge=True)

    async def read() -> bytes:
        stream = client.get_blob_client("c", "train/000001").download_blob()
        stream = await stream if inspect.isawaitable(stream) else stream
        data = stream.readall()
        return bytes(await data if inspect.isawaitable(data) else data)

    async def twice() -> None:
        await read()
        season()
        store.begin_anew(DATA, late(store, 0.5, *late_calls))
        assert await read() == DATA
        await client.close() if aio else client.close()

    asyncio.run(twice())
    assert hedges()[0] == hedged
    assert len(store.asks) == 4 + hedged
    assert set(store.ranges) == {(at, at + 25_000) for at in range(0, 100_000, 25_000)}
    for thread in threading.enumerate():
        if thread.name == "resilient-io-hedge":
            thread.join(10)
    assert idle()
