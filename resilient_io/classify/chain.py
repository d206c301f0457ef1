"""Walks from an exception to what it wraps. Nothing here trusts an exception: attributes may raise or form a circle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from .transport import CANCELLATIONS

# Longest real chain seen is 6 (adlfs > azure > requests > urllib3 > http.client > OSError).
_MAX_LINKS = 16
# An exception raised by these while they handled another one is a translation of it, also without "from".
_TRANSLATORS = (
    *("botocore", "aiobotocore", "boto3", "s3transfer", "s3fs", "azure", "adlfs", "aiohttp", "urllib3", "requests"),
    *("http", "ssl", "fsspec", "httpx", "gcsfs", "huggingface_hub", "resilient_io"),
)


def links(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it wraps, outermost first; each once, at most 16.

    An explicit cause is always followed. An exception that was merely being handled is followed only where a
    storage library raised the outer one: a program's own error in a handler is not the store's fault.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < _MAX_LINKS:
        yield link
        seen.add(id(link))
        link = None if _is_interrupt(link) else _next(link)


def _is_interrupt(link: BaseException) -> bool:
    return not isinstance(link, Exception) or names_of(link)[0] in CANCELLATIONS


def _next(link: BaseException) -> BaseException | None:
    cause = link.__cause__
    if cause is not None:
        return cause
    inner = _inner(link)
    # An answer speaks for itself: what was handled when it came is an earlier attempt, and another story.
    if inner is not None or link.__suppress_context__ or attribute(link, "response") is not None:
        return inner
    context = link.__context__
    return context if context is not None and _is_translation(link) else None


def _inner(link: BaseException) -> BaseException | None:
    """Return the exception that one carries as data: botocore, s3transfer, azure-core, aiohttp, urllib3, ourselves."""
    kwargs = attribute(link, "kwargs")
    if isinstance(kwargs, dict):
        carried = kwargs.get("error")
        if isinstance(carried, BaseException):
            return carried
    for name in ("inner_exception", "last_exception", "reason", "os_error", "error"):
        carried = attribute(link, name)
        if isinstance(carried, BaseException):
            return carried
    for argument in link.args:
        if isinstance(argument, BaseException):
            return argument
    return None


def _is_translation(link: BaseException) -> bool:
    if _root(type(link).__module__) in _TRANSLATORS:
        return True
    trace = link.__traceback__
    if trace is None:
        return False
    for _ in range(1000):
        if trace.tb_next is None:
            break
        trace = trace.tb_next
    return _root(trace.tb_frame.f_globals.get("__name__")) in _TRANSLATORS


def _root(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


def names_of(link: BaseException) -> tuple[str, ...]:
    """Return the qualified names of an exception's class and of its bases, its own first."""
    cls: Any = type(link)  # a class is hashable; mypy reads the hash of its instances
    return _class_names(cls)


@lru_cache(maxsize=2048)
def _class_names(cls: type[object]) -> tuple[str, ...]:
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__ if base is not object)


def attribute(thing: object, name: str) -> object:
    """Return an attribute, None where it is missing or cannot be read."""
    try:
        return getattr(thing, name, None)
    except Exception:  # a property of somebody else's class may raise anything; what cannot be read is not there
        return None
