from __future__ import annotations

from xml.etree import ElementTree

import pytest

from resilient_io.testing import AzureProtocol, FaultPlan, FaultServer, account_ceiling, blob_ceiling
from resilient_io.testing.calls import Call, Head, Reply
from resilient_io.testing.ceilings import Gatekeeper
from resilient_io.testing.plan import Match

PROTOCOL = AzureProtocol()
LOCAL = "127.0.0.1:10000"


def parsed(method: str, target: str, host: str = LOCAL, **headers: str) -> Call:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PROTOCOL.parse(Head(method=method, target=target, headers={"host": host, **named}), prefix_depth=2)


@pytest.mark.parametrize(
    ("method", "query", "headers", "op", "op_class"),
    [
        ("GET", "", {}, "GetBlob", "read"),
        ("HEAD", "", {}, "GetBlobProperties", "read"),
        ("DELETE", "", {}, "DeleteBlob", "delete"),
        ("PUT", "", {"x_ms_blob_type": "BlockBlob"}, "PutBlob", "write"),
        ("PUT", "", {"x_ms_blob_type": "AppendBlob"}, "CreateAppendBlob", "write"),
        ("PUT", "", {"x_ms_blob_type": "PageBlob"}, "CreatePageBlob", "write"),
        ("PUT", "", {"x_ms_blob_type": "BlockBlob", "x_ms_copy_source": "u"}, "PutBlobFromURL", "write"),
        ("PUT", "", {"x_ms_copy_source": "u"}, "CopyBlob", "write"),
        ("PUT", "", {"x_ms_copy_source": "u", "x_ms_requires_sync": "true"}, "CopyBlobFromURL", "write"),
        ("PUT", "?comp=block&blockid=YQ%3D%3D", {}, "PutBlock", "write"),
        ("PUT", "?comp=block&blockid=YQ%3D%3D", {"x_ms_copy_source": "u"}, "PutBlockFromURL", "write"),
        ("PUT", "?comp=blocklist", {}, "PutBlockList", "write"),
        ("GET", "?comp=blocklist&blocklisttype=all", {}, "GetBlockList", "read"),
        ("PUT", "?comp=appendblock", {}, "AppendBlock", "write"),
        ("PUT", "?comp=appendblock", {"x_ms_copy_source": "u"}, "AppendBlockFromURL", "write"),
        ("PUT", "?comp=page", {}, "PutPage", "write"),
        ("GET", "?comp=pagelist", {}, "GetPageRanges", "read"),
        ("PUT", "?comp=metadata", {}, "SetBlobMetadata", "write"),
        ("HEAD", "?comp=metadata", {}, "GetBlobMetadata", "read"),
        ("PUT", "?comp=snapshot", {}, "SnapshotBlob", "write"),
        ("PUT", "?comp=tier", {}, "SetBlobTier", "write"),
        ("PUT", "?comp=lease", {"x_ms_lease_action": "acquire"}, "AcquireLease", "write"),
        ("POST", "?comp=query", {}, "SelectBlobContents", "read"),
        ("GET", "?restype=account&comp=properties", {}, "GetAccountInformation", "read"),
        ("GET", "?sv=2021-12-02&sig=abc", {}, "GetBlob", "read"),
        ("PATCH", "", {}, "Unknown", "write"),
        ("PUT", "", {}, "Unknown", "write"),
    ],
)
def test_the_operations_on_a_blob(method: str, query: str, headers: dict[str, str], op: str, op_class: str) -> None:
    call = parsed(method, f"/acct/data/train/x/0001.tar{query}", **headers)
    assert (call.op, call.op_class) == (op, op_class)
    assert (call.account, call.bucket, call.key, call.prefix) == ("acct", "data", "train/x/0001.tar", "train/x")


