"""The server as a whole: ceilings over HTTP, concurrency, control from outside, a clean end."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from resilient_io.testing import (
    Ceiling,
    FaultAction,
    FaultPlan,
    FaultRule,
    FaultServer,
    FaultServerControl,
    FaultServerProcess,
    Latency,
    ManualClock,
    Match,
    Outage,
    Refusal,
)

from .wire_client import WireClient

Start = Callable[..., FaultServer]


def statuses(client: WireClient, count: int, target: str = "/b/train/x/0") -> list[int]:
    return [client.ask("GET", target).status for _ in range(count)]


def test_what_a_ceiling_admits_is_the_arithmetic_of_its_bucket(fault_server: Start) -> None:
    clock = ManualClock()
    server = fault_server(FaultPlan(ceilings=(Ceiling(rate_per_s=100, burst_s=0.5),)), now=clock.now)
    server.fill("b", count=1, size_bytes=10, key="train/x/0")
    with WireClient(server.port) as client:
        assert statuses(client, 60).count(200) == 50
        for _ in range(20):
            clock.advance(0.1)
            assert statuses(client, 15).count(200) == 10
        assert statuses(client, 1, "/b/train/y/0") == [404], "another prefix has its own bucket"
    stats = server.stats()
    assert stats.count(prefix="train/x", op_class="read", status=200) == 250
    assert (stats.refusals, stats.count(status=503)) == (110, 110)
    assert (stats.requests, stats.connections, stats.in_flight) == (361, 1, 0)


def test_a_refusal_is_worded_as_the_plan_says(fault_server: Start) -> None:
    refusal = Refusal(status=429, code="TooFast", retry_after_s=1.5, headers=(("x-amz-retry-after", "1500"),))
    server = fault_server(FaultPlan(ceilings=(Ceiling(rate_per_s=0),), refusal=refusal))
    with WireClient(server.port) as client:
        answer = client.ask("PUT", "/b/k", b"body")
        assert (answer.status, answer.headers["retry-after"]) == (429, "1.5")
        assert answer.headers["x-amz-retry-after"] == "1500"
        assert b"<Code>TooFast</Code>" in answer.rest
        assert client.ask("HEAD", "/b/k").status == 429


def test_ceilings_and_outages_change_in_the_run(fault_server: Start) -> None:
    clock = ManualClock()
    ceiling = Ceiling(rate_per_s=10, burst_s=1, name="hot")
    server = fault_server(FaultPlan(ceilings=(ceiling,), outages=(Outage(start_s=5, duration_s=1),)), now=clock.now)
    server.fill("b", count=1, size_bytes=10, key="train/x/0")
    with WireClient(server.port) as client:
        assert statuses(client, 11).count(200) == 10
        server.set_rate(2, name="hot")
        clock.advance(1)
        assert statuses(client, 5).count(200) == 2
        clock.advance(4)
        assert statuses(client, 2) == [503, 503], "the planned outage"
        clock.advance(1)
        assert statuses(client, 1) == [200]
        server.start_outage(60, match=Match(op_class="read"))
        assert statuses(client, 1) == [503]
        server.start_outage(0)
        clock.advance(1)
        assert statuses(client, 1) == [200]
        assert {one.cause for one in server.log(outcome="refused")} == {"hot", "outage"}
        server.configure(FaultPlan())
        assert statuses(client, 20) == [200] * 20
    with pytest.raises(LookupError, match="no ceiling"):
        server.set_rate(5, name="hot")


def test_a_bulk_delete_counts_for_the_prefix_of_its_first_key(fault_server: Start) -> None:
    server = fault_server(FaultPlan(ceilings=(Ceiling(rate_per_s=0, match=Match(prefix="train/x")),)))
    server.fill("b", count=2, size_bytes=10, key="train/y/{}")
    body = "<Delete><Object><Key>train/{0}/0</Key></Object><Object><Key>train/{0}/1</Key></Object></Delete>"
    with WireClient(server.port) as client:
        assert client.ask("POST", "/b?delete", body.format("x").encode()).status == 503
        assert client.ask("POST", "/b?delete", body.format("y").encode()).status == 200
        assert client.ask("GET", "/b/train/y/1").status == 404
    assert server.stats().count(op_class="delete", prefix="train/y", outcome="ok") == 1


def test_concurrency_is_counted_from_the_head_to_the_last_byte(fault_server: Start) -> None:
    server = fault_server(FaultPlan(latency=Latency(base_s=0.05)))
    server.fill("b", count=1, size_bytes=10, key="train/x/0")
    server.fill("b", count=1, size_bytes=10, key="train/y/0")

    def ask(target: str) -> int:
        with WireClient(server.port) as client:
            return client.ask("GET", target).status

    with ThreadPoolExecutor(7) as pool:
        answers = list(pool.map(ask, ["/b/train/x/0"] * 5 + ["/b/train/y/0"] * 2))
    assert answers == [200] * 7
    stats = server.stats()
    assert (stats.peak, stats.peak_of(prefix="train/x"), stats.peak_of(prefix="train/y")) == (7, 5, 2)
    assert stats.peak_of(op_class="write") == 0


def test_a_body_that_nobody_reads_counts_as_in_flight(fault_server: Start) -> None:
    server = fault_server()
    server.fill("b", count=1, size_bytes=16 << 20, key="k")
    with WireClient(server.port) as client:
        client.send("GET", "/b/k")
        client.head()
        assert server.stats().in_flight == 1
    wait_until(lambda: server.stats().in_flight == 0)
    assert server.log()[0].outcome in ("gone", "ok")


def test_a_client_that_leaves_is_noted(fault_server: Start) -> None:
    server = fault_server(FaultPlan(latency=Latency(base_s=30)))
    with WireClient(server.port) as client:
        client.send("GET", "/b/k")
        wait_until(lambda: server.stats().in_flight == 1)
    wait_until(lambda: server.stats().in_flight == 0)
    assert server.log()[0].outcome == "gone"


@pytest.mark.parametrize("body", [b"abc", b""])
def test_an_expected_continue_is_given(fault_server: Start, body: bytes) -> None:
    server = fault_server()
    server.fill("b", count=0, size_bytes=0)
    with WireClient(server.port) as client:
        client.send("PUT", "/b/k", headers={"Expect": "100-continue", "Content-Length": str(len(body))})
        assert client.head()[0] == 100
        client.socket.sendall(body)
        assert client.head()[0] == 200
        assert client.ask("GET", "/b/k").rest == body


@pytest.mark.parametrize(("before_body", "first", "connection"), [(False, 100, None), (True, 503, "close")])
def test_a_refusal_before_or_after_the_body(
    fault_server: Start, before_body: bool, first: int, connection: str | None
) -> None:
    plan = FaultPlan(ceilings=(Ceiling(rate_per_s=0),), refusal=Refusal(before_body=before_body))
    with WireClient(fault_server(plan).port) as client:
        client.send("PUT", "/b/k", headers={"Expect": "100-continue", "Content-Length": "3"})
        status, headers = client.head()
        assert (status, headers.get("connection")) == (first, connection)


def test_a_chunked_request_body_is_read(fault_server: Start) -> None:
    server = fault_server()
    server.fill("b", count=0, size_bytes=0)
    with WireClient(server.port) as client:
        wrapped = b"3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\nTrailer: x\r\n\r\n"
        assert client.ask("PUT", "/b/k", wrapped, {"Transfer-Encoding": "chunked"}).status == 200
        assert client.ask("GET", "/b/k").rest == b"abcdefgh"


def test_an_aws_chunked_body_is_unwrapped(fault_server: Start) -> None:
    server = fault_server()
    server.fill("b", count=0, size_bytes=0)
    body = b"3;chunk-signature=0a\r\nabc\r\n0;chunk-signature=0b\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n"
    headers = {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "Content-Encoding": "aws-chunked"}
    with WireClient(server.port) as client:
        assert client.ask("PUT", "/b/k", body, headers).status == 200
        answer = client.ask("GET", "/b/k", headers={"x-amz-checksum-mode": "ENABLED"})
        assert (answer.rest, answer.headers["x-amz-checksum-crc32"]) == (b"abc", "NSRBwg==")
        assert "content-encoding" not in answer.headers


def test_garbage_ends_the_connection_and_not_the_server(fault_server: Start) -> None:
    server = fault_server()
    with WireClient(server.port) as client:
        client.socket.sendall(b"\x16\x03\x01 no http\r\n\r\n")
        with pytest.raises(EOFError):
            client.head()
    with WireClient(server.port) as client:
        assert client.ask("GET", "/").status == 200


CHILD = """
import json, sys
from resilient_io.testing import Ceiling, FaultPlan, FaultServerControl
control = FaultServerControl(sys.argv[1])
before = control.stats()
log = control.log(op="GetObject", outcome="ok")
control.configure(FaultPlan(ceilings=(Ceiling(rate_per_s=0),), seed=5))
control.set_rate(1)
control.start_outage(9)
print(json.dumps([before.requests, before.count(status=404), len(log), log[0].key, control.plan.seed, control.seed]))
"""


def test_another_process_reads_and_steers(fault_server: Start) -> None:
    server = fault_server()
    server.fill("b", count=1, size_bytes=10, key="train/x/0")
    with WireClient(server.port) as client:
        assert statuses(client, 3) == [200, 200, 200]
        assert statuses(client, 1, "/b/none") == [404]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, server.url],
            capture_output=True,
            check=True,
            env={"PYTHONPATH": package_root()},
        )
        assert json.loads(done.stdout) == [4, 1, 3, "train/x/0", 5, 5]
        assert statuses(client, 1) == [503]
        FaultServerControl(server.url).reset()
        assert server.stats().requests == 0


def test_what_the_admin_endpoints_do_not_understand_is_a_400(fault_server: Start) -> None:
    server = fault_server()
    with WireClient(server.port) as client:
        assert client.ask("POST", "/__fault__/configure", b'{"ceiling": 1}').status == 400
        assert b"has no field" in client.ask("POST", "/__fault__/configure", b'{"ceiling": 1}').rest
        assert client.ask("POST", "/__fault__/rate", b'{"rate_per_s": 1}').status == 400
        assert client.ask("POST", "/__fault__/explode").status == 404
        assert client.ask("POST", "/__fault__/configure", b"{").status == 400
    assert server.stats().requests == 0, "admin requests are not counted"


def test_the_log_is_bounded_and_the_counts_are_not(fault_server: Start) -> None:
    server = fault_server(log_limit=3)
    with WireClient(server.port) as client:
        statuses(client, 10)
    assert [one.number for one in server.log()] == [8, 9, 10]
    assert server.stats().requests == 10


def test_a_child_process_serves_and_stops() -> None:
    rule = FaultRule(action=FaultAction.ERROR, calls=(2,))
    with FaultServerProcess(FaultPlan(rules=(rule,), seed=3)) as server:
        server.fill("b", count=2, size_bytes=100, key="train/x/{}")
        assert server.seed == 3
        with WireClient(server.port) as client:
            assert statuses(client, 3) == [200, 503, 200]
        assert server.stats().fired == (1,)
        pid = server.pid
    assert pid is not None
    assert server.pid is None


@pytest.mark.parametrize("busy", [False, True])
def test_it_stops_within_a_second_and_leaves_nothing(busy: bool) -> None:
    before = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        assert seconds_to_stop(busy=busy) < 1
        assert threading.active_count() == before
        gc.collect()


def seconds_to_stop(*, busy: bool) -> float:
    server = FaultServer(FaultPlan(rules=(FaultRule(action=FaultAction.STALL_BEFORE),))).start()
    clients = [WireClient(server.port) for _ in range(10)]
    if busy:
        for client in clients:
            client.send("GET", "/b/k")
        wait_until(lambda: server.stats().in_flight == 10)
    started = time.monotonic()
    server.stop()
    took_s = time.monotonic() - started
    for client in clients:
        client.socket.close()
    return took_s


def test_it_starts_and_stops_again_on_the_same_port() -> None:
    server = FaultServer()
    with server:
        port = server.port
    with server:
        assert server.port == port
        with WireClient(port) as client:
            assert client.ask("GET", "/").status == 200
    server.stop()


def test_a_taken_port_is_an_os_error() -> None:
    with FaultServer() as server, pytest.raises(OSError, match="in use"):
        FaultServer(port=server.port).start()


def test_small_reads_are_fast_enough_for_benchmarks() -> None:
    # 9,000 a second on an idle core; a shared one still does this.
    with FaultServerProcess() as server:
        server.fill("b", count=1, size_bytes=4096, key="train/x/0")
        with WireClient(server.port) as client:
            started = time.monotonic()
            statuses(client, 1000)
            assert 1000 / (time.monotonic() - started) > 800


def test_an_answer_of_several_writes_does_not_wait_for_acks(fault_server: Start) -> None:
    rule = FaultRule(action=FaultAction.EARLY_END_CHUNKED, after_bytes=1000)
    server = fault_server(FaultPlan(rules=(rule,)))
    server.fill("b", count=1, size_bytes=1000, key="train/x/0")
    with WireClient(server.port) as client:
        started = time.monotonic()
        statuses(client, 30)
        assert time.monotonic() - started < 30 * 0.03, "40 ms each with Nagle's algorithm"


def wait_until(true: Callable[[], bool], *, limit_s: float = 5.0) -> None:
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.002)


def package_root() -> str:
    from pathlib import Path

    import resilient_io

    return str(Path(str(resilient_io.__file__)).parents[1])
