"""Answers that the SDK takes for good."""

from __future__ import annotations

from typing import Any

import pytest

from resilient_io.classify import Fault, FaultKind, judge, judge_answer, key_faults

K = FaultKind
ERROR = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>m</Message></Error>'
XML = {"Content-Type": "application/xml", "x-amz-request-id": "EXAMPLE"}


def answer(operation: str, status: int = 200, headers: dict[str, str] | None = None, **what: Any) -> Fault | None:
    return judge_answer(operation=operation, status=status, headers=XML if headers is None else headers, **what)


def kind(fault: Fault | None) -> FaultKind | None:
    return None if fault is None else judge(fault).kind


@pytest.mark.parametrize(
    ("operation", "code", "expected"),
    [
        ("CompleteMultipartUpload", b"InternalError", K.AMBIGUOUS),
        ("CompleteMultipartUpload", b"SlowDown", K.THROTTLED),
        ("CopyObject", b"InternalError", K.TRANSIENT),
        ("UploadPartCopy", b"SlowDown", K.THROTTLED),
        ("ListObjectsV2", b"AccessDenied", K.FATAL),
        ("GetObject", b"SlowDown", K.THROTTLED),
    ],
)
def test_error_inside_a_200_is_noticed(operation: str, code: bytes, expected: FaultKind) -> None:
    fault = answer(operation, body=b"  \n" + ERROR % code)
    assert kind(fault) is expected
    assert fault is not None
    assert fault.request_id == "EXAMPLE"


def test_object_that_is_an_error_document_is_a_good_answer() -> None:
    assert answer("GetObject", headers={**XML, "ETag": '"0"'}, body=ERROR % b"SlowDown") is None
    assert answer("GetObject", body=b"<Errors><Code>SlowDown</Code></Errors>") is None
    assert answer("GetObject", body=b"text <Error><Code>SlowDown</Code></Error>") is None


def test_error_without_a_code_is_a_server_error() -> None:
    assert kind(answer("CopyObject", body=b"<Error/>" + b"<Error></Error>")) is K.TRANSIENT


@pytest.mark.parametrize(
    ("operation", "parsed", "expected"),
    [
        ("CompleteMultipartUpload", {}, K.AMBIGUOUS),
        ("complete_multipart_upload", {"Location": "x"}, K.AMBIGUOUS),
        ("CompleteMultipartUpload", {"ETag": '"a-1"'}, None),
        ("CopyObject", {}, K.TRANSIENT),
        ("CopyObject", {"CopyObjectResult": {"ETag": '"a"'}}, None),
        ("UploadPartCopy", {}, K.TRANSIENT),
        ("UploadPartCopy", {"CopyPartResult": {"ETag": '"a"'}}, None),
        ("CreateMultipartUpload", {}, K.TRANSIENT),
        ("CreateMultipartUpload", {"UploadId": "u"}, None),
        ("ListObjectsV2", {}, K.TRANSIENT),
        ("ListObjectsV2", {"KeyCount": 0, "IsTruncated": False}, None),
        ("PutObject", {}, K.TRANSIENT),
        ("PutObject", {"ETag": '"a"'}, None),
        ("PutObject-IfNoneMatch", {}, K.AMBIGUOUS),
        ("UploadPart", {}, K.TRANSIENT),
        ("DeleteObject", {}, None),
        ("GetObjectTagging", {}, K.TRANSIENT),
        ("GetObjectTagging", {"TagSet": []}, None),
        ("DeleteObjects", {}, None),
        ("HeadObject", {}, K.TRANSIENT),
    ],
)
def test_empty_result_is_noticed(operation: str, parsed: dict[str, Any], expected: FaultKind | None) -> None:
    parsed = {"ResponseMetadata": {"HTTPStatusCode": 200}, **parsed}
    assert kind(answer(operation, parsed=parsed)) is expected


