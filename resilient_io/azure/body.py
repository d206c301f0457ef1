"""A body that the SDK reads outside its pipeline: the permit is held until its end, and it goes on where it died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NoReturn

from azure.core.exceptions import (
    HttpResponseError,
    IncompleteReadError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from resilient_io.azure import errors, faults, privates
from resilient_io.azure.exchange import Exchange
from resilient_io.azure.extent import Extent, asked_for
from resilient_io.drive.operation import BodyHold, Surface
from resilient_io.drive.runtime import runtime
from resilient_io.errors import GaveUp, message_of

_CLASSES: Final = {404: ResourceNotFoundError, 412: ResourceModifiedError}

Resend = Callable[[Exchange], Any]
ResendAsync = Callable[[Exchange], Awaitable[Any]]


def put(response: Any, make: Callable[[Callable[[Any], Any]], Any]) -> None:
    """Let the body of an answer be read through the stream that `make` returns, given how to read an answer."""
    http = response.http_response

    def stream_download(*args: Any, **options: Any) -> Any:
        # Once. Left there it would make of each answer a cycle, which stays in memory until the collector comes by.
        privates.forget_stream_download(http)
        return make(lambda each: each.stream_download(*args, **options))

    http.stream_download = stream_download


class _Stream:
    """What the sync and the async stream share."""

    def __init__(self, exchange: Exchange, response: Any, read: Callable[[Any], Any]) -> None:
        self._exchange = exchange
        self._hold = exchange.hold or BodyHold()
        self._read = read
        self._http = response.http_response
        self._inner = read(self._http)
        self._extent = Extent(self._http, asked_for(exchange.request.http_request.headers))
        self._is_accepted = False
        self._pieces: list[bytes] = []
        self._over = False
        # What the SDK looks at.
        self.request = self._inner.request
        self.response = self._inner.response
        self.content_length = self._extent.length_bytes or self._inner.content_length
        self.block_size = self._inner.block_size

    def __len__(self) -> int:
        return int(self.content_length)

    def _take(self, piece: bytes) -> bytes:
        self._exchange.call.progressed()
        return self._extent.take(piece)

    def _end(self) -> None:
        """Give the permit back at the end of the body; raise if it came too early."""
        if not self._extent.is_complete():
            raise IncompleteReadError("the body ended before its length was reached")
        self._over = True
        self._hold.free()

    def _drop(self) -> None:
        """Give up the answer that is being read, and its permit."""
        self._hold.free()
        internal = getattr(self._http, "internal_response", None)
        if internal is not None:
            internal.close()

    def _died(self, error: Exception) -> float:
        """Return the delay before the rest is asked for; raise if there are no attempts left for it."""
        self._drop()
        call = self._exchange.call
        self._pieces.clear()
        call.failed(faults.verdict_of_error(error, self._exchange.call.judged_as))
        delay_s = call.decide()
        if delay_s is None:
            self._give_up(error)
        return delay_s

    def _give_up(self, error: Exception) -> NoReturn:
        """Raise what ends the download, and is none of the errors that the SDK answers with another round."""
        call = self._exchange.call
        errors.without_secrets(error)
        self._over = True
        if isinstance(error, GaveUp) or call.give_up is None or not call.hides_the_truth():
            raise error
        gave_up = call.operation.ledger[-1] if _is_entered(call) else call.gave_up(error)
        if call.operation.surface is Surface.FILESYSTEM:
            raise gave_up from error
        seen = errors.DownloadGaveUp(message_of(call.give_up), call.give_up)
        errors.annotated(seen, call)
        raise seen from error

    def _next_exchange(self) -> Exchange:
        """Return the exchange that asks for what is missing."""
        if self._extent.begins_anew:
            self._extent.begin_anew()
            return self._exchange.part(self._exchange.again())
        return self._exchange.part(self._exchange.rest(*self._extent.rest(), self._extent.etag))

    def _goes_on(self, exchange: Exchange, response: Any) -> None:
        """Read on in the answer to the request for the rest."""
        http = response.http_response
        if http.status_code >= 300:
            refused = _CLASSES.get(http.status_code, HttpResponseError)(response=http)
            if exchange.call.hides_the_truth():
                self._give_up(refused)
            # The blob is another one now: the SDK asks for the range anew, or finds that it must not.
            self._over = True
            raise refused
        self._http, self._hold = http, exchange.hold or BodyHold()
        self._inner, self._is_accepted = self._read(http), False
        if not self._extent.begins_anew and self._extent.etag != http.headers.get("ETag"):
            self._drop()
            self._over = True
            raise ResourceModifiedError("the blob was replaced while it was being read")

    def _accept(self) -> None:
        """Look once at what an answer says it brings."""
        if not self._is_accepted:
            self._extent.accept(self._http)
            self._is_accepted = True


def _is_entered(call: Any) -> bool:
    ledger = call.operation.ledger
    return bool(ledger) and ledger[-1].record is call.give_up


class Stream(_Stream):
    """The body for a sync client."""

    def __init__(self, resend: Resend, *about: Any) -> None:
        super().__init__(*about)
        self._resend = resend

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next piece; a body that dies is asked for again from there."""
        piece = self._next_of_whole() if self._extent.begins_anew else self._next()
        if piece is None:
            raise StopIteration
        return piece

    next = __next__

    def _next_of_whole(self) -> bytes | None:
        while (piece := self._next()) is not None:
            self._pieces.append(piece)
        return self._pieces.pop(0) if self._pieces else None

    def _next(self) -> bytes | None:
        """Return the next piece, None at the end."""
        while not self._over:
            try:
                self._accept()
                piece = next(self._inner, None)
                if piece is not None:
                    return self._take(piece)
                self._end()
                break
            except Exception as error:
                if not faults.is_of_the_wire(error):
                    raise
                if self._extent.has_all():
                    self._drop()
                    self._over = True
                    break
                delay_s = self._died(error)
            except BaseException:
                self._drop()
                raise
            self._ask(delay_s)
        return None

    def _ask(self, delay_s: float) -> None:
        runtime().clock.sleep(delay_s)
        exchange = self._next_exchange()
        try:
            response = self._resend(exchange)
        except Exception as error:
            self._give_up(error)
        self._goes_on(exchange, response)


class AsyncStream(_Stream):
    """The body for an async client."""

    def __init__(self, resend: ResendAsync, *about: Any) -> None:
        super().__init__(*about)
        self._resend = resend

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece; a body that dies is asked for again from there."""
        piece = await (self._next_of_whole() if self._extent.begins_anew else self._next())
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def _next_of_whole(self) -> bytes | None:
        while (piece := await self._next()) is not None:
            self._pieces.append(piece)
        return self._pieces.pop(0) if self._pieces else None

    async def _next(self) -> bytes | None:
        """Return the next piece, None at the end."""
        while not self._over:
            try:
                self._accept()
                piece = await anext(self._inner, None)
                if piece is not None:
                    return self._take(piece)
                self._end()
                break
            except Exception as error:
                if not faults.is_of_the_wire(error):
                    raise
                if self._extent.has_all():
                    self._drop()
                    self._over = True
                    break
                delay_s = self._died(error)
            except BaseException:
                self._drop()
                raise
            await self._ask(delay_s)
        return None

    async def _ask(self, delay_s: float) -> None:
        await runtime().clock.sleep_async(delay_s)
        exchange = self._next_exchange()
        try:
            response = await self._resend(exchange)
        except Exception as error:
            self._give_up(error)
        self._goes_on(exchange, response)
