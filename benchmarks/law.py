"""Print what the admission law achieves in simulation: at a ceiling, under random refusals, after outages.

python benchmarks/law.py                  # fleets of up to 512 processes, some minutes
python benchmarks/law.py --largest 8192   # all of them: hours and gigabytes in pure Python
python benchmarks/law.py --only random --plain   # full jitter without a limiter instead of the law
python benchmarks/law.py --hint none      # fleets of a size that nobody told

"machine": the processes of one machine share one record, and nothing says that there are other machines (the default
of the library). "apart": each has its own, as with coordination="process".
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from statistics import mean

from resilient_io.control.law_record import ASSUMED
from resilient_io.simulate import Fleet, Result, Store, run

_FLEETS = (
    (8, 64, 1),
    (64, 8, 1),
    (128, 8, 1),
    (256, 8, 1),
    (512, 8, 1),
    (512, 8, 8),
    (4096, 8, 1),
    (4096, 8, 8),
    (4096, 8, 64),
)
_FLEETS_LARGE = ((8192, 8, 1), (8192, 8, 8), (8192, 8, 64))


def _fleets(largest: int) -> Iterator[tuple[int, int, int]]:
    return (fleet for fleet in _FLEETS + _FLEETS_LARGE if fleet[0] <= largest)


def _hinted(options: argparse.Namespace, fleet: Fleet) -> Fleet:
    """Tell the law how many processes there are, unless nobody does."""
    return fleet if options.hint == "none" else replace(fleet, share=fleet.sharing / fleet.processes)


def _placed(fleet: Fleet, place: str) -> Fleet:
    return replace(fleet, sharing=fleet.processes, share=ASSUMED) if place == "machine" else fleet


def _ceiling(options: argparse.Namespace) -> None:
    print("\n## At a ceiling of 5500/s, after a warm-up of 30 or 40 s")
    print("| processes | in flight each | sharing | of ceiling | refused | failed | Jain | p50 s | p99 s |")
    print("|---" * 9 + "|")
    for processes, callers, sharing in _fleets(options.largest):
        fleet = Fleet(processes=processes, callers=callers, sharing=sharing, limited=not options.plain)
        seconds, warm_s = (70, 40) if processes < 4096 else (80, 40) if processes < 8192 else (60, 30)
        result = run(_hinted(options, fleet), Store(), seconds=seconds, warm_s=warm_s, seed=options.seed)
        print(
            f"| {processes} | {callers} | {sharing} | {result.per_s / 5500:.3f} | {result.refused_share:.2%} "
            f"| {result.failed} | {result.fairness:.3f} | {result.latency_s(0.5):.2f} | {result.latency_s(0.99):.2f} |",
            flush=True,
        )


def _checkpoint(options: argparse.Namespace) -> None:
    print("\n## Checkpoint, 3500/s, all start at once, ideal 60 s")
    print("| processes | sharing | makespan / ideal | refused, whole run | failed |\n" + "|---" * 5 + "|")
    for processes, callers, sharing in _fleets(options.largest):
        operations = 212_000 // processes
        ideal_s = (operations * processes - 3500) / 3500
        fleet = Fleet(
            processes=processes,
            callers=max(16, callers),
            sharing=sharing,
            operations=operations,
            limited=not options.plain,
        )
        result = run(_hinted(options, fleet), Store(ceiling_per_s=3500), seconds=600, seed=options.seed)
        print(
            f"| {processes} | {sharing} | {result.finished_at_s / ideal_s:.3f} | {result.refused_share_all:.2%} "
            f"| {result.failed} |",
            flush=True,
        )


def _small(options: argparse.Namespace) -> None:
    print("\n## 8 processes x 4 threads, 1496 operations, 100/s, burst 0.5 s, latency 20 ms, 24 seeds: mean (worst)")
    print(
        "| processes | refusals after | makespan / ideal | refused | p99 s | requests per operation | failed |\n"
        + "|---" * 7
        + "|"
    )
    for place, least_s, most_s in product(("machine", "apart"), (0.02, 0.01), (0.03, 0.05)):
        if (most_s > 0.03) != (least_s < 0.02):
            continue
        results = [_small_run(options, place, least_s, most_s, seed) for seed in range(1, 25)]
        makespans = [result.finished_at_s / 14.46 for result in results]
        shares = [result.refused_share_all for result in results]
        print(
            f"| {place} | {least_s * 1000:.0f}-{most_s * 1000:.0f} ms | {mean(makespans):.3f} ({max(makespans):.3f}) "
            f"| {mean(shares):.2%} ({max(shares):.2%}) | {max(result.latency_s(0.99) for result in results):.2f} "
            f"| {mean(result.requests_all for result in results) / 1496:.3f} "
            f"| {sum(result.failed for result in results)} |",
            flush=True,
        )


def _small_run(options: argparse.Namespace, place: str, least_s: float, most_s: float, seed: int) -> Result:
    store = Store(
        ceiling_per_s=100,
        burst_s=0.5,
        latency_median_s=0.02,
        latency_sigma=0.15,
        refusal_min_s=least_s,
        refusal_max_s=most_s,
    )
    fleet = Fleet(processes=8, callers=4, operations=187, limited=not options.plain)
    return run(_placed(fleet, place), store, seconds=120, seed=seed)


def _random(options: argparse.Namespace) -> None:
    print("\n## Random refusals, ceiling far away: throughput relative to full jitter alone, median (least) of 9 seeds")
    shares = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3)
    print("| processes | x in flight | seconds | " + " | ".join(f"{share:.0%}" for share in shares) + " |")
    print("|---" * (3 + len(shares)) + "|")
    for processes, callers in (
        (1, 1),
        (1, 4),
        (1, 8),
        (1, 16),
        (1, 64),
        (8, 1),
        (8, 4),
        (8, 8),
        (8, 16),
        (8, 64),
        (64, 8),
    ):
        for place, seconds in product(("machine", "apart") if processes > 1 else ("machine",), (20, 60)):
            cells = [_relative(options, place, processes, callers, share, seconds) for share in shares]
            row = (f"{processes} {place}" if processes > 1 else "1", str(callers), str(seconds), *cells)
            print("| " + " | ".join(row) + " |", flush=True)


def _relative(options: argparse.Namespace, place: str, processes: int, callers: int, share: float, seconds: int) -> str:
    store = Store(ceiling_per_s=1e6, random_share=share)
    ratios = []
    for seed in range(options.seed, options.seed + (9 if processes * callers <= 64 else 3)):
        free = run(Fleet(processes=processes, callers=callers, limited=False), store, seconds=seconds, seed=seed)
        fleet = _placed(Fleet(processes=processes, callers=callers, limited=not options.plain), place)
        ratios.append(run(fleet, store, seconds=seconds, seed=seed).per_s / free.per_s)
    ratios.sort()
    return f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f})"


def _recovery(options: argparse.Namespace) -> None:
    print("\n## Total refusal, ceiling 400/s, 16 in flight each: share of the ceiling after its end")
    print("| processes | outage s | 13-15 s | 25-30 s |\n" + "|---" * 4 + "|")
    for processes, place in ((1, "machine"), (8, "machine"), (8, "apart"), (64, "apart")):
        for outage_s in (10, 300, 3600):
            end = 20 + outage_s
            fleet = Fleet(processes=processes, callers=16, max_attempts=100_000, limited=not options.plain)
            store = Store(ceiling_per_s=400, outages=((20, end),))
            result = run(_placed(fleet, place), store, seconds=end + 30, seed=options.seed)
            early, late = (result.served_between(end + a, end + b) / 400 for a, b in ((13, 15), (25, 30)))
            print(f"| {processes} {place} | {outage_s} | {early:.2f} | {late:.2f} |", flush=True)


_TABLES = {"ceiling": _ceiling, "checkpoint": _checkpoint, "small": _small, "random": _random, "recovery": _recovery}


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=sorted(_TABLES), action="append", help="a table; default all")
    parser.add_argument("--largest", type=int, default=512, help="processes, up to 8192 (default 512)")
    parser.add_argument("--plain", action="store_true", help="full jitter without a limiter")
    parser.add_argument("--hint", choices=("known", "none"), default="known", help="is the size of a fleet known?")
    parser.add_argument("--seed", type=int, default=8)
    options = parser.parse_args()
    print("Command:", "python", *sys.argv)
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, {platform.platform()}")
    for name in options.only or _TABLES:
        start = time.perf_counter()
        _TABLES[name](options)
        print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
