"""Every body that a filesystem reads is what was asked for, whole and of one version, or an error."""

from __future__ import annotations

import base64
import functools
import hashlib
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resilient_io import events, report
from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import ObjectChanged, RetriesExhausted

from .odd_store import Ask, OddStore, Reply, odd_store

pytestmark = pytest.mark.wire
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 3, "retry_budget_burst": 1000,
}  # fmt: skip
DATA = random.Random(5).randbytes(300_000)
PATH = "b/train/000001"
READS: dict[str, tuple[Callable[[Any], bytes], slice]] = {
    "whole": (lambda fs: fs.cat_file(PATH), slice(None)),
    "head": (lambda fs: fs.cat_file(PATH, start=0, end=1000), slice(0, 1000)),
    "middle": (lambda fs: fs.cat_file(PATH, start=1000, end=200_000), slice(1000, 200_000)),
    "open end": (lambda fs: fs.cat_file(PATH, start=1000), slice(1000, None)),
    "tail": (lambda fs: fs.cat_file(PATH, start=-1000), slice(-1000, None)),
    "file": (lambda fs: fs.open(PATH).read(), slice(None)),
}
UNREADABLE = [
    "bytes {first}-{last}", "bytes={first}-{last}/{size}", "Bytes {first}-{last}/{size}", "{first}-{last}/{size}",
    "bytes {first}-{last}/", "bytes zz", "bytes */{size}", "bytes {first}-{last}/123", "bytes {last}-{first}/{size}",
]  # fmt: skip
each_read = pytest.mark.parametrize("read", READS)


@pytest.fixture(scope="module")
def running() -> Iterator[OddStore]:
    with odd_store(DATA) as store:
        yield store


@pytest.fixture
def store(running: OddStore) -> OddStore:
    runtimes.reset()
    running.begin_anew(DATA)
    return running


@functools.cache  # each client costs a second
def filesystem(store: OddStore, **policy: object) -> Any:
    return ResilientS3FileSystem(
        endpoint_url=store.url, key="k", secret="s", resilience={**POLICY, **policy}, skip_instance_cache=True,
        client_kwargs={"region_name": "us-east-1"},
    )  # fmt: skip


def shifted(store: OddStore, ask: Ask, by: int) -> Reply:
    """The bytes beside those that were asked for, and told so."""
    first, end = max(0, ask.first + by), min(len(DATA), ask.end + by)
    told = f"bytes {first}-{end - 1}/{len(DATA)}"
    headers = {"ETag": store.etag, "Content-Length": str(end - first), "Content-Range": told}
    return Reply(status=206, headers=headers, pieces=[DATA[first:end]])


def shortened(store: OddStore, ask: Ask, keep: int) -> Reply:
    """The first bytes of the range as a sound 206 of those."""
    end = min(ask.end, ask.first + keep)
    told = f"bytes {ask.first}-{end - 1}/{len(DATA)}"
    headers = {"ETag": store.etag, "Content-Length": str(end - ask.first), "Content-Range": told}
    return Reply(status=206, headers=headers, pieces=[DATA[ask.first : end]])


def test_an_empty_range_is_not_the_whole_object(store: OddStore) -> None:
    fs = filesystem(store)
    for start, end in ((0, 0), (5, 5), (7, 3)):
        assert fs.cat_file(PATH, start=start, end=end) == b""


@each_read
@pytest.mark.parametrize("by", [-7, 7])
def test_the_wrong_range_is_not_data(store: OddStore, read: str, by: int) -> None:
    call, part = READS[read]
    store.how = lambda ask: shifted(store, ask, by) if ask.number == 1 and ask.first + by >= 0 else None
    assert call(filesystem(store)) == DATA[part]
    store.asks.clear()
    store.how = lambda ask: shifted(store, ask, abs(by))
    with pytest.raises(RetriesExhausted, match="wrong-range"):
        call(filesystem(store))
    assert len(store.asks) == 3


