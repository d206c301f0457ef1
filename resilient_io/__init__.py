"""Congestion control for object storage in training: the URLs and clients people use, without SlowDown failures.

The public names load on first use (PEP 562): importing this package imports neither fsspec, tenacity nor an SDK, starts
no thread and takes a few milliseconds, so that it may stand at the top of any module, in every worker process.

Two public functions have the name of the module that holds them, `classify` and `install`. The import system binds a
submodule to its package under its own name, so `rio.classify` would be the function or the module, whichever came last.
Here it is always the module, and the module can be called: `rio.classify(error)` and `import resilient_io.classify`
hold in any order.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # type checkers take it as true; `typing` itself would be half of the time of this import
if TYPE_CHECKING:
    from typing import Any, Final

    from resilient_io.classify import classify as classify
    from resilient_io.classify.fault import FaultKind, Verdict
    from resilient_io.drive.limit import limit
    from resilient_io.drive.report import report
    from resilient_io.drive.retrying import retrying
    from resilient_io.errors import (
        AmbiguousWriteError,
        CredentialsError,
        DeadlineExceeded,
        NotForkSafe,
        ObjectChanged,
        ResilientIOError,
        RetriesExhausted,
        ThrottledError,
    )
    from resilient_io.install import coverage, filesystem, harden, open, uninstall
    from resilient_io.install import install as install
    from resilient_io.policy import Policy, configure

__version__ = "0.1.0"

__all__ = [
    "AmbiguousWriteError",
    "CredentialsError",
    "DeadlineExceeded",
    "FaultKind",
    "NotForkSafe",
    "ObjectChanged",
    "Policy",
    "ResilientIOError",
    "RetriesExhausted",
    "ThrottledError",
    "Verdict",
    "__version__",
    "classify",
    "configure",
    "coverage",
    "filesystem",
    "harden",
    "install",
    "limit",
    "open",
    "report",
    "retrying",
    "uninstall",
]

_SOURCES: Final = {
    "classify": ("FaultKind", "Verdict"),
    "drive.limit": ("limit",),
    "drive.report": ("report",),
    "drive.retrying": ("retrying",),
    "errors": (
        "AmbiguousWriteError",
        "DeadlineExceeded",
        "CredentialsError",
        "NotForkSafe",
        "ObjectChanged",
        "ResilientIOError",
        "RetriesExhausted",
        "ThrottledError",
    ),
    "install": ("coverage", "filesystem", "harden", "open", "uninstall"),
    "policy": ("Policy", "configure"),
}
_SOURCE_OF: Final = {name: source for source, names in _SOURCES.items() for name in names}
_CALLABLE: Final = frozenset({"classify", "install"})
_SUBMODULES: Final = _CALLABLE | {
    "aws",
    "azure",
    "control",
    "drive",
    "errors",
    "events",
    "policy",
    "simulate",
    "testing",
}


class _CallableModule(ModuleType):
    """A module that is called like the function in it that has its name, and looks like it to `inspect` and `help`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _namesake(self)(*args, **kwargs)

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        return signature(_namesake(self))

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # Plain modules do not pickle; functions do, and `pool.map(rio.classify, errors)` needs it.
        return import_module, (self.__name__,)


class _Package(ModuleType):
    """This package's own class: it makes `classify` and `install` callable when the import system binds them here."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _CALLABLE and type(value) is ModuleType:
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


def _namesake(module: ModuleType) -> Any:
    return getattr(module, module.__name__.rpartition(".")[2])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    source = _SOURCE_OF.get(name)
    if source is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{source}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*__all__, *_SUBMODULES, *own})


sys.modules[__name__].__class__ = _Package
