"""A process of a fleet, from the inside: it does work in threads when told to, and says what became of it.

One JSON value a line. From the parent: the task, then the name of a phase at a time. To the parent:
`{"ready": true}`, a list for each operation that ended, `{"end": {...}}` after each phase. The end of
standard input, by will or by the parent's death, ends the process at once.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from resilient_io.rehearse.outcomes import wrong_bytes

# Longer texts of errors are cut: they are counted by text, and a traceback helps nobody in a table.
_ERROR_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operation: `do` is timed and returns the bytes that it read, if any, for `wanted` to be compared with."""

    kind: str
    do: Callable[[], bytes | None]
    wanted: Callable[[], bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """What a process can do: the work of each phase, in how many threads, and the counts of its clients."""

    threads: int
    phase: Callable[[str], Iterable[Work]]
    counts: Callable[[], Mapping[str, int]] = dict


def serve(prepare: Callable[[Mapping[str, Any]], Crew]) -> None:
    """Prepare for the task on standard input, then run phases as they are named; does not return."""
    orders: queue.Queue[Any] = queue.Queue()
    say = _speaker()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    task = orders.get()
    crew = prepare(task)
    say({"ready": True})
    while True:
        _run(crew, crew.phase(orders.get()), say)
        say({"end": dict(crew.counts())})


def _listen(orders: queue.Queue[Any]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)  # threads in the middle of a request would hold the process up


def _speaker() -> Callable[[object], None]:
    """Return a function that writes one line at a time, whichever thread calls it.

    Whatever else prints (a library's warning) goes to standard error.
    """
    out, lock = sys.stdout, threading.Lock()
    sys.stdout = sys.stderr

    def say(value: object) -> None:
        line = json.dumps(value) + "\n"
        with lock:
            out.write(line)
            out.flush()

    return say


def _run(crew: Crew, works: Iterable[Work], say: Callable[[object], None]) -> None:
    supply, lock = iter(works), threading.Lock()
    threads = [threading.Thread(target=_toil, args=(supply, lock, say)) for _ in range(crew.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _toil(supply: Iterator[Work], lock: threading.Lock, say: Callable[[object], None]) -> None:
    while True:
        with lock:
            work = next(supply, None)
        if work is None:
            return
        say(_done(work))


def _done(work: Work) -> list[object]:
    """Do it, and return the fields of its `Outcome` without the rank."""
    started_s, error, got = time.monotonic(), "", None
    try:
        got = work.do()
    except Exception as raised:  # every failure is a result here
        error = f"{type(raised).__name__}: {raised}"[:_ERROR_CHARACTERS]
    ended_s = time.monotonic()
    checked = wrong = 0
    if work.wanted is not None and not error:
        wanted = work.wanted()
        checked, wrong = len(wanted), wrong_bytes(got or b"", wanted)
    return [work.kind, started_s, ended_s, error, checked, wrong]
