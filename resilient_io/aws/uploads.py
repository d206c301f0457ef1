"""Multipart uploads of a filesystem's calls: one that does not end well is aborted, however it ended.

s3fs aborts after an exception, but not after a cancellation or a KeyboardInterrupt, never a copy, and while other parts
are still on their way. Parts of an upload that is neither completed nor aborted are stored, and paid for, for ever.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from s3fs import S3FileSystem

from resilient_io.drive.operation import Operation, Surface, current, made_current

_log = logging.getLogger("resilient_io")
# How long the end of the program waits for uploads that an interrupt ended: their aborts are sent by another thread.
_END_S: Final = 2.0

Place = dict[str, Any]
_ours: ContextVar[dict[str, Place] | None] = ContextVar("resilient_io_uploads", default=None)
_lock = threading.Lock()
_open: list[dict[str, Place]] = []


def takes_back(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a coroutine method of the filesystem that aborts its uploads if it does not end well."""

    @functools.wraps(inner)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _ours.get() is not None or not self._enabled():
            return await inner(self, *args, **kwargs)
        ours: dict[str, Place] = {}
        token = _ours.set(ours)
        with _lock:
            _open.append(ours)
        try:
            return await inner(self, *args, **kwargs)
        except BaseException:
            _ours.reset(token)
            token = _ours.set(None)
            await _abort_all(self, ours)
            raise
        finally:
            _ours.reset(token)
            with _lock:
                _open[:] = [each for each in _open if each is not ours]

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
        ours = _ours.get()
        if ours is not None and method == "abort_multipart_upload":
            # Left to the end of the call, when nothing is on its way any more.
            return {}
        answer = await super()._call_s3(method, *akwarglist, **kwargs)
        if ours is not None and method == "create_multipart_upload":
            ours[answer["UploadId"]] = {"Bucket": kwargs["Bucket"], "Key": kwargs["Key"]}
            _wait_at_end()
        elif ours is not None and method == "complete_multipart_upload":
            ours.pop(kwargs["UploadId"], None)
        return answer


async def _abort_all(fs: Any, ours: dict[str, Place]) -> None:
    operation = current()
    if ours and operation is not None:
        # A part that arrives after the abort would be stored all the same.
        operation.end_tasks()
    for upload_id, place in tuple(ours.items()):
        with made_current(Operation(name="abort upload", surface=Surface.CLIENT, overlay=fs._overlay)):
            try:
                await fs._call_s3("abort_multipart_upload", **place, UploadId=upload_id)
            except FileNotFoundError:
                pass  # it is gone
            except Exception as error:
                warn_of_orphan(place, upload_id, error)
        del ours[upload_id]


def warn_of_orphan(place: Place, upload_id: str, error: BaseException) -> None:
    """Tell of an upload that could not be aborted, and what ends it."""
    _log.warning(
        "the upload %s of s3://%s/%s could not be aborted (%s) and keeps its parts; `resilient-io mpu abort` ends such",
        upload_id, place["Bucket"], place["Key"], type(error).__name__,
    )  # fmt: skip


def _wait_for_aborts() -> None:
    """Give the aborts of an interrupted call the time that they take; nothing where no upload is open."""
    end_at = time.monotonic() + _END_S
    while time.monotonic() < end_at:
        with _lock:
            if not any(_open):
                return
        time.sleep(0.01)


def _forget_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _open.clear()


@functools.lru_cache(maxsize=1)
def _wait_at_end() -> None:
    """Register the wait; not at import: what is registered last runs first, and s3fs closes its connections there."""
    atexit.register(_wait_for_aborts)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
