"""Reading objects whole, in ranges, or the first bytes of one, with the permit held over the body."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Mapping
from typing import IO, Any

from botocore.exceptions import ClientError

from resilient_io.aws.body import Changed, Request
from resilient_io.aws.get import read as _read
from resilient_io.control.span import told_by
from resilient_io.drive.first import First, all_or_none

__all__ = ["Changed", "read_first", "read_object", "read_range", "read_to_file"]


async def read_range(fs: Any, request: Request, *, etag: str | None = None) -> bytes:
    """Return the bytes of the range that the request names; Changed if they are not of the version `etag`."""
    pieces: list[bytes] = []
    await _read(fs, request, pieces, etag=etag)
    return b"".join(pieces)


async def read_object(fs: Any, request: Request, *, block_bytes: int, side_by_side: int) -> bytes:
    """Return a whole object: its first block from a plain GET, the rest of a large one beside it in ranges.

    The ranges carry the first answer's ETag, so that they are of one version.
    """
    pieces: list[bytes] = []
    answer = await _read(fs, request, pieces, at_most_bytes=block_bytes if side_by_side > 1 else None)
    got_bytes, length_bytes = sum(map(len, pieces)), answer.get("ContentLength")
    if length_bytes is None or got_bytes >= length_bytes:
        return b"".join(pieces)
    starts = range(got_bytes, length_bytes, block_bytes)
    parts: dict[int, list[bytes]] = {}
    await _read_rest(fs, request, answer, starts, side_by_side, parts.__setitem__)
    # Joined once: each copy of a large object costs as much as its way through the kernel.
    return b"".join(itertools.chain(pieces, *map(parts.__getitem__, starts)))


async def read_to_file(
    fs: Any, request: Request, path: str, *, block_bytes: int, side_by_side: int, callback: Any
) -> None:
    """Write a whole object to a local file, which is not left behind if that fails."""
    sink = _FileSink(path, callback)
    try:
        answer = await _read(
            fs, request, sink, at_most_bytes=block_bytes if side_by_side > 1 else None, on_answer=sink.begin
        )
        length_bytes = answer.get("ContentLength") or 0
        if sink.written_bytes < length_bytes:
            starts = range(sink.written_bytes, length_bytes, block_bytes)
            await _read_rest(fs, request, answer, starts, side_by_side, sink.put_all)
    except BaseException:
        sink.discard()
        raise
    sink.close()


class _FileSink:
    """A local file that is being filled; made when the first answer comes, so that a missing key makes none."""

    def __init__(self, path: str, callback: Any) -> None:
        self._path = path
        self._callback = callback
        self._file: IO[bytes] | None = None
        self.written_bytes = 0

    def begin(self, answer: Mapping[str, Any]) -> None:
        if self._file is None:
            self._callback.set_size(answer.get("ContentLength"))
            self._file = open(self._path, "wb")  # noqa: SIM115  # closed by `close` or `discard`

    def append(self, piece: bytes) -> None:
        self.put(self.written_bytes, piece)

    def put(self, start: int, piece: bytes) -> None:
        assert self._file is not None
        self._file.seek(start)
        self._file.write(piece)
        self.written_bytes += len(piece)
        self._callback.relative_update(len(piece))

    def put_all(self, start: int, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.put(start, piece)
            start += len(piece)

    def clear(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._callback.relative_update(-self.written_bytes)
        self.written_bytes = 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            if os.path.isfile(self._path):
                with contextlib.suppress(OSError):
                    os.unlink(self._path)


async def _read_rest(
    fs: Any,
    request: Request,
    answer: Mapping[str, Any],
    starts: range,
    side_by_side: int,
    put: Callable[[int, list[bytes]], None],
) -> None:
    """Fetch what a first block left over, in ranges of one version, `side_by_side` at a time."""
    slots = asyncio.Semaphore(side_by_side)
    same_version = {"IfMatch": answer["ETag"]} if answer.get("ETag") else {}

    async def fill(start: int) -> None:
        end = min(start + starts.step, starts.stop)
        pieces: list[bytes] = []
        async with slots:
            await _read(fs, {**request, **same_version, "Range": f"bytes={start}-{end - 1}"}, pieces)
        got_bytes = sum(map(len, pieces))
        if got_bytes != end - start:
            raise OSError(f"asked for {end - start} bytes at {start} and got {got_bytes}")
        put(start, pieces)

    await all_or_none(fill(start) for start in starts)


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
