"""One GET of a filesystem with its body, over as many requests as that takes, with the permit held until the end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from resilient_io import policy as policies
from resilient_io.aws import faults, hedged, privates
from resilient_io.aws.body import Body, Changed, Request, Sink
from resilient_io.aws.denied import translated
from resilient_io.aws.errors import StalledBody
from resilient_io.classify.fault import FaultKind
from resilient_io.drive import stall, versions
from resilient_io.drive.operation import BodyHold, body_held, current
from resilient_io.drive.runtime import runtime
from resilient_io.drive.stall import Unwatched, Watch
from resilient_io.errors import GaveUp
from resilient_io.policy import Policy

# The most that one read takes; it brings what is there, which is less.
_PIECE_BYTES: Final = 2**18
# A body up to this size is read in one step, checksum and all: that is the cheapest, and little is lost where it dies.
_ONE_STEP_BYTES: Final = 2**14
_NOT_THERE: Final = 416
_OF_THE_SINK: Final = frozenset({FaultKind.FATAL, FaultKind.CLIENT_BUG})


async def read(
    fs: Any,
    request: Request,
    sink: Sink,
    *,
    at_most_bytes: int | None = None,
    etag: str | None = None,
    raw_errors: bool = False,
    on_answer: Callable[[Mapping[str, Any]], None] | None = None,
) -> Mapping[str, Any]:
    """Fill the sink with the body of a GET and return its first answer; a body that dies goes on where it stopped.

    The permit is held until the body is read, and headers and body share the policy's attempts; what came forgets the
    faults before it. `on_answer` is given each answer before its body. Raises Changed if the object is no longer the
    version that it began with (or `etag`, or that of another range of one call).
    """
    policy = policy_of(fs)
    body = Body(request, at_most_bytes=at_most_bytes, etag=etag, strict=policy.verify == "strict")
    with body_held() as hold:
        one = _Read(fs, body, sink, policy, hold, raw_errors, on_answer)
        while not await one.step():
            pass
        if body.is_unverified and hold.call is not None:
            hold.call.unverified()
    place = (request["Bucket"], request["Key"], request.get("VersionId"))
    if not versions.is_the_one(place, body.first_answer.get("ETag")):
        raise Changed
    return body.first_answer


class _Read:
    """One body on its way into its sink: each step is a request and what comes of it."""

    __slots__ = ("_body", "_fs", "_hold", "_on_answer", "_policy", "_raw_errors", "_sink")

    def __init__(
        self,
        fs: Any,
        body: Body,
        sink: Sink,
        policy: Policy,
        hold: BodyHold,
        raw_errors: bool,
        on_answer: Callable[[Mapping[str, Any]], None] | None,
    ) -> None:
        self._fs = fs
        self._body = body
        self._sink = sink
        self._policy = policy
        self._hold = hold
        self._raw_errors = raw_errors
        self._on_answer = on_answer

    async def step(self) -> bool:
        """Ask for the body, or for the rest of it, and read what comes; say whether that is all."""
        body = self._body
        try:
            answer = await self._ask()
        except ClientError as error:
            if body.might_be_over and _status_of(error) == _NOT_THERE:
                return True
            raise
        try:
            return await _pour(body, answer, self._sink, self._policy, self._on_answer)
        except Exception as error:
            delay_s = _after_a_dead_body(self._hold, body, error)
            if delay_s is None:
                raise
            if body.died(error):
                self._sink.clear()
        await runtime().clock.sleep_async(delay_s)
        return False

    async def _ask(self) -> Mapping[str, Any]:
        body, request = self._body, self._body.next_request()
        raw_errors = self._raw_errors or body.might_be_over
        if not self._policy.hedge or body.is_begun():
            return await _answer(self._fs, request, raw_errors=raw_errors)
        client = await self._fs.client_for(request["Bucket"])
        ask = functools.partial(_answer, self._fs, request, raw_errors=raw_errors)
        return await hedged.answer_or_whole(client, request, self._policy, self._hold, ask)


def policy_of(fs: Any) -> Policy:
    """Return the policy of the call that this is a part of."""
    operation = current()
    return policies.resolve(fs._overlay) if operation is None else operation.policy(fs._overlay)


async def _answer(fs: Any, request: Request, *, raw_errors: bool) -> Mapping[str, Any]:
    """Send one GET as s3fs's `_call_s3` does, without the layers that only its own retries need."""
    get = (await fs.client_for(request["Bucket"])).get_object
    try:
        found: Mapping[str, Any] = await get(**fs.parameters_of(get, request))
        return found
    except ClientError as error:
        if _status_of(error) == 412:
            raise Changed from error
        if raw_errors:
            raise
        raise translated(error, request) from error


async def _pour(
    body: Body,
    answer: Mapping[str, Any],
    sink: Sink,
    policy: Policy,
    on_answer: Callable[[Mapping[str, Any]], None] | None,
) -> bool:
    """Read the body of `answer` to its end; say whether that is all. Raises what the body died of."""
    stream = answer["Body"]
    try:
        body.accept(answer)
        if on_answer is not None:
            on_answer(body.first_answer if body.is_first else answer)
        watch = stall.watch(policy, privates.reader_of(privates.raw_of(stream)), stream.close)
        try:
            await _read_pieces(body, answer, sink, watch)
        except Exception as error:
            if watch.stalled:
                raise StalledBody(error=stall.what(policy)) from error
            raise
        if watch.stalled and not body.has_all():
            raise StalledBody(error=stall.what(policy))
        return body.end()
    finally:
        stream.close()


async def _read_pieces(body: Body, answer: Mapping[str, Any], sink: Sink, watch: Watch | Unwatched) -> None:
    """Read what comes as it comes: what is here when the body dies need not be asked for again."""
    stream, length_bytes, missing = answer["Body"], answer.get("ContentLength"), body.missing_bytes
    is_whole = length_bytes is None or missing is None or length_bytes <= missing
    if is_whole and length_bytes is not None and 0 < length_bytes <= _ONE_STEP_BYTES:
        with watch:
            sink.append(body.take(await stream.read()))
        return
    while missing != 0:
        with watch:
            piece = await stream.read(_PIECE_BYTES if missing is None else min(_PIECE_BYTES, missing))
        fresh = body.take(piece)
        if fresh:
            sink.append(fresh)
        if not piece or watch.stalled:
            return
        missing = body.missing_bytes
    if is_whole and privates.checksum_of(stream) is not None:
        await stream.read(1)  # the SDK compares it when the end is read


def _status_of(error: ClientError) -> int | None:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")


def _after_a_dead_body(hold: BodyHold, body: Body, error: Exception) -> float | None:
    """Return the delay before the body is asked for again; None leaves the error as it is.

    That is one of the program, or of the disk that the bytes go to, or the library is switched off.
    """
    call = hold.call
    if call is None or isinstance(error, (GaveUp, Changed)):
        return None
    verdict = faults.verdict_of_error(error, "GetObject")
    if verdict.kind in _OF_THE_SINK:
        return None
    hold.free()
    if body.keeps_some(error):
        call.progressed()
    call.failed(verdict)
    delay_s = call.decide()
    if delay_s is None:
        raise call.gave_up(error) from error
    return delay_s
