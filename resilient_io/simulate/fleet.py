"""Clients that keep a number of operations going, each admitted by the law, refused ones tried again with full jitter.

Retries wait for admission like new operations and go before them. With `operations` unset the workload is a closed loop
(a dataloader: each operation that ends is replaced at once); with it each process has that many (a checkpoint).
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass

from resilient_io.control import fleet_split, joining
from resilient_io.control import law as law_of
from resilient_io.control.law import LAW, Constants
from resilient_io.simulate.hub import Cluster, ModelHub
from resilient_io.simulate.measure import Result
from resilient_io.simulate.store import ModelStore, Store

_SERVED, _REFUSED, _RETRY, _WAKE, _EXCHANGE, _HEARD = range(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Who asks, how much, and by which law."""

    processes: int = 64
    callers: int = 8
    """Operations that each process keeps going: threads or tasks."""
    sharing: int = 1
    """Processes that step one record together."""
    cluster: Cluster | None = None
    """How the records hear of each other; None: not at all."""
    share: float | None = None
    """What the law is told of the part of the fleet that each record stands for, true or not; None: nothing."""
    operations: int | None = None
    """By process; None goes on until the end."""
    limited: bool = True
    """False: no law, full jitter alone."""
    law: Constants = LAW
    backoff_base_s: float = 0.2
    backoff_cap_s: float = 20.0
    max_attempts: int = 20
    late_processes: int = 0
    """The last so many processes start at `late_s`."""
    late_s: float = 0.0


@dataclass(slots=True)
class _Operation:
    process: int
    began_at: float
    sent_at: float = 0.0
    refusals: int = 0


