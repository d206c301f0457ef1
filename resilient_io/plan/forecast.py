"""Requests a second on each limit, and what the admission law makes of them.

Below a limit nothing waits and nothing is refused. Above it the law (`control/`) holds the ranks at the limit: what is
asked beyond it is waited for. How much is refused meanwhile, and how long a burst takes, comes from a run of
`simulate/`, made smaller: fewer ranks and a lower ceiling, as many requests for each record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from resilient_io.control.law_record import ASSUMED
from resilient_io.plan.workload import OBJECT, Workload, prefixes_of
from resilient_io.simulate import Fleet, Result, Store, run

# Records of the run in small: enough for them to disturb each other.
_RECORDS: Final = 8
_READ_S, _WARM_S = 30.0, 15.0
# A burst is cut to so many model seconds at the ceiling, and what it took is scaled back.
_BURST_S: Final = 120.0
# Requests of a run; more take too long to wait for.
_MOST: Final = 25_000.0
_SEED: Final = 1
# A limit that is used less than this is left alone.
SAFE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much of one limit is used."""

    limit: str
    """In words: "5,500 reads/s of a prefix"."""
    kind: str
    """"prefix", "account", "bandwidth" or "object"."""
    asked_per_s: float
    """Requests a second that meet it."""
    most_per_s: float
    """Requests a second that it lets through."""

    @property
    def share(self) -> float:
        """1.0 is all of it."""
        return self.asked_per_s / self.most_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What becomes of the reads, or of one checkpoint."""

    what: str
    requests_per_s: float
    """Of all ranks, were there no limit."""
    prefixes: int
    per_prefix_per_s: float
    bytes_per_s: float
    uses: tuple[Use, ...]
    """The limits that it meets, the tightest first; empty where none is known."""
    refused_share: float
    """Of its requests, under the admission law."""
    stall_share: float
    """Of the time of the training; 0.0 for a checkpoint whose interval is not known."""
    took_s: float | None
    """A checkpoint: how long it takes."""
    stall_s: float | None
    """A checkpoint: how much of that is due to the limit, or beyond its interval if that is more."""
    late_s: float | None
    """A checkpoint: how much longer than its interval it takes; 0.0 if it does not, or the interval is not known."""

    @property
    def tightest(self) -> Use | None:
        """The limit that is used most."""
        return self.uses[0] if self.uses else None

    @property
    def share(self) -> float:
        """Use of the tightest limit; 0.0 if there is none."""
        return self.uses[0].share if self.uses else 0.0


def reads(job: Workload) -> Forecast:
    """Return what becomes of the reads."""
    asked = min(job.wanted_reads_per_s, job.possible_reads_per_s)
    prefixes = prefixes_of(job.layout, users=job.ranks)
    uses = _uses(job, asked, prefixes, job.bytes_per_read, writes=False, single=job.layout == OBJECT)
    over = uses[0].share if uses else 0.0
    refused = _refused_reads(job, uses[0], asked) if over > 1.0 else 0.0
    # Workers that cannot read what is wanted stall the training too, but not for a limit of the store.
    return Forecast(
        what="reads",
        requests_per_s=asked,
        prefixes=prefixes,
        per_prefix_per_s=asked / prefixes,
        bytes_per_s=asked * job.bytes_per_read,
        uses=uses,
        refused_share=refused,
        stall_share=max(0.0, 1.0 - 1.0 / over) if over > 0.0 else 0.0,
        took_s=None,
        stall_s=None,
        late_s=None,
    )


def checkpoint(job: Workload) -> Forecast | None:
    """Return what becomes of one checkpoint, whose writers all begin at one moment; None if there is none."""
    if job.checkpoint_bytes is None:
        return None
    count = job.writers * job.files_per_writer * job.requests_per_file
    at_once = min(job.parallel_parts, job.files_per_writer * job.requests_per_file)
    free_s = math.ceil(count / (job.writers * at_once)) * job.write_s
    asked = count / free_s
    prefixes = prefixes_of(job.checkpoint_layout, users=job.writers)
    uses = _uses(job, asked, prefixes, job.checkpoint_bytes / count, writes=True, single=False)
    took_s, refused = free_s, 0.0
    if uses and _is_throttled(uses[0], count, asked):
        took_s, refused = _burst(job, uses[0], count * uses[0].asked_per_s / asked, at_once, free_s)
    every_s = job.checkpoint_every_s or math.inf
    late_s = max(0.0, took_s - every_s)
    stall_s = max(took_s - free_s, late_s)
    return Forecast(
        what="checkpoint",
        requests_per_s=asked,
        prefixes=prefixes,
        per_prefix_per_s=asked / prefixes,
        bytes_per_s=job.checkpoint_bytes / free_s,
        uses=uses,
        refused_share=refused,
        # One that is late is followed at once by the next.
        stall_share=stall_s / max(every_s, took_s),
        took_s=took_s,
        stall_s=stall_s,
        late_s=late_s,
    )


def _uses(job: Workload, asked: float, prefixes: int, size: float, *, writes: bool, single: bool) -> tuple[Use, ...]:
    """Return how much of each limit is used, the tightest first."""
    cloud = job.cloud
    what, way = ("writes", "in") if writes else ("reads", "out")
    prefix = cloud.prefix_writes_per_s if writes else cloud.prefix_reads_per_s
    wire = cloud.in_bytes_per_s if writes else cloud.out_bytes_per_s
    limits = [
        (prefix, f"{prefix or 0.0:,.0f} {what}/s of a prefix", "prefix", asked / prefixes),
        (cloud.account_per_s, f"{cloud.account_per_s or 0.0:,.0f} requests/s of the account", "account", asked),
        (wire / size if wire else None, f"{(wire or 0.0) * 8e-9:,.0f} Gbit/s {way} of the account", "bandwidth", asked),
        (cloud.blob_per_s if single else None, f"{cloud.blob_per_s or 0.0:,.0f} requests/s of a blob", "object", asked),
    ]
    found = [
        Use(limit=words, kind=kind, asked_per_s=per_s, most_per_s=most)
        for most, words, kind, per_s in limits
        if most is not None
    ]
    return tuple(sorted(found, key=lambda use: -use.share))


def _is_throttled(use: Use, count: float, asked: float) -> bool:
    """Say whether a burst is more than what a limit lets through in the time, and more than a second's worth."""
    return use.share > 1.0 and count * use.asked_per_s / asked > use.most_per_s


