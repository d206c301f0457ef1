"""The real SDKs, served the raw answers of the corpus on the loopback interface: what they raise gets the verdict."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
import time
from typing import Any

import load_cases
import pytest
import wire  # noqa: F401 - it takes the real time.sleep when it is imported

from resilient_io.classify import classify, judge, judge_answer

pytestmark = pytest.mark.wire

CASES = [case for case in load_cases.load() if case["wire_verified"]]
PACKAGES = {
    "boto3": "boto3",
    "boto3x2": "boto3",
    "sts": "boto3",
    "s3fs": "s3fs",
    "obstore": "obstore",
    "adlfs": "adlfs",
}


def has(probe: str) -> bool:
    name = PACKAGES.get(probe, "azure")
    if importlib.util.find_spec(name) is None:
        return False
    return name in PACKAGES.values() or importlib.util.find_spec("azure.storage.blob") is not None


def _s3fs_reads_in_blocks() -> bool:
    import s3fs

    return "chunksize" in inspect.signature(s3fs.S3FileSystem._cat_file).parameters


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure waits 15 s and more between its tries; s3fs and botocore up to a second."""
    monkeypatch.setattr(logging.getLogger("azure"), "disabled", True)
    if importlib.util.find_spec("azure") is not None and importlib.util.find_spec("azure.storage.blob") is not None:
        from azure.storage.blob._shared import policies

        monkeypatch.setattr(policies.StorageRetryPolicy, "sleep", lambda self, settings, transport: None)
    # The server of wire.py keeps the real one for its stalls.
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    real = asyncio.sleep

    async def at_once(delay: float, result: object = None) -> object:
        return await real(0, result)

    monkeypatch.setattr(asyncio, "sleep", at_once)


def answered(case: dict[str, Any], result: Any) -> Any:
    """What stays of an answer that the SDK took for good: its result, and what the wire showed."""
    raw = case["raw_response"]
    asked = {"cat_file-range": (0, 99_999), "cat_file-concurrent": (0, 49_999)}.get(case["operation"])
    parsed = result if isinstance(result, dict) else None
    return judge_answer(
        operation=case["operation"],
        status=case["http_status"],
        headers=raw["headers"],
        parsed=parsed,
        body=None if parsed is not None else raw["body"],
        requested_range=asked,
    )


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
@pytest.mark.filterwarnings("ignore")
def test_exception_of_the_real_sdk_gets_the_verdict(case: dict[str, Any]) -> None:
    if not has(case["probe"]):
        pytest.skip(f"{case['probe']} is not installed")
    if case["operation"] == "cat_file-concurrent" and not _s3fs_reads_in_blocks():
        pytest.skip("this s3fs reads an object with one request")
    error, result, _ = load_cases.replay(case)
    if error is None:
        fault = answered(case, result)
        assert fault is not None
        assert judge(fault).kind.value == case["verdict"]
        return
    raw = case["raw_response"]
    verdict = classify(error, operation=case["operation"], after_lost_answer=isinstance(raw, list))
    assert verdict.kind.value == case["verdict"], (verdict, repr(error))
    assert verdict.retryable is (case["verdict"] in ("throttled", "transient"))
