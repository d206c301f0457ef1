"""The division of a limit among nodes: equal among the busy, what idle ones leave to them, and always the same sum."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from resilient_io.control import joining, law
from resilient_io.control.fleet_split import (
    LONG_AGO_S,
    SPLIT,
    Entry,
    Sums,
    enter_heard,
    entry_of,
    gain_after,
    hears_of_limit,
    is_held_back,
    move,
    note_share,
    pause_s,
    proven,
    share,
    sums_of,
    transfer,
)
from resilient_io.control.law_record import ASSUMED, CHALLENGE, CHECKS, ENTERING, OUTAGE, RECOVERING, SLOW_START
from resilient_io.coordinate.slot import is_sound

NOW = 1000.0


def limited(rate: float, came: float | None = None, refused_ago_s: float = 1.0) -> list[float]:
    """The record of a settled node; by default all of its rate came through."""
    rec = law.fresh(NOW)
    rec[law.LIMITED], rec[law.RATE] = 1.0, rate
    rec[law.COUNT] = rate if came is None else came
    rec[law.REFUSED_AT] = NOW - refused_ago_s
    return rec


def exchange(nodes: list[list[float]], members: list[float], busy: list[bool], rounds: int) -> float:
    """Let all nodes exchange in turn; the clock stands, so that what came through stays. Return what is in the pot."""
    said: dict[int, Entry] = {}
    pot = 0.0
    for _ in range(rounds):
        for number, rec in enumerate(nodes):
            mine = said[number] = entry_of(rec, NOW, members[number], busy[number])
            others = sums_of(entry for other, entry in said.items() if other != number)
            given = transfer(mine, others, pot)
            pot -= given
            move(rec, NOW, mine, replace(others, given=given))
    return pot


def rates(nodes: list[list[float]]) -> list[float]:
    return [rec[law.RATE] for rec in nodes]


def test_busy_nodes_come_to_equal_parts_for_each_process() -> None:
    nodes = [limited(90.0), limited(10.0), limited(20.0)]
    exchange(nodes, [1.0, 1.0, 2.0], [True] * 3, rounds=20)
    one, other, double = rates(nodes)
    assert one == pytest.approx(other, rel=0.02)
    assert double == pytest.approx(2.0 * one, rel=0.02)


def test_a_node_whose_callers_weigh_three_times_as_much_got_no_more_than_the_others() -> None:
    """What is divided goes by weight; what part of the cluster it is goes by processes still."""
    heavy = entry_of(limited(50.0), NOW, 2.0, True, weight=3.0)
    light = entry_of(limited(50.0), NOW, 2.0, True)
    assert transfer(light, sums_of([heavy]), 0.0) == pytest.approx(-12.5)  # half of the way to a quarter
    assert transfer(heavy, sums_of([light]), 12.5) == pytest.approx(12.5)
    assert heavy.members == light.members
    idle = entry_of(limited(50.0, came=1.0), NOW, 2.0, False, weight=3.0)
    assert idle.wanting == 0.0


def test_the_sum_stays_as_it_is() -> None:
    """However the nodes take turns, and however far apart they begin."""
    chance = random.Random(1)
    for _ in range(50):
        nodes = [limited(chance.uniform(1.0, 100.0), came=0.0) for _ in range(chance.randint(2, 20))]
        before = sum(rates(nodes))
        busy = [True] + [chance.random() < 0.7 for _ in nodes[1:]]
        pot = exchange(nodes, [1.0] * len(nodes), busy, rounds=chance.randint(1, 20))
        assert sum(rates(nodes)) + pot == pytest.approx(before)


def test_what_an_idle_node_leaves_the_busy_ones_get() -> None:
    nodes = [limited(50.0, came=4.0), limited(50.0), limited(50.0), limited(50.0)]
    pot = exchange(nodes, [1.0] * 4, [False, True, True, True], rounds=30)
    idle, *busy = rates(nodes)
    assert idle == pytest.approx(SPLIT.spare * 4.0 + SPLIT.spare_by, rel=0.05)
    assert min(busy) > 60.0
    assert pot < 5.0


def test_a_node_that_becomes_busy_gets_its_part_back() -> None:
    nodes = [limited(6.0, came=6.0), limited(98.0), limited(98.0)]
    exchange(nodes, [1.0] * 3, [True] * 3, rounds=8)
    assert min(rates(nodes)) > 60.0


def test_where_nobody_could_use_more_nothing_moves() -> None:
    """A pause of a whole job, between two steps of training, must not cost it what it learnt."""
    nodes = [limited(80.0, came=0.0), limited(40.0, came=1.0)]
    exchange(nodes, [1.0] * 2, [False] * 2, rounds=20)
    assert rates(nodes) == [80.0, 40.0]


def test_a_node_without_others_keeps_its_rate() -> None:
    mine = entry_of(limited(80.0), NOW, 4.0, True)
    assert transfer(mine, Sums(), 10.0) == 0.0


@pytest.mark.parametrize("index", [ENTERING, CHECKS, OUTAGE, CHALLENGE, RECOVERING])
def test_what_a_node_is_trying_out_is_neither_divided_nor_moved(index: int) -> None:
    rec = limited(1000.0)
    rec[index] = 1.0
    mine = entry_of(rec, NOW, 3.0, True)
    assert mine == (0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 1.0, SPLIT.gain)
    others = sums_of([entry_of(limited(10.0), NOW, 3.0, True)])
    assert transfer(mine, others, 5.0) == 0.0
    move(rec, NOW, mine, replace(others, given=5.0))
    assert rec[law.RATE] == 1000.0


def test_an_open_node_says_that_it_is_there_and_no_more() -> None:
    assert entry_of(law.fresh(NOW), NOW, 2.0, True) == (0.0, 0.0, 0.0, 0.0, 2.0, 0.0, LONG_AGO_S, 0.5)


def test_a_node_that_exchanges_more_often_goes_no_faster() -> None:
    """Or it would leave in the pot, before the others come by, all that it has."""
    rate = 90.0
    for _ in range(100):
        mine = entry_of(limited(rate), NOW, 1.0, True, gain=gain_after(SPLIT.pause_s / 100))
        rate += transfer(mine, sums_of([entry_of(limited(10.0), NOW, 1.0, True)]), 0.0)
    assert rate > 70.0
    assert gain_after(1e9) == gain_after(SPLIT.pause_s) == SPLIT.gain


def test_what_all_got_can_be_had_again() -> None:
    """Nodes that were refused before anything came through are not left with nothing."""
    nodes = [limited(2.0, came=50.0), limited(3.0, came=50.0)]
    exchange(nodes, [1.0] * 2, [True] * 2, rounds=20)
    assert sum(rates(nodes)) == pytest.approx(SPLIT.had_share * 100.0, rel=0.06)


def test_a_memory_of_what_came_through_goes_with_the_rate() -> None:
    """Else two nodes would claim the same requests, and the sum would grow."""
    rich = limited(100.0)
    mine = entry_of(rich, NOW, 1.0, True)
    assert move(rich, NOW, mine, replace(sums_of([mine]), given=-25.0)) == pytest.approx(0.75)
    assert move(law.fresh(NOW), NOW, mine, Sums()) == 1.0


def test_what_is_known_to_come_through_fades_slowly_and_at_a_refusal_by_half() -> None:
    """A halved ceiling is believed within seconds; a moment in which little was asked says nothing."""
    rec = limited(40.0, came=40.0, refused_ago_s=50.0)
    assert proven(rec, NOW, 80.0, NOW - 1.0) == pytest.approx(76.1, abs=0.1)
    rec[law.REFUSED_AT] = NOW - 0.5
    assert proven(rec, NOW, 80.0, NOW - 1.0) == pytest.approx(58.0, abs=0.1)
    assert proven(rec, NOW, 20.0, NOW - 1.0) == 40.0


def test_while_some_are_refused_nobody_takes_more_than_comes_through() -> None:
    """What idle nodes left in the pot may be more than the store can give."""
    poor = limited(10.0, refused_ago_s=0.1)
    mine = entry_of(poor, NOW, 1.0, True, had=10.0)
    rich = replace(sums_of([entry_of(limited(90.0), NOW, 1.0, True)]), given=20.0)
    move(poor, NOW, mine, rich)
    assert poor[law.RATE] == pytest.approx(20.0)
    poor = limited(10.0, refused_ago_s=0.1)
    move(poor, NOW, mine, replace(rich, came=40.0))
    assert poor[law.RATE] == pytest.approx(10.0)


def test_the_search_for_a_share_ends_where_others_have_found_the_ceiling() -> None:
    """Slow start doubles each second, and the steps of a young scope are for those whom nobody tells."""
    rec = limited(10.0)
    rec[SLOW_START] = rec[law.YOUNG] = 1.0
    mine, others = entry_of(rec, NOW, 1.0, True), sums_of([entry_of(limited(10.0, refused_ago_s=0.1), NOW, 1.0, True)])
    move(rec, NOW, mine, others)
    assert rec[SLOW_START] == rec[law.YOUNG] == 0.0


def test_a_share_that_changes_in_the_middle_of_a_test_waits_for_its_end() -> None:
    """A dip of one that is alone would be judged as the challenge of one that is not: for 20 s, and wrongly."""
    rec = limited(10.0)
    rec[law.SHARE], rec[CHALLENGE] = ASSUMED, 1.0
    few = Sums(members=90.0, nodes=9.0)
    assert note_share(rec, 10.0, few) == pytest.approx(0.1)
    assert rec[law.SHARE] == ASSUMED
    rec[CHALLENGE] = 0.0
    note_share(rec, 10.0, few)
    assert rec[law.SHARE] == pytest.approx(0.1)


def test_a_lie_makes_no_storm_at_once() -> None:
    for given, least, most in ((1e7, 10.0, SPLIT.rise * 10.0 + SPLIT.rise_by), (-1e7, 10.0 * (1.0 - SPLIT.gain), 10.0)):
        rec = limited(10.0)
        mine = entry_of(rec, NOW, 1.0, True)
        move(rec, NOW, mine, Sums(nodes=1.0, rate=1e7, wanting=1.0, settled=1.0, members=1.0, given=given))
        assert least <= rec[law.RATE] <= most


def test_the_refusal_of_another_node_keeps_a_limit() -> None:
    rec = limited(10.0, refused_ago_s=59.0)
    move(rec, NOW, entry_of(rec, NOW, 1.0, True), Sums(nodes=1.0, members=1.0, refused_ago_s=2.0))
    assert rec[law.REFUSED_AT] == NOW - 2.0


def test_who_hears_of_a_limit_begins_with_part_of_it() -> None:
    others = sums_of([entry_of(limited(60.0), NOW, 4.0, True)] * 3)
    assert hears_of_limit(others)
    rows = [joining.row_of(law.fresh(NOW), NOW, 8.0) for _ in range(4)]
    rec = enter_heard(rows, NOW, 4.0, others)
    assert rec[law.RATE] == SPLIT.rise_by  # nothing came through yet
    assert rec[law.IN_FLIGHT] == 32.0
    assert is_sound(rec, NOW)
    assert entry_of(rec, NOW, 4.0, True).settled == 4.0


def test_it_begins_with_what_came_through_where_that_is_more() -> None:
    """All of a job that starts at once have got something before the first of them is refused."""
    own = law.fresh(NOW)
    own[law.COUNT] = 40.0
    others = sums_of([entry_of(limited(60.0), NOW, 1.0, True)])
    assert enter_heard([joining.row_of(own, NOW, 8.0)], NOW, 1.0, others)[law.RATE] == pytest.approx(30.0)


@pytest.mark.parametrize(
    "others",
    [
        Sums(),
        sums_of([entry_of(limited(60.0, refused_ago_s=SPLIT.heard_s + 1.0), NOW, 1.0, True)]),
        sums_of([entry_of(law.fresh(NOW), NOW, 1.0, True)]),
    ],
)
def test_nothing_is_heard_where_nobody_is_at_a_ceiling_now(others: Sums) -> None:
    assert not hears_of_limit(others)


def test_the_share_of_a_node() -> None:
    assert share(8.0, Sums(nodes=99.0, members=792.0)) == pytest.approx(0.01)
    assert share(8.0, Sums()) == ASSUMED
    # A dip of one node of four moves the sum enough to tell chance from load.
    assert share(16.0, Sums(nodes=3.0, members=48.0)) == ASSUMED
    assert share(1.0, Sums(nodes=3.0, members=48.0)) == pytest.approx(1 / 49)


def test_tokens_taken_in_advance_say_that_somebody_waits() -> None:
    rec = limited(10.0)
    rec[law.TOKENS] = -3.0
    assert is_held_back(rec, NOW + 0.1)
    assert not is_held_back(rec, NOW + 0.3)


def test_a_large_cluster_asks_less_often() -> None:
    assert pause_s(4) == pause_s(128) == SPLIT.pause_s
    assert pause_s(1280) == 10.0 * SPLIT.pause_s
