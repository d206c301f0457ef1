"""The policy: how long and how hard one call tries, and what each number is for."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from resilient_io.policy import checks
from resilient_io.policy.checks import Check
from resilient_io.policy.presets import PRESETS, preset_name
from resilient_io.policy.refusals import checked, unknown, without_password

_REACHES: Final = ("cluster", "node", "process")


def _field(default: object, check: Check, *, shown: bool = True) -> Any:
    return field(default=default, repr=shown, metadata={"check": check})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one call behaves under faults; frozen, validated, hashable, picklable, and JSON-able. Safe in any thread.

    The defaults are the preset "training". Raises ValueError, with what to write instead, for a
    value out of range or of the wrong type, and for one that this version cannot honour.
    """

    deadline_s: float = _field(300.0, checks.number(0, above=True))
    """Seconds without progress (a byte, a part, a page) until a call gives up; > 0, default 300.

    Below the 600 s after which PyTorch's NCCL process group gives up: the rank that waits for
    storage should be the one that says so. "checkpoint" has 900: a lost save costs more than a wait.
    """
    total_deadline_s: float | None = _field(None, checks.or_none(checks.number(0, above=True)))
    """Seconds for a whole call, progress or not; > 0, default None: a large object may take hours."""
    max_attempts: int = _field(6, checks.whole(1))
    """Requests since the last progress under faults other than refusals; >= 1 (no retry), default 6.

    botocore's legacy mode sends 5, its standard mode 3, azure-storage-blob 4. "checkpoint" has 10.
    """
    max_throttle_attempts: int = _field(30, checks.whole(1))
    """Requests since the last progress under refusals; >= 1 (no retry), default 30, "checkpoint" 100.

    More than for other faults, because a refusal costs the service little and says that waiting helps.
    """
    backoff_base_s: float = _field(0.2, checks.number(0))
    """Seconds under which the first delay is drawn; >= 0, at most `backoff_cap_s`, default 0.2.

    Before attempt n + 1 the delay is uniform in [0, min(`backoff_cap_s`, `backoff_base_s` * 2 ** (n - 1))].
    """
    backoff_cap_s: float = _field(20.0, checks.number(0))
    """Seconds that no drawn delay exceeds, and to which Retry-After is clamped; >= 0, default 20.

    20 s is the cap of botocore's standard retry mode.
    """
    retry_budget: float = _field(0.2, checks.number(0))
    """Retries that each success of a scope earns, for faults other than refusals; >= 0, default 0.2.

    A broken service then sees at most a fifth more requests than it answers, as with Finagle's retry budget. With a
    tenth, which gRPC's design for retry throttling takes, a network that breaks 12 % of the requests fails operations.
    """
    retry_budget_burst: float = _field(10.0, checks.number(0))
    """Retries that a scope may make before its first success, and the most it saves; >= 0, default 10.

    So a few faults at a start are survived, and a long time of successes buys no storm of retries.
    """
    max_concurrency: int = _field(64, checks.whole(1))
    """Requests in flight per scope, class of operation and process; >= 1, default 64, "checkpoint" 32.

    A limit on what one process keeps open; the rate is learnt beside it. Who comes next waits; that is no attempt.
    """
    max_concurrency_node: int | None = _field(None, checks.or_none(checks.whole(1)))
    """Requests in flight per scope and class of operation over all processes of this machine; >= 1, default None.

    For what a machine can bear: memory, sockets, a link. It counts what policies with this field have in flight;
    `max_concurrency` holds for each process beside it. A killed process's requests are given back at once. With
    coordination="process", and where processes cannot share a table, each process counts its own, with one warning.
    """
    weight: float = _field(1.0, checks.between(0.1, 10.0))
    """What the callers of this policy get, relative to those of others, where a limit makes both wait.

    0.1 to 10, default 1.0 in both presets: a checkpoint beside dataloaders gets as much as they do, however many
    callers each has. With 3.0 it gets three requests for each one of theirs. Where nothing waits it changes nothing.
    """
    rate_per_s: float | None = _field(None, checks.or_none(checks.number(0, above=True)))
    """Requests per second that a scope may send; > 0, default None: learnt from the refusals.

    Of this process alone, above what is learnt, which goes on: the lower one holds.
    """
    bytes_per_s: float | None = _field(None, checks.or_none(checks.number(0, above=True)))
    """Bytes per second that a scope may move, its reads and its writes apart; > 0, default None: no such limit.

    For a share of a link or of an account's egress that others need too. What a request will move is taken for what the
    others moved, and put right by its answer; a large object is followed by a pause. Of this process alone, as
    `rate_per_s`.
    """
    prefix_depth: int = _field(2, checks.whole(0))
    """Directory segments under the bucket that make a prefix; >= 0 (the bucket is one), default 2.

    S3's partitions are hidden; two segments fit layouts such as `dataset/split/...`.
    """
    prefix_rule: str | None = _field(None, checks.rule_of_prefixes)
    """What replaces `prefix_depth`: a regular expression with one group, or `package.module:function`; default None."""
    bucket_aliases: tuple[tuple[str, str], ...] = _field((), checks.pairs_of_names)
    """Other names of buckets, alias to bucket; a mapping, pairs or JSON, default none.

    An S3 access point, by its alias or its ARN, leads to a bucket whose prefixes have one limit, whatever the door.
    No API that a reader may call says which bucket that is.
    """
    coordination: Literal["cluster", "node", "process"] | None = _field(None, checks.or_none(checks.one_of(*_REACHES)))
    """Who shares a limit: this machine's processes ("node"), those of all machines ("cluster") or none ("process").

    Default None: "node" where it works; "node" differs from that only in that it logs a warning where
    it does not. "cluster" needs `redis_url` and the package redis (`pip install 'resilient-io[redis]'`).
    """
    redis_url: str | None = _field(None, checks.url_of_redis, shown=False)
    """The Redis through which machines share their limits, default None; read with coordination="cluster".

    `redis://`, `rediss://` (TLS) or `unix://`, with user and password in it. It is in no log, error,
    report or repr; `to_json` and pickles hold it, because another process needs it.
    """
    fleet_size: int | None = _field(None, checks.or_none(checks.whole(1)))
    """Processes of the whole job that use the same store; >= 1, default None: what the launcher says.

    That is WORLD_SIZE and LOCAL_WORLD_SIZE (torchrun), or what Open MPI, MVAPICH or Slurm set; without
    them one machine is taken for the whole job. A scope that stands for all of it can tell refusals by
    chance from load within seconds; a small part of a large fleet is the more careful. Used from the
    first refusal on; one that is wrong costs refusals or time, never an operation.
    """
    hedge: bool = _field(False, checks.boolean)
    """Whether a read whose answer is late is sent a second time, and the sooner answer taken; default False.

    After the scope's own 95th percentile of at least 200 answers, at least 20 ms; at most 5 % more requests with a
    burst of 10, and none while the scope, or one above it, is limited, and for 60 s after. It costs each read a task or
    a thread.
    """
    min_throughput_bytes_per_s: float = _field(1024.0, checks.number(0))
    """Bytes per second below which a body counts as stalled; >= 0 (0: never), default 1024.

    Such a body is ended and goes on from the next byte, as one that died does. A socket's timeout begins anew with each
    byte and never ends a body that trickles.
    """
    stall_window_s: float = _field(30.0, checks.number(0, above=True))
    """Seconds of waiting for a body over which that throughput is measured; > 0, default 30.

    AWS's own transfer library (CRT) takes 30 s too. A silence is a stall when it has lasted for one to two windows.
    """
    verify: Literal["auto", "strict"] = _field("auto", checks.one_of("auto", "strict"))
    """How bodies are checked; default "auto", in the preset "checkpoint" "strict".

    Both count each body against its length, its range and its version, and compare the checksums that the SDK asks for
    over all answers that make a body. A body with neither a length nor a checksum is an event and a line of the report
    under "auto", and an error under "strict"; "strict" also compares the MD5 that Azure keeps of a whole blob (about
    1.5 ms a MiB), and the checksum of an object that a filesystem puts together from ranges (about 1 ms a MiB).
    """
    enabled: bool = _field(True, checks.boolean)
    """Whether the library does anything; False passes every call through. Default True."""

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            object.__setattr__(self, name, checked(name, check, getattr(self, name)))
        if self.backoff_base_s > self.backoff_cap_s:
            raise ValueError(
                f"backoff_base_s ({self.backoff_base_s:g}) must not exceed backoff_cap_s ({self.backoff_cap_s:g}); "
                "lower the one or raise the other"
            )
        if self.coordination == "cluster":
            _require_cluster(self.redis_url)

    def bucket_of(self, name: str) -> str:
        """Return the bucket that a name stands for: mostly itself."""
        return dict(self.bucket_aliases).get(name, name) if self.bucket_aliases else name

    @classmethod
    def preset(cls, name: str) -> Policy:
        """Return the policy of a preset, "training" or "checkpoint"; ValueError for another name."""
        return cls(**PRESETS[preset_name(name)])

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """Return the policy that `to_json` wrote; fields that are left out have their defaults.

        Raises ValueError for what is no JSON object, for a name that is no field, and for a value that does not hold.
        """
        return cls(**fields_of(parsed(text)))

    def to_json(self) -> str:
        """Return all fields as a JSON object, `redis_url` with its password among them."""
        return json.dumps({name: getattr(self, name) for name in CHECKS})


