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
import weakref
from collections.abc import Mapping
from typing import Any

from resilient_io import policy as policies
from resilient_io.aws import credentials, faults, privates, timestamps, transfer
from resilient_io.aws.calls import current_call
from resilient_io.aws.hardening import MARK, Hardening, hardening_of
from resilient_io.aws.sending import Sending
from resilient_io.aws.sending_aio import AioSending
from resilient_io.drive.runtime import expect

_hardened: weakref.WeakSet[Any] = weakref.WeakSet()


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
        AioSending(done).put()
    else:
        Sending(done).put()
        transfer.carry(done)
    _widen_pool(done)
    credentials.ask_with_care(client, lambda: policies.resolve(done.overlay))
    client.__dict__[MARK] = done
    _hardened.add(client)


def _widen_pool(done: Hardening) -> None:
    undo = privates.widen_pool(done.client, policies.resolve(done.overlay).max_concurrency)
    if undo is not None:
        done.undo.append(undo)


def soften(client: Any) -> None:
    """Make a hardened client (or the one of a resource) what it was."""
    client = getattr(getattr(client, "meta", None), "client", client)
    done = client.__dict__.pop(MARK, None)
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

    def look(response_dict: dict[str, Any], **rest: Any) -> None:
        if current_call.get() is not None:
            faults.unmask_error(response_dict)

    done.listen("before-parse.s3", look)
