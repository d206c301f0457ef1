"""A filesystem on the test's own container, and what a fault does to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("azure.storage.blob")

# Four attempts at refusals and three at other faults, without waits that a test would feel.
POLICY: dict[str, object] = {
    "backoff_base_s": 0.001,
    "backoff_cap_s": 0.005,
    "max_attempts": 3,
    "max_throttle_attempts": 4,
    "retry_budget_burst": 1000,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave fsspec's suites without faults, and their edge cases of globs, to `make soak`, as those on moto."""
    for item in items:
        slow = "glob_edge_cases" in item.name or "[plain" in item.name
        if item.path == Path(__file__).with_name("test_fsspec_abstract.py") and slow:
            item.add_marker(pytest.mark.soak)


@pytest.fixture
def make_fs(azure_store: Any) -> Callable[..., Any]:
    """Return a maker of filesystems on the test's account: `make_fs(max_attempts=2, version_aware=True)`."""
    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    def make(account: Any = None, **options: Any) -> Any:
        policy = {name: options.pop(name) for name in list(options) if name in POLICY}
        options.setdefault("resilience", {**POLICY, **policy})
        where = (account or azure_store.account).connection_string
        return ResilientAzureBlobFileSystem(connection_string=where, skip_instance_cache=True, **options)

    return make


@pytest.fixture
def fs(make_fs: Callable[..., Any]) -> Any:
    """Return a filesystem of this library on the test's account."""
    return make_fs()


@pytest.fixture
def box(azure_store: Any) -> Any:
    """Return the SDK's own client of the test's container, past the fault server."""
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(azure_store.direct.connection_string, azure_store.container) as client:
        yield client


@pytest.fixture
def break_it(azure_store: Any) -> Callable[..., None]:
    """Answer calls with a fault, by default all with 503 ServerBusy, and count anew: `break_it("GetBlob")`."""
    from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Match

    def put(op: str = "*", action: FaultAction = FaultAction.ERROR, **rule: Any) -> None:
        azure_store.server.configure(FaultPlan(rules=(FaultRule(action=action, match=Match(op=op), **rule),)))
        azure_store.server.reset()

    return put
