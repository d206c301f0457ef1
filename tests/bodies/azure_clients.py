"""Clients of Azure of each kind, sync and aio, and adlfs, of one store; for the tests of bodies."""

from __future__ import annotations

import asyncio
import base64
import inspect
import io
from collections.abc import Callable
from typing import Any

from azure.storage.blob import BlobServiceClient
from azure.storage.blob.aio import BlobServiceClient as AioBlobServiceClient

import resilient_io as rio
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

KEY = base64.b64encode(b"key").decode()
MODES = ["sync", "aio", "adlfs"]
CHECKING_MODES = ["sync-md5", "aio-md5"]
"""Those that ask with `validate_content`, whose bodies are read within the attempt."""
Read = Callable[..., bytes]


def where(url: str) -> str:
    """Return the connection string of the store at this URL."""
    return f"DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={KEY};BlobEndpoint={url}/acct;"


class Clients:
    """A client of each kind of one store, under `base` and the policy of the moment."""

    def __init__(self, url: str, base: dict[str, object], **sizes: int) -> None:
        self._base = base
        self._loop = asyncio.new_event_loop()
        sync: dict[str, Any] = {**rio.azure.client_kwargs(), **sizes}
        aio: dict[str, Any] = {**rio.azure.client_kwargs(aio=True), **sizes}
        self._sync = BlobServiceClient.from_connection_string(where(url), **sync)
        self._aio = AioBlobServiceClient.from_connection_string(where(url), **aio)
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
        how = options.pop("how", "readall")
        kind, _, checks = mode.partition("-")
        client: Any = self._sync if kind == "sync" else self._aio
        if checks:
            options = {"validate_content": True, **options}
        blob = client.get_blob_client("c", "train/000001")
        stream = blob.download_blob(offset=start, length=length, **options)
        stream = await stream if inspect.isawaitable(stream) else stream
        data = _taken(stream, how)
        return bytes(await data if inspect.isawaitable(data) else data)


def _taken(stream: Any, how: str) -> Any:
    match how:
        case "readinto":
            return _into(stream)
        case "read":
            return _bit_by_bit(stream)
        case _:
            return stream.readall()


async def _into(stream: Any) -> bytes:
    target = io.BytesIO()
    done = stream.readinto(target)
    if inspect.isawaitable(done):
        await done
    return target.getvalue()


async def _bit_by_bit(stream: Any) -> bytes:
    pieces = []
    while True:
        piece = stream.read(30_000)
        piece = await piece if inspect.isawaitable(piece) else piece
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
