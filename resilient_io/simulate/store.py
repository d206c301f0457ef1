"""The model store: one prefix behind a token bucket, which serves with a lognormal latency or refuses quickly."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What one prefix of a store does with requests. Seconds, requests per second and shares (0 to 1) throughout."""

    ceiling_per_s: float = 5500.0
    """Requests served per second; the default is what S3 documents for reads of one prefix."""
    burst_s: float = 1.0
    """The bucket holds `ceiling_per_s * burst_s` requests and starts full."""
    latency_median_s: float = 0.025
    latency_sigma: float = 0.798
    """Of the lognormal service time; the default puts its 99th percentile at 160 ms."""
    refusal_min_s: float = 0.01
    refusal_max_s: float = 0.05
    """A refusal is answered after a uniform time between these."""
    random_share: float = 0.0
    """Share of requests that are refused whatever the load."""
    charged: float = 0.0
    """Tokens that a refusal for load takes from the bucket: 0 is free, 1 as much as a request that is served."""
    outages: tuple[tuple[float, float], ...] = ()
    """(from_s, until_s): all requests sent within are refused."""
    ceilings: tuple[tuple[float, float], ...] = ()
    """(at_s, factor) in order of time: from then on the ceiling is `ceiling_per_s * factor`."""


class ModelStore:
    """A `Store` at work. It decides when a request is sent; the answer arrives after the latency that it returns."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        """Start full, at time 0."""
        self._store = store
        self._rng = rng
        self._tokens = max(1.0, store.ceiling_per_s * store.burst_s)
        self._at_s = 0.0
        self._ceiling_per_s = store.ceiling_per_s
        self._steps = list(store.ceilings)

    def ask(self, now: float) -> tuple[bool, float]:
        """Return whether a request that is sent now is served, and after how many seconds the answer arrives."""
        self._refill(now)
        store, rng = self._store, self._rng
        refused = any(start <= now < end for start, end in store.outages) or (
            store.random_share > 0.0 and rng.random() < store.random_share
        )
        if not refused and self._tokens >= 1.0:
            self._tokens -= 1.0
            return True, store.latency_median_s * math.exp(store.latency_sigma * rng.gauss(0.0, 1.0))
        if not refused:
            self._tokens = max(0.0, self._tokens - store.charged)
        return False, rng.uniform(store.refusal_min_s, store.refusal_max_s)

    def _refill(self, now: float) -> None:
        while self._steps and self._steps[0][0] <= now:
            at_s, factor = self._steps.pop(0)
            self._add(at_s)
            self._ceiling_per_s = self._store.ceiling_per_s * factor
        self._add(now)

    def _add(self, now: float) -> None:
        most = max(1.0, self._ceiling_per_s * self._store.burst_s)
        self._tokens = min(most, self._tokens + (now - self._at_s) * self._ceiling_per_s)
        self._at_s = now
