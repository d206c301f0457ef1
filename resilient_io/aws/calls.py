"""One request of an S3 client as a `Call`, sync or async: how it begins, what an attempt comes to, what is said above.

The call that is being made is the current one of its context from `_make_api_call` down to each attempt.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from resilient_io.aws import credentials, deleting, faults, keys
from resilient_io.aws.errors import annotated, unless_an_echo, waited_too_long
from resilient_io.aws.hardening import Hardening
from resilient_io.drive.call import Call
from resilient_io.drive.gate import WaitedTooLong
from resilient_io.drive.operation import Operation, Surface, body_hold, current, made_current
from resilient_io.drive.runtime import runtime
from resilient_io.errors import GaveUp

_CLEANING_UP: Final = frozenset({"AbortMultipartUpload"})

current_call: ContextVar[Call | None] = ContextVar("resilient_io_aws_call", default=None)


def begin(done: Hardening, name: str, params: Mapping[str, Any]) -> Call | None:
    """Return the call to make, or None if the library is switched off."""
    outer = current_call.get()
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


@contextmanager
def looking(call: Call) -> Iterator[None]:
    """Send what is sent inside as a request of its own, which neither counts as this call nor fails for it."""
    token = current_call.set(None)
    try:
        with made_current(call.lookup()):
            yield
    finally:
        current_call.reset(token)


def note(call: Call, answer: Any, error: BaseException | None, streaming: bool, request: Any) -> None:
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


def delay_after(call: Call, response: Any) -> float | None:
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


def checked(call: Call, answer: Any) -> Any:
    """Return the answer; raise the error inside it where it was given up on, or would get lost above."""
    filesystem = call.operation.surface is Surface.FILESYSTEM
    # s3fs looks at what a bulk delete deleted and never at what it did not.
    if call.give_up is not None or (filesystem and call.name == "DeleteObjects"):
        error = faults.error_inside(answer, call.judged_as)
        if error is not None:
            raise error
    return answer


def is_body_for_the_caller(operation_name: str) -> bool:
    """Say whether an answer has a body that nobody of ours reads."""
    return operation_name == "GetObject" and body_hold() is None


def seen_above(call: Call, error: Exception) -> Exception:
    """Return the error that the layer above should see, with `error` as its cause if it is another one."""
    if isinstance(error, GaveUp):
        return error
    cause = error
    if isinstance(error, WaitedTooLong):
        error = waited_too_long(call)
    credentials.unsigned(error, call)
    annotated(error, call)
    if call.give_up is not None and call.hides_the_truth():
        gave_up = call.gave_up(error)
        # Above a filesystem's request stand layers that swallow OSErrors and translate ClientErrors.
        error = gave_up if call.operation.surface is Surface.FILESYSTEM else unless_an_echo(error, call)
    if error is not cause:
        error.__cause__ = cause
    return error
