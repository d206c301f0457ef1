"""Walks, which are generators: each step is guarded, and what a refusal kept out of sight is raised, or told."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from resilient_io.drive.caches import heard
from resilient_io.drive.ending import Told, end, operation_of, option, outer_call, raise_last
from resilient_io.drive.operation import Operation, made_current

_DONE: Final = object()


def guarded_walk(name: str, inner: Callable[..., Iterator[Any]], told: Told) -> Callable[..., Iterator[Any]]:
    """Return the guarded form of a walk."""

    @functools.wraps(inner)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        outer = outer_call()
        if outer is not None:
            denied = outer.denied
            for step in inner(self, *args, **_with_ear(outer, kwargs)):
                _raise_denied(outer, denied)
                yield step
            _raise_denied(outer, denied)
            return
        operation = _begun(self, name, inner, args, kwargs)
        steps = inner(self, *args, **kwargs)
        while True:
            # The context is the caller's between two steps, so it is set for each step alone.
            with made_current(operation):
                try:
                    step = next(steps, _DONE)
                except Exception as error:
                    _end(operation, error, told)
                    raise
                except BaseException:
                    operation.abandon()
                    raise
            _raise_swallowed(operation)
            if step is _DONE:
                return
            yield step

    return guarded


def guarded_walk_async(
    name: str, inner: Callable[..., AsyncIterator[Any]], told: Told
) -> Callable[..., AsyncIterator[Any]]:
    """Return the guarded form of a walk that is an asynchronous generator."""

    @functools.wraps(inner)
    async def guarded(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        outer = outer_call()
        if outer is not None:
            denied = outer.denied
            async for step in inner(self, *args, **_with_ear(outer, kwargs)):
                _raise_denied(outer, denied)
                yield step
            _raise_denied(outer, denied)
            return
        operation = _begun(self, name, inner, args, kwargs)
        steps = inner(self, *args, **kwargs)
        while True:
            with made_current(operation):
                try:
                    step = await anext(steps, _DONE)
                except Exception as error:
                    _end(operation, error, told)
                    raise
            _raise_swallowed(operation)
            if step is _DONE:
                return
            yield step

    return guarded


def _begun(fs: Any, name: str, inner: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Operation:
    """Return the walk's operation. With somebody to tell each listing is one of its own: its refusal ends no other."""
    on_error = option(inner, (fs, *args), kwargs, "on_error")
    operation = operation_of(fs, name, bulk=callable(on_error))
    operation.on_error = on_error if callable(on_error) else None
    return operation


def _with_ear(outer: Operation, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a walk below another one; fsspec forgets there who wants to be told of errors."""
    return kwargs if outer.on_error is None else {"on_error": outer.on_error, **kwargs}


def _end(operation: Operation, error: Exception, told: Told) -> None:
    # What has been told is over: this one is the caller's own, or of another kind.
    if operation.on_error is None:
        end(operation, error, told)


def _raise_swallowed(operation: Operation) -> None:
    if operation.on_error is None and operation.ledger:
        raise_last(operation)
    _raise_denied(operation)


def _raise_denied(operation: Operation, before: OSError | None = None) -> None:
    """Raise what the store did not allow, where fsspec left it out of the walk and nobody was told."""
    denied = operation.denied
    if operation.on_error is None and denied is not None and denied is not before:
        raise heard(denied)
