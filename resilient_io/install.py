"""What users call to put the library in place: install, harden, filesystem, open, and to see what it covers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final

import fsspec
from fsspec.implementations.chained import ChainedFileSystem
from fsspec.registry import known_implementations

from resilient_io import policy as policies

DEFAULT_SCHEMES: Final = ("s3", "s3a", "abfs", "abfss", "az")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """The schemes of one cloud, and what answers them."""

    schemes: tuple[str, ...]
    alias: str
    stock: str
    stock_class: str
    needs: tuple[str, ...]
    extra: str
    module: str
    name: str

    def cls(self) -> Any:
        """Return the filesystem's class; ImportError without its SDK."""
        try:
            return getattr(import_module(self.module), self.name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(self.needs):
                raise
            what = f"{self.schemes[0]}:// needs {self.stock}: pip install 'resilient-io[{self.extra}]'"
            raise ImportError(what, name=error.name) from error

    def loaded(self) -> Any | None:
        """Return the class if its module is loaded."""
        return getattr(sys.modules.get(self.module), self.name, None)


_FAMILIES: Final = (
    _Family(
        schemes=("s3", "s3a", "rs3"),
        alias="rs3",
        stock="s3fs",
        stock_class="S3FileSystem",
        needs=("s3fs", "aiobotocore"),
        extra="s3",
        module="resilient_io.aws.filesystem",
        name="ResilientS3FileSystem",
    ),
    _Family(
        schemes=("abfs", "abfss", "az", "rabfs", "raz"),
        alias="rabfs",
        stock="adlfs",
        stock_class="AzureBlobFileSystem",
        needs=("adlfs", "azure"),
        extra="azure",
        module="resilient_io.azure.filesystem",
        name="ResilientAzureBlobFileSystem",
    ),
)
_FAMILY_OF: Final = {scheme: family for family in _FAMILIES for scheme in family.schemes}
_ALIASES: Final = ("rs3", "rabfs", "raz")
_CLIENT_MODULES: Final = ("resilient_io.aws.hooks", "resilient_io.azure.clients")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Installation:
    """One `install()`; a context manager that ends it.

    Several may be in force: what any of them asks for holds until that one is ended, or until
    `resilient_io.uninstall()` ends all.
    """

    policy: Mapping[str, object]
    """The policy fields that it set for the process."""
    schemes: tuple[str, ...]
    """The URL schemes that it took over."""
    sdk: bool
    """Whether S3 clients made from now on are hardened."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """What answered each scheme before, by its qualified name."""

    @property
    def active(self) -> bool:
        """Whether it is in force."""
        return self in _state.active

    def uninstall(self) -> None:
        """End this installation; nothing if it has ended."""
        with _state.lock:
            if self in _state.active:
                _state.active.remove(self)
                _apply()

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def __repr__(self) -> str:
        if not self.active:
            return "<Installation: not in force>"
        parts = [f"{scheme}:// instead of {name}" for scheme, name in self.replaced.items()]
        parts += ["S3 clients of botocore, boto3 and aiobotocore made from now on"] if self.sdk else []
        parts += [f"policy {dict(self.policy)}"] if self.policy else []
        return f"<Installation: {'; '.join(parts) or 'nothing'}>"


class _State:
    """The installations in force, and what they took the place of."""

    def __init__(self) -> None:
        # Reentrant: making a filesystem class may import modules that install.
        self.lock = threading.RLock()
        self.active: list[Installation] = []
        self.classes: dict[str, type | None] = {}
        self.policy: dict[str, object] = {}
        self.policy_before: dict[str, object] = {}


_state = _State()


def _new_lock() -> None:
    _state.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def install(policy: object = None, *, schemes: Iterable[str] = DEFAULT_SCHEMES, sdk: bool = True) -> Installation:
    """Send URLs of `schemes` through this library in this process, and harden S3 clients made from now on.

    `policy` (fields, a preset's name, JSON, a Policy) becomes the default of the process, as with
    `configure`, until the installation ends. Call it at the top level of a module, not under
    `if __name__ == "__main__"`: processes that are spawned import that module again. Calling it
    again does no harm. With `RESILIENT_IO=0` in the environment it does nothing.

    Schemes whose filesystem is not available here are left out if `schemes` is not given, else
    they are an error. `sdk=False` leaves the SDK's clients alone. Filesystems and clients that
    exist already stay as they are: pass clients to `harden`.

    Raises ValueError for a bad policy (of the environment too) or a scheme that is not known, and ImportError for a
    given scheme without its SDK; then nothing is changed. Safe in any thread. What it puts in place holds for the
    whole process, but not for processes that are spawned; a forked one has it.
    """
    policies.reload()
    overlay = policies.overlay(policy)
    wanted = _available(schemes)
    if _switched_off():
        return Installation(policy=overlay, schemes=(), sdk=False)
    with _state.lock:
        before = {scheme: _answering(scheme) for scheme in wanted}
        made = Installation(
            policy=overlay, schemes=wanted, sdk=sdk and find_spec("botocore") is not None, replaced=before
        )
        _state.active.append(made)
        try:
            _apply()
        except BaseException:
            made.uninstall()
            raise
    return made


def uninstall() -> None:
    """End every installation and make what was hardened what it was: URL schemes, clients, policy.

    Nothing where none is in force. Safe in any thread. Filesystems that were made stay as they are, and what
    `configure` set stays set; an Azure client that was made with `client_kwargs` stays as it was made.
    """
    with _state.lock:
        _state.active.clear()
        _apply()


def harden(client: Any, policy: object = None) -> Any:
    """Put the library into a client that exists; return the same object. Idempotent.

    `client` is an S3 client of boto3, botocore or aiobotocore, a boto3 resource, whose client is
    hardened, or a BlobServiceClient, ContainerClient or BlobClient of azure-storage-blob, sync or
    aio; clients that it hands out are hardened too. Undone by `uninstall()`. A second call only
    changes the policy. Raises TypeError for anything else, ValueError for another service or a bad policy, and
    UnsupportedSDK, a RuntimeError, for an SDK that lacks what the hooks hold on to. Call it before other threads use
    the client; from then on the client is as safe in threads and tasks as it was.
    """
    if any(_is_a(client, "azure.storage.blob", name) for name in _AZURE_CLIENTS):
        from resilient_io.azure import clients

        return clients.harden(client, policy)
    target = client.meta.client if _is_a(client, "boto3.resources.base", "ServiceResource") else client
    if not _is_a(target, "botocore.client", "BaseClient"):
        raise TypeError(
            "harden() takes an S3 client of boto3, botocore or aiobotocore, a boto3 S3 resource, or a client of "
            f"azure-storage-blob, not {type(client).__module__}.{type(client).__qualname__}; "
            "for a filesystem use resilient_io.filesystem('s3') or resilient_io.filesystem('abfs')"
        )
    from resilient_io.aws import hooks

    hooks.harden(target, policy)
    return client


_AZURE_CLIENTS: Final = ("BlobServiceClient", "ContainerClient", "BlobClient")


def filesystem(protocol: str, **storage_options: Any) -> Any:
    """Return the filesystem of this library for a scheme or URL of S3 or Azure, whatever fsspec has registered.

    `storage_options` are those of s3fs or adlfs, and `resilience`: policy fields, a preset's name,
    JSON, or False. Instances are cached by their options, as fsspec does. They work in any thread and event loop, also
    those that a fork or a pickle brought along. Raises ValueError for a scheme that is not known or a bad policy, and
    ImportError without s3fs or adlfs.
    """
    return _class_of(_scheme_of(protocol))(**storage_options)


def open(url: str, mode: str = "rb", **options: Any) -> Any:
    """Return what `fsspec.open` returns for one URL, through this library whatever is registered.

    `options` are those of `fsspec.open` and the storage options of `filesystem`. It is opened by
    entering it: `with resilient_io.open("s3://bucket/key") as f:`. Raises what `filesystem` raises, and ValueError for
    a chain of URLs; what opening or reading comes to is raised on entering it and after.
    """
    if "::" in url:
        raise ValueError(f"{url!r} is a chain: write resilient:: before its s3:// or abfs:// and use fsspec.open")
    cls = _class_of(_scheme_of(url))
    alias = _FAMILY_OF[_scheme_of(url)].alias
    # fsspec finds a class by its name; the alias is there even where no entry point has put it.
    fsspec.register_implementation(alias, cls, clobber=True)
    return fsspec.open(url, mode, protocol=alias, **options)


# -- what install changes ----------------------------------------------------------------------------


def _apply() -> None:
    """Make the process what the installations in force ask for; with the lock held."""
    _apply_schemes({scheme for each in _state.active for scheme in each.schemes})
    _apply_policy({name: value for each in _state.active for name, value in each.policy.items()})
    if any(each.sdk for each in _state.active):
        from resilient_io.aws import sessions

        sessions.watch()
    elif "resilient_io.aws.sessions" in sys.modules:
        sys.modules["resilient_io.aws.sessions"].unwatch()
    if not _state.active:
        _forget_instances()


def _apply_schemes(wanted: set[str]) -> None:
    for scheme in wanted - _state.classes.keys():
        cls = _class_of(scheme)
        _state.classes[scheme] = fsspec.registry.get(scheme)
        # The class itself: a name would only be noted, and not used where the scheme was used before.
        fsspec.register_implementation(scheme, cls, clobber=True)
    for scheme in _state.classes.keys() - wanted:
        before = _state.classes.pop(scheme)
        if not _is_ours(fsspec.registry.get(scheme)):
            continue  # somebody has put another class there since
        if before is not None:
            fsspec.register_implementation(scheme, before, clobber=True)
        else:
            _forget_class(scheme)


def _forget_class(scheme: str) -> None:
    """Take a class out of fsspec's registry; the name that it knows the scheme by stays. No public call does."""
    from fsspec.registry import _registry

    _registry.pop(scheme, None)


def _apply_policy(wanted: dict[str, object]) -> None:
    """Set the policy of the installations for the process; what the user configured since then stays."""
    ours, before = _state.policy, _state.policy_before
    if wanted == ours:
        return
    values = dict(policies.configured())
    theirs = {name for name, value in ours.items() if values.get(name, _ABSENT) != value}
    for name in ours.keys() - theirs:
        values[name] = before[name]
    wanted = {name: value for name, value in wanted.items() if name not in theirs or value != ours[name]}
    _state.policy, _state.policy_before = wanted, {name: values.get(name, _ABSENT) for name in wanted}
    kept = {name: value for name, value in {**values, **wanted}.items() if value is not _ABSENT}
    if policies.configured().keys() - kept.keys():
        policies.reset()
    policies.configure(**kept)


def _forget_instances() -> None:
    """Soften the clients, and let no cached filesystem of ours be handed out again."""
    for module in filter(None, map(sys.modules.get, _CLIENT_MODULES)):
        module.soften_all()
    for cls in filter(None, (family.loaded() for family in _FAMILIES)):
        cls.clear_instance_cache()


# -- names and classes -------------------------------------------------------------------------------


def _switched_off() -> bool:
    # Only the switch in the environment beats what is said here.
    return not policies.resolve({"enabled": True}).enabled


def _available(schemes: Iterable[str]) -> tuple[str, ...]:
    """Return the schemes to take over; of the default ones those that can be, of given ones all or an error."""
    if schemes is DEFAULT_SCHEMES:
        return tuple(s for s in DEFAULT_SCHEMES if find_spec(_FAMILY_OF[s].stock) is not None)
    given = (schemes,) if isinstance(schemes, str) else tuple(dict.fromkeys(schemes))
    for scheme in given:
        _class_of(_scheme_of(scheme))
    return tuple(map(_scheme_of, given))


def _scheme_of(protocol: str) -> str:
    return protocol.partition("://")[0]


def _class_of(scheme: str) -> Any:
    """Return the class for a scheme; ValueError for one that is not known, ImportError without its SDK."""
    if scheme not in _FAMILY_OF:
        known = ", ".join(f"{each}://" for each in _FAMILY_OF)
        raise ValueError(f"resilient_io knows {known}, not {scheme!r}")
    return _FAMILY_OF[scheme].cls()


def _is_ours(cls: object) -> bool:
    return getattr(cls, "__module__", "").partition(".")[0] == __name__.partition(".")[0]


def _is_a(value: Any, module: str, name: str) -> bool:
    """Say whether the value is of a class of this module, or of one below it, without importing it."""
    return any(f"{cls.__module__}.".startswith(f"{module}.") and cls.__name__ == name for cls in type(value).__mro__)


def _answering(scheme: str) -> str:
    """Return the qualified name of what answers a scheme now."""
    cls = fsspec.registry.get(scheme)
    if cls is not None:
        return f"{cls.__module__}.{cls.__qualname__}"
    known: Mapping[str, str] = known_implementations.get(scheme, {})
    return known.get("class", "nothing")


# -- the chain ---------------------------------------------------------------------------------------

_ChainedType: Any = type(ChainedFileSystem)


class _ResilientChainType(_ChainedType):  # type: ignore[misc]  # the metaclass of fsspec's filesystems has no public name
    """Calling the class gives the filesystem of this library itself; isinstance, pickle and JSON see that one."""

    def __call__(
        cls,
        fo: object = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        if target_protocol not in _FAMILY_OF:
            raise ValueError(
                f"resilient:: goes directly before an s3:// or abfs:// URL, not before {target_protocol!r}; "
                "other layers go before it: simplecache::resilient::s3://bucket/key"
            )
        return filesystem(str(target_protocol), **{**(target_options or {}), **options})


class ResilientChain(ChainedFileSystem, metaclass=_ResilientChainType):  # type: ignore[misc]  # fsspec is untyped
    """`resilient::s3://bucket/key`, `resilient::abfs://container/key`: one URL through this library, by itself."""

    protocol = "resilient"


# -- coverage ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bypass:
    """Something in this process that reaches storage without this library, and the cure."""

    name: str
    """The module, such as `pyarrow`, or the library of the filesystem, such as `s3fs`."""
    what: str
    """What of it goes past the library."""
    cure: str
    """What to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What goes through the library in this process, and what does not; `str()` of it is for people."""

    enabled: bool
    """False if it is switched off (`RESILIENT_IO=0` or the policy)."""
    schemes: Mapping[str, str]
    """The class that answers each URL scheme now."""
    covered: tuple[str, ...]
    """Those of the schemes that go through this library."""
    hardened_clients: int
    """Living clients that are hardened, those of filesystems among them."""
    sessions_watched: bool
    """Whether S3 clients made from now on are hardened."""
    bypasses: tuple[Bypass, ...]
    """Imported modules that reach storage past the library."""

    def __str__(self) -> str:
        lines = [] if self.enabled else ["switched off: every call passes through unchanged"]
        for scheme, name in self.schemes.items():
            lines.append(f"{scheme}:// {'covered' if scheme in self.covered else 'NOT covered'}: {name}")
        later = "hardened" if self.sessions_watched else "NOT hardened: call install() or harden(client)"
        lines.append(f"clients: {self.hardened_clients} hardened; S3 clients made from now on {later}")
        lines.append("Azure clients made from now on: give them **azure.client_kwargs(), or call harden(client)")
        lines += [f"bypass: {each.name}: {each.what}; {each.cure}" for each in self.bypasses]
        return "\n".join(lines)


_PASS_FILESYSTEM: Final = "pass filesystem=resilient_io.filesystem('s3' or 'abfs')"
_LIMIT: Final = "put `with resilient_io.limit(url):` around its calls"
# By module: what of it goes past the hooks, and the cure.
_NATIVE: Final[Mapping[str, tuple[str, str]]] = {
    "pyarrow": (
        "pyarrow.fs and datasets opened by URL use its own C++ clients, pandas.read_parquet('s3://') and ('abfs://') "
        "without storage_options too",
        _PASS_FILESYSTEM + ", or use an rs3:// or rabfs:// URL in pandas",
    ),
    "polars": ("scan_* and read_* of URLs use its own Rust client", "open the file with resilient_io.open and pass it"),
    "obstore": ("its own Rust client (litdata and zarr's ObjectStore use it)", "use fsspec, or " + _LIMIT),
    "duckdb": ("httpfs is its own C++ client", "con.register_filesystem(resilient_io.filesystem('s3'))"),
    "s3torchconnector": ("the CRT client", "read and save through rs3:// URLs, or " + _LIMIT),
    "awscrt": (
        "the CRT client; boto3's own use of it in transfers is off for hardened clients",
        "set preferred_transfer_client='classic' for other clients, or " + _LIMIT,
    ),
    "tensorstore": ("its own C++ client (Orbax uses it)", _LIMIT),
    "multistorageclient_rust": (
        "the Rust client of multi-storage-client",
        "leave rust_client out of the profile: its boto3 client is hardened",
    ),
    "runai_model_streamer": ("its own C++ client", _LIMIT),
    "azure.storage.filedatalake": ("clients of the dfs door", "use abfs:// URLs or azure.storage.blob, or " + _LIMIT),
}


def coverage() -> Coverage:
    """Return what goes through the library in this process, what bypasses it, and the cures.

    Looks only at what is imported already: it imports and sends nothing, and changes nothing. Safe in any thread.
    Raises ValueError for a bad variable in the environment.
    """
    answering = {scheme: _answering(scheme) for scheme in (*DEFAULT_SCHEMES, *_ALIASES)}
    sessions = sys.modules.get("resilient_io.aws.sessions")
    native = [Bypass(name=name, what=what, cure=cure) for name, (what, cure) in _NATIVE.items() if name in sys.modules]
    return Coverage(
        enabled=policies.resolve().enabled,
        schemes=answering,
        covered=tuple(s for s, name in answering.items() if name.startswith("resilient_io.")),
        hardened_clients=sum(
            module.hardened_clients() for module in filter(None, map(sys.modules.get, _CLIENT_MODULES))
        ),
        sessions_watched=sessions.is_watching() if sessions is not None else False,
        bypasses=(*_stock_filesystems(), *native),
    )


def _stock_filesystems() -> list[Bypass]:
    """Return the filesystems of s3fs and adlfs that were made before, or beside, the installation."""
    found = []
    for family in _FAMILIES:
        stock = getattr(sys.modules.get(family.stock), family.stock_class, None)
        count, scheme = len(getattr(stock, "_cache", ())), family.schemes[0]
        if count:
            what = f"{count} {family.stock_class} made before install(), or from its class directly"
            cure = f"make it after install() by URL, or with resilient_io.filesystem({scheme!r})"
            found.append(Bypass(name=family.stock, what=what, cure=cure))
    return found
