"""`ResilientS3FileSystem`: s3fs's filesystem with the hooks in its clients and its own retries off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from botocore.exceptions import ClientError
from fsspec import mapping
from fsspec.asyn import get_loop, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations import cached
from fsspec.utils import stringify_path
from s3fs import S3FileSystem

from resilient_io import policy as policies
from resilient_io.aws import reading, whole
from resilient_io.aws.denied import explain, translated
from resilient_io.aws.file import ResilientS3File
from resilient_io.aws.hardening import hardening_of
from resilient_io.aws.hooks import harden
from resilient_io.aws.uploads import Uploading
from resilient_io.drive.caches import hear_in_caches
from resilient_io.drive.first import FIRST_READ_BYTES, First
from resilient_io.drive.forked import StartsAnew, leave_behind
from resilient_io.drive.guard import guard_filesystem, guarded
from resilient_io.drive.interrupting import interruptible
from resilient_io.drive.merging import cat_merged
from resilient_io.drive.omitting import cat_present, raise_in_maps
from resilient_io.drive.operation import current
from resilient_io.errors import GiveUp, ObjectChanged

# Read at import, before `aws.sessions` may turn it down.
_STOCK_ROUNDS: int = S3FileSystem.retries
# What the reads of this module ask with, all of which GetObject knows.
_OF_A_GET: Final = frozenset({"Bucket", "Key", "VersionId", "Range", "IfMatch"})


class ResilientS3FileSystem(StartsAnew, Uploading):
    """s3fs's filesystem: same URLs, options, classes and errors; throttling is survived and shared.

    `resilience` holds policy fields, a preset's name, JSON, or False (stock behaviour). It is JSON
    like the other storage options, so that pickles, `to_json` and spawned workers keep it; the
    policy itself is found anew for each call, so `configure()` reaches cached instances too.

    Safe in threads and in any event loop, as s3fs is. An instance inherited over fork starts anew
    in the child.
    """

    protocol = ("s3", "s3a", "rs3")
    _s3: Any
    session: Any

    def __init__(self, *args: Any, resilience: object = None, **kwargs: Any) -> None:
        self._overlay = policies.overlay(resilience)
        self.resilience = resilience
        self._buckets: set[str] = set()
        policy = policies.resolve(self._overlay)
        config = dict(kwargs.get("config_kwargs") or {})
        # aiohttp queues what exceeds its pool, where no scope could see it.
        config.setdefault("max_pool_connections", max(policy.max_concurrency, 64))
        super().__init__(*args, **{**kwargs, "config_kwargs": config})

    @property
    def retries(self) -> int:
        """Rounds of s3fs's own retry loop: one, because the hooks own the retry."""
        return 1 if self._enabled() else _STOCK_ROUNDS

    def _enabled(self) -> bool:
        return policies.resolve(self._overlay).enabled

    # -- clients -----------------------------------------------------------------------------------

    async def set_session(self, refresh: bool = False, kwargs: Any = None) -> Any:
        """Return the client, made if need be, with the hooks in it."""
        self.start_anew()
        client = await super().set_session(refresh=refresh, kwargs=kwargs or {})
        return self._hardened(client)

    _connect = set_session
    connect = sync_wrapper(set_session)

    async def get_s3(self, bucket: str | None = None) -> Any:
        """Return the client for this bucket's region, with the hooks in it."""
        return self._hardened(await super().get_s3(bucket))

    async def client_for(self, bucket: str) -> Any:
        """Return the client for this bucket, with the hooks in it, made if need be."""
        client = await self.set_session()
        return await self.get_s3(bucket) if self.cache_regions else client

    def _hardened(self, client: Any) -> Any:
        return client if hardening_of(client) is not None else harden(client, self._overlay)

    # -- fork --------------------------------------------------------------------------------------

    def _forget_parent(self) -> None:
        leave_behind(self._s3, getattr(self, "_s3creator", None), self.session, self._loop)
        self._s3 = self._s3creator = None
        # Older s3fs does not note whose the session is; one that was given is in the arguments.
        if getattr(self, "_session_is_owned", self.storage_options.get("session") is None):
            self.session = None
        self._set_session_lock = asyncio.Lock()
        self._loop = None if self.asynchronous else get_loop()

    @staticmethod
    def close_session(loop: Any, s3: Any) -> None:
        """Close the client's connections; those that a fork brought along are the parent's, and stay as they are."""
        made = hardening_of(getattr(s3, "_client", None))
        if made is not None and made.pid != os.getpid():
            leave_behind(loop, s3)
            return
        S3FileSystem.close_session(loop, s3)

    # -- buckets that are there --------------------------------------------------------------------

    async def _call_s3(self, method: str, *options: Any, **kwargs: Any) -> Any:
        """Send one request; a bucket that answered is there, and need not be asked for again."""
        with self._noting(kwargs):
            found = await super()._call_s3(method, *options, **kwargs)
        self._saw(kwargs.get("Bucket"), gone=method == "delete_bucket")
        return found

    async def _lsdir(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """List one directory; an older s3fs does not do so by `_call_s3`."""
        bucket, is_known = self.split_path(path)[0], path in self.dircache
        with self._noting({"Bucket": bucket}):
            found = await super()._lsdir(path, *args, **kwargs)
        if not is_known:
            self._saw(bucket)
        return found

    @contextmanager
    def _noting(self, asked: Mapping[str, Any]) -> Iterator[None]:
        """Note of a request with these parameters, if it fails, what its error tells: a caller may not raise it."""
        try:
            yield
        except FileNotFoundError as error:
            if _code_of(error) == "NoSuchBucket":
                self._buckets.discard(str(asked.get("Bucket")))
            raise
        except PermissionError as error:
            # fsspec's `isfile` and s3fs's `exists` of a bucket make a no of it.
            operation = current()
            if operation is not None and self._enabled():
                explain(error, asked)
                operation.denied = error
            raise

    def _saw(self, bucket: Any, *, gone: bool = False) -> None:
        if isinstance(bucket, str):
            (self._buckets.discard if gone else self._buckets.add)(bucket)

    async def _mkdir(self, path: str, acl: Any = False, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a bucket; below one that this filesystem has seen there is nothing to make, nor to ask."""
        bucket, key, _ = self.split_path(self._strip_protocol(path).rstrip("/"))
        if not (key and bucket in self._buckets and self._enabled()):
            await super()._mkdir(path, acl=acl, create_parents=create_parents, **kwargs)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a bucket; below one there is nothing to make, nor to ask: the first write tells if it is not there."""
        _, key, _ = self.split_path(self._strip_protocol(path).rstrip("/"))
        if not (key and self._enabled()):
            await super()._makedirs(path, exist_ok=exist_ok)

    async def _isfile(self, path: str) -> bool:
        """Say whether there is such an object; an older fsspec takes a cancellation for a no."""
        try:
            found: bool = (await self._info(path))["type"] == "file"
        except Exception:  # the guard raises what is no absence
            return False
        return found

    # -- reading -----------------------------------------------------------------------------------

    async def _cat_file(
        self,
        path: str,
        version_id: str | None = None,
        start: int | None = None,
        end: int | None = None,
        chunksize: int | None = None,
        max_concurrency: int | None = None,
        **kwargs: Any,
    ) -> bytes:
        """Return the bytes of an object, or of a part of it, with one GET and no HEAD before it."""
        if not self._enabled():
            given = _given(chunksize=chunksize, max_concurrency=max_concurrency)
            stock: bytes = await super()._cat_file(path, version_id, start, end, **given, **kwargs)
            return stock
        request = {**self._request_for(path, version_id), **kwargs}
        try:
            if start is not None or end is not None:
                asked = await self._process_limits(path, start, end)
                if _is_empty(asked):
                    return b""
                data = await reading.read_range(self, {**request, "Range": asked})
            else:
                data = await whole.read_object(self, request, **self._blocks(chunksize, max_concurrency))
        except reading.Changed as error:
            raise _changed(path) from error
        self._saw(request["Bucket"])
        return data

    async def _cat(self, path: str | list[str], recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """Return the bytes of one path, or of several by path; `on_error="omit"` leaves out what is not there."""
        if not self._enabled():
            return await super()._cat(path, recursive=recursive, on_error=on_error, **kwargs)
        return await cat_present(super()._cat, path, recursive=recursive, on_error=on_error, **kwargs)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Return ranges of objects, near ones in one request (`max_gap`); by default errors stand in their places."""
        options = {"batch_size": batch_size, **kwargs}
        if not self._enabled():
            stock: list[Any] = await super()._cat_ranges(
                paths, starts, ends, max_gap=max_gap, on_error=on_error, **options
            )
            return stock
        return await cat_merged(super()._cat_ranges, paths, starts, ends, max_gap, on_error, **options)

    async def _get_file(
        self,
        rpath: str,
        lpath: str,
        callback: Any = DEFAULT_CALLBACK,
        version_id: str | None = None,
        chunksize: int | None = None,
        max_concurrency: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Write an object to a local file; after an error no part of it is left there."""
        if not self._enabled():
            given = _given(chunksize=chunksize, max_concurrency=max_concurrency)
            await super()._get_file(rpath, lpath, callback, version_id, **given, **kwargs)
            return
        if os.path.isdir(lpath):
            return
        request, blocks = self._request_for(rpath, version_id), self._blocks(chunksize, max_concurrency)
        try:
            await whole.read_to_file(self, request, lpath, callback=callback, **blocks)
        except reading.Changed as error:
            raise _changed(rpath) from error

    def _get_s3_method_kwargs(self, method: Any, *given: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the parameters of a request; older s3fs forgets `requester_pays` here, and what takes it back."""
        params: dict[str, Any] = super()._get_s3_method_kwargs(method, self.req_kw, *given, **kwargs)
        if params.get("RequestPayer", "") is None:
            del params["RequestPayer"]
        return params

    def parameters_of(self, get: Any, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters of a GET: mostly those given, with nothing that s3fs would add or leave out."""
        if request.keys() <= _OF_A_GET and not self.req_kw and not self.s3_additional_kwargs:
            return request
        return self._get_s3_method_kwargs(get, request)

    def _request_for(self, path: str, version_id: str | None) -> dict[str, Any]:
        bucket, key, version = self.split_path(path)
        request = {"Bucket": bucket, "Key": key}
        if version_id or version:
            request["VersionId"] = version_id or version
        return request

    def _blocks(self, chunksize: int | None, max_concurrency: int | None) -> dict[str, int]:
        return {
            "block_bytes": chunksize or self.default_block_size,
            "side_by_side": max_concurrency or self.max_concurrency,
        }

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        """Open a file; one to be read begins with its first bytes instead of a HEAD."""
        if not self._enabled():
            return super()._open(path, mode, **kwargs)
        options = self._file_options(**kwargs)
        first = None
        if mode == "rb" and options["size"] is None and not self.version_aware and self._ls_from_cache_of(path) is None:
            first = self._first_bytes(path, min(FIRST_READ_BYTES, options["block_size"]), options["requester_pays"])
        return ResilientS3File(self, path, mode, first=first, **options)

    def _file_options(
        self,
        block_size: int | None = None,
        acl: Any = False,
        version_id: str | None = None,
        fill_cache: bool | None = None,
        cache_type: str | None = None,
        autocommit: bool = True,
        size: int | None = None,
        requester_pays: bool | None = None,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the options of a file with s3fs's defaults filled in."""
        if version_id and not self.version_aware:
            raise ValueError("version_id cannot be given: this filesystem was not made with version_aware=True")
        return {
            "block_size": self.default_block_size if block_size is None else block_size,
            "acl": acl or self.s3_additional_kwargs.get("ACL") or self.s3_additional_kwargs.get("acl") or False,
            "version_id": version_id,
            "fill_cache": self.default_fill_cache if fill_cache is None else fill_cache,
            "s3_additional_kwargs": {**self.s3_additional_kwargs, **kwargs},
            "cache_type": cache_type or self.default_cache_type,
            "autocommit": autocommit,
            "requester_pays": bool(self.req_kw) if requester_pays is None else requester_pays,
            "cache_options": cache_options,
            "size": size,
        }

    def _ls_from_cache_of(self, path: str) -> Any:
        return self._ls_from_cache(self._strip_protocol(stringify_path(path)))

    @guarded("open")
    async def _first(self, path: str, length_bytes: int, requester_pays: bool) -> First | None:
        bucket, key, version = self.split_path(path)
        if not key or version:
            return None
        request: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if requester_pays != bool(self.req_kw):
            # None takes the filesystem's own default out again.
            request["RequestPayer"] = "requester" if requester_pays else None
        try:
            first = await reading.read_first(self, request, length_bytes)
        except ClientError as error:
            raise translated(error, request) from error
        self._saw(bucket)
        return first

    _first_bytes = interruptible(sync_wrapper(_first), _first)

    @guarded("read ahead")
    async def _read_ahead(self, *about: Any) -> bytes:
        return await whole.read_span(self, *about)


def _is_empty(asked: str) -> bool:
    """Say whether a Range header ends before it begins; a store that is asked so sends the whole object."""
    first, _, last = asked.removeprefix("bytes=").partition("-")
    return first.isdigit() and last.lstrip("-").isdigit() and int(last) < int(first)


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that were given; older s3fs does not know all of them."""
    return {name: value for name, value in options.items() if value is not None}


def _code_of(error: BaseException) -> str | None:
    """Return the store's code in the error that s3fs translated."""
    cause = error.__cause__
    return cause.response.get("Error", {}).get("Code") if isinstance(cause, ClientError) else None


def _changed(path: str) -> ObjectChanged:
    """Return the error for an object that was replaced between two requests for its bytes."""
    record = GiveUp(operation="GetObject", path=path)
    return ObjectChanged(f"GetObject {path}: the object was replaced while it was being read", record=record)


guard_filesystem(ResilientS3FileSystem, sync_wrapper)
hear_in_caches(cached)
raise_in_maps(mapping)
