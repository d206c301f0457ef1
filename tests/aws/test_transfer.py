"""boto3's managed transfers: one owner of the retry, counted at the server, and permits that come back."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

boto3 = pytest.importorskip("boto3")

from boto3.exceptions import RetriesExceededError, S3UploadFailedError  # noqa: E402
from boto3.s3.transfer import TransferConfig  # noqa: E402
from botocore.config import Config  # noqa: E402
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError  # noqa: E402
from s3transfer.exceptions import RetriesExceededError as RetriesExceeded  # noqa: E402

import resilient_io as rio  # noqa: E402
from resilient_io.aws import hooks, transfer  # noqa: E402
from resilient_io.drive.operation import current  # noqa: E402
from resilient_io.drive.runtime import runtime  # noqa: E402

pytestmark = pytest.mark.wire

MAX_ATTEMPTS = 4
# A budget that never binds, so that the counts are those of `max_attempts` alone.
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001,
    "backoff_cap_s": 0.005,
    "max_attempts": MAX_ATTEMPTS,
    "max_throttle_attempts": 5,
    "retry_budget_burst": 1000,
    "deadline_s": 20,  # a permit that is lost shows as this deadline
}
PART_BYTES = 5 * 2**20
PARTS = 8
IN_PARTS = {"multipart_threshold": PART_BYTES, "multipart_chunksize": PART_BYTES}


@pytest.fixture(scope="module")
def blob() -> bytes:
    return os.urandom(PART_BYTES * (PARTS - 1) + 1000)


@pytest.fixture
def server(fault_server: Callable[..., FaultServer]) -> FaultServer:
    store = fault_server()
    store.fill("bkt", count=1, size_bytes=300_000, key="train/{}")
    return store


def make_client(server: FaultServer, **config: Any) -> Any:
    return boto3.client("s3", endpoint_url=server.url, config=Config(**config))


@pytest.fixture
def client(server: FaultServer) -> Iterator[Any]:
    made = rio.harden(make_client(server), POLICY)
    yield made
    made.close()


def answers(server: FaultServer) -> Counter[str]:
    return Counter(one.op for one in server.log())


def break_it(server: FaultServer, op: str, action: FaultAction = FaultAction.ERROR, **rule: Any) -> None:
    rule = {"status": 500, "code": "InternalError", **rule} if action is FaultAction.ERROR else rule
    server.configure(FaultPlan(rules=(FaultRule(action=action, match=Match(op=op), **rule),)))


def in_flight() -> int:
    return sum(level.in_flight for level in runtime().gate.levels())


# -- the operation in s3transfer's threads -----------------------------------------------------------


def test_round_trip_in_parts_with_the_caller_s_context_in_each_thread(
    client: Any, server: FaultServer, blob: bytes
) -> None:
    mark: ContextVar[str] = ContextVar("mark", default="lost")
    mark.set("kept")
    seen: list[tuple[str, str, int]] = []

    def note(**_: Any) -> None:
        operation = current()
        seen.append((mark.get(), operation.name if operation else "", threading.get_ident()))

    client.meta.events.register("before-send.s3", note)
    client.upload_fileobj(io.BytesIO(blob), "bkt", "big/a", Config=TransferConfig(**IN_PARTS))
    assert {(kept, name) for kept, name, _ in seen} == {("kept", "upload_fileobj")}
    assert len({thread for *_, thread in seen}) > 1
    seen.clear()
    out = io.BytesIO()
    client.download_fileobj("bkt", "big/a", out, Config=TransferConfig(**IN_PARTS))
    assert out.getvalue() == blob
    assert {(kept, name) for kept, name, _ in seen} == {("kept", "download_fileobj")}
    assert answers(server) == {
        "CreateMultipartUpload": 1, "UploadPart": PARTS, "CompleteMultipartUpload": 1, "HeadObject": 1,
        "GetObject": PARTS,
    }  # fmt: skip
    assert in_flight() == 0


def test_the_user_agent_still_names_s3transfer(client: Any) -> None:
    agents: list[str] = []

    def note(request: Any, **_: Any) -> None:
        agents.append(str(request.headers["User-Agent"]))

    client.meta.events.register("before-send.s3", note)
    client.upload_fileobj(io.BytesIO(b"x"), "bkt", "a")
    hooks.soften(client)
    client.upload_fileobj(io.BytesIO(b"x"), "bkt", "a")
    hardened, stock = (agent.partition(" m/")[2].split(" ")[0].split(",") for agent in agents)
    assert "G" in stock  # botocore's id of S3_TRANSFER
    assert "G" in hardened


def test_files_copies_and_resources_go_the_same_way(client: Any, server: FaultServer, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"content")
    break_it(server, "*", calls=(1, 3, 6))
    client.upload_file(str(source), "bkt", "one")
    client.copy({"Bucket": "bkt", "Key": "one"}, "bkt", "two")
    client.download_file("bkt", "two", str(target))
    assert target.read_bytes() == b"content"
    assert server.stats().count(status=500) == 3


def test_the_source_client_of_a_copy_works_for_the_same_operation(client: Any, server: FaultServer) -> None:
    names = []
    source = make_client(server)
    source.meta.events.register("before-send.s3", lambda **_: names.append(current().name))  # type: ignore[union-attr]
    client.copy({"Bucket": "bkt", "Key": "train/0"}, "bkt", "copy", SourceClient=source)
    assert names == ["copy"]


def test_a_resource_s_upload_file_is_carried(server: FaultServer, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"content")
    resource = boto3.resource("s3", endpoint_url=server.url)
    assert rio.harden(resource, POLICY) is resource
    break_it(server, "PutObject")
    with pytest.raises(S3UploadFailedError):
        resource.Object("bkt", "a").upload_file(str(source))
    assert answers(server) == {"PutObject": MAX_ATTEMPTS}
    with pytest.raises(S3UploadFailedError):
        resource.Bucket("bkt").upload_file(str(source), "b")
    assert answers(server) == {"PutObject": 2 * MAX_ATTEMPTS}


# -- one owner of the retry --------------------------------------------------------------------------


def test_a_create_that_fails_for_good_costs_max_attempts(client: Any, server: FaultServer, blob: bytes) -> None:
    break_it(server, "CreateMultipartUpload")
    with pytest.raises(ClientError) as caught:
        client.upload_fileobj(io.BytesIO(blob), "bkt", "big/a", Config=TransferConfig(**IN_PARTS))
    assert answers(server) == {"CreateMultipartUpload": MAX_ATTEMPTS}
    assert caught.value.attempts == MAX_ATTEMPTS  # type: ignore[attr-defined]


def test_parts_that_fail_for_good_never_cost_more_than_their_attempts(
    client: Any, server: FaultServer, blob: bytes
) -> None:
    break_it(server, "UploadPart")
    with pytest.raises(ClientError, match=r"UploadPart s3://bkt/big/a: transient .* after 4 attempts") as caught:
        client.upload_fileobj(io.BytesIO(blob), "bkt", "big/a", Config=TransferConfig(**IN_PARTS))
    counts = answers(server)
    assert counts["UploadPart"] <= PARTS * MAX_ATTEMPTS
    assert counts["CreateMultipartUpload"] == counts["AbortMultipartUpload"] == 1
    assert caught.value.resilient_io_gave_up  # type: ignore[attr-defined]
    assert str(caught.value).count("attempts in") == 1
    assert in_flight() == 0


def wait_until(condition: Callable[[], object]) -> None:
    deadline_at = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline_at:
        time.sleep(0.001)


def test_the_other_parts_stop_when_one_was_given_up(client: Any, server: FaultServer) -> None:
    break_it(server, "GetObject")
    others: list[object] = []

    def hold_the_others(request: Any, **_: Any) -> None:
        operation = current()
        assert operation is not None
        if request.headers["Range"] == b"bytes=0-39999":
            wait_until(lambda: len(others) == 7)
        else:
            others.append(request)
            wait_until(lambda: operation.ledger)

    client.meta.events.register("before-send.s3.GetObject", hold_the_others)
    config = TransferConfig(multipart_threshold=40_000, multipart_chunksize=40_000)
    with pytest.raises(ClientError):
        client.download_fileobj("bkt", "train/0", io.BytesIO(), Config=config)
    # The first part all its attempts, the seven others the one that was on its way.
    assert answers(server)["GetObject"] == MAX_ATTEMPTS + 7


def test_an_upload_file_error_keeps_boto3_s_class_and_tells_what_was_tried(
    client: Any, server: FaultServer, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"content")
    break_it(server, "PutObject")
    with pytest.raises(S3UploadFailedError, match="max_attempts") as caught:
        client.upload_file(str(source), "bkt", "a/b/c")
    error: Any = caught.value
    assert (error.attempts, error.verdict.kind, error.scope) == (MAX_ATTEMPTS, "transient", "s3://bkt/a/b (write)")
    assert rio.classify(error).retryable is False


@pytest.mark.parametrize("in_threads", [True, False])
def test_a_body_that_dies_is_read_again(client: Any, server: FaultServer, tmp_path: Path, in_threads: bool) -> None:
    break_it(server, "GetObject", FaultAction.TRUNCATE, after_bytes=1000, calls=(1, 2))
    whole = client.get_object(Bucket="bkt", Key="train/0", Range="bytes=0-0")  # call 1: not carried, and short
    whole["Body"].close()
    target, progress = tmp_path / "out", [0]
    client.download_file(
        "bkt",
        "train/0",
        str(target),
        Callback=lambda n: progress.append(n),
        Config=TransferConfig(use_threads=in_threads),
    )
    assert len(target.read_bytes()) == sum(progress) == 300_000
    assert answers(server)["GetObject"] == 3
    assert in_flight() == 0


def test_a_body_that_dies_for_good_costs_max_attempts(client: Any, server: FaultServer, tmp_path: Path) -> None:
    break_it(server, "GetObject", FaultAction.TRUNCATE, after_bytes=0)
    with pytest.raises(RetriesExceededError, match="max_attempts") as caught:
        client.download_file("bkt", "train/0", str(tmp_path / "out"))
    assert answers(server) == {"HeadObject": 1, "GetObject": MAX_ATTEMPTS}
    assert caught.value.attempts == MAX_ATTEMPTS  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []
    assert in_flight() == 0


def test_headers_and_bodies_share_the_attempts(client: Any, server: FaultServer) -> None:
    get = Match(op="GetObject")
    server.configure(
        FaultPlan(
            rules=(
                FaultRule(action=FaultAction.TRUNCATE, match=get, calls=(1, 3), after_bytes=0),
                FaultRule(action=FaultAction.ERROR, match=get, status=500, code="InternalError"),
            )
        )
    )
    with pytest.raises(ClientError):
        client.download_fileobj("bkt", "train/0", io.BytesIO())
    assert answers(server)["GetObject"] == MAX_ATTEMPTS


@pytest.mark.parametrize("action", [FaultAction.RESET_BEFORE, FaultAction.CLOSE_BEFORE, FaultAction.STALL_BEFORE])
def test_a_request_that_was_given_up_is_not_sent_again_by_s3transfer(server: FaultServer, action: FaultAction) -> None:
    client = rio.harden(make_client(server, read_timeout=0.05), POLICY)
    break_it(server, "GetObject", action, delay_s=0.3 if action is FaultAction.STALL_BEFORE else 0.0)
    with pytest.raises(Exception, match="attempts in") as caught:
        client.download_fileobj("bkt", "train/0", io.BytesIO())
    assert answers(server)["GetObject"] == MAX_ATTEMPTS
    error: Any = caught.value
    assert error.attempts == MAX_ATTEMPTS
    # What s3transfer makes of errors that it would have tried again, and of all others.
    stalled = action is FaultAction.STALL_BEFORE
    assert isinstance(error, RetriesExceeded if stalled else ConnectionClosedError)
    assert not stalled or isinstance(error.last_exception, ReadTimeoutError)


def test_a_body_is_read_again_from_the_same_version_or_not_at_all(client: Any, server: FaultServer) -> None:
    break_it(server, "GetObject", FaultAction.TRUNCATE, after_bytes=1000, calls=(1,))
    other = make_client(server)

    def overwrite(**_: Any) -> None:
        if answers(server)["GetObject"] == 1:
            other.put_object(Bucket="bkt", Key="train/0", Body=b"another version")

    client.meta.events.register("before-call.s3.GetObject", overwrite)
    with pytest.raises(Exception, match="did not match expected ETag"):
        client.download_fileobj("bkt", "train/0", io.BytesIO())


# -- permits -----------------------------------------------------------------------------------------


def test_a_permit_covers_the_body(server: FaultServer) -> None:
    client = rio.harden(make_client(server), {**POLICY, "max_concurrency": 2})
    levels: list[int] = []

    class Sink(io.BytesIO):
        def write(self, data: Any) -> int:
            levels.append(in_flight())
            return super().write(data)

    client.download_fileobj("bkt", "train/0", Sink())
    assert levels
    assert all(levels)
    assert in_flight() == 0


def test_the_semaphore_holds_over_parts_that_are_read(client: Any, server: FaultServer, blob: bytes) -> None:
    client.upload_fileobj(io.BytesIO(blob), "bkt", "big/a", Config=TransferConfig(**IN_PARTS))
    rio.harden(client, {**POLICY, "max_concurrency": 2})
    server.reset()
    out = io.BytesIO()
    client.download_fileobj("bkt", "big/a", out, Config=TransferConfig(**IN_PARTS))
    assert out.getvalue() == blob
    assert server.stats().peak <= 2


def test_a_body_that_died_holds_no_permit_while_it_is_asked_for_again(client: Any, server: FaultServer) -> None:
    rio.harden(client, {**POLICY, "max_concurrency": 1})
    break_it(server, "GetObject", FaultAction.TRUNCATE, after_bytes=1000, calls=(1, 2))
    out = io.BytesIO()
    client.download_fileobj("bkt", "train/0", out)
    assert len(out.getvalue()) == 300_000


@pytest.mark.parametrize("error", [RuntimeError("disk full"), KeyboardInterrupt()])
def test_a_sink_that_fails_loses_no_permit(client: Any, error: BaseException) -> None:
    class Sink(io.BytesIO):
        def write(self, data: Any) -> int:
            raise error

    # s3transfer without threads swallows a KeyboardInterrupt, with this library and without it.
    with contextlib.suppress(RuntimeError, KeyboardInterrupt):
        client.download_fileobj("bkt", "train/0", Sink(), Config=TransferConfig(use_threads=False))
    assert in_flight() == 0


# -- the caller's configuration, and the way back ----------------------------------------------------


def test_the_configuration_is_respected_and_not_changed(client: Any, server: FaultServer) -> None:
    config = TransferConfig(
        multipart_threshold=100_000,
        multipart_chunksize=100_000,
        num_download_attempts=2,
        preferred_transfer_client="crt",
    )
    before = dict(vars(config))
    client.download_fileobj("bkt", "train/0", io.BytesIO(), Config=config)
    assert vars(config) == before
    assert answers(server)["GetObject"] == 3


class Pieces(io.RawIOBase):
    """Keeps the sizes of what is written to it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write(self, piece: Any) -> int:
        self.sizes.append(len(piece))
        return len(piece)


