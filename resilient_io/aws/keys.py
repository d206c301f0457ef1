"""The scope of an S3 request, from the parameters as the caller gave them.

The URL would not do: it differs with the addressing style, and names an access point where the
caller named its ARN.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from resilient_io.classify.operations import class_name
from resilient_io.control.scopes import ScopePath, prefix_of, scope_path
from resilient_io.policy import Policy

# The requests whose bodies are data.
_WRITING: Final = frozenset({"PutObject", "UploadPart"})
_TELLING: Final = frozenset({"IfNoneMatch", "IfMatch", "WriteOffsetBytes"})


def scope_of(operation: str, params: Mapping[str, Any], endpoint: str, policy: Policy) -> ScopePath:
    """Return the scope under which a request of this operation is counted."""
    bucket = params.get("Bucket")
    if not isinstance(bucket, str) or not bucket:
        return _scope(operation, endpoint, "", "")
    prefix = prefix_of(_key_of(params), depth=policy.prefix_depth, rule=policy.prefix_rule)
    return _scope(operation, endpoint, policy.bucket_of(bucket), prefix)


@lru_cache(maxsize=8192)
def _scope(operation: str, endpoint: str, bucket: str, prefix: str) -> ScopePath:
    return scope_path(endpoint=endpoint, op_class=class_name(operation), bucket=bucket, prefix=prefix)


def place_of(params: Mapping[str, Any]) -> str:
    """Return the URL of what a request is about, for people: `s3://bucket/key`."""
    bucket = params.get("Bucket")
    return f"s3://{bucket}/{_key_of(params)}".rstrip("/") if bucket else "s3://"


def sent_bytes(operation: str, request: Any) -> int:
    """Return how many bytes of data a prepared request holds, as far as its headers tell."""
    length = request.headers.get("Content-Length") if operation in _WRITING else None
    return int(length) if length is not None else 0


def judged_as(operation: str, params: Mapping[str, Any]) -> str:
    """Return the name under which faults of this request are judged: a conditional write says so in it."""
    if _TELLING.isdisjoint(params):
        return operation
    for condition in ("IfNoneMatch", "IfMatch"):
        if params.get(condition) is not None:
            return f"{operation}-{condition}"
    return f"{operation}-append" if params.get("WriteOffsetBytes") is not None else operation


def _key_of(params: Mapping[str, Any]) -> str:
    """Return the key, a listing's prefix, or the first key of a bulk delete."""
    key = params.get("Key") or params.get("Prefix")
    if key is None:
        objects = (params.get("Delete") or {}).get("Objects") or ()
        key = objects[0].get("Key") if objects else None
    return key if isinstance(key, str) else ""
