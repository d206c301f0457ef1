"""What botocore hands back, as a verdict: the parsed answer or the exception of one attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from resilient_io.classify import fault_of, is_error_document, judge, judge_answer, key_faults
from resilient_io.classify.fault import Fault, FaultKind, Verdict
from resilient_io.classify.operations import is_write, repeat_is_told
from resilient_io.classify.retry_after import retry_after_s
from resilient_io.drive.bodies import BodyFault

# An answer that says one of these did not do what was asked for. A key of a bulk delete that may not be deleted
# (AccessDenied) stays in the answer, as in stock boto3.
_NO_ANSWER = frozenset({FaultKind.THROTTLED, FaultKind.TRANSIENT, FaultKind.AMBIGUOUS})


def verdict_of_error(error: BaseException, operation: str) -> Verdict:
    """Return what an exception of an attempt means."""
    if isinstance(error, BodyFault):
        return error.verdict
    return _judged(fault_of(error, operation=operation), operation, lost_answer=False)


def verdict_of_answer(
    parsed: Mapping[str, Any], status: int, operation: str, *, whole: bool = False, lost_answer: bool = False
) -> Verdict | None:
    """Return what an answer means, or None if it is no fault.

    The status is the parsed one: for an error inside a 200 botocore sets it to 500 there and leaves
    the raw one. A `whole` answer (no body is left to be read) is also looked into if it says that
    all went well, another one if it has no ETag. `lost_answer` says that an earlier attempt of this request had none.
    """
    status = (parsed.get("ResponseMetadata") or {}).get("HTTPStatusCode", status)
    if status >= 300 or parsed.get("Error"):
        return _judged(_refusal(parsed, status, operation), operation, lost_answer=lost_answer)
    fault = _fault_inside(parsed, status, operation) if whole or _has_no_etag(parsed) else None
    if fault is None:
        return None
    verdict = _judged(fault, operation, lost_answer=lost_answer)
    return verdict if verdict.kind in _NO_ANSWER else None


def unmask_error(response_dict: dict[str, Any]) -> None:
    """Let an error that came as a success be parsed as one, before botocore parses an answer.

    botocore does so itself for the operations that have a result; to those without one an error is a success.
    """
    body = response_dict.get("body")
    # One that is still to be read, an object or a stream of events, is not bytes.
    if body and isinstance(body, bytes) and response_dict["status_code"] < 300 and is_error_document(body):
        response_dict["status_code"] = 500


def error_inside(parsed: Mapping[str, Any], operation: str) -> ClientError | None:
    """Return the error of an answer that came as a success and is none, or is none for some of its keys."""
    left = {key: fault for key, fault in key_faults(operation=operation, parsed=parsed).items() if not _absent(fault)}
    if left:
        key, fault = min(left.items(), key=lambda item: not judge(item[1]).retryable)
        told = f"{fault.message} ({len(left)} not deleted, among them {key})"
        return _client_error(parsed, operation, fault.code, told)
    fault_inside = _fault_inside(parsed, 200, operation)
    if fault_inside is None or _absent(fault_inside):
        return None
    return _client_error(parsed, operation, fault_inside.code, "the answer says success and lacks the result")


def _judged(fault: Fault, operation: str, *, lost_answer: bool) -> Verdict:
    # Only a write whose repeat is told apart can meet its own echo: elsewhere a 404 is a 404.
    return judge(fault, after_lost_answer=lost_answer and repeat_is_told(operation), minds_echoes=True)


def _refusal(parsed: Mapping[str, Any], status: int, operation: str) -> Fault:
    metadata, error = parsed.get("ResponseMetadata") or {}, parsed.get("Error") or {}
    return Fault(
        provider="s3",
        operation=operation,
        status=status,
        code=error.get("Code"),
        message=str(error.get("Message") or ""),
        types=("botocore.exceptions.ClientError",),
        write=is_write(operation),
        retry_after_s=retry_after_s(metadata.get("HTTPHeaders") or {}),
        request_id=metadata.get("RequestId"),
    )


def _has_no_etag(parsed: Mapping[str, Any]) -> bool:
    """Say whether an answer whose body is still to be read may be no object at all."""
    return "etag" not in ((parsed.get("ResponseMetadata") or {}).get("HTTPHeaders") or {"etag": ""})


def _fault_inside(parsed: Mapping[str, Any], status: int, operation: str) -> Fault | None:
    headers = (parsed.get("ResponseMetadata") or {}).get("HTTPHeaders") or {}
    return judge_answer(operation=operation, status=status, headers=headers, parsed=parsed)


def _absent(fault: Fault) -> bool:
    """Say whether a key could not be deleted because it was not there."""
    return judge(fault).kind is FaultKind.NOT_FOUND


def _client_error(parsed: Mapping[str, Any], operation: str, code: str | None, message: str) -> ClientError:
    response = {"Error": {"Code": code or "Unknown", "Message": message}}
    metadata = parsed.get("ResponseMetadata")
    if metadata is not None:
        response["ResponseMetadata"] = metadata
    return ClientError(response, operation.partition("-")[0])  # type: ignore[arg-type]  # the stub wants a TypedDict
