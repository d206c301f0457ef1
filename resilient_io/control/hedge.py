"""When a read is sent a second time: after the scope's own 95th percentile, within a budget, and never under a limit.

A store answers a small share of its requests late for reasons of its own. A second request seldom meets the same
reason, so that the sooner of both answers cuts the tail. It costs requests, and near a ceiling those turn into refusals
for all: at a load of 0.97 hedging without a budget drove refusals from 0 to 24 % (simulated). Hence the constants.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from typing import Final

from resilient_io.control import budget

# The percentile that leaves 5 % of the reads, which is what the budget pays for.
QUANTILE: Final = 0.95
# Answers before that percentile means anything: ten of them are beyond it.
LEAST_ANSWERS: Final = 200
# Answers that are remembered. Twice the least, so that it follows a store that changes.
KEPT_ANSWERS: Final = 400
# How often it is found anew, in answers; sorting costs as much as ten answers.
FOUND_EVERY: Final = 20
# Seconds below which nothing is hedged: the network's own jitter, and no gain to a job.
FLOOR_S: Final = 0.020
# Requests that each read earns, and the most that are saved up.
SHARE: Final = 0.05
BURST: Final = 10.0
# Seconds after a limit in which the load may still be at the ceiling, unseen.
QUIET_S: Final = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class Hedging:
    """What a scope knows for its hedged reads; not thread-safe."""

    # An array, because there may be thousands of scopes: a number takes 8 bytes in it.
    answers_s: array[float] = field(default_factory=lambda: array("d"))
    tokens: MutableSequence[float] = field(default_factory=lambda: budget.fresh(BURST))
    quiet_until: float = -math.inf
    _found_s: float = math.inf
    _unseen: int = 0
    _oldest: int = 0

    def answered(self, latency_s: float) -> None:
        """Note how long an answer took, or had taken when it was given up for the other one."""
        if len(self.answers_s) < KEPT_ANSWERS:
            self.answers_s.append(latency_s)
        else:
            self.answers_s[self._oldest] = latency_s
            self._oldest = (self._oldest + 1) % KEPT_ANSWERS
        self._unseen += 1

    def limited_at(self, at: float) -> None:
        """Note that a level of the scope's path was limited at this instant."""
        self.quiet_until = max(self.quiet_until, at + QUIET_S)

    def begin(self, now: float) -> float | None:
        """Count a read that is about to be sent; return the seconds after which it is sent again, None for never."""
        budget.on_success(self.tokens, SHARE, BURST)
        if len(self.answers_s) < LEAST_ANSWERS or now < self.quiet_until:
            return None
        if self._unseen >= FOUND_EVERY or self._found_s == math.inf:
            self._found_s, self._unseen = _quantile(self.answers_s), 0
        return max(FLOOR_S, self._found_s)

    def take(self, now: float) -> bool:
        """Say whether the second request may be sent, and take it out of the budget."""
        return now >= self.quiet_until and budget.withdraw(self.tokens)


def _quantile(values: array[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(QUANTILE * len(ordered)) - 1)]
