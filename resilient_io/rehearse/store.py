"""Where a rehearsal takes place: an embedded store with ceilings, or a prefix of a real bucket (on Azure: container).

s3_store and azure_store make them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from resilient_io.rehearse.clouds import Cloud
from resilient_io.rehearse.job import BURST_S, Job
from resilient_io.rehearse.outcomes import Requests

#: What stands in the bucket during a rehearsal on a real one, with a random name behind it.
ROOT = "resilient-io-rehearse-"
#: Seconds that each answer of the embedded store takes besides its work; S3's first byte takes tens of milliseconds.
LATENCY_S = 0.02
EMBEDDED_BUCKET = "rehearsal"


class StoreUnusable(Exception):
    """The bucket cannot be used for a rehearsal; the text says why."""


class Store(Protocol):
    """What the runs need of a store."""

    cloud: Cloud
    bucket: str
    root: str
    is_embedded: bool

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """What the job's processes give to `fsspec.filesystem(cloud.scheme, ...)`."""

    @property
    def steward_options(self) -> Mapping[str, Any]:
        """The same for what fills the store and checks it; no ceiling is in its way."""

    def unlimited(self) -> AbstractContextManager[None]:
        """Lift the ceilings for a while."""

    def start_counting(self) -> None:
        """Reset counters and ceilings: a run begins."""

    def counted(self, by_clients: Requests) -> Requests:
        """Return the requests of the run; `by_clients` is what the clients counted themselves."""


class EmbeddedStore:
    """A store of this machine behind a `FaultServer`, which `control` drives.

    `options` lead through the server and its ceilings, `back_door` past it if another server stands behind it.
    """

    root = ""
    bucket = EMBEDDED_BUCKET
    is_embedded = True

    def __init__(
        self, cloud: Cloud, job: Job, control: Any, *, options: Mapping[str, Any], back_door: Mapping[str, Any]
    ) -> None:
        self.cloud = cloud
        self._control, self._plan = control, _plan(job)
        self._options, self._back_door = options, back_door
        control.configure(self._plan)

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """What reaches the store through its ceilings."""
        return self._options

    @property
    def steward_options(self) -> Mapping[str, Any]:
        """What reaches the store past them, if there is such a door."""
        return self._back_door

    def start_counting(self) -> None:
        """Reset the server's counters and fill its buckets of tokens."""
        self._control.reset()

    def counted(self, by_clients: Requests) -> Requests:
        """Return what the server saw."""
        stats = self._control.stats()
        return Requests(sent=stats.requests, refused=stats.refusals)

    @contextlib.contextmanager
    def unlimited(self) -> Iterator[None]:
        """Lift the ceilings for a while."""
        from resilient_io.testing import FaultPlan

        self._control.configure(FaultPlan())
        try:
            yield
        finally:
            self._control.configure(self._plan)


class PrefixStore:
    """A prefix of its own in a real bucket, cleared by `clear`; requests are counted by the clients."""

    is_embedded = False

    def __init__(
        self, cloud: Cloud, *, endpoint_url: str, bucket: str, options: Mapping[str, Any], filesystem: Any
    ) -> None:
        self.cloud, self.bucket, self.root = cloud, bucket, f"{ROOT}{secrets.token_hex(4)}/"
        self._endpoint_url, self._options, self._fs = endpoint_url, options, filesystem

    def check(self) -> None:
        """Write one object; `StoreUnusable` where that does not work."""
        try:
            self._fs.pipe_file(f"{self.bucket}/{self.root}can-it-be-written", b"")
        except Exception as error:  # of the SDK, the filesystem, aiohttp: whatever it is, the user must see it
            where = f"{self.cloud.scheme}://{self.bucket} at {self._endpoint_url}"
            raise StoreUnusable(f"cannot write to {where}: {error}") from error

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """What the SDK does not find by itself, such as the endpoint."""
        return self._options

    @property
    def steward_options(self) -> Mapping[str, Any]:
        """The same: there is one door."""
        return self.storage_options

    def unlimited(self) -> AbstractContextManager[None]:
        """Do nothing: the ceilings of a real store are its own."""
        return contextlib.nullcontext()

    def start_counting(self) -> None:
        """Wait a moment: the burst of a real store comes back by itself."""
        time.sleep(1.0)

    def counted(self, by_clients: Requests) -> Requests:
        """Return what the clients counted."""
        return by_clients

    def clear(self) -> None:
        """Delete everything under the prefix; `StoreUnusable` names it where that does not work."""
        path = f"{self.bucket}/{self.root.rstrip('/')}"
        try:
            self._fs.invalidate_cache()
            if self._fs.find(path):
                self._fs.rm(path, recursive=True)
        except Exception as error:  # as above
            raise StoreUnusable(f"could not delete {self.cloud.scheme}://{path}/, please do: {error}") from error


@contextlib.contextmanager
def prefix_of(store: PrefixStore, *, told: Callable[[str, str], None]) -> Iterator[PrefixStore]:
    """Give the prefix of a bucket, and delete it afterwards, whatever happened; `told` hears of both before."""
    told(store.bucket, store.root)
    try:
        store.check()
        yield store
    except BaseException:
        with contextlib.suppress(StoreUnusable):  # what went wrong first is what the user must see
            store.clear()
        raise
    store.clear()


@contextlib.contextmanager
def settings_of_the_user_removed(prefixes: tuple[str, ...], local: Mapping[str, str]) -> Iterator[None]:
    """Take the user's settings of a cloud out of this process and its children, and put `local` there meanwhile."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(prefixes)]:
        del os.environ[name]
    os.environ.update({"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **local})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _plan(job: Job) -> Any:
    from resilient_io.testing import Ceiling, FaultPlan, Latency, Match

    assert job.ceiling_per_s is not None
    assert job.write_ceiling_per_s is not None
    return FaultPlan(
        ceilings=(
            Ceiling(rate_per_s=job.write_ceiling_per_s, burst_s=BURST_S, match=Match(op_class="write"), name="write"),
            Ceiling(rate_per_s=job.ceiling_per_s, burst_s=BURST_S, match=Match(op_class="read"), name="read"),
        ),
        latency=Latency(base_s=LATENCY_S),
        seed=job.seed,
    )
