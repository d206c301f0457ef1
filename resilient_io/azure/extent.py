"""How far a body has come: lengths, ranges and checksums of its answers are looked at here."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

from resilient_io.azure.errors import DamagedBody, ShortBody, UnverifiableBody, WrongRangeBody
from resilient_io.control import span
from resilient_io.control.span import Asked, Told, WrongRange


class Extent:
    """How far one body has come, and what its next answer must hold.

    The bytes of an encoded body cannot be counted on the wire, and the parts of a structured message (CRC64) cannot be
    joined: such a body begins anew (`begins_anew`). Nothing of it is handed on before its end (`is_held`), as little as
    of one whose MD5 is compared.

    A body whose length nobody tells may have ended early: it is over when a request for what follows brings nothing
    (`might_be_over`). With `strict` such an answer is none, and the MD5 that the service keeps of a whole blob is
    compared.
    """

    __slots__ = (
        "_asked", "_before_bytes", "_begin", "_digest", "_end", "_limit_bytes", "_md5", "_strict", "begins_anew",
        "etag", "got_bytes", "has_begun_anew", "is_unverified", "might_be_over", "skip_bytes",
    )  # fmt: skip

    def __init__(self, http_response: Any, asked: Asked, told: Told | None = None, *, strict: bool = False) -> None:
        headers = http_response.headers
        self.begins_anew = bool(headers.get("Content-Encoding") or headers.get("x-ms-structured-body"))
        self.etag: str | None = headers.get("ETag")
        self._asked, self._strict = asked, strict
        self.got_bytes = self.skip_bytes = self._before_bytes = self._begin = 0
        self._end: int | None = None
        self._limit_bytes: int | None = None
        self._md5: bytes | None = None
        self._digest: Any = None
        self.might_be_over = self.is_unverified = False
        self.has_begun_anew = False
        """Whether what came was forgotten once: what comes since then was read before, and is no progress."""
        with contextlib.suppress(WrongRange):  # `accept` raises it again
            self._begin_with(http_response, told or told_by(http_response))

    def _begin_with(self, http_response: Any, told: Told) -> None:
        span_ = span.span_of(self._asked, told)
        self._begin, self._end, self._limit_bytes = span_.begin, span_.end, span_.limit_bytes
        self.is_unverified = told.end is None and not self.begins_anew
        brings_all = told.begin == span_.begin and told.end == span_.end == told.size and not self.begins_anew
        if self._strict and brings_all and self._begin == 0:
            self._md5 = _md5_of_whole(http_response.headers, told)
        self._digest = hashlib.md5(usedforsecurity=False) if self._md5 else None

    @property
    def length_bytes(self) -> int | None:
        """The length of the whole body; None if nobody tells it, or it is another one on the wire."""
        return None if self._end is None or self.begins_anew else max(0, self._end - self._begin)

    @property
    def is_held(self) -> bool:
        """Whether nothing may be handed on before the end, because it may have to begin anew."""
        return self.begins_anew or self._md5 is not None

    @property
    def has_progressed(self) -> bool:
        """Whether the last answer brought anything."""
        return self.got_bytes > self._before_bytes

    def take(self, piece: bytes) -> bytes:
        """Count a piece; return what of it is new, and no byte behind the end."""
        fresh = piece[self.skip_bytes :] if self.skip_bytes else piece
        self.skip_bytes -= len(piece) - len(fresh)
        most = self._most_bytes
        if most is not None and len(fresh) > most - self.got_bytes:
            fresh = fresh[: most - self.got_bytes]
        self.got_bytes += len(fresh)
        if self._digest is not None:
            self._digest.update(fresh)
        return fresh

    @property
    def missing_bytes(self) -> int | None:
        """How many bytes of this answer have still to be read; None: until nothing comes."""
        most = self._most_bytes
        return None if most is None else self.skip_bytes + most - self.got_bytes

    @property
    def _most_bytes(self) -> int | None:
        if self.begins_anew:
            return None
        return self._limit_bytes if self._end is None else max(0, self._end - self._begin)

    def has_all(self) -> bool:
        """Say whether as many bytes came as the body is known to have."""
        most = self._most_bytes
        return most is not None and self.got_bytes >= most

    def end(self) -> bool:
        """Say at the end of an answer whether that is all; else what follows is asked for. Raises if bytes are missing.

        A proxy can end a body early and cleanly.
        """
        if self.begins_anew or self.has_all():
            self._compare()
            return True
        if self._end is not None:
            raise ShortBody("the body ended before its length was reached")
        over = self.might_be_over and not self.has_progressed
        self.might_be_over = not over
        return over

    def _compare(self) -> None:
        if self._digest is not None and self._digest.digest() != self._md5:
            raise DamagedBody("the MD5 of the body is not the one that the service keeps of the blob")

    def begin_anew(self) -> None:
        """Forget what came."""
        self.got_bytes = self._before_bytes = 0
        self.might_be_over, self.has_begun_anew = False, True
        if self._digest is not None:
            self._digest = hashlib.md5(usedforsecurity=False)

    def rest(self) -> tuple[int, int | None]:
        """Return the first and the last byte that are missing."""
        end = self._end
        if end is None and self._limit_bytes is not None:
            end = self._begin + self._limit_bytes
        return self._begin + self.got_bytes, None if end is None else end - 1

    def accept(self, http_response: Any, told: Told | None = None) -> None:
        """Note where an answer begins; raise for one that begins elsewhere, or that nobody could verify."""
        self._before_bytes = self.got_bytes
        self.skip_bytes = 0
        if self.begins_anew:
            return
        try:
            told = told or told_by(http_response)
            if not self.got_bytes and not self.might_be_over:
                self._begin_with(http_response, told)
            elif self._end is None and told.size is not None:
                self._end = span.span_of(self._asked, told).end
            self.skip_bytes = span.bytes_before(told, self._begin + self.got_bytes)
        except WrongRange as error:
            raise WrongRangeBody(str(error)) from None
        if self.is_unverified and self._strict:
            raise UnverifiableBody("the answer has no length and no checksum")


def asked_for(headers: Mapping[str, str]) -> Asked:
    """Return the bytes that a request asks for."""
    return span.asked_for(headers.get("x-ms-range") or headers.get("Range"))


def told_by(http_response: Any) -> Told:
    """Return what an answer says that it brings. Raises WrongRange for a part that does not say which it is."""
    length = http_response.headers.get("Content-Length")
    length_bytes = int(length) if length and length.isdigit() else None
    status = getattr(http_response, "status_code", 200)
    return span.told_by(http_response.headers.get("Content-Range"), length_bytes, status)


def _md5_of_whole(headers: Mapping[str, str], told: Told) -> bytes | None:
    """Return the MD5 of the whole blob, where the answer has it; beside a range the plain name is that of the range."""
    stated = headers.get("x-ms-blob-content-md5" if told.is_range else "Content-MD5")
    return base64.b64decode(stated) if stated else None
