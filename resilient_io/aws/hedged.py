"""A GET of S3 that is sent a second time where its answer is late: for filesystems with the body, for clients without.

A filesystem's read is raced until its whole body is here if that is small. A client's `get_object`, and the parts of a
managed download, are raced until their headers are: who reads the body is not known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from resilient_io.aws import keys, privates
from resilient_io.aws.errors import StalledBody
from resilient_io.drive import stall
from resilient_io.drive.call import Call
from resilient_io.drive.gate import Permit
from resilient_io.drive.hedge import WHOLE_BYTES, Hedge, first_of_tasks, first_of_threads, second_request
from resilient_io.drive.operation import BodyHold, body_held
from resilient_io.drive.runtime import runtime
from resilient_io.policy import Policy

Answer = Mapping[str, Any]
_NAME: Final = "GetObject"
_PIECE_BYTES: Final = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class _Came:
    """What one of the two requests brought; `permit` is None for one whose permit is free, or left elsewhere."""

    answer: Answer
    call: Call | None = None
    permit: Permit | None = None

    @property
    def is_whole(self) -> bool:
        body = self.answer["Body"]
        return not isinstance(body, Held) or body.error is None

    def drop(self) -> None:
        self.answer["Body"].close()
        if self.permit is not None:
            self.permit.free()


class Held:
    """A small body that was read before anybody asked for it, with what it died of; read as the SDK's async one is."""

    _raw_stream = None

    def __init__(self, body: Any) -> None:
        self._pieces: list[bytes] = []
        self._body = body
        self.error: Exception | None = None
        privates.hand_on_checksum(body, self)

    async def fill(self, policy: Policy) -> Held:
        """Read the body to its end, or to its death."""
        body = self._body
        watch = stall.watch(policy, privates.reader_of(privates.raw_of(body)), body.close)
        try:
            piece = b"-"
            while piece and not watch.stalled:
                with watch:
                    piece = await body.read(_PIECE_BYTES)
                self._pieces.append(piece)
        except Exception as error:
            self.error = error
        finally:
            body.close()
        if watch.stalled:
            self.error = StalledBody(error=stall.what(policy))
        self._pieces.reverse()
        return self

    async def read(self, amt: int | None = None) -> bytes:
        """Return the next piece; at the end raise what the body died of."""
        if self._pieces:
            return self._pieces.pop()
        if self.error is not None:
            raise self.error
        return b""

    def close(self) -> None:
        """Close the body."""
        self._body.close()


async def answer_or_whole(
    client: Any, request: Mapping[str, Any], policy: Policy, hold: BodyHold, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Return the sooner of two answers to a filesystem's GET, with a small body read; its permit is in `hold`."""

    async def first() -> _Came:
        with hedge.first_request():
            return _Came(answer=await _with_small_body(await ask(), policy))

    async def second() -> _Came:
        with second_request(runtime(), policy) as its_hold:
            return _with_permit(await _with_small_body(await ask(), policy), its_hold)

    hedge = _hedge(client, request, policy)
    came = await first_of_tasks(hedge, first, second, drop=_Came.drop, is_whole=lambda each: each.is_whole)
    if came.call is None:
        _belongs_to(hedge, _call_of(hold))
    else:
        came.call.take_over(hedge.operation or came.call.operation)
        hold.free()
        hold.permit, hold.call, hold.machine = came.permit, came.call, came.call.machine
    return came.answer


async def _with_small_body(answer: Answer, policy: Policy) -> Answer:
    length_bytes = answer.get("ContentLength")
    if length_bytes is None or length_bytes > WHOLE_BYTES:
        return answer
    try:
        return {**answer, "Body": await Held(answer["Body"]).fill(policy)}
    except BaseException:
        answer["Body"].close()
        raise


def _hedge(client: Any, request: Mapping[str, Any], policy: Policy) -> Hedge:
    return Hedge(runtime(), keys.scope_of(_NAME, request, client.meta.endpoint_url, policy), policy, _NAME)


# -- clients: up to the headers ----------------------------------------------------------------------


def answer_in_threads(client: Any, call: Call, request: Mapping[str, Any]) -> tuple[Any, Call]:
    """Return the sooner of two answers to a sync client's `get_object`, and the call that it is of."""

    def first() -> _Came:
        with hedge.first_request(), body_held() as hold:
            answer = client.get_object(**request)
            return _Came(answer=answer, call=_belongs_to(hedge, _call_of(hold)))

    def second() -> _Came:
        with second_request(runtime(), call.policy) as hold:
            answer = client.get_object(**request)
            return _Came(answer=answer, call=_taken_over(hold, call))

    hedge = _hedge(client, request, call.policy)
    came = first_of_threads(hedge, first, second, drop=_Came.drop)
    return came.answer, came.call or call


def part_in_threads(client: Any, request: Mapping[str, Any], policy: Policy) -> tuple[Any, BodyHold]:
    """Return the sooner of two answers to one GET of a managed download, and what holds its permit."""

    def first() -> _Came:
        with hedge.first_request(), body_held() as hold:
            return _with_permit(client.get_object(**request), hold)

    def second() -> _Came:
        with second_request(runtime(), policy) as hold:
            return _with_permit(client.get_object(**request), hold)

    hedge = _hedge(client, request, policy)
    came = first_of_threads(hedge, first, second, drop=_Came.drop)
    call = came.call
    if call is None:
        return came.answer, BodyHold(came.permit)  # switched off meanwhile
    if call.operation.is_hedge:
        call.take_over(hedge.operation or call.operation)
    else:
        _belongs_to(hedge, call)
    return came.answer, BodyHold(came.permit, call.machine, call)


def _with_permit(answer: Answer, hold: BodyHold) -> _Came:
    """Take the permit out of the block that ends: it goes where the answer goes."""
    permit, hold.permit = hold.permit, None
    return _Came(answer=answer, permit=permit, call=_call_of(hold))


async def answer_in_tasks(client: Any, call: Call, request: Mapping[str, Any]) -> tuple[Any, Call]:
    """Return the sooner of two answers to an async client's `get_object`, and the call that it is of."""

    async def first() -> _Came:
        with hedge.first_request(), body_held() as hold:
            answer = await client.get_object(**request)
            return _Came(answer=answer, call=_belongs_to(hedge, _call_of(hold)))

    async def second() -> _Came:
        with second_request(runtime(), call.policy) as hold:
            answer = await client.get_object(**request)
            return _Came(answer=answer, call=_taken_over(hold, call))

    hedge = _hedge(client, request, call.policy)
    came = await first_of_tasks(hedge, first, second, drop=_Came.drop)
    return came.answer, came.call or call


def _call_of(hold: BodyHold) -> Call | None:
    return hold.call if isinstance(hold.call, Call) else None


def _belongs_to(hedge: Hedge, call: Call | None) -> Call | None:
    """Return the call of the first request, which goes on for the operation that it was sent for."""
    if call is not None and hedge.operation is not None:
        call.operation = hedge.operation
    return call


def _taken_over(hold: BodyHold, call: Call) -> Call | None:
    """Return the call of the second request, which goes on for the operation of the first if its answer is used."""
    second = _call_of(hold)
    if second is not None:
        second.take_over(call.operation)
    return second
