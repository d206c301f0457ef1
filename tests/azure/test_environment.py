"""Sessions ask the environment where it has something to say, at once, and nowhere else; a proxy in it is used."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests
from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient
from azure.storage.blob.aio import ContainerClient as AsyncContainerClient

from resilient_io.azure import environment, privates
from resilient_io.azure.clients import client_kwargs, harden, soften
from resilient_io.azure.environment import heed
from resilient_io.azure.transport import SyncTransport

NOWHERE = "http://127.0.0.1:9"
POLICY = {"max_attempts": 1}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the environment a silent one, with a home of its own."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("NETRC", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    look_again(monkeypatch)
    return tmp_path


def look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next request look at what is looked at once a second."""
    monkeypatch.setattr(environment, "_last", environment._Look(-math.inf, 0, False, False))


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        yield made


def asks(session: Any) -> bool:
    heed(session)
    return bool(session.trust_env)


def of_aiohttp(check: Callable[[Any], None]) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession(trust_env=True) as made:
            check(made)

    asyncio.run(main())


def test_a_silent_environment_is_not_asked(session: requests.Session) -> None:
    assert session.trust_env
    assert not asks(session)
    of_aiohttp(lambda made: pytest.fail("asks") if asks(made) else None)


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "all_proxy", "Http_Proxy", "NETRC"])
def test_what_is_set_is_asked_for_at_once(
    session: requests.Session, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert not asks(session)
    monkeypatch.setenv(name, NOWHERE)
    assert asks(session)
    of_aiohttp(lambda made: None if asks(made) else pytest.fail("does not ask"))
    monkeypatch.delenv(name)
    assert not asks(session)


def test_a_bundle_of_certificates_matters_to_requests_alone(
    session: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/own.pem")
    assert asks(session)
    of_aiohttp(lambda made: pytest.fail("asks") if asks(made) else None)


def test_a_netrc_file_is_seen(session: requests.Session, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert not asks(session)
    home.joinpath(".netrc").write_text("machine example.org login a password b\n")
    look_again(monkeypatch)
    assert asks(session)


def test_a_session_that_was_made_not_to_ask_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = SyncTransport(use_env_settings=False)
    monkeypatch.setenv("http_proxy", NOWHERE)
    transport.open()
    assert transport.session is not None
    assert not transport.session.trust_env
    transport.close()


def test_soften_gives_a_session_its_way_back(azure_store: Any) -> None:
    with ContainerClient.from_connection_string(azure_store.account.connection_string, azure_store.container) as client:
        assert client.exists()
        session = privates.transport_of(client).session
        harden(client)
        assert client.exists()
        assert not session.trust_env
        soften(client)
        assert session.trust_env


@pytest.mark.wire
@pytest.mark.parametrize("made", ["client_kwargs", "harden"])
def test_a_proxy_that_is_named_later_is_used(azure_store: Any, monkeypatch: pytest.MonkeyPatch, made: str) -> None:
    options = client_kwargs(POLICY) if made == "client_kwargs" else {}
    where = azure_store.account.connection_string, azure_store.container
    with ContainerClient.from_connection_string(*where, **options) as client:
        if made == "harden":
            harden(client, POLICY)
        assert client.exists()
        monkeypatch.setenv("http_proxy", NOWHERE)
        with pytest.raises(AzureError):
            client.exists()
        monkeypatch.delenv("http_proxy")
        assert client.exists()


@pytest.mark.wire
def test_a_proxy_that_is_named_later_is_used_by_an_async_client(
    azure_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        where = azure_store.account.connection_string, azure_store.container
        async with AsyncContainerClient.from_connection_string(*where, **client_kwargs(POLICY, aio=True)) as client:
            assert await client.exists()
            monkeypatch.setenv("http_proxy", NOWHERE)
            with pytest.raises(AzureError):
                await client.exists()
            monkeypatch.delenv("http_proxy")
            assert await client.exists()

    asyncio.run(main())
