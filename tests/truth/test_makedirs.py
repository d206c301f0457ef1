"""`makedirs` below a bucket costs nothing; what it cannot know the first write says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from .conftest import Cloud

pytestmark = pytest.mark.wire


def sent(cloud: Cloud) -> Counter[str]:
    return Counter(one.op for one in cloud.server.log())


@pytest.fixture
def fresh(cloud: Cloud) -> Any:
    """Return a filesystem that has seen nothing yet."""
    fs = type(cloud.fs)(**cloud.options, skip_instance_cache=True)
    cloud.server.reset()
    return fs


def test_the_first_makedirs_under_an_existing_bucket_cost_a_head(cloud: Cloud, fresh: Any) -> None:
    for name in ("ckpt", "ckpt/step-1", "ckpt/step-1/"):
        fresh.makedirs(f"{cloud.bucket}/{name}", exist_ok=True)
        fresh.makedirs(f"{cloud.bucket}/{name}")
    assert not sent(cloud)
    fresh.pipe_file(f"{cloud.bucket}/ckpt/step-1/a", b"1")
    assert sent(cloud) == {"PutObject" if cloud.name == "s3" else "PutBlob": 1}
    fresh.rm_file(f"{cloud.bucket}/ckpt/step-1/a")


def test_a_bucket_that_is_not_there_fails_at_the_first_write(cloud: Cloud, fresh: Any) -> None:
    before = cloud.containers()
    fresh.makedirs(f"{cloud.bucket}-no/ckpt", exist_ok=True)
    assert not sent(cloud)
    with pytest.raises(Exception, match=r"(?i)bucket does not exist|container does not exist") as caught:
        fresh.pipe_file(f"{cloud.bucket}-no/ckpt/a", b"1")
    if cloud.name == "s3":
        assert isinstance(caught.value, FileNotFoundError)
    assert cloud.containers() == before


def test_a_bucket_is_still_made_where_one_is_asked_for(cloud: Cloud, fresh: Any) -> None:
    for make in (fresh.mkdir, *((fresh.makedirs,) if cloud.name == "s3" else ())):
        make(f"{cloud.bucket}-made")
        assert fresh.exists(f"{cloud.bucket}-made")
        fresh.rmdir(f"{cloud.bucket}-made")
    fresh.mkdir(f"{cloud.bucket}-made/below", create_parents=True)
    assert fresh.exists(f"{cloud.bucket}-made")
    fresh.rmdir(f"{cloud.bucket}-made")


def test_a_bucket_that_is_there_is_an_error_unless_it_may_be(cloud: Cloud, fresh: Any) -> None:
    if cloud.name == "abfs":
        pytest.skip("adlfs has no makedirs of a container")
    fresh.makedirs(cloud.bucket, exist_ok=True)
    with pytest.raises(FileExistsError):
        fresh.makedirs(cloud.bucket)