@pytest.mark.parametrize(
    ("operation", "status", "headers", "expected"),
    [
        ("PutObject", 200, {"ETag": '"a"'}, None),
        ("PutObject-IfNoneMatch", 200, {"Content-Length": "0"}, K.AMBIGUOUS),
        ("PutObject", 200, {}, None),
        ("HeadObject", 200, {"Content-Length": "0", "Last-Modified": "Mon"}, None),
        ("HeadObject", 200, {"Content-Length": "7"}, None),
        ("GetBlobProperties", 200, {"x-ms-request-id": "r"}, K.TRANSIENT),
        ("PutBlob", 200, {"x-ms-request-id": "r"}, K.TRANSIENT),
        ("PutBlob", 201, {"x-ms-request-id": "r"}, None),
        ("DeleteBlob", 200, {"x-ms-request-id": "r"}, K.TRANSIENT),
        ("DeleteObjects", 200, {"Content-Length": "0"}, K.TRANSIENT),
        ("DeleteObjects", 200, {"Content-Length": "60"}, None),
        ("DeleteBucket", 200, {"Content-Length": "0"}, K.AMBIGUOUS),
        ("DeleteBucket", 204, {"Content-Length": "0"}, None),
        ("DeleteObject", 200, {"Content-Length": "0"}, None),
        ("CreateBucket", 200, {"Content-Length": "0"}, None),
        ("SetBlobMetadata", 200, {"x-ms-request-id": "r"}, K.TRANSIENT),
        ("SetBlobMetadata", 200, {"x-ms-request-id": "r", "ETag": "1"}, None),
        ("SetBlobTier", 200, {"x-ms-request-id": "r"}, None),
    ],
)
def test_success_that_the_store_would_not_have_said_is_noticed(
    operation: str, status: int, headers: dict[str, str], expected: FaultKind | None
) -> None:
    assert kind(answer(operation, status, headers)) is expected


@pytest.mark.parametrize(
    ("operation", "body", "expected"),
    [
        ("CompleteMultipartUpload", b"   ", K.AMBIGUOUS),
        ("CompleteMultipartUpload", b"<CompleteMultipartUploadResult><ETag>a</ETag>", None),
        ("CopyObject", b"", K.TRANSIENT),
        ("ListBlobs", b"", K.TRANSIENT),
        ("ListBlobs", b"<EnumerationResults/>", None),
        ("GetObject", b"", None),
        ("GetBlockList", b"", K.TRANSIENT),
        ("GetBlobTags", b"", K.TRANSIENT),
        ("GetBlobTags", b"<Tags><TagSet/></Tags>", None),
    ],
)
def test_empty_body_is_noticed(operation: str, body: bytes, expected: FaultKind | None) -> None:
    assert kind(answer(operation, body=body)) is expected


def test_status_that_is_an_error_is_a_fault_with_the_code_that_there_is() -> None:
    azure = {"x-ms-error-code": "ServerBusy", "x-ms-request-id": "r", "Retry-After": "5"}
    fault = answer("GetBlobProperties", 503, azure)
    assert fault == Fault(
        provider="azure",
        operation="GetBlobProperties",
        status=503,
        code="ServerBusy",
        retry_after_s=5.0,
        request_id="r",
    )
    assert kind(answer("HeadObject", 503)) is K.THROTTLED
    assert kind(answer("ListObjectsV2", 503, body=b"")) is K.THROTTLED
    assert kind(answer("GetObject", 400, body="\ufeff" + (ERROR % b"ExpiredToken").decode())) is K.AUTH
    assert kind(answer("GetObject", 400, parsed={"Error": {"Code": "ExpiredToken"}})) is K.AUTH
    assert kind(answer("GetObject", 503, parsed={"Error": {"Code": "503"}})) is K.THROTTLED
    assert kind(answer("GetObject", 403, body=b"<html>SlowDown</html>")) is K.FATAL


class TestBulkDelete:
    errors = (
        {"Key": "a", "Code": "AccessDenied", "Message": "no"},
        {"Key": "b", "Code": "SlowDown", "Message": "Please reduce your request rate."},
    )

    def test_key_that_a_repeat_may_cure_comes_first(self) -> None:
        assert kind(answer("DeleteObjects", parsed={"Errors": list(self.errors)})) is K.THROTTLED
        assert kind(answer("DeleteObjects", parsed={"Errors": list(self.errors[:1])})) is K.FATAL

    def test_every_key_has_its_fault(self) -> None:
        faults = key_faults(parsed={"Errors": list(self.errors)})
        assert {key: judge(fault).kind for key, fault in faults.items()} == {"a": K.FATAL, "b": K.THROTTLED}

    def test_good_answers_are_good(self) -> None:
        assert answer("DeleteObjects", parsed={"Deleted": [{"Key": "a"}]}) is None
        assert answer("DeleteObjects", body=b"<DeleteResult><Deleted><Key>Error</Key></Deleted></DeleteResult>") is None
        assert key_faults(parsed={"Errors": []}) == {}
        assert answer("GetObject", headers={**XML, "ETag": '"1"'}, parsed={"Errors": list(self.errors)}) is None

    def test_body_is_read_where_the_sdk_hides_the_result(self) -> None:
        body = b"<DeleteResult><Error><Key>SlowDown</Key><Code>AccessDenied</Code></Error></DeleteResult>"
        assert kind(answer("rm-bulk", body=body)) is K.FATAL
        assert list(key_faults(body=body)) == ["SlowDown"]

    def test_strange_rows_do_not_matter(self) -> None:
        assert key_faults(parsed={"Errors": [None, 5]}) == {}
        assert kind(answer("DeleteObjects", parsed={"Errors": [{}]})) is K.TRANSIENT


