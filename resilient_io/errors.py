"""The library's exceptions, and the words in which it gives up.

A give-up travels inside the library as `GaveUp`, which is not an OSError, because the filesystem
layers above swallow OSErrors. At the outermost public call it becomes the public class that
`public_error` chooses.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from resilient_io.classify.fault import Verdict

Reason = Literal["attempts", "throttle_attempts", "deadline", "total_deadline", "budget", "not_retryable", "ambiguous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """What was given up, and why; plain data.

    `scope` is the scope's name for people (`str(ScopePath)`). `attempts` counts the requests that
    were sent, `elapsed_s` the seconds since the call began. `reason` is the limit that was hit.
    `advice` is what to try; "" takes the advice that belongs to the reason and the kind.
    """

    operation: str = ""
    path: str = ""
    verdict: Verdict | None = None
    attempts: int = 0
    elapsed_s: float = 0.0
    scope: str = ""
    request_id: str | None = None
    reason: Reason = "not_retryable"
    advice: str = ""


class GaveUp(Exception):
    """Carries a give-up through layers that swallow OSErrors; private, never shown to a user."""

    def __init__(self, record: GiveUp, error: BaseException) -> None:
        super().__init__(record, error)
        self.record = record
        self.error = error

    def __str__(self) -> str:
        return message_of(self.record)


class ResilientIOError(OSError):
    """An operation on object storage that this library gave up on.

    An OSError, so that the `except` around today's file code catches it; its errno is never ENOENT:
    a refusal is not an absence. The SDK's error is the `__cause__`. Survives pickle and copy, and
    can be rebuilt from its text alone, as torch and multiprocessing frameworks do; then the
    attributes have their empty values.
    """

    default_errno = errno.EIO

    retryable = False
    """Always False: the attempts that the policy allows are spent."""
    record: GiveUp
    """The facts of the give-up; an empty one if the error was rebuilt from text."""

    def __init__(self, message: str = "", *, record: GiveUp | None = None) -> None:
        OSError.__init__(self, message)  # by name: a class that is an SDK's error too may have another in between
        self.errno = self.default_errno
        self.strerror = str(message)
        self.record = record if record is not None else GiveUp()

    # OSError would write "[Errno 5] " in front, and cls(str(e)) would pile it up.
    def __str__(self) -> str:
        return str(self.strerror)

    @property
    def verdict(self) -> Verdict | None:
        """What the last fault meant, or None if there was none."""
        return self.record.verdict

    @property
    def attempts(self) -> int:
        """Requests that were sent."""
        return self.record.attempts

    @property
    def elapsed_s(self) -> float:
        """Seconds from the beginning of the call to the give-up."""
        return self.record.elapsed_s

    @property
    def scope(self) -> str:
        """The scope that the request was counted under, such as `s3://bucket/train (read)`."""
        return self.record.scope

    @property
    def request_id(self) -> str | None:
        """The service's id of the last request, for its support; None if there was no answer."""
        return self.record.request_id

    @property
    def operation(self) -> str:
        """The SDK's name of the operation, such as `GetObject`."""
        return self.record.operation

    @property
    def path(self) -> str:
        """The object or listing that was asked for, as a URL."""
        return self.record.path


class ThrottledError(ResilientIOError):
    """The service refused for load until the attempts were spent (EBUSY)."""

    default_errno = errno.EBUSY


class RetriesExhausted(ResilientIOError):
    """Faults other than refusals came back until the attempts or the retry budget were spent (EIO)."""


class DeadlineExceeded(ResilientIOError):
    """A deadline passed, or would have passed before the next attempt (ETIMEDOUT).

    Not a TimeoutError: fsspec's sync bridge turns each of those that comes out of its loop into an
    empty FSTimeoutError, and operation, path, attempts and seconds would be lost.
    """

    default_errno = errno.ETIMEDOUT


