"""One body of a GET over all the requests that it takes: lengths, ranges and versions are checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from botocore.exceptions import FlexibleChecksumError, IncompleteReadError

Request = Mapping[str, Any]
Extent = tuple[int, int, int]

# A body up to this size is read in one step, which is the cheapest. A larger one is read in pieces, so that it goes on
# where it died.
_ONE_STEP_BYTES: Final = 2**20
_PIECE_BYTES: Final = 2**18
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class Changed(Exception):
    """The object is no longer the version that the request asked for (412, or another ETag)."""


class Sink(Protocol):
    """Where the pieces of a body go; a list of bytes is one."""

    def append(self, piece: bytes, /) -> object:
        """Take the next piece."""

    def clear(self) -> object:
        """Forget all pieces: the body begins anew."""


class Body:
    """One body over the requests that it takes: what came of it, and what has still to be asked for.

    An answer without a length may have ended early, which nobody would notice: such a body is over
    when a request for what follows brings nothing (`might_be_over`).
    """

    __slots__ = (
        "_answer", "_at_most_bytes", "_begin", "_end", "_etag", "_got_bytes", "_request", "_sink", "might_be_over",
    )  # fmt: skip

    def __init__(self, request: Request, sink: Sink, at_most_bytes: int | None, etag: str | None) -> None:
        self._request = request
        self._sink = sink
        self._at_most_bytes = at_most_bytes
        self._etag = etag or request.get("IfMatch")
        self._answer: Mapping[str, Any] | None = None
        self._begin = 0
        self._end: int | None = None
        self._got_bytes = 0
        self.might_be_over = False

    @property
    def first_answer(self) -> Mapping[str, Any]:
        """The answer with which the body began."""
        assert self._answer is not None
        return self._answer

    def next_request(self) -> Request:
        """Return the request, or one for the rest of the body in the version that it began with."""
        first = self._answer
        if first is None or not (self._got_bytes or self.might_be_over):
            return self._request
        same_version = {"IfMatch": first["ETag"]} if first.get("ETag") else {}
        last = "" if self._end is None else self._end - 1
        return {**self._request, **same_version, "Range": f"bytes={self._begin + self._got_bytes}-{last}"}

    async def read(self, answer: Mapping[str, Any]) -> bool:
        """Read the body of `answer` to its end; say whether that is all. Raises what the body died of."""
        before_bytes = self._got_bytes
        try:
            self._must_be_same_version(answer)
            extent = extent_of(answer)
            if self._answer is None or not (self._got_bytes or self.might_be_over):
                self._answer = answer
                self._begin, self._end = _span(self._request, answer, extent)
            elif self._end is None and extent is not None:
                # A later answer tells what the first did not.
                self._answer = {**self._answer, "ContentLength": extent[2]}
                self._end = _span(self._request, self._answer, None)[1]
            await self._pour(answer, self._bytes_to_skip(extent))
            length_known = self._is_complete()
        finally:
            answer["Body"].close()
        over = length_known or (self.might_be_over and self._got_bytes == before_bytes)
        self.might_be_over = not over
        return over

    def died(self, error: Exception) -> None:
        """Forget what came if it was wrong; else the next request goes on behind it."""
        if isinstance(error, FlexibleChecksumError):
            self._sink.clear()
            self._got_bytes = 0
            self.might_be_over = False

    def _must_be_same_version(self, answer: Mapping[str, Any]) -> None:
        first = self._answer if self._got_bytes else None
        wanted = first.get("ETag") if first is not None else self._etag
        found = answer.get("ETag")
        if wanted and found and wanted != "*" and wanted.strip('"') != found.strip('"'):
            raise Changed

    def _bytes_to_skip(self, extent: Extent | None) -> int:
        """Return how many bytes come too many in front: a store may ignore Range and send the whole object."""
        starts_at = self._begin + self._got_bytes
        if extent is None:
            return starts_at
        if extent[0] != starts_at:
            raise OSError(f"asked for the bytes from {starts_at} on and got those from {extent[0]} on")
        return 0

    async def _pour(self, answer: Mapping[str, Any], skip: int) -> None:
        body, length_bytes, wanted = answer["Body"], answer.get("ContentLength"), self._wanted_bytes()
        missing = None if wanted is None else skip + wanted - self._got_bytes
        # A checksum is compared when the end is read, so a body that is wanted whole is read until nothing comes.
        whole = length_bytes is None or missing is None or length_bytes <= missing
        if whole and length_bytes is not None and length_bytes <= _ONE_STEP_BYTES:
            self._take((await body.read())[skip:], wanted)
            return
        while whole or missing:
            piece = await body.read(_PIECE_BYTES if whole or missing is None else min(_PIECE_BYTES, missing))
            if not piece:
                return
            self._take(piece[skip:], wanted)
            skip = max(0, skip - len(piece))
            missing = None if missing is None else max(0, missing - len(piece))

    def _take(self, piece: bytes, wanted: int | None) -> None:
        if wanted is not None and len(piece) > wanted - self._got_bytes:
            piece = piece[: wanted - self._got_bytes]
        if piece:
            self._sink.append(piece)
            self._got_bytes += len(piece)

    def _wanted_bytes(self) -> int | None:
        """Return how many bytes the whole body has to bring; None if nobody says it."""
        if self._end is None:
            return self._at_most_bytes
        length_bytes = max(0, self._end - self._begin)
        return length_bytes if self._at_most_bytes is None else min(length_bytes, self._at_most_bytes)

    def _is_complete(self) -> bool:
        """Say whether all bytes came, as far as anybody told their number; raise if fewer did.

        A proxy can end a body early and cleanly.
        """
        expected = self._wanted_bytes()
        if self._end is None or expected is None:
            return False
        if self._got_bytes < expected:
            raise IncompleteReadError(actual_bytes=self._got_bytes, expected_bytes=expected)
        return True


def extent_of(answer: Mapping[str, Any]) -> Extent | None:
    """Return the first byte, the byte after the last, and the object's size, if the answer is a range of it."""
    text = answer.get("ContentRange")
    found = _CONTENT_RANGE.fullmatch(text) if text else None
    return (int(found[1]), int(found[2]) + 1, int(found[3])) if found else None


def _span(request: Request, answer: Mapping[str, Any], extent: Extent | None) -> tuple[int, int | None]:
    """Return the first byte that the request means and the one after its last; None where the end is not known."""
    length_bytes, asked_for = answer.get("ContentLength"), request.get("Range")
    asked = _RANGE.fullmatch(asked_for) if asked_for else None
    if asked is None:
        return (0, length_bytes) if extent is None else extent[:2]
    if extent is not None:
        return (int(asked[1]) if asked[1] else extent[0]), extent[1]
    if not asked[1]:
        # The last bytes of an object whose size nobody tells cannot be cut out of it.
        return (max(0, length_bytes - int(asked[2])) if length_bytes is not None else 0), length_bytes
    end = int(asked[2]) + 1 if asked[2] else None
    if length_bytes is None:
        return int(asked[1]), end
    return int(asked[1]), length_bytes if end is None else min(end, length_bytes)
