"""A 200 that holds an error, or lacks what the store always sends with it, did nothing: it is a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import resilient_io as rio
from resilient_io.errors import ThrottledError
from resilient_io.testing import FaultAction

from .conftest import POLICY, Cloud

pytestmark = [pytest.mark.wire]
ERROR, EMPTY = FaultAction.OK_WITH_ERROR, FaultAction.OK_EMPTY
AWS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
KEY = {"Bucket": "b", "Key": "train/new"}
S3_CALLS: list[tuple[str, str, FaultAction, dict[str, Any]]] = [
    ("DeleteBucket", "delete_bucket", ERROR, {"Bucket": "other"}),
    ("DeleteBucket", "delete_bucket", EMPTY, {"Bucket": "other"}),
    ("CreateBucket", "create_bucket", ERROR, {"Bucket": "third"}),
    ("DeleteObject", "delete_object", ERROR, KEY),
    ("AbortMultipartUpload", "abort_multipart_upload", ERROR, {**KEY, "UploadId": "?"}),
]


@pytest.fixture
def s3(_s3: Cloud, fast_clock: Any) -> Any:
    _s3.answer()
    for bucket in ("other", "third"):
        if _s3.fs.exists(bucket):
            _s3.fs.rmdir(bucket)
    _s3.fs.mkdir("other")
    yield _s3
    _s3.answer()


def boto3_call(cloud: Cloud, method: str, params: dict[str, Any]) -> Any:
    boto3 = pytest.importorskip("boto3")
    client = rio.harden(boto3.client("s3", endpoint_url=cloud.server.url, **AWS), POLICY)
    return getattr(client, method)(**params)


def aiobotocore_call(cloud: Cloud, method: str, params: dict[str, Any]) -> Any:
    from aiobotocore.session import get_session

    async def call() -> Any:
        async with get_session().create_client("s3", endpoint_url=cloud.server.url, **AWS) as client:
            return await getattr(rio.harden(client, POLICY), method)(**params)

    return asyncio.run(call())


@pytest.mark.parametrize("send", [boto3_call, aiobotocore_call])
@pytest.mark.parametrize(("op", "method", "action", "params"), S3_CALLS)
def test_a_false_success_of_s3_is_asked_for_again(
    s3: Cloud, send: Callable[..., Any], op: str, method: str, action: FaultAction, params: dict[str, Any]
) -> None:
    if "UploadId" in params:
        params = {**params, "UploadId": boto3_call(s3, "create_multipart_upload", KEY)["UploadId"]}
    s3.refuse(op, action, calls=(1,))
    send(s3, method, params)
    assert s3.server.stats().count(op=op) == 2


@pytest.mark.parametrize("code", ["AccessDenied", "InternalError"])
@pytest.mark.parametrize("send", [boto3_call, aiobotocore_call])
def test_an_error_inside_a_200_of_s3_is_raised(s3: Cloud, send: Callable[..., Any], code: str) -> None:
    from botocore.exceptions import ClientError

    s3.refuse("PutObjectTagging", ERROR, code=code)
    with pytest.raises(ClientError) as caught:
        send(s3, "put_object_tagging", {**KEY, "Tagging": {"TagSet": []}})
    assert caught.value.response["Error"]["Code"] == code
    assert s3.server.stats().count(op="PutObjectTagging") == (1 if code == "AccessDenied" else 2)


def test_rmdir_that_did_nothing_is_no_success(s3: Cloud) -> None:
    s3.refuse("DeleteBucket", ERROR)
    with pytest.raises(ThrottledError):
        s3.fs.rmdir("other")


def test_tags_that_are_not_in_the_answer_are_not_none(s3: Cloud) -> None:
    from botocore.exceptions import ClientError

    s3.refuse("GetObjectTagging", EMPTY)
    with pytest.raises(ClientError, match="EmptyAnswer"):
        boto3_call(s3, "get_object_tagging", KEY)


def test_an_object_that_is_an_error_document_is_read(s3: Cloud) -> None:
    document = b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>"
    s3.fs.pipe_file("b/document", document)
    assert s3.fs.cat_file("b/document") == document
    assert boto3_call(s3, "get_object", {"Bucket": "b", "Key": "document"})["Body"].read() == document
    s3.fs.rm_file("b/document")


def test_a_switched_off_library_leaves_the_answer_as_it_is(s3: Cloud) -> None:
    boto3 = pytest.importorskip("boto3")
    client = rio.harden(boto3.client("s3", endpoint_url=s3.server.url, **AWS), {"enabled": False})
    s3.refuse("DeleteBucket", ERROR)
    assert client.delete_bucket(Bucket="other")["ResponseMetadata"]["HTTPStatusCode"] == 200


AZURE_CALLS: list[tuple[str, tuple[FaultAction, ...], Callable[[Any, Any], Any]]] = [
    ("SetBlobMetadata", (ERROR, EMPTY), lambda blob, box: blob.set_blob_metadata({"a": "b"})),
    ("SetBlobProperties", (ERROR, EMPTY), lambda blob, box: blob.set_http_headers()),
    ("SetContainerMetadata", (ERROR, EMPTY), lambda blob, box: box.set_container_metadata({"a": "b"})),
    ("GetContainerProperties", (ERROR, EMPTY), lambda blob, box: box.get_container_properties()),
    ("SetBlobTier", (ERROR,), lambda blob, box: blob.set_standard_blob_tier("Cool")),
    ("SetBlobTags", (ERROR,), lambda blob, box: blob.set_blob_tags({"a": "b"})),
    ("GetBlockList", (ERROR, EMPTY), lambda blob, box: blob.get_block_list("all")),
    ("GetBlobTags", (ERROR, EMPTY), lambda blob, box: blob.get_blob_tags()),
]
AZURE_CASES = [(op, action, call) for op, actions, call in AZURE_CALLS for action in actions]


@pytest.fixture
def azure(_azure: Cloud, fast_clock: Any) -> Any:
    _azure.answer()
    yield _azure
    _azure.answer()


def azure_call(cloud: Cloud, call: Callable[[Any, Any], Any]) -> Any:
    from azure.storage.blob import BlobServiceClient

    with rio.harden(BlobServiceClient.from_connection_string(cloud.options["connection_string"]), POLICY) as service:
        return call(service.get_blob_client(cloud.bucket, "train/1"), service.get_container_client(cloud.bucket))


def azure_call_aio(cloud: Cloud, call: Callable[[Any, Any], Any]) -> Any:
    from azure.storage.blob.aio import BlobServiceClient

    async def run() -> Any:
        async with BlobServiceClient.from_connection_string(cloud.options["connection_string"]) as service:
            rio.harden(service, POLICY)
            blob, box = service.get_blob_client(cloud.bucket, "train/1"), service.get_container_client(cloud.bucket)
            return await call(blob, box)

    return asyncio.run(run())


@pytest.mark.parametrize("send", [azure_call, azure_call_aio])
@pytest.mark.parametrize(("op", "action", "call"), AZURE_CASES)
def test_a_false_success_of_azure_is_asked_for_again(
    azure: Cloud, send: Callable[..., Any], op: str, action: FaultAction, call: Callable[[Any, Any], Any]
) -> None:
    azure.refuse(op, action, calls=(1,))
    send(azure, call)
    assert azure.server.stats().count(op=op) == 2


@pytest.mark.parametrize("code", ["AuthorizationPermissionMismatch", "ServerBusy"])
@pytest.mark.parametrize("send", [azure_call, azure_call_aio])
def test_an_error_inside_a_200_of_azure_is_raised(azure: Cloud, send: Callable[..., Any], code: str) -> None:
    from azure.core.exceptions import AzureError

    azure.refuse("SetBlobTier", ERROR, code=code)
    with pytest.raises(AzureError):
        send(azure, lambda blob, box: blob.set_standard_blob_tier("Cool"))


def test_setxattrs_that_did_nothing_is_no_success(azure: Cloud) -> None:
    azure.refuse("SetBlobMetadata", ERROR)
    with pytest.raises(ThrottledError):
        azure.fs.setxattrs(f"{azure.bucket}/train/1", a="b")


def test_a_blob_that_is_an_error_document_is_read(azure: Cloud) -> None:
    document = b"<?xml version='1.0'?><Error><Code>ServerBusy</Code></Error>"
    azure.fs.pipe_file(f"{azure.bucket}/document", document)
    assert azure.fs.cat_file(f"{azure.bucket}/document") == document
    found = azure_call(azure, lambda blob, box: box.download_blob("document").readall())
    assert found == document
    azure.fs.rm_file(f"{azure.bucket}/document")
