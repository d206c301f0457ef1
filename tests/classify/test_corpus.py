"""Every fault that people met gets the verdict that the corpus asks for."""

from __future__ import annotations

import importlib.util
from typing import Any

import load_cases
import pytest

from resilient_io.classify import Applied, Fault, FaultKind, Load, Verdict, classify, judge, judge_answer
from resilient_io.classify.operations import is_idempotent

CASES: list[dict[str, Any]] = load_cases.load()
HAS_AZURE = importlib.util.find_spec("azure") is not None and importlib.util.find_spec("azure.storage.blob") is not None
RAISING = [case for case in CASES if case["exception"] is not None]
SILENT = [case for case in CASES if case["exception"] is None]
NEVER_RETRYABLE = ("fatal", "auth", "not_found", "precondition", "client_bug", "ambiguous")
# What the reader of a silent case asked for: wire.py asks for the first 100,000 bytes, in blocks of 50,000.
ASKED = {"cat_file-range": (0, 99_999), "cat_file-concurrent": (0, 49_999)}
# obstore prints the status and the body, and no header.
TEXT_ONLY = ("s3-ceph-429--obstore-get",)


def by_id(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


def lost_an_answer(case: dict[str, Any]) -> bool:
    """Whether the answer to an earlier try of this write was lost: a driver knows it, an exception does not."""
    raw = case["raw_response"]
    return isinstance(raw, list) and raw[0]["action"] in ("close_before_response", "reset_before_response")


def built(case: dict[str, Any]) -> BaseException:
    azure = "azure" in case["sdk"] or case["sdk"] == "adlfs" or case["exception"].startswith("azure.")
    if azure and not HAS_AZURE:
        pytest.skip("needs azure-storage-blob")
    error = load_cases.build(case)
    assert error is not None
    return error


def verdict_of(case: dict[str, Any]) -> Verdict:
    return classify(built(case), operation=case["operation"], after_lost_answer=lost_an_answer(case))


@by_id(RAISING)
def test_case_gets_its_verdict(case: dict[str, Any]) -> None:
    assert verdict_of(case).kind.value == case["verdict"]


@by_id(RAISING)
def test_only_throttled_and_transient_cases_are_retryable(case: dict[str, Any]) -> None:
    assert verdict_of(case).retryable is (case["verdict"] not in NEVER_RETRYABLE)


@by_id([case for case in RAISING if case["retry_after_s"] is not None and case["id"] not in TEXT_ONLY])
def test_case_keeps_the_wait_that_the_service_asked_for(case: dict[str, Any]) -> None:
    assert verdict_of(case).retry_after_s == case["retry_after_s"]


@by_id([case for case in RAISING if case["verdict"] == "throttled"])
def test_throttled_case_is_a_refusal_and_applied_nothing(case: dict[str, Any]) -> None:
    verdict = verdict_of(case)
    # A throttled token service says nothing of the storage prefix.
    credential = case["kind"] == "auth-throttle" or case["operation"] == "AssumeRole"
    assert verdict.load is (Load.NONE if credential else Load.REFUSED)
    assert verdict.applied is Applied.NO


@by_id([case for case in RAISING if case["verdict"] not in ("throttled", "ambiguous")])
def test_only_refusals_are_refused(case: dict[str, Any]) -> None:
    verdict = verdict_of(case)
    assert verdict.load is not Load.REFUSED
    assert verdict.applied is Applied.NO or is_idempotent(case["operation"])


def silent_fault(case: dict[str, Any]) -> Fault | None:
    raw = case["raw_response"]
    return judge_answer(
        operation=case["operation"],
        status=case["http_status"],
        headers=raw["headers"],
        body=raw["body"],
        requested_range=ASKED.get(case["operation"]),
    )


@by_id(SILENT)
def test_silent_case_is_noticed_in_the_answer(case: dict[str, Any]) -> None:
    fault = silent_fault(case)
    assert fault is not None
    assert judge(fault).kind.value == case["verdict"]


@by_id([case for case in RAISING if isinstance(case["raw_response"], dict) and case["raw_response"]["status_line"]])
def test_error_answer_is_a_fault_before_the_sdk_sees_it(case: dict[str, Any]) -> None:
    raw = case["raw_response"]
    status = int(raw["status_line"].split()[1])
    body = None if "Head" in case["operation"] or status < 400 else raw["body"]
    fault = judge_answer(operation=case["operation"], status=status, headers=raw["headers"], body=body)
    if status >= 400 and case["id"] not in ("s3-301-noregion--boto3-getobject",):
        assert fault is not None
        retryable = case["verdict"] in ("throttled", "transient")
        assert judge(fault, after_lost_answer=lost_an_answer(case)).retryable is retryable


def test_the_corpus_is_all_there() -> None:
    assert len(CASES) == 223
    assert {case["verdict"] for case in CASES} == {kind.value for kind in FaultKind}
