"""Reading blobs, or long parts of them, in ranges side by side, all of one version."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError

from resilient_io.azure import privates
from resilient_io.azure.errors import DamagedBody
from resilient_io.azure.exchange import Glance
from resilient_io.control.ranges import Span, blocks
from resilient_io.drive.beside import Beside
from resilient_io.drive.landing import Landing, Memory, Shifted, Slot
from resilient_io.drive.whole import again_if_damaged, is_sound

# The SDK joins each range before it hands it on, so what is in flight takes memory besides the whole.
_BLOCK_BYTES: Final = 16 * 2**20
_IN_FLIGHT_BYTES: Final = 128 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A blob and how it is read: the SDK's async client of it, a version or the current one, adlfs's timeouts.

    `block_bytes` is the most that one request asks for, `side_by_side` the number of requests at once. `on_answer` is
    called with the stream of each range. `strict` compares the MD5 that the service keeps of a whole blob, if it does.
    """

    client: Any
    version_id: str | None
    block_bytes: int
    side_by_side: int
    options: Mapping[str, Any] = field(default_factory=dict)
    on_answer: Callable[[Any], None] | None = None
    strict: bool = False

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

    def blocks(self, rest: Span) -> list[Span]:
        """Return the ranges that bring the rest, each by one request."""
        return blocks(rest.start, rest.end, min(self.first_bytes(), _BLOCK_BYTES))

    def at_once(self) -> int:
        """Return how many of them may be on their way."""
        return max(1, min(self.side_by_side, _IN_FLIGHT_BYTES // min(self.first_bytes(), _BLOCK_BYTES)))


async def read_blob(source: Source, landing: Landing) -> None:
    """Read a whole blob: its beginning, and beside it the rest of a large one. Raises ResourceModifiedError."""
    path = f"{source.client.container_name}/{source.client.blob_name}"
    await again_if_damaged(lambda _: _Whole(source, landing).read(), operation="GetBlob", path=path)


async def read_span(source: Source, span: Span, known: bytes, etag: str | None) -> bytes:
    """Return the bytes of a span, of which the first are `known`; raises ResourceModifiedError for another version."""
    landing = Memory()
    landing.begin(len(span))
    if known:
        landing.put(0, known)
    rest = Span(span.start + len(known), span.end)
    beside = Beside(source.at_once() + 1)
    await beside.fill(source.blocks(rest), _filler(source, Shifted(landing, span.start), etag))
    return landing.value()


class _Whole:
    """One blob on its way. The headers of the first answer tell how much the rest is, and of which version."""

    __slots__ = ("_beside", "_etag", "_landing", "_md5", "_size_bytes", "_source")

    def __init__(self, source: Source, landing: Landing) -> None:
        self._source = source
        self._landing = landing
        self._beside = Beside(source.at_once())
        self._etag: str | None = None
        self._md5: str | None = None
        self._size_bytes = 0

    async def read(self) -> None:
        """Read all of it into the landing."""
        await self._beside.front(self._read_first())
        if self._md5 is not None and self._source.strict:
            await self._compare(self._md5)

    async def _read_first(self) -> None:
        first = Span(0, self._source.first_bytes())
        try:
            stream = await self._source.ask(first, raw_response_hook=Glance(self._see))
        except HttpResponseError as error:
            if error.status_code != 416:
                raise
            # No byte of an empty blob answers a range.
            self._landing.begin(0)
            return
        etag = stream.properties.etag
        if self._beside.is_on and etag != self._etag:
            # The first request was repeated, and the ranges beside it are of another version.
            raise ResourceModifiedError("the blob was replaced while it was being read")
        if stream.properties.content_settings.content_encoding:
            await self._read_encoded(stream)
            return
        size_bytes = whole_size_of(stream)
        if not self._beside.is_on:
            self._landing.begin(size_bytes)
        slot = Slot(self._landing, Span(0, min(first.end, size_bytes)))
        await stream.readinto(slot)
        slot.must_be_full()
        if not self._beside.is_on:
            await self._read_rest(Span(slot.span.end, size_bytes), etag)

    async def _read_rest(self, rest: Span, etag: str | None) -> None:
        await self._beside.fill(self._source.blocks(rest), _filler(self._source, self._landing, etag))

    def _see(self, response: Any) -> None:
        """Look at the headers of an answer, before its body; the first good one begins the rest.

        None may come by: where a second request was sooner, the rest is read after the first range.
        """
        http = response.http_response
        size_bytes = _size_in(http.headers)
        if self._beside.is_on or http.status_code not in (200, 206) or size_bytes is None:
            return
        rest, is_encoded = Span(self._source.first_bytes(), size_bytes), bool(http.headers.get("Content-Encoding"))
        if rest.start < rest.end and not is_encoded and self._source.side_by_side > 1:
            self._etag, self._md5 = http.headers.get("ETag"), http.headers.get("x-ms-blob-content-md5")
            self._size_bytes = size_bytes
            self._landing.begin(size_bytes)
            self._beside.begin(self._read_rest(rest, self._etag))

    async def _compare(self, md5: str) -> None:
        if not await is_sound(self._landing, hashlib.md5(usedforsecurity=False), base64.b64decode(md5)):
            self._landing.forget(0, self._size_bytes)
            raise DamagedBody("the MD5 of the whole is not the one that the service keeps of the blob")

    async def _read_encoded(self, stream: Any) -> None:
        """Leave it to the SDK to decode what is longer or shorter than its ranges say."""
        if whole_size_of(stream) > stream.size:
            source = self._source
            options = {"version_id": source.version_id, "max_concurrency": 1, **source.options}
            stream = await source.client.download_blob(**options)
        self._landing.begin(None)
        self._landing.put(0, await stream.readall())


def _filler(source: Source, landing: Landing, etag: str | None) -> Callable[[Span], Awaitable[None]]:
    """Return what fills one part of a landing with a range of this version."""
    same = {} if etag is None or source.version_id else {"etag": etag, "match_condition": MatchConditions.IfNotModified}

    async def fill(part: Span) -> None:
        slot = Slot(landing, part)
        try:
            await (await source.ask(part, **same)).readinto(slot)
        except HttpResponseError as error:
            if error.status_code == 416:
                raise ResourceModifiedError("the blob has become shorter") from error
            raise
        slot.must_be_full()

    return fill


def whole_size_of(stream: Any) -> int:
    """Return the size of the whole blob of which a stream brings a range, in bytes."""
    return int(stream.properties.content_range.rpartition("/")[2])


def _size_in(headers: Mapping[str, str]) -> int | None:
    size = (headers.get("Content-Range") or "").rpartition("/")[2]
    return int(size) if size.isdigit() else None
