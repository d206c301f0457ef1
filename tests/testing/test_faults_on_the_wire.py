"""Each fault as a bare socket sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match

from .wire_client import WireClient

PATH = "/b/train/x/0"
BODY = b"0123456789" * 100


@contextmanager
def faulty(action: FaultAction, *, op: str = "GetObject", **fields: Any) -> Iterator[tuple[FaultServer, WireClient]]:
    rule = FaultRule(action=action, match=Match(op=op), calls=(1,), **fields)
    with FaultServer(FaultPlan(rules=(rule,))) as server:
        server.fill("b", count=0, size_bytes=0)
        with WireClient(server.port) as client:
            client.ask("PUT", PATH, BODY)
            yield server, client


def stored(server: FaultServer) -> bytes:
    """Read the object on a connection of its own; the rule has fired already, or is for another operation."""
    with WireClient(server.port) as client:
        return client.ask("GET", PATH).rest


def test_an_error_has_status_code_and_headers_and_the_connection_lives() -> None:
    with faulty(FaultAction.ERROR, retry_after_s=7, headers=(("x-amz-retry-after", "7000"),)) as (server, client):
        first = client.ask("GET", PATH)
        assert (first.status, first.headers["retry-after"], first.headers["x-amz-retry-after"]) == (503, "7", "7000")
        assert b"<Code>SlowDown</Code>" in first.rest
        assert client.ask("GET", PATH).rest == BODY
        assert server.stats().connections == 1


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(429, None, "TooManyRequests"), (500, None, "InternalError"), (503, "ServiceUnavailable", "ServiceUnavailable")],
)
def test_an_error_of_another_status(status: int, code: str | None, expected: str) -> None:
    with faulty(FaultAction.ERROR, status=status, code=code) as (_, client):
        answer = client.ask("GET", PATH)
        assert answer.status == status
        assert f"<Code>{expected}</Code>".encode() in answer.rest


def test_an_error_to_a_head_has_no_body() -> None:
    with faulty(FaultAction.ERROR, op="HeadObject") as (_, client):
        assert client.ask("HEAD", PATH).status == 503
        assert client.ask("HEAD", PATH).headers["content-length"] == str(len(BODY))


def test_a_bodyless_error_has_no_body() -> None:
    with faulty(FaultAction.BODYLESS_ERROR) as (_, client):
        answer = client.ask("GET", PATH)
        assert (answer.status, answer.rest, answer.headers["content-length"]) == (503, b"", "0")


@pytest.mark.parametrize(
    ("action", "kind", "applied"),
    [
        (FaultAction.RESET_BEFORE, ConnectionResetError, False),
        (FaultAction.RESET_AFTER, ConnectionResetError, True),
        (FaultAction.CLOSE_BEFORE, EOFError, False),
        (FaultAction.CLOSE_AFTER, EOFError, True),
    ],
)
def test_a_severed_write_is_applied_or_not(action: FaultAction, kind: type[Exception], applied: bool) -> None:
    rule = FaultRule(action=action, match=Match(op="PutObject"), calls=(2,))
    with FaultServer(FaultPlan(rules=(rule,))) as server:
        server.fill("b", count=0, size_bytes=0)
        with WireClient(server.port) as client:
            client.ask("PUT", PATH, b"old")
            with pytest.raises(kind):
                client.ask("PUT", PATH, b"new")
        assert stored(server) == (b"new" if applied else b"old")
        assert server.log(op="PutObject")[1].status == 0


@pytest.mark.parametrize(("action", "ending"), [(FaultAction.TRUNCATE, "fin"), (FaultAction.RESET_BODY, "rst")])
def test_a_body_that_dies_at_byte_n(action: FaultAction, ending: str) -> None:
    with faulty(action, after_bytes=123) as (_, client):
        answer = client.ask("GET", PATH)
        assert (answer.status, answer.headers["content-length"]) == (200, "1000")
        assert (answer.rest, answer.ended) == (BODY[:123], ending)


def test_a_chunked_body_that_ends_early_and_cleanly() -> None:
    with faulty(FaultAction.EARLY_END_CHUNKED, after_bytes=123) as (_, client):
        answer = client.ask("GET", PATH)
        assert (answer.status, answer.rest) == (200, BODY[:123])
        assert "content-length" not in answer.headers
        assert client.ask("GET", PATH).rest == BODY, "the connection lives"


def test_a_body_without_length_that_ends_early() -> None:
    with faulty(FaultAction.EARLY_END_EOF, after_bytes=123) as (_, client):
        answer = client.ask("GET", PATH)
        assert (answer.rest, answer.ended) == (BODY[:123], "fin")
        assert "content-length" not in answer.headers
        assert "transfer-encoding" not in answer.headers


def test_a_stall_before_the_head_is_silence() -> None:
    with faulty(FaultAction.STALL_BEFORE) as (server, client):
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.ask("GET", PATH)
        client.socket.close()
        assert stored(server) == BODY
        assert server.log(op="GetObject")[0].outcome == "fault"


def test_a_stall_in_the_body_goes_on_after_its_time() -> None:
    with faulty(FaultAction.STALL_BODY, after_bytes=10, delay_s=0.6) as (_, client):
        client.socket.settimeout(0.2)
        answer = client.ask("GET", PATH)
        assert (answer.rest, answer.ended) == (BODY[:10], "silence")
        client.socket.settimeout(5)
        assert client.take(1000) == (BODY, "open")


def test_a_delay_is_only_a_delay() -> None:
    with faulty(FaultAction.DELAY, delay_s=0.05) as (server, client):
        assert client.ask("GET", PATH).rest == BODY
        entry = server.log(op="GetObject")[0]
        assert entry.end_s is not None
        assert entry.end_s - entry.start_s >= 0.05


@pytest.mark.parametrize("applied", [False, True])
def test_a_200_with_an_error_inside(applied: bool) -> None:
    with faulty(FaultAction.OK_WITH_ERROR, op="CopyObject", code="InternalError", after_commit=applied) as (
        _,
        client,
    ):
        answer = client.ask("PUT", "/b/copy", headers={"x-amz-copy-source": PATH})
        assert answer.status == 200
        assert b"<Error><Code>InternalError</Code>" in answer.rest
        assert client.ask("GET", "/b/copy").status == (200 if applied else 404)


def test_a_200_with_nothing_inside() -> None:
    with faulty(FaultAction.OK_EMPTY) as (_, client):
        answer = client.ask("GET", PATH)
        assert (answer.status, answer.rest) == (200, b"")


def test_a_body_that_is_no_xml() -> None:
    with faulty(FaultAction.INVALID_XML) as (_, client):
        answer = client.ask("GET", PATH)
        assert answer.status == 503
        assert answer.rest.endswith(b"<Code>SlowDown</Co")


def test_a_body_of_ones_own() -> None:
    with faulty(FaultAction.ERROR, status=502, body="<html>bad gateway</html>") as (_, client):
        answer = client.ask("GET", PATH)
        assert (answer.status, answer.rest) == (502, b"<html>bad gateway</html>")


def test_range_ignored() -> None:
    with faulty(FaultAction.IGNORE_RANGE) as (_, client):
        first = client.ask("GET", PATH, headers={"Range": "bytes=10-19"})
        second = client.ask("GET", PATH, headers={"Range": "bytes=10-19"})
        assert (first.status, first.rest) == (200, BODY)
        assert (second.status, second.rest) == (206, BODY[10:20])


def test_a_range_answered_short() -> None:
    with faulty(FaultAction.SHORT_RANGE, after_bytes=4) as (_, client):
        first = client.ask("GET", PATH, headers={"Range": "bytes=10-19"})
        second = client.ask("GET", PATH, headers={"Range": "bytes=10-19"})
        assert (first.status, first.rest) == (206, BODY[10:14])
        assert first.headers["content-range"] == "bytes 10-13/1000"
        assert (second.status, second.rest) == (206, BODY[10:20])


def test_if_none_match_ignored() -> None:
    with faulty(FaultAction.IGNORE_IF_NONE_MATCH, op="PutObject") as (server, client):
        # The first PUT of this context has used call number 1.
        assert client.ask("PUT", PATH, b"x", {"If-None-Match": "*"}).status == 412
        server.configure(FaultPlan(rules=(FaultRule(action=FaultAction.IGNORE_IF_NONE_MATCH),)))
        assert client.ask("PUT", PATH, b"x", {"If-None-Match": "*"}).status == 200


def test_every_action_is_tested_here(request: pytest.FixtureRequest) -> None:
    text = request.path.read_text(encoding="utf-8")
    assert [one for one in FaultAction if f"FaultAction.{one.name}" not in text] == []


@pytest.mark.parametrize("shape", [FaultAction.TRUNCATE, FaultAction.EARLY_END_CHUNKED])
def test_what_shapes_a_body_leaves_a_head_request_alone(shape: FaultAction) -> None:
    with faulty(shape, op="HeadObject", after_bytes=1) as (_, client):
        assert client.ask("HEAD", PATH).headers["content-length"] == "1000"


def test_random_faults_follow_the_seed(fault_server: Callable[..., FaultServer]) -> None:
    plan = FaultPlan(rules=(FaultRule(action=FaultAction.ERROR, probability=0.2),), seed=42)
    seen = []
    for _ in range(2):
        server = fault_server(plan)
        server.fill("b", count=1, size_bytes=1, key="k")
        with WireClient(server.port) as client:
            seen.append([client.ask("GET", "/b/k").status for _ in range(200)])
    assert seen[0] == seen[1]
    assert 20 <= seen[0].count(503) <= 60
