"""`on_error="omit"`: what is not there is left out, and what was refused is raised.

fsspec omits both alike. A program that reads what it gets would take a key that it may not read, or that a busy store
kept back, for one that is not there.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final

from resilient_io.drive.forked import StartsAnew

_ABSENT: Final = (FileNotFoundError, IsADirectoryError)
_MARK: Final = "_resilient_io_raises"
_MOST_LAYERS: Final = 8  # filesystems above one another; more than anybody stacks


async def cat_present(cat: Callable[..., Awaitable[Any]], path: Any, *, on_error: str, **options: Any) -> Any:
    """Return what a filesystem's own `cat` does; with `on_error="omit"` only absent paths are left out."""
    if on_error != "omit":
        return await cat(path, on_error=on_error, **options)
    found = await cat(path, on_error="return", **options)
    if isinstance(found, dict):
        return present(found)
    if isinstance(found, Exception) and not isinstance(found, _ABSENT):
        raise found
    return found


def present(found: dict[str, Any]) -> dict[str, Any]:
    """Return what was found of each path; raise the first error that is no absence."""
    for path, data in found.items():
        # A bucket or container is no object: nobody was asked for it.
        if isinstance(data, BaseException) and not isinstance(data, _ABSENT) and "/" in path.strip("/"):
            raise data
    return {path: data for path, data in found.items() if not isinstance(data, BaseException)}


def raise_in_maps(mapping: Any) -> None:
    """Let `FSMap.getitems`, of fsspec's module `mapping`, do the same above a filesystem of ours. Idempotent.

    It asks for errors as values and leaves all of them out. Above any other filesystem it stays as it is.
    """
    inner = mapping.FSMap.getitems
    if not hasattr(inner, _MARK):
        mapping.FSMap.getitems = _raising(inner)


def _raising(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def getitems(self: Any, keys: Any, on_error: str = "raise") -> Any:
        if on_error != "omit" or not _stands_on_ours(self.fs):
            return inner(self, keys, on_error=on_error)
        found = inner(self, keys, on_error="return")
        for data in found.values():
            # A KeyError stands for what the map's `missing_exceptions` call missing.
            if isinstance(data, BaseException) and not isinstance(data, KeyError):
                raise data
        return {key: data for key, data in found.items() if not isinstance(data, BaseException)}

    setattr(getitems, _MARK, True)
    return getitems


def _stands_on_ours(fs: Any) -> bool:
    """Say whether a filesystem is one of ours that is not switched off, or a layer above one."""
    for _ in range(_MOST_LAYERS):
        if isinstance(fs, StartsAnew):
            return bool(getattr(fs, "_enabled", lambda: True)())
        fs = getattr(fs, "fs", None)
        if fs is None:
            return False
    return False
