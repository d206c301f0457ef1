"""Under which scope a request is counted."""

from __future__ import annotations

import pytest

from resilient_io.aws.keys import scope_of
from resilient_io.drive.urls import scope_of_url
from resilient_io.policy import Policy

ARN = "arn:aws:s3:us-east-1:123456789012:accesspoint/train"


@pytest.mark.parametrize("name", ["bucket", "train-abc-s3alias", ARN])
def test_the_access_points_of_a_bucket_share_its_limits(name: str) -> None:
    """Whichever door a request takes, the prefix behind it serves what it can serve."""
    policy = Policy(bucket_aliases={"train-abc-s3alias": "bucket", ARN: "bucket"})  # type: ignore[arg-type]
    found = scope_of("GetObject", {"Bucket": name, "Key": "a/b/c"}, "https://s3.test", policy)
    assert str(found) == "s3://bucket/a/b (read)"
    if name != ARN:
        url = scope_of_url(f"s3://{name}/a/b/c", op="get", policy=policy, endpoint="https://s3.test")
        assert str(url) == "s3://bucket/a/b (read)"


def test_without_aliases_each_name_has_limits_of_its_own() -> None:
    """Nothing is guessed: two buckets may have alike names."""
    found = scope_of("GetObject", {"Bucket": "train-abc-s3alias", "Key": "a/b/c"}, "https://s3.test", Policy())
    assert str(found) == "s3://train-abc-s3alias/a/b (read)"
