"""How many requests one call costs, what it raises, and that a permit always comes back."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from aiobotocore.session import get_session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.aws.hooks import harden
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import ResilientIOError, RetriesExhausted, ThrottledError
from resilient_io.testing import FaultAction, FaultRule, FaultServer, ManualClock, Match

ATTEMPTS, THROTTLE_ATTEMPTS = 4, 3
POLICY = {
    "backoff_base_s": 0.01,
    "backoff_cap_s": 0.1,
    "max_attempts": ATTEMPTS,
    "max_throttle_attempts": THROTTLE_ATTEMPTS,
    "deadline_s": 3000,
}
FAULTS = {
    "500": FaultRule(action=FaultAction.ERROR, status=500, code="InternalError"),
    "503": FaultRule(action=FaultAction.ERROR),
    "bodyless-503": FaultRule(action=FaultAction.BODYLESS_ERROR, status=503),
    "429": FaultRule(action=FaultAction.ERROR, status=429),
    "reset": FaultRule(action=FaultAction.RESET_BEFORE),
    "close": FaultRule(action=FaultAction.CLOSE_BEFORE),
}
REFUSALS = ("503", "bodyless-503", "429")
TWO = ["b/train/000001", "b/train/000002"]


def _write(fs: Any) -> None:
    with fs.open("b/w/w", "wb") as file:
        file.write(b"hello")


# name -> (call, the requests that it should consist of under a permanent fault, once each)
FILESYSTEM_CALLS: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "cat_file": (lambda fs: fs.cat_file("b/train/000001"), {"GetObject": 1}),
    "cat_file-range": (lambda fs: fs.cat_file("b/train/000001", start=1, end=10), {"GetObject": 1}),
    "info": (lambda fs: fs.info("b/train/000001"), {"HeadObject": 1}),
    "exists-key": (lambda fs: fs.exists("b/train/000001"), {"HeadObject": 1}),
    "exists-bucket": (lambda fs: fs.exists("b"), {"HeadBucket": 1}),
    "isfile": (lambda fs: fs.isfile("b/train/000001"), {"HeadObject": 1}),
    "isdir": (lambda fs: fs.isdir("b/train"), {"ListObjectsV2": 1}),
    "ls": (lambda fs: fs.ls("b/train"), {"ListObjectsV2": 1}),
    "walk": (lambda fs: list(fs.walk("b")), {"ListObjectsV2": 1}),
    "find": (lambda fs: fs.find("b"), {"ListObjectsV2": 1}),
    "glob": (lambda fs: fs.glob("b/*"), {"ListObjectsV2": 1}),
    "du": (lambda fs: fs.du("b"), {"ListObjectsV2": 1}),
    "pipe_file": (lambda fs: fs.pipe_file("b/x/y", b"q"), {"PutObject": 1}),
    "mkdir": (lambda fs: fs.mkdir("newb"), {"HeadBucket": 1}),
    "makedirs": (lambda fs: fs.makedirs("newb", exist_ok=True), {"HeadBucket": 1}),
    "open-read": (lambda fs: fs.open("b/train/000001").read(), {"GetObject": 1}),
    "open-write": (_write, {"PutObject": 1}),
    "rm": (lambda fs: fs.rm("b/train/000001"), {"DeleteObjects": 1}),
    "rm-list": (lambda fs: fs.rm(TWO), {"DeleteObjects": 1}),
    "rm_file": (lambda fs: fs.rm_file("b/train/000001"), {"DeleteObject": 1}),
    "cp_file": (lambda fs: fs.cp_file("b/train/000001", "b/q"), {"HeadObject": 1}),
    "cat-list": (lambda fs: fs.cat(TWO), {"GetObject": 2}),
    "touch": (lambda fs: fs.touch("b/t/t"), {"PutObject": 1}),
    "get_tags": (lambda fs: fs.get_tags("b/train/000001"), {"GetObjectTagging": 1}),
    "call_s3": (lambda fs: fs.call_s3("get_bucket_location", Bucket="b"), {"GetBucketLocation": 1}),
    "head": (lambda fs: fs.head("b/train/000001"), {"GetObject": 1}),
    "modified": (lambda fs: fs.modified("b/train/000001"), {"HeadObject": 1}),
}


def _limit(fault: str) -> int:
    return THROTTLE_ATTEMPTS if fault in REFUSALS else ATTEMPTS


def _sent(server: FaultServer) -> Counter[str]:
    return Counter(exchange.op for exchange in server.log())


def _must_tell_everything(error: BaseException, attempts: int) -> None:
    """Check that the text names operation, path, verdict, attempts and seconds, and the attributes say the same."""
    text = str(error)
    assert re.search(r"[A-Z]\w+ s3://\w+", text), text
    assert re.search(rf"(throttled|transient) \([\w-]+\) after {attempts} attempts in \d+\.\d s", text), text
    assert error.attempts == attempts  # type: ignore[attr-defined]
    assert error.elapsed_s >= 0  # type: ignore[attr-defined]
    assert error.verdict.kind in ("throttled", "transient")  # type: ignore[attr-defined]
    assert error.scope.startswith("s3://")  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def fs(store: FaultServer) -> Any:
    return ResilientS3FileSystem(
        endpoint_url=store.url, resilience=POLICY, skip_instance_cache=True, use_listings_cache=False
    )


# -- filesystem --------------------------------------------------------------------------------------


@pytest.mark.wire
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", FILESYSTEM_CALLS)
def test_one_call_is_not_multiplied_by_stacked_retries(
    fs: Any, plan_of: Callable[..., FaultServer], fast_clock: Any, idle: Callable[[], bool], name: str, fault: str
) -> None:
    call, once = FILESYSTEM_CALLS[name]
    server = plan_of(FAULTS[fault])
    with pytest.raises(ThrottledError if fault in REFUSALS else RetriesExhausted) as raised:
        call(fs)
    sent = _sent(server)
    assert set(sent) == set(once)
    # In a bulk call each path has its own attempts; the call ends with the first path that is given up.
    limit = _limit(fault)
    assert limit <= sum(sent.values()) <= limit * sum(once.values())
    if sum(once.values()) == 1:
        assert sum(sent.values()) == limit
        assert idle()
    _must_tell_everything(raised.value, limit)
    assert isinstance(raised.value, OSError)
    assert not isinstance(raised.value, FileNotFoundError)
    assert raised.value.retryable is False


@pytest.mark.wire
@pytest.mark.parametrize("fault", ["503", "reset"])
@pytest.mark.parametrize("name", ["get_file", "put_file", "get", "put"])
def test_a_local_file_is_not_a_reason_for_more_requests(
    fs: Any, plan_of: Callable[..., FaultServer], fast_clock: Any, tmp_path: Path, name: str, fault: str
) -> None:
    local = tmp_path / "local"
    if name.startswith("put"):
        local.write_bytes(b"hello")
    arguments = (str(local), "b/new") if name.startswith("put") else ("b/train/000001", str(local))
    server = plan_of(FAULTS[fault])
    with pytest.raises(ResilientIOError) as raised:
        getattr(fs, name)(*arguments)
    assert sum(_sent(server).values()) == _limit(fault)
    _must_tell_everything(raised.value, _limit(fault))
    assert local.exists() == name.startswith("put"), "a get that failed left a file"


@pytest.mark.wire
@pytest.mark.parametrize("name", ["walk", "find", "ls", "exists-bucket", "isfile", "mkdir"])
def test_an_async_refusal_is_not_taken_for_an_absence(
    store: FaultServer, plan_of: Callable[..., FaultServer], fast_clock: Any, name: str
) -> None:
    server = plan_of(FAULTS["bodyless-503"])

    async def run() -> None:
        fs = ResilientS3FileSystem(
            endpoint_url=store.url, resilience=POLICY, asynchronous=True, skip_instance_cache=True
        )
        session = await fs.set_session()
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "find": lambda: fs._find("b"),
            "ls": lambda: fs._ls("b/train"),
            "exists-bucket": lambda: fs._exists("b"),
            "isfile": lambda: fs._isfile("b/train/000001"),
            "mkdir": lambda: fs._mkdir("newb"),
        }
        try:
            if name == "walk":
                async for _ in fs._walk("b"):
                    pass
            else:
                await calls[name]()
        finally:
            await session.close()

    with pytest.raises(ThrottledError):
        asyncio.run(run())
    assert sum(_sent(server).values()) == THROTTLE_ATTEMPTS
    assert "CreateBucket" not in _sent(server)


@pytest.mark.wire
@pytest.mark.parametrize("mode", ["return", "omit"])
def test_a_refusal_of_one_path_is_not_an_omitted_path(
    fs: Any, plan_of: Callable[..., FaultServer], fast_clock: Any, mode: str
) -> None:
    plan_of(FaultRule(action=FaultAction.ERROR, match=Match(key="train/000002")))
    if mode == "omit":
        with pytest.raises(ThrottledError):
            fs.cat(TWO, on_error="omit")
        return
    got = fs.cat(TWO, on_error="return")
    assert len(got["b/train/000001"]) == 4096
    assert isinstance(got["b/train/000002"], ThrottledError)


@pytest.mark.wire
def test_errors_asked_for_as_values_are_not_raised(
    fs: Any, plan_of: Callable[..., FaultServer], fast_clock: Any
) -> None:
    plan_of(FaultRule(action=FaultAction.ERROR, match=Match(key="train/000002")))
    by_place = fs.cat(TWO, False, "return")
    assert isinstance(by_place["b/train/000002"], ThrottledError)
    # For `cat_ranges` it is the default.
    good, bad = fs.cat_ranges(TWO, [0, 0], [10, 10])
    assert len(good) == 10
    assert isinstance(bad, ThrottledError)
    with pytest.raises(ThrottledError):
        fs.cat_ranges(TWO, [0, 0], [10, 10], on_error="raise")


@pytest.mark.wire
def test_an_absence_is_still_an_absence(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of()
    assert fs.exists("b/none") is False
    assert fs.isfile("b/none") is False
    assert fs.cat([*TWO, "b/none"], on_error="omit").keys() == set(TWO)
    with pytest.raises(FileNotFoundError):
        fs.cat_file("b/none")
    assert server.stats().count(op="GetObject") == 4


@pytest.mark.wire
@pytest.mark.parametrize("fault", ["500", "503"])
def test_a_walk_that_is_refused_half_way_does_not_end_quietly(
    fs: Any, plan_of: Callable[..., FaultServer], fast_clock: Any, fault: str
) -> None:
    rule = FAULTS[fault]
    plan_of(FaultRule(action=rule.action, status=rule.status, code=rule.code, match=Match(prefix="train")))
    steps = fs.walk("b")
    assert next(steps)[1] == ["train"]
    with pytest.raises(ResilientIOError):
        list(steps)


# -- clients -----------------------------------------------------------------------------------------

CLIENT_CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "get": ("get_object", {"Bucket": "b", "Key": "train/000001"}, "GetObject"),
    "put": ("put_object", {"Bucket": "b", "Key": "x/1", "Body": b"1"}, "PutObject"),
    "list": ("list_objects_v2", {"Bucket": "b"}, "ListObjectsV2"),
    "head": ("head_object", {"Bucket": "b", "Key": "train/000001"}, "HeadObject"),
}


def _boto3_client(url: str, mode: str, policy: object = POLICY, **options: Any) -> Any:
    config = Config(retries={"mode": mode}, **options)
    return harden(boto3.session.Session().client("s3", endpoint_url=url, config=config), policy)


@pytest.fixture(scope="module", params=["legacy", "standard", "adaptive"])
def client(request: pytest.FixtureRequest, store: FaultServer) -> Any:
    return _boto3_client(store.url, request.param)


def _must_be_the_sdks_error(error: BaseException, fault: str, server: FaultServer, op: str) -> None:
    assert isinstance(error, BotoCoreError if fault in ("reset", "close") else ClientError)
    assert not isinstance(error, ResilientIOError)
    assert _sent(server) == {op: _limit(fault)}
    _must_tell_everything(error, _limit(fault))


@pytest.mark.wire
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CLIENT_CALLS)
def test_botos_own_retries_do_not_add_to_ours(
    client: Any, plan_of: Callable[..., FaultServer], fast_clock: Any, idle: Callable[[], bool], name: str, fault: str
) -> None:
    method, parameters, op = CLIENT_CALLS[name]
    server = plan_of(FAULTS[fault])
    with pytest.raises((ClientError, BotoCoreError)) as raised:
        getattr(client, method)(**parameters)
    _must_be_the_sdks_error(raised.value, fault, server, op)
    assert idle()


@contextlib.asynccontextmanager
async def _aio_client(url: str, policy: object = POLICY) -> AsyncIterator[Any]:
    async with get_session().create_client("s3", endpoint_url=url) as client:
        yield harden(client, policy)


@pytest.mark.wire
@pytest.mark.parametrize("fault", FAULTS)
def test_aiobotocores_own_retries_do_not_add_to_ours(
    plan_of: Callable[..., FaultServer], fast_clock: Any, idle: Callable[[], bool], fault: str
) -> None:
    async def run() -> None:
        server = plan_of()
        async with _aio_client(server.url) as client:
            for method, parameters, op in CLIENT_CALLS.values():
                runtimes.reset(clock=fast_clock)
                plan_of(FAULTS[fault])
                with pytest.raises((ClientError, BotoCoreError)) as raised:
                    await getattr(client, method)(**parameters)
                _must_be_the_sdks_error(raised.value, fault, server, op)
                assert idle()

    asyncio.run(run())


@pytest.mark.wire
@pytest.mark.parametrize("op", ["GetObject", "PutObject"])
def test_aiohttp_does_not_send_a_second_time_by_itself(plan_of: Callable[..., FaultServer], op: str) -> None:
    server = plan_of()

    async def run() -> None:
        async with _aio_client(server.url, {"max_attempts": 1}) as client:
            await (await client.get_object(Bucket="b", Key="train/000001"))["Body"].read()
            plan_of(FAULTS["reset"])
            method, parameters, _ = CLIENT_CALLS["get" if op == "GetObject" else "put"]
            with pytest.raises(BotoCoreError):
                await getattr(client, method)(**parameters)

    asyncio.run(run())
    assert _sent(server) == {op: 1}


MOVED = FaultRule(
    action=FaultAction.ERROR,
    status=301,
    code="PermanentRedirect",
    headers=(("x-amz-bucket-region", "eu-west-1"),),
    calls=(1,),
)
MALFORMED = FaultRule(
    action=FaultAction.ERROR,
    status=400,
    code="AuthorizationHeaderMalformed",
    body="<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>",
    headers=(("x-amz-bucket-region", "eu-west-1"),),
    calls=(1,),
)


@pytest.mark.wire
@pytest.mark.parametrize("rule", [MOVED, MALFORMED], ids=["301", "400"])
@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_a_region_redirect_is_not_swallowed(plan_of: Callable[..., FaultServer], rule: FaultRule, mode: str) -> None:
    server = plan_of(rule)
    client = _boto3_client(server.url, mode)
    assert len(client.get_object(Bucket="b", Key="train/000001")["Body"].read()) == 4096
    assert _sent(server) == {"GetObject": 2}


@pytest.mark.wire
def test_an_async_region_redirect_is_not_swallowed(plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of(MOVED)

    async def run() -> int:
        async with _aio_client(server.url) as client:
            return len(await (await client.get_object(Bucket="b", Key="train/000001"))["Body"].read())

    assert asyncio.run(run()) == 4096
    assert _sent(server) == {"GetObject": 2}


@pytest.mark.wire
def test_a_presigned_url_takes_no_permit(store: FaultServer) -> None:
    client = _boto3_client(store.url, "legacy")
    runtimes.reset()
    assert "Signature" in client.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})
    assert not runtimes.runtime().gate.levels()


@pytest.mark.wire
@pytest.mark.parametrize("kind", ["boto3", "aiobotocore"])
def test_a_long_wait_does_not_make_the_signature_stale(
    plan_of: Callable[..., FaultServer], fast_clock: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server = plan_of(FaultRule(action=FaultAction.ERROR, calls=(1,)))
    gate, order = runtimes.runtime().gate, []
    for name in ("acquire", "acquire_async"):
        stock = getattr(gate, name)
        monkeypatch.setattr(gate, name, lambda *a, stock=stock, **k: order.append("admitted") or stock(*a, **k))

    def signed(**_: Any) -> None:
        order.append("signed")

    if kind == "boto3":
        client = _boto3_client(server.url, "legacy")
        client.meta.events.register("before-sign.s3", signed)
        client.get_object(Bucket="b", Key="train/000001")
    else:

        async def run() -> None:
            async with _aio_client(server.url) as client:
                client.meta.events.register("before-sign.s3", signed)
                await client.get_object(Bucket="b", Key="train/000001")

        asyncio.run(run())
    assert order == ["admitted", "signed"] * 2


# -- what ends a call from outside -------------------------------------------------------------------


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10) if hasattr(asyncio, "timeout") else contextlib.nullcontext():
        while not condition():
            await asyncio.sleep(0.002)


@pytest.mark.wire
@pytest.mark.parametrize("where", ["send", "body"])
def test_a_cancelled_request_gives_its_permit_back(
    plan_of: Callable[..., FaultServer], idle: Callable[[], bool], where: str
) -> None:
    action = FaultAction.STALL_BEFORE if where == "send" else FaultAction.STALL_BODY
    server = plan_of(FaultRule(action=action, after_bytes=10))

    async def run() -> None:
        fs = ResilientS3FileSystem(endpoint_url=server.url, asynchronous=True, skip_instance_cache=True)
        session = await fs.set_session()
        task = asyncio.ensure_future(fs._cat_file("b/train/000001"))
        await _until(lambda: server.log() and not idle())
        await asyncio.sleep(0.01)
        assert not idle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert idle()
        await session.close()

    asyncio.run(run())


@pytest.mark.wire
def test_a_cancelled_wait_leaves_the_queue(plan_of: Callable[..., FaultServer], idle: Callable[[], bool]) -> None:
    server = plan_of(FaultRule(action=FaultAction.STALL_BEFORE, calls=(1,)))

    async def run() -> None:
        async with _aio_client(server.url, {"max_concurrency": 1}) as client:
            first = asyncio.ensure_future(client.head_object(Bucket="b", Key="train/000001"))
            await _until(server.log)
            second = asyncio.ensure_future(client.head_object(Bucket="b", Key="train/000002"))
            await _until(lambda: any(lane.waiting for lane in runtimes.runtime().gate.lanes()))
            for task in (second, first):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert idle()

    asyncio.run(run())
    assert _sent(server) == {"HeadObject": 1}


@pytest.mark.wire
def test_a_cancelled_backoff_sends_nothing_more(plan_of: Callable[..., FaultServer], idle: Callable[[], bool]) -> None:
    server, clock = plan_of(FAULTS["500"]), ManualClock(auto=False)
    runtimes.reset(clock=clock)

    async def run() -> None:
        async with _aio_client(server.url) as client:
            task = asyncio.ensure_future(client.head_object(Bucket="b", Key="train/000001"))
            await _until(lambda: clock.sleepers)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert idle()

    asyncio.run(run())
    assert _sent(server) == {"HeadObject": 1}


@pytest.fixture
def interrupted(store: FaultServer) -> Any:
    client = _boto3_client(store.url, "legacy")

    def send(request: Any) -> Any:
        raise KeyboardInterrupt

    client._endpoint.http_session.send = send
    return client


@pytest.mark.wire
def test_control_c_in_a_request_gives_its_permit_back(interrupted: Any, idle: Callable[[], bool]) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted.get_object(Bucket="b", Key="train/000001")
    assert runtimes.runtime().gate.levels()
    assert idle()


@pytest.mark.wire
def test_control_c_in_a_backoff_ends_the_call(
    plan_of: Callable[..., FaultServer], monkeypatch: pytest.MonkeyPatch, idle: Callable[[], bool]
) -> None:
    server, clock = plan_of(FAULTS["500"]), ManualClock()
    runtimes.reset(clock=clock)

    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        _boto3_client(server.url, "legacy").get_object(Bucket="b", Key="train/000001")
    assert idle()
    assert _sent(server) == {"GetObject": 1}
