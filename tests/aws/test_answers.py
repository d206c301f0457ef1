"""Answers that say success and are none, and what a write comes to whose answer was lost."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import pickle
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import boto3
import pytest
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.aws.hooks import harden
from resilient_io.classify import FaultKind
from resilient_io.errors import AmbiguousWriteError, RetriesExhausted, ThrottledError
from resilient_io.testing import FaultAction, FaultRule, FaultServer, Match

pytestmark = pytest.mark.wire

ATTEMPTS, THROTTLE_ATTEMPTS = 4, 3
POLICY = {
    "backoff_base_s": 0.01,
    "backoff_cap_s": 0.1,
    "max_attempts": ATTEMPTS,
    "max_throttle_attempts": THROTTLE_ATTEMPTS,
    "deadline_s": 3000,
}
OPTIONS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
KEY = {"Bucket": "b", "Key": "x/new"}
Work = Callable[["Client"], Any]


class Client:
    """A hardened client of boto3 or aiobotocore, called alike."""

    def __init__(self, kind: str, url: str, policy: dict[str, Any] | None = None) -> None:
        self.kind, self.url, self.policy = kind, url, policy or POLICY
        self.bodies: list[bytes] = []

    def __call__(self, method: str, **params: Any) -> Any:
        if self.kind == "boto3":
            client = harden(boto3.client("s3", endpoint_url=self.url, **OPTIONS), self.policy)
            client.meta.events.register("before-send.s3.DeleteObjects", self._note)
            return getattr(client, method)(**params)
        return asyncio.run(self._call(method, params))

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        async with self.open() as client:
            client.meta.events.register("before-send.s3.DeleteObjects", self._note)
            return await getattr(client, method)(**params)

    def _note(self, request: Any, **_: Any) -> None:
        self.bodies.append(request.body)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        async with get_session().create_client("s3", endpoint_url=self.url, **OPTIONS) as client:
            yield harden(client, self.policy)


@pytest.fixture(params=["boto3", "aiobotocore"])
def client(request: pytest.FixtureRequest, store: FaultServer, fast_clock: Any) -> Client:
    return Client(request.param, store.url)


@pytest.fixture
def fs(store: FaultServer, fast_clock: Any) -> Any:
    return ResilientS3FileSystem(
        endpoint_url=store.url, resilience=POLICY, skip_instance_cache=True, use_listings_cache=False
    )


def sent(server: FaultServer) -> Counter[str]:
    return Counter(exchange.op for exchange in server.log())


def empty(op: str, calls: tuple[int, ...] = ()) -> FaultRule:
    return FaultRule(action=FaultAction.OK_EMPTY, match=Match(op=op), calls=calls)


def inside(op: str, code: str = "InternalError", calls: tuple[int, ...] = ()) -> FaultRule:
    return FaultRule(action=FaultAction.OK_WITH_ERROR, match=Match(op=op), code=code, calls=calls)


def lost(op: str, calls: tuple[int, ...] = (1,)) -> FaultRule:
    return FaultRule(action=FaultAction.RESET_AFTER, match=Match(op=op), calls=calls)


def not_deleted(code: str, calls: tuple[int, ...] = (), key: str = "x/1") -> FaultRule:
    row = f"<Error><Key>{key}</Key><Code>{code}</Code><Message>no</Message></Error>"
    body = f"<DeleteResult><Deleted><Key>other</Key></Deleted>{row}</DeleteResult>"
    return FaultRule(action=FaultAction.ERROR, status=200, body=body, match=Match(op="DeleteObjects"), calls=calls)


def begun_upload(store: FaultServer) -> dict[str, Any]:
    plain = boto3.client("s3", endpoint_url=store.url, **OPTIONS)
    upload = plain.create_multipart_upload(**KEY)["UploadId"]
    etag = plain.upload_part(**KEY, UploadId=upload, PartNumber=1, Body=b"data")["ETag"]
    return {**KEY, "UploadId": upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}


@pytest.fixture
def upload(store: FaultServer) -> dict[str, Any]:
    """Return the parameters that complete an upload of one part; the object is not there before."""
    boto3.client("s3", endpoint_url=store.url, **OPTIONS).delete_object(**KEY)
    return begun_upload(store)


COPY = {**KEY, "CopySource": "b/train/000001"}
DELETE = {"Bucket": "b", "Delete": {"Objects": [{"Key": "x/1"}, {"Key": "other"}]}}


# -- a 200 without the result, or with an error inside ---------------------------------------------------


@pytest.mark.parametrize("fault", [empty, inside], ids=["empty", "error-inside"])
@pytest.mark.parametrize(
    ("op", "method", "params", "member"),
    [
        ("CopyObject", "copy_object", COPY, "CopyObjectResult"),
        ("CreateMultipartUpload", "create_multipart_upload", KEY, "UploadId"),
        ("ListObjectsV2", "list_objects_v2", {"Bucket": "b", "Prefix": "train/"}, "Contents"),
    ],
)
def test_an_answer_without_its_result_is_asked_for_again(
    client: Client, plan_of: Any, idle: Any, fault: Any, op: str, method: str, params: dict[str, Any], member: str
) -> None:
    server = plan_of(fault(op, calls=(1, 2)))
    assert client(method, **params)[member]
    assert sent(server) == {op: 3}
    assert idle()


@pytest.mark.parametrize("fault", [empty, inside], ids=["empty", "error-inside"])
@pytest.mark.parametrize("op", ["PutObject", "UploadPart", "DeleteObjects"])
def test_a_write_without_its_result_is_sent_again(
    client: Client, store: FaultServer, plan_of: Any, idle: Any, fault: Any, op: str
) -> None:
    """A 200 with nothing inside: the bytes, or the keys, may be where they were."""
    begun = begun_upload(store)
    part = {**KEY, "UploadId": begun["UploadId"], "PartNumber": 2, "Body": b"more"}
    method, params = {
        "PutObject": ("put_object", {**KEY, "Body": b"data"}),
        "UploadPart": ("upload_part", part),
        "DeleteObjects": ("delete_objects", DELETE),
    }[op]
    server = plan_of(fault(op, calls=(1,)))
    client(method, **params)
    assert sent(server) == {op: 2}
    plan_of(fault(op))
    with pytest.raises(ClientError):
        client(method, **params)
    assert idle()


@pytest.mark.parametrize("fault", [empty, inside], ids=["empty", "error-inside"])
def test_an_answer_that_never_has_its_result_is_an_error(client: Client, plan_of: Any, fault: Any, idle: Any) -> None:
    server = plan_of(fault("CopyObject"))
    with pytest.raises(ClientError, match=rf"transient \([\w-]+\) after {ATTEMPTS} attempts") as raised:
        client("copy_object", **COPY)
    assert sent(server) == {"CopyObject": ATTEMPTS}
    assert raised.value.attempts == ATTEMPTS  # type: ignore[attr-defined]
    assert idle()


@pytest.mark.parametrize("fault", [empty, inside], ids=["empty", "error-inside"])
def test_a_filesystem_says_so_too(fs: Any, plan_of: Any, fault: Any) -> None:
    server = plan_of(fault("CopyObject"))
    with pytest.raises(RetriesExhausted, match=r"CopyObject s3://b/q"):
        fs.cp_file("b/train/000001", "b/q")
    assert sent(server)["CopyObject"] == ATTEMPTS


def test_an_empty_prefix_is_a_good_answer(client: Client, plan_of: Any) -> None:
    server = plan_of()
    assert client("list_objects_v2", Bucket="b", Prefix="nothing/")["KeyCount"] == 0
    assert sent(server) == {"ListObjectsV2": 1}


# -- keys that a bulk delete left -------------------------------------------------------------------------


def test_keys_that_were_refused_for_load_are_deleted_by_a_repeat(client: Client, plan_of: Any) -> None:
    server = plan_of(not_deleted("SlowDown", calls=(1,)))
    assert "Errors" not in client("delete_objects", **DELETE)
    assert sent(server) == {"DeleteObjects": 2}


def test_keys_that_stay_refused_for_load_are_an_error(client: Client, plan_of: Any, idle: Any) -> None:
    server = plan_of(not_deleted("SlowDown"))
    with pytest.raises(ClientError, match=r"1 not deleted, among them x/1") as raised:
        client("delete_objects", **DELETE)
    assert raised.value.response["Error"]["Code"] == "SlowDown"
    assert sent(server) == {"DeleteObjects": THROTTLE_ATTEMPTS}
    assert idle()


def test_only_the_keys_that_were_refused_are_asked_for_again(client: Client, store: FaultServer, plan_of: Any) -> None:
    """A row for each key: what a round deleted, and what may not be deleted, is not asked for a second time."""
    keys = [f"x/{number}" for number in range(5)]

    def answered(deleted: list[str], refused: list[str], denied: list[str]) -> str:
        rows = [f"<Deleted><Key>{key}</Key></Deleted>" for key in deleted]
        for code, some in (("SlowDown", refused), ("AccessDenied", denied)):
            rows += [f"<Error><Key>{key}</Key><Code>{code}</Code><Message>no</Message></Error>" for key in some]
        return f"<DeleteResult>{''.join(rows)}</DeleteResult>"

    bodies = [
        answered(keys[:1], keys[1:4], keys[4:]),
        answered(keys[1:2], keys[2:4], []),
        answered([], keys[2:4], []),
        answered(keys[2:4], [], []),
    ]
    on = {"action": FaultAction.ERROR, "status": 200, "match": Match(op="DeleteObjects")}
    rules = [FaultRule(body=body, calls=(call,), **on) for call, body in enumerate(bodies, 1)]
    server = plan_of(*rules)
    objects = [{"Key": key} for key in keys]
    answer = client("delete_objects", Bucket="b", Delete={"Objects": objects})
    assert sorted(row["Key"] for row in answer["Deleted"]) == keys[:4]
    assert [(row["Key"], row["Code"]) for row in answer["Errors"]] == [("x/4", "AccessDenied")]
    assert len(server.log(op="DeleteObjects")) == 4
    asked = [re.findall(rb"<Key>x/(\d)</Key>", body) for body in client.bodies]
    assert asked == [[b"0", b"1", b"2", b"3", b"4"], [b"1", b"2", b"3"], [b"2", b"3"], [b"2", b"3"]]


def test_keys_that_may_not_be_deleted_stay_in_the_answer(client: Client, plan_of: Any) -> None:
    server = plan_of(not_deleted("AccessDenied"))
    assert [row["Code"] for row in client("delete_objects", **DELETE)["Errors"]] == ["AccessDenied"]
    assert sent(server) == {"DeleteObjects": 1}


def test_rm_does_not_drop_what_it_could_not_delete(fs: Any, plan_of: Any) -> None:
    plan_of(not_deleted("AccessDenied"))
    with pytest.raises(PermissionError, match="x/1"):
        fs.rm("b/train/000003")
    plan_of(not_deleted("SlowDown"))
    with pytest.raises(ThrottledError, match="DeleteObjects s3://b/train/000003"):
        fs.rm("b/train/000003")


def test_rm_of_a_key_that_is_gone_is_no_error(fs: Any, plan_of: Any) -> None:
    plan_of(not_deleted("NoSuchKey"))
    fs.rm("b/train/000003")


# -- writes whose answer was lost ---------------------------------------------------------------------------


def _absent(store: FaultServer) -> None:
    boto3.client("s3", endpoint_url=store.url, **OPTIONS).delete_object(**KEY)


def test_a_create_whose_request_was_lost_is_repeated(client: Client, store: FaultServer, plan_of: Any) -> None:
    _absent(store)
    server = plan_of(FaultRule(action=FaultAction.RESET_BEFORE, calls=(1,)))
    client("put_object", **KEY, Body=b"data", IfNoneMatch="*")
    assert sent(server) == {"PutObject": 2}


def test_a_create_that_meets_its_own_work_is_done(
    client: Client, store: FaultServer, plan_of: Any, idle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _absent(store)
    for body in (b"data", "data", io.BytesIO(b"__data")):
        if isinstance(body, io.BytesIO):
            body.seek(2)
        server = plan_of(lost("PutObject"))
        answer = client("put_object", **KEY, Body=body, IfNoneMatch="*", Metadata={"Who": "me"})
        assert answer["ETag"] == f'"{hashlib.md5(b"data").hexdigest()}"'
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert sent(server) == {"PutObject": 2, "HeadObject": 1}
        assert idle()
        _absent(store)
    assert "gave up" not in caplog.text


@pytest.mark.parametrize(
    "there", [{"Body": b"other"}, {"Body": b"more"}, {"Body": b"data", "Metadata": {"who": "another"}}]
)
def test_a_create_that_was_lost_and_comes_second_is_refused(
    client: Client, store: FaultServer, plan_of: Any, there: dict[str, Any]
) -> None:
    """Neither the length, nor the bytes, nor the metadata of another writer are taken for ours."""
    plain = boto3.client("s3", endpoint_url=store.url, **OPTIONS)
    plain.put_object(**KEY, **there)
    server = plan_of(FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="PutObject"), calls=(1,)))
    with pytest.raises(ClientError) as raised:
        client("put_object", **KEY, Body=b"data", IfNoneMatch="*", Metadata={"who": "me"})
    assert raised.value.response["Error"]["Code"] == "PreconditionFailed"
    assert not isinstance(raised.value, AmbiguousWriteError)
    assert sent(server) == {"PutObject": 2, "HeadObject": 1}
    assert plain.get_object(**KEY)["Body"].read() == there["Body"]


LOOK_FAILS = FaultRule(action=FaultAction.ERROR, match=Match(op="HeadObject"), status=405, code="MethodNotAllowed")


def test_a_create_that_cannot_be_looked_up_is_ambiguous(
    client: Client, store: FaultServer, plan_of: Any, idle: Any
) -> None:
    _absent(store)
    server = plan_of(lost("PutObject"), LOOK_FAILS)
    with pytest.raises(AmbiguousWriteError, match=r"ambiguous \(precondition-code\) after 2 attempts") as raised:
        client("put_object", **KEY, Body=b"data", IfNoneMatch="*")
    error = raised.value
    assert isinstance(error, ClientError)
    assert error.response["Error"]["Code"] == "AmbiguousWrite"
    assert error.response["Error"]["StoreCode"] == "PreconditionFailed"
    assert error.verdict is not None
    assert error.verdict.kind is FaultKind.AMBIGUOUS
    assert sent(server) == {"PutObject": 2, "HeadObject": 1}
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.record, again.response) == (str(error), error.record, error.response)
    assert idle()


def test_a_conditional_overwrite_is_looked_up_too(client: Client, store: FaultServer, plan_of: Any) -> None:
    plain = boto3.client("s3", endpoint_url=store.url, **OPTIONS)
    etag = plain.put_object(**KEY, Body=b"old")["ETag"]
    server = plan_of(lost("PutObject"))
    assert client("put_object", **KEY, Body=b"new", IfMatch=etag)["ETag"]
    assert sent(server) == {"PutObject": 2, "HeadObject": 1}
    plan_of(FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="PutObject"), calls=(1,)))
    with pytest.raises(AmbiguousWriteError):  # who changed it may have come before or after us
        client("put_object", **KEY, Body=b"newer", IfMatch=etag)


def test_a_create_without_any_answer_is_looked_up_once(client: Client, store: FaultServer, plan_of: Any) -> None:
    _absent(store)
    server = plan_of(FaultRule(action=FaultAction.RESET_AFTER, match=Match(op="PutObject")))
    assert client("put_object", **KEY, Body=b"data", IfNoneMatch="*")["ETag"]
    assert sent(server) == {"PutObject": ATTEMPTS, "HeadObject": 1}
    _absent(store)
    server = plan_of(FaultRule(action=FaultAction.RESET_BEFORE))
    with pytest.raises(BotoCoreError, match=r"ambiguous \([\w-]+\) after"):
        client("put_object", **KEY, Body=b"data", IfNoneMatch="*")
    assert sent(server) == {"PutObject": ATTEMPTS, "HeadObject": 1}


def test_an_append_at_a_position_is_looked_up(client: Client, store: FaultServer, plan_of: Any) -> None:
    """The store in memory knows no appends: what it would refuse a repeat with is scripted."""
    plain = boto3.client("s3", endpoint_url=store.url, **OPTIONS)
    again = {"match": Match(op="PutObject"), "calls": (2,)}
    refused = FaultRule(action=FaultAction.ERROR, status=400, code="InvalidWriteOffset", **again)  # type: ignore[arg-type]
    for there, ours in ((b"data", True), (b"atad", False), (b"dat", False)):
        plain.put_object(**KEY, Body=there)
        server = plan_of(FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="PutObject"), calls=(1,)), refused)
        if ours:
            client("put_object", **KEY, Body=b"data", WriteOffsetBytes=0)
        else:
            with pytest.raises(AmbiguousWriteError):
                client("put_object", **KEY, Body=b"data", WriteOffsetBytes=0)
        assert sent(server) == {"PutObject": 2, "GetObject": 1}
        assert plain.get_object(**KEY)["Body"].read() == there


def test_a_create_that_meets_the_work_of_others_is_refused(client: Client, plan_of: Any) -> None:
    params = {"Bucket": "b", "Key": "train/000002", "Body": b"data", "IfNoneMatch": "*"}
    server = plan_of(FaultRule(action=FaultAction.ERROR, calls=(1,)))  # a 503 says that nothing was done
    with pytest.raises(ClientError) as raised:
        client("put_object", **params)
    assert raised.value.response["Error"]["Code"] == "PreconditionFailed"
    assert not isinstance(raised.value, AmbiguousWriteError)
    assert sent(server) == {"PutObject": 2}


@pytest.mark.parametrize(
    "fault",
    [
        FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="CompleteMultipartUpload"), calls=(1,)),
        empty("CompleteMultipartUpload", calls=(1,)),
        inside("CompleteMultipartUpload", calls=(1,)),
        inside("CompleteMultipartUpload", "SlowDown", calls=(1,)),
    ],
    ids=["lost", "empty", "error-inside", "refusal-inside"],
)
def test_a_completion_is_repeated(client: Client, upload: dict[str, Any], plan_of: Any, fault: FaultRule) -> None:
    server = plan_of(fault)
    assert client("complete_multipart_upload", **upload)["ETag"]
    assert sent(server) == {"CompleteMultipartUpload": 2}


def test_a_completion_that_meets_its_own_work_is_done(client: Client, upload: Any, plan_of: Any) -> None:
    server = plan_of(lost("CompleteMultipartUpload"))
    answer = client("complete_multipart_upload", **upload)
    assert answer["ETag"].endswith('-1"')
    assert (answer["Bucket"], answer["Key"]) == (KEY["Bucket"], KEY["Key"])
    assert sent(server) == {"CompleteMultipartUpload": 2, "HeadObject": 1}


def test_a_completion_that_finds_another_object_is_ambiguous(
    client: Client, store: FaultServer, upload: Any, plan_of: Any
) -> None:
    plain = boto3.client("s3", endpoint_url=store.url, **OPTIONS)
    plain.put_object(**KEY, Body=b"of another")
    plain.abort_multipart_upload(**KEY, UploadId=upload["UploadId"])
    server = plan_of(FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="CompleteMultipartUpload"), calls=(1,)))
    with pytest.raises(AmbiguousWriteError, match="read the object back") as raised:
        client("complete_multipart_upload", **upload)
    assert raised.value.response["Error"]["StoreCode"] == "NoSuchUpload"  # type: ignore[attr-defined]
    assert sent(server) == {"CompleteMultipartUpload": 2, "HeadObject": 1}


def test_a_completion_of_an_upload_that_was_aborted_meanwhile_is_not_found(
    client: Client, store: FaultServer, upload: Any, plan_of: Any
) -> None:
    plain = boto3.client("s3", endpoint_url=store.url, **OPTIONS)
    plain.abort_multipart_upload(**KEY, UploadId=upload["UploadId"])
    plan_of(FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="CompleteMultipartUpload"), calls=(1,)))
    with pytest.raises(ClientError) as raised:
        client("complete_multipart_upload", **upload)
    assert raised.value.response["Error"]["Code"] == "NoSuchUpload"


def test_a_completion_of_nothing_is_not_found(client: Client, upload: dict[str, Any], plan_of: Any) -> None:
    server = plan_of()
    with pytest.raises(ClientError) as raised:
        client("complete_multipart_upload", **{**upload, "UploadId": "none"})
    assert raised.value.response["Error"]["Code"] == "NoSuchUpload"
    assert sent(server) == {"CompleteMultipartUpload": 1}


def test_a_completion_that_never_answers_is_ambiguous_within_the_policy(
    client: Client, upload: dict[str, Any], plan_of: Any, idle: Any
) -> None:
    server = plan_of(FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="CompleteMultipartUpload")))
    with pytest.raises(BotoCoreError, match=r"ambiguous \([\w-]+\) after") as raised:
        client("complete_multipart_upload", **upload)
    assert raised.value.verdict.kind is FaultKind.AMBIGUOUS  # type: ignore[attr-defined]
    assert sent(server) == {"CompleteMultipartUpload": ATTEMPTS, "HeadObject": 1}
    assert idle()


def test_a_filesystem_never_says_that_its_own_file_exists(fs: Any, store: FaultServer, plan_of: Any) -> None:
    _absent(store)
    server = plan_of(lost("PutObject"))
    fs.pipe_file("b/x/new", b"data", mode="create")
    assert sent(server) == {"PutObject": 2, "HeadObject": 1}
    plan_of()
    with pytest.raises(OSError, match="pre-conditions") as raised:
        fs.pipe_file("b/x/new", b"data", mode="create")
    assert not isinstance(raised.value, AmbiguousWriteError)
    _absent(store)
    plan_of(lost("PutObject"), LOOK_FAILS)
    with pytest.raises(AmbiguousWriteError) as raised:
        fs.pipe_file("b/x/new", b"data", mode="create")
    assert not isinstance(raised.value, FileExistsError)


def test_a_large_file_whose_completion_was_lost_is_there(fs: Any, store: FaultServer, plan_of: Any) -> None:
    server = plan_of(lost("CompleteMultipartUpload"))
    data = os.urandom(11 * 2**20)
    for write in (lambda: _write_file(fs, data), lambda: fs.pipe_file("b/x/large", data, chunksize=5 * 2**20)):
        write()
        assert sent(server)["CompleteMultipartUpload"] == 2
        assert sent(server)["AbortMultipartUpload"] == 0
        server = plan_of(lost("CompleteMultipartUpload"))
        assert fs.cat_file("b/x/large") == data


def _write_file(fs: Any, data: bytes) -> None:
    with fs.open("b/x/large", "wb", block_size=5 * 2**20) as file:
        file.write(data)


# -- what a second try finds done -----------------------------------------------------------------------------


def test_a_bucket_whose_making_or_deleting_was_not_answered_is_done(
    client: Client, store: FaultServer, plan_of: Any
) -> None:
    server = plan_of(lost("CreateBucket"))
    client("create_bucket", Bucket="new")
    assert sent(server) == {"CreateBucket": 2}
    server = plan_of(lost("DeleteBucket"))
    client("delete_bucket", Bucket="new")
    assert sent(server) == {"DeleteBucket": 2}
    with pytest.raises(ClientError, match="NoSuchBucket"):
        client("delete_bucket", Bucket="new")


def test_a_bucket_that_is_ours_already_is_told_only_after_a_lost_answer(client: Client, plan_of: Any) -> None:
    owned = FaultRule(action=FaultAction.ERROR, status=409, code="BucketAlreadyOwnedByYou")
    plan_of(owned)
    with pytest.raises(ClientError, match="BucketAlreadyOwnedByYou"):
        client("create_bucket", Bucket="b")
    plan_of(FaultRule(action=FaultAction.RESET_BEFORE, calls=(1,)), owned)
    assert client("create_bucket", Bucket="b")["Location"] == "/b"


def test_an_abort_whose_answer_was_lost_is_done(client: Client, upload: Any, plan_of: Any) -> None:
    place = {**KEY, "UploadId": upload["UploadId"]}
    server = plan_of(lost("AbortMultipartUpload"))
    client("abort_multipart_upload", **place)
    assert sent(server) == {"AbortMultipartUpload": 2}
    with pytest.raises(ClientError, match="NoSuchUpload"):
        client("abort_multipart_upload", **place)


def test_a_delete_and_a_copy_whose_answers_were_lost_are_done(client: Client, store: FaultServer, plan_of: Any) -> None:
    server = plan_of(lost("CopyObject"))
    assert client("copy_object", **COPY)["CopyObjectResult"]
    assert sent(server) == {"CopyObject": 2}
    server = plan_of(lost("DeleteObject"))
    client("delete_object", **KEY)
    assert sent(server) == {"DeleteObject": 2}


def test_an_overwrite_whose_answer_was_lost_is_repeated(client: Client, plan_of: Any) -> None:
    server = plan_of(lost("PutObject"))
    client("put_object", Bucket="b", Key="x/plain", Body=b"data")
    assert sent(server) == {"PutObject": 2}


# -- a request that the SDK sends while it prepares another -------------------------------------------------


def test_a_request_inside_another_does_not_wait_for_it(store: FaultServer, plan_of: Any, idle: Any) -> None:
    """As S3 Express asks for a session while it signs: at the cap the inner one would wait for the outer for ever."""
    server = plan_of()
    place = {"Bucket": "b", "Key": "train/000001"}
    client = harden(boto3.client("s3", endpoint_url=store.url, **OPTIONS), {"max_concurrency": 1, "deadline_s": 2})

    def nested(**_: Any) -> None:
        client.meta.events.unregister("before-sign.s3.GetObject", nested)
        client.get_object(**place)["Body"].read()

    client.meta.events.register("before-sign.s3.GetObject", nested)
    assert len(client.get_object(**place)["Body"].read()) == 4096
    assert sent(server) == {"GetObject": 2}
    assert idle()


def test_an_async_request_inside_another_does_not_wait_for_it(store: FaultServer, plan_of: Any, idle: Any) -> None:
    server = plan_of()
    place = {"Bucket": "b", "Key": "train/000001"}

    async def run() -> int:
        async with Client("aiobotocore", store.url, {"max_concurrency": 1, "deadline_s": 2}).open() as client:

            async def nested(**_: Any) -> None:
                client.meta.events.unregister("before-sign.s3.GetObject", nested)
                await (await client.get_object(**place))["Body"].read()

            client.meta.events.register("before-sign.s3.GetObject", nested)
            return len(await (await client.get_object(**place))["Body"].read())

    assert asyncio.run(run()) == 4096
    assert sent(server) == {"GetObject": 2}
    assert idle()


@pytest.mark.parametrize("action", [FaultAction.OK_WITH_ERROR, FaultAction.OK_EMPTY])
def test_an_error_that_comes_as_the_body_of_a_read_is_not_data(
    plan_of: Callable[..., FaultServer], client: Client, action: FaultAction
) -> None:
    """A 200 without an ETag, empty or an XML document, is no object: it is asked for again, whole or in part."""
    found = {"Bucket": "b", "Key": "train/000001"}
    want = _body(client, found)
    for part in ({}, {"Range": "bytes=100-199"}):
        server = plan_of(FaultRule(action=action, match=Match(op="GetObject"), calls=(1,)))
        assert _body(client, {**found, **part}) == (want[100:200] if part else want)
        assert len(server.log(op="GetObject")) == 2
    plan_of(FaultRule(action=action, match=Match(op="GetObject")))
    with pytest.raises((ClientError, BotoCoreError)):
        _body(client, found)


def _body(client: Client, found: dict[str, str]) -> bytes:
    if client.kind == "boto3":
        body: bytes = client("get_object", **found)["Body"].read()
        return body

    async def read() -> bytes:
        async with client.open() as opened:
            answer = await opened.get_object(**found)
            data: bytes = await answer["Body"].read()
            return data

    return asyncio.run(read())


@pytest.mark.parametrize("action", [FaultAction.RESET_BEFORE, FaultAction.RESET_AFTER, FaultAction.ERROR])
def test_a_stream_that_does_not_stand_at_its_beginning_is_not_sent_from_there(
    client: Client, store: FaultServer, plan_of: Any, action: FaultAction
) -> None:
    """botocore rewinds to position 0 before each repeat."""
    body = io.BytesIO(b"before" + bytes(range(256)) * 100)
    body.seek(6)
    plan_of(FaultRule(action=action, match=Match(op="PutObject"), calls=(1,)))
    client("put_object", **KEY, Body=body)
    plain = boto3.client("s3", endpoint_url=store.url, **OPTIONS)
    assert plain.get_object(**KEY)["Body"].read() == bytes(range(256)) * 100
    assert not body.closed
