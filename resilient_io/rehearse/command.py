"""`resilient-io rehearse`: its arguments, what it prints, and its exit status."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

from resilient_io import __version__, policy
from resilient_io.options import positive, size, whole
from resilient_io.rehearse import azure_store, s3_store, store, table
from resilient_io.rehearse.clouds import CLOUDS, S3, Cloud
from resilient_io.rehearse.fleet import WorkerDied
from resilient_io.rehearse.job import Job
from resilient_io.rehearse.progress import shown
from resilient_io.rehearse.rehearsal import STOCK, TREATED, Run, rehearse

SUMMARY: Final = "run one training job against a throttled store, with stock s3fs or adlfs and with this library"
#: Reads a second of the embedded store's hot prefix. moto answers some 300 requests a second on one core.
CEILING_PER_S: Final = 100.0
# No user, no query: those are credentials.
_ENDPOINT: Final = re.compile(r"https?://[^/?#@]+(/[^?#@]*)?")
#: The largest shard; the job holds one for each thread, and moto all of them.
LARGEST_SHARD_BYTES: Final = 64 * 2**20
_SIZE: Final = size(LARGEST_SHARD_BYTES, "64MiB")


class CannotRehearse(Exception):
    """The rehearsal cannot be done as asked; the text says what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `rehearse`."""
    add = parser.add_argument
    add("--cloud", choices=[*CLOUDS], default=S3.name, help="s3 (default), or azure: Azure Blob, with stock adlfs")
    add("--ranks", type=whole(1, 256), default=4, help="processes of the job (4)")
    add("--threads", type=whole(1, 256), default=8, help="threads of each rank's dataloader (8)")
    ceiling = "reads a second that the hot prefix serves (100); writes get as many, on S3 3,500/5,500 of it"
    add("--ceiling", type=positive, metavar="PER_S", help=ceiling)
    add(
        "--shards",
        type=whole(1, 1_000_000),
        help="objects of the hot prefix, each read once an epoch (450, Azure 900)",
    )
    add("--shard-size", type=_SIZE, default=64 * 2**10, metavar="SIZE", help="bytes, or 64KiB, 1MiB, ... (64KiB)")
    add("--parts", type=whole(1, 10_000), help="files that each rank writes for a checkpoint (48, Azure 96)")
    add("--seed", type=int, help="seed of order, bytes and latency (default: drawn and printed)")
    add("--only", choices=(STOCK, TREATED), help="one of the two runs")
    stores = [name for cloud in CLOUDS.values() for name in cloud.stores]
    add("--store", choices=stores, help="what is embedded: for S3 moto (default) or a lighter store, for Azure azurite")
    real = "a real S3 endpoint, or an Azure account (https://ACCOUNT.blob.core.windows.net), instead; needs --bucket"
    add("--endpoint-url", metavar="URL", help=real)
    bucket = "bucket or container there; a prefix of its own is written in it and deleted afterwards"
    add("--bucket", "--container", dest="bucket", help=bucket)
    add("--json", action="store_true", help="print the figures as JSON, and no progress")


def run(options: argparse.Namespace) -> int:
    """Do the rehearsal; 1 if the treated run failed anything or got wrong bytes, 2 if it could not be done."""
    try:
        _check(options)
        job = _job(options)
        runs = _rehearsed(job, options)
    except (CannotRehearse, store.StoreUnusable, WorkerDied) as error:
        print(f"resilient-io rehearse: {error}", file=sys.stderr)
        return 2
    (_print_json if options.json else _print)(job, runs, options)
    return 0 if all(one.is_good for one in runs if one.name == TREATED) else 1


def _check(options: argparse.Namespace) -> None:
    """Raise `CannotRehearse` for options that do not go together, and for what is missing on this machine."""
    cloud = CLOUDS[options.cloud]
    if options.store is not None and options.store not in cloud.stores:
        raise CannotRehearse(f"--store {options.store} is not for {cloud.name}: it has {', '.join(cloud.stores)}")
    if (options.endpoint_url is None) != (options.bucket is None):
        raise CannotRehearse("--endpoint-url and --bucket go together: name both, or neither for the embedded store")
    if options.endpoint_url is not None and options.store is not None:
        raise CannotRehearse("--store names an embedded store; leave it out with --endpoint-url")
    if options.endpoint_url is not None and not _ENDPOINT.fullmatch(options.endpoint_url):
        # What was given is not repeated: it may hold a signature.
        raise CannotRehearse(
            f"--endpoint-url must be a URL such as {cloud.endpoint_example}; credentials stand in the environment"
        )
    _check_installed(cloud, options)
    _check_policy(options)


def _check_installed(cloud: Cloud, options: argparse.Namespace) -> None:
    embedded = () if options.endpoint_url else cloud.stores[options.store or cloud.default_store]
    missing = [name for name in (*cloud.packages, *embedded) if find_spec(name) is None]
    if missing:
        raise CannotRehearse(f"{', '.join(missing)} not installed; pip install 'resilient-io[{cloud.extras}]'")


def _check_policy(options: argparse.Namespace) -> None:
    try:
        policy.reload()
        in_force = policy.resolve()
    except ValueError as error:
        raise CannotRehearse(str(error)) from None
    if not in_force.enabled and options.only != STOCK:
        raise CannotRehearse("the environment switches the library off (RESILIENT_IO=0); unset it to rehearse with it")


def _job(options: argparse.Namespace) -> Job:
    cloud, default = CLOUDS[options.cloud], None if options.endpoint_url else CEILING_PER_S
    return Job(
        ranks=options.ranks,
        threads=options.threads,
        shards=options.shards or cloud.shards,
        shard_bytes=options.shard_size,
        parts=options.parts or cloud.parts,
        ceiling_per_s=options.ceiling or default,
        writes_per_read=cloud.writes_per_read,
        epochs=cloud.epochs,
        seed=random.SystemRandom().randrange(2**32) if options.seed is None else options.seed,
    )


def _rehearsed(job: Job, options: argparse.Namespace) -> list[Run]:
    names = (options.only,) if options.only else (STOCK, TREATED)
    with _place(job, options) as place, shown(quiet=options.json) as progress:
        return rehearse(replace(job, root=place.root), place, runs=names, progress=progress)


def _place(job: Job, options: argparse.Namespace) -> AbstractContextManager[store.Store]:
    cloud = CLOUDS[options.cloud]
    if options.endpoint_url is not None:
        make = s3_store.real_store if cloud is S3 else azure_store.real_store
        return make(options.endpoint_url, options.bucket, told=partial(_warn, cloud))
    if cloud is S3:
        return s3_store.embedded_store(job, kind=options.store or cloud.default_store)
    return azure_store.embedded_store(job)


def _warn(cloud: Cloud, bucket: str, root: str) -> None:
    where = f"{cloud.scheme}://{bucket}/{root}"
    print(
        f"This writes under {where} and deletes that prefix afterwards; requests cost what they cost.", file=sys.stderr
    )


def _where(options: argparse.Namespace) -> str:
    where: str = options.endpoint_url or options.store or CLOUDS[options.cloud].default_store
    return where


def _title(job: Job, options: argparse.Namespace) -> str:
    work = f"{_times(job.epochs, 'epoch')} of {job.shards} shards"
    saved = f"{_times(job.epochs, 'checkpoint')} of {job.ranks * job.parts} files"
    ceiling = "" if job.ceiling_per_s is None else f", {job.ceiling_per_s:g} reads/s and {_writes(job):g} writes/s"
    where = f"{_where(options)}{ceiling}, seed {job.seed}"
    return f"{job.ranks} ranks x {job.threads} threads, {work} and {saved}, {where}"


def _times(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _writes(job: Job) -> int:
    return round(job.write_ceiling_per_s or 0.0)


def _print(job: Job, runs: Sequence[Run], options: argparse.Namespace) -> None:
    cloud = CLOUDS[options.cloud]
    table.show(runs, title=_title(job, options), cloud=cloud)
    for sentence in table.meaning(runs, cloud=cloud):
        print(sentence)


def _print_json(job: Job, runs: Sequence[Run], options: argparse.Namespace) -> None:
    cloud = CLOUDS[options.cloud]
    found = {
        "cloud": cloud.name,
        "job": {**job.to_dict(), "operations": job.operations, "write_ceiling_per_s": job.write_ceiling_per_s},
        "store": _where(options),
        "runs": {run.name: run.to_dict() for run in runs},
        "good": all(run.is_good for run in runs if run.name == TREATED),
        "meaning": table.meaning(runs, cloud=cloud),
        "versions": _versions(cloud.versions) | {"resilient-io": __version__},
        "machine": {"python": platform.python_version(), "system": platform.system(), "cpus": os.cpu_count()},
    }
    print(json.dumps(found, indent=2))


def _versions(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
