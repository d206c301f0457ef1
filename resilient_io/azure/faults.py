"""What the Azure SDK hands back, as a verdict: the answer or the exception of one attempt."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from typing import Any, Final

from azure.core.exceptions import AzureError

from resilient_io.classify import fault_of, judge, judge_answer
from resilient_io.classify.fault import Fault, FaultKind, Verdict
from resilient_io.classify.operations import OpClass, is_write, op_class, repeat_is_told
from resilient_io.classify.retry_after import retry_after_s
from resilient_io.drive.bodies import BodyFault

# Below azure-core stand these; what of theirs it does not translate (a body that dies while a checksum is taken) is a
# lost answer all the same. Anything else is the program's own.
_BELOW: Final = frozenset({"requests", "urllib3", "aiohttp"})
_CODE: Final = re.compile(r"<Code>([^<]{1,200})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{0,1000})")
# A repeat that finds the work done, after an attempt whose answer was lost: (operation, code) -> what a first one says.
_DONE: Final = {
    ("DeleteBlob", "BlobNotFound"): 202,
    ("DeletePath", "PathNotFound"): 200,
    ("CreateContainer", "ContainerAlreadyExists"): 201,
    ("CreateContainer", "FilesystemAlreadyExists"): 201,
    ("DeleteContainer", "ContainerNotFound"): 202,
    ("DeleteContainer", "ContainerBeingDeleted"): 202,
    ("DeleteContainer", "FilesystemNotFound"): 202,
}
# What says that a write went well, by the REST reference: any other success is that of something in between.
_SUCCESS: Final = {
    **dict.fromkeys(
        (
            "PutBlob", "PutBlock", "PutBlockList", "AppendBlock", "CreateAppendBlob", "CreatePageBlob", "PutPage",
            "PutBlobFromURL", "PutBlockFromURL", "SnapshotBlob", "CreateContainer",
        ),
        201,
    ),
    **dict.fromkeys(("DeleteBlob", "DeleteContainer", "CopyBlob", "CopyBlobFromURL", "SubmitBatch"), 202),
}  # fmt: skip
_BOM: Final = b"\xef\xbb\xbf"
_LIST_END: Final = b"</EnumerationResults>"
DAMAGED: Final = Verdict(kind=FaultKind.TRANSIENT, retryable=True, rule="damaged-answer")
"""An answer that is not whole, or whose checksum is another than its header says."""


def is_of_the_wire(error: BaseException) -> bool:
    """Say whether an exception is what an attempt came to, and not a mistake of the program around it."""
    return isinstance(error, AzureError) or type(error).__module__.partition(".")[0] in _BELOW


def verdict_of_error(error: BaseException, judged_as: str) -> Verdict:
    """Return what an exception of an attempt means.

    The async transport calls a reset after the request was sent ServiceRequestError, "no request was sent": it is what
    the error wraps that is judged.
    """
    if isinstance(error, BodyFault):
        return error.verdict
    return judge(fault_of(error, operation=judged_as), minds_echoes=True)


def verdict_of_answer(
    http_response: Any, judged_as: str, *, lost_answer: bool, is_streamed: bool = False
) -> Verdict | None:
    """Return what an answer means, or None if it is no fault. `lost_answer`: an earlier attempt had none.

    The body of one that `is_streamed` is still to be read.
    """
    status = http_response.status_code
    if status < 300:
        return _verdict_of_success(http_response, judged_as, is_streamed=is_streamed)
    code, message = code_of(http_response), _message_of(http_response)
    fault = Fault(
        provider="azure",
        operation=judged_as,
        status=status,
        code=code,
        message=message,
        types=("azure.core.exceptions.HttpResponseError",),
        write=is_write(judged_as),
        retry_after_s=retry_after_s(http_response.headers),
        request_id=http_response.headers.get("x-ms-request-id"),
    )
    # Only a write whose repeat is told apart can meet its own echo: elsewhere a 404 is a 404.
    return judge(fault, after_lost_answer=lost_answer and repeat_is_told(judged_as), minds_echoes=True)


def _verdict_of_success(http_response: Any, judged_as: str, *, is_streamed: bool) -> Verdict | None:
    """Return what is wrong with an answer that says success; None, nearly always."""
    if op_class(judged_as) is OpClass.LIST:
        return _verdict_of_list(http_response, judged_as)
    status, headers = http_response.status_code, http_response.headers
    wanted = _SUCCESS.get(judged_as.partition("-")[0])
    if wanted not in (None, status):
        return plain_verdict(judged_as, "EmptyAnswer", None)
    # A blob may itself be an error document.
    body = None if is_streamed or judged_as == "GetBlob" else http_response.body()
    if not body and (status != 200 or "ETag" in headers):
        return None
    fault = judge_answer(operation=judged_as, status=status, headers=dict(headers), body=body)
    return None if fault is None else judge(fault, minds_echoes=True)


def plain_verdict(judged_as: str, code: str, verdict: Verdict | None) -> Verdict:
    """Return what a code means of a request that was no repeat; the request id is that of the verdict so far."""
    request_id = verdict.request_id if verdict is not None else None
    write = is_write(judged_as)
    fault = Fault(provider="azure", operation=judged_as, code=code, write=write, request_id=request_id)
    return judge(fault, minds_echoes=True)


def _verdict_of_list(http_response: Any, judged_as: str) -> Verdict | None:
    """Return what is wrong with a listing that says success: one that is empty or cut would pass for few blobs."""
    body: bytes = http_response.body() or b""
    fault = judge_answer(
        operation=judged_as, status=http_response.status_code, headers=dict(http_response.headers), body=body
    )
    if fault is not None:
        return judge(fault)
    text = body.removeprefix(_BOM).lstrip()
    return DAMAGED if text.startswith(b"<") and not text.rstrip().endswith(_LIST_END) else None


def status_if_done(http_response: Any, operation: str) -> int | None:
    """Return the status of success, if the answer to a repeat says that the work is done; else None."""
    return _DONE.get((operation, code_of(http_response) or ""))


def absent_at_secondary(verdict: Verdict) -> Verdict:
    """Return the verdict on a 404 of the secondary: it lags behind, so that the primary may know better."""
    return replace(verdict, kind=FaultKind.TRANSIENT, retryable=True, rule="absent-at-secondary")


def is_damaged(http_response: Any) -> bool:
    """Say whether a body that was read whole has another MD5 than its header says."""
    stated = http_response.headers.get("Content-MD5")
    if not stated:
        return False
    found = hashlib.md5(http_response.body(), usedforsecurity=False).digest()
    return bool(base64.b64encode(found).decode() != stated)


def code_of(http_response: Any) -> str | None:
    """Return the error code of an answer; that of a copy's source, which refused our read of it, is the finer one."""
    headers = http_response.headers
    named = headers.get("x-ms-copy-source-error-code") or headers.get("x-ms-error-code")
    if named:
        return str(named)
    text = _text(http_response)
    found = _CODE.search(text)
    return found[1] if found else _of_json(text, "code")


def _message_of(http_response: Any) -> str:
    text = _text(http_response)
    found = _MESSAGE.search(text)
    return found[1] if found else _of_json(text, "message") or ""


def _of_json(text: str, name: str) -> str | None:
    """Return a member of the error object that the dfs door answers with."""
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)["error"][name]
    except (ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _text(http_response: Any) -> str:
    """Return the body of an error as far as it was read."""
    try:
        body: bytes = http_response.body()
    except Exception:  # not read, or not readable: then the status and the headers have to do
        return ""
    return (body or b"")[:65_536].decode("utf-8-sig", "replace")
