"""The server's own endpoints under /__fault__/, for clients in other processes.

| request | does |
|---|---|
| GET stats | the counters (`Stats`) |
| GET log?op=GetObject&key=*&outcome=fault | the kept requests |
| GET plan | the plan in force |
| POST reset | counters, buckets and call counts from the start |
| POST configure | a `FaultPlan` replaces the one in force |
| POST rate | {"rate_per_s": 50, "name": "ceiling", "burst_s": 1}: changes ceilings, keeps their tokens |
| POST outage | {"duration_s": 10, "match": {...}} from now; 0 ends every outage |
| POST fill | {"bucket": "b", "count": 100, "size_bytes": 4096, "key": "train/{:06d}"}: objects for the built-in store |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .calls import Body, Head, Reply
from .engine import Engine
from .ledger import log_dicts
from .plan import FaultPlan, Match

#: Where the server's own endpoints stand. No S3 bucket can have this name.
ADMIN_ROOT = "/__fault__/"


async def answer_admin(engine: Engine, head: Head, body: Body) -> Reply:
    """Do what an admin request asks, and answer with JSON; 400 says what is wrong with it."""
    text = b"".join([piece async for piece in body])
    action = _ACTIONS.get((head.method, head.path[len(ADMIN_ROOT) :]))
    if action is None:
        return _json(404, {"error": f"no such endpoint; there are {sorted(_ACTIONS)}"})
    try:
        arguments = json.loads(text) if text else {}
        return _json(200, action(engine, {**head.query(), **arguments}))
    except (ValueError, TypeError, LookupError) as error:
        return _json(400, {"error": str(error)})


def fill(engine: Engine, *, bucket: str, count: int, size_bytes: int, key: str = "train/{:06d}", seed: int = 0) -> None:
    """Put `count` objects of seeded random bytes into the built-in store; LookupError before an upstream."""
    put = getattr(engine.backend, "fill", None)
    if put is None:
        raise LookupError("only the built-in store can be filled; write to the upstream through its own API")
    put(bucket=bucket, count=count, size_bytes=size_bytes, key=key, seed=seed)


def _stats(engine: Engine, _: dict[str, Any]) -> Any:
    return engine.stats().to_dict()


def _log(engine: Engine, arguments: dict[str, Any]) -> Any:
    return log_dicts(engine.log(**arguments))


def _plan(engine: Engine, _: dict[str, Any]) -> Any:
    return json.loads(engine.plan.to_json())


def _reset(engine: Engine, _: dict[str, Any]) -> Any:
    engine.reset()
    return {"seed": engine.seed}


def _configure(engine: Engine, arguments: dict[str, Any]) -> Any:
    engine.configure(FaultPlan.from_dict(arguments))
    return {"seed": engine.seed}


def _rate(engine: Engine, arguments: dict[str, Any]) -> Any:
    engine.set_rate(**arguments)
    return {}


def _outage(engine: Engine, arguments: dict[str, Any]) -> Any:
    engine.start_outage(arguments["duration_s"], match=Match(**arguments.get("match", {})))
    return {}


def _fill(engine: Engine, arguments: dict[str, Any]) -> Any:
    fill(engine, **arguments)
    return {}


_ACTIONS: dict[tuple[str, str], Callable[[Engine, dict[str, Any]], Any]] = {
    ("GET", "stats"): _stats,
    ("GET", "log"): _log,
    ("GET", "plan"): _plan,
    ("POST", "reset"): _reset,
    ("POST", "configure"): _configure,
    ("POST", "rate"): _rate,
    ("POST", "outage"): _outage,
    ("POST", "fill"): _fill,
}


def _json(status: int, data: Any) -> Reply:
    return Reply(status=status, headers=[("Content-Type", "application/json")], body=json.dumps(data).encode())
