"""Reading objects whole, or long parts of them, in ranges side by side, all of one version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from resilient_io.aws import privates
from resilient_io.aws.body import Changed, Request
from resilient_io.aws.errors import DamagedBody
from resilient_io.aws.get import read as _read
from resilient_io.control.ranges import Span, blocks
from resilient_io.drive.beside import Beside
from resilient_io.drive.landing import Landing, LocalFile, Memory, Shifted, Slot, published
from resilient_io.drive.whole import again_if_damaged, is_sound


async def read_object(fs: Any, request: Request, *, block_bytes: int, side_by_side: int) -> bytes:
    """Return a whole object, from one plain GET or, where that shows it to be large, with ranges beside it."""
    landing = Memory()
    await _read_whole(fs, request, landing, block_bytes, side_by_side)
    return landing.value()


async def read_to_file(
    fs: Any, request: Request, path: str, *, block_bytes: int, side_by_side: int, callback: Any
) -> None:
    """Write a whole object to a local file, which gets its name when it is whole; see `LocalFile`."""
    with published(LocalFile(path, callback)) as landing:
        await _read_whole(fs, request, landing, block_bytes, side_by_side)


async def _read_whole(fs: Any, request: Request, landing: Landing, block_bytes: int, side_by_side: int) -> None:
    def read(in_one_piece: bool) -> Awaitable[None]:
        return _Whole(fs, request, landing, block_bytes, 1 if in_one_piece else side_by_side).read()

    await again_if_damaged(read, operation="GetObject", path=f"s3://{request['Bucket']}/{request['Key']}")


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
    await Beside(side_by_side + 1).fill(rest, _filler(fs, request, Shifted(landing, span.start), etag))
    return landing.value()


class _Whole:
    """One object on its way: the first block from a plain GET, the rest of a large one beside it in ranges.

    The plain GET saves a small object the HEAD, and brings the checksum of the whole. Of a large one it is read to the
    end of the first block and then closed; what it sent ahead is lost, which is less than the kernel's buffers hold.
    All ranges carry the first answer's ETag, so that they are of one version.
    """

    __slots__ = (
        "_answer",
        "_at_most_bytes",
        "_beside",
        "_block_bytes",
        "_check",
        "_front",
        "_fs",
        "_landing",
        "_request",
    )

    def __init__(self, fs: Any, request: Request, landing: Landing, block_bytes: int, side_by_side: int) -> None:
        self._fs = fs
        self._request = request
        self._landing = landing
        self._block_bytes = block_bytes
        self._at_most_bytes = block_bytes if side_by_side > 1 else None
        self._beside = Beside(side_by_side)
        self._front = _Front(landing, self._beside)
        self._answer: Mapping[str, Any] | None = None
        self._check: tuple[Any, bytes] | None = None

    async def read(self) -> None:
        """Read all of it into the landing."""
        front = _read(self._fs, self._request, self._front, at_most_bytes=self._at_most_bytes, on_answer=self._begin)
        answer = await self._beside.front(front)
        if self._beside.is_on:
            await self._compare()
        else:
            # A later answer may tell the size that the first did not.
            await self._read_rest(answer, self._front.got_bytes, _size_of(answer) or 0)

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
        if self._beside.is_on:
            # The body began anew, and the ranges beside it are of another version.
            raise Changed
        self._answer, size_bytes = answer, _size_of(answer)
        self._landing.begin(size_bytes)
        if size_bytes is not None and self._at_most_bytes is not None and size_bytes > self._at_most_bytes:
            self._check = privates.fresh_checksum_of(answer["Body"])
            self._beside.begin(self._read_rest(answer, self._at_most_bytes, size_bytes))

    async def _compare(self) -> None:
        """Compare the checksum of the whole, if the service gave one: no range carries it."""
        if self._check is None:
            return
        if not await is_sound(self._landing, *self._check):
            self._landing.forget(0, _size_of(self._answer or {}) or 0)
            raise DamagedBody(error_msg="the checksum of the whole object is not the one that the service says")

    async def _read_rest(self, answer: Mapping[str, Any], start: int, size_bytes: int) -> None:
        if start >= size_bytes:
            return
        same_version = {"IfMatch": answer["ETag"]} if answer.get("ETag") else {}
        fill = _filler(self._fs, {**self._request, **same_version}, self._landing)
        await self._beside.fill(blocks(start, size_bytes, self._block_bytes), fill)


class _Front:
    """The sink of the plain GET; it ends when what is read beside it has failed."""

    __slots__ = ("_beside", "_landing", "got_bytes")

    def __init__(self, landing: Landing, beside: Beside) -> None:
        self._landing = landing
        self._beside = beside
        self.got_bytes = 0

    def append(self, piece: bytes) -> None:
        self._beside.must_go_on()
        self._landing.put(self.got_bytes, piece)
        self.got_bytes += len(piece)

    def clear(self) -> None:
        self._landing.forget(0, self.got_bytes)
        self.got_bytes = 0


def _version_of(answer: Mapping[str, Any]) -> tuple[Any, Any]:
    return answer.get("ETag"), _size_of(answer)


def _size_of(answer: Mapping[str, Any]) -> int | None:
    """Return the size of the whole object, if the answer tells it; it may be a range that nobody asked for."""
    of_range = answer.get("ContentRange")
    if not of_range:
        return answer.get("ContentLength")
    size = of_range.rpartition("/")[2]
    return int(size) if size.isdigit() else None


def _filler(fs: Any, request: Request, landing: Landing, etag: str | None = None) -> Callable[[Span], Awaitable[None]]:
    """Return what fills one part of a landing by a request of its own."""

    async def fill(span: Span) -> None:
        slot = Slot(landing, span)
        await _read(fs, {**request, "Range": f"bytes={span.start}-{span.end - 1}"}, slot, etag=etag)
        slot.must_be_full()

    return fill
