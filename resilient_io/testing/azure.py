"""The Azure Blob protocol plug-in: where a request leads, and how Azure words an error."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from enum import Enum
from xml.sax.saxutils import escape

from resilient_io.classify.azure_requests import azure_operation
from resilient_io.classify.operations import op_class
from resilient_io.drive.azure_hosts import azure_host

from .calls import Call, Head, Reply, decoded, prefix_of
from .plan import Ceiling, Match, Refusal

# Azure's own code for a status, where an error does not name one.
# https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
_CODES = {
    400: "InvalidInput",
    401: "NoAuthenticationInformation",
    403: "AuthenticationFailed",
    404: "BlobNotFound",
    408: "RequestTimeout",
    409: "BlobAlreadyExists",
    411: "MissingContentLengthHeader",
    412: "ConditionNotMet",
    413: "RequestBodyTooLarge",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    502: "BadGateway",
    503: "ServerBusy",
    504: "GatewayTimeout",
}
# What is said of a container where the blob code would name a blob that the request does not have.
_CONTAINER_CODES = {"BlobNotFound": "ContainerNotFound", "BlobAlreadyExists": "ContainerAlreadyExists"}
_MESSAGES = {
    "ServerBusy": "The server is currently unable to receive requests. Please retry your request.",
    "OperationTimedOut": "The operation could not be completed within the permitted time.",
    "InternalError": "The server encountered an internal error. Please retry the request.",
    "TooManyRequests": "Too many requests. Please retry your request.",
    "BlobNotFound": "The specified blob does not exist.",
    "ContainerNotFound": "The specified container does not exist.",
    "BlobAlreadyExists": "The specified blob already exists.",
    "ContainerAlreadyExists": "The specified container already exists.",
    "ContainerBeingDeleted": "The specified container is being deleted. Try operation later.",
    "ConditionNotMet": "The condition specified using HTTP conditional header(s) is not met.",
    "InvalidRange": "The range specified is invalid for the current size of the resource.",
}
_API_VERSION = "2021-12-02"
# Up to 1,024 visible characters come back: https://learn.microsoft.com/rest/api/storageservices/common-rest-headers
_CLIENT_REQUEST_ID = re.compile(r"[!-~]{1,1024}")


class AccountLimit(str, Enum):
    """Which limit of its account a 503 ServerBusy says was passed; the value is the service's message."""

    OPERATIONS = "Operations per second is over the account limit."
    INGRESS = "Ingress is over the account limit."
    EGRESS = "Egress is over the account limit."

    def __str__(self) -> str:
        return self.value


def account_ceiling(
    rate_per_s: float,
    *,
    limit: AccountLimit = AccountLimit.OPERATIONS,
    burst_s: float = 1.0,
    match: Match | None = None,
    refusal_cost: float = 0.0,
    name: str = "account",
) -> Ceiling:
    """Return a ceiling on requests for each account, whose refusals say that the account's limit was passed.

    `limit` is the one that they name; the other arguments are those of `Ceiling`, and so are the errors.
    """
    return Ceiling(
        rate_per_s=rate_per_s,
        burst_s=burst_s,
        match=match or Match(),
        per=("account",),
        refusal_cost=refusal_cost,
        name=name,
        refusal=Refusal(message=str(limit)),
    )


def blob_ceiling(rate_per_s: float, *, burst_s: float = 1.0, match: Match | None = None, name: str = "blob") -> Ceiling:
    """Return a ceiling on requests for each blob, as Azure has one (500 a second is what it documents)."""
    found = match or Match()
    if found.key == "*":
        found = replace(found, key="?*")  # what names no blob is not counted
    return Ceiling(rate_per_s=rate_per_s, burst_s=burst_s, match=found, per=("account", "bucket", "key"), name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureProtocol:
    """Azure Blob over HTTP, in path style (Azurite) and host style (`account.blob.core.windows.net`).

    An address, `localhost` or another single label means path style: the first segment is the account. Secondary
    and other doors count as the account itself. The dfs endpoint (Data Lake) is not spoken, as Azurite does not.
    """

    def parse(self, head: Head, *, prefix_depth: int) -> Call:
        """Return the operation that the request names; `bucket` is the container."""
        query = head.query() if "?" in head.target else {}
        account, container, key = self.place(head, query)
        op = azure_operation(head.method, query, head.headers, container=container, key=key)
        return Call(
            op=op,
            op_class=str(op_class(op)),
            account=account,
            bucket=container,
            key=key,
            prefix=prefix_of(key or query.get("prefix", ""), depth=prefix_depth),
        )

    def place(self, head: Head, query: dict[str, str]) -> tuple[str, str, str]:
        """Return account, container and blob, decoded; "" where the request names none."""
        path = head.path.lstrip("/") if head.path.startswith("/") else ""
        account = azure_host(f"http://{head.headers.get('host', '')}").account
        if not account:
            account, _, path = path.partition("/")
            account = decoded(account).removesuffix("-secondary")
        container, _, key = path.partition("/")
        if container and not key and "restype" not in query and query.get("comp") not in ("list", "batch", "blobs"):
            container, key = "$root", container  # a blob without a container stands in the root container
        return account, decoded(container), decoded(key)

    def body_tells(self, call: Call) -> bool:
        """Return False: the line of a request says what it is for. A batch counts for its container."""
        return False

    def refined(self, call: Call, body: bytes, *, prefix_depth: int) -> Call:
        """Return the call as it is."""
        return call

    def error(
        self, head: Head, call: Call, *, status: int, code: str | None, message: str | None, request_id: str
    ) -> Reply:
        """Return an error as the service words it; a HEAD gets the headers only. One with code "" is no service's."""
        if code == "":
            return Reply(status=status, headers=[("Content-Type", "text/html")], body=b"")
        code = code or _CODES.get(status, "InternalError")
        if not call.key:
            code = _CONTAINER_CODES.get(code, code)
        body = b"" if head.method == "HEAD" else _error_xml(code, message or _MESSAGES.get(code, code), request_id)
        headers = [
            ("Server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0"),
            *([("x-ms-error-code", code)] if status >= 400 else []),  # a plan may script a success, too
            ("x-ms-request-id", request_id),
            ("x-ms-version", head.headers.get("x-ms-version", _API_VERSION)),
        ]
        asked = head.headers.get("x-ms-client-request-id", "")
        if _CLIENT_REQUEST_ID.fullmatch(asked):
            headers.append(("x-ms-client-request-id", asked))
        if body:
            headers.append(("Content-Type", "application/xml"))
        return Reply(status=status, headers=headers, body=body)

    def refusal(self) -> tuple[int, str]:
        """Return 503 and ServerBusy."""
        return 503, "ServerBusy"


def _error_xml(code: str, message: str, request_id: str) -> bytes:
    now = time.strftime("%Y-%m-%dT%H:%M:%S.0000000Z", time.gmtime())
    text = (
        '\ufeff<?xml version="1.0" encoding="utf-8"?>'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}\nRequestId:{request_id}\nTime:{now}</Message>"
        "</Error>"
    )
    return text.encode()
