"""Azurite, Microsoft's store for tests, in a process of its own: for tests and rehearsals on Azure Blob.

Azurite is a Node.js program from npm. `AzuriteServer(home)` starts the one installed under `home/node_modules`;
`azurite_home()` says where one stands, and `install_azurite()` puts one there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final

from .child import Child

#: What `install_azurite` installs; the tests pin the same version in tests/azurite/package.json.
AZURITE_VERSION: Final = "3.37.0"
#: Names a directory whose node_modules holds azurite.
HOME_VARIABLE: Final = "AZURITE_HOME"
#: The account that Azurite has from the start, with the key that its documentation prints.
ACCOUNT_NAME: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_ENTRY: Final = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")
# Loads Azurite and ends it with its parent. Its first line is the only one that comes out, as JSON.
_BOOT: Final = """
const say = console.log;
console.log = (text) => {
  const found = /listens on (http\\S+)/.exec(String(text));
  if (found) say(JSON.stringify({ url: found[1] }));
};
process.stdin.on("end", () => process.exit(0)).resume();
require(process.argv[1]);
"""
_ARGUMENTS: Final = (
    *("--blobHost", "127.0.0.1", "--blobPort", "0", "--blobKeepAliveTimeout", "600"),
    *("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"),
)


class AzuriteMissing(RuntimeError):
    """There is no Azurite, or nothing to run it with; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAccount:
    """How a client reaches an account of Azurite: path style, by name and key. `url` has no path."""

    url: str
    account_name: str = ACCOUNT_NAME
    account_key: str = ACCOUNT_KEY

    def __repr__(self) -> str:
        return f"<StorageAccount {self.account_url}>"

    @property
    def account_url(self) -> str:
        """What the SDK calls `account_url`, "http://127.0.0.1:<port>/<account>"."""
        return f"{self.url}/{self.account_name}"

    @property
    def connection_string(self) -> str:
        """The connection string, which holds the key."""
        return (
            f"DefaultEndpointsProtocol={self.url.partition(':')[0]};AccountName={self.account_name};"
            f"AccountKey={self.account_key};BlobEndpoint={self.account_url};"
        )

    def at(self, url: str) -> StorageAccount:
        """Return the same account as reached by another door, such as a `FaultServer`."""
        return replace(self, url=url.rstrip("/"))


class AzuriteServer:
    """A running Azurite on a free port of 127.0.0.1 that keeps blobs in memory and ends with its parent.

    A context manager that stops it. `home` is a directory whose node_modules holds azurite (None: `azurite_home()`);
    `AzuriteMissing` says what is missing. `accounts` are names with base64 keys; by default there is one, `account`.
    Made by one thread, it may be used by all.
    """

    def __init__(self, home: Path | None = None, *, accounts: dict[str, str] | None = None) -> None:
        entry = _entry(home or azurite_home())
        known = accounts or {ACCOUNT_NAME: ACCOUNT_KEY}
        listed = ";".join(f"{name}:{key}" for name, key in known.items())
        self._child: Child | None = Child(
            str(entry), _ARGUMENTS, program=(_program("node"), "-e", _BOOT), environment={"AZURITE_ACCOUNTS": listed}
        )
        self.url: str = self._child.said["url"]
        self.accounts = tuple(
            StorageAccount(url=self.url, account_name=name, account_key=key) for name, key in known.items()
        )

    def __repr__(self) -> str:
        return f"<AzuriteServer {self.url}>"

    def __enter__(self) -> AzuriteServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def account(self) -> StorageAccount:
        """The first account."""
        return self.accounts[0]

    def stop(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()


def azurite_home() -> Path | None:
    """Return the directory whose node_modules holds azurite: AZURITE_HOME, or where it was installed; None without."""
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named)
    own = own_home()
    return own if (own / _ENTRY).is_file() else None


def own_home() -> Path:
    """Return where `install_azurite` installs: in the user's cache, a directory for each version."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "resilient-io", f"azurite-{AZURITE_VERSION}")


def install_azurite() -> Path:
    """Install azurite by npm into `own_home()`, which takes about half a minute, and return that."""
    home, npm = own_home(), _program("npm")
    _program("node")
    home.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole: an install that was broken off must not be taken for one.
    with tempfile.TemporaryDirectory(dir=home.parent) as place:
        command = [npm, "install", "--prefix", place, "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run([*command, f"azurite@{AZURITE_VERSION}"], stdout=sys.stderr, check=False)
        if done.returncode != 0:
            raise AzuriteMissing(f"npm could not install azurite@{AZURITE_VERSION}: see its message above")
        if not (home / _ENTRY).is_file():  # another process may have been faster
            shutil.move(os.path.join(place, "node_modules"), home / "node_modules")
    return home


def _entry(home: Path | None) -> Path:
    if home is None:
        text = f"Azurite is not installed: npm install azurite@{AZURITE_VERSION}, and name that directory with"
        raise AzuriteMissing(f"{text} {HOME_VARIABLE}")
    entry = home.resolve() / _ENTRY
    if not entry.is_file():
        raise AzuriteMissing(f"{home} has no node_modules/azurite: npm install azurite@{AZURITE_VERSION} there")
    return entry


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise AzuriteMissing(f"{name} is not on the PATH: Azurite needs Node.js 20 or newer with npm (nodejs.org)")
    return found
