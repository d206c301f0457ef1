"""The proxy before moto, and before endpoints of our own that do what moto does not."""

from __future__ import annotations

import hashlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from resilient_io.testing import Ceiling, FaultAction, FaultPlan, FaultRule, FaultServer, FaultServerProcess, Match

from .wire_client import WireClient

Start = Callable[..., FaultServer]
Client = Callable[..., Any]
MIB = 1 << 20
# moto answers 403 to reads that carry no signature; it does not check what the signature is.
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=key/20261130/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}


@pytest.fixture
def proxy(moto_server: str, fault_server: Start, s3_client: Client) -> tuple[FaultServer, Any]:
    pytest.importorskip("boto3")
    server = fault_server(upstream=moto_server)
    client = s3_client(server.url)
    client.create_bucket(Bucket="through")
    return server, client


def test_a_multipart_transfer_through_the_proxy(proxy: tuple[FaultServer, Any]) -> None:
    from boto3.s3.transfer import TransferConfig

    server, client = proxy
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)
    data = bytes(range(256)) * (12 * MIB // 256)
    client.upload_fileobj(io.BytesIO(data), "through", "ckpt/step-1/shard", Config=config)
    target = io.BytesIO()
    client.download_fileobj("through", "ckpt/step-1/shard", target, Config=config)
    assert target.getvalue() == data
    stats = server.stats()
    assert stats.count(op="UploadPart", status=200, prefix="ckpt/step-1") == 3
    assert stats.count(op="CompleteMultipartUpload", op_class="write", status=200) == 1
    assert stats.count(op="GetObject", status=206) == 3
    assert stats.count(outcome="ok") == stats.requests


def test_answers_pass_as_they_are(proxy: tuple[FaultServer, Any]) -> None:
    server, client = proxy
    etag = client.put_object(Bucket="through", Key="k", Body=b"0123456789", Metadata={"a": "b"})["ETag"]
    with WireClient(server.port) as wire:
        assert wire.ask("HEAD", "/through/k", headers=SIGNED).headers["content-length"] == "10"
        part = wire.ask("GET", "/through/k", headers={**SIGNED, "Range": "bytes=2-4"})
        assert (part.status, part.rest, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
        assert part.headers["x-amz-meta-a"] == "b"
        assert wire.ask("GET", "/through/k", headers={**SIGNED, "Range": "bytes=20-"}).status == 416
        assert wire.ask("GET", "/through/k", headers={**SIGNED, "If-None-Match": etag}).status == 304
        assert wire.ask("GET", "/through/none", headers=SIGNED).status == 404
        assert wire.ask("DELETE", "/through/k", headers=SIGNED).status == 204
        assert wire.ask("HEAD", "/through/k", headers=SIGNED).status == 404
    assert server.stats().connections == 2, "kept alive, although moto closes each of its own"


def test_a_reset_after_the_commit_was_applied_upstream(proxy: tuple[FaultServer, Any]) -> None:
    server, client = proxy
    rules = (
        FaultRule(action=FaultAction.RESET_AFTER, match=Match(op="PutObject", key="after")),
        FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="PutObject", key="before")),
    )
    server.configure(FaultPlan(rules=rules))
    for key in ("before", "after"):
        with pytest.raises(Exception, match="Connection"):
            client.put_object(Bucket="through", Key=key, Body=b"x")
    kept = client.list_objects_v2(Bucket="through", Prefix="")["Contents"]
    assert [one["Key"] for one in kept if one["Key"] in ("before", "after")] == ["after"]


def test_a_ceiling_before_moto(proxy: tuple[FaultServer, Any]) -> None:
    server, client = proxy
    server.configure(FaultPlan(ceilings=(Ceiling(rate_per_s=0, match=Match(op_class="list")),)))
    client.put_object(Bucket="through", Key="k", Body=b"x")
    with pytest.raises(Exception, match="SlowDown"):
        client.list_objects_v2(Bucket="through")


def test_streaming_uploads_with_trailers_pass(proxy: tuple[FaultServer, Any]) -> None:
    server, _ = proxy
    body = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
    headers = {
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "Content-Encoding": "aws-chunked",
        "x-amz-decoded-content-length": "5",
        "x-amz-trailer": "x-amz-checksum-crc32",
    }
    with WireClient(server.port) as wire:
        assert wire.ask("PUT", "/through/trailer", body, headers).status == 200
        assert wire.ask("GET", "/through/trailer", headers=SIGNED).rest == b"hello"


