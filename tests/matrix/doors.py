"""The five doors through which people reach a store, with the same operations behind each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from .worlds import AzureWorld, S3World

PART_BYTES = 4096
READ_TIMEOUT_S = 0.25
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001,
    "backoff_cap_s": 0.005,
    "max_attempts": 4,
    "max_throttle_attempts": 4,
    "retry_budget_burst": 100_000,
    "deadline_s": 30_000,
    "verify": "strict",
}
# What boto3, botocore and s3fs are given.
_KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}


class Boto3Door:
    """A hardened boto3 client."""

    def __init__(self, world: S3World) -> None:
        import boto3
        from botocore.config import Config

        import resilient_io as rio

        config = Config(read_timeout=READ_TIMEOUT_S)
        self._bucket = world.bucket
        self._client: Any = rio.harden(
            boto3.client("s3", endpoint_url=world.server.url, config=config, **_KEYS), POLICY
        )

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": key}

    def read(self, key: str) -> bytes:
        return bytes(self._client.get_object(**self._at(key))["Body"].read())

    def read_range(self, key: str, start: int, end: int) -> bytes:
        asked = {**self._at(key), "Range": f"bytes={start}-{end - 1}"}
        return bytes(self._client.get_object(**asked)["Body"].read())

    def read_parts(self, key: str) -> bytes:
        import io

        from boto3.s3.transfer import TransferConfig

        into = io.BytesIO()
        config = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)
        self._client.download_fileobj(Fileobj=into, Config=config, **self._at(key))
        return into.getvalue()

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(**self._at(key), Body=data)

    def create(self, key: str, data: bytes) -> None:
        self._client.put_object(**self._at(key), Body=data, IfNoneMatch="*")

    def upload(self, key: str, data: bytes) -> None:
        upload = {**self._at(key), "UploadId": self._client.create_multipart_upload(**self._at(key))["UploadId"]}
        parts = []
        for number, start in enumerate(range(0, len(data), PART_BYTES), 1):
            piece = data[start : start + PART_BYTES]
            etag = self._client.upload_part(**upload, PartNumber=number, Body=piece)["ETag"]
            parts.append({"PartNumber": number, "ETag": etag})
        self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})

    def copy(self, key: str, to: str) -> None:
        self._client.copy_object(**self._at(to), CopySource=self._at(key))

    def delete(self, key: str) -> None:
        self._client.delete_object(**self._at(key))

    def delete_all(self, keys: list[str]) -> None:
        found = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys]})
        if found.get("Errors"):
            raise AssertionError(f"keys were left behind: {found['Errors']}")

    def list(self, prefix: str) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{prefix}/")
        return [each["Key"] for each in found.get("Contents", ())]

    def head(self, key: str) -> int:
        return int(self._client.head_object(**self._at(key))["ContentLength"])

    def close(self) -> None:
        self._client.close()


class FileDoor:
    """One of the two filesystems."""

    def __init__(self, fs: Any, bucket: str, part_bytes: int) -> None:
        self._fs, self._bucket, self._part_bytes = fs, bucket, part_bytes

    def _at(self, key: str) -> str:
        return f"{self._bucket}/{key}"

    def read(self, key: str) -> bytes:
        return bytes(self._fs.cat_file(self._at(key)))

    def read_range(self, key: str, start: int, end: int) -> bytes:
        return bytes(self._fs.cat_file(self._at(key), start=start, end=end))

    def read_parts(self, key: str) -> bytes:
        with self._fs.open(self._at(key), block_size=PART_BYTES) as file:
            return b"".join(iter(lambda: file.read(1000), b""))

    def put(self, key: str, data: bytes) -> None:
        self._fs.pipe_file(self._at(key), data)

    def create(self, key: str, data: bytes) -> None:
        self._fs.pipe_file(self._at(key), data, mode="create")

    def upload(self, key: str, data: bytes) -> None:
        with self._fs.open(self._at(key), "wb", block_size=self._part_bytes) as file:
            for start in range(0, len(data), self._part_bytes):
                file.write(data[start : start + self._part_bytes])

    def copy(self, key: str, to: str) -> None:
        self._fs.cp_file(self._at(key), self._at(to))

    def delete(self, key: str) -> None:
        self._fs.rm_file(self._at(key))

    def delete_all(self, keys: list[str]) -> None:
        self._fs.rm([self._at(key) for key in keys])

    def list(self, prefix: str) -> list[str]:
        found = self._fs.ls(self._at(prefix), detail=False, refresh=True)
        return [name.removeprefix(f"{self._bucket}/") for name in found]

    def head(self, key: str) -> int:
        return int(self._fs.info(self._at(key))["size"])

    def exists(self, key: str) -> bool:
        return bool(self._fs.exists(self._at(key)))

    def append(self, key: str, data: bytes) -> None:
        with self._fs.open(self._at(key), "ab") as file:
            file.write(data)

    def forget(self) -> None:
        """Drop what listings brought."""
        self._fs.invalidate_cache()

    def close(self) -> None:
        """Do nothing: a filesystem closes itself."""


class AzureDoor:
    """A client of azure-storage-blob, sync or aio; `run` waits for what is awaitable."""

    def __init__(self, world: AzureWorld, *, aio: bool) -> None:
        from azure.storage.blob import BlobServiceClient
        from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient

        from resilient_io.azure.clients import client_kwargs

        self._loop = asyncio.new_event_loop()
        cls: Any = AsyncBlobServiceClient if aio else BlobServiceClient
        made = client_kwargs(POLICY, aio=aio, read_timeout=READ_TIMEOUT_S)
        small = dict.fromkeys(("max_single_put_size", "max_block_size", "max_single_get_size"), PART_BYTES)
        service = cls.from_connection_string(world.connection_string, max_chunk_get_size=PART_BYTES, **small, **made)
        self._service, self._box = service, service.get_container_client(world.bucket)

    def _do(self, work: Callable[[], Any]) -> Any:
        async def waited() -> Any:
            found = work()
            return await found if inspect.isawaitable(found) else found

        return self._loop.run_until_complete(waited())

    def _read(self, key: str, **options: Any) -> bytes:
        stream = self._do(lambda: self._box.download_blob(key, **options))
        return bytes(self._do(stream.readall))

    def read(self, key: str) -> bytes:
        return self._read(key)

    def read_range(self, key: str, start: int, end: int) -> bytes:
        return self._read(key, offset=start, length=end - start)

    def read_parts(self, key: str) -> bytes:
        return self._read(key, max_concurrency=2)

    def put(self, key: str, data: bytes) -> None:
        self._do(lambda: self._box.upload_blob(key, data, overwrite=True))

    def create(self, key: str, data: bytes) -> None:
        self._do(lambda: self._box.upload_blob(key, data))

    upload = put

    def copy(self, key: str, to: str) -> None:
        source = self._box.get_blob_client(key).url
        self._do(lambda: self._box.get_blob_client(to).start_copy_from_url(source))

    def delete(self, key: str) -> None:
        self._do(lambda: self._box.delete_blob(key))

    def list(self, prefix: str) -> list[str]:
        async def names() -> list[str]:
            pages = self._box.list_blobs(name_starts_with=f"{prefix}/")
            if hasattr(pages, "__aiter__"):
                return [each.name async for each in pages]
            return [each.name for each in pages]

        found: list[str] = self._loop.run_until_complete(names())
        return found

    def head(self, key: str) -> int:
        return int(self._do(self._box.get_blob_client(key).get_blob_properties).size)

    def exists(self, key: str) -> bool:
        return bool(self._do(self._box.get_blob_client(key).exists))

    def append(self, key: str, data: bytes) -> None:
        self._do(lambda: self._box.get_blob_client(key).append_block(data))

    def close(self) -> None:
        self._do(self._service.close)
        self._loop.close()


def s3fs_door(world: S3World) -> FileDoor:
    """Return the s3fs filesystem."""
    from resilient_io.aws.filesystem import ResilientS3FileSystem

    fs = ResilientS3FileSystem(
        endpoint_url=world.server.url,
        key="testing",
        secret="testing",
        config_kwargs={"read_timeout": READ_TIMEOUT_S},
        resilience=POLICY,
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    return FileDoor(fs, world.bucket, 5 * 2**20)


def adlfs_door(world: AzureWorld) -> FileDoor:
    """Return the adlfs filesystem."""
    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    fs = ResilientAzureBlobFileSystem(
        connection_string=world.connection_string,
        read_timeout=READ_TIMEOUT_S,
        resilience=POLICY,
        skip_instance_cache=True,
    )
    return FileDoor(fs, world.bucket, PART_BYTES)
