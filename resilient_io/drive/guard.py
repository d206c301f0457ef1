"""The outermost layer of a filesystem: one operation for each public call, and no error swallowed.

fsspec, s3fs and adlfs turn errors into answers: `walk` omits what an OSError kept it from seeing,
`isfile` says False, `exists` of a bucket says False and `mkdir` then creates it. So a give-up
travels below as `GaveUp`, which is no OSError, and every one is in the operation's ledger: a method
that comes back with a longer ledger than it began with has swallowed a refusal, and raises it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import Enum
from typing import Any, Final, NoReturn

from resilient_io.drive.operation import Operation, Surface, current, made_current
from resilient_io.errors import GaveUp, ResilientIOError, public_error


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
            "abort_mpu", "call_s3", "cat_file", "checksum", "chmod", "clear_multipart_uploads", "cp_file", "du",
            "exists", "expand_path", "find", "get_file", "getxattr", "glob", "info", "invalidate_region_cache",
            "is_bucket_versioned", "isdir", "isfile", "list_multipart_uploads", "ls", "lsbuckets", "lsdir",
            "make_bucket_versioned", "makedirs", "merge", "metadata", "mkdir", "mv_file", "object_version_info",
            "pipe_file", "put_file", "rm", "rm_file", "rm_versioned_bucket_contents", "rmdir", "setxattr", "size",
            "touch",
        ),
        Kind.SINGLE,
    ),
    **dict.fromkeys(("cat", "cat_ranges", "copy", "get", "pipe", "put", "sizes"), Kind.BULK),
    **dict.fromkeys(("walk",), Kind.WALK),
}  # fmt: skip

FILE_METHODS: Final = ("_fetch_range", "_initiate_upload", "_upload_chunk", "commit", "discard")


def guard_filesystem(cls: type, sync_wrapper: Callable[[Any], Any]) -> type:
    """Guard every method of METHODS that `cls` has, in both forms; return `cls`.

    `sync_wrapper` is fsspec's. A sync form that the base class bound to its own coroutine is bound
    to the guarded one.
    """
    for name, kind in METHODS.items():
        inner = getattr(cls, f"_{name}", None)
        if inspect.iscoroutinefunction(inner):
            guarded = _guarded(name, inner, kind)
            setattr(cls, f"_{name}", guarded)
            if inspect.iscoroutinefunction(getattr(getattr(cls, name, None), "__wrapped__", None)):
                setattr(cls, name, sync_wrapper(guarded))
        elif inspect.isasyncgenfunction(inner):
            setattr(cls, f"_{name}", _guarded_walk_async(name, inner))
        if kind is Kind.WALK:
            setattr(cls, name, _guarded_walk(name, getattr(cls, name)))
    return cls


def guard_file(cls: type) -> type:
    """Guard the methods of an open file that send requests; return `cls`."""
    for name in FILE_METHODS:
        setattr(cls, name, _guarded_file_method(name, getattr(cls, name)))
    return cls


def guarded(name: str) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
    """Return the decorator for a coroutine method outside METHODS that does the work of a public `name`."""
    return lambda inner: _guarded(name, inner, Kind.SINGLE)


def _operation(fs: Any, name: str, args: tuple[Any, ...], *, bulk: bool = False) -> Operation:
    return Operation(name=name, path=_path_of(args), surface=Surface.FILESYSTEM, overlay=fs._overlay, bulk=bulk)


def _outer() -> Operation | None:
    """Return the filesystem call that this one serves; the call of a client above does not speak in our errors."""
    outer = current()
    return outer if outer is not None and outer.surface is Surface.FILESYSTEM else None


def _path_of(args: tuple[Any, ...]) -> str:
    first = args[0] if args else ""
    if isinstance(first, (list, tuple)) and first:
        return f"{first[0]} and {len(first) - 1} more" if len(first) > 1 else str(first[0])
    return first if isinstance(first, str) else ""


def _raise_last(operation: Operation) -> NoReturn:
    gave_up = operation.ledger[-1]
    raise public_error(gave_up.record, gave_up.error)


def _guarded(name: str, inner: Callable[..., Awaitable[Any]], kind: Kind) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(inner)
    async def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer = _outer()
        if outer is not None and not outer.bulk:
            return await _nested(outer, inner(self, *args, **kwargs))
        operation = _operation(self, name, args, bulk=kind is Kind.BULK)
        with made_current(operation):
            try:
                result = await inner(self, *args, **kwargs)
            except ResilientIOError:
                raise
            except Exception as error:
                _end(operation, error)
                raise
            finally:
                if outer is not None:
                    outer.ledger.extend(operation.ledger)
        if operation.ledger and not _returns_errors(inner, (self, *args), kwargs):
            _raise_last(operation)
        return result

    return guarded


def _returns_errors(inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether the caller gets errors as values: `on_error` by name, by place, or by default as in `cat_ranges`."""
    call = inspect.signature(inner).bind_partial(*args, **kwargs)
    call.apply_defaults()
    found = {**call.arguments, **call.arguments.get("kwargs", {})}
    return bool(found.get("on_error") == "return")


async def _nested(outer: Operation, pending: Awaitable[Any]) -> Any:
    """Run a method inside another one; what it swallowed must end the outer one before it goes on.

    `mkdir` asks `exists`, and would create the bucket that a refusal made invisible.
    """
    before = len(outer.ledger)
    result = await pending
    if len(outer.ledger) > before:
        raise outer.ledger[-1]
    return result


def _end(operation: Operation, error: Exception) -> None:
    """Raise the public form of a give-up, also of one that a layer between turned into something else."""
    if isinstance(error, GaveUp):
        raise public_error(error.record, error.error) from error.error
    if operation.ledger:
        gave_up = operation.ledger[-1]
        raise public_error(gave_up.record, gave_up.error) from gave_up.error


_DONE: Final = object()


def _guarded_walk(name: str, inner: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(inner)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        if _outer() is not None:
            yield from inner(self, *args, **kwargs)
            return
        operation = _operation(self, name, args)
        steps = inner(self, *args, **kwargs)
        while True:
            # The context is the caller's between two steps, so it is set for each step alone.
            with made_current(operation):
                try:
                    step = next(steps, _DONE)
                except Exception as error:
                    _end(operation, error)
                    raise
            if operation.ledger:
                _raise_last(operation)
            if step is _DONE:
                return
            yield step

    return guarded


def _guarded_walk_async(name: str, inner: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    @functools.wraps(inner)
    async def guarded(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if _outer() is not None:
            async for step in inner(self, *args, **kwargs):
                yield step
            return
        operation = _operation(self, name, args)
        steps = inner(self, *args, **kwargs)
        while True:
            with made_current(operation):
                try:
                    step = await anext(steps, _DONE)
                except Exception as error:
                    _end(operation, error)
                    raise
            if operation.ledger:
                _raise_last(operation)
            if step is _DONE:
                return
            yield step

    return guarded


def _guarded_file_method(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _outer() is not None:
            return inner(self, *args, **kwargs)
        operation = _operation(self.fs, f"{self.mode} {name.lstrip('_')}", (self.path,))
        with made_current(operation):
            try:
                result = inner(self, *args, **kwargs)
            except ResilientIOError:
                raise
            except Exception as error:
                _end(operation, error)
                raise
        if operation.ledger:
            _raise_last(operation)
        return result

    return guarded