def test_an_upstream_that_is_down_is_a_502(fault_server: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = fault_server(upstream=f"http://127.0.0.1:{port}")
    with WireClient(server.port) as wire:
        answer = wire.ask("GET", "/b/k")
        assert (answer.status, answer.headers["connection"]) == (502, "close")
    assert server.log()[0].outcome == "failed"


@contextmanager
def endpoint(handle: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """Run a server that gives each accepted connection, with its number, to `handle`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.append(connection)
                threading.Thread(target=_handle, args=(handle, connection, len(connections)), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in connections:
                connection.close()
            thread.join(5)


def _handle(handle: Callable[[socket.socket, int], None], connection: socket.socket, number: int) -> None:
    with suppress(OSError):
        handle(connection, number)


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionResetError
        data += piece
    return data


def test_the_head_arrives_as_it_was_sent_except_expect(fault_server: Start) -> None:
    seen: list[bytes] = []

    def handle(connection: socket.socket, number: int) -> None:
        seen.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with endpoint(handle) as url, WireClient(fault_server(upstream=url).port) as wire:
        head = (
            b"PUT /b/a%20k?x=%2F HTTP/1.1\r\nHost: bucket.example:81\r\nx-AMZ-Date:  2026 \r\n"
            b"Authorization: AWS4 Signature=1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        wire.socket.sendall(head)
        assert wire.head()[0] == 100
        wire.socket.sendall(b"ab")
        assert wire.head()[0] == 200
    received = seen[0].partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    assert received == head.replace(b"Expect: 100-continue\r\n", b"")


def test_connections_to_the_upstream_are_kept_and_stale_ones_replaced(fault_server: Start) -> None:
    numbers: list[int] = []

    def handle(connection: socket.socket, number: int) -> None:
        for _ in range(3):  # then it closes without a word, as idle timeouts do
            read_request(connection)
            numbers.append(number)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        if number == 1:
            read_request(connection)
        connection.close()

    with endpoint(handle) as url, WireClient(fault_server(upstream=url).port) as wire:
        assert [wire.ask("GET", "/b/k").rest for _ in range(5)] == [b"ok"] * 5
    assert numbers == [1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 200 OK\r\n\r\nabcde", b"abcde"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde"),
    ],
)
def test_every_framing_of_an_answer_is_understood(fault_server: Start, answer: bytes, rest: bytes) -> None:
    def handle(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(answer)
        connection.close()

    with endpoint(handle) as url, WireClient(fault_server(upstream=url).port) as wire:
        assert wire.ask("GET", "/b/k").rest == rest
        assert wire.ask("GET", "/b/k").rest == rest, "the client's connection lives on"


def test_an_upstream_that_dies_in_a_body_does_not_end_it_cleanly(fault_server: Start) -> None:
    def handle(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        connection.close()

    with endpoint(handle) as url:
        server = fault_server(upstream=url)
        with WireClient(server.port) as wire:
            wire.send("GET", "/b/k")
            wire.head()
            assert wire.take(1000) == (b"3\r\nabc\r\n", "fin")
        assert server.log()[0].outcome == "failed"


def test_large_bodies_stream_through_both_ways() -> None:
    size = 100 * MIB
    piece = b"x" * MIB
    digests: list[str] = []

    def handle(connection: socket.socket, number: int) -> None:
        while True:
            answer(connection, read_request(connection))

    def answer(connection: socket.socket, data: bytes) -> None:
        if data.startswith(b"GET"):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(100):
                connection.sendall(piece)
            return
        body = data.partition(b"\r\n\r\n")[2]
        digest, got = hashlib.md5(body), len(body)
        while got < size:
            more = connection.recv(MIB)
            digest.update(more)
            got += len(more)
        digests.append(digest.hexdigest())
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with endpoint(handle) as url, FaultServerProcess(upstream=url) as server, WireClient(server.port) as wire:
        wire.send("PUT", "/b/k", headers={"Content-Length": str(size)})
        for _ in range(100):
            wire.socket.sendall(piece)
        assert wire.head()[0] == 200
        wire.send("GET", "/b/k")
        wire.head()
        for _ in range(100):
            assert wire.take(MIB) == (piece, "open")
        memory_mib = _peak_memory_mib(server.pid)
    assert digests == [hashlib.md5(piece * 100).hexdigest()]
    assert memory_mib is None or memory_mib < 80


def _peak_memory_mib(pid: int | None) -> float | None:
    """Return the most memory that a process ever had; None where /proc does not tell."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
