"""`FaultServer`: the server in a thread, and `python -m resilient_io.testing.faultserver`: the server alone."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from . import admin
from .azure import AzureProtocol
from .calls import Backend, StoreProtocol
from .engine import Engine
from .ledger import LOG_LIMIT, Exchange, Stats
from .listening import Listener
from .plan import FaultPlan, Match
from .s3 import S3Protocol
from .s3_store import S3Store
from .upstream import Upstream

#: Seconds that a call from another thread waits for the server's loop; it answers in microseconds.
CALL_TIMEOUT_S = 10.0
#: The languages that come with the server.
PROTOCOLS = ("s3", "azure")

_T = TypeVar("_T")


def build_engine(
    plan: FaultPlan | None = None,
    *,
    upstream: str | None = None,
    protocol: StoreProtocol | str = "s3",
    backend: Backend | None = None,
    now: Callable[[], float] = time.monotonic,
    log_limit: int = LOG_LIMIT,
) -> Engine:
    """Return an engine before `upstream`, `backend`, or else the built-in S3 store."""
    spoken = _protocol(protocol) if isinstance(protocol, str) else protocol
    if backend is None:
        backend = Upstream(upstream) if upstream is not None else _built_in(spoken)
    return Engine(plan or FaultPlan(), protocol=spoken, backend=backend, now=now, log_limit=log_limit)


def _protocol(name: str) -> StoreProtocol:
    match name:
        case "s3":
            return S3Protocol()
        case "azure":
            return AzureProtocol()
        case _:
            raise ValueError(f"there is no protocol {name!r}; there are {', '.join(PROTOCOLS)}")


def _built_in(protocol: StoreProtocol) -> Backend:
    if not isinstance(protocol, S3Protocol):
        raise ValueError(f"there is no built-in store for {protocol!r}: give an upstream (Azurite) or a backend")
    return S3Store(protocol)


class FaultServer:
    """A keep-alive HTTP/1.1 store, or a proxy before one, that does what a `FaultPlan` says.

    Without `upstream` it answers from a store in memory, which speaks S3. `protocol` is "s3", "azure" (with Azurite as
    the `upstream`), or a plug-in of your own. `now` is the clock of ceilings, outages and
    the log (monotonic seconds; `ManualClock().now` moves them by hand); latency and stalls always
    take real time. `port` 0 takes a free one; it listens on 127.0.0.1 only. `log_limit` is how many requests `log`
    keeps, the oldest forgotten first (default 200,000). Raises ValueError for a protocol that it does not know, and for
    one without a built-in store where neither `upstream` nor `backend` is given. It runs in a daemon
    thread of its own from `start()` to `stop()`, or as a context manager; every method may be called
    from any thread, also before the start and after the stop. It shares the interpreter lock with
    the client: for measurements use `FaultServerProcess`.
    """

    def __init__(
        self,
        plan: FaultPlan | None = None,
        *,
        upstream: str | None = None,
        protocol: StoreProtocol | str = "s3",
        backend: Backend | None = None,
        port: int = 0,
        now: Callable[[], float] = time.monotonic,
        log_limit: int = LOG_LIMIT,
    ) -> None:
        self._engine = build_engine(
            plan, upstream=upstream, protocol=protocol, backend=backend, now=now, log_limit=log_limit
        )
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = "running" if self._thread else "stopped"
        return f"<FaultServer {state} port={self._port} seed={self.seed}>"

    def __enter__(self) -> FaultServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Life.

    def start(self) -> FaultServer:
        """Start listening and return self; OSError where the port is taken. Nothing where it runs."""
        if self._thread is not None:
            return self
        ready: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="fault-server", daemon=True)
        self._thread.start()
        try:
            self._port = ready.result(CALL_TIMEOUT_S)
        except BaseException:
            self._thread.join(CALL_TIMEOUT_S)
            self._thread = None
            raise
        return self

    def stop(self) -> None:
        """End every connection and the thread, within a second; nothing if it does not run."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        loop.call_soon_threadsafe(stopping.set)
        thread.join(CALL_TIMEOUT_S)
        self._thread = self._loop = self._stopping = None

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; before the start what was asked for."""
        return self._port

    @property
    def url(self) -> str:
        """The endpoint URL for clients, "http://127.0.0.1:<port>"."""
        return f"http://127.0.0.1:{self._port}"

    # Control.

    @property
    def plan(self) -> FaultPlan:
        """The plan in force."""
        return self._engine.plan

    @property
    def seed(self) -> int:
        """The seed of the random rules and latencies, given or drawn."""
        return self._engine.seed

    def configure(self, plan: FaultPlan) -> None:
        """Put another plan in force, from its start; the counters go on."""
        self._on_loop(lambda: self._engine.configure(plan))

    def reset(self) -> None:
        """Start plan and counters afresh, with the same seed; objects stay."""
        self._on_loop(self._engine.reset)

    def set_rate(self, rate_per_s: float, *, name: str | None = None, burst_s: float | None = None) -> None:
        """Change requests a second, and seconds of burst, of the ceilings called `name` (None: all); tokens stay.

        Raises LookupError where the plan has no ceiling of that name.
        """
        self._on_loop(lambda: self._engine.set_rate(rate_per_s, name=name, burst_s=burst_s))

    def start_outage(self, duration_s: float, *, match: Match | None = None) -> None:
        """Refuse everything that fits `match` for `duration_s` seconds from now; 0 ends every outage."""
        self._on_loop(lambda: self._engine.start_outage(duration_s, match=match))

    def fill(self, bucket: str, *, count: int, size_bytes: int, key: str = "train/{:06d}", seed: int = 0) -> None:
        """Put `count` objects of seeded random bytes into the built-in store; the bucket is made.

        `key` is formatted with the number, from 0. Raises LookupError before an upstream, which has its own API.
        """
        self._on_loop(
            lambda: admin.fill(self._engine, bucket=bucket, count=count, size_bytes=size_bytes, key=key, seed=seed)
        )

    def stats(self) -> Stats:
        """Return the counters as they stand."""
        return self._on_loop(self._engine.stats)

    def log(self, *, op: str = "*", key: str = "*", outcome: str = "*") -> list[Exchange]:
        """Return the kept requests that fit the shell patterns, oldest first."""
        return self._on_loop(lambda: self._engine.log(op=op, key=key, outcome=outcome))

    # The thread.

    def _on_loop(self, work: Callable[[], _T]) -> _T:
        loop = self._loop
        if loop is None:
            return work()
        done: concurrent.futures.Future[_T] = concurrent.futures.Future()
        loop.call_soon_threadsafe(_fulfil, done, work)
        return done.result(CALL_TIMEOUT_S)

    def _run(self, ready: concurrent.futures.Future[int]) -> None:
        loop = asyncio.SelectorEventLoop()
        try:
            loop.run_until_complete(self._serve(loop, ready))
        except BaseException as error:  # carried to the thread that waits in start()
            if not ready.done():
                ready.set_exception(error)
        finally:
            loop.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop, ready: concurrent.futures.Future[int]) -> None:
        listener = Listener(self._engine)
        port = listener.start(self._port)
        self._loop, self._stopping = loop, asyncio.Event()
        ready.set_result(port)
        try:
            await self._stopping.wait()
        finally:
            await listener.stop()


def _fulfil(done: concurrent.futures.Future[_T], work: Callable[[], _T]) -> None:
    try:
        done.set_result(work())
    except Exception as error:  # carried to the thread that asked
        done.set_exception(error)


if __name__ == "__main__":
    from .alone import main

    raise SystemExit(main())
