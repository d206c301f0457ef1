"""`install()` and what it changes: URLs, clients made later, the policy; and that `uninstall()` restores all of it."""

from __future__ import annotations

import asyncio
import io
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

import pytest

fsspec = pytest.importorskip("fsspec")
s3fs = pytest.importorskip("s3fs")
boto3 = pytest.importorskip("boto3")
aio_session = pytest.importorskip("aiobotocore.session")

from botocore.exceptions import ClientError  # noqa: E402
from fsspec.registry import known_implementations  # noqa: E402

import resilient_io as rio  # noqa: E402
from resilient_io import install as module  # noqa: E402
from resilient_io import policy as policies  # noqa: E402
from resilient_io.aws.filesystem import ResilientS3FileSystem  # noqa: E402
from resilient_io.aws.hooks import hardening_of  # noqa: E402
from resilient_io.drive.runtime import runtime  # noqa: E402
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, FaultServer, Match  # noqa: E402

pytestmark = pytest.mark.wire

ROOT = Path(__file__).resolve().parents[1]
FAST: dict[str, object] = {
    "backoff_base_s": 0.001,
    "backoff_cap_s": 0.005,
    "max_attempts": 3,
    "retry_budget_burst": 1000,
}
STOCK = s3fs.S3FileSystem


@pytest.fixture(autouse=True)
def _stock_again() -> Iterator[None]:
    yield
    rio.uninstall()
    policies.reset()
    boto3.DEFAULT_SESSION = None
    fsspec.register_implementation("s3", STOCK, clobber=True)


