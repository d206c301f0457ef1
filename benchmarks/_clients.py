"""The clients that benchmarks/throttle.py compares: each makes what does one operation on a key.

`url` is the server's; on Azure the account is Azurite's own.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from resilient_io.testing import StorageAccount

BUCKET = "bench"
SIZE_BYTES = 4096
JITTER_ATTEMPTS, JITTER_BASE_S, JITTER_CAP_S = 30, 0.2, 20.0

Do = Callable[[str], bytes | None]


def _s3fs(url: str, write: bool, *, ours: bool) -> Do:
    from s3fs import S3FileSystem

    from resilient_io.aws.filesystem import ResilientS3FileSystem

    kind = ResilientS3FileSystem if ours else S3FileSystem
    fs = kind(key="key", secret="secret", endpoint_url=url, client_kwargs={"region_name": "us-east-1"})
    fs.connect()
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: fs.pipe_file(f"{BUCKET}/{key}", body)
    return lambda key: fs.cat_file(f"{BUCKET}/{key}")


def _boto3(url: str, write: bool, *, retries: dict[str, Any] | None = None, ours: bool = False) -> Do:
    import boto3
    from botocore.config import Config

    settings: Any = {"retries": retries, "max_pool_connections": 64}  # as wide as ours makes its pool
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(**settings),
    )
    if ours:
        import resilient_io

        resilient_io.harden(client)
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: client.put_object(Bucket=BUCKET, Key=key, Body=body) and None
    return lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def _jitter(url: str, write: bool) -> Do:
    """Full jitter alone: what a careful person writes around boto3."""
    from botocore.exceptions import ClientError

    once = _boto3(url, write, retries={"total_max_attempts": 1})
    source = random.Random(os.urandom(8))

    def do(key: str) -> bytes | None:
        for attempt in range(JITTER_ATTEMPTS):
            try:
                return once(key)
            except ClientError as error:
                if error.response["Error"]["Code"] != "SlowDown" or attempt == JITTER_ATTEMPTS - 1:
                    raise
            time.sleep(source.uniform(0, min(JITTER_CAP_S, JITTER_BASE_S * 2**attempt)))
        raise AssertionError("unreachable")

    return do


def _obstore(url: str, write: bool) -> Do:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=url,
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: obstore.put(store, key, body) and None
    return lambda key: bytes(obstore.get(store, key).bytes())


def _adlfs(url: str, write: bool, *, ours: bool) -> Do:
    from adlfs import AzureBlobFileSystem

    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    kind = ResilientAzureBlobFileSystem if ours else AzureBlobFileSystem
    fs = kind(connection_string=StorageAccount(url=url).connection_string)
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: fs.pipe_file(f"{BUCKET}/{key}", body)
    return lambda key: fs.cat_file(f"{BUCKET}/{key}")


def _azure_blob(url: str, write: bool, *, ours: bool) -> Do:
    from azure.storage.blob import ContainerClient

    client = ContainerClient.from_connection_string(StorageAccount(url=url).connection_string, BUCKET)
    if ours:
        import resilient_io

        resilient_io.harden(client)
    body = bytes(SIZE_BYTES)
    if write:
        return lambda key: client.upload_blob(key, body, overwrite=True) and None
    return lambda key: client.download_blob(key).readall()


_S3_CLIENTS: Mapping[str, Callable[[str, bool], Do]] = {
    "s3fs": lambda url, write: _s3fs(url, write, ours=False),
    "ours-s3fs": lambda url, write: _s3fs(url, write, ours=True),
    "boto3-standard": lambda url, write: _boto3(url, write, retries={"mode": "standard"}),
    "boto3-adaptive": lambda url, write: _boto3(url, write, retries={"mode": "adaptive"}),
    "ours-boto3": lambda url, write: _boto3(url, write, ours=True),
    "jitter-boto3": _jitter,
    "obstore": _obstore,
}


_AZURE_CLIENTS: Mapping[str, Callable[[str, bool], Do]] = {
    "adlfs": lambda url, write: _adlfs(url, write, ours=False),
    "ours-adlfs": lambda url, write: _adlfs(url, write, ours=True),
    "azure-blob": lambda url, write: _azure_blob(url, write, ours=False),
    "ours-azure-blob": lambda url, write: _azure_blob(url, write, ours=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """The clients of a cloud: those that are compared at a ceiling and under chance, and the packages to name."""

    clients: Mapping[str, Callable[[str, bool], Do]]
    at_ceiling: tuple[str, ...]
    under_chance: tuple[str, ...]
    packages: tuple[str, ...]


CLOUDS: Mapping[str, Cloud] = {
    "s3": Cloud(
        clients=_S3_CLIENTS,
        at_ceiling=("ours-s3fs", "ours-boto3", "s3fs", "boto3-standard", "boto3-adaptive", "obstore"),
        under_chance=("jitter-boto3", "ours-boto3", "ours-s3fs"),
        packages=("s3fs", "aiobotocore", "botocore", "boto3", "obstore", "fsspec"),
    ),
    "azure": Cloud(
        clients=_AZURE_CLIENTS,
        at_ceiling=("ours-adlfs", "ours-azure-blob", "adlfs", "azure-blob"),
        under_chance=("ours-azure-blob", "ours-adlfs"),
        packages=("adlfs", "azure-storage-blob", "azure-core", "aiohttp", "requests", "fsspec"),
    ),
}
