"""`install()` for Azure: abfs URLs, aliases and chains go through it, and `uninstall()` restores them."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import fsspec
import pytest
from adlfs import AzureBlobFileSystem
from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient
from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient
from fsspec.registry import known_implementations

import resilient_io as rio
from resilient_io import install as module
from resilient_io import policy as policies
from resilient_io.azure.clients import hook_of
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem
from resilient_io.drive.runtime import runtime

pytestmark = pytest.mark.wire
ROOT = Path(__file__).resolve().parents[2]
Break = Callable[..., None]
FAST: dict[str, object] = {
    "backoff_base_s": 0.001,
    "backoff_cap_s": 0.005,
    "max_attempts": 3,
    "retry_budget_burst": 1000,
}


@pytest.fixture(autouse=True)
def _stock_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    rio.uninstall()
    policies.reset()
    for scheme in ("abfs", "abfss", "az"):
        module._forget_class(scheme)


@pytest.fixture
def where(azure_store: Any, box: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the test's container, which short URLs reach through the environment; it holds x, of 10 bytes."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_store.account.connection_string)
    box.upload_blob("x", b"0123456789")
    return str(azure_store.container)


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "az"])
def test_urls_go_through_it_and_survive(where: str, azure_store: Any, break_it: Break, scheme: str) -> None:
    known, registry = dict(known_implementations), dict(fsspec.registry)
    with rio.install(FAST) as installation:
        break_it("GetBlob", calls=(1, 2), status=500, code="InternalError")
        with fsspec.open(f"{scheme}://{where}/x") as file:
            assert isinstance(file.fs, ResilientAzureBlobFileSystem)
            assert isinstance(file.fs, AzureBlobFileSystem)
            assert file.read() == b"0123456789"
        assert azure_store.server.stats().count(op="GetBlob", status=500) == 2
        assert f"{scheme}:// instead of adlfs" in repr(installation)
        assert scheme in rio.coverage().covered
    assert dict(fsspec.registry) == registry
    assert known_implementations == known
    assert type(fsspec.filesystem(scheme, skip_instance_cache=True)) is AzureBlobFileSystem
    assert not ResilientAzureBlobFileSystem._cache


def test_adlfs_itself_stays_what_it_was(where: str) -> None:
    import adlfs.spec

    with rio.install():
        assert adlfs.spec.AzureBlobFileSystem is AzureBlobFileSystem
        stock = AzureBlobFileSystem(skip_instance_cache=False)
        stock.invalidate_cache()
        assert stock.cat_file(f"{where}/x") == b"0123456789"
        found = {each.name: each for each in rio.coverage().bypasses}
        assert "filesystem('abfs')" in found["adlfs"].cure
    AzureBlobFileSystem.clear_instance_cache()


@pytest.mark.parametrize("protocol", ["abfs", "abfss", "az", "rabfs", "raz", "abfs://c/k"])
def test_filesystem_by_scheme_or_url(where: str, protocol: str) -> None:
    assert type(rio.filesystem(protocol)) is ResilientAzureBlobFileSystem


def test_open_takes_each_form_of_a_url(where: str, azure_store: Any) -> None:
    account = azure_store.account.account_name
    for url in (
        f"abfs://{where}/x",
        f"raz://{where}/x",
        f"abfss://{where}@{account}.dfs.core.windows.net/x",
        f"az://{where}@{account}.blob.core.windows.net/x",
    ):
        with rio.open(url, resilience=FAST) as file:
            assert file.read() == b"0123456789"
    with rio.open(f"abfs://{where}/text.gz", "wt", compression="infer") as file:
        file.write("line\n")
    with rio.open(f"abfs://{where}/text.gz", "rt", compression="gzip") as file:
        assert file.read() == "line\n"


def test_the_account_of_a_url_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = rio.open("abfs://c@acct.dfs.core.windows.net/dir/k", account_key="a2V5")
    assert opened.path == "c/dir/k"
    assert opened.fs.service_client.url == "https://acct.blob.core.windows.net/"


def test_pandas_reads_and_writes_through_it(where: str, azure_store: Any, break_it: Break) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rio.install(FAST)
    frame = pandas.DataFrame({"a": [1, 2, 3]})
    options = {"resilience": {"max_attempts": 5}}
    break_it("*Blob", calls=(1, 3, 5), status=500, code="InternalError")
    frame.to_csv(f"abfs://{where}/table/a.csv", index=False, storage_options=options)
    frame.to_parquet(f"abfs://{where}/table/a.parquet", storage_options=options)
    assert pandas.read_csv(f"abfs://{where}/table/a.csv", storage_options=options).equals(frame)
    assert pandas.read_parquet(f"abfs://{where}/table/a.parquet", storage_options=options).equals(frame)
    assert azure_store.server.stats().count(status=500) == 3
    assert any(level.tally.sent for level in runtime().gate.levels())
    instances = ResilientAzureBlobFileSystem._cache.values()
    assert {json.dumps(fs.resilience) for fs in instances} == {json.dumps(options["resilience"])}


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="zarr 3, which takes fsspec's filesystems, is for Python 3.11 and newer"
)
def test_zarr_stores_and_loads_through_it(where: str, azure_store: Any, break_it: Break) -> None:
    zarr = pytest.importorskip("zarr")
    numpy = pytest.importorskip("numpy")
    rio.install(FAST)
    store = zarr.storage.FsspecStore.from_url(
        f"abfs://{where}/cube", storage_options={"resilience": {"max_attempts": 5}}
    )
    assert isinstance(store.fs, ResilientAzureBlobFileSystem)
    break_it("*Blob", calls=(1, 4, 6), status=500, code="InternalError")
    array = zarr.create_array(store=store, name="x", shape=(8, 8), chunks=(4, 4), dtype="i4")
    array[:] = numpy.arange(64).reshape(8, 8)
    assert (zarr.open_array(store=store, path="x")[:] == numpy.arange(64).reshape(8, 8)).all()
    assert azure_store.server.stats().count(status=500) == 3


# -- clients -----------------------------------------------------------------------------------------

CLIENTS: dict[str, Callable[[str], Any]] = {
    "service": BlobServiceClient.from_connection_string,
    "container": lambda where: ContainerClient.from_connection_string(where, "ccc"),
    "blob": lambda where: BlobClient.from_connection_string(where, "ccc", "x"),
    "async": AsyncBlobServiceClient.from_connection_string,
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_harden_takes_each_client_and_uninstall_gives_it_back(azure_store: Any, kind: str) -> None:
    client = CLIENTS[kind](azure_store.account.connection_string)
    assert rio.harden(client, FAST) is client
    assert hook_of(client) is not None
    assert rio.coverage().hardened_clients >= 1
    rio.uninstall()
    assert hook_of(client) is None
    assert rio.coverage().hardened_clients == 0


def test_client_kwargs_is_there_without_an_import(azure_store: Any, where: str, break_it: Break) -> None:
    client = ContainerClient.from_connection_string(
        azure_store.account.connection_string, where, **rio.azure.client_kwargs(FAST)
    )
    break_it("GetBlob", status=500, code="InternalError", calls=(1, 2))
    assert client.download_blob("x").readall() == b"0123456789"
    assert azure_store.server.stats().count(op="GetBlob") == 3


def test_harden_refuses_what_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="azure-storage-blob"):
        rio.harden(AzureBlobFileSystem)


# -- options -----------------------------------------------------------------------------------------


def test_configure_reaches_a_cached_filesystem(where: str, azure_store: Any, break_it: Break) -> None:
    fs = rio.filesystem("abfs", resilience={"backoff_base_s": 0.001, "backoff_cap_s": 0.002})
    fs.cat_file(f"{where}/x")
    for attempts in (2, 4):
        rio.configure(max_attempts=attempts)
        break_it(status=500, code="InternalError")
        with pytest.raises(OSError, match="max_attempts"):
            fs.cat_file(f"{where}/x")
        assert len(azure_store.server.log()) == attempts


@pytest.mark.parametrize("resilience", ["checkpoint", {"max_attempts": 7}, '{"deadline_s": 9}', False], ids=str)
def test_a_filesystem_survives_pickle_and_json(resilience: object) -> None:
    fs = rio.filesystem("abfs", account_name="acct", anon=True, resilience=resilience)
    for again in (pickle.loads(pickle.dumps(fs)), fsspec.AbstractFileSystem.from_json(fs.to_json())):
        assert type(again) is ResilientAzureBlobFileSystem
        assert again is fs
        assert again.resilience == resilience


def test_resilience_false_sends_what_stock_sends(where: str, azure_store: Any) -> None:
    sent = []
    for fs in (AzureBlobFileSystem(skip_instance_cache=True), rio.filesystem("abfs", resilience=False)):
        azure_store.server.reset()
        assert fs.isdir(f"{where}/x") is False
        assert fs.cat(f"{where}/x") == b"0123456789"
        assert fs.du(where) == 10
        assert fs.open(f"{where}/x").read() == b"0123456789"
        sent.append([call.op for call in azure_store.server.log()])
    assert sent[0] == sent[1]


def test_the_kill_switch_leaves_everything_stock(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESILIENT_IO", "0")
    with rio.install(FAST) as installation:
        assert fsspec.get_filesystem_class("abfs") is AzureBlobFileSystem
        assert not installation.active


# -- other processes, aliases and chains -------------------------------------------------------------


def python(code: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environ}, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


READ = "import fsspec; f = fsspec.open({url!r}); print(type(f.fs).__name__, len(f.open().read()))"
OURS = "ResilientAzureBlobFileSystem 10"


@pytest.mark.parametrize("scheme", ["rabfs", "raz"])
def test_the_aliases_work_in_a_fresh_process(where: str, entry_points: dict[str, str], scheme: str) -> None:
    assert python(READ.format(url=f"{scheme}://{where}/x"), **entry_points) == OURS


def test_the_chain_works_in_a_fresh_process(where: str, entry_points: dict[str, str]) -> None:
    code = f"""
