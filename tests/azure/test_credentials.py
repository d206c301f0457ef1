"""Every way to say who asks: the client that takes adlfs's place says the same, to the same address."""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import adlfs.spec
import fsspec
import pytest
from adlfs import AzureBlobFileSystem
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

pytestmark = pytest.mark.wire


@pytest.fixture
def over_http(azure_store: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options that lead to the fault server; adlfs writes https:// before a host, which Azurite is not."""
    make = adlfs.spec._create_aio_blob_service_client

    def plain(account_url: str, **options: Any) -> Any:
        return make(account_url=account_url.replace("https://127", "http://127"), **options)

    monkeypatch.setattr(adlfs.spec, "_create_aio_blob_service_client", plain)
    host = azure_store.account.account_url.removeprefix("http://")
    return {"account_name": azure_store.account.account_name, "account_host": host}


def sas_of(account: Any) -> str:
    made: str = generate_account_sas(
        account_name=account.account_name,
        account_key=account.account_key,
        resource_types=ResourceTypes(service=True, container=True, object=True),
        permission=AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True, add=True),
        expiry=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1),
    )
    return made


def sas_connection(account: Any) -> str:
    return f"BlobEndpoint={account.account_url};SharedAccessSignature={sas_of(account)}"


FORMS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "account_key": lambda account: {"account_key": account.account_key},
    "named key": lambda account: {"credential": AzureNamedKeyCredential(account.account_name, account.account_key)},
    "sas object": lambda account: {"credential": AzureSasCredential(sas_of(account))},
    "sas as credential": lambda account: {"credential": sas_of(account)},
    "sas_token": lambda account: {"sas_token": sas_of(account)},
    "sas_token with ?": lambda account: {"sas_token": "?" + sas_of(account)},
    "connection string": lambda account: {"connection_string": account.connection_string},
    "connection string with sas": lambda account: {"connection_string": sas_connection(account)},
}


@pytest.mark.parametrize("form", FORMS)
def test_each_credential_works_on_the_wire(azure_store: Any, over_http: dict[str, Any], form: str) -> None:
    options = {**over_http, **FORMS[form](azure_store.account)}
    fs = ResilientAzureBlobFileSystem(**options, skip_instance_cache=True)
    fs.pipe_file(f"{azure_store.container}/a b/ü", b"data")
    with fs.open(f"{azure_store.container}/a b/ü") as file:
        assert file.read() == b"data"
    fs.cp_file(f"{azure_store.container}/a b/ü", f"{azure_store.container}/copy")
    assert fs.find(azure_store.container) == [f"{azure_store.container}/a b/ü", f"{azure_store.container}/copy"]
    fs.rm(f"{azure_store.container}/copy")
    assert "sig=" not in repr(fs.service_client)


def test_a_public_container_is_read_without_a_credential(azure_store: Any, over_http: dict[str, Any], box: Any) -> None:
    box.upload_blob("x", b"data")
    box.set_container_access_policy({}, public_access="container")
    fs = ResilientAzureBlobFileSystem(**over_http, anon=True, skip_instance_cache=True)
    with fs.open(f"{azure_store.container}/x") as file:
        assert file.read() == b"data"
    assert fs.ls(azure_store.container) == [f"{azure_store.container}/x"]


@pytest.mark.parametrize("form", FORMS)
def test_pickle_and_json_keep_policy_and_credential(azure_store: Any, over_http: dict[str, Any], form: str) -> None:
    fs = ResilientAzureBlobFileSystem(**over_http, **FORMS[form](azure_store.account), resilience={"max_attempts": 2})
    fs.pipe_file(f"{azure_store.container}/x", b"data")
    copies = []
    if "object" not in form and "named" not in form:
        copies.append(fsspec.AbstractFileSystem.from_json(fs.to_json()))
        copies.append(pickle.loads(pickle.dumps(fs)))
    for copy in copies:
        assert copy is fs
        assert copy.resilience == {"max_attempts": 2}
    with fs.open(f"{azure_store.container}/x") as file:
        file.read(1)
        if copies:
            assert pickle.loads(pickle.dumps(file)).read() == b"ata"


