"""The retry budget: retries of faults other than refusals may not exceed a share of the successes.

When a service is broken, every caller that retries adds to its load. A budget that only successes
refill keeps the retries of a scope at `per_success` of its traffic, after a first burst.

Record layout (numbers only, so that it can stand in shared memory):

    [TOKENS]  retries that may still be made, 0 <= tokens <= burst; one retry takes one whole token
"""

from __future__ import annotations

from collections.abc import MutableSequence

TOKENS = 0
SIZE = 1


def fresh(burst: float) -> list[float]:
    """Return a full budget: `burst` retries (>= 0) before the first success."""
    return [float(burst)]


def on_success(rec: MutableSequence[float], per_success: float, burst: float) -> None:
    """Add `per_success` retries to the budget, never above `burst`.

    A budget that stands above `burst`, because a policy with a larger one shares the scope, keeps
    what it has.
    """
    tokens = rec[TOKENS]
    if tokens < burst:
        rec[TOKENS] = min(burst, tokens + per_success)


def withdraw(rec: MutableSequence[float]) -> bool:
    """Take one retry out of the budget; return False, and take nothing, when there is none."""
    if rec[TOKENS] < 1.0:
        return False
    rec[TOKENS] -= 1.0
    return True
