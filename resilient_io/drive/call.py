"""One request of an SDK over all its attempts: admission before each, a verdict after each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from resilient_io import events
from resilient_io.classify.fault import Applied, FaultKind, Load, Verdict
from resilient_io.classify.operations import is_idempotent, is_write, repeat_is_told
from resilient_io.control.attempt import AttemptMachine, GiveUpNow, Retry
from resilient_io.control.scopes import ScopePath
from resilient_io.drive.gate import Outcome, Permit, WaitedTooLong
from resilient_io.drive.operation import BodyHold, Operation, Surface, body_hold
from resilient_io.drive.runtime import Runtime
from resilient_io.errors import GaveUp, GiveUp, Reason
from resilient_io.policy import Policy

_log = logging.getLogger("resilient_io")

# What a verdict says of the load, for the law.
_OUTCOMES: Final = {
    Load.REFUSED: Outcome.REFUSED,
    Load.SUSPECTED: Outcome.SUSPECTED,
    Load.NONE: Outcome.DROPPED,
}
# Answers such as 404 and 412 came from a service that did its work: for the law they are successes.
_ANSWERED: Final = frozenset({FaultKind.NOT_FOUND, FaultKind.PRECONDITION, FaultKind.CLIENT_BUG, FaultKind.AUTH})
# What the ledger keeps: faults that say nothing of the object, so that nobody may take them for an absence.
_HIDES_THE_TRUTH: Final = frozenset({FaultKind.THROTTLED, FaultKind.TRANSIENT, FaultKind.AMBIGUOUS, FaultKind.AUTH})
# A permit that did not come in time: the scope is limited, but no request of this call was refused.
WAITED: Final = Verdict(kind=FaultKind.THROTTLED, load=Load.NONE, applied=Applied.NO, rule="waited-for-permit")


def outcome_of(verdict: Verdict) -> Outcome:
    """Return what a verdict says of the load, for the law."""
    answered = verdict.kind in _ANSWERED and verdict.load is Load.NONE
    if verdict.kind is FaultKind.CLIENT_BUG and verdict.request_id is None:
        # Found on this side, by the SDK or in the caller's own code: no service has answered.
        answered = False
    return Outcome.SUCCEEDED if answered else _OUTCOMES[verdict.load]


class Call:
    """The attempts of one request; made for one task or thread, not to be shared.

    `judged_as` is the name under which its faults are judged: that of the operation, with a qualifier
    where the write is conditional. `place` gives the URL of what it is about, for people: most
    requests never need one. A `nested` call is sent by the SDK while it prepares another one (S3
    Express asks for a session): it takes no permit, because at the cap it would wait for the one that
    waits for it. `blob` names the object within its prefix, where objects have limits of their own.
    """

    __slots__ = (
        "_blob", "_machine", "_nested", "_permit", "_place", "_resigned", "_runtime", "_started_at", "give_up",
        "judged_as", "lost_answer", "name", "operation", "path", "policy", "verdict",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        operation: Operation,
        *,
        name: str,
        judged_as: str,
        place: Callable[[], str],
        path: ScopePath,
        policy: Policy,
        nested: bool = False,
        blob: str = "",
    ) -> None:
        self._runtime = runtime
        self._started_at = runtime.clock.now()
        self._machine = self._machine_of(policy)
        self._permit: Permit | None = None
        self.operation = operation
        self.name = name
        self.judged_as = judged_as
        self._place = place
        self.path = path
        self.policy = policy
        self.lost_answer = False
        self._resigned = False
        self._nested = nested
        self._blob = blob
        self.verdict: Verdict | None = None
        self.give_up: GiveUp | None = None

    def _machine_of(self, policy: Policy) -> AttemptMachine:
        hold = body_hold()
        if hold is None:
            return AttemptMachine(policy, self._started_at)
        hold.call = self
        if hold.machine is None:
            hold.machine = AttemptMachine(policy, self._started_at)
        return hold.machine

    @property
    def machine(self) -> AttemptMachine:
        """What counts the attempts; the one who reads the body goes on with it."""
        return self._machine

    @property
    def place(self) -> str:
        """The URL of what the call is about."""
        return self._place()

    def is_about(self, place: Callable[[], str]) -> None:
        """Say anew what the call is about: of many things it asked for, those that are left."""
        self._place = place

    @property
    def attempts(self) -> int:
        """Requests sent so far."""
        return self._machine.attempts

    # -- before an attempt -------------------------------------------------------------------------

    def admit(self) -> None:
        """Block until the scope admits the next attempt. Raises WaitedTooLong at the deadline."""
        if self._nested:
            self._sending()
            return
        try:
            self._permit = self._runtime.gate.acquire(
                self.path,
                self.policy,
                deadline_at=self._machine.deadline_at(),
                again=self._machine.attempts > 0,
                blob=self._blob,
            )
        except WaitedTooLong:
            self._waited_too_long()
            raise
        self._sending()

    async def admit_async(self) -> None:
        """Suspend until the scope admits the next attempt. Raises WaitedTooLong at the deadline."""
        if self.operation.surface is Surface.FILESYSTEM:
            self.operation.works_in(asyncio.current_task())
        if self._nested:
            self._sending()
            return
        try:
            self._permit = await self._runtime.gate.acquire_async(
                self.path,
                self.policy,
                deadline_at=self._machine.deadline_at(),
                again=self._machine.attempts > 0,
                blob=self._blob,
            )
        except WaitedTooLong:
            self._waited_too_long()
            raise
        self._sending()

    def _sending(self) -> None:
        machine, now = self._machine, self._runtime.clock.now()
        if machine.state == "in_flight":
            # The SDK itself goes again after an answer that is no fault of ours: a region redirect.
            machine.on_progress(now)
        machine.on_send(now)
        permit = self._permit
        if permit is not None and permit.waited_s and events.listening():
            events.emit(
                events.PermitWaited(at_s=now, scope=str(self.path), operation=self.name, waited_s=permit.waited_s)
            )

    def _waited_too_long(self) -> None:
        if self.verdict is None:
            self.verdict = WAITED
        reason = self._machine.passed_deadline(self._runtime.clock.now()) or "deadline"
        self._record(self.verdict, reason)

    # -- after an attempt --------------------------------------------------------------------------

    def succeeded(self, *, body_follows: bool = False) -> None:
        """Note an answer that is none of our faults; with a body to come, its reader may keep the permit."""
        hold = body_hold() if body_follows else None
        if hold is not None:
            self.leave_permit(hold)
            return
        self.verdict = self.give_up = None
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.free(Outcome.SUCCEEDED)

    def moves(self, moved_bytes: int) -> None:
        """Note how many bytes the body of the answer, or of the request that was answered, holds."""
        if self._permit is not None:
            self._permit.moved_bytes = moved_bytes

    def leave_permit(self, hold: BodyHold) -> None:
        """Note an answer that is none of our faults, and leave its permit to the one who reads its body."""
        self.verdict = self.give_up = None
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.settle(Outcome.SUCCEEDED)
            hold.free()
            hold.permit = permit

    def failed(self, verdict: Verdict) -> None:
        """Note what the attempt came to, and give the permit back."""
        self.verdict = verdict
        self.lost_answer = self.lost_answer or verdict.applied is Applied.MAYBE
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.charge = verdict.level
            permit.free(outcome_of(verdict))
        if events.listening():
            events.emit(
                events.AttemptFailed(
                    at_s=self._runtime.clock.now(),
                    scope=str(self.path),
                    operation=self.name,
                    attempt=self.attempts,
                    verdict=verdict,
                )
            )

    def progressed(self) -> None:
        """Note that a part of the answer's body arrived: the faults so far are forgotten, the deadline runs anew."""
        self._machine.on_progress(self._runtime.clock.now())

    def take_over(self, operation: Operation) -> None:
        """Go on as the request whose answer is used, for `operation` and with all attempts of the policy but this one.

        It was the second one of a hedged read, which has one attempt.
        """
        now = self._runtime.clock.now()
        self.operation = operation
        self._machine = AttemptMachine(self.policy, now)
        self._machine.on_send(now)

    def unverified(self) -> None:
        """Note that the body came without a length and a checksum: nobody can tell whether it is whole."""
        gate, now = self._runtime.gate, self._runtime.clock.now()
        with gate.locked():
            gate.lane_of(self.path, self.policy, now).leaf.tally.unverified += 1
        if events.listening():
            events.emit(events.BodyUnverified(at_s=now, scope=str(self.path), operation=self.name, path=self._place()))

    def close(self) -> None:
        """Give back the permit, however the attempt ended; what was not settled counts as dropped."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.free()

    def decide(self) -> float | None:
        """Return the delay in seconds before the next attempt, or None if there is none."""
        verdict = self.verdict
        if verdict is None:
            return None
        if verdict.kind is FaultKind.AUTH or verdict.kind not in _HIDES_THE_TRUTH:
            return self._signed_anew(verdict)
        gate, now = self._runtime.gate, self._runtime.clock.now()
        budget, u = gate.budget_of(self.path, self.policy), gate.draw()
        repeatable = is_idempotent(self.judged_as) or repeat_is_told(self.judged_as)
        with gate.locked():
            decision = self._machine.on_fault(verdict, now, u, idempotent=repeatable, budget=budget)
        match decision:
            case Retry(delay_s):
                self._announce_retry(verdict, delay_s, now)
                return delay_s
            case GiveUpNow(reason):
                self._record(verdict, reason)
        return None

    def concluded(self, verdict: Verdict) -> None:
        """Note what the call came to in the end, where that was found out after its attempts."""
        self.verdict = verdict
        self._record(verdict, "not_retryable")

    def _signed_anew(self, verdict: Verdict) -> float | None:
        """Return no delay for the one attempt with a new signature, where that may help; else None."""
        if verdict.resign and not self._resigned:
            self._resigned, now = True, self._runtime.clock.now()
            again = replace(verdict, retryable=True)
            if isinstance(self._machine.on_fault(again, now, 0.0, idempotent=True, budget=None), Retry):
                self._announce_retry(verdict, 0.0, now)
                return 0.0
        self._record(verdict, "not_retryable")
        return None

    def _announce_retry(self, verdict: Verdict, delay_s: float, now: float) -> None:
        _log.debug(
            "%s %s: %s (%s), attempt %d, again in %.2f s",
            self.name, self._place(), verdict.kind, verdict.rule, self.attempts, delay_s,
        )  # fmt: skip
        if events.listening():
            events.emit(
                events.RetryScheduled(
                    at_s=now,
                    scope=str(self.path),
                    operation=self.name,
                    attempt=self.attempts,
                    verdict=verdict,
                    delay_s=delay_s,
                )
            )

    def _record(self, verdict: Verdict, reason: Reason) -> None:
        if self.lost_answer and verdict.kind in _HIDES_THE_TRUTH and repeat_is_told(self.judged_as):
            # Whatever ended it, an earlier attempt may have done the work. A repeat would have been refused.
            verdict = replace(verdict, kind=FaultKind.AMBIGUOUS, applied=Applied.MAYBE, retryable=False)
            self.verdict = verdict
        if reason == "not_retryable" and verdict.kind is FaultKind.AMBIGUOUS:
            reason = "ambiguous"
        self.give_up = GiveUp(
            operation=self.name,
            path=self._place(),
            verdict=verdict,
            attempts=self.attempts,
            elapsed_s=self._runtime.clock.now() - self._started_at,
            scope=str(self.path),
            request_id=verdict.request_id,
            reason=reason,
        )

    def gave_up(self, error: BaseException) -> GaveUp:
        """Return the give-up to raise, tell the log and the listeners, and enter it in the operation's ledger."""
        assert self.give_up is not None
        gave_up = GaveUp(self.give_up, error)
        if not self.operation.is_hedge:
            self._tell(gave_up)
        # Last: other threads of the operation stop at what they find there, and their errors are poorer.
        self.operation.ledger.append(gave_up)
        return gave_up

    def _tell(self, gave_up: GaveUp) -> None:
        _log.warning("gave up: %s", gave_up)
        if events.listening():
            now, scope = self._runtime.clock.now(), str(self.path)
            events.emit(events.OperationGaveUp(at_s=now, scope=scope, operation=self.name, record=gave_up.record))

    # -- a write whose answer was lost -------------------------------------------------------------

    def may_be_looked_up(self) -> bool:
        """Say whether looking at the store may tell what a write whose answer was lost came to.

        Not after a deadline: nobody waits any more.
        """
        give_up = self.give_up
        if give_up is None or not self.lost_answer:
            return False
        return give_up.reason not in ("deadline", "total_deadline") and is_write(self.judged_as)

    def lookup(self) -> Operation:
        """Return the operation that looks: with this one's policy, and one attempt if all of this one's are spent."""
        spent = self.give_up is not None and self.give_up.reason in ("attempts", "throttle_attempts", "budget")
        overlay = self.operation.overlay
        return Operation(
            name=f"look up {self.name}",
            surface=Surface.CLIENT,
            overlay=overlay,
            most_attempts=1 if spent else None,
            is_lookup=True,
        )

    def is_refused(self, verdict: Verdict) -> None:
        """Note that the refusal is no echo of our own success: the store was looked at, and it is not ours."""
        assert self.give_up is not None
        self.verdict = verdict
        self.give_up = replace(self.give_up, verdict=verdict, reason="not_retryable")

    def hides_the_truth(self) -> bool:
        """Say whether what was given up must not be taken for an answer about the object."""
        return (
            self.give_up is not None
            and self.give_up.verdict is not None
            and (self.give_up.verdict.kind in _HIDES_THE_TRUTH)
        )
