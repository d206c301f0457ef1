"""Sending a slow read a second time, and taking the sooner answer: for tasks, and for threads.

A task that lost is cancelled, and its permit is back before the winner goes on. A thread cannot be cancelled: one that
lost throws its answer away when it comes, and gives its permit back then, because until then the store works for it.
The second request is sent at once or not at all: it never waits for a permit.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from resilient_io import events
from resilient_io.control import law
from resilient_io.control.attempt import AttemptMachine
from resilient_io.control.hedge import Hedging
from resilient_io.control.scopes import ScopePath
from resilient_io.drive.operation import BodyHold, Operation, Surface, current, made_current
from resilient_io.drive.runtime import Runtime
from resilient_io.drive.scope import Lane
from resilient_io.policy import Policy

T = TypeVar("T")

# The second request gets a permit that is there, or none; a deadline has to be more than 0.
_AT_ONCE_S: Final = 0.001
# A body up to this size counts as answered when all of it is here, a larger one when its headers are: the time for its
# bytes says nothing of the store's delay, and two of them would double what is moved.
WHOLE_BYTES: Final = 2**20


class Hedge:
    """One read that may be sent twice: when, and what becomes of it. Made for one task or thread."""

    __slots__ = ("_began_at", "_hedging", "_lane", "_name", "_own", "_path", "_run", "delay_s", "operation")

    def __init__(self, run: Runtime, path: ScopePath, policy: Policy, name: str) -> None:
        self._run = run
        self._path = path
        self._name = name
        self.operation = outer = current()
        # What the first request gives up is nobody's give-up if the second one is answered.
        self._own = replace(outer, ledger=[], _others=None) if outer is not None else None
        with run.gate.locked():
            self._began_at = now = run.clock.now()
            self._lane = lane = run.gate.lane_of(path, policy, now)
            self._hedging = lane.leaf.hedging = lane.leaf.hedging or Hedging()
            _note_limits(self._hedging, lane, now)
            self.delay_s = self._hedging.begin(now)

    @property
    def own_operation(self) -> Operation | None:
        """What the first request works for until the read is decided; None outside of any operation."""
        return self._own

    def first_request(self) -> AbstractContextManager[object]:
        """Make what is sent inside the first request, with a ledger of its own until the read is decided."""
        return nullcontext() if self._own is None else made_current(self._own)

    def failed(self) -> None:
        """Note that the read failed: what the first request gave up was given up."""
        if self.operation is not None and self._own is not None:
            self.operation.ledger.extend(self._own.ledger)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the read was sent first."""
        return self._run.clock.now() - self._began_at

    async def wait(self, first: asyncio.Future[Any]) -> bool:
        """Wait for the first request until it counts as late; say whether it is done."""
        return await self._run.clock.wait_async(first, self.delay_s)

    def take(self) -> bool:
        """Say whether the second request may be sent now, and count it."""
        with self._run.gate.locked():
            now = self._run.clock.now()
            _note_limits(self._hedging, self._lane, now)
            operation = self.operation
            if (operation is not None and operation.was_hedged) or not self._hedging.take(now):
                return False
            if operation is not None:
                operation.was_hedged = True
            self._lane.leaf.tally.hedged += 1
            return True

    def answered(self) -> None:
        """Note that the first request has its answer, or loses now."""
        with self._run.gate.locked():
            self._hedging.answered(self.elapsed_s)

    def decided(self, *, won: bool) -> None:
        """Note how a read that was sent twice ended: whether the second request was the sooner."""
        if won:
            with self._run.gate.locked():
                self._lane.leaf.tally.hedges_won += 1
        if events.listening():
            events.emit(
                events.ReadHedged(
                    at_s=self._run.clock.now(),
                    scope=str(self._path),
                    operation=self._name,
                    after_s=self.delay_s or 0.0,
                    elapsed_s=self.elapsed_s,
                    won=won,
                )
            )


def _note_limits(hedging: Hedging, lane: Lane, now: float) -> None:
    for level in lane.levels:
        refused_at = now if law.is_limited(level.rate) else level.rate[law.REALLY_REFUSED_AT]
        hedging.limited_at(refused_at)


@contextlib.contextmanager
def second_request(run: Runtime, policy: Policy) -> Iterator[BodyHold]:
    """Make what is sent inside one request without retries, whose failure is nobody's give-up."""
    once = replace(policy, max_attempts=1, max_throttle_attempts=1, deadline_s=_AT_ONCE_S)
    hold = BodyHold(machine=AttemptMachine(once, run.clock.now()))
    outer = current()
    operation = Operation(
        name=outer.name if outer is not None else "hedge",
        surface=outer.surface if outer is not None else Surface.CLIENT,
        overlay=outer.overlay if outer is not None else None,
        is_hedge=True,
    )
    with made_current(operation), hold:
        yield hold


# -- tasks -------------------------------------------------------------------------------------------


