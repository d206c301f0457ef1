"""The policy: how long and how hard one call tries, and where its values come from.

Each value is taken from the first of these that names it: the overlays of the call (the nearest
first: call arguments, storage options), `configure()`, the environment (`RESILIENT_IO_<FIELD>`),
and the preset. The preset itself is the first that is named, in the same order
(`RESILIENT_IO_PRESET` in the environment), else "training". `RESILIENT_IO=0` wins over everything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib.util
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

DEFAULT_PRESET: Final = "training"
_ENV_PREFIX = "RESILIENT_IO_"
_KILL_SWITCH = "RESILIENT_IO"
# Variables of the library that are not policy; any other RESILIENT_IO_ name must be a field.
_OTHER_VARIABLES = frozenset({"PRESET", "LOG", "AUTO", "RUN", "COORD_DIR"})

Check = Callable[[object], object]
"""Return the value as the field holds it, or raise ValueError with the end of "<field> must be ..."."""


def _whole(least: int) -> Check:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number of at least {least}")
        return value

    return check


def _number(least: float, *, above: bool = False) -> Check:
    wanted = f"a number above {least:g}" if above else f"a number of at least {least:g}"

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(wanted)
        if value < least or (above and value == least):
            raise ValueError(wanted)
        return float(value)

    return check


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _text(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise ValueError("a text that is not empty")
    return value


def _one_of(*names: str) -> Check:
    def check(value: object) -> object:
        if value not in names:
            raise ValueError("one of " + ", ".join(repr(name) for name in names))
        return value

    return check


def _or_none(check: Check) -> Check:
    def check_or_none(value: object) -> object:
        if value is None:
            return None
        try:
            return check(value)
        except ValueError as error:
            raise ValueError(f"{error}, or None") from None

    return check_or_none


def _redis_url(value: object) -> object:
    """Check the form only; nothing is connected. What is wrong is said without the text: it may hold a password."""
    if value is None or (isinstance(value, str) and re.match(r"(rediss?://[^/\s]|unix:///)\S*\Z", value)):
        return value
    raise ValueError("a URL such as 'rediss://:password@host:6379/0' ('redis://', 'rediss://' or 'unix://'), or None")


def _aliases(value: object) -> object:
    """Return pairs of names, sorted, whatever mapping or pairs they came as: a policy must be hashable."""
    with contextlib.suppress(ValueError):
        value = json.loads(value) if isinstance(value, str) else value
    pairs = list(value.items()) if isinstance(value, Mapping) else value or ()
    if not isinstance(pairs, (list, tuple)) or not all(map(_is_pair_of_names, pairs)):
        raise ValueError("names of buckets by their aliases, such as {'my-access-point-s3alias': 'my-bucket'}")
    return tuple(sorted((alias, bucket) for alias, bucket in pairs))


def _is_pair_of_names(pair: object) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(name, str) and name for name in pair)


_REACHES: Final = ("cluster", "node", "process")


def _prefix_rule(value: object) -> object:
    """Check the form only: a function that is named is imported when `control.scopes` first needs it."""
    rule = str(_or_none(_text)(value) or "")
    if "(" not in rule:
        if rule and not re.fullmatch(r"[^\W\d]\w*(\.\w+)*[.:]\w+", rule):
            raise ValueError("a regular expression with one group, or a function's name such as 'package.module:name'")
        return value
    try:
        groups = re.compile(rule).groups
    except re.error as error:
        raise ValueError(f"a regular expression with one group ({error})") from None
    if groups != 1:
        raise ValueError(f"a regular expression with exactly one group, the prefix; this one has {groups}")
    return value


def _field(default: object, check: Check, *, shown: bool = True) -> Any:
    return field(default=default, repr=shown, metadata={"check": check})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one call behaves under faults; frozen, validated, and JSON-able.

    The defaults are the preset "training". Raises ValueError, with what to write instead, for a
    value out of range or of the wrong type, and for one that this version cannot honour.
    """

    deadline_s: float = _field(300.0, _number(0, above=True))
    """Seconds without progress (a byte, a part, a page) until a call gives up; > 0, default 300.

    Below the 600 s after which PyTorch's NCCL process group gives up: the rank that waits for
    storage should be the one that says so. "checkpoint" has 900: a lost save costs more than a wait.
    """
    total_deadline_s: float | None = _field(None, _or_none(_number(0, above=True)))
    """Seconds for a whole call, progress or not; > 0, default None: a large object may take hours."""
    max_attempts: int = _field(6, _whole(1))
    """Requests since the last progress under faults other than refusals; >= 1 (no retry), default 6.

    botocore's legacy mode sends 5, its standard mode 3, azure-storage-blob 4. "checkpoint" has 10.
    """
    max_throttle_attempts: int = _field(30, _whole(1))
    """Requests since the last progress under refusals; >= 1 (no retry), default 30, "checkpoint" 100.

    More than for other faults, because a refusal costs the service little and says that waiting helps.
    """
    backoff_base_s: float = _field(0.2, _number(0))
    """Seconds under which the first delay is drawn; >= 0, at most `backoff_cap_s`, default 0.2."""
    backoff_cap_s: float = _field(20.0, _number(0))
    """Seconds that no drawn delay exceeds, and to which Retry-After is clamped; >= 0, default 20.

    20 s is the cap of botocore's standard retry mode.
    """
    retry_budget: float = _field(0.2, _number(0))
    """Retries that each success of a scope earns, for faults other than refusals; >= 0, default 0.2.

    A broken service then sees at most a fifth more requests than it answers, as with Finagle's retry budget. With a
    tenth, which gRPC's design for retry throttling takes, a network that breaks 12 % of the requests fails operations.
    """
    retry_budget_burst: float = _field(10.0, _number(0))
    """Retries that a scope may make before its first success, and the most it saves; >= 0, default 10."""
    max_concurrency: int = _field(64, _whole(1))
    """Requests in flight per scope, class of operation and process; >= 1, default 64, "checkpoint" 32."""
    rate_per_s: float | None = _field(None, _or_none(_number(0, above=True)))
    """Requests per second that a scope may send; > 0, default None: learnt from the refusals."""
    bytes_per_s: float | None = _field(None, _or_none(_number(0, above=True)))
    """Bytes per second that a scope may move, its reads and its writes apart; > 0, default None: no such limit.

    For a share of a link or of an account's egress that others need too. What a request will move is taken for what the
    others moved, and put right by its answer; a large object is followed by a pause. Of this process alone, as
    `rate_per_s`.
    """
    prefix_depth: int = _field(2, _whole(0))
    """Directory segments under the bucket that make a prefix; >= 0 (the bucket is one), default 2."""
    prefix_rule: str | None = _field(None, _prefix_rule)
    """What replaces `prefix_depth`: a regular expression with one group, or `package.module:function`."""
    bucket_aliases: tuple[tuple[str, str], ...] = _field((), _aliases)
    """Other names of buckets, alias to bucket; a mapping, pairs or JSON, default none.

    An S3 access point, by its alias or its ARN, leads to a bucket whose prefixes have one limit, whatever the door.
    No API that a reader may call says which bucket that is.
    """
    coordination: Literal["cluster", "node", "process"] | None = _field(None, _or_none(_one_of(*_REACHES)))
    """Who shares a limit: this machine's processes ("node"), those of all machines ("cluster") or none ("process").

    Default None: "node" where it works; "node" differs from that only in that it logs a warning where
    it does not. "cluster" needs `redis_url` and the package redis (`pip install 'resilient-io[redis]'`).
    """
    redis_url: str | None = _field(None, _redis_url, shown=False)
    """The Redis through which machines share their limits, default None; read with coordination="cluster".

    `redis://`, `rediss://` (TLS) or `unix://`, with user and password in it. It is in no log, error,
    report or repr; `to_json` and pickles hold it, because another process needs it.
    """
    fleet_size: int | None = _field(None, _or_none(_whole(1)))
    """Processes of the whole job that use the same store; >= 1, default None: what the launcher says.

    That is WORLD_SIZE and LOCAL_WORLD_SIZE (torchrun), or what Open MPI, MVAPICH or Slurm set; without
    them one machine is taken for the whole job. A scope that stands for all of it can tell refusals by
    chance from load within seconds; a small part of a large fleet is the more careful. Used from the
    first refusal on; one that is wrong costs refusals or time, never an operation.
    """
    hedge: bool = _field(False, _boolean)
    """Whether a read whose answer is late is sent a second time, and the sooner answer taken; default False.

    After the scope's own 95th percentile of at least 200 answers, at least 20 ms; at most 5 % more requests with a
    burst of 10, and none while the scope, or one above it, is limited, and for 60 s after. It costs each read a task or
    a thread.
    """
    min_throughput_bytes_per_s: float = _field(1024.0, _number(0))
    """Bytes per second below which a body counts as stalled; >= 0 (0: never), default 1024.

    Such a body is ended and goes on from the next byte, as one that died does. A socket's timeout begins anew with each
    byte and never ends a body that trickles.
    """
    stall_window_s: float = _field(30.0, _number(0, above=True))
    """Seconds of waiting for a body over which that throughput is measured; > 0, default 30.

    AWS's own transfer library (CRT) takes 30 s too. A silence is a stall when it has lasted for one to two windows.
    """
    verify: Literal["auto", "strict"] = _field("auto", _one_of("auto", "strict"))
    """How bodies are checked; default "auto", in the preset "checkpoint" "strict".

    Both count each body against its length, its range and its version, and compare the checksums that the SDK asks for
    over all answers that make a body. A body with neither a length nor a checksum is an event and a line of the report
    under "auto", and an error under "strict"; "strict" also compares the MD5 that Azure keeps of a whole blob (about
    1.5 ms a MiB), and the checksum of an object that a filesystem puts together from ranges (about 1 ms a MiB).
    """
    enabled: bool = _field(True, _boolean)
    """Whether the library does anything; False passes every call through. Default True."""

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, _checked(name, check, getattr(self, name)))
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
        """Return the policy of a preset: "training" or "checkpoint"."""
        return cls(**_PRESETS[_preset_name(name)])

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """Return the policy that `to_json` wrote; fields that are left out have their defaults."""
        return cls(**_fields_of(_parsed(text)))

    def to_json(self) -> str:
        """Return all fields as a JSON object."""
        return json.dumps({name: getattr(self, name) for name in _CHECKS})


