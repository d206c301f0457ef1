"""What went wrong (`Fault`) and what it means (`Verdict`), as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FaultKind(str, Enum):
    """What a fault is; the values are part of the public interface, and a member equals its value."""

    THROTTLED = "throttled"
    """The service refused for load, and applied nothing: tried again up to `max_throttle_attempts`."""
    TRANSIENT = "transient"
    """It may work the next time: tried again up to `max_attempts`, within the retry budget."""
    AMBIGUOUS = "ambiguous"
    """A write that may have been applied: tried again only where a repeat does no harm."""
    AUTH = "auth"
    """The credentials were not accepted, or there are none: tried again once, newly signed, where `resign` says so."""
    NOT_FOUND = "not_found"
    """There is no such object, bucket or upload."""
    PRECONDITION = "precondition"
    """A condition of the request does not hold: the object exists already, or is another version."""
    FATAL = "fatal"
    """Everything else, what is not allowed and what is not known among it."""
    CLIENT_BUG = "client_bug"
    """This program's own mistake: a request that no service could answer."""

    def __str__(self) -> str:
        return self.value


class Load(str, Enum):
    """Whether a fault speaks of load: a refusal does, a timeout may, a 404 does not."""

    REFUSED = "refused"
    SUSPECTED = "suspected"
    NONE = "none"

    def __str__(self) -> str:
        return self.value


class Applied(str, Enum):
    """Whether the write that failed may have happened at the service all the same."""

    NO = "no"
    MAYBE = "maybe"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The facts of one failed attempt, read off an exception or an answer; nothing is judged yet.

    `types` are the qualified class names of the exception, its bases and the exceptions that it
    wraps, outermost first. `sent` is False only where it is certain that the service never saw the
    request. `gave_up` says that this library already spent its attempts on it.
    """

    provider: str = "unknown"
    operation: str | None = None
    status: int | None = None
    code: str | None = None
    message: str = ""
    types: tuple[str, ...] = ()
    errno: int | None = None
    write: bool = False
    sent: bool = True
    retry_after_s: float | None = None
    request_id: str | None = None
    gave_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a fault means for the caller and for the load. Immutable, hashable, safe in any thread, picklable.

    `load` says whether it speaks of load, and so slows its scope down; `applied` whether the write may have happened.
    `retryable` is False for what this library gave up on, so that a retry loop above sees it.
    `retry_after_s` is the seconds that the service asked for, unclamped, None if it did not; `request_id` is its name
    of the request, for its support. `rule` names the row that decided. `level` is "account"
    where the service says that it is the limit of the whole account that was passed, None where it does not say whose.
    `resign` says that the same request with a new signature, and new credentials where there are any, may succeed.
    """

    kind: FaultKind
    load: Load = Load.NONE
    applied: Applied = Applied.NO
    retryable: bool = False
    retry_after_s: float | None = None
    rule: str = "unknown"
    request_id: str | None = None
    level: str | None = None
    resign: bool = False