@pytest.mark.parametrize(
    ("method", "query", "op", "op_class", "prefix"),
    [
        ("PUT", "restype=container", "CreateContainer", "write", ""),
        ("DELETE", "restype=container", "DeleteContainer", "delete", ""),
        ("HEAD", "restype=container", "GetContainerProperties", "read", ""),
        ("PUT", "restype=container&comp=metadata", "SetContainerMetadata", "write", ""),
        ("GET", "restype=container&comp=acl", "GetContainerACL", "read", ""),
        ("POST", "restype=container&comp=batch", "SubmitBatch", "write", ""),
        ("GET", "restype=container&comp=list", "ListBlobs", "list", ""),
        # The prefix of a list counts up to its last slash: "train/x/a" lists in "train/x", "tr" in the container.
        ("GET", "restype=container&comp=list&prefix=train%2Fx%2Fa", "ListBlobs", "list", "train/x"),
        ("GET", "restype=container&comp=list&prefix=tr", "ListBlobs", "list", ""),
    ],
)
def test_the_operations_on_a_container(method: str, query: str, op: str, op_class: str, prefix: str) -> None:
    call = parsed(method, f"/acct/data?{query}")
    assert (call.op, call.op_class) == (op, op_class)
    assert (call.account, call.bucket, call.key, call.prefix) == ("acct", "data", "", prefix)


@pytest.mark.parametrize(
    ("method", "query", "op"),
    [
        ("GET", "comp=list", "ListContainers"),
        ("GET", "restype=service&comp=stats", "GetBlobServiceStats"),
        ("GET", "comp=blobs&where=a", "FindBlobsByTags"),
        ("POST", "comp=batch", "SubmitBatch"),
    ],
)
def test_the_operations_on_an_account(method: str, query: str, op: str) -> None:
    call = parsed(method, f"/acct?{query}")
    assert (call.op, call.account, call.bucket, call.key) == (op, "acct", "", "")


@pytest.mark.parametrize(
    ("host", "target", "account"),
    [
        ("127.0.0.1:10000", "/acct/data/a", "acct"),
        ("[::1]:10000", "/acct/data/a", "acct"),
        ("localhost", "/acct/data/a", "acct"),
        ("azurite:10000", "/acct/data/a", "acct"),
        ("127.0.0.1:10000", "/acct-secondary/data/a", "acct"),
        ("acct.blob.core.windows.net", "/data/a", "acct"),
        ("acct-secondary.blob.core.windows.net", "/data/a", "acct"),
        ("acct-ipv6.blob.core.windows.net", "/data/a", "acct"),
        ("acct.z01.blob.storage.azure.net:443", "/data/a", "acct"),
        ("acct.blob.localhost:10000", "/data/a", "acct"),
        ("data.example.org", "/data/a", "data.example.org"),
    ],
)
def test_the_account_stands_in_the_host_or_in_the_path(host: str, target: str, account: str) -> None:
    call = parsed("GET", target, host=host)
    assert (call.account, call.bucket, call.key) == (account, "data", "a")


def test_names_are_decoded_and_a_lone_blob_stands_in_the_root_container() -> None:
    assert parsed("GET", "/acct/data/a%20b%2Fc%2Fd%25").key == "a b/c/d%"
    lone = parsed("GET", "/acct/robots.txt")
    assert (lone.op, lone.bucket, lone.key) == ("GetBlob", "$root", "robots.txt")


def error(method: str = "GET", target: str = "/acct/data/a", status: int = 503, code: str | None = None) -> Reply:
    headers = {"host": LOCAL, "x-ms-version": "2025-01-05", "x-ms-client-request-id": "asked-1"}
    head = Head(method=method, target=target, headers=headers)
    call = PROTOCOL.parse(head, prefix_depth=2)
    return PROTOCOL.error(head, call, status=status, code=code, message=None, request_id="ID")


