"""Judges a fault: ordered, named rules over the tables of codes, statuses, classes and errnos.

The first rule that fits decides; its name is `Verdict.rule`. Then the operation is looked at, once for all rules:

- `applied` is "maybe" where the rule says that the answer may have been lost after the work was done, the operation
  writes, and the request was sent.
- A throttled or transient fault that may have been applied is `ambiguous` where a repeat is not harmless
  (CompleteMultipartUpload, appends, conditional writes): look before repeating.
- `retryable` is True for throttled and transient faults alone, and never for what this library gave up on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .azure_codes import ACCOUNT_CODES, ACCOUNT_WORDS
from .codes import CodeMeaning, StatusMeaning, code_meaning, status_meaning
from .fault import Applied, Fault, FaultKind, Load, Verdict
from .operations import is_idempotent, repeat_is_told
from .transport import CANCELLATIONS, ErrnoMeaning, TypeMeaning, errno_meaning, type_meaning

_Meaning = CodeMeaning | StatusMeaning | TypeMeaning | ErrnoMeaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row: a fault with this meaning (and for which `when` holds) is of this kind."""

    name: str
    meaning: _Meaning | None = None
    when: Callable[[Fault], bool] | None = None
    kind: FaultKind
    load: Load = Load.NONE
    applied: Applied = Applied.NO
    resign: bool = False


def _is_interrupt(fault: Fault) -> bool:
    """Whether it is no fault at all: a signal, a cancelled task. These end the program or the task, at once."""
    types = fault.types
    if "builtins.BaseException" in types and "builtins.Exception" not in types:
        return True
    return bool(types) and types[0] in CANCELLATIONS


def _is_credential_service(fault: Fault) -> bool:
    return fault.provider == "credential"


def _is_kms_message(fault: Fault) -> bool:
    # The only sign that the key and not the prefix is hot: S3 sends the code SlowDown for both. The whole message is
    # compared, so that a key which holds these words is no match.
    return fault.message == "Please reduce your request rate for operations involving AWS KMS."


def _is_headless_400(fault: Fault) -> bool:
    # A HEAD has no body and so no code. S3's 400 to it is ExpiredToken or a wrong region: read one byte to know.
    return fault.provider == "s3" and fault.status == 400 and (fault.operation or "").lower().startswith("head")


def _is_the_stores(fault: Fault) -> bool:
    """Whether a refusal is the store's own word. Without a code it may be a gateway's that lost the store's answer."""
    # botocore puts the status in the place of a code that the answer lacks.
    if fault.code and not fault.code.isdigit():
        return True
    # A bulk delete's documents are known to be cut (fsspec/s3fs#484), and what became of it does not matter: a repeat
    # deletes what is left.
    return (fault.operation or "").lower() == "deleteobjects"


def _commits(fault: Fault) -> bool:
    name = (fault.operation or "").replace("_", "").lower().partition("-")[0]
    return name in ("completemultipartupload", "putblocklist", "commitblocklist")


_THROTTLED = FaultKind.THROTTLED
_TRANSIENT = FaultKind.TRANSIENT
_BUG = FaultKind.CLIENT_BUG
_ABSENT = FaultKind.NOT_FOUND

