"""fsspec's own suites for filesystems, on Azurite: plain, and with a tenth of the requests refused and some reset."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.storage.blob import ContainerClient
from fsspec.tests import abstract

from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer

pytestmark = [pytest.mark.wire, pytest.mark.usefixtures("fast_clock")]
SEED = 20
POLICY = {"backoff_base_s": 0.001, "backoff_cap_s": 0.01, "retry_budget": 1.0}
PLANS = {
    "plain": FaultPlan(),
    "faulty": FaultPlan(
        rules=(
            FaultRule(action=FaultAction.ERROR, probability=0.1),
            FaultRule(action=FaultAction.RESET_BEFORE, probability=0.03),
        ),
        seed=SEED,
    ),
}


@pytest.fixture(scope="module", params=PLANS)
def faulty_azurite(request: pytest.FixtureRequest, azurite: Any) -> Iterator[tuple[str, str]]:
    """Yield the connection string of a server that fails as the plan says, and a container."""
    container = f"abstract-{uuid.uuid4().hex[:12]}"
    with (
        FaultServer(PLANS[request.param], upstream=azurite.url, protocol="azure") as server,
        ContainerClient.from_connection_string(azurite.connection_string, container) as client,
    ):
        client.create_container()
        yield azurite.at(server.url).connection_string, container
        client.delete_container()
        stats = server.stats()
        failed = stats.count(outcome="fault")
        print(f"{request.param}: {stats.requests} requests, {failed} faults, {stats.elapsed_s:.1f} s")
        assert bool(failed) == (request.param == "faulty")


class OnAzurite(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, faulty_azurite: tuple[str, str]) -> Any:
        return ResilientAzureBlobFileSystem(connection_string=faulty_azurite[0], resilience=POLICY)

    @pytest.fixture
    def fs_path(self, faulty_azurite: tuple[str, str]) -> str:
        return faulty_azurite[1]

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopyDoesNotDifferFromFsspec(abstract.AbstractCopyTests, OnAzurite):
    pass


class TestGetDoesNotDifferFromFsspec(abstract.AbstractGetTests, OnAzurite):
    pass


class TestPutDoesNotDifferFromFsspec(abstract.AbstractPutTests, OnAzurite):
    pass


class TestOpenDoesNotDifferFromFsspec(abstract.AbstractOpenTests, OnAzurite):
    def test_open_exclusive(self, fs: Any, fs_target: str) -> None:
        """adlfs knows of the blob that is in the way only when the file is closed; the suite wants it at `open`."""
        fs.pipe_file(fs_target, b"data")
        file = fs.open(fs_target, "xb")
        file.write(b"other")
        with pytest.raises(FileExistsError):
            file.close()
        assert fs.cat_file(fs_target) == b"data"


class TestPipeDoesNotDifferFromFsspec(abstract.AbstractPipeTests, OnAzurite):
    pass
