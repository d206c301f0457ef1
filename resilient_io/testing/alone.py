"""The command line of the server: `python -m resilient_io.testing.faultserver`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import threading
from collections.abc import Sequence

from .admin import fill
from .azure import account_ceiling
from .child import wait_for_stdin_to_end
from .engine import Engine
from .faultserver import PROTOCOLS, build_engine
from .listening import Listener
from .plan import Ceiling, FaultAction, FaultPlan, FaultRule, Latency, Refusal


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal, or until standard input ends with `--until-stdin-ends`; return 0.

    The first line of standard output is a JSON object: url, port, seed.
    """
    options = _parser().parse_args(arguments)
    engine = build_engine(plan_of(options), upstream=options.upstream, protocol=options.protocol)
    for text in options.fill:
        bucket, count, size = text.split(":")
        fill(engine, bucket=bucket, count=int(count), size_bytes=int(size))
    loop = asyncio.SelectorEventLoop()
    with contextlib.suppress(KeyboardInterrupt):
        loop.run_until_complete(_serve(engine, options.port, until_stdin_ends=options.until_stdin_ends))
    loop.close()
    return 0


def plan_of(options: argparse.Namespace) -> FaultPlan:
    """Return the plan that the options describe; `--plan` alone gives all of it."""
    if options.plan is not None:
        return FaultPlan.from_json(_text(options.plan))
    shape = {"burst_s": options.burst_s, "refusal_cost": options.refusal_cost}
    ceilings: tuple[Ceiling, ...] = ()
    if options.ceiling is not None:
        ceilings += (Ceiling(rate_per_s=options.ceiling, **shape),)
    if options.account_ceiling is not None:
        ceilings += (account_ceiling(options.account_ceiling, **shape),)
    rules = [
        FaultRule(action=action, probability=share)
        for action, share in (
            (FaultAction.ERROR, options.random_503),
            (FaultAction.RESET_BEFORE, options.random_resets),
        )
        if share > 0
    ]
    return FaultPlan(
        ceilings=ceilings,
        rules=tuple(rules),
        latency=Latency(base_s=options.latency_s),
        refusal=Refusal(retry_after_s=options.retry_after_s),
        prefix_depth=options.prefix_depth,
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m resilient_io.testing.faultserver",
        description="An S3 store that throttles and fails on demand, or a proxy before one (of Azure Blob too).",
    )
    add = parser.add_argument
    add("--upstream", metavar="URL", help="stand before this endpoint (default: a store in memory)")
    add("--protocol", choices=PROTOCOLS, default="s3", help="what is spoken (s3); azure needs --upstream")
    add("--port", type=int, default=0, help="port on 127.0.0.1 (default 0: a free one)")
    add("--plan", metavar="JSON|@FILE", help="a whole FaultPlan; the options below are then ignored")
    add("--ceiling", type=float, metavar="PER_S", help="requests a second for each prefix and class")
    add("--account-ceiling", type=float, metavar="PER_S", help="requests a second for each Azure account")
    add("--burst-s", type=float, default=1.0, help="seconds of the rate that a quiet prefix saves up (1.0)")
    add("--refusal-cost", type=float, default=0.0, help="part of a request that a refusal costs (0)")
    add("--retry-after-s", type=float, help="Retry-After header of refusals")
    add("--latency-s", type=float, default=0.0, help="seconds that each answer takes (0)")
    add("--random-503", type=float, default=0.0, metavar="SHARE", help="share of random 503s, 0 to 1")
    add("--random-resets", type=float, default=0.0, metavar="SHARE", help="share of random resets, 0 to 1")
    add("--prefix-depth", type=int, default=2, help="segments of a key that make its prefix (2)")
    add("--seed", type=int, help="seed of all chance (default: drawn and printed)")
    add("--fill", action="append", default=[], metavar="BUCKET:COUNT:BYTES", help="objects train/000000 and on")
    add("--until-stdin-ends", action="store_true", help="stop when standard input ends")
    return parser


def _text(given: str) -> str:
    if not given.startswith("@"):
        return given
    with open(given[1:], encoding="utf-8") as file:
        return file.read()


async def _serve(engine: Engine, port: int, *, until_stdin_ends: bool) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stopping.set)
    listener = Listener(engine)
    bound = listener.start(port)
    print(json.dumps({"url": f"http://127.0.0.1:{bound}", "port": bound, "seed": engine.seed}), flush=True)
    if until_stdin_ends:
        # A daemon: a signal must end us while this still reads.
        threading.Thread(target=_wait_for_end, args=(loop, stopping), daemon=True).start()
    await stopping.wait()
    await listener.stop()


def _wait_for_end(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    wait_for_stdin_to_end()
    with contextlib.suppress(RuntimeError):  # the loop is closed: we stop already
        loop.call_soon_threadsafe(stopping.set)
