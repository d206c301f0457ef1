"""What the law achieves in simulation, small enough for every run, and that each of its rules is needed for it.

The bounds leave room for the seed, not for another law: benchmarks/law.py prints the figures at full size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, median

import pytest

from resilient_io.control.law import LAW, Constants
from resilient_io.simulate import Fleet, Result, Store, run

_FAR = 200_000.0


def _random_cost(law: Constants, *, share: float, callers: int = 64, processes: int = 1, seconds: float = 20) -> float:
    """Median throughput under random refusals relative to full jitter without a limiter, from the start."""
    fleet = Fleet(processes=processes, callers=callers, law=law)
    store = Store(ceiling_per_s=_FAR, random_share=share)
    free = median(
        run(replace(fleet, limited=False), store, seconds=seconds, seed=seed).per_s
        for seed in range(1, 4 if callers * processes <= 16 else 2)
    )
    seeds = range(1, 8 if callers * processes <= 32 else 4 if callers * processes <= 64 else 2)
    return median(run(fleet, store, seconds=seconds, seed=seed).per_s for seed in seeds) / free


def _after_outage(law: Constants, *, outage_s: int = 60, processes: int = 8) -> tuple[float, float]:
    """Share of the ceiling 15 s and 30 s after the end of a total refusal."""
    end = 20 + outage_s
    fleet = Fleet(processes=processes, callers=16, law=law, max_attempts=10_000)
    result = run(fleet, Store(ceiling_per_s=400, outages=((20, end),)), seconds=end + 30)
    return result.served_between(end + 13, end + 15) / 400, result.served_between(end + 27, end + 30) / 400


def _ceiling(law: Constants = LAW, *, processes: int = 64, ceiling: float = 700, seed: int = 1) -> Result:
    """The measured half of 80 s; the default is eight times smaller than 512 processes at 5500/s."""
    return run(Fleet(processes=processes, law=law), Store(ceiling_per_s=ceiling), seconds=80, warm_s=40, seed=seed)


def _fairness_after_jump(law: Constants) -> float:
    """Jain's index well after the ceiling became four times as high."""
    store = Store(ceiling_per_s=200, ceilings=((40, 4.0),))
    return run(Fleet(processes=64, law=law), store, seconds=140, warm_s=110, seed=2).fairness


def _after_doubling(law: Constants) -> float:
    """Share of the doubled ceiling that is used 13 s later."""
    store = Store(ceiling_per_s=400, ceilings=((40, 2.0),))
    return run(Fleet(processes=8, callers=32, law=law), store, seconds=56).served_between(53, 56) / 800


def _small_job(law: Constants = LAW) -> tuple[float, float, float]:
    """8 processes x 4 threads, 1,496 operations at 100/s: makespan over ideal, share refused, 99th percentile."""
    fleet = Fleet(processes=8, callers=4, operations=187, law=law)
    store = Store(
        ceiling_per_s=100,
        burst_s=0.5,
        latency_median_s=0.02,
        latency_sigma=0.15,
        refusal_min_s=0.02,
        refusal_max_s=0.03,
    )
    results = [run(fleet, store, seconds=90, seed=seed) for seed in range(1, 25)]
    assert not any(result.failed for result in results)
    return (
        mean(result.finished_at_s / 14.46 for result in results),
        mean(result.refused_share_all for result in results),
        max(result.latency_s(0.99) for result in results),
    )


@pytest.mark.parametrize(("share", "least"), [(0.01, 0.9), (0.05, 0.5), (0.1, 0.5), (0.2, 0.5), (0.3, 0.5)])
def test_random_refusals_are_not_load(share: float, least: float) -> None:
    """A process with 64 in flight loses a tenth at 1 % and keeps more than half at 30 %, within the first 20 s."""
    assert _random_cost(LAW, share=share) >= least


@pytest.mark.parametrize("processes", [1, 8])
@pytest.mark.parametrize("callers", [1, 4, 8, 16, 64])
def test_random_refusals_by_size(processes: int, callers: int) -> None:
    """From one thread to 512 in flight a tenth is lost at 1 % (8 x 8: .87) and half is kept at 20 %, within 20 s."""
    size = {"callers": callers, "processes": processes}
    assert _random_cost(LAW, share=0.01, **size) >= (0.8 if processes == callers == 8 else 0.9)
    assert _random_cost(LAW, share=0.2, **size) >= 0.5


@pytest.mark.parametrize("outage_s", [10, 300])
def test_recovery_after_a_total_refusal(outage_s: int) -> None:
    """Half the former rate within 15 s, nine tenths within 30 s."""
    early, late = _after_outage(LAW, outage_s=outage_s)
    assert early >= 0.5
    assert late >= 0.9


def test_recovery_after_an_hour() -> None:
    """The length of the outage does not matter."""
    early, late = _after_outage(LAW, outage_s=3600, processes=1)
    assert early >= 0.5
    assert late >= 0.9


