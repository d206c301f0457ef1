"""The facts of an exception, also where others wrapped, translated or rebuilt it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import multiprocessing
import ssl
import urllib.error
from email.message import Message
from enum import Enum
from typing import Any, NoReturn

import pytest

from resilient_io.classify import Applied, FaultKind, Load, Verdict, classify, fault_of

K = FaultKind
SLOW_DOWN = {"Error": {"Code": "SlowDown", "Message": "Please reduce your request rate."}}


def named(name: str, *bases: type[BaseException]) -> type[Any]:
    """A class that is called as one of an SDK: no SDK is needed to be recognised."""
    module, _, attribute = name.rpartition(".")
    return type(attribute, bases or (Exception,), {"__module__": module, "__qualname__": attribute})


class ClientError(Exception):
    """Shaped as botocore's."""

    def __init__(self, response: Any = None, operation_name: Any = "GetObject") -> None:
        super().__init__("An error occurred")
        self.response = response
        self.operation_name = operation_name


ClientError.__module__ = "botocore.exceptions"


def slow_down(**metadata: Any) -> ClientError:
    return ClientError({**SLOW_DOWN, "ResponseMetadata": {"HTTPStatusCode": 503, "RequestId": "R", **metadata}})


class TestBotocore:
    def test_facts_of_an_answer_are_read(self) -> None:
        fault = fault_of(slow_down(HTTPHeaders={"retry-after": "3"}), operation="cat_file")
        assert (fault.provider, fault.operation, fault.status, fault.code) == ("s3", "GetObject", 503, "SlowDown")
        assert (fault.message, fault.request_id, fault.retry_after_s) == ("Please reduce your request rate.", "R", 3.0)
        assert (fault.write, fault.sent, fault.gave_up) == (False, True, False)
        assert fault.types[0] == "botocore.exceptions.ClientError"

    def test_status_in_the_place_of_the_code_is_a_status(self) -> None:
        fault = fault_of(ClientError({"Error": {"Code": "503"}}, "HeadObject"))
        assert (fault.code, fault.status) == (None, 503)
        fault = fault_of(ClientError({"Error": {"Code": "12345"}, "ResponseMetadata": {"HTTPStatusCode": 500}}))
        assert (fault.code, fault.status) == (None, 500)

    def test_error_names_its_operation_where_the_caller_does_not(self) -> None:
        verdict = classify(ClientError({"Error": {"Code": "InternalError"}}, "CompleteMultipartUpload"))
        assert (verdict.kind, verdict.applied) == (K.AMBIGUOUS, Applied.MAYBE)

    def test_condition_of_the_caller_is_kept(self) -> None:
        error = ClientError({"Error": {"Code": "InternalError"}}, "PutObject")
        assert classify(error, operation="pipe_file").kind is K.TRANSIENT
        assert classify(error, operation="pipe_file-create").kind is K.AMBIGUOUS

    def test_throttled_token_service_is_not_load_on_a_prefix(self) -> None:
        verdict = classify(ClientError({"Error": {"Code": "Throttling"}}, "AssumeRole"), operation="cat_file")
        assert (verdict.kind, verdict.load) == (K.THROTTLED, Load.NONE)

    @pytest.mark.parametrize(
        "response",
        [
            {},
            {"Error": None},
            {"Error": {"Code": None}},
            {"Error": {"Code": 503}},
            {"Error": "SlowDown"},
            {"Error": [("Code", "SlowDown")]},
            {"ResponseMetadata": {"HTTPStatusCode": "503"}},
            {"ResponseMetadata": {"HTTPStatusCode": True}},
            {"ResponseMetadata": {"HTTPStatusCode": 99}},
            {"ResponseMetadata": {"HTTPStatusCode": 5030}},
            {"ResponseMetadata": 503},
            None,
            503,
            "SlowDown",
        ],
    )
    def test_response_of_another_shape_is_unknown(self, response: Any) -> None:
        assert classify(ClientError(response)) == Verdict(kind=K.FATAL)


