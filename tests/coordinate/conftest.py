"""Processes that share a table, played by several tables on one file: their locks exclude each other too."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from resilient_io.control import law
from resilient_io.coordinate.fleet import Job
from resilient_io.coordinate.node import NodePace
from resilient_io.coordinate.table import Table
from resilient_io.testing.redis_process import RedisMissing, RedisServer

if sys.platform == "win32":
    pytest.skip("the table needs file locks", allow_module_level=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder for the table."""
    found = tmp_path / "limits"
    found.mkdir(mode=0o700)
    return found


Start = Callable[..., tuple[NodePace, list[float]]]


@pytest.fixture
def start(folder: Path) -> Start:
    """Start a process: `pace, rec = start(now)`, with a table of its own on the shared file."""

    def process(now: float, name: str = "store|bucket|train|read") -> tuple[NodePace, list[float]]:
        rec = law.fresh(now)
        return NodePace(rec, Table(folder), name, now, Job()), rec

    return process


PASSWORD = "s3kr1t-of-the-test"


@pytest.fixture(scope="session")
def start_redis(missing: Callable[[str], NoReturn]) -> Iterator[Callable[..., RedisServer]]:
    """Start a redis-server on 127.0.0.1: `start_redis(port=..., certificates=...)`; all end with the session."""
    running: list[RedisServer] = []

    def start(**options: Any) -> RedisServer:
        try:
            server = RedisServer(PASSWORD, **options)
        except RedisMissing as error:
            missing(f"redis-server ({error}): on Debian `apt-get install redis-server`")
        running.append(server)
        return server

    if importlib.util.find_spec("redis") is None:
        missing("redis-py: pip install 'resilient-io[redis]'")
    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def _shared_redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    return start_redis()


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """Return a Redis with a password that holds nothing; one for the session, so do not stop it."""
    client(_shared_redis).flushall()
    return _shared_redis


def client(server: RedisServer) -> Any:
    """Return a client of the test's own."""
    from redis import Redis

    return Redis.from_url(server.url, decode_responses=True)
