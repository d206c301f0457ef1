"""Each fault as boto3 reports it, with its own retries off; and a plan followed to the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

pytest.importorskip("boto3")
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)

Client = Callable[..., Any]


def plan(action: FaultAction, op: str, **fields: Any) -> FaultPlan:
    return FaultPlan(rules=(FaultRule(action=action, match=Match(op=op), **fields),))


@pytest.mark.parametrize(
    ("action", "fields", "code", "status"),
    [
        (FaultAction.ERROR, {}, "SlowDown", 503),
        (FaultAction.ERROR, {"status": 429}, "TooManyRequests", 429),
        (FaultAction.ERROR, {"status": 500}, "InternalError", 500),
        (FaultAction.ERROR, {"status": 400, "code": "KMS.ThrottlingException"}, "KMS.ThrottlingException", 400),
        (FaultAction.BODYLESS_ERROR, {}, "503", 503),
        (FaultAction.INVALID_XML, {}, "503", 503),
    ],
)
def test_errors(
    store: FaultServer, s3_client: Client, action: FaultAction, fields: dict[str, Any], code: str, status: int
) -> None:
    store.configure(plan(action, "GetObject", **fields))
    with pytest.raises(ClientError) as caught:
        s3_client(store.url).get_object(Bucket="b", Key="train/x/0")
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_a_head_that_is_refused_has_its_status_for_a_code(store: FaultServer, s3_client: Client) -> None:
    store.configure(plan(FaultAction.ERROR, "HeadObject"))
    with pytest.raises(ClientError, match=r"\(503\)"):
        s3_client(store.url).head_object(Bucket="b", Key="train/x/0")


@pytest.mark.parametrize(
    "action",
    [FaultAction.RESET_BEFORE, FaultAction.RESET_AFTER, FaultAction.CLOSE_BEFORE, FaultAction.CLOSE_AFTER],
)
def test_severed_connections(store: FaultServer, s3_client: Client, action: FaultAction) -> None:
    store.configure(plan(action, "PutObject", calls=(1,)))
    client = s3_client(store.url)
    with pytest.raises(ConnectionClosedError):
        client.put_object(Bucket="b", Key="new", Body=b"x")
    applied = action in (FaultAction.RESET_AFTER, FaultAction.CLOSE_AFTER)
    assert client.list_objects_v2(Bucket="b", Prefix="new")["KeyCount"] == int(applied)


@pytest.mark.parametrize(
    ("action", "error"),
    [(FaultAction.TRUNCATE, IncompleteReadError), (FaultAction.RESET_BODY, ResponseStreamingError)],
)
def test_bodies_that_die(store: FaultServer, s3_client: Client, action: FaultAction, error: type[Exception]) -> None:
    store.configure(plan(action, "GetObject", after_bytes=100))
    body = s3_client(store.url).get_object(Bucket="b", Key="train/x/0")["Body"]
    with pytest.raises((error, ResponseStreamingError)):
        body.read()


@pytest.mark.parametrize("action", [FaultAction.EARLY_END_CHUNKED, FaultAction.EARLY_END_EOF])
def test_bodies_that_end_early_and_cleanly_are_not_noticed(
    store: FaultServer, s3_client: Client, action: FaultAction
) -> None:
    store.configure(plan(action, "GetObject", after_bytes=100))
    assert len(s3_client(store.url).get_object(Bucket="b", Key="train/x/0")["Body"].read()) == 100


@pytest.mark.parametrize("action", [FaultAction.STALL_BEFORE, FaultAction.STALL_BODY])
def test_stalls(store: FaultServer, s3_client: Client, action: FaultAction) -> None:
    store.configure(plan(action, "GetObject", after_bytes=100))
    with pytest.raises(ReadTimeoutError):
        s3_client(store.url, read_timeout=0.1).get_object(Bucket="b", Key="train/x/0")["Body"].read()


def test_a_200_with_an_error_inside_is_an_error_of_a_copy(store: FaultServer, s3_client: Client) -> None:
    store.configure(plan(FaultAction.OK_WITH_ERROR, "CopyObject", code="SlowDown"))
    with pytest.raises(ClientError, match="SlowDown"):
        s3_client(store.url).copy_object(Bucket="b", Key="copy", CopySource="b/train/x/0")


def test_an_empty_200_to_a_copy_looks_like_success(store: FaultServer, s3_client: Client) -> None:
    store.configure(plan(FaultAction.OK_EMPTY, "CopyObject"))
    client = s3_client(store.url)
    assert client.copy_object(Bucket="b", Key="c", CopySource="b/train/x/0")["CopyObjectResult"] == {}
    assert client.list_objects_v2(Bucket="b", Prefix="c")["KeyCount"] == 0


def test_a_delay_and_an_ignored_range(store: FaultServer, s3_client: Client) -> None:
    client = s3_client(store.url)
    store.configure(plan(FaultAction.IGNORE_RANGE, "GetObject"))
    assert client.get_object(Bucket="b", Key="train/x/0", Range="bytes=0-9")["ContentLength"] == 1000
    store.configure(plan(FaultAction.DELAY, "GetObject", delay_s=0.01))
    assert client.get_object(Bucket="b", Key="train/x/0", Range="bytes=0-9")["ContentLength"] == 10


def test_an_ignored_if_none_match(store: FaultServer, s3_client: Client) -> None:
    client = s3_client(store.url)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket="b", Key="train/x/0", Body=b"x", IfNoneMatch="*")
    store.configure(plan(FaultAction.IGNORE_IF_NONE_MATCH, "PutObject"))
    client.put_object(Bucket="b", Key="train/x/0", Body=b"x", IfNoneMatch="*")


def test_a_script_is_followed_to_the_number(store: FaultServer, s3_client: Client) -> None:
    rules = (
        FaultRule(action=FaultAction.ERROR, match=Match(op="GetObject"), calls=(1, 2, 5), name="slow"),
        FaultRule(action=FaultAction.ERROR, match=Match(op="GetObject"), calls=(3,), status=500, name="broken"),
        FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="HeadObject"), calls=(1,)),
    )
    store.configure(FaultPlan(rules=rules))
    client = s3_client(store.url, retries={"mode": "standard", "total_max_attempts": 1})
    seen = []
    for _ in range(6):
        try:
            seen.append(client.get_object(Bucket="b", Key="train/x/0")["ResponseMetadata"]["HTTPStatusCode"])
        except ClientError as error:
            seen.append(error.response["ResponseMetadata"]["HTTPStatusCode"])
    assert seen == [503, 503, 500, 200, 503, 200]
    assert [one.cause for one in store.log(op="GetObject")] == ["slow", "slow", "broken", "", "slow", ""]
    assert store.stats().fired == (3, 1, 0)
    assert store.stats().count(status=503, outcome="fault") == 3


def test_the_attempts_of_the_sdk_are_in_the_log(
    store: FaultServer, s3_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    store.configure(plan(FaultAction.ERROR, "GetObject", calls=(1, 2)))
    client = s3_client(store.url, retries={"mode": "standard", "total_max_attempts": 3})
    client.get_object(Bucket="b", Key="train/x/0")
    log = store.log(op="GetObject")
    assert [(one.attempt, one.status) for one in log] == [("1", 503), ("2", 503), ("3", 200)]
