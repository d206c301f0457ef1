from __future__ import annotations

import pytest

from resilient_io.testing.calls import Head
from resilient_io.testing.s3 import S3Protocol

OPERATIONS = """
GET    /                                   ListBuckets             list    - -
HEAD   /b                                  HeadBucket              read    b -
PUT    /b                                  CreateBucket            write   b -
DELETE /b                                  DeleteBucket            delete  b -
GET    /b?list-type=2&prefix=t%2Fi%2Fs     ListObjectsV2           list    b -       t/i
GET    /b?prefix=t/i/                      ListObjects             list    b -       t/i
GET    /b?uploads                          ListMultipartUploads    list    b -
GET    /b?versions&prefix=t/               ListObjectVersions      list    b -       t
GET    /b?location                         GetBucketLocation       read    b -
PUT    /b?versioning                       PutBucketVersioning     write   b -
POST   /b?delete                           DeleteObjects           delete  b -
GET    /b/t/i/1.tar                        GetObject               read    b t/i/1.tar  t/i
HEAD   /b/t/i/1.tar                        HeadObject              read    b t/i/1.tar  t/i
GET    /b/t/i/1.tar?versionId=3            GetObject               read    b t/i/1.tar  t/i
PUT    /b/t/i/1.tar                        PutObject               write   b t/i/1.tar  t/i
PUT    /b/t/i/1.tar?x-id=PutObject         PutObject               write   b t/i/1.tar  t/i
DELETE /b/t/i/1.tar                        DeleteObject            delete  b t/i/1.tar  t/i
GET    /b/t/i/1.tar?tagging                GetObjectTagging        read    b t/i/1.tar  t/i
PUT    /b/t/i/1.tar?acl                    PutObjectAcl            write   b t/i/1.tar  t/i
POST   /b/t/i/1.tar?uploads                CreateMultipartUpload   write   b t/i/1.tar  t/i
PUT    /b/t/i/1.tar?partNumber=1&uploadId=u UploadPart             write   b t/i/1.tar  t/i
GET    /b/t/i/1.tar?uploadId=u             ListParts               list    b t/i/1.tar  t/i
POST   /b/t/i/1.tar?uploadId=u             CompleteMultipartUpload write   b t/i/1.tar  t/i
DELETE /b/t/i/1.tar?uploadId=u             AbortMultipartUpload    delete  b t/i/1.tar  t/i
GET    /b/a%20b/%C3%A9/x                   GetObject               read    b a\u00a0b/é/x  a\u00a0b/é
""".strip().splitlines()


def head(method: str, target: str, **headers: str) -> Head:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Head(method=method, target=target, headers={"host": "127.0.0.1:9000", **named})


@pytest.mark.parametrize("row", OPERATIONS)
def test_an_operation_is_told_from_method_path_and_query(row: str) -> None:
    # A no-break space stands for a blank in a key, so that the columns can be split.
    method, target, op, op_class, *place = (part.replace("\u00a0", " ") for part in row.split(" ") if part)
    bucket, key, prefix = ("" if part == "-" else part for part in [*place, "-"][:3])
    call = S3Protocol().parse(head(method, target), prefix_depth=2)
    assert (call.op, call.op_class, call.bucket, call.key, call.prefix) == (op, op_class, bucket, key, prefix)


def test_the_classes_are_those_that_the_library_limits_by() -> None:
    # The server judges the library, so it has its own table; they must not disagree.
    from resilient_io.classify.operations import op_class

    for row in OPERATIONS:
        op, ours = row.split()[2:4]
        assert op_class(op).value == ours, op


def test_a_copy_is_told_by_its_header() -> None:
    protocol = S3Protocol()
    whole = protocol.parse(head("PUT", "/b/k", x_amz_copy_source="/b/other"), prefix_depth=2)
    part = protocol.parse(head("PUT", "/b/k?partNumber=1&uploadId=u", x_amz_copy_source="/b/o"), prefix_depth=2)
    assert (whole.op, part.op) == ("CopyObject", "UploadPartCopy")


def test_a_virtual_host_names_the_bucket() -> None:
    call = S3Protocol().parse(head("GET", "/t/i/1", host="my.bucket.localhost:9000"), prefix_depth=1)
    assert (call.bucket, call.key, call.prefix) == ("my.bucket", "t/i/1", "t")
    listing = S3Protocol().parse(head("GET", "/?list-type=2", host="b.s3.amazonaws.com"), prefix_depth=2)
    assert (listing.bucket, listing.op) == ("b", "ListObjectsV2")


def test_the_attempt_of_the_sdk_is_read() -> None:
    call = S3Protocol().parse(head("GET", "/b/k", amz_sdk_request="attempt=2; max=5"), prefix_depth=2)
    assert call.attempt == "2"


@pytest.mark.parametrize(("method", "has_body"), [("GET", True), ("HEAD", False)])
def test_an_error_has_a_body_unless_it_answers_a_head(method: str, has_body: bool) -> None:
    protocol, asked = S3Protocol(), head(method, "/b/k<&")
    call = protocol.parse(asked, prefix_depth=2)
    reply = protocol.error(asked, call, status=503, code=None, message=None, request_id="R1")
    assert (b"<Code>SlowDown</Code>" in bytes(reply.body)) is has_body
    assert (b"/b/k&lt;&amp;" in bytes(reply.body)) is has_body
    assert ("x-amz-request-id", "R1") in reply.headers
