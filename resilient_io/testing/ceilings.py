"""Token buckets: does a store at its ceiling still take this call?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .calls import Call
from .plan import Ceiling, Match, Outage

# A token that rounding has nibbled at is still one.
_WHOLE = 1.0 - 1e-9


@dataclass(slots=True)
class Bucket:
    """Tokens saved up at an instant; refilled when asked, so that no timer runs."""

    tokens: float
    at_s: float

    def refill(self, ceiling: Ceiling, now: float) -> None:
        """Add the tokens that came since the last time, up to the burst."""
        grown = self.tokens + max(0.0, now - self.at_s) * ceiling.rate_per_s
        self.tokens = min(capacity(ceiling), grown)
        self.at_s = now


def capacity(ceiling: Ceiling) -> float:
    """Return how many tokens a bucket holds: rate times burst, at least 1 (0 for a ceiling of 0)."""
    return max(1.0, ceiling.rate_per_s * ceiling.burst_s) if ceiling.rate_per_s > 0 else 0.0


def dimension(call: Call, per: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values by which a bucket or a counter is kept apart."""
    return tuple([getattr(call, name) for name in per])


class Gatekeeper:
    """The ceilings and outages of a plan with their state; not thread-safe, takes `now`.

    A call must get a token from every ceiling that it fits; refused calls take `refusal_cost` of
    one from each instead.
    """

    __slots__ = ("_buckets", "_ceilings", "_outages", "_started_s")

    def __init__(self, ceilings: Iterable[Ceiling], outages: Iterable[Outage], *, now: float) -> None:
        self._ceilings = list(ceilings)
        self._buckets: list[dict[tuple[str, ...], Bucket]] = [{} for _ in self._ceilings]
        self._outages = list(outages)
        self._started_s = now

    @property
    def ceilings(self) -> tuple[Ceiling, ...]:
        """The ceilings as they stand."""
        return tuple(self._ceilings)

    def admit(self, call: Call, now: float) -> Ceiling | Outage | None:
        """Return None if the call may pass, or else what refuses it."""
        outage = self._outage_of(call, now) if self._outages else None
        if outage is not None:
            return outage
        found = list(self._found(call, now))
        short = next((ceiling for ceiling, bucket in found if bucket.tokens < _WHOLE), None)
        for ceiling, bucket in found:
            cost = 1.0 if short is None else ceiling.refusal_cost
            bucket.tokens = max(0.0, bucket.tokens - cost)
        return short

    def set_rate(self, rate_per_s: float, *, name: str | None, burst_s: float | None) -> int:
        """Give the named ceilings (None: all) a new rate, keep the tokens; return how many changed."""
        changed = 0
        for index, old in enumerate(self._ceilings):
            if name is None or old.name == name:
                self._ceilings[index] = _with_rate(old, rate_per_s, burst_s)
                changed += 1
        return changed

    def add_outage(self, duration_s: float, *, match: Match, now: float) -> None:
        """Start an outage at `now`."""
        self._outages.append(Outage(start_s=now - self._started_s, duration_s=duration_s, match=match))

    def end_outages(self) -> None:
        """Forget every outage, running or planned."""
        self._outages.clear()

    def _outage_of(self, call: Call, now: float) -> Outage | None:
        since_s = now - self._started_s
        for one in self._outages:
            if one.start_s <= since_s < one.start_s + one.duration_s and one.match.fits(call):
                return one
        return None

    def _found(self, call: Call, now: float) -> Iterable[tuple[Ceiling, Bucket]]:
        for ceiling, buckets in zip(self._ceilings, self._buckets, strict=True):
            if not ceiling.match.fits(call):
                continue
            name = dimension(call, ceiling.per)
            bucket = buckets.get(name)
            if bucket is None:
                bucket = buckets[name] = Bucket(capacity(ceiling), now)
            bucket.refill(ceiling, now)
            yield ceiling, bucket


def _with_rate(old: Ceiling, rate_per_s: float, burst_s: float | None) -> Ceiling:
    return replace(old, rate_per_s=rate_per_s, burst_s=old.burst_s if burst_s is None else burst_s)