def test_an_error_is_worded_as_the_service_words_it() -> None:
    reply = error()
    named = dict(reply.headers)
    assert named["x-ms-error-code"] == "ServerBusy"
    assert (named["x-ms-request-id"], named["x-ms-client-request-id"]) == ("ID", "asked-1")
    assert named["x-ms-version"] == "2025-01-05"
    assert bytes(reply.body).startswith(b"\xef\xbb\xbf<?xml")
    root = ElementTree.fromstring(bytes(reply.body)[3:])
    assert root.findtext("Code") == "ServerBusy"
    first, second, third = (root.findtext("Message") or "").split("\n")
    assert first == "The server is currently unable to receive requests. Please retry your request."
    assert second == "RequestId:ID"
    assert third.startswith("Time:")


@pytest.mark.parametrize(
    ("status", "target", "code"),
    [
        (429, "/acct/data/a", "TooManyRequests"),
        (500, "/acct/data/a", "InternalError"),
        (404, "/acct/data/a", "BlobNotFound"),
        (404, "/acct/data?restype=container", "ContainerNotFound"),
        (409, "/acct/data?restype=container", "ContainerAlreadyExists"),
        (412, "/acct/data/a", "ConditionNotMet"),
        (418, "/acct/data/a", "InternalError"),
    ],
)
def test_a_status_has_its_code(status: int, target: str, code: str) -> None:
    assert dict(error(target=target, status=status).headers)["x-ms-error-code"] == code


def test_an_error_of_a_head_has_its_code_in_a_header_only() -> None:
    reply = error(method="HEAD", status=500, code="OperationTimedOut")
    assert dict(reply.headers)["x-ms-error-code"] == "OperationTimedOut"
    assert reply.body == b""


def test_a_client_request_id_that_is_no_plain_text_does_not_come_back() -> None:
    head = Head(method="GET", target="/acct/data/a", headers={"host": LOCAL, "x-ms-client-request-id": "a\rb"})
    call = PROTOCOL.parse(head, prefix_depth=2)
    reply = PROTOCOL.error(head, call, status=503, code=None, message=None, request_id="ID")
    assert "x-ms-client-request-id" not in dict(reply.headers)


def test_a_ceiling_of_the_account_is_one_for_all_of_its_doors_and_containers() -> None:
    keeper = Gatekeeper([account_ceiling(2)], [], now=0)
    doors = [parsed("GET", "/acct/data/train/a"), parsed("PUT", "/acct-secondary/more/b?comp=block")]
    assert [keeper.admit(one, 0) for one in doors] == [None, None]
    assert keeper.admit(doors[0], 0) is not None
    assert keeper.admit(parsed("GET", "/other/data/train/a"), 0) is None


def test_a_ceiling_of_a_blob_counts_each_blob_and_nothing_else() -> None:
    keeper = Gatekeeper([blob_ceiling(1, match=Match(account="acct"))], [], now=0)
    assert keeper.admit(parsed("GET", "/acct/data/train/a"), 0) is None
    assert keeper.admit(parsed("GET", "/acct/data/train/b"), 0) is None
    assert keeper.admit(parsed("HEAD", "/acct/data/train/a"), 0) is not None
    listing = parsed("GET", "/acct/data?restype=container&comp=list&prefix=train/a")
    assert [keeper.admit(listing, 0) for _ in range(3)] == [None] * 3
    assert [keeper.admit(parsed("GET", "/other/data/train/a"), 0) for _ in range(3)] == [None] * 3


def test_a_plan_with_ceilings_of_azure_goes_through_json() -> None:
    plan = FaultPlan(ceilings=(account_ceiling(5, burst_s=2), blob_ceiling(3)))
    assert FaultPlan.from_json(plan.to_json()) == plan


def test_azure_needs_a_store_to_stand_before() -> None:
    with pytest.raises(ValueError, match=r"no built-in store .* give an upstream \(Azurite\)"):
        FaultServer(protocol="azure")
    with pytest.raises(ValueError, match="there are s3, azure"):
        FaultServer(protocol="gcs")
