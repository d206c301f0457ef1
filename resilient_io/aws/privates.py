"""Every private attribute of botocore, aiobotocore, aiohttp and urllib3 that this library touches.

Each stands in one function here. `check` runs at hardening and says plainly which one is missing,
so that a new SDK fails at start-up and not in the middle of a run.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from botocore.context import get_context

from resilient_io.drive.forked import leave_behind

STOCK_RETRY_ID = "retry-config-s3"
STOCK_RETRY_EVENT = "needs-retry.s3"
_ENDPOINT_METHODS = ("create_request", "_get_response", "_send_request")


class UnsupportedSDK(RuntimeError):
    """Raised when an SDK lacks what the hooks hold on to; the message names the attribute and version."""


def check(client: Any) -> None:
    """Raise UnsupportedSDK unless all that the hooks need of this client is there."""
    missing = [name for name in ("_make_api_call", "_endpoint") if not hasattr(client, name)]
    endpoint = getattr(client, "_endpoint", None)
    missing += [
        f"_endpoint.{name}" for name in _ENDPOINT_METHODS if endpoint is not None and not hasattr(endpoint, name)
    ]
    emitter = emitter_of(client)
    missing += [f"events.{name}" for name in ("_handlers", "_unique_id_handlers") if not hasattr(emitter, name)]
    if missing:
        import botocore

        raise UnsupportedSDK(
            f"botocore {botocore.__version__} has no {', '.join(missing)}, which the hooks need; "
            "install a version within the bounds that resilient-io declares, or report this version"
        )


def is_async(client: Any) -> bool:
    """Say whether this is an aiobotocore client."""
    return asyncio.iscoroutinefunction(type(client)._make_api_call)


def endpoint_of(client: Any) -> Any:
    """Return the client's endpoint, which makes and sends its requests."""
    return client._endpoint


def emitter_of(client: Any) -> Any:
    """Return the emitter below the alias layer, which holds the handlers."""
    events = client.meta.events
    return getattr(events, "_emitter", events)


def stock_retry_handler(client: Any) -> Callable[..., Any] | None:
    """Return botocore's own retry handler of this client; None if retries are off or it is gone."""
    entry = emitter_of(client)._unique_id_handlers.get(STOCK_RETRY_ID)
    return entry["handler"] if entry else None


def adaptive_limiter_handlers(client: Any) -> list[tuple[str, Callable[..., Any]]]:
    """Return (event, handler) of adaptive mode's limiter, which would pace all prefixes together.

    botocore registers its bound methods without an id, so they are found by their owner's class.
    """
    found = []
    for event in ("before-send", "needs-retry"):
        for handler in emitter_of(client)._handlers.prefix_search(event):
            owner = getattr(handler, "__self__", None)
            if any(cls.__name__ in ("ClientRateLimiter", "AsyncClientRateLimiter") for cls in type(owner).__mro__):
                found.append((event, handler))
    return found


def forbid_resend(client: Any) -> Callable[[], None] | None:
    """Stop aiohttp from sending a request a second time by itself; return what undoes it.

    On a kept-alive connection that dies, aiohttp repeats idempotent methods, PUT and DELETE among
    them, below every hook: one attempt becomes two requests. None where the session is not aiohttp's.
    """
    session = endpoint_of(client).http_session
    get_session = getattr(session, "_get_session", None)
    if get_session is None:
        return None

    async def get_without_resend(proxy_url: str | None) -> Any:
        inner = await get_session(proxy_url)
        if hasattr(inner, "_retry_connection"):
            inner._retry_connection = False
        return inner

    session._get_session = get_without_resend

    def undo() -> None:
        session.__dict__.pop("_get_session", None)
        for inner in (getattr(session, "_sessions", None) or {}).values():
            if hasattr(inner, "_retry_connection"):
                inner._retry_connection = True

    return undo


