"""Clients made later: each session hands over S3 clients that are hardened, and nothing else is touched."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer

boto3 = pytest.importorskip("boto3")
aio_session = pytest.importorskip("aiobotocore.session")

import botocore.session  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402

from resilient_io.aws import sessions  # noqa: E402
from resilient_io.aws.hooks import hardening_of, soften_all  # noqa: E402

pytestmark = pytest.mark.wire

POLICY = {"backoff_base_s": 0.001, "backoff_cap_s": 0.005, "max_attempts": 3}


@pytest.fixture(autouse=True)
def _stock_again() -> Iterator[None]:
    yield
    sessions.unwatch()
    soften_all()
    boto3.DEFAULT_SESSION = None


@pytest.fixture
def broken(fault_server: Callable[..., FaultServer]) -> FaultServer:
    return fault_server(FaultPlan(rules=(FaultRule(action=FaultAction.ERROR, status=500, code="InternalError"),)))


async def make_aio(url: str | None = None) -> Any:
    session = aio_session.get_session()
    async with session.create_client("s3", endpoint_url=url) as client:
        return client


MAKERS: dict[str, Callable[[], Any]] = {
    "boto3.client": lambda: boto3.client("s3"),
    "boto3.resource": lambda: boto3.resource("s3").meta.client,
    "boto3 session": lambda: boto3.session.Session().client("s3"),
    "boto3 over a botocore session": lambda: boto3.Session(botocore_session=botocore.session.Session()).client("s3"),
    "botocore session": lambda: botocore.session.get_session().create_client("s3"),
    "aiobotocore": lambda: asyncio.run(make_aio()),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_clients_made_later_are_hardened_until_unwatch(maker: str) -> None:
    sessions.watch(POLICY)
    done = hardening_of(MAKERS[maker]())
    assert done is not None
    assert dict(done.overlay) == POLICY
    sessions.unwatch()
    assert hardening_of(MAKERS[maker]()) is None


def test_the_default_session_that_exists_is_watched_and_given_back() -> None:
    before = boto3.client("s3")
    session = boto3.DEFAULT_SESSION._session
    sessions.watch(POLICY)
    assert hardening_of(before) is None
    assert hardening_of(boto3.client("s3")) is not None
    sessions.unwatch()
    assert "create_client" not in vars(session)
    assert hardening_of(boto3.client("s3")) is None


def test_other_services_are_left_alone() -> None:
    sessions.watch(POLICY)
    client = boto3.client("dynamodb")
    assert hardening_of(client) is None
    assert "_make_api_call" not in vars(client)


def test_watch_and_unwatch_are_idempotent() -> None:
    before = list(botocore._INITIALIZERS)
    sessions.watch(POLICY)
    sessions.watch({"max_attempts": 7})
    assert len(botocore._INITIALIZERS) == len(before) + 1
    assert hardening_of(boto3.client("s3")).overlay["max_attempts"] == 7  # type: ignore[union-attr]
    assert sessions.is_watching()
    sessions.unwatch()
    sessions.unwatch()
    assert before == botocore._INITIALIZERS
    assert not sessions.is_watching()


def test_a_session_of_an_ended_watch_is_taken_by_the_next() -> None:
    sessions.watch(POLICY)
    session = boto3.Session()
    sessions.unwatch()
    assert hardening_of(session.client("s3")) is None


def test_a_factory_that_another_tool_wrapped_hands_clients_on_as_they_are() -> None:
    sessions.watch(POLICY)
    session = botocore.session.Session()
    ours = session.create_client
    session.create_client = lambda *args, **options: ours(*args, **options)
    assert hardening_of(session.create_client("s3")) is not None
    sessions.unwatch()
    assert hardening_of(session.create_client("s3")) is None


def test_sessions_are_not_kept_alive() -> None:
    sessions.watch(POLICY)
    session = botocore.session.Session()
    alive = weakref.ref(session)
    del session
    gc.collect()
    assert alive() is None


def test_a_later_client_obeys_the_policy(broken: FaultServer) -> None:
    sessions.watch(POLICY)
    with pytest.raises(ClientError):
        boto3.client("s3", endpoint_url=broken.url).head_object(Bucket="b", Key="k")
    assert len(broken.log()) == 3


def test_a_later_async_client_obeys_the_policy(broken: FaultServer) -> None:
    sessions.watch(POLICY)

    async def head() -> None:
        async with aio_session.get_session().create_client("s3", endpoint_url=broken.url) as client:
            await client.head_object(Bucket="b", Key="k")

    with pytest.raises(ClientError):
        asyncio.run(head())
    assert len(broken.log()) == 3


def test_a_stock_filesystem_made_by_its_class_does_not_multiply_the_attempts(fault_server: Any) -> None:
    """DVC imports `s3fs.S3FileSystem` itself: its clients are hardened, so its own rounds must stop."""
    import s3fs

    server = fault_server(FaultPlan(rules=(FaultRule(action=FaultAction.ERROR, status=503, code="SlowDown"),)))
    server.fill("bkt", count=1, size_bytes=8)
    stock_rounds = s3fs.S3FileSystem.retries
    sessions.watch({"max_throttle_attempts": 2, "backoff_base_s": 0.001, "backoff_cap_s": 0.002})
    try:
        fs = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=server.url, skip_instance_cache=True)
        with pytest.raises(OSError, match=r"SlowDown|reduce|throttled"):
            fs.cat_file("bkt/train/000000", start=0, end=4)
        assert server.stats().count(op="GetObject") == 2
    finally:
        sessions.unwatch()
    assert s3fs.S3FileSystem.retries == stock_rounds
