from __future__ import annotations

import subprocess
import sys

from .test_server import package_root

IMPORTS = """
import sys
import resilient_io.testing, resilient_io.testing.plugin
heavy = {"asyncio", "boto3", "botocore", "fsspec", "s3fs", "moto", "tenacity", "flask"} & set(sys.modules)
heavy.discard("asyncio")
print(sorted(heavy))
"""

TESTS = """
import sys, types
runtime = types.ModuleType("resilient_io.drive.runtime")
runtime.resets = 0
def reset(): runtime.resets += 1
runtime.reset = reset

def test_nothing_happens_without_the_library():
    assert "resilient_io.drive.runtime" not in sys.modules

def test_a_server_is_started(fault_server):
    sys.modules["resilient_io.drive.runtime"] = runtime
    first, second = fault_server(), fault_server()
    assert first.port != second.port

def test_the_limits_were_reset():
    assert runtime.resets == 1
"""


def run(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": package_root(), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, **options, check=False
    )


def test_loading_it_loads_no_sdk() -> None:
    assert run("-c", IMPORTS).stdout == "[]\n"


def test_its_fixtures(tmp_path: object) -> None:
    import pathlib

    folder = pathlib.Path(str(tmp_path))
    (folder / "test_it.py").write_text(TESTS)
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::ResourceWarning")
    plugin = ("-p", "resilient_io.testing.plugin", "-p", "no:resilient_io")
    done = run(*options, *plugin, str(folder))
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_moto_server_of_the_plugin() -> None:
    import urllib.request

    import pytest

    pytest.importorskip("moto")
    pytest.importorskip("flask")
    from resilient_io.testing.moto_process import MotoServer

    server = MotoServer()
    try:
        urllib.request.urlopen(urllib.request.Request(f"{server.url}/bucket", method="PUT"), timeout=10).close()
        server.reset()
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert b"<Name>bucket</Name>" not in answer.read()
    finally:
        server.stop()