class _Simulation:
    def __init__(self, fleet: Fleet, store: Store, seconds: float, warm_s: float, seed: int) -> None:
        self._fleet, self._end_s, self._warm_s = fleet, seconds, warm_s
        self._rng = random.Random(seed)
        self._store = ModelStore(store, self._rng)
        records = -(-fleet.processes // fleet.sharing)
        self._records = [law_of.fresh(0.0) for _ in range(records)]
        for record in self._records:
            record[law_of.SHARE] = fleet.share or 0.0
        self._new: list[deque[_Operation]] = [deque() for _ in range(records)]
        self._again: list[deque[_Operation]] = [deque() for _ in range(records)]
        self._wake_at = [-1.0] * records
        self._left = [math.inf if fleet.operations is None else float(fleet.operations)] * fleet.processes
        self._events: list[tuple[float, int, int, _Operation | int]] = []
        self._order = 0
        self._pending = 0
        self._moved_at = [-math.inf] * records
        self._had = [(0.0, 0.0)] * records
        self._said: dict[int, fleet_split.Entry] = {}
        self._heard: dict[int, fleet_split.Sums | None] = {}
        self._hub = ModelHub(fleet.cluster, self._rng) if fleet.cluster is not None else None
        self._result = Result(processes=fleet.processes, seconds=seconds - warm_s, done=[0] * fleet.processes)
        self._result.served_by_second = [0] * (int(seconds) + 1)

    def run(self) -> Result:
        first_late = self._fleet.processes - self._fleet.late_processes
        for process in range(self._fleet.processes):
            for _ in range(int(min(self._fleet.callers, self._left[process]))):
                start = self._rng.random() * 0.005 + (self._fleet.late_s if process >= first_late else 0.0)
                self._push(start, _RETRY, _Operation(process, start))
                self._pending += 1
                self._left[process] -= 1
        self._begin_exchanges()
        while self._events and self._pending:
            now, _, kind, what = heapq.heappop(self._events)
            if now > self._end_s:
                break
            self._step(now, kind, what)
        self._result.rates_per_s = [law_of.rate_per_s(record) for record in self._records]
        return self._result

    def _push(self, at_s: float, kind: int, what: _Operation | int) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, kind, what))

    def _begin_exchanges(self) -> None:
        if self._hub is not None:
            for record in range(len(self._records)):
                self._push(self._hub.first_s(), _EXCHANGE, record)

    def _exchange(self, record: int, now: float) -> None:
        """A node says what it has; the answer comes after the latency."""
        assert self._hub is not None
        rec, members, backlog = self._records[record], self._members(record), self._has_backlog(record)
        gain = fleet_split.gain_after(now - self._moved_at[record])
        had = fleet_split.proven(rec, now, *self._had[record])
        self._had[record] = (had, now)
        said = self._said[record] = fleet_split.entry_of(rec, now, members, backlog, had=had, gain=gain)
        self._heard[record] = self._hub.exchange(record, said, now)
        self._push(now + self._hub.latency_s, _HEARD, record)

    def _hear(self, record: int, now: float) -> None:
        """Move by what came back, and plan the next exchange."""
        assert self._hub is not None
        others = self._heard.pop(record)
        if others is not None:
            self._move(record, now, others)
        self._push(now + self._hub.pause_s(len(self._records)), _EXCHANGE, record)

    def _move(self, record: int, now: float, others: fleet_split.Sums) -> None:
        rec, members = self._records[record], self._members(record)
        if rec[law_of.LIMITED] != 0.0:
            rec[law_of.SHARE] = fleet_split.share(members, others)
            self._moved_at[record] = now
            fleet_split.move(rec, now, self._said[record], others)
        elif rec[law_of.IN_FLIGHT] > 0.0 and fleet_split.hears_of_limit(others):
            row = joining.row_of(rec, now, rec[law_of.IN_FLIGHT])
            rec[:] = fleet_split.enter_heard([row], now, members, others)
        else:
            rec[law_of.SHARE] = fleet_split.share(members, others)

    def _members(self, record: int) -> float:
        return float(min(self._fleet.sharing, self._fleet.processes - record * self._fleet.sharing))

    def _has_backlog(self, record: int) -> bool:
        return bool(self._again[record] or self._new[record])

    def _step(self, now: float, kind: int, what: _Operation | int) -> None:
        if isinstance(what, int):
            if kind == _EXCHANGE:
                self._exchange(what, now)
            elif kind == _HEARD:
                self._hear(what, now)
                self._pump(what, now)
            elif self._wake_at[what] == now:
                self._wake_at[what] = -1.0
                self._pump(what, now)
            return
        record = what.process // self._fleet.sharing
        if kind == _RETRY:
            (self._again if what.refusals else self._new)[record].append(what)
        elif kind == _SERVED:
            self._served(record, now, what)
        else:
            self._refused(record, now, what)
        self._pump(record, now)

    def _pump(self, record: int, now: float) -> None:
        while self._again[record] or self._new[record]:
            if self._fleet.limited:
                ready = law_of.ready_at(self._records[record], now, self._fleet.law)
                if ready > now:
                    if not now < self._wake_at[record] <= ready:
                        self._wake_at[record] = ready
                        self._push(ready, _WAKE, record)
                    return
                law_of.on_send(self._records[record], now, self._rng.random(), self._fleet.law)
            self._send(now, (self._again[record] or self._new[record]).popleft())

    def _send(self, now: float, operation: _Operation) -> None:
        operation.sent_at = now
        served, after_s = self._store.ask(now)
        result = self._result
        result.requests_all += 1
        result.refused_all += not served
        if now >= self._warm_s:
            result.requests += 1
            result.refused += not served
        self._push(now + after_s, _SERVED if served else _REFUSED, operation)

    def _served(self, record: int, now: float, operation: _Operation) -> None:
        backlog = self._has_backlog(record)
        if self._fleet.limited:
            law_of.on_success(self._records[record], now, operation.sent_at, backlog=backlog, law=self._fleet.law)
        result = self._result
        result.served_by_second[int(now)] += 1
        result.finished_at_s = now
        if now >= self._warm_s:
            result.done[operation.process] += 1
            result.latencies_s.append(now - operation.began_at)
        self._next(record, now, operation.process)

    def _refused(self, record: int, now: float, operation: _Operation) -> None:
        if self._fleet.limited:
            u = self._rng.random()
            law_of.on_refusal(self._records[record], now, operation.sent_at, u, self._fleet.law)
        operation.refusals += 1
        if operation.refusals >= self._fleet.max_attempts:
            self._result.failed += 1
            self._next(record, now, operation.process)
            return
        most = min(self._fleet.backoff_cap_s, self._fleet.backoff_base_s * 2.0 ** (operation.refusals - 1))
        self._push(now + self._rng.random() * most, _RETRY, operation)

    def _next(self, record: int, now: float, process: int) -> None:
        if self._left[process] > 0:
            self._left[process] -= 1
            self._new[record].append(_Operation(process, now))
        else:
            self._pending -= 1


def run(fleet: Fleet, store: Store, *, seconds: float, warm_s: float = 0.0, seed: int = 1) -> Result:
    """Simulate `seconds` of the fleet on the store and return what came of it; the same seed gives the same run.

    The first `warm_s` seconds do not count as measured. A fleet with a number of operations ends when they are done.
    """
    return _Simulation(fleet, store, seconds, warm_s, seed).run()
