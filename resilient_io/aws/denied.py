"""What S3 does not allow: the PermissionError that s3fs makes of it, told what was asked for, and what may help."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import ClientError
from s3fs.errors import translate_boto_error

from resilient_io.drive.packed import facts_on
from resilient_io.errors import ResilientIOError

_CURE: Final = (
    "give the credentials a policy that allows this operation there (the bucket's and the key's of KMS too), "
    "or see whose credentials these are"
)


def translated(error: ClientError, asked: Mapping[str, Any]) -> Exception:
    """Return what s3fs makes of an error of a request with these parameters, explained."""
    made: Exception = translate_boto_error(error)
    if isinstance(made, PermissionError):
        explain(made, asked)
    return made


def explain(error: PermissionError, asked: Mapping[str, Any]) -> None:
    """Give the error of a request with these parameters the facts of the SDK's error, and a text that tells them.

    Its class, errno and cause stay as they are. Idempotent; errors of this library say all this already.
    """
    cause = error.__cause__
    if isinstance(error, ResilientIOError) or not isinstance(cause, ClientError) or hasattr(error, "verdict"):
        return
    facts = facts_on(cause)
    if "verdict" not in facts:
        return  # the client of a filesystem with the library off
    error.__dict__.update(facts)
    place = "/".join(str(asked[name]) for name in ("Bucket", "Key") if asked.get(name))
    scope = f" in {facts['scope']}" if facts.get("scope") else ""
    request = f"; request id {facts['request_id']}" if facts.get("request_id") else ""
    said = error.strerror or str(error)
    what = f"{cause.operation_name} {place}".rstrip()
    told = f"{said}: {what}: the service does not allow this (403){scope}{request}; try: {_CURE}"
    number = error.errno or errno.EACCES
    error.args, error.errno, error.strerror = (number, told), number, told
