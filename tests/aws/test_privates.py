"""What is touched inside the SDKs: it is there, it is named if it is not, and it is put back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from aiobotocore.session import AioSession, get_session
from botocore.config import Config
from botocore.exceptions import ClientError

from resilient_io.aws import privates
from resilient_io.aws.hooks import harden, hardened_clients, hardening_of, soften, soften_all
from resilient_io.testing import FaultAction, FaultRule, FaultServer

QUICK = {"backoff_base_s": 0.001, "backoff_cap_s": 0.01}
BROKEN = FaultRule(action=FaultAction.ERROR, status=500, code="InternalError")


def _client(url: str = "http://127.0.0.1:9", mode: str = "legacy", **options: Any) -> Any:
    config = Config(retries={"mode": mode}, **options)
    return boto3.session.Session().client("s3", endpoint_url=url, config=config)


def _with_async_client(use: Callable[[Any], Any]) -> Any:
    async def run() -> Any:
        async with get_session().create_client("s3", endpoint_url="http://127.0.0.1:9") as client:
            found = use(client)
            return await found if asyncio.iscoroutine(found) else found

    return asyncio.run(run())


def _state_of(client: Any) -> dict[str, Any]:
    """Return all that the hooks change about a client."""
    emitter, endpoint = privates.emitter_of(client), client._endpoint
    handlers = {
        event: sorted(map(repr, emitter._handlers.prefix_search(event)))
        for event in ("needs-retry.s3.GetObject", "before-send.s3.GetObject", "before-parameter-build.s3.GetObject")
    }
    return {
        "handlers": handlers,
        "unique": sorted(emitter._unique_id_handlers),
        "client": sorted(client.__dict__),
        "endpoint": sorted(endpoint.__dict__),
        "session": sorted(endpoint.http_session.__dict__),
        "pool": endpoint.http_session._max_pool_connections,
    }


# -- each private, against the installed SDK ---------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_an_installed_sdk_is_not_refused(mode: str) -> None:
    client = _client(mode=mode)
    privates.check(client)
    assert privates.is_async(client) is False
    assert privates.endpoint_of(client).http_session is not None
    assert privates.stock_retry_handler(client) is not None
    assert bool(privates.adaptive_limiter_handlers(client)) == (mode == "adaptive")
    assert privates.forbid_resend(client) is None


def test_an_installed_async_sdk_is_not_refused() -> None:
    def use(client: Any) -> None:
        privates.check(client)
        assert privates.is_async(client) is True
        assert privates.stock_retry_handler(client) is not None

    _with_async_client(use)


def test_aiohttps_resend_does_not_come_back_with_a_new_session() -> None:
    async def use(client: Any) -> None:
        http = client._endpoint.http_session
        undo = privates.forbid_resend(client)
        assert undo is not None
        inner = await http._get_session(None)
        assert inner._retry_connection is False
        undo()
        assert inner._retry_connection is True
        assert "_get_session" not in http.__dict__

    _with_async_client(use)


@pytest.mark.parametrize("name", ["_endpoint", "_make_api_call"])
def test_a_missing_attribute_does_not_fail_in_the_middle_of_a_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = _client()
    if name in client.__dict__:
        monkeypatch.delattr(client, name)
    else:
        monkeypatch.delattr("botocore.client.BaseClient._make_api_call")
    with pytest.raises(privates.UnsupportedSDK, match=name):
        harden(client)


@pytest.mark.parametrize("name", ["create_request", "_get_response", "_send_request"])
def test_a_missing_method_of_the_endpoint_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = _client()
    monkeypatch.delattr(f"botocore.endpoint.Endpoint.{name}")
    with pytest.raises(privates.UnsupportedSDK, match=name):
        harden(client)


@pytest.mark.parametrize("name", ["_handlers", "_unique_id_handlers"])
def test_a_missing_table_of_handlers_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = _client()
    monkeypatch.delattr(privates.emitter_of(client), name)
    with pytest.raises(privates.UnsupportedSDK, match=name):
        harden(client)


def test_a_wider_limit_does_not_queue_in_a_narrow_pool() -> None:
    client = _client()
    privates.widen_pool(client, 50)
    http = client._endpoint.http_session
    assert http._max_pool_connections == 50
    assert http._manager.connection_pool_kw["maxsize"] == 50
    privates.widen_pool(client, 20)
    assert http._max_pool_connections == 50


def test_a_childs_connections_are_not_its_parents() -> None:
    client = _client()
    http = client._endpoint.http_session
    before, kinds = http._manager, http._manager.pool_classes_by_scheme
    client._request_signer._credentials._refresh_lock = held = threading.Lock()
    held.acquire()
    privates.forget_connections(client)
    assert http._manager is not before
    assert http._manager.pool_classes_by_scheme is kinds
    assert not client._request_signer._credentials._refresh_lock.locked()
    held.release()


def test_the_factories_of_sessions_are_found() -> None:
    name, factory = privates.sync_client_factory(boto3.session.Session()._session)
    assert name == "create_client"
    assert callable(factory)
    assert privates.async_client_factory(boto3.session.Session()._session) is None
    found = privates.async_client_factory(AioSession())
    assert found is not None
    assert found[0] == "_create_client"
    boto3.setup_default_session()
    assert privates.boto3_default_session() is boto3.DEFAULT_SESSION._session


# -- harden and soften -------------------------------------------------------------------------------


def test_hardening_twice_does_not_hook_twice() -> None:
    client = _client()
    assert harden(client) is client
    once = _state_of(client)
    assert harden(client) is client
    assert _state_of(client) == once
    soften_all()


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_softening_does_not_leave_a_trace(mode: str) -> None:
    client = _client(mode=mode)
    before = _state_of(client)
    harden(client)
    assert _state_of(client) != before
    assert hardened_clients() == 1
    soften(client)
    assert _state_of(client) == before
    assert hardening_of(client) is None
    assert hardened_clients() == 0
    soften(client)


def test_softening_an_async_client_does_not_leave_a_trace() -> None:
    def use(client: Any) -> None:
        before = _state_of(client)
        harden(client)
        soften(client)
        assert _state_of(client) == before

    _with_async_client(use)


def _requests_of_a_broken_call(server: FaultServer, client: Any) -> int:
    before = server.stats().requests
    with pytest.raises(ClientError):
        client.get_object(Bucket="b", Key="k")
    return server.stats().requests - before


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)


@pytest.mark.wire
def test_a_softened_client_does_not_lose_its_own_retries(
    plan_of: Callable[..., FaultServer], fast_clock: Any, no_sleep: None
) -> None:
    server = plan_of(BROKEN)
    client = _client(server.url)
    assert _requests_of_a_broken_call(server, client) == 5
    harden(client, {**QUICK, "max_attempts": 2})
    assert _requests_of_a_broken_call(server, client) == 2
    soften(client)
    assert _requests_of_a_broken_call(server, client) == 5


@pytest.mark.wire
def test_switching_off_does_not_leave_a_client_without_retries(
    plan_of: Callable[..., FaultServer], no_sleep: None
) -> None:
    server = plan_of(BROKEN)
    client = harden(_client(server.url), False)
    assert _requests_of_a_broken_call(server, client) == 5
    soften(client)


@pytest.mark.wire
def test_a_second_harden_is_not_ignored(plan_of: Callable[..., FaultServer], fast_clock: Any) -> None:
    server = plan_of(BROKEN)
    client = harden(_client(server.url), {**QUICK, "max_attempts": 2})
    assert _requests_of_a_broken_call(server, client) == 2
    harden(client, {**QUICK, "max_attempts": 3})
    assert _requests_of_a_broken_call(server, client) == 3
    harden(client)
    assert _requests_of_a_broken_call(server, client) == 3
    harden(client, {"max_concurrency": 128})
    assert client._endpoint.http_session._max_pool_connections == 128
    soften(client)


@pytest.mark.parametrize("service", ["sqs", "dynamodb"])
def test_a_client_of_another_service_is_not_half_hooked(service: str) -> None:
    client = boto3.session.Session().client(service)
    with pytest.raises(ValueError, match=f"this one is for '{service}'"):
        harden(client)
    assert hardening_of(client) is None


def test_a_resource_is_not_passed_by() -> None:
    resource = boto3.session.Session().resource("s3")
    assert harden(resource) is resource
    assert hardening_of(resource.meta.client) is not None
    soften(resource)
    assert hardening_of(resource.meta.client) is None


@pytest.mark.parametrize("thing", [None, "s3://b/k", 3])
def test_what_is_no_client_is_named(thing: object) -> None:
    with pytest.raises(ValueError, match="S3 client"):
        harden(thing)
