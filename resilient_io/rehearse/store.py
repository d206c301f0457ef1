"""Where a rehearsal takes place: an embedded store with ceilings, or a prefix of a real bucket."""

from __future__ import annotations

import contextlib
import http.client as http_client
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol
from urllib.parse import urlsplit

from resilient_io.rehearse.fleet import interrupts_held
from resilient_io.rehearse.job import BURST_S, Job
from resilient_io.rehearse.outcomes import Requests

#: What stands in the bucket during a rehearsal on a real one, with a random name behind it.
ROOT = "resilient-io-rehearse-"
#: Seconds that each answer of the embedded store takes besides its work; S3's first byte takes tens of milliseconds.
LATENCY_S = 0.02
EMBEDDED_BUCKET = "rehearsal"
_LOCAL = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}


class StoreUnusable(Exception):
    """The bucket cannot be used for a rehearsal; the text says why."""


class Store(Protocol):
    """What the runs need of a store."""

    bucket: str
    root: str
    is_embedded: bool

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """What the job's processes give to `fsspec.filesystem("s3", ...)`."""

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
    """A store of this machine behind a `FaultServer`."""

    root = ""
    bucket = EMBEDDED_BUCKET
    is_embedded = True

    def __init__(self, control: Any, back_door_url: str, plan: Any) -> None:
        self._control, self._back_door_url, self._plan = control, back_door_url, plan

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """What reaches the store through its ceilings."""
        return _options(self._control.url)

    @property
    def steward_options(self) -> Mapping[str, Any]:
        """What reaches the store past the `FaultServer`, if another server stands behind it."""
        return _options(self._back_door_url)

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


class BucketStore:
    """A prefix of its own in a real bucket, cleared by `clear`; requests are counted by the clients."""

    is_embedded = False

    def __init__(self, endpoint_url: str, bucket: str) -> None:
        self.bucket, self.root = bucket, f"{ROOT}{secrets.token_hex(4)}/"
        self._endpoint_url = endpoint_url
        self._fs = _filesystem(self.storage_options)

    def check(self) -> None:
        """Write one object; `StoreUnusable` where that does not work."""
        try:
            self._fs.pipe_file(f"{self.bucket}/{self.root}can-it-be-written", b"")
        except Exception as error:  # botocore's, s3fs's, aiohttp's: whatever it is, the user must see it
            raise StoreUnusable(f"cannot write to s3://{self.bucket} at {self._endpoint_url}: {error}") from error

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """The endpoint; credentials and region come from where botocore finds them."""
        return {"endpoint_url": self._endpoint_url, "skip_instance_cache": True}

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
            raise StoreUnusable(f"could not delete s3://{path}/, please do: {error}") from error


@contextlib.contextmanager
def embedded_store(job: Job, *, kind: str) -> Iterator[EmbeddedStore]:
    """Start moto ("moto") or the built-in store ("builtin") behind its ceilings, with an empty bucket."""
    from resilient_io.testing import FaultServerProcess
    from resilient_io.testing.moto_process import MotoServer

    with contextlib.ExitStack() as stack:
        stack.enter_context(_no_settings_of_the_user())
        with interrupts_held():
            moto = MotoServer() if kind == "moto" else None
            if moto is not None:
                stack.callback(moto.stop)
            server = FaultServerProcess(upstream=moto.url if moto else None)
            server.start()
            stack.callback(server.stop)
        back_door_url = moto.url if moto else server.url
        _make_bucket(back_door_url)
        plan = _plan(job)
        server.configure(plan)
        yield EmbeddedStore(server, back_door_url, plan)


@contextlib.contextmanager
def real_store(endpoint_url: str, bucket: str, *, told: Callable[[str, str], None]) -> Iterator[BucketStore]:
    """Give a prefix of a bucket, and delete it afterwards, whatever happened; `told` hears bucket and prefix before."""
    store = BucketStore(endpoint_url, bucket)
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
def _no_settings_of_the_user() -> Iterator[None]:
    """Take the user's AWS settings out of this process and its children: here no profile or retry mode applies."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(("AWS_", "BOTO_"))]:
        del os.environ[name]
    os.environ.update(_LOCAL)
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


def _options(url: str) -> dict[str, Any]:
    return {
        "key": "rehearsal",
        "secret": "rehearsal",
        "endpoint_url": url,
        "client_kwargs": {"region_name": "us-east-1"},
        "skip_instance_cache": True,
    }


def _filesystem(options: Mapping[str, Any]) -> Any:
    from resilient_io.aws.filesystem import ResilientS3FileSystem

    return ResilientS3FileSystem(**options)


def _make_bucket(url: str) -> None:
    """Make the bucket; neither of the embedded stores asks for a signature."""
    http = http_client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        http.request("PUT", f"/{EMBEDDED_BUCKET}")
        status = http.getresponse().status
    finally:
        http.close()
    if status != 200:
        raise StoreUnusable(f"the embedded store did not make a bucket: status {status}")