class ObjectChanged(ResilientIOError):
    """The object was replaced while it was being read; the bytes so far belong to no one version (ESTALE)."""

    default_errno = errno.ESTALE


class AmbiguousWriteError(ResilientIOError):
    """A write whose answer was lost, and of which it cannot be told whether it happened (EIO)."""


class CredentialsError(ResilientIOError, PermissionError):
    """The service did not accept the credentials, or there were none to be had (EACCES); the text says the cure.

    A PermissionError too, as s3fs raises. That what was accepted is not allowed is none: it stays what it was.
    """

    default_errno = errno.EACCES


class NotForkSafe(ResilientIOError, RuntimeError):
    """An object made before a fork was used in the child (EINVAL); a RuntimeError too, as s3fs raises."""

    default_errno = errno.EINVAL


def public_error(record: GiveUp, cause: BaseException | None) -> ResilientIOError:
    """Return the public error of a give-up, with the SDK's error as its `__cause__`."""
    error = _class_of(record)(message_of(record), record=record)
    error.__cause__ = cause
    return error


def _class_of(record: GiveUp) -> type[ResilientIOError]:
    kind = record.verdict.kind.value if record.verdict is not None else ""
    match record.reason:
        case _ if kind == "ambiguous":
            return AmbiguousWriteError
        case "deadline" | "total_deadline":
            return DeadlineExceeded
        case "ambiguous":
            return AmbiguousWriteError
        case "throttle_attempts":
            return ThrottledError
        case "attempts" | "budget":
            return RetriesExhausted
        case _:
            return {"throttled": ThrottledError, "auth": CredentialsError}.get(kind, ResilientIOError)


_LIMIT = {
    "attempts": "max_attempts",
    "throttle_attempts": "max_throttle_attempts",
    "deadline": "deadline_s",
    "total_deadline": "total_deadline_s",
    "budget": "retry_budget",
    "not_retryable": "not retryable",
    "ambiguous": "not repeatable",
}

_READ_BACK = "read the object back to see if it was written, or make the write conditional"
_SPREAD = "spread the keys over more prefixes, lower max_concurrency, or raise "
_NO_PERMIT = (
    "raise rate_per_s, bytes_per_s, max_concurrency or max_concurrency_node where they are set, spread the keys over "
    "more prefixes if their limit was learnt (rio.report() shows it), or raise "
)
_ACCOUNT = "a limit of the account, more prefixes do not help: use more accounts, ask for a higher limit, or raise "
# What to try, by (reason, kind) and else by (reason, "").
_ADVICE = {
    ("throttle_attempts", ""): _SPREAD + "max_throttle_attempts",
    ("deadline", "throttled"): _SPREAD + "deadline_s",
    ("total_deadline", "throttled"): _SPREAD + "total_deadline_s",
    ("deadline", ""): "see if the store answers at all from this machine, or raise deadline_s",
    ("total_deadline", ""): "see if the store answers at all from this machine, or raise total_deadline_s",
    ("attempts", ""): "see if the store and the network are healthy, or raise max_attempts",
    ("budget", ""): "see why so many calls on this scope fail (store, network), or raise retry_budget",
    ("ambiguous", ""): _READ_BACK,
    ("not_retryable", "auth"): "check the credentials: key, secret and session token, account and region",
}
# What to try, by the rule that decided.
_CURES = {
    "credentials-expired": "the credentials or the signature have run out: renew them (log in anew, a new SAS or "
    "session token), or use some that renew themselves (an instance's or a pod's role, a managed identity)",
    "clock-skewed": "the request came long after it was signed, or this machine's clock is wrong: set it by NTP",
    "credentials": "no credentials were found or could be fetched: set them in the environment or the shared files, "
    "give the machine or the pod a role, or see why their service does not answer",
    "head-bad-request": "a HEAD has no text: the credentials have probably run out, or the bucket is in another region",
    "credential-throttled": "the service that gives out credentials refuses: start fewer processes at once, or share "
    "one login",
}


