"""The hooks at each attempt of an S3 client of botocore or aiobotocore.

    client._make_api_call      one request with its attempts: the Operation and the Call are made here
    endpoint.create_request    before each attempt, and before credentials and signing: admission
    endpoint._get_response     the attempt itself: its end is classified, its permit comes back
    needs-retry.s3             between attempts: the decision, and the backoff

No pair of botocore's public events brackets an attempt (a cancelled one ends in neither), and a
wait after signing makes signatures stale; a presigned URL is signed without being sent and passes
none of these.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

from botocore.exceptions import ClientError

from resilient_io import policy as policies
from resilient_io.aws import (
    credentials,
    deleting,
    faults,
    hedged,
    keys,
    lost,
    privates,
    splice,
    splice_aio,
    streams,
    timestamps,
    transfer,
)
from resilient_io.aws.errors import annotated, unless_an_echo, waited_too_long
from resilient_io.drive.call import Call
from resilient_io.drive.gate import WaitedTooLong
from resilient_io.drive.operation import Operation, Surface, body_hold, current, made_current
from resilient_io.drive.runtime import expect, runtime
from resilient_io.errors import GaveUp, NotForkSafe

_hardened: weakref.WeakSet[Any] = weakref.WeakSet()
_MARK = "_resilient_io_hardening"
_CLEANING_UP = frozenset({"AbortMultipartUpload"})


_call: ContextVar[Call | None] = ContextVar("resilient_io_aws_call", default=None)


@dataclass(slots=True, eq=False)
class Hardening:
    """What was changed about one client, and how to change it back."""

    client: Any
    overlay: Mapping[str, object]
    pid: int = field(default_factory=os.getpid)
    stock_retry: Callable[..., Any] | None = None
    undo: list[Callable[[], None]] = field(default_factory=list)


def hardening_of(client: Any) -> Hardening | None:
    """Return what was done to this client, or None."""
    found: Hardening | None = getattr(client, "__dict__", {}).get(_MARK)
    return found


def harden(client: Any, policy: object = None) -> Any:
    """Put the hooks into an S3 client, sync or async; return the same client. Idempotent.

    A boto3 resource stands for its client. A second call only changes the policy. Raises ValueError
    for a client of another service.
    """
    overlay = policies.overlay(policy)
    resource, client = client, _client_of(client)
    known = hardening_of(client)
    if known is None:
        _hook(client, overlay)
    elif policy is not None:
        known.overlay = overlay
        _widen_pool(known)
    expect(policies.resolve(overlay))
    return resource


def _client_of(thing: Any) -> Any:
    """Return the S3 client that a client or a boto3 resource is or has."""
    meta = getattr(thing, "meta", None)
    client = getattr(meta, "client", thing)
    service = getattr(getattr(getattr(client, "meta", None), "service_model", None), "service_name", None)
    if service is None:
        raise ValueError(f"harden() takes an S3 client of boto3 or aiobotocore, or a boto3 resource, not {thing!r}")
    if service != "s3":
        raise ValueError(f"harden() knows S3 clients; this one is for {service!r}")
    return client


def _hook(client: Any, overlay: Mapping[str, object]) -> None:
    privates.check(client)
    done = Hardening(client, overlay)
    _silence_stock_retries(done)
    undo_times = privates.read_times_with(client, timestamps.parse)
    undo_agent = privates.remember_user_agent(client)
    done.undo += [undo for undo in (undo_times, undo_agent) if undo is not None]
    _unmask_errors(done)
    if privates.is_async(client):
        _hook_async(done)
    else:
        _hook_sync(done)
        transfer.carry(done)
    _widen_pool(done)
    credentials.ask_with_care(client, lambda: policies.resolve(done.overlay))
    client.__dict__[_MARK] = done
    _hardened.add(client)


def _widen_pool(done: Hardening) -> None:
    undo = privates.widen_pool(done.client, policies.resolve(done.overlay).max_concurrency)
    if undo is not None:
        done.undo.append(undo)


def soften(client: Any) -> None:
    """Make a hardened client (or the one of a resource) what it was."""
    client = getattr(getattr(client, "meta", None), "client", client)
    done = client.__dict__.pop(_MARK, None)
    if done is not None:
        for step in reversed(done.undo):
            step()
        _hardened.discard(client)


def soften_all() -> None:
    """Make every hardened client of this process what it was."""
    for client in list(_hardened):
        soften(client)


def hardened_clients() -> int:
    """Return how many living clients of this process are hardened."""
    return len(_hardened)


# -- the parts that sync and async share -------------------------------------------------------------


def _silence_stock_retries(done: Hardening) -> None:
    """Take botocore's retry handler and adaptive's limiter out; one owner of the retry is enough."""
    events, stock = done.client.meta.events, privates.stock_retry_handler(done.client)
    done.stock_retry = stock
    if stock is not None:
        events.unregister(privates.STOCK_RETRY_EVENT, unique_id=privates.STOCK_RETRY_ID)
        done.undo.append(lambda: events.register(privates.STOCK_RETRY_EVENT, stock, unique_id=privates.STOCK_RETRY_ID))
    for event, handler in privates.adaptive_limiter_handlers(done.client):
        events.unregister(event, handler)
        done.undo.append(functools.partial(events.register, event, handler))


def _unmask_errors(done: Hardening) -> None:
    """Find the error inside a 200 of every operation whose answer is read whole."""
    events = done.client.meta.events

    def look(response_dict: dict[str, Any], **rest: Any) -> None:
        if _call.get() is not None:
            faults.unmask_error(response_dict)

    events.register("before-parse.s3", look)
    done.undo.append(lambda: events.unregister("before-parse.s3", look))


def _put(done: Hardening, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Shadow a method of one object; the class and its other instances stay as they are."""
    owner.__dict__[name] = replacement
    done.undo.append(lambda: owner.__dict__.pop(name, None))


