"""The SDK's own exceptions, told what the library knows of them."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import (
    ClientError,
    FlexibleChecksumError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from resilient_io.classify.fault import FaultKind
from resilient_io.drive.bodies import Damaged, NotAsAsked, Stalled, Unverifiable
from resilient_io.drive.call import Call
from resilient_io.drive.packed import keep_facts
from resilient_io.errors import AmbiguousWriteError, GiveUp, ObjectChanged, message_of

# What our own first try looks like to our second one.
_ECHO_STATUSES = (404, 409, 412)
_ECHO_CODES = ("InvalidWriteOffset",)  # of a 400


class WaitedForPermit(ReadTimeoutError):
    """A request that was never sent: its scope did not admit it before the deadline."""

    fmt = "The deadline passed before the scope admitted a request to {endpoint_url}"


class StalledBody(ResponseStreamingError, Stalled):
    """A body that was ended because too little of it came."""


class WrongRangeBody(ResponseStreamingError, NotAsAsked):
    """An answer with other bytes than were asked for."""


class UnverifiableBody(ResponseStreamingError, Unverifiable):
    """An answer that nobody could tell from one that was cut short."""


class DamagedBody(FlexibleChecksumError, Damaged):
    """A body that was put together from several answers, and has another checksum than the service says."""


class ObjectReplaced(ClientError, ObjectChanged):
    """The object was replaced while its body was being read: what a store answers to If-Match, and ObjectChanged."""

    def __init__(self, error_response: Any = None, operation_name: str = "GetObject", *, place: str = "") -> None:
        response: dict[str, Any] = {**(error_response or {})}
        told = f"{operation_name} {place}: the object was replaced while it was being read".replace(" :", ":")
        response["Error"] = {**(response.get("Error") or {"Code": "PreconditionFailed"}), "Message": told}
        response.setdefault("ResponseMetadata", {"HTTPStatusCode": 412})
        ClientError.__init__(self, response, operation_name)  # type: ignore[arg-type]  # the stub wants a TypedDict
        self.strerror, self.errno = told, self.default_errno
        self.record = GiveUp(operation=operation_name, path=place)

    def __reduce__(self) -> Any:
        return _rebuilt, (self.response, self.operation_name, self.record.path)


def _rebuilt(response: Any, operation_name: str, place: str) -> ObjectReplaced:
    return ObjectReplaced(response, operation_name, place=place)


class AmbiguousWriteRefused(ClientError, AmbiguousWriteError):
    """A write that was refused as already done, after an attempt whose answer was lost: perhaps by our own hand.

    Its code is AmbiguousWrite, because code that reads PreconditionFailed or NoSuchUpload there would take
    it for the work of somebody else; the store's code is `response["Error"]["StoreCode"]`.
    """

    def __init__(self, error_response: Any, operation_name: str, record: GiveUp | None = None) -> None:
        ClientError.__init__(self, error_response, operation_name)
        self.record = record if record is not None else GiveUp()

    def __reduce__(self) -> Any:
        return type(self), (self.response, self.operation_name, self.record)


def unless_an_echo(error: Exception, call: Call) -> Exception:
    """Return the error for a client's caller: the SDK's own, unless it may be the echo of our own success."""
    record, verdict = call.give_up, call.verdict
    if record is None or verdict is None or not isinstance(error, ClientError):
        return error
    response: dict[str, Any] = {**error.response}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    stated = dict(response.get("Error") or {})
    is_echo = status in _ECHO_STATUSES or stated.get("Code") in _ECHO_CODES
    if verdict.kind is not FaultKind.AMBIGUOUS or not call.lost_answer or not is_echo:
        return error
    stated.pop("Condition", None)
    stated.update(Code="AmbiguousWrite", StoreCode=stated.get("Code"), Message=message_of(record))
    return AmbiguousWriteRefused({**response, "Error": stated}, call.name, record)


def waited_too_long(call: Call) -> Exception:
    """Return the botocore error for a call whose wait for a permit reached the deadline."""
    return WaitedForPermit(endpoint_url=call.path.endpoint)


def annotated(error: BaseException, call: Call) -> None:
    """Give the SDK's error the attributes of ours, and its text what was tried.

    The class stays: a boto3 user's `except ClientError` must go on to catch it.
    """
    if getattr(error, "resilient_io_gave_up", False):
        return  # s3transfer raises the error that ended one part in the bodies of the others
    record = call.give_up
    facts: dict[str, Any] = {
        "verdict": call.verdict,
        "attempts": call.attempts,
        "scope": str(call.path),
        "elapsed_s": record.elapsed_s if record is not None else 0.0,
        "request_id": call.verdict.request_id if call.verdict is not None else None,
    }
    if record is not None and call.hides_the_truth():
        facts["resilient_io_gave_up"] = True
        error.args = (f"{error} [{message_of(record)}]", *error.args[1:])
    for name, value in facts.items():
        try:
            setattr(error, name, value)
        except AttributeError:
            return
    keep_facts(error)
