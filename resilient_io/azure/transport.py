"""Transports that send each request once, over as many connections as there are permits."""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from azure.core.pipeline.transport import RequestsTransport

from resilient_io.azure import privates
from resilient_io.azure.environment import heed

# What azure-storage-blob gives a transport that it makes itself; those of azure-core are for other services: it reads
# bodies in pieces of 4 KiB and waits 300 s for an answer.
DEFAULTS: Final = {"connection_timeout": 20, "read_timeout": 60, "connection_data_block_size": 256 * 2**10}
# Below it nobody gains, and prefixes have permits apart.
_LEAST_CONNECTIONS: Final = 64
# Two threads that send first would each make a session. Not on the transport: a client can be pickled.
_opening = threading.Lock()


def _new_lock() -> None:
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def connections_for(max_concurrency: int) -> int:
    """Return how many connections a pool should keep."""
    return max(max_concurrency, _LEAST_CONNECTIONS)


class SyncTransport(RequestsTransport):  # type: ignore[misc]  # azure-core loads the class by a lazy import
    """azure-core's transport over requests with a pool for `connections`.

    requests keeps 10, and makes and drops the rest for each request.
    """

    def __init__(self, connections: int = _LEAST_CONNECTIONS, **options: Any) -> None:
        super().__init__(**{**DEFAULTS, **options})
        self.connections = connections
        self._opened: Any = None
        self._is_wide = self._trusts = False

    def open(self) -> None:
        """Open the session if it is not open yet."""
        if self.session is None or self.session is not self._opened or not self._is_wide:
            with _opening:
                super().open()
                self._prepare()
        if self._trusts:
            heed(self.session)

    def _prepare(self) -> None:
        session = self.session
        if session is not self._opened:
            self._opened, self._trusts = session, bool(getattr(session, "trust_env", False))
        widen_pool(session, self.connections)
        self._is_wide = True

    def grow(self, connections: int) -> None:
        """Have room for at least this many connections from the next request on."""
        if connections > self.connections:
            self.connections, self._is_wide = connections, False


def widen_pool(session: Any, connections: int) -> None:
    """Make a requests session keep at least this many connections to a host."""
    too_small = {scheme: connections for scheme, size in privates.pool_sizes(session).items() if size < connections}
    privates.set_pool_sizes(session, too_small)


def send_once(session: Any, connections: int) -> None:
    """Stop an aiohttp session's own resend, and let it have at least this many connections."""
    privates.forbid_resend(session)
    limit = privates.connector_limit(session)
    if limit and limit < connections:
        privates.set_connector_limit(session, connections)


def aio_transport(connections: int = _LEAST_CONNECTIONS, **options: Any) -> Any:
    """Return a transport over aiohttp that never sends a request a second time by itself."""
    return _aio_class()(connections, **options)


def _aio_class() -> Any:
    # aiohttp is needed by async clients only.
    from resilient_io.azure.transport_aio import AioTransport

    return AioTransport


class Opener:
    """Takes the place of `open` on a transport that exists: opens it, and prepares the session that it then has.

    It is data, because a client of azure-storage-blob can be pickled.
    """

    def __init__(self, transport: Any, connections: int, *, aio: bool) -> None:
        self.transport = transport
        self.connections = connections
        self.aio = aio
        self.session: Any = None
        self.before: Any = None
        self.trusts = False
        self.is_prepared = False

    def grow(self, connections: int) -> None:
        """Have room for at least this many connections from the next request on."""
        if connections > self.connections:
            self.connections, self.is_prepared = connections, False

    def __call__(self) -> Any:
        """Open the transport, and prepare the session that it then has."""
        if self.aio:
            return self._open_async()
        if not self._is_ready():
            with _opening:
                type(self.transport).open(self.transport)
                self._prepare()
        self._heed()
        return None

    async def _open_async(self) -> None:
        await type(self.transport).open(self.transport)
        if not self._is_ready():
            self._prepare()
        self._heed()

    def _heed(self) -> None:
        if self.trusts:
            heed(self.session)

    def _is_ready(self) -> bool:
        return self.is_prepared and self.session is not None and self.session is self.transport.session

    def _prepare(self) -> None:
        session = self.transport.session
        if session is not self.session:
            self.session, self.before, self.trusts = session, None, bool(getattr(session, "trust_env", False))
        if self.aio and hasattr(session, "connector"):
            self.before = privates.connector_limit(session) if self.before is None else self.before
            send_once(session, self.connections)
        elif hasattr(session, "adapters"):
            self.before = privates.pool_sizes(session) if self.before is None else self.before
            widen_pool(session, self.connections)
        self.is_prepared = True

    def undo(self) -> None:
        """Make the transport, and the session that it has, what they were."""
        self.transport.__dict__.pop("open", None)
        session, self.session = self.session, None
        if session is None or session is not self.transport.session:
            return
        if self.trusts:
            privates.set_trust_env(session, True)
        if self.before is None:
            return
        if self.aio:
            privates.allow_resend(session)
            privates.set_connector_limit(session, self.before)
        else:
            privates.set_pool_sizes(session, self.before)
