"""The state of one server: its plan, what the plan has done so far, and what was seen.

Everything here runs on the server's event loop; `FaultServer` carries calls from other threads there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from .calls import Backend, Call, Head, Reply, StoreProtocol
from .ceilings import Gatekeeper
from .injector import Injector, drawn_seed
from .ledger import LOG_LIMIT, Exchange, Ledger, Stats
from .plan import Ceiling, FaultAction, FaultPlan, FaultRule, Match, Outage, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a call: refused by `refused_by`, hit by `rule`, or neither; after `latency_s`."""

    refused_by: Ceiling | Outage | None = None
    rule: FaultRule | None = None
    latency_s: float = 0.0


class Engine:
    """A plan at work. `now` gives monotonic seconds for ceilings, outages and the log."""

    def __init__(
        self,
        plan: FaultPlan,
        *,
        protocol: StoreProtocol,
        backend: Backend,
        now: Callable[[], float] = time.monotonic,
        log_limit: int = LOG_LIMIT,
    ) -> None:
        self.protocol, self.backend, self.now = protocol, backend, now
        self.ledger = Ledger(now, log_limit=log_limit)
        self._ids = random.Random()
        self.configure(plan)

    # Control.

    def configure(self, plan: FaultPlan) -> None:
        """Put another plan in force: full buckets, counts of calls from 1, outages from now."""
        self.plan = plan
        self.seed = drawn_seed(plan)
        self._start_plan()

    def reset(self) -> None:
        """Start the plan and the counters afresh, with the same seed."""
        self._start_plan()
        self.ledger.reset()

    def set_rate(self, rate_per_s: float, *, name: str | None = None, burst_s: float | None = None) -> None:
        """Change ceilings by name (None: all); LookupError where there is none of that name."""
        if not self.gatekeeper.set_rate(rate_per_s, name=name, burst_s=burst_s):
            raise LookupError(f"no ceiling named {name!r}; the plan has {[one.name for one in self.ceilings]}")

    def start_outage(self, duration_s: float, *, match: Match | None = None) -> None:
        """Refuse everything that fits for `duration_s` from now; 0 ends every outage."""
        if duration_s > 0:
            self.gatekeeper.add_outage(duration_s, match=match or Match(), now=self.now())
        else:
            self.gatekeeper.end_outages()

    @property
    def ceilings(self) -> tuple[Ceiling, ...]:
        """The ceilings as they stand."""
        return self.gatekeeper.ceilings

    def stats(self) -> Stats:
        """Return the counters as they stand."""
        return self.ledger.stats(seed=self.seed, fired=self._injector.fired)

    def log(self, *, op: str = "*", key: str = "*", outcome: str = "*") -> list[Exchange]:
        """Return the kept log entries that fit the shell patterns."""
        return self.ledger.log(op=op, key=key, outcome=outcome)

    # One request.

    def request_id(self) -> str:
        """Return a fresh id, 16 hex digits as S3's."""
        return f"{self._ids.getrandbits(64):016X}"

    def decide(self, call: Call) -> Decision:
        """Return what becomes of a call that has just come."""
        refused_by = self.gatekeeper.admit(call, self.now())
        latency_s = self._injector.latency_s(self.plan.latency)
        if refused_by is not None:
            own_s = self.refusal_of(refused_by).latency_s
            return Decision(refused_by=refused_by, latency_s=latency_s if own_s is None else own_s)
        return Decision(rule=self._injector.choose(call), latency_s=latency_s)

    def refusal_of(self, refused_by: Ceiling | Outage) -> Refusal:
        """Return how a ceiling or an outage says no."""
        own = refused_by.refusal if isinstance(refused_by, Ceiling) else None
        return own or self.plan.refusal

    def refused(self, head: Head, call: Call, refusal: Refusal, request_id: str) -> Reply:
        """Return the answer of a ceiling or an outage."""
        status, code = self.protocol.refusal()
        reply = self.protocol.error(
            head,
            call,
            status=refusal.status or status,
            code=refusal.code or (code if refusal.status is None else None),
            message=refusal.message,
            request_id=request_id,
        )
        reply.headers += _extra_headers(refusal.retry_after_s, refusal.headers)
        return reply

    def injected(self, head: Head, call: Call, rule: FaultRule, request_id: str) -> Reply:
        """Return the answer that a rule makes up."""
        status, code = self.protocol.refusal()
        reply = self.protocol.error(
            head,
            call,
            status=rule.status or status,
            code=code if rule.code is None and rule.status is None else rule.code,
            message=rule.message,
            request_id=request_id,
        )
        own = {name.lower() for name, _ in rule.headers}
        reply.headers = [pair for pair in reply.headers if pair[0].lower() not in own]
        reply.headers += _extra_headers(rule.retry_after_s, rule.headers)
        if rule.body is not None and head.method != "HEAD":
            reply.body = rule.body.encode()
        return _bent(reply, rule.action)

    def _start_plan(self) -> None:
        self.gatekeeper = Gatekeeper(self.plan.ceilings, self.plan.outages, now=self.now())
        self._injector = Injector(self.plan.rules, seed=self.seed)


def _bent(reply: Reply, action: FaultAction) -> Reply:
    match action:
        case FaultAction.BODYLESS_ERROR:
            reply.body = b""
        case FaultAction.OK_WITH_ERROR:
            reply.status = 200
        case FaultAction.OK_EMPTY:
            reply.status, reply.body = 200, b""
        case FaultAction.INVALID_XML:
            # Cut inside the first inner tag: no parser takes it.
            reply.body = bytes(reply.body)[: bytes(reply.body).find(b"</Code") + 4]
        case _:
            pass
    return reply


def _extra_headers(retry_after_s: float | None, headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    found = [(name, value) for name, value in headers]
    if retry_after_s is not None:
        found.append(("Retry-After", f"{retry_after_s:g}"))
    return found
