"""Whose limit was passed: the account's where the service says so, nobody's where it does not."""

from __future__ import annotations

import pytest

from resilient_io.classify import Fault, Load, Verdict, classify, judge

EXCEPTIONS = pytest.importorskip("azure.core.exceptions")
SERVER_BUSY = "The server is currently unable to receive requests. Please retry your request."
TAIL = "\nRequestId:00000000-0000-0000-0000-000000000000\nTime:2026-01-01T00:00:00.0000000Z"


def azure(code: str | None, message: str = "", status: int = 503, provider: str = "azure") -> Verdict:
    return judge(Fault(provider=provider, operation="PutBlob", status=status, code=code, message=message, write=True))


@pytest.mark.parametrize(
    ("code", "message", "level"),
    [
        ("ServerBusy", "Ingress is over the account limit.", "account"),
        ("ServerBusy", "Egress is over the account limit.", "account"),
        ("ServerBusy", "Operations per second is over the account limit.", "account"),
        ("ServerBusy", f"Operations per second is over the account limit.{TAIL}", "account"),
        ("ServerBusy", f"Ingress is over the account limit{TAIL}", "account"),
        (None, "Egress is over the account limit.", "account"),
        ("IngressLimitExceeded", "", "account"),
        ("EgressLimitExceeded", "", "account"),
        ("AccountLimitExceeded", "", "account"),
        ("ServerBusy", SERVER_BUSY, None),
        ("ServerBusy", "", None),
        ("TooManyRequests", "", None),
        # Words of somebody else: a key, or a message that only quotes them.
        ("ServerBusy", "The blob 'Ingress is over the account limit.' is busy.", None),
        ("ServerBusy", "Ingress is over the account limit.tar is busy", None),
    ],
)
def test_the_level_of_a_refusal(code: str | None, message: str, level: str | None) -> None:
    verdict = azure(code, message)
    assert verdict.load is Load.REFUSED
    assert verdict.level == level


def test_only_a_refusal_has_a_level() -> None:
    assert azure("BlobNotFound", "Ingress is over the account limit.", 404).level is None
    assert azure("InternalError", "Ingress is over the account limit.", 500).level is None


def test_s3_says_nothing_of_accounts() -> None:
    assert azure("SlowDown", "Ingress is over the account limit.", provider="s3").level is None


class Response:
    """An answer as azure-core keeps it in its error."""

    def __init__(self, status: int, code: str, **marks: object) -> None:
        self.status_code, self.reason, self.headers = status, "any", {"x-ms-error-code": code}
        self.__dict__.update(marks)


def test_the_sdks_error_says_it() -> None:
    text = f"Operations per second is over the account limit.{TAIL}\nErrorCode:ServerBusy"
    error = EXCEPTIONS.HttpResponseError(message=text, response=Response(503, "ServerBusy"))
    assert classify(error, operation="PutBlob").level == "account"
    assert (
        classify(EXCEPTIONS.HttpResponseError(message=SERVER_BUSY, response=Response(503, "ServerBusy"))).level is None
    )


def test_an_answer_that_was_given_up_on_is_not_retryable_in_its_error() -> None:
    """The SDK makes its error from the answer, and what stood on another error is lost."""
    plain = EXCEPTIONS.HttpResponseError(response=Response(503, "ServerBusy"))
    marked = EXCEPTIONS.HttpResponseError(response=Response(503, "ServerBusy", resilient_io_gave_up=True))
    assert classify(plain).retryable is True
    assert classify(marked).retryable is False
    assert classify(marked).kind == classify(plain).kind
