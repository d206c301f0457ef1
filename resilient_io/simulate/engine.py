"""The run: operations are admitted by the law, refused ones tried again with full jitter, in the order of model time.

Retries wait for admission like new operations and go before them. With `operations` unset the workload is a closed loop
(a dataloader: each operation that ends is replaced at once); with it each process has that many (a checkpoint).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from resilient_io.control import law as law_of
from resilient_io.control import line
from resilient_io.control.scopes import ScopePath
from resilient_io.simulate.client import Client, Lane
from resilient_io.simulate.exchange import Exchange
from resilient_io.simulate.fleet import Fleet
from resilient_io.simulate.measure import Result
from resilient_io.simulate.service import ModelService, Service
from resilient_io.simulate.store import Store


@dataclass(slots=True, eq=False)
class _Job:
    """A fleet at work."""

    fleet: Fleet
    result: Result
    left: list[float]
    begun: list[int]
    clients: list[Client[_Operation]]
    paths: dict[int, ScopePath] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Operation:
    job: _Job
    process: int
    prefix: int
    lane: Lane[_Operation]
    began_at: float
    blob: str = ""
    queued_at: float = 0.0
    sent_at: float = 0.0
    refusals: int = 0
    said: str | None = None


class Simulation:
    """Some fleets on one service. `together`: their processes of one number are the same process."""

    def __init__(self, service: Service, seconds: float, warm_s: float, seed: int, *, whole_path: bool) -> None:
        """Prepare `seconds` of model time of which the first `warm_s` are not measured."""
        self._service, self._end_s, self._warm_s = service, seconds, warm_s
        self._rng = random.Random(seed)
        self._model = ModelService(service, self._rng)
        self._whole_path = whole_path
        self._jobs: list[_Job] = []
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = 0
        self._now = 0.0
        self._pending = 0

    def add(self, fleet: Fleet, clients: list[Client[_Operation]] | None = None) -> list[Client[_Operation]]:
        """Add a fleet, with clients of its own or those of another one; return them."""
        if clients is None:
            make = Client[_Operation]
            clients = [
                make(fleet.law, fleet.share, fleet.members(number), whole_path=self._whole_path)
                for number in range(fleet.records())
            ]
        measured_s = self._end_s - max(self._warm_s, fleet.begin_s)
        result = Result(processes=fleet.processes, seconds=measured_s, done=[0] * fleet.processes)
        result.served_by_second, result.refused_by_second = ([0] * (int(self._end_s) + 1) for _ in range(2))
        each = math.inf if fleet.operations is None else float(fleet.operations)
        left = [math.inf] * fleet.lasting + [each] * (fleet.processes - fleet.lasting)
        self._jobs.append(_Job(fleet, result, left, [0] * fleet.processes, clients))
        return clients

    def run(self) -> list[Result]:
        """Run to the end, or until nothing is left to do; return a result for each fleet."""
        for job in self._jobs:
            self._begin(job)
        for job in self._jobs:
            if job.fleet.cluster is not None:
                self._begin_exchanges(job)
        events = self._events
        while events and self._pending:
            now, _, step = heapq.heappop(events)
            if now > self._end_s:
                break
            self._now = now
            step(now)
        for job in self._jobs:
            path = self._path(job, job.fleet.prefixes[0])
            job.result.rates_per_s = [law_of.rate_per_s(client.lane(path).leaf) for client in job.clients]
        return [job.result for job in self._jobs]

    # -- beginning ---------------------------------------------------------------------------------

    def _begin(self, job: _Job) -> None:
        fleet = job.fleet
        first_late = fleet.processes - fleet.late_processes
        for process in range(fleet.processes):
            for _ in range(int(min(fleet.callers, job.left[process]))):
                late_s = fleet.late_s if process >= first_late else 0.0
                start = self._rng.random() * 0.005 + fleet.begin_s + late_s
                self._push(start, partial(self._enter, self._operation(job, process, start)))
                self._pending += 1
                job.left[process] -= 1

    def _begin_exchanges(self, job: _Job) -> None:
        assert job.fleet.cluster is not None
        exchange = Exchange.of(job.fleet.cluster, self._rng)
        path = self._path(job, job.fleet.prefixes[0])
        for number, client in enumerate(job.clients):
            lane = client.lane(path)
            exchange.add(lane.leaf, job.fleet.members(number))
            self._push(exchange.hub.first_s(), partial(self._exchange, exchange, number, lane))

    def _exchange(self, exchange: Exchange, number: int, lane: Lane[_Operation], now: float) -> None:
        at = exchange.say(number, now, backlog=bool(lane.again or lane.new))
        self._push(at, partial(self._hear, exchange, number, lane))

    def _hear(self, exchange: Exchange, number: int, lane: Lane[_Operation], now: float) -> None:
        self._push(exchange.hear(number, now), partial(self._exchange, exchange, number, lane))
        self._pump(lane, now)

    def _push(self, at_s: float, step: Callable[[float], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, step))

    # -- operations --------------------------------------------------------------------------------

    def _path(self, job: _Job, prefix: int) -> ScopePath:
        path = job.paths.get(prefix)
        if path is None:
            path = job.paths[prefix] = self._service.path(prefix)
        return path

    def _operation(self, job: _Job, process: int, now: float) -> _Operation:
        fleet, number = job.fleet, job.begun[process]
        job.begun[process] = number + 1
        prefix = fleet.prefix_of(process, number, self._rng)
        blob = str(int(self._rng.random() * fleet.blobs)) if fleet.blobs else ""
        lane = job.clients[process // fleet.sharing].lane_of(self._path(job, prefix), blob, now)
        return _Operation(job, process, prefix, lane, now, blob)

    def _enter(self, operation: _Operation, now: float) -> None:
        lane = operation.lane
        operation.queued_at = now
        (lane.again if operation.refusals else lane.new).append(operation)
        self._pump(lane, now)

    def _pump(self, lane: Lane[_Operation], now: float) -> None:
        if lane.again or lane.new or lane.client.lines:
            line.pump(lane.place, now, self)

    # What `control.line` asks, as it asks the gate.

    def rank(self, owner: Lane[_Operation], now: float) -> line.Rank | None:
        """Return the rank of the first operation of a lane; None if none waits, or the lane itself lets none go."""
        while owner.again or owner.new:
            first = (owner.again or owner.new)[0]
            at = owner.held_until(now) if first.job.fleet.limited else now
            if at > now:
                self.arm(owner, at)
                return None
            if first.job.fleet.limited:
                return not owner.again, first.queued_at
            self._send(now, (owner.again or owner.new).popleft())
        return None

    def send(self, owner: Lane[_Operation], now: float) -> None:
        """Send the first operation of a lane."""
        owner.on_send(now, self._rng.random())
        self._send(now, (owner.again or owner.new).popleft())

    def arm(self, owner: Lane[_Operation], at: float) -> bool:
        """See that a lane is looked at again at `at`."""
        if not self._now < owner.wake_at <= at:
            owner.wake_at = at
            self._push(at, partial(self._wake, owner))
        return True

    def _wake(self, lane: Lane[_Operation], now: float) -> None:
        if lane.wake_at == now:
            lane.wake_at = -1.0
            self._pump(lane, now)

    def _send(self, now: float, operation: _Operation) -> None:
        operation.sent_at = now
        answer = self._model.ask(now, operation.prefix, operation.blob)
        result = operation.job.result
        result.requests_all += 1
        result.refused_all += not answer.served
        if now >= self._warm_s:
            result.requests += 1
            result.refused += not answer.served
        operation.said = answer.said
        self._push(now + answer.after_s, partial(self._served if answer.served else self._refused, operation))

    def _served(self, operation: _Operation, now: float) -> None:
        job, lane = operation.job, operation.lane
        if job.fleet.limited:
            lane.on_served(now, operation.sent_at, operation.blob)
        result = job.result
        result.served_by_second[int(now)] += 1
        result.finished_at_s = now
        if now >= self._warm_s:
            result.done[operation.process] += 1
            result.latencies_s.append(now - operation.began_at)
        self._next(job, now, operation.process, lane)

    def _refused(self, operation: _Operation, now: float) -> None:
        job, fleet, lane = operation.job, operation.job.fleet, operation.lane
        if fleet.limited:
            lane.on_refused(now, operation.sent_at, self._rng.random(), operation.said, operation.blob)
        job.result.refused_by_second[int(now)] += 1
        operation.refusals += 1
        if operation.refusals >= fleet.max_attempts:
            job.result.failed += 1
            self._next(job, now, operation.process, lane)
        else:
            most = min(fleet.backoff_cap_s, fleet.backoff_base_s * 2.0 ** (operation.refusals - 1))
            if operation.blob:  # it may have been found to be hot meanwhile
                path = self._path(job, operation.prefix)
                operation.lane = job.clients[operation.process // fleet.sharing].lane_of(path, operation.blob, now)
            self._push(now + self._rng.random() * most, partial(self._enter, operation))
            self._pump(lane, now)

    def _next(self, job: _Job, now: float, process: int, lane: Lane[_Operation]) -> None:
        """Begin the next operation of a process, and let those go who wait for what an answer in `lane` gave back."""
        if job.left[process] > 0:
            job.left[process] -= 1
            self._follow(job, now, process, lane)
        else:
            self._pending -= 1
        self._pump(lane, now)

    def _follow(self, job: _Job, now: float, process: int, lane: Lane[_Operation]) -> None:
        at = now + (self._rng.random() * 2.0 * job.fleet.pause_s if job.fleet.pause_s > 0.0 else 0.0)
        operation = self._operation(job, process, at)
        if at > now:
            self._push(at, partial(self._enter, operation))
        else:
            operation.queued_at = now
            operation.lane.new.append(operation)
            if operation.lane is not lane:
                self._pump(operation.lane, now)


def run(fleet: Fleet, store: Store, *, seconds: float, warm_s: float = 0.0, seed: int = 1) -> Result:
    """Simulate `seconds` of the fleet on one prefix and return what came of it; the same seed gives the same run.

    The first `warm_s` seconds do not count as measured. A fleet with a number of operations ends when they are done.
    """
    simulation = Simulation(Service(prefix=store), seconds, warm_s, seed, whole_path=False)
    simulation.add(fleet)
    return simulation.run()[0]


def run_together(
    fleets: Sequence[Fleet],
    service: Service,
    *,
    seconds: float,
    warm_s: float = 0.0,
    seed: int = 1,
    same_processes: bool = False,
) -> list[Result]:
    """Simulate some fleets on one service, every level of their scopes asked; return a result for each.

    `same_processes`: process n of each fleet is one process, that does the work of all of them with one set of records;
    they must have as many processes, shared alike. Raises ValueError if they have not, or if a fleet of several
    prefixes has a cluster.
    """
    if any(fleet.cluster is not None and len(fleet.prefixes) > 1 for fleet in fleets):
        raise ValueError("a cluster is simulated for a fleet with one prefix only")
    if same_processes and len({(fleet.processes, fleet.sharing) for fleet in fleets}) > 1:
        raise ValueError("fleets of the same processes have as many of them, and share their records alike")
    simulation = Simulation(service, seconds, warm_s, seed, whole_path=True)
    clients = None
    for fleet in fleets:
        made = simulation.add(fleet, clients)
        clients = made if same_processes else None
    return simulation.run()
