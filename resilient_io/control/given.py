"""A rate that a person gave: requests or bytes a second, whatever the answers say.

Record layout (numbers only): [what may still be moved, when that was reckoned].
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Final

# Seconds of a given rate that may be saved up: a thread that wakes a little late must not lose its turn.
_BURST_S: Final = 0.02
# Of bytes more: what moves comes in whole objects, and is paid for afterwards.
_BURST_BYTES_S: Final = 0.1

Given = MutableSequence[float]


def fresh() -> list[float]:
    """Return a record with which one may begin at once."""
    return [1.0, 0.0]


def requests_ready_at(rec: Given, now: float, per_s: float) -> float:
    """Return when the next of `per_s` requests a second may leave; `take` one when it does."""
    _fill(rec, now, per_s, max(1.0, per_s * _BURST_S))
    return now if rec[0] >= 1.0 - 1e-9 else now + (1.0 - rec[0]) / per_s


def bytes_ready_at(rec: Given, now: float, per_s: float) -> float:
    """Return when something may move again; `take` what it was when that is known, however much: it is owed then."""
    _fill(rec, now, per_s, max(1.0, per_s * _BURST_BYTES_S))
    return now if rec[0] > 0.0 else now + (1.0 - rec[0]) / per_s


def take(rec: Given, amount: float) -> None:
    """Take what leaves, or has moved."""
    rec[0] -= amount


def _fill(rec: Given, now: float, per_s: float, most: float) -> None:
    rec[0] = min(most, rec[0] + max(0.0, now - rec[1]) * per_s)
    rec[1] = now
