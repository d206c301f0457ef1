"""fsspec's caching filesystems (`simplecache::`, `filecache::`, `blockcache::`) above one of ours.

They answer `exists`, `isfile`, `isdir` and `cat` by themselves, and take every error for "no". What a filesystem of
ours raised below is heard here, and raised again. Their other methods go to the filesystem below, or hand errors on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final, TypeVar

from resilient_io.drive.forked import StartsAnew

_SWALLOWING: Final = ("exists", "isfile", "isdir", "cat")
_Raised = TypeVar("_Raised", bound=OSError)
_MARK: Final = "_resilient_io_hears"
_heard: ContextVar[list[OSError] | None] = ContextVar("resilient_io_heard", default=None)


def heard(error: _Raised) -> _Raised:
    """Note an error that is about to be raised, for a layer above that may swallow it; return it."""
    listening = _heard.get()
    if listening is not None:
        listening.append(error)
    return error


def hear_in_caches(cached: ModuleType) -> None:
    """Let fsspec's caching filesystems, of `fsspec.implementations.cached`, hear what one of ours raises. Idempotent.

    Above any other filesystem they stay as they are.
    """
    for name in _SWALLOWING:
        for cls in (cached.CachingFileSystem, cached.WholeFileCacheFileSystem, cached.SimpleCacheFileSystem):
            if cls is cached.CachingFileSystem or name in cls.__dict__:
                inner = getattr(cls, name)
                if not hasattr(inner, _MARK):
                    setattr(cls, name, _hearing(inner))


def _hearing(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def hearing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self.fs, StartsAnew) or "return" in (kwargs.get("on_error"), *args[1:]):
            return inner(self, *args, **kwargs)
        errors: list[OSError] = []
        token = _heard.set(errors)
        try:
            result = inner(self, *args, **kwargs)
        finally:
            _heard.reset(token)
        if errors:
            raise errors[-1]
        return result

    setattr(hearing, _MARK, True)
    return hearing
