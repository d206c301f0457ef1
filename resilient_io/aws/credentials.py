"""Credentials: where new ones come from, those that have run out, and the HEAD that cannot say so.

S3 answers a HEAD with a bare 400 or 403: the same whether the token ran out, the clock is wrong or access is denied. A
GET of one byte says which.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from resilient_io.aws import faults, privates
from resilient_io.classify.fault import FaultKind
from resilient_io.drive.call import Call
from resilient_io.drive.runtime import runtime
from resilient_io.drive.tokens import Issuer
from resilient_io.policy import Policy

# What a HEAD takes of its own parameters into the GET that is asked instead.
_SAME: Final = frozenset(
    {"Bucket", "Key", "VersionId", "RequestPayer", "ExpectedBucketOwner"}
    | {"SSECustomerAlgorithm", "SSECustomerKey", "SSECustomerKeyMD5"}
)
_PROBES: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "HeadObject": ("GetObject", {"Range": "bytes=0-0"}),
    "HeadBucket": ("ListObjectsV2", {"MaxKeys": 1}),
}
_MUTE: Final = frozenset({"400", "403"})
# An empty object has no first byte: the GET was allowed.
_ALLOWED: Final = frozenset({"InvalidRange", "416"})
_TELLING: Final = frozenset({FaultKind.AUTH, FaultKind.FATAL})


def ask_with_care(client: Any, policy: Callable[[], Policy]) -> None:
    """Have credentials that renew themselves ask their source within a scope of its own, spread over the processes."""
    credentials = privates.renewing_credentials(client)
    if credentials is None:
        return
    issuer: Issuer[Any] = Issuer(
        privates.issuer_of(credentials), policy, lambda: privates.held_credentials(credentials)
    )
    wrap = _renewed_async if privates.is_async(client) else _renewed
    privates.wrap_renewal(credentials, functools.partial(wrap, issuer), runtime().gate.draw())


def _renewed(issuer: Issuer[Any], fetch: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: issuer.ask(fetch)


def _renewed_async(issuer: Issuer[Any], fetch: Callable[[], Any]) -> Callable[[], Any]:
    async def fetched() -> Any:
        found = fetch()
        return await found if inspect.isawaitable(found) else found

    async def renewed() -> Any:
        return await issuer.ask_async(fetched)

    return renewed


def renew(client: Any, call: Call, request: Any) -> None:
    """Have the next attempt fetch new credentials, if the store said that those of this one have run out."""
    verdict = call.verdict
    if verdict is not None and verdict.rule == "credentials-expired":
        token = getattr(request, "headers", {}).get("X-Amz-Security-Token")
        privates.expire_credentials(client, token.decode() if isinstance(token, bytes) else token)


def probe_for(call: Call, params: Mapping[str, Any], error: Exception) -> tuple[str, dict[str, Any]] | None:
    """Return the request that says what a bare 400 or 403 to a HEAD means; None where there is nothing to find out.

    A HEAD that only looks what became of a write has said enough: it cannot tell.
    """
    if call.name not in _PROBES or call.operation.is_lookup or not isinstance(error, ClientError):
        return None
    if error.response.get("Error", {}).get("Code") not in _MUTE:
        return None
    name, more = _PROBES[call.name]
    return name, {**{key: value for key, value in params.items() if key in _SAME}, **more}


def is_allowed(refusal: ClientError) -> bool:
    """Say whether a refused probe was let in all the same."""
    return refusal.response.get("Error", {}).get("Code") in _ALLOWED


def told(error: Exception, refusal: ClientError, call: Call) -> Exception:
    """Return the error of a HEAD with what the probe said; the same error where that says nothing of it."""
    verdict = faults.verdict_of_error(refusal, call.judged_as)
    if verdict.kind not in _TELLING:
        return error
    call.concluded(verdict)
    found = ClientError(refusal.response, call.name)
    found.__cause__ = refusal
    return found


def unsigned(error: Exception, call: Call) -> None:
    """Note an attempt that was never sent, because there were no credentials to sign it with."""
    if call.verdict is None and isinstance(error, BotoCoreError):
        verdict = faults.verdict_of_error(error, call.judged_as)
        if verdict.kind is FaultKind.AUTH:
            call.concluded(verdict)
