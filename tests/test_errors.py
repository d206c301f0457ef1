from __future__ import annotations

import copy
import errno
import multiprocessing
import pickle
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from resilient_io import errors
from resilient_io.classify.fault import FaultKind, Load, Verdict
from resilient_io.errors import GaveUp, GiveUp, ResilientIOError, message_of, public_error, redact

THROTTLED = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, rule="s3-slowdown")
RESET = Verdict(kind=FaultKind.TRANSIENT, load=Load.SUSPECTED, rule="connection-reset")
RECORD = GiveUp(
    operation="GetObject",
    path="s3://bucket/train/x.tar",
    verdict=THROTTLED,
    attempts=30,
    elapsed_s=41.23,
    scope="s3://bucket/train (read)",
    request_id="ABC",
    reason="throttle_attempts",
)
PUBLIC = [
    ResilientIOError,
    errors.ThrottledError,
    errors.RetriesExhausted,
    errors.DeadlineExceeded,
    errors.ObjectChanged,
    errors.AmbiguousWriteError,
    errors.NotForkSafe,
    errors.CredentialsError,
]
public = pytest.mark.parametrize("cls", PUBLIC)


def test_message_tells_what_where_why_how_long_and_what_to_try() -> None:
    assert str(public_error(RECORD, None)) == (
        "GetObject s3://bucket/train/x.tar: throttled (s3-slowdown) after 30 attempts in 41.2 s "
        "[max_throttle_attempts]; scope s3://bucket/train (read); request id ABC; try: spread the keys over "
        "more prefixes, lower max_concurrency, or raise max_throttle_attempts"
    )


def test_message_leaves_out_what_is_not_known() -> None:
    assert message_of(GiveUp(attempts=1, reason="not_retryable")) == "gave up after 1 attempt in 0.0 s [not retryable]"


def test_advice_of_the_record_stands_in_place_of_the_usual_one() -> None:
    record = GiveUp(reason="attempts", verdict=RESET, advice="switch the light on")
    assert message_of(record).endswith("; try: switch the light on")


def test_more_prefixes_were_advised_against_a_limit_of_the_account() -> None:
    verdict = Verdict(kind=FaultKind.THROTTLED, load=Load.REFUSED, rule="azure-account", level="account")
    text = message_of(GiveUp(reason="throttle_attempts", verdict=verdict, attempts=3))
    assert "a limit of the account, more prefixes do not help" in text
    assert text.endswith("or raise max_throttle_attempts")


def test_a_wait_for_one_s_own_limit_was_told_as_the_store_s() -> None:
    verdict = Verdict(kind=FaultKind.THROTTLED, rule="waited-for-permit")
    text = message_of(GiveUp(reason="total_deadline", verdict=verdict))
    assert "try: raise rate_per_s, bytes_per_s, max_concurrency or max_concurrency_node where they are set" in text
    assert text.endswith("or raise total_deadline_s")


@pytest.mark.parametrize(
    ("reason", "verdict", "cls"),
    [
        ("throttle_attempts", THROTTLED, errors.ThrottledError),
        ("attempts", RESET, errors.RetriesExhausted),
        ("budget", RESET, errors.RetriesExhausted),
        ("deadline", THROTTLED, errors.DeadlineExceeded),
        ("total_deadline", RESET, errors.DeadlineExceeded),
        ("ambiguous", RESET, errors.AmbiguousWriteError),
        ("not_retryable", THROTTLED, errors.ThrottledError),
        ("not_retryable", Verdict(kind=FaultKind.AMBIGUOUS), errors.AmbiguousWriteError),
        ("not_retryable", Verdict(kind=FaultKind.NOT_FOUND), ResilientIOError),
        ("not_retryable", None, ResilientIOError),
    ],
)
def test_class_follows_the_limit_that_was_hit(
    reason: errors.Reason, verdict: Verdict | None, cls: type[ResilientIOError]
) -> None:
    cause = ValueError("SDK")
    error = public_error(GiveUp(reason=reason, verdict=verdict), cause)
    assert type(error) is cls
    assert error.__cause__ is cause
    assert error.errno != errno.ENOENT
    assert not error.retryable


def test_attributes_are_those_of_the_record() -> None:
    error = public_error(RECORD, None)
    assert (error.operation, error.path, error.verdict) == ("GetObject", "s3://bucket/train/x.tar", THROTTLED)
    assert (error.attempts, error.elapsed_s) == (30, 41.23)
    assert (error.scope, error.request_id) == ("s3://bucket/train (read)", "ABC")


@public
def test_error_is_an_oserror_and_never_says_that_something_is_absent(cls: type[ResilientIOError]) -> None:
    error = cls("text")
    assert isinstance(error, OSError)
    assert not isinstance(error, FileNotFoundError)
    assert error.errno not in (None, errno.ENOENT)