@pytest.mark.parametrize(
    ("status", "headers", "asked", "code"),
    [
        (206, {"Content-Range": "bytes 0-99/1000"}, (0, 99), None),
        (206, {"Content-Range": "bytes 0-49/1000"}, (0, 99), "WrongRange"),
        (206, {"Content-Range": "bytes 1-99/1000"}, (0, 99), "WrongRange"),
        (206, {"Content-Range": "bytes 0-49/50"}, (0, 99), None),
        (206, {"Content-Range": "bytes 10-49/50"}, (10, None), None),
        (206, {"Content-Range": "bytes 10-48/50"}, (10, None), "WrongRange"),
        (206, {"Content-Range": "bytes 0-99/*"}, (0, 99), None),
        (206, {"Content-Range": "bytes 0-98/*"}, (0, 99), "WrongRange"),
        (206, {"Content-Range": "bytes 0-98/*"}, (0, None), None),
        (206, {}, (0, 99), "WrongRange"),
        (206, {}, None, None),
        (200, {"Content-Length": "50"}, (0, 99), None),
        (200, {"Content-Length": "1000"}, (0, 99), "RangeIgnored"),
        (200, {"Content-Length": "1000"}, (0, None), None),
        (200, {"Content-Length": "1000"}, (10, None), "RangeIgnored"),
        (200, {}, (0, 99), "RangeIgnored"),
    ],
)
def test_other_bytes_than_asked_for_are_noticed(
    status: int, headers: dict[str, str], asked: tuple[int, int | None] | None, code: str | None
) -> None:
    fault = answer("GetObject", status, headers, requested_range=asked)
    assert (None if fault is None else fault.code) == code


def test_ignored_range_is_fatal_and_a_wrong_one_is_read_again() -> None:
    assert kind(answer("GetObject", 200, {"Content-Length": "9"}, requested_range=(5, 6))) is K.FATAL
    assert kind(answer("GetObject", 206, {}, requested_range=(5, 6))) is K.TRANSIENT


@pytest.mark.parametrize(
    ("headers", "received", "short"),
    [
        ({"Content-Length": "10"}, 10, False),
        ({"Content-Length": "10"}, 9, True),
        ({"Content-Length": "10"}, 11, True),
        ({"Content-Length": "10", "Content-Encoding": "gzip"}, 30, False),
        ({}, 9, False),
        ({"Content-Length": "10"}, None, False),
    ],
)
def test_short_body_is_noticed(headers: dict[str, str], received: int | None, short: bool) -> None:
    fault = answer("GetObject", 200, headers, received_bytes=received)
    assert (fault is not None) is short
    assert kind(fault) is (K.TRANSIENT if short else None)


def test_only_a_read_has_a_range() -> None:
    assert answer("PutObject", 200, {}, requested_range=(0, 99)) is None
    assert answer("HeadObject", 200, {"Content-Length": "1000"}, requested_range=(0, 99)) is None


def test_head_has_no_body_to_be_short() -> None:
    assert answer("HeadObject", 200, {"Content-Length": "10"}, received_bytes=0) is None


@pytest.mark.parametrize("operation", ["GetObject", "GetBlob"])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Type": "application/xml", "Content-Length": "225"}, "InternalError"),
        ({"Content-Type": "binary/octet-stream", "Content-Length": "0"}, "EmptyAnswer"),
        ({"Content-Type": "application/xml", "Content-Length": "225", "ETag": '"1"'}, None),
        ({"Content-Length": "0", "etag": '"1"'}, None),
        ({"Content-Type": "binary/octet-stream", "Content-Length": "225"}, None),
    ],
)
def test_a_read_that_cannot_be_an_object(operation: str, headers: dict[str, str], code: str | None) -> None:
    """The body is still to be read; a store sends an ETag with each object, also with one that is an XML document."""
    fault = answer(operation, headers=headers, parsed={})
    assert (fault.code if fault is not None else None) == code
