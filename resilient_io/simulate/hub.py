"""What the nodes of a simulated cluster tell each other through: sums of what was last said, late, and with outages."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from resilient_io.control.fleet_split import LONG_AGO_S, Entry, Sums, pause_s, transfer

_NOTHING = Entry(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, LONG_AGO_S, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How the nodes exchange."""

    period_s: float | None = None
    """Between two exchanges of a node, give or take a tenth; None: what the library takes for so many nodes."""
    latency_s: float = 0.002
    """From the word to the answer."""
    lease_s: float = 5.0
    """After so long without a word a node is gone."""
    outages: tuple[tuple[float, float], ...] = ()
    """(from_s, until_s): nobody hears or is heard, and what was said is forgotten."""


class ModelHub:
    """A `Cluster` at work."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        """Start empty."""
        self.latency_s = cluster.latency_s
        self._cluster, self._rng = cluster, rng
        self._forget_all()

    def _forget_all(self) -> None:
        self._said: dict[int, tuple[float, Entry]] = {}  # in the order of the last words
        self._sums = _NOTHING
        self._pot = 0.0
        self._refused_at = -LONG_AGO_S

    def first_s(self) -> float:
        """Return when a node exchanges for the first time: soon after its first request."""
        return self._rng.uniform(0.005, 0.05)

    def pause_s(self, nodes: int) -> float:
        """Return how long a node waits for its next exchange."""
        period_s = pause_s(nodes) if self._cluster.period_s is None else self._cluster.period_s
        return period_s * self._rng.uniform(0.9, 1.1)

    def exchange(self, node: int, entry: Entry, now: float) -> Sums | None:
        """Take what a node says and return the sums of the others; None in an outage."""
        if any(start <= now < end for start, end in self._cluster.outages):
            self._forget_all()
            return None
        self._replace(node, (now, entry))
        while next(iter(self._said.values()))[0] < now - self._cluster.lease_s:
            gone = next(iter(self._said))
            self._pot += self._said[gone][1].rate
            self._replace(gone, None)
        self._refused_at = max(self._refused_at, now - entry.refused_ago_s)
        rate, wanting, need, settled, members, came, _, _ = (
            max(0.0, total - own) for total, own in zip(self._sums, entry, strict=True)
        )
        others = Sums(
            nodes=len(self._said) - 1.0,
            rate=rate,
            wanting=wanting,
            need=need,
            settled=settled,
            members=members,
            came=came,
            refused_ago_s=now - self._refused_at,
        )
        given = transfer(entry, others, self._pot)
        self._pot -= given
        return replace(others, given=given)

    def _replace(self, node: int, said: tuple[float, Entry] | None) -> None:
        """Keep the sums as entries come and go; adding all up for each of 512 nodes would take the most time."""
        before = self._said.pop(node, (0.0, _NOTHING))[1]
        after = _NOTHING if said is None else said[1]
        self._sums = Entry(*(total - old + new for total, old, new in zip(self._sums, before, after, strict=True)))
        if said is not None:
            self._said[node] = said
