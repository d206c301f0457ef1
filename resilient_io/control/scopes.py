"""Where load is counted: store, account, bucket, prefix and hot blob, apart for each class of operation."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

_DEFAULT_PORT = {"http": ":80", "https": ":443"}
# Enough for every prefix of a large dataset at depth 2; an entry is about 1 KB.
_CACHED_PATHS = 8192
_SEPARATOR = "|"
# Begins a blob's part of a key: a prefix may hold the separator, but no name holds this.
_BLOB = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePath:
    """One request's place: every level of it has its own limit, and admission asks them all.

    `endpoint` is normalised (see `normal_endpoint`). `account` is "" for S3. `bucket` is an Azure
    container too; "" for what concerns the whole store. `prefix` is what `prefix_of` gave. `op_class`
    is "read", "write", "list" or "delete". `blob` is set for one that was found to be hot, "" else: a level for each
    object would be one for each request. Equal paths hash alike; use `scope_path` to get the
    cached object instead of a new one.
    """

    endpoint: str
    account: str = ""
    bucket: str = ""
    prefix: str = ""
    blob: str = ""
    op_class: str
    _levels: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "endpoint", normal_endpoint(self.endpoint))
        object.__setattr__(self, "_levels", _levels_of(self))
        object.__setattr__(self, "_hash", hash(self._levels))

    def __hash__(self) -> int:
        return self._hash

    # The hash of a string differs from process to process, so a pickle must not carry it.
    def __reduce__(self) -> tuple[Callable[..., ScopePath], tuple[str, str, str, str, str, str]]:
        return _cached_path, (self.endpoint, self.account, self.bucket, self.prefix, self.op_class, self.blob)

    def __str__(self) -> str:
        return label(self.leaf)

    @property
    def leaf(self) -> str:
        """The key of the narrowest level."""
        return self._levels[-1]

    def levels(self) -> tuple[str, ...]:
        """Return the keys of all levels, broad to narrow; the last one is the leaf.

        A key is `endpoint|class`, `endpoint|account|class` (where there is an account),
        `endpoint|account|bucket|class` or `endpoint|account|bucket|prefix|class`, with the blob before the class for a
        hot one. The bucket and the prefix "" in it (the objects at its root) are two levels.
        """
        return self._levels

    def of_blob(self, name: str) -> ScopePath:
        """Return the path of one blob of this prefix; "" is the prefix itself."""
        return _cached_path(self.endpoint, self.account, self.bucket, self.prefix, self.op_class, name)

    def index_of(self, whose: str | None) -> int:
        """Return which of `levels` is the "account"'s; the leaf for None. A store without accounts is its own."""
        match whose:
            case None:
                return len(self._levels) - 1
            case "account":
                return 1 if self.account else 0
            case _:
                raise ValueError(f"a refusal is charged to the prefix (None) or to the 'account', not to {whose!r}")


def scope_path(*, endpoint: str, op_class: str, bucket: str = "", prefix: str = "", account: str = "") -> ScopePath:
    """Return the scope path of these parts; the same object each time while it is cached."""
    return _cached_path(endpoint, account, bucket, prefix, op_class, "")


@lru_cache(maxsize=_CACHED_PATHS)
def _cached_path(endpoint: str, account: str, bucket: str, prefix: str, op_class: str, blob: str) -> ScopePath:
    return ScopePath(endpoint=endpoint, account=account, bucket=bucket, prefix=prefix, op_class=op_class, blob=blob)


def _levels_of(path: ScopePath) -> tuple[str, ...]:
    # Only the prefix is free text: with the separator kept out of the parts before it, no two
    # places share a key.
    host, account, bucket = (part.replace(_SEPARATOR, "%7C") for part in (path.endpoint, path.account, path.bucket))
    parts: list[tuple[str, ...]] = [(host,)]
    if account:
        parts.append((host, account))
    if bucket:
        parts.append((host, account, bucket))
        parts.append((host, account, bucket, path.prefix))
        if path.blob:
            parts.append((host, account, bucket, path.prefix, _BLOB + path.blob))
    return tuple(_SEPARATOR.join((*part, path.op_class)) for part in parts)


