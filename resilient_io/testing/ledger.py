"""What a server saw: counts, peak concurrency, and a bounded log of requests."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from .calls import Call, Head

#: How many requests a log keeps by default; older ones are dropped, the counts keep them.
LOG_LIMIT = 200_000


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and what became of it. Times are seconds since the server's last reset.

    `status` 0 means that no status went out (a reset, a close, a client that left). `outcome` is
    "ok", "refused" (a ceiling or an outage), "fault" (a rule, named in `cause`), "error" (the store
    itself said no, status 400 and more), "gone" (the client left first) or "failed" (the upstream
    could not be reached). `attempt` is what the SDK's own header says, "" without one.
    """

    number: int
    method: str
    path: str
    op: str
    op_class: str
    bucket: str
    key: str
    prefix: str
    attempt: str = ""
    start_s: float = 0.0
    end_s: float | None = None
    status: int = 0
    outcome: str = ""
    cause: str = ""
    sent_bytes: int = 0
    request_id: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many finished requests had these marks in common."""

    bucket: str
    prefix: str
    op_class: str
    op: str
    status: int
    outcome: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most requests in flight at one time at a prefix and class, head received to answer written."""

    bucket: str
    prefix: str
    op_class: str
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts since the last reset. `requests` holds those still in flight (`in_flight`) too.

    `connections` counts accepted connections; `peak` is the highest concurrency overall. `elapsed_s` is the seconds
    since the reset, `fired` how often each rule of the plan fired, in their order.
    """

    requests: int
    in_flight: int
    peak: int
    connections: int
    elapsed_s: float
    seed: int
    tallies: tuple[Tally, ...]
    peaks: tuple[Peak, ...]
    fired: tuple[int, ...] = ()

    def count(
        self, *, op: str = "*", op_class: str = "*", bucket: str = "*", prefix: str = "*",
        status: int | None = None, outcome: str = "*",
    ) -> int:  # fmt: skip
        """Return how many finished requests fit all of the shell patterns."""
        wanted = (("op", op), ("op_class", op_class), ("bucket", bucket), ("prefix", prefix), ("outcome", outcome))
        return sum(
            one.count
            for one in self.tallies
            if status in (None, one.status) and all(fnmatchcase(getattr(one, name), text) for name, text in wanted)
        )

    @property
    def refusals(self) -> int:
        """Requests that a ceiling or an outage refused."""
        return self.count(outcome="refused")

    @property
    def successes(self) -> int:
        """Requests that were answered as they should be, faults apart."""
        return self.count(outcome="ok")

    def peak_of(self, *, bucket: str = "*", prefix: str = "*", op_class: str = "*") -> int:
        """Return the highest peak among the prefixes and classes that fit the shell patterns."""
        wanted = (("bucket", bucket), ("prefix", prefix), ("op_class", op_class))
        fitting = (
            one.in_flight for one in self.peaks if all(fnmatchcase(getattr(one, name), text) for name, text in wanted)
        )
        return max(fitting, default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Stats:
        """Build the record that `to_dict` gave."""
        parts = dict(data)
        parts["tallies"] = tuple(Tally(**one) for one in parts["tallies"])
        parts["peaks"] = tuple(Peak(**one) for one in parts["peaks"])
        parts["fired"] = tuple(parts["fired"])
        return cls(**parts)


class Ledger:
    """The counters of one server; not thread-safe. Times come from `now`, monotonic seconds."""

    def __init__(self, now: Callable[[], float], *, log_limit: int = LOG_LIMIT) -> None:
        self._now = now
        self._log: deque[Exchange] = deque(maxlen=log_limit)
        self.connections = 0
        self._in_flight: Counter[tuple[str, str, str]] = Counter()
        self._open = 0
        self._number = 0
        self.reset()

    def reset(self) -> None:
        """Start the counts afresh; requests in flight stay in flight and count for the peaks."""
        self._started_s = self._now()
        self._log.clear()
        self._tallies: Counter[tuple[str, str, str, str, int, str]] = Counter()
        self._requests = self._open
        self._peak = self._open
        self._peaks: Counter[tuple[str, str, str]] = Counter(+self._in_flight)
        self.connections = 0

    def begin(self, head: Head, call: Call, request_id: str) -> Exchange:
        """Count a request whose head has come, and put it into the log."""
        self._number += 1
        self._requests += 1
        self._enter(call.bucket, call.prefix, call.op_class)
        exchange = Exchange(
            number=self._number,
            method=head.method,
            path=head.path,
            op=call.op,
            op_class=call.op_class,
            bucket=call.bucket,
            key=call.key,
            prefix=call.prefix,
            attempt=call.attempt,
            start_s=self._now() - self._started_s,
            request_id=request_id,
            account=call.account,
        )
        self._log.append(exchange)
        return exchange

    def finish(self, exchange: Exchange) -> None:
        """Count a request whose answer is written, or that died."""
        exchange.end_s = self._now() - self._started_s
        self._open -= 1
        self._in_flight[exchange.bucket, exchange.prefix, exchange.op_class] -= 1
        key = (exchange.bucket, exchange.prefix, exchange.op_class, exchange.op, exchange.status, exchange.outcome)
        self._tallies[key] += 1

    def stats(self, *, seed: int, fired: tuple[int, ...]) -> Stats:
        """Return the counts as they stand."""
        return Stats(
            requests=self._requests,
            in_flight=self._open,
            peak=self._peak,
            connections=self.connections,
            elapsed_s=self._now() - self._started_s,
            seed=seed,
            tallies=tuple(_tally(key, count) for key, count in sorted(self._tallies.items())),
            peaks=tuple(
                Peak(bucket=bucket, prefix=prefix, op_class=op_class, in_flight=most)
                for (bucket, prefix, op_class), most in sorted(self._peaks.items())
            ),
            fired=fired,
        )

    def log(self, *, op: str = "*", key: str = "*", outcome: str = "*") -> list[Exchange]:
        """Return the kept requests that fit the shell patterns, oldest first."""
        return [
            one
            for one in self._log
            if fnmatchcase(one.op, op) and fnmatchcase(one.key, key) and fnmatchcase(one.outcome, outcome)
        ]

    def _enter(self, bucket: str, prefix: str, op_class: str) -> None:
        place = (bucket, prefix, op_class)
        self._open += 1
        self._in_flight[place] += 1
        self._peak = max(self._peak, self._open)
        self._peaks[place] = max(self._peaks[place], self._in_flight[place])


def _tally(key: tuple[str, str, str, str, int, str], count: int) -> Tally:
    bucket, prefix, op_class, op, status, outcome = key
    return Tally(bucket=bucket, prefix=prefix, op_class=op_class, op=op, status=status, outcome=outcome, count=count)


def log_dicts(exchanges: Iterable[Exchange]) -> list[dict[str, Any]]:
    """Return log entries as plain data for JSON."""
    return [asdict(one) for one in exchanges]
