"""The version of each object that the requests of one call have seen, so that its bytes are of one version."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_SEEN: Final[ContextVar[dict[Hashable, str] | None]] = ContextVar("resilient_io_versions", default=None)


@contextmanager
def one_version_each() -> Iterator[None]:
    """Let all that is read within, in this task and those that it makes, be of one version for each object."""
    token = _SEEN.set({})
    try:
        yield
    finally:
        _SEEN.reset(token)


def is_the_one(place: Hashable, etag: str | None) -> bool:
    """Say whether an answer is of the version that the call has seen of the object at `place`; the first one is."""
    seen = _SEEN.get()
    return seen is None or not etag or seen.setdefault(place, etag) == etag