@pytest.mark.parametrize(
    ("config", "writes"),
    [(None, 4), (TransferConfig(io_chunksize=2**17), 32), (TransferConfig(max_bandwidth=10**9), 16)],
    ids=["as it is", "the caller's own", "with a bandwidth"],
)
def test_a_download_is_not_written_in_pieces_of_256_kib(
    client: Any, server: FaultServer, config: TransferConfig | None, writes: int
) -> None:
    server.fill("bkt", count=1, size_bytes=2**22, key="large/{}")
    sink, told = Pieces(), list[int]()
    client.download_fileobj("bkt", "large/0", sink, Config=config, Callback=told.append)
    assert sum(sink.sizes) == sum(told) == 2**22
    assert len(sink.sizes) == writes
    assert answers(server)["GetObject"] == 1


def test_as_many_bytes_may_wait_for_the_disk_as_with_stock() -> None:
    ours, stock = transfer._config(None), TransferConfig()
    assert ours.max_io_queue_size * ours.io_chunksize == stock.max_io_queue_size * stock.io_chunksize


def test_the_crt_client_is_not_taken() -> None:
    ours = transfer._config(None)
    assert ours.preferred_transfer_client == "classic"
    assert transfer._config(TransferConfig(preferred_transfer_client="crt")).preferred_transfer_client == "classic"


