"""What reading costs, and that it brings the right bytes whatever dies, whatever is cached, whatever is replaced."""

from __future__ import annotations

import errno
import inspect
import io
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from s3fs import S3FileSystem
from s3fs.utils import FileExpired

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.drive import runtime as runtimes
from resilient_io.drive.first import FIRST_READ_BYTES
from resilient_io.errors import ObjectChanged, RetriesExhausted
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

pytestmark = pytest.mark.wire
POLICY = {"backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 4}
BIG = 3_000_000
TEXT = "".join(f"line {number} äöü €\n" for number in range(400)).encode()
OPTIONS = inspect.signature(S3FileSystem.__init__).parameters
knows_expiry = pytest.mark.parametrize(
    "expiry", [{"local_expiry_check": on} for on in (False, True)] if "local_expiry_check" in OPTIONS else [{}], ids=str
)
READS: dict[str, Callable[[Any, str, Path], bytes]] = {}


def _reads(function: Callable[[Any, str, Path], bytes]) -> Callable[[Any, str, Path], bytes]:
    READS[function.__name__] = function
    return function


@_reads
def cat_file(fs: Any, path: str, local: Path) -> bytes:
    data: bytes = fs.cat_file(path)
    return data


@_reads
def open_read(fs: Any, path: str, local: Path) -> bytes:
    with fs.open(path) as file:
        data: bytes = file.read()
    return data


@_reads
def get_file(fs: Any, path: str, local: Path) -> bytes:
    fs.get_file(path, str(local))
    return local.read_bytes()


@pytest.fixture(scope="module")
def store() -> Iterator[FaultServer]:
    with FaultServer() as server:
        server.fill("b", count=4, size_bytes=4096)
        server.fill("big", count=4, size_bytes=BIG)
        client = boto3.session.Session().client("s3", endpoint_url=server.url)
        client.put_object(Bucket="b", Key="empty", Body=b"")
        client.put_object(Bucket="b", Key="text", Body=TEXT)
        yield server


@pytest.fixture(scope="module")
def stock(store: FaultServer) -> Any:
    return boto3.session.Session().client("s3", endpoint_url=store.url)


@pytest.fixture(scope="module")
def fs(store: FaultServer) -> Any:
    return _filesystem(store)


def _filesystem(store: FaultServer, **options: Any) -> Any:
    made: dict[str, Any] = {"resilience": POLICY, "skip_instance_cache": True, "use_listings_cache": False, **options}
    return ResilientS3FileSystem(endpoint_url=store.url, **made)


def _bytes_of(stock: Any, path: str) -> bytes:
    bucket, _, key = path.partition("/")
    body: bytes = stock.get_object(Bucket=bucket, Key=key)["Body"].read()
    return body


def _sent(server: FaultServer) -> Counter[str]:
    return Counter(exchange.op for exchange in server.log())


# -- the cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("path", ["b/train/000001", "b/empty"])
def test_a_small_object_does_not_cost_a_head_and_a_get(
    fs: Any, stock: Any, plan_of: Callable[..., FaultServer], tmp_path: Path, path: str, read: str
) -> None:
    expected = _bytes_of(stock, path)
    server = plan_of()
    assert READS[read](fs, path, tmp_path / "local") == expected
    assert _sent(server) == {"GetObject": 1}


def test_a_large_object_does_not_cost_a_head(fs: Any, stock: Any, plan_of: Callable[..., FaultServer]) -> None:
    expected = _bytes_of(stock, "big/train/000001")
    server = plan_of()
    assert fs.cat_file("big/train/000001", chunksize=1_000_000) == expected
    assert _sent(server) == {"GetObject": 3}
    server = plan_of()
    with fs.open("big/train/000001") as file:
        assert file.read() == expected
    assert _sent(server) == {"GetObject": 2}
    sent = [exchange.sent_bytes for exchange in server.log()]
    assert sum(sent) < BIG + 2000, "bytes that opening brought were asked for again"
    assert min(sent) >= FIRST_READ_BYTES


def test_a_missing_key_does_not_fail_as_late_as_the_first_read(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of()
    for mode in ("rb", "r"):
        with pytest.raises(FileNotFoundError):
            fs.open("b/none", mode)
    assert _sent(server) == {"GetObject": 2}


@pytest.mark.parametrize("read", READS)
def test_a_missing_key_leaves_no_local_file(fs: Any, tmp_path: Path, read: str) -> None:
    with pytest.raises(FileNotFoundError):
        READS[read](fs, "b/none", tmp_path / "local")
    assert not (tmp_path / "local").exists()


# -- ranges ------------------------------------------------------------------------------------------


def _client_of(fs: Any) -> Any:
    """Return the filesystem's client; older s3fs makes another one until the first request is sent."""
    fs.call_s3("head_bucket", Bucket="b")
    return fs.s3


class Requests:
    """What was asked for, from inside the client."""

    def __init__(self, fs: Any) -> None:
        self.seen: list[dict[str, Any]] = []
        _client_of(fs).meta.events.register("before-parameter-build.s3.GetObject", self._note)

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        self.seen.append(dict(params))


@pytest.mark.parametrize("read", ["cat_file", "get_file", "open"])
def test_ranges_of_one_object_are_not_of_two_versions(
    store: FaultServer, stock: Any, tmp_path: Path, read: str
) -> None:
    fs, local = _filesystem(store), tmp_path / "local"
    requests, etag = Requests(fs), stock.head_object(Bucket="big", Key="train/000001")["ETag"]
    if read == "cat_file":
        fs.cat_file("big/train/000001", chunksize=500_000)
    elif read == "get_file":
        fs.get_file("big/train/000001", str(local), chunksize=500_000)
    else:
        with fs.open("big/train/000001", block_size=500_000) as file:
            file.read(10)
            file.seek(2_000_000)
            file.read(10)
    ranged = [request for request in requests.seen if not request.get("Range", "bytes=0-").startswith("bytes=0-")]
    assert ranged
    assert {request.get("IfMatch") for request in ranged} == {etag}


def test_ranges_do_not_pass_by_the_gate(store: FaultServer, plan_of: Callable[..., FaultServer]) -> None:
    server = plan_of()
    fs = _filesystem(store, resilience={**POLICY, "max_concurrency": 2})
    runtimes.reset()
    fs.cat_file("big/train/000001", chunksize=200_000)
    assert server.stats().peak_of(bucket="big") <= 2
    sent = [lane.leaf.tally.sent for lane in runtimes.runtime().gate.lanes() if lane.path.bucket == "big"]
    assert sent == [15]


def _replace(stock: Any, key: str, body: bytes) -> None:
    stock.put_object(Bucket="big", Key=key, Body=body)


@knows_expiry
def test_an_object_replaced_while_open_does_not_mix_versions(
    store: FaultServer, stock: Any, expiry: dict[str, bool]
) -> None:
    fs = _filesystem(store, **expiry)
    _replace(stock, "replaced", b"a" * 1_000_000)
    with fs.open("big/replaced", block_size=100_000) as file:
        assert file.read(10) == b"a" * 10
        _replace(stock, "replaced", b"b" * 1_000_000)
        file.seek(500_000)
        with pytest.raises(FileExpired) as caught:
            file.read(10)
    changed = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(changed, ObjectChanged)
    assert changed.errno == errno.ESTALE
    assert str(changed) == str(caught.value)


@knows_expiry
def test_the_policy_of_s3fs_on_expiry_is_not_changed(store: FaultServer, stock: Any, expiry: dict[str, bool]) -> None:
    fs = _filesystem(store, **expiry)
    requests = Requests(fs)
    with fs.open("big/train/000001", block_size=100_000) as file:
        file.seek(500_000)
        assert file.read(10) == _bytes_of(stock, "big/train/000001")[500_000:500_010]
    assert ("IfMatch" in requests.seen[-1]) == (not expiry.get("local_expiry_check"))


@pytest.mark.parametrize("read", ["cat_file", "get_file"])
def test_an_object_replaced_between_its_parts_is_not_mixed(
    store: FaultServer, stock: Any, tmp_path: Path, read: str
) -> None:
    fs, local = _filesystem(store), tmp_path / "local"
    _replace(stock, "moving", b"a" * 1_000_000)

    def replace(params: dict[str, Any], **_: Any) -> None:
        if params.get("Range"):
            _replace(stock, "moving", b"b" * 1_000_000)

    _client_of(fs).meta.events.register("before-parameter-build.s3.GetObject", replace)
    with pytest.raises(ObjectChanged, match="replaced while it was being read") as raised:
        if read == "cat_file":
            fs.cat_file("big/moving", chunksize=300_000)
        else:
            fs.get_file("big/moving", str(local), chunksize=300_000)
    assert isinstance(raised.value, OSError)
    assert not local.exists()


# -- bodies that die ---------------------------------------------------------------------------------

DEATHS = [FaultAction.TRUNCATE, FaultAction.RESET_BODY, FaultAction.EARLY_END_CHUNKED, FaultAction.EARLY_END_EOF]


@pytest.mark.parametrize("action", DEATHS, ids=str)
@pytest.mark.parametrize("path", ["b/train/000001", "big/train/000001"])
@pytest.mark.parametrize("read", [*READS, "blocks", "range"])
def test_a_body_that_dies_is_not_cut_short(
    fs: Any,
    stock: Any,
    plan_of: Callable[..., FaultServer],
    tmp_path: Path,
    idle: Callable[[], bool],
    path: str,
    action: FaultAction,
    read: str,
) -> None:
    expected = _bytes_of(stock, path)
    server = plan_of(FaultRule(action=action, after_bytes=1000, calls=(1, 2)))
    if read == "blocks":
        assert fs.cat_file(path, chunksize=1_000_000) == expected
    elif read == "range":
        assert fs.cat_file(path, start=10, end=3000) == expected[10:3000]
    else:
        assert READS[read](fs, path, tmp_path / "local") == expected
    assert 3 <= server.stats().requests <= 6
    assert idle()


@pytest.mark.parametrize("read", [*READS, "range"])
def test_a_body_that_always_dies_does_not_cost_more_than_the_policy_allows(
    fs: Any, plan_of: Callable[..., FaultServer], tmp_path: Path, idle: Callable[[], bool], read: str
) -> None:
    server = plan_of(FaultRule(action=FaultAction.RESET_BODY, after_bytes=0))
    with pytest.raises(RetriesExhausted, match=r"GetObject s3://b/train/000001: transient .* after 4 attempts"):
        if read == "range":
            fs.cat_file("b/train/000001", start=0, end=100)
        else:
            READS[read](fs, "b/train/000001", tmp_path / "local")
    assert _sent(server) == {"GetObject": 4}
    assert not (tmp_path / "local").exists()
    assert idle()


def test_a_large_body_does_not_begin_again_where_it_died(
    fs: Any, stock: Any, plan_of: Callable[..., FaultServer]
) -> None:
    expected = _bytes_of(stock, "big/train/000001")
    server = plan_of(FaultRule(action=FaultAction.RESET_BODY, after_bytes=2_000_000, calls=(1,)))
    assert fs.cat_file("big/train/000001") == expected
    # What the reset swept away in the buffers is asked for twice, but not the two million bytes.
    assert server.log()[1].sent_bytes < BIG - 500_000


def test_headers_and_body_do_not_get_attempts_of_their_own(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    dying = FaultRule(action=FaultAction.RESET_BODY, after_bytes=0, calls=(1, 2))
    server = plan_of(dying, FaultRule(action=FaultAction.ERROR, status=500, code="InternalError", calls=(3, 4, 5, 6)))
    with pytest.raises(RetriesExhausted):
        fs.cat_file("b/train/000001")
    assert _sent(server) == {"GetObject": 4}


@pytest.mark.parametrize("read", [*READS, "range", "tail"])
def test_a_store_that_ignores_ranges_does_not_shift_the_bytes(
    fs: Any, stock: Any, plan_of: Callable[..., FaultServer], tmp_path: Path, read: str
) -> None:
    expected = _bytes_of(stock, "big/train/000001")
    plan_of(FaultRule(action=FaultAction.IGNORE_RANGE))
    if read == "range":
        assert fs.cat_file("big/train/000001", start=2_000_000, end=2_000_100) == expected[2_000_000:2_000_100]
    elif read == "tail":
        assert fs.cat_file("big/train/000001", start=-100) == expected[-100:]
    else:
        assert READS[read](fs, "big/train/000001", tmp_path / "local") == expected


# -- random access -----------------------------------------------------------------------------------

CACHES = ["none", "readahead", "bytes", "mmap", "blockcache", "all", "first", "background"]
if fsspec.__version__ < "2026.3":
    CACHES.remove("blockcache")  # raises ValueError at the end of an object, without this library too
STEPS = st.one_of(
    st.tuples(st.just("seek"), st.integers(0, len(TEXT) + 50), st.just(0)),
    st.tuples(st.just("seek"), st.integers(-50, 50), st.just(1)),
    st.tuples(st.just("seek"), st.integers(-len(TEXT), 10), st.just(2)),
    st.tuples(st.just("read"), st.integers(0, 3000)),
    st.tuples(st.just("read"), st.just(-1)),
    st.tuples(st.just("readinto"), st.integers(1, 500)),
    st.tuples(st.just("readline")),
    st.tuples(st.just("tell")),
)


def _step(file: Any, step: tuple[Any, ...]) -> Any:
    name, *arguments = step
    if name == "seek":
        try:
            return file.seek(*arguments)
        except (ValueError, OSError):
            return "before the start"
    if name == "readinto":
        buffer = bytearray(arguments[0])
        return file.readinto(buffer), bytes(buffer)
    return getattr(file, name)(*arguments)


@pytest.mark.parametrize("cache_type", CACHES)
@settings(max_examples=12)
@given(steps=st.lists(STEPS, min_size=1, max_size=12), block_bytes=st.integers(200, 4000))
def test_random_access_does_not_bring_other_bytes(
    fs: Any, cache_type: str, steps: list[tuple[Any, ...]], block_bytes: int
) -> None:
    if cache_type == "background" and len(TEXT) % block_bytes == 0 and fsspec.__version__ < "2026.9":
        return  # fsspec itself reads the block after the last one then
    model = _Model(TEXT)
    with fs.open("b/text", block_size=block_bytes, cache_type=cache_type) as file:
        for step in steps:
            assert _step(file, step) == _step(model, step), step


class _Model(io.BytesIO):
    """A file of bytes that seeks as fsspec's files do: the position stays where a bad seek found it."""

    def seek(self, position: int, whence: int = 0) -> int:
        target = position + (0, self.tell(), len(self.getvalue()))[whence]
        if target < 0:
            raise ValueError("before the start")
        return super().seek(target)


@pytest.mark.parametrize("cache_type", CACHES)
def test_text_mode_does_not_split_characters(fs: Any, cache_type: str) -> None:
    options = {"block_size": 333, "cache_type": cache_type}
    with fs.open("b/text", "r", encoding="utf-8", **options) as file:
        assert file.read() == TEXT.decode()
    with fs.open("b/text", "r", encoding="utf-8", **options) as file:
        assert list(file) == TEXT.decode().splitlines(keepends=True)


def test_parts_that_are_known_are_not_asked_for(fs: Any, plan_of: Callable[..., FaultServer]) -> None:
    server, known = plan_of(), {(0, len(TEXT)): TEXT}
    with fs.open("b/text", cache_type="parts", cache_options={"data": known}) as file:
        file.seek(1000)
        assert file.read(100) == TEXT[1000:1100]
    assert server.stats().requests == 1


def test_access_as_pandas_and_zipfile_do_it_is_right(fs: Any) -> None:
    with fs.open("b/text", block_size=500) as file:
        buffered = io.BufferedReader(file)
        assert buffered.readlines() == TEXT.splitlines(keepends=True)
    with fs.open("b/text", block_size=500) as file:
        assert file.seek(0, 2) == len(TEXT)
        file.seek(-22, 2)
        assert file.read() == TEXT[-22:]
        file.seek(0)
        assert list(file) == TEXT.splitlines(keepends=True)


@pytest.mark.parametrize("size_bytes", [0, 1, 99, 100, 101, 200])
def test_a_block_that_ends_with_the_object_is_not_asked_for_beyond(
    fs: Any, stock: Any, plan_of: Callable[..., FaultServer], size_bytes: int
) -> None:
    body = random.Random(1).randbytes(size_bytes)
    stock.put_object(Bucket="b", Key="edge", Body=body)
    server = plan_of()
    for cache_type in CACHES:
        with fs.open("b/edge", block_size=100, cache_type=cache_type) as file:
            assert file.read() == body, cache_type
            assert file.read(10) == b""
    assert server.stats().count(status=416) == (len(CACHES) if size_bytes == 0 else 0)


# -- options of s3fs ---------------------------------------------------------------------------------


def test_requester_pays_is_not_lost_on_the_first_read(store: FaultServer) -> None:
    fs = _filesystem(store, requester_pays=True)
    requests = Requests(fs)
    fs.cat_file("b/train/000001")
    fs.open("b/train/000001").read()
    fs.open("b/train/000001", requester_pays=False).read()
    assert [request.get("RequestPayer") for request in requests.seen] == ["requester", "requester", None]


def test_a_listing_in_the_cache_is_not_asked_again(store: FaultServer, plan_of: Callable[..., FaultServer]) -> None:
    fs = _filesystem(store, use_listings_cache=True)
    fs.ls("b/train")
    server = plan_of()
    assert len(fs.open("b/train/000001").read()) == 4096
    assert _sent(server) == {"GetObject": 1}
    with pytest.raises(FileNotFoundError):
        fs.open("b/train/none")
    assert _sent(server) == {"GetObject": 1}


def test_a_version_is_not_read_as_another(moto_url: str, fault_server: Callable[..., FaultServer]) -> None:
    server = fault_server(FaultPlan(), upstream=moto_url)
    fs = _filesystem(server, version_aware=True)
    fs.make_bucket_versioned("my-bucket")
    versions = []
    for body in (b"one" * 100, b"two" * 100):
        fs.pipe_file("my-bucket/versioned", body)
        versions.append(fs.info("my-bucket/versioned", refresh=True)["VersionId"])
    assert fs.cat_file("my-bucket/versioned", version_id=versions[0]) == b"one" * 100
    with (
        fs.open("my-bucket/versioned", version_id=versions[0], block_size=50) as old,
        fs.open("my-bucket/versioned", block_size=50) as new,
    ):
        assert old.read(10) == (b"one" * 100)[:10]
        fs.pipe_file("my-bucket/versioned", b"three" * 100)
        assert old.read() == (b"one" * 100)[10:]
        assert new.read() == b"two" * 100
    with pytest.raises(ValueError, match="version_aware"):
        _filesystem(server).open("my-bucket/versioned", version_id=versions[0])


def test_switching_off_does_not_half_switch_off(store: FaultServer, plan_of: Callable[..., FaultServer]) -> None:
    plain = S3FileSystem(endpoint_url=store.url, skip_instance_cache=True, use_listings_cache=False)
    sent = []
    for fs in (plain, _filesystem(store, resilience=False)):
        server = plan_of()
        assert len(fs.cat_file("b/train/000001")) == 4096
        assert len(fs.open("b/train/000001").read()) == 4096
        sent.append(_sent(server))
    assert sent[0] == sent[1]
    assert sent[0]["HeadObject"] >= 1


def test_a_refused_read_does_not_pass_by_its_lane(store: FaultServer, plan_of: Callable[..., FaultServer]) -> None:
    plan_of(FaultRule(action=FaultAction.ERROR, calls=(1,), match=Match(op="GetObject")))
    runtimes.reset()
    fs = _filesystem(store)
    assert len(fs.cat_file("b/train/000001")) == 4096
    (lane,) = runtimes.runtime().gate.lanes()
    assert (lane.leaf.tally.sent, lane.leaf.tally.refused, lane.leaf.tally.succeeded) == (2, 1, 1)
