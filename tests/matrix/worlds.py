"""The two stores behind their fault servers, and a way to look at them and change them past every fault."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

from resilient_io.testing import FaultPlan, FaultServer, StorageAccount
from resilient_io.testing.calls import Backend, Body, Call, Head, Reply
from resilient_io.testing.memory import Bucket, Stored, etag_of
from resilient_io.testing.s3_store import S3Store
from resilient_io.testing.upstream import Upstream

_numbers = itertools.count(1)


class Meddling:
    """A backend in which somebody replaces an object just before its `at`-th read."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._reads = 0
        self._at = 0
        self._work: Callable[[], None] | None = None

    def meddle(self, at: int, work: Callable[[], None]) -> None:
        """Do `work` before the `at`-th read from now."""
        self._reads, self._at, self._work = 0, at, work

    async def answer(self, head: Head, call: Call, body: Body, request_id: str) -> Reply:
        """Let the store answer."""
        if call.op in ("GetObject", "GetBlob"):
            self._reads += 1
            if self._work is not None and self._reads == self._at:
                work, self._work = self._work, None
                await asyncio.to_thread(work)
        return await self._inner.answer(head, call, body, request_id)

    async def close(self) -> None:
        """Close the store."""
        await self._inner.close()


class World(Protocol):
    """One store with its fault server."""

    server: FaultServer
    meddling: Meddling
    bucket: str

    def state(self, key: str) -> bytes | None:
        """Return what the object is now, None where there is none."""

    def put(self, key: str, data: bytes) -> None:
        """Make the object this, past every fault."""

    def leftovers(self) -> int:
        """Return how many uploads are open."""


def fresh_prefix() -> str:
    """Return a prefix that no other case has used."""
    return f"m/{next(_numbers)}"


def calm(world: World) -> None:
    """Take the faults away."""
    world.server.configure(FaultPlan())


class S3World:
    """The built-in store in memory."""

    bucket = "b"

    def __init__(self) -> None:
        store = S3Store()
        self._objects = store.objects
        self._objects.buckets[self.bucket] = Bucket()
        self.meddling = Meddling(store)
        self.server = FaultServer(backend=self.meddling).start()

    def state(self, key: str) -> bytes | None:
        found = self._objects.buckets[self.bucket].objects.get(key)
        return None if found is None else bytes(found.data)

    def put(self, key: str, data: bytes) -> None:
        stored = Stored(data=data, etag=etag_of(data), modified_s=int(time.time()))
        self._objects.buckets[self.bucket].put(key, stored)

    def leftovers(self) -> int:
        return len(self._objects.uploads)

    def close(self) -> None:
        self.server.stop()


class AzureWorld:
    """Azurite, with a container of its own; a signature for all requests, as the server drops signed headers."""

    def __init__(self, direct: StorageAccount) -> None:
        from azure.storage.blob import ContainerClient

        self.bucket = f"matrix-{time.monotonic_ns():x}"
        self._box = ContainerClient.from_connection_string(direct.connection_string, self.bucket)
        self._box.create_container()
        self.meddling = Meddling(Upstream(direct.url))
        self.server = FaultServer(backend=self.meddling, protocol="azure").start()
        self.account = direct.at(self.server.url)
        self.sas = _signature(direct)

    @property
    def connection_string(self) -> str:
        """The account through the fault server."""
        return f"BlobEndpoint={self.account.account_url};SharedAccessSignature={self.sas}"

    def state(self, key: str) -> bytes | None:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            return bytes(self._box.download_blob(key).readall())
        except ResourceNotFoundError:
            return None

    def put(self, key: str, data: bytes) -> None:
        self._box.upload_blob(key, data, overwrite=True)

    def put_appendable(self, key: str, data: bytes) -> None:
        """Make it an append blob that holds this."""
        self._box.upload_blob(key, data, blob_type="AppendBlob", overwrite=True)

    def leftovers(self) -> int:
        """Return 0: uncommitted blocks go by themselves."""
        return 0

    def close(self) -> None:
        self.server.stop()
        self._box.delete_container()
        self._box.close()


def _signature(account: StorageAccount) -> str:
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    permissions = dict.fromkeys(("read", "write", "delete", "list", "add", "create"), True)
    made: Any = generate_account_sas(
        account.account_name,
        account.account_key,
        resource_types=ResourceTypes(service=True, object=True, container=True),
        permission=AccountSasPermissions(**permissions),
        expiry=datetime.now(timezone.utc) + timedelta(hours=2),
    )
    return str(made)
