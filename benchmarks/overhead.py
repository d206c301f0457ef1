"""What the hooks cost where nothing is throttled: small reads with the stock library and with this one, in turn.

    python benchmarks/overhead.py [--reads 5000] [--block 250] [--bytes 4096]

Blocks of both are interleaved in one process, so that a busy machine slows both alike; the store is in another process.
The figure that counts is the ratio per request sent: stock s3fs sends a HEAD before each GET, this library does not.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import boto3
import s3fs

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.aws.hooks import harden
from resilient_io.testing import FaultServerProcess

PACKAGES = ("s3fs", "aiobotocore", "botocore", "boto3", "aiohttp", "fsspec")
SIDE_BY_SIDE = 50


@dataclass
class Side:
    """One of the two in a comparison: how it reads a block of keys, and what each block took."""

    read: Callable[[list[str]], None]
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    requests: int = 0

    def block(self, keys: list[str], server: FaultServerProcess) -> None:
        sent = server.stats().requests
        wall, cpu = time.perf_counter(), time.process_time()
        self.read(keys)
        self.cpu_s.append(time.process_time() - cpu)
        self.wall_s.append(time.perf_counter() - wall)
        self.requests += server.stats().requests - sent


def sync_side(fs: Any) -> Side:
    def read(keys: list[str]) -> None:
        for key in keys:
            fs.cat_file(key)

    return Side(read)


def async_side(loop: asyncio.AbstractEventLoop, fs: Any) -> Side:
    async def gather(keys: list[str]) -> None:
        for start in range(0, len(keys), SIDE_BY_SIDE):
            await asyncio.gather(*(fs._cat_file(key) for key in keys[start : start + SIDE_BY_SIDE]))

    loop.run_until_complete(fs.set_session())
    return Side(lambda keys: loop.run_until_complete(gather(keys)))


def ranged_side(fs: Any) -> Side:
    def read(keys: list[str]) -> None:
        for key in keys:
            fs.cat_file(key, start=0, end=1024)

    return Side(read)


def client_side(client: Any) -> Side:
    def read(keys: list[str]) -> None:
        for key in keys:
            bucket, _, name = key.partition("/")
            client.get_object(Bucket=bucket, Key=name)["Body"].read()

    return Side(read)


def close(loop: asyncio.AbstractEventLoop, fs: Any) -> None:
    loop.run_until_complete(fs._s3.close())


def pairs(url: str, loop: asyncio.AbstractEventLoop, closing: ExitStack) -> dict[str, tuple[Side, Side]]:
    options: dict[str, Any] = {"endpoint_url": url, "skip_instance_cache": True, "use_listings_cache": False}
    pool = {"config_kwargs": {"max_pool_connections": 64}}
    stock, ours = s3fs.S3FileSystem(**options, **pool), ResilientS3FileSystem(**options)
    stock_async = s3fs.S3FileSystem(**options, **pool, asynchronous=True)
    ours_async = ResilientS3FileSystem(**options, asynchronous=True)
    for fs in (stock_async, ours_async):
        closing.callback(close, loop, fs)
    plain = boto3.session.Session().client("s3", endpoint_url=url)
    hardened = harden(boto3.session.Session().client("s3", endpoint_url=url))
    return {
        "s3fs cat_file, sync": (sync_side(stock), sync_side(ours)),
        "s3fs cat_file of a range, sync": (ranged_side(stock), ranged_side(ours)),
        f"s3fs _cat_file, {SIDE_BY_SIDE} side by side": (async_side(loop, stock_async), async_side(loop, ours_async)),
        "boto3 get_object": (client_side(plain), client_side(hardened)),
    }


def measure(pair: tuple[Side, Side], keys: list[str], block: int, server: FaultServerProcess) -> None:
    for side in pair:
        side.read(keys[:SIDE_BY_SIDE])
    for number, start in enumerate(range(0, len(keys), block)):
        # Each goes first as often as the other.
        for side in pair if number % 2 else reversed(pair):
            side.block(keys[start : start + block], server)


def row(name: str, stock: Side, ours: Side, reads: int) -> str:
    per = [side.requests / reads for side in (stock, ours)]
    cells = []
    for field_name in ("wall_s", "cpu_s"):
        mine, theirs = getattr(ours, field_name), getattr(stock, field_name)
        # Of the block pairs, not of the sums: one block that another process held up does not count more.
        ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        cells.append(f"{sum(theirs) / reads * 1e3:7.3f} {sum(mine) / reads * 1e3:7.3f} {ratio:6.3f}")
        cells.append(f"{ratio * per[0] / per[1]:8.3f}")
    return f"{name:34} {per[0]:4.2f} {per[1]:4.2f}  " + "  ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=5000)
    parser.add_argument("--block", type=int, default=250)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--only", default="", help="a part of the name of what to measure")
    given = parser.parse_args()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "benchmark")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "benchmark")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    print("command: python", " ".join(sys.argv))
    print("versions: python", platform.python_version(), *(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES))
    print(f"machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':34} requests   wall: ms a read, ratio, a request   cpu: ms a read, ratio, a request")
    print(f"{'':34} stock ours    stock    ours  ratio  per req    stock    ours  ratio  per req")
    loop = asyncio.new_event_loop()
    with FaultServerProcess() as server, ExitStack() as closing:
        server.fill("bench", count=500, size_bytes=given.bytes)
        keys = [f"bench/train/{number % 500:06d}" for number in range(given.reads)]
        for name, pair in pairs(server.url, loop, closing).items():
            if given.only in name:
                measure(pair, keys, given.block, server)
                print(row(name, *pair, given.reads), flush=True)


if __name__ == "__main__":
    main()
