"""Looks at the store for what an S3 write came to whose answer was lost, before it is reported.

The hooks ask here when a call has ended badly after such an attempt. Most ends need one request more; some are told by
the code of the refusal alone: a bucket that is owned already was made by us, one that is gone was deleted.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from resilient_io.aws import faults
from resilient_io.control.lost import Finding, compared, etag_of_parts, is_md5
from resilient_io.drive.call import Call

Answer = Mapping[str, Any]
Params = Mapping[str, Any]

# A repeat that finds the work done: (operation, code) -> what of the answer can be told.
_DONE: Final[Mapping[tuple[str, str], Callable[[Params], dict[str, Any]]]] = {
    ("AbortMultipartUpload", "NoSuchUpload"): lambda params: {},
    ("DeleteBucket", "NoSuchBucket"): lambda params: {},
    ("CreateBucket", "BucketAlreadyOwnedByYou"): lambda params: {"Location": f"/{params['Bucket']}"},
}
_STATUS: Final = {"AbortMultipartUpload": 204, "DeleteBucket": 204}
# What a HEAD or GET needs of the write's parameters: where it is, who pays, and with what key it is encrypted.
_PLACE: Final = (
    "Bucket", "Key", "RequestPayer", "ExpectedBucketOwner", "SSECustomerAlgorithm", "SSECustomerKey",
    "SSECustomerKeyMD5",
)  # fmt: skip
# What a HEAD tells of what the write would have answered.
_TOLD: Final = (
    "ETag", "VersionId", "Expiration", "ServerSideEncryption", "SSECustomerAlgorithm", "SSECustomerKeyMD5",
    "SSEKMSKeyId", "BucketKeyEnabled", "RequestCharged", "ChecksumCRC32", "ChecksumCRC32C", "ChecksumCRC64NVME",
    "ChecksumSHA1", "ChecksumSHA256", "ChecksumType",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The body of a write, and where it began: what was sent can be read again."""

    body: Any
    start: int | None

    def content(self) -> bytes | None:
        """Return the bytes that were sent; None where they cannot be had again."""
        body = self.body
        if isinstance(body, str):
            return body.encode()
        if body is None or isinstance(body, (bytes, bytearray, memoryview)):
            return bytes(body or b"")
        if self.start is None:
            return None
        try:
            body.seek(self.start)
            data = body.read()
        except (AttributeError, OSError, ValueError):
            return None
        return data if isinstance(data, bytes) else None


