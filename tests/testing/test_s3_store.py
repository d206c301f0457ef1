"""The built-in store answers as moto does, and serves s3fs."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.testing import FaultServer

pytest.importorskip("boto3")
from botocore.exceptions import ClientError

Client = Callable[..., Any]
KEYS = ["a.txt", "train/", "train/a/1", "train/a/2", "train/b/1", "train/c", "tränen/ü &x", "z"]
NOISE = {"ResponseMetadata", "LastModified", "RequestCharged", "Owner", "ServerSideEncryption", "Location"}
NOISE |= {"UploadId", "NextContinuationToken", "ContinuationToken", "VersionId", "ChecksumType", "StorageClass"}
NOISE |= {"ChecksumAlgorithm", "EncodingType", "Marker", "ChecksumCRC32", "ContentEncoding"}


@pytest.fixture
def both(store: FaultServer, moto_server: str, s3_client: Client) -> list[Any]:
    """Return clients of the built-in store and of moto, each with the same empty bucket `twin`."""
    clients = [s3_client(url) for url in (store.url, moto_server)]
    for client in clients:
        names = [one["Name"] for one in client.list_buckets()["Buckets"]]
        if "twin" in names:
            for one in client.list_objects_v2(Bucket="twin").get("Contents", []):
                client.delete_object(Bucket="twin", Key=one["Key"])
        else:
            client.create_bucket(Bucket="twin")
    return clients


def outcome(call: Callable[[], dict[str, Any]]) -> Any:
    """Return what a call gave, as plain data without what differs from run to run."""
    try:
        found = call()
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    body = found.pop("Body").read() if "Body" in found else None
    return found["ResponseMetadata"]["HTTPStatusCode"], plain(found), body


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in NOISE}
    return [plain(one) for one in value] if isinstance(value, list) else value


def agree(both: list[Any], method: str, **arguments: Any) -> Any:
    ours, motos = (
        outcome(lambda client=client: getattr(client, method)(Bucket="twin", **arguments)) for client in both
    )
    assert ours == motos, f"{method}({arguments})"
    return ours


def test_objects_as_in_moto(both: list[Any]) -> None:
    body = bytes(range(256)) * 4
    agree(both, "put_object", Key="k", Body=body, Metadata={"who": "me"}, ContentType="text/x", CacheControl="no")
    assert agree(both, "get_object", Key="k")[2] == body
    agree(both, "head_object", Key="k")
    agree(both, "put_object", Key="empty", Body=b"")
    assert agree(both, "get_object", Key="empty")[2] == b""
    for span in ("bytes=0-9", "bytes=10-", "bytes=-7", "bytes=1000-5000", "bytes=0-0"):
        assert agree(both, "get_object", Key="k", Range=span)[0] == 206
    assert agree(both, "get_object", Key="k", Range="bytes=1024-")[1] == 416
    for method in ("get_object", "head_object", "delete_object"):
        agree(both, method, Key="missing")


def test_conditions_as_in_moto(both: list[Any]) -> None:
    etag = agree(both, "put_object", Key="k", Body=b"x")[1]["ETag"]
    agree(both, "get_object", Key="k", IfMatch=etag)
    assert agree(both, "get_object", Key="k", IfMatch='"0"')[1] == 412
    assert agree(both, "get_object", Key="k", IfNoneMatch=etag)[1] == 304
    assert agree(both, "put_object", Key="k", Body=b"y", IfNoneMatch="*")[1] == 412
    agree(both, "put_object", Key="new", Body=b"y", IfNoneMatch="*")
    agree(both, "get_object", Key="k")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"Prefix": "train/"},
        {"Prefix": "train/", "Delimiter": "/"},
        {"Delimiter": "/"},
        {"Delimiter": "/", "MaxKeys": 2},
        {"MaxKeys": 3},
        {"StartAfter": "train/a/2"},
        {"Prefix": "none"},
        {"Prefix": "train/a"},
    ],
)
def test_listings_as_in_moto(both: list[Any], query: dict[str, Any]) -> None:
    for client in both:
        for key in KEYS:
            client.put_object(Bucket="twin", Key=key, Body=key.encode())
    agree(both, "list_objects_v2", **query)
    pages = [
        [
            (
                [one["Key"] for one in page.get("Contents", [])],
                [one["Prefix"] for one in page.get("CommonPrefixes", [])],
            )
            for page in client.get_paginator("list_objects_v2").paginate(Bucket="twin", **query)
        ]
        for client in both
    ]
    assert pages[0] == pages[1]


def test_copies_and_deletes_as_in_moto(both: list[Any]) -> None:
    agree(both, "put_object", Key="a/ö b", Body=b"x", Metadata={"m": "1"})
    copied = agree(both, "copy_object", Key="c", CopySource={"Bucket": "twin", "Key": "a/ö b"})
    assert "ETag" in copied[1]["CopyObjectResult"]
    assert agree(both, "head_object", Key="c")[1]["Metadata"] == {"m": "1"}
    agree(both, "delete_bucket")
    gone = agree(both, "delete_objects", Delete={"Objects": [{"Key": "a/ö b"}, {"Key": "c"}, {"Key": "none"}]})
    assert len(gone[1]["Deleted"]) == 3
    agree(both, "list_objects_v2")


def test_multipart_uploads_as_in_moto(both: list[Any]) -> None:
    etags = []
    for client in both:
        upload = client.create_multipart_upload(Bucket="twin", Key="big", Metadata={"m": "1"})["UploadId"]
        target = {"Bucket": "twin", "Key": "big", "UploadId": upload}
        parts = [
            {"PartNumber": number, "ETag": client.upload_part(**target, PartNumber=number, Body=body)["ETag"]}
            for number, body in enumerate([b"a" * (5 << 20), b"b"], 1)
        ]
        assert [one["Size"] for one in client.list_parts(**target)["Parts"]] == [5 << 20, 1]
        assert [one["Key"] for one in client.list_multipart_uploads(Bucket="twin")["Uploads"]] == ["big"]
        with pytest.raises(ClientError, match="InvalidPart"):
            client.complete_multipart_upload(
                **target, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": '"wrong"'}]}
            )
        etags.append(client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})["ETag"])
        assert client.list_multipart_uploads(Bucket="twin").get("Uploads", []) == []
    assert etags[0] == etags[1]
    assert agree(both, "get_object", Key="big")[2] == b"a" * (5 << 20) + b"b"


def test_an_aborted_upload_is_gone(store: FaultServer, s3_client: Client) -> None:
    client = s3_client(store.url)
    upload = client.create_multipart_upload(Bucket="b", Key="k")["UploadId"]
    client.abort_multipart_upload(Bucket="b", Key="k", UploadId=upload)
    with pytest.raises(ClientError, match="NoSuchUpload"):
        client.upload_part(Bucket="b", Key="k", UploadId=upload, PartNumber=1, Body=b"x")


def test_what_is_missing_is_named(store: FaultServer, s3_client: Client) -> None:
    client = s3_client(store.url)
    with pytest.raises(ClientError, match="NoSuchBucket"):
        client.get_object(Bucket="none", Key="k")
    with pytest.raises(ClientError, match="NoSuchKey"):
        client.get_object(Bucket="b", Key="none")
    with pytest.raises(ClientError, match="404"):
        client.head_bucket(Bucket="none")
    with pytest.raises(ClientError, match="NotImplemented"):
        client.get_bucket_policy(Bucket="b")


def test_checksums_are_checked_and_given_back(store: FaultServer, s3_client: Client) -> None:
    client = s3_client(store.url)
    crc32 = base64.b64encode(zlib.crc32(b"hello").to_bytes(4, "big")).decode()
    assert client.put_object(Bucket="b", Key="k", Body=b"hello")["ChecksumCRC32"] == crc32
    assert client.get_object(Bucket="b", Key="k", ChecksumMode="ENABLED")["ChecksumCRC32"] == crc32
    with pytest.raises(ClientError, match="BadDigest"):
        client.put_object(Bucket="b", Key="k", Body=b"hello", ChecksumCRC32="AAAAAA==")


def test_s3fs_lives_on_it(store: FaultServer) -> None:
    s3fs = pytest.importorskip("s3fs")
    options = {"key": "k", "secret": "s", "endpoint_url": store.url, "skip_instance_cache": True}
    fs = s3fs.S3FileSystem(client_kwargs={"region_name": "us-east-1"}, **options)
    fs.pipe_file("b/t/i/one", b"1" * 100)
    with fs.open("b/t/i/big", "wb", block_size=5 << 20) as file:
        file.write(b"2" * (11 << 20))
    assert fs.cat_file("b/t/i/one", start=10, end=20) == b"1" * 10
    assert fs.info("b/t/i/big")["size"] == 11 << 20
    assert fs.cat_file("b/t/i/big")[-3:] == b"222"
    assert sorted(fs.ls("b/t/i", detail=False)) == ["b/t/i/big", "b/t/i/one"]
    assert fs.find("b") == ["b/t/i/big", "b/t/i/one", "b/train/x/0"]
    fs.mv("b/t/i/one", "b/t/j/two")
    fs.rm("b/t", recursive=True)
    assert not fs.exists("b/t/i/big")
    with pytest.raises(FileNotFoundError):
        fs.cat_file("b/t/i/big")
