"""Hardening a client that exists: what it reaches, how it is undone, and what is carried to other processes."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import multiprocessing
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient, ExponentialRetry, LinearRetry
from azure.storage.blob.aio import BlobClient as AsyncBlobClient
from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient
from azure.storage.blob.aio import ContainerClient as AsyncContainerClient

import resilient_io as rio
from resilient_io.azure import clients, privates
from resilient_io.azure.errors import AmbiguousWriteRefused, DownloadGaveUp, WaitedForPermit
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import GiveUp
from resilient_io.testing import FaultAction, FaultPlan, FaultRule

POLICY = {"backoff_base_s": 0.001, "backoff_cap_s": 0.005, "max_attempts": 3, "max_throttle_attempts": 3}
URL, KEY = "http://127.0.0.1:9/devstoreaccount1", "a2V5"
BROKEN = FaultRule(action=FaultAction.ERROR)
RESET = FaultRule(action=FaultAction.RESET_BEFORE)


@pytest.fixture(autouse=True)
def _soft() -> Any:
    yield
    rio.uninstall()


@pytest.fixture
def broken(azure_store: Any) -> Callable[..., None]:
    """Refuse everything from now on, and count anew."""

    def put(rule: FaultRule = BROKEN) -> None:
        azure_store.server.configure(FaultPlan(rules=(rule,)))
        azure_store.server.reset()
        runtimes.reset()

    return put


def run(client: Any, call: Callable[[Any], Any]) -> Any:
    """Run a call on a sync or an async client, which is closed then."""

    async def inside() -> Any:
        try:
            result = call(client)
            return await result if inspect.isawaitable(result) else result
        finally:
            closing = client.close()
            if inspect.isawaitable(closing):
                await closing

    return asyncio.run(inside())


def sent(azure_store: Any) -> Counter[str]:
    return Counter(exchange.op for exchange in azure_store.server.log())


def stock(azure_store: Any, cls: Any = BlobServiceClient, *names: str, **options: Any) -> Any:
    account = azure_store.account
    return cls(account.account_url, *names, credential=account.account_key, **options)


# -- every kind of client ----------------------------------------------------------------------------

KINDS: dict[str, tuple[Any, int, Callable[[Any], Any], str]] = {
    "service": (BlobServiceClient, 0, lambda c: c.get_service_properties(), "GetBlobServiceProperties"),
    "container": (ContainerClient, 1, lambda c: c.get_container_properties(), "GetContainerProperties"),
    "blob": (BlobClient, 2, lambda c: c.get_blob_properties(), "GetBlobProperties"),
    "aio-service": (AsyncBlobServiceClient, 0, lambda c: c.get_service_properties(), "GetBlobServiceProperties"),
    "aio-container": (AsyncContainerClient, 1, lambda c: c.get_container_properties(), "GetContainerProperties"),
    "aio-blob": (AsyncBlobClient, 2, lambda c: c.get_blob_properties(), "GetBlobProperties"),
}


@pytest.mark.wire
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["harden", "kwargs"])
def test_each_kind_of_client(azure_store: Any, broken: Callable[..., None], kind: str, how: str) -> None:
    cls, count, call, op = KINDS[kind]
    names = (azure_store.container, "a/b/c")[:count]
    broken()
    if how == "harden":
        client = stock(azure_store, cls, *names)
        assert rio.harden(client, POLICY) is client
    else:
        client = stock(azure_store, cls, *names, **rio.azure.client_kwargs(POLICY, aio=kind.startswith("aio")))
    with pytest.raises(HttpResponseError):
        run(client, call)
    assert sent(azure_store) == {op: 3}


@pytest.mark.wire
@pytest.mark.parametrize("make", ["connection-string", "url"])
def test_other_ways_to_make_a_client(azure_store: Any, broken: Callable[..., None], make: str) -> None:
    kwargs = rio.azure.client_kwargs(POLICY)
    account = azure_store.account
    broken()
    if make == "connection-string":
        client = BlobClient.from_connection_string(account.connection_string, azure_store.container, "x", **kwargs)
    else:
        url = f"{account.account_url}/{azure_store.container}/x"
        client = BlobClient.from_blob_url(url, credential=account.account_key, **kwargs)
    with pytest.raises(HttpResponseError):
        client.get_blob_properties()
    assert sent(azure_store) == {"GetBlobProperties": 3}


def test_what_is_no_client_is_refused() -> None:
    for thing in (object(), ExponentialRetry(), "https://acct.blob.core.windows.net"):
        with pytest.raises(TypeError, match=r"BlobServiceClient|azure-storage-blob"):
            rio.harden(thing)
        with pytest.raises(TypeError, match="BlobServiceClient"):
            clients.harden(thing)


# -- what derives from it ----------------------------------------------------------------------------


@pytest.mark.wire
@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_derived_clients_are_hardened_whenever_they_were_made(
    azure_store: Any, broken: Callable[..., None], aio: bool
) -> None:
    service = stock(azure_store, AsyncBlobServiceClient if aio else BlobServiceClient)
    early = service.get_container_client(azure_store.container)
    rio.harden(service, POLICY)
    # The SDK links the pipeline anew whenever a client is derived, also from one that was made before.
    of_early = early.get_blob_client("a")
    of_late = service.get_container_client(azure_store.container).get_blob_client("b")
    direct = service.get_blob_client(azure_store.container, "c")
    broken()

    async def use() -> None:
        for count, blob in enumerate((of_early, of_late, direct), start=1):
            with pytest.raises(HttpResponseError):
                result = blob.get_blob_properties()
                if inspect.isawaitable(result):
                    await result
            assert sent(azure_store) == {"GetBlobProperties": 3 * count}
        closing = service.close()
        if inspect.isawaitable(closing):
            await closing

    asyncio.run(use())


@pytest.mark.wire
def test_hardening_a_derived_client_hardens_where_it_comes_from(azure_store: Any, broken: Callable[..., None]) -> None:
    service = stock(azure_store)
    rio.harden(service.get_blob_client(azure_store.container, "a"), POLICY)
    broken()
    with pytest.raises(HttpResponseError):
        service.get_blob_client(azure_store.container, "b").get_blob_properties()
    assert sent(azure_store) == {"GetBlobProperties": 3}


@pytest.mark.wire
def test_two_clients_have_pipelines_of_their_own(azure_store: Any, broken: Callable[..., None]) -> None:
    one = stock(azure_store, **rio.azure.client_kwargs(POLICY))
    two = stock(azure_store, **rio.azure.client_kwargs({**POLICY, "max_throttle_attempts": 2}))
    broken()
    for count, client in ((3, one), (5, two)):
        with pytest.raises(HttpResponseError):
            client.get_service_properties()
        assert sent(azure_store) == {"GetBlobServiceProperties": count}


# -- again, and back ---------------------------------------------------------------------------------


def _state_of(client: Any) -> dict[str, Any]:
    retry_policy, transport = privates.retry_policy_of(client), privates.transport_of(client)
    session = transport.session
    return {
        "policy": sorted(retry_policy.__dict__),
        "send": retry_policy.send.__func__,
        "transport": sorted(transport.__dict__),
        "open": transport.open.__func__,
        "pools": dict(privates.pool_sizes(session)) if session is not None else None,
    }


def test_hardening_is_idempotent_and_undone() -> None:
    client = BlobServiceClient(URL, credential=KEY)
    before = _state_of(client)
    rio.harden(client, {"max_attempts": 2})
    hook = clients.hook_of(client)
    rio.harden(client)
    assert clients.hook_of(client) is hook
    assert hook is not None
    assert hook.overlay == {"max_attempts": 2}
    rio.harden(client, {"max_attempts": 5})
    assert hook.overlay == {"max_attempts": 5}
    clients.soften(client)
    assert clients.hook_of(client) is None
    assert _state_of(client) == before
    clients.soften(client)
    assert _state_of(client) == before


@pytest.mark.wire
def test_a_pool_that_is_open_is_widened_and_put_back(azure_store: Any) -> None:
    client = stock(azure_store)
    client.get_service_properties()
    before = _state_of(client)
    assert before["pools"] == {"http://": 10, "https://": 10}
    rio.harden(client, {"max_concurrency": 100})
    client.get_service_properties()
    assert privates.pool_sizes(privates.transport_of(client).session) == {"http://": 100, "https://": 100}
    rio.harden(client, {"max_concurrency": 200})
    client.get_service_properties()
    assert privates.pool_sizes(privates.transport_of(client).session) == {"http://": 200, "https://": 200}
    rio.uninstall()
    assert _state_of(client) == before
    client.get_service_properties()


@pytest.mark.wire
def test_a_new_client_has_room_for_its_policy(azure_store: Any) -> None:
    client = stock(azure_store, **clients.client_kwargs({"max_concurrency": 100}))
    client.get_service_properties()
    assert privates.pool_sizes(privates.transport_of(client).session) == {"http://": 100, "https://": 100}
    rio.harden(client, {"max_concurrency": 200})
    client.get_service_properties()
    assert privates.pool_sizes(privates.transport_of(client).session) == {"http://": 200, "https://": 200}

    async def use() -> None:
        kwargs = clients.client_kwargs({"max_concurrency": 300}, aio=True)
        async with stock(azure_store, AsyncBlobServiceClient, **kwargs) as service:
            await service.get_service_properties()
            assert privates.transport_of(service).session.connector.limit == 300
            rio.harden(service, {"max_concurrency": 400})
            await service.get_service_properties()
            assert privates.transport_of(service).session.connector.limit == 400

    asyncio.run(use())


@pytest.mark.wire
def test_an_async_session_is_made_to_send_once_and_put_back(azure_store: Any) -> None:
    async def use() -> None:
        client = stock(azure_store, AsyncBlobServiceClient)
        await client.get_service_properties()
        session = privates.transport_of(client).session
        assert session._retry_connection is True
        rio.harden(client, {"max_concurrency": 300})
        await client.get_service_properties()
        assert privates.transport_of(client).session is session
        assert (session._retry_connection, session.connector.limit) == (False, 300)
        rio.uninstall()
        assert (session._retry_connection, session.connector.limit) == (True, 100)
        assert "open" not in privates.transport_of(client).__dict__
        await client.close()

    asyncio.run(use())


@pytest.mark.wire
def test_uninstall_softens(azure_store: Any, broken: Callable[..., None]) -> None:
    client = stock(azure_store, retry_policy=ExponentialRetry(retry_total=0))
    rio.harden(client, POLICY)
    assert clients.hardened_clients() == 1
    assert rio.coverage().hardened_clients >= 1
    rio.uninstall()
    assert clients.hardened_clients() == 0
    broken()
    with pytest.raises(HttpResponseError):
        client.get_service_properties()
    assert sent(azure_store) == {"GetBlobServiceProperties": 1}


def test_a_client_that_is_gone_is_not_kept() -> None:
    rio.harden(BlobServiceClient(URL, credential=KEY))
    gc.collect()
    assert clients.hardened_clients() == 0


@pytest.mark.wire
@pytest.mark.parametrize("retry", [LinearRetry(), ExponentialRetry(retry_total=9)], ids=["linear", "exponential"])
def test_a_retry_policy_of_the_users_own_gives_way(azure_store: Any, broken: Callable[..., None], retry: Any) -> None:
    client = rio.harden(stock(azure_store, retry_policy=retry), POLICY)
    broken()
    with pytest.raises(HttpResponseError):
        client.get_service_properties()
    assert sent(azure_store) == {"GetBlobServiceProperties": 3}


@pytest.mark.wire
@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_a_transport_of_the_users_own_is_kept(azure_store: Any, broken: Callable[..., None], aio: bool) -> None:
    transport = (AioHttpTransport if aio else RequestsTransport)(read_timeout=7)
    client = stock(azure_store, AsyncBlobServiceClient if aio else BlobServiceClient, transport=transport)
    rio.harden(client, {**POLICY, "max_attempts": 1})
    broken(RESET)
    assert privates.transport_of(client) is transport
    with pytest.raises(AzureError):
        run(client, lambda c: c.get_service_properties())
    assert sent(azure_store) == {"GetBlobServiceProperties": 1}


def test_new_transports_have_the_timeouts_of_the_blob_sdk() -> None:
    for aio, cls in ((False, BlobServiceClient), (True, AsyncBlobServiceClient)):
        plain = privates.transport_of(cls(URL, credential=KEY)).connection_config
        ours = clients.client_kwargs(aio=aio)["transport"].connection_config
        for name in ("timeout", "read_timeout", "verify", "cert"):
            assert getattr(ours, name) == getattr(plain, name), name
        # Older versions read bodies in pieces of 4 KiB.
        assert ours.data_block_size >= plain.data_block_size
        given = clients.client_kwargs(aio=aio, connection_timeout=3, read_timeout=4)["transport"].connection_config
        assert (given.timeout, given.read_timeout) == (3, 4)


# -- pickles and copies ------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [BlobServiceClient, AsyncBlobServiceClient], ids=["sync", "aio"])
@pytest.mark.parametrize("how", ["harden", "kwargs"])
@pytest.mark.parametrize("copied", [lambda c: pickle.loads(pickle.dumps(c)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_what_could_be_copied_still_can(cls: Any, how: str, copied: Callable[[Any], Any]) -> None:
    kwargs = clients.client_kwargs(POLICY, aio=cls is AsyncBlobServiceClient) if how == "kwargs" else {}
    client = cls(URL, credential=KEY, **kwargs)
    if how == "harden":
        rio.harden(client, POLICY)
    other = copied(client)
    hook = clients.hook_of(other)
    assert hook is not None
    assert hook is not clients.hook_of(client)
    assert hook.overlay == POLICY
    assert hook.policy is privates.retry_policy_of(other)


def _attempts_of(client: Any) -> int:
    with pytest.raises(HttpResponseError) as raised:
        client.get_service_properties()
    return int(raised.value.response.attempts)


@pytest.mark.wire
@pytest.mark.parametrize("how", ["harden", "kwargs"])
def test_a_client_that_is_sent_to_another_process_works_there(
    azure_store: Any, broken: Callable[..., None], how: str
) -> None:
    kwargs = clients.client_kwargs(POLICY) if how == "kwargs" else {}
    client = stock(azure_store, **kwargs)
    if how == "harden":
        rio.harden(client, POLICY)
    client.get_service_properties()
    broken()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_attempts_of, (client,)) == 3
    assert sent(azure_store) == {"GetBlobServiceProperties": 3}


@pytest.mark.parametrize(
    "error",
    [
        AmbiguousWriteRefused("text", 409, "BlobAlreadyExists", GiveUp(attempts=2)),
        DownloadGaveUp("text", GiveUp(attempts=2)),
        WaitedForPermit("text"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickle_and_copy(error: Any) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert getattr(other, "record", None) == getattr(error, "record", None)
        assert getattr(other, "status_code", None) == getattr(error, "status_code", None)