def test_soften_gives_the_stock_methods_back(client: Any, server: FaultServer) -> None:
    stock = {name: getattr(type(client), name) for name in transfer.METHODS}
    assert all(name in vars(client) for name in stock)
    assert client.upload_file.__name__ == "upload_file"
    hooks.soften(client)
    assert not any(name in vars(client) for name in stock)
    assert "create_request" not in vars(client._endpoint)
    break_it(server, "GetObject", FaultAction.TRUNCATE, after_bytes=1000)
    with pytest.raises(Exception):  # noqa: B017, PT011  # s3transfer's own error, not ours to know
        client.download_fileobj("bkt", "train/0", io.BytesIO())
    assert answers(server)["GetObject"] == 5  # num_download_attempts


def test_switched_off_it_is_stock(server: FaultServer) -> None:
    client = rio.harden(make_client(server), False)
    break_it(server, "GetObject", FaultAction.TRUNCATE, after_bytes=1000)
    with pytest.raises(Exception):  # noqa: B017, PT011  # s3transfer's own error, not ours to know
        client.download_fileobj("bkt", "train/0", io.BytesIO())
    assert answers(server)["GetObject"] == 5


def test_a_plain_botocore_client_has_no_transfers(server: FaultServer) -> None:
    import botocore.session

    client = rio.harden(botocore.session.Session().create_client("s3", endpoint_url=server.url), POLICY)
    assert not any(hasattr(client, name) for name in transfer.METHODS)
    assert client.get_object(Bucket="bkt", Key="train/0")["Body"].read()


def test_wrong_arguments_are_a_type_error(client: Any) -> None:
    with pytest.raises(TypeError, match="Bucket"):
        client.upload_file("a")


def test_a_throttled_file_that_a_client_uploads_raises_the_public_error(
    fault_server: Callable[..., FaultServer],
) -> None:
    """The upload is an operation of a client; the file that it reads is still one of a filesystem."""
    from resilient_io.aws.filesystem import ResilientS3FileSystem

    server = fault_server()
    server.fill("bkt", count=1, size_bytes=600_000)
    policy = {"max_throttle_attempts": 1}
    client = hooks.harden(boto3.session.Session().client("s3", endpoint_url=server.url), policy)
    fs = ResilientS3FileSystem(endpoint_url=server.url, resilience=policy, skip_instance_cache=True)
    with fs.open("bkt/train/000000") as file:
        server.configure(FaultPlan(rules=(FaultRule(action=FaultAction.ERROR, match=Match(op="GetObject")),)))
        with pytest.raises(rio.ThrottledError):
            client.upload_fileobj(file, "bkt", "copy")
