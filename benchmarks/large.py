"""One large object, read whole: this library beside stock clients, in turn, in one run.

    python benchmarks/large.py                         256 MiB, s3fs, boto3 and obstore
    python benchmarks/large.py --cloud azure           adlfs and azure-storage-blob on Azurite (`make azurite`)
    python benchmarks/large.py --mib 64 --rounds 9     another size, more rounds

Each client lives in a process of its own and reads when its turn comes, so that a busy machine slows all alike;
the store is in another process. Told of each: median seconds, MB/s, how many times as fast as the stock filesystem's
same call, CPU seconds of the client, the peak of its memory (VmHWM, else ru_maxrss) and how much of that came with
the reads, requests and bytes at the server for one read. What was read is compared by checksum in an untimed round.
Target: at least 1.5 times the throughput of stock s3fs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from resilient_io.testing import AzuriteServer, FaultServerProcess, StorageAccount
from resilient_io.testing.azurite_process import azurite_home

BUCKET, KEY = "bench", "train/000000"
AZURITE = Path(__file__).resolve().parents[1] / "tests" / "azurite"
PACKAGES = {
    "s3": ("s3fs", "aiobotocore", "aiohttp", "boto3", "s3transfer", "obstore", "fsspec"),
    "azure": ("adlfs", "azure-storage-blob", "azure-core", "aiohttp", "requests", "fsspec"),
}
# A read returns the bytes, or fills the local file that it was given.
Read = Callable[[Path], "bytes | memoryview | None"]


# -- the clients, each in its own process ------------------------------------------------------------


def s3_filesystem(url: str, *, ours: bool) -> Any:
    from s3fs import S3FileSystem

    from resilient_io.aws.filesystem import ResilientS3FileSystem

    kind = ResilientS3FileSystem if ours else S3FileSystem
    fs = kind(
        key="key", secret="secret", endpoint_url=url, client_kwargs={"region_name": "us-east-1"},
        use_listings_cache=False,
    )  # fmt: skip
    fs.connect()
    return fs


def boto3_client(url: str, *, ours: bool) -> Any:
    import boto3

    import resilient_io

    login = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **login)
    return resilient_io.harden(client) if ours else client


def azure_filesystem(url: str, *, ours: bool) -> Any:
    from adlfs import AzureBlobFileSystem

    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    kind = ResilientAzureBlobFileSystem if ours else AzureBlobFileSystem
    return kind(connection_string=StorageAccount(url=url).connection_string, use_listings_cache=False)


def cat(fs: Any) -> Read:
    return lambda target: fs.cat_file(f"{BUCKET}/{KEY}")  # type: ignore[no-any-return]


def opened(fs: Any) -> Read:
    def read(target: Path) -> bytes:
        with fs.open(f"{BUCKET}/{KEY}") as file:
            data: bytes = file.read()
        return data

    return read


def streamed(fs: Any) -> Read:
    """As a tar of a dataset is read: from its beginning to its end, a quarter of a MiB at a time."""

    def read(target: Path) -> None:
        with fs.open(f"{BUCKET}/{KEY}") as file, open(target, "wb") as local:
            while piece := file.read(2**18):
                local.write(piece)

    return read


def got(fs: Any) -> Read:
    return lambda target: fs.get_file(f"{BUCKET}/{KEY}", str(target))  # type: ignore[no-any-return]


def downloaded(client: Any) -> Read:
    return lambda target: client.download_file(BUCKET, KEY, str(target))  # type: ignore[no-any-return]


def obstore_read(url: str) -> Read:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET, endpoint=url, region="us-east-1", access_key_id="key", secret_access_key="secret",
        virtual_hosted_style_request=False, client_options={"allow_http": True},
    )  # fmt: skip
    return lambda target: memoryview(obstore.get(store, KEY).bytes())


def blob_read(url: str, *, ours: bool) -> Read:
    from azure.storage.blob import ContainerClient

    import resilient_io

    client = ContainerClient.from_connection_string(StorageAccount(url=url).connection_string, BUCKET)
    if ours:
        resilient_io.harden(client)
    return lambda target: client.download_blob(KEY, max_concurrency=8).readall()


def of_both(make: Callable[..., Any], what: Mapping[str, Callable[[Any], Read]], name: str) -> dict[str, Any]:
    """Return the makers of stock clients and of ours for each of these reads."""
    return {
        f"{who}{name} {call}": (lambda url, read=read, ours=ours: read(make(url, ours=ours)))
        for call, read in what.items()
        for who, ours in (("", False), ("ours-", True))
    }


FILE_CALLS: Mapping[str, Callable[[Any], Read]] = {
    "cat_file": cat, "get_file": got, "open().read()": opened, "open(), streamed": streamed,
}  # fmt: skip
CLIENTS: Mapping[str, Mapping[str, Callable[[str], Read]]] = {
    "s3": {
        **of_both(s3_filesystem, FILE_CALLS, "s3fs"),
        **of_both(boto3_client, {"download_file": downloaded}, "boto3"),
        "obstore get": obstore_read,
    },
    "azure": {
        **of_both(azure_filesystem, FILE_CALLS, "adlfs"),
        "azure-blob readall": lambda url: blob_read(url, ours=False),
        "ours-azure-blob readall": lambda url: blob_read(url, ours=True),
    },
}


def peak_bytes() -> int:
    """Return the most memory that this process had at once; ru_maxrss alone may be that of its parent."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 1024 * (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def serve_reads(cloud: str, name: str, url: str, target: Path) -> None:
    """Read once for each line on stdin, and say what it took; "check" also tells the checksum of what came."""
    read = CLIENTS[cloud][name](url)
    tell({"peak_bytes": peak_bytes()})
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        data = read(target)
        took: dict[str, Any] = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        took["peak_bytes"] = peak_bytes()
        if line.strip() == "check":
            took["crc"] = zlib.crc32(data) if data is not None else crc_of(target)
        data = None
        tell(took)


