"""The body of a request as a stream, sent from where it stands by each attempt."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any


def from_here(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters with a body that begins where its stream stands now.

    botocore rewinds to the beginning of the stream before each repeat, and would send what stands before. A stream that
    cannot say where it stands is left alone.
    """
    body = params.get("Body")
    if not hasattr(body, "read") or not hasattr(body, "seek"):
        return params
    try:
        position = body.tell()  # type: ignore[union-attr]  # it has `read`
    except (AttributeError, OSError, ValueError):
        return params
    return {**params, "Body": _FromHere(body, position)} if position else params


class _FromHere(io.RawIOBase):
    """A seekable stream whose position 0 is that of another one when it was given; never closes it."""

    def __init__(self, stream: Any, start: int) -> None:
        self._stream = stream
        self._start = start

    def read(self, size: int | None = -1) -> Any:
        return self._stream.read(-1 if size is None else size)

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def tell(self) -> int:
        return int(self._stream.tell()) - self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._stream.seek(offset + self._start if whence == io.SEEK_SET else offset, whence)
        return self.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Leave the stream open: it is the caller's."""
