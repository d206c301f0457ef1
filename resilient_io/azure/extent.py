"""How far a body has come: lengths and ranges of its answers are checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from azure.core.exceptions import IncompleteReadError

_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)")


class Extent:
    """How far one body has come, and what its next answer must hold.

    The bytes of an encoded body cannot be counted on the wire, and the parts of a structured message (CRC64) cannot be
    joined: such a body begins anew (`begins_anew`) and nothing of it is handed on before its end.
    """

    __slots__ = ("_begin", "_end", "_first", "begins_anew", "etag", "got_bytes", "skip_bytes")

    def __init__(self, http_response: Any, asked: tuple[int, int | None]) -> None:
        headers = http_response.headers
        self.begins_anew = bool(headers.get("Content-Encoding") or headers.get("x-ms-structured-body"))
        self.etag: str | None = headers.get("ETag")
        self.got_bytes = self.skip_bytes = 0
        span = _span_of(http_response)
        self._first = http_response, span
        self._begin, self._end = asked[0], _end_of(http_response, asked) if span is None else span[1]

    @property
    def length_bytes(self) -> int | None:
        """The length of the whole body; None if nobody tells it, or it is another one on the wire."""
        return None if self._end is None or self.begins_anew else self._end - self._begin

    def take(self, piece: bytes) -> bytes:
        """Count a piece; return what of it is new, and no byte behind the end."""
        fresh = piece[self.skip_bytes :]
        self.skip_bytes -= len(piece) - len(fresh)
        if self._end is not None and not self.begins_anew:
            fresh = fresh[: self._end - self._begin - self.got_bytes]
        self.got_bytes += len(fresh)
        return fresh

    def is_complete(self) -> bool:
        """Say whether all bytes came, as far as anybody told their number: a proxy can end a body early and cleanly."""
        return self.begins_anew or self._end is None or self.has_all()

    def has_all(self) -> bool:
        """Say whether as many bytes came as the body is known to have."""
        return not self.begins_anew and self._end is not None and self._begin + self.got_bytes >= self._end

    def begin_anew(self) -> None:
        """Forget what came."""
        self.got_bytes = 0

    def rest(self) -> tuple[int, int | None]:
        """Return the first and the last byte that are missing."""
        return self._begin + self.got_bytes, None if self._end is None else self._end - 1

    def accept(self, http_response: Any) -> None:
        """Note where an answer begins; raise for one that begins elsewhere."""
        first, span = self._first
        if first is not http_response:
            span = _span_of(http_response)
        wanted = self._begin + self.got_bytes
        if self.begins_anew:
            self.skip_bytes = 0
        elif span is None:
            # It ignored the range and sends the whole blob.
            self.skip_bytes = wanted
        elif span[0] != wanted:
            raise IncompleteReadError(f"asked for the bytes from {wanted} on and got those from {span[0]} on")
        else:
            self.skip_bytes = 0


def _end_of(http_response: Any, asked: tuple[int, int | None]) -> int | None:
    """Return the byte after the last of the body that was asked for, if the first answer, no range, tells it."""
    # It ignored the range, or there was none, and sends the whole blob.
    last, length = asked[1], http_response.headers.get("Content-Length")
    if not (length and length.isdigit()):
        return None if last is None else last + 1
    return int(length) if last is None else min(int(length), last + 1)


def asked_for(headers: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the first and the last byte that a request asks for; None for "to the end"."""
    found = _RANGE.fullmatch(headers.get("x-ms-range") or headers.get("Range") or "")
    if found is None:
        return 0, None
    return int(found[1]), int(found[2]) if found[2] else None


def _span_of(http_response: Any) -> tuple[int, int] | None:
    """Return the first byte of an answer and the one after its last, if it is a range."""
    found = _CONTENT_RANGE.fullmatch(http_response.headers.get("Content-Range") or "")
    return (int(found[1]), int(found[2]) + 1) if found else None
