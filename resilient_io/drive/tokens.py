"""The services that give out credentials: asked within a scope of their own, and not while what is held still works.

An instance's metadata service, a pod's agent, STS and an identity provider refuse like a store does, and every process
of a job asks them at the same moment. A refusal of theirs is none of the store's; and credentials that are valid for
minutes yet are no reason to fail, nor to ask again with each request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from resilient_io.classify import classify
from resilient_io.classify.fault import FaultKind, Load
from resilient_io.control.scopes import scope_path
from resilient_io.drive.runtime import runtime
from resilient_io.drive.tries import Tries
from resilient_io.policy import Policy

T = TypeVar("T")
REST_S: Final = (5.0, 30.0)
"""Seconds until a service that failed is asked again while what is held is valid: drawn anew each time, so that the
processes that failed together do not come back together."""
# For how long a request may be held up by a renewal that could as well be done later.
_NO_HURRY_S: Final = 1.0


@dataclass(slots=True, eq=False)
class Issuer(Generic[T]):
    """One service that gives out credentials, as one client sees it.

    `name` is what its scope is called: `credentials://<name>`. `held` gives what is there and still valid, or None.
    `policy` gives the policy in force. For any thread and any event loop: nothing here is locked, and two that ask at
    once get an answer each.
    """

    name: str
    policy: Callable[[], Policy]
    held: Callable[[], T | None]
    _rest_until: float = 0.0

    def ask(self, fetch: Callable[[], T]) -> T:
        """Return new credentials; those that are held where the service fails and they are still valid."""
        kept = self._kept_at_rest()
        if kept is not None:
            return kept
        tries = self._tries()
        while True:
            try:
                tries.admit()
                found = fetch()
            except Exception as error:
                kept = self._kept_after(tries, error)
                if kept is not None:
                    return kept
                tries.clock.sleep(tries.delay_s)
            except BaseException:
                tries.close()
                raise
            else:
                tries.succeeded()
                return found

    async def ask_async(self, fetch: Callable[[], Awaitable[T]]) -> T:
        """Return new credentials, as `ask` does."""
        kept = self._kept_at_rest()
        if kept is not None:
            return kept
        tries = self._tries()
        while True:
            try:
                await tries.admit_async()
                found = await fetch()
            except Exception as error:
                kept = self._kept_after(tries, error)
                if kept is not None:
                    return kept
                await tries.clock.sleep_async(tries.delay_s)
            except BaseException:
                tries.close()
                raise
            else:
                tries.succeeded()
                return found

    def _kept_at_rest(self) -> T | None:
        return self.held() if runtime().clock.now() < self._rest_until else None

    def _tries(self) -> Tries:
        path = scope_path(endpoint=f"credentials://{self.name}", op_class="read")
        policy = self.policy()
        if self.held() is not None:
            policy = replace(policy, deadline_s=min(policy.deadline_s, _NO_HURRY_S))
        return Tries(runtime(), policy, "GetCredentials", place=self.name, path=path)

    def _kept_after(self, tries: Tries, error: Exception) -> T | None:
        """Return what is still valid after a failure; None to ask again. Raises the error where that is no use."""
        verdict = classify(error)
        if verdict.kind is FaultKind.THROTTLED:
            # A refusal says nothing of a store's load, and all of this service's.
            verdict = replace(verdict, load=Load.REFUSED)
        again = tries.failed(error, verdict)
        kept = self.held()
        if kept is None:
            if not again:
                raise error
            return None
        run = runtime()
        self._rest_until = run.clock.now() + REST_S[0] + (REST_S[1] - REST_S[0]) * run.gate.draw()
        return kept
