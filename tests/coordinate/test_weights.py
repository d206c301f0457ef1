"""Processes of different weight at one limited record: who gets how much of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_io.control import law
from resilient_io.coordinate.fleet import Job
from resilient_io.coordinate.node import NodePace
from resilient_io.coordinate.table import Table

NOW = 1000.0
NAME = "store|bucket|train|read"


class Machine:
    """Processes that share a table, each with a caller that always has a request; the rate stays as it is."""

    def __init__(self, folder: Path, weights: Sequence[float], rate_per_s: float) -> None:
        self.weights, self.now, self.rate_per_s = list(weights), NOW, rate_per_s
        self.paces = [NodePace(law.fresh(NOW), Table(folder), NAME, NOW, Job()) for _ in weights]
        self._asks_at = dict.fromkeys(range(len(weights)), NOW)
        self._table = Table(folder)
        self._limit()

    def _limit(self) -> None:
        slot = self._table.slot(NAME, self.now)
        assert slot is not None
        rec = law.fresh(self.now)
        rec[law.LIMITED], rec[law.RATE], rec[law.TOKENS] = 1.0, self.rate_per_s, 0.0
        slot.write(rec)

    def go_on(self, seconds: float, gone: frozenset[int] = frozenset()) -> Counter[int]:
        """Let all but those that are gone send as they may; return how many each did."""
        sent: Counter[int] = Counter()
        until = self.now + seconds
        while True:
            who = min((who for who in self._asks_at if who not in gone), key=self._asks_at.__getitem__)
            if self._asks_at[who] >= until:
                self.now = until
                return sent
            now = self._asks_at[who]
            ready = self.paces[who].ready_at(now, self.weights[who])
            if ready <= now:
                self.paces[who].on_send(now, 0.5)
                sent[who] += 1
            else:
                self._asks_at[who] = max(ready, now + 1e-4)


@given(
    weights=st.lists(st.sampled_from([0.1, 0.3, 0.5, 1.0, 2.5, 3.0, 10.0]), min_size=2, max_size=6),
    rate_per_s=st.sampled_from([10.0, 100.0]),
)
@settings(deadline=None, max_examples=6)
def test_a_process_of_weight_three_got_no_more_than_one_of_weight_one(weights: list[float], rate_per_s: float) -> None:
    """Each gets in proportion to its weight whatever the others weigh, and nobody starves."""
    with TemporaryDirectory() as folder:
        sent = Machine(Path(folder), weights, rate_per_s).go_on(2000.0 / rate_per_s)
    total = sum(sent.values())
    assert total == pytest.approx(2000, rel=0.03)
    for who, weight in enumerate(weights):
        assert sent[who] == pytest.approx(total * weight / sum(weights), rel=0.1, abs=4.0)


def test_the_limit_is_used_whole_when_only_a_light_process_wants_it(folder: Path) -> None:
    """The heavy one is done; a moment later the light one has all that there is."""
    machine = Machine(folder, [10.0, 0.1], 50.0)
    both = machine.go_on(20.0)
    assert both[1] <= 20
    assert machine.go_on(1.0, gone=frozenset({0}))[1] >= 40
    assert machine.go_on(10.0, gone=frozenset({0}))[1] >= 0.98 * 500


def test_two_light_processes_share_what_a_heavy_one_left(folder: Path) -> None:
    """In proportion between them."""
    machine = Machine(folder, [10.0, 0.3, 0.1], 50.0)
    machine.go_on(5.0)
    machine.go_on(2.0, gone=frozenset({0}))
    got = machine.go_on(40.0, gone=frozenset({0}))
    assert got[1] + got[2] >= 0.98 * 2000
    assert got[1] == pytest.approx(3 * got[2], rel=0.05)


def test_a_killed_heavy_process_costs_one_turn(folder: Path) -> None:
    """The others go round as before, with nothing kept for it."""
    machine = Machine(folder, [10.0, *[1.0] * 4], 40.0)
    machine.go_on(5.0)
    got = machine.go_on(10.0, gone=frozenset({0}))
    assert sum(got.values()) >= 400 - 0.02 * 400 - 2
    assert max(got.values()) - min(got.values()) <= 8


def test_a_lie_about_the_weights_in_the_table_is_not_believed(folder: Path) -> None:
    """Whatever stands there, all go on."""
    machine = Machine(folder, [1.0, 1.0], 50.0)
    slot = Table(folder).slot(NAME, NOW)
    assert slot is not None
    for weight, asked_at in ((1e300, NOW + 1e9), (float("nan"), float("nan")), (-5.0, NOW), (1e6, NOW)):
        slot.lead(weight, asked_at)
        got = machine.go_on(2.0)
        assert sum(got.values()) >= 96
        assert min(got.values()) >= 45
    assert slot.mean_weight == 1.0


def test_the_average_weight_of_those_who_wait_is_known(folder: Path) -> None:
    """A cluster divides by it (`fleet_split.Entry.wanting`)."""
    machine = Machine(folder, [3.0, 1.0], 50.0)
    machine.go_on(10.0)
    slot = Table(folder).slot(NAME, machine.now)
    assert slot is not None
    assert slot.mean_weight == pytest.approx(2.0, abs=0.5)
