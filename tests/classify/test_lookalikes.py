"""Words are not evidence: keys, paths and messages may say SlowDown, 503 or timeout and mean nothing by it."""

from __future__ import annotations

import pytest

from resilient_io.classify import FaultKind, classify
from resilient_io.classify.texts import read_text

K = FaultKind
WORDS = ("SlowDown", "503", "Please reduce your request rate.", "timed out", "429 Too Many Requests", "ServerBusy")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "cls", [Exception, ValueError, KeyError, RuntimeError, OSError, PermissionError, AssertionError]
)
def test_word_in_a_message_makes_nothing_retryable(word: str, cls: type[Exception]) -> None:
    for text in (
        word,
        f"cannot parse {word}",
        f"{word}: bad label",
        f"s3://bucket/{word}/shard-503.tar",
        f"step {word}",
    ):
        assert classify(cls(text)).retryable is False, text


@pytest.mark.parametrize("word", WORDS)
def test_word_in_a_path_makes_nothing_retryable(word: str) -> None:
    assert classify(OSError(16, "Device or resource busy", f"/mnt/{word}")).retryable is False
    assert classify(FileNotFoundError(2, "No such file or directory", f"bucket/{word}")).kind is K.NOT_FOUND
    assert classify(PermissionError(13, f"{word}")).retryable is False


CALLING = "when calling the GetObject operation"
ARROW = (
    "When reading information for key '{key}' in bucket 'b': AWS Error {error} during HeadObject operation: {message}"
)
STORE = (
    "Generic S3 error: Error performing GET http://h/b/{key} in 1.6ms - "
    "Server returned non-2xx status code: {status}: {body}"
)
BODY = "<Error><Code>{code}</Code><Key>{key}</Key></Error>"
CAUGHT = (
    "Caught {name} in DataLoader worker process 5.\nOriginal Traceback (most recent call last):\n"
    '  File "w.py", line 1, in f\n    {line}\n{last}\n'
)
AZURE = "{head}\nRequestId:00000000-0000-0000-0000-000000000000\nTime:2024-01-01T00:00:00.0000000Z\nErrorCode:{code}"


class TestArrow:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ("SLOW_DOWN", K.THROTTLED),
            ("UNKNOWN (HTTP status 503)", K.THROTTLED),
            ("UNKNOWN (HTTP status 429)", K.THROTTLED),
            ("UNKNOWN (HTTP status 403)", K.FATAL),
            ("INTERNAL_FAILURE", K.TRANSIENT),
            ("NETWORK_CONNECTION", K.TRANSIENT),
            ("NO_SUCH_KEY", K.NOT_FOUND),
            ("ACCESS_DENIED", K.FATAL),
            ("INVALID_ACCESS_KEY_ID", K.AUTH),
            ("UNKNOWN", K.FATAL),
        ],
    )
    def test_text_is_read(self, error: str, kind: FaultKind) -> None:
        assert classify(OSError(ARROW.format(key="k", error=error, message="No response body."))).kind is kind

    @pytest.mark.parametrize(
        "key",
        [
            "SlowDown",
            "503",
            "AWS Error SLOW_DOWN during HeadObject operation: ",
            "': AWS Error SLOW_DOWN during X operation: '",
        ],
    )
    def test_key_that_looks_like_an_error_is_never_retried(self, key: str) -> None:
        assert classify(OSError(ARROW.format(key=key, error="ACCESS_DENIED", message="m"))).retryable is False

    def test_message_that_looks_like_an_error_is_never_retried(self) -> None:
        message = "see AWS Error SLOW_DOWN during GetObject operation"
        assert classify(OSError(ARROW.format(key="k", error="ACCESS_DENIED", message=message))).retryable is False

    def test_text_must_start_as_arrow_s_do(self) -> None:
        assert classify(OSError("note: AWS Error SLOW_DOWN during GetObject operation: x")).retryable is False
        assert classify(ValueError(ARROW.format(key="k", error="SLOW_DOWN", message="m"))).kind is K.CLIENT_BUG

    def test_operation_in_the_text_counts(self) -> None:
        text = ARROW.format(key="k", error="INTERNAL_FAILURE", message="x").replace(
            "HeadObject", "CompleteMultipartUpload"
        )
        assert classify(OSError(text)).kind is K.AMBIGUOUS


