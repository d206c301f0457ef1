"""Many processes against one prefix at its ceiling: this library beside stock clients, in one run.

    python benchmarks/throttle.py                     1,500 reads of 4 KiB, 8 processes x 4 threads, 100/s
    python benchmarks/throttle.py --write             the same with writes
    python benchmarks/throttle.py --cloud azure       adlfs and azure-storage-blob on Azurite (`make azurite`)
    python benchmarks/throttle.py --random-503 0.01   no ceiling; refusals that do not follow the load

The clients run one after the other against the same server, which is reset in between. Each process has
the same number of operations to do, as the ranks of a job have; the last one to end makes the makespan.
With --shared all take from one queue, and no one waits for a straggler. Targets for
ours at the ceiling: nothing failed, makespan <= 1.10 x ideal, 503s <= 5 % (<= 3 % after 15 s),
p99 < 2 s, <= 1.05 requests per operation; ideal = (operations - burst) / ceiling. Targets under
random refusals, for throughput against full jitter without a limiter: >= 0.9 at 1 %, >= 0.5 at 20 %.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import random
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _clients import BUCKET, CLOUDS, SIZE_BYTES

import resilient_io
from resilient_io.rehearse.crew import Crew, Work, serve
from resilient_io.rehearse.fleet import Fleet, Phase
from resilient_io.rehearse.outcomes import jain, percentile
from resilient_io.testing import (
    AzuriteServer,
    Ceiling,
    Exchange,
    FaultAction,
    FaultPlan,
    FaultRule,
    FaultServerProcess,
    Latency,
    StorageAccount,
)
from resilient_io.testing.azurite_process import azurite_home

KEY = "train/{:06d}"
AZURITE = Path(__file__).resolve().parents[1] / "tests" / "azurite"
WARM_UP_S = 15.0
TARGETS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "failed = 0": lambda row: row["failed"] == 0,
    "makespan <= 1.10": lambda row: row["over_ideal"] <= 1.10,
    "503s <= 5 %": lambda row: row["refused"] <= 0.05,
    "later 503s <= 3 %": lambda row: row["refused_later"] <= 0.03,
    "p99 < 2 s": lambda row: row["p99_s"] < 2.0,
    "req/op <= 1.05": lambda row: row["requests_per_op"] <= 1.05,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every client is put through."""

    cloud: str
    processes: int
    threads: int
    ops: int
    ceiling_per_s: float
    burst_s: float
    latency_s: float
    random_503: float
    seed: int
    write: bool
    shared: bool
    nodes: int = 1

    @property
    def ideal_s(self) -> float:
        """Seconds that the ceiling alone takes."""
        return max(0.0, self.ops - self.ceiling_per_s * self.burst_s) / self.ceiling_per_s

    def plan(self) -> FaultPlan:
        """Return what the server does: a ceiling, or chance."""
        latency = Latency(base_s=self.latency_s)
        if self.random_503:
            rules = (FaultRule(action=FaultAction.ERROR, probability=self.random_503),)
            return FaultPlan(rules=rules, latency=latency, seed=self.seed)
        ceiling = Ceiling(rate_per_s=self.ceiling_per_s, burst_s=self.burst_s)
        return FaultPlan(ceilings=(ceiling,), latency=latency, seed=self.seed)


# -- the clients, in the processes of the fleet ------------------------------------------------------


def prepare(task: Mapping[str, Any]) -> Crew:
    """Make the client, and name the operations of this process: every n-th of them."""
    do = CLOUDS[task["cloud"]].clients[task["client"]](task["url"], task["write"])
    own = range(task["rank"], task["ops"], task["processes"])
    numbers = shared_numbers(task["queue"], task["ops"]) if task["shared"] else own
    wanted = stored_bodies(task["ops"]) if not task["write"] else []

    def work(number: int) -> Work:
        key = KEY.format(number)
        return Work(
            kind="write" if task["write"] else "read",
            do=lambda: do(key),
            wanted=(lambda: wanted[number]) if wanted else None,
        )

    return Crew(threads=task["threads"], phase=lambda name: map(work, numbers))


def shared_numbers(path: str, count: int) -> Iterator[int]:
    """Yield the next number that no other process of the fleet has had; the file holds it, under a lock."""
    import fcntl

    with open(path, "r+b", buffering=0) as file:
        while True:
            fcntl.lockf(file, fcntl.LOCK_EX)
            file.seek(0)
            number = int(file.read() or b"0")
            file.seek(0)
            file.write(b"%d" % (number + 1))
            fcntl.lockf(file, fcntl.LOCK_UN)
            if number >= count:
                return
            yield number


def stored_bodies(count: int) -> list[bytes]:
    """Return what the server's `fill` stores with seed 0."""
    source = random.Random(0)
    return [source.randbytes(SIZE_BYTES) for _ in range(count)]


# -- the runs ----------------------------------------------------------------------------------------


