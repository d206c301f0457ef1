"""Looks at the store for what an Azure write came to whose answer was lost, before it is reported.

The request goes through the same client, below the retry policy's own attempts: its URL is that of the write, without
what made it one, and with its signature.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from resilient_io.azure import faults
from resilient_io.control.lost import Finding, compared, same_blocks
from resilient_io.drive.call import Call

# Parts of a query that make a request what it is; what is left says where, and who may ask.
_MAKES_IT_A_WRITE: Final = frozenset({"comp", "blockid", "timeout"})
# Headers that a look needs of the write's: versions, leases and customer-provided keys.
_NEEDED: Final = ("x-ms-version", "x-ms-lease-id", "x-ms-encryption-")
_METADATA: Final = "x-ms-meta-"
# Both XML forms: the one that is sent names where to look for a block, the one that comes back nests it.
_SENT_BLOCK: Final = re.compile(r"<(?:Latest|Uncommitted|Committed)>([^<]*)</")
_FOUND_BLOCK: Final = re.compile(r"<Name>([^<]*)</Name>")
# 50,000 blocks of 4,000 MiB.
_LARGEST_BLOB_BYTES: Final = 50_000 * 4_000 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look: the request to send, what its answer tells, and what the write says when it went well."""

    method: str
    url: str
    headers: Mapping[str, str]
    finding: Callable[[Any], Finding]
    status: int
    more: Mapping[str, str]
    """Headers of the write's own answer that can be told."""


def look_for(call: Call, http_request: Any, headers: Mapping[str, str], code: str | None) -> Look | None:
    """Return the look that may tell what a call came to that ended badly, with this code; None where none can.

    `headers` are those of the write as it came, without those of the policies below.
    """
    if not call.may_be_looked_up():
        return None
    sent = {name.lower(): value for name, value in headers.items()}
    look = _LOOKS.get(call.name)
    return look(call, http_request, sent, code) if look is not None else None


def _is_conditional(call: Call) -> bool:
    return "-" in call.judged_as


def _of_put(call: Call, http_request: Any, sent: Mapping[str, str], code: str | None) -> Look | None:
    content = _content_of(http_request)
    if content is None or not _is_conditional(call):
        return None

    def finding(http: Any) -> Finding:
        stated = http.headers.get("Content-MD5")
        found = compared(
            lengths_bytes=(len(content), _length_of(http)),
            metadata=(_metadata_of(sent), _metadata_of(http.headers)),
            digests=[(_md5_of(content), stated)] if stated else [],
        )
        return _unless_overwritten(call, found)

    return _look("HEAD", http_request, sent, finding, status=201)


def _of_block_list(call: Call, http_request: Any, sent: Mapping[str, str], code: str | None) -> Look | None:
    content = _content_of(http_request)
    if content is None or not (_is_conditional(call) or code == "InvalidBlockList"):
        return None
    written = _SENT_BLOCK.findall(content.decode("utf-8", "replace"))

    def finding(http: Any) -> Finding:
        found = _FOUND_BLOCK.findall((http.body() or b"").decode("utf-8-sig", "replace"))
        return _unless_overwritten(call, same_blocks(written, found, is_offset=_is_offset))

    return _look("GET", http_request, sent, finding, query="comp=blocklist&blocklisttype=committed", status=201)


def _of_append(call: Call, http_request: Any, sent: Mapping[str, str], code: str | None) -> Look | None:
    content, position = _content_of(http_request), sent.get("x-ms-blob-condition-appendpos", "")
    if not content or not position.isdigit():
        return None

    def finding(http: Any) -> Finding:
        # Others can only have appended behind it.
        return Finding.OURS if http.status_code == 206 and http.body() == content else Finding.UNSURE

    span = {"x-ms-range": f"bytes={position}-{int(position) + len(content) - 1}"}
    told = {"x-ms-blob-append-offset": position}
    return _look("GET", http_request, {**sent, **span}, finding, status=201, more=told)


