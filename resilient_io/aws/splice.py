"""The body of a client's GetObject, handed to the caller: it goes on where it died, stalled or ended early.

What botocore and aiobotocore read from stands below their StreamingBody, so that class, length check and checksum stay
theirs and see the spliced whole. A permit covers such a body up to its headers only: nobody knows whether and when the
caller reads it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn, Protocol

from botocore.exceptions import ClientError, ReadTimeoutError, ResponseStreamingError
from botocore.response import StreamingBody
from urllib3.exceptions import ProtocolError
from urllib3.exceptions import ReadTimeoutError as WireTimeoutError

from resilient_io.aws import faults, privates
from resilient_io.aws.body import Body, Changed, Request
from resilient_io.aws.errors import ObjectReplaced, StalledBody, annotated
from resilient_io.drive import stall
from resilient_io.drive.bodies import Stalled
from resilient_io.drive.call import Call
from resilient_io.drive.operation import BodyHold, Surface, made_current
from resilient_io.drive.runtime import runtime

_PIECE_BYTES: Final = 2**18
_CHANGED: Final = 412
_NOT_THERE: Final = 416


class Part(Protocol):
    """A body that is part of something larger, which holds its permit until it is read."""

    @property
    def hold(self) -> BodyHold:
        """Where the permit is."""

    def run(self, ask: Callable[[], Any], /) -> Any:
        """Ask for the rest, in the context that it belongs to."""

    def over(self) -> None:
        """Give the permit back: the answer is read, or is not read on."""

    def raised(self, error: Exception, /) -> Exception:
        """Return what is raised for the error that ends the body."""


class _Splice:
    """What the sync and the async form share: one body over its answers."""

    def __init__(self, client: Any, call: Call, request: Request, part: Part | None = None) -> None:
        self._client = client
        self._call = call
        self._part = part
        self._hold = part.hold if part is not None else BodyHold(machine=call.machine, call=call)
        self._body = Body(request, strict=call.policy.verify == "strict", checks=False)
        self._raw: Any = None
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        # What else the callers of urllib3 and aiohttp know.
        return getattr(self.__dict__["_raw"], name)

    def _take(self, answer: Mapping[str, Any]) -> None:
        """Read on in this answer. Raises what is wrong with it."""
        self._raw = privates.raw_of(answer["Body"])
        self._body.accept(answer)

    def _handed_on(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer with this body in it, and with the length of what it will bring."""
        body = self._body
        if body.is_unverified:
            self._call.unverified()
        length_bytes, size_bytes = body.wanted_bytes, body.size_bytes
        if length_bytes is None or length_bytes == answer.get("ContentLength"):
            privates.put_raw(answer["Body"], self)
            return answer
        answer["Body"] = self._new_body(length_bytes)
        answer["ContentLength"] = length_bytes
        answer["ContentRange"] = f"bytes {body.begin}-{body.begin + length_bytes - 1}/{size_bytes or '*'}"
        return answer

    def _new_body(self, length_bytes: int) -> Any:
        return StreamingBody(self, length_bytes)  # type: ignore[arg-type]  # the sync form is a file

    def _ended(self) -> bool:
        """Say at the end of an answer whether the body is over; if not, what follows is asked for."""
        self._is_over = self._body.end()
        if self._is_over:
            self._raw.close()  # a store that ignores Range sends more than is read
        self._release()
        return self._is_over

    def _release(self) -> None:
        """Give back the permit of a body that is held: its answer is not read on."""
        if self._part is not None:
            self._part.over()

    def _died(self, error: Exception) -> float:
        """Return the delay before the rest is asked for; raise if there are no attempts left for it."""
        call = self._call
        self._release()
        if self._body.has_progressed:
            call.progressed()
        call.failed(faults.verdict_of_error(error, "GetObject"))
        delay_s = call.decide()
        if delay_s is None:
            self._give_up(error)
        self._raw.close()
        return delay_s

    def _give_up(self, error: Exception) -> NoReturn:
        call, self._is_over = self._call, True
        seen = _as_botocore_says(error)
        annotated(seen, call)
        if call.give_up is not None and call.hides_the_truth():
            gave_up = call.gave_up(seen)
            if call.operation.surface is Surface.FILESYSTEM:
                raise gave_up from error
            if self._part is not None:
                raise self._part.raised(seen) from error
        if seen is error:
            raise error
        raise seen from error

    def _refused(self, error: ClientError) -> None:
        """Deal with the refusal of the rest: there is none, it is of another version, or it is not to be had."""
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status == _NOT_THERE and self._body.might_be_over:
            self._is_over = True
            return
        self._is_over = True
        raise (self._replaced(error.response) if status == _CHANGED else error) from error

    def _replaced(self, response: Any = None) -> ObjectReplaced:
        self._is_over = True
        return ObjectReplaced(response, place=self._call.place)


