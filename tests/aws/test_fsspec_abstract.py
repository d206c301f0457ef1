"""fsspec's own suites for filesystems, on moto: plain, and with a tenth of the requests refused and some reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("moto")

import urllib.request

from fsspec.tests import abstract

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer

pytestmark = pytest.mark.wire
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
def faulty_moto(request: pytest.FixtureRequest, moto_server: Any) -> Iterator[FaultServer]:
    url = str(getattr(moto_server, "url", moto_server))
    with FaultServer(PLANS[request.param], upstream=url) as server:
        made = urllib.request.Request(f"{url}/abstract", method="PUT")
        urllib.request.urlopen(made, timeout=30).close()
        yield server
        stats = server.stats()
        failed = stats.count(outcome="fault")
        print(f"{request.param}: {stats.requests} requests, {failed} faults, {stats.elapsed_s:.1f} s")
        assert bool(failed) == (request.param == "faulty")


class OnMoto(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, faulty_moto: FaultServer) -> Any:
        return ResilientS3FileSystem(endpoint_url=faulty_moto.url, resilience=POLICY)

    @pytest.fixture
    def fs_path(self) -> str:
        return "abstract"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopyDoesNotDifferFromFsspec(abstract.AbstractCopyTests, OnMoto):
    pass


class TestGetDoesNotDifferFromFsspec(abstract.AbstractGetTests, OnMoto):
    pass


class TestPutDoesNotDifferFromFsspec(abstract.AbstractPutTests, OnMoto):
    pass


class TestOpenDoesNotDifferFromFsspec(abstract.AbstractOpenTests, OnMoto):
    def test_open_exclusive(self, fs: Any, fs_target: str) -> None:
        """s3fs knows of the object that is in the way only when the file is closed; the suite wants it at `open`."""
        fs.pipe_file(fs_target, b"data")
        file = fs.open(fs_target, "xb")
        file.write(b"other")
        with pytest.raises(FileExistsError):
            file.close()
        assert fs.cat_file(fs_target) == b"data"


class TestPipeDoesNotDifferFromFsspec(abstract.AbstractPipeTests, OnMoto):
    pass
