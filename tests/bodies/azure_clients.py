"""Clients of Azure of each kind, sync and aio, and adlfs, of one store; for the tests of bodies."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Callable
from typing import Any

from azure.storage.blob import BlobServiceClient
from azure.storage.blob.aio import BlobServiceClient as AioBlobServiceClient

import resilient_io as rio
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

KEY = base64.b64encode(b"key").decode()
MODES = ["sync", "aio", "adlfs"]
Read = Callable[..., bytes]


def where(url: str) -> str:
    """Return the connection string of the store at this URL."""
    return f"DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={KEY};BlobEndpoint={url}/acct;"


class Clients:
    """A client of each kind of one store, under `base` and the policy of the moment."""

    def __init__(self, url: str, base: dict[str, object]) -> None:
        self._base = base
        self._loop = asyncio.new_event_loop()
        self._sync = BlobServiceClient.from_connection_string(where(url), **rio.azure.client_kwargs())
        self._aio = AioBlobServiceClient.from_connection_string(where(url), **rio.azure.client_kwargs(aio=True))
        self.fs = ResilientAzureBlobFileSystem(connection_string=where(url), skip_instance_cache=True)

    def close(self) -> None:
        self._loop.run_until_complete(self._aio.close())
        self._loop.close()

    def reader(self, mode: str) -> Read:
        def read(start: int | None = None, end: int | None = None, policy: Any = None, **options: Any) -> bytes:
            rio.configure(**{**self._base, **(policy or {})})
            if mode == "adlfs":
                return bytes(self.fs.cat_file("c/train/000001", start=start, end=end))
            length = None if end is None else end - (start or 0)
            return self._loop.run_until_complete(self._download(mode, start, length, options))

        return read

    async def _download(self, mode: str, start: int | None, length: int | None, options: Any) -> bytes:
        client: Any = self._sync if mode == "sync" else self._aio
        blob = client.get_blob_client("c", "train/000001")
        stream = blob.download_blob(offset=start, length=length, **options)
        stream = await stream if inspect.isawaitable(stream) else stream
        data = stream.readall()
        return bytes(await data if inspect.isawaitable(data) else data)
