"""Turns among processes that step one record."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_io.control import law, turns
from resilient_io.control.law_record import LAW


def limited(rate_per_s: float) -> list[float]:
    """A record that admits so many requests a second, with no token left."""
    rec = law.fresh(0.0)
    rec[law.LIMITED], rec[law.RATE], rec[law.TOKENS] = 1.0, rate_per_s, 0.0
    return rec


class Process:
    """One that always has a request to send."""

    def __init__(self, name: int, part: float = 1.0, late_s: float = 0.0) -> None:
        self.name, self.part, self.late_s = name, part, late_s
        self.place = turns.Place()
        self.asks_at = 0.0


def play(
    rec: list[float], processes: list[Process], until_s: float, killed: frozenset[int] = frozenset()
) -> Counter[int]:
    """Let each send as soon as it may; the killed take one turn and are not seen again."""
    sent: Counter[int] = Counter()
    while True:
        one = min(processes, key=lambda process: process.asks_at)
        now = one.asks_at
        if now >= until_s:
            return sent
        ready = turns.ready_at(rec, now, one.place, one.part)
        if one.name in killed:
            one.asks_at = until_s
        elif ready <= now:
            one.place.turn = 0.0
            sent[one.name] += 1
        else:
            one.asks_at = max(min(ready, now + 0.25), now + 1e-4) + one.late_s


@pytest.mark.parametrize("rate_per_s", [2.0, 10.0, 100.0])
def test_processes_take_turns(rate_per_s: float) -> None:
    """Each gets as many as the others, and all together what the rate gives."""
    sent = play(limited(rate_per_s), [Process(name) for name in range(8)], until_s=200.0)
    assert sum(sent.values()) == pytest.approx(200.0 * rate_per_s, rel=0.02)
    assert max(sent.values()) - min(sent.values()) <= max(3, 0.02 * sum(sent.values()) / 8)


def test_one_process_gets_all_that_the_others_leave() -> None:
    """Turns are taken by those who wait; an idle process takes none."""
    sent = play(limited(50.0), [Process(0)], until_s=20.0)
    assert sent[0] == pytest.approx(1000, rel=0.01)


def test_the_turn_of_a_killed_process_costs_one_token() -> None:
    """Nobody waits behind it."""
    processes = [Process(name) for name in range(8)]
    sent = play(limited(20.0), processes, until_s=100.0, killed=frozenset({1, 2, 3}))
    assert sum(sent.values()) >= 0.98 * 2000 - 3
    assert not sent[1]


def test_killed_processes_do_not_keep_a_slow_scope_from_probing() -> None:
    """At one request in five seconds the turns of the dead would be a minute; somebody goes every five seconds."""
    rec = limited(LAW.rate_min)
    dead = [Process(name) for name in range(12)]
    for process in dead:
        turns.ready_at(rec, 0.0, process.place)
    sent = play(rec, [Process(99)], until_s=60.0)
    assert sent[99] >= 10


def test_a_faster_rate_moves_the_turns_forward() -> None:
    """A turn is no fixed time: what the others learn helps the one who waits already."""
    rec = limited(1.0)
    turns.ready_at(rec, 0.0, turns.Place())
    second = turns.Place()
    assert turns.ready_at(rec, 0.0, second) == pytest.approx(2.0)
    rec[law.RATE] = 10.0
    assert turns.ready_at(rec, 0.0, second) == pytest.approx(0.2)


def test_a_turn_of_a_record_that_was_made_anew_is_forgotten() -> None:
    """It would lie in a future that never comes."""
    rec = limited(10.0)
    place = turns.Place(turn=500.0)
    turns.ready_at(rec, 0.0, place)
    assert place.turn == 1.0


@given(
    rates=st.lists(st.floats(0.2, 1000.0), min_size=1, max_size=20),
    asks=st.lists(st.tuples(st.floats(0.0, 0.5), st.integers(0, 3)), max_size=60),
)
def test_no_more_than_the_rate_gives(rates: list[float], asks: list[tuple[float, int]]) -> None:
    """Whatever the order of asking, what is sent never passes what was filled in, and one probe in five seconds."""
    rec, now, filled, sent = limited(rates[0]), 0.0, 0.0, 0
    places = [turns.Place() for _ in range(4)]
    for number, (step_s, who) in enumerate(asks):
        now += step_s
        filled += step_s * rec[law.RATE]
        place = places[who]
        ready = turns.ready_at(rec, now, place)
        if ready <= now:
            if not place.turn:
                turns.pay(rec, 0.5)
            place.turn, sent = 0.0, sent + 1
        rec[law.RATE] = rates[number % len(rates)]
    assert sent <= filled + 1.0 + now / LAW.wait_max_s + 1e-6


# -- weights -----------------------------------------------------------------------------------------


@given(
    parts=st.lists(st.sampled_from([1.0, 0.9, 0.5, 1 / 3, 0.2, 0.1, 0.01]), min_size=1, max_size=6),
    rate_per_s=st.sampled_from([5.0, 40.0, 300.0]),
)
@settings(deadline=None, max_examples=25)
def test_who_weighs_a_third_got_as_many_as_the_heaviest(parts: list[float], rate_per_s: float) -> None:
    """Each gets in proportion, the lightest too, and all together what the rate gives."""
    weights = [1.0, *parts]
    processes = [Process(name, part) for name, part in enumerate(weights)]
    until_s = 4000.0 / rate_per_s
    sent = play(limited(rate_per_s), processes, until_s)
    assert sum(sent.values()) == pytest.approx(4000, rel=0.02)
    for name, weight in enumerate(weights):
        assert sent[name] == pytest.approx(4000 * weight / sum(weights), rel=0.05, abs=2.0)


def test_a_light_process_alone_takes_what_is_left_over() -> None:
    """As long as the heavy one does not want it."""
    sent = play(limited(50.0), [Process(0, 0.1)], until_s=20.0)
    assert sent[0] >= 0.98 * 1000


def test_where_more_wait_than_may_take_a_turn_the_same_few_went_again_and_again() -> None:
    """At one a second five turns are out at most; who had one leaves its place to those who had none."""
    rng = Random(1)
    processes = [Process(name, late_s=rng.random() * 0.01) for name in range(16)]
    sent = play(limited(1.0), processes, until_s=1600.0)
    assert sum(sent.values()) >= 0.98 * 1600
    assert min(sent[name] for name in range(16)) >= 30