@pytest.fixture
def server(fault_server: Callable[..., FaultServer], monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    store = fault_server()
    store.fill("bkt", count=3, size_bytes=2_000, key="train/{}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    return store


def break_it(server: FaultServer, op: str = "*", **rule: Any) -> None:
    """Answer calls with 500 (all, or as `rule` says)."""
    one = FaultRule(action=FaultAction.ERROR, match=Match(op=op), **{"status": 500, "code": "InternalError", **rule})
    server.configure(FaultPlan(rules=(one,)))
    server.reset()


def python(code: str, **environ: str) -> str:
    """Run code in a new interpreter that sees the package and its entry points."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environ}, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- URLs go through it ------------------------------------------------------------------------------


def test_fsspec_open_goes_through_it_and_survives(server: FaultServer) -> None:
    rio.install(FAST)
    break_it(server, "GetObject", calls=(1, 2))
    with fsspec.open("s3://bkt/train/0") as f:
        assert isinstance(f.fs, ResilientS3FileSystem)
        assert len(f.read()) == 2_000
    assert server.stats().count(op="GetObject", status=500) == 2


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_the_registered_class_is_ours(scheme: str) -> None:
    fsspec.filesystem(scheme)  # a scheme that was used before
    with rio.install():
        assert type(fsspec.filesystem(scheme)) is ResilientS3FileSystem
        assert isinstance(fsspec.filesystem(scheme), STOCK)
    assert type(fsspec.filesystem(scheme)) is STOCK


def test_an_instance_cached_before_stays_and_a_new_one_is_ours(server: FaultServer) -> None:
    before = fsspec.filesystem("s3")
    with rio.install(FAST):
        after = fsspec.filesystem("s3")
        assert type(before) is STOCK
        assert type(after) is ResilientS3FileSystem
        assert any(each.name == "s3fs" for each in rio.coverage().bypasses)
    assert fsspec.filesystem("s3") is before
    assert not ResilientS3FileSystem._cache


def test_pandas_reads_and_writes_through_it(server: FaultServer) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rio.install(FAST)
    frame = pandas.DataFrame({"a": [1, 2, 3]})
    options = {"resilience": {"max_attempts": 5}}
    break_it(server, "*Object", calls=(1, 3, 5))
    frame.to_csv("s3://bkt/table/a.csv", index=False, storage_options=options)
    frame.to_parquet("s3://bkt/table/a.parquet", storage_options=options)
    assert pandas.read_csv("s3://bkt/table/a.csv", storage_options=options).equals(frame)
    assert pandas.read_parquet("s3://bkt/table/a.parquet", storage_options=options).equals(frame)
    assert server.stats().count(status=500) == 3
    assert any(level.tally.sent for level in runtime().gate.levels())
    instances = ResilientS3FileSystem._cache.values()
    assert {json.dumps(fs.resilience) for fs in instances} == {json.dumps(options["resilience"])}


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="zarr 3, which takes fsspec's filesystems, is for Python 3.11 and newer"
)
def test_zarr_stores_and_loads_through_it(server: FaultServer) -> None:
    zarr = pytest.importorskip("zarr")
    numpy = pytest.importorskip("numpy")
    rio.install(FAST)
    store = zarr.storage.FsspecStore.from_url("s3://bkt/cube", storage_options={"resilience": {"max_attempts": 5}})
    assert isinstance(store.fs, ResilientS3FileSystem)
    break_it(server, "*Object", calls=(1, 4, 6))
    array = zarr.create_array(store=store, name="x", shape=(8, 8), chunks=(4, 4), dtype="i4")
    array[:] = numpy.arange(64).reshape(8, 8)
    assert (zarr.open_array(store=store, path="x")[:] == numpy.arange(64).reshape(8, 8)).all()
    assert server.stats().count(status=500) == 3


def test_a_refusal_is_survived_by_url(server: FaultServer) -> None:
    rio.install(FAST)
    break_it(server, "GetObject", calls=(1,), status=503, code="SlowDown")
    assert len(fsspec.open("s3://bkt/train/0").open().read()) == 2_000
    assert server.stats().count(status=503) == 1


# -- clients -----------------------------------------------------------------------------------------


def count_under_500(server: FaultServer, client: Any) -> int:
    break_it(server)
    with pytest.raises(ClientError):
        client.head_object(Bucket="bkt", Key="train/0")
    return len(server.log())


CLIENTS: dict[str, Callable[[], Any]] = {
    "client": lambda: boto3.client("s3"),
    "resource": lambda: boto3.resource("s3").meta.client,
    "session": lambda: boto3.Session().client("s3"),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_clients_made_later_are_hardened(server: FaultServer, kind: str) -> None:
    rio.install(FAST)
    client = CLIENTS[kind]()
    assert hardening_of(client) is not None
    assert count_under_500(server, client) == 3


def test_an_async_client_made_later_is_hardened(server: FaultServer) -> None:
    rio.install(FAST)
    break_it(server)

    async def head() -> None:
        async with aio_session.get_session().create_client("s3") as client:
            await client.head_object(Bucket="bkt", Key="train/0")

    with pytest.raises(ClientError):
        asyncio.run(head())
    assert len(server.log()) == 3


def test_sdk_false_leaves_clients_alone(server: FaultServer) -> None:
    with rio.install(FAST, sdk=False) as installation:
        assert hardening_of(boto3.client("s3")) is None
        assert not installation.sdk


def test_uninstall_gives_the_stock_retries_back(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    rio.install(FAST)
    client = boto3.client("s3")
    assert count_under_500(server, client) == 3
    rio.uninstall()
    assert hardening_of(client) is None
    assert count_under_500(server, client) == 5  # botocore's legacy mode
    assert count_under_500(server, boto3.client("s3")) == 5


def test_harden_dispatches_by_type(server: FaultServer) -> None:
    resource = boto3.resource("s3")
    assert rio.harden(resource, FAST) is resource
    assert rio.harden(resource) is resource
    assert count_under_500(server, resource.meta.client) == 3
    client = boto3.client("s3")
    assert rio.harden(client, FAST) is client
    assert count_under_500(server, client) == 3
    rio.uninstall()
    assert hardening_of(client) is None
    assert hardening_of(resource.meta.client) is None


def test_harden_takes_an_async_client(server: FaultServer) -> None:
    break_it(server)

    async def head() -> None:
        async with aio_session.get_session().create_client("s3") as client:
            assert rio.harden(client, FAST) is client
            await client.head_object(Bucket="bkt", Key="train/0")

    with pytest.raises(ClientError):
        asyncio.run(head())
    assert len(server.log()) == 3


@pytest.mark.parametrize("wrong", [None, "s3", object(), STOCK], ids=lambda wrong: type(wrong).__name__)
def test_harden_says_what_it_takes(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"boto3, botocore or aiobotocore.*filesystem\('s3'\)"):
        rio.harden(wrong)


def test_harden_refuses_another_service() -> None:
    with pytest.raises(ValueError, match="dynamodb"):
        rio.harden(boto3.client("dynamodb"))


# -- installations -----------------------------------------------------------------------------------


def test_uninstall_restores_the_registry() -> None:
    known, registry = dict(known_implementations), dict(fsspec.registry)
    rio.install()
    rio.uninstall()
    assert dict(fsspec.registry) == registry
    assert known_implementations == known


def test_a_scheme_that_was_never_used_is_unknown_to_the_registry_again() -> None:
    module._forget_class("s3a")
    with rio.install():
        assert fsspec.get_filesystem_class("s3a") is ResilientS3FileSystem
    assert "s3a" not in fsspec.registry
    assert fsspec.get_filesystem_class("s3a") is STOCK


def test_a_class_that_somebody_registered_meanwhile_stays() -> None:
    class Theirs(STOCK):  # type: ignore[misc, valid-type]
        pass

    rio.install()
    fsspec.register_implementation("s3", Theirs, clobber=True)
    rio.uninstall()
    assert fsspec.get_filesystem_class("s3") is Theirs


def test_installing_twice_is_installing_once() -> None:
    rio.install()
    rio.install()
    rio.uninstall()
    assert fsspec.get_filesystem_class("s3") is STOCK
    rio.uninstall()


def test_an_inner_installation_leaves_the_outer_in_force() -> None:
    with rio.install({"max_attempts": 9}) as outer:
        with rio.install({"max_attempts": 2, "deadline_s": 5}) as inner:
            assert (policies.resolve().max_attempts, policies.resolve().deadline_s) == (2, 5)
        assert not inner.active
        assert outer.active
        assert fsspec.get_filesystem_class("s3") is ResilientS3FileSystem
        assert hardening_of(boto3.client("s3")) is not None
        assert (policies.resolve().max_attempts, policies.resolve().deadline_s) == (9, 300)
    assert fsspec.get_filesystem_class("s3") is STOCK


def test_installations_end_in_any_order() -> None:
    first, second = rio.install({"max_attempts": 9}), rio.install({"max_attempts": 2})
    first.uninstall()
    assert policies.resolve().max_attempts == 2
    assert fsspec.get_filesystem_class("s3") is ResilientS3FileSystem
    second.uninstall()
    second.uninstall()
    assert policies.configured() == {}
    assert fsspec.get_filesystem_class("s3") is STOCK


def test_the_policy_is_a_default_that_ends_with_it() -> None:
    rio.configure(max_attempts=4, deadline_s=7)
    with rio.install({"max_attempts": 9, "preset": "checkpoint"}):
        assert (policies.resolve().max_attempts, policies.resolve().max_concurrency) == (9, 32)
        assert policies.resolve({"max_attempts": 1}).max_attempts == 1
        rio.configure(deadline_s=8)
    assert policies.configured() == {"max_attempts": 4, "deadline_s": 8}


def test_what_is_configured_under_it_wins_and_stays() -> None:
    with rio.install({"max_attempts": 9}):
        rio.configure(max_attempts=5)
        with rio.install(sdk=False):
            assert policies.resolve().max_attempts == 5
    assert policies.configured() == {"max_attempts": 5}


def test_it_reads_the_environment_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESILIENT_IO_MAX_ATTEMPTS", "8")
    with rio.install():
        assert policies.resolve().max_attempts == 8


def test_the_kill_switch_leaves_everything_stock(monkeypatch: pytest.MonkeyPatch, server: FaultServer) -> None:
    monkeypatch.setenv("RESILIENT_IO", "0")
    with rio.install(FAST) as installation:
        assert fsspec.get_filesystem_class("s3") is STOCK
        assert hardening_of(boto3.client("s3")) is None
        assert not installation.active
        assert "not in force" in repr(installation)
        assert not rio.coverage().enabled


def test_a_bad_policy_changes_nothing() -> None:
    with pytest.raises(ValueError, match="did you mean 'max_attempts'"):
        rio.install({"max_attempt": 3})
    with pytest.raises(ValueError, match="backoff_base_s"):
        rio.install({"backoff_base_s": 30})
    assert fsspec.get_filesystem_class("s3") is STOCK
    assert policies.configured() == {}


def test_by_default_it_takes_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    for absent, taken in {"adlfs": ("s3", "s3a"), "s3fs": ("abfs", "abfss", "az")}.items():
        found = {name: name != absent for name in ("s3fs", "adlfs", "botocore")}
        monkeypatch.setattr(module, "find_spec", lambda name, found=found: found[name] or None)
        if taken[0] == "abfs":
            pytest.importorskip("adlfs")
        with rio.install() as installation:
            assert installation.schemes == taken
    with pytest.raises(ValueError, match="knows s3://"):
        rio.install(schemes="gs")
    assert fsspec.get_filesystem_class("s3") is STOCK


@pytest.mark.parametrize(
    ("scheme", "missing", "extra"), [("s3", "s3fs", "s3"), ("az", "azure.storage", "azure"), ("abfs", "adlfs", "azure")]
)
def test_a_scheme_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, scheme: str, missing: str, extra: str
) -> None:
    absent = ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    def fail(name: str) -> Any:
        raise absent

    monkeypatch.setattr(module, "import_module", fail)
    with pytest.raises(ImportError, match=rf"pip install 'resilient-io\[{extra}\]'"):
        rio.filesystem(scheme)
    absent.name = "a_module_of_theirs"
    with pytest.raises(ModuleNotFoundError) as caught:
        rio.filesystem(scheme)
    assert caught.value is absent


def test_only_the_schemes_that_are_asked_for() -> None:
    with rio.install(schemes="s3a", sdk=False) as installation:
        assert fsspec.get_filesystem_class("s3a") is ResilientS3FileSystem
        assert fsspec.get_filesystem_class("s3") is STOCK
        assert "s3a:// instead of s3fs" in repr(installation)


def test_repr_says_what_it_replaced() -> None:
    with rio.install({"max_attempts": 9}) as installation:
        assert "s3:// instead of s3fs.core.S3FileSystem" in repr(installation)
        assert "made from now on" in repr(installation)
        assert "'max_attempts': 9" in repr(installation)


# -- filesystem(), open() ----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["s3", "s3a", "rs3", "s3://bkt/train/0"])
def test_filesystem_by_scheme_or_url(protocol: str) -> None:
    assert type(rio.filesystem(protocol)) is ResilientS3FileSystem
    assert fsspec.get_filesystem_class("s3") is STOCK


@pytest.mark.parametrize("protocol", ["gs", "file", "bkt/key"])
def test_filesystem_says_what_it_knows(protocol: str) -> None:
    with pytest.raises(ValueError, match="s3://"):
        rio.filesystem(protocol)


def test_open_is_fsspec_open_through_ours(server: FaultServer) -> None:
    with rio.open("s3://bkt/dir/a.txt.gz", "wt", compression="infer", resilience=FAST) as f:
        f.write("line\n")
    with rio.open("s3a://bkt/dir/a.txt.gz", "rt", compression="gzip") as f:
        assert f.read() == "line\n"
    opened = rio.open("s3://bkt/train/0", resilience=FAST)
    assert type(opened) is type(fsspec.open("s3://bkt/train/0"))
    assert type(opened.fs) is ResilientS3FileSystem
    assert (opened.path, opened.mode) == ("bkt/train/0", "rb")
    assert fsspec.get_filesystem_class("s3") is STOCK
    with pytest.raises(ValueError, match="resilient::"):
        rio.open("simplecache::s3://bkt/train/0")


def test_storage_options_are_checked() -> None:
    with pytest.raises(ValueError, match="did you mean 'max_attempts'"):
        rio.filesystem("s3", resilience={"max_attemps": 3})


def test_configure_reaches_a_cached_filesystem(server: FaultServer) -> None:
    fs = rio.filesystem("s3", resilience={"backoff_base_s": 0.001, "backoff_cap_s": 0.002})
    fs.cat_file("bkt/train/0")
    for attempts in (2, 4):
        rio.configure(max_attempts=attempts)
        break_it(server)
        with pytest.raises(OSError, match="max_attempts"):
            fs.cat_file("bkt/train/0")
        assert len(server.log()) == attempts


def test_resilience_false_sends_what_stock_sends(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: Any) -> None:
        return None

    monkeypatch.setattr("s3fs.core.asyncio.sleep", at_once)
    break_it(server, status=503, code="SlowDown")
    sent = []
    for fs in (STOCK(skip_instance_cache=True), rio.filesystem("s3", resilience=False)):
        server.reset()
        with pytest.raises(OSError, match=r"."):
            fs.cat_file("bkt/train/0", start=0, end=10)
        sent.append(len(server.log()))
    assert sent == [25, 25]


@pytest.mark.parametrize("resilience", [None, "checkpoint", {"max_attempts": 7}, '{"deadline_s": 9}', False], ids=str)
def test_a_filesystem_survives_pickle_and_json(resilience: object) -> None:
    # fsspec writes no JSON for an option that is None, s3fs's own or ours.
    fs = rio.filesystem("s3", anon=True, **({} if resilience is None else {"resilience": resilience}))
    for again in (pickle.loads(pickle.dumps(fs)), fsspec.AbstractFileSystem.from_json(fs.to_json())):
        assert type(again) is ResilientS3FileSystem
        assert again == fs
        assert again.resilience == resilience


def test_an_instance_is_cached_by_its_resilience() -> None:
    one = rio.filesystem("s3", resilience={"max_attempts": 7})
    assert rio.filesystem("s3", resilience={"max_attempts": 7}) is one
    assert rio.filesystem("s3", resilience={"max_attempts": 8}) is not one
    assert rio.filesystem("s3") is not one


# -- other processes, aliases and chains -------------------------------------------------------------

READ = "import fsspec; f = fsspec.open({url!r}); print(type(f.fs).__name__, len(f.open().read()))"
OURS = "ResilientS3FileSystem 2000"


def test_the_alias_works_in_a_fresh_process(server: FaultServer, entry_points: dict[str, str]) -> None:
    assert python(READ.format(url="rs3://bkt/train/0"), **entry_points) == OURS


def test_the_chain_works_in_a_fresh_process(server: FaultServer, entry_points: dict[str, str]) -> None:
    code = f"""
import fsspec, pickle
from s3fs import S3FileSystem
{READ.format(url="resilient::s3://bkt/train/0")}
fs, path = fsspec.core.url_to_fs("resilient::s3://bkt/train/0", s3={{"resilience": {{"max_attempts": 2}}}})
assert isinstance(fs, S3FileSystem) and path == "bkt/train/0" and fs.resilience == {{"max_attempts": 2}}
assert type(pickle.loads(pickle.dumps(fs))) is type(fs)
fs, _ = fsspec.core.url_to_fs("resilient::s3://bkt/train/0", resilience="checkpoint")
assert fs.resilience == "checkpoint"
with fsspec.open("simplecache::resilient::s3://bkt/train/1") as f:
    assert len(f.read()) == 2000
assert [len(f.open().read()) for f in fsspec.open_files("resilient::s3://bkt/train/*")] == [2000] * 3
try:
    fsspec.open("resilient::file:///tmp/x")
except ValueError as error:
    assert "directly before an s3:// or abfs:// URL" in str(error)
else:
    raise AssertionError
"""
    assert python(code, **entry_points) == OURS


def test_import_auto_installs_and_the_switch_keeps_it_off(server: FaultServer) -> None:
    code = "import resilient_io.auto as auto; print(auto.installation.active); " + READ.format(url="s3://bkt/train/0")
    assert python(code).split("\n") == ["True", OURS]
    assert python(code, RESILIENT_IO="0").split("\n") == ["False", "S3FileSystem 2000"]


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


@pytest.mark.parametrize(
    ("first", "url"), [("import resilient_io.auto", "s3://bkt/train/0"), ("", "rs3://bkt/train/0")]
)
def test_a_spawned_child_goes_through_it(
    server: FaultServer, entry_points: dict[str, str], tmp_path: Path, first: str, url: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text(CHILD.format(first=first, url=url), "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **entry_points}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == (OURS, 0), done.stderr


def test_a_pickled_filesystem_works_in_a_spawned_child(server: FaultServer) -> None:
    fs = rio.filesystem("s3", resilience=FAST)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(methodcaller("cat_file", "bkt/train/0"), (fs,)) == fs.cat_file("bkt/train/0")


# -- coverage ----------------------------------------------------------------------------------------


def test_coverage_before_and_after(server: FaultServer) -> None:
    bare = rio.coverage()
    assert "s3" not in bare.covered
    assert "s3:// NOT covered" in str(bare)
    assert not bare.sessions_watched
    with rio.install(FAST):
        client = boto3.client("s3")
        covered = rio.coverage()
        assert {"s3", "s3a"} <= set(covered.covered)
        assert covered.sessions_watched
        assert covered.hardened_clients >= 1
        assert "s3:// covered" in str(covered)
        del client


def test_coverage_names_what_goes_past_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("polars", "obstore", "multistorageclient_rust"):
        monkeypatch.setitem(sys.modules, name, io)  # type: ignore[arg-type]  # any module will do
    found = {each.name: each for each in rio.coverage().bypasses}
    assert {"polars", "obstore", "multistorageclient_rust"} <= set(found)
    assert all(each.cure for each in found.values())
    assert "resilient_io.open" in str(rio.coverage())