async def first_of_tasks(
    hedge: Hedge,
    first: Callable[[], Awaitable[T]],
    second: Callable[[], Awaitable[T]],
    *,
    drop: Callable[[T], object],
    is_whole: Callable[[T], bool] = lambda _: True,
) -> T:
    """Return the answer that is whole first; the other task is cancelled, and what it brought goes to `drop`.

    Where the second one fails the first is waited for, and what that comes to is what is raised.
    """
    tasks: list[asyncio.Future[T]] = [asyncio.ensure_future(first())]
    try:
        if hedge.delay_s is not None and not await hedge.wait(tasks[0]) and hedge.take():
            tasks.append(asyncio.ensure_future(second()))
        return await _sooner(hedge, tasks, is_whole)
    finally:
        await _end(tasks, drop)


async def _sooner(hedge: Hedge, tasks: list[asyncio.Future[T]], is_whole: Callable[[T], bool]) -> T:
    pending = set(tasks)
    won = False
    while pending and not won:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0] in done and (len(tasks) == 1 or _is_good(tasks[0], is_whole)):
            break
        won = len(tasks) > 1 and tasks[1] in done and _is_good(tasks[1], is_whole)
    if won or _is_good(tasks[0], is_whole):
        hedge.answered()
    elif tasks[0].cancelled() or tasks[0].exception() is not None:
        hedge.failed()
    if len(tasks) > 1:
        hedge.decided(won=won)
    winner = tasks.pop(1 if won else 0)
    return await winner


def _is_good(task: asyncio.Future[T], is_whole: Callable[[T], bool]) -> bool:
    return not task.cancelled() and task.exception() is None and is_whole(task.result())


async def _end(tasks: list[asyncio.Future[T]], drop: Callable[[T], object]) -> None:
    """End what is left of the tasks; their permits are back when this returns."""
    for task in tasks:
        task.cancel()
    for task, came in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
        if not task.cancelled() and not isinstance(came, BaseException):
            drop(came)


# -- threads -----------------------------------------------------------------------------------------


class _Runner(Generic[T]):
    """One of the two requests in a thread of its own; what comes after the race goes to `drop`."""

    def __init__(self, race: _Race[T], ask: Callable[[], T]) -> None:
        self._race = race
        self._ask = ask
        self.error: BaseException | None = None
        self.answer: list[T] = []
        context = copy_context()
        # A daemon: one that hangs in a socket must not hold the end of the program.
        threading.Thread(target=context.run, args=(self._work,), name="resilient-io-hedge", daemon=True).start()

    def is_good(self, judge: Callable[[T], bool]) -> bool:
        """Say whether it brought an answer that is one."""
        return self.error is None and judge(self.answer[0])

    def _work(self) -> None:
        try:
            self.answer.append(self._ask())
        except BaseException as error:  # it is raised where the read is waited for
            self.error = error
        self._race.came(self)


class _Race(Generic[T]):
    def __init__(self, drop: Callable[[T], object]) -> None:
        self._drop = drop
        self._lock = threading.Lock()
        self._is_over = False
        self.arrivals: queue.SimpleQueue[_Runner[T]] = queue.SimpleQueue()

    def came(self, runner: _Runner[T]) -> None:
        with self._lock:
            if not self._is_over:
                self.arrivals.put(runner)
                return
        self._forget(runner)

    def end(self, winner: _Runner[T] | None) -> None:
        with self._lock:
            self._is_over = True
        while not self.arrivals.empty():
            late = self.arrivals.get()
            if late is not winner:
                self._forget(late)

    def _forget(self, runner: _Runner[T]) -> None:
        with contextlib.suppress(Exception):
            for answer in runner.answer:
                self._drop(answer)


def first_of_threads(
    hedge: Hedge,
    first: Callable[[], T],
    second: Callable[[], T],
    *,
    drop: Callable[[T], object],
    is_good: Callable[[T], bool] = lambda _: True,
) -> T:
    """Return the answer that is good first; the one that comes after it goes to `drop`, in its own thread."""
    race: _Race[T] = _Race(drop)
    winner: _Runner[T] | None = None
    try:
        runners = [_Runner(race, first)]
        came = _next(race, hedge.delay_s)
        if came is None and hedge.take():
            runners.append(_Runner(race, second))
        winner = _first_good(race, runners, came, is_good)
        if winner.is_good(is_good):
            hedge.answered()
        elif winner.error is not None:
            hedge.failed()
        if len(runners) > 1:
            hedge.decided(won=winner is runners[1])
        if winner.error is not None:
            raise winner.error
        return winner.answer[0]
    finally:
        race.end(winner)


def _first_good(
    race: _Race[T], runners: list[_Runner[T]], came: _Runner[T] | None, is_good: Callable[[T], bool]
) -> _Runner[T]:
    """Return the runner with the first good answer; the first request where neither has one."""
    for _ in runners:
        came = came or _next(race, None)
        if came is not None and came.is_good(is_good):
            return came
        came = None
    return runners[0]


def _next(race: _Race[T], timeout_s: float | None) -> _Runner[T] | None:
    try:
        return race.arrivals.get(timeout=timeout_s)
    except queue.Empty:
        return None