def test_one_policy_is_one_instance(azure_store: Any) -> None:
    where = azure_store.account.connection_string
    first = ResilientAzureBlobFileSystem(connection_string=where, resilience={"max_attempts": 2})
    assert ResilientAzureBlobFileSystem(connection_string=where, resilience={"max_attempts": 2}) is first
    assert ResilientAzureBlobFileSystem(connection_string=where, resilience={"max_attempts": 3}) is not first
    assert ResilientAzureBlobFileSystem(connection_string=where) is not first
    assert json.loads(first.to_json())["resilience"] == {"max_attempts": 2}


class Token:
    """An async credential."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken("token", 2**31)

    async def close(self) -> None: ...

    async def __aenter__(self) -> Token:
        return self

    async def __aexit__(self, *_: object) -> None: ...


def stock_and_ours(**options: Any) -> Iterator[Any]:
    for cls in (AzureBlobFileSystem, ResilientAzureBlobFileSystem):
        yield cls(**options, skip_instance_cache=True)


SAS = "sv=2021-12-02&ss=b&srt=sco&sp=r&sig=abc%3D"
ADDRESSES: dict[str, dict[str, Any]] = {
    "key": {"account_name": "acct", "account_key": "a2V5"},
    "sas": {"account_name": "acct", "sas_token": SAS},
    "anon": {"account_name": "acct", "anon": True},
    "token": {"account_name": "acct", "credential": Token()},
    "secondary": {"account_name": "acct", "account_key": "a2V5", "location_mode": "secondary"},
    "secondary with sas": {"account_name": "acct", "sas_token": SAS, "location_mode": "secondary"},
    "host": {"account_name": "acct", "account_key": "a2V5", "account_host": "acct.blob.core.chinacloudapi.cn"},
    "own domain": {
        "account_name": "acct",
        "credential": AzureNamedKeyCredential("acct", "a2V5"),
        "account_host": "data.example.com",
    },
    "own domain, anon": {"account_name": "acct", "anon": True, "account_host": "data.example.com"},
    "connection string": {
        "connection_string": "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=a2V5;"
        "EndpointSuffix=core.windows.net"
    },
    "connection string with a secondary": {
        "connection_string": "BlobEndpoint=https://one.example.com;BlobSecondaryEndpoint=https://two.example.com;"
        "AccountName=acct;AccountKey=a2V5"
    },
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_the_new_client_asks_at_the_same_address(name: str) -> None:
    stock, ours = (fs.service_client for fs in stock_and_ours(**ADDRESSES[name]))
    assert ours.url == stock.url
    assert ours.primary_endpoint == stock.primary_endpoint
    assert ours.secondary_hostname == stock.secondary_hostname
    assert ours.location_mode == stock.location_mode
    assert ours.account_name == stock.account_name
    assert type(ours.credential) is type(stock.credential)
    assert ours.get_blob_client("c", "k").url == stock.get_blob_client("c", "k").url
    assert ours._config.user_agent_policy.user_agent == stock._config.user_agent_policy.user_agent
    assert "adlfs/" in ours._config.user_agent_policy.user_agent


def test_the_default_credential_is_made_and_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity")
    from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential

    fs = ResilientAzureBlobFileSystem(account_name="acct", anon=False, skip_instance_cache=True)
    assert isinstance(fs.service_client.credential, DefaultAzureCredential)
    principal = ResilientAzureBlobFileSystem(
        account_name="acct",
        client_id="11111111-1111-1111-1111-111111111111",
        client_secret="s",
        tenant_id="22222222-2222-2222-2222-222222222222",
        skip_instance_cache=True,
    )
    assert isinstance(principal.service_client.credential, ClientSecretCredential)


def test_without_an_account_the_error_is_adlfss() -> None:
    for cls in (AzureBlobFileSystem, ResilientAzureBlobFileSystem):
        with pytest.raises(ValueError, match="Must provide either a connection_string or account_name"):
            cls(anon=True, skip_instance_cache=True)
