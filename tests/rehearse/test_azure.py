"""Rehearsals on Azure Blob: Azurite behind the server, stock adlfs and this library in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resilient_io.rehearse import azure_store, table
from resilient_io.rehearse.clouds import AZURE, CLOUDS
from resilient_io.rehearse.outcomes import Requests, figures
from resilient_io.rehearse.rehearsal import STOCK, TREATED, Run
from resilient_io.rehearse.store import StoreUnusable

pytestmark = pytest.mark.wire

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--ranks", "2", "--threads", "4", "--shards", "30", "--parts", "6", "--shard-size", "4KiB", "--seed", "3")
ENDPOINT = "https://acct.blob.core.windows.net"


def rehearse(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "resilient_io.cli", "rehearse", "--cloud", "azure", *SMALL, *arguments]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    named = {**os.environ, "PYTHONPATH": path, "AZURITE_HOME": str(ROOT / "tests" / "azurite"), **environment}
    return subprocess.run(command, env=named, capture_output=True, text=True, timeout=180)


@pytest.fixture
def _azurite_of_the_tests(azurite: Any, missing: Callable[[str], Any]) -> None:
    """What the command embeds must be installed too, also where AZURITE_URL names another."""
    if not (ROOT / "tests" / "azurite" / "node_modules").is_dir():
        missing("azurite in tests/azurite")


@pytest.mark.usefixtures("_azurite_of_the_tests")
def test_both_runs_against_azurite() -> None:
    # Far below its ceiling: a refused operation of stock adlfs takes 18 seconds.
    done = rehearse("--ceiling", "5000", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["cloud"], found["store"], found["good"]) == ("azure", "azurite", True)
    assert {"adlfs", "azure-storage-blob", "azure-core", "resilient-io"} <= set(found["versions"])
    assert list(found["runs"]) == ["stock", "treated"]
    for run in found["runs"].values():
        assert set(run["phases_s"]) == {"read 0", "checkpoint 0"}
        assert run["operations"] == run["done"] == 30 + 2 * 6
        # Every byte that was read, and every one that was written.
        assert (run["checked_bytes"], run["wrong_bytes"]) == ((30 + 2 * 6) * 4096, 0)
    # Stock asks for the properties of each file that it opens.
    assert found["runs"]["stock"]["requests"] == 42 + 15
    treated = found["runs"]["treated"]
    assert treated["requests"] - treated["refused"] == 42
    assert "rabfs://" in found["meaning"][1]


@pytest.mark.usefixtures("_azurite_of_the_tests")
def test_the_treated_run_is_throttled_and_loses_nothing() -> None:
    done = rehearse("--only", "treated", "--ceiling", "40")
    assert done.returncode == 0, done.stderr
    assert "1 epoch of 30 shards and 1 checkpoint of 12 files, azurite, 40 reads/s and 40 writes/s, seed 3" in " ".join(
        done.stdout.split()
    )
    assert "first abfs:// URL" in done.stdout


@pytest.mark.usefixtures("_azurite_of_the_tests")
def test_a_treated_run_that_fails_is_exit_status_1() -> None:
    done = rehearse("--only", "treated", "--ceiling", "10", "--json", RESILIENT_IO_MAX_THROTTLE_ATTEMPTS="1")
    assert done.returncode == 1, done.stderr
    treated = json.loads(done.stdout)["runs"]["treated"]
    assert treated["refused"] > 0
    assert any("ThrottledError" in error for error in treated["errors"])


def test_a_container_of_an_account_is_left_as_it_was(azure_store: Any) -> None:
    account = azure_store.account
    real = ("--endpoint-url", account.account_url, "--container", azure_store.container)
    done = rehearse(*real, "--only", "treated", "--json", AZURE_STORAGE_ACCOUNT_KEY=account.account_key)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    treated = found["runs"]["treated"]
    assert (treated["ideal_s"], treated["makespan_over_ideal"]) == (None, None)
    assert treated["requests"] == treated["operations"]  # counted by the clients
    assert f"abfs://{azure_store.container}/resilient-io-rehearse-" in done.stderr
    assert account.account_key not in done.stdout + done.stderr
    keys = {one.key for one in azure_store.server.log(op="PutBlob")}
    assert keys
    assert all(key.startswith("resilient-io-rehearse-") for key in keys)
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(azure_store.direct.connection_string, azure_store.container) as client:
        assert list(client.list_blobs()) == []


def test_a_container_that_is_not_there_is_exit_status_2(azure_store: Any) -> None:
    account = azure_store.account
    real = ("--endpoint-url", account.account_url, "--bucket", "none-of-that-name")
    done = rehearse(*real, AZURE_STORAGE_CONNECTION_STRING=account.connection_string)
    assert done.returncode == 2
    assert f"cannot write to abfs://none-of-that-name at {account.account_url}" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_node_it_says_what_to_do(tmp_path: Path) -> None:
    done = rehearse(AZURITE_HOME="", XDG_CACHE_HOME=str(tmp_path), PATH=str(tmp_path))
    assert done.returncode == 2
    assert "is not on the PATH: Azurite needs Node.js" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        (
            {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"},
            {"connection_string": f"BlobEndpoint={ENDPOINT};AccountName=acct;AccountKey=a2V5"},
        ),
        (
            {"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"},
            {"connection_string": f"BlobEndpoint={ENDPOINT};SharedAccessSignature=sv=1&sig=x"},
        ),
        ({}, {"account_name": "acct", "account_host": "acct.blob.core.windows.net"}),
    ],
)
def test_the_credentials_of_the_environment_lead_to_the_endpoint(
    environment: dict[str, str], options: dict[str, str]
) -> None:
    assert azure_store._found_options(ENDPOINT, environment) == {**options, "skip_instance_cache": True}


def test_a_connection_string_must_lead_to_the_endpoint() -> None:
    pytest.importorskip("azure.storage.blob")
    elsewhere = "DefaultEndpointsProtocol=https;AccountName=other;AccountKey=a2V5;EndpointSuffix=core.windows.net"
    with pytest.raises(StoreUnusable, match=r"leads to https://other\.blob\.core\.windows\.net, --endpoint-url to"):
        azure_store._found_options(ENDPOINT, {"AZURE_STORAGE_CONNECTION_STRING": elsewhere})
    right = elsewhere.replace("other", "acct")
    found = azure_store._found_options(ENDPOINT, {"AZURE_STORAGE_CONNECTION_STRING": right})
    assert found["connection_string"] == right
    with pytest.raises(StoreUnusable, match="is not a connection string"):
        azure_store._found_options(ENDPOINT, {"AZURE_STORAGE_CONNECTION_STRING": "secret"})


def test_an_identity_needs_https() -> None:
    with pytest.raises(StoreUnusable, match="AZURE_STORAGE_ACCOUNT_KEY"):
        azure_store._found_options("http://127.0.0.1:10000/acct", {})


def test_the_table_speaks_of_adlfs() -> None:
    made = figures([], requests=Requests(sent=0, refused=0), makespan_s=1.0, ideal_s=1.0)
    runs = [Run(name=STOCK, figures=made, phases_s={}), Run(name=TREATED, figures=made, phases_s={})]
    assert table.rows(runs, cloud=AZURE)[0] == ["", "stock adlfs", "resilient-io"]
    first, second = table.meaning(runs, cloud=AZURE)
    assert "stock adlfs" in first
    assert "write rabfs:// for abfs://" in second
    assert CLOUDS["azure"] is AZURE
