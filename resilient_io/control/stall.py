"""When a body counts as stalled: too few bytes for too long, not a silence between two of them.

A timeout of the socket begins anew with each byte, so that a body that trickles is never ended by it. Only time that
is spent waiting for bytes counts: a caller may take as long as it likes between two reads.
"""

from __future__ import annotations


class Meter:
    """Measures one body over windows of waiting, one after the other; not thread-safe.

    `least_per_s` 0 never calls a body stalled.
    """

    __slots__ = ("_got_bytes", "_least_per_s", "_waited_s", "window_s")

    def __init__(self, least_per_s: float, window_s: float) -> None:
        self._least_per_s = least_per_s
        self._waited_s = 0.0
        self._got_bytes = 0
        self.window_s = window_s

    @property
    def is_off(self) -> bool:
        """Whether no body is too slow."""
        return self._least_per_s <= 0.0

    @property
    def left_s(self) -> float:
        """Seconds of waiting until the window is over."""
        return max(0.0, self.window_s - self._waited_s)

    def is_stalled(self, waited_s: float, got_bytes: int) -> bool:
        """Add a wait and what it brought; say whether a window is over in which too little came."""
        self._waited_s += waited_s
        self._got_bytes += got_bytes
        if self._waited_s < self.window_s or self.is_off:
            return False
        slow = self._got_bytes < self._least_per_s * self._waited_s
        self._waited_s, self._got_bytes = 0.0, 0
        return slow
