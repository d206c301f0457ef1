"""Who asks a model store, for what, how much, and by which law."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from resilient_io.control.law import LAW, Constants
from resilient_io.simulate.hub import Cluster


class Order(Enum):
    """Which prefix an operation is for."""

    RANDOM = "random"
    """Any of them: a shuffled dataset."""
    SCAN = "scan"
    """One after the other: a walk. Each process starts at a place of its own."""
    OWN = "own"
    """Each process has one of them: a folder for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Processes that keep a number of operations going."""

    processes: int = 64
    callers: int = 8
    """Operations that each process keeps going: threads or tasks."""
    sharing: int = 1
    """Processes that step one record together."""
    cluster: Cluster | None = None
    """How the records hear of each other; None: not at all. For a fleet with one prefix."""
    share: float | None = None
    """What the law is told of the part of the fleet that each record stands for, true or not; None: nothing."""
    operations: int | None = None
    """By process; None goes on until the end."""
    lasting: int = 0
    """The first so many processes go on until the end, whatever `operations` says; then the run ends at its time."""
    pause_s: float = 0.0
    """A caller computes between its operations: a uniform time up to twice this."""
    prefixes: Sequence[int] = (0,)
    """Numbers of the prefixes that are used."""
    order: Order = Order.RANDOM
    blobs: int = 0
    """Objects of each prefix, read at random, where objects have limits of their own; 0: nobody looks at them."""
    limited: bool = True
    """False: no law, full jitter alone."""
    law: Constants = LAW
    backoff_base_s: float = 0.2
    backoff_cap_s: float = 20.0
    max_attempts: int = 20
    begin_s: float = 0.0
    """When it starts."""
    late_processes: int = 0
    """The last so many processes start at `late_s`."""
    late_s: float = 0.0

    def records(self) -> int:
        """Return how many step a record each."""
        return -(-self.processes // self.sharing)

    def members(self, record: int) -> float:
        """Return how many processes step that record."""
        return float(min(self.sharing, self.processes - record * self.sharing))

    def prefix_of(self, process: int, number: int, rng: random.Random) -> int:
        """Return the prefix of the `number`th operation of a process."""
        prefixes = self.prefixes
        if len(prefixes) == 1:
            return prefixes[0]
        match self.order:
            case Order.RANDOM:
                return prefixes[int(rng.random() * len(prefixes))]
            case Order.SCAN:
                return prefixes[(process * len(prefixes) // self.processes + number) % len(prefixes)]
            case Order.OWN:
                return prefixes[process % len(prefixes)]
