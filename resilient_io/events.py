"""What happened, as frozen records, and who is told.

`at_s` is in seconds on the clock of the driver that emits (monotonic; a manual one in tests).
`scope` is the scope's name for people, `str(ScopePath)`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from resilient_io.classify.fault import Verdict
    from resilient_io.errors import GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """One request failed; `attempt` is 1-based, `latency_s` the seconds from sending to the fault."""

    at_s: float
    scope: str
    operation: str
    attempt: int
    verdict: Verdict
    latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """The next attempt follows after `delay_s` seconds; `attempt` is the one that failed."""

    at_s: float
    scope: str
    operation: str
    attempt: int
    verdict: Verdict
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged:
    """The rate that a scope may send at changed; None is no limit. `reason` is a word for the report."""

    at_s: float
    scope: str
    rate_per_s: float | None
    previous_rate_per_s: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitWaited:
    """A request waited `waited_s` seconds for admission; not emitted where nothing was waited for."""

    at_s: float
    scope: str
    operation: str
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationGaveUp:
    """A call ended in a give-up; `record` holds its attempts, seconds, verdict and reason."""

    at_s: float
    scope: str
    operation: str
    record: GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyUnverified:
    """A body was handed on that came without a length and a checksum: nobody can tell whether it is whole.

    `path` is the URL of the object. With `verify="strict"` such a body is an error instead.
    """

    at_s: float
    scope: str
    operation: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHedged:
    """A read was sent a second time after `after_s` seconds; `won` says whether the second request was the sooner.

    `elapsed_s` is what the read took until its first answer.
    """

    at_s: float
    scope: str
    operation: str
    after_s: float
    elapsed_s: float
    won: bool


Event = AttemptFailed | RetryScheduled | LimitChanged | PermitWaited | OperationGaveUp | BodyUnverified | ReadHedged


class Observer(Protocol):
    """Is called with each event, in the thread where it happened; must be quick and must not block."""

    def __call__(self, event: Event, /) -> object:
        """Take one event."""
        ...


# Keyed by a token of its own, so that one observer can subscribe twice. Single operations on a dict
# are atomic, hence no lock that a fork could leave held.
_observers: dict[object, Observer] = {}


def subscribe(observer: Observer) -> Callable[[], None]:
    """Call `observer` with each event from now on; the returned function ends that, and may be called twice."""
    token = object()
    _observers[token] = observer

    def unsubscribe() -> None:
        _observers.pop(token, None)

    return unsubscribe


def listening() -> bool:
    """Return whether anybody listens; where not, an event need not be built."""
    return bool(_observers)


def emit(event: Event) -> None:
    """Tell all observers, in the order of their subscription.

    An observer that raises is dropped with one RuntimeWarning: watching must never fail a read.
    """
    if not _observers:
        return
    for token, observer in list(_observers.items()):
        try:
            observer(event)
        except Exception as error:
            _drop(token, observer, error)


def _drop(token: object, observer: Observer, error: Exception) -> None:
    # Of two threads in which it fails at once, one warns.
    if _observers.pop(token, None) is None:
        return
    # Under `-W error` the warning is raised, which must not reach the operation either.
    with contextlib.suppress(Warning):
        warnings.warn(f"observer {observer!r} raised {error!r} and is no longer called", RuntimeWarning, stacklevel=4)
