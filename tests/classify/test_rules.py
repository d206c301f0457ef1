"""Each rule has a fault that it alone decides: without the rule the verdict is another one."""

from __future__ import annotations

import errno

import pytest

from resilient_io.classify import Applied, Fault, FaultKind, Load, Verdict, judge, rules
from resilient_io.classify.codes import CodeMeaning, StatusMeaning
from resilient_io.classify.transport import ErrnoMeaning, TypeMeaning


def s3(code: str | None = None, status: int | None = None, *, op: str = "GetObject", message: str = "") -> Fault:
    write = op[:3] in ("Put", "Com", "Upl", "Cop")
    return Fault(provider="s3", operation=op, status=status, code=code, message=message, write=write)


def azure(code: str, status: int, *, op: str = "GetBlob") -> Fault:
    return Fault(provider="azure", operation=op, status=status, code=code, write=op[:3] in ("Put", "App"))


def raised(*types: str, op: str | None = None, number: int | None = None, sent: bool = True) -> Fault:
    return Fault(types=types, operation=op, errno=number, write=op is not None, sent=sent)


Row = tuple[str, Fault, FaultKind, Load, Applied]
K, NONE, SUSPECTED, REFUSED, NO, MAYBE = FaultKind, Load.NONE, Load.SUSPECTED, Load.REFUSED, Applied.NO, Applied.MAYBE
OWN = "resilient_io.errors."
DECISIONS: tuple[Row, ...] = (
    ("interrupt", raised("builtins.KeyboardInterrupt", "builtins.BaseException"), K.FATAL, NONE, NO),
    ("own-throttled", raised(OWN + "ThrottledError", OWN + "ResilientIOError"), K.THROTTLED, REFUSED, NO),
    ("own-exhausted", raised(OWN + "RetriesExhausted", OWN + "ResilientIOError"), K.TRANSIENT, NONE, NO),
    ("own-changed", raised(OWN + "ObjectChanged", OWN + "ResilientIOError"), K.PRECONDITION, NONE, NO),
    ("own-ambiguous", raised(OWN + "AmbiguousWriteError", op="PutObject"), K.AMBIGUOUS, NONE, MAYBE),
    ("own-client-bug", raised(OWN + "NotForkSafe", OWN + "ResilientIOError"), K.CLIENT_BUG, NONE, NO),
    ("own-fatal", raised(OWN + "ResilientIOError", "builtins.FileNotFoundError"), K.FATAL, NONE, NO),
    ("credential-throttled", Fault(provider="credential", code="Throttling", status=400), K.THROTTLED, NONE, NO),
    ("kms-throttled", s3("KMS.ThrottlingException", 400, op="PutObject"), K.THROTTLED, REFUSED, NO),
    (
        "kms-slow-down",
        s3("SlowDown", 503, message="Please reduce your request rate for operations involving AWS KMS."),
        K.THROTTLED,
        REFUSED,
        NO,
    ),
    ("throttled-code", s3("SlowDown", 200, op="PutObject"), K.THROTTLED, REFUSED, NO),
    ("operation-timed-out", azure("OperationTimedOut", 500, op="PutBlob"), K.THROTTLED, REFUSED, MAYBE),
    ("server-error-code", s3("InternalError", 200, op="CopyObject"), K.TRANSIENT, SUSPECTED, MAYBE),
    ("timeout-code", s3("RequestTimeout", 400, op="PutObject"), K.TRANSIENT, SUSPECTED, MAYBE),
    ("conflict-now", s3("OperationAborted", 409, op="PutObject"), K.TRANSIENT, NONE, NO),
    ("damaged-upload", s3("BadDigest", 400, op="PutObject"), K.TRANSIENT, NONE, NO),
    ("damaged-answer", s3("ShortBody", 200), K.TRANSIENT, NONE, NO),
    ("empty-answer", s3("EmptyAnswer", 200, op="CopyObject"), K.TRANSIENT, NONE, MAYBE),
    ("commit-unsure", s3("InvalidPart", 500, op="CompleteMultipartUpload"), K.AMBIGUOUS, NONE, MAYBE),
    ("commit-parts", s3("InvalidPart", 500, op="UploadPart"), K.CLIENT_BUG, NONE, NO),
    ("credentials-expired", s3("ExpiredToken", 400), K.AUTH, NONE, NO),
    ("clock-skewed", s3("RequestTimeTooSkewed", 403), K.AUTH, NONE, NO),
    ("auth-code", s3("InvalidAccessKeyId", 403), K.AUTH, NONE, NO),
    ("denied-code", s3("InvalidObjectState", 400), K.FATAL, NONE, NO),
    ("not-found-code", azure("BlobNotFound", 400), K.NOT_FOUND, NONE, NO),
    ("precondition-code", azure("LeaseIdMissing", 400), K.PRECONDITION, NONE, NO),
    ("client-bug-code", s3("InvalidRange", 500), K.CLIENT_BUG, NONE, NO),
    ("unsupported-code", s3("NotImplemented", 500), K.FATAL, NONE, NO),
    ("credential-status", Fault(provider="credential", status=429), K.THROTTLED, NONE, NO),
    ("throttled-status-and-code", s3("Overrun", 503, op="PutObject"), K.THROTTLED, REFUSED, NO),
    ("throttled-status", s3(None, 503, op="PutObject"), K.THROTTLED, REFUSED, MAYBE),
    ("timeout-status", s3(None, 408, op="PutObject"), K.TRANSIENT, SUSPECTED, MAYBE),
    ("server-error-status", s3(None, 502, op="PutObject"), K.TRANSIENT, SUSPECTED, MAYBE),
    ("auth-status", s3(None, 401), K.AUTH, NONE, NO),
    ("denied-status", s3(None, 403), K.FATAL, NONE, NO),
    ("not-found-status", s3(None, 404), K.NOT_FOUND, NONE, NO),
    ("precondition-status", s3(None, 412), K.PRECONDITION, NONE, NO),
    ("head-bad-request", s3(None, 400, op="HeadObject"), K.AUTH, NONE, NO),
    ("client-bug-status", s3(None, 400), K.CLIENT_BUG, NONE, NO),
    ("unsupported-status", s3(None, 501), K.FATAL, NONE, NO),
    ("tls-refused", raised("ssl.SSLCertVerificationError", "ssl.SSLError"), K.FATAL, NONE, NO),
    ("credentials", raised("botocore.exceptions.NoCredentialsError"), K.AUTH, NONE, NO),
    ("misuse", raised("botocore.exceptions.ParamValidationError"), K.CLIENT_BUG, NONE, NO),
    ("object-changed", raised("s3fs.utils.FileExpired", number=errno.EBUSY), K.PRECONDITION, NONE, NO),
    (
        "connect-refused",
        raised("builtins.ConnectionRefusedError", "builtins.ConnectionError", op="PutObject", sent=False),
        K.TRANSIENT,
        NONE,
        NO,
    ),
    ("proxy", raised("botocore.exceptions.ProxyConnectionError", op="PutObject", sent=False), K.TRANSIENT, NONE, NO),
    (
        "connect-timeout",
        raised("urllib3.exceptions.ConnectTimeoutError", op="PutObject", sent=False),
        K.TRANSIENT,
        SUSPECTED,
        NO,
    ),
    ("checksum", raised("botocore.exceptions.FlexibleChecksumError"), K.TRANSIENT, NONE, NO),
    (
        "answer-timeout",
        raised("builtins.TimeoutError", "builtins.OSError", op="PutObject"),
        K.TRANSIENT,
        SUSPECTED,
        MAYBE,
    ),
    ("body-cut", raised("http.client.IncompleteRead", op="PutObject"), K.TRANSIENT, SUSPECTED, MAYBE),
    ("connection-lost", raised("http.client.RemoteDisconnected", op="PutObject"), K.TRANSIENT, SUSPECTED, MAYBE),
    ("answer-unreadable", raised("botocore.parsers.ResponseParserError", op="PutObject"), K.TRANSIENT, NONE, MAYBE),
    ("request-failed", raised("azure.core.exceptions.ServiceRequestError", op="PutBlob"), K.TRANSIENT, NONE, MAYBE),
    ("denied", raised("obstore.exceptions.PermissionDeniedError"), K.FATAL, NONE, NO),
    ("absent", raised("builtins.FileNotFoundError", number=errno.ENOENT), K.NOT_FOUND, NONE, NO),
    ("present", raised("builtins.FileExistsError", number=errno.EEXIST), K.PRECONDITION, NONE, NO),
    ("program-bug", raised("builtins.KeyError", "builtins.LookupError"), K.CLIENT_BUG, NONE, NO),
    ("http-client", raised("botocore.exceptions.HTTPClientError", op="PutObject"), K.TRANSIENT, NONE, MAYBE),
    ("errno-lost", raised("builtins.OSError", op="PutObject", number=errno.ECONNRESET), K.TRANSIENT, SUSPECTED, MAYBE),
    ("errno-unreachable", raised("builtins.OSError", op="PutObject", number=errno.ENETUNREACH), K.TRANSIENT, NONE, NO),
    ("local-os-error", raised("builtins.OSError", number=errno.ENOSPC), K.FATAL, NONE, NO),
)
named = pytest.mark.parametrize(
    ("name", "fault", "kind", "load", "applied"), DECISIONS, ids=[row[0] for row in DECISIONS]
)


