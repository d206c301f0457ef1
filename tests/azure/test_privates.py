"""What is touched inside the SDKs: it is there, and it is named if it is not."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from azure.storage.blob import BlobServiceClient
from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient

import resilient_io.azure
from resilient_io.azure import privates
from resilient_io.azure.clients import client_kwargs, harden

URL, KEY = "http://127.0.0.1:9/devstoreaccount1", "a2V5"
CLIENTS = {"sync": BlobServiceClient, "aio": AsyncBlobServiceClient}


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> Any:
    return CLIENTS[request.param](URL, credential=KEY)


def test_an_installed_sdk_is_not_refused(client: Any) -> None:
    privates.check(client)
    assert privates.is_async(client) == isinstance(client, AsyncBlobServiceClient)


@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (lambda client: delattr(client, "_pipeline"), "_pipeline"),
        (lambda client: delattr(client, "_config"), "_config"),
        (lambda client: delattr(client._pipeline, "_impl_policies"), "_pipeline._impl_policies"),
        (lambda client: delattr(client._pipeline, "_transport"), "_pipeline._transport"),
        (lambda client: setattr(client._config, "retry_policy", object()), "_config.retry_policy"),
        (lambda client: delattr(client._config.retry_policy, "next"), "next of its retry policy"),
    ],
)
def test_a_missing_private_is_named(client: Any, break_it: Callable[[Any], None], named: str) -> None:
    break_it(client)
    with pytest.raises(privates.UnsupportedSDK, match=rf"azure-storage-blob 1\d.*{named}"):
        harden(client)


@pytest.mark.parametrize(
    ("version", "known"), [("12.25.1", False), ("12.26.0", True), ("12.31.0b1", True), ("13.0", True)]
)
def test_a_version_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, version: str, known: bool) -> None:
    monkeypatch.setattr("azure.storage.blob.__version__", version)
    if known:
        client_kwargs()
        return
    with pytest.raises(privates.UnsupportedSDK, match=rf"{version} is too old: .*>=12\.26"):
        client_kwargs()
    with pytest.raises(privates.UnsupportedSDK, match=version):
        harden(BlobServiceClient(URL, credential=KEY))


def test_an_aiohttp_that_cannot_be_kept_from_sending_twice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import aiohttp

    monkeypatch.setattr(aiohttp, "__version__", "3.10.11")
    client_kwargs(aio=True)
    monkeypatch.setattr(aiohttp.ClientSession, "ATTRS", frozenset())
    with pytest.raises(privates.UnsupportedSDK, match=r"aiohttp 3\.10\.11 .*_retry_connection"):
        client_kwargs(aio=True)
    with pytest.raises(privates.UnsupportedSDK, match="_retry_connection"):
        harden(AsyncBlobServiceClient(URL, credential=KEY))
    client_kwargs()
    # Before that it sent each request once.
    monkeypatch.setattr(aiohttp, "__version__", "3.9.5")
    client_kwargs(aio=True)


def test_the_transport_is_found_below_the_wrappers_of_derived_clients(client: Any) -> None:
    blob = client.get_container_client("c").get_blob_client("b")
    assert privates.transport_of(blob) is client._pipeline._transport
    assert privates.retry_policy_of(blob) is privates.retry_policy_of(client)


def test_pools_of_requests() -> None:
    session = requests.Session()
    assert privates.pool_sizes(session) == {"http://": 10, "https://": 10}
    privates.set_pool_sizes(session, {"http://": 70})
    assert privates.pool_sizes(session) == {"http://": 70, "https://": 10}
    pool = session.adapters["http://"].poolmanager.connection_from_host("127.0.0.1", 9)
    assert pool.pool.maxsize == 70


def test_connections_and_resends_of_aiohttp() -> None:
    import aiohttp

    async def use() -> None:
        async with aiohttp.ClientSession() as session:
            assert session._retry_connection is True
            privates.forbid_resend(session)
            assert session._retry_connection is False
            privates.allow_resend(session)
            assert session._retry_connection is True
            assert privates.connector_limit(session) == 100
            privates.set_connector_limit(session, 300)
            assert session.connector is not None
            assert session.connector.limit == 300

    asyncio.run(use())


def test_connections_that_a_fork_brought_along_are_left_alone() -> None:
    client = BlobServiceClient(URL, credential=KEY)
    transport = privates.transport_of(client)
    privates.forget_connections(transport)
    transport.open()
    before = transport.session.adapters["http://"].poolmanager
    privates.forget_connections(transport)
    assert transport.session.adapters["http://"].poolmanager is not before
    assert any(before in each for group in _left_behind() for each in group if isinstance(each, tuple))
    transport.close()


def _left_behind() -> list[Any]:
    from resilient_io.drive import forked

    return forked._left_behind


# Names with an underscore that are our own, or Python's.
ALLOWED = {"self", "cls"}


def test_privates_of_others_are_touched_here_only() -> None:
    wrong = []
    hooks = (
        "clients",
        "policy",
        "exchange",
        "body",
        "transport",
        "transport_aio",
        "keys",
        "faults",
        "errors",
        "streams",
        "extent",
    )
    for name in hooks:
        path = Path(resilient_io.azure.__file__).with_name(f"{name}.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if owner not in ALLOWED:
                    wrong.append(f"{path.name}:{node.lineno} touches {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)
