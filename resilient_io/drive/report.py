"""`report`: what this process has seen of each scope, and which prefixes are hot."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass

from resilient_io.control import law
from resilient_io.control.scopes import label, level_of
from resilient_io.drive.runtime import runtime
from resilient_io.drive.scope import Level
from resilient_io.errors import redact

# A share of refusals that is worth a person's time; below it the limit does its work.
_WORTH_ADVICE = 0.02
_SHOWN_SCOPES = 20
_UNVERIFIED = 'answers without length and checksum; nobody can tell if they are whole (verify="strict" refuses them)'


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeReport:
    """One scope of this process; the counts run since it was first used, or last forgotten for being idle."""

    label: str
    """The scope's name for people: `s3://bucket/train (read)`."""
    op_class: str
    """ "read", "write", "list" or "delete"."""
    sent: int
    """Requests sent: attempts, not calls."""
    succeeded: int
    """Requests that were answered, also with a 404 or 412."""
    refused: int
    """Requests refused for load: 503 SlowDown, ServerBusy, 429."""
    suspected: int
    """Requests that ended in a timeout, a reset or a 500, which may speak of load."""
    share_refused: float
    """`refused / sent`, 0 to 1."""
    rate_per_s: float | None
    """Requests per second that the scope admits now; None while nothing limits it."""
    in_flight: int
    """Requests in flight now."""
    waiting: int
    """Callers that wait for a permit now."""
    waited_s: float
    """Seconds that callers have waited for permits, summed."""
    peak_in_flight: int
    """The most requests that were in flight at once."""
    limited: bool
    """Whether the scope is paced now, because it was refused."""
    moved_bytes: int = 0
    """Bytes read or written, by the lengths of the bodies."""
    bytes_per_s: float = 0.0
    """The same, each second, in the last 5 to 10 s."""
    plateau_bytes_per_s: float | None = None
    """Bytes a second above which more requests in flight moved no more, without a refusal; None: not seen."""
    unverified: int = 0
    """Bodies that came without a length and a checksum, so that nobody can tell whether they are whole."""
    hedged: int = 0
    """Reads that were sent a second time because their answer was late (`hedge=True`)."""
    hedges_won: int = 0
    """Those of them of which the second request was answered sooner."""
    leaf: bool = True
    """Whether requests are counted here first; False for the buckets and stores above, which sum up."""
    level: str = "prefix"
    """What it is: "endpoint", "account", "bucket" (a container, too), "prefix" or "blob"."""
    charged: int = 0
    """Refusals that were this scope's own, by what the service said or its neighbours show; others were for a wider
    limit, that of a bucket or an account, or for one hot blob."""

    @property
    def advice(self) -> str:
        """What to do about this scope; "" where nothing need be done."""
        return _advice(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `report()` returns: a snapshot, free of credentials and of objects' names."""

    at_s: float
    """When it was taken, on the library's monotonic clock."""
    scopes: tuple[ScopeReport, ...]
    """All scopes that this process knows, in the order of their first use."""

    def hot_prefixes(self, n: int = 5) -> tuple[ScopeReport, ...]:
        """Return at most `n` prefixes (and hot blobs) that were refused, the most refused first, each with an `advice`.

        Only those whose own limit it was, at least as often as not: see `ScopeReport.charged`.
        """
        hot = [scope for scope in self.scopes if scope.leaf and _is_hot(scope)]
        return tuple(sorted(hot, key=lambda scope: (-scope.refused, scope.label))[:n])

    def to_json(self) -> str:
        """Return the report as a JSON object: `at_s`, `scopes`, and the `hot_prefixes` with their `advice`."""
        hot = [{"label": scope.label, "advice": scope.advice} for scope in self.hot_prefixes()]
        return json.dumps({"at_s": self.at_s, "scopes": [asdict(scope) for scope in self.scopes], "hot_prefixes": hot})

    def __str__(self) -> str:
        leaves = [scope for scope in self.scopes if scope.leaf]
        if not leaves:
            return "no requests yet"
        busiest = sorted(leaves, key=lambda scope: (-scope.refused, -scope.sent, scope.label))
        lines = _table([_HEAD, *map(_row, busiest[:_SHOWN_SCOPES])])
        if len(busiest) > _SHOWN_SCOPES:
            lines.append(f"... and {len(busiest) - _SHOWN_SCOPES} more")
        wider = [scope for scope in self.scopes if not scope.leaf and scope.charged]
        if wider:
            lines += ["", *_table([_HEAD, *map(_row, wider)])]
        hot = (*self.hot_prefixes(), *wider)
        capped = [scope for scope in leaves if scope.plateau_bytes_per_s is not None and scope not in hot]
        lines += [f"{scope.label}: {scope.advice}" for scope in (*hot, *capped) if scope.advice]
        lines += [f"{scope.label}: {scope.unverified} {_UNVERIFIED}" for scope in leaves if scope.unverified]
        lines += [_hedged(scope) for scope in leaves if scope.hedged]
        return "\n".join(lines)


def _is_hot(scope: ScopeReport) -> bool:
    return scope.refused > 0 and 2 * scope.charged >= scope.refused


def report() -> Report:
    """Return what this process has sent, and what came back, by scope. Cheap; safe in any thread.

    Each process has its own: that of a DataLoader's worker must be taken in the worker.
    """
    run = runtime()
    lanes, levels = run.gate.lanes(), run.gate.levels()
    waiting: Counter[str] = Counter()
    places: Counter[str] = Counter()
    in_flight: Counter[str] = Counter()
    for lane in lanes:
        for level in lane.levels:
            waiting[level.key] += len(lane.waiting)
            # The lane of a hot blob has the semaphore of its prefix.
            in_flight[level.key] += 0 if lane.path.blob else lane.in_flight
        places[lane.leaf.key] = max(places[lane.leaf.key], int(lane.full_cap))
        if lane.path.blob:
            in_flight[lane.leaf.key] += lane.leaf.in_flight
    return Report(
        at_s=run.clock.now(),
        scopes=tuple(
            _scope_report(level, run.clock.now(), waiting[level.key], in_flight[level.key], places[level.key])
            for level in levels
        ),
    )


def _scope_report(level: Level, now: float, waiting: int, in_flight: int, places: int) -> ScopeReport:
    tally, flow, rate = level.tally, level.flow, law.rate_per_s(level.rate)
    return ScopeReport(
        label=redact(label(level.key)),
        op_class=level.key.rpartition("|")[2],
        sent=tally.sent,
        succeeded=tally.succeeded,
        refused=tally.refused,
        suspected=tally.suspected,
        share_refused=tally.refused / tally.sent if tally.sent else 0.0,
        rate_per_s=None if math.isinf(rate) else rate,
        in_flight=in_flight,
        waiting=waiting,
        waited_s=tally.waited_s,
        peak_in_flight=level.peak_in_flight,
        limited=law.is_limited(level.rate),
        moved_bytes=flow.total_bytes,
        bytes_per_s=flow.bytes_per_s(now),
        plateau_bytes_per_s=flow.plateau_bytes_per_s(places) if places else None,
        unverified=tally.unverified,
        hedged=tally.hedged,
        hedges_won=tally.hedges_won,
        leaf=places > 0,
        level=level_of(level.key),
        charged=tally.charged,
    )


def _advice(scope: ScopeReport) -> str:
    if scope.plateau_bytes_per_s is not None:
        return (
            f"more requests in flight move no more than {scope.plateau_bytes_per_s / 1e6:.3g} MB/s, and none is "
            "refused: the cap is on bytes (the network of this machine, or the egress of the account), not on requests"
        )
    if not scope.refused:
        return ""
    if scope.share_refused < _WORTH_ADVICE:
        return "refused now and then; the limit holds it at its ceiling, nothing need be done"
    what = _what(scope)
    if scope.rate_per_s is None:
        return f"{what}, or set rate_per_s or a lower max_concurrency"
    return f"{what}: this one takes about {scope.rate_per_s:.3g} requests a second from this process"


def _what(scope: ScopeReport) -> str:
    if scope.op_class not in ("read", "write"):
        return "send fewer of these at once"
    match scope.level:
        case "prefix":
            return "spread the keys over more prefixes"
        case "blob":
            return "keep copies of this object under other names, or read it once and hand it on"
        case _:
            return f"a limit of the whole {scope.level}, more prefixes do not help: use more of them, or ask for more"


def _hedged(scope: ScopeReport) -> str:
    return f"{scope.label}: {scope.hedged} reads were sent twice, {scope.hedges_won} times the second was sooner"


_HEAD = ("scope", "sent", "refused", "suspected", "rate/s", "in flight", "peak", "waiting", "waited s")


def _row(scope: ScopeReport) -> tuple[str, ...]:
    rate = "-" if scope.rate_per_s is None else f"{scope.rate_per_s:.3g}"
    refused = f"{scope.refused} ({scope.share_refused:.1%})" if scope.refused else "0"
    return (
        *(scope.label, str(scope.sent), refused, str(scope.suspected), rate, str(scope.in_flight)),
        *(str(scope.peak_in_flight), str(scope.waiting), f"{scope.waited_s:.1f}"),
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
