"""The Azure stores of a rehearsal: Azurite behind ceilings, or a prefix of a container of a real account."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from resilient_io.drive.azure_hosts import azure_host
from resilient_io.rehearse.clouds import AZURE
from resilient_io.rehearse.fleet import interrupts_held
from resilient_io.rehearse.job import Job
from resilient_io.rehearse.store import (
    EMBEDDED_BUCKET,
    EmbeddedStore,
    PrefixStore,
    StoreUnusable,
    prefix_of,
    settings_of_the_user_removed,
)

if TYPE_CHECKING:
    from resilient_io.testing import StorageAccount


@contextlib.contextmanager
def embedded_store(job: Job) -> Iterator[EmbeddedStore]:
    """Start Azurite behind its ceilings, with an empty container; it is installed first where there is none."""
    from resilient_io.testing import AzuriteServer, FaultServerProcess

    home = _azurite_home()
    with contextlib.ExitStack() as stack:
        stack.enter_context(settings_of_the_user_removed(("AZURE_",), {}))
        with interrupts_held():
            azurite = AzuriteServer(home)
            stack.callback(azurite.stop)
            server = FaultServerProcess(upstream=azurite.url, protocol="azure")
            server.start()
            stack.callback(server.stop)
        direct = azurite.account
        _make_container(direct)
        yield EmbeddedStore(AZURE, job, server, options=_options(direct.at(server.url)), back_door=_options(direct))


def real_store(
    endpoint_url: str, container: str, *, told: Callable[[str, str], None]
) -> AbstractContextManager[PrefixStore]:
    """Give a prefix of a container; credentials come from the environment variables that adlfs reads.

    A key or a SAS (AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN), a connection string
    (AZURE_STORAGE_CONNECTION_STRING) of this very account, or else an identity, which needs https.
    """
    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    options = _found_options(endpoint_url.rstrip("/"), os.environ)
    try:
        filesystem = ResilientAzureBlobFileSystem(**options)
    except Exception as error:  # of adlfs, azure.identity: whatever it is, the user must see it
        raise StoreUnusable(f"cannot connect to {endpoint_url}: {error}") from error
    store = PrefixStore(AZURE, endpoint_url=endpoint_url, bucket=container, options=options, filesystem=filesystem)
    return prefix_of(store, told=told)


def _azurite_home() -> Path:
    from resilient_io.testing.azurite_process import AZURITE_VERSION, AzuriteMissing, azurite_home, install_azurite

    try:
        home = azurite_home()
        if home is None:
            print(f"installing azurite {AZURITE_VERSION} by npm, once; it takes about half a minute", file=sys.stderr)
            home = install_azurite()
    except AzuriteMissing as missing:
        raise StoreUnusable(str(missing)) from None
    return home


def _options(account: StorageAccount) -> dict[str, Any]:
    return {"connection_string": account.connection_string, "skip_instance_cache": True}


def _make_container(account: StorageAccount) -> None:
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(account.connection_string, EMBEDDED_BUCKET) as client:
        client.create_container()


def _found_options(endpoint_url: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what adlfs needs to reach the endpoint; it would take account and host apart only for https."""
    found = environment.get("AZURE_STORAGE_CONNECTION_STRING")
    if found:
        _check_endpoint(found, endpoint_url)
    elif key := environment.get("AZURE_STORAGE_ACCOUNT_KEY"):
        found = f"BlobEndpoint={endpoint_url};AccountName={_account_of(endpoint_url)};AccountKey={key}"
    elif sas := environment.get("AZURE_STORAGE_SAS_TOKEN"):
        found = f"BlobEndpoint={endpoint_url};SharedAccessSignature={sas.removeprefix('?')}"
    if found:
        return {"connection_string": found, "skip_instance_cache": True}
    parts = urlsplit(endpoint_url)
    if parts.scheme != "https" or parts.path:
        raise StoreUnusable(
            f"{endpoint_url} can be reached by a key or a SAS only: set AZURE_STORAGE_ACCOUNT_KEY, "
            "AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING"
        )
    return {"account_name": _account_of(endpoint_url), "account_host": parts.netloc, "skip_instance_cache": True}


def _account_of(endpoint_url: str) -> str:
    return azure_host(endpoint_url).account or urlsplit(endpoint_url).path.strip("/").partition("/")[0]


def _check_endpoint(connection_string: str, endpoint_url: str) -> None:
    """Raise `StoreUnusable` where the connection string leads elsewhere: it would win, and elsewhere be written to."""
    from azure.storage.blob import BlobServiceClient

    try:
        with BlobServiceClient.from_connection_string(connection_string) as client:
            leads_to = str(client.primary_endpoint).partition("?")[0].rstrip("/")
    except ValueError:
        raise StoreUnusable("AZURE_STORAGE_CONNECTION_STRING is not a connection string") from None
    if leads_to != endpoint_url:
        raise StoreUnusable(f"AZURE_STORAGE_CONNECTION_STRING leads to {leads_to}, --endpoint-url to {endpoint_url}")