def _require_cluster(redis_url: str | None) -> None:
    if redis_url is None:
        raise ValueError(
            "coordination='cluster' needs redis_url, the Redis through which the machines share their limits; "
            "set it in the same place, or RESILIENT_IO_REDIS_URL in the environment"
        )
    if importlib.util.find_spec("redis") is None:
        raise ValueError("coordination='cluster' needs the package redis: pip install 'resilient-io[redis]'")


CHECKS: Final[Mapping[str, Check]] = {f.name: f.metadata["check"] for f in dataclasses.fields(Policy)}
DEFAULTS: Final[Mapping[str, object]] = {f.name: f.default for f in dataclasses.fields(Policy)}


def check_of(name: str) -> Check:
    """Return the check of a field; ValueError, with the nearest name, for what is no field."""
    if name not in CHECKS:
        raise unknown("policy field", name, CHECKS)
    return CHECKS[name]


def parsed(text: str) -> Mapping[str, object]:
    """Return the JSON object in a text; ValueError for another value, and for what is no JSON."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"a policy in JSON cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a policy in JSON must be an object, not {without_password(repr(value))}")
    return value


def fields_of(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values checked one by one; ValueError for a name that is no field."""
    found = {name: check_of(name) for name in values}
    return {name: checked(name, check, values[name]) for name, check in found.items()}
