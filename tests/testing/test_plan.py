from __future__ import annotations

import dataclasses
import json

import pytest

from resilient_io.testing import Ceiling, FaultAction, FaultPlan, FaultRule, Latency, Match, Outage, Refusal

FULL = FaultPlan(
    ceilings=(Ceiling(rate_per_s=5.5, burst_s=2, match=Match(prefix="train/*"), per=(), refusal_cost=0.5, name="c"),),
    outages=(Outage(start_s=1, duration_s=2, match=Match(op_class="read")),),
    rules=(
        FaultRule(
            action=FaultAction.TRUNCATE,
            match=Match(op="GetObject"),
            calls=(1, 3),
            per=("key",),
            probability=0.5,
            headers=(("X-Y", "z"),),
            after_bytes=7,
        ),
    ),
    latency=Latency(base_s=0.02, tail_probability=0.01, tail_s=1),
    refusal=Refusal(status=429, retry_after_s=2),
    prefix_depth=1,
    seed=7,
)


@pytest.mark.parametrize("plan", [FULL, FaultPlan()])
def test_a_plan_survives_json(plan: FaultPlan) -> None:
    assert FaultPlan.from_json(plan.to_json()) == plan


def test_a_plan_is_hashable_and_frozen() -> None:
    assert hash(FULL) == hash(FaultPlan.from_json(FULL.to_json()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.seed = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    "data",
    [
        {"ceiling": []},
        {"ceilings": [{"rate_per_s": 1, "burst": 1}]},
        {"rules": [{"action": "explode"}]},
        {"rules": [{"action": "error", "match": {"operation": "x"}}]},
        {"ceilings": [{"rate_per_s": -1}]},
        {"ceilings": [{"rate_per_s": 1, "per": ["bukket"]}]},
        {"rules": [{"action": "error", "calls": [0]}]},
        {"rules": [{"action": "error", "probability": 1.5}]},
    ],
)
def test_what_makes_no_sense_is_a_value_error(data: object) -> None:
    with pytest.raises(ValueError, match=r"field|must|from|holds|valid"):
        FaultPlan.from_json(json.dumps(data))
