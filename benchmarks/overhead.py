"""What the hooks cost where nothing is throttled: small reads with the stock library and with this one, in turn.

    python benchmarks/overhead.py [--reads 5000] [--block 250] [--bytes 4096]
    python benchmarks/overhead.py --cloud azure              azure-storage-blob and adlfs on Azurite (`make azurite`)
    python benchmarks/overhead.py --bytes 67108864 --reads 12 --block 1     large bodies

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
from pathlib import Path
from typing import Any

from resilient_io.testing import AzuriteServer, FaultServerProcess, StorageAccount
from resilient_io.testing.azurite_process import azurite_home

PACKAGES = {
    "s3": ("s3fs", "aiobotocore", "botocore", "boto3", "aiohttp", "fsspec"),
    "azure": ("adlfs", "azure-storage-blob", "azure-core", "aiohttp", "requests", "fsspec"),
}
AZURITE = Path(__file__).resolve().parents[1] / "tests" / "azurite"
SIDE_BY_SIDE = 50
OBJECTS = 500


@dataclass
class Side:
    """One of the two in a comparison: how it reads a block of keys, and what each block took."""

    read: Callable[[list[str]], None]
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    requests_a_read: float = 0.0

    def block(self, keys: list[str]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.read(keys)
        self.cpu_s.append(time.process_time() - cpu)
        self.wall_s.append(time.perf_counter() - wall)


Pairs = dict[str, tuple[Side, Side]]


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


def in_pieces_side(client: Any) -> Side:
    def read(keys: list[str]) -> None:
        for key in keys:
            bucket, _, name = key.partition("/")
            for _ in client.get_object(Bucket=bucket, Key=name)["Body"].iter_chunks(2**18):
                pass

    return Side(read)


def close(loop: asyncio.AbstractEventLoop, fs: Any) -> None:
    loop.run_until_complete(fs._s3.close())


def s3_pairs(url: str, loop: asyncio.AbstractEventLoop, closing: ExitStack) -> Pairs:
    import boto3
    import s3fs

    from resilient_io.aws.filesystem import ResilientS3FileSystem
    from resilient_io.aws.hooks import harden

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
        "boto3 get_object, iter_chunks": (in_pieces_side(plain), in_pieces_side(hardened)),
    }


def blob_side(client: Any) -> Side:
    def read(keys: list[str]) -> None:
        for key in keys:
            client.download_blob(key.partition("/")[2]).readall()

    return Side(read)


def async_blob_side(loop: asyncio.AbstractEventLoop, client: Any, side_by_side: int) -> Side:
    async def one(key: str) -> None:
        await (await client.download_blob(key.partition("/")[2])).readall()

    async def gather(keys: list[str]) -> None:
        for start in range(0, len(keys), side_by_side):
            await asyncio.gather(*map(one, keys[start : start + side_by_side]))

    return Side(lambda keys: loop.run_until_complete(gather(keys)))


def azure_pairs(url: str, loop: asyncio.AbstractEventLoop, closing: ExitStack) -> Pairs:
    from adlfs import AzureBlobFileSystem
    from azure.storage.blob import ContainerClient
    from azure.storage.blob.aio import ContainerClient as AsyncContainerClient

    from resilient_io.azure import client_kwargs
    from resilient_io.azure.clients import harden
    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    text = StorageAccount(url=url).connection_string

    def client(kind: Any, **options: Any) -> Any:
        made = kind.from_connection_string(text, "bench", **options)
        closing.callback(made.close if kind is ContainerClient else lambda: loop.run_until_complete(made.close()))
        return made

    def filesystem(kind: Any) -> Any:
        return kind(connection_string=text, skip_instance_cache=True, use_listings_cache=False)

    plain, ours_async = client(AsyncContainerClient), client(AsyncContainerClient, **client_kwargs(aio=True))
    kinds = AzureBlobFileSystem, ResilientAzureBlobFileSystem
    stock_fs, ours_fs = filesystem(kinds[0]), filesystem(kinds[1])
    return {
        "blob, harden": (blob_side(client(ContainerClient)), blob_side(harden(client(ContainerClient)))),
        "blob, client_kwargs": (
            blob_side(client(ContainerClient)),
            blob_side(client(ContainerClient, **client_kwargs())),
        ),
        "blob aio, one at a time": (async_blob_side(loop, plain, 1), async_blob_side(loop, ours_async, 1)),
        f"blob aio, {SIDE_BY_SIDE} side by side": (
            async_blob_side(loop, plain, SIDE_BY_SIDE),
            async_blob_side(loop, ours_async, SIDE_BY_SIDE),
        ),
        "adlfs cat_file, sync": (sync_side(stock_fs), sync_side(ours_fs)),
        "adlfs cat_file of a range, sync": (ranged_side(stock_fs), ranged_side(ours_fs)),
    }


def count(pairs: Pairs, counted: Pairs, keys: list[str], server: FaultServerProcess) -> None:
    """Note how many requests a read sends, as the server counts them on `counted`, the like of `pairs`."""
    for name, pair in counted.items():
        for side, like in zip(pair, pairs[name], strict=True):
            side.read(keys[:1])
            before = server.stats().requests
            side.read(keys)
            like.requests_a_read = (server.stats().requests - before) / len(keys)


def measure(pair: tuple[Side, Side], keys: list[str], block: int) -> None:
    for side in pair:
        side.read(keys[: min(SIDE_BY_SIDE, block)])
    for number, start in enumerate(range(0, len(keys), block)):
        # Each goes first as often as the other.
        for side in pair if number % 2 else reversed(pair):
            side.block(keys[start : start + block])


def row(name: str, stock: Side, ours: Side, reads: int) -> str:
    per = [side.requests_a_read for side in (stock, ours)]
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
    parser.add_argument("--cloud", choices=list(PACKAGES), default="s3")
    parser.add_argument("--reads", type=int, default=5000)
    parser.add_argument("--block", type=int, default=250)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--only", default="", help="a part of the name of what to measure")
    given = parser.parse_args()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "benchmark")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "benchmark")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    print("command: python", " ".join(sys.argv))
    print(
        "versions: python",
        platform.python_version(),
        *(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES[given.cloud]),
    )
    print(f"machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':34} requests   wall: ms a read, ratio, a request   cpu: ms a read, ratio, a request")
    print(f"{'':34} stock ours    stock    ours  ratio  per req    stock    ours  ratio  per req")
    with ExitStack() as closing:
        keys = [f"bench/train/{number % objects(given.bytes):06d}" for number in range(given.reads)]
        for name, pair in {"s3": of_s3, "azure": of_azure}[given.cloud](
            given.bytes, keys[:SIDE_BY_SIDE], closing
        ).items():
            if given.only in name:
                measure(pair, keys, given.block)
                print(row(name, *pair, given.reads), flush=True)


def objects(size_bytes: int) -> int:
    """Return of how many objects the store is made: fewer of large ones."""
    return max(1, min(OBJECTS, 2**28 // size_bytes))


def of_s3(size_bytes: int, keys: list[str], closing: ExitStack) -> Pairs:
    loop = asyncio.new_event_loop()
    server = closing.enter_context(FaultServerProcess())
    server.fill("bench", count=objects(size_bytes), size_bytes=size_bytes)
    pairs = s3_pairs(server.url, loop, closing)
    count(pairs, pairs, keys, server)
    return pairs


def of_azure(size_bytes: int, keys: list[str], closing: ExitStack) -> Pairs:
    """Azurite counts nothing: the requests of a read are counted on a server before it, which is not there later."""
    from azure.storage.blob import ContainerClient

    loop = asyncio.new_event_loop()
    azurite = closing.enter_context(AzuriteServer(azurite_home() or AZURITE))
    with ContainerClient.from_connection_string(azurite.account.connection_string, "bench") as client:
        client.create_container()
        for number in range(objects(size_bytes)):
            client.upload_blob(f"train/{number:06d}", bytes(size_bytes))
    pairs = azure_pairs(azurite.url, loop, closing)
    with FaultServerProcess(upstream=azurite.url, protocol="azure") as server, ExitStack() as counting:
        count(pairs, azure_pairs(server.url, loop, counting), keys, server)
    return pairs


if __name__ == "__main__":
    main()
