"""What became of each operation of a run, and the figures that are made of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One operation of one process. Times are `time.monotonic()`, which all processes of a machine share.

    `error` is "" or the class and text of what was raised; `checked_bytes` were compared with what
    was stored, of which `wrong_bytes` differed.
    """

    rank: int
    kind: str
    started_s: float
    ended_s: float
    error: str = ""
    checked_bytes: int = 0
    wrong_bytes: int = 0

    @property
    def latency_s(self) -> float:
        """Seconds from the call to its end, all retries included."""
        return self.ended_s - self.started_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What the store (or, for a real one, the clients) counted in a run."""

    sent: int
    refused: int

    @property
    def refused_share(self) -> float:
        """Refusals (503, 429) per request, 0 to 1."""
        return self.refused / self.sent if self.sent else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Bytes that were compared with what should be there, and those among them that were not right."""

    bytes: int = 0
    wrong_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run. `ideal_s` None: the ceiling is not known."""

    done: int
    failed: int
    requests: Requests
    p50_s: float
    p99_s: float
    makespan_s: float
    ideal_s: float | None
    checked_bytes: int
    wrong_bytes: int
    errors: Mapping[str, int]

    @property
    def operations(self) -> int:
        """Operations that ended, well or not."""
        return self.done + self.failed

    @property
    def requests_per_operation(self) -> float:
        """Requests per operation, failed ones included; 1 is the least."""
        return self.requests.sent / self.operations if self.operations else 0.0

    @property
    def over_ideal(self) -> float | None:
        """Makespan over the ideal; None where there is no ideal."""
        return self.makespan_s / self.ideal_s if self.ideal_s else None

    def to_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return {
            "operations": self.operations,
            "done": self.done,
            "failed": self.failed,
            "requests": self.requests.sent,
            "requests_per_operation": round(self.requests_per_operation, 4),
            "refused": self.requests.refused,
            "refused_share": round(self.requests.refused_share, 4),
            "p50_s": round(self.p50_s, 4),
            "p99_s": round(self.p99_s, 4),
            "makespan_s": round(self.makespan_s, 3),
            "ideal_s": None if self.ideal_s is None else round(self.ideal_s, 3),
            "makespan_over_ideal": None if self.over_ideal is None else round(self.over_ideal, 3),
            "checked_bytes": self.checked_bytes,
            "wrong_bytes": self.wrong_bytes,
            "errors": dict(self.errors),
        }


def figures(
    outcomes: Sequence[Outcome],
    *,
    requests: Requests,
    makespan_s: float,
    ideal_s: float | None,
    written: Checked | None = None,
) -> Figures:
    """Return the figures of a run whose operations ended as `outcomes` say; `written`: what was found stored after."""
    written = written or Checked()
    latencies = sorted(one.latency_s for one in outcomes)
    failed = sum(1 for one in outcomes if one.error)
    return Figures(
        done=len(outcomes) - failed,
        failed=failed,
        requests=requests,
        p50_s=percentile(latencies, 0.50),
        p99_s=percentile(latencies, 0.99),
        makespan_s=makespan_s,
        ideal_s=ideal_s,
        checked_bytes=written.bytes + sum(one.checked_bytes for one in outcomes),
        wrong_bytes=written.wrong_bytes + sum(one.wrong_bytes for one in outcomes),
        errors=Counter(one.error for one in outcomes if one.error),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the ascending values that at least `share` of them do not exceed; 0.0 of none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def jain(values: Iterable[float]) -> float:
    """Return Jain's fairness index of the values: 1 where all are alike, 1/n where one has everything."""
    shares = list(values)
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def wrong_bytes(got: bytes, wanted: bytes) -> int:
    """Return how many bytes differ; missing and surplus ones count."""
    if got == wanted:
        return 0
    return abs(len(got) - len(wanted)) + sum(1 for one, other in zip(got, wanted, strict=False) if one != other)