def label(level: str) -> str:
    """Return the name of a level's key for people: `s3://bucket/train/imagenet (read)`.

    An account makes it `abfs://container@account/...`; a level above the buckets is named by its
    endpoint or account.
    """
    *place, op_class = level.split(_SEPARATOR)
    host, account, bucket, *prefix = *place, *[""] * (3 - len(place))
    if not bucket:
        return f"{host} {account} ({op_class})" if account else f"{host} ({op_class})"
    root = f"abfs://{bucket}@{account}" if account else f"s3://{bucket}"
    within = _SEPARATOR.join(prefix).replace(_SEPARATOR + _BLOB, "/").lstrip("/")
    return f"{root}/{within} ({op_class})" if prefix else f"{root} ({op_class})"


def level_of(level: str) -> str:
    """Return what the level of this key is: "endpoint", "account", "bucket" (or container), "prefix" or "blob"."""
    place = level.split(_SEPARATOR)[:-1]
    if any(part.startswith(_BLOB) for part in place[3:]):
        return "blob"
    return ("endpoint", "account", "bucket", "prefix")[min(len(place), 4) - 1]


@lru_cache(maxsize=1024)
def normal_endpoint(url: str) -> str:
    """Return `scheme://host[:port]` in lower case, without credentials, path, query or default port.

    A URL without a scheme gets `https`; "" stays "". Never raises, whatever the text is: a request
    must not fail because its load cannot be counted.
    """
    if not url:
        return ""
    scheme, found, rest = url.lower().partition("://")
    if not found:
        scheme, rest = "https", url.lower()
    netloc = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{netloc.removesuffix(_DEFAULT_PORT.get(scheme, ''))}"


def prefix_of(key: str, *, depth: int, rule: str | None = None) -> str:
    """Return the prefix under which the load of `key` is counted.

    That is the first `depth` directory segments of the key; the last segment, the object's name,
    is never part of it: `train/imagenet/0001.tar` gives `train/imagenet` at depth 2, `a.txt` gives
    "". For a listing pass its Prefix: only its whole segments count. Empty segments are kept, as
    the stores do.

    `rule` replaces this: a regular expression with one group (searched in the key; where it does
    not match, `depth` decides), or the name of a function from key to prefix (`pkg.mod:function`
    or `pkg.mod.function`). Raises ValueError if the rule is neither, or fails on the key.
    """
    if rule is not None:
        found = _finder(rule)(key)
        if found is not None:
            return found
    end = -1
    for _ in range(depth):
        slash = key.find("/", end + 1)
        if slash < 0:
            break
        end = slash
    return key[:end] if end > 0 else ""


@lru_cache(maxsize=64)
def _finder(rule: str) -> Callable[[str], str | None]:
    """Return the function that a rule stands for; None from it leaves the choice to the depth."""
    if "(" in rule:
        return _pattern_finder(rule)
    if re.fullmatch(r"[^\W\d]\w*(\.\w+)*[.:]\w+", rule):
        return _function_finder(rule)
    raise ValueError(
        f"prefix_rule {rule!r} is neither a regular expression with one group, such as '^(data/[^/]+)/', "
        "nor the name of a function, such as 'package.module:function'"
    )


def _pattern_finder(rule: str) -> Callable[[str], str | None]:
    try:
        pattern = re.compile(rule)
    except re.error as error:
        raise ValueError(f"prefix_rule {rule!r} is not a regular expression: {error}") from error
    if pattern.groups != 1:
        raise ValueError(
            f"prefix_rule {rule!r} has {pattern.groups} groups; it needs exactly one, the prefix; "
            "write the others as (?:...)"
        )

    def find(key: str) -> str | None:
        match = pattern.search(key)
        return match.group(1) if match else None

    return find


def _function_finder(rule: str) -> Callable[[str], str | None]:
    module_name, _, name = rule.replace(":", ".").rpartition(".")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"prefix_rule {rule!r} cannot be imported: {error}") from error
    if not callable(function):
        raise ValueError(f"prefix_rule {rule!r} is not a function")

    def find(key: str) -> str:
        try:
            prefix = function(key)
        except Exception as error:
            raise ValueError(f"prefix_rule {rule!r} failed on key {key!r}: {error}") from error
        if not isinstance(prefix, str):
            raise ValueError(f"prefix_rule {rule!r} returned {prefix!r} for key {key!r}; it must return a str")
        return prefix

    return find
