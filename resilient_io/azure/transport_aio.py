"""The transport for async clients, apart because it needs aiohttp."""

from __future__ import annotations

from typing import Any

from azure.core.pipeline.transport import AioHttpTransport

from resilient_io.azure.environment import heed
from resilient_io.azure.transport import DEFAULTS, send_once


class AioTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core loads the class by a lazy import
    """azure-core's transport over aiohttp, which sends each request once and has room for `connections`."""

    def __init__(self, connections: int, **options: Any) -> None:
        super().__init__(**{**DEFAULTS, **options})
        self.connections = connections
        self._opened: Any = None
        self._trusts = False

    async def open(self) -> None:
        """Open the session if it is not open yet."""
        await super().open()
        session = self.session
        if session is not self._opened:
            self._opened, self._trusts = session, bool(getattr(session, "trust_env", False))
            send_once(session, self.connections)
        if self._trusts:
            heed(session)

    def grow(self, connections: int) -> None:
        """Have room for at least this many connections from the next request on."""
        if connections > self.connections:
            self.connections = connections
            if self._opened is not None:
                send_once(self._opened, connections)
