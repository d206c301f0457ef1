"""What all tests share: a store on the loopback interface, and no way out to a real cloud.

`fault_server` and `moto_server` come from the package's own pytest plugin.

A test that finds a server or a package missing skips with its name; under RIO_REQUIRE_ALL=1 (as `.ci/run` sets it)
that is a failure, so a green run means that everything ran.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from resilient_io.testing import FaultServer

REQUIRE_ALL = os.environ.get("RIO_REQUIRE_ALL") == "1"
MISSING = re.compile(r"missing: |could not import ")
PLUGIN = "resilient_io.testing.plugin"

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
UNSET = ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_RETRY_MODE")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.update(ENVIRONMENT)
    for name in [*UNSET, *(name for name in os.environ if name.startswith("RESILIENT_IO"))]:
        os.environ.pop(name, None)
    _load_own_plugin(config)
    _quiet_hypothesis()


def _load_own_plugin(config: pytest.Config) -> None:
    """Load the pytest plugin where the package is not installed but on the path; else its entry point has done it."""
    if not config.pluginmanager.has_plugin("resilient_io"):
        config.pluginmanager.import_plugin(PLUGIN)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _quiet_hypothesis() -> None:
    if not _exists("hypothesis"):
        return
    from hypothesis import HealthCheck, settings

    # Examples take microseconds; on a shared core one of them may still be held up for a second.
    settings.register_profile(
        "shared-cores", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("shared-cores")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    return _without_missing(report)  # type: ignore[return-value]  # what a wrapper returns, not the generator


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    return _without_missing(report)  # type: ignore[return-value]  # what a wrapper returns, not the generator


def _without_missing(report: pytest.TestReport | pytest.CollectReport) -> pytest.TestReport | pytest.CollectReport:
    """Turn the skip of something missing into a failure under RIO_REQUIRE_ALL=1."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail") and MISSING.search(reason):
        report.outcome = "failed"
        report.longrepr = f"RIO_REQUIRE_ALL=1 and {reason}"
    return report


@pytest.fixture(autouse=True)
def _fresh_filesystems() -> Iterator[None]:
    """Forget cached filesystems after each test: fsspec would hand out one that points to a server that is gone."""
    yield
    spec = sys.modules.get("fsspec.spec")
    classes = [spec.AbstractFileSystem] if spec is not None else []
    while classes:
        one = classes.pop()
        one.clear_instance_cache()
        classes.extend(one.__subclasses__())


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """Skip because something is missing: `missing("redis-server")`. Fails instead under RIO_REQUIRE_ALL=1."""

    def skip(what: str) -> NoReturn:
        pytest.skip(f"missing: {what}")

    return skip


@pytest.fixture
def moto_url(moto_server: str) -> str:
    """Return the URL of an empty moto server that has the bucket `my-bucket`."""
    for method, path in (("POST", "/moto-api/reset"), ("PUT", "/my-bucket")):
        urllib.request.urlopen(urllib.request.Request(moto_server + path, method=method), timeout=30).close()
    return moto_server


@pytest.fixture
def moto_store(moto_url: str, fault_server: Callable[..., FaultServer], monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    """Return a FaultServer before moto, without faults yet, that AWS_ENDPOINT_URL names; it holds `my-bucket`."""
    server = fault_server(upstream=moto_url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    return server
