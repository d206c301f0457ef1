"""Bodies of S3 writes: the aws-chunked wrapping, what is kept of the headers, and checksums."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping

from .calls import Body, Head

_KEPT = frozenset(
    {"content-type", "cache-control", "content-disposition", "content-language", "expires", "content-encoding"}
)
# Checksum headers that name an algorithm and not a value.
_NO_CHECKSUMS = frozenset({"x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"})


class BadBody(Exception):
    """The body is not what its headers say; `code` is S3's word for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def whole_body(head: Head, body: Body) -> tuple[bytes, dict[str, str]]:
    """Return the payload of a write, unwrapped and checked, and the checksums of its trailer."""
    data = b"".join([piece async for piece in body])
    trailers: dict[str, str] = {}
    if head.headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
        data, trailers = unwrap(data)
    _check({**head.headers, **trailers}, data)
    return data, trailers


def unwrap(wrapped: bytes) -> tuple[bytes, dict[str, str]]:
    """Return payload and trailers of an aws-chunked body ("size[;chunk-signature=...]CRLF data CRLF")."""
    pieces: list[bytes] = []
    at = 0
    while True:
        end = wrapped.find(b"\r\n", at)
        if end < 0:
            raise BadBody("IncompleteBody", "the last chunk of an aws-chunked body is missing")
        size = int(wrapped[at:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(pieces), _trailers(wrapped[end + 2 :])
        pieces.append(wrapped[end + 2 : end + 2 + size])
        at = end + 4 + size


def stored_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what comes back with the object: user metadata, content headers, checksums."""
    kept: list[tuple[str, str]] = []
    for name, value in headers.items():
        if name == "content-encoding":
            value = _without_wrapping(value)
        ours = name in _KEPT or (name.startswith(("x-amz-meta-", "x-amz-checksum-")) and name not in _NO_CHECKSUMS)
        if ours and value:
            kept.append((name, value))
    return tuple(kept)


def _without_wrapping(encoding: str) -> str:
    parts = [part.strip() for part in encoding.split(",")]
    return ",".join(part for part in parts if part != "aws-chunked")


def _trailers(text: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.decode("latin-1").split("\r\n") if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _check(headers: Mapping[str, str], data: bytes) -> None:
    """Check the digests that the standard library has."""
    md5 = headers.get("content-md5")
    if md5 is not None and md5 != _base64(hashlib.md5(data, usedforsecurity=False).digest()):
        raise BadBody("BadDigest", "the Content-MD5 is not that of the body")
    crc32 = headers.get("x-amz-checksum-crc32")
    if crc32 is not None and crc32 != _base64(zlib.crc32(data).to_bytes(4, "big")):
        raise BadBody("BadDigest", "the CRC32 is not that of the body")
    sha256 = headers.get("x-amz-checksum-sha256")
    if sha256 is not None and sha256 != _base64(hashlib.sha256(data).digest()):
        raise BadBody("BadDigest", "the SHA256 is not that of the body")


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
