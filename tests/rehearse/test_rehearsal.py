"""Small rehearsals with real processes, stores and clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from resilient_io.testing import FaultServer

pytestmark = pytest.mark.wire

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--ranks", "2", "--threads", "4", "--shards", "30", "--parts", "6", "--shard-size", "4KiB", "--seed", "3")
FIGURES = {
    "operations", "done", "failed", "requests", "requests_per_operation", "refused", "refused_share", "p50_s", "p99_s",
    "makespan_s", "ideal_s", "makespan_over_ideal", "checked_bytes", "wrong_bytes", "errors", "phases_s",
}  # fmt: skip


def rehearse(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "resilient_io.cli", "rehearse", *SMALL, *arguments]
    return subprocess.run(command, env=with_package(environment), capture_output=True, text=True, timeout=120)


def with_package(environment: dict[str, str]) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **environment}


def test_both_runs_against_the_light_store() -> None:
    done = rehearse("--store", "builtin", "--ceiling", "60", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert {"job", "store", "runs", "good", "meaning", "versions", "machine"} <= set(found)
    assert found["good"] is True
    assert found["job"]["seed"] == 3
    assert len(found["meaning"]) == 2
    assert list(found["runs"]) == ["stock", "treated"]
    for run in found["runs"].values():
        assert set(run) == FIGURES
        assert set(run["phases_s"]) == {"read 0", "checkpoint 0", "read 1", "checkpoint 1"}
        assert run["operations"] == run["done"] + run["failed"] == 2 * (30 + 2 * 6)
    treated = found["runs"]["treated"]
    # Every byte that was read, and every one that was written.
    assert (treated["checked_bytes"], treated["wrong_bytes"]) == (2 * (30 + 2 * 6) * 4096, 0)
    assert treated["requests"] - treated["refused"] == treated["operations"]
    # Stock asks with a HEAD before each GET, s3fs 2026.2 before those of an open file.
    assert found["runs"]["stock"]["requests"] > 1.2 * treated["operations"]


def test_moto_is_the_default_store() -> None:
    pytest.importorskip("flask")
    done = rehearse("--only", "treated", "--ceiling", "50")
    assert done.returncode == 0, done.stderr
    assert "moto, 50 reads/s and 32 writes/s, seed 3" in " ".join(done.stdout.split())
    assert "resilient_io.install()" in done.stdout
    assert "resilient-io: 84/84" in done.stderr


def test_a_treated_run_that_fails_is_exit_status_1() -> None:
    short = ("--shards", "12", "--parts", "1", "--ceiling", "10", "--store", "builtin", "--only", "treated", "--json")
    done = rehearse(*short, RESILIENT_IO_MAX_THROTTLE_ATTEMPTS="1")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["good"] is False
    assert found["runs"]["treated"]["failed"] > 0
    assert any("ThrottledError" in error for error in found["runs"]["treated"]["errors"])
    assert "did not do what it is for" in found["meaning"][0]


def test_a_bucket_at_an_endpoint_is_left_as_it_was(fault_server: Any) -> None:
    server: FaultServer = fault_server()
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/mine", method="PUT"), timeout=10).close()
    done = rehearse("--endpoint-url", server.url, "--bucket", "mine", "--only", "treated", "--json")
    assert done.returncode == 0, done.stderr
    treated = json.loads(done.stdout)["runs"]["treated"]
    assert (treated["ideal_s"], treated["makespan_over_ideal"]) == (None, None)
    assert treated["requests"] == treated["operations"]  # counted by the clients
    assert "s3://mine/resilient-io-rehearse-" in done.stderr
    keys = {one.key for one in server.log(op="PutObject")}
    assert keys
    assert all(key.startswith("resilient-io-rehearse-") for key in keys)
    with urllib.request.urlopen(f"{server.url}/mine?list-type=2", timeout=10) as answer:
        assert b"<Key>" not in answer.read()


def test_a_bucket_that_cannot_be_written_is_exit_status_2(fault_server: Any) -> None:
    server: FaultServer = fault_server()
    done = rehearse("--endpoint-url", server.url, "--bucket", "none")
    assert done.returncode == 2
    assert "cannot write to s3://none" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Ctrl-C reaches the children on Windows")
def test_ctrl_c_ends_every_process() -> None:
    command = [sys.executable, "-m", "resilient_io.cli", "rehearse", *SMALL, "--ceiling", "5", "--store", "builtin"]
    process = subprocess.Popen(
        command,
        env=with_package({}),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # What a shell starts in the background ignores the signal, and so would what the tests start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("stock s3fs"):
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: all of them at once
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "interrupted\n"
    assert not psutil.wait_procs(children, timeout=5)[1]