# ---- the run in small ------------------------------------------------------------------------------------------------


def _small(job: Workload, users: int, ceiling_per_s: float, seconds: float) -> tuple[float, int, int, float | None]:
    """Return by what to divide, how many processes and records' sharing are left, and what a record is told."""
    nodes = max(1, -(-users // job.ranks_per_node))
    sharing = min(users, job.ranks_per_node)
    scale = max(1.0, nodes / _RECORDS, ceiling_per_s * seconds / _MOST)
    records = max(1, round(nodes / scale))
    return nodes / records, records * sharing, sharing, ASSUMED if nodes == 1 else 1.0 / nodes


def _refused_reads(job: Workload, use: Use, asked: float) -> float:
    scale, processes, sharing, share = _small(job, job.ranks, use.most_per_s, _READ_S)
    callers = max(1, round(job.workers * use.asked_per_s / asked))
    cycle_s = job.ranks * callers / use.asked_per_s
    result = run(
        Fleet(
            processes=processes,
            callers=callers,
            sharing=sharing,
            share=share,
            pause_s=max(0.0, cycle_s - job.read_s),
        ),
        _store(use.most_per_s / scale, job.read_s),
        seconds=_READ_S,
        warm_s=_WARM_S,
        seed=_SEED,
    )
    return result.refused_share


def _burst(job: Workload, use: Use, count: float, at_once: int, free_s: float) -> tuple[float, float]:
    """Return how long `count` requests take on one limit, and what share of all was refused."""
    ideal_s = count / use.most_per_s
    whole = min(1.0, _BURST_S / ideal_s)
    scale, processes, sharing, share = _small(job, job.writers, use.most_per_s, ideal_s * whole)
    each = max(1, round(count * whole / scale / processes))
    result: Result = run(
        Fleet(processes=processes, callers=min(at_once, each), sharing=sharing, share=share, operations=each),
        _store(use.most_per_s / scale, job.write_s),
        seconds=20.0 * _BURST_S,
        seed=_SEED,
    )
    return max(free_s, result.finished_at_s / whole), result.refused_share_all


def _store(ceiling_per_s: float, service_s: float) -> Store:
    return Store(ceiling_per_s=ceiling_per_s, latency_median_s=service_s, latency_sigma=0.3)