class TestChain:
    def test_translated_error_is_read_through_its_cause(self) -> None:
        error = OSError(errno.EBUSY, "Please reduce your request rate.")
        error.__cause__ = slow_down(HTTPHeaders={"Retry-After": "2"})
        assert classify(error).rule == "throttled-code"
        assert classify(error).retry_after_s == 2.0
        assert classify(error).request_id == "R"

    def test_words_of_a_translation_do_not_hide_the_facts_below(self) -> None:
        azure = named("azure.core.exceptions.HttpResponseError")("The server is busy.")
        azure.response = Response(503, {"Retry-After": "9", "x-ms-error-code": "ServerBusy"})
        ids = "RequestId:00000000-0000-0000-0000-000000000000\nTime:T"
        text = f"Failed to upload block: b\n{ids}\nErrorCode:AuthenticationFailed"
        error = RuntimeError(text)
        assert classify(error).kind is K.AUTH
        error.__cause__ = azure
        assert (classify(error).kind, classify(error).retry_after_s) == (K.THROTTLED, 9.0)

    def test_absence_that_hides_a_refusal_is_the_refusal(self) -> None:
        error = FileNotFoundError(errno.ENOENT, "No such file", "b/k")
        error.__cause__ = slow_down()
        assert classify(error).kind is K.THROTTLED

    def test_error_that_a_program_raises_in_a_handler_is_its_own(self) -> None:
        for own in (ValueError("bad"), KeyError("k"), OSError(errno.ENOSPC, "full"), FileNotFoundError(2, "cache")):
            own.__context__ = slow_down()
            assert classify(own).retryable is False, own

    def test_error_that_a_storage_library_raises_in_a_handler_is_a_translation(self) -> None:
        error = named("boto3.exceptions.S3UploadFailedError")("Failed to upload a to b/c: An error occurred")
        error.__context__ = slow_down()
        assert classify(error).kind is K.THROTTLED
        error.__suppress_context__ = True
        assert classify(error).kind is K.FATAL

    def test_builtin_error_that_a_storage_library_raises_in_a_handler_is_a_translation(self) -> None:
        adlfs = {"__name__": "adlfs.spec"}
        exec("def put(error):\n try:\n  raise error\n except Exception:\n  raise FileExistsError('k')", adlfs)
        ours: dict[str, Any] = {"__name__": "my_training"}
        exec("def put(error):\n try:\n  raise error\n except Exception:\n  raise FileExistsError('k')", ours)
        with pytest.raises(FileExistsError) as caught:
            adlfs["put"](slow_down())  # type: ignore[operator]
        assert classify(caught.value).kind is K.THROTTLED
        with pytest.raises(FileExistsError) as caught:
            ours["put"](slow_down())
        assert classify(caught.value).kind is K.PRECONDITION

    def test_exception_carried_as_data_is_followed(self) -> None:
        reset = ConnectionResetError(errno.ECONNRESET, "reset")
        in_kwargs = named("botocore.exceptions.EndpointConnectionError")("Could not connect")
        in_kwargs.kwargs = {"error": reset}
        in_argument = named("urllib3.exceptions.MaxRetryError")("pool", reset)
        in_attribute = named("azure.core.exceptions.ServiceRequestError")("x")
        in_attribute.inner_exception = reset
        for error in (in_kwargs, in_argument, in_attribute):
            verdict = classify(error, operation="PutObject")
            assert (verdict.rule, verdict.applied, verdict.load) == ("connection-lost", Applied.MAYBE, Load.SUSPECTED)

    def test_failed_connect_proves_that_nothing_was_applied(self) -> None:
        error = named("botocore.exceptions.EndpointConnectionError")("Could not connect")
        assert classify(error, operation="PutObject").applied is Applied.MAYBE
        error.kwargs = {"error": ConnectionRefusedError(errno.ECONNREFUSED, "refused")}
        assert classify(error, operation="PutObject").applied is Applied.NO
        assert classify(error, operation="CompleteMultipartUpload").retryable is True

    def test_program_error_inside_the_http_client_is_a_program_error(self) -> None:
        error = named("botocore.exceptions.HTTPClientError")("An HTTP Client raised an unhandled exception")
        assert classify(error).kind is K.TRANSIENT
        error.kwargs = {"error": TypeError("str needed")}
        assert classify(error).kind is K.CLIENT_BUG

    def test_circle_ends(self) -> None:
        first, second = OSError("a"), OSError("b")
        first.__cause__, second.__cause__ = second, first
        assert classify(first) == Verdict(kind=K.FATAL)
        second.__cause__ = slow_down()
        second.__cause__.__context__ = first
        assert classify(first).kind is K.THROTTLED

    def test_long_chain_ends(self) -> None:
        error: BaseException = slow_down()
        for _ in range(200):
            outer = RuntimeError("x")
            outer.__cause__ = error
            error = outer
        assert classify(error) == Verdict(kind=K.FATAL)


