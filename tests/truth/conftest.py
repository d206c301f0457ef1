"""One filesystem of each cloud behind a fault server, and what people put above it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

POLICY: dict[str, object] = {
    "backoff_base_s": 0.001,
    "backoff_cap_s": 0.005,
    "max_attempts": 2,
    "max_throttle_attempts": 2,
    "retry_budget_burst": 100_000,
}
NAMES = ("train/1", "train/2", "train/d/3")
DATA = b"0123456789"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """A filesystem on a bucket with three objects; `names` looks past the faults."""

    name: str
    fs: Any
    server: FaultServer
    bucket: str
    names: Callable[[], list[str]]
    containers: Callable[[], int]
    options: dict[str, Any]

    def refuse(self, op: str = "*", action: FaultAction = FaultAction.BODYLESS_ERROR, **rule: Any) -> None:
        """Answer calls with a bodyless 503 from now on."""
        rule = {"status": 503, **rule} if action is FaultAction.BODYLESS_ERROR else rule
        match = rule.pop("match", Match(op=op))
        self.server.configure(FaultPlan(rules=(FaultRule(action=action, match=match, **rule),)))
        self.server.reset()

    def answer(self) -> None:
        """Answer again, and count anew."""
        self.server.configure(FaultPlan())
        self.server.reset()


@pytest.fixture(scope="module")
def _s3() -> Iterator[Cloud]:
    pytest.importorskip("s3fs")
    from resilient_io.aws.filesystem import ResilientS3FileSystem
    from resilient_io.testing.s3_store import S3Store

    store = S3Store()
    with FaultServer(backend=store) as server:
        options = {"endpoint_url": server.url, "resilience": POLICY, "use_listings_cache": False}
        fs = ResilientS3FileSystem(**options, skip_instance_cache=True)
        fs.mkdir("b")
        fs.pipe({f"b/{name}": DATA for name in NAMES})
        objects = store.objects
        yield Cloud(
            name="s3",
            fs=fs,
            server=server,
            bucket="b",
            names=lambda: sorted(objects.buckets["b"].objects),
            containers=lambda: len(objects.buckets),
            options=options,
        )


@pytest.fixture(scope="module")
def _azure(azurite: Any) -> Iterator[Cloud]:
    pytest.importorskip("adlfs")
    from azure.storage.blob import BlobServiceClient

    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    bucket = f"truth-{next(_numbers)}-{id(azurite):x}"
    with FaultServer(upstream=azurite.url, protocol="azure") as server:
        options = {"connection_string": azurite.at(server.url).connection_string, "resilience": POLICY}
        fs = ResilientAzureBlobFileSystem(**options, skip_instance_cache=True)
        with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
            box = service.create_container(bucket)
            for name in NAMES:
                box.upload_blob(name, DATA)
            yield Cloud(
                name="abfs",
                fs=fs,
                server=server,
                bucket=bucket,
                names=lambda: sorted(blob.name for blob in box.list_blobs()),
                containers=lambda: len(list(service.list_containers())),
                options=options,
            )
            box.delete_container()


@pytest.fixture(params=["s3", "azure"])
def cloud(request: pytest.FixtureRequest, fast_clock: Any) -> Iterator[Cloud]:
    """Yield one cloud, without faults and with nothing cached."""
    found: Cloud = request.getfixturevalue(f"_{request.param}")
    found.answer()
    found.fs.invalidate_cache()
    yield found
    found.answer()


@pytest.fixture
def above(cloud: Cloud, tmp_path: Path) -> Callable[[str], tuple[Any, str]]:
    """Return a maker of what stands above the filesystem, with the path of `train` in it."""

    def made(kind: str) -> tuple[Any, str]:
        if kind == "plain":
            return cloud.fs, f"{cloud.bucket}/train"
        if kind == "dir":
            return fsspec.filesystem("dir", path=cloud.bucket, fs=cloud.fs), "train"
        return fsspec.filesystem(kind, fs=cloud.fs, cache_storage=str(tmp_path / "cache")), f"{cloud.bucket}/train"

    return made
