"""`walk(on_error=...)`: who wants to be told of what could not be listed is told, and nobody else misses anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from resilient_io.errors import ThrottledError
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

from .conftest import Cloud

pytestmark = pytest.mark.wire
FAULTS: dict[str, tuple[dict[str, Any], type[OSError]]] = {
    "throttled": ({"status": 503}, ThrottledError),
    "denied": ({"status": 403, "s3": "AccessDenied", "abfs": "AuthorizationPermissionMismatch"}, PermissionError),
}
Walk = Callable[..., list[Any]]


def in_sync(cloud: Cloud, path: str, **options: Any) -> list[Any]:
    return list(cloud.fs.walk(path, **options))


def in_async(cloud: Cloud, path: str, **options: Any) -> list[Any]:
    async def run() -> list[Any]:
        walk = cloud.fs._walk if cloud.name == "s3" else cloud.fs._async_walk
        return [step async for step in walk(path, **options)]

    return asyncio.run_coroutine_threadsafe(run(), cloud.fs.loop).result(60)


@pytest.fixture(params=[in_sync, in_async])
def walk(request: pytest.FixtureRequest) -> Walk:
    found: Walk = request.param
    return found


def break_listings(cloud: Cloud, fault: str, calls: tuple[int, ...] = ()) -> type[OSError]:
    """Refuse listings, all or by number; each is asked for once or twice (POLICY)."""
    rule, kind = FAULTS[fault]
    rule = {"status": rule["status"], "code": rule.get(cloud.name)}
    op = "ListObjectsV2" if cloud.name == "s3" else "ListBlobs"
    put = FaultRule(action=FaultAction.ERROR, match=Match(op=op), calls=calls, **rule)
    cloud.server.configure(FaultPlan(rules=(put,)))
    cloud.server.reset()
    return kind


def refused(server: FaultServer) -> int:
    return sum(one.status in (403, 503) for one in server.log())


@pytest.mark.parametrize("fault", FAULTS)
def test_walk_raised_without_calling_the_callable(cloud: Cloud, walk: Walk, fault: str) -> None:
    kind = break_listings(cloud, fault)
    told: list[Exception] = []
    steps = walk(cloud, cloud.bucket, on_error=told.append)
    assert [type(error) is kind or isinstance(error, kind) for error in told] == [True]
    assert all(not dirs and not files for _, dirs, files in steps)
    assert refused(cloud.server) == (2 if fault == "throttled" else 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_refusal_further_down_is_told_and_the_rest_is_walked(cloud: Cloud, walk: Walk, fault: str) -> None:
    """fsspec tells of the first listing only, and leaves the others out without a word."""
    kind = break_listings(cloud, fault, calls=(2, 3) if fault == "throttled" else (2,))
    told: list[Exception] = []
    steps = walk(cloud, cloud.bucket, on_error=told.append)
    assert [isinstance(error, kind) for error in told] == [True]
    assert steps[0][1] == ["train"]
    assert not [files for _, _, files in steps if files]


def test_nobody_is_told_where_all_goes_well(cloud: Cloud, walk: Walk) -> None:
    told: list[Exception] = []
    steps = walk(cloud, cloud.bucket, on_error=told.append, detail=True)
    assert not told
    found = sorted(entry["name"] for _, _, files in steps for entry in files.values())
    assert found == [f"{cloud.bucket}/train/{name}" for name in ("1", "2", "d/3")]
    assert steps == walk(cloud, cloud.bucket, detail=True)
    near = walk(cloud, cloud.bucket, on_error=told.append, maxdepth=2)
    assert near == walk(cloud, cloud.bucket, maxdepth=2)


@pytest.mark.parametrize("on_error", ["omit", "raise"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("deep", [False, True])
def test_without_a_callable_a_refusal_is_raised(
    cloud: Cloud, walk: Walk, fault: str, on_error: str, deep: bool
) -> None:
    calls = ((2, 3) if fault == "throttled" else (2,)) if deep else ()
    kind = break_listings(cloud, fault, calls=calls)
    with pytest.raises(kind):
        walk(cloud, cloud.bucket, on_error=on_error)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_callable_raises_ends_the_walk(cloud: Cloud, walk: Walk, fault: str) -> None:
    class Enough(Exception):
        pass

    def stop(error: OSError) -> None:
        raise Enough from error

    break_listings(cloud, fault)
    with pytest.raises(Enough):
        walk(cloud, cloud.bucket, on_error=stop)


def test_the_callable_may_raise_what_it_was_told(cloud: Cloud, walk: Walk) -> None:
    def again(error: OSError) -> None:
        raise error

    break_listings(cloud, "throttled")
    with pytest.raises(ThrottledError):
        walk(cloud, cloud.bucket, on_error=again)


def test_the_callable_may_use_the_filesystem(cloud: Cloud) -> None:
    seen: list[bool] = []
    break_listings(cloud, "throttled", calls=(1, 2))
    in_sync(cloud, cloud.bucket, on_error=lambda _: seen.append(cloud.fs.isfile(f"{cloud.bucket}/train/1")))
    assert seen == [True]


@pytest.mark.parametrize("name", ["find", "glob", "du"])
def test_a_listing_with_a_depth_does_not_swallow_a_refusal(cloud: Cloud, name: str) -> None:
    """fsspec hands other options on to its walk."""
    break_listings(cloud, "denied")
    path = f"{cloud.bucket}/*" if name == "glob" else cloud.bucket
    with pytest.raises(PermissionError):
        getattr(cloud.fs, name)(path, maxdepth=1)
