"""The hub on a real Redis: the sums are right, everything is a lease, nothing that is found there is believed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from resilient_io.control.fleet_split import LONG_AGO_S, SPLIT, Entry, Sums, sums_of, transfer
from resilient_io.coordinate import hub as hubs
from resilient_io.coordinate.hub import Hub, HubLost, place_of
from resilient_io.testing.redis_process import RedisServer

from .conftest import PASSWORD, client

pytestmark = pytest.mark.wire

LEVEL = bytes(range(16))
KEY = "resilient-io:{limits-1}:" + LEVEL.hex()


def entry(rate: float = 10.0, *, busy: bool = True, members: float = 2.0, ago_s: float = 1.0) -> Entry:
    wanting, need = (members, 0.0) if busy else (0.0, rate / 2)
    return Entry(rate, wanting, need, members, members, rate, ago_s, SPLIT.gain)


def ask(hub: Hub, node: str, said: Entry | None = None) -> Sums:
    return hub.exchange(node, {LEVEL: said or entry()})[LEVEL]


@pytest.fixture
def hub(redis_server: RedisServer) -> Hub:
    return Hub(redis_server.url)


def test_the_script_does_what_the_model_does(hub: Hub) -> None:
    """Sums and transfers of many nodes, one after the other, beside the pure functions that the simulation uses."""
    chance, said, pot = random.Random(1), {}, 0.0
    for _ in range(200):
        node = f"{chance.randrange(6):012x}"
        settled, busy = chance.random() < 0.8, chance.random() < 0.7
        rate, members = chance.uniform(0.2, 100.0), float(chance.randint(1, 9))
        one = entry(rate, busy=busy, members=members)._replace(gain=chance.uniform(0.0, 0.5))
        if not settled:
            one = Entry(0.0, 0.0, 0.0, 0.0, members, 0.0, LONG_AGO_S, 0.5)
        others = sums_of(kept for other, kept in said.items() if other != node)
        pot = min(pot, one.rate + others.rate)
        wanted = replace(others, given=transfer(one, others, pot))
        pot -= wanted.given
        found = ask(hub, node, one)
        assert found.refused_ago_s == pytest.approx(others.refused_ago_s, abs=5.0)
        assert replace(found, refused_ago_s=0.0) == approximately(replace(wanted, refused_ago_s=0.0))
        said[node] = one


def approximately(sums: Sums) -> Any:
    class Close:
        def __eq__(self, other: object) -> bool:
            names = Sums.__dataclass_fields__
            return all(getattr(other, name) == pytest.approx(getattr(sums, name), abs=1e-6) for name in names)

    return Close()


def test_many_levels_go_in_one_call(hub: Hub, redis_server: RedisServer) -> None:
    levels = {bytes([number]) * 16: entry(float(number + 1)) for number in range(50)}
    hub.exchange("a", levels)
    client(redis_server).config_resetstat()
    heard = hub.exchange("b", levels)
    assert [heard[level].rate for level in levels] == [float(number + 1) for number in range(50)]
    assert client(redis_server).info("commandstats")["cmdstat_evalsha"]["calls"] == 1


def test_more_levels_than_one_call_takes(hub: Hub) -> None:
    levels = {bytes([number]) * 16: entry(float(number + 1)) for number in range(150)}
    hub.exchange("a", levels)
    assert [sums.rate for sums in hub.exchange("b", levels).values()] == [float(number + 1) for number in range(150)]


def test_a_node_that_is_gone_no_longer_counts_and_leaves_its_rate(
    hub: Hub, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Redis's clock. What it had goes to the others in some steps."""
    monkeypatch.setattr(hubs, "LEASE_S", 0.2)
    ask(hub, "gone", entry(15.0))
    given, until = 0.0, time.monotonic() + 30.0
    while "gone" in client(redis_server).hkeys(KEY):
        assert time.monotonic() < until
        given += ask(hub, "here").given + ask(hub, "there").given
        time.sleep(0.005)
    for node in ("there", "here") * 10:
        given += ask(hub, node).given
    assert 12.0 < given <= 15.0


def test_a_pause_of_the_hub_is_no_death_of_all_nodes(hub: Hub, redis_server: RedisServer) -> None:
    """What nobody touched for long is not given away: its owners are there, and use it."""
    ask(hub, "b", entry(40.0))
    past = int(time.time() * 1000) - 60_000
    client(redis_server).hset(KEY, mapping={"a": f"{past} 40 2 0 2 2 40 {past}", "pot": f"30 {past}"})
    assert ask(hub, "b", entry(10.0)).given <= 0.0
    assert ask(hub, "c", entry(10.0)).given == 0.0


def test_keys_live_for_a_minute_and_name_nothing(hub: Hub, redis_server: RedisServer) -> None:
    ask(hub, "a")
    redis = client(redis_server)
    assert redis.keys() == [KEY]
    assert 50_000 < redis.pttl(KEY) <= 60_000


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "x",
        "nan nan nan nan nan nan nan nan",
        "1 2 3",
        "-1 " * 8,
        "9e99 " * 8,
        "1" * 10_000,
        "\x00\xff",
        "99999999999999 1 1 1 1 1 1 1",
    ],
)
def test_garbage_in_an_entry_is_removed(hub: Hub, redis_server: RedisServer, garbage: str) -> None:
    client(redis_server).hset(KEY, mapping={"other": garbage, "pot": garbage})
    found = ask(hub, "a")
    assert found == Sums()
    assert sorted(client(redis_server).hkeys(KEY)) == ["a", "pot"]


