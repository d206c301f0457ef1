"""The outermost layer of a filesystem: one operation for each public call, and no error swallowed.

fsspec, s3fs and adlfs turn errors into answers: `walk` omits what an OSError kept it from seeing,
`isfile` says False, `exists` of a bucket says False and `mkdir` then creates it. So a give-up
travels below as `GaveUp`, which is no OSError, and every one is in the operation's ledger: a method
that comes back with a longer ledger than it began with has swallowed a refusal, and raises it. What
is not allowed is an OSError as it always was: who answers no after one raises that.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final

from resilient_io.drive.caches import heard
from resilient_io.drive.ending import Told, as_it_is, end, operation_of, option, outer_call, raise_last
from resilient_io.drive.interrupting import interruptible, waiting
from resilient_io.drive.operation import Operation, made_current
from resilient_io.drive.walking import guarded_walk, guarded_walk_async
from resilient_io.errors import ResilientIOError


class Kind(Enum):
    """How a method relates to the paths it is given."""

    SINGLE = "one path: its give-up ends the call"
    BULK = "many paths: each item is an operation of its own"
    WALK = "a generator: each step is guarded"


# Each filesystem method that sends requests. The async form is the name with "_" before it; the
# sync form is either made by fsspec from that, or bound to it again here.
METHODS: Final[dict[str, Kind]] = {
    **dict.fromkeys(
        (
            # of fsspec
            "cat_file", "checksum", "cp_file", "du", "exists", "expand_path", "find", "get_file", "glob", "info",
            "isdir", "isfile", "ls", "makedirs", "mkdir", "mv_file", "pipe_file", "put_file", "rm", "rm_file", "rmdir",
            "size", "touch",
            # of s3fs besides
            "abort_mpu", "call_s3", "chmod", "clear_multipart_uploads", "getxattr", "invalidate_region_cache",
            "is_bucket_versioned", "list_multipart_uploads", "lsbuckets", "lsdir", "make_bucket_versioned", "merge",
            "metadata", "object_version_info", "rm_versioned_bucket_contents", "setxattr",
            # of adlfs besides
            "container_exists", "dir_exists", "ls_blobs", "ls_containers", "rm_files", "setxattrs",
        ),
        Kind.SINGLE,
    ),
    **dict.fromkeys(("cat", "cat_ranges", "copy", "get", "pipe", "put", "sizes"), Kind.BULK),
    **dict.fromkeys(("walk", "async_walk"), Kind.WALK),
}  # fmt: skip

FILE_METHODS: Final = ("_fetch_range", "_initiate_upload", "_upload_chunk", "commit", "discard")


def guard_filesystem(cls: type, sync_wrapper: Callable[[Any], Any], told: Told = as_it_is) -> type:
    """Guard every method of METHODS that `cls` has, in both forms; return `cls`.

    `sync_wrapper` is fsspec's. A sync form that the base class bound to its own coroutine is bound
    to the guarded one. `told` makes of an SDK's error the one that a caller sees.
    """
    for name, kind in METHODS.items():
        inner = getattr(cls, f"_{name}", None)
        if inspect.iscoroutinefunction(inner):
            guarded = _guarded(name, inner, kind, told)
            setattr(cls, f"_{name}", guarded)
            if _is_made_from_coroutine(cls, name, sync_wrapper):
                setattr(cls, name, interruptible(sync_wrapper(guarded), guarded))
        elif inspect.isasyncgenfunction(inner):
            setattr(cls, f"_{name}", guarded_walk_async(name, inner, told))
        if kind is Kind.WALK and hasattr(cls, name):
            setattr(cls, name, guarded_walk(name, getattr(cls, name), told))
    return cls


def _is_made_from_coroutine(cls: type, name: str, sync_wrapper: Callable[[Any], Any]) -> bool:
    """Say whether the sync form of a method is the coroutine, waited for: bound so, or by fsspec when it makes one."""
    blocking = getattr(cls, name, None)
    if inspect.iscoroutinefunction(getattr(blocking, "__wrapped__", None)):
        return True
    asyn: Any = sys.modules[sync_wrapper.__module__]
    mirrored = f"_{name}" in asyn.async_methods or hasattr(asyn.AsyncFileSystem, f"_{name}")
    return mirrored and getattr(blocking, "__module__", "") == "fsspec.spec"


def guard_file(cls: type, *more: str, told: Told = as_it_is) -> type:
    """Guard the methods of an open file that send requests, and those named besides; return `cls`."""
    for name in (*FILE_METHODS, *more):
        setattr(cls, name, _guarded_file_method(name, getattr(cls, name), told))
    return cls


def guarded(
    name: str, told: Told = as_it_is
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
    """Return the decorator for a coroutine method outside METHODS that does the work of a public `name`."""
    return lambda inner: _guarded(name, inner, Kind.SINGLE, told)


def _guarded(name: str, inner: Callable[..., Awaitable[Any]], kind: Kind, told: Told) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(inner)
    async def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer = outer_call()
        if outer is not None and not outer.bulk:
            return await _nested(outer, inner(self, *args, **kwargs))
        operation = operation_of(self, name, bulk=kind is Kind.BULK, home=asyncio.current_task())
        wait = waiting()
        if wait is not None:
            wait.begins(operation)
        with made_current(operation):
            try:
                result = await inner(self, *args, **kwargs)
            except BaseException as error:
                operation.end_tasks()
                if isinstance(error, Exception) and not isinstance(error, ResilientIOError):
                    end(operation, error, told)
                raise
            finally:
                if outer is not None:
                    outer.ledger.extend(operation.ledger)
                if wait is not None:
                    wait.ended(operation)
        if operation.ledger and not _returns_errors(inner, (self, *args), kwargs):
            raise_last(operation)
        if result is False and operation.denied is not None:
            raise heard(operation.denied)
        return result

    return guarded


def _returns_errors(inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether the caller gets errors as values, which is the default of `cat_ranges`."""
    return bool(option(inner, args, kwargs, "on_error") == "return")


async def _nested(outer: Operation, pending: Awaitable[Any]) -> Any:
    """Run a method inside another one; what it swallowed must end the outer one before it goes on.

    `mkdir` asks `exists`, and would create the bucket that a refusal made invisible.
    """
    before, denied = len(outer.ledger), outer.denied
    result = await pending
    if len(outer.ledger) > before:
        raise outer.ledger[-1]
    if result is False and outer.denied is not None and outer.denied is not denied:
        raise outer.denied
    return result


def _guarded_file_method(name: str, inner: Callable[..., Any], told: Told) -> Callable[..., Any]:
    @functools.wraps(inner)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if outer_call() is not None:
            return inner(self, *args, **kwargs)
        operation = operation_of(self.fs, f"{self.mode} {name.lstrip('_')}")
        with made_current(operation):
            try:
                result = inner(self, *args, **kwargs)
            except ResilientIOError:
                raise
            except Exception as error:
                end(operation, error, told)
                raise
            except BaseException:
                operation.abandon()
                raise
        if operation.ledger:
            raise_last(operation)
        return result

    return guarded