def _require_cluster(redis_url: str | None) -> None:
    if redis_url is None:
        raise ValueError(
            "coordination='cluster' needs redis_url, the Redis through which the machines share their limits; "
            "set it in the same place, or RESILIENT_IO_REDIS_URL in the environment"
        )
    if importlib.util.find_spec("redis") is None:
        raise ValueError("coordination='cluster' needs the package redis: pip install 'resilient-io[redis]'")


_CHECKS: dict[str, Check] = {f.name: f.metadata["check"] for f in dataclasses.fields(Policy)}
_DEFAULTS: dict[str, object] = {f.name: f.default for f in dataclasses.fields(Policy)}
_PRESETS: dict[str, dict[str, Any]] = {
    "training": {},
    "checkpoint": {
        "deadline_s": 900.0,
        "max_attempts": 10,
        "max_throttle_attempts": 100,
        "max_concurrency": 32,
        "verify": "strict",
    },
}


def _checked(name: str, check: Check, value: object) -> object:
    try:
        kept = check(value)
    except ValueError as error:
        hint = "; write the number without quotes" if _is_quoted_number(value) else ""
        raise ValueError(f"{name} must be {error}, not {_shown(name, value)}{hint}") from None
    return kept


def _shown(name: str, value: object) -> str:
    """Return the value as an error shows it: no URL with a password in it, wherever somebody put it."""
    return f"this {type(value).__name__}" if name == "redis_url" else _without_password(repr(value))


