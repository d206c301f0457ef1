"""Lines of an open file: as a local file gives them, and without a copy of all that is held for each of them."""

from __future__ import annotations

import base64
import io
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem
from resilient_io.drive import runtime as runtimes

from .odd_store import Ask, OddStore, Reply, odd_store

pytestmark = pytest.mark.wire
KEY = base64.b64encode(b"key").decode()
MIB = 2**20
LINES = b"".join(b"%08d, a line of a table\n" % number for number in range(3 * MIB // 25))
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def running() -> Iterator[OddStore]:
    with odd_store(LINES) as store:
        yield store


@pytest.fixture
def store(running: OddStore) -> OddStore:
    runtimes.reset()
    running.begin_anew(LINES)
    return running


@pytest.fixture(params=["s3fs", "adlfs"])
def opened(store: OddStore, request: pytest.FixtureRequest) -> Open:
    if request.param == "s3fs":
        fs: Any = ResilientS3FileSystem(
            key="k", secret="s", endpoint_url=store.url, client_kwargs={"region_name": "us-east-1"},
            skip_instance_cache=True,
        )  # fmt: skip
    else:
        where = f"DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={KEY};BlobEndpoint={store.url}/acct;"
        fs = ResilientAzureBlobFileSystem(connection_string=where, skip_instance_cache=True)
    return lambda mode="rb", **options: fs.open("c/train/lines.csv", mode, **options)


def test_reading_lines_asks_for_each_byte_once(store: OddStore, opened: Open) -> None:
    with opened(block_size=MIB) as file:
        assert list(file) == LINES.splitlines(keepends=True)
    assert sum(end - first for first, end in store.ranges) <= len(LINES) + MIB
    assert len(store.asks) < 12


def test_the_first_line_costs_no_block(store: OddStore, opened: Open) -> None:
    with opened(block_size=2 * MIB) as file:
        assert file.readline() == LINES[: LINES.index(b"\n") + 1]
    assert store.ranges == [(0, 256 * 1024)]


def test_a_line_costs_no_look_into_the_cache(opened: Open) -> None:
    looks = 0

    def note(frame: Any, event: str, argument: object) -> None:
        nonlocal looks
        looks += event == "call" and frame.f_code.co_name == "_fetch"

    with opened() as file:
        sys.setprofile(note)
        try:
            count = sum(1 for _ in file)
        finally:
            sys.setprofile(None)
    assert count == LINES.count(b"\n")
    assert looks < 100


@pytest.mark.parametrize("cache_type", ["readahead", "bytes", "all"])
@pytest.mark.parametrize("seed", range(2))
def test_lines_and_reads_and_seeks_are_those_of_a_local_file(
    store: OddStore, opened: Open, seed: int, cache_type: str
) -> None:
    chance = random.Random(seed)
    longest = [chance.choice([0, 1, 30, 300, 90_000]) for _ in range(200)]
    data = b"".join(chance.randbytes(length).replace(b"\n", b" ") + b"\n" for length in longest) + b"no end"
    store.begin_anew(data)
    local = io.BytesIO(data)
    with opened(block_size=MIB, cache_type=cache_type) as file:
        for _ in range(300):
            match chance.randrange(5):
                case 0:
                    length = chance.choice([0, 1, 100, 70_000])
                    assert file.read(length) == local.read(length)
                case 1 if chance.random() < 0.3:
                    place = chance.randrange(len(data) + 1)
                    assert file.seek(place) == local.seek(place)
                case 2:
                    assert next(file, None) == next(local, None)
                case _:
                    assert file.readline() == local.readline()
            assert file.tell() == local.tell()
        file.seek(0)
        assert list(file) == io.BytesIO(data).readlines()


def test_a_closed_file_gives_no_line(opened: Open) -> None:
    file = opened(block_size=2 * MIB)
    file.readline()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.readline()


def test_a_line_that_could_not_be_read_is_read_whole_the_next_time(store: OddStore, opened: Open) -> None:
    data = b"x" * (3 * MIB) + b"\n"
    store.begin_anew(data)

    def how(ask: Ask) -> Reply | None:
        return Reply(status=403, headers={"Content-Length": "0", "x-ms-error-code": "AuthorizationFailure"})

    with opened(block_size=MIB) as file:
        store.how = how
        with pytest.raises((OSError, HttpResponseError)):
            file.readline()
        store.how = lambda ask: None
        assert file.readline() == data
