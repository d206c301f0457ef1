"""Nodes, played by several folders in one process, that exchange through a real Redis: and what they do without it."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resilient_io.control import law
from resilient_io.control.fleet_split import SPLIT
from resilient_io.control.law_record import ASSUMED
from resilient_io.coordinate import cluster
from resilient_io.coordinate.cluster import ClusterLink, Exchange
from resilient_io.coordinate.fleet import Job
from resilient_io.coordinate.lead import LEASE_S, Lead, node_of
from resilient_io.coordinate.node import NodePace
from resilient_io.coordinate.sharing import NodeSharing
from resilient_io.coordinate.slot import Slot
from resilient_io.coordinate.table import Table
from resilient_io.drive import runtime
from resilient_io.policy import Policy
from resilient_io.testing.redis_process import RedisServer

from .conftest import PASSWORD, client

pytestmark = pytest.mark.wire

NAME = "https://store|secret-bucket|train|read"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Woken:
    """A link that only counts."""

    def __init__(self) -> None:
        self.calls: list[bool] = []

    def wake(self, *, news: bool = False) -> None:
        self.calls.append(news)


class Node:
    """A machine: its folder, some processes that use the level, and the exchange of one of them."""

    def __init__(self, folder: Path, url: str, clock: Clock, processes: int = 1) -> None:
        folder.mkdir(mode=0o700)
        self.folder, self.clock, self.link = folder, clock, Woken()
        self.records = [law.fresh(clock.now) for _ in range(processes)]
        self.paces = [NodePace(rec, Table(folder), NAME, clock.now, Job(), None, self.link) for rec in self.records]
        self.exchange = Exchange(url, folder, clock)

    @property
    def slot(self) -> Slot:
        found = Table(self.folder).slot(NAME, self.clock.now)
        assert found is not None
        return found

    @property
    def record(self) -> list[float]:
        return self.slot.read(self.clock.now)

    @property
    def rate(self) -> float:
        return self.record[law.RATE]

    def use(self) -> None:
        """Have every process show that it is there."""
        for pace in self.paces:
            pace.on_send(self.clock.now, 0.5)
            pace.on_dropped(self.clock.now)

    def limit(self, rate: float, *, busy: bool = True) -> None:
        """Be at a ceiling, settled, at this rate."""
        rec = law.fresh(self.clock.now)
        rec[law.LIMITED], rec[law.RATE] = 1.0, rate
        rec[law.COUNT] = rate if busy else 0.0
        rec[law.TOKENS] = -5.0 if busy else 1.0
        self.slot.write(rec)

    def keep_busy(self) -> None:
        """Callers wait, and what was admitted came through."""
        self.use()
        rec = self.record
        rec[law.SECOND] = float(int(self.clock.now))
        rec[law.COUNT] = rec[law.RATE]
        rec[law.TOKENS], rec[law.TOKENS_AT] = -5.0, self.clock.now
        self.slot.write(rec)


Start = Callable[..., Node]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(tmp_path: Path, redis_server: RedisServer, clock: Clock) -> Start:
    """Start a node: `start("a", processes=2)`."""

    def node(name: str, processes: int = 1, url: str | None = None) -> Node:
        return Node(tmp_path / name, url or redis_server.url, clock, processes)

    return node


def run(nodes: list[Node], rounds: int, busy: bool = True) -> None:
    """Let all nodes exchange in turn, half a second apart."""
    for _ in range(rounds):
        nodes[0].clock.now += SPLIT.pause_s
        for node in nodes:
            if busy:
                node.keep_busy()
            node.exchange.step()


# -- dividing ----------------------------------------------------------------------------------------


def test_busy_nodes_come_to_equal_parts_for_each_process(start: Start) -> None:
    nodes = [start("a"), start("b"), start("c", processes=2)]
    for node, rate in zip(nodes, (150.0, 30.0, 20.0), strict=True):
        node.limit(rate)
    run(nodes, 20)
    one, other, double = (node.rate for node in nodes)
    assert one == pytest.approx(50.0, rel=0.05)
    assert other == pytest.approx(50.0, rel=0.05)
    assert double == pytest.approx(100.0, rel=0.05)


def test_a_node_of_heavy_callers_got_no_more_than_one_of_light_ones(start: Start) -> None:
    """They ask by their weight, and so does their machine."""
    heavy, light = start("a"), start("b")
    for node in (heavy, light):
        node.limit(40.0)
    for _ in range(20):
        for step in range(20):
            heavy.paces[0].ready_at(heavy.clock.now + step * 0.02, 3.0)
        run([heavy, light], 1)
    assert heavy.rate == pytest.approx(60.0, rel=0.08)
    assert light.rate == pytest.approx(20.0, rel=0.15)


def test_what_an_idle_node_leaves_the_busy_one_gets(start: Start) -> None:
    idle, busy = start("a"), start("b")
    idle.limit(50.0, busy=False)
    busy.limit(50.0)
    for _ in range(20):
        busy.clock.now += SPLIT.pause_s
        busy.keep_busy()
        idle.exchange.step()
        busy.exchange.step()
    assert idle.rate < 3.0
    assert busy.rate > 95.0


def test_the_share_is_learnt_before_the_first_refusal(start: Start) -> None:
    """By all processes of the node: a record that is entered later starts with it."""
    nodes = [start(name, processes=2) for name in "abcdefgh"]
    for node in [*nodes, nodes[0]]:
        node.use()
        node.exchange.step()
    assert nodes[0].slot.share == pytest.approx(1 / 8)
    nodes[0].paces[0].on_send(1000.0, 0.5)
    nodes[0].paces[0].on_refusal(1000.0, 1000.0, 0.5)
    assert nodes[0].record[law.SHARE] == pytest.approx(1 / 8)


def test_without_a_word_of_the_cluster_a_node_does_not_take_itself_for_all(start: Start) -> None:
    node = start("a")
    node.paces[0].on_send(1000.0, 0.5)
    node.paces[0].on_refusal(1000.0, 1000.0, 0.5)
    assert node.record[law.SHARE] == 0.0
    node.exchange.step()
    assert node.record[law.SHARE] == ASSUMED


def test_a_node_that_is_open_hears_of_the_limit_of_others(start: Start) -> None:
    """It begins with little, and gets its part within some exchanges; the others make room."""
    nodes = [start("a"), start("b"), start("c")]
    for node in nodes[:2]:
        node.limit(60.0)
    run(nodes[:2], 2)
    nodes[2].use()
    nodes[2].exchange.step()
    assert nodes[2].slot.is_limited()
    assert nodes[2].rate <= 5.0
    assert nodes[2].paces[0].ready_at(nodes[2].clock.now) >= nodes[2].clock.now
    run(nodes, 20)
    assert [node.rate for node in nodes] == [pytest.approx(41.0, abs=2.0)] * 3


def test_a_node_that_does_not_use_the_level_is_left_open(start: Start) -> None:
    limited, other = start("a"), start("b")
    limited.limit(60.0)
    limited.exchange.step()
    other.clock.now += 5.0
    other.exchange.step()
    assert not other.slot.is_limited()


def test_an_entry_is_told_at_once_by_the_process_that_saw_it(start: Start) -> None:
    node = start("a", processes=2)
    for pace in node.paces:
        pace.on_send(1000.0, 0.5)
        pace.on_send(1000.0, 0.5)
    assert node.link.calls == [False, False]
    node.paces[0].on_refusal(1000.01, 1000.0, 0.5)
    node.paces[1].on_refusal(1000.02, 1000.0, 0.5)
    assert node.link.calls == [False, False, True]


def test_levels_that_want_no_cluster_stay_here(start: Start, redis_server: RedisServer) -> None:
    """Nothing of a level of another policy is told."""
    node = start("a")
    own = NodePace(law.fresh(1000.0), Table(node.folder), "other", 1000.0, Job())
    own.on_send(1000.0, 0.5)
    own.on_refusal(1000.0, 1000.0, 0.5)
    node.exchange.step()
    assert len(client(redis_server).keys()) == 1


def test_nothing_in_redis_names_a_bucket(start: Start, redis_server: RedisServer) -> None:
    node = start("a")
    node.limit(10.0)
    node.exchange.step()
    redis = client(redis_server)
    (key,) = redis.keys()
    assert "secret-bucket" not in f"{key} {redis.hgetall(key)}"
    assert redis.ttl(key) > 0


# -- without Redis -----------------------------------------------------------------------------------


def lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_node_goes_on_by_itself_and_comes_back(
    start: Start, start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for all processes of the node, however long it takes; the rate stays what it is."""
    caplog.set_level(logging.INFO, "resilient_io")
    server = start_redis()
    nodes = [start("a", url=server.url), start("b", url=server.url)]
    nodes[0].limit(80.0)
    nodes[1].limit(20.0)
    run(nodes, 1)
    server.stop()
    before = [node.rate for node in nodes]
    for _ in range(3):
        run(nodes, 20)
        assert [node.rate for node in nodes] == before
    assert len(lost(caplog)) == 2  # a node each
    again = start_redis(port=server.port)
    run(nodes, 40)
    assert nodes[0].rate == pytest.approx(nodes[1].rate, rel=0.05)
    assert sum("is back" in record.getMessage() for record in caplog.records) == 2
    assert len(lost(caplog)) == 2
    again.stop()


