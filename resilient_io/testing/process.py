"""`FaultServerProcess`: the same server in a process of its own, driven over its admin endpoints."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from .admin import ADMIN_ROOT
from .child import Child
from .ledger import Exchange, Stats
from .plan import FaultPlan, Match

#: Seconds that an admin call may take.
CALL_TIMEOUT_S = 30.0


class FaultServerControl:
    """The methods of `FaultServer` over HTTP, for any running server (also of another process).

    `url` is that of the server, which need not run yet. Every method may be called from any thread; it raises OSError
    where nothing answers within 30 s, and ValueError with the server's words where the server refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    @property
    def port(self) -> int:
        """The server's port."""
        return int(self.url.rpartition(":")[2])

    @property
    def plan(self) -> FaultPlan:
        """The plan in force."""
        return FaultPlan.from_dict(self._call("GET", "plan"))

    @property
    def seed(self) -> int:
        """The seed of the random rules and latencies, given or drawn."""
        return self.stats().seed

    def configure(self, plan: FaultPlan) -> None:
        """Put another plan in force, from its start; the counters go on."""
        self._call("POST", "configure", plan.to_json())

    def reset(self) -> None:
        """Start plan and counters afresh, with the same seed; objects stay."""
        self._call("POST", "reset")

    def set_rate(self, rate_per_s: float, *, name: str | None = None, burst_s: float | None = None) -> None:
        """Change the rate of the ceilings called `name` (None: all); saved-up tokens stay."""
        self._call("POST", "rate", json.dumps({"rate_per_s": rate_per_s, "name": name, "burst_s": burst_s}))

    def start_outage(self, duration_s: float, *, match: Match | None = None) -> None:
        """Refuse everything that fits `match` for `duration_s` seconds from now; 0 ends every outage."""
        self._call("POST", "outage", json.dumps({"duration_s": duration_s, "match": asdict(match or Match())}))

    def fill(self, bucket: str, *, count: int, size_bytes: int, key: str = "train/{:06d}", seed: int = 0) -> None:
        """Put `count` objects of seeded random bytes into the built-in store; the bucket is made."""
        wanted = {"bucket": bucket, "count": count, "size_bytes": size_bytes, "key": key, "seed": seed}
        self._call("POST", "fill", json.dumps(wanted))

    def stats(self) -> Stats:
        """Return the counters as they stand."""
        return Stats.from_dict(self._call("GET", "stats"))

    def log(self, *, op: str = "*", key: str = "*", outcome: str = "*") -> list[Exchange]:
        """Return the kept requests that fit the shell patterns, oldest first."""
        query = urlencode({"op": op, "key": key, "outcome": outcome})
        return [Exchange(**one) for one in self._call("GET", f"log?{query}")]

    def _call(self, method: str, action: str, body: str = "") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_TIMEOUT_S)
        try:
            connection.request(method, ADMIN_ROOT + action, body=body)
            answer = connection.getresponse()
            data = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(f"the fault server refused {action}: {data['error']}")
        return data


class FaultServerProcess(FaultServerControl):
    """A fault server in a child process, so that it does not share the interpreter lock with the client.

    Everything goes as with `FaultServer`, which see; `fill` makes objects, and what cannot go
    through JSON (another clock, protocol or backend) is not here. The child dies with its parent. `options` are more
    words for its command line (`python -m resilient_io.testing.faultserver --help`).
    """

    def __init__(
        self,
        plan: FaultPlan | None = None,
        *,
        upstream: str | None = None,
        protocol: str = "s3",
        port: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(f"http://127.0.0.1:{port}")
        self._first_plan = plan or FaultPlan()
        self._options = [*options, "--port", str(port), "--protocol", protocol]
        if upstream is not None:
            self._options += ["--upstream", upstream]
        self._child: Child | None = None

    def __enter__(self) -> FaultServerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The child's process id; None while it does not run."""
        return None if self._child is None else self._child.pid

    def start(self) -> FaultServerProcess:
        """Start the child, wait until it listens, and return self."""
        if self._child is None:
            options = ["--until-stdin-ends", "--plan", self._first_plan.to_json(), *self._options]
            self._child = Child("resilient_io.testing.faultserver", options)
            self.url = self._child.said["url"]
        return self

    def stop(self) -> None:
        """End the child and wait for it; nothing if it does not run."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()
