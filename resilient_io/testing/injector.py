"""Which rule of a plan fires for a call, and how long an answer takes; all chance is seeded."""

from __future__ import annotations

import random
import secrets

from .calls import Call
from .ceilings import dimension
from .plan import FaultPlan, FaultRule, Latency


def drawn_seed(plan: FaultPlan) -> int:
    """Return the plan's seed, or a fresh one of 32 bits where it has none."""
    return secrets.randbits(32) if plan.seed is None else plan.seed


class Injector:
    """The rules of a plan with their counts; not thread-safe.

    Each rule and the latency draw from generators of their own, so that adding a rule does not
    change what the others do.
    """

    __slots__ = ("_counts", "_fired", "_latency_random", "_randoms", "_rules")

    def __init__(self, rules: tuple[FaultRule, ...], *, seed: int) -> None:
        self._rules = rules
        self._counts: list[dict[tuple[str, ...], int]] = [{} for _ in rules]
        self._fired = [0] * len(rules)
        self._randoms = [random.Random(f"{seed}/{index}") for index in range(len(rules))]
        self._latency_random = random.Random(f"{seed}/latency")

    @property
    def fired(self) -> tuple[int, ...]:
        """How often each rule has fired, in the plan's order."""
        return tuple(self._fired)

    def choose(self, call: Call) -> FaultRule | None:
        """Count the call at every rule that it fits, and return the first that fires."""
        chosen: int | None = None
        for index, rule in enumerate(self._rules):
            if rule.match.fits(call) and self._wants(index, rule, call) and chosen is None:
                chosen = index
        if chosen is None:
            return None
        self._fired[chosen] += 1
        return self._rules[chosen]

    def latency_s(self, latency: Latency) -> float:
        """Return the seconds that the next answer takes."""
        total = latency.base_s
        if latency.jitter_s:
            total += self._latency_random.uniform(0.0, latency.jitter_s)
        if latency.tail_probability and self._latency_random.random() < latency.tail_probability:
            total += latency.tail_s
        return total

    def _wants(self, index: int, rule: FaultRule, call: Call) -> bool:
        counts, name = self._counts[index], dimension(call, rule.per)
        number = counts[name] = counts.get(name, 0) + 1
        if rule.calls and number not in rule.calls:
            return False
        # The draw comes before the limit, so that the n-th call always meets the n-th draw.
        hit = rule.probability >= 1.0 or self._randoms[index].random() < rule.probability
        return hit and (rule.limit is None or self._fired[index] < rule.limit)