def test_a_flush_changes_nothing_for_long(start: Start, redis_server: RedisServer) -> None:
    nodes = [start("a"), start("b")]
    nodes[0].limit(80.0)
    nodes[1].limit(20.0)
    for _ in range(10):
        client(redis_server).flushall()
        run(nodes, 2)
    assert sum(node.rate for node in nodes) == pytest.approx(100.0, rel=0.25)
    run(nodes, 20)
    assert nodes[0].rate == pytest.approx(nodes[1].rate, rel=0.05)


def test_the_hub_is_left_alone_for_a_while_after_a_failure(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as long each time, up to some seconds; the lease of the node is renewed meanwhile."""
    node = start("a", url="redis://127.0.0.1:1")
    asked = []
    ask = node.exchange._hub.exchange
    monkeypatch.setattr(node.exchange._hub, "exchange", lambda *a: (asked.append(node.clock.now), ask(*a))[1])
    for _ in range(120):
        node.use()
        node.clock.now += node.exchange.step()
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses[:4] == [pytest.approx(seconds) for seconds in (1.0, 2.0, 4.0, 8.0)]
    assert max(pauses) == pytest.approx(8.0)


def test_credentials_never_leak(start: Start, redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a log at any level, not in a repr, not in the table."""
    caplog.set_level(logging.DEBUG)
    urls = (
        f"redis://us3r:{PASSWORD}@127.0.0.1:1/0",
        f"redis://us3r:{PASSWORD}@127.0.0.1:{redis_server.port}/0",
        f"redis://127.0.0.1:{redis_server.port}/0?password={PASSWORD}x",
        redis_server.url,
    )
    for number, url in enumerate(urls):
        node = start(f"node-{number}", url=url)
        node.exchange.step()
        node.exchange.close()
        policy = Policy(coordination="cluster", redis_url=url)
        shown = f"{policy!r} {policy} {node.exchange!r} {vars(node.exchange)!r} {ClusterLink(url)!r}"
        assert PASSWORD not in shown
        assert "us3r" not in shown
        assert PASSWORD.encode() not in Table(node.folder).path.read_bytes()
    assert caplog.records
    assert PASSWORD not in caplog.text
    assert "us3r" not in caplog.text


# -- who speaks for a node ---------------------------------------------------------------------------


def test_one_process_of_a_node_does_the_work(start: Start, redis_server: RedisServer) -> None:
    node = start("a")
    second = Exchange(redis_server.url, node.folder, node.clock)
    node.use()
    node.exchange.step()
    second.step()
    assert second._hub._client is None
    node.clock.now += LEASE_S + 1.0  # the first was stopped, or killed
    node.use()
    second.step()
    assert second._hub._client is not None
    node.exchange.step()
    assert node.exchange._hub._client is None
    assert client(redis_server).hlen(client(redis_server).keys()[0]) == 2  # one node, and the pot


def test_news_does_not_wait_for_its_turn(start: Start, redis_server: RedisServer) -> None:
    """The process that has it tells the one that does the work, which has a connection: a new one takes long."""
    node = start("a")
    second = Exchange(redis_server.url, node.folder, node.clock)
    node.use()
    node.exchange.step()
    assert not node.exchange.is_told()
    node.clock.now += 0.1
    assert second.step(news=True) < 0.5
    assert second._hub._client is None
    assert node.exchange.is_told()
    node.exchange.step()
    assert not node.exchange.is_told()
    node.clock.now += 0.3
    assert second.step() == 1.0


def test_news_that_nobody_reads_is_told_by_who_has_it(start: Start, redis_server: RedisServer) -> None:
    """The process that did the work was stopped, or killed, and has its lease for some seconds still."""
    node = start("a")
    second = Exchange(redis_server.url, node.folder, node.clock)
    node.use()
    node.exchange.step()
    for news in (True, False, True):
        node.clock.now += 0.2
        second.step(news=news)
    assert second._hub._client is not None


def test_a_process_that_has_nothing_to_exchange_yet_is_connected(start: Start, redis_server: RedisServer) -> None:
    """Where all processes of a job begin to work at once, to connect then would take seconds."""
    exchange = start("a").exchange
    exchange._table.map[1024 : 1024 + 1024] = bytes(1024)  # nothing is used
    exchange.step()
    assert exchange._hub.is_connected
    assert not client(redis_server).keys()


def test_two_hubs_have_a_lease_each(folder: Path) -> None:
    one, other = (Lead(Table(folder), name) for name in ("h1:1", "h2:1"))
    assert one.take(10.0)
    assert other.take(10.0)
    assert not Lead(Table(folder), "h1:1").take(10.0)


def test_a_lease_from_another_time_is_not_believed(folder: Path) -> None:
    assert Lead(Table(folder), "h").take(1e9)
    assert Lead(Table(folder), "h").take(10.0)


def test_a_stopped_holder_of_the_lock_of_the_table_holds_nobody_up(folder: Path) -> None:
    mine, other = Lead(Table(folder), "h"), Lead(Table(folder), "h")
    assert mine.take(10.0)
    with Table(folder).held():
        assert mine.take(11.0)
        assert not mine.take(11.0 + LEASE_S)
        assert not other.take(11.0 + LEASE_S)


def test_all_processes_of_a_machine_give_it_one_name(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    names = [[node_of(Table(folder)) for _ in range(3)] for folder in folders]
    assert len(set(names[0])) == len(set(names[1])) == 1
    assert names[0] != names[1]


# -- the thread --------------------------------------------------------------------------------------


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "resilient-io-cluster"]


def until(condition: Callable[[], bool]) -> None:
    """Wait for a thread."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen within 30 s")


@pytest.fixture
def start_sharing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], NodeSharing]:
    """Return how to make what a gate has; not the thing itself, which pytest would keep."""
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(folder))
    return NodeSharing


def test_the_thread_runs_for_those_who_want_a_cluster_and_ends_with_them(
    start_sharing: Callable[[], NodeSharing], redis_server: RedisServer
) -> None:
    sharing, now = start_sharing(), time.monotonic()
    plain = sharing.pace(law.fresh(now), NAME, Policy(), now)
    sharing.widen(plain, Policy(coordination="node"))
    assert not threads()
    policy = Policy(coordination="cluster", redis_url=redis_server.url)
    sharing.widen(plain, policy)  # a level that another policy has made
    second = sharing.pace(law.fresh(now), "second", policy, now)
    assert len(threads()) == 1
    until(lambda: len(client(redis_server).keys()) == 2)
    del sharing, plain, second
    until(lambda: not threads())


def test_a_client_that_is_hardened_connects_before_its_first_request(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", str(folder))
    runtime.reset()
    try:
        runtime.expect(Policy())
        runtime.expect(Policy(coordination="node"))
        assert not threads()
        before = len(client(redis_server).client_list())
        runtime.expect(Policy(coordination="cluster", redis_url=redis_server.url))
        until(lambda: len(client(redis_server).client_list()) > before)
    finally:
        runtime.reset()
    until(lambda: not threads())


def test_the_thread_survives_what_cannot_happen(
    start_sharing: Callable[[], NodeSharing],
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[int] = []

    def fail(self: object, *, news: bool = False) -> float:
        calls.append(1)
        raise RuntimeError(PASSWORD)

    monkeypatch.setattr(Exchange, "step", fail)
    monkeypatch.setattr(cluster, "_AGAIN_MOST_S", 0.001)
    sharing, now = start_sharing(), time.monotonic()
    sharing.pace(law.fresh(now), NAME, Policy(coordination="cluster", redis_url=redis_server.url), now)
    until(lambda: len(calls) > 3)
    assert len(lost(caplog)) == 1
    assert PASSWORD not in caplog.text


def test_processes_of_two_machines_share_and_their_forks_do_too(redis_server: RedisServer, tmp_path: Path) -> None:
    """Real processes with gates of their own: each forks after its first request, and parent and child count."""
    code = """
import os, sys, time
import resilient_io as rio
from resilient_io.drive.runtime import runtime
with rio.limit("s3://bucket/train/a"):
    pass
child = os.fork()
with rio.limit("s3://bucket/train/a"):
    pass
print("used", flush=True)
sys.stdin.read(1)
os._exit(0) if child == 0 else os.waitpid(child, 0)
"""
    environment = {
        **os.environ,
        "RESILIENT_IO_COORDINATION": "cluster",
        "RESILIENT_IO_REDIS_URL": redis_server.url,
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    jobs = []
    for name in "ab":
        env = {**environment, "RESILIENT_IO_COORD_DIR": str(tmp_path / name)}
        pipe: Any = subprocess.PIPE
        jobs.append(subprocess.Popen([sys.executable, "-c", code], env=env, stdin=pipe, stdout=pipe, stderr=pipe))
    try:
        redis = client(redis_server)

        def members() -> list[float]:
            entries = [redis.hgetall(key) for key in redis.scan_iter()]
            return [sum(float(text.split()[5]) for node, text in one.items() if node != "pot") for one in entries]

        until(lambda: len(members()) >= 3 and set(members()) == {4.0})  # endpoint, bucket, prefix
    finally:
        errors = [job.communicate(b"..")[1] for job in jobs]
    assert all(b"Traceback" not in error for error in errors), errors


def test_a_fork_while_the_thread_imported_redis_left_half_a_module() -> None:
    """Children that were forked then never reached Redis, or hung in an import of their own."""
    program = (
        "import sys\nfrom resilient_io.coordinate.cluster import ClusterLink\n"
        "assert 'redis' not in sys.modules\nClusterLink('redis://localhost:1/0')\n"
        "assert {'redis', 'redis.retry', 'redis.backoff', 'redis.exceptions'} <= set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