def crc_of(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            crc = zlib.crc32(piece, crc)
    return crc


def tell(what: Mapping[str, Any]) -> None:
    print(json.dumps(what), flush=True)


# -- the run -----------------------------------------------------------------------------------------


@dataclass
class Reader:
    """One client in its process, and what its reads took."""

    name: str
    process: subprocess.Popen[str]
    before_bytes: int
    peak_bytes: int = 0
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    requests: int = 0
    sent_bytes: int = 0

    def ask(self, what: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)
        return heard(self.process)

    def read(self) -> None:
        took = self.ask("read")
        self.wall_s.append(took["wall_s"])
        self.cpu_s.append(took["cpu_s"])
        self.peak_bytes = took["peak_bytes"]


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a client ended: {process.args}")
    found: dict[str, Any] = json.loads(line)
    return found


def reader(cloud: str, name: str, url: str, folder: str, closing: ExitStack) -> Reader:
    target = Path(folder) / name.replace(" ", "-")
    command = [sys.executable, __file__, "--cloud", cloud, "--as", name, "--url", url, "--target", str(target)]
    process = closing.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    closing.callback(process.kill)
    return Reader(name=name, process=process, before_bytes=heard(process)["peak_bytes"])


def count(readers: list[Reader], counted: list[Reader], server: FaultServerProcess) -> None:
    """Read once with each of `counted`, the like of `readers`; note requests and bytes, compare what came."""
    seen = set()
    for mine, like in zip(readers, counted, strict=True):
        server.reset()
        seen.add(like.ask("check")["crc"])
        time.sleep(0.2)  # a request that the client gave up ends a moment later
        mine.requests = server.stats().requests
        mine.sent_bytes = sum(exchange.sent_bytes for exchange in server.log())
    if len(seen) != 1:
        raise RuntimeError(f"the clients read different bytes: {seen}")


def report(readers: list[Reader], size_bytes: int, rounds: int) -> None:
    print(
        f"{'':31} {'s':>6} {'MB/s':>6} {'x stock':>7} {'cpu s':>6} {'peak MiB':>8} {'+':>5} {'requests':>8} {'MiB':>6}"
    )
    stock = {each.name: each for each in readers}
    for each in readers:
        base = stock.get(each.name.removeprefix("ours-"), each)
        # Of each round, not of the medians: what slowed one round down slowed both.
        ratio = statistics.median(a / b for a, b in zip(base.wall_s, each.wall_s, strict=True))
        wall, cpu = statistics.median(each.wall_s), statistics.median(each.cpu_s)
        print(
            f"{each.name:31} {wall:6.3f} {size_bytes / wall / 1e6:6.0f} {ratio:7.2f} {cpu:6.3f} "
            f"{each.peak_bytes / 2**20:8.0f} {(each.peak_bytes - each.before_bytes) / 2**20:5.0f} "
            f"{each.requests:8} {each.sent_bytes / 2**20:6.1f}",
            flush=True,
        )


@contextmanager
def s3_store(size_bytes: int) -> Iterator[tuple[str, FaultServerProcess]]:
    """Yield where to read, and the server that counts."""
    with FaultServerProcess() as server:
        server.fill(BUCKET, count=1, size_bytes=size_bytes)
        yield server.url, server


@contextmanager
def azure_store(size_bytes: int) -> Iterator[tuple[str, FaultServerProcess]]:
    """Yield where to read, and the server that counts: Azurite itself counts nothing."""
    from azure.storage.blob import ContainerClient

    with AzuriteServer(azurite_home() or AZURITE) as azurite:
        with ContainerClient.from_connection_string(azurite.account.connection_string, BUCKET) as client:
            client.create_container()
            client.upload_blob(KEY, os.urandom(2**20) * (size_bytes // 2**20))
        with FaultServerProcess(upstream=azurite.url, protocol="azure") as server:
            yield azurite.url, server


def measure(given: argparse.Namespace) -> None:
    size_bytes = given.mib * 2**20
    store = {"s3": s3_store, "azure": azure_store}[given.cloud]
    with ExitStack() as closing:
        folder = closing.enter_context(tempfile.TemporaryDirectory(dir=given.folder))
        url, server = closing.enter_context(store(size_bytes))
        names = [name for name in CLIENTS[given.cloud] if given.only in name]
        readers = [reader(given.cloud, name, url, folder, closing) for name in names]
        if server.url == url:
            count(readers, readers, server)
        else:
            with ExitStack() as counting:
                counted = [reader(given.cloud, name, server.url, folder, counting) for name in names]
                count(readers, counted, server)
        for number in range(given.rounds):
            # Each goes first as often as the other.
            for each in readers if number % 2 else reversed(readers):
                each.read()
        report(readers, size_bytes, given.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cloud", choices=list(PACKAGES), default="s3")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="a part of the name of what to measure")
    parser.add_argument("--folder", default=None, help="where local files go, default the system's temporary folder")
    for internal in ("--as", "--url", "--target"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if vars(given)["as"]:
        serve_reads(given.cloud, vars(given)["as"], given.url, Path(given.target))
        return
    print("command: python", " ".join(sys.argv))
    versions = (f"{package} {importlib.metadata.version(package)}" for package in PACKAGES[given.cloud])
    print("versions: python", platform.python_version(), *versions)
    print(f"machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    measure(given)


if __name__ == "__main__":
    main()