class Response:
    def __init__(self, status_code: Any, headers: Any = None) -> None:
        self.status_code, self.headers = status_code, headers


class Code(Enum):
    BUSY = "ServerBusy"


class TestOtherShapes:
    def test_azure_answer_is_read(self) -> None:
        error = named("azure.core.exceptions.HttpResponseError")("The server is busy.")
        error.status_code, error.error_code = 503, Code.BUSY
        error.response = Response(503, {"x-ms-request-id": "r", "x-ms-retry-after-ms": "1500"})
        fault = fault_of(error, operation="PutBlob")
        assert (fault.provider, fault.status, fault.code, fault.request_id) == ("azure", 503, "ServerBusy", "r")
        assert (fault.retry_after_s, fault.write, fault.operation) == (1.5, True, "PutBlob")

    def test_errno_counts_where_nothing_else_is_known(self) -> None:
        assert classify(OSError(errno.ENOSPC, "full")).rule == "local-os-error"
        assert classify(OSError(errno.EHOSTUNREACH, "no route")).rule == "errno-unreachable"
        assert classify(OSError(errno.ENOTCONN, "gone")).rule == "errno-lost"
        assert classify(OSError("no number")).rule == "unknown"

    @pytest.mark.parametrize("headers", [None, 5, {"Retry-After": 7}, {7: "x"}, [("Retry-After", "7")]])
    def test_answer_with_strange_headers_keeps_its_status(self, headers: Any) -> None:
        for name in ("azure.core.exceptions.HttpResponseError", "requests.exceptions.HTTPError"):
            error = named(name)("x")
            error.response = Response(503, headers)
            assert (classify(error).rule, classify(error).retry_after_s) == ("throttled-status", None)

    def test_request_id_of_the_outer_answer_is_kept(self) -> None:
        outer = named("azure.core.exceptions.HttpResponseError")("x")
        outer.response = Response(206, {"x-ms-request-id": "outer"})
        outer.__cause__ = named("azure.core.exceptions.HttpResponseError")("y")
        outer.__cause__.response = Response(503, {})
        assert (classify(outer).kind, classify(outer).request_id) == (K.THROTTLED, "outer")

    def test_azure_code_may_be_plain_text(self) -> None:
        error = named("azure.core.exceptions.HttpResponseError")("x")
        error.error_code, error.response = "OperationTimedOut", Response(500, {})
        assert classify(error).rule == "operation-timed-out"

    def test_azure_code_of_a_head_is_in_the_header_and_that_of_a_copy_is_the_source_s(self) -> None:
        error = named("azure.core.exceptions.HttpResponseError")("x")
        error.response = Response(500, {"X-Ms-Error-Code": "OperationTimedOut"})
        assert classify(error, operation="PutBlob").rule == "operation-timed-out"
        error.response = Response(
            409, {"x-ms-error-code": "CannotVerifyCopySource", "x-ms-copy-source-error-code": "ServerBusy"}
        )
        assert classify(error, operation="CopyBlobFromURL").kind is K.THROTTLED

    def test_throttled_token_endpoint_of_azure_is_not_load_on_a_prefix(self) -> None:
        base = named("azure.core.exceptions.HttpResponseError")
        error = named("azure.core.exceptions.ClientAuthenticationError", base)("no token")
        assert classify(error).kind is K.AUTH
        error.response = Response(429, {})
        assert (classify(error).kind, classify(error).load) == (K.THROTTLED, Load.NONE)
        error.response = Response(401, {"x-ms-error-code": "InvalidAuthenticationInfo"})
        assert classify(error).kind is K.AUTH

    def test_status_of_other_http_clients_is_read(self) -> None:
        for name in ("requests.exceptions.HTTPError", "httpx.HTTPStatusError"):
            error = named(name)("503 Server Error")
            error.response = Response(503, {"Retry-After": "1"})
            assert (classify(error).rule, classify(error).retry_after_s) == ("throttled-status", 1.0)
        aio = named("aiohttp.client_exceptions.ClientResponseError")("x")
        aio.status, aio.headers = 429, {"Retry-After": "2"}
        assert (classify(aio).rule, classify(aio).retry_after_s) == ("throttled-status", 2.0)
        headers = Message()
        headers["Retry-After"] = "4"
        url = urllib.error.HTTPError("http://x", 503, "busy", headers, None)
        assert (classify(url).rule, classify(url).retry_after_s) == ("throttled-status", 4.0)
        gcs = named("gcsfs.retry.HttpError")("x")
        gcs.code = 429
        assert classify(gcs).kind is K.THROTTLED

    def test_code_that_an_http_parser_invents_is_not_a_status(self) -> None:
        error = named(
            "aiohttp.http_exceptions.TransferEncodingError", named("aiohttp.http_exceptions.PayloadEncodingError")
        )("x")
        error.code = 400
        assert classify(error).rule == "body-cut"

    def test_attribute_of_an_unknown_class_is_not_read(self) -> None:
        error = Exception("x")
        error.status_code = error.code = error.status = 503  # type: ignore[attr-defined]
        error.response = Response(503)  # type: ignore[attr-defined]
        assert classify(error) == Verdict(kind=K.FATAL)

    @pytest.mark.parametrize("reason", ["CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER"])
    def test_peer_that_tls_refuses_is_refused_again(self, reason: str) -> None:
        native = ssl.SSLError(1, f"[SSL: {reason}] x (_ssl.c:1000)")
        native.reason = reason
        quoted = named("botocore.exceptions.SSLError")("SSL validation failed")
        quoted.kwargs = {"error": f"[SSL: {reason}] x"}
        worded = named("requests.exceptions.SSLError")(f"[SSL: {reason}] x")
        for error in (native, quoted, worded):
            assert classify(error).rule == "tls-refused"

    def test_line_that_breaks_in_tls_is_a_lost_connection(self) -> None:
        for error in (ssl.SSLEOFError(8, "EOF"), ssl.SSLError(1, "[SSL: BAD_RECORD_MAC] x CERTIFICATE_VERIFY_FAILED")):
            assert classify(error).rule == "connection-lost"

    def test_certificate_error_is_no_value_error_and_no_lost_line(self) -> None:
        assert classify(ssl.SSLCertVerificationError(1, "x")).rule == "tls-refused"


