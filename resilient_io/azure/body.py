"""A body that the SDK reads outside its pipeline: the permit is held until its end, and it goes on where it died."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NoReturn

from azure.core.exceptions import (
    HttpResponseError,
    IncompleteReadError,
    ResourceModifiedError,
    ResourceNotFoundError,
    ServiceResponseTimeoutError,
)

from resilient_io.azure import errors, faults, privates
from resilient_io.azure.exchange import Exchange, drop
from resilient_io.azure.extent import Extent, asked_for
from resilient_io.azure.reading import changed
from resilient_io.drive import stall, versions
from resilient_io.drive.bodies import Stalled
from resilient_io.drive.operation import BodyHold, Surface
from resilient_io.drive.runtime import runtime
from resilient_io.errors import GaveUp, message_of

_NOT_THERE: Final = 416
# azure-core's own transport reads 4 KiB at a time.
_LEAST_READ_BYTES: Final = 2**16
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
        policy = exchange.call.policy
        asked = asked_for(exchange.request.http_request.headers)
        self._told = exchange.told
        self._extent = Extent(self._http, asked, self._told, strict=policy.verify == "strict")
        self._policy = policy
        self._is_accepted = self._is_told = False
        self._pieces: list[bytes] = []
        self._over = False
        # What the SDK looks at.
        self.request = self._inner.request
        self.response = _Unread(self._inner.response) if exchange.has_md5 else self._inner.response
        self.content_length = self._extent.length_bytes or self._inner.content_length
        self.block_size = self._inner.block_size

    def __len__(self) -> int:
        return int(self.content_length)

    def _loaded_body(self) -> list[bytes] | None:
        """Return the body of an answer that was read within its attempt; None for one that is still to be read."""
        return [self._http.body()] if self._exchange.has_md5 else None

    def _take(self, piece: bytes) -> bytes:
        if not self._extent.has_begun_anew:
            self._exchange.call.progressed()
        return self._extent.take(piece)

    def _end(self) -> bool:
        """Say at the end of an answer if the body is over, and give its permit back; raise if it came too early."""
        over = self._extent.end()
        self._over = over
        self._drop()
        if over and self._extent.is_unverified and not self._is_told:
            self._is_told = True
            self._exchange.call.unverified()
        return over

    def _drop(self) -> None:
        """Give up the answer that is being read, and its permit."""
        self._hold.free()
        drop(self._http)

    def _died(self, error: Exception) -> float | None:
        """Return the delay before the rest is asked for, None if all has come; raise if no attempts are left for it."""
        if not faults.is_of_the_wire(error):
            raise error
        self._drop()
        if self._extent.has_all() and not isinstance(error, errors.DamagedBody):
            self._over = True
            return None
        call = self._exchange.call
        if self._extent.begins_anew or isinstance(error, errors.DamagedBody):
            self._pieces.clear()
            self._extent.begin_anew()
        call.failed(faults.verdict_of_error(error, call.judged_as))
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
        if not self._extent.got_bytes and not self._extent.might_be_over:
            return self._exchange.part(self._exchange.again())
        return self._exchange.part(self._exchange.rest(*self._extent.rest(), self._extent.etag))

    def _goes_on(self, exchange: Exchange, response: Any) -> None:
        """Read on in the answer to the request for the rest."""
        http = response.http_response
        if http.status_code == _NOT_THERE and self._extent.might_be_over:
            self._over = True
            drop(http)
            return
        if http.status_code >= 300:
            refused = _CLASSES.get(http.status_code, HttpResponseError)(response=http)
            if exchange.call.hides_the_truth():
                self._give_up(refused)
            # The blob is another one now: the SDK asks for the range anew, or finds that it must not.
            self._over = True
            raise refused
        self._http, self._hold, self._told = http, exchange.hold or BodyHold(), None
        self._inner, self._is_accepted = self._read(http), False
        self._begin_reading()
        if not self._extent.begins_anew and self._extent.etag != http.headers.get("ETag"):
            self._drop()
            self._over = True
            raise ResourceModifiedError("the blob was replaced while it was being read")

    def _accept(self) -> None:
        """Look once at what an answer says it brings."""
        if not self._is_accepted:
            self._extent.accept(self._http, self._told)
            self._is_accepted = True
            request = self._exchange.request.http_request
            other = _is_another(request.headers.get("If-Match"), self._http.headers.get("ETag"))
            if other or not versions.is_the_one(request.url, self._extent.etag):
                # None of the errors that the SDK answers with another round.
                self._drop()
                self._over = True
                raise changed(self._exchange.call.place)

    def _begin_reading(self) -> None:
        """Prepare to read the answer that has come."""
        raise NotImplementedError


def _is_another(wanted: str | None, etag: str | None) -> bool:
    """Say whether an answer is of another version than the one that was asked for: a cache may not mind If-Match."""
    if not wanted or not etag or wanted == "*" or "," in wanted:
        return False
    return _strong(wanted) != _strong(etag)


def _strong(etag: str) -> str:
    return etag.strip().removeprefix("W/").strip('"')


class _Unread:
    """An answer, for the SDK's async downloads, which take the bytes of one that was read past its stream."""

    is_stream_consumed: Final = False

    def __init__(self, response: Any) -> None:
        self._response = response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)


