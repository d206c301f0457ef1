"""What a write that failed leaves behind: nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.errors import ResilientIOError, ThrottledError
from resilient_io.testing import FaultAction, FaultRule, FaultServer, Match

pytestmark = pytest.mark.wire
MIB = 2**20


@pytest.fixture
def fs(store: FaultServer) -> Any:
    policy = {"max_throttle_attempts": 3, "max_attempts": 3, "backoff_base_s": 0.001, "backoff_cap_s": 0.01}
    return ResilientS3FileSystem(endpoint_url=store.url, resilience=policy, skip_instance_cache=True)


def test_a_part_that_failed_does_not_make_half_a_file_when_the_store_is_well_again(
    fs: Any, plan_of: Callable[..., FaultServer]
) -> None:
    server = plan_of(FaultRule(action=FaultAction.ERROR, match=Match(op="UploadPart"), calls=(2, 3, 4)))
    with pytest.raises(ThrottledError), fs.open("b/made/half", "wb", block_size=5 * MIB) as file:
        for _ in range(4):
            file.write(bytes(5 * MIB))
    assert not fs.exists("b/made/half")
    assert server.stats().count(op="CompleteMultipartUpload") == 0
    assert server.stats().count(op="AbortMultipartUpload") == 1
    assert file.closed


def test_what_failed_raises_again_and_sends_nothing(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of(
        FaultRule(action=FaultAction.ERROR, match=Match(op="UploadPart"), status=500, code="InternalError")
    )
    file = fs.open("b/made/half", "wb", block_size=5 * MIB)
    with pytest.raises(ResilientIOError) as first:
        file.write(bytes(11 * MIB))
    sent = server.stats().requests
    for call in (file.flush, lambda: file.write(bytes(5 * MIB)), file.close):
        with pytest.raises(ResilientIOError) as again:
            call()
        assert again.value is first.value
    file.close()
    assert server.stats().requests == sent
