from __future__ import annotations

from collections import deque

import pytest

from resilient_io.control import budget, law
from resilient_io.control.scopes import ScopePath, scope_path
from resilient_io.drive.scope import ScopeTable
from resilient_io.policy import Policy


def path(number: int) -> ScopePath:
    return scope_path(endpoint="https://s3.test", bucket="b", prefix=f"p{number}", op_class="read")


def test_one_lane_for_a_path_and_cap() -> None:
    table = ScopeTable()
    lane = table.lane(path(1), Policy(), 0.0)
    assert table.lane(path(1), Policy(deadline_s=1), 5.0) is lane
    other = table.lane(path(1), Policy(max_concurrency=2), 0.0)
    assert other is not lane
    assert other.leaf is lane.leaf
    assert table.lane(path(2), Policy(), 0.0).levels[:2] == lane.levels[:2]


def test_the_number_of_lanes_is_bounded() -> None:
    table = ScopeTable(limit=32)
    for number in range(1000):
        table.lane(path(number), Policy(), 0.0)
    assert len(table.lanes()) <= 32
    # One level for each prefix, and the bucket and the store above.
    assert len(table.levels(0.0)) == len(table.lanes()) + 2


def test_the_least_recently_used_are_forgotten_first() -> None:
    table = ScopeTable(limit=32)
    first = table.lane(path(0), Policy(), 0.0)
    for number in range(1, 100):
        table.lane(path(number), Policy(), 0.0)
        assert table.lane(path(0), Policy(), 0.0) is first


@pytest.mark.parametrize("how", ["in flight", "waiting"])
def test_the_busy_are_never_forgotten(how: str) -> None:
    table = ScopeTable(limit=8)
    busy = [table.lane(path(number), Policy(), 0.0) for number in range(20)]
    for lane in busy:
        if how == "in flight":
            lane.open[1] = None  # type: ignore[assignment]
        else:
            lane.waiting = deque([object()])  # type: ignore[list-item]
    for number in range(20, 200):
        new = table.lane(path(number), Policy(), 0.0)
        # Also the new one is not: its caller is about to use it.
        assert new in table.lanes()
    # The first few were forgotten before they became busy.
    kept = [lane for lane in busy if lane in table.lanes()]
    assert kept == busy[-len(kept) :]
    assert all(table.lane(lane.path, Policy(), 0.0) is lane for lane in kept)
    assert len(table.lanes()) <= len(kept) + 8


def test_limits_are_kept_longer_than_idle_scopes_but_not_for_ever() -> None:
    table = ScopeTable(limit=16)
    limited = table.lane(path(0), Policy(), 0.0)
    law.on_refusal(limited.leaf.rate, 0.0, 0.0, 0.5)
    for number in range(1, 100):
        table.lane(path(number), Policy(), 1.0)
    assert table.lane(path(0), Policy(), 1.0) is limited
    for number in range(100, 200):
        table.lane(path(number), Policy(), 1000.0)
    assert limited not in table.lanes()


def test_a_table_full_of_limits_is_bounded_too() -> None:
    table = ScopeTable(limit=32)
    for number in range(500):
        law.on_refusal(table.lane(path(number), Policy(), 0.0).leaf.rate, 0.0, 0.0, 0.5)
    assert len(table.lanes()) <= 2 * 32 + 3


def test_the_budget_starts_as_full_as_the_policy_says() -> None:
    table = ScopeTable()
    none = table.lane(path(1), Policy(retry_budget_burst=0), 0.0)
    assert not budget.withdraw(none.leaf.budget)
    assert table.lane(path(2), Policy(retry_budget_burst=3), 0.0).leaf.budget[budget.TOKENS] == 3
