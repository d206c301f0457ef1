"""Hedged reads of S3, counted at the store: filesystem, boto3 and aiobotocore."""

from __future__ import annotations

import asyncio
import functools
import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiobotocore.session
import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

import resilient_io as rio
from resilient_io import events, report
from resilient_io.control import hedge
from resilient_io.drive import runtime as runtimes
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

pytestmark = pytest.mark.wire
POLICY: dict[str, object] = {"backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 3, "hedge": True}
KEY = "train/000001"
SIZE = 4096
MODES = ["s3fs", "boto3", "aiobotocore"]
# After so long a second request is sent: a busy machine answers sooner.
LATE_S = 0.1
Read = Callable[[], bytes]
LEFT = [0]


class Clients:
    """A client of each kind of one store."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        made = {"endpoint_url": url, "aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        self.boto3 = boto3.session.Session().client("s3", **made)  # type: ignore[call-overload]
        self._context = aiobotocore.session.get_session().create_client("s3", **made)
        self.aio = self._loop.run_until_complete(self._context.__aenter__())
        self.fs = functools.cache(self._filesystem)
        self._url = url

    def _filesystem(self, hedged: bool) -> Any:
        from resilient_io.aws.filesystem import ResilientS3FileSystem

        return ResilientS3FileSystem(
            endpoint_url=self._url, key="k", secret="s", resilience={**POLICY, "hedge": hedged},
            client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True,
        )  # fmt: skip

    def close(self) -> None:
        self._loop.run_until_complete(self._context.__aexit__(None, None, None))
        self._loop.close()

    def reader(self, mode: str, hedged: bool = True) -> Read:
        policy = {**POLICY, "hedge": hedged}
        if mode == "s3fs":
            return lambda: bytes(self.fs(hedged).cat_file(f"b/{KEY}"))
        if mode == "boto3":
            return lambda: bytes(rio.harden(self.boto3, policy).get_object(Bucket="b", Key=KEY)["Body"].read())
        return lambda: self._loop.run_until_complete(self._read(policy))

    async def _read(self, policy: Any) -> bytes:
        answer = await rio.harden(self.aio, policy).get_object(Bucket="b", Key=KEY)
        return bytes(await answer["Body"].read())


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[FaultServer, Clients]]:
    with FaultServer() as server:
        server.fill("b", count=3, size_bytes=SIZE)
        clients = Clients(server.url)
        yield server, clients
        clients.close()


@pytest.fixture
def server(running: tuple[FaultServer, Clients]) -> Iterator[FaultServer]:
    runtimes.reset()
    yield running[0]
    running[0].configure(FaultPlan())


@pytest.fixture(params=MODES)
def read(running: tuple[FaultServer, Clients], server: FaultServer, request: pytest.FixtureRequest) -> Read:
    return running[1].reader(request.param)


def season(read: Read) -> None:
    """Let the scope know what a quick answer is, with answers that nobody had to send."""
    read()
    gate = runtimes.runtime().gate
    (leaf,) = {id(lane.leaf): lane.leaf for lane in gate.lanes() if lane.path.op_class == "read"}.values()
    assert leaf.hedging is not None
    for _ in range(hedge.LEAST_ANSWERS):
        leaf.hedging.answered(LATE_S)


def plan(server: FaultServer, *rules: FaultRule) -> None:
    server.configure(FaultPlan(rules=rules))
    server.reset()
    LEFT[0] = server.stats().requests


def sent(server: FaultServer) -> int:
    """Requests since the plan; those that earlier losers left at the store do not count."""
    return server.stats().requests - LEFT[0]


def late(*calls: int, delay_s: float = 30.0) -> FaultRule:
    return FaultRule(action=FaultAction.DELAY, delay_s=delay_s, match=Match(op="GetObject"), calls=calls)


def hedges() -> tuple[int, int]:
    leaves = [scope for scope in report().scopes if scope.leaf]
    return sum(scope.hedged for scope in leaves), sum(scope.hedges_won for scope in leaves)


def test_a_late_answer_is_not_waited_for(server: FaultServer, read: Read, idle: Callable[[], bool]) -> None:
    season(read)
    plan(server, late(1))
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    assert len(read()) == SIZE
    unsubscribe()
    assert sent(server) == 2
    assert hedges() == (1, 1)
    (told,) = [event for event in seen if isinstance(event, events.ReadHedged)]
    assert told.won
    assert told.after_s == LATE_S
    assert not [event for event in seen if isinstance(event, (events.AttemptFailed, events.OperationGaveUp))]
    assert "1 reads were sent twice, 1 times the second was sooner" in str(report())


def test_the_loser_of_tasks_gives_its_permit_back(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool]
) -> None:
    for mode in ("s3fs", "aiobotocore"):
        runtimes.reset()
        read = running[1].reader(mode)
        season(read)
        plan(server, late(1))
        read()
        assert idle()


def test_the_loser_of_threads_gives_its_permit_back_when_the_store_is_done_with_it(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool]
) -> None:
    read = running[1].reader("boto3")
    season(read)
    plan(server, late(1, delay_s=0.4))
    before = set(threading.enumerate())
    read()
    assert not idle()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert idle()


def test_a_first_answer_that_is_sooner_wins(server: FaultServer, read: Read) -> None:
    season(read)
    plan(server, late(1, delay_s=0.2), late(2))
    assert len(read()) == SIZE
    assert sent(server) == 2
    assert hedges() == (1, 0)


@pytest.mark.parametrize("action", [FaultAction.ERROR, FaultAction.RESET_BEFORE], ids=str)
def test_a_second_request_that_fails_fails_nothing(server: FaultServer, read: Read, action: FaultAction) -> None:
    season(read)
    plan(server, late(1, delay_s=0.2), FaultRule(action=action, match=Match(op="GetObject"), calls=(2,)))
    assert len(read()) == SIZE
    assert sent(server) == 2, "the second request was tried again"
    assert hedges() == (1, 0)


def test_a_first_request_that_fails_leaves_the_second_one(server: FaultServer, read: Read) -> None:
    season(read)
    reset = FaultRule(action=FaultAction.CLOSE_BEFORE, match=Match(op="GetObject"), calls=(3, 4))
    stalled = FaultRule(action=FaultAction.STALL_BEFORE, delay_s=0.2, match=Match(op="GetObject"), calls=(1,))
    plan(server, stalled, late(2, delay_s=0.4), reset)
    assert len(read()) == SIZE
    assert hedges() == (1, 1)


def test_off_unless_asked(running: tuple[FaultServer, Clients], server: FaultServer) -> None:
    for mode in MODES:
        runtimes.reset()
        season(running[1].reader(mode))
        plan(server, late(1, delay_s=0.2))
        running[1].reader(mode, hedged=False)()
        assert sent(server) == 1


def test_few_answers_hedge_nothing(server: FaultServer, read: Read) -> None:
    read()
    plan(server, late(1, delay_s=0.2))
    read()
    assert sent(server) == 1


def test_a_limited_scope_hedges_nothing(server: FaultServer, read: Read) -> None:
    season(read)
    plan(server, FaultRule(action=FaultAction.ERROR, calls=(1,)), late(2, delay_s=0.2), late(3, delay_s=0.2))
    read()
    read()
    assert sent(server) == 3
    assert hedges() == (0, 0)


def test_hedges_keep_to_the_budget(server: FaultServer, read: Read) -> None:
    season(read)
    leaf = next(lane.leaf for lane in runtimes.runtime().gate.lanes())
    assert leaf.hedging is not None
    leaf.hedging.tokens[0] = 1.0
    plan(server, late(delay_s=0.2))
    for _ in range(3):
        read()
    assert sent(server) == 4
    assert hedges()[0] == 1


def test_a_small_body_that_comes_late_is_hedged_too(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool]
) -> None:
    read = running[1].reader("s3fs")
    season(read)
    body = FaultRule(
        action=FaultAction.STALL_BODY, after_bytes=10, delay_s=30.0, match=Match(op="GetObject"), calls=(1,)
    )
    plan(server, body)
    assert len(read()) == SIZE
    assert hedges() == (1, 1)
    assert idle()


def test_the_winner_s_body_goes_on_where_it_dies(server: FaultServer, read: Read, idle: Callable[[], bool]) -> None:
    season(read)
    dies = FaultRule(action=FaultAction.TRUNCATE, after_bytes=100, match=Match(op="GetObject"), calls=(2, 3))
    plan(server, late(1, delay_s=0.4), dies)
    assert len(read()) == SIZE


def test_a_cancelled_read_ends_both_requests(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool]
) -> None:
    clients = running[1]
    season(clients.reader("aiobotocore"))
    plan(server, late(1), late(2))

    async def cancelled() -> None:
        task = asyncio.ensure_future(clients._read(POLICY))
        while sent(server) < 2:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    clients._loop.run_until_complete(cancelled())
    assert idle()


def test_a_call_is_hedged_once_however_many_ranges_it_reads(
    running: tuple[FaultServer, Clients], server: FaultServer
) -> None:
    """Each of two ranges of one object is late; one second request is sent."""
    season(running[1].reader("s3fs"))
    plan(server, late(2, 3, delay_s=0.3))
    assert len(running[1].fs(True).cat_file(f"b/{KEY}", chunksize=SIZE // 3 + 1)) == SIZE
    assert (sent(server), hedges()[0]) == (4, 1)


# -- managed downloads -------------------------------------------------------------------------------

IN_RANGES = {"multipart_threshold": SIZE // 4, "multipart_chunksize": SIZE // 4}
each_config = pytest.mark.parametrize(
    ("config", "late_call", "gets"),
    [({}, 1, 1), (IN_RANGES, 3, 4), ({**IN_RANGES, "use_threads": False}, 3, 4)],
    ids=["in one", "in ranges", "one after the other"],
)


def download(running: tuple[FaultServer, Clients], config: Any, *, hedged: bool = True) -> bytes:
    sink = io.BytesIO()
    client = rio.harden(running[1].boto3, {**POLICY, "hedge": hedged})
    client.download_fileobj("b", KEY, sink, Config=TransferConfig(**config))
    return sink.getvalue()


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to be")


@each_config
def test_a_late_part_of_a_download_is_not_waited_for(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool], config: Any, late_call: int,
    gets: int,
) -> None:  # fmt: skip
    whole = running[1].reader("boto3")()
    season(running[1].reader("boto3"))
    plan(server, late(late_call, delay_s=1.0))
    assert download(running, config) == whole
    assert sum(scope.hedges_won for scope in report().scopes if scope.leaf) == 1
    assert not idle(), "the store works for the loser, and its permit came back already"
    wait_until(idle)
    assert sum(one.op == "GetObject" for one in server.log()) == gets + 1


@each_config
def test_a_download_is_hedged_once_however_many_parts_are_late(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool], config: Any, late_call: int,
    gets: int,
) -> None:  # fmt: skip
    season(running[1].reader("boto3"))
    plan(server, late(delay_s=0.3))
    assert len(download(running, config)) == SIZE
    assert hedges()[0] == 1
    wait_until(idle)
    assert sum(one.op == "GetObject" for one in server.log()) == gets + 1


def test_a_download_is_not_hedged_unless_asked(running: tuple[FaultServer, Clients], server: FaultServer) -> None:
    season(running[1].reader("boto3"))
    plan(server, late(1, delay_s=0.3))
    assert len(download(running, {}, hedged=False)) == SIZE
    assert hedges() == (0, 0)


def test_a_hedged_part_goes_on_where_its_body_dies(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool]
) -> None:
    whole = running[1].reader("boto3")()
    season(running[1].reader("boto3"))
    dies = FaultRule(action=FaultAction.TRUNCATE, after_bytes=100, match=Match(op="GetObject"), calls=(2, 3))
    plan(server, late(1, delay_s=0.4), dies)
    assert download(running, {}) == whole
    wait_until(idle)


def test_a_download_whose_parts_fail_for_good_is_one_error_and_holds_nothing(
    running: tuple[FaultServer, Clients], server: FaultServer, idle: Callable[[], bool]
) -> None:
    season(running[1].reader("boto3"))
    error = FaultRule(action=FaultAction.ERROR, status=500, code="InternalError", match=Match(op="GetObject"))
    plan(server, error)
    with pytest.raises(ClientError) as caught:
        download(running, {})
    assert caught.value.attempts == POLICY["max_attempts"]  # type: ignore[attr-defined]
    assert sum(one.op == "GetObject" for one in server.log()) == POLICY["max_attempts"]
    wait_until(idle)
