"""Credentials that ran out, a clock that is wrong, and a HEAD that cannot say so."""

from __future__ import annotations

import asyncio
import datetime
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resilient_io as rio
from resilient_io.classify.fault import FaultKind
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

from .conftest import POLICY, Cloud

pytestmark = pytest.mark.wire
ERROR, MUTE = FaultAction.ERROR, FaultAction.BODYLESS_ERROR
CODES = {"s3": [("ExpiredToken", 400), ("RequestTimeTooSkewed", 403)], "abfs": [("AuthenticationFailed", 403)]}
CURES = {"ExpiredToken": "renew them", "RequestTimeTooSkewed": "NTP", "AuthenticationFailed": "renew them"}
HEAD = {"s3": "HeadObject", "abfs": "GetBlobProperties"}
GET = {"s3": "GetObject", "abfs": "GetBlob"}


def refuse(cloud: Cloud, code: str, status: int, calls: tuple[int, ...] = ()) -> None:
    cloud.refuse(action=ERROR, code=code, status=status, calls=calls)


# -- filesystems -------------------------------------------------------------------------------------


def test_a_request_that_ran_out_is_signed_anew_once(cloud: Cloud) -> None:
    for code, status in CODES[cloud.name]:
        refuse(cloud, code, status, calls=(1,))
        assert cloud.fs.cat_file(f"{cloud.bucket}/train/1") == b"0123456789"
        assert cloud.server.stats().requests == 2


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "cat_file": lambda fs, p: fs.cat_file(f"{p}/train/1"),
    "pipe_file": lambda fs, p: fs.pipe_file(f"{p}/new", b""),
    "ls": lambda fs, p: fs.ls(f"{p}/train"),
    "find": lambda fs, p: fs.find(f"{p}/train"),
    "walk": lambda fs, p: list(fs.walk(p)),
    "rm": lambda fs, p: fs.rm(f"{p}/train/1"),
    "open": lambda fs, p: fs.open(f"{p}/train/1"),
    "mkdir": lambda fs, p: fs.mkdir(f"{p}-new"),
    "isfile": lambda fs, p: fs.isfile(f"{p}/train/1"),
    "exists": lambda fs, p: fs.exists(f"{p}/train/1"),
    "exists of the bucket": lambda fs, p: fs.exists(p),
    "info": lambda fs, p: fs.info(f"{p}/train/1"),
}


@pytest.mark.parametrize("name", CALLS)
def test_credentials_that_stay_refused_are_no_absence_and_the_text_says_the_cure(cloud: Cloud, name: str) -> None:
    before = cloud.names(), cloud.containers()
    for code, status in CODES[cloud.name]:
        refuse(cloud, code, status)
        with pytest.raises(rio.CredentialsError) as caught:
            CALLS[name](cloud.fs, cloud.bucket)
        assert isinstance(caught.value, PermissionError)
        assert CURES[code] in str(caught.value)
        assert caught.value.verdict is not None
        assert caught.value.verdict.kind is FaultKind.AUTH
        # The request, and it once more with a new signature; for a HEAD of S3 also the GET that tells, twice.
        assert cloud.server.stats().requests <= 4
    assert (cloud.names(), cloud.containers()) == before


def test_what_is_denied_is_what_it_was(cloud: Cloud) -> None:
    code = "AccessDenied" if cloud.name == "s3" else "AuthorizationPermissionMismatch"
    refuse(cloud, code, 403)
    stock = PermissionError if cloud.name == "s3" else Exception
    with pytest.raises(stock) as caught:
        cloud.fs.cat_file(f"{cloud.bucket}/train/1")
    assert not isinstance(caught.value, rio.ResilientIOError)
    assert cloud.server.stats().requests == 1


# -- a HEAD without a word ---------------------------------------------------------------------------


@pytest.fixture
def s3(_s3: Cloud, fast_clock: Any) -> Iterator[Cloud]:
    _s3.answer()
    yield _s3
    _s3.answer()


def mute_head(cloud: Cloud, status: int, *told: FaultRule) -> None:
    mute = FaultRule(action=MUTE, status=status, match=Match(op="Head*"))
    cloud.server.configure(FaultPlan(rules=(mute, *told)))
    cloud.server.reset()


def said(code: str, status: int, op: str = "*") -> FaultRule:
    return FaultRule(action=ERROR, code=code, status=status, match=Match(op=op))


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize("name", ["info", "exists", "isfile", "exists of the bucket"])
def test_a_get_says_what_a_mute_head_means(s3: Cloud, name: str, status: int) -> None:
    mute_head(s3, status, said("ExpiredToken", 400))
    with pytest.raises(rio.CredentialsError, match="renew them"):
        CALLS[name](s3.fs, "b")


def test_a_mute_head_of_what_is_denied_says_so(s3: Cloud) -> None:
    mute_head(s3, 403, said("AccessDenied", 403))
    with pytest.raises(PermissionError) as caught:
        s3.fs.info("b/train/1")
    assert not isinstance(caught.value, rio.ResilientIOError)
    assert [each.op for each in s3.server.log()] == ["HeadObject", "GetObject"]


def test_a_head_is_asked_again_where_the_get_is_let_in(s3: Cloud) -> None:
    mute = FaultRule(action=MUTE, status=403, match=Match(op="HeadObject"), calls=(1,))
    s3.server.configure(FaultPlan(rules=(mute,)))
    s3.server.reset()
    assert s3.fs.info("b/train/1")["size"] == 10
    assert [each.op for each in s3.server.log()] == ["HeadObject", "GetObject", "HeadObject"]


