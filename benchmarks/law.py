"""Print what the admission law achieves in simulation: at a ceiling, under random refusals, after outages, in bursts.

python benchmarks/law.py                  # fleets of up to 512 processes, some minutes
python benchmarks/law.py --largest 8192   # all of them: hours and gigabytes in pure Python
python benchmarks/law.py --only random --plain   # full jitter without a limiter instead of the law
python benchmarks/law.py --hint none      # fleets of a size that nobody told

"machine": the processes of one machine share one record, and nothing says that there are other machines (the default
of the library). "apart": each has its own, as with coordination="process".
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean

from _svg import lines

from resilient_io.control.law_record import ASSUMED, Constants
from resilient_io.simulate import Cluster, Fleet, Order, Result, Service, Store, run, run_together

_FLEETS = (
    (1, 64, 1),
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


def _head(title: str, columns: str) -> None:
    """Begin a table: one of the same section where it has no title."""
    print(f"\n## {title}" if title else "")
    print(f"| {columns} |\n" + "|---" * (columns.count(" | ") + 1) + "|")


def _ceiling(options: argparse.Namespace) -> None:
    _head(
        "At a ceiling of 5500/s, after a warm-up of 30 or 40 s",
        "processes | in flight each | sharing | of ceiling | refused | failed | Jain | p50 s | p99 s",
    )
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
    _head(
        "Checkpoint, 3500/s, all start at once, ideal 60 s",
        "processes | sharing | makespan / ideal | refused, whole run | failed",
    )
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
    _head(
        "8 processes x 4 threads, 1496 operations, 100/s, burst 0.5 s, latency 20 ms, 24 seeds: mean (worst)",
        "processes | refusals after | makespan / ideal | refused | p99 s | requests per operation | failed",
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
    shares = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3)
    _head(
        "Random refusals, ceiling far away: throughput relative to full jitter alone, median (least) of 9 seeds",
        "processes | x in flight | seconds | " + " | ".join(f"{share:.0%}" for share in shares),
    )
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
    _head(
        "Total refusal, ceiling 400/s, 16 in flight each: share of the ceiling after its end",
        "processes | outage s | 13-15 s | 25-30 s",
    )
    for processes, place in ((1, "machine"), (8, "machine"), (8, "apart"), (64, "apart")):
        for outage_s in (10, 300, 3600):
            end = 20 + outage_s
            fleet = Fleet(processes=processes, callers=16, max_attempts=100_000, limited=not options.plain)
            store = Store(ceiling_per_s=400, outages=((20, end),))
            result = run(_placed(fleet, place), store, seconds=end + 30, seed=options.seed)
            early, late = (result.served_between(end + a, end + b) / 400 for a, b in ((13, 15), (25, 30)))
            print(f"| {processes} {place} | {outage_s} | {early:.2f} | {late:.2f} |", flush=True)


def _capacity(options: argparse.Namespace) -> None:
    _head(
        "A ceiling that changes after 60 s: share of it after 10 to 15 s, refused meanwhile, Jain 100 s later",
        "processes | sharing | ceiling | becomes | of it | refused | Jain",
    )
    for processes, callers, sharing, ceiling in (
        (8, 32, 1, 400),
        (64, 8, 1, 700),
        (64, 8, 8, 700),
        (64, 8, 64, 700),
    ):
        for factor in (0.5, 2.0, 4.0):
            store = Store(ceiling_per_s=ceiling, ceilings=((60, factor),))
            fleet = _hinted(options, Fleet(processes=processes, callers=callers, sharing=sharing))
            soon = run(fleet, store, seconds=75, warm_s=60, seed=options.seed)
            late = run(fleet, store, seconds=180, warm_s=160, seed=options.seed)
            share = soon.served_between(70, 75) / (ceiling * factor)
            print(
                f"| {processes} | {sharing} | {ceiling} | x{factor:g} | {share:.2f} | {soon.refused_share:.1%} "
                f"| {late.fairness:.2f} |",
                flush=True,
            )


def _burst(options: argparse.Namespace) -> None:
    _head(
        "A burst of thousands, and a first throttled step: with the size of the fleet told, and untold",
        "processes | sharing | cluster | told | checkpoint / ideal | refused | step of 8 reads, s | refused",
    )
    for processes, sharing in ((1024, 1), (1024, 8), (4096, 1), (4096, 8), (4096, 64), (8192, 8), (8192, 64)):
        for cluster, told in ((None, False), (None, True), (Cluster(), True)):
            if processes > options.largest or (sharing == 1 and cluster is not None):
                continue
            share = sharing / processes if told else 0.0
            fleet = Fleet(processes=processes, callers=16, sharing=sharing, share=share, cluster=cluster)
            operations = 212_000 // processes
            ideal_s = (operations * processes - 3500) / 3500
            whole = run(
                replace(fleet, operations=operations), Store(ceiling_per_s=3500), seconds=600, seed=options.seed
            )
            step = run(replace(fleet, operations=8, callers=8), Store(), seconds=120, seed=options.seed)
            print(
                f"| {processes} | {sharing} | {'yes' if cluster else 'no'} | {'yes' if told else 'no'} "
                f"| {whole.finished_at_s / ideal_s:.3f} | {whole.refused_share_all:.1%} "
                f"| {step.finished_at_s:.2f} | {step.refused_share_all:.1%} |",
                flush=True,
            )


def _ranks(options: argparse.Namespace) -> None:
    _head(
        "64 ranks x 16 that start a checkpoint of a minute together, 3500/s",
        "sharing | told | checkpoint / ideal | refused after the first second | whole run",
    )
    for sharing, share in ((1, None), (1, 1 / 64), (8, None), (8, 1 / 8), (64, ASSUMED)):
        fleet = Fleet(processes=64, callers=16, sharing=sharing, share=share, operations=3300)
        result = run(fleet, Store(ceiling_per_s=3500), seconds=200, warm_s=1, seed=options.seed)
        told = "no" if share is None else f"{share:.3g}"
        ratio = result.finished_at_s / ((64 * 3300 - 3500) / 3500)
        print(f"| {sharing} | {told} | {ratio:.3f} | {result.refused_share:.2%} | {result.refused_share_all:.2%} |")


def _neighbours(options: argparse.Namespace) -> None:
    _head(
        "One hot prefix (or blob) beside cold ones, and a walk under an account limit: all levels asked",
        "case | processes | sharing | cold p99 without, s | with | cold/s without | with | hot/s | refused",
    )
    prefixes, blobs = Service(prefix=Store(ceiling_per_s=550)), Service(account=Store(ceiling_per_s=20_000), blob=_BLOB)
    for name, service, cold, hot in (
        ("1 hot prefix of 16", prefixes, Fleet(callers=15, prefixes=range(1, 16), pause_s=0.05), Fleet(callers=16)),
        ("1 hot blob of 1000", blobs, Fleet(callers=4, blobs=1000, pause_s=0.05), Fleet(callers=16, blobs=1)),
    ):
        for processes, sharing in ((8, 1), (8, 8)):
            cold, hot = (replace(fleet, processes=processes, sharing=sharing) for fleet in (cold, hot))
            without = run_together([cold], service, seconds=40, warm_s=10, seed=options.seed)[0]
            both = run_together([cold, hot], service, seconds=40, warm_s=10, seed=options.seed, same_processes=True)
            print(
                f"| {name} | {processes} | {sharing} | {without.latency_s(0.99):.3f} | {both[0].latency_s(0.99):.3f} "
                f"| {without.per_s:.0f} | {both[0].per_s:.0f} | {both[1].per_s:.0f} | {both[1].refused_share:.1%} |",
                flush=True,
            )
    _head("", "walk over 200 prefixes, account 400/s | sharing | of ceiling | refused | p50 s | p99 s | Jain")
    for says, sharing in product((True, False), (1, 16)):
        service = Service(account=Store(ceiling_per_s=400), says_account=says)
        fleet = Fleet(processes=16, sharing=sharing, prefixes=range(200), order=Order.SCAN)
        result = run_together([_placed(fleet, "machine") if sharing > 1 else fleet], service, seconds=60, warm_s=20)[0]
        print(
            f"| {'said' if says else 'not said'} | {sharing} | {result.per_s / 400:.3f} | {result.refused_share:.1%} "
            f"| {result.latency_s(0.5):.2f} | {result.latency_s(0.99):.2f} | {result.fairness:.2f} |",
            flush=True,
        )


def _queue(options: argparse.Namespace) -> None:
    _head(
        "A server that queues for 0.4 s before it refuses, and one whose refusals cost a quarter of a request",
        "processes | sharing | ceiling | server | of ceiling from 5 s on | refused | p50 s | p99 s",
    )
    for processes, sharing in ((8, 8), (64, 1), (64, 8), (512, 8)):
        ceiling = 5500 * processes / 512
        fleet = _hinted(options, Fleet(processes=processes, sharing=sharing))
        fleet = _placed(fleet, "machine") if sharing == processes else fleet
        for name, store in (("queues", Store(queue_s=0.4)), ("charges", Store(charged=0.25))):
            result = run(fleet, replace(store, ceiling_per_s=ceiling), seconds=60, warm_s=5, seed=options.seed)
            print(
                f"| {processes} | {sharing} | {ceiling:.0f} | {name} | {result.per_s / ceiling:.3f} "
                f"| {result.refused_share:.1%} | {result.latency_s(0.5):.2f} | {result.latency_s(0.99):.2f} |",
                flush=True,
            )


def _plots(options: argparse.Namespace) -> None:
    """Write what the two newest rules change as SVG."""
    folder = options.plots or Path("docs/plots")
    folder.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(processes=4096, callers=16, sharing=8, operations=51)
    store = Store(ceiling_per_s=3500)
    runs = {
        "size untold": run(fleet, store, seconds=200, seed=options.seed),
        "size told": run(replace(fleet, share=8 / 4096), store, seconds=200, seed=options.seed),
        "told, cluster": run(replace(fleet, share=8 / 4096, cluster=Cluster()), store, seconds=200, seed=options.seed),
    }
    title = "4,096 writers x 16, machines of 8, a prefix of 3,500/s: a checkpoint of a minute"
    served = {name: one.served_by_second[:90] for name, one in runs.items()}
    refused = {name: one.refused_by_second[:30] for name, one in runs.items()}
    (folder / "burst-served.svg").write_text(lines(title, "seconds", "served in each second", served))
    (folder / "burst-refused.svg").write_text(lines(title, "seconds", "refused in each second", refused))
    machine = Fleet(processes=8, sharing=8, share=ASSUMED)
    queue = Store(ceiling_per_s=86, queue_s=0.4)
    before = Constants(dip_late_s=math.inf)
    both = {
        "before": run(replace(machine, law=before), queue, seconds=60, seed=options.seed).served_by_second[:60],
        "now": run(machine, queue, seconds=60, seed=options.seed).served_by_second[:60],
    }
    title = "One machine, 64 callers, a server of 86/s that queues for 0.4 s before it refuses"
    (folder / "queue.svg").write_text(lines(title, "seconds", "served in each second", both))
    print(f"\nWritten to {folder}: burst-served.svg, burst-refused.svg, queue.svg")


_BLOB = Store(ceiling_per_s=50)
_TABLES = {
    "ceiling": _ceiling,
    "checkpoint": _checkpoint,
    "small": _small,
    "random": _random,
    "recovery": _recovery,
    "capacity": _capacity,
    "burst": _burst,
    "ranks": _ranks,
    "neighbours": _neighbours,
    "queue": _queue,
    "plots": _plots,
}


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=sorted(_TABLES), action="append", help="a table; default all")
    parser.add_argument("--largest", type=int, default=512, help="processes, up to 8192 (default 512)")
    parser.add_argument("--plain", action="store_true", help="full jitter without a limiter")
    parser.add_argument("--hint", choices=("known", "none"), default="known", help="is the size of a fleet known?")
    parser.add_argument("--plots", type=Path, help="folder for `--only plots` (docs/plots)")
    parser.add_argument("--seed", type=int, default=8)
    options = parser.parse_args()
    print("Command:", "python", *sys.argv)
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, {platform.platform()}")
    for name in options.only or [name for name in _TABLES if name != "plots"]:
        start = time.perf_counter()
        _TABLES[name](options)
        print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