def read_times_with(client: Any, parse: Callable[[Any], Any]) -> Callable[[], None] | None:
    """Let this client alone read the times in its answers with `parse`; return what undoes it.

    None where somebody has set parsers of their own, or the endpoint keeps none.
    """
    endpoint = endpoint_of(client)
    stock = getattr(endpoint, "_response_parser_factory", None)
    if stock is None or getattr(stock, "_defaults", None) != {}:
        return None
    factory = type(stock)()
    factory.set_parser_defaults(timestamp_parser=parse)
    endpoint._response_parser_factory = factory

    def undo() -> None:
        endpoint._response_parser_factory = stock

    return undo


def remember_user_agent(client: Any) -> Callable[[], None] | None:
    """Let this client put its User-Agent together once for what it depends on, not twice for each request.

    Returns what undoes it; None where somebody has put something in its place, or the client keeps none. botocore takes
    36 us each time, and the text differs only by the features that a request uses.
    """
    creator = getattr(client, "_user_agent_creator", None)
    if creator is None or "to_string" in vars(creator) or not hasattr(creator, "to_string"):
        return None
    made, known, config = creator.to_string, dict[Any, str](), client.meta.config

    def remembered() -> str:
        context = get_context()
        key = frozenset(context.features if context is not None else ()), config.user_agent_extra
        text = known.get(key)
        if text is None:
            text = known[key] = made()
        return text

    creator.to_string = remembered
    return lambda: vars(creator).pop("to_string", None)


def widen_pool(client: Any, connections: int) -> Callable[[], None] | None:
    """Make the connection pool hold at least `connections`; return what undoes it, None where it was wide enough.

    A smaller one would queue or reconnect below us.
    """
    before = getattr(endpoint_of(client).http_session, "_max_pool_connections", connections)
    if before >= connections:
        return None
    _set_pool(client, connections)
    return functools.partial(_set_pool, client, before)


def _set_pool(client: Any, connections: int) -> None:
    session = endpoint_of(client).http_session
    session._max_pool_connections = connections
    manager = getattr(session, "_manager", None)
    if manager is not None:
        manager.connection_pool_kw["maxsize"] = connections
    for inner in (getattr(session, "_sessions", None) or {}).values():
        if hasattr(inner.connector, "_limit"):
            inner.connector._limit = connections


def checksum_of(body: Any) -> tuple[Any, bytes] | None:
    """Return the running checksum of a body that botocore checks, and what it must come to; None for another one."""
    checksum, expected = _running_checksum(body), getattr(body, "_expected", None)
    return (checksum, base64.b64decode(expected)) if checksum is not None and expected is not None else None


def hand_on_checksum(body: Any, to: Any) -> None:
    """Let what is read in the place of a body be known by the checksum of that, if it has one."""
    checksum = _running_checksum(body)
    if checksum is not None:
        to._checksum, to._expected = checksum, getattr(body, "_expected", None)


def _running_checksum(body: Any) -> Any:
    # It had no public name once.
    checksum = getattr(body, "checksum", None)
    return getattr(body, "_checksum", None) if checksum is None else checksum


def fresh_checksum_of(body: Any) -> tuple[Any, bytes] | None:
    """Return a checksum of the same kind that has seen nothing, and what it must come to; None for no checked body."""
    found = checksum_of(body)
    return (type(found[0])(), found[1]) if found is not None else None


def raw_of(body: Any) -> Any:
    """Return the answer of urllib3 or aiohttp below a StreamingBody."""
    # The bodies of aiobotocore before 3.8 are proxies.
    return body._raw_stream if hasattr(body, "_raw_stream") else body.__wrapped__


def reader_of(raw: Any) -> Any:
    """Return aiohttp's StreamReader of an answer; None for one of httpx, whose `content` is what has been read."""
    return None if isinstance(getattr(type(raw), "content", None), property) else getattr(raw, "content", None)


