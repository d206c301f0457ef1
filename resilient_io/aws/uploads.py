"""Multipart uploads of a filesystem's calls and files: one that does not end well is aborted, however it ended.

s3fs aborts after an exception, but not after a cancellation or a KeyboardInterrupt, never a copy, and while other parts
are still on their way. Parts of an upload that is neither completed nor aborted are stored, and paid for, for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from s3fs import S3FileSystem

from resilient_io.drive.interrupting import END_S, for_nobody
from resilient_io.drive.operation import Operation, Surface, current, made_current, spared

_log = logging.getLogger("resilient_io")
_LOOK_S: Final = 0.01

Place = dict[str, Any]


class Uploads:
    """The uploads that one call, or one open file, has begun and not ended. Filled by the loop's thread.

    An upload is there as soon as the store has the request, whether or not the caller still waits for the answer: so
    the request is let finish, and its answer entered here.
    """

    def __init__(self) -> None:
        self._open: dict[str, Place] = {}
        self._beginning: set[asyncio.Future[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._open or self._beginning)

    async def begun(self, creating: Awaitable[Any], place: Place) -> Any:
        """Return the answer of the request that begins an upload."""
        _wait_at_end()
        with spared():
            task = asyncio.ensure_future(creating)
        self._beginning.add(task)
        task.add_done_callback(functools.partial(self._note, place))
        return await asyncio.shield(task)

    def _note(self, place: Place, task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._open[task.result()["UploadId"]] = place
        self._beginning.discard(task)

    def completed(self, upload_id: str) -> None:
        """Forget an upload that is an object now."""
        self._open.pop(upload_id, None)

    async def take_back(self, fs: Any) -> None:
        """Abort all that is open, in an order in which nothing can come after its abort. Errors are logged."""
        operation = current()
        if self and operation is not None:
            # A part that arrives after the abort would be stored all the same.
            operation.end_tasks()
        if self._beginning:
            _, pending = await asyncio.wait(tuple(self._beginning), timeout=END_S)
            for task in pending:
                task.cancel()
        for upload_id, place in tuple(self._open.items()):
            with (
                for_nobody(),
                made_current(Operation(name="abort upload", surface=Surface.CLIENT, overlay=fs._overlay)),
            ):
                await _abort(fs, upload_id, place)
            self._open.pop(upload_id, None)


async def _abort(fs: Any, upload_id: str, place: Place) -> None:
    try:
        await fs._call_s3("abort_multipart_upload", **place, UploadId=upload_id)
    except FileNotFoundError:
        pass  # it is gone
    except Exception as error:
        warn_of_orphan(place, upload_id, error)


_ours: ContextVar[Uploads | None] = ContextVar("resilient_io_uploads", default=None)
_lock = threading.Lock()
_watched: list[Uploads] = []


@contextmanager
def noted_in(uploads: Uploads) -> Iterator[None]:
    """Let the uploads that are begun inside be entered here, and the end of the program wait for them."""
    token = _ours.set(uploads)
    try:
        with watched(uploads):
            yield
    finally:
        _ours.reset(token)


@contextmanager
def watched(uploads: Uploads) -> Iterator[None]:
    """Let the end of the program wait for what is done about these uploads inside."""
    with _lock:
        _watched.append(uploads)
    try:
        yield
    finally:
        with _lock:
            _watched[:] = [each for each in _watched if each is not uploads]


def takes_back(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a coroutine method of the filesystem that aborts its uploads if it does not end well."""

    @functools.wraps(inner)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _ours.get() is not None or not self._enabled():
            return await inner(self, *args, **kwargs)
        uploads = Uploads()
        with noted_in(uploads):
            try:
                return await inner(self, *args, **kwargs)
            except BaseException:
                token = _ours.set(None)
                await uploads.take_back(self)
                _ours.reset(token)
                raise

    return method


class Uploading(S3FileSystem):  # type: ignore[misc]  # s3fs is untyped
    """The part of the filesystem that knows which uploads its calls began."""

    _overlay: Any

    def _enabled(self) -> bool:
        raise NotImplementedError

    _pipe_file = takes_back(S3FileSystem._pipe_file)
    _put_file = takes_back(S3FileSystem._put_file)
    _cp_file = takes_back(S3FileSystem._cp_file)
    _merge = takes_back(S3FileSystem._merge)

    async def _call_s3(self, method: str, *akwarglist: Any, **kwargs: Any) -> Any:
        """Send a request as s3fs does; note the uploads that it begins and ends for a call that takes them back."""
        uploads = _ours.get()
        if uploads is None:
            return await super()._call_s3(method, *akwarglist, **kwargs)
        if method == "abort_multipart_upload":
            # Left to the end of the call, when nothing is on its way any more.
            return {}
        if method == "create_multipart_upload":
            place = {"Bucket": kwargs["Bucket"], "Key": kwargs["Key"]}
            return await uploads.begun(super()._call_s3(method, *akwarglist, **kwargs), place)
        answer = await super()._call_s3(method, *akwarglist, **kwargs)
        if method == "complete_multipart_upload":
            uploads.completed(kwargs["UploadId"])
        return answer


def warn_of_orphan(place: Place, upload_id: str, error: BaseException) -> None:
    """Tell of an upload that could not be aborted, and what ends it."""
    _log.warning(
        "the upload %s of s3://%s/%s could not be aborted (%s) and keeps its parts; `resilient-io mpu abort` ends such",
        upload_id, place["Bucket"], place["Key"], type(error).__name__,
    )  # fmt: skip


def _wait_for_aborts() -> None:
    """Give the aborts of an interrupted call the time that they take; nothing where no upload is open."""
    end_at = time.monotonic() + END_S
    while time.monotonic() < end_at:
        with _lock:
            if not any(_watched):
                return
        time.sleep(_LOOK_S)


def _forget_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _watched.clear()


@functools.lru_cache(maxsize=1)
def _wait_at_end() -> None:
    """Register the wait; not at import: what is registered last runs first, and s3fs closes its connections there."""
    atexit.register(_wait_for_aborts)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
