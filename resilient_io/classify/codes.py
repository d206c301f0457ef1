"""The meanings that an error code can have, and how a code is looked up whatever its spelling."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

from .azure_codes import AZURE_CODES
from .meanings import CodeMeaning
from .s3_codes import S3_CODES

__all__ = ["CodeMeaning", "StatusMeaning", "code_meaning", "status_meaning"]


class StatusMeaning(Enum):
    """What an HTTP status means where no code says more."""

    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    AUTH = "auth"
    DENIED = "denied"
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    CLIENT_BUG = "client_bug"
    UNSUPPORTED = "unsupported"
    NONE = "none"


# RFC 9110 15 and RFC 6585, unless a line says otherwise.
_STATUS: dict[int, StatusMeaning] = {
    429: StatusMeaning.THROTTLED,  # RFC 6585 4; Ceph, OCI, R2 and GCS answer it for load
    503: StatusMeaning.THROTTLED,  # S3: "reduce your request rate"; Azure: ServerBusy; proxies: overload
    509: StatusMeaning.THROTTLED,  # BandwidthLimitExceeded, in botocore's own throttling table
    408: StatusMeaning.TIMEOUT,
    504: StatusMeaning.TIMEOUT,
    524: StatusMeaning.TIMEOUT,  # Cloudflare: the origin took too long
    598: StatusMeaning.TIMEOUT,  # proxies: network read timeout
    599: StatusMeaning.TIMEOUT,  # proxies: network connect timeout
    401: StatusMeaning.AUTH,
    407: StatusMeaning.AUTH,
    403: StatusMeaning.DENIED,
    402: StatusMeaning.DENIED,
    451: StatusMeaning.DENIED,
    404: StatusMeaning.NOT_FOUND,
    410: StatusMeaning.NOT_FOUND,
    304: StatusMeaning.PRECONDITION,
    409: StatusMeaning.PRECONDITION,
    412: StatusMeaning.PRECONDITION,
    400: StatusMeaning.CLIENT_BUG,
    411: StatusMeaning.CLIENT_BUG,
    413: StatusMeaning.CLIENT_BUG,
    414: StatusMeaning.CLIENT_BUG,
    416: StatusMeaning.CLIENT_BUG,
    417: StatusMeaning.CLIENT_BUG,
    431: StatusMeaning.CLIENT_BUG,
    301: StatusMeaning.CLIENT_BUG,  # the wrong region or endpoint
    302: StatusMeaning.CLIENT_BUG,
    307: StatusMeaning.CLIENT_BUG,
    308: StatusMeaning.CLIENT_BUG,
    405: StatusMeaning.UNSUPPORTED,
    406: StatusMeaning.UNSUPPORTED,
    415: StatusMeaning.UNSUPPORTED,
    501: StatusMeaning.UNSUPPORTED,  # a 5xx that no repeat cures
    505: StatusMeaning.UNSUPPORTED,
}


def status_meaning(status: int | None) -> StatusMeaning:
    """Return what an HTTP status means by itself; NONE for 2xx and for what nobody defined."""
    if status is None:
        return StatusMeaning.NONE
    known = _STATUS.get(status)
    if known is not None:
        return known
    return StatusMeaning.SERVER_ERROR if 500 <= status <= 599 else StatusMeaning.NONE


def _folded(table: Mapping[str, CodeMeaning]) -> dict[str, CodeMeaning]:
    return {_fold(code): meaning for code, meaning in table.items()}


def _fold(code: str) -> str:
    return code.replace("_", "").casefold()


_S3 = _folded(S3_CODES)
_AZURE = _folded(AZURE_CODES)


@lru_cache(maxsize=1024)
def code_meaning(provider: str, code: str | None) -> CodeMeaning:
    """Return what a service's error code means, NONE if no table holds it.

    Case and underscores do not matter (pyarrow prints SLOW_DOWN). A namespace before "#" is dropped;
    a dotted code is looked up whole and then by its last part (KMS.ThrottlingException).
    """
    if not code:
        return CodeMeaning.NONE
    name = _fold(code.rpartition("#")[2])
    for table in (_AZURE, _S3) if provider == "azure" else (_S3, _AZURE):
        meaning = table.get(name) or table.get(name.rpartition(".")[2])
        if meaning is not None:
            return meaning
    return CodeMeaning.NONE