class TestObjectStore:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            (STORE.format(key="k", status="503 Service Unavailable", body=""), K.THROTTLED),
            (STORE.format(key="k", status="404 Not Found", body=""), K.NOT_FOUND),
            (STORE.format(key="k", status="400 Bad Request", body=BODY.format(code="ExpiredToken", key="k")), K.AUTH),
            (
                STORE.format(
                    key="SlowDown-503", status="403 Forbidden", body=BODY.format(code="AccessDenied", key="SlowDown")
                ),
                K.FATAL,
            ),
            (STORE.format(key="k", status="403 Forbidden", body="<html><Code>SlowDown</Code></html>"), K.FATAL),
            ("Generic GCS error: Client error with status 429 Too Many Requests: x", K.THROTTLED),
            ("Generic S3 error: Server error with status 500 Internal Server Error: x", K.TRANSIENT),
            ("Generic S3 error: Client error with status 403 Forbidden: SlowDown 503", K.FATAL),
            ("Generic S3 error: Metadata error: SlowDown 503", K.FATAL),
            ("Generic S3 error: HTTP error: request or response body error", K.TRANSIENT),
            ("Generic S3 error: error decoding response body", K.TRANSIENT),
            ("Generic S3 error: the key 503 said: error decoding response body", K.FATAL),
            ("Generic LocalFileSystem error: Server error with status 503", K.FATAL),
            ("oops Generic S3 error: Client error with status 429", K.FATAL),
            (
                "Generic S3 error: Error performing PUT http://h/b/k in 171.08s, after 10 retries, max_retries: 10, "
                "retry_timeout: 180s - Server returned error response: 503 x",
                K.THROTTLED,
            ),
        ],
    )
    def test_text_is_read(self, text: str, kind: FaultKind) -> None:
        assert classify(OSError(text)).kind is kind

    def test_kind_in_the_debug_part_says_whether_anything_was_sent(self) -> None:
        text = (
            "Generic S3 error: Error performing PUT http://h/b/k in 1ms - HTTP error: error sending request\n\n"
            "Debug source:\nGeneric {{\n    source: HttpError {{\n        kind: {kind},\n"
        )
        refused = classify(OSError(text.format(kind="Connect")), operation="CompleteMultipartUpload")
        assert (refused.rule, refused.retryable) == ("connect-refused", True)
        timeout = classify(OSError(text.format(kind="Timeout")), operation="CompleteMultipartUpload")
        assert (timeout.rule, timeout.kind) == ("answer-timeout", K.AMBIGUOUS)
        assert classify(OSError(text.format(kind="Unknown"))).rule == "request-failed"

    def test_operation_timed_out_is_a_timeout(self) -> None:
        text = (
            "Generic MicrosoftAzure error: Error after 0 retries in 171.08s, max_retries:10, retry_timeout:180s, "
            "source:error sending request for url (https://h/c/b?comp=block): operation timed out"
        )
        assert classify(OSError(text)).rule == "answer-timeout"


class TestAzureText:
    def test_text_is_read_where_the_answer_is_lost(self) -> None:
        assert (
            classify(RuntimeError(AZURE.format(head="Failed to upload block: x", code="ServerBusy!"))).kind
            is K.THROTTLED
        )
        assert classify(RuntimeError(AZURE.format(head="No.", code="AuthenticationFailed"))).kind is K.AUTH

    def test_code_is_read_in_its_place_alone(self) -> None:
        assert classify(RuntimeError("ErrorCode:ServerBusy")).retryable is False
        assert classify(RuntimeError("Failed to upload block: ErrorCode:ServerBusy")).retryable is False
        assert (
            classify(RuntimeError(AZURE.format(head="ErrorCode:ServerBusy", code="BlobNotFound"))).kind is K.NOT_FOUND
        )

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            (
                "ManagedIdentityCredential authentication failed: Unexpected response, status 429, Too Many Requests",
                K.THROTTLED,
            ),
            ("ManagedIdentityCredential authentication failed: Unexpected response, status 400, 429", K.AUTH),
            ("ManagedIdentityCredential authentication failed: 429", K.AUTH),
            ("status 429", K.AUTH),
        ],
    )
    def test_token_endpoint_text_is_read_in_its_place_alone(self, text: str, kind: FaultKind) -> None:
        base = type("HttpResponseError", (Exception,), {"__module__": "azure.core.exceptions"})
        cls = type("ClientAuthenticationError", (base,), {"__module__": "azure.core.exceptions"})
        verdict = classify(cls(text))
        # A 400 of the token endpoint is a mistake in the set-up; neither is repeated.
        assert verdict.kind is kind or (verdict.kind is K.CLIENT_BUG and "400" in text)