def measure(server: FaultServerProcess, client: str, load: Load) -> dict[str, Any]:
    """Put one client through the load and return its row."""
    command = [sys.executable, __file__, "--worker"]
    with tempfile.NamedTemporaryFile() as queue:
        common = {"client": client, "url": server.url, "queue": queue.name, **asdict(load)}
        tasks = [{**common, "rank": rank} for rank in range(load.processes)]
        phase = run(command, tasks, server)
    return row_of(client, load, phase, server.log())


def run(command: list[str], tasks: list[dict[str, Any]], server: FaultServerProcess) -> Phase:
    """Start the processes, let all begin at one moment against a fresh ceiling, and end them."""
    with Fleet(command, tasks, env=environment(), nodes=tasks[0]["nodes"]) as fleet:
        server.reset()
        return fleet.run("all")


def environment() -> dict[str, str]:
    """Return an environment in which nobody's settings change what is measured, but this library's own do."""
    ours = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
    no_files = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**kept, **no_files, "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1", "PYTHONPATH": path}


def row_of(client: str, load: Load, phase: Phase, log: list[Exchange]) -> dict[str, Any]:
    """Return the figures of one client."""
    latencies = sorted(one.latency_s for one in phase.outcomes)
    refused = [one for one in log if one.status == 503]
    later = [one for one in log if one.start_s >= WARM_UP_S]
    done = Counter(one.rank for one in phase.outcomes if not one.error)
    # Each process had the same number to do, unless they shared one queue: the pace tells who got more.
    pace = [done[rank] / (last - phase.started_s) for rank, last in _last_ends(phase).items()]
    return {
        "client": client,
        "failed": sum(1 for one in phase.outcomes if one.error),
        "makespan_s": phase.makespan_s,
        "over_ideal": phase.makespan_s / load.ideal_s if not load.random_503 else None,
        "ops_per_s": len(phase.outcomes) / phase.makespan_s,
        "refused": len(refused) / max(1, len(log)),
        "refused_later": sum(1 for one in later if one.status == 503) / max(1, len(later)),
        "p50_s": percentile(latencies, 0.5),
        "p99_s": percentile(latencies, 0.99),
        "requests_per_op": len(log) / load.ops,
        "jain": jain(pace),
        "wrong_bytes": sum(one.wrong_bytes for one in phase.outcomes),
        "errors": Counter(one.error[:80] for one in phase.outcomes if one.error).most_common(3),
        "refused_each_s": _each_second(refused),
        "requests_each_s": _each_second(log),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _last_ends(phase: Phase) -> dict[int, float]:
    ends: dict[int, float] = {}
    for one in phase.outcomes:
        ends[one.rank] = max(ends.get(one.rank, 0.0), one.ended_s)
    return ends


def _each_second(log: list[Exchange]) -> list[int]:
    counts = Counter(int(one.start_s) for one in log)
    return [counts[second] for second in range(max(counts, default=-1) + 1)]


# -- what is printed ---------------------------------------------------------------------------------


def heading(load: Load) -> dict[str, Any]:
    """Return what a reader needs to repeat the run."""
    names = CLOUDS[load.cloud].packages
    return {
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "versions": {name: importlib.metadata.version(name) for name in names if is_installed(name)}
        | {"resilient-io": resilient_io.__version__},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "load": asdict(load),
        "ideal_s": None if load.random_503 else load.ideal_s,
    }


def print_row(row: Mapping[str, Any], *, series: bool) -> None:
    """Print one client's line, and its seconds if wanted."""
    over = f"{row['over_ideal']:5.2f} x" if row["over_ideal"] is not None else f"{row['ops_per_s']:5.0f}/s"
    print(
        f"{row['client']:15} {row['failed']:6} {row['makespan_s']:8.1f} {over:>8} {row['refused']:7.1%}"
        f" {row['refused_later']:7.1%} {row['p50_s']:7.3f} {row['p99_s']:7.3f} {row['requests_per_op']:7.3f}"
        f" {row['jain']:6.3f} {row['wrong_bytes']:6} {row['load_average'] or 0:5.1f}",
        flush=True,
    )
    for text, count in row["errors"]:
        print(f"    {count} x {text}")
    if series:
        print("    503s each second    ", *row["refused_each_s"])
        print("    requests each second", *row["requests_each_s"])


def judge(rows: list[dict[str, Any]], load: Load) -> None:
    """Print what ours missed and its makespan against the stock client's, or its throughput against full jitter."""
    by_client = {row["client"]: row for row in rows}
    base = next((row for row in rows if row["client"] == "jitter-boto3"), None)
    for row in rows:
        if not row["client"].startswith("ours"):
            continue
        if load.random_503 and base is not None:
            print(f"{row['client']}: {row['ops_per_s'] / base['ops_per_s']:.2f} of the throughput of full jitter alone")
        elif not load.random_503:
            missed = [name for name, holds in TARGETS.items() if not holds(row)]
            stock = by_client.get(row["client"].removeprefix("ours-"))
            beside = f"{row['makespan_s'] / stock['makespan_s']:.2f} of the stock makespan; " if stock else ""
            print(f"{row['client']}: {beside}" + ("missed: " + ", ".join(missed) if missed else "all targets met"))


def is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@contextlib.contextmanager
def redis_if(wanted: bool) -> Iterator[None]:
    """Have the clients that are ours share their limits through a Redis, if wanted."""
    if not wanted:
        yield
        return
    from resilient_io.testing.redis_process import RedisServer

    with RedisServer("benchmark") as server:
        os.environ.update(RESILIENT_IO_COORDINATION="cluster", RESILIENT_IO_REDIS_URL=server.url)
        yield


@contextlib.contextmanager
def filled_server(load: Load) -> Iterator[FaultServerProcess]:
    """Start the store that refuses, with what is to be read in it."""
    if load.cloud == "s3":
        with FaultServerProcess(load.plan()) as server:
            server.fill(BUCKET, count=load.ops, size_bytes=SIZE_BYTES, key=KEY)
            yield server
        return
    azurite = AzuriteServer(azurite_home() or AZURITE)
    try:
        fill_azurite(azurite.account, load.ops)
        with FaultServerProcess(load.plan(), upstream=azurite.url, protocol="azure") as server:
            yield server
    finally:
        azurite.stop()


def fill_azurite(account: StorageAccount, count: int) -> None:
    """Write what `stored_bodies` says."""
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(account.connection_string, BUCKET) as client:
        client.create_container()
        for number, body in enumerate(stored_bodies(count)):
            client.upload_blob(KEY.format(number), body)


def measured(options: argparse.Namespace, load: Load) -> dict[str, Any]:
    """Run every client and return all figures; print them on the way unless JSON is wanted."""
    head = heading(load)
    if not options.json:
        print(f"{'writes' if load.write else 'reads'}: {json.dumps(head)}")
        print(
            f"{'client':15} {'failed':>6} {'seconds':>8} {'/ideal':>8} {'503s':>7} {'later':>7} {'p50 s':>7}"
            f" {'p99 s':>7} {'req/op':>7} {'Jain':>6} {'wrong':>6} {'load':>5}"
        )
    rows = []
    with filled_server(load) as server:
        for client in options.clients:
            rows.append(measure(server, client, load))
            if not options.json:
                print_row(rows[-1], series=options.series)
    if not options.json:
        judge(rows, load)
    return {**head, "rows": rows}


def main() -> int:
    options = _options()
    loads = [
        Load(
            cloud=options.cloud,
            processes=options.processes,
            threads=options.threads,
            ops=options.ops,
            ceiling_per_s=options.ceiling,
            burst_s=options.burst_s,
            latency_s=options.latency_s,
            random_503=options.random_503,
            seed=options.seed,
            write=write,
            shared=options.shared,
            nodes=options.nodes,
        )
        for write in ((False, True) if options.both else (options.write,))
    ]
    with redis_if(options.redis):
        results = [measured(options, load) for load in loads]
    if options.json:
        print(json.dumps(results, indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cloud", choices=[*CLOUDS], default="s3", help="azure: Azure Blob, by Azurite behind the server")
    add("--processes", type=int, default=8)
    add("--threads", type=int, default=4)
    add("--ops", type=int, default=1500)
    add("--ceiling", type=float, default=100.0, metavar="PER_S")
    add("--burst-s", type=float, default=0.5)
    add("--latency-s", type=float, default=0.02)
    add("--clients", help="comma-separated: " + "; ".join(", ".join(cloud.clients) for cloud in CLOUDS.values()))
    add("--seed", type=int, default=1)
    add("--write", action="store_true", help="writes instead of reads")
    add("--both", action="store_true", help="reads, then writes")
    add("--random-503", type=float, default=0.0, metavar="SHARE", help="no ceiling: this share is refused by chance")
    add("--shared", action="store_true", help="one queue of work for all processes, not a fixed share for each")
    add("--nodes", type=int, default=1, help="deal the processes to so many machines that do not share a table")
    add("--redis", action="store_true", help="the machines share their limits through a Redis that is started")
    add("--series", action="store_true", help="print the requests and the 503s of each second")
    add("--json", action="store_true")
    options = parser.parse_args()
    cloud = CLOUDS[options.cloud]
    default = cloud.under_chance if options.random_503 else cloud.at_ceiling
    options.clients = options.clients.split(",") if options.clients else [*default]
    unknown = sorted(set(options.clients) - set(cloud.clients))
    if unknown:
        parser.error(f"no such client: {', '.join(unknown)}; there are {', '.join(cloud.clients)}")
    if not is_installed("obstore") and "obstore" in options.clients:
        print("obstore is not installed and is left out", file=sys.stderr)
        options.clients.remove("obstore")
    return options


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        serve(prepare)
    raise SystemExit(main())