def _begin(done: Hardening, name: str, params: Mapping[str, Any]) -> Call | None:
    """Return the call to make, or None if the library is switched off."""
    outer = _call.get()
    operation = current() or (outer.operation if outer is not None else _operation(done, name))
    policy = operation.policy(done.overlay)
    if not policy.enabled:
        return None
    if operation.surface is Surface.FILESYSTEM and operation.ledger and name not in _CLEANING_UP:
        # s3fs asks in another way when a request fails; after a give-up that would be a second round.
        raise operation.ledger[-1]
    return Call(
        runtime(),
        operation,
        name=name,
        judged_as=keys.judged_as(name, params),
        place=functools.partial(keys.place_of, params),
        path=keys.scope_of(name, params, done.client.meta.endpoint_url, policy),
        policy=policy,
        nested=outer is not None,
    )


def _operation(done: Hardening, name: str) -> Operation:
    return Operation(name=name, surface=Surface.CLIENT, overlay=done.overlay)


def _note(call: Call, answer: Any, error: BaseException | None, streaming: bool, request: Any) -> None:
    """Tell the call what its attempt came to."""
    if error is not None:
        call.failed(faults.verdict_of_error(error, call.judged_as))
        return
    http, parsed = answer
    verdict = faults.verdict_of_answer(
        parsed, http.status_code, call.judged_as, whole=not streaming, lost_answer=call.lost_answer
    )
    if verdict is None:
        call.moves(parsed.get("ContentLength") or 0 if streaming else keys.sent_bytes(call.name, request))
        call.succeeded(body_follows=streaming)
    else:
        call.failed(verdict)


def _delay_after(call: Call, response: Any) -> float | None:
    """Return the delay in seconds before the next attempt, or None if there is none.

    Older botocore finds the error inside a 200 only while it decides on the retry: look again.
    """
    if call.verdict is None:
        if response is None or "Error" not in response[1]:
            return None
        http, parsed = response
        verdict = faults.verdict_of_answer(parsed, http.status_code, call.judged_as, lost_answer=call.lost_answer)
        if verdict is not None:
            call.failed(verdict)
    return None if deleting.is_by_key(call, response) else call.decide()


def _checked(call: Call | None, answer: Any) -> Any:
    """Return the answer; raise the error inside it where it was given up on, or would get lost above."""
    if call is None:
        return answer
    filesystem = call.operation.surface is Surface.FILESYSTEM
    # s3fs looks at what a bulk delete deleted and never at what it did not.
    if call.give_up is not None or (filesystem and call.name == "DeleteObjects"):
        error = faults.error_inside(answer, call.judged_as)
        if error is not None:
            raise error
    return answer


def _is_body_for_the_caller(operation_name: str) -> bool:
    """Say whether an answer has a body that nobody of ours reads."""
    return operation_name == "GetObject" and body_hold() is None


