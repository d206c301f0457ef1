"""The async form of `splice`: what stands below a StreamingBody of aiobotocore."""

from __future__ import annotations

import weakref
from typing import Any, Final

from botocore.exceptions import ClientError

from resilient_io.aws import privates
from resilient_io.aws.body import Changed
from resilient_io.aws.errors import StalledBody
from resilient_io.aws.splice import Splice
from resilient_io.drive import stall
from resilient_io.drive.operation import made_current
from resilient_io.drive.runtime import runtime

_PIECE_BYTES: Final = 2**18


class AioSpliced(Splice):
    """Stands where a StreamingBody of aiobotocore has its answer of aiohttp, and that its content."""

    async def begin(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to hand on; one that is not what was asked for is asked for again."""
        while True:
            try:
                self.take_on(answer)
                self._watch = self._new_watch()
                return self.handed_on(answer)
            except Changed:
                raise self.replaced() from None
            except Exception as error:
                delay_s = self.died(error)
            await runtime().clock.sleep_async(delay_s)
            answer = await self._ask()

    def handed_on(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer with this body in it, and with the length of what it will bring."""
        answer = super().handed_on(answer)
        # Weak, so that a body that nobody reads is freed at once, and its connection with it.
        self._body_above = weakref.ref(answer["Body"])
        return answer

    async def __aenter__(self) -> Any:
        """Return the body that is read: those of aiobotocore before 3.8 leave this to what they wrap."""
        body = self._body_above()
        return self if body is None else body

    async def __aexit__(self, *about: object) -> None:
        self.close()

    def new_body(self, length_bytes: int) -> Any:
        """Return a StreamingBody that reads from this one, for an answer whose own has another length."""
        from aiobotocore.response import StreamingBody as AioStreamingBody

        return AioStreamingBody(self, length_bytes)

    def _new_watch(self) -> stall.Watch | stall.Unwatched:
        return stall.watch(self._call.policy, privates.reader_of(self._raw), self._raw.close)

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
        if self._error is not None:
            raise self._error
        try:
            return await self._next_piece(at_most_bytes)
        except Exception as error:
            self._error = error
            raise

    async def _next_piece(self, at_most_bytes: int) -> bytes:
        while not self._is_over:
            try:
                piece = await self._piece(at_most_bytes)
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
                self.refused(error)
                return
            try:
                self.take_on(answer)
                self._watch = self._new_watch()
                return
            except Changed:
                raise self.replaced() from None
            except Exception as error:
                delay_s = self.died(error)

    async def _ask(self) -> dict[str, Any]:
        try:
            with made_current(self._call.operation), self._hold:
                answer: dict[str, Any] = await self._client.get_object(**self._body.next_request())
                return answer
        except BaseException:
            self._is_over = True
            raise
