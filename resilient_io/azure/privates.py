"""Every private attribute of azure-storage-blob, azure-core, requests and aiohttp that the hooks touch.

Each stands in one function here. `check` runs at hardening and says plainly which one is missing, so that a new SDK
fails at start-up and not in the middle of a run.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from resilient_io.drive.forked import leave_behind

_SCHEMES: Final = ("http://", "https://")
# Before it async downloads read their bodies past `stream_download`, where nobody could give a permit back.
_OLDEST: Final = (12, 26)
_FIRST_RESENDING: Final = (3, 10)


class UnsupportedSDK(RuntimeError):
    """Raised when an SDK lacks what the hooks hold on to; the message names the attribute and version."""


def check_version() -> None:
    """Raise UnsupportedSDK for a version of azure-storage-blob that the hooks do not know."""
    from azure.storage.blob import __version__

    if _numbers_of(__version__) < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise UnsupportedSDK(f"azure-storage-blob {__version__} is too old: pip install 'azure-storage-blob>={wanted}'")


def check_aiohttp() -> None:
    """Raise UnsupportedSDK for an aiohttp that sends a request twice by itself and cannot be told not to: 3.10."""
    aiohttp = sys.modules.get("aiohttp")
    if aiohttp is None or _numbers_of(aiohttp.__version__) < _FIRST_RESENDING:
        return
    if "_retry_connection" not in getattr(aiohttp.ClientSession, "ATTRS", ()):
        raise UnsupportedSDK(
            f"aiohttp {aiohttp.__version__} has no ClientSession._retry_connection, which the hooks need so that no "
            "request is sent twice: pip install 'aiohttp>=3.11', or report this version"
        )


def _numbers_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def check(client: Any) -> None:
    """Raise UnsupportedSDK unless all that the hooks need of this client is there."""
    check_version()
    missing = [name for name in ("_pipeline", "_config") if not hasattr(client, name)]
    pipeline = getattr(client, "_pipeline", None)
    missing += [
        f"_pipeline.{name}" for name in ("_impl_policies", "_transport") if pipeline and not hasattr(pipeline, name)
    ]
    if not missing:
        policy = getattr(client._config, "retry_policy", None)
        if not any(each is policy for each in pipeline._impl_policies):  # type: ignore[union-attr]
            missing.append("_config.retry_policy among _pipeline._impl_policies")
        elif not hasattr(policy, "next"):
            missing.append("next of its retry policy")
    if missing:
        from azure.storage.blob import __version__

        raise UnsupportedSDK(
            f"azure-storage-blob {__version__} has no {', '.join(missing)}, which the hooks need; "
            "install a version within the bounds that resilient-io declares, or report this version"
        )


def retry_policy_of(client: Any) -> Any:
    """Return the retry policy in the client's pipeline, which all clients derived from one share."""
    return client._config.retry_policy


def token_holders(retry_policy: Any) -> list[Any]:
    """Return the policies below the retry policy that hold a credential of tokens."""
    found, policy = [], getattr(retry_policy, "next", None)
    while policy is not None:
        if hasattr(getattr(policy, "_credential", None), "get_token"):
            found.append(policy)
        policy = getattr(policy, "next", None)
    return found


def wrap_credential(holder: Any, wrap: Callable[[Any], Any], wrapper: type) -> None:
    """Put something around the credential that a policy holds, once."""
    if not isinstance(holder._credential, wrapper):
        holder._credential = wrap(holder._credential)


def is_about_content_range(error: Exception) -> bool:
    """Say whether the SDK itself stumbled over a Content-Range, which it reads below the retry policy; no check.

    It looks for the size in it without care, and raises what int() and a list of one do. Where the module is called
    something else, the error stays as it is.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return type(error) in (ValueError, IndexError) and name.startswith("azure.storage.blob._shared.policies")


def is_async(client: Any) -> bool:
    """Say whether this is a client of `azure.storage.blob.aio`."""
    return asyncio.iscoroutinefunction(type(retry_policy_of(client)).send)


def transport_of(client: Any) -> Any:
    """Return the transport that the client sends with; a derived client has a wrapper around its parent's."""
    return innermost(client._pipeline._transport)


def innermost(transport: Any) -> Any:
    """Return the transport itself, out of the wrappers of derived clients."""
    while hasattr(transport, "_transport"):
        transport = transport._transport
    return transport


def forbid_resend(session: Any) -> None:
    """Stop an aiohttp session from sending a request a second time by itself.

    On a connection that dies it repeats idempotent methods, PUT and DELETE among them, below every policy: one attempt
    becomes two requests, and an append is applied twice.
    """
    if hasattr(session, "_retry_connection"):
        session._retry_connection = False


def allow_resend(session: Any) -> None:
    """Give an aiohttp session its own way back."""
    if hasattr(session, "_retry_connection"):
        session._retry_connection = True


def set_trust_env(session: Any, asks: bool) -> None:
    """Say whether a session of requests or aiohttp asks the environment; aiohttp's public attribute is only read."""
    setattr(session, "_trust_env" if is_of_aiohttp(session) else "trust_env", asks)


def is_of_aiohttp(session: Any) -> bool:
    """Say whether a session is aiohttp's, and not one of requests."""
    return hasattr(session, "_trust_env")


def connector_limit(session: Any) -> int:
    """Return how many connections an aiohttp session may have; 0 is no limit."""
    limit: int = getattr(session.connector, "limit", 0)
    return limit


def set_connector_limit(session: Any, connections: int) -> None:
    """Let an aiohttp session have this many connections; the public way is only for new ones."""
    if hasattr(session.connector, "_limit"):
        session.connector._limit = connections


def pool_sizes(session: Any) -> Mapping[str, int]:
    """Return how many connections to a host the adapters of a requests session keep, by scheme."""
    found = {scheme: session.adapters.get(scheme) for scheme in _SCHEMES}
    return {scheme: adapter._pool_maxsize for scheme, adapter in found.items() if hasattr(adapter, "_pool_maxsize")}


def set_pool_sizes(session: Any, sizes: Mapping[str, int]) -> None:
    """Make the adapters of a requests session keep this many connections to a host."""
    for scheme, connections in sizes.items():
        adapter = session.adapters[scheme]
        adapter.init_poolmanager(adapter._pool_connections, connections, block=adapter._pool_block)


def single_get_bytes(client: Any) -> int:
    """Return how many bytes the SDK asks for in one request; it takes longer ranges apart."""
    most: int = getattr(client._config, "max_single_get_size", 32 * 2**20)
    return most


def forget_stream_download(http_response: Any) -> None:
    """Give an answer its own way of being read back; those of azure.core.rest keep what is set under another name."""
    own = http_response.__dict__
    own.pop("stream_download", None)
    own.pop("_stream_download", None)


def forget_connections(transport: Any) -> None:
    """Drop all connections of a sync transport without touching the old pools: a forked child shares its parent's.

    Two processes that read one socket get each other's bytes. What is old is left alone because its locks may have
    been held by a thread that does not exist here.
    """
    session = getattr(innermost(transport), "session", None)
    if session is None or not hasattr(session, "adapters"):
        return
    leave_behind(session.cookies, *((each.poolmanager, each.proxy_manager) for each in session.adapters.values()))
    session.cookies = type(session.cookies)()
    set_pool_sizes(session, pool_sizes(session))
    for adapter in session.adapters.values():
        adapter.proxy_manager = {}