def _outcome(call: Call, error: Exception) -> Exception:
    """Return the error that the layer above should see."""
    if isinstance(error, GaveUp):
        return error
    if isinstance(error, WaitedTooLong):
        error = waited_too_long(call)
    credentials.unsigned(error, call)
    annotated(error, call)
    if call.give_up is None or not call.hides_the_truth():
        return error
    gave_up = call.gave_up(error)
    # Above a filesystem's request stand layers that swallow OSErrors and translate ClientErrors.
    return gave_up if call.operation.surface is Surface.FILESYSTEM else unless_an_echo(error, call)


@contextmanager
def _looking(call: Call) -> Iterator[None]:
    """Send what is sent inside as a request of its own, which neither counts as this call nor fails for it."""
    token = _call.set(None)
    try:
        with made_current(call.lookup()):
            yield
    finally:
        _call.reset(token)


# -- sync --------------------------------------------------------------------------------------------


def _hook_sync(done: Hardening) -> None:
    client, endpoint = done.client, privates.endpoint_of(done.client)
    make_api_call, create_request = client._make_api_call, endpoint.create_request
    get_response = endpoint._get_response

    def call_once(operation_name: str, api_params: Mapping[str, Any], probing: bool = False) -> Any:
        if done.pid != os.getpid():
            _renew_after_fork(done)
        call = _begin(done, operation_name, api_params)
        if call is not None and call.policy.hedge and _is_body_for_the_caller(operation_name):
            answer, call = hedged.answer_in_threads(client, call, api_params)
            return splice.Spliced(client, call, api_params).begin(answer)
        written = lost.written_by(operation_name, api_params) if call is not None else None
        api_params = streams.from_here(api_params)
        token = _call.set(call)
        try:
            answer = make_api_call(operation_name, api_params)
            if call is not None and operation_name == "DeleteObjects":
                answer = deleting.by_key(call, answer, api_params, make_api_call)
            answer = _checked(call, answer)
        except Exception as error:
            if call is None:
                raise
            look = lost.look_for(call, error, api_params, written)
            answer = lost.settled(look, client._make_api_call, _looking(call))
            if answer is not None:
                return answer
            probe = None if probing else credentials.probe_for(call, api_params, error)
            if probe is not None:
                refusal = refusal_of(*probe)
                if refusal is None:
                    return call_once(operation_name, api_params, probing=True)
                error = credentials.told(error, refusal, call)
            seen = _outcome(call, error)
            if seen is error:
                raise error
            raise seen from error
        finally:
            _call.reset(token)
            if call is not None:
                call.close()
        if call is None or not _is_body_for_the_caller(operation_name):
            return answer
        return splice.Spliced(client, call, api_params).begin(answer)

    def refusal_of(operation_name: str, api_params: Mapping[str, Any]) -> ClientError | None:
        try:
            answer = call_once(operation_name, api_params, probing=True)
        except ClientError as refusal:
            return None if credentials.is_allowed(refusal) else refusal
        if "Body" in answer:
            answer["Body"].close()
        return None

    def admitted_request(params: Any, operation_model: Any = None) -> Any:
        call = _call.get()
        if call is not None and operation_model is not None:
            call.admit()
        return create_request(params, operation_model)

    def one_attempt(request: Any, operation_model: Any, context: Any) -> Any:
        call = _call.get()
        if call is None:
            return get_response(request, operation_model, context)
        try:
            answer, error = get_response(request, operation_model, context)
        except Exception as raised:
            # Parsing stands outside botocore's own try: hand it on as what it is, a failed attempt.
            answer, error = None, raised
        _note(call, answer, error, operation_model.has_streaming_output, request)
        credentials.renew(done.client, call, request)
        return answer, error

    def decide(response: Any = None, **rest: Any) -> Any:
        call = _call.get()
        if call is None:
            return done.stock_retry(response=response, **rest) if done.stock_retry is not None else None
        delay_s = _delay_after(call, response)
        if delay_s is None:
            return None
        runtime().clock.sleep(delay_s)
        return 0

    _put(done, client, "_make_api_call", call_once)
    _put(done, endpoint, "create_request", admitted_request)
    _put(done, endpoint, "_get_response", one_attempt)
    _register_decision(done, decide)


