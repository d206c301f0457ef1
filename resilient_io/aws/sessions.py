"""Clients made later: while `watch` is in force each botocore session hands over its S3 clients hardened.

`botocore.register_initializer` is public and fires for every new session of boto3, botocore and
aiobotocore, but hands over the session and not its clients, so the session's factory is shadowed.
Of the sessions that exist already only boto3's default one can be found.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import botocore

from resilient_io.aws import hooks, privates


@dataclass(slots=True, eq=False)
class _Watch:
    """The policy for clients made from now on, and the sessions whose factories are shadowed."""

    policy: object
    sessions: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    s3fs_rounds: int | None = None


_watch: _Watch | None = None


def watch(policy: object = None) -> None:
    """Harden every S3 client that a later session, or boto3's default one, makes. Idempotent.

    A second call only changes the policy, for clients made after it.
    """
    global _watch
    if _watch is not None:
        _watch.policy = policy
        return
    _watch = _Watch(policy)
    botocore.register_initializer(_take)
    default = privates.boto3_default_session()
    if default is not None:
        _take(default)


def unwatch() -> None:
    """Give the sessions their own factories back; clients that were made keep what they have. Idempotent."""
    global _watch
    ended, _watch = _watch, None
    if ended is None:
        return
    botocore.unregister_initializer(_take)
    for session in list(ended.sessions):
        name, _ = _factory(session)
        # Another tool may have put its own above ours, which then hands clients on as they are.
        if getattr(session.__dict__.get(name), "__module__", None) == __name__:
            del session.__dict__[name]
    if ended.s3fs_rounds is not None:
        sys.modules["s3fs"].S3FileSystem.retries = ended.s3fs_rounds


def is_watching() -> bool:
    """Say whether S3 clients made from now on are hardened."""
    return _watch is not None


def _take(session: Any) -> None:
    """Shadow the factory of one session, once."""
    if _watch is None or session in _watch.sessions:
        return
    name, ours = _factory(session)
    session.__dict__[name] = ours
    _watch.sessions.add(session)


def _factory(session: Any) -> tuple[str, Callable[..., Any]]:
    """Return the name of the session's factory, and ours that goes in its place."""
    found = privates.async_client_factory(session)
    if found is not None:
        name, make_async = found

        async def create_client_async(*args: Any, **options: Any) -> Any:
            return _hardened(await make_async(*args, **options))

        return name, create_client_async
    name, make = privates.sync_client_factory(session)

    def create_client(*args: Any, **options: Any) -> Any:
        return _hardened(make(*args, **options))

    return name, create_client


def _hardened(client: Any) -> Any:
    """Harden an S3 client; one of another service, or made after `unwatch`, is returned as it is."""
    if _watch is None or client.meta.service_model.service_name != "s3":
        return client
    if privates.is_async(client):
        _one_round_of_s3fs(_watch)
    return hooks.harden(client, _watch.policy)


def _one_round_of_s3fs(watching: _Watch) -> None:
    """Turn down the retry loop of stock s3fs filesystems, whose clients retry by themselves now; DVC makes such.

    Each of its rounds would begin a new request with new attempts. `retries` is s3fs's public switch.
    """
    s3fs = sys.modules.get("s3fs")
    if s3fs is not None and watching.s3fs_rounds is None:
        watching.s3fs_rounds = s3fs.S3FileSystem.retries
        s3fs.S3FileSystem.retries = 1
