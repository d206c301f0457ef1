"""The thread that exchanges this machine's limits with the other nodes of a cluster, through a hub.

Every process that wants it runs one, and one of a machine does the work (`lead`): about twice a second, for all levels
of the machine's table, in one round trip. It reads and writes the table as another process would, so that no caller
ever waits for it: without the hub each machine goes on with what it learnt, and is told anew when the hub is back.
"""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from resilient_io.control import fleet_split, joining
from resilient_io.control.fleet_split import Entry, Sums
from resilient_io.control.law_record import ENTRY_RATE, LIMITED, RATE, REFUSED_AT, SHARE
from resilient_io.coordinate.folder import Unusable, directory
from resilient_io.coordinate.hub import Hub, HubLost, load, place_of
from resilient_io.coordinate.lead import Lead, node_of
from resilient_io.coordinate.slot import Slot
from resilient_io.coordinate.table import Table

_log = logging.getLogger("resilient_io")

# How often a process looks whether there is something to do: a level to share, a lease to take over.
_LOOK_S: Final = 1.0
# Between two exchanges while a level is about to become limited.
_SOON_S: Final = 0.25
# How often the process that does the work looks whether another one has news for it; a look takes some microseconds.
_GLANCE_S: Final = 0.05
# After so long news that was not read is told by who has it: the one that did the work may be stopped or gone.
_HEED_S: Final = 0.3
# After a failure the hub is left alone for so long, doubled each time up to the most.
_AGAIN_S: Final = 1.0
_AGAIN_MOST_S: Final = 8.0
# Processes that used a level within this time divide its rate.
_ACTIVE_S: Final = 10.0