def _renew_after_fork(done: Hardening) -> None:
    privates.forget_connections(done.client)
    done.pid = os.getpid()


def _register_decision(done: Hardening, decide: Callable[..., Any]) -> None:
    events = done.client.meta.events
    events.register_first(privates.STOCK_RETRY_EVENT, decide)
    done.undo.append(lambda: events.unregister(privates.STOCK_RETRY_EVENT, decide))


# -- async -------------------------------------------------------------------------------------------


def _hook_async(done: Hardening) -> None:
    client, endpoint = done.client, privates.endpoint_of(done.client)
    make_api_call, create_request = client._make_api_call, endpoint.create_request
    get_response = endpoint._get_response

    async def call_once(operation_name: str, api_params: Mapping[str, Any], probing: bool = False) -> Any:
        if done.pid != os.getpid():
            _refuse_after_fork()
        call = _begin(done, operation_name, api_params)
        if call is not None and call.policy.hedge and _is_body_for_the_caller(operation_name):
            answer, call = await hedged.answer_in_tasks(client, call, api_params)
            return await splice_aio.AioSpliced(client, call, api_params).begin(answer)
        written = lost.written_by(operation_name, api_params) if call is not None else None
        api_params = streams.from_here(api_params)
        token = _call.set(call)
        try:
            answer = await make_api_call(operation_name, api_params)
            if call is not None and operation_name == "DeleteObjects":
                answer = await deleting.by_key_async(call, answer, api_params, make_api_call)
            answer = _checked(call, answer)
        except Exception as error:
            if call is None:
                raise
            look = lost.look_for(call, error, api_params, written)
            answer = await lost.settled_async(look, client._make_api_call, _looking(call))
            if answer is not None:
                return answer
            probe = None if probing else credentials.probe_for(call, api_params, error)
            if probe is not None:
                refusal = await refusal_of(*probe)
                if refusal is None:
                    return await call_once(operation_name, api_params, probing=True)
                error = credentials.told(error, refusal, call)
            seen = _outcome(call, error)
            if seen is error:
                raise error
            raise seen from error
        finally:
            _call.reset(token)
            if call is not None:
                call.close()
        if call is None or not _is_body_for_the_caller(operation_name):
            return answer
        return await splice_aio.AioSpliced(client, call, api_params).begin(answer)

    async def refusal_of(operation_name: str, api_params: Mapping[str, Any]) -> ClientError | None:
        try:
            answer = await call_once(operation_name, api_params, probing=True)
        except ClientError as refusal:
            return None if credentials.is_allowed(refusal) else refusal
        if "Body" in answer:
            answer["Body"].close()
        return None

    async def admitted_request(params: Any, operation_model: Any = None) -> Any:
        call = _call.get()
        if call is not None and operation_model is not None:
            await call.admit_async()
        return await create_request(params, operation_model)

    async def one_attempt(request: Any, operation_model: Any, context: Any) -> Any:
        call = _call.get()
        if call is None:
            return await get_response(request, operation_model, context)
        try:
            answer, error = await get_response(request, operation_model, context)
        except Exception as raised:
            answer, error = None, raised
        _note(call, answer, error, operation_model.has_streaming_output, request)
        credentials.renew(done.client, call, request)
        return answer, error

    async def decide(response: Any = None, **rest: Any) -> Any:
        call = _call.get()
        if call is None:
            return await _stock_decision(done, response, rest)
        delay_s = _delay_after(call, response)
        if delay_s is None:
            return None
        await runtime().clock.sleep_async(delay_s)
        return 0

    _put(done, client, "_make_api_call", call_once)
    _put(done, endpoint, "create_request", admitted_request)
    _put(done, endpoint, "_get_response", one_attempt)
    _register_decision(done, decide)
    undo_resend = privates.forbid_resend(client)
    if undo_resend is not None:
        done.undo.append(undo_resend)


async def _stock_decision(done: Hardening, response: Any, rest: Mapping[str, Any]) -> Any:
    if done.stock_retry is None:
        return None
    decision = done.stock_retry(response=response, **rest)
    return await decision if hasattr(decision, "__await__") else decision


def _refuse_after_fork() -> NoReturn:
    raise NotForkSafe(
        "this aiobotocore client was made before the process forked, and its event loop does not run here; "
        "make the client (or the filesystem) in the worker, or start workers with the spawn method"
    )
