"""The model store: one limit (of a prefix, an account or a blob) behind a token bucket; serves late or refuses soon."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

# Refusals that are further apart than this are no lasting load: a split waits for one that lasts.
_CALM_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What one limit of a store does with requests. Seconds, requests per second and shares (0 to 1) throughout."""

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
    queue_s: float = 0.0
    """Requests above the ceiling wait up to so long before any is refused: latency grows before refusal (Azure)."""
    split_after_s: float | None = None
    """The ceiling doubles when requests were refused for so long without a pause of 10 s; None: never (S3: minutes)."""
    splits: int = 3
    """At most so many times."""


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
        self._splits = 0
        self._hot_since_s = self._hot_at_s = -math.inf

    @property
    def splits(self) -> int:
        """How many times it has split."""
        return self._splits

    def ask(self, now: float) -> tuple[bool, float]:
        """Return whether a request that is sent now is served, and after how many seconds the answer arrives."""
        if self.refuses(now):
            return False, self.refusal_s()
        return True, self.take() + self.service_s()

    def refuses(self, now: float) -> bool:
        """Say whether a request that is sent now is refused; nothing is taken for one that is not."""
        self._refill(now)
        store, rng = self._store, self._rng
        if store.outages and any(start <= now < end for start, end in store.outages):
            return True
        if store.random_share > 0.0 and rng.random() < store.random_share:
            return True
        if self._tokens >= 1.0 - store.queue_s * self._ceiling_per_s:
            return False
        self._tokens = max(min(self._tokens, 0.0), self._tokens - store.charged)
        self._note_load(now)
        return True

    def take(self) -> float:
        """Take the token of a request that is served, and return for how many seconds it stands in the queue."""
        tokens = self._tokens
        self._tokens = tokens - 1.0
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._ceiling_per_s

    def service_s(self) -> float:
        """Draw a service time."""
        return self._store.latency_median_s * math.exp(self._store.latency_sigma * self._rng.gauss(0.0, 1.0))

    def refusal_s(self) -> float:
        """Draw the time after which a refusal is answered."""
        return self._rng.uniform(self._store.refusal_min_s, self._store.refusal_max_s)

    def _note_load(self, now: float) -> None:
        if now - self._hot_at_s > _CALM_S:
            self._hot_since_s = now
        self._hot_at_s = now
        after_s = self._store.split_after_s
        if after_s is not None and now - self._hot_since_s >= after_s and self._splits < self._store.splits:
            self._splits += 1
            self._hot_since_s = now
            self._ceiling_per_s *= 2.0

    def _refill(self, now: float) -> None:
        while self._steps and self._steps[0][0] <= now:
            at_s, factor = self._steps.pop(0)
            self._add(at_s)
            self._ceiling_per_s = self._store.ceiling_per_s * factor * 2.0**self._splits
        self._add(now)

    def _add(self, now: float) -> None:
        most = max(1.0, self._ceiling_per_s * self._store.burst_s)
        self._tokens = min(most, self._tokens + (now - self._at_s) * self._ceiling_per_s)
        self._at_s = now
