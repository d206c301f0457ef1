"""Nodes that exchange in the simulation: as even as one node, as few refusals, late ones let in, outages survived."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

from resilient_io.simulate import Cluster, Fleet, Result, Store, fairness, run

# 64 processes on 8 nodes, eight times smaller than 512 on a prefix of S3.
_FLEET = Fleet(processes=64, callers=8, sharing=8)
_STORE = Store(ceiling_per_s=700)


def by_node(result: Result, processes: int) -> list[int]:
    return [sum(result.done[start : start + processes]) for start in range(0, len(result.done), processes)]


def test_nodes_that_exchange_are_even() -> None:
    """Beside those that do not, at the same ceiling; the refusals are no more."""
    apart, together = (
        [run(replace(_FLEET, cluster=cluster), _STORE, seconds=60, warm_s=20, seed=seed) for seed in (1, 2)]
        for cluster in (None, Cluster())
    )
    assert min(result.fairness for result in together) >= 0.99
    assert min(result.per_s for result in together) >= 0.98 * 700
    assert mean(result.refused_share for result in together) <= mean(result.refused_share for result in apart) + 0.003


def test_a_checkpoint_of_four_nodes_ends_as_one_of_a_single_node() -> None:
    """64 processes with two callers each, 200/s, burst 0.5 s: the aim is 1.08 x ideal."""
    store = Store(
        ceiling_per_s=200, burst_s=0.5, latency_median_s=0.02, latency_sigma=0.1, refusal_min_s=0.02, refusal_max_s=0.03
    )
    fleet = Fleet(processes=64, callers=2, sharing=16, operations=94, cluster=Cluster())
    ideal_s = (64 * 94 - 100) / 200
    results = [run(fleet, store, seconds=120, seed=seed) for seed in range(1, 5)]
    assert max(result.finished_at_s for result in results) <= 1.06 * ideal_s
    assert max(result.refused_share_all for result in results) <= 0.04
    alone = [run(replace(fleet, cluster=None), store, seconds=120, seed=seed) for seed in range(1, 5)]
    assert mean(one.finished_at_s for one in alone) > 1.08 * ideal_s


def test_a_node_that_comes_late_gets_its_part_without_a_storm() -> None:
    """The last of eight nodes starts after 20 s; ten seconds later it has what the others have."""
    fleet = replace(_FLEET, cluster=Cluster(), late_processes=8, late_s=20.0)
    result = run(fleet, _STORE, seconds=50, warm_s=30, seed=1)
    assert fairness(by_node(result, 8)) >= 0.99
    assert run(fleet, _STORE, seconds=30, warm_s=20, seed=1).refused_share <= 0.05


def test_an_outage_of_the_hub_costs_next_to_nothing() -> None:
    """Each node goes on with what it learnt."""
    cluster = Cluster(outages=((15.0, 35.0),))
    result = run(replace(_FLEET, cluster=cluster), _STORE, seconds=55, warm_s=15, seed=1)
    assert result.per_s >= 0.97 * 700
    assert result.refused_share <= 0.03
    assert result.fairness >= 0.97


def test_a_slow_hub_changes_little() -> None:
    result = run(replace(_FLEET, cluster=Cluster(latency_s=0.5)), _STORE, seconds=50, warm_s=20, seed=1)
    assert result.per_s >= 0.98 * 700
    assert result.fairness >= 0.98