def client_of(cloud: Cloud) -> Any:
    import boto3

    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
    return rio.harden(boto3.client("s3", endpoint_url=cloud.server.url, **keys), POLICY)


def test_a_client_hears_the_code_of_the_get(s3: Cloud) -> None:
    from botocore.exceptions import ClientError

    client = client_of(s3)
    mute_head(s3, 400, said("ExpiredToken", 400))
    with pytest.raises(ClientError, match="renew them") as caught:
        client.head_object(Bucket="b", Key="train/1")
    assert caught.value.response["Error"]["Code"] == "ExpiredToken"
    assert caught.value.operation_name == "HeadObject"
    mute_head(s3, 403, said("NoSuchKey", 404))
    with pytest.raises(ClientError) as caught:
        client.head_object(Bucket="b", Key="train/1")
    assert caught.value.response["Error"]["Code"] == "403"


def test_the_permits_come_back(s3: Cloud) -> None:
    from resilient_io.drive import runtime as runtimes

    mute_head(s3, 400, said("ExpiredToken", 400))
    with pytest.raises(PermissionError):
        s3.fs.info("b/train/1")
    assert not any(level.in_flight for level in runtimes.runtime().gate.levels())


# -- credentials that renew themselves ---------------------------------------------------------------


def renewing(fetched: list[str], *, aio: bool) -> Any:
    """Return botocore's credentials that renew themselves; each time they get another token."""
    from aiobotocore.credentials import AioRefreshableCredentials
    from botocore.credentials import RefreshableCredentials

    def fetch() -> dict[str, str]:
        fetched.append(f"token-{len(fetched)}")
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        return {"access_key": "a", "secret_key": "s", "token": fetched[-1], "expiry_time": until.isoformat()}

    async def fetch_async() -> dict[str, str]:
        return fetch()

    cls = AioRefreshableCredentials if aio else RefreshableCredentials
    return cls.create_from_metadata(fetch(), refresh_using=fetch_async if aio else fetch, method="test")


def test_a_token_that_ran_out_is_fetched_anew_once_for_all_requests(s3: Cloud) -> None:
    fetched: list[str] = []
    client = client_of(s3)
    client._request_signer._credentials = renewing(fetched, aio=False)
    s3.refuse(action=ERROR, code="ExpiredToken", status=400, calls=(1,))
    assert client.get_object(Bucket="b", Key="train/1")["Body"].read() == b"0123456789"
    assert fetched == ["token-0", "token-1"]


def test_an_async_token_that_ran_out_is_fetched_anew(s3: Cloud) -> None:
    from aiobotocore.session import get_session

    fetched: list[str] = []

    async def read() -> bytes:
        session = get_session()
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
        async with session.create_client("s3", endpoint_url=s3.server.url, **keys) as client:
            rio.harden(client, POLICY)
            client._request_signer._credentials = renewing(fetched, aio=True)
            s3.refuse(action=ERROR, code="ExpiredToken", status=400, calls=(1,))
            answer = await client.get_object(Bucket="b", Key="train/1")
            found: bytes = await answer["Body"].read()
            return found

    assert asyncio.run(read()) == b"0123456789"
    assert fetched == ["token-0", "token-1"]


def test_no_credentials_are_no_absence(s3: Cloud, monkeypatch: pytest.MonkeyPatch, fault_server: Any) -> None:
    from resilient_io.aws.filesystem import ResilientS3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    server: FaultServer = fault_server()
    fs = ResilientS3FileSystem(endpoint_url=server.url, resilience=POLICY, skip_instance_cache=True)
    for call in (fs.exists, fs.isfile, fs.ls, fs.mkdir):
        with pytest.raises(rio.CredentialsError, match="no credentials were found"):
            call("b" if call in (fs.exists, fs.mkdir) else "b/train/1")
    assert server.stats().requests == 0


# -- Azure clients -----------------------------------------------------------------------------------


@pytest.fixture
def azure(_azure: Cloud, fast_clock: Any) -> Iterator[Cloud]:
    _azure.answer()
    yield _azure
    _azure.answer()


@pytest.mark.parametrize("aio", [False, True])
def test_an_azure_client_says_the_cure(azure: Cloud, aio: bool) -> None:
    from azure.core.exceptions import ClientAuthenticationError
    from azure.storage.blob import BlobServiceClient
    from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient

    cls: Any = AsyncBlobServiceClient if aio else BlobServiceClient
    where = azure.options["connection_string"]

    async def ask(calls: tuple[int, ...]) -> Any:
        service = cls.from_connection_string(where, **rio.azure.client_kwargs(POLICY, aio=aio))
        try:
            refuse(azure, "AuthenticationFailed", 403, calls)
            found = service.get_blob_client(azure.bucket, "train/1").get_blob_properties()
            return (await found if inspect.isawaitable(found) else found).size
        finally:
            closing = service.close()
            if inspect.isawaitable(closing):
                await closing

    assert asyncio.run(ask((1,))) == 10
    with pytest.raises(ClientAuthenticationError, match="renew them") as caught:
        asyncio.run(ask(()))
    assert caught.value.error_code == "AuthenticationFailed"  # type: ignore[attr-defined]
    assert azure.server.stats().requests == 2
