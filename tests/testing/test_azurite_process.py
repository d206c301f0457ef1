from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from resilient_io.testing import AzuriteMissing, AzuriteServer, StorageAccount, azurite_process

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "tests" / "azurite"


@pytest.fixture
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without Azurite, and no other place named."""
    monkeypatch.delenv(azurite_process.HOME_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}", "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_the_pinned_version_is_the_one_that_is_installed() -> None:
    package = json.loads((HOME / "package.json").read_text("utf-8"))
    lock = json.loads((HOME / "package-lock.json").read_text("utf-8"))
    assert package["dependencies"] == {"azurite": azurite_process.AZURITE_VERSION}
    assert lock["packages"]["node_modules/azurite"]["version"] == azurite_process.AZURITE_VERSION


def test_the_lock_file_has_checksums_and_names_no_registry() -> None:
    packages = json.loads((HOME / "package-lock.json").read_text("utf-8"))["packages"]
    installed = [one for path, one in packages.items() if path]
    assert installed
    assert all(one["integrity"].startswith("sha512-") for one in installed)
    assert not any("resolved" in one for one in installed)


def test_without_a_home_the_command_to_install_is_named(no_home: Path, programs: Path) -> None:
    with pytest.raises(AzuriteMissing, match=r"npm install azurite@[\d.]+, and name that directory with AZURITE_HOME"):
        AzuriteServer()


def test_a_home_without_azurite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(azurite_process.HOME_VARIABLE, str(tmp_path))
    with pytest.raises(AzuriteMissing, match="has no node_modules/azurite"):
        AzuriteServer()


def test_without_node_it_says_where_node_comes_from(no_home: Path, programs: Path) -> None:
    program(programs, "npm", "")
    with pytest.raises(AzuriteMissing, match=r"node is not on the PATH: .*nodejs\.org"):
        azurite_process.install_azurite()


def test_what_npm_installs_is_found_afterwards(no_home: Path, programs: Path) -> None:
    program(programs, "node", "")
    install = (
        "import pathlib, sys\n"
        "home = pathlib.Path(sys.argv[sys.argv.index('--prefix') + 1])\n"
        "entry = home / 'node_modules/azurite/dist/src/blob/main.js'\n"
        "entry.parent.mkdir(parents=True)\n"
        "entry.write_text(sys.argv[-1])\n"
    )
    program(programs, "npm", install)
    assert azurite_process.azurite_home() is None
    home = azurite_process.install_azurite()
    assert azurite_process.azurite_home() == home
    entry = home / "node_modules/azurite/dist/src/blob/main.js"
    assert entry.read_text() == f"azurite@{azurite_process.AZURITE_VERSION}"
    assert [one.name for one in home.parent.iterdir()] == [home.name]


def test_an_install_that_failed_leaves_nothing(no_home: Path, programs: Path) -> None:
    program(programs, "node", "")
    broken = "import pathlib, sys\npathlib.Path(sys.argv[3], 'node_modules').mkdir()\nsys.exit(1)\n"
    program(programs, "npm", broken)
    with pytest.raises(AzuriteMissing, match="npm could not install"):
        azurite_process.install_azurite()
    assert azurite_process.azurite_home() is None
    assert list((no_home / "resilient-io").iterdir()) == []


def test_an_account_is_reached_by_another_door() -> None:
    account = StorageAccount(url="http://127.0.0.1:1", account_name="name", account_key="c2VjcmV0")
    door = account.at("http://127.0.0.1:2/")
    assert door.account_url == "http://127.0.0.1:2/name"
    assert door.connection_string == (
        "DefaultEndpointsProtocol=http;AccountName=name;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:2/name;"
    )
    assert "c2VjcmV0" not in repr(door)


@pytest.mark.wire
def test_it_has_the_accounts_that_were_asked_for(azurite: StorageAccount, missing: Callable[[str], Any]) -> None:
    blob = pytest.importorskip("azure.storage.blob")
    if not (HOME / "node_modules").is_dir():
        missing("azurite in tests/azurite, as AZURITE_URL names another")
    with AzuriteServer(HOME, accounts={"one": "b25l", "two": "dHdv"}) as server:
        assert [account.account_name for account in server.accounts] == ["one", "two"]
        for account in server.accounts:
            with blob.BlobServiceClient.from_connection_string(account.connection_string, retry_total=0) as client:
                client.create_container(account.account_name)
                assert [one.name for one in client.list_containers()] == [account.account_name]
    server.stop()  # twice does no harm


@pytest.mark.wire
def test_it_ends_with_its_parent(azurite: StorageAccount, missing: Callable[[str], Any]) -> None:
    if not (HOME / "node_modules").is_dir():
        missing("azurite in tests/azurite, as AZURITE_URL names another")
    code = (
        "import os, pathlib, psutil, resilient_io.testing as t\n"
        f"server = t.AzuriteServer(pathlib.Path({str(HOME)!r}))\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os._exit(3)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    until = time.monotonic() + 30
    while psutil.pid_exists(int(done.stdout)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not psutil.pid_exists(int(done.stdout))