def test_errors_are_caught_as_what_callers_catch_today() -> None:
    assert not isinstance(errors.DeadlineExceeded(""), TimeoutError)  # fsspec would replace it by an empty one
    assert isinstance(errors.NotForkSafe(""), RuntimeError)
    assert errors.ThrottledError("").errno == errno.EBUSY
    assert errors.DeadlineExceeded("").errno == errno.ETIMEDOUT


@public
def test_error_can_be_rebuilt_from_its_text(cls: type[ResilientIOError]) -> None:
    error = cls("text, record=None", record=RECORD)
    twin = cls(str(error))
    assert (str(twin), twin.errno, twin.args) == (str(error), error.errno, error.args)
    assert (twin.attempts, twin.verdict, twin.path, twin.request_id) == (0, None, "", None)
    assert str(cls()) == ""


@public
def test_error_survives_pickle_and_copy(cls: type[ResilientIOError]) -> None:
    error = cls("text", record=RECORD)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert_same(pickle.loads(pickle.dumps(error, protocol)), error)
    assert_same(copy.copy(error), error)
    assert_same(copy.deepcopy(error), error)


def assert_same(twin: ResilientIOError, error: ResilientIOError) -> None:
    assert type(twin) is type(error)
    assert (str(twin), repr(twin), twin.errno, twin.strerror) == (str(error), repr(error), error.errno, error.strerror)
    assert twin.record == error.record


def give_up() -> None:
    raise public_error(RECORD, ValueError("SDK"))


def test_error_reaches_the_parent_of_a_worker_process() -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool, pytest.raises(errors.ThrottledError) as caught:
        pool.submit(give_up).result(timeout=60)
    assert_same(caught.value, public_error(RECORD, None))


def test_private_carrier_is_no_oserror_and_keeps_record_and_error() -> None:
    sdk_error = ValueError("SDK")
    carrier = GaveUp(RECORD, sdk_error)
    assert not isinstance(carrier, OSError)
    assert (carrier.record, carrier.error) == (RECORD, sdk_error)
    assert str(carrier) == message_of(RECORD)
    assert pickle.loads(pickle.dumps(carrier)).record == RECORD


SECRET = "hunter2/abc+def="


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET.replace('/', '')}@host/b/k failed",
        "https://hunter2@host/b/k failed",
        "redis://:hunter2@host:6379/0",
        "https://host/b/k?X-Amz-Signature=hunter2&X-Amz-Expires=60 failed",
        "https://acct.blob.core.windows.net/c/k?sv=2024&sig=hunter2%3D",
        "Max retries exceeded with url: /b/k?X-Amz-Credential=hunter2 (Caused by ...)",
        f"X-Amz-Security-Token: {SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"aws_session_token = '{SECRET}'",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET};EndpointSuffix=x",
        f"SharedAccessSignature={SECRET}",
        f"{{'key': 'a', 'secret': '{SECRET}'}}",
        f'{{"password": "{SECRET}"}}',
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=hunter2",
        "'Authorization': 'Bearer hunter2.abc.def'",
        f"Authorization: SharedKey acct:{SECRET}",
        'Answer: <?xml version="1.0"?><Error><Code>x</Code><StringToSign>hunter2</StringToSign></Error>',
        "Answer: <Error>\n<Code>hunter2</Code></Error>",
        "Answer: <!DOCTYPE html><p>hunter2</p>",
    ],
)
def test_secrets_and_bodies_are_redacted(text: str) -> None:
    hidden = redact(text)
    assert "hunter2" not in hidden
    assert redact(hidden) == hidden


def test_access_key_ids_are_redacted() -> None:
    assert redact("key AKIAIOSFODNN7EXAMPLE denied") == "key [redacted] denied"


@pytest.mark.parametrize(
    "text",
    [
        "GetObject s3://bucket/train/x.tar: throttled (s3-slowdown) after 30 attempts in 41.2 s",
        "abfs://container@account/train/token/signature.pt",
        "s3://bucket/a b/c?.tar",
        "s3://bucket/what?/x.tar",
        "request id 7D7A3C2B1F0E9A88; try: raise max_attempts",
        "https://host:9000 (read)",
    ],
)
def test_plain_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_redaction_of_a_long_text_is_quick() -> None:
    for unit in ("a.", "a:", "http://", "?a=", "x@", "<", "sig", "/a"):
        started = time.perf_counter()
        redact(unit * 10_000)
        assert time.perf_counter() - started < 2.0, unit


def test_message_never_holds_credentials_of_a_path() -> None:
    record = GiveUp(operation="GetObject", path="https://u:hunter2@h/b/k?X-Amz-Signature=hunter2", reason="attempts")
    assert message_of(record).startswith("GetObject https://h/b/k: ")
    assert "hunter2" not in message_of(record)
