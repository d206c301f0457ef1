"""Whose limit it is, where the service does not say: the whole path is asked, and the right level learns."""

from __future__ import annotations

from resilient_io.simulate.engine import run_together
from resilient_io.simulate.fleet import Fleet, Order
from resilient_io.simulate.service import Service
from resilient_io.simulate.store import Store

PREFIX, ACCOUNT = Store(ceiling_per_s=2000.0), Store(ceiling_per_s=400.0)


def test_a_scan_of_cold_prefixes_learns_the_account_s_limit_once() -> None:
    """Charged to each prefix apart it would be learnt 200 times: 16 % of the requests were refused."""
    fleet = Fleet(processes=24, sharing=8, callers=4, prefixes=tuple(range(200)), order=Order.SCAN)
    service = Service(prefix=PREFIX, account=ACCOUNT, says_account=False)
    (result,) = run_together([fleet], service, seconds=35.0, warm_s=15.0, seed=3)
    assert result.failed == 0
    assert result.per_s >= 0.98 * 400.0
    assert result.refused_share <= 0.04
    assert result.fairness >= 0.95


def test_hot_prefixes_leave_the_cold_ones_of_their_bucket_alone() -> None:
    """Three of sixteen are at their limit; the others' rate and p99 are those of a run without them."""
    cold = Fleet(processes=16, sharing=8, callers=2, prefixes=tuple(range(3, 16)), pause_s=0.05)
    hot = Fleet(processes=16, sharing=8, callers=8, prefixes=(0, 1, 2))
    (alone,) = run_together([cold], Service(prefix=PREFIX), seconds=25.0, warm_s=5.0, seed=3)
    service = Service(prefix=PREFIX, prefixes={number: Store(ceiling_per_s=150.0) for number in range(3)})
    beside, _ = run_together([cold, hot], service, seconds=25.0, warm_s=5.0, seed=3, same_processes=True)
    assert beside.per_s >= 0.98 * alone.per_s
    assert beside.latency_s(0.99) <= 1.1 * alone.latency_s(0.99)