class TestInterrupts:
    @pytest.mark.parametrize(
        "error",
        [
            KeyboardInterrupt(),
            SystemExit(0),
            GeneratorExit(),
            asyncio.CancelledError(),
            concurrent.futures.CancelledError(),
            named("my.Interrupt", BaseException)(),
            named("s3transfer.exceptions.FatalError", concurrent.futures.CancelledError)(),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_interrupt_is_no_fault_of_a_store(self, error: BaseException) -> None:
        assert classify(error, operation="AppendBlock") == Verdict(kind=K.FATAL, rule="interrupt")
        error.__cause__ = slow_down()
        error.__context__ = slow_down()
        assert classify(error, operation="AppendBlock") == Verdict(kind=K.FATAL, rule="interrupt")

    def test_timeout_made_of_a_cancellation_is_a_timeout(self) -> None:
        error = TimeoutError()
        error.__cause__ = asyncio.CancelledError()
        assert classify(error).rule == "answer-timeout"


GIVEN_UP = Verdict(kind=K.THROTTLED, load=Load.REFUSED, rule="throttled-code", request_id="R")
Own = named("resilient_io.errors.ResilientIOError", OSError)


class TestGaveUp:
    def own(self, verdict: Any = GIVEN_UP) -> BaseException:
        error = named("resilient_io.errors.ThrottledError", Own)(errno.EBUSY, "GET gave up")
        error.verdict = verdict
        return error  # type: ignore[no-any-return]

    def test_our_error_keeps_its_verdict_and_is_not_retryable(self) -> None:
        assert classify(self.own()) == GIVEN_UP
        retryable = Verdict(kind=K.THROTTLED, retryable=True, rule="throttled-code")
        verdict = classify(self.own(retryable))
        assert (verdict.kind, verdict.rule, verdict.retryable) == (K.THROTTLED, "throttled-code", False)

    @pytest.mark.parametrize("outer", [RuntimeError("x"), ValueError("x"), OSError(5, "x"), TimeoutError("x")])
    def test_wrapped_give_up_is_a_give_up(self, outer: BaseException) -> None:
        outer.__cause__ = self.own()
        assert classify(outer) == GIVEN_UP

    def test_our_private_carrier_is_read(self) -> None:
        class Record:
            verdict = GIVEN_UP

        carrier = named("resilient_io.errors.GaveUp")("x")
        carrier.record = Record()
        assert classify(carrier) == GIVEN_UP

    def test_marked_sdk_error_keeps_its_kind_and_is_not_retryable(self) -> None:
        error = slow_down()
        error.resilient_io_gave_up = True  # type: ignore[attr-defined]
        assert (classify(error).kind, classify(error).retryable) == (K.THROTTLED, False)
        outer = OSError(errno.EBUSY, "busy")
        outer.__cause__ = error
        assert (classify(outer).kind, classify(outer).retryable) == (K.THROTTLED, False)
        # Below an answer that speaks for itself, too.
        fresh = slow_down()
        fresh.__cause__ = error
        assert classify(fresh).retryable is False

    def test_error_rebuilt_from_its_text_is_known_by_its_class(self) -> None:
        verdict = classify(self.own(verdict=None))
        assert (verdict.kind, verdict.rule, verdict.retryable) == (K.THROTTLED, "own-throttled", False)

    def test_fresh_error_after_a_give_up_is_fresh(self) -> None:
        fresh = slow_down()
        fresh.__context__ = self.own()
        assert classify(fresh).retryable is True

    def test_verdict_on_a_stranger_is_not_a_mark_unless_it_says_no(self) -> None:
        error = slow_down()
        error.verdict = Verdict(kind=K.AUTH, retryable=True)  # type: ignore[attr-defined]
        assert classify(error).kind is K.THROTTLED
        error.verdict = "given up"  # type: ignore[attr-defined]
        assert classify(error).retryable is True
        error.verdict = Verdict(kind=K.AUTH)  # type: ignore[attr-defined]
        assert classify(error) == Verdict(kind=K.AUTH)

    def test_real_errors_are_recognised(self) -> None:
        errors = pytest.importorskip("resilient_io.errors")
        for name, kind in (
            ("ThrottledError", K.THROTTLED),
            ("RetriesExhausted", K.TRANSIENT),
            ("DeadlineExceeded", K.TRANSIENT),
            ("ObjectChanged", K.PRECONDITION),
            ("AmbiguousWriteError", K.AMBIGUOUS),
            ("NotForkSafe", K.CLIENT_BUG),
            ("ResilientIOError", K.FATAL),
        ):
            verdict = classify(getattr(errors, name)("text"), operation="PutObject")
            assert (verdict.kind, verdict.retryable) == (kind, False), name


def _fail_elsewhere() -> NoReturn:
    """As s3fs does, in another process."""
    from botocore.exceptions import ClientError

    parsed: Any = {**SLOW_DOWN, "ResponseMetadata": {"HTTPStatusCode": 503}}
    try:
        raise ClientError(parsed, "GetObject")
    except ClientError as error:
        raise OSError(errno.EBUSY, "Please reduce your request rate.") from error


class TestOtherProcesses:
    def test_traceback_that_a_pool_attaches_is_read(self) -> None:
        remote = named("concurrent.futures.process._RemoteTraceback")("")
        remote.tb = (
            '\n"""\nTraceback (most recent call last):\n  File "a.py", line 1, in f\n    get()\n'
            "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation: x\n\n"
            "The above exception was the direct cause of the following exception:\n\n"
            'Traceback (most recent call last):\n  File "a.py", line 2, in g\n    f()\nOSError: [Errno 16] Please\n"""'
        )
        error = OSError(errno.EBUSY, "Please reduce your request rate.")
        assert classify(error).kind is K.FATAL
        error.__cause__ = remote
        assert classify(error).kind is K.THROTTLED

    def test_real_pool_loses_the_cause_and_not_the_verdict(self) -> None:
        pytest.importorskip("botocore")
        context = multiprocessing.get_context("fork")
        with context.Pool(1) as pool, pytest.raises(OSError, match="reduce your request rate") as caught:
            pool.apply(_fail_elsewhere)
        verdict = classify(caught.value)
        assert (verdict.rule, verdict.retryable) == ("throttled-code", True)
