from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from resilient_io.control import budget


@given(
    burst=st.floats(0, 100),
    per_success=st.floats(0, 10),
    steps=st.lists(st.booleans(), max_size=200),
)
def test_budget_stays_between_zero_and_its_burst(burst: float, per_success: float, steps: list[bool]) -> None:
    rec = budget.fresh(burst)
    for succeeded in steps:
        if succeeded:
            budget.on_success(rec, per_success, burst)
        else:
            budget.withdraw(rec)
        assert 0 <= rec[budget.TOKENS] <= burst
        assert len(rec) == budget.SIZE


@given(successes=st.integers(0, 300), burst=st.integers(0, 20))
def test_retries_never_exceed_the_burst_and_a_share_of_the_successes(successes: int, burst: int) -> None:
    rec = budget.fresh(burst)
    retries = 0
    for _ in range(successes):
        budget.on_success(rec, 0.1, burst)
        retries += budget.withdraw(rec)
    while budget.withdraw(rec):
        retries += 1
    assert retries <= burst + 0.1 * successes + 1e-6


def test_an_empty_budget_refuses_and_takes_nothing() -> None:
    rec = budget.fresh(1)
    assert budget.withdraw(rec)
    budget.on_success(rec, 0.5, 1)
    assert not budget.withdraw(rec)
    assert rec[budget.TOKENS] == 0.5


def test_a_smaller_policy_does_not_cut_what_a_larger_one_saved() -> None:
    rec = budget.fresh(10)
    budget.on_success(rec, 0.1, 2)
    assert rec[budget.TOKENS] == 10


def test_the_record_may_be_any_sequence_of_floats() -> None:
    rec = array("d", budget.fresh(2))
    assert [budget.withdraw(rec) for _ in range(3)] == [True, True, False]
