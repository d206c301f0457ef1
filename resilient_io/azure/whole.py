"""Reading blobs, or long parts of them, in ranges side by side, all of one version."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError

from resilient_io.azure import errors, privates
from resilient_io.control.ranges import Span, blocks
from resilient_io.drive.first import all_or_none
from resilient_io.drive.landing import Landing, Memory, Shifted, Slot, Whole

# The SDK joins each range before it hands it on, so what is in flight takes memory besides the whole.
_BLOCK_BYTES: Final = 16 * 2**20
_IN_FLIGHT_BYTES: Final = 128 * 2**20
_DAMAGED: Final = "the MD5 of the blob is not the one that the service keeps of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A blob and how it is read: the SDK's async client of it, a version or the current one, adlfs's timeouts.

    `block_bytes` is the most that one request asks for, `side_by_side` the number of requests at once. `on_answer` is
    called with the stream of each range. With `strict` the MD5 that the service keeps of the whole is compared.
    """

    client: Any
    version_id: str | None
    block_bytes: int
    side_by_side: int
    options: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    on_answer: Callable[[Any], None] | None = None

    async def ask(self, span: Span, **more: Any) -> Any:
        """Return the SDK's stream for a span, whose first request has been answered and read."""
        asked = {"offset": span.start, "length": len(span), "max_concurrency": 1, "version_id": self.version_id}
        stream = await self.client.download_blob(**asked, **self.options, **more)
        if self.on_answer is not None:
            self.on_answer(stream)
        return stream

    def first_bytes(self) -> int:
        """Return how much the first request asks for: a blob of this length costs no other."""
        return max(1, min(self.block_bytes, privates.single_get_bytes(self.client)))


async def read_blob(source: Source, landing: Whole) -> None:
    """Read a whole blob: its beginning, and beside it the rest of a large one. Raises ResourceModifiedError.

    One whose MD5 is another than the service says is read anew, once.
    """
    for _ in range(2):
        if await _Blob(source, landing).read():
            return
    raise errors.DamagedBody(_DAMAGED)


async def read_span(source: Source, span: Span, known: bytes, etag: str | None) -> bytes:
    """Return the bytes of a span, of which the first are `known`; raises ResourceModifiedError for another version."""
    landing = Memory()
    landing.begin(len(span))
    if known:
        landing.put(0, known)
    await _read_spans(source, Shifted(landing, span.start), Span(span.start + len(known), span.end), etag)
    return landing.value()


class _Blob:
    """One blob on its way. The headers of the first answer tell how much the rest is, and of which version."""

    __slots__ = ("_etag", "_is_encoded", "_landing", "_md5", "_rest", "_size_bytes", "_source")

    def __init__(self, source: Source, landing: Whole) -> None:
        self._source = source
        self._landing = landing
        self._etag: str | None = None
        self._is_encoded = False
        self._rest: asyncio.Task[None] | None = None
        self._md5: str | None = None
        self._size_bytes = 0

    async def read(self) -> bool:
        """Read all of it into the landing; say whether it is what the service says."""
        try:
            await self._read_first()
            if self._rest is not None:
                await self._rest
        except BaseException:
            if self._rest is not None:
                self._rest.cancel()
                await asyncio.gather(self._rest, return_exceptions=True)
            raise
        return await self._compare()

    async def _compare(self) -> bool:
        """Compare the MD5 of the whole, where the service keeps one; that of a single range its own stream compares.

        In a thread: what takes a second of arithmetic would hold up all reads of the loop.
        """
        is_one_range = self._size_bytes <= self._source.first_bytes()
        if not self._source.strict or self._md5 is None or self._is_encoded or is_one_range:
            return True
        if await asyncio.to_thread(_matches, self._landing.read_back(), base64.b64decode(self._md5)):
            return True
        self._landing.forget(0, self._size_bytes)
        return False

    async def _read_first(self) -> None:
        first = Span(0, self._source.first_bytes())
        try:
            stream = await self._source.ask(first, raw_response_hook=self._see)
        except HttpResponseError as error:
            if error.status_code != 416:
                raise
            # No byte of an empty blob answers a range.
            self._landing.begin(0)
            return
        if self._is_encoded:
            await self._read_encoded(stream)
            return
        if self._rest is not None and stream.properties.etag != self._etag:
            # The first request was repeated, and the ranges beside it are of another version.
            raise ResourceModifiedError("the blob was replaced while it was being read")
        size_bytes = whole_size_of(stream)
        if self._rest is None:
            self._landing.begin(size_bytes)
        slot = Slot(self._landing, Span(0, min(first.end, size_bytes)))
        await stream.readinto(slot)
        slot.must_be_full()
        if self._rest is None and slot.span.end < size_bytes:
            await _read_spans(self._source, self._landing, Span(slot.span.end, size_bytes), self._etag)

    def _see(self, response: Any) -> None:
        """Look at the headers of an answer, before its body; the first good one begins the rest."""
        http = response.http_response
        size_bytes = _size_in(http.headers)
        if self._rest is not None or http.status_code not in (200, 206) or size_bytes is None:
            return
        self._md5, self._size_bytes = http.headers.get("x-ms-blob-content-md5"), size_bytes
        self._etag, self._is_encoded = http.headers.get("ETag"), bool(http.headers.get("Content-Encoding"))
        rest = Span(self._source.first_bytes(), size_bytes)
        if rest.start < rest.end and not self._is_encoded and self._source.side_by_side > 1:
            self._landing.begin(size_bytes)
            self._rest = asyncio.ensure_future(_read_spans(self._source, self._landing, rest, self._etag))

    async def _read_encoded(self, stream: Any) -> None:
        """Leave it to the SDK to decode what is longer or shorter than its ranges say."""
        if whole_size_of(stream) > stream.size:
            source = self._source
            options = {"version_id": source.version_id, "max_concurrency": 1, **source.options}
            stream = await source.client.download_blob(**options)
        self._landing.begin(None)
        self._landing.put(0, await stream.readall())


async def _read_spans(source: Source, landing: Landing, span: Span, etag: str | None) -> None:
    """Fill a part of a landing with ranges of one version, `side_by_side` at a time."""
    block_bytes = max(1, min(source.first_bytes(), _BLOCK_BYTES))
    slots = asyncio.Semaphore(max(1, min(source.side_by_side, _IN_FLIGHT_BYTES // block_bytes)))
    same = {} if etag is None or source.version_id else {"etag": etag, "match_condition": MatchConditions.IfNotModified}

    async def fill(part: Span) -> None:
        slot = Slot(landing, part)
        async with slots:
            try:
                await (await source.ask(part, **same)).readinto(slot)
            except HttpResponseError as error:
                if error.status_code == 416:
                    raise ResourceModifiedError("the blob has become shorter") from error
                raise
        slot.must_be_full()

    parts = blocks(span.start, span.end, block_bytes)
    if len(parts) == 1:
        await fill(parts[0])
    else:
        await all_or_none(fill(part) for part in parts)


def _matches(pieces: Iterator[bytes | memoryview], expected: bytes) -> bool:
    digest, is_empty = hashlib.md5(usedforsecurity=False), True
    for piece in pieces:
        digest.update(piece)
        is_empty = False
    return is_empty or digest.digest() == expected


def whole_size_of(stream: Any) -> int:
    """Return the size of the whole blob of which a stream brings a range, in bytes."""
    return int(stream.properties.content_range.rpartition("/")[2])


def _size_in(headers: Mapping[str, str]) -> int | None:
    size = (headers.get("Content-Range") or "").rpartition("/")[2]
    return int(size) if size.isdigit() else None
