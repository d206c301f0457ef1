"""The listening socket of a server and its connections, on the running event loop."""

from __future__ import annotations

import asyncio
import logging
import socket

from .engine import Engine
from .serving import serve
from .wire import Wire

# Connections taken from the kernel at one go, so that a storm of them cannot starve the others.
_ACCEPT_BATCH = 64
_PAUSE_S = 0.1

logger = logging.getLogger(__name__)


class Listener:
    """Accepts connections on 127.0.0.1 and serves each in a task of its own.

    It needs a selector event loop. `asyncio.Server` is not used: closed while it accepts, it leaks
    the connection (CPython up to 3.11).
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._serving: dict[Wire, asyncio.Task[None]] = {}
        self._accepting: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None

    def start(self, port: int = 0) -> int:
        """Listen and return the port; 0 takes a free one. Call it on the loop."""
        self._socket = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._accept)
        return int(self._socket.getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and end every connection, whatever it is doing."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        if self._accepting:
            await asyncio.wait(self._accepting)
        tasks = list(self._serving.values())
        for wire, task in list(self._serving.items()):
            wire.reset()
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.5)
        await self._engine.backend.close()
        for _ in range(3):
            await asyncio.sleep(0)  # in these turns the transports close their sockets

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of file descriptors, most likely
                logger.warning("cannot accept a connection: %s", error)
                self._pause()
                return
            connection.setblocking(False)
            # asyncio does this only for sockets that it listens for itself; without it the second write of
            # an answer waits 40 ms for the client's delayed ACK.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.get_running_loop().create_task(self._connect(connection))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def _pause(self) -> None:
        """Stop accepting for a while: the kernel would call again at once."""
        loop, listening = asyncio.get_running_loop(), self._socket
        assert listening is not None
        loop.remove_reader(listening)
        loop.call_later(_PAUSE_S, lambda: listening.fileno() >= 0 and loop.add_reader(listening, self._accept))

    async def _connect(self, connection: socket.socket) -> None:
        wire = Wire(on_made=self._made, on_lost=self._lost)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: wire, connection)

    def _made(self, wire: Wire) -> None:
        self._engine.ledger.connections += 1
        self._serving[wire] = asyncio.get_running_loop().create_task(serve(wire, self._engine))

    def _lost(self, wire: Wire) -> None:
        task = self._serving.pop(wire, None)
        if task is not None:
            task.cancel()
