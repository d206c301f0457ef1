"""A ceiling on the whole account: found as such, because the service says so, and shared by its prefixes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

import resilient_io as rio
from resilient_io.rehearse.outcomes import jain
from resilient_io.testing import FaultPlan, Latency, account_ceiling, blob_ceiling

pytestmark = pytest.mark.wire
CEILING_PER_S = 120.0
SECONDS = 4.0
PREFIXES = ("train/a", "train/b", "val/c", "ckpt/d")


def work(read: Callable[[str], Any]) -> Counter[str]:
    """Read under each prefix from four threads for some seconds; return how often that worked."""
    until = time.monotonic() + SECONDS

    def loop(prefix: str) -> tuple[str, int]:
        done = 0
        while time.monotonic() < until:
            read(f"{prefix}/x")
            done += 1
        return prefix, done

    done: Counter[str] = Counter()
    with ThreadPoolExecutor(16) as pool:
        for prefix, count in pool.map(loop, PREFIXES * 4):
            done[prefix] += count
    return done


@pytest.mark.parametrize("coordination", ["process", "node"])
def test_an_account_s_ceiling_slows_all_prefixes_together(azure_store: Any, coordination: str) -> None:
    """None is starved, none is limited for itself, and few requests are refused."""
    with BlobServiceClient.from_connection_string(azure_store.account.connection_string) as service:
        rio.harden(service, {"coordination": coordination})
        for prefix in PREFIXES:
            service.get_blob_client(azure_store.container, f"{prefix}/x").upload_blob(b"bytes")
        ceiling = account_ceiling(CEILING_PER_S, burst_s=0.2)
        azure_store.server.configure(FaultPlan(ceilings=(ceiling,), latency=Latency(base_s=0.01)))
        azure_store.server.reset()
        done = work(lambda key: service.get_blob_client(azure_store.container, key).download_blob().readall())
    report = {scope.label: scope for scope in rio.report().scopes if scope.op_class == "read"}
    limited = [scope for scope in report.values() if scope.limited]
    log = azure_store.server.log()
    refused = sum(one.status == 503 for one in log)
    assert [scope.leaf for scope in limited] == [False], report.keys()
    assert jain([float(done[prefix]) for prefix in PREFIXES]) >= 0.9, done
    assert sum(done.values()) >= 0.35 * CEILING_PER_S * SECONDS  # it climbs from what it entered with
    assert refused <= 0.2 * len(log)
    # Of more than one prefix; few are refused in all, so one may be spared by chance.
    assert sum(scope.refused > 0 for scope in report.values() if scope.leaf) >= 2


def test_a_hot_blob_slows_itself_and_not_its_prefix(azure_store: Any) -> None:
    """Azure limits each blob, and says no more than that it is busy; the others of the prefix speak against it."""
    names = ("train/hot", "train/a", "train/b", "train/c")
    with BlobServiceClient.from_connection_string(azure_store.account.connection_string) as service:
        rio.harden(service)
        clients = {name: service.get_blob_client(azure_store.container, name) for name in names}
        for client in clients.values():
            client.upload_blob(b"bytes")
        ceiling = blob_ceiling(40.0, burst_s=0.5)
        azure_store.server.configure(FaultPlan(ceilings=(ceiling,), latency=Latency(base_s=0.01)))
        for _ in range(12):  # the others are asked for now and then, the hot one by eight threads
            for name in names[1:]:
                clients[name].download_blob().readall()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: clients["train/hot"].download_blob().readall(), range(80)))
    limited = [scope.label for scope in rio.report().scopes if scope.limited]
    assert len(limited) == 1
    assert limited[0].endswith("/train/hot (read)")
