"""What a `FaultServer` does to its clients, as plain frozen data that goes through JSON and back.

A `FaultPlan` has three parts, asked in this order for each request:

1. `outages`: windows in which every matching request is refused;
2. `ceilings`: token buckets, a request over the ceiling is refused;
3. `rules`: scripted faults (by call number) and random ones (by seed).

A rule counts only the calls that the first two let through: a store refuses before it works.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from .calls import Call

#: What a bucket of tokens or a counter of calls can be kept apart by.
DIMENSIONS = frozenset({"account", "bucket", "prefix", "op_class", "op", "key"})


class FaultAction(str, Enum):
    """What is done to a call. "Applied" says whether the store did the work."""

    ERROR = "error"  # an error with the protocol's body; not applied
    BODYLESS_ERROR = "bodyless_error"  # the status line and no body; not applied
    RESET_BEFORE = "reset_before"  # RST instead of an answer; not applied
    RESET_AFTER = "reset_after"  # RST instead of an answer; applied
    CLOSE_BEFORE = "close_before"  # FIN instead of an answer; not applied
    CLOSE_AFTER = "close_after"  # FIN instead of an answer; applied
    TRUNCATE = "truncate"  # full Content-Length, FIN after `after_bytes` of the body; applied
    RESET_BODY = "reset_body"  # full Content-Length, RST after `after_bytes` of the body; applied
    EARLY_END_CHUNKED = "early_end_chunked"  # no length, clean last chunk after `after_bytes`; applied
    EARLY_END_EOF = "early_end_eof"  # no length, FIN after `after_bytes`; applied
    STALL_BEFORE = "stall_before"  # silence for `delay_s`, then a close; not applied
    STALL_BODY = "stall_body"  # silence after the head and `after_bytes`, then it goes on; applied
    DELAY = "delay"  # `delay_s` before the normal answer; applied
    OK_WITH_ERROR = "ok_with_error"  # status 200 with the error body; not applied
    OK_EMPTY = "ok_empty"  # status 200, no body; not applied
    INVALID_XML = "invalid_xml"  # a body cut in the middle of a tag; not applied
    IGNORE_RANGE = "ignore_range"  # the Range header is dropped: 200 and everything; applied
    SHORT_RANGE = "short_range"  # the first `after_bytes` of a range, as a sound 206 of those; applied
    IGNORE_IF_NONE_MATCH = "ignore_if_none_match"  # the If-None-Match header is dropped; applied

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which calls are meant: shell patterns, all of which must fit. The default fits every call.

    `op` is the SDK's name ("GetObject"), or on Azure that of the REST reference ("GetBlob"); `op_class` is "read",
    "write", "list" or "delete"; `bucket` is Azure's container.
    """

    op: str = "*"
    op_class: str = "*"
    bucket: str = "*"
    prefix: str = "*"
    key: str = "*"
    account: str = "*"

    def fits(self, call: Call) -> bool:
        """Return whether every pattern fits the call."""
        return all(
            pattern == "*" or fnmatchcase(value, pattern)
            for pattern, value in (
                (self.op, call.op),
                (self.op_class, call.op_class),
                (self.bucket, call.bucket),
                (self.prefix, call.prefix),
                (self.key, call.key),
                (self.account, call.account),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A token bucket: `rate_per_s` tokens a second, at most `rate_per_s * burst_s` (at least 1) saved up.

    A request takes one token or is refused. `per` names what gets a bucket of its own: the default
    gives one to each prefix and class, `("bucket", "prefix")` one to each prefix for all classes,
    `()` one to all that fits `match`. `refusal_cost` is the part of a token that a refusal takes
    (0: free; the bucket does not go below zero). The default burst of 1 s is the one that the
    limiter's own simulation uses. A bucket starts full. `rate_per_s` 0 refuses everything. `refusal`
    None means that the ceiling says no as the plan does. `name` is for the log and for `set_rate`.

    Raises ValueError for a rate, burst or cost out of its range, and for a name in `per` that is none of
    account, bucket, prefix, op_class, op and key.
    """

    rate_per_s: float
    burst_s: float = 1.0
    match: Match = field(default_factory=Match)
    per: tuple[str, ...] = ("account", "bucket", "prefix", "op_class")
    refusal_cost: float = 0.0
    name: str = "ceiling"
    refusal: Refusal | None = None

    def __post_init__(self) -> None:
        _require(self.rate_per_s >= 0, "Ceiling.rate_per_s must be 0 or more requests a second")
        _require(self.burst_s >= 0, "Ceiling.burst_s must be 0 or more seconds")
        _require(0 <= self.refusal_cost <= 1, "Ceiling.refusal_cost is a part of a token, 0 to 1")
        _require(set(self.per) <= DIMENSIONS, f"Ceiling.per holds names out of {sorted(DIMENSIONS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A window of `duration_s` seconds in which what fits `match` is refused; `start_s` counts from the plan's start.

    Raises ValueError for a negative duration.
    """

    start_s: float
    duration_s: float
    match: Match = field(default_factory=Match)

    def __post_init__(self) -> None:
        _require(self.duration_s >= 0, "Outage.duration_s must be 0 or more seconds")

    @property
    def name(self) -> str:
        """What the log calls it."""
        return "outage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """How a ceiling or an outage says no; the default is 503 SlowDown (Azure: ServerBusy) with an XML body.

    `status`, `code` and `message` None mean the protocol's own (S3: 503, "SlowDown"). `retry_after_s` adds a
    Retry-After header. `latency_s` None means the same base latency as a success. With
    `before_body` a client that sent `Expect: 100-continue` is refused at once and the connection is
    closed; by default the body is read first and the connection stays up.
    """

    status: int | None = None
    code: str | None = None
    message: str | None = None
    retry_after_s: float | None = None
    headers: tuple[tuple[str, str], ...] = ()
    latency_s: float | None = None
    before_body: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds that each answer takes: `base_s` + uniform(0, `jitter_s`), and the tail.

    With `tail_probability` (0 to 1) `tail_s` more seconds are added. All default to 0.
    """

    base_s: float = 0.0
    jitter_s: float = 0.0
    tail_probability: float = 0.0
    tail_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """One scripted or random fault.

    The rule counts the calls that fit `match`, from 1; `per` keeps the counts apart (`("key",)`:
    the first call of each key is number 1). It fires where the number is in `calls` (empty: any
    number) and then with `probability`, at most `limit` times altogether.

    `status` and `code` None mean 503 SlowDown for errors (400 and less known statuses need a `code`
    to be told apart). `code` "" is what a gateway answers: a status, and no code, header or body of the store's
    (give `body` for a page). `retry_after_s` adds a Retry-After header, `headers` any others (in the place of
    the answer's own of that name), `body` None
    means the protocol's error body. `after_bytes` is where a body ends or stalls, `delay_s` how long
    (0 with a stall: until the client leaves or the server stops). `after_commit` lets the store
    apply the call before an error is answered. `message` is the text of the error, `name` the rule's own in the log.

    Raises ValueError for a number out of its range, and for a name in `per` that no call has.
    """

    action: FaultAction
    match: Match = field(default_factory=Match)
    calls: tuple[int, ...] = ()
    per: tuple[str, ...] = ()
    probability: float = 1.0
    limit: int | None = None
    status: int | None = None
    code: str | None = None
    message: str | None = None
    body: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    retry_after_s: float | None = None
    after_bytes: int = 0
    delay_s: float = 0.0
    after_commit: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        _require(0 <= self.probability <= 1, "FaultRule.probability must be from 0 to 1")
        _require(all(call >= 1 for call in self.calls), "FaultRule.calls are numbers from 1 on")
        _require(set(self.per) <= DIMENSIONS, f"FaultRule.per holds names out of {sorted(DIMENSIONS)}")
        _require(self.after_bytes >= 0 and self.delay_s >= 0, "FaultRule sizes and times must be 0 or more")

    @property
    def label(self) -> str:
        """The name for logs: `name`, or else the action."""
        return self.name or str(self.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Everything that a server does to its clients; the default does nothing.

    `prefix_depth` is how many leading directory segments of a key make its prefix (default 2, as in
    `Policy`). `seed` drives the random rules and the latency; None draws one, which the server keeps
    in `FaultServer.seed` so that a run can be repeated. `refusal` is how ceilings and outages say no, where they say
    nothing of their own.
    """

    ceilings: tuple[Ceiling, ...] = ()
    outages: tuple[Outage, ...] = ()
    rules: tuple[FaultRule, ...] = ()
    latency: Latency = field(default_factory=Latency)
    refusal: Refusal = field(default_factory=Refusal)
    prefix_depth: int = 2
    seed: int | None = None

    def to_json(self) -> str:
        """Return the plan as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FaultPlan:
        """Build a plan from a JSON object; unknown names raise ValueError."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FaultPlan:
        """Build a plan from a mapping as `to_json` writes it; what is missing takes its default."""
        parts = dict(data)
        parts["ceilings"] = tuple(_ceiling(one) for one in parts.get("ceilings", ()))
        parts["outages"] = tuple(_matched(Outage, one) for one in parts.get("outages", ()))
        parts["rules"] = tuple(_rule(one) for one in parts.get("rules", ()))
        parts["latency"] = _build(Latency, parts.get("latency", {}))
        parts["refusal"] = _build(Refusal, parts.get("refusal", {}))
        return _build(cls, parts)


_T = TypeVar("_T")


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _build(kind: type[_T], data: Mapping[str, Any]) -> _T:
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # each kind is a dataclass
    unknown = sorted(set(data) - known)
    _require(not unknown, f"{kind.__name__} has no field {unknown}; it has {sorted(known)}")
    return kind(**{name: _frozen(value) for name, value in data.items()})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


def _matched(kind: type[_T], data: Mapping[str, Any]) -> _T:
    return _build(kind, {**data, "match": _build(Match, data.get("match", {}))})


def _ceiling(data: Mapping[str, Any]) -> Ceiling:
    refusal = data.get("refusal")
    return _matched(Ceiling, {**data, "refusal": None if refusal is None else _build(Refusal, refusal)})


def _rule(data: Mapping[str, Any]) -> FaultRule:
    return _matched(FaultRule, {**data, "action": FaultAction(data["action"])})
