"""The retry policies that take the place of the SDK's: admission before each attempt, a verdict after it.

The retry policy stands above the one that dates and signs a request, so that a long wait for a permit makes no stale
signature. azure-core stores the next policy of the pipeline on the object, so that each client needs one of its own;
clients that are derived from it share it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from azure.core.exceptions import AzureError, StreamClosedError, StreamConsumedError
from azure.storage.blob import ExponentialRetry
from azure.storage.blob.aio import ExponentialRetry as AsyncExponentialRetry

from resilient_io.azure import body, credentials, hedged, outcome, privates
from resilient_io.azure.exchange import Exchange, begin
from resilient_io.drive.gate import WaitedTooLong
from resilient_io.drive.runtime import runtime
from resilient_io.errors import NotForkSafe


class Hook:
    """What takes the place of `send` on one retry policy. It is data, because clients can be pickled and copied."""

    stream: ClassVar[Callable[..., Any]]
    """The class of the bodies that are handed on."""

    def __init__(self, policy: Any, overlay: Mapping[str, object]) -> None:
        self.policy = policy
        self.overlay = overlay
        self.pid = os.getpid()
        self.cares = False

    def _care_for_tokens(self, *, aio: bool) -> None:
        """See to the credentials of the pipeline, which is built around the policy after this was made."""
        self.cares = True
        credentials.ask_with_care(privates.token_holders(self.policy), self.overlay, aio=aio)

    @property
    def to_secondary(self) -> bool:
        """Whether the client was made to send a retry to the other location."""
        return bool(getattr(self.policy, "retry_to_secondary", False))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "pid"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self.pid = os.getpid()

    def __call__(self, request: Any) -> Any:
        """Send a request in place of the policy's own `send`."""
        return self.run(request, functools.partial(type(self.policy).send, self.policy))

    def run(self, request: Any, stock: Callable[[Any], Any]) -> Any:
        """Send a request with its attempts; where the library is switched off, `stock` does it."""
        raise NotImplementedError

    def attempts(self, exchange: Exchange) -> Any:
        """Return the answer that ends a request."""
        raise NotImplementedError

    def _handed_on(self, exchange: Exchange, response: Any) -> Any:
        """Return the answer, with a body that goes on where it dies if nobody of ours reads it."""
        exchange.finished(response)
        if exchange.hold is not None and not exchange.is_part:
            body.put(response, functools.partial(self.stream, self.attempts, exchange, response))
        return response


# -- sync --------------------------------------------------------------------------------------------


class SyncHook(Hook):
    """The hook of a sync client. A client that a fork brought along gets connections of its own."""

    stream = body.Stream

    def run(self, request: Any, stock: Callable[[Any], Any]) -> Any:
        """Send a request with its attempts; where the library is switched off, `stock` does it."""
        if self.pid != os.getpid():
            privates.forget_connections(request.context.transport)
            self.pid = os.getpid()
        if not self.cares:
            self._care_for_tokens(aio=False)
        exchange = begin(request, self.overlay, to_secondary=self.to_secondary)
        if exchange is None:
            return stock(request)
        if exchange.call.policy.hedge and hedged.is_hedged(exchange):
            return hedged.answer_in_threads(exchange, self.overlay, self.attempts)
        return self.attempts(exchange)

    def attempts(self, exchange: Exchange) -> Any:
        """Return the answer that ends a request."""
        call, fault = exchange.call, None
        try:
            while True:
                call.admit()
                response, fault = self._attempt(exchange)
                if response is not None and exchange.answered(response.http_response):
                    return self._handed_on(exchange, response)
                delay_s = call.decide()
                if delay_s is None:
                    return self._looked_up(exchange, response) or outcome.ended(exchange, response, fault)
                exchange.turn_to_next()
                if exchange.settings["hook"] is not None:
                    exchange.settings["hook"](**exchange.hook_arguments(response, fault))
                runtime().clock.sleep(delay_s)
        except WaitedTooLong as error:
            outcome.raise_for(exchange, error)
        finally:
            call.close()
            fault = None  # it holds this frame, which holds it

    def _looked_up(self, exchange: Exchange, response: Any) -> Any:
        """Return the answer of a write that turns out to have happened, or None."""
        look = exchange.look(response)
        if look is None:
            return None
        try:
            found = self.attempts(exchange.looking(look))
        except AzureError:
            found = None
        return exchange.settled(look, found, response)

    def _attempt(self, exchange: Exchange) -> tuple[Any, Exception | None]:
        """Send the request once; return its answer, or what it came to without one."""
        try:
            response = self.policy.next.send(exchange.request)
            exchange.must_say_what_it_is(response.http_response)
            if exchange.must_load(response.http_response):
                response.http_response.body()
        except Exception as error:
            fault = exchange.fault_of(error)
            if fault is None:
                raise
            exchange.lost(fault)
            return None, fault
        return response, None