RULES: tuple[Rule, ...] = (
    Rule(name="interrupt", when=_is_interrupt, kind=FaultKind.FATAL),
    # What this library raised, where the verdict itself was lost on the way (a process border keeps one text).
    Rule(name="own-throttled", meaning=TypeMeaning.OWN_THROTTLED, kind=_THROTTLED, load=Load.REFUSED),
    Rule(name="own-exhausted", meaning=TypeMeaning.OWN_EXHAUSTED, kind=_TRANSIENT),
    Rule(name="own-changed", meaning=TypeMeaning.OWN_CHANGED, kind=FaultKind.PRECONDITION),
    Rule(name="own-ambiguous", meaning=TypeMeaning.OWN_AMBIGUOUS, kind=FaultKind.AMBIGUOUS, applied=Applied.MAYBE),
    Rule(name="own-client-bug", meaning=TypeMeaning.OWN_CLIENT_BUG, kind=_BUG),
    Rule(name="own-fatal", meaning=TypeMeaning.OWN_FATAL, kind=FaultKind.FATAL),
    # Codes. A credential service or KMS that refuses is not the prefix: no load for the first, a name for both.
    Rule(name="credential-throttled", meaning=CodeMeaning.THROTTLED, when=_is_credential_service, kind=_THROTTLED),
    Rule(name="kms-throttled", meaning=CodeMeaning.KMS_THROTTLED, kind=_THROTTLED, load=Load.REFUSED),
    Rule(name="kms-slow-down", meaning=CodeMeaning.THROTTLED, when=_is_kms_message, kind=_THROTTLED, load=Load.REFUSED),
    Rule(name="throttled-code", meaning=CodeMeaning.THROTTLED, kind=_THROTTLED, load=Load.REFUSED),
    Rule(
        name="operation-timed-out",
        meaning=CodeMeaning.THROTTLED_MAYBE_APPLIED,
        kind=_THROTTLED,
        load=Load.REFUSED,
        applied=Applied.MAYBE,
    ),
    Rule(
        name="server-error-code",
        meaning=CodeMeaning.SERVER_ERROR,
        kind=_TRANSIENT,
        load=Load.SUSPECTED,
        applied=Applied.MAYBE,
    ),
    Rule(name="timeout-code", meaning=CodeMeaning.TIMEOUT, kind=_TRANSIENT, load=Load.SUSPECTED, applied=Applied.MAYBE),
    Rule(name="conflict-now", meaning=CodeMeaning.CONFLICT_NOW, kind=_TRANSIENT),
    Rule(name="damaged-upload", meaning=CodeMeaning.DAMAGED_UPLOAD, kind=_TRANSIENT),
    Rule(name="damaged-answer", meaning=CodeMeaning.DAMAGED_ANSWER, kind=_TRANSIENT),
    Rule(name="empty-answer", meaning=CodeMeaning.EMPTY_ANSWER, kind=_TRANSIENT, applied=Applied.MAYBE),
    Rule(
        name="commit-unsure",
        meaning=CodeMeaning.COMMIT_UNSURE,
        when=_commits,
        kind=FaultKind.AMBIGUOUS,
        applied=Applied.MAYBE,
    ),
    Rule(name="commit-parts", meaning=CodeMeaning.COMMIT_UNSURE, kind=_BUG),
    Rule(name="credentials-expired", meaning=CodeMeaning.EXPIRED, kind=FaultKind.AUTH, resign=True),
    Rule(name="clock-skewed", meaning=CodeMeaning.SKEWED, kind=FaultKind.AUTH, resign=True),
    Rule(name="auth-code", meaning=CodeMeaning.AUTH, kind=FaultKind.AUTH),
    Rule(name="denied-code", meaning=CodeMeaning.DENIED, kind=FaultKind.FATAL),
    Rule(name="not-found-code", meaning=CodeMeaning.NOT_FOUND, kind=_ABSENT),
    Rule(name="precondition-code", meaning=CodeMeaning.PRECONDITION, kind=FaultKind.PRECONDITION),
    Rule(name="client-bug-code", meaning=CodeMeaning.CLIENT_BUG, kind=_BUG),
    Rule(name="unsupported-code", meaning=CodeMeaning.UNSUPPORTED, kind=FaultKind.FATAL),
    # Statuses, where no table knows the code.
    Rule(name="credential-status", meaning=StatusMeaning.THROTTLED, when=_is_credential_service, kind=_THROTTLED),
    # With a code, however strange, it is the store that refuses: nothing was done.
    Rule(
        name="throttled-status-and-code",
        meaning=StatusMeaning.THROTTLED,
        when=_is_the_stores,
        kind=_THROTTLED,
        load=Load.REFUSED,
    ),
    Rule(
        name="throttled-status",
        meaning=StatusMeaning.THROTTLED,
        kind=_THROTTLED,
        load=Load.REFUSED,
        applied=Applied.MAYBE,
    ),
    Rule(
        name="timeout-status",
        meaning=StatusMeaning.TIMEOUT,
        kind=_TRANSIENT,
        load=Load.SUSPECTED,
        applied=Applied.MAYBE,
    ),
    Rule(
        name="server-error-status",
        meaning=StatusMeaning.SERVER_ERROR,
        kind=_TRANSIENT,
        load=Load.SUSPECTED,
        applied=Applied.MAYBE,
    ),
    Rule(name="auth-status", meaning=StatusMeaning.AUTH, kind=FaultKind.AUTH),
    Rule(name="denied-status", meaning=StatusMeaning.DENIED, kind=FaultKind.FATAL),
    Rule(name="not-found-status", meaning=StatusMeaning.NOT_FOUND, kind=_ABSENT),
    Rule(name="precondition-status", meaning=StatusMeaning.PRECONDITION, kind=FaultKind.PRECONDITION),
    Rule(name="head-bad-request", meaning=StatusMeaning.CLIENT_BUG, when=_is_headless_400, kind=FaultKind.AUTH),
    Rule(name="client-bug-status", meaning=StatusMeaning.CLIENT_BUG, kind=_BUG),
    Rule(name="unsupported-status", meaning=StatusMeaning.UNSUPPORTED, kind=FaultKind.FATAL),
    # Classes, where the service said nothing.
    Rule(name="tls-refused", meaning=TypeMeaning.TLS_REFUSED, kind=FaultKind.FATAL),
    Rule(name="credentials", meaning=TypeMeaning.CREDENTIALS, kind=FaultKind.AUTH),
    Rule(name="misuse", meaning=TypeMeaning.MISUSE, kind=_BUG),
    Rule(name="object-changed", meaning=TypeMeaning.OBJECT_CHANGED, kind=FaultKind.PRECONDITION),
    Rule(name="connect-refused", meaning=TypeMeaning.CONNECT_REFUSED, kind=_TRANSIENT),
    Rule(name="proxy", meaning=TypeMeaning.PROXY, kind=_TRANSIENT),
    Rule(name="connect-timeout", meaning=TypeMeaning.CONNECT_TIMEOUT, kind=_TRANSIENT, load=Load.SUSPECTED),
    Rule(name="checksum", meaning=TypeMeaning.CHECKSUM, kind=_TRANSIENT),
    Rule(
        name="answer-timeout",
        meaning=TypeMeaning.ANSWER_TIMEOUT,
        kind=_TRANSIENT,
        load=Load.SUSPECTED,
        applied=Applied.MAYBE,
    ),
    Rule(name="body-cut", meaning=TypeMeaning.BODY_CUT, kind=_TRANSIENT, load=Load.SUSPECTED, applied=Applied.MAYBE),
    Rule(
        name="connection-lost",
        meaning=TypeMeaning.CONNECTION_LOST,
        kind=_TRANSIENT,
        load=Load.SUSPECTED,
        applied=Applied.MAYBE,
    ),
    Rule(name="answer-unreadable", meaning=TypeMeaning.UNREADABLE, kind=_TRANSIENT, applied=Applied.MAYBE),
    Rule(name="request-failed", meaning=TypeMeaning.REQUEST_FAILED, kind=_TRANSIENT, applied=Applied.MAYBE),
    Rule(name="denied", meaning=TypeMeaning.DENIED, kind=FaultKind.FATAL),
    Rule(name="absent", meaning=TypeMeaning.ABSENT, kind=_ABSENT),
    Rule(name="present", meaning=TypeMeaning.PRESENT, kind=FaultKind.PRECONDITION),
    Rule(name="program-bug", meaning=TypeMeaning.PROGRAM_BUG, kind=_BUG),
    Rule(name="http-client", meaning=TypeMeaning.HTTP_CLIENT, kind=_TRANSIENT, applied=Applied.MAYBE),
    # Errnos, where not even the class says more.
    Rule(name="errno-lost", meaning=ErrnoMeaning.LOST, kind=_TRANSIENT, load=Load.SUSPECTED, applied=Applied.MAYBE),
    Rule(name="errno-unreachable", meaning=ErrnoMeaning.UNREACHABLE, kind=_TRANSIENT),
    Rule(name="local-os-error", meaning=ErrnoMeaning.LOCAL, kind=FaultKind.FATAL),
)

