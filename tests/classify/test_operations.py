"""What an operation does, whatever its spelling."""

from __future__ import annotations

import pytest

from resilient_io.classify.operations import OpClass, is_idempotent, is_write, merge_names, op_class, repeat_is_told


@pytest.mark.parametrize(
    ("name", "expected", "idempotent"),
    [
        (None, OpClass.READ, True),
        ("GetObject", OpClass.READ, True),
        ("get_object", OpClass.READ, True),
        ("GETOBJECT", OpClass.READ, True),
        ("GetBlobTags", OpClass.READ, True),
        ("cat_file-range", OpClass.READ, True),
        ("exists-bucket", OpClass.READ, True),
        ("isfile", OpClass.READ, True),
        ("AssumeRole", OpClass.READ, True),
        ("GetObject-IfMatch", OpClass.READ, True),
        ("ListObjectsV2", OpClass.LIST, True),
        ("ListSomethingNew", OpClass.LIST, True),
        ("ls", OpClass.LIST, True),
        ("find", OpClass.LIST, True),
        ("PutObject", OpClass.WRITE, True),
        ("put_object", OpClass.WRITE, True),
        ("PutObject-IfNoneMatch", OpClass.WRITE, False),
        ("PutBlob-if_none_match", OpClass.WRITE, False),
        ("pipe_file", OpClass.WRITE, True),
        ("pipe_file-create", OpClass.WRITE, False),
        ("PutObject-append", OpClass.WRITE, False),
        ("CreateMultipartUpload", OpClass.WRITE, True),
        ("CompleteMultipartUpload", OpClass.WRITE, False),
        ("complete_multipart_upload", OpClass.WRITE, False),
        ("AppendBlock", OpClass.WRITE, False),
        ("PutBlockList", OpClass.WRITE, True),
        ("mkdir", OpClass.WRITE, False),
        ("makedirs", OpClass.WRITE, True),
        ("mv", OpClass.WRITE, False),
        ("SomethingNobodyKnows", OpClass.WRITE, False),
        ("DeleteObjects", OpClass.DELETE, True),
        ("rm-bulk", OpClass.DELETE, True),
        ("AbortMultipartUpload", OpClass.DELETE, True),
        ("DeleteBucket", OpClass.DELETE, False),
        ("rmdir", OpClass.DELETE, False),
    ],
)
def test_operation_is_known(name: str | None, expected: OpClass, idempotent: bool) -> None:
    assert op_class(name) is expected
    assert is_idempotent(name) is idempotent
    assert is_write(name) is (expected in (OpClass.WRITE, OpClass.DELETE))


@pytest.mark.parametrize(
    ("own", "asked", "merged"),
    [
        (None, None, None),
        (None, "pipe_file", "pipe_file"),
        ("PutObject", None, "PutObject"),
        ("PutObject", "pipe_file", "PutObject"),
        ("PutObject", "pipe_file-create", "PutObject-create"),
        ("HeadObject", "pipe_file-create", "HeadObject"),
        ("HeadObject", "download_file", "HeadObject"),
        ("PutObject-IfMatch", "pipe_file-create", "PutObject-IfMatch"),
    ],
)
def test_finer_name_wins_and_keeps_the_condition(own: str | None, asked: str | None, merged: str | None) -> None:
    assert merge_names(own=own, asked=asked) == merged


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("CompleteMultipartUpload", True),
        ("complete_multipart_upload", True),
        ("PutObject-IfNoneMatch", True),
        ("PutObject-IfMatch", True),
        ("pipe_file-create", True),
        ("PutObject", False),
        ("PutObject-append", True),
        ("CreateBucket", True),
        ("DeleteBucket", True),
        ("DeleteObject", False),
        ("CreateContainer", True),
        ("DeleteContainer", True),
        ("AppendBlock", False),
        ("AppendBlock-IfMatch", True),
        ("GetObject-IfMatch", False),
        (None, False),
    ],
)
def test_a_repeat_that_the_store_tells_apart(name: str | None, told: bool) -> None:
    assert repeat_is_told(name) is told
