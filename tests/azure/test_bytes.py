"""What a scope moves is counted on Azure too, by the SDK and by the filesystem."""

from __future__ import annotations

from typing import Any

from azure.storage.blob import ContainerClient

import resilient_io as rio
from resilient_io.azure.clients import harden

SIZE_BYTES = 300 * 1024


def moved(op_class: str) -> int:
    return sum(one.moved_bytes for one in rio.report().scopes if one.leaf and one.op_class == op_class)


def test_the_bytes_of_a_filesystem_are_reported(fs: Any, azure_store: Any) -> None:
    """Reads and writes apart."""
    fs.pipe_file(f"{azure_store.container}/flow/a", b"x" * SIZE_BYTES)
    assert fs.cat_file(f"{azure_store.container}/flow/a") == b"x" * SIZE_BYTES
    assert (moved("write"), moved("read")) == (SIZE_BYTES, SIZE_BYTES)


def test_the_bytes_of_a_hardened_client_are_reported(azure_store: Any) -> None:
    """A blob of one block, there and back."""
    with ContainerClient.from_connection_string(azure_store.account.connection_string, azure_store.container) as client:
        harden(client)
        client.upload_blob("flow/b", b"x" * SIZE_BYTES)
        assert client.download_blob("flow/b").readall() == b"x" * SIZE_BYTES
    assert (moved("write"), moved("read")) == (SIZE_BYTES, SIZE_BYTES)
