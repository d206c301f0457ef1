"""The SDK's own exceptions, told what the library knows of them."""

from __future__ import annotations

from typing import Any

from azure.core import exceptions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestTimeoutError,
    ServiceResponseTimeoutError,
)

from resilient_io.classify.chain import links
from resilient_io.drive.bodies import Damaged, NotAsAsked, Stalled, Unverifiable
from resilient_io.drive.call import Call
from resilient_io.drive.packed import pack_plainly
from resilient_io.errors import AmbiguousWriteError, GiveUp, message_of, redact


class WaitedForPermit(ServiceRequestTimeoutError):
    """A request that was never sent: its scope did not admit it before the deadline."""


class DownloadGaveUp(AzureError):
    """A body that died until the attempts were spent.

    Not an HttpResponseError, which the SDK's own download loop would answer with two more rounds of attempts.
    """

    def __init__(self, message: str = "", record: GiveUp | None = None) -> None:
        super().__init__(message)
        self.record = record if record is not None else GiveUp()

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.record)


class ShortBody(IncompleteReadError):
    """A body that ended before its length was reached."""


class StalledBody(ServiceResponseTimeoutError, Stalled):
    """A body that was ended because too little of it came."""


class WrongRangeBody(IncompleteReadError, NotAsAsked):
    """An answer with other bytes than were asked for."""


class UnverifiableBody(IncompleteReadError, Unverifiable):
    """An answer that nobody could tell from one that was cut short."""


class DamagedBody(IncompleteReadError, Damaged):
    """A body that has another MD5 than the service keeps of the blob."""


class AmbiguousWriteRefused(HttpResponseError, AmbiguousWriteError):
    """A write that was refused as already done, after an attempt whose answer was lost: perhaps by our own hand.

    Its `error_code` is AmbiguousWrite and its class not ResourceExistsError or ResourceModifiedError, because code
    that catches those would take it for the work of somebody else; the store's code is `store_code`. `response` is
    None, because the SDK makes an error that has one anew.
    """

    def __init__(
        self, message: str = "", status_code: int | None = None, store_code: str | None = None, record: Any = None
    ) -> None:
        HttpResponseError.__init__(self, message=message)
        self.status_code = status_code
        self.error_code = "AmbiguousWrite"
        self.store_code = store_code
        self.record = record if record is not None else GiveUp()

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.status_code, self.store_code, self.record)

    def __str__(self) -> str:
        return self.message


def ambiguous(call: Call, status: int, store_code: str | None) -> AmbiguousWriteRefused:
    """Return the error of a write whose refusal may be the echo of its own success."""
    record = call.give_up
    assert record is not None
    return AmbiguousWriteRefused(message_of(record), status, store_code, record)


def unauthorized(call: Call, http_response: Any, store_code: str | None) -> ClientAuthenticationError:
    """Return the SDK's error of a request whose credentials were not accepted, with the cure in its text."""
    record = call.give_up
    assert record is not None
    error = ClientAuthenticationError(f"{store_code or http_response.reason} [{message_of(record)}]")
    error.response, error.status_code, error.reason = http_response, http_response.status_code, http_response.reason
    return error


def waited_too_long(call: Call) -> WaitedForPermit:
    """Return the SDK's kind of error for a call whose wait for a permit reached the deadline."""
    return WaitedForPermit(f"The deadline passed before the scope admitted a request to {call.path.endpoint}")


def facts_of(call: Call) -> dict[str, Any]:
    """Return what the library knows of a failed call, as attributes for an error or an answer."""
    record, verdict = call.give_up, call.verdict
    return {
        "verdict": verdict,
        "attempts": call.attempts,
        "scope": str(call.path),
        "elapsed_s": record.elapsed_s if record is not None else 0.0,
        "request_id": verdict.request_id if verdict is not None else None,
        **({"resilient_io_gave_up": True} if call.hides_the_truth() else {}),
    }


def marked(http_response: Any, call: Call) -> None:
    """Note on an answer what is known of it: the SDK makes its error from the answer, which stays in `response`."""
    for name, value in facts_of(call).items():
        setattr(http_response, name, value)


def annotated(error: AzureError, call: Call) -> None:
    """Give the SDK's error the attributes of ours, and its text what was tried; its class stays."""
    if getattr(error, "resilient_io_gave_up", False):
        return
    record = call.give_up
    if record is not None and call.hides_the_truth():
        error.args = (f"{error} [{message_of(record)}]", *error.args[1:])
    for name, value in facts_of(call).items():
        setattr(error, name, value)


def without_secrets(error: BaseException) -> None:
    """Take the signature of a shared access signature out of the texts of an error and of what it wraps.

    requests and urllib3 write the URL of the request into theirs, query and all.
    """
    for link in links(error):
        if any(isinstance(each, str) and "sig=" in each for each in link.args):
            link.args = tuple(_clean(each) for each in link.args)
        for name in ("message", "exc_msg", "url"):
            text = getattr(link, name, None)
            if isinstance(text, str) and "sig=" in text:
                setattr(link, name, _clean(text))


def _clean(value: object) -> object:
    return redact(value) if isinstance(value, str) and "sig=" in value else value


pack_plainly(each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, AzureError))
pack_plainly((WaitedForPermit, ShortBody, StalledBody, WrongRangeBody, UnverifiableBody, DamagedBody))