@each_read
def test_a_short_range_is_not_the_end_of_the_object(store: OddStore, read: str) -> None:
    call, part = READS[read]
    store.how = lambda ask: shortened(store, ask, 500) if ask.number == 1 else None
    assert call(filesystem(store)) == DATA[part]
    # The rest is asked for behind what came, in the version that it began with.
    first, rest = store.asks[:2]
    assert (rest.first, rest.headers["if-match"]) == (first.first + 500, store.etag)


@each_read
def test_a_part_that_does_not_say_which_is_not_data(store: OddStore, read: str) -> None:
    call, _ = READS[read]
    store.how = lambda ask: Reply(
        status=206, headers={"ETag": store.etag, "Content-Length": "10"}, pieces=[DATA[:10]]
    )  # fmt: skip
    with pytest.raises(RetriesExhausted, match="wrong-range"):
        call(filesystem(store))


def test_a_part_of_an_unknown_whole_is_not_short_data(store: OddStore) -> None:
    def starred(ask: Ask) -> Reply:
        reply = shortened(store, ask, 500)
        reply.headers["Content-Range"] = str(reply.headers["Content-Range"]).partition("/")[0] + "/*"
        return reply

    store.how = lambda ask: starred(ask) if ask.number == 1 else None
    assert filesystem(store).cat_file(PATH, start=10, end=2000) == DATA[10:2000]


@each_read
@pytest.mark.parametrize("says", UNREADABLE)
def test_a_content_range_that_cannot_be_read_is_not_short_data(store: OddStore, read: str, says: str) -> None:
    call, part = READS[read]

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        reply.status = 206
        reply.headers["Content-Range"] = says.format(first=ask.first, last=ask.end - 1, size=len(DATA))
        return reply

    store.how = lambda ask: how(ask) if ask.number == 1 else None
    assert call(filesystem(store)) == DATA[part]
    store.begin_anew(DATA, how)
    with pytest.raises(RetriesExhausted, match="wrong-range"):
        call(filesystem(store))
    assert len(store.asks) == 3


@pytest.mark.parametrize("size", [0, 1000, 262_143, 262_144, 262_145, 300_000])
@pytest.mark.parametrize("read", ["file", "open end", "head"])
def test_an_object_whose_size_no_range_tells_is_not_short_data(store: OddStore, read: str, size: int) -> None:
    call, part = READS[read]

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if reply.status == 206:
            reply.headers["Content-Range"] = f"bytes {ask.first}-{ask.end - 1}/*"
        return reply

    store.begin_anew(DATA[:size], how)
    if size <= (1000 if read == "open end" else 0) and read != "file":
        pytest.skip("nothing is there: a 416, as without this library")
    assert call(filesystem(store)) == DATA[:size][part]


@each_read
def test_the_whole_object_for_a_range_is_cut(store: OddStore, read: str) -> None:
    call, part = READS[read]
    whole = {"ETag": store.etag, "Content-Length": str(len(DATA))}
    store.how = lambda ask: Reply(headers=dict(whole), pieces=[DATA])
    assert call(filesystem(store)) == DATA[part]


def test_the_tail_of_an_object_of_unknown_length_is_not_the_whole(store: OddStore) -> None:
    store.how = lambda ask: Reply(headers={"ETag": store.etag}, pieces=[DATA])
    with pytest.raises(RetriesExhausted, match="wrong-range"):
        filesystem(store).cat_file(PATH, start=-1000)


# -- what nobody can verify --------------------------------------------------------------------------


def without_length(store: OddStore, *, keep: int | None = None, **headers: str) -> Callable[[Ask], Reply]:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **{"Content-Length": None}, **headers)
        if reply.status == 416:
            return store.sound(ask)
        reply.pieces = [DATA[ask.first : ask.end][:keep]]
        return reply

    return how


