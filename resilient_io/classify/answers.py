"""Finds the fault in an answer that the SDK took for good: it raised nothing, and the answer is wrong all the same.

Measured with botocore 1.43, s3fs 2026.9 and adlfs 2026.8: a 200 with an error inside, a 200 without the result, a range
that is not the one that was asked for, a body that is too short, keys that a bulk delete left behind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .fault import Fault
from .operations import OpClass, is_write, op_class
from .retry_after import retry_after_s
from .rules import judge

# What a good answer must hold: operation -> (a member of the parsed result, a tag of the body).
_RESULTS = {
    "completemultipartupload": ("ETag", "ETag"),
    "copyobject": ("CopyObjectResult", "ETag"),
    "uploadpartcopy": ("CopyPartResult", "ETag"),
    "createmultipartupload": ("UploadId", "UploadId"),
    "getobjecttagging": ("TagSet", "TagSet"),
    "getbuckettagging": ("TagSet", "TagSet"),
}
# What Azure always answers with an XML document, as the listings.
_DOCUMENTS = frozenset(
    {"getblocklist", "getblobtags", "getpageranges", "getblobserviceproperties", "getblobservicestats"}
)
# What S3 (API_PutObject, API_UploadPart) and Azure (Azurite too) always answer with an ETag. A HEAD has a date or a
# length besides: a proxy that answers by itself has none of them.
_TAGGED = frozenset(
    {"putobject", "uploadpart", "setblobmetadata", "setblobproperties", "setcontainermetadata"}
    | {"getcontainerproperties", "getcontainermetadata"}
)
_HEADS = frozenset({"headobject", "getblobproperties"})
# S3 says 204, and so do those that speak as it does: no 200 is theirs. Not of this kind are DeleteObject and
# AbortMultipartUpload, to which some say 200, and CreateBucket, whose answer is empty with Ceph, without a Location.
_NO_CONTENT = frozenset({"deletebucket"})
# What Azure answers to a write that it did; 200 is not it.
_CREATED_OR_ACCEPTED = frozenset(
    {"putblob", "putblock", "putblocklist", "appendblock", "createappendblob", "createpageblob", "putpage", "copyblob"}
    | {"putblobfromurl", "putblockfromurl", "appendblockfromurl", "createcontainer", "deleteblob", "deletecontainer"}
)
# STS and IAM put the error into an <ErrorResponse>.
_ERROR_BODY = re.compile(
    r"\s*(?:<\?xml[^>]*\?>\s*)?(?:<ErrorResponse(?:\s[^>]*)?>\s*)?<Error(?:\s[^>]*)?>(?P<inside>.*)", re.DOTALL
)
_CODE = re.compile(r"<Code>([^<]{1,200})</Code>")
_KEY_ERROR = re.compile(r"<Error>(?P<inside>.*?)</Error>", re.DOTALL)
_KEY = re.compile(r"<Key>([^<]*)</Key>")
_CONTENT_RANGE = re.compile(r"bytes (?P<first>\d+)-(?P<last>\d+)/(?P<total>\d+|\*)\Z")
_SNIPPET_CHARS = 65_536


def judge_answer(
    *,
    operation: str,
    status: int,
    headers: Mapping[str, str],
    parsed: Mapping[str, object] | None = None,
    body: bytes | str | None = None,
    requested_range: tuple[int, int | None] | None = None,
    received_bytes: int | None = None,
) -> Fault | None:
    """Return the fault of an answer, None for a good one.

    `parsed` is the SDK's result (a dict as boto3 gives it), `body` the first bytes of the answer; give what there is.
    `requested_range` is (first, last) in bytes, both included, last None for "to the end". `received_bytes` is the
    length of a body that was read to its end. Give the fault to `judge` for its verdict. A bulk delete that
    left keys behind gives the fault of the most hopeful key; `key_faults` gives them all.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    text = _snippet(body)
    code = _refusal(operation, status, lower, text)
    if status >= 400:
        return _fault(operation, status, lower, code or _parsed_code(parsed))
    code = (
        code
        or _left_behind(operation, parsed, text)
        or _missing_result(operation, parsed, text)
        or _no_object(operation, lower, text)
        or _not_done(operation, status, lower, parsed)
        or _wrong_range(operation, status, lower, requested_range)
        or _wrong_length(operation, lower, received_bytes)
    )
    return None if code is None else _fault(operation, status, lower, code)


