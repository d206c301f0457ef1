"""What a simulated run came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


def fairness(amounts: Sequence[float]) -> float:
    """Return Jain's index of the amounts: 1.0 if all are equal, 1/n if one has all; 1.0 for nothing at all."""
    squares = sum(amount * amount for amount in amounts)
    total = sum(amounts)
    return total * total / (len(amounts) * squares) if squares > 0.0 else 1.0


@dataclass(slots=True, kw_only=True)
class Result:
    """Counts of one run. "Measured" are the requests sent and operations ended after the warm-up."""

    processes: int
    seconds: float
    """Measured seconds."""
    requests: int = 0
    refused: int = 0
    requests_all: int = 0
    refused_all: int = 0
    failed: int = 0
    """Operations that ran out of attempts, whole run."""
    finished_at_s: float = 0.0
    """When the last operation ended."""
    done: list[int] = field(default_factory=list)
    """Measured operations, by process."""
    latencies_s: list[float] = field(default_factory=list)
    """Of measured operations, from the call to its end, waits and retries within."""
    served_by_second: list[int] = field(default_factory=list)
    """Whole run: operations that ended in each second."""
    refused_by_second: list[int] = field(default_factory=list)
    """Whole run: refusals that came in each second."""
    rates_per_s: list[float] = field(default_factory=list)
    """Admitted rate of each record at the end."""

    @property
    def operations(self) -> int:
        """Operations that ended well, measured."""
        return sum(self.done)

    @property
    def per_s(self) -> float:
        """Operations per second, measured."""
        return self.operations / self.seconds if self.seconds > 0.0 else 0.0

    @property
    def refused_share(self) -> float:
        """Refused requests over all requests, measured."""
        return self.refused / self.requests if self.requests else 0.0

    @property
    def refused_share_all(self) -> float:
        """The same over the whole run."""
        return self.refused_all / self.requests_all if self.requests_all else 0.0

    @property
    def fairness(self) -> float:
        """Jain's index over processes, measured."""
        return fairness(self.done)

    def latency_s(self, quantile: float) -> float:
        """Return a quantile (0 to 1) of the measured latencies; 0.0 if there are none."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else 0.0

    def served_between(self, start_s: int, end_s: int) -> float:
        """Return operations per second between two whole seconds of the run."""
        return sum(self.served_by_second[start_s:end_s]) / (end_s - start_s)
