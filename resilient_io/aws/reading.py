"""Reading objects whole, in ranges, or the first bytes of one, with the permit held over the body."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from resilient_io.aws import privates
from resilient_io.aws.body import Changed, Request
from resilient_io.aws.get import read as _read
from resilient_io.control.ranges import Span, blocks
from resilient_io.control.span import told_by
from resilient_io.drive.first import First, all_or_none
from resilient_io.drive.landing import Landing, LocalFile, Memory, Shifted, Slot, Whole, published

__all__ = ["Changed", "read_first", "read_object", "read_range", "read_span", "read_to_file"]


async def read_range(fs: Any, request: Request, *, etag: str | None = None) -> bytes:
    """Return the bytes of the range that the request names; Changed if they are not of the version `etag`."""
    pieces: list[bytes] = []
    await _read(fs, request, pieces, etag=etag)
    return b"".join(pieces)


async def read_object(fs: Any, request: Request, *, block_bytes: int, side_by_side: int) -> bytes:
    """Return a whole object, from one plain GET or, where that shows it to be large, with ranges beside it."""
    landing = Memory()
    await _Whole(fs, request, landing, block_bytes, side_by_side).read()
    return landing.value()


async def read_to_file(
    fs: Any, request: Request, path: str, *, block_bytes: int, side_by_side: int, callback: Any
) -> None:
    """Write a whole object to a local file, which gets its name when it is whole; see `LocalFile`."""
    with published(LocalFile(path, callback)) as landing:
        await _Whole(fs, request, landing, block_bytes, side_by_side).read()


async def read_span(
    fs: Any, request: Request, span: Span, known: bytes, etag: str | None, block_bytes: int, side_by_side: int
) -> bytes:
    """Return the bytes of a span, of which the first are `known`; a long one comes in ranges side by side.

    All are of the version that the request names; Changed if they are not of the version `etag`.
    """
    landing = Memory()
    landing.begin(len(span))
    if known:
        landing.put(0, known)
    rest = blocks(span.start + len(known), span.end, block_bytes)
    await _read_spans(fs, request, Shifted(landing, span.start), rest, side_by_side, etag)
    return landing.value()


class _Whole:
    """One object on its way: the first block from a plain GET, the rest of a large one beside it in ranges.

    The plain GET saves a small object the HEAD, and brings the checksum of the whole. Of a large one it is read to the
    end of the first block and then closed; what it sent ahead is lost, which is less than the kernel's buffers hold.
    All ranges carry the first answer's ETag, so that they are of one version.
    """

    __slots__ = ("_answer", "_block_bytes", "_check", "_front", "_fs", "_landing", "_request", "_rest", "_side_by_side")

    def __init__(self, fs: Any, request: Request, landing: Whole, block_bytes: int, side_by_side: int) -> None:
        self._fs = fs
        self._request = request
        self._landing = landing
        self._block_bytes = block_bytes
        self._side_by_side = side_by_side
        self._front: _Front = _Front(landing)
        self._answer: Mapping[str, Any] | None = None
        self._rest: asyncio.Task[Any] | None = None
        self._check: tuple[Any, bytes] | None = None

    async def read(self) -> None:
        """Read all of it into the landing."""
        at_most_bytes = self._block_bytes if self._side_by_side > 1 else None
        try:
            answer = await _read(
                self._fs, self._request, self._front, at_most_bytes=at_most_bytes, on_answer=self._begin
            )
            if self._rest is not None:
                await self._rest
                await self._compare()
            else:
                # A later answer may tell the size that the first did not.
                await self._read_rest(answer, self._front.got_bytes, answer.get("ContentLength") or 0)
        except BaseException:
            if self._rest is not None:
                self._rest.cancel()
                await asyncio.gather(self._rest, return_exceptions=True)
            raise

    async def _compare(self) -> None:
        """Compare the checksum of the whole, if the service gave one; what is damaged is read anew, in one piece.

        In a thread: what takes a second of arithmetic would hold up all reads of the loop.
        """
        if self._check is None or await asyncio.to_thread(_matches, self._landing.read_back(), *self._check):
            return
        self._landing.forget(0, (self._answer or {}).get("ContentLength") or 0)
        await _Whole(self._fs, self._request, self._landing, self._block_bytes, 1).read()

    def _begin(self, answer: Mapping[str, Any]) -> None:
        """Look at an answer to the plain GET, before its body; the first one tells how much the rest is."""
        try:
            self._look_at(answer)
        except BaseException:
            answer["Body"].close()
            raise

    def _look_at(self, answer: Mapping[str, Any]) -> None:
        first = self._answer
        if first is not None and (self._front.got_bytes or _version_of(first) == _version_of(answer)):
            return
        if self._rest is not None:
            # The body began anew, and the ranges beside it are of another version.
            raise Changed
        self._answer, size_bytes = answer, answer.get("ContentLength")
        self._landing.begin(size_bytes)
        if size_bytes is not None and self._side_by_side > 1 and size_bytes > self._block_bytes:
            self._check = privates.fresh_checksum_of(answer["Body"])
            self._front.beside = self._rest = asyncio.ensure_future(
                self._read_rest(answer, self._block_bytes, size_bytes)
            )

    async def _read_rest(self, answer: Mapping[str, Any], start: int, size_bytes: int) -> None:
        if start >= size_bytes:
            return
        same_version = {"IfMatch": answer["ETag"]} if answer.get("ETag") else {}
        rest = blocks(start, size_bytes, self._block_bytes)
        await _read_spans(self._fs, {**self._request, **same_version}, self._landing, rest, self._side_by_side)


def _matches(pieces: Iterator[bytes | memoryview], checksum: Any, expected: bytes) -> bool:
    is_empty = True
    for piece in pieces:
        checksum.update(piece)
        is_empty = False
    return is_empty or bool(checksum.digest() == expected)


class _Front:
    """The sink of the plain GET; it ends when what is read beside it has failed."""

    __slots__ = ("_landing", "beside", "got_bytes")

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self.beside: asyncio.Task[Any] | None = None
        self.got_bytes = 0

    def append(self, piece: bytes) -> None:
        if self.beside is not None and self.beside.done():
            self.beside.result()
        self._landing.put(self.got_bytes, piece)
        self.got_bytes += len(piece)

    def clear(self) -> None:
        self._landing.forget(0, self.got_bytes)
        self.got_bytes = 0


def _version_of(answer: Mapping[str, Any]) -> tuple[Any, Any]:
    return answer.get("ETag"), answer.get("ContentLength")


async def _read_spans(
    fs: Any, request: Request, landing: Landing, spans: list[Span], side_by_side: int, etag: str | None = None
) -> None:
    """Fill these parts of a landing, each by a request of its own, `side_by_side` at a time."""
    slots = asyncio.Semaphore(side_by_side)

    async def fill(span: Span) -> None:
        slot = Slot(landing, span)
        async with slots:
            await _read(fs, {**request, "Range": f"bytes={span.start}-{span.end - 1}"}, slot, etag=etag)
        slot.must_be_full()

    if len(spans) == 1:
        await fill(spans[0])
    else:
        await all_or_none(fill(span) for span in spans)


async def read_first(fs: Any, request: Request, length_bytes: int) -> First:
    """Return the first bytes of an object and its details; an empty object answers 416, which tells as much."""
    path = f"{request['Bucket']}/{request['Key']}"
    pieces: list[bytes] = []
    asked = {**request, "Range": f"bytes=0-{length_bytes - 1}"}
    try:
        answer = await _read(fs, asked, pieces, at_most_bytes=length_bytes, raw_errors=True)
    except ClientError as error:
        if _status_of(error) != 416:
            raise
        return First(data=b"", details={"name": path, "size": 0, "type": "file", "StorageClass": "STANDARD"})
    data = b"".join(pieces)
    return First(data=data, details=_details(path, answer, data))


def _details(path: str, answer: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return what s3fs's `info` would say of the object."""
    size_bytes = told_by(answer.get("ContentRange"), answer.get("ContentLength")).size
    return {
        "ETag": answer.get("ETag", ""),
        "LastModified": answer.get("LastModified", ""),
        "size": len(data) if size_bytes is None else size_bytes,
        "name": path,
        "type": "file",
        "StorageClass": answer.get("StorageClass", "STANDARD"),
        "VersionId": answer.get("VersionId"),
        "ContentType": answer.get("ContentType"),
    }


def _status_of(error: ClientError) -> int | None:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
