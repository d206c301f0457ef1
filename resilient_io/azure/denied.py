"""What the service does not allow: azure-core's error, and the PermissionError that other filesystems raise."""

from __future__ import annotations

import errno
from typing import Any

from azure.core.exceptions import HttpResponseError

from resilient_io.classify.chain import links
from resilient_io.drive.packed import facts_on

_FORBIDDEN = 403
_CURE = (
    "give the credentials a role or a SAS with this right, see the account's network rules, or, where only the "
    "container may not be asked for, make the filesystem with assume_container_exists=True"
)


class AccessDenied(HttpResponseError, PermissionError, RuntimeError):
    """The service did not allow the request (403, EACCES).

    A PermissionError, as s3fs and files raise; an HttpResponseError and a RuntimeError too, as adlfs has them. Its
    `response` is None, the SDK's error its `__cause__`. Survives pickle, and can be rebuilt from its text.
    """

    def __init__(self, message: str = "", error_code: str | None = None) -> None:
        HttpResponseError.__init__(self, message=message)
        self.status_code = _FORBIDDEN
        self.error_code = error_code
        self.errno, self.strerror = errno.EACCES, message

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.error_code)

    def __str__(self) -> str:
        return self.message


def is_denied(error: BaseException) -> bool:
    """Say whether the service answered 403 to the request that this error came of."""
    return isinstance(error, HttpResponseError) and error.status_code == _FORBIDDEN


def told(error: Exception) -> Exception:
    """Return the error that a filesystem raises: adlfs hides a 403 in errors of many kinds; others stay as they are."""
    if isinstance(error, AccessDenied):
        return error
    cause = next((link for link in links(error) if is_denied(link)), None)
    if cause is None:
        return error
    code = getattr(cause, "error_code", None)
    code = str(getattr(code, "value", code) or "Forbidden")
    facts = facts_on(cause, getattr(cause, "response", None))
    where = f" in {facts['scope']}" if facts.get("scope") else ""
    request = f"; request id {facts['request_id']}" if facts.get("request_id") else ""
    return AccessDenied(f"{code}: the service does not allow this (403){where}{request}; try: {_CURE}", code)
