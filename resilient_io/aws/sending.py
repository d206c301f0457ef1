"""What stands in the place of a sync client's own methods: one request with its attempts; `sending_aio` is its twin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from resilient_io.aws import calls, credentials, deleting, hedged, lost, privates, splice, streams
from resilient_io.aws.calls import current_call
from resilient_io.aws.hardening import Hardening
from resilient_io.drive.call import Call
from resilient_io.drive.runtime import runtime

Params = Mapping[str, Any]


class Sending:
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

    # -- a request -----------------------------------------------------------------------------------

    def request(self, operation_name: str, api_params: Params, *, probing: bool = False) -> Any:
        """Send a request with its attempts; return its answer, whose body goes on where it dies."""
        client = self._done.client
        if self._done.pid != os.getpid():
            self._renew_after_fork()
        call = calls.begin(self._done, operation_name, api_params)
        if call is None:
            return self._passed_through(operation_name, api_params)
        if not calls.is_body_for_the_caller(operation_name):
            return self._answer(call, api_params, probing=probing)
        if call.policy.hedge:
            answer, call = hedged.answer_in_threads(client, call, api_params)
        else:
            answer = self._answer(call, api_params, probing=probing)
        return splice.Spliced(client, call, api_params).begin(answer)

    def _passed_through(self, operation_name: str, api_params: Params) -> Any:
        """Send a request of a client that is switched off: no hook below takes it for a part of the call above."""
        token = current_call.set(None)
        try:
            return self._make_api_call(operation_name, streams.from_here(api_params))
        finally:
            current_call.reset(token)

    def _answer(self, call: Call, api_params: Params, *, probing: bool) -> Any:
        written = lost.written_by(call.name, api_params)
        api_params = streams.from_here(api_params)
        token = current_call.set(call)
        try:
            answer = self._make_api_call(call.name, api_params)
            if call.name == "DeleteObjects":
                answer = deleting.by_key(call, answer, api_params, self._make_api_call)
            return calls.checked(call, answer)
        except Exception as error:
            look = lost.look_for(call, error, api_params, written)
            answer = lost.settled(look, self._done.client._make_api_call, calls.looking(call))
            if answer is not None:
                return answer
            probe = None if probing else credentials.probe_for(call, api_params, error)
            if probe is not None:
                return self._probed(call, error, api_params, probe)
            raise calls.seen_above(call, error)  # noqa: B904  # the cause is set there
        finally:
            current_call.reset(token)
            call.close()

    def _probed(self, call: Call, error: Exception, api_params: Params, probe: tuple[str, Params]) -> Any:
        """Return the answer to a HEAD that the store lets in now; raise its error with what the probe was told."""
        refusal = self._refusal_of(*probe)
        if refusal is None:
            return self.request(call.name, api_params, probing=True)
        raise calls.seen_above(call, credentials.told(error, refusal, call))

    def _refusal_of(self, operation_name: str, api_params: Params) -> ClientError | None:
        """Send the request that says what a bare 400 or 403 means; return its refusal, None if it was let in."""
        try:
            answer = self.request(operation_name, api_params, probing=True)
        except ClientError as refusal:
            return None if credentials.is_allowed(refusal) else refusal
        if "Body" in answer:
            answer["Body"].close()
        return None

    def _renew_after_fork(self) -> None:
        privates.forget_connections(self._done.client)
        self._done.pid = os.getpid()

    # -- its attempts --------------------------------------------------------------------------------

    def admitted(self, params: Any, operation_model: Any = None) -> Any:
        """Make the request of an attempt, signed only when there is a permit for it."""
        call = current_call.get()
        if call is not None and operation_model is not None:
            call.admit()
        return self._create_request(params, operation_model)

    def attempt(self, request: Any, operation_model: Any, context: Any) -> Any:
        """Send an attempt, tell the call what it came to, and free its permit."""
        call = current_call.get()
        if call is None:
            return self._get_response(request, operation_model, context)
        try:
            answer, error = self._get_response(request, operation_model, context)
        except Exception as raised:
            # Parsing stands outside botocore's own try: hand it on as what it is, a failed attempt.
            answer, error = None, raised
        calls.note(call, answer, error, operation_model.has_streaming_output, request)
        credentials.renew(self._done.client, call, request)
        return answer, error

    def wait(self, response: Any = None, **rest: Any) -> Any:
        """Decide on the next attempt and wait for its time; 0 sends it at once, None sends none."""
        call = current_call.get()
        if call is None:
            stock = self._done.stock_retry
            return stock(response=response, **rest) if stock is not None else None
        delay_s = calls.delay_after(call, response)
        if delay_s is None:
            return None
        runtime().clock.sleep(delay_s)
        return 0
