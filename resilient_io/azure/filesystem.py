"""`ResilientAzureBlobFileSystem`: adlfs's filesystem on clients with this library's retry policy and transport."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
from collections.abc import Callable
from glob import has_magic
from typing import Any

import adlfs
from azure.core.exceptions import HttpResponseError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob.aio import BlobServiceClient
from fsspec import mapping
from fsspec.asyn import get_loop, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations import cached
from fsspec.utils import stringify_path

from resilient_io import policy as policies
from resilient_io.azure import ending, reading
from resilient_io.azure.clients import client_kwargs
from resilient_io.azure.copying import Copying
from resilient_io.azure.denied import told
from resilient_io.azure.file import ResilientAzureBlobFile
from resilient_io.azure.listing import Listing, unless_off
from resilient_io.azure.whole import Source, read_blob, read_span
from resilient_io.drive.caches import hear_in_caches
from resilient_io.drive.first import FIRST_READ_BYTES, First
from resilient_io.drive.forked import StartsAnew, leave_behind
from resilient_io.drive.guard import guard_filesystem, guarded
from resilient_io.drive.interrupting import interruptible
from resilient_io.drive.landing import Landing, LocalFile, Memory, published
from resilient_io.drive.merging import cat_merged
from resilient_io.drive.omitting import present, raise_in_maps
from resilient_io.errors import NotForkSafe


class ResilientAzureBlobFileSystem(StartsAnew, Copying, Listing):
    """adlfs's filesystem: same URLs, options, classes and errors; throttling is survived and shared.

    `resilience` holds policy fields, a preset's name, JSON, or False (stock behaviour). It is JSON
    like the other storage options, so that pickles, `to_json` and spawned workers keep it; the
    policy itself is found anew for each call, so `configure()` reaches cached instances too.

    Safe in threads, and in any event loop: each loop gets a client of its own. An instance inherited
    over fork starts anew in the child.
    """

    protocol = ("abfs", "az", "abfss", "rabfs", "raz")
    credential: Any
    sync_credential: Any
    _client: Any

    def __init__(self, *args: Any, resilience: object = None, **kwargs: Any) -> None:
        self._overlay = policies.overlay(resilience)
        self.resilience = resilience
        self._credential_anew: Callable[[], tuple[Any, Any]] | None = None
        super().__init__(*args, **kwargs)
        ending.forget_finalizers(self)
        self._close_at_end()

    def _enabled(self) -> bool:
        return policies.resolve(self._overlay).enabled

    # -- clients -----------------------------------------------------------------------------------

    def do_connect(self) -> None:
        """Make the client: adlfs finds out where and with what credentials, and this library how it sends."""
        super().do_connect()
        # adlfs's own client; it never opens a socket.
        self._blueprint = self._client
        self._client, _ = self._new_client()
        self._other_clients: ending.Clients = {}

    def _new_client(self) -> tuple[Any, Any]:
        """Return a client as adlfs would make it, and its transport."""
        stock = self._blueprint
        options: dict[str, Any] = {"user_agent": f"adlfs/{adlfs.__version__}"}
        if stock.credential is not None:
            options["credential"] = stock.credential
        if stock.secondary_hostname:
            options["secondary_hostname"] = stock.secondary_hostname
        if stock.location_mode != "primary":
            options["_location_mode"] = stock.location_mode
        made = client_kwargs(self._overlay, aio=True, **self._timeouts())
        return BlobServiceClient(account_url=stock.primary_endpoint, **options, **made), made["transport"]

    def _timeouts(self) -> dict[str, Any]:
        """Return adlfs's timeouts for each request; by itself it gives them to four of its methods."""
        return {name: each for name, each in self._timeout_kwargs.items() if name.endswith("_timeout")}

    @property
    def service_client(self) -> Any:
        """The client for the event loop that runs here, or for the filesystem's own."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        return self.client_on(loop)

    @service_client.setter
    def service_client(self, client: Any) -> None:
        self._client = client

    def client_on(self, loop: Any) -> Any:
        """Return the client whose connections belong to this event loop; aio clients cannot change theirs."""
        self.start_anew()
        if loop is None or loop is self._loop:
            return self._client
        if loop not in self._other_clients:
            ending.drop_dead(self._other_clients)
            self._other_clients[loop] = self._new_client()
        return self._other_clients[loop][0]

    def _close_at_end(self) -> None:
        # A credential that was given is not ours to close.
        credential = self.credential if self._credential_anew is not None else None
        ending.close_at_end(self, self._loop, self._client, self._other_clients, credential)

    # -- credentials, fork -------------------------------------------------------------------------

    def _get_credential_from_service_principal(self) -> tuple[Any, Any]:
        return self._remembered(super()._get_credential_from_service_principal)

    def _get_default_azure_credential(self, **kwargs: Any) -> tuple[Any, Any]:
        return self._remembered(functools.partial(super()._get_default_azure_credential, **kwargs))

    def _remembered(self, make: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
        self._credential_anew = make
        return make()

    def _forget_parent(self) -> None:
        if self._credential_anew is None and hasattr(self.credential, "get_token"):
            raise NotForkSafe(
                f"the {type(self.credential).__name__} of this filesystem was made before the process forked, and its "
                "event loop does not run here; make credential and filesystem in the worker, start workers with the "
                "spawn method, or let adlfs make the credential (anon=False, or client_id)"
            )
        leave_behind(self._client, self._other_clients, self._blueprint, self._loop, self.credential)
        self._loop = None if self.asynchronous else get_loop()
        if self._credential_anew is not None:
            self.credential, self.sync_credential = self._credential_anew()
        self.do_connect()
        self._close_at_end()

    # -- reading -----------------------------------------------------------------------------------

    @unless_off
    async def _cat_file(
        self,
        path: str,
        start: int | None = None,
        end: int | None = None,
        max_concurrency: int | None = None,
        **kwargs: Any,
    ) -> bytes:
        """Return the bytes of a blob, or of a part of it; all of one version."""
        try:
            if start is None and end is None:
                landing = Memory()
                await self._read_whole(path, landing, max_concurrency)
                return landing.value()
            data: bytes = await super()._cat_file(path, start, end, max_concurrency, **kwargs)
            return data
        except ResourceModifiedError as error:
            raise reading.changed(path) from error

    async def _read_whole(self, path: str, landing: Landing, max_concurrency: int | None) -> None:
        container, blob, version_id = self.split_path(self._strip_protocol(path))
        async with self.service_client.get_blob_client(container, blob) as client:
            try:
                await read_blob(self._source(client, version_id, max_concurrency), landing)
            except HttpResponseError as error:
                if isinstance(error, ResourceNotFoundError) or (version_id and error.status_code == 400):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
                raise

    def _source(self, client: Any, version_id: str | None, max_concurrency: int | None = None) -> Source:
        return Source(
            client=client,
            version_id=version_id,
            block_bytes=self.blocksize,
            side_by_side=max_concurrency or self.max_concurrency or 1,
            options=self._timeout_kwargs,
            strict=policies.resolve(self._overlay).verify == "strict",
        )

    @unless_off
    async def _cat(
        self,
        path: str | list[str],
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the bytes of one path, or of several by path; one that is named is not asked for twice."""
        if isinstance(path, str) and not recursive and not has_magic(path):
            return await self._cat_file(path, **kwargs)
        paths = await self._expand_path(path, recursive=recursive, skip_noexist=False)
        starts = [None] * len(paths)
        found = await super()._cat_ranges(
            paths,
            starts,
            starts,
            batch_size=batch_size,
            on_error="raise" if on_error == "raise" else "return",
            **kwargs,
        )
        by_path = dict(zip(paths, found, strict=True))
        return present(by_path) if on_error == "omit" else by_path

    cat = sync_wrapper(_cat)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        max_concurrency: int | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Return ranges of blobs, near ones in one request (`max_gap`); by default errors stand in their places."""
        options = {"batch_size": batch_size, "max_concurrency": max_concurrency, **kwargs}
        if not self._enabled():
            stock: list[Any] = await super()._cat_ranges(
                paths, starts, ends, max_gap=max_gap, on_error=on_error, **options
            )
            return stock
        return await cat_merged(super()._cat_ranges, paths, starts, ends, max_gap, on_error, **options)

    @unless_off
    async def _get_file(
        self,
        rpath: str,
        lpath: str,
        recursive: bool = False,
        delimiter: str = "/",
        callback: Any = None,
        max_concurrency: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Write a blob to a local file, which gets its name when it is whole; see `LocalFile`."""
        if os.path.isdir(lpath):
            return
        path = self._strip_protocol(rpath).rstrip(delimiter)
        try:
            with published(LocalFile(lpath, DEFAULT_CALLBACK if callback is None else callback)) as landing:
                await self._read_whole(path, landing, max_concurrency)
        except ResourceModifiedError as error:
            raise reading.changed(rpath) from error

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        version_id: str | None = None,
        cache_type: str = "readahead",
        **options: Any,
    ) -> Any:
        """Open a file; one to be read begins with its first bytes instead of a HEAD."""
        options = {**options, "version_id": version_id, "cache_type": cache_type}
        if not self._enabled():
            return super()._open(path, mode, block_size, **options)
        if version_id and not self.version_aware:
            raise ValueError("version_id cannot be given: this filesystem was not made with version_aware=True")
        block_bytes = self.blocksize if block_size is None else block_size
        first = None
        if mode == "rb" and not self.version_aware and self._ls_from_cache(self._strip_protocol(path)) is None:
            first = self._first_bytes(path, min(FIRST_READ_BYTES, block_bytes))
        return ResilientAzureBlobFile(self, path, mode, first=first, block_size=block_bytes, **options)

    @guarded("open", told)
    async def _first(self, path: str, length_bytes: int) -> First | None:
        path = self._strip_protocol(stringify_path(path))
        container, blob, _ = self.split_path(path)
        if not blob:
            return None
        try:
            return await reading.read_first(self, container, blob, length_bytes)
        except ResourceNotFoundError as error:
            if await self._dir_exists(container, blob):
                return First(data=b"", details={"name": path.rstrip("/"), "size": None, "type": "directory"})
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    _first_bytes = interruptible(sync_wrapper(_first), _first)

    @guarded("read ahead", told)
    async def _read_ahead(self, *about: Any) -> bytes:
        return await read_span(*about)


guard_filesystem(ResilientAzureBlobFileSystem, sync_wrapper, told)
hear_in_caches(cached)
raise_in_maps(mapping)