class SyncRetry(ExponentialRetry):
    """The `retry_policy` of a new sync client: attempts, delays and admission are those of this library's policy."""

    def __init__(self, overlay: Mapping[str, object], *, retry_to_secondary: bool = False) -> None:
        super().__init__(retry_to_secondary=retry_to_secondary)
        self.hook = SyncHook(self, overlay)

    def send(self, request: Any) -> Any:
        """Send a request with its attempts."""
        return self.hook.run(request, super().send)


# -- async -------------------------------------------------------------------------------------------


class AsyncHook(Hook):
    """The hook of an async client, which works in the process that made it, and there in one event loop."""

    stream = body.AsyncStream

    async def run(self, request: Any, stock: Callable[[Any], Any]) -> Any:
        """Send a request with its attempts; where the library is switched off, `stock` does it."""
        if self.pid != os.getpid():
            raise NotForkSafe(
                "this azure.storage.blob.aio client was made before the process forked, and its event loop does not "
                "run here; make the client (or the filesystem) in the worker, or start workers with the spawn method"
            )
        if not self.cares:
            self._care_for_tokens(aio=True)
        exchange = begin(request, self.overlay, to_secondary=self.to_secondary)
        if exchange is None:
            return await stock(request)
        if exchange.call.policy.hedge and hedged.is_hedged(exchange):
            return await hedged.answer_in_tasks(exchange, self.overlay, self.attempts)
        return await self.attempts(exchange)

    async def attempts(self, exchange: Exchange) -> Any:
        """Return the answer that ends a request."""
        call, fault = exchange.call, None
        try:
            while True:
                await call.admit_async()
                if exchange.replay is not None:
                    exchange.replay.show_anew()
                response, fault = await self._attempt(exchange)
                if response is not None and exchange.answered(response.http_response):
                    return self._handed_on(exchange, response)
                delay_s = call.decide()
                if delay_s is None:
                    return await self._looked_up(exchange, response) or outcome.ended(exchange, response, fault)
                exchange.turn_to_next()
                if exchange.settings["hook"] is not None:
                    told = exchange.settings["hook"](**exchange.hook_arguments(response, fault))
                    if inspect.isawaitable(told):
                        await told
                await runtime().clock.sleep_async(delay_s)
        except WaitedTooLong as error:
            outcome.raise_for(exchange, error)
        finally:
            call.close()
            fault = None  # it holds this frame, which holds it

    async def _looked_up(self, exchange: Exchange, response: Any) -> Any:
        look = exchange.look(response)
        if look is None:
            return None
        try:
            found = await self.attempts(exchange.looking(look))
        except AzureError:
            found = None
        return exchange.settled(look, found, response)

    async def _attempt(self, exchange: Exchange) -> tuple[Any, Exception | None]:
        """Send the request once; return its answer, or what it came to without one."""
        try:
            response = await self.policy.next.send(exchange.request)
            exchange.must_say_what_it_is(response.http_response)
            if exchange.must_load(response.http_response):
                with contextlib.suppress(StreamClosedError, StreamConsumedError):
                    await response.http_response.load_body()
        except Exception as error:
            fault = exchange.fault_of(error)
            if fault is None:
                raise
            exchange.lost(fault)
            return None, fault
        return response, None


class AsyncRetry(AsyncExponentialRetry):
    """The `retry_policy` of a new async client: attempts, delays and admission are those of this library's policy."""

    def __init__(self, overlay: Mapping[str, object], *, retry_to_secondary: bool = False) -> None:
        super().__init__(retry_to_secondary=retry_to_secondary)
        self.hook = AsyncHook(self, overlay)

    async def send(self, request: Any) -> Any:  # type: ignore[override]  # the SDK's async one does so too
        """Send a request with its attempts."""
        return await self.hook.run(request, super().send)
