"""The pytest plugin: `fault_server`, `moto_server`, and clean limits for each test.

It is loaded in every pytest run of an environment with this library, so it imports nothing heavy
before a fixture is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

_FOLDER = "RESILIENT_IO_COORD_DIR"

if TYPE_CHECKING:
    from .faultserver import FaultServer


@pytest.fixture(scope="session")
def _resilient_io_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """Keep the limits of tests, and of their child processes, apart from those of the machine."""
    if os.environ.get(_FOLDER):
        yield None
        return
    folder = tmp_path_factory.mktemp("resilient-io")
    os.environ[_FOLDER] = str(folder)
    yield folder
    os.environ.pop(_FOLDER, None)


@pytest.fixture(autouse=True)
def _resilient_io_scopes(_resilient_io_table: Path | None) -> Iterator[None]:
    """Forget what the library learnt of limits after each test; nothing where it is not imported."""
    yield
    runtime = sys.modules.get("resilient_io.drive.runtime")
    if runtime is not None:
        runtime.reset()
    for table in _resilient_io_table.iterdir() if _resilient_io_table is not None else ():
        table.unlink(missing_ok=True)


@pytest.fixture
def fault_server() -> Iterator[Callable[..., FaultServer]]:
    """Start servers that stop after the test: `fault_server(plan, upstream=...)` as `FaultServer(...)`."""
    from .faultserver import FaultServer

    running: list[FaultServer] = []

    def start(*arguments: Any, **options: Any) -> FaultServer:
        server = FaultServer(*arguments, **options).start()
        running.append(server)
        print(f"fault server {server.url} seed {server.seed}")  # pytest shows it when the test fails
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """Yield the URL of moto's server, one for the session; skips without moto, fails under RIO_REQUIRE_ALL=1."""
    if find_spec("moto") is None or find_spec("flask") is None:
        message = "missing: moto's server, for moto_server: pip install 'resilient-io[testing]'"
        if os.environ.get("RIO_REQUIRE_ALL") == "1":
            pytest.fail(message)
        pytest.skip(message)
    from .moto_process import MotoServer

    server = MotoServer()
    yield server.url
    server.stop()
