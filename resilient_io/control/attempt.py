"""The attempt machine: after each fault of one call, retry after a delay or give up for a reason."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from resilient_io.classify.fault import Applied, Load, Verdict
from resilient_io.control import backoff
from resilient_io.control import budget as retry_budget

if TYPE_CHECKING:
    from resilient_io.errors import Reason

State = Literal["ready", "in_flight", "open", "gave_up"]
Input = Literal["send", "progress", "retry", "give_up"]

# "open": an answer has begun and has delivered something; the next page or part may be sent, and
# the body may still die. A pair that is not here is a bug of the caller.
_NEXT: dict[tuple[State, Input], State] = {
    ("ready", "send"): "in_flight",
    ("ready", "progress"): "ready",
    ("in_flight", "progress"): "open",
    ("in_flight", "retry"): "ready",
    ("in_flight", "give_up"): "gave_up",
    ("open", "send"): "in_flight",
    ("open", "progress"): "open",
    ("open", "retry"): "ready",
    ("open", "give_up"): "gave_up",
}


class IllegalTransition(RuntimeError):
    """Raised when the machine is told something that cannot happen in its state; nothing changes."""


class AttemptLimits(Protocol):
    """What the machine reads of a `Policy`."""

    @property
    def deadline_s(self) -> float:
        """Seconds without progress until the call ends."""
        ...

    @property
    def total_deadline_s(self) -> float | None:
        """Seconds for the whole call; None for no limit."""
        ...

    @property
    def max_attempts(self) -> int:
        """Attempts that may end in faults other than refusals."""
        ...

    @property
    def max_throttle_attempts(self) -> int:
        """Attempts that may end in refusals."""
        ...

    @property
    def backoff_base_s(self) -> float:
        """The upper end of the first delay in seconds."""
        ...

    @property
    def backoff_cap_s(self) -> float:
        """The upper end of all delays in seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait `delay_s` seconds, then ask for admission and send again."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUpNow:
    """Send nothing more for this call; `reason` names the limit that was hit."""

    reason: Reason


class AttemptMachine:
    """Counts the attempts of one call and decides after each fault; not thread-safe.

    `on_send` begins an attempt (call it before the request is signed, so that a failure to get
    credentials is a fault of that attempt), then comes `on_fault`, or `on_progress` for each piece
    that arrives. Progress forgets the faults and refusals so far and restarts `deadline_s`;
    `total_deadline_s` runs from the beginning.

    Without progress a call sends at most `max_attempts` requests if only faults other than refusals
    come back, at most `max_throttle_attempts` if only refusals do, and fewer than their sum if
    both do.
    """

    __slots__ = ("_limits", "_progress_at", "_started_at", "_state", "attempts", "faults", "refusals")

    attempts: int
    """Requests sent so far, over the whole call."""
    faults: int
    """Faults other than refusals since the last progress."""
    refusals: int
    """Refusals since the last progress."""

    def __init__(self, policy: AttemptLimits, now: float) -> None:
        self._limits = policy
        self._started_at = self._progress_at = now
        self._state: State = "ready"
        self.attempts = self.faults = self.refusals = 0

    @property
    def state(self) -> State:
        """Where the call stands: "ready" to send, "in_flight", "open" (data came) or "gave_up"."""
        return self._state

    def deadline_at(self) -> float:
        """Return the instant at which the call ends if nothing arrives before; same clock as `now`."""
        progress_end = self._progress_at + self._limits.deadline_s
        total_s = self._limits.total_deadline_s
        return progress_end if total_s is None else min(progress_end, self._started_at + total_s)

    def passed_deadline(self, at: float) -> Literal["deadline", "total_deadline"] | None:
        """Return which deadline has passed at the instant `at`, or None."""
        total_s = self._limits.total_deadline_s
        if total_s is not None and at >= self._started_at + total_s:
            return "total_deadline"
        return "deadline" if at >= self._progress_at + self._limits.deadline_s else None

    def on_send(self, now: float) -> None:
        """Count one request that is about to be sent."""
        self._state = self._after("send")
        self.attempts += 1

    def on_progress(self, now: float) -> None:
        """Note that something arrived: a byte, a part, a page."""
        self._state = self._after("progress")
        self._progress_at = now
        self.faults = self.refusals = 0

    def on_fault(
        self,
        verdict: Verdict,
        now: float,
        u: float,
        *,
        idempotent: bool,
        budget: MutableSequence[float] | None,
    ) -> Retry | GiveUpNow:
        """Decide what follows the fault of the attempt in flight.

        A refusal draws nothing from `budget` (a record of `control.budget`; None is no budget) and
        is retried for any operation, unless it may have been applied: then the operation must be
        idempotent, as for all other faults. `u` is a uniform drawn in [0, 1). A delay that would
        reach a deadline is not begun: waiting for nothing helps nobody.
        """
        ready = self._after("retry")
        refused = verdict.load is Load.REFUSED
        self._count(refused)
        reason = self._exhausted(verdict, idempotent)
        delay_s = self._delay_s(verdict, u, refused)
        reason = reason or self.passed_deadline(now + delay_s)
        # Last, so that a call which ends anyway takes no token from its neighbours.
        if reason is None and not refused and budget is not None and not retry_budget.withdraw(budget):
            reason = "budget"
        if reason is not None:
            self._state = self._after("give_up")
            return GiveUpNow(reason)
        self._state = ready
        return Retry(delay_s)

    def _count(self, refused: bool) -> None:
        if refused:
            self.refusals += 1
        else:
            self.faults += 1

    def _exhausted(self, verdict: Verdict, idempotent: bool) -> Reason | None:
        """Return why the verdict and the counts alone rule a retry out; the first reason wins."""
        if verdict.applied is Applied.MAYBE and not idempotent:
            return "ambiguous"
        if not verdict.retryable:
            return "not_retryable"
        if self.refusals >= self._limits.max_throttle_attempts:
            return "throttle_attempts"
        return "attempts" if self.faults >= self._limits.max_attempts else None

    def _delay_s(self, verdict: Verdict, u: float, refused: bool) -> float:
        """Return the delay in seconds; Retry-After is a floor, clamped to `backoff_cap_s`.

        The clamp is the policy's cap and not the time left: a service that asks for an hour is
        asked again each `backoff_cap_s` until the deadline, so one absurd header neither ends a
        call that a later attempt would save, nor holds it for the whole deadline.
        """
        return backoff.delay_s(
            self.refusals if refused else self.faults,
            base_s=self._limits.backoff_base_s,
            cap_s=self._limits.backoff_cap_s,
            u=u,
            floor_s=verdict.retry_after_s,
        )

    def _after(self, event: Input) -> State:
        try:
            return _NEXT[self._state, event]
        except KeyError:
            what = "a fault" if event in ("retry", "give_up") else event
            raise IllegalTransition(f"{what} cannot follow in state {self._state!r}") from None