_UNKNOWN = Rule(name="unknown", kind=FaultKind.FATAL)
_REPEATABLE = (FaultKind.THROTTLED, FaultKind.TRANSIENT)
# What our own first try looks like to our second one: the object is there, or what it consumed is gone.
_ECHOES = (FaultKind.PRECONDITION, FaultKind.NOT_FOUND)


def judge(fault: Fault, *, after_lost_answer: bool = False, minds_echoes: bool = False) -> Verdict:
    """Return the verdict on a fault; an unknown one is fatal, by the rule named "unknown".

    `after_lost_answer` says that an earlier attempt of the same write had no answer: a 404, 409 or 412 may then be the
    echo of our own success, and is ambiguous. A caller that keeps this in mind (`minds_echoes`) may repeat the
    operations of `repeat_is_told` too.
    """
    rule = _first_rule(fault)
    applied = rule.applied if fault.write and fault.sent else Applied.NO
    kind = rule.kind
    if kind in _REPEATABLE and applied is Applied.MAYBE and not _may_repeat(fault.operation, minds_echoes):
        kind = FaultKind.AMBIGUOUS
    if after_lost_answer and fault.write and kind in _ECHOES:
        kind, applied = FaultKind.AMBIGUOUS, Applied.MAYBE
    return Verdict(
        kind=kind,
        load=rule.load,
        applied=applied,
        retryable=kind in _REPEATABLE and not fault.gave_up,
        retry_after_s=fault.retry_after_s,
        rule=rule.name,
        request_id=fault.request_id,
        resign=rule.resign and not fault.gave_up,
        level="account" if rule.load is Load.REFUSED and _is_account_wide(fault) else None,
    )


def _is_account_wide(fault: Fault) -> bool:
    if fault.provider != "azure":
        return False
    return fault.code in ACCOUNT_CODES or ACCOUNT_WORDS.match(fault.message) is not None


def _may_repeat(operation: str | None, minds_echoes: bool) -> bool:
    return is_idempotent(operation) or (minds_echoes and repeat_is_told(operation))


def _first_rule(fault: Fault) -> Rule:
    meanings = _meanings(fault)
    for rule in RULES:
        if (rule.meaning is None or rule.meaning in meanings) and (rule.when is None or rule.when(fault)):
            return rule
    return _UNKNOWN


def _meanings(fault: Fault) -> tuple[_Meaning, ...]:
    """What each table says; a code speaks before a status, and both before a class or an errno."""
    of_type = type_meaning(fault.types) if fault.types else TypeMeaning.NONE
    if fault.code is None and fault.status is None:
        return of_type, errno_meaning(fault.errno)
    return code_meaning(fault.provider, fault.code), status_meaning(fault.status), of_type, errno_meaning(fault.errno)
