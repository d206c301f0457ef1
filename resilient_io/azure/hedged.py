"""A download of Azure that is sent a second time where its answer is late.

An async one is raced until its whole body is here if that is small, a sync one until its headers are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from resilient_io.azure import privates
from resilient_io.azure.body import AsyncStream, put
from resilient_io.azure.exchange import Exchange, Glance, begin, drop
from resilient_io.drive.hedge import WHOLE_BYTES, Hedge, first_of_tasks, first_of_threads, second_request
from resilient_io.drive.runtime import runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Came:
    """What one of the two requests brought."""

    exchange: Exchange
    response: Any

    @property
    def is_good(self) -> bool:
        """Whether it is no refusal: of those the SDK makes its errors later."""
        return bool(self.response.http_response.status_code < 300)

    def drop(self) -> None:
        if self.exchange.hold is not None:
            self.exchange.hold.free()
        drop(self.response.http_response)


def is_hedged(exchange: Exchange) -> bool:
    """Say whether a request is a read that may be sent twice."""
    policy, operation = exchange.call.policy, exchange.call.operation
    if not policy.hedge or operation.is_hedge or exchange.target.operation != "GetBlob":
        return False
    hook = exchange.options.get("raw_response_hook")
    return exchange.is_streamed and (hook is None or isinstance(hook, Glance))


def answer_in_threads(exchange: Exchange, overlay: Mapping[str, object], attempts: Callable[[Exchange], Any]) -> Any:
    """Return the sooner of two answers to a sync client's download."""
    race = _Race(exchange)

    def first() -> _Came:
        return _Came(exchange=exchange, response=attempts(exchange))

    def second() -> _Came:
        other = _second(exchange, overlay)
        return _Came(exchange=other, response=attempts(other))

    came = first_of_threads(race.hedge, first, second, drop=_Came.drop, is_good=lambda each: each.is_good)
    return race.won_by(came)


async def answer_in_tasks(
    exchange: Exchange, overlay: Mapping[str, object], attempts: Callable[[Exchange], Awaitable[Any]]
) -> Any:
    """Return the sooner of two answers to an async client's download, with a small body read."""
    race = _Race(exchange)

    async def first() -> _Came:
        return await _with_small_body(exchange, attempts)

    async def second() -> _Came:
        return await _with_small_body(_second(exchange, overlay), attempts)

    came = await first_of_tasks(race.hedge, first, second, drop=_Came.drop, is_whole=lambda each: each.is_good)
    return race.won_by(came)


class _Race:
    """One download that may be sent twice: what the first request gives up is kept apart until it is decided."""

    def __init__(self, exchange: Exchange) -> None:
        call = exchange.call
        self.hedge = Hedge(runtime(), call.path, call.policy, call.name)
        self._exchange = exchange
        self._operation = call.operation
        if self.hedge.own_operation is not None:
            call.operation = self.hedge.own_operation

    def won_by(self, came: _Came) -> Any:
        """Return the answer that was the sooner; its body goes on with all attempts."""
        call = came.exchange.call
        if came.exchange is self._exchange:
            call.operation = self._operation
        else:
            call.take_over(self._operation)
        return came.response


def _second(exchange: Exchange, overlay: Mapping[str, object]) -> Exchange:
    with second_request(runtime(), exchange.call.policy):
        other = begin(exchange.again(counts=True), overlay)
    assert other is not None  # the policy is in force: the first request went by it
    return other


async def _with_small_body(exchange: Exchange, attempts: Callable[[Exchange], Awaitable[Any]]) -> _Came:
    response = await attempts(exchange)
    http = response.http_response
    length = http.headers.get("Content-Length") or ""
    if exchange.hold is None or not length.isdigit() or int(length) > WHOLE_BYTES or "Content-Encoding" in http.headers:
        return _Came(exchange=exchange, response=response)
    privates.forget_stream_download(http)
    stream = AsyncStream(attempts, exchange, response, lambda each: each.stream_download(None))
    await stream.fill()
    put(response, lambda _: stream)
    return _Came(exchange=exchange, response=response)
