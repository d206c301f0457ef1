"""The S3 stores of a rehearsal: moto or the built-in store behind ceilings, or a prefix of a real bucket."""

from __future__ import annotations

import contextlib
import http.client as http_client
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import urlsplit

from resilient_io.rehearse.clouds import S3
from resilient_io.rehearse.fleet import interrupts_held
from resilient_io.rehearse.job import Job
from resilient_io.rehearse.store import (
    EMBEDDED_BUCKET,
    EmbeddedStore,
    PrefixStore,
    StoreUnusable,
    prefix_of,
    settings_of_the_user_removed,
)

# No profile and no retry mode of the user's applies to an embedded store.
_LOCAL: Final = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextlib.contextmanager
def embedded_store(job: Job, *, kind: str) -> Iterator[EmbeddedStore]:
    """Start moto ("moto") or the built-in store ("builtin") behind its ceilings, with an empty bucket."""
    from resilient_io.testing import FaultServerProcess
    from resilient_io.testing.moto_process import MotoServer

    with contextlib.ExitStack() as stack:
        stack.enter_context(settings_of_the_user_removed(("AWS_", "BOTO_"), _LOCAL))
        with interrupts_held():
            moto = MotoServer() if kind == "moto" else None
            if moto is not None:
                stack.callback(moto.stop)
            server = FaultServerProcess(upstream=moto.url if moto else None)
            server.start()
            stack.callback(server.stop)
        back_door_url = moto.url if moto else server.url
        _make_bucket(back_door_url)
        yield EmbeddedStore(S3, job, server, options=_options(server.url), back_door=_options(back_door_url))


def real_store(
    endpoint_url: str, bucket: str, *, told: Callable[[str, str], None]
) -> AbstractContextManager[PrefixStore]:
    """Give a prefix of a bucket; credentials and region come from where botocore finds them."""
    from resilient_io.aws.filesystem import ResilientS3FileSystem

    options: Mapping[str, Any] = {"endpoint_url": endpoint_url, "skip_instance_cache": True}
    filesystem = ResilientS3FileSystem(**options)
    store = PrefixStore(S3, endpoint_url=endpoint_url, bucket=bucket, options=options, filesystem=filesystem)
    return prefix_of(store, told=told)


def _options(url: str) -> dict[str, Any]:
    return {
        "key": "rehearsal",
        "secret": "rehearsal",
        "endpoint_url": url,
        "client_kwargs": {"region_name": "us-east-1"},
        "skip_instance_cache": True,
    }


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
