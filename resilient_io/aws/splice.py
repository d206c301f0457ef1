"""The body of a client's GetObject, handed to the caller: it goes on where it died, stalled or ended early.

What botocore and aiobotocore read from stands below their StreamingBody, so that class, length check and checksum stay
theirs and see the spliced whole. A permit covers such a body up to its headers only: nobody knows whether and when the
caller reads it.
"""

from __future__ import annotations

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


class Splice:
    """What the sync and the async form share: one body over its answers."""

    def __init__(self, client: Any, call: Call, request: Request, part: Part | None = None) -> None:
        self._client = client
        self._call = call
        self._part = part
        self._hold = part.hold if part is not None else BodyHold(machine=call.machine, call=call)
        self._body = Body(request, strict=call.policy.verify == "strict", checks=False)
        self._raw: Any = None
        self._is_over = self._is_closed = False
        self._error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        # What else the callers of urllib3 and aiohttp know.
        return getattr(self.__dict__["_raw"], name)

    def take_on(self, answer: Mapping[str, Any]) -> None:
        """Read on in this answer. Raises what is wrong with it."""
        self._raw = privates.raw_of(answer["Body"])
        self._body.accept(answer)

    def handed_on(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer with this body in it, and with the length of what it will bring."""
        body = self._body
        if body.is_unverified:
            self._call.unverified()
        length_bytes, size_bytes = body.wanted_bytes, body.size_bytes
        if length_bytes is None or length_bytes == answer.get("ContentLength"):
            privates.put_raw(answer["Body"], self)
            return answer
        answer["Body"] = self.new_body(length_bytes)
        answer["ContentLength"] = length_bytes
        answer["ContentRange"] = f"bytes {body.begin}-{body.begin + length_bytes - 1}/{size_bytes or '*'}"
        return answer

    def new_body(self, length_bytes: int) -> Any:
        """Return a StreamingBody that reads from this one, for an answer whose own has another length."""
        return StreamingBody(self, length_bytes)  # type: ignore[arg-type]  # the sync form is a file

    def ended(self) -> bool:
        """Say at the end of an answer whether the body is over; if not, what follows is asked for."""
        self._is_over = self._body.end()
        if self._is_over:
            self._raw.close()
        self._release()
        return self._is_over

    def _release(self) -> None:
        """Give back the permit of a body that is held: its answer is not read on."""
        if self._part is not None:
            self._part.over()

    def died(self, error: Exception) -> float:
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

    def refused(self, error: ClientError) -> None:
        """Deal with the refusal of the rest: there is none, it is of another version, or it is not to be had."""
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status == _NOT_THERE and self._body.might_be_over:
            self._is_over = True
            return
        self._is_over = True
        raise (self.replaced(error.response) if status == _CHANGED else error) from error

    def replaced(self, response: Any = None) -> ObjectReplaced:
        """Return the error for an object that is another one now."""
        self._is_over = True
        return ObjectReplaced(response, place=self._call.place)


def _as_botocore_says(error: Exception) -> Exception:
    """Return the error that a StreamingBody makes of one of urllib3's: it would lose what is written on it."""
    if isinstance(error, WireTimeoutError) and not isinstance(error, ReadTimeoutError):
        return ReadTimeoutError(endpoint_url=str(getattr(error, "url", None)), error=error)
    if type(error) is Stalled:
        return StalledBody(error=error)
    return ResponseStreamingError(error=error) if isinstance(error, ProtocolError) else error


class Spliced(Splice):
    """Stands where a StreamingBody of botocore has its answer of urllib3.

    It reads as a file does and is no io.IOBase, the making and ending of which take as long as all else here.
    """

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def __enter__(self) -> Spliced:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines."""
        pending = b""
        for piece in self.stream():
            *lines, pending = (pending + piece).split(b"\n")
            for line in lines:
                yield line + b"\n"
        if pending:
            yield pending

    def readline(self, size: int | None = -1) -> bytes:
        """Return the next line, at most `size` bytes of it."""
        line, most = bytearray(), -1 if size is None else size
        while len(line) != most and (byte := self.read(1)):
            line += byte
            if byte == b"\n":
                break
        return bytes(line)

    def readlines(self, hint: int = -1) -> list[bytes]:
        """Return the lines."""
        return list(self)

    def begin(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to hand on; one that is not what was asked for is asked for again."""
        while True:
            try:
                self.take_on(answer)
                self._reader = stall.Reader(self._raw, self._call.policy)
                return self.handed_on(answer)
            except Changed:
                raise self.replaced() from None
            except Exception as error:
                delay_s = self.died(error)
            runtime().clock.sleep(delay_s)
            answer = self._ask()

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def read(self, amt: int | None = None, **_: Any) -> bytes:
        """Return `amt` bytes, fewer at the end only; all that is left without it."""
        if amt is None or amt < 0:
            pieces = []
            while piece := self._next(self._body.missing_bytes or _PIECE_BYTES):
                pieces.append(piece)
                if self._body.has_all() and self.ended():
                    break
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
        most = _PIECE_BYTES if amt is None or amt < 0 else amt
        return self._next(most, as_it_comes=True) if most else b""

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
        self._is_closed = True

    def _next(self, at_most_bytes: int, *, as_it_comes: bool = False) -> bytes:
        """Return the next piece, b"" at the end; what ended the body ends every read after it."""
        if self._error is not None:
            raise self._error
        try:
            return self._next_piece(at_most_bytes, as_it_comes)
        except Exception as error:
            self._error = error
            raise

    def _next_piece(self, at_most_bytes: int, as_it_comes: bool) -> bytes:
        """Return the next piece; a body that dies is asked for again from there."""
        while not self._is_over:
            try:
                missing = self._body.missing_bytes
                read = self._reader.read1 if as_it_comes else self._reader.read
                piece = b"" if missing == 0 else read(min(at_most_bytes, missing or at_most_bytes))
                fresh = self._body.take(piece)
                if fresh:
                    if self._body.brings_more and self._body.has_all():
                        self._raw.close()  # perhaps nobody asks for the end
                    return fresh
                if piece:
                    continue
                if self.ended():
                    break
                delay_s = 0.0
            except Exception as error:
                delay_s = self.died(error)
            self._go_on(delay_s)
        return b""

    def _go_on(self, delay_s: float) -> None:
        """Ask for the rest, until there is an answer that holds it."""
        while True:
            runtime().clock.sleep(delay_s)
            try:
                answer = self._ask()
            except ClientError as error:
                self.refused(error)
                return
            try:
                self.take_on(answer)
                self._reader = stall.Reader(self._raw, self._call.policy)
                return
            except Changed:
                raise self.replaced() from None
            except Exception as error:
                delay_s = self.died(error)

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