@pytest.mark.parametrize(
    ("processes", "ceiling", "refused", "fairness"),
    [(8, 700, 0.022, 0.95), (64, 700, 0.044, 0.8), (64, 86, 0.155, 0.81)],
)
def test_at_the_ceiling(processes: int, ceiling: float, refused: float, fairness: float) -> None:
    """The whole ceiling is used, with the refusals that its rate per client explains; rates as of 64, 512, 4096."""
    result = _ceiling(processes=processes, ceiling=ceiling)
    assert result.per_s >= 0.98 * ceiling
    assert result.refused_share <= refused
    assert result.fairness >= fairness
    assert result.failed == 0


@pytest.mark.parametrize("processes", [256, 512])
def test_a_large_fleet_at_the_ceiling(processes: int) -> None:
    """At full size chance finds the rare wrong entry: shares stay even, and refusals few."""
    result = run(Fleet(processes=processes), Store(), seconds=70, warm_s=40, seed=8)
    assert result.per_s >= 0.98 * 5500
    assert result.refused_share <= 0.044
    assert result.fairness >= 0.75
    assert result.failed == 0


def test_one_busy_client_makes_room() -> None:
    """A client that had a wide prefix to itself, unlimited, shares it with 15 that join."""
    fleet = Fleet(processes=16, callers=16, late_processes=15, late_s=20)
    result = run(fleet, Store(ceiling_per_s=1500), seconds=100, warm_s=70)
    assert result.per_s >= 0.98 * 1500
    assert result.fairness >= 0.7


@pytest.mark.xfail(strict=True, reason="the law of old has it too: see docs/control-law.md, what is missed")
def test_one_busy_client_at_its_limit_makes_room() -> None:
    """A client that holds a narrow prefix at its ceiling starves those that join."""
    fleet = Fleet(processes=16, callers=16, late_processes=15, late_s=20)
    assert run(fleet, Store(ceiling_per_s=400), seconds=140, warm_s=100).fairness >= 0.5


def test_a_halved_ceiling_is_followed() -> None:
    """Ten seconds later refusals are back at what is usual."""
    store = Store(ceiling_per_s=700, ceilings=((40, 0.5),))
    result = run(Fleet(processes=8, callers=32), store, seconds=70, warm_s=50)
    assert result.per_s >= 0.98 * 350
    assert result.refused_share <= 0.04


def test_the_small_job() -> None:
    """Eight uncoordinated processes at 12.5 requests a second each; the aim of 1.10 is missed by a little."""
    makespan, refused, slow_s = _small_job()
    assert makespan <= 1.18
    assert refused <= 0.052
    assert slow_s < 2.0


# Rule -> (what shows it, change that removes it). Each measure is sound with the law and not without the rule.
def _fleet_of_few(law: Constants) -> Result:
    """A fleet of few callers each, in which some take the opening storm for random refusals."""
    fleet = Fleet(processes=128, callers=8, law=law)
    return run(fleet, Store(ceiling_per_s=1400.0), seconds=40.0, warm_s=15.0, seed=2)


_RULES: dict[str, tuple[Callable[[Constants], bool], dict[str, float | bool]]] = {
    "the tolerance": (lambda law: _random_cost(law, share=0.2) >= 0.5, {"tolerance": False}),
    "the look at what is in flight": (lambda law: _random_cost(law, share=0.01) >= 0.9, {"trial": False}),
    "the answers that few callers wait for": (lambda law: _small_job(law)[1] <= 0.052, {"few_bad": 2.0}),
    "the cap on the trial of few callers": (lambda law: _small_job(law)[1] <= 0.052, {"few_cap": math.inf}),
    "the memory of the good rate": (lambda law: _after_outage(law)[0] >= 0.5, {"recovery": False}),
    "the large steps of the young": (lambda law: _small_job(law)[0] <= 1.18, {"young": False}),
    "the growing steps of the young": (lambda law: _small_job(law)[0] <= 1.18, {"young_silence": 0.0}),
    "the large cuts of the young": (lambda law: _small_job(law)[1] <= 0.052, {"young_cut": 0.05}),
    "a contradiction": (lambda law: _random_cost(law, share=0.2, callers=4) >= 0.5, {"contra_min": 2.0}),
    "the disproof": (
        lambda law: _fleet_of_few(law).fairness >= 0.82,
        {"disproof_low": 0.0, "disproof_high": math.inf},
    ),
    "a short run counts as longer": (lambda law: _small_job(law)[1] <= 0.052, {"run_min_s": 0.05}),
    "the cap on growth": (lambda law: _fairness_after_jump(law) >= 0.7, {"growth_cap": 0.5}),
    "growth": (lambda law: _after_doubling(law) >= 0.9, {"growth": 0.001}),
    "faster growth in silence": (lambda law: _after_doubling(law) >= 0.9, {"regrow_s": 60.0}),
    "the cut": (lambda law: _ceiling(law).refused_share <= 0.044, {"cut": 0.05}),
    "a cut ends the silence": (lambda law: _ceiling(law).refused_share <= 0.044, {"epochs_lost": 0.0}),
}


@pytest.mark.parametrize("rule", _RULES)
def test_each_rule_is_needed(rule: str) -> None:
    """The law passes the measure, and fails it without the rule."""
    holds, without = _RULES[rule]
    assert holds(LAW)
    assert not holds(replace(LAW, **without))  # type: ignore[arg-type]
