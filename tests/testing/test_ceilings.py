from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_io.testing import Ceiling, Match, Outage
from resilient_io.testing.calls import Call, prefix_of
from resilient_io.testing.ceilings import Gatekeeper


def call(prefix: str = "train/a", op_class: str = "read", op: str = "GetObject") -> Call:
    return Call(op=op, op_class=op_class, bucket="b", key=f"{prefix}/k", prefix=prefix)


def admitted(keeper: Gatekeeper, count: int, now: float, one: Call | None = None) -> int:
    return sum(keeper.admit(one or call(), now) is None for _ in range(count))


def name_of(refused_by: Ceiling | Outage | None) -> str | None:
    return None if refused_by is None else refused_by.name


def test_a_burst_is_let_through_and_then_the_rate() -> None:
    keeper = Gatekeeper([Ceiling(rate_per_s=10, burst_s=0.5)], [], now=0)
    assert admitted(keeper, 100, 0.0) == 5
    assert admitted(keeper, 100, 0.35) == 3
    assert admitted(keeper, 100, 100.0) == 5


@given(
    rate_per_s=st.floats(0.5, 500),
    burst_s=st.floats(0, 3),
    steps=st.lists(st.floats(0, 0.2), min_size=1, max_size=200),
)
def test_never_more_than_burst_plus_rate_times_window(rate_per_s: float, burst_s: float, steps: list[float]) -> None:
    keeper = Gatekeeper([Ceiling(rate_per_s=rate_per_s, burst_s=burst_s)], [], now=0)
    now, passed = 0.0, 0
    for step_s in steps:
        now += step_s
        passed += admitted(keeper, 3, now)
    assert passed <= max(1.0, rate_per_s * burst_s) + rate_per_s * now + 1e-6


def test_each_prefix_and_class_has_its_own_bucket() -> None:
    keeper = Gatekeeper([Ceiling(rate_per_s=2)], [], now=0)
    assert [admitted(keeper, 5, 0, one) for one in (call(), call("train/b"), call(op_class="list"))] == [2, 2, 2]


def test_one_bucket_for_all() -> None:
    keeper = Gatekeeper([Ceiling(rate_per_s=2, per=())], [], now=0)
    assert [admitted(keeper, 5, 0, one) for one in (call(), call("train/b"))] == [2, 0]


def test_a_call_refused_by_one_ceiling_costs_the_others_nothing() -> None:
    account = Ceiling(rate_per_s=10, per=(), name="account")
    keeper = Gatekeeper([account, Ceiling(rate_per_s=1, match=Match(prefix="train/a"))], [], now=0)
    assert admitted(keeper, 50, 0) == 1
    assert name_of(keeper.admit(call(), 0)) == "ceiling"
    assert admitted(keeper, 50, 0, call("train/b")) == 9
    assert name_of(keeper.admit(call("train/b"), 0)) == "account"


def test_refusals_that_cost_capacity_lower_what_is_served() -> None:
    free = Gatekeeper([Ceiling(rate_per_s=10, burst_s=0)], [], now=0)
    costly = Gatekeeper([Ceiling(rate_per_s=10, burst_s=0, refusal_cost=0.5)], [], now=0)
    times = [tick / 100 for tick in range(1000)]
    assert sum(admitted(free, 1, now) for now in times) == pytest.approx(100, abs=2)
    assert sum(admitted(costly, 1, now) for now in times) == 1, "a hammered store serves nothing"


def test_a_rate_changed_in_the_run_keeps_the_tokens() -> None:
    keeper = Gatekeeper([Ceiling(rate_per_s=10, burst_s=1)], [], now=0)
    assert admitted(keeper, 7, 0) == 7
    assert keeper.set_rate(100, name="ceiling", burst_s=None) == 1
    assert admitted(keeper, 50, 0) == 3
    assert admitted(keeper, 50, 0.1) == 10
    assert keeper.set_rate(1, name="other", burst_s=None) == 0


def test_a_rate_of_zero_refuses_everything() -> None:
    assert admitted(Gatekeeper([Ceiling(rate_per_s=0)], [], now=0), 5, 100) == 0


def test_an_outage_refuses_what_it_is_meant_for_from_start_to_end() -> None:
    keeper = Gatekeeper([], [Outage(start_s=1, duration_s=2, match=Match(op_class="read"))], now=50)
    seen = [name_of(keeper.admit(call(), now)) for now in (50.9, 51.0, 52.9, 53.0)]
    assert seen == [None, "outage", "outage", None]
    assert keeper.admit(call(op_class="write"), 52) is None
    keeper.add_outage(5, match=Match(), now=60)
    assert name_of(keeper.admit(call(op_class="write"), 64.9)) == "outage"
    keeper.end_outages()
    assert keeper.admit(call(op_class="write"), 64.9) is None


@pytest.mark.parametrize(
    ("key", "depth", "prefix"),
    [
        ("train/imagenet/1.tar", 2, "train/imagenet"),
        ("train/imagenet/a/b/1.tar", 2, "train/imagenet"),
        ("train/1.tar", 2, "train"),
        ("1.tar", 2, ""),
        ("train/imagenet/", 2, "train/imagenet"),
        ("train/imagenet/1.tar", 0, ""),
    ],
)
def test_prefix_of_a_key(key: str, depth: int, prefix: str) -> None:
    assert prefix_of(key, depth=depth) == prefix


@given(st.text(alphabet="ab/", max_size=12), st.integers(0, 4))
def test_a_prefix_is_what_the_library_calls_one(key: str, depth: int) -> None:
    from resilient_io.control.scopes import prefix_of as library_prefix_of

    assert prefix_of(key, depth=depth) == library_prefix_of(key, depth=depth)
