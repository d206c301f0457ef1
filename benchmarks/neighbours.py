"""Sixteen prefixes of one bucket, one of them hot: what the other fifteen feel of it.

    python benchmarks/neighbours.py [--seconds 20] [--ceiling 60] [--rounds 3]

Pairs of runs, one after the other. In both, the same processes read the fifteen cold prefixes at a steady pace, and as
many others read the sixteenth. In the first it has no ceiling and is read at the pace that the ceiling would allow (a
rate that is given); in the second it has the ceiling, and its readers want far more. So the machine has the same work
in both, and what differs is the throttling. Aim: the cold prefixes' p99 within 1.1 x.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from throttle import environment

from resilient_io.rehearse.crew import Crew, Work, serve
from resilient_io.rehearse.fleet import Fleet
from resilient_io.rehearse.outcomes import percentile
from resilient_io.testing import Ceiling, FaultPlan, FaultServerProcess, Latency, Match

BUCKET, PREFIXES, OBJECTS = "bench", 16, 320
KEY = "data/{:02d}/{:06d}"


def prepare(task: Mapping[str, Any]) -> Crew:
    """Make the filesystem; a process reads either the cold prefixes or the hot one."""
    import fsspec

    import resilient_io

    resilient_io.install()
    given = {"rate_per_s": task["calm_per_s"]} if task["calm_per_s"] else {}
    fs = fsspec.filesystem(
        "s3", endpoint_url=task["url"], key="x", secret="x", use_listings_cache=False, resilience={**given}
    )
    draw = random.Random(task["rank"])

    def works(phase: str) -> Iterator[Work]:
        until = time.monotonic() + task["seconds"]
        while time.monotonic() < until:
            prefix = 0 if task["hot"] else 1 + draw.randrange(PREFIXES - 1)
            key = f"{BUCKET}/{KEY.format(prefix, draw.randrange(OBJECTS // PREFIXES))}"
            yield Work(kind="hot" if task["hot"] else "cold", do=lambda key=key: fs.cat_file(key))  # type: ignore[misc]
            if not task["hot"]:
                time.sleep(0.02)

    return Crew(threads=1 if not task["hot"] else task["callers"], phase=works)


def run(options: argparse.Namespace, *, limited: bool) -> dict[str, float]:
    """Let all processes read for so many seconds, and return what the cold ones got."""
    ceilings = (Ceiling(match=Match(prefix="data/00"), rate_per_s=options.ceiling, burst_s=0.5),) if limited else ()
    plan = FaultPlan(ceilings=ceilings, latency=Latency(base_s=0.05), seed=options.seed)
    common = {"url": "", "seconds": options.seconds, "callers": 8}
    with FaultServerProcess(plan) as server:
        for prefix in range(PREFIXES):
            key = f"data/{prefix:02d}/{{:06d}}"
            server.fill(BUCKET, count=OBJECTS // PREFIXES, size_bytes=4096, key=key)
        tasks = [
            {
                **common,
                "url": server.url,
                "rank": rank,
                "hot": rank % 2 == 1,
                "calm_per_s": options.ceiling / (options.processes / 2) if rank % 2 == 1 and not limited else 0.0,
            }
            for rank in range(options.processes)
        ]
        with Fleet([sys.executable, __file__, "--worker"], tasks, env=environment()) as fleet:
            server.reset()
            phase = fleet.run("all")
        refused = sum(one.status == 503 for one in server.log())
    cold = sorted(one.latency_s for one in phase.outcomes if one.kind == "cold")
    hot = [one for one in phase.outcomes if one.kind == "hot"]
    return {
        "cold_per_s": len(cold) / phase.makespan_s,
        "p50_s": percentile(cold, 0.5),
        "p99_s": percentile(cold, 0.99),
        "hot_per_s": len(hot) / phase.makespan_s,
        "refused": float(refused),
        "failed": float(sum(bool(one.error) for one in phase.outcomes)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8, help="half of them cold, half hot")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--ceiling", type=float, default=60.0, metavar="PER_S")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("command: python", " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    print(f"machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    pairs = [(run(options, limited=False), run(options, limited=True)) for _ in range(options.rounds)]
    for calm, beside in pairs:
        for name, found in (("without a ceiling", calm), ("beside a hot prefix", beside)):
            print(f"{name:20}", "  ".join(f"{key} {value:.3f}" for key, value in found.items()))
    for key in ("p50_s", "p99_s", "cold_per_s"):
        ratio = statistics.median(beside[key] / calm[key] for calm, beside in pairs)
        print(f"{key:12} {ratio:.2f} x (median of {len(pairs)})")


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        serve(prepare)
    main()
