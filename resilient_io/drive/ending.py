"""How a public call of a filesystem begins and ends: its operation, and the errors that its caller sees."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from resilient_io.drive.caches import heard
from resilient_io.drive.forked import StartsAnew
from resilient_io.drive.operation import Operation, Surface, current
from resilient_io.errors import GaveUp, public_error

#: What makes of an SDK's error the one that a filesystem raises; most stay as they are.
Told = Callable[[Exception], Exception]


def as_it_is(error: Exception) -> Exception:
    """Return the error: s3fs has translated it already."""
    return error


def operation_of(fs: Any, name: str, *, bulk: bool = False, home: asyncio.Task[Any] | None = None) -> Operation:
    """Return the operation of a call that begins; a filesystem that a fork brought along starts anew."""
    if isinstance(fs, StartsAnew):
        # Here, and not where a layer between may turn what it raises into an answer.
        fs.start_anew()
    return Operation(name=name, surface=Surface.FILESYSTEM, overlay=fs._overlay, bulk=bulk, home=home)


def outer_call() -> Operation | None:
    """Return the filesystem call that this one serves; the call of a client above does not speak in our errors."""
    outer = current()
    return outer if outer is not None and outer.surface is Surface.FILESYSTEM else None


def raise_last(operation: Operation) -> NoReturn:
    """Raise what a layer in between has swallowed."""
    gave_up = operation.ledger[-1]
    raise heard(public_error(gave_up.record, gave_up.error))


def end(operation: Operation, error: Exception, told: Told) -> None:
    """Raise the public form of an error, also of a give-up that a layer between turned into something else; if any."""
    if isinstance(error, GaveUp):
        raise heard(public_error(error.record, error.error)) from error.error
    if operation.ledger:
        gave_up = operation.ledger[-1]
        raise heard(public_error(gave_up.record, gave_up.error)) from gave_up.error
    public = told(error) if operation.policy().enabled else error
    if isinstance(public, PermissionError):
        heard(public)
    if public is not error:
        raise public from error


def option(inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    """Return what a call gives for an option, by name, by place or by default; None without it."""
    call = inspect.signature(inner).bind_partial(*args, **kwargs)
    call.apply_defaults()
    return {**call.arguments, **call.arguments.get("kwargs", {})}.get(name)
