"""What `import resilient_io` does, and does not; and that the public names are what they say."""

from __future__ import annotations

import inspect
import json
import pickle
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import resilient_io as rio

ROOT = Path(__file__).resolve().parents[1]
# Not the roots of these: `azure` is a namespace package that site hooks of other tools may touch.
FOREIGN = (
    *("fsspec", "tenacity", "s3fs", "aiobotocore", "botocore", "boto3", "s3transfer", "aiohttp", "urllib3"),
    *("adlfs", "azure.core", "moto", "rich", "numpy", "asyncio", "logging", "ssl"),
)
CPU_LIMIT_S = 0.020
RUNS = 7

PROBE = """
import json, sys, time
before = set(sys.modules)
start = time.process_time()
import resilient_io
cpu_s = time.process_time() - start
import _thread, threading
print(json.dumps({
    "cpu_s": cpu_s,
    "modules": sorted(set(sys.modules) - before),
    "threads": threading.active_count(),
    "version": resilient_io.__version__,
}))
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def probes() -> list[dict[str, Any]]:
    run(PROBE)  # writes the bytecode
    return [json.loads(run(PROBE)) for _ in range(RUNS)]


def test_import_loads_no_sdk_and_starts_no_thread(probes: list[dict[str, Any]]) -> None:
    modules = set(probes[0]["modules"])
    assert not [name for name in modules if name.startswith(FOREIGN)]
    assert [name for name in modules if name.startswith("resilient_io")] == ["resilient_io"]
    assert probes[0]["threads"] == 1


def test_import_takes_under_20_ms_of_cpu(probes: list[dict[str, Any]]) -> None:
    median_s = statistics.median(probe["cpu_s"] for probe in probes)
    assert median_s < CPU_LIMIT_S, f"median of {RUNS}: {median_s * 1000:.1f} ms"


def test_the_names_that_are_fixed_are_there() -> None:
    fixed = (
        "install uninstall filesystem open harden classify retrying limit configure Policy report coverage "
        "FaultKind Verdict ResilientIOError ThrottledError RetriesExhausted DeadlineExceeded ObjectChanged "
        "AmbiguousWriteError"
    ).split()
    assert set(fixed) <= set(rio.__all__)
    assert set(rio.__all__) <= set(dir(rio))
    assert sorted(set(rio.__all__)) == rio.__all__


@pytest.mark.parametrize("name", rio.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(rio, name) is getattr(rio, name)
    assert name == "__version__" or callable(getattr(rio, name))
    # `open` must not have become the builtin's shadow for this package itself.
    assert name != "open" or rio.open is not open


def test_a_wrong_name_says_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'instal'"):
        rio.instal  # type: ignore[attr-defined]  # noqa: B018  # the point of the test
    with pytest.raises(ImportError):
        from resilient_io import instal  # type: ignore[attr-defined]  # noqa: F401


ORDERS = {
    "function first": "import resilient_io as rio; call(rio.NAME); import resilient_io.NAME",
    "module first": "import resilient_io.NAME; import resilient_io as rio",
    "from import": "from resilient_io.NAME import NAME; import resilient_io as rio",
    "star": "from resilient_io import *; import resilient_io as rio; call(NAME)",
    "bare": "import resilient_io as rio",
}
USES = {
    "classify": "assert rio.classify(ConnectionResetError('x'), operation='GetObject').kind == 'transient'",
    "install": "assert callable(rio.install.install) and rio.install.__call__",
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", USES)
def test_a_function_named_like_its_module_is_both(name: str, order: str) -> None:
    lines = (
        "def call(f): assert callable(f)",
        ORDERS[order].replace("NAME", name),
        USES[name],
        f"import resilient_io.{name} as module, inspect, pickle, sys",
        f"assert module is sys.modules['resilient_io.{name}'] is rio.{name}",
        f"assert inspect.signature(rio.{name}) == inspect.signature(module.{name})",
        f"assert pickle.loads(pickle.dumps(rio.{name})) is module",
    )
    run("\n".join(lines))


def test_submodules_are_reached_by_attribute() -> None:
    run("import resilient_io as rio; rio.errors.GaveUp; rio.policy.resolve; rio.control; rio.classify.fault")


def test_the_signature_of_classify_is_shown() -> None:
    assert list(inspect.signature(rio.classify).parameters)[:2] == ["error", "operation"]
    assert pickle.loads(pickle.dumps(rio.classify)) is rio.classify


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "resilient_io" / "py.typed").is_file()