def is_error_document(body: bytes | str) -> bool:
    """Say whether the body of an answer is the document in which S3, STS and Azure put an error. Quick for others."""
    head = body[:1024]
    begins = b"<Error" in head if isinstance(head, bytes) else "<Error" in head
    return begins and _ERROR_BODY.match(_snippet(body) or "") is not None


def key_faults(
    *, operation: str = "DeleteObjects", parsed: Mapping[str, object] | None = None, body: bytes | str | None = None
) -> dict[str, Fault]:
    """Return the fault of each key that a bulk operation answered with an error, by key; empty if all went well."""
    write = is_write(operation)
    return {
        key: Fault(provider="s3", operation=operation, status=200, code=code, message=message, write=write)
        for key, code, message in _key_errors(parsed, _snippet(body))
    }


def _fault(operation: str, status: int, lower: Mapping[str, str], code: str | None) -> Fault:
    return Fault(
        provider="azure" if any(name.startswith("x-ms-") for name in lower) else "s3",
        operation=operation,
        status=status,
        code=code,
        write=is_write(operation),
        retry_after_s=retry_after_s(lower),
        request_id=lower.get("x-amz-request-id") or lower.get("x-ms-request-id"),
    )


def _parsed_code(parsed: Mapping[str, object] | None) -> str | None:
    error = parsed.get("Error") if parsed is not None else None
    code = error.get("Code") if isinstance(error, Mapping) else None
    # A bodyless answer has the status in place of the code, which says no more than the status does.
    return code if isinstance(code, str) and not code.isdigit() else None


def _plain(operation: str) -> str:
    return operation.partition("-")[0].replace("_", "").lower()


def _snippet(body: bytes | str | None) -> str | None:
    if body is None:
        return None
    text = body[:_SNIPPET_CHARS].decode("utf-8", "replace") if isinstance(body, bytes) else body[:_SNIPPET_CHARS]
    return text.lstrip("\ufeff")


def _is_head(operation: str) -> bool:
    return _plain(operation) in ("headobject", "headbucket", "getblobproperties", "head")


def _refusal(operation: str, status: int, lower: Mapping[str, str], text: str | None) -> str | None:
    """The code of an answer that is an error, by its status or in spite of it."""
    inside = _ERROR_BODY.match(text) if text is not None else None
    # An object may itself be an XML error document: a store sends an ETag with an object, and none with an error.
    if status < 400 and (inside is None or (op_class(operation) is OpClass.READ and "etag" in lower)):
        return None
    code = _CODE.search(inside["inside"]) if inside is not None else None
    if code is not None:
        return code[1]
    return lower.get("x-ms-error-code") if status >= 400 else "InternalError"


def _key_errors(parsed: Mapping[str, object] | None, text: str | None) -> list[tuple[str, str, str]]:
    errors = parsed.get("Errors") if parsed is not None else None
    if isinstance(errors, list):
        rows = [row for row in errors if isinstance(row, Mapping)]
        return [(str(r.get("Key", "")), str(r.get("Code", "InternalError")), str(r.get("Message", ""))) for r in rows]
    if text is None or "<DeleteResult" not in text:
        return []
    inside = [match["inside"] for match in _KEY_ERROR.finditer(text)]
    return [(_first(_KEY, x) or "", _first(_CODE, x) or "InternalError", "") for x in inside]


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match is not None else None