@named
def test_rule_decides(name: str, fault: Fault, kind: FaultKind, load: Load, applied: Applied) -> None:
    verdict = judge(fault)
    assert (verdict.rule, verdict.kind, verdict.load, verdict.applied) == (name, kind, load, applied)


@named
def test_rule_cannot_be_removed(
    name: str, fault: Fault, kind: FaultKind, load: Load, applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", tuple(rule for rule in rules.RULES if rule.name != name))
    assert judge(fault).rule != name


def test_every_rule_has_its_decision_and_its_own_name() -> None:
    names = [rule.name for rule in rules.RULES]
    assert len(set(names)) == len(names)
    assert [row[0] for row in DECISIONS] == names


def test_every_meaning_has_a_rule() -> None:
    ruled = {rule.meaning for rule in rules.RULES}
    for meanings in (CodeMeaning, StatusMeaning, TypeMeaning, ErrnoMeaning):
        assert {meaning for meaning in meanings if meaning.name != "NONE"} <= ruled


def test_rules_that_need_more_stand_before_those_that_need_less() -> None:
    plain: set[object] = set()
    for rule in rules.RULES:
        assert rule.meaning is None or rule.meaning not in plain, rule.name
        if rule.when is None:
            plain.add(rule.meaning)


def test_nothing_known_is_fatal_by_the_rule_unknown() -> None:
    assert judge(Fault()) == Verdict(kind=K.FATAL, rule="unknown")
    assert judge(s3("NeverSeenCode", 499)).rule == "unknown"
    assert judge(Fault(write=True, operation="PutObject")).retryable is False


@pytest.mark.parametrize("rule", rules.RULES, ids=[rule.name for rule in rules.RULES])
def test_no_kind_but_two_is_ever_retryable(rule: rules.Rule) -> None:
    fault = next(row[1] for row in DECISIONS if row[0] == rule.name)
    verdict = judge(fault)
    assert verdict.retryable is (verdict.kind in (K.THROTTLED, K.TRANSIENT))


@pytest.mark.parametrize(("name", "fault", "kind", "load", "applied"), DECISIONS, ids=[row[0] for row in DECISIONS])
def test_what_was_given_up_keeps_its_kind_and_is_not_retryable(
    name: str, fault: Fault, kind: FaultKind, load: Load, applied: Applied
) -> None:
    from dataclasses import replace

    verdict = judge(replace(fault, gave_up=True))
    assert (verdict.kind, verdict.retryable) == (kind, False)


@pytest.mark.parametrize("code", ["InternalError", "RequestTimeout", "OperationTimedOut", "EmptyAnswer"])
@pytest.mark.parametrize(
    ("operation", "kind_is_ambiguous"),
    [
        ("CompleteMultipartUpload", True),
        ("AppendBlock", True),
        ("PutBlob-IfNoneMatch", True),
        ("pipe_file-create", True),
        ("frobnicate", True),
        ("PutObject", False),
        ("CopyObject", False),
        ("UploadPart", False),
        ("PutBlockList", False),
    ],
)
def test_lost_write_is_ambiguous_only_where_a_repeat_does_harm(
    code: str, operation: str, kind_is_ambiguous: bool
) -> None:
    verdict = judge(Fault(provider="azure", operation=operation, status=500, code=code, write=True))
    assert verdict.applied is MAYBE
    assert (verdict.kind is K.AMBIGUOUS) is kind_is_ambiguous
    assert verdict.retryable is not kind_is_ambiguous


def test_only_the_400_of_a_head_is_read_as_credentials() -> None:
    assert judge(s3(None, 400, op="head_bucket")).rule == "head-bad-request"
    assert judge(s3(None, 301, op="HeadObject")).rule == "client-bug-status"
    assert judge(Fault(provider="azure", operation="HeadObject", status=400)).rule == "client-bug-status"


def test_refusal_of_a_write_that_must_not_be_repeated_is_still_a_refusal() -> None:
    verdict = judge(azure("ServerBusy", 503, op="AppendBlock"))
    assert (verdict.kind, verdict.applied, verdict.retryable) == (K.THROTTLED, NO, True)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("PreconditionFailed", 412, K.PRECONDITION),
        ("NoSuchUpload", 404, K.NOT_FOUND),
        ("BlobAlreadyExists", 409, K.PRECONDITION),
    ],
)
def test_echo_of_our_own_success_is_ambiguous_only_after_a_lost_answer(code: str, status: int, kind: FaultKind) -> None:
    fault = Fault(provider="s3", operation="CompleteMultipartUpload", status=status, code=code, write=True)
    assert judge(fault).kind is kind
    echo = judge(fault, after_lost_answer=True)
    assert (echo.kind, echo.applied, echo.retryable) == (K.AMBIGUOUS, MAYBE, False)
    read = Fault(provider="s3", operation="GetObject", status=status, code=code)
    assert judge(read, after_lost_answer=True).kind is kind


@pytest.mark.parametrize("operation", ["CompleteMultipartUpload", "PutObject-IfNoneMatch", "PutObject-append"])
def test_who_minds_echoes_may_repeat_what_the_store_tells_apart(operation: str) -> None:
    fault = Fault(provider="s3", operation=operation, status=500, code="InternalError", write=True)
    assert (judge(fault).kind, judge(fault).retryable) == (K.AMBIGUOUS, False)
    verdict = judge(fault, minds_echoes=True)
    assert (verdict.kind, verdict.applied, verdict.retryable) == (K.TRANSIENT, MAYBE, True)
    append = Fault(provider="azure", operation="AppendBlock", status=500, code="InternalError", write=True)
    assert judge(append, minds_echoes=True).kind is K.AMBIGUOUS


def test_code_speaks_before_status_and_status_before_class() -> None:
    types = ("builtins.ConnectionResetError",)
    assert judge(Fault(provider="s3", status=503, code="AccessDenied", types=types)).kind is K.FATAL
    assert judge(Fault(provider="s3", status=403, types=types)).kind is K.FATAL
    assert judge(Fault(provider="s3", status=206, types=types)).rule == "connection-lost"
