"""How a request of an Azure client ends that was given up: the answer of which the SDK makes its error, or ours."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from azure.core.exceptions import AzureError, HttpResponseError

from resilient_io.azure import errors, faults
from resilient_io.azure.batch import Batch
from resilient_io.azure.exchange import Exchange
from resilient_io.classify.fault import FaultKind
from resilient_io.drive.call import Call
from resilient_io.drive.gate import WaitedTooLong
from resilient_io.drive.operation import Surface

# How an answer refuses what our own first try has done.
_ECHO_STATUSES: Final = frozenset({404, 409, 412})


def ended(exchange: Exchange, response: Any, fault: Exception | None) -> Any:
    """Return the answer that ends the call, of which the SDK makes its error, or raise what takes its place."""
    if fault is not None:
        raise_for(exchange, fault)
    http, call = response.http_response, exchange.call
    http.location_mode = exchange.settings["mode"]
    errors.marked(http, call)
    if http.status_code < 300 and exchange.batch is None and not exchange.is_left_to_sdk(http):
        # The SDK would take it for a good one.
        raise_for(exchange, HttpResponseError("the answer says success and is not whole", response=http))
    if not call.hides_the_truth():
        return response
    cause = HttpResponseError(response=http)
    if exchange.batch is not None and http.status_code < 300:
        return _ended_in_parts(exchange, exchange.batch, response)
    gave_up = call.gave_up(cause)
    if call.operation.surface is Surface.FILESYSTEM:
        raise gave_up from cause
    if call.verdict is not None and call.verdict.kind is FaultKind.AUTH:
        raise errors.unauthorized(call, http, faults.code_of(http))
    if _may_be_an_echo(call, http.status_code):
        raise errors.ambiguous(call, http.status_code, faults.code_of(http))
    return response


def _may_be_an_echo(call: Call, status: int) -> bool:
    """Say whether an answer may refuse what an attempt of this very call did, whose own answer was lost."""
    is_unsure = call.verdict is not None and call.verdict.kind is FaultKind.AMBIGUOUS
    return is_unsure and call.lost_answer and status in _ECHO_STATUSES


def _ended_in_parts(exchange: Exchange, batch: Batch, response: Any) -> Any:
    """Return the answer to a batch of which parts were given up: the SDK raises for them, or hands them on."""
    http = response.http_response
    batch.make_whole(http)
    gave_up = exchange.call.gave_up(HttpResponseError("parts of the batch were refused", response=http))
    if exchange.call.operation.surface is Surface.FILESYSTEM:
        raise gave_up
    return response


def raise_for(exchange: Exchange, error: Exception) -> NoReturn:
    """Raise what the layer above should see of the error that ended the call."""
    if isinstance(error, WaitedTooLong):
        error = errors.waited_too_long(exchange.call)
    errors.without_secrets(error)
    if isinstance(error, AzureError):
        errors.annotated(error, exchange.call)
    if exchange.call.give_up is None or not exchange.call.hides_the_truth():
        raise error
    gave_up = exchange.call.gave_up(error)
    if exchange.call.operation.surface is Surface.FILESYSTEM:
        raise gave_up from error
    raise error