def _without_password(text: str) -> str:
    return re.sub(r"(?<=://)\S+", "***", text)


def _is_quoted_number(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\s*-?\d+(\.\d*)?\s*", value) is not None


def _unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)
    return ValueError(f"unknown {kind} {_without_password(repr(name))}; {hint}")


def _preset_name(name: object) -> str:
    if not isinstance(name, str) or name not in _PRESETS:
        raise _unknown("preset", name, _PRESETS)
    return name


def _parsed(text: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"a policy in JSON cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a policy in JSON must be an object, not {_without_password(repr(value))}")
    return value


def _fields_of(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values checked one by one; ValueError for a name that is no field."""
    for name in values:
        if name not in _CHECKS:
            raise _unknown("policy field", name, _CHECKS)
    return {name: _checked(name, _CHECKS[name], value) for name, value in values.items()}


def overlay(value: object) -> Mapping[str, object]:
    """Return what a `resilience=` value sets: checked fields, and "preset" if it names one.

    None sets nothing; False (True) sets `enabled`; a str is a preset's name or a JSON object; a
    mapping holds fields and maybe "preset"; a Policy sets every field. Raises ValueError for
    anything else.
    """
    match value:
        case None:
            return {}
        case bool():
            return {"enabled": value}
        case Policy():
            return {name: getattr(value, name) for name in _CHECKS}
        case str():
            return overlay(_parsed(value)) if value.lstrip().startswith("{") else {"preset": _preset_name(value)}
        case Mapping():
            fields = {name: set_to for name, set_to in value.items() if name != "preset"}
            preset = {"preset": _preset_name(value["preset"])} if value.get("preset") is not None else {}
            return {**preset, **_fields_of(fields)}
        case _:
            raise ValueError(
                "resilience must be a mapping of policy fields, a preset's name, JSON, a Policy, False or None, "
                f"not {_without_password(repr(value))}"
            )


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """Return what the variables set; an empty variable sets nothing."""
    found: dict[str, object] = {}
    for variable, text in environ.items():
        suffix = variable[len(_ENV_PREFIX) :]
        if not variable.startswith(_ENV_PREFIX) or not text.strip():
            continue
        if suffix == "PRESET":
            found["preset"] = _named(variable, _preset_name, text.strip())
        elif suffix not in _OTHER_VARIABLES:
            found[suffix.lower()] = _named(variable, _field_from_text, suffix.lower(), text.strip())
    return found


def _named(variable: str, parse: Callable[..., object], *arguments: str) -> object:
    try:
        return parse(*arguments)
    except ValueError as error:
        raise ValueError(f"environment variable {variable}: {error}") from None


def _field_from_text(name: str, text: str) -> object:
    if name not in _CHECKS:
        raise _unknown("policy field", name, _CHECKS)
    return _checked(name, _CHECKS[name], _value_of_text(name, text))


_WORDS: dict[str, bool] = {
    **dict.fromkeys(("1", "true", "on", "yes"), True),
    **dict.fromkeys(("0", "false", "off", "no"), False),
}


def _value_of_text(name: str, text: str) -> object:
    """Return the text as the kind of value that the field's default and check expect."""
    lowered = text.lower()
    if lowered in ("none", "null"):
        return None
    if isinstance(_DEFAULTS[name], bool):
        return _WORDS.get(lowered, text)
    if name in ("prefix_rule", "redis_url", "coordination", "verify", "bucket_aliases"):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _switched_off(environ: Mapping[str, str]) -> bool:
    text = environ.get(_KILL_SWITCH, "").strip().lower()
    if text and text not in _WORDS:
        raise ValueError(f"environment variable {_KILL_SWITCH} must be 0 or 1, not {text!r}")
    return bool(text) and not _WORDS[text]


_OFF = Policy(enabled=False)
_SET_NOTHING: tuple[tuple[object, ...], ...] = ((None,), ({},))
# Callers hold few overlays (one per filesystem or client); one that makes a new mapping per call
# must not grow the memory.
_MOST_CACHED = 1024


class _Sources:
    """One snapshot of configure() and of the environment, and what was resolved under it.

    Never changed but for its cache; `configure` and `reload` put a new one in its place, so that no
    lock is needed.
    """

    __slots__ = ("_cache", "_plain", "configured", "environ")

    def __init__(self, configured: Mapping[str, object]) -> None:
        self.configured = configured
        # Parsed when first needed: a bad variable must not make the import fail.
        self.environ = {k: v for k, v in os.environ.items() if k == _KILL_SWITCH or k.startswith(_ENV_PREFIX)}
        self._plain: Policy | None = None
        self._cache: dict[tuple[int, ...], tuple[tuple[object, ...], tuple[object, ...], Policy]] = {}

    def resolve(self, overlays: tuple[object, ...]) -> Policy:
        if not overlays or overlays in _SET_NOTHING:
            if self._plain is None:
                self._plain = self._combined(())
            return self._plain
        key = tuple(map(id, overlays))
        hit = self._cache.get(key)
        # The entry keeps the overlays alive, so that no other object gets their id; the copies tell
        # a mapping that was changed since.
        if hit is not None and hit[1] == hit[0]:
            return hit[2]
        policy = self._combined(overlays)
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        copies = tuple(dict(each) if isinstance(each, Mapping) else each for each in overlays)
        self._cache[key] = (overlays, copies, policy)
        return policy

    def _combined(self, overlays: tuple[object, ...]) -> Policy:
        if _switched_off(self.environ):
            return _OFF
        layers = [*map(overlay, overlays), self.configured, _from_environment(self.environ)]
        merged: dict[str, Any] = {}
        for layer in reversed(layers):
            merged.update(layer)
        preset = merged.pop("preset", DEFAULT_PRESET)
        return Policy(**{**_PRESETS[preset], **merged})


_sources = _Sources({})


def resolve(*overlays: object) -> Policy:
    """Return the policy under these overlays, the nearest first; each is a value that `overlay` takes.

    Cheap when nothing changed: overlays are remembered by identity. The environment is read at
    import, at `configure`, `reset` and `reload`, not here. Raises ValueError for a bad overlay or
    variable. With `RESILIENT_IO=0` the answer is a policy with `enabled` False, whatever else is set.
    """
    return _sources.resolve(overlays)


def configure(**fields: object) -> None:
    """Set policy fields, and maybe `preset`, for the whole process; adds to earlier calls.

    Takes effect for the next operation of every filesystem and client. Raises ValueError, and
    changes nothing, if a value or the whole does not hold. Reads the environment anew.
    """
    global _sources
    fresh = _Sources({**_sources.configured, **overlay(fields)})
    fresh.resolve(())
    _sources = fresh


def configured() -> Mapping[str, object]:
    """Return what `configure` set in this process."""
    return dict(_sources.configured)


def reset() -> None:
    """Forget what `configure` set, and read the environment anew."""
    global _sources
    _sources = _Sources({})


def reload() -> None:
    """Read the environment anew; what `configure` set stays."""
    global _sources
    _sources = _Sources(_sources.configured)
