"""`max_concurrency`: one counter for sync threads and event loops, and who holds a permit for how long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.aws.hooks import harden
from resilient_io.drive import runtime as runtimes
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Latency

LIMIT = 5
POLICY = {"max_concurrency": LIMIT}


def _client(url: str, policy: object) -> Any:
    session = boto3.session.Session()
    # The pool is wider than the limit: only the semaphore may hold requests back.
    return harden(session.client("s3", endpoint_url=url, config=Config(max_pool_connections=64)), policy)


async def _read_all(fs: Any, keys: list[str]) -> list[int]:
    try:
        return [len(body) for body in await asyncio.gather(*(fs._cat_file(key) for key in keys))]
    finally:
        await fs._s3.close()


@pytest.mark.wire
def test_threads_and_two_event_loops_do_not_each_take_the_whole_limit(store: FaultServer) -> None:
    store.configure(FaultPlan(latency=Latency(base_s=0.01)))
    store.reset()
    client, done = _client(store.url, POLICY), []
    sync_fs = ResilientS3FileSystem(endpoint_url=store.url, resilience=POLICY, skip_instance_cache=True)

    def in_threads(number: int) -> None:
        for _ in range(4):
            body = client.get_object(Bucket="b", Key=f"train/{number:06d}")["Body"].read()
            done.append((len(body), len(sync_fs.cat_file(f"b/train/{number:06d}"))))

    def in_own_loop() -> None:
        async def run() -> None:
            fs = ResilientS3FileSystem(
                endpoint_url=store.url, resilience=POLICY, asynchronous=True, skip_instance_cache=True
            )
            await fs.set_session()
            done.append(await _read_all(fs, [f"b/train/{number:06d}" for number in range(20)]))

        asyncio.run(run())

    threads = [threading.Thread(target=in_threads, args=(number,)) for number in range(16)]
    threads += [threading.Thread(target=in_own_loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 16 * 4 + 2
    assert store.stats().peak_of(prefix="train") == LIMIT
    store.configure(FaultPlan())


@pytest.mark.wire
def test_bodies_that_nobody_reads_do_not_hang_their_own_thread(store: FaultServer) -> None:
    client = _client(store.url, {"max_concurrency": 4})
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(
            lambda: [client.get_object(Bucket="b", Key=f"train/{number % 20:06d}") for number in range(200)]
        ).result(timeout=60)
    assert len({answer["Body"].read() for answer in answers}) == 20


@pytest.mark.wire
@pytest.mark.parametrize("kind", ["cat_file", "open", "get_file"])
def test_a_body_is_not_read_outside_the_limit(
    plan_of: Callable[..., FaultServer], idle: Callable[[], bool], tmp_path: Any, kind: str
) -> None:
    server = plan_of(FaultRule(action=FaultAction.STALL_BODY, after_bytes=10, delay_s=0.3, calls=(1,)))
    fs = ResilientS3FileSystem(endpoint_url=server.url, resilience=POLICY, skip_instance_cache=True)
    reads: dict[str, Callable[[], Any]] = {
        "cat_file": lambda: fs.cat_file("b/train/000001"),
        "open": lambda: fs.open("b/train/000001").read(),
        "get_file": lambda: fs.get_file("b/train/000001", str(tmp_path / "local")),
    }
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(reads[kind])
        held = 0
        while not result.done():
            # After the headers the answer counts as a success, and its permit is still held.
            held += any(lane.in_flight and lane.leaf.tally.succeeded for lane in runtimes.runtime().gate.lanes())
        result.result()
    assert held
    assert idle()


@pytest.mark.wire
def test_the_pool_of_connections_is_not_narrower_than_the_limit(store: FaultServer) -> None:
    store.configure(FaultPlan(latency=Latency(base_s=0.05)))
    store.reset()
    client = harden(boto3.session.Session().client("s3", endpoint_url=store.url), {"max_concurrency": 24})
    with ThreadPoolExecutor(24) as pool:
        for _ in range(2):
            list(pool.map(lambda n: client.head_object(Bucket="b", Key=f"train/{n % 20:06d}"), range(48)))
    assert store.stats().peak_of(prefix="train") == 24
    # boto3's default pool of 10 would throw connections away and make new ones for each batch.
    assert store.stats().connections <= 24
    store.configure(FaultPlan())