def message_of(record: GiveUp) -> str:
    """Return the text of a give-up, free of credentials.

    In this order: operation, path, kind and rule, attempts, seconds, limit hit, scope, request id,
    what to try. Parts that are not known are left out.
    """
    what = " ".join(part for part in (record.operation, record.path) if part)
    count = f"{record.attempts} attempt{'' if record.attempts == 1 else 's'}"
    effort = f"{_kind_of(record)} after {count} in {record.elapsed_s:.1f} s [{_LIMIT[record.reason]}]"
    details = [f"{what}: {effort}" if what else effort]
    if record.scope:
        details.append(f"scope {record.scope}")
    if record.request_id:
        details.append(f"request id {record.request_id}")
    if advice := record.advice or advice_for(record):
        details.append(f"try: {advice}")
    return redact("; ".join(details))


def advice_for(record: GiveUp) -> str:
    """Return what to try after such a give-up, or "" where there is nothing useful to say."""
    kind = record.verdict.kind.value if record.verdict is not None else ""
    if kind == "ambiguous":
        return _READ_BACK
    rule = record.verdict.rule if record.verdict is not None else ""
    if rule == "waited-for-permit":
        return _NO_PERMIT + _LIMIT[record.reason]
    if record.verdict is not None and record.verdict.level == "account":
        return _ACCOUNT + _LIMIT[record.reason]
    if rule in _CURES and record.reason in ("not_retryable", "throttle_attempts", "deadline"):
        return _CURES[rule]
    return _ADVICE.get((record.reason, kind)) or _ADVICE.get((record.reason, ""), "")


def _kind_of(record: GiveUp) -> str:
    if record.verdict is None:
        return "gave up"
    return f"{record.verdict.kind.value} ({record.verdict.rule})"


_HIDDEN = "[redacted]"
_SECRET_NAMES = (
    r"x-amz-(?:signature|security-token|credential)|(?:aws_?)?secret(?:_?access)?_?key|aws_?session_?token|session_?token"
    r"|access_?key_?id|awsaccesskeyid|account_?key|shared_?access_?signature|sas_?token|signature|sig|password|passwd"
    r"|token|api_?key|authorization|secret"
)
# Applied in this order. First URLs (with bounds, so that no text takes long), then headers and
# `name=value`, `name: value` and `"name": "value"`, then key ids, then bodies.
_REDACTIONS: tuple[tuple[re.Pattern[str], str], ...] = (
    # abfs://container@account is a place and not a user: there only `name:password@` goes.
    (re.compile(r"(?i)\b(https?://)[^/\s@'\"?#]{1,512}@"), r"\1"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)[^/\s@:'\"?#]{0,256}:[^/\s@'\"?#]{0,512}@"), r"\1"),
    (re.compile(r"(?i)\b(https?://[^\s?'\"<>]{0,4096})\?[^\s'\"<>)]*(?<![:;,.])"), r"\1"),
    (re.compile(r"\?[\w.~%-]+=[^\s'\"<>);,]*(?<![:.])"), ""),
    (re.compile(r"(?i)\b(bearer|sharedkey(?:lite)?|aws4-hmac-sha256)\s+[^\s'\"]+[^'\"\n;]*"), rf"\1 {_HIDDEN}"),
    (
        re.compile(
            rf"(?i)(?<![a-z0-9])({_SECRET_NAMES})(['\"]?\s*[=:]\s*['\"]?)(?!bearer|sharedkey|aws4-)[^\s'\"&;,)}}]+"
        ),
        rf"\1\2{_HIDDEN}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), _HIDDEN),
    (re.compile(r"(?is)<(?:\?xml|!doctype|html|error)\b.*"), "[body]"),
)


def redact(text: str) -> str:
    """Return `text` without credentials, user names in URLs, query strings and XML or HTML bodies."""
    for pattern, replacement in _REDACTIONS:
        text = pattern.sub(replacement, text)
    return text
