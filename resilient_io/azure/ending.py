"""How a filesystem ends: its connections are closed on their own loop, in the process that opened them.

adlfs registers finalizers that hold the filesystem itself, so that no instance is ever freed, and that wait at exit
for a loop which a forked child does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any

from resilient_io.drive.forked import leave_behind

# By loop: the client whose connections belong to it, and its transport.
Clients = dict[Any, tuple[Any, Any]]

_CLOSING_TIMEOUT_S = 1.0


def forget_finalizers(fs: Any) -> None:
    """Take back the finalizers that adlfs registered for this filesystem."""
    for finalizer in _finalizers():
        alive = finalizer.peek()
        if alive is not None and alive[0] is fs:
            finalizer.detach()


def _finalizers() -> list[weakref.finalize[Any, Any]]:
    # `weakref` has no public list of them; without one adlfs's stay, and instances with them.
    return list(getattr(weakref.finalize, "_registry", ()))


def close_at_end(fs: Any, loop: Any, client: Any, others: Clients, credential: Any) -> None:
    """Close the client, the `others` on their loops, and the credential if any, when `fs` or the process ends."""
    weakref.finalize(fs, _close, os.getpid(), loop, client, others, credential)


def drop_dead(clients: Clients) -> None:
    """Forget the clients of loops that are closed; nobody can use or close them any more."""
    for loop, (_, transport) in list(clients.items()):
        if loop.is_closed():
            del clients[loop]
            _abandon(transport)


def _close(pid: int, loop: Any, client: Any, others: Clients, credential: Any) -> None:
    if pid != os.getpid():
        leave_behind(loop, client, others, credential)
        return
    drop_dead(others)
    for its_loop, each in [(loop, client), *((its_loop, each) for its_loop, (each, _) in others.items())]:
        if _is_open(its_loop):
            _finish(its_loop, each.close())
    if credential is not None and _is_open(loop):
        _finish(loop, credential.close())


def _abandon(transport: Any) -> None:
    """Let go of an aiohttp session whose loop is closed: it would complain when it is collected."""
    session = transport.session
    if session is None or session.connector is None:
        return
    with contextlib.suppress(StopIteration):
        # It does its work when called, and waits for nothing on a closed loop.
        next(session.connector.close().__await__())
    session.detach()


def _is_open(loop: Any) -> bool:
    return loop is not None and loop.is_running() and not loop.is_closed()


def _finish(loop: Any, closing: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on its loop; wait for it unless that would stop the loop itself."""
    with _no_loop_is_fine():
        if asyncio.get_running_loop() is loop:
            _closing.add(task := loop.create_task(closing))
            task.add_done_callback(_closing.discard)
            return
    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(closing, loop).result(_CLOSING_TIMEOUT_S)


# A loop holds its tasks weakly.
_closing: set[asyncio.Task[None]] = set()


@contextlib.contextmanager
def _no_loop_is_fine() -> Iterator[None]:
    with contextlib.suppress(RuntimeError):
        yield
