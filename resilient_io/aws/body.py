"""One body of a GET over all the requests that it takes: lengths, ranges, versions and checksums are looked at here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from botocore.exceptions import FlexibleChecksumError, IncompleteReadError

from resilient_io.aws import privates
from resilient_io.aws.errors import DamagedBody, UnverifiableBody, WrongRangeBody
from resilient_io.control.span import WHOLE, Told, WrongRange, asked_for, bytes_before, span_of, told_by

Request = Mapping[str, Any]


class Changed(Exception):
    """The object is no longer the version that the request asked for (412, or another ETag)."""


class Sink(Protocol):
    """Where the pieces of a body go; a list of bytes is one."""

    def append(self, piece: bytes, /) -> object:
        """Take the next piece."""

    def clear(self) -> object:
        """Forget all pieces: the body begins anew."""


class Body:
    """How far one body has come, and what has still to be asked for; it reads nothing itself.

    An answer without a length may have ended early, which nobody would notice: such a body is over when its checksum
    says so, or when a request for what follows brings nothing (`might_be_over`). With `strict` such an answer is none
    unless there is a checksum.

    Where `checks`, the checksum of the first answer is compared over all the pieces, because the SDK compares it only
    where one answer brought all.
    """

    __slots__ = (
        "_asked",
        "_at_most_bytes",
        "_before_bytes",
        "_check",
        "_checks",
        "_end",
        "_etag",
        "_is_damaged",
        "_limit_bytes",
        "_request",
        "_skip_bytes",
        "_strict",
        "begin",
        "brings_more",
        "first_answer",
        "got_bytes",
        "is_first",
        "is_unverified",
        "might_be_over",
        "size_bytes",
        "wanted_bytes",
    )  # fmt: skip

    first_answer: Mapping[str, Any]
    """The answer with which the body began; where the whole is asked for, with the length of that."""
    is_first: bool
    """Whether the last answer is that one."""
    brings_more: bool
    """Whether the last answer has bytes behind the end of the body: a store that ignores Range sends them."""
    wanted_bytes: int | None
    """How many bytes the whole body has to bring; None if nobody says it."""

    def __init__(
        self, request: Request, *, at_most_bytes: int | None = None, etag: str | None = None, strict: bool = False,
        checks: bool = True,
    ) -> None:  # fmt: skip
        self._request = request
        self._asked = asked_for(request.get("Range"), is_part="PartNumber" in request)
        self._at_most_bytes = at_most_bytes
        self._etag = etag or request.get("IfMatch")
        self._strict, self._checks = strict, checks
        self._check: tuple[Any, bytes] | None = None
        self.is_first = True
        self._is_damaged = False
        self._end: int | None = None
        self._limit_bytes: int | None = None
        self._skip_bytes = self._before_bytes = self.begin = self.got_bytes = 0
        self.might_be_over = self.is_unverified = False
        self.brings_more = False
        self.size_bytes: int | None = None
        self.wanted_bytes = at_most_bytes

    def next_request(self) -> Request:
        """Return the request, or one for the rest of the body in the version that it began with."""
        if not self.is_begun():
            return self._request
        etag = self.first_answer.get("ETag")
        request = {**self._request, "Range": f"bytes={self.begin + self.got_bytes}-{self._last()}"}
        request.pop("PartNumber", None)
        return {**request, "IfMatch": etag} if etag else request

    def accept(self, answer: Mapping[str, Any]) -> None:
        """Look at what an answer says it brings. Raises Changed, WrongRangeBody and UnverifiableBody."""
        self._must_be_same_version(answer)
        self._before_bytes = self.got_bytes
        self.is_first = not self.is_begun()
        length_bytes, content_range = answer.get("ContentLength"), answer.get("ContentRange")
        try:
            told = told_by(content_range, length_bytes, 200 if content_range else _status_of(answer))
            if self.is_first:
                self._begin_with(answer, told)
            elif self._end is None and told.size is not None:
                # A later answer tells what the first did not.
                self.first_answer = {**self.first_answer, "ContentLength": told.size}
                self._end = span_of(self._asked, told).end
                self._want()
            self._skip_bytes = bytes_before(told, self.begin + self.got_bytes)
            self.brings_more = told.end is not None and self._end is not None and told.end > self._end
        except WrongRange as error:
            raise WrongRangeBody(error=error) from None

    def _begin_with(self, answer: Mapping[str, Any], told: Told) -> None:
        span = span_of(self._asked, told)
        bytes_before(told, span.begin)
        check = privates.checksum_of(answer.get("Body"))
        self.is_unverified = told.end is None and check is None
        if self.is_unverified and self._strict:
            raise UnverifiableBody(error="the answer has no length and no checksum")
        self.first_answer = answer
        if self._asked is WHOLE and span.end != answer.get("ContentLength"):
            self.first_answer = {**answer, "ContentLength": span.end}
        self.begin, self._end, self.size_bytes = span.begin, span.end, told.size
        self._limit_bytes = span.limit_bytes
        self._want()
        is_read_whole = told.begin == span.begin and told.end == span.end and self._is_wanted_whole()
        self._check = check if self._checks and is_read_whole else None

    def _is_wanted_whole(self) -> bool:
        most = self._at_most_bytes
        return most is None or self._end is None or self._end - self.begin <= most

    def take(self, piece: bytes) -> bytes:
        """Count a piece; return what of it belongs to the body and is new."""
        if self._skip_bytes:
            kept = piece[self._skip_bytes :]
            self._skip_bytes = max(0, self._skip_bytes - len(piece))
            piece = kept
        wanted = self.wanted_bytes
        if wanted is not None and len(piece) > wanted - self.got_bytes:
            piece = piece[: wanted - self.got_bytes]
        self.got_bytes += len(piece)
        if self._check is not None and not self.is_first:
            self._check[0].update(piece)
        return piece

    @property
    def missing_bytes(self) -> int | None:
        """How many bytes of this answer have still to be read; None: until nothing comes."""
        wanted = self.wanted_bytes
        return None if wanted is None else self._skip_bytes + wanted - self.got_bytes

    def _want(self) -> None:
        """Find how many bytes the whole body has to bring."""
        length_bytes = self._limit_bytes if self._end is None else max(0, self._end - self.begin)
        most = self._at_most_bytes
        self.wanted_bytes = most if length_bytes is None else length_bytes if most is None else min(length_bytes, most)

    @property
    def has_progressed(self) -> bool:
        """Whether the last answer brought any byte that is kept."""
        return self.got_bytes > self._before_bytes

    def keeps_some(self, error: Exception) -> bool:
        """Whether the last answer, which died of `error`, brought a byte that is kept and had not come before.

        It has not if its checksum was another, nor has any after that: what they bring was read, and thrown away.
        """
        return self.has_progressed and not self._is_damaged and not isinstance(error, FlexibleChecksumError)

    def has_all(self) -> bool:
        """Say whether as many bytes came as the body is known to have."""
        wanted = self.wanted_bytes
        return wanted is not None and self.got_bytes >= wanted

    def end(self) -> bool:
        """Say at the end of an answer's body whether that is all, as far as anybody tells. Raises if bytes are missing.

        A proxy can end a body early and cleanly.
        """
        if self._check is not None:
            self._compare(*self._check)
        wanted = self.wanted_bytes
        if self._end is not None and wanted is not None:
            if self.got_bytes < wanted:
                raise IncompleteReadError(actual_bytes=self.got_bytes, expected_bytes=wanted)
            return True
        # A checksum that does not fit has raised by now: the SDK compares that of a body which it read to its end.
        checked = self._check is not None and not self.has_all()  # else there may be more of it
        over = checked or self._has_limit() or (self.might_be_over and not self.has_progressed)
        self.might_be_over = not over
        return over

    def _has_limit(self) -> bool:
        """Say whether all came that was asked for, of an object of unknown length."""
        return self._limit_bytes is not None and self.got_bytes >= self._limit_bytes

    def _compare(self, checksum: Any, expected: bytes) -> None:
        if self.is_first or (self._end is not None and not self.has_all()):
            return
        if checksum.digest() != expected:
            raise DamagedBody(error_msg="the checksum of the body is not the one that the service says")

    def died(self, error: Exception) -> bool:
        """Forget what came if it was wrong, and say so; else the next request goes on behind it."""
        if not isinstance(error, FlexibleChecksumError):
            return False
        self._before_bytes = self.got_bytes = 0
        self.might_be_over, self._is_damaged = False, True
        return True

    def is_begun(self) -> bool:
        """Say whether the next request is one for the rest."""
        return bool(self.got_bytes or self.might_be_over)

    def _last(self) -> int | str:
        if self._end is None:
            return "" if self._limit_bytes is None else self.begin + self._limit_bytes - 1
        return self._end - 1

    def _must_be_same_version(self, answer: Mapping[str, Any]) -> None:
        wanted = self.first_answer.get("ETag") if self.is_begun() else self._etag
        found = answer.get("ETag")
        if wanted and found and wanted != "*" and wanted.strip('"') != found.strip('"'):
            raise Changed


def _status_of(answer: Mapping[str, Any]) -> int:
    return int((answer.get("ResponseMetadata") or {}).get("HTTPStatusCode", 200))