class TestTorch:
    def caught(self, name: str, last: str, line: str = "data = fetch()") -> RuntimeError:
        return RuntimeError(CAUGHT.format(name=name, line=line, last=last))

    @pytest.mark.parametrize(
        ("name", "last", "kind"),
        [
            (
                "ClientError",
                "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation: x",
                K.THROTTLED,
            ),
            (
                "ClientError",
                f"botocore.exceptions.ClientError: An error occurred (AccessDenied) {CALLING}: SlowDown",
                K.FATAL,
            ),
            ("ReadTimeoutError", "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL", K.TRANSIENT),
            ("ParamValidationError", "botocore.exceptions.ParamValidationError: SlowDown 503", K.CLIENT_BUG),
            ("ConnectionResetError", "ConnectionResetError: [Errno 104] Connection reset by peer", K.TRANSIENT),
            ("KeyError", "KeyError: 'SlowDown'", K.CLIENT_BUG),
            ("MyError", "my.MyError: An error occurred (SlowDown) when calling the GetObject operation: x", K.FATAL),
            ("ThrottledError", "resilient_io.errors.ThrottledError: gave up", K.THROTTLED),
            (
                "OSError",
                f"OSError: [Errno 5] An error occurred (KMS.ThrottlingException) {CALLING}: x",
                K.THROTTLED,
            ),
            ("OSError", "OSError: [Errno 16] Please reduce your request rate.", K.FATAL),
            ("OSError", "OSError: Generic S3 error: Client error with status 429 Too Many Requests: x", K.THROTTLED),
        ],
    )
    def test_last_line_is_read(self, name: str, last: str, kind: FaultKind) -> None:
        verdict = classify(self.caught(name, last))
        assert verdict.kind is kind
        assert verdict.retryable is (kind in (K.THROTTLED, K.TRANSIENT) and name != "ThrottledError")

    def test_class_that_nobody_knows_is_quoted_as_it_stands(self) -> None:
        facts = read_text(str(self.caught("Strange", "Strange: SlowDown")))
        assert facts is not None
        assert facts.types == ("builtins.Strange",)

    def test_source_line_in_the_traceback_is_not_the_error(self) -> None:
        line = "raise ClientError('An error occurred (SlowDown) when calling the GetObject operation: x')"
        assert classify(self.caught("ValueError", "ValueError: bad label", line)).kind is K.CLIENT_BUG

    def test_direct_cause_of_a_translated_error_is_read(self) -> None:
        first = "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation: x"
        more = (
            '\nTraceback (most recent call last):\n  File "s3fs.py", line 9, in f\n    raise e\nOSError: [Errno 16] x'
        )
        cause = f"{first}\n\nThe above exception was the direct cause of the following exception:\n{more}"
        context = f"{first}\n\nDuring handling of the above exception, another exception occurred:\n{more}"
        assert classify(self.caught("OSError", cause)).kind is K.THROTTLED
        assert classify(self.caught("OSError", context)).kind is K.FATAL

    def test_error_of_another_name_than_announced_is_not_believed(self) -> None:
        last = "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation: x"
        assert classify(self.caught("ValueError", last)).retryable is False

    def test_text_must_start_as_torch_s_do(self) -> None:
        error = self.caught(
            "ClientError",
            "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the X operation: x",
        )
        assert classify(RuntimeError("note: " + str(error))).retryable is False
        assert classify(ValueError(str(error))).kind is K.CLIENT_BUG

    def test_long_traceback_is_read_at_its_end(self) -> None:
        deep = "data = fetch()\n" + '  File "w.py", line 1, in f\n    g()\n' * 5000
        last = "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation: x"
        for more in range(40):
            error = self.caught("ClientError", last, deep + "    " + "x" * more)
            assert classify(error).kind is K.THROTTLED, more


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (RuntimeError("This class is not fork-safe"), "client-bug-code"),
        (RuntimeError("Event loop is closed"), "client-bug-code"),
        (ValueError("Required Content-Range response header is missing or malformed."), "unsupported-code"),
        (RuntimeError("Event loop is closed, said SlowDown"), "unknown"),
        (ValueError("Event loop is closed"), "program-bug"),
    ],
)
def test_exact_text_of_one_class_is_known(error: Exception, rule: str) -> None:
    assert classify(error).rule == rule


def test_text_of_nobody_says_nothing() -> None:
    for text in (
        "",
        "x",
        "Generic",
        "Caught",
        "When ",
        "AWS Error",
        "An error occurred",
        "\n\n\n",
        "Failed to upload block: ",
    ):
        assert read_text(text) is None
