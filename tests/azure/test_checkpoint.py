"""Saving and loading a checkpoint wrapped in `rio.retrying`, while the store refuses, resets and loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import resilient_io as rio
from resilient_io.errors import ThrottledError
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Match

pytestmark = [pytest.mark.wire, pytest.mark.usefixtures("fast_clock")]
POLICY = {"preset": "checkpoint", "backoff_base_s": 0.001, "backoff_cap_s": 0.01, "retry_budget": 1.0}
STATE = bytes(range(256)) * 2000
ROUGH = FaultPlan(
    rules=(
        FaultRule(action=FaultAction.ERROR, match=Match(op="Put*"), calls=(2, 13)),
        FaultRule(action=FaultAction.RESET_AFTER, match=Match(op="Put*"), calls=(5, 16, 21)),
        FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="PutBlockList"), calls=(1,)),
        FaultRule(action=FaultAction.ERROR, match=Match(op="GetBlob"), calls=(1, 6)),
        FaultRule(action=FaultAction.TRUNCATE, match=Match(op="GetBlob"), after_bytes=1000, calls=(3, 5)),
    )
)


def test_a_checkpoint_comes_back_as_it_was_saved(make_fs: Callable[..., Any], azure_store: Any) -> None:
    fs = make_fs(resilience=POLICY)
    azure_store.server.configure(ROUGH)

    @rio.retrying(POLICY)
    def save(step: int, data: bytes) -> None:
        with fs.open(f"{azure_store.container}/ckpt/step-{step}", "wb", block_size=100_000) as file:
            file.write(data)

    @rio.retrying(POLICY)
    def load(step: int) -> bytes:
        with fs.open(f"{azure_store.container}/ckpt/step-{step}", "rb", block_size=100_000) as file:
            data: bytes = file.read()
        return data

    for step in range(4):
        save(step, STATE + bytes([step]))
    assert [load(step) for step in range(4)] == [STATE + bytes([step]) for step in range(4)]
    assert azure_store.server.stats().count(outcome="fault")


def test_an_async_checkpoint_comes_back_as_it_was_saved(make_fs: Callable[..., Any], azure_store: Any) -> None:
    fs = make_fs(resilience=POLICY, asynchronous=True)
    azure_store.server.configure(ROUGH)

    @rio.retrying(POLICY)
    async def save(rank: int, data: bytes) -> None:
        await fs._pipe_file(f"{azure_store.container}/ckpt/rank-{rank}", data)

    @rio.retrying(POLICY)
    async def load(rank: int) -> bytes:
        data: bytes = await fs._cat_file(f"{azure_store.container}/ckpt/rank-{rank}")
        return data

    async def all_ranks() -> list[bytes]:
        try:
            await asyncio.gather(*(save(rank, STATE + bytes([rank])) for rank in range(6)))
            return await asyncio.gather(*(load(rank) for rank in range(6)))
        finally:
            await fs.service_client.close()

    assert asyncio.run(all_ranks()) == [STATE + bytes([rank]) for rank in range(6)]
    assert azure_store.server.stats().count(outcome="fault")


def test_retries_do_not_multiply(make_fs: Callable[..., Any], azure_store: Any, break_it: Callable[..., None]) -> None:
    fs = make_fs()
    break_it()

    @rio.retrying({"max_throttle_attempts": 5, "backoff_base_s": 0.001})
    def save() -> None:
        with fs.open(f"{azure_store.container}/x", "wb") as file:
            file.write(b"abc")

    with pytest.raises(ThrottledError):
        save()
    assert azure_store.server.stats().requests == 4
