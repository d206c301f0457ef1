"""What reaches the server: never more than the policy allows when nothing helps, and not more than adlfs sends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adlfs import AzureBlobFileSystem
from fsspec.asyn import sync

from resilient_io.errors import ResilientIOError, RetriesExhausted, ThrottledError
from resilient_io.testing import FaultAction, FaultPlan, Latency

pytestmark = [pytest.mark.wire, pytest.mark.usefixtures("fast_clock")]
Break = Callable[..., None]
LONG = bytes(range(256)) * 400
# On a clock that runs a hundred times as fast.
WITHIN_S = 300.0


def read(fs: Any, path: str, **options: Any) -> bytes:
    with fs.open(path, **options) as file:
        data: bytes = file.read()
    return data


def write(fs: Any, path: str, data: bytes, mode: str = "wb", **options: Any) -> None:
    with fs.open(path, mode, **options) as file:
        file.write(data)


async def all_others() -> None:
    """Wait until nothing of this loop could send any more."""
    here = asyncio.current_task()
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not here), return_exceptions=True)


# name: (call, its requests against a store that is well)
CALLS: dict[str, tuple[Callable[[Any, str, Path], Any], int]] = {
    "cat_file": (lambda fs, c, _: fs.cat_file(f"{c}/x"), 1),
    "cat": (lambda fs, c, _: fs.cat(f"{c}/x"), 1),
    "info": (lambda fs, c, _: fs.info(f"{c}/x"), 1),
    "exists": (lambda fs, c, _: fs.exists(f"{c}/x"), 1),
    "isfile": (lambda fs, c, _: fs.isfile(f"{c}/x"), 1),
    "isdir": (lambda fs, c, _: fs.isdir(f"{c}/d"), 2),
    "ls": (lambda fs, c, _: fs.ls(c), 1),
    "find": (lambda fs, c, _: fs.find(c), 1),
    "walk": (lambda fs, c, _: list(fs.walk(f"{c}/d")), 2),
    "glob": (lambda fs, c, _: fs.glob(f"{c}/*"), 1),
    "du": (lambda fs, c, _: fs.du(c), 1),
    "open and read": (lambda fs, c, _: read(fs, f"{c}/x"), 1),
    "pipe_file": (lambda fs, c, _: fs.pipe_file(f"{c}/new", b"a"), 1),
    "write nothing": (lambda fs, c, _: write(fs, f"{c}/new", b""), 1),
    "write little": (lambda fs, c, _: write(fs, f"{c}/new", b"abc"), 1),
    "write blocks": (lambda fs, c, _: write(fs, f"{c}/new", LONG, block_size=len(LONG) // 4), 5),
    "touch": (lambda fs, c, _: fs.touch(f"{c}/new"), 1),
    "cp_file": (lambda fs, c, _: fs.cp_file(f"{c}/x", f"{c}/new"), 1),
    "put_file": (lambda fs, c, p: fs.put_file(str(p / "local"), f"{c}/new"), 1),
    "get_file": (lambda fs, c, p: fs.get_file(f"{c}/x", str(p / "x")), 1),
    "setxattrs": (lambda fs, c, _: fs.setxattrs(f"{c}/x", a="b"), 1),
    "rm_file": (lambda fs, c, _: fs.rm_file(f"{c}/x"), 1),
    "rm": (lambda fs, c, _: fs.rm(f"{c}/x"), 2),
    "mkdir": (lambda fs, c, _: fs.mkdir(f"{c}-new"), 2),
    "rmdir": (lambda fs, c, _: fs.rmdir(f"{c}-new"), 1),
}
# Of these the server sees several requests at once, each with its attempts.
SIDE_BY_SIDE = {"write blocks": 4}
FAULTS = {
    "500": ({"status": 500, "code": "InternalError"}, RetriesExhausted, 3),
    "503": ({}, ThrottledError, 4),
    "reset": ({"action": FaultAction.RESET_BEFORE}, ResilientIOError, 3),
    "429": ({"status": 429, "code": "TooManyRequests"}, ThrottledError, 4),
    "OperationTimedOut": ({"status": 500, "code": "OperationTimedOut"}, ResilientIOError, 4),
}


@pytest.fixture
def filled(fs: Any, box: Any, tmp_path: Path) -> Any:
    (tmp_path / "local").write_bytes(b"abc")
    for name in ("x", "d/y", "d/z"):
        box.upload_blob(name, b"0123456789")
    return fs


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CALLS)
def test_no_more_attempts_than_the_policy_allows(
    filled: Any, azure_store: Any, break_it: Break, tmp_path: Path, name: str, fault: str
) -> None:
    rule, kind, attempts = FAULTS[fault]
    break_it(**rule)
    with pytest.raises(kind) as caught:
        CALLS[name][0](filled, azure_store.container, tmp_path)
    at_server = len(azure_store.server.log())
    assert 1 <= at_server <= attempts * SIDE_BY_SIDE.get(name, 1)
    error = caught.value
    assert error.attempts <= attempts
    assert error.elapsed_s < WITHIN_S
    assert error.verdict is not None
    for part in (error.operation, error.path, str(error.verdict.kind), "attempt", " s ["):
        assert part
        assert part in str(error)


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_costs_where_all_is_well(
    filled: Any, azure_store: Any, break_it: Break, tmp_path: Path, name: str
) -> None:
    azure_store.server.reset()
    CALLS[name][0](filled, azure_store.container, tmp_path)
    assert len(azure_store.server.log()) == CALLS[name][1]
    stock = AzureBlobFileSystem(connection_string=azure_store.account.connection_string, skip_instance_cache=True)
    if name in ("rm", "rm_file", "mkdir", "rmdir"):
        return
    azure_store.server.reset()
    CALLS[name][0](stock, azure_store.container, tmp_path)
    assert CALLS[name][1] <= len(azure_store.server.log())


def test_small_objects_are_read_with_one_request_each(filled: Any, azure_store: Any) -> None:
    paths = [f"{azure_store.container}/{name}" for name in ("x", "d/y", "d/z")]
    azure_store.server.reset()
    assert all(read(filled, path) == b"0123456789" for path in paths)
    assert filled.cat(paths) == dict.fromkeys(sorted(paths), b"0123456789")
    assert [call.op for call in azure_store.server.log()] == ["GetBlob"] * 6


def test_a_missing_object_fails_at_open(filled: Any, azure_store: Any) -> None:
    azure_store.server.reset()
    with pytest.raises(FileNotFoundError):
        filled.open(f"{azure_store.container}/no")
    assert len(azure_store.server.log()) == 2


def test_the_blocks_of_a_failed_write_are_not_sent_on(make_fs: Any, azure_store: Any, break_it: Break) -> None:
    fs = make_fs(max_concurrency=2)
    break_it("PutBlock", status=403, code="AuthorizationFailure", calls=(2,))
    file = fs.open(f"{azure_store.container}/new", "wb", block_size=10)
    with pytest.raises(RuntimeError, match="the service does not allow this"):
        file.write(bytes(200))
    with pytest.raises(RuntimeError, match="the service does not allow this"):
        file.close()
    assert file.closed
    # A block that was under way is logged when its end is seen, which may be late.
    assert len(azure_store.server.log()) <= 4
    assert azure_store.server.stats().count(op="PutBlockList") == 0
    assert not fs.exists(f"{azure_store.container}/new")


def test_a_failed_write_leaves_nothing_when_the_store_is_well_again(
    fs: Any, azure_store: Any, break_it: Break, box: Any
) -> None:
    break_it("PutBlock", calls=tuple(range(2, 6)))
    with pytest.raises(ThrottledError), fs.open(f"{azure_store.container}/new", "wb", block_size=10) as file:
        for _ in range(8):
            file.write(bytes(10))
    assert not list(box.list_blobs())
    assert azure_store.server.stats().count(op="PutBlockList") == 0


def test_the_parts_of_a_failed_put_are_not_sent_on(
    make_fs: Any, azure_store: Any, break_it: Break, tmp_path: Path
) -> None:
    fs = make_fs()
    fs.service_client._config.max_single_put_size = 1000
    fs.service_client._config.max_block_size = 1000
    (tmp_path / "long").write_bytes(bytes(100_000))
    break_it("PutBlock")
    with pytest.raises(ThrottledError):
        fs.put_file(str(tmp_path / "long"), f"{azure_store.container}/new", max_concurrency=4)
    # Those that were under way are logged when their end is seen; any that were sent on would keep the server busy.
    until = time.monotonic() + 10.0
    while azure_store.server.stats().in_flight and time.monotonic() < until:
        time.sleep(0.005)
    ended_with = len(azure_store.server.log())
    assert ended_with <= 4 * 4
    sync(fs.loop, all_others)
    assert len(azure_store.server.log()) == ended_with


def test_an_append_whose_answer_is_lost_is_not_sent_again(fs: Any, azure_store: Any, break_it: Break, box: Any) -> None:
    write(fs, f"{azure_store.container}/log", b"A", "ab")
    break_it("AppendBlock", FaultAction.RESET_AFTER, calls=(1,))
    with pytest.raises(ResilientIOError):
        write(fs, f"{azure_store.container}/log", b"B", "ab")
    assert box.download_blob("log").readall() == b"AB"
    assert azure_store.server.stats().count(op="AppendBlock") == 1


def test_switched_off_it_is_stock(make_fs: Any, azure_store: Any, box: Any) -> None:
    box.upload_blob("x", b"0123456789")
    fs = make_fs(resilience=False)
    azure_store.server.reset()
    with fs.open(f"{azure_store.container}/x") as file:
        assert type(file).__module__ == "adlfs.spec"
        assert file.read() == b"0123456789"
    assert [call.op for call in azure_store.server.log()] == ["GetBlobProperties", "GetBlob"]


GATED: dict[str, Callable[[Any, str], Any]] = {
    "reads": lambda fs, c: fs.cat([f"{c}/d/{n}" for n in range(30)]),
    "writes": lambda fs, c: fs.pipe({f"{c}/d/new{n}": b"a" for n in range(30)}),
    "blocks": lambda fs, c: write(fs, f"{c}/d/blocks", bytes(300), block_size=10),
    "deletes": lambda fs, c: fs.rm([f"{c}/d/{n}" for n in range(30)], expand_path=False),
    "lists": lambda fs, c: sync(fs.loop, together, fs, [f"{c}/d"] * 30),
}


async def together(fs: Any, paths: list[str]) -> None:
    await asyncio.gather(*(fs._find(path) for path in paths))


@pytest.mark.parametrize("name", GATED)
def test_what_runs_side_by_side_obeys_the_gate(
    make_fs: Callable[..., Any], box: Any, azure_store: Any, name: str
) -> None:
    for number in range(30):
        box.upload_blob(f"d/{number}", b"1")
    fs = make_fs(resilience={"max_concurrency": 3})
    azure_store.server.configure(FaultPlan(latency=Latency(base_s=0.01)))
    azure_store.server.reset()
    GATED[name](fs, azure_store.container)
    op_class = {"blocks": "write"}.get(name, name.removesuffix("s"))
    assert azure_store.server.stats().peak_of(prefix="d", op_class=op_class) == 3