def _as_the_sdk_says(error: Exception) -> Exception:
    """Return what the SDK's own reader makes of an error of urllib3."""
    if isinstance(error, Stalled):
        return errors.StalledBody(str(error))
    if not faults.is_of_the_wire(error):
        return error
    # urllib3 says what a read of its socket came to in the cause.
    kind = ServiceResponseTimeoutError if isinstance(error.__cause__, TimeoutError) else IncompleteReadError
    return kind(str(error), error=error)


def _is_entered(call: Any) -> bool:
    ledger = call.operation.ledger
    return bool(ledger) and ledger[-1].record is call.give_up


class Stream(_Stream):
    """The body for a sync client."""

    def __init__(self, resend: Resend, *about: Any) -> None:
        super().__init__(*about)
        self._resend = resend
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._loaded = self._loaded_body()
        raw = getattr(getattr(self._http, "internal_response", None), "raw", None)
        # An encoded body is decoded by what the SDK reads through, which waits for whole blocks.
        plain = raw is not None and hasattr(raw, "read") and not self._extent.begins_anew
        self._reader = stall.Reader(raw, self._policy) if plain else None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next piece; a body that dies is asked for again from there."""
        piece = self._next_of_whole() if self._extent.is_held else self._next()
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
                piece = self._piece()
                if piece:
                    return self._take(piece)
                delay_s = None if self._end() else 0.0
            except Exception as error:
                delay_s = self._died(error)
            except BaseException:
                self._drop()
                raise
            if delay_s is None:
                break
            self._ask(delay_s)
        return None

    def _piece(self) -> bytes | None:
        """Return what comes next; nothing at the end of the answer."""
        missing, reader = self._extent.missing_bytes, self._reader
        if missing == 0:
            return None
        if self._loaded is not None:
            return self._loaded.pop() if self._loaded else None
        if reader is None:
            return next(self._inner, None)
        try:
            # All of it: the SDK joins the pieces of each range, which copies them where there is more than one.
            return reader.read(max(self.block_size, _LEAST_READ_BYTES) if missing is None else missing)
        except Exception as error:
            raise _as_the_sdk_says(error) from error

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
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._loaded = self._loaded_body()
        internal = getattr(self._http, "internal_response", None)
        self._watch = stall.watch(self._policy, getattr(internal, "content", None), functools.partial(drop, self._http))

    def __aiter__(self) -> AsyncStream:
        return self

    async def fill(self) -> None:
        """Read the body to its end before anybody asks for it. Raises what ends the download."""
        while (piece := await self._next()) is not None:
            self._pieces.append(piece)

    async def __anext__(self) -> bytes:
        """Return the next piece; a body that dies is asked for again from there."""
        is_held = self._extent.is_held or self._pieces
        piece = await (self._next_of_whole() if is_held else self._next())
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
                piece = await self._piece()
                if piece:
                    return self._take(piece)
                delay_s = None if self._end() else 0.0
            except Exception as error:
                delay_s = self._died(error)
            except BaseException:
                self._drop()
                raise
            if delay_s is None:
                break
            await self._ask(delay_s)
        return None

    async def _piece(self) -> bytes | None:
        """Return what comes next; nothing at the end of the answer."""
        watch = self._watch
        if self._extent.missing_bytes == 0:
            return None
        if self._loaded is not None:
            return self._loaded.pop() if self._loaded else None
        try:
            if watch.stalled:
                raise errors.StalledBody(stall.what(self._policy))
            with watch:
                piece: bytes | None = await anext(self._inner, None)
            return piece
        except Exception as error:
            if watch.stalled and not isinstance(error, errors.StalledBody):
                raise errors.StalledBody(stall.what(self._policy)) from error
            raise

    async def _ask(self, delay_s: float) -> None:
        await runtime().clock.sleep_async(delay_s)
        exchange = self._next_exchange()
        try:
            response = await self._resend(exchange)
        except Exception as error:
            self._give_up(error)
        self._goes_on(exchange, response)