def test_a_key_of_the_wrong_type_is_made_anew(hub: Hub, redis_server: RedisServer) -> None:
    redis = client(redis_server)
    for spoil in (lambda: redis.set(KEY, "text"), lambda: redis.rpush(KEY, "a", "b"), lambda: redis.sadd(KEY, "a")):
        redis.delete(KEY)
        spoil()
        assert ask(hub, "a") == Sums()
        assert redis.type(KEY) == "hash"


def test_a_key_with_far_too_many_entries_is_made_anew(hub: Hub, redis_server: RedisServer) -> None:
    client(redis_server).hset(KEY, mapping={f"node-{number}": "x" for number in range(9000)})
    assert ask(hub, "a") == Sums()


def test_a_flush_costs_one_exchange(hub: Hub, redis_server: RedisServer) -> None:
    """Of the keys and of the scripts."""
    ask(hub, "a")
    client(redis_server).flushall()
    client(redis_server).script_flush()
    assert ask(hub, "b") == Sums()
    assert ask(hub, "a").nodes == 1.0


def test_a_restart_is_survived(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    hub = Hub(server.url)
    ask(hub, "a")
    server.stop()
    with pytest.raises(HubLost, match="no connection"):
        ask(hub, "a")
    start_redis(port=server.port)
    assert ask(hub, "a") == Sums()


def test_a_redis_that_does_not_answer_is_waited_for_so_long(
    start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts, because the kernel does, and says nothing; when it goes on, so does the hub, in step."""
    monkeypatch.setattr(hubs, "TIMEOUT_S", 0.05)
    server = start_redis()
    hub = Hub(server.url)
    ask(hub, "a")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for _ in range(2):  # on the old connection, and on a new one
            with pytest.raises(HubLost, match=r"no answer within 0\.05 s"):
                ask(hub, "a", entry(99.0))
    finally:
        os.kill(server.pid, signal.SIGCONT)
    monkeypatch.setattr(hubs, "TIMEOUT_S", 5.0)
    assert ask(hub, "b").nodes <= 1.0
    assert ask(hub, "a", entry(7.0)).nodes == 1.0
    assert ask(hub, "b").rate == 7.0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:wr0ng-passw0rd@127.0.0.1:{port}", "does not accept the user or password"),
        ("redis://u5er:wr0ng-passw0rd@127.0.0.1:{port}", "does not accept the user or password"),
        ("redis://127.0.0.1:{port}/0?x=wr0ng-passw0rd", "makes no sense"),
        ("redis://:wr0ng-passw0rd@127.0.0.1:notaport/0", "makes no sense"),
        ("rediss://:wr0ng-passw0rd@127.0.0.1:{port}", "no"),
        ("redis://:wr0ng-passw0rd@127.0.0.1:1", "no connection"),
        ("redis://:wr0ng-passw0rd@host.invalid:1", "no connection"),
        ("unix:///nowhere?password=wr0ng-passw0rd", "no connection"),
    ],
)
def test_what_is_wrong_is_said_without_the_secrets(redis_server: RedisServer, url: str, says: str) -> None:
    url = url.replace("{port}", str(redis_server.port))
    hub = Hub(url)
    with pytest.raises(HubLost, match=says) as caught:
        ask(hub, "a")
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__} {hub!r} {place_of(url)}"
    assert "wr0ng-passw0rd" not in shown
    assert "u5er" not in shown


def test_a_redis_without_the_rights_is_named_by_its_code(redis_server: RedisServer) -> None:
    client(redis_server).execute_command("ACL", "SETUSER", "guest", "on", ">wr0ng-passw0rd", "~*", "+ping")
    with pytest.raises(HubLost) as caught:
        ask(Hub(f"redis://guest:wr0ng-passw0rd@127.0.0.1:{redis_server.port}"), "a")
    assert str(caught.value) == "it answers with an error (NoPermissionError)"
    assert "guest" not in str(caught.value)


class _Lying:
    """A client whose Redis was replaced by something else."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def evalsha(self, *arguments: object) -> object:
        return self._answer

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "answer", [None, 7, [], [b"1"] * 8, [b"1"] * 10, [b"nan"] * 9, [b"-1"] * 9, [b"inf"] * 9, [b"x"] * 9, [None] * 9]
)
def test_an_answer_that_makes_no_sense_is_not_used(answer: object) -> None:
    hub = Hub("redis://127.0.0.1")
    hub._client = _Lying(answer)
    with pytest.raises(HubLost, match="makes no sense"):
        ask(hub, "a")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory, missing: Callable[[str], NoReturn]) -> Path:
    """A folder with a certificate of 127.0.0.1 for a day, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        missing("openssl")
    folder = tmp_path_factory.mktemp("tls")
    new = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*new, *files, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return folder


def test_tls(start_redis: Callable[..., RedisServer], certificates: Path) -> None:
    server = start_redis(certificates=certificates)
    assert server.url.startswith(f"rediss://:{PASSWORD}@")
    hub = Hub(server.url)
    ask(hub, "a")
    assert ask(hub, "b").nodes == 1.0
    with pytest.raises(HubLost, match="no connection"):
        ask(Hub(server.url.partition("?")[0]), "a")  # whose certificate nobody vouches for
    with pytest.raises(HubLost, match="no"):
        ask(Hub(server.url.partition("?")[0].replace("rediss:", "redis:")), "a")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://u:p@h:7/3", "h:7/3"),
        ("rediss://:p%40@[::1]/?password=p", "::1:6379"),
        ("unix:///run/redis.sock?db=1", "unix socket /run/redis.sock"),
        ("redis://:p@h:x", "redis"),
    ],
)
def test_where_a_redis_is(url: str, place: str) -> None:
    assert place_of(url) == place