def _of_append_blob(call: Call, http_request: Any, sent: Mapping[str, str], code: str | None) -> Look | None:
    if not _is_conditional(call):
        return None

    def finding(http: Any) -> Finding:
        is_new = http.headers.get("x-ms-blob-type") == "AppendBlob" and _length_of(http) == 0
        return Finding.OURS if is_new and _metadata_of(sent) == _metadata_of(http.headers) else Finding.UNSURE

    return _look("HEAD", http_request, sent, finding, status=201)


def _of_copy(call: Call, http_request: Any, sent: Mapping[str, str], code: str | None) -> Look | None:
    if code != "PendingCopyOperation":
        return None

    def finding(http: Any) -> Finding:
        source = http.headers.get("x-ms-copy-source", "")
        return Finding.OURS if source and _place_of(source) == _place_of(sent["x-ms-copy-source"]) else Finding.OTHERS

    return _look("HEAD", http_request, sent, finding, status=202)


_LOOKS: Final[Mapping[str, Callable[[Call, Any, Mapping[str, str], str | None], Look | None]]] = {
    "PutBlob": _of_put,
    "PutBlockList": _of_block_list,
    "AppendBlock": _of_append,
    "CreateAppendBlob": _of_append_blob,
    "CopyBlob": _of_copy,
}


def _look(
    method: str,
    http_request: Any,
    sent: Mapping[str, str],
    finding: Callable[[Any], Finding],
    *,
    status: int,
    query: str = "",
    more: Mapping[str, str] | None = None,
) -> Look:
    needed = {name: value for name, value in sent.items() if name.startswith(_NEEDED) or name == "x-ms-range"}
    url = _url_to_look_at(http_request.url, query)
    return Look(method=method, url=url, headers=needed, finding=finding, status=status, more=more or {})


def _url_to_look_at(url: str, query: str) -> str:
    base, _, text = url.partition("?")
    kept = [pair for pair in text.split("&") if pair and pair.partition("=")[0] not in _MAKES_IT_A_WRITE]
    pairs = [*([query] if query else []), *kept]
    return f"{base}?{'&'.join(pairs)}" if pairs else base


def judged(call: Call, look: Look, response: Any, code: str | None) -> bool:
    """Say whether the write happened, by the answer to a look (None: there is none); a refusal that holds is noted."""
    http = response.http_response if response is not None else None
    if http is None or http.status_code >= 300:
        return False
    finding = look.finding(http)
    if finding is Finding.OTHERS and code is not None:
        call.is_refused(faults.plain_verdict(call.judged_as, code, call.verdict))
    if finding is not Finding.OURS:
        return False
    http.status_code = look.status
    for name, value in look.more.items():
        http.headers[name] = value
    return True


def _unless_overwritten(call: Call, found: Finding) -> Finding:
    """Return the finding; what another has put in the place of a version (If-Match) may have come after us."""
    return Finding.UNSURE if found is Finding.OTHERS and not call.judged_as.endswith("-IfNoneMatch") else found


def _content_of(http_request: Any) -> bytes | None:
    """Return the body of a request as bytes; None for a stream: the SDK sends what is small as bytes."""
    body = http_request.body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    return b"" if body is None else None


def _md5_of(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _length_of(http: Any) -> int | None:
    stated = http.headers.get("Content-Length")
    return int(stated) if stated and stated.isdigit() else None


def _metadata_of(headers: Mapping[str, str]) -> dict[str, str]:
    found = {name.lower(): value for name, value in headers.items()}
    return {name[len(_METADATA) :]: value for name, value in found.items() if name.startswith(_METADATA)}


def _is_offset(name: str) -> bool:
    """Say whether a block's name only tells where it begins: older SDKs make such, the same for each upload.

    Newer ones draw a number of 128 bits; both encode it twice.
    """
    plain = name.encode()
    for _ in range(2):
        if not plain.isdigit():
            try:
                plain = base64.b64decode(plain, validate=True)
            except ValueError:
                return False
    return plain.isdigit() and int(plain) < _LARGEST_BLOB_BYTES


def _place_of(url: str) -> str:
    return url.partition("?")[0]
