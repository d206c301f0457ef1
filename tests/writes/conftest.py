"""A store of each cloud with a filesystem of this library on it, seen by the tests past the library and the faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

# Three attempts at faults and four at refusals, without waits that a test would feel.
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001,
    "backoff_cap_s": 0.005,
    "max_attempts": 3,
    "max_throttle_attempts": 4,
    "retry_budget_burst": 1000,
}
MIB = 2**20


@dataclass
class Store:
    """One cloud's store. `names` says what the two call the same request."""

    cloud: str
    server: FaultServer
    fs: Any
    base: str
    scheme: str
    options: dict[str, Any]
    content_of: Callable[[str], bytes | None]
    names: dict[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """Return the path for a method of the filesystem."""
        return f"{self.base}/{name}"

    def url(self, name: str) -> str:
        """Return the URL for `fsspec.open`."""
        return f"{self.scheme}://{self.base}/{name}"

    def with_policy(self, policy: dict[str, object]) -> Any:
        """Return another filesystem on the store, with this policy."""
        return type(self.fs)(**{**self.options, "resilience": policy}, skip_instance_cache=True)

    def sent(self) -> Counter[str]:
        """Return the requests that came, by operation."""
        return Counter(one.op for one in self.server.log())

    def uploads(self) -> int:
        """Return how many multipart uploads are open; Azure has none."""
        backend = self.server._engine.backend
        return len(backend.objects.uploads) if self.cloud == "s3" else 0  # type: ignore[attr-defined]

    def break_it(self, op: str, action: FaultAction = FaultAction.ERROR, **rule: Any) -> None:
        """Answer calls with a fault (by the S3 name of the operation), and count anew."""
        put = FaultRule(action=action, match=Match(op=self.names.get(op, op)), **rule)
        self.server.configure(FaultPlan(rules=(put,)))
        self.server.reset()


@pytest.fixture(scope="module")
def _s3_server() -> Iterator[tuple[FaultServer, Any, dict[str, Any]]]:
    """Yield a store in memory and a filesystem on it: to make a client takes longer than most tests."""
    pytest.importorskip("s3fs")
    from resilient_io.aws.filesystem import ResilientS3FileSystem

    with FaultServer() as server:
        options = {"endpoint_url": server.url, "resilience": POLICY, "client_kwargs": {"region_name": "us-east-1"}}
        fs = ResilientS3FileSystem(**options, skip_instance_cache=True, use_listings_cache=False)
        fs.connect()
        yield server, fs, options


def _s3(server: FaultServer, fs: Any, options: dict[str, Any]) -> Store:
    objects: Any = server._engine.backend.objects  # type: ignore[attr-defined]
    objects.buckets.clear()
    objects.uploads.clear()
    server.configure(FaultPlan())
    server.fill("b", count=1, size_bytes=10, key="there/{}")
    server.reset()

    def content_of(name: str) -> bytes | None:
        found = objects.buckets["b"].objects.get(name)
        return found.data if found is not None else None

    return Store("s3", server, fs, "b", "rs3", options, content_of)


AZURE_NAMES = {"PutObject": "PutBlob", "UploadPart": "PutBlock", "CompleteMultipartUpload": "PutBlockList"}


def _azure(azure_store: Any) -> Store:
    from azure.core.exceptions import ResourceNotFoundError
    from azure.storage.blob import ContainerClient

    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    options = {"connection_string": azure_store.account.connection_string, "resilience": POLICY}
    fs = ResilientAzureBlobFileSystem(**options)

    def content_of(name: str) -> bytes | None:
        where = azure_store.direct.connection_string
        with ContainerClient.from_connection_string(where, azure_store.container) as box:
            try:
                data: bytes = box.download_blob(name).readall()
            except ResourceNotFoundError:
                return None
            return data

    server = azure_store.server
    return Store("azure", server, fs, azure_store.container, "rabfs", options, content_of, AZURE_NAMES)


@pytest.fixture
def s3_store(_s3_server: tuple[FaultServer, Any, dict[str, Any]]) -> Store:
    """Return an empty S3 store."""
    return _s3(*_s3_server)


@pytest.fixture(params=["s3", "azure"])
def store(request: pytest.FixtureRequest) -> Store:
    """Return an empty store of each cloud in turn."""
    if request.param == "s3":
        store: Store = request.getfixturevalue("s3_store")
        return store
    pytest.importorskip("adlfs")
    return _azure(request.getfixturevalue("azure_store"))
