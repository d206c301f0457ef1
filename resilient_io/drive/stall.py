"""Ending a body that stalls: reading one in a thread, piece by piece, and watching one that a task waits for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from resilient_io.control.stall import Meter
from resilient_io.drive.bodies import Stalled
from resilient_io.drive.metered import metered
from resilient_io.policy import Policy

# What one read of a socket takes at most. More is seldom there at once, and all of it is allocated first.
_READ_BYTES: Final = 128 * 2**10
# For a body that only reads until all is there: a slow one is noticed when so much has come.
_BLOCKING_READ_BYTES: Final = 16 * 2**10
# A wake-up that comes this late (in windows) tells of this process, which was held up, and not of the body.
_LATE: Final = 1.5


def meter_of(policy: Policy) -> Meter:
    """Return what measures one body under this policy."""
    return Meter(policy.min_throughput_bytes_per_s, policy.stall_window_s)


def what(policy: Policy) -> str:
    """Return what is said of a body that stalled."""
    return f"the body stalled: too few bytes in {policy.stall_window_s:g} s"


class Reader:
    """Reads a body of urllib3, and ends it when it stalls; for one thread.

    urllib3's own `read` waits until all that was asked for is there, which a body that trickles may never be: so what
    comes is measured below it (`metered`), or where that cannot be is read as it comes. Times are those of the machine,
    as the socket's timeouts are.
    """

    __slots__ = ("_as_it_comes", "_at_most_bytes", "_is_slow", "_meter", "_metered", "_policy", "_raw")

    def __init__(self, raw: Any, policy: Policy) -> None:
        self._policy = policy
        self._raw = raw
        self._meter = meter_of(policy)
        self._is_slow = False
        self._metered = metered(raw, self._meter, functools.partial(_stalled, policy))
        read1 = getattr(raw, "read1", None)  # urllib3 before 2 has none
        self._as_it_comes: Callable[[int], bytes] = read1 or raw.read
        self._at_most_bytes = _READ_BYTES if read1 is not None else _BLOCKING_READ_BYTES
        if not self._meter.is_off:
            _limit_silence(raw, policy.stall_window_s)

    def read(self, at_most_bytes: int) -> bytes:
        """Return as much as is asked for if so much comes, else what does, b"" at the end. Raises Stalled."""
        if self._metered is None:
            return self.read1(at_most_bytes)
        self._metered.begin()
        piece: bytes = self._raw.read(at_most_bytes)
        return piece

    def read1(self, at_most_bytes: int) -> bytes:
        """Return what has come, b"" at the end. Raises Stalled."""
        at_most_bytes = min(at_most_bytes, self._at_most_bytes)
        if self._metered is not None:
            self._metered.begin()
            return self._as_it_comes(at_most_bytes)
        if self._is_slow:
            raise _stalled(self._policy)
        began_at = monotonic()
        piece = self._as_it_comes(at_most_bytes)
        self._is_slow = self._meter.is_stalled(monotonic() - began_at, len(piece))
        return piece


def _stalled(policy: Policy) -> Stalled:
    return Stalled(what(policy))


def _limit_silence(raw: Any, window_s: float) -> None:
    """Let the socket wait no longer than the window; the next request on the connection sets its own timeout again."""
    # As botocore's StreamingBody.set_socket_timeout does; a raw body of another kind has no such thing, and no timeout.
    sock = getattr(getattr(getattr(getattr(raw, "_fp", None), "fp", None), "raw", None), "_sock", None)
    if sock is not None:
        now_s = sock.gettimeout()
        if now_s is None or now_s > window_s:
            sock.settimeout(window_s)


class Unwatched:
    """What stands for a watch of a body that is here, or that may take as long as it likes."""

    __slots__ = ()

    stalled = False

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *about: object) -> None:
        pass


_UNWATCHED: Final = Unwatched()


def watch(policy: Policy, content: Any, end: Callable[[], object]) -> Watch | Unwatched:
    """Return what watches a body of aiohttp, given its StreamReader; nothing where all of it has come already.

    `end` is called if it stalls.
    """
    # `total_bytes` and `is_eof` are public; a body of another library has neither.
    if policy.min_throughput_bytes_per_s <= 0 or not hasattr(content, "total_bytes") or content.is_eof():
        return _UNWATCHED
    return Watch(policy, content, end)


class Watch:
    """Watches one body of aiohttp while a task waits for it: `with watch: await ...`; see `watch`.

    Then the wait fails with what the SDK makes of a connection that was closed, and `stalled` says why. It costs a
    timer for each wait, and nothing where the body is there already.
    """

    __slots__ = ("_began_at", "_content", "_end", "_handle", "_loop", "_meter", "_seen_bytes", "stalled")

    def __init__(self, policy: Policy, content: Any, end: Callable[[], object]) -> None:
        self._meter = meter_of(policy)
        self._content = content
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._began_at = 0.0
        self._seen_bytes = 0
        self.stalled = False

    def __enter__(self) -> Watch:
        content = self._content
        if not content.is_eof():
            loop = self._loop
            if loop is None:
                loop = self._loop = asyncio.get_running_loop()
                self._seen_bytes = content.total_bytes
            self._began_at = loop.time()
            self._handle = loop.call_later(self._meter.left_s, self._look)
        return self

    def __exit__(self, *about: object) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()
            # A body that trickles wakes its reader with each byte, long before the timer.
            if self._is_stalled(self._loop.time()):  # type: ignore[union-attr]  # the handle is the loop's
                self._stop()

    def _look(self) -> None:
        loop = self._loop
        assert loop is not None
        now = loop.time()
        self._handle = None
        if now - self._began_at > _LATE * self._meter.window_s:
            self._began_at = now  # what has arrived meanwhile is not read yet
        elif self._is_stalled(now):
            self._stop()
            return
        self._began_at = now
        self._handle = loop.call_later(max(0.001, self._meter.left_s), self._look)

    def _is_stalled(self, now: float) -> bool:
        came_bytes = self._content.total_bytes
        got_bytes, self._seen_bytes = came_bytes - self._seen_bytes, came_bytes
        return self._meter.is_stalled(now - self._began_at, got_bytes)

    def _stop(self) -> None:
        self.stalled = True
        self._end()
