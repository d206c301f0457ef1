"""What all tests share: a store on the loopback interface, and no way out to a real cloud.

`fault_server` and `moto_server` come from the package's own pytest plugin. `azurite` is the Azurite of tests/azurite,
which `make test` installs, or the one that AZURITE_URL names; `azure_store` is a FaultServer before it.

A test that finds a server or a package missing skips with its name; under RIO_REQUIRE_ALL=1 (as `.ci/run` sets it)
that is a failure, so a green run means that everything ran.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import signal
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from resilient_io.testing import FaultServer, StorageAccount

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
UNSET_PREFIXES = ("RESILIENT_IO", "AZURE_", "AZURITE_ACCOUNTS")
ROOT = Path(__file__).resolve().parents[1]
AZURITE = Path(__file__).parent / "azurite"


def pytest_configure(config: pytest.Config) -> None:
    os.environ.update(ENVIRONMENT)
    for name in [*UNSET, *(name for name in os.environ if name.startswith(UNSET_PREFIXES))]:
        os.environ.pop(name, None)
    _load_own_plugin(config)
    _quiet_hypothesis()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in its background so; the tests of Ctrl-C would wait for what never comes.
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureStore:
    """A FaultServer before Azurite, and a container of this test's own.

    `account` leads through the server, `direct` past it: what a test prepares there is not counted.
    """

    server: FaultServer
    account: StorageAccount
    direct: StorageAccount
    container: str


@pytest.fixture(scope="session")
def azurite(missing: Callable[[str], NoReturn]) -> Iterator[StorageAccount]:
    """Yield the account of an Azurite: the one that AZURITE_URL names, or one started from tests/azurite."""
    from resilient_io.testing import AzuriteServer, StorageAccount

    named = os.environ.get("AZURITE_URL")
    if named:
        yield StorageAccount(url=named.rstrip("/"))
        return
    if shutil.which("node") is None:
        missing("node, for azurite")
    if not (AZURITE / "node_modules" / "azurite").is_dir():
        missing("azurite: `make test` installs it, or `npm ci` in tests/azurite")
    server = AzuriteServer(AZURITE)
    yield server.account
    server.stop()


@pytest.fixture
def azure_store(azurite: StorageAccount, fault_server: Callable[..., FaultServer]) -> Iterator[AzureStore]:
    """Yield a FaultServer before Azurite, without faults yet, with an empty container; it is deleted afterwards."""
    blob = pytest.importorskip("azure.storage.blob")
    server = fault_server(upstream=azurite.url, protocol="azure")
    container = f"test-{uuid.uuid4().hex[:12]}"
    with blob.ContainerClient.from_connection_string(azurite.connection_string, container) as client:
        client.create_container()
        yield AzureStore(server=server, account=azurite.at(server.url), direct=azurite, container=container)
        client.delete_container()


class FastClock:
    """Time that runs `speed` times as fast: paced attempts take milliseconds, and all waits keep their order."""

    def __init__(self, speed: float = 100.0) -> None:
        self._speed = speed

    def now(self) -> float:
        return time.monotonic() * self._speed

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._speed)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        return event.wait(None if timeout_s is None else timeout_s / self._speed)

    async def wait_async(self, future: asyncio.Future[Any], timeout_s: float | None) -> bool:
        await asyncio.wait((future,), timeout=None if timeout_s is None else timeout_s / self._speed)
        return future.done()


@pytest.fixture
def fast_clock() -> FastClock:
    """Make the library live a hundred times as fast for one test."""
    from resilient_io.drive import runtime as runtimes

    clock = FastClock()
    runtimes.reset(clock=clock)
    return clock


@pytest.fixture(scope="session")
def entry_points(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which the entry points of pyproject.toml are found, installed or not."""
    directory = tmp_path_factory.mktemp("path")
    info = directory / "resilient_io-0.0.0.dist-info"
    info.mkdir()
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    declared = text.partition('entry-points."fsspec.specs"]')[2].partition("\n\n")[0]
    assert "rs3" in declared
    assert "rabfs" in declared
    (info / "entry_points.txt").write_text("[fsspec.specs]" + declared.replace('"', ""), "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: resilient-io\nVersion: 0.0.0\n", "utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(directory), os.environ.get("PYTHONPATH", "")])}
