"""The model itself: deterministic, true to its own numbers, and harmless without a limit."""

from __future__ import annotations

import random

import pytest

from resilient_io.simulate import Fleet, Store, fairness, run
from resilient_io.simulate.store import ModelStore


def test_the_same_seed_gives_the_same_run() -> None:
    """A run is a function of its arguments."""
    fleet, store = Fleet(processes=4, callers=4), Store(ceiling_per_s=50)
    first, second = (run(fleet, store, seconds=10, seed=3) for _ in range(2))
    assert first == second
    assert run(fleet, store, seconds=10, seed=4) != first


def test_the_store_serves_its_burst_then_its_ceiling() -> None:
    """In one second of a flood a bucket gives what it had saved and what ran in."""
    model = ModelStore(Store(ceiling_per_s=100, burst_s=0.5), random.Random(1))
    served = sum(model.ask(step / 1000)[0] for step in range(1000))
    assert served == pytest.approx(150, abs=1)


def test_the_ceiling_changes_when_told() -> None:
    """A step of the ceiling counts from its time on."""
    model = ModelStore(Store(ceiling_per_s=100, burst_s=0.01, ceilings=((1.0, 0.5),)), random.Random(1))
    served = [sum(model.ask(start + step / 1000)[0] for step in range(1000)) for start in (0, 1)]
    assert served[0] == pytest.approx(100, abs=3)
    assert served[1] == pytest.approx(50, abs=3)


def test_an_outage_refuses_everything_and_ends() -> None:
    """Requests within an outage are refused, the first after it is served."""
    model = ModelStore(Store(outages=((1.0, 2.0),)), random.Random(1))
    assert [model.ask(at)[0] for at in (0.9, 1.0, 1.99, 2.0)] == [True, False, False, True]


def test_random_refusals_have_their_share() -> None:
    """One in five, whatever the load."""
    model = ModelStore(Store(ceiling_per_s=1e6, random_share=0.2), random.Random(1))
    assert sum(not model.ask(step / 1e4)[0] for step in range(10000)) == pytest.approx(2000, rel=0.1)


def test_latency_is_as_documented() -> None:
    """Median 25 ms and 99th percentile 160 ms."""
    model = ModelStore(Store(ceiling_per_s=1e6), random.Random(1))
    times = sorted(model.ask(step / 1e4)[1] for step in range(20000))
    assert times[10000] == pytest.approx(0.025, rel=0.05)
    assert times[19800] == pytest.approx(0.160, rel=0.1)


def test_a_checkpoint_ends_with_all_its_operations() -> None:
    """No operation is lost or done twice."""
    result = run(Fleet(processes=3, callers=4, operations=50), Store(ceiling_per_s=40), seconds=300)
    assert result.done == [50, 50, 50]
    assert result.failed == 0


def test_fewer_operations_than_callers() -> None:
    """A process never does more than it has."""
    result = run(Fleet(processes=2, callers=8, operations=3), Store(), seconds=10)
    assert result.done == [3, 3]


def test_late_processes_do_nothing_before_their_time() -> None:
    """The join of other clients can be simulated."""
    result = run(Fleet(processes=2, callers=1, late_processes=1, late_s=5.0), Store(), seconds=5)
    assert result.done[1] == 0 < result.done[0]


def test_fairness_is_jains_index() -> None:
    """1 for equals, 1/n for one who has all."""
    assert fairness([2, 2, 2]) == pytest.approx(1.0)
    assert fairness([3, 0, 0]) == pytest.approx(1 / 3)
    assert fairness([]) == fairness([0, 0]) == 1.0


def test_sharing_makes_one_record_for_several_processes() -> None:
    """Four processes on two records."""
    assert len(run(Fleet(processes=4, sharing=2, callers=1), Store(), seconds=1).rates_per_s) == 2
