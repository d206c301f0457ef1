"""Many processes against one prefix at its ceiling: this library beside stock clients, in one run.

    python benchmarks/throttle.py                     1,500 reads of 4 KiB, 8 processes x 4 threads, 100/s
    python benchmarks/throttle.py --write             the same with writes
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
import importlib.metadata
import json
import os
import platform
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from resilient_io.rehearse.crew import Crew, Work, serve
from resilient_io.rehearse.fleet import Fleet, Phase
from resilient_io.rehearse.outcomes import jain, percentile
from resilient_io.testing import (
    Ceiling,
    Exchange,
    FaultAction,
    FaultPlan,
    FaultRule,
    FaultServerProcess,
    Latency,
)

BUCKET = "bench"
KEY = "train/{:06d}"
SIZE_BYTES = 4096
WARM_UP_S = 15.0
AT_CEILING = ("ours-s3fs", "ours-boto3", "s3fs", "boto3-standard", "boto3-adaptive", "obstore")
UNDER_CHANCE = ("jitter-boto3", "ours-boto3", "ours-s3fs")
JITTER_ATTEMPTS, JITTER_BASE_S, JITTER_CAP_S = 30, 0.2, 20.0
TARGETS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "failed = 0": lambda row: row["failed"] == 0,
    "makespan <= 1.10": lambda row: row["over_ideal"] <= 1.10,
    "503s <= 5 %": lambda row: row["refused"] <= 0.05,
    "later 503s <= 3 %": lambda row: row["refused_later"] <= 0.03,
    "p99 < 2 s": lambda row: row["p99_s"] < 2.0,
    "req/op <= 1.05": lambda row: row["requests_per_op"] <= 1.05,
}

Do = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every client is put through."""

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
    do = CLIENTS[task["client"]](task["url"], task["write"])
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


def _s3fs(url: str, write: bool, *, ours: bool) -> Do:
    from s3fs import S3FileSystem

    from resilient_io.aws.filesystem import ResilientS3FileSystem

    kind = ResilientS3FileSystem if ours else S3FileSystem
    fs = kind(key="key", secret="secret", endpoint_url=url, client_kwargs={"region_name": "us-east-1"})
    fs.connect()
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: fs.pipe_file(f"{BUCKET}/{key}", body)
    return lambda key: fs.cat_file(f"{BUCKET}/{key}")


def _boto3(url: str, write: bool, *, retries: dict[str, Any] | None = None, ours: bool = False) -> Do:
    import boto3
    from botocore.config import Config

    settings: Any = {"retries": retries, "max_pool_connections": 64}  # as wide as ours makes its pool
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(**settings),
    )
    if ours:
        import resilient_io

        resilient_io.harden(client)
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: client.put_object(Bucket=BUCKET, Key=key, Body=body) and None
    return lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def _jitter(url: str, write: bool) -> Do:
    """Full jitter alone: what a careful person writes around boto3."""
    from botocore.exceptions import ClientError

    once = _boto3(url, write, retries={"total_max_attempts": 1})
    source = random.Random(os.urandom(8))

    def do(key: str) -> bytes | None:
        for attempt in range(JITTER_ATTEMPTS):
            try:
                return once(key)
            except ClientError as error:
                if error.response["Error"]["Code"] != "SlowDown" or attempt == JITTER_ATTEMPTS - 1:
                    raise
            time.sleep(source.uniform(0, min(JITTER_CAP_S, JITTER_BASE_S * 2**attempt)))
        raise AssertionError("unreachable")

    return do


def _obstore(url: str, write: bool) -> Do:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=url,
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: obstore.put(store, key, body) and None
    return lambda key: bytes(obstore.get(store, key).bytes())


CLIENTS: Mapping[str, Callable[[str, bool], Do]] = {
    "s3fs": lambda url, write: _s3fs(url, write, ours=False),
    "ours-s3fs": lambda url, write: _s3fs(url, write, ours=True),
    "boto3-standard": lambda url, write: _boto3(url, write, retries={"mode": "standard"}),
    "boto3-adaptive": lambda url, write: _boto3(url, write, retries={"mode": "adaptive"}),
    "ours-boto3": lambda url, write: _boto3(url, write, ours=True),
    "jitter-boto3": _jitter,
    "obstore": _obstore,
}


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
    with Fleet(command, tasks, env=environment()) as fleet:
        server.reset()
        return fleet.run("all")


def environment() -> dict[str, str]:
    """Return an environment in which nobody's settings change what is measured, but this library's own do."""
    ours = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
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
    names = ("s3fs", "aiobotocore", "botocore", "boto3", "obstore", "fsspec")
    return {
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "versions": {name: importlib.metadata.version(name) for name in names if find_spec(name)},
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
    """Print what ours missed, or its throughput against full jitter."""
    base = next((row for row in rows if row["client"] == "jitter-boto3"), None)
    for row in rows:
        if not row["client"].startswith("ours"):
            continue
        if load.random_503 and base is not None:
            print(f"{row['client']}: {row['ops_per_s'] / base['ops_per_s']:.2f} of the throughput of full jitter alone")
        elif not load.random_503:
            missed = [name for name, holds in TARGETS.items() if not holds(row)]
            print(f"{row['client']}: " + ("missed: " + ", ".join(missed) if missed else "all targets met"))


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
    with FaultServerProcess(load.plan()) as server:
        server.fill(BUCKET, count=load.ops, size_bytes=SIZE_BYTES, key=KEY)
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
        )
        for write in ((False, True) if options.both else (options.write,))
    ]
    results = [measured(options, load) for load in loads]
    if options.json:
        print(json.dumps(results, indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--processes", type=int, default=8)
    add("--threads", type=int, default=4)
    add("--ops", type=int, default=1500)
    add("--ceiling", type=float, default=100.0, metavar="PER_S")
    add("--burst-s", type=float, default=0.5)
    add("--latency-s", type=float, default=0.02)
    add("--clients", help="comma-separated: " + ", ".join(CLIENTS))
    add("--seed", type=int, default=1)
    add("--write", action="store_true", help="writes instead of reads")
    add("--both", action="store_true", help="reads, then writes")
    add("--random-503", type=float, default=0.0, metavar="SHARE", help="no ceiling: this share is refused by chance")
    add("--shared", action="store_true", help="one queue of work for all processes, not a fixed share for each")
    add("--series", action="store_true", help="print the requests and the 503s of each second")
    add("--json", action="store_true")
    options = parser.parse_args()
    default = UNDER_CHANCE if options.random_503 else AT_CEILING
    options.clients = options.clients.split(",") if options.clients else [*default]
    unknown = sorted(set(options.clients) - set(CLIENTS))
    if unknown:
        parser.error(f"no such client: {', '.join(unknown)}; there are {', '.join(CLIENTS)}")
    if find_spec("obstore") is None and "obstore" in options.clients:
        print("obstore is not installed and is left out", file=sys.stderr)
        options.clients.remove("obstore")
    return options


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        serve(prepare)
    raise SystemExit(main())