def written_by(operation: str, params: Params) -> Written | None:
    """Return what a PutObject is about to send; to be called before it is sent. None for what is never looked up."""
    if operation != "PutObject":
        return None
    body = params.get("Body")
    if hasattr(body, "read"):
        try:
            return Written(body=body, start=body.tell())  # type: ignore[union-attr]  # it has `read`
        except (AttributeError, OSError, ValueError):
            return Written(body=body, start=None)
    return Written(body=body, start=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look: the request to send, if one is needed, and what its answer tells of the call.

    `settled` takes the answer, with a body as bytes, or the exception that came instead; it returns the answer of the
    write, or None if its error stands.
    """

    request: tuple[str, dict[str, Any]] | None
    settled: Callable[[Answer | Exception | None], dict[str, Any] | None]


def look_for(call: Call, error: Exception, params: Params, written: Written | None) -> Look | None:
    """Return the look that may tell what a call came to that ended with this error; None where none can."""
    if not call.may_be_looked_up():
        return None
    code = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""
    done = _DONE.get((call.name, code))
    if done is not None:
        status = _STATUS.get(call.name, 200)
        return Look(request=None, settled=lambda _: _answer(done(params), status))
    if call.name == "CompleteMultipartUpload":
        return Look(request=("HeadObject", _place(params)), settled=_Completion(call, error, params).settled)
    if call.judged_as == "PutObject-append":
        return _look_at_append(params, written)
    if call.judged_as in ("PutObject-IfNoneMatch", "PutObject-IfMatch") and written is not None:
        asked = {**_place(params), "ChecksumMode": "ENABLED"}
        return Look(request=("HeadObject", asked), settled=_Put(call, error, params, written).settled)
    return None


def settled(look: Look | None, send: Callable[..., Any], inside: AbstractContextManager[Any]) -> Any:
    """Look, `inside` a block; return the answer of a write that turns out to have happened, or None."""
    if look is None or look.request is None:
        return look.settled(None) if look is not None else None
    with inside:
        try:
            found = send(*look.request)
            if "Body" in found:
                found = {**found, "Body": found["Body"].read()}
        except Exception as error:
            found = error
    return look.settled(found)


async def settled_async(look: Look | None, send: Callable[..., Any], inside: AbstractContextManager[Any]) -> Any:
    """Do as `settled` does, with an async client."""
    if look is None or look.request is None:
        return look.settled(None) if look is not None else None
    with inside:
        try:
            found = await send(*look.request)
            if "Body" in found:
                found = {**found, "Body": await found["Body"].read()}
        except Exception as error:
            found = error
    return look.settled(found)


def _place(params: Params) -> dict[str, Any]:
    return {name: params[name] for name in _PLACE if name in params}


def _answer(members: Mapping[str, Any], status: int = 200, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    headers = {"HTTPHeaders": {}, "RetryAttempts": 0, **(metadata or {})}
    return {"ResponseMetadata": {**headers, "HTTPStatusCode": status}, **members}


def _answer_from(found: Answer, names: tuple[str, ...] = _TOLD, **more: Any) -> dict[str, Any]:
    """Return what the write would have answered, as far as a look at the object tells."""
    told = {name: found[name] for name in names if name in found}
    return _answer({**told, **more}, metadata=found.get("ResponseMetadata"))


def _is_absent(found: Answer | Exception | None) -> bool:
    if not isinstance(found, ClientError):
        return False
    return found.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404


def _end_as_refused(call: Call, error: Exception) -> None:
    """Let the store's own refusal stand: it is no echo."""
    if isinstance(error, ClientError):
        call.is_refused(faults.verdict_of_error(error, call.judged_as))


@dataclass(frozen=True, slots=True)
class _Completion:
    """A CompleteMultipartUpload: the object that it makes has an ETag that the parts foretell."""

    call: Call
    error: Exception
    params: Params

    def settled(self, found: Answer | Exception | None) -> dict[str, Any] | None:
        if _is_absent(found):
            _end_as_refused(self.call, self.error)
            return None
        parts = (self.params.get("MultipartUpload") or {}).get("Parts") or ()
        wanted = etag_of_parts([str(part.get("ETag", "")) for part in parts])
        if not isinstance(found, Mapping) or wanted is None:
            return None
        if str(found.get("ETag", "")).strip('"') != wanted:
            if self.call.judged_as.endswith("-IfNoneMatch") and _is_plain(found):
                _end_as_refused(self.call, self.error)
            return None
        place = {name: self.params[name] for name in ("Bucket", "Key")}
        return _answer_from(found, Location=f"/{place['Bucket']}/{place['Key']}", **place)


@dataclass(frozen=True, slots=True)
class _Put:
    """A conditional PutObject: the object that is there has our bytes and metadata, or it is another one."""

    call: Call
    error: Exception
    params: Params
    written: Written

    def settled(self, found: Answer | Exception | None) -> dict[str, Any] | None:
        if not isinstance(found, Mapping):
            return None
        match self._finding(found):
            case Finding.OURS:
                return _answer_from(found)
            case Finding.OTHERS if self.call.judged_as == "PutObject-IfNoneMatch":
                # With If-Match another writer may have come after us as well as before.
                _end_as_refused(self.call, self.error)
        return None

    def _finding(self, found: Answer) -> Finding:
        content = self.written.content()
        if content is None:
            return Finding.UNSURE
        return compared(
            lengths_bytes=(len(content), found.get("ContentLength")),
            metadata=(self.params.get("Metadata") or {}, found.get("Metadata") or {}),
            digests=_digests(content, found),
        )


def _digests(content: bytes, found: Answer) -> Iterator[tuple[str, str]]:
    """Give the digests that are known of an object, beside our own."""
    etag = str(found.get("ETag", "")).strip('"')
    if _is_plain(found) and is_md5(etag):
        yield hashlib.md5(content, usedforsecurity=False).hexdigest(), etag
    if found.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return
    for name, digest in _CHECKSUMS.items():
        if found.get(name):
            yield base64.b64encode(digest(content)).decode(), str(found[name])


def _is_plain(found: Answer) -> bool:
    """Say whether an object's ETag is made of MD5s: not that of one encrypted with a key of KMS or of the customer."""
    return found.get("ServerSideEncryption") in (None, "AES256") and not found.get("SSECustomerAlgorithm")


_CHECKSUMS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "ChecksumSHA256": lambda data: hashlib.sha256(data).digest(),
    "ChecksumSHA1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "ChecksumCRC32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
}


def _look_at_append(params: Params, written: Written | None) -> Look | None:
    """Return the look at the bytes from the position on that was to be appended at."""
    content, offset = written.content() if written is not None else None, params["WriteOffsetBytes"]
    if not content:
        return None

    def settled(found: Answer | Exception | None) -> dict[str, Any] | None:
        is_there = isinstance(found, Mapping) and found.get("Body") == content
        return _answer_from(found) if is_there else None  # type: ignore[arg-type]  # then it is a mapping

    asked = {**_place(params), "Range": f"bytes={offset}-{offset + len(content) - 1}"}
    return Look(request=("GetObject", asked), settled=settled)