import fsspec, pickle
from adlfs import AzureBlobFileSystem
{READ.format(url=f"resilient::abfs://{where}/x")}
fs, path = fsspec.core.url_to_fs("resilient::abfs://{where}/x", abfs={{"resilience": {{"max_attempts": 2}}}})
assert isinstance(fs, AzureBlobFileSystem) and path == "{where}/x" and fs.resilience == {{"max_attempts": 2}}
assert type(pickle.loads(pickle.dumps(fs))) is type(fs)
fs, path = fsspec.core.url_to_fs("resilient::abfs://{where}@acct.dfs.core.windows.net/x", resilience="checkpoint")
assert fs.resilience == "checkpoint" and fs.account_name == "acct" and path == "{where}/x"
with fsspec.open("simplecache::resilient::az://{where}/x") as f:
    assert len(f.read()) == 10
"""
    assert python(code, **entry_points) == OURS


CHILD = """
import multiprocessing
{first}
import fsspec

def read(url):
    f = fsspec.open(url)
    return type(f.fs).__name__, len(f.open().read())

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(*pool.apply(read, ({url!r},)))
"""


@pytest.mark.parametrize(("first", "scheme"), [("import resilient_io.auto", "abfs"), ("", "rabfs")])
def test_a_spawned_child_goes_through_it(
    where: str, entry_points: dict[str, str], tmp_path: Path, first: str, scheme: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text(CHILD.format(first=first, url=f"{scheme}://{where}/x"), "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **entry_points}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == (OURS, 0), done.stderr


def test_a_pickled_filesystem_works_in_a_spawned_child(where: str) -> None:
    fs = rio.filesystem("abfs", resilience=FAST)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(methodcaller("cat_file", f"{where}/x"), (fs,)) == b"0123456789"


# -- limit and report --------------------------------------------------------------------------------


def test_limit_and_report_know_the_scope_of_a_client(where: str, azure_store: Any, box: Any) -> None:
    box.upload_blob("train/imagenet/1", b"1")
    fs = rio.filesystem("abfs", resilience=FAST)
    fs.cat_file(f"{where}/train/imagenet/1")
    with rio.limit(f"abfs://{where}/train/imagenet/2"):
        pass

    async def also_async() -> None:
        async with rio.limit(f"{azure_store.account.account_url}/{where}/train/imagenet/3?sig=secret"):
            pass

    asyncio.run(also_async())
    endpoint = azure_store.account.account_url
    with rio.limit(f"raz://{where}/train/imagenet/4", endpoint=endpoint):
        pass
    scopes = [scope for scope in rio.report().scopes if scope.leaf and "train" in scope.label]
    assert [(scope.sent, scope.succeeded, scope.op_class) for scope in scopes] == [(4, 4, "read")]
    assert f"abfs://{where}@{azure_store.account.account_name}/train/imagenet" in scopes[0].label
    assert "secret" not in str(rio.report())
