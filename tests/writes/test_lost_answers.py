"""Each write of a filesystem whose answer is lost: it is done, once, and the server is asked no more than twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.testing import FaultAction

pytestmark = pytest.mark.wire
MIB = 2**20
LARGE = bytes(range(256)) * (11 * MIB // 256)


def _write(fs: Any, path: str, data: bytes, mode: str = "wb", **options: Any) -> None:
    with fs.open(path, mode, **options) as file:
        file.write(data)


# name -> (call on (fs, a path that is there, one that is not), operation at S3, at Azure, what is then at the latter)
CALLS: dict[str, tuple[Callable[[Any, str, str], Any], str, str, bytes | None]] = {
    "pipe_file": (lambda fs, old, new: fs.pipe_file(new, b"new"), "PutObject", "PutBlob", b"new"),
    "create": (lambda fs, old, new: fs.pipe_file(new, b"new", mode="create"), "PutObject", "PutBlob", b"new"),
    "open wb": (lambda fs, old, new: _write(fs, new, b"new"), "PutObject", "PutBlob", b"new"),
    "open xb": (lambda fs, old, new: _write(fs, new, b"new", "xb"), "PutObject", "PutBlob", b"new"),
    "open xb, empty": (lambda fs, old, new: _write(fs, new, b"", "xb"), "PutObject", "PutBlob", b""),
    "large": (
        lambda fs, old, new: _write(fs, new, LARGE, block_size=5 * MIB),
        *("CompleteMultipartUpload", "PutBlockList", LARGE),
    ),
    "large, xb": (
        lambda fs, old, new: _write(fs, new, LARGE, "xb", block_size=5 * MIB),
        *("CompleteMultipartUpload", "PutBlockList", LARGE),
    ),
    "part": (lambda fs, old, new: _write(fs, new, LARGE, block_size=5 * MIB), "UploadPart", "PutBlock", LARGE),
    "cp_file": (lambda fs, old, new: fs.cp_file(old, new), "CopyObject", "CopyBlob", b"old"),
    "mv, copy": (lambda fs, old, new: fs.mv(old, new), "CopyObject", "CopyBlob", b"old"),
    "rm_file": (lambda fs, old, new: fs.rm_file(old), "DeleteObject", "DeleteBlob", None),
    "rm": (lambda fs, old, new: fs.rm(old), "DeleteObjects", "DeleteBlob", None),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("fault", ["lost", "500 after"])
def test_a_write_whose_answer_was_lost_is_done_once(store: Any, name: str, fault: str) -> None:
    call, s3_op, azure_op, data = CALLS[name]
    op = s3_op if store.cloud == "s3" else azure_op
    store.fs.pipe_file(store.path("old"), b"old")
    if fault == "lost":
        store.break_it(op, FaultAction.RESET_AFTER, calls=(1,))
    else:
        store.break_it(op, status=500, code="InternalError", after_commit=True, calls=(1,))
    call(store.fs, store.path("old"), store.path("new"))
    others = 2 if name == "part" and store.cloud == "azure" else 0  # the other blocks; s3fs sends one part of all
    assert store.sent()[op] == 2 + others
    assert store.content_of("new") == data
    if name.startswith(("rm", "mv")):
        assert store.content_of("old") is None
    assert store.uploads() == 0


@pytest.mark.parametrize("name", ["create", "open xb", "large, xb"])
def test_a_write_whose_answer_was_lost_does_not_take_the_place_of_another(store: Any, name: str) -> None:
    """The request itself is lost, and another writer is first."""
    call, s3_op, azure_op, _ = CALLS[name]
    op = s3_op if store.cloud == "s3" else azure_op
    store.fs.pipe_file(store.path("new"), b"of another")
    store.break_it(op, FaultAction.RESET_BEFORE, calls=(1,))
    with pytest.raises(OSError, match=r"pre-conditions|new") as raised:
        call(store.fs, store.path("old"), store.path("new"))
    assert "Ambiguous" not in type(raised.value).__name__
    assert store.sent()[op] == 2
    assert store.content_of("new") == b"of another"
    assert store.uploads() == 0


def test_containers_are_made_and_deleted_once(store: Any) -> None:
    name = f"box-{uuid.uuid4().hex[:8]}"
    made, gone = ("CreateBucket", "DeleteBucket") if store.cloud == "s3" else ("CreateContainer", "DeleteContainer")
    store.break_it(made, FaultAction.RESET_AFTER, calls=(1,))
    store.fs.mkdir(name)
    assert store.sent()[made] == 2
    store.break_it(gone, FaultAction.RESET_AFTER, calls=(1,))
    store.fs.rmdir(name)
    assert store.sent()[gone] == 2
    assert not store.fs.exists(name)
