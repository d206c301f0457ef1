"""The attempts of one call of a callable: when another follows, after what delay, and what is raised in the end."""

from __future__ import annotations

import logging

from resilient_io import events
from resilient_io.classify import classify
from resilient_io.classify.fault import Verdict
from resilient_io.control.attempt import AttemptMachine, GiveUpNow, Retry
from resilient_io.control.scopes import ScopePath
from resilient_io.drive.call import WAITED, outcome_of
from resilient_io.drive.clock import Clock
from resilient_io.drive.gate import Outcome, Permit, WaitedTooLong
from resilient_io.drive.runtime import Runtime
from resilient_io.errors import GiveUp, Reason, message_of, public_error
from resilient_io.policy import Policy

_log = logging.getLogger("resilient_io")


class Tries:
    """The attempts of one call: the machine, the delay it asked for, and the permit of the one in flight."""

    __slots__ = (
        "_faulted", "_last", "_machine", "_name", "_path", "_permit", "_place", "_policy", "_run",
        "_started_at", "delay_s",
    )  # fmt: skip

    def __init__(self, run: Runtime, policy: Policy, name: str, *, place: str, path: ScopePath | None) -> None:
        self._run = run
        self._policy = policy
        self._name = name
        self._place = place
        self._path = path
        self._permit: Permit | None = None
        self._started_at = run.clock.now()
        self._machine = AttemptMachine(policy, self._started_at)
        self._faulted = False
        self._last: tuple[Exception, Verdict] | None = None
        self.delay_s = 0.0

    @property
    def clock(self) -> Clock:
        """What the delays are slept by."""
        return self._run.clock

    @property
    def attempts(self) -> int:
        """Attempts begun so far."""
        return self._machine.attempts

    # -- before an attempt -------------------------------------------------------------------------

    def admit(self) -> None:
        """Begin an attempt; with a scope, block until it admits one."""
        if self._path is not None:
            try:
                self._permit = self._run.gate.acquire(
                    self._path, self._policy, deadline_at=self._machine.deadline_at(), again=self.attempts > 0
                )
            except WaitedTooLong:
                raise self._waited_too_long() from None
        self._begin()

    async def admit_async(self) -> None:
        """Begin an attempt; with a scope, suspend until it admits one."""
        if self._path is not None:
            try:
                self._permit = await self._run.gate.acquire_async(
                    self._path, self._policy, deadline_at=self._machine.deadline_at(), again=self.attempts > 0
                )
            except WaitedTooLong:
                raise self._waited_too_long() from None
        self._begin()

    def _begin(self) -> None:
        now = self._run.clock.now()
        self._machine.on_send(now)
        permit = self._permit
        if permit is not None and permit.waited_s and events.listening():
            events.emit(
                events.PermitWaited(at_s=now, scope=self._scope, operation=self._name, waited_s=permit.waited_s)
            )

    def _waited_too_long(self) -> BaseException:
        """Return the fault of the attempt before, which tells more; ours where there was none."""
        reason = self._machine.passed_deadline(self._run.clock.now()) or "deadline"
        if self._last is None:
            record = self._record(WAITED, reason)
            self._announce(record)
            return public_error(record, None)
        error, verdict = self._last
        self._give_up(error, verdict, reason)
        return error

    # -- after an attempt --------------------------------------------------------------------------

    def succeeded(self) -> None:
        """Note that the attempt ended without an error."""
        permit, self._permit = self._permit, None
        self._last = None
        if permit is not None:
            permit.free(Outcome.SUCCEEDED)

    def close(self) -> None:
        """Give back the permit of an attempt that was interrupted."""
        permit, self._permit = self._permit, None
        self._last = None
        if permit is not None:
            permit.free()

    def failed(self, error: Exception, verdict: Verdict | None = None) -> bool:
        """Note what the attempt came to; say whether there will be another, after `delay_s`.

        `verdict` is for who knows better than `classify(error)`.
        """
        verdict = verdict if verdict is not None else classify(error)
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.free(outcome_of(verdict))
        now = self._run.clock.now()
        if events.listening():
            events.emit(
                events.AttemptFailed(
                    at_s=now, scope=self._scope, operation=self._name, attempt=self.attempts, verdict=verdict
                )
            )
        if not verdict.retryable:
            # A repeat is no cure, or this library gave up on it already: it goes on as it came.
            return False
        return self._decide(error, verdict, now)

    def _decide(self, error: Exception, verdict: Verdict, now: float) -> bool:
        if not self._faulted:
            # What the callable does inside cannot be seen: the time up to the first fault counts as progress, or a
            # save that runs longer than deadline_s could never be tried again.
            self._faulted = True
            self._machine.on_progress(now)
        gate = self._run.gate
        budget = gate.budget_of(self._path, self._policy) if self._path is not None else None
        u = gate.draw()
        with gate.locked():
            # Whoever wraps a callable in retries says that it may be repeated.
            decision = self._machine.on_fault(verdict, now, u, idempotent=True, budget=budget)
        match decision:
            case Retry(delay_s):
                self._last, self.delay_s = (error, verdict), delay_s
                self._announce_retry(verdict, delay_s, now)
                return True
            case GiveUpNow(reason):
                self._give_up(error, verdict, reason)
        return False

    def _announce_retry(self, verdict: Verdict, delay_s: float, now: float) -> None:
        _log.debug(
            "%s %s: %s (%s), attempt %d, again in %.2f s",
            self._name, self._place, verdict.kind, verdict.rule, self.attempts, delay_s,
        )  # fmt: skip
        if events.listening():
            events.emit(
                events.RetryScheduled(
                    at_s=now,
                    scope=self._scope,
                    operation=self._name,
                    attempt=self.attempts,
                    verdict=verdict,
                    delay_s=delay_s,
                )
            )

    # -- giving up ---------------------------------------------------------------------------------

    @property
    def _scope(self) -> str:
        return str(self._path) if self._path is not None else ""

    def _record(self, verdict: Verdict, reason: Reason) -> GiveUp:
        return GiveUp(
            operation=self._name,
            path=self._place,
            verdict=verdict,
            attempts=self.attempts,
            elapsed_s=self._run.clock.now() - self._started_at,
            scope=self._scope,
            request_id=verdict.request_id,
            reason=reason,
        )

    def _give_up(self, error: Exception, verdict: Verdict, reason: Reason) -> None:
        self._last = None
        record = self._record(verdict, reason)
        self._announce(record)
        _annotate(error, record)

    def _announce(self, record: GiveUp) -> None:
        _log.warning("gave up: %s", message_of(record))
        if events.listening():
            events.emit(
                events.OperationGaveUp(
                    at_s=self._run.clock.now(), scope=self._scope, operation=self._name, record=record
                )
            )


def _annotate(error: Exception, record: GiveUp) -> None:
    """Give the error the attributes of ours and a note; its class and text stay."""
    facts = {
        "resilient_io_gave_up": True,
        "verdict": record.verdict,
        "attempts": record.attempts,
        "elapsed_s": record.elapsed_s,
    }
    for name, value in facts.items():
        try:
            setattr(error, name, value)
        except AttributeError:
            # A read-only property of that name: the note below still tells.
            continue
    # Python 3.11 and newer.
    if hasattr(error, "add_note"):
        error.add_note(f"gave up: {message_of(record)}")