def _left_behind(operation: str, parsed: Mapping[str, object] | None, text: str | None) -> str | None:
    """The code of the keys that a bulk delete left: one that a repeat may cure before one that none does."""
    if op_class(operation) is not OpClass.DELETE:
        return None
    faults = list(key_faults(operation=operation, parsed=parsed, body=text).values())
    hopeful = sorted(faults, key=lambda fault: not judge(fault).retryable)
    return hopeful[0].code if hopeful else None


def _missing_result(operation: str, parsed: Mapping[str, object] | None, text: str | None) -> str | None:
    """A 200 without what the operation must give: the object may be missing."""
    member, tag = _RESULTS.get(_plain(operation), (None, None))
    if member is not None:
        if parsed is not None:
            # No tags at all are a result.
            return "EmptyAnswer" if parsed.get(member) in (None, "", {}) else None
        return "EmptyAnswer" if text is not None and f"<{tag}" not in text else None
    if op_class(operation) is not OpClass.LIST and _plain(operation) not in _DOCUMENTS:
        return None
    if (
        parsed is not None
        and op_class(operation) is OpClass.LIST
        and not any(name != "ResponseMetadata" for name in parsed)
    ):
        return "EmptyAnswer"
    return "EmptyAnswer" if text is not None and not text.strip() else None


def _no_object(operation: str, lower: Mapping[str, str], text: str | None) -> str | None:
    """A 200 to a GET that cannot be an object's: without an ETag, and empty or an XML document.

    A store sends an ETag with each object; the body is still to be read, so its text cannot tell.
    """
    if _plain(operation) not in ("getobject", "getblob") or "etag" in lower or text is not None:
        return None
    if lower.get("content-length") == "0":
        return "EmptyAnswer"
    return "InternalError" if "xml" in lower.get("content-type", "") else None


def _not_done(operation: str, status: int, lower: Mapping[str, str], parsed: Mapping[str, object] | None) -> str | None:
    """A 200 that the store itself would not have sent: what a proxy answers while the store is away."""
    name = _plain(operation)
    if not lower or status != 200:
        return None
    bare = "etag" not in lower and not (parsed or {}).get("ETag")
    if name in _CREATED_OR_ACCEPTED or name in _NO_CONTENT or (bare and name in _TAGGED):
        return "EmptyAnswer"
    empty = lower.get("content-length", "0") == "0"
    if bare and empty and name in _HEADS:
        return None if "last-modified" in lower else "EmptyAnswer"
    return "EmptyAnswer" if name == "deleteobjects" and empty and "content-length" in lower else None


def _wrong_range(
    operation: str, status: int, lower: Mapping[str, str], requested: tuple[int, int | None] | None
) -> str | None:
    """A 206 of other bytes than were asked for, or a 200 of all of them where that is not the same."""
    if requested is None or op_class(operation) is not OpClass.READ or _is_head(operation):
        return None
    first, last = requested
    if status == 200:
        length = lower.get("content-length", "")
        fits = first == 0 and (last is None or (length.isdigit() and int(length) <= last + 1))
        return None if fits else "RangeIgnored"
    match = _CONTENT_RANGE.match(lower.get("content-range", ""))
    if status != 206 or match is None:
        return "WrongRange" if status == 206 else None
    total = None if match["total"] == "*" else int(match["total"])
    ends = [end for end in (last, None if total is None else total - 1) if end is not None]
    wanted = min(ends) if ends else int(match["last"])
    return None if (int(match["first"]), int(match["last"])) == (first, wanted) else "WrongRange"


def _wrong_length(operation: str, lower: Mapping[str, str], received_bytes: int | None) -> str | None:
    """A body whose length is not the one that its headers promise."""
    length = lower.get("content-length", "")
    if received_bytes is None or _is_head(operation) or not length.isdigit():
        return None
    # Content-Length counts the bytes on the wire, the caller may have counted decoded ones (RFC 9110 8.6).
    return None if received_bytes == int(length) or "content-encoding" in lower else "ShortBody"
