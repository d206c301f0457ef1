"""What stands in the place of an async client's own methods: one request with its attempts, as in `sending`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn

from botocore.exceptions import ClientError

from resilient_io.aws import calls, credentials, deleting, hedged, lost, privates, splice_aio, streams
from resilient_io.aws.calls import current_call
from resilient_io.aws.hardening import Hardening
from resilient_io.drive.call import Call
from resilient_io.drive.runtime import runtime
from resilient_io.errors import NotForkSafe

Params = Mapping[str, Any]


class AioSending:
    """The requests of one client, from `_make_api_call` down to each attempt and the wait for the next one."""

    __slots__ = ("_create_request", "_done", "_get_response", "_make_api_call")

    def __init__(self, done: Hardening) -> None:
        endpoint = privates.endpoint_of(done.client)
        self._done = done
        self._make_api_call = done.client._make_api_call
        self._create_request = endpoint.create_request
        self._get_response = endpoint._get_response

    def put(self) -> None:
        """Take the client's own methods' place, until the hardening is undone."""
        client, endpoint = self._done.client, privates.endpoint_of(self._done.client)
        self._done.shadow(client, "_make_api_call", self.request)
        self._done.shadow(endpoint, "create_request", self.admitted)
        self._done.shadow(endpoint, "_get_response", self.attempt)
        self._done.listen(privates.STOCK_RETRY_EVENT, self.wait, first=True)
        undo_resend = privates.forbid_resend(client)
        if undo_resend is not None:
            self._done.undo.append(undo_resend)

    # -- a request -----------------------------------------------------------------------------------

    async def request(self, operation_name: str, api_params: Params, *, probing: bool = False) -> Any:
        """Send a request with its attempts; return its answer, whose body goes on where it dies."""
        client = self._done.client
        if self._done.pid != os.getpid():
            _refuse_after_fork()
        call = calls.begin(self._done, operation_name, api_params)
        if call is None:
            return await self._passed_through(operation_name, api_params)
        if not calls.is_body_for_the_caller(operation_name):
            return await self._answer(call, api_params, probing=probing)
        if call.policy.hedge:
            answer, call = await hedged.answer_in_tasks(client, call, api_params)
        else:
            answer = await self._answer(call, api_params, probing=probing)
        return await splice_aio.AioSpliced(client, call, api_params).begin(answer)

    async def _passed_through(self, operation_name: str, api_params: Params) -> Any:
        """Send a request of a client that is switched off: no hook below takes it for a part of the call above."""
        token = current_call.set(None)
        try:
            return await self._make_api_call(operation_name, streams.from_here(api_params))
        finally:
            current_call.reset(token)

    async def _answer(self, call: Call, api_params: Params, *, probing: bool) -> Any:
        written = lost.written_by(call.name, api_params)
        api_params = streams.from_here(api_params)
        token = current_call.set(call)
        try:
            answer = await self._make_api_call(call.name, api_params)
            if call.name == "DeleteObjects":
                answer = await deleting.by_key_async(call, answer, api_params, self._make_api_call)
            return calls.checked(call, answer)
        except Exception as error:
            look = lost.look_for(call, error, api_params, written)
            answer = await lost.settled_async(look, self._done.client._make_api_call, calls.looking(call))
            if answer is not None:
                return answer
            probe = None if probing else credentials.probe_for(call, api_params, error)
            if probe is not None:
                return await self._probed(call, error, api_params, probe)
            raise calls.seen_above(call, error)  # noqa: B904  # the cause is set there
        finally:
            current_call.reset(token)
            call.close()

    async def _probed(self, call: Call, error: Exception, api_params: Params, probe: tuple[str, Params]) -> Any:
        """Return the answer to a HEAD that the store lets in now; raise its error with what the probe was told."""
        refusal = await self._refusal_of(*probe)
        if refusal is None:
            return await self.request(call.name, api_params, probing=True)
        raise calls.seen_above(call, credentials.told(error, refusal, call))

    async def _refusal_of(self, operation_name: str, api_params: Params) -> ClientError | None:
        """Send the request that says what a bare 400 or 403 means; return its refusal, None if it was let in."""
        try:
            answer = await self.request(operation_name, api_params, probing=True)
        except ClientError as refusal:
            return None if credentials.is_allowed(refusal) else refusal
        if "Body" in answer:
            answer["Body"].close()
        return None

    # -- its attempts --------------------------------------------------------------------------------

    async def admitted(self, params: Any, operation_model: Any = None) -> Any:
        """Make the request of an attempt, signed only when there is a permit for it."""
        call = current_call.get()
        if call is not None and operation_model is not None:
            await call.admit_async()
        return await self._create_request(params, operation_model)

    async def attempt(self, request: Any, operation_model: Any, context: Any) -> Any:
        """Send an attempt, tell the call what it came to, and free its permit."""
        call = current_call.get()
        if call is None:
            return await self._get_response(request, operation_model, context)
        try:
            answer, error = await self._get_response(request, operation_model, context)
        except Exception as raised:
            answer, error = None, raised
        calls.note(call, answer, error, operation_model.has_streaming_output, request)
        credentials.renew(self._done.client, call, request)
        return answer, error

    async def wait(self, response: Any = None, **rest: Any) -> Any:
        """Decide on the next attempt and wait for its time; 0 sends it at once, None sends none."""
        call = current_call.get()
        if call is None:
            return await self._stock_decision(response=response, **rest)
        delay_s = calls.delay_after(call, response)
        if delay_s is None:
            return None
        await runtime().clock.sleep_async(delay_s)
        return 0

    async def _stock_decision(self, **told: Any) -> Any:
        if self._done.stock_retry is None:
            return None
        decision = self._done.stock_retry(**told)
        return await decision if hasattr(decision, "__await__") else decision


def _refuse_after_fork() -> NoReturn:
    raise NotForkSafe(
        "this aiobotocore client was made before the process forked, and its event loop does not run here; "
        "make the client (or the filesystem) in the worker, or start workers with the spawn method"
    )
