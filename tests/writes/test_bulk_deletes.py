"""DeleteObjects, whose answer speaks of each key: what it does not say, and what an error says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import resilient_io as rio
from resilient_io.errors import RetriesExhausted, ThrottledError
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Match

from .conftest import POLICY, Store

pytestmark = pytest.mark.wire
AWS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
KEYS = [f"bulk/{number}" for number in range(4)]
Send = Callable[..., dict[str, Any]]


def boto3_delete(store: Store, *, quiet: bool = False) -> dict[str, Any]:
    boto3 = pytest.importorskip("boto3")
    client = rio.harden(boto3.client("s3", endpoint_url=store.server.url, **AWS), POLICY)
    found: dict[str, Any] = client.delete_objects(Bucket="b", Delete=asked(quiet))
    return found


def aiobotocore_delete(store: Store, *, quiet: bool = False) -> dict[str, Any]:
    from aiobotocore.session import get_session

    async def call() -> dict[str, Any]:
        async with get_session().create_client("s3", endpoint_url=store.server.url, **AWS) as client:
            found: dict[str, Any] = await rio.harden(client, POLICY).delete_objects(Bucket="b", Delete=asked(quiet))
            return found

    return asyncio.run(call())


def asked(quiet: bool) -> dict[str, Any]:
    return {"Objects": [{"Key": key} for key in KEYS], "Quiet": quiet}


def answer_with(store: Store, deleted: list[str], refused: dict[str, str], **rule: Any) -> None:
    """Answer bulk deletes with rows for these keys, and count anew."""
    rows = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in deleted)
    rows += "".join(f"<Error><Key>{key}</Key><Code>{code}</Code></Error>" for key, code in refused.items())
    body = f"<DeleteResult>{rows}</DeleteResult>"
    put = FaultRule(action=FaultAction.ERROR, status=200, body=body, match=Match(op="DeleteObjects"), **rule)
    store.server.configure(FaultPlan(rules=(put,)))
    store.server.reset()


@pytest.fixture
def s3(s3_store: Store, fast_clock: Any) -> Store:
    for key in KEYS:
        s3_store.fs.pipe_file(f"b/{key}", b"x")
    return s3_store


@pytest.mark.parametrize("delete", [boto3_delete, aiobotocore_delete])
def test_a_key_that_the_answer_does_not_mention_is_asked_for_again(s3: Store, delete: Send) -> None:
    answer_with(s3, [KEYS[0], *KEYS[2:]], {}, calls=(1,))
    found = delete(s3)
    assert sorted(row["Key"] for row in found["Deleted"]) == KEYS
    assert not found.get("Errors")
    assert s3.sent()["DeleteObjects"] == 2
    assert s3.content_of(KEYS[1]) is None
    assert s3.content_of(KEYS[0]) == b"x"  # it was told as deleted, and not asked for again


@pytest.mark.parametrize("delete", [boto3_delete, aiobotocore_delete])
def test_a_key_that_no_answer_mentions_is_an_error(s3: Store, delete: Send) -> None:
    from botocore.exceptions import ClientError

    answer_with(s3, [], {})
    with pytest.raises(ClientError, match=r"4 not deleted, among them bulk/0"):
        delete(s3)
    assert s3.sent()["DeleteObjects"] == POLICY["max_attempts"]


def test_a_key_that_is_not_mentioned_beside_refused_ones_is_asked_for_again(s3: Store) -> None:
    answer_with(s3, [KEYS[0]], {KEYS[2]: "SlowDown", KEYS[3]: "AccessDenied"}, calls=(1,))
    found = boto3_delete(s3)
    assert [row["Key"] for row in found["Errors"]] == [KEYS[3]]
    assert [s3.content_of(key) for key in KEYS] == [b"x", None, None, b"x"]


@pytest.mark.parametrize("delete", [boto3_delete, aiobotocore_delete])
def test_silence_is_consent_where_only_errors_were_asked_for(s3: Store, delete: Send) -> None:
    answer_with(s3, [], {})
    assert not delete(s3, quiet=True).get("Errors")
    assert s3.sent()["DeleteObjects"] == 1


def test_keys_that_a_proxy_renames_are_all_mentioned(s3: Store) -> None:
    answer_with(s3, [f"/{key}" for key in KEYS], {})
    assert len(boto3_delete(s3)["Deleted"]) == 4
    assert s3.sent()["DeleteObjects"] == 1


@pytest.mark.parametrize(("code", "error"), [("SlowDown", ThrottledError), ("InternalError", RetriesExhausted)])
def test_rm_names_the_key_that_was_refused(s3: Store, code: str, error: type[Exception]) -> None:
    answer_with(s3, [], {KEYS[2]: code})
    with pytest.raises(error, match=r"DeleteObjects s3://b/bulk/2"):
        s3.fs.rm([f"b/{key}" for key in KEYS])


def test_rm_names_the_key_that_may_not_be_deleted(s3: Store) -> None:
    answer_with(s3, [], {KEYS[2]: "AccessDenied"})
    with pytest.raises(PermissionError, match=r"bulk/2"):
        s3.fs.rm([f"b/{key}" for key in KEYS])