class Exchange:
    """The exchange of one node through one hub, as one process does it, step by step. Not thread-safe."""

    def __init__(self, url: str, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Map the table in `folder`; raises Unusable where that cannot be. `clock` is that of the table's times."""
        self._clock = clock
        # A table of its own: the kernel tells the locks of this thread from those of the gate by the open file.
        self._table = Table(folder)
        self._hub = Hub(url)
        self._place = place_of(url)
        self._lead = Lead(self._table, self._place)
        self._node = node_of(self._table)
        self._again_at = 0.0
        self._again_s = _AGAIN_S
        self._told_at = math.inf

    def step(self, *, news: bool = False) -> float:
        """Do what there is to do, and return after how many seconds to come again; `news`: a level was limited now."""
        now = self._clock()
        self._table.renew(now)
        ignored = now - self._told_at >= _HEED_S and self._lead.is_told(now)
        if not self._lead.take(now, by_force=ignored):
            return self._leave_it(now, news)
        self._told_at = math.inf
        self._lead.read(now)
        slots = {slot.digest: slot for slot in self._table.wanted(now)}
        if now < self._again_at:
            return min(_LOOK_S, self._again_at - now)
        if not slots:
            return self._get_ready(now)
        said = {digest: _said(slot, now) for digest, slot in slots.items()}
        try:
            heard = self._hub.exchange(self._node, said)
        except HubLost as error:
            return self._lost(now, error)
        self._found(now)
        for digest, others in heard.items():
            _hear(slots[digest], said[digest], others, self._clock())
        nodes = 1.0 + max(others.nodes for others in heard.values())
        undecided = any(slot.is_limited() and not said[digest].settled for digest, slot in slots.items())
        return min(fleet_split.pause_s(nodes), _SOON_S if undecided else math.inf)

    def leads(self) -> bool:
        """Say whether this process does the work of its machine."""
        return self._lead.is_held(self._clock())

    def is_told(self) -> bool:
        """Say whether another process of this machine has news for this one, which does the work."""
        now = self._clock()
        return self._lead.is_held(now) and self._lead.is_told(now)

    def close(self) -> None:
        """Hang up."""
        self._hub.close()

    def _leave_it(self, now: float, news: bool) -> float:
        """Another process does the work: tell it what is new, and look again whether it has read that."""
        self._hub.close()
        if news:
            self._lead.tell(now)
            self._told_at = min(self._told_at, now)
        elif not self._lead.is_told(now):
            self._told_at = math.inf
        return _HEED_S if self._told_at < math.inf else _LOOK_S

    def _get_ready(self, now: float) -> float:
        """Connect while nothing is used yet: it takes longest when all processes of a job start to work."""
        if not self._hub.is_connected:
            try:
                self._hub.greet()
            except HubLost as error:
                return self._lost(now, error)
            self._found(now)
        return _LOOK_S

    def _lost(self, now: float, error: HubLost) -> float:
        self._again_at, self._again_s = now + self._again_s, min(_AGAIN_MOST_S, 2.0 * self._again_s)
        level = logging.WARNING if self._lead.note(now, lost=True) else logging.DEBUG
        _log.log(
            level,
            "limits are not shared across the cluster at present: the Redis at %s is lost: %s; "
            "this machine goes on with what it learnt, and tries again",
            self._place,
            error,
        )
        return min(_LOOK_S, self._again_at - now)

    def _found(self, now: float) -> None:
        self._again_at, self._again_s = 0.0, _AGAIN_S
        if self._lead.note(now, lost=False):
            _log.info("limits are shared across the cluster again: the Redis at %s is back", self._place)


def _said(slot: Slot, now: float) -> Entry:
    """Return what this machine has at a level; read without a lock, because nothing is stepped."""
    rec = slot.read(now)
    gain = fleet_split.gain_after(now - slot.moved_at)
    had = fleet_split.proven(rec, now, *slot.had)
    slot.had = had, now
    members, backlog = _members(slot.rows(), now), fleet_split.is_held_back(rec, now)
    return fleet_split.entry_of(rec, now, members, backlog, had=had, gain=gain, weight=slot.mean_weight)


def _hear(slot: Slot, mine: Entry, others: Sums, now: float) -> None:
    """Step the level by what the others have, unless its lock cannot be had or it is another level's by now."""
    try:
        if not slot.lock():
            return
        rows, rec = slot.rows(), slot.read(now)
        members = _members(rows, now)
        slot.share = fleet_split.note_share(rec, members, others)
        if rec[LIMITED] != 0.0:
            proven, at = slot.had
            slot.had = proven * fleet_split.move(rec, now, mine, others), at  # who has the rate now proves it anew
            slot.moved_at = now
            slot.put(rec, RATE, ENTRY_RATE, REFUSED_AT, SHARE)
        elif fleet_split.hears_of_limit(others) and _is_used(rows, now):
            slot.write(fleet_split.enter_heard(rows, now, members, others))
    except (ArithmeticError, ValueError):  # cannot happen; a lie in the table or the hub could lead to it
        _log.debug("what the cluster said of a level could not be used", exc_info=True)
    finally:
        slot.unlock()


def _members(rows: Sequence[joining.Row], now: float) -> float:
    return max(1.0, float(sum(now - row[0] <= _ACTIVE_S for row in rows)))


def _is_used(rows: Sequence[joining.Row], now: float) -> bool:
    """Say whether a process of this machine has sent something of late: only then is there a storm to prevent."""
    return any(now - row[0] <= _LOOK_S for row in rows)


class ClusterLink:
    """What a gate has of a cluster: the thread of its process that exchanges. Starts it when it is first woken."""

    def __init__(self, url: str) -> None:
        """Keep the URL; nothing is connected here.

        What talks to Redis is imported here, and not by the thread: a fork in the middle of that left children with
        half a module, who never reached Redis, or hung in an import of their own.
        """
        load()
        self._url = url
        self._thread: threading.Thread | None = None
        self._signals = _Signals()

    def wake(self, *, news: bool = False) -> None:
        """See that the exchange runs; with `news` at once. Never waits for it."""
        if self._thread is None:
            weakref.finalize(self, self._signals.end, os.getpid())
            self._thread = threading.Thread(
                target=_run, args=(self._url, self._signals), name="resilient-io-cluster", daemon=True
            )
            self._thread.start()
        if news:
            self._signals.tell()


class _Signals:
    """How a link and its thread speak: the thread knows nothing else of the link, so that a link can be forgotten."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self.ended = False

    def tell(self) -> None:
        """Have the thread exchange at once."""
        self._woken.set()

    def end(self, pid: int) -> None:
        """Let the thread end; in a forked child there is none, and its lock may be held for ever."""
        if os.getpid() == pid:
            self.ended = True
            self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Wait for news; say whether there are any."""
        told = self._woken.wait(seconds)
        self._woken.clear()
        return told


def _run(url: str, signals: _Signals) -> None:
    """Exchange until the link is gone. No error ends it: limits would silently not be shared any more."""
    try:
        exchange = Exchange(url, directory())
    except Unusable:
        return  # the gate has said so
    chance, news, failed = random.Random(os.urandom(16)), False, False
    while not signals.ended:
        try:
            pause_s = exchange.step(news=news)
        except Exception as error:
            level = logging.DEBUG if failed else logging.WARNING
            _log.log(level, "the exchange of limits across the cluster failed: %s", type(error).__name__)
            failed, pause_s = True, _AGAIN_MOST_S
        # Nodes that were started together must not come together for ever.
        news = _wait(signals, exchange, pause_s * chance.uniform(0.9, 1.1))
    exchange.close()


def _wait(signals: _Signals, exchange: Exchange, pause_s: float) -> bool:
    """Wait for the next exchange; say whether this process has news. Word of another one ends the wait too."""
    until = time.monotonic() + pause_s
    while (left_s := until - time.monotonic()) > 0.0:
        if signals.wait(min(left_s, _GLANCE_S) if exchange.leads() else left_s):
            return True
        if exchange.is_told():
            break
    return False
