"""Nodes of a simulated cluster that exchange what they have: the same steps as `coordinate/`, at model times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from resilient_io.control import fleet_split, joining
from resilient_io.control import law as law_of
from resilient_io.control.law import Record
from resilient_io.simulate.hub import Cluster, ModelHub


@dataclass(slots=True)
class _Node:
    rec: Record
    members: float
    moved_at: float = -math.inf
    had: tuple[float, float] = (0.0, 0.0)
    said: fleet_split.Entry | None = None
    heard: fleet_split.Sums | None = None


@dataclass(slots=True)
class Exchange:
    """The nodes of one fleet and their hub."""

    hub: ModelHub
    nodes: list[_Node] = field(default_factory=list)

    @classmethod
    def of(cls, cluster: Cluster, rng: random.Random) -> Exchange:
        """Begin with no node."""
        return cls(ModelHub(cluster, rng))

    def add(self, rec: Record, members: float) -> None:
        """Add the node of a record that so many processes step."""
        self.nodes.append(_Node(rec, members))

    def say(self, number: int, now: float, *, backlog: bool) -> float:
        """A node says what it has; return when the answer comes."""
        node = self.nodes[number]
        gain = fleet_split.gain_after(now - node.moved_at)
        had = fleet_split.proven(node.rec, now, *node.had)
        node.had = (had, now)
        node.said = fleet_split.entry_of(node.rec, now, node.members, backlog, had=had, gain=gain)
        node.heard = self.hub.exchange(number, node.said, now)
        return now + self.hub.latency_s

    def hear(self, number: int, now: float) -> float:
        """Move by what came back; return when the node says something again."""
        node = self.nodes[number]
        if node.heard is not None and node.said is not None:
            _move(node, node.said, node.heard, now)
        return now + self.hub.pause_s(len(self.nodes))


def _move(node: _Node, said: fleet_split.Entry, others: fleet_split.Sums, now: float) -> None:
    rec = node.rec
    if rec[law_of.LIMITED] != 0.0:
        fleet_split.note_share(rec, node.members, others)
        node.moved_at = now
        proven, at = node.had
        node.had = proven * fleet_split.move(rec, now, said, others), at
    elif rec[law_of.IN_FLIGHT] > 0.0 and fleet_split.hears_of_limit(others):
        row = joining.row_of(rec, now, rec[law_of.IN_FLIGHT])
        rec[:] = fleet_split.enter_heard([row], now, node.members, others)
    else:
        rec[law_of.SHARE] = fleet_split.share(node.members, others)
