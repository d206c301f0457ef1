"""Putting the library into clients of azure-storage-blob, sync and async: new ones and those that exist."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from resilient_io import policy as policies
from resilient_io.azure import privates
from resilient_io.azure.policy import AsyncHook, AsyncRetry, Hook, SyncHook, SyncRetry
from resilient_io.azure.transport import Opener, SyncTransport, aio_transport, connections_for
from resilient_io.drive.runtime import expect

_hardened: weakref.WeakSet[Any] = weakref.WeakSet()
_CLIENTS = frozenset({"BlobServiceClient", "ContainerClient", "BlobClient"})


def client_kwargs(
    policy: object = None, *, aio: bool = False, retry_to_secondary: bool = False, **transport_options: Any
) -> dict[str, Any]:
    """Return what a new BlobServiceClient, ContainerClient or BlobClient is given besides its own arguments.

    `BlobServiceClient(url, credential=key, **client_kwargs())`; with `aio=True` for those of
    `azure.storage.blob.aio`. Call it anew for each client; clients derived from one share what it was given.
    `policy` is what `resilience=` takes: fields, a preset's name, JSON, a Policy, False.

    `retry_to_secondary` is that of the SDK's retry policies: a read that failed is sent to the other location next.
    What the SDK's own transport takes from a client's arguments (`connection_timeout`, `read_timeout`,
    `connection_verify`, `connection_cert`, `connection_data_block_size`, `use_env_settings`) is given here instead.
    """
    privates.check_version()
    overlay = policies.overlay(policy)
    in_force = policies.resolve(overlay)
    expect(in_force)
    connections = connections_for(in_force.max_concurrency)
    retry = (AsyncRetry if aio else SyncRetry)(overlay, retry_to_secondary=retry_to_secondary)
    transport = (aio_transport if aio else SyncTransport)(connections, **transport_options)
    if aio:
        privates.check_aiohttp()
    return {"retry_policy": retry, "transport": transport}


def is_client(thing: object) -> bool:
    """Say whether this is a client that `harden` takes."""
    return any(
        cls.__module__.startswith("azure.storage.blob.") and cls.__name__ in _CLIENTS for cls in type(thing).__mro__
    )


def harden(client: Any, policy: object = None) -> Any:
    """Put the library into a client that exists; return the same client. Idempotent.

    The client's pipeline is changed in place: clients that were and will be derived from the same one are hardened
    with it. A second call only changes the policy. Raises TypeError for anything else than a client of
    azure-storage-blob, UnsupportedSDK for a version that lacks what the hooks hold on to.
    """
    if not is_client(client):
        raise TypeError(f"harden() takes a BlobServiceClient, ContainerClient or BlobClient, not {client!r}")
    privates.check(client)
    overlay, known = policies.overlay(policy), hook_of(client)
    if known is None:
        _hook(client, overlay)
    elif policy is not None:
        known.overlay = overlay
        _widen(client, overlay)
    expect(policies.resolve(overlay))
    _hardened.add(client)
    return client


def hook_of(client: Any) -> Hook | None:
    """Return what was put into this client, or None."""
    retry_policy = privates.retry_policy_of(client)
    if isinstance(retry_policy, (SyncRetry, AsyncRetry)):
        return retry_policy.hook
    found = retry_policy.__dict__.get("send")
    return found if isinstance(found, Hook) else None


def _hook(client: Any, overlay: Mapping[str, object]) -> None:
    retry_policy, transport = privates.retry_policy_of(client), privates.transport_of(client)
    aio = privates.is_async(client)
    if aio:
        privates.check_aiohttp()
    retry_policy.send = (AsyncHook if aio else SyncHook)(retry_policy, overlay)
    connections = connections_for(policies.resolve(overlay).max_concurrency)
    transport.open = Opener(transport, connections, aio=aio)


def _widen(client: Any, overlay: Mapping[str, object]) -> None:
    """Make room for as many connections as the policy allows requests."""
    transport = privates.transport_of(client)
    ours = transport.__dict__.get("open", transport)
    if hasattr(ours, "grow"):
        ours.grow(connections_for(policies.resolve(overlay).max_concurrency))


def soften(client: Any) -> None:
    """Make a hardened client what it was, and with it those that share its pipeline.

    One that was made with `client_kwargs` stays as it was made.
    """
    retry_policy, transport = privates.retry_policy_of(client), privates.transport_of(client)
    if isinstance(retry_policy.__dict__.get("send"), Hook):
        del retry_policy.send
    opener = transport.__dict__.get("open")
    if isinstance(opener, Opener):
        opener.undo()
    _hardened.discard(client)


def soften_all() -> None:
    """Make every hardened client of this process what it was."""
    for client in list(_hardened):
        soften(client)


def hardened_clients() -> int:
    """Return how many living clients of this process `harden` was called with."""
    return len(_hardened)