def _as_botocore_says(error: Exception) -> Exception:
    """Return the error that a StreamingBody makes of one of urllib3's: it would lose what is written on it."""
    if isinstance(error, WireTimeoutError) and not isinstance(error, ReadTimeoutError):
        return ReadTimeoutError(endpoint_url=str(getattr(error, "url", None)), error=error)
    if type(error) is Stalled:
        return StalledBody(error=error)
    return ResponseStreamingError(error=error) if isinstance(error, ProtocolError) else error


# -- sync --------------------------------------------------------------------------------------------


class Spliced(_Splice, io.RawIOBase):
    """Stands where a StreamingBody of botocore has its answer of urllib3."""

    def begin(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to hand on; one that is not what was asked for is asked for again."""
        while True:
            try:
                self._take(answer)
                self._reader = stall.Reader(self._raw, self._call.policy)
                return self._handed_on(answer)
            except Changed:
                raise self._replaced() from None
            except Exception as error:
                delay_s = self._died(error)
            runtime().clock.sleep(delay_s)
            answer = self._ask()

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def read(self, amt: int | None = None, **_: Any) -> bytes:
        """Return `amt` bytes, fewer at the end only; all that is left without it."""
        if amt is None or amt < 0:
            pieces = []
            while piece := self._next(_PIECE_BYTES):
                pieces.append(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        piece = self._next(amt) if amt else b""
        if len(piece) == amt or not piece or self._body.has_all():
            return piece
        pieces, missing = [piece], amt - len(piece)
        while missing and not self._body.has_all() and (piece := self._next(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def read1(self, amt: int | None = None, **_: Any) -> bytes:
        """Return what comes next, at most `amt` bytes."""
        return self._next(_PIECE_BYTES if amt is None or amt < 0 else amt) if amt != 0 else b""

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the body goes; return how many bytes came."""
        view = memoryview(buffer).cast("B")
        piece = self.read(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def stream(self, amt: int = 2**16, **_: Any) -> Iterator[bytes]:
        """Yield pieces of at most `amt` bytes."""
        while piece := self.read(amt):
            yield piece

    def tell(self) -> int:
        """Return how many bytes of the body have come."""
        return self._body.got_bytes

    def close(self) -> None:
        """Close the answer; nothing is read after that."""
        self._is_over = True
        if self.__dict__.get("_part") is not None:
            self._release()
        raw = self.__dict__.get("_raw")
        if raw is not None:
            raw.close()
        super().close()

    def _next(self, at_most_bytes: int) -> bytes:
        """Return the next piece, b"" at the end; a body that dies is asked for again from there."""
        while not self._is_over:
            try:
                missing = self._body.missing_bytes
                piece = b"" if missing == 0 else self._reader.read(min(at_most_bytes, missing or at_most_bytes))
                fresh = self._body.take(piece)
                if fresh:
                    return fresh
                if piece:
                    continue
                if self._ended():
                    break
                delay_s = 0.0
            except Exception as error:
                delay_s = self._died(error)
            self._go_on(delay_s)
        return b""

    def _go_on(self, delay_s: float) -> None:
        """Ask for the rest, until there is an answer that holds it."""
        while True:
            runtime().clock.sleep(delay_s)
            try:
                answer = self._ask()
            except ClientError as error:
                self._refused(error)
                return
            try:
                self._take(answer)
                self._reader = stall.Reader(self._raw, self._call.policy)
                return
            except Changed:
                raise self._replaced() from None
            except Exception as error:
                delay_s = self._died(error)

    def _ask(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._ask_here() if self._part is None else self._part.run(self._ask_here)
            return answer
        except BaseException:
            self._is_over = True
            raise

    def _ask_here(self) -> Any:
        with made_current(self._call.operation), self._hold as hold:
            answer = self._client.get_object(**self._body.next_request())
            permit = None
            if self._part is not None:
                permit, hold.permit = hold.permit, None
        hold.permit = permit
        return answer


# -- async -------------------------------------------------------------------------------------------


class AioSpliced(_Splice):
    """Stands where a StreamingBody of aiobotocore has its answer of aiohttp, and that its content."""

    async def begin(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to hand on; one that is not what was asked for is asked for again."""
        while True:
            try:
                self._take(answer)
                self._watch = self._new_watch()
                return self._handed_on(answer)
            except Changed:
                raise self._replaced() from None
            except Exception as error:
                delay_s = self._died(error)
            await runtime().clock.sleep_async(delay_s)
            answer = await self._ask()

    def _new_body(self, length_bytes: int) -> Any:
        from aiobotocore.response import StreamingBody as AioStreamingBody

        return AioStreamingBody(self, length_bytes)

    def _new_watch(self) -> stall.Watch | stall.Unwatched:
        return stall.watch(self._call.policy, getattr(self._raw, "content", None), self._raw.close)

    @property
    def content(self) -> AioSpliced:
        """What aiobotocore reads from."""
        return self

    def at_eof(self) -> bool:
        """Say whether nothing is left."""
        return self._is_over

    async def read(self, n: int = -1) -> bytes:
        """Return what comes next, at most `n` bytes; all that is left for -1."""
        if n >= 0:
            return await self._next(n) if n else b""
        pieces = []
        while piece := await self._next(_PIECE_BYTES):
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close the answer; nothing is read after that."""
        self._is_over = True
        self._raw.close()

    async def _next(self, at_most_bytes: int) -> bytes:
        while not self._is_over:
            try:
                piece = await self._piece(at_most_bytes)
                fresh = self._body.take(piece)
                if fresh:
                    return fresh
                if piece:
                    continue
                if self._ended():
                    break
                delay_s = 0.0
            except Exception as error:
                delay_s = self._died(error)
            await self._go_on(delay_s)
        return b""

    async def _piece(self, at_most_bytes: int) -> bytes:
        missing, watch = self._body.missing_bytes, self._watch
        if missing == 0:
            return b""
        try:
            if watch.stalled:
                raise StalledBody(error=stall.what(self._call.policy))
            with watch:
                piece: bytes = await self._raw.content.read(min(at_most_bytes, missing or at_most_bytes))
            return piece
        except Exception as error:
            if watch.stalled and not isinstance(error, StalledBody):
                raise StalledBody(error=stall.what(self._call.policy)) from error
            raise

    async def _go_on(self, delay_s: float) -> None:
        while True:
            await runtime().clock.sleep_async(delay_s)
            try:
                answer = await self._ask()
            except ClientError as error:
                self._refused(error)
                return
            try:
                self._take(answer)
                self._watch = self._new_watch()
                return
            except Changed:
                raise self._replaced() from None
            except Exception as error:
                delay_s = self._died(error)

    async def _ask(self) -> dict[str, Any]:
        try:
            with made_current(self._call.operation), self._hold:
                answer: dict[str, Any] = await self._client.get_object(**self._body.next_request())
                return answer
        except BaseException:
            self._is_over = True
            raise