def test_a_body_without_length_is_not_taken_for_sure_in_silence(store: OddStore) -> None:
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    store.how = without_length(store)
    assert filesystem(store).cat_file(PATH) == DATA
    unsubscribe()
    told = [event for event in seen if isinstance(event, events.BodyUnverified)]
    assert [event.path for event in told] == [f"s3://{PATH}"]
    assert [scope.unverified for scope in report().scopes if scope.leaf] == [1]
    assert "without length and checksum" in str(report())


def test_a_body_without_length_fails_under_strict(store: OddStore) -> None:
    store.how = without_length(store)
    with pytest.raises(RetriesExhausted, match="unverifiable-body"):
        filesystem(store, verify="strict").cat_file(PATH)
    assert len(store.asks) == 3


def test_a_checksum_stands_for_a_length(store: OddStore) -> None:
    crc32 = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
    store.how = without_length(store, **{"x-amz-checksum-crc32": crc32})
    assert filesystem(store, verify="strict").cat_file(PATH) == DATA
    assert len(store.asks) == 1
    cut = without_length(store, keep=1000, **{"x-amz-checksum-crc32": crc32})
    store.how = lambda ask: cut(ask) if ask.number == 2 else None
    assert filesystem(store, verify="strict").cat_file(PATH) == DATA


@pytest.mark.parametrize("algorithm", ["crc32", "sha256"])
@pytest.mark.parametrize("read", ["whole", "local"])
def test_a_spliced_body_is_not_spared_the_checksum(store: OddStore, algorithm: str, read: str, tmp_path: Path) -> None:
    digest = zlib.crc32(DATA).to_bytes(4, "big") if algorithm == "crc32" else hashlib.sha256(DATA).digest()
    header = {f"x-amz-checksum-{algorithm}": base64.b64encode(digest).decode()}
    flipped = bytes([DATA[250_000] ^ 1])
    damaged = DATA[:250_000] + flipped + DATA[250_001:]

    def how(ask: Ask) -> Reply | None:
        reply = store.sound(ask, **(header if not ask.is_range else {}))
        if ask.number == 1:
            reply.pieces = [DATA[:200_000]]
        elif ask.number == 2:
            reply.pieces = [damaged[ask.first : ask.end]]
        return reply

    store.how = how
    fs, local = filesystem(store), tmp_path / "local"
    if read == "whole":
        assert fs.cat_file(PATH) == DATA
    else:
        fs.get_file(PATH, str(local))
        assert local.read_bytes() == DATA
    assert store.ranges == [(0, 300_000), (200_000, 300_000), (0, 300_000)], "nothing of a damaged body is kept"