def put_raw(body: Any, raw: Any) -> None:
    """Let a StreamingBody read from `raw`."""
    if hasattr(body, "_raw_stream"):
        body._raw_stream = raw
    else:
        # What a proxy keeps is kept by what stands below it: its checksum would go with the first answer.
        hand_on_checksum(body, raw)
        body.__wrapped__ = raw


def forget_connections(client: Any) -> None:
    """Drop all connections without touching the old pool: a forked child shares its parent's sockets.

    Two processes that read one socket get each other's bytes. The old pool is left alone because
    its lock may have been held by a thread that does not exist here.
    """
    session = endpoint_of(client).http_session
    leave_behind(session._manager, session._proxy_managers)
    manager = type(session._manager)(**session._get_pool_manager_kwargs())
    manager.pool_classes_by_scheme = session._manager.pool_classes_by_scheme
    session._manager = manager
    session._proxy_managers = {}
    credentials = getattr(client._request_signer, "_credentials", None)
    if credentials is not None and hasattr(credentials, "_refresh_lock"):
        credentials._refresh_lock = threading.Lock()


def expire_credentials(client: Any, token: str | None) -> None:
    """Have credentials that renew themselves do so before the next signature, unless `token` is not theirs any more.

    Nothing for others. Many requests may learn at once that a token ran out: only the first one ends it.
    """
    credentials: Any = getattr(client._request_signer, "_credentials", None)
    if getattr(credentials, "_expiry_time", None) is not None and credentials._token == token:
        credentials._expiry_time = credentials._time_fetcher()


def renewing_credentials(client: Any) -> Any | None:
    """Return the client's credentials if they renew themselves, as those of a role do."""
    credentials = getattr(client._request_signer, "_credentials", None)
    renews = hasattr(credentials, "_refresh_using") and hasattr(credentials, "_advisory_refresh_timeout")
    return credentials if renews else None


def issuer_of(credentials: Any) -> str:
    """Return the name of what gives these credentials out, such as `iam-role`, `container-role` or `assume-role`."""
    return str(getattr(credentials, "method", None) or "unknown")


def wrap_renewal(credentials: Any, wrap: Callable[[Callable[[], Any]], Callable[[], Any]], u: float) -> None:
    """Put something around the call that fetches new credentials, and begin to ask for them at a moment of one's own.

    botocore asks from 15 minutes before the end on, in every process; it must have them 10 minutes before. `u`, from 0
    to 1, says where between these two this one begins. Once for each set of credentials, which clients share.
    """
    if getattr(credentials, "_resilient_io_wrapped", False):
        return
    credentials._resilient_io_wrapped = True
    credentials._refresh_using = wrap(credentials._refresh_using)
    latest_s, earliest_s = credentials._mandatory_refresh_timeout, credentials._advisory_refresh_timeout
    credentials._advisory_refresh_timeout = latest_s + (earliest_s - latest_s) * (0.2 + 0.8 * u)


def held_credentials(credentials: Any) -> dict[str, Any] | None:
    """Return what these credentials hold, as their source would give it; None if it has run out."""
    until = credentials._expiry_time
    if until is None or credentials._is_expired():
        return None
    names = ("access_key", "secret_key", "token", "account_id")
    return {**{name: getattr(credentials, f"_{name}", None) for name in names}, "expiry_time": until.isoformat()}


def sync_client_factory(session: Any) -> tuple[str, Callable[..., Any]]:
    """Return the name and the function with which a botocore session makes a client."""
    return "create_client", session.create_client


def async_client_factory(session: Any) -> tuple[str, Callable[..., Awaitable[Any]]] | None:
    """Return the name and the function with which an aiobotocore session makes a client; None for botocore's."""
    factory = getattr(session, "_create_client", None)
    return ("_create_client", factory) if asyncio.iscoroutinefunction(factory) else None


def boto3_default_session() -> Any | None:
    """Return the botocore session below boto3's default session, if boto3 has made one."""
    import sys

    boto3 = sys.modules.get("boto3")
    default = getattr(boto3, "DEFAULT_SESSION", None)
    return getattr(default, "_session", None)
