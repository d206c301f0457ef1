"""Copies inside the service: done when they are whole, not when they have begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.errors import DeadlineExceeded
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Match

pytestmark = [pytest.mark.wire, pytest.mark.usefixtures("fast_clock")]


def _told(op: str, status: int, state: str, progress: int = 0, copy_id: str = "one", **rule: Any) -> FaultRule:
    """Return an answer that Azurite, whose copies are done at once, never gives."""
    headers = (
        *(("x-ms-copy-id", copy_id), ("x-ms-copy-status", state), ("x-ms-copy-progress", f"{progress}/9")),
        *(("Content-Length", "0"), ("ETag", '"0x1"'), ("Last-Modified", "Mon, 30 Nov 2026 16:00:00 GMT")),
    )
    match = Match(op=op)
    return FaultRule(action=FaultAction.ERROR, status=status, body="", headers=headers, match=match, **rule)


BEGUN = _told("CopyBlob", 202, "pending")


@pytest.fixture
def told(azure_store: Any, box: Any) -> Callable[..., None]:
    """Put answers to the looks at a copy in force, one after the other, the last one for ever."""
    box.upload_blob("x", b"data")

    def put(*looks: FaultRule) -> None:
        azure_store.server.configure(FaultPlan(rules=(BEGUN, *looks)))
        azure_store.server.reset()

    return put


def _look(state: str, progress: int = 0, copy_id: str = "one", *calls: int) -> FaultRule:
    return _told("GetBlobProperties", 200, state, progress, copy_id, calls=calls)


def test_a_copy_that_has_only_begun_is_waited_for(fs: Any, told: Any, azure_store: Any) -> None:
    told(_look("pending", 3, "one", 1), _look("pending", 6, "one", 2), _look("success", 9))
    fs.cp_file(f"{azure_store.container}/x", f"{azure_store.container}/copy")
    assert azure_store.server.stats().count(op="GetBlobProperties") == 3


@pytest.mark.parametrize("state", ["failed", "aborted"])
def test_a_copy_that_fails_later_does_not_cost_a_move_its_source(
    fs: Any, told: Any, azure_store: Any, box: Any, state: str
) -> None:
    told(_look("pending", 3, "one", 1), _look(state))
    with pytest.raises(OSError, match=f"the service ended the copy: {state}"):
        fs.cp_file(f"{azure_store.container}/x", f"{azure_store.container}/copy")
    told(_look("pending", 3, "one", 1), _look(state))
    with pytest.raises(OSError, match="the service ended the copy"):
        fs.mv(f"{azure_store.container}/x", f"{azure_store.container}/copy")
    assert box.download_blob("x").readall() == b"data"


def test_a_copy_whose_place_another_took_is_no_success(fs: Any, told: Any, azure_store: Any) -> None:
    told(_look("success", 9, "another"))
    with pytest.raises(OSError, match="another copy took the place"):
        fs.cp_file(f"{azure_store.container}/x", f"{azure_store.container}/copy")


def test_a_copy_that_stands_still_ends_at_the_deadline(make_fs: Any, told: Any, azure_store: Any) -> None:
    fs = make_fs(resilience={"deadline_s": 30})
    told(_look("pending", 3))
    with pytest.raises(DeadlineExceeded, match="CopyBlob"):
        fs.cp_file(f"{azure_store.container}/x", f"{azure_store.container}/copy")


def test_a_copy_that_is_done_at_once_costs_one_request(fs: Any, azure_store: Any, box: Any) -> None:
    box.upload_blob("x", b"data")
    azure_store.server.reset()
    fs.cp_file(f"{azure_store.container}/x", f"{azure_store.container}/copy")
    assert azure_store.server.stats().requests == 1
    assert box.download_blob("copy").readall() == b"data"