@pytest.mark.parametrize("read", ["whole", "local"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_an_object_in_parallel_ranges_is_not_spared_the_checksum(
    store: OddStore, read: str, is_damaged: bool, tmp_path: Path
) -> None:
    crc32 = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
    damaged = bytearray(DATA)
    damaged[250_000] ^= is_damaged

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **({} if ask.is_range else {"x-amz-checksum-crc32": crc32}))
        if ask.is_range:
            reply.pieces = [bytes(damaged[ask.first : ask.end])]
        return reply

    store.how = how
    fs, local = filesystem(store), tmp_path / "local"
    if read == "whole":
        assert fs.cat_file(PATH, chunksize=100_000) == DATA
    else:
        fs.get_file(PATH, str(local), chunksize=100_000)
        assert local.read_bytes() == DATA
    assert len(store.asks) == (4 if is_damaged else 3)


# -- progress and stalls -----------------------------------------------------------------------------


def test_bytes_that_came_are_not_forgotten_by_the_count_of_faults(store: OddStore) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        reply.pieces = [DATA[ask.first : min(ask.end, ask.first + 20_000)]]
        return reply

    store.how = how
    assert filesystem(store, max_attempts=2).cat_file(PATH, start=0, end=200_000) == DATA[:200_000]
    assert len(store.asks) == 10


@pytest.mark.parametrize("size", [200_000, 1_500_000], ids=["one step", "pieces"])
@pytest.mark.parametrize("pause_s", [0.02, 30.0], ids=["trickle", "silence"])
def test_a_body_that_stalls_is_not_waited_for(store: OddStore, pause_s: float, size: int) -> None:
    data = random.Random(6).randbytes(size)

    def how(ask: Ask) -> Reply | None:
        reply = store.sound(ask)
        if ask.number == 1:
            rest = data[ask.first + 1000 : ask.end]
            reply.pieces = [data[ask.first : ask.first + 1000]]
            reply.pieces += [each for byte in rest[:200] for each in (pause_s, bytes([byte]))]
        return reply

    store.begin_anew(data, how)
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    fs = filesystem(store, min_throughput_bytes_per_s=50_000, stall_window_s=0.1)
    assert fs.cat_file(PATH) == data
    unsubscribe()
    rules = [event.verdict.rule for event in seen if isinstance(event, events.AttemptFailed)]
    assert rules == ["stalled-body"]
    assert store.asks[1].first >= 1000


def test_a_slow_reader_is_not_a_slow_body(store: OddStore, tmp_path: Path) -> None:
    fs = filesystem(store, min_throughput_bytes_per_s=10_000, stall_window_s=0.01)
    assert fs.cat_file(PATH) == DATA
    assert len(store.asks) == 1


def test_a_replaced_object_is_not_joined(store: OddStore) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if ask.number == 1:
            reply.pieces = [DATA[:1000]]
            store.etag = '"two"'
        return reply

    store.how = how
    with pytest.raises(ObjectChanged):
        filesystem(store).cat_file(PATH)


def test_a_body_whose_checksum_is_always_another_is_not_read_for_ever(store: OddStore) -> None:
    """All of its bytes come each time, and none of them is kept: that is no progress."""
    wrong = base64.b64encode(zlib.crc32(b"other").to_bytes(4, "big")).decode()
    store.how = lambda ask: store.sound(ask, **{"x-amz-checksum-crc32": wrong})
    with pytest.raises(RetriesExhausted, match=r"checksum\) after 3 attempts"):
        filesystem(store).cat_file(PATH)
    assert len(store.asks) == 3


@pytest.mark.parametrize("read", ["whole", "local"])
def test_a_damaged_body_that_is_cut_by_turns_is_not_read_for_ever(store: OddStore, read: str, tmp_path: Path) -> None:
    """The bytes that come between two wrong checksums are read for the second time: that is no progress."""
    wrong = base64.b64encode(zlib.crc32(b"other").to_bytes(4, "big")).decode()

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **({} if ask.is_range else {"x-amz-checksum-crc32": wrong}))
        reply.pieces = [DATA[ask.first : min(ask.end, ask.first + 100_000)]]
        return reply

    store.how = how
    fs = filesystem(store)
    with pytest.raises(RetriesExhausted, match="after 4 attempts"):
        fs.cat_file(PATH) if read == "whole" else fs.get_file(PATH, str(tmp_path / "local"))
    assert len(store.asks) == 4, "two that are cut, one to the end, and one that is cut again"


@pytest.mark.parametrize("on_error", ["return", "raise"])
@pytest.mark.parametrize("other", [(200_000, 200_010), (None, None), (299_000, None)], ids=["range", "whole", "tail"])
def test_ranges_of_one_call_are_not_of_two_versions(
    store: OddStore, on_error: str, other: tuple[int | None, int | None]
) -> None:
    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if ask.number == 1:
            store.etag = '"two"'
        return reply

    store.how = how
    ask = functools.partial(
        filesystem(store).cat_ranges, [PATH] * 2, [0, other[0]], [10, other[1]], max_gap=0, on_error=on_error
    )
    if on_error == "raise":
        with pytest.raises(ObjectChanged):
            ask()
    else:
        assert sorted(type(each).__name__ for each in ask()) == ["ObjectChanged", "bytes"]
    store.begin_anew(DATA)
    assert ask() == [DATA[:10], DATA[slice(*other)]]
    assert ask() == [DATA[:10], DATA[slice(*other)]]
