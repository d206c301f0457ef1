"""Hedged reads beside plain ones: a store that answers a few percent of its requests half a second late.

    python benchmarks/hedge.py                      4,000 reads of 4 KiB, 8 side by side, 2 % of them 500 ms late
    python benchmarks/hedge.py --cloud azure        adlfs and azure-storage-blob on Azurite (`make azurite`)

Each client reads with hedge=False and with hedge=True in one run, block by block in turn, so that a busy machine slows
both alike. The first 300 reads of each are not measured: nothing is hedged before 200 answers. Requests added are
counted at the server. The store draws the late answers anew for each request; where a slow path is the object's own, a
second request meets it again.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import resilient_io
from resilient_io.rehearse.outcomes import percentile
from resilient_io.testing import AzuriteServer, FaultPlan, FaultServerProcess, Latency, StorageAccount
from resilient_io.testing.azurite_process import azurite_home

BUCKET, KEY = "bench", "train/{:06d}"
OBJECTS, SIZE_BYTES, WARM_UP, BLOCK = 100, 4096, 300, 500
AZURITE = Path(__file__).resolve().parents[1] / "tests" / "azurite"
PACKAGES = {
    "s3": ("s3fs", "aiobotocore", "botocore", "boto3", "aiohttp", "fsspec"),
    "azure": ("adlfs", "azure-storage-blob", "azure-core", "aiohttp", "requests", "fsspec"),
}
Read = Callable[[str], object]


@dataclass(slots=True)
class Side:
    """One way to read, and what was measured of it."""

    name: str
    read: Read
    latencies_s: list[float] = field(default_factory=list)
    requests: int = 0

    def timed(self, key: str) -> float:
        began_at = time.perf_counter()
        self.read(key)
        return time.perf_counter() - began_at


def s3_sides(url: str, *, hedge: bool) -> list[Side]:
    import boto3

    policy = {"hedge": hedge}
    fs = resilient_io.filesystem("s3", endpoint_url=url, resilience=policy, skip_instance_cache=True)
    client = resilient_io.harden(boto3.session.Session().client("s3", endpoint_url=url), policy)
    return [
        Side("s3fs cat_file", lambda key: fs.cat_file(f"{BUCKET}/{key}")),
        Side("boto3 get_object", lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()),
    ]


def azure_sides(url: str, *, hedge: bool) -> list[Side]:
    from azure.storage.blob import ContainerClient

    policy, where = {"hedge": hedge}, StorageAccount(url=url).connection_string
    fs = resilient_io.filesystem("abfs", connection_string=where, resilience=policy, skip_instance_cache=True)
    client = ContainerClient.from_connection_string(where, BUCKET, **resilient_io.azure.client_kwargs(policy))
    return [
        Side("adlfs cat_file", lambda key: fs.cat_file(f"{BUCKET}/{key}")),
        Side("azure-storage-blob download_blob", lambda key: client.download_blob(key).readall()),
    ]


def measure(plain: Side, hedged: Side, server: Any, given: argparse.Namespace) -> None:
    """Read in blocks, both ways in turn."""
    keys = [KEY.format(number % OBJECTS) for number in range(given.reads)]
    with ThreadPoolExecutor(given.side_by_side) as pool:
        for side in (plain, hedged):
            list(pool.map(side.timed, (keys * WARM_UP)[:WARM_UP]))
        for start in range(0, len(keys), BLOCK):
            for side in (plain, hedged):
                before = server.stats().requests
                side.latencies_s += pool.map(side.timed, keys[start : start + BLOCK])
                side.requests += server.stats().requests - before


def row(side: Side) -> str:
    at = sorted(side.latencies_s)
    cells = [f"{percentile(at, share) * 1e3:9.1f}" for share in (0.5, 0.95, 0.99, 0.999)]
    added = side.requests / len(at) - 1
    return f"{side.name:44}" + "".join(cells) + f"{at[-1] * 1e3:9.1f}{side.requests:10}{added:9.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cloud", choices=("s3", "azure"), default="s3")
    parser.add_argument("--reads", type=int, default=4000)
    parser.add_argument("--side-by-side", type=int, default=8)
    parser.add_argument("--late", type=float, default=0.02, help="share of the requests that are answered late")
    parser.add_argument("--late-s", type=float, default=0.5)
    parser.add_argument("--base-s", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "benchmark")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "benchmark")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    print("command: python", " ".join(sys.argv))
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES[given.cloud]]
    print("versions: python", platform.python_version(), *versions)
    print(f"machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"store: {given.base_s * 1e3:g} ms, {given.late:.1%} of the answers {given.late_s * 1e3:g} ms later")
    print(f"{'ms':44}{'p50':>9}{'p95':>9}{'p99':>9}{'p99.9':>9}{'max':>9}{'requests':>10}{'added':>9}")
    with ExitStack() as closing:
        server, sides = {"s3": of_s3, "azure": of_azure}[given.cloud](closing)
        slow = Latency(base_s=given.base_s, tail_probability=given.late, tail_s=given.late_s)
        server.configure(FaultPlan(latency=slow, seed=given.seed))
        for plain, hedged in zip(sides(hedge=False), sides(hedge=True), strict=True):
            plain.name, hedged.name = f"{plain.name}, plain", f"{hedged.name}, hedged"
            measure(plain, hedged, server, given)
            print(row(plain), row(hedged), sep="\n", flush=True)


def of_s3(closing: ExitStack) -> tuple[Any, Callable[..., list[Side]]]:
    server = closing.enter_context(FaultServerProcess())
    server.fill(BUCKET, count=OBJECTS, size_bytes=SIZE_BYTES)
    return server, lambda *, hedge: s3_sides(server.url, hedge=hedge)


def of_azure(closing: ExitStack) -> tuple[Any, Callable[..., list[Side]]]:
    from azure.storage.blob import ContainerClient

    azurite = closing.enter_context(AzuriteServer(azurite_home() or AZURITE))
    with ContainerClient.from_connection_string(azurite.account.connection_string, BUCKET) as client:
        client.create_container()
        for number in range(OBJECTS):
            client.upload_blob(KEY.format(number), bytes(SIZE_BYTES))
    server = closing.enter_context(FaultServerProcess(upstream=azurite.url, protocol="azure"))
    return server, lambda *, hedge: azure_sides(server.url, hedge=hedge)


if __name__ == "__main__":
    main()
