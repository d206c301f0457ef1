"""Processes of one machine and one limit: found together, kept together, and each by itself where that fails."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from resilient_io.control import law
from resilient_io.control.law_record import ASSUMED, CHALLENGE, ENTRY_RATE
from resilient_io.coordinate.fleet import Job
from resilient_io.coordinate.node import _GRACE_TRIES, ALONE_S, NodePace
from resilient_io.coordinate.table import Table

from .conftest import Start

NOW = 1000.0


def enter(pace: NodePace, now: float, others: int = 0) -> None:
    """Let the process send some requests, one of which is refused."""
    for _ in range(1 + others):
        pace.on_send(now, 0.5)
    pace.on_refusal(now + 0.01, now, 0.5)


def test_the_refusal_of_one_limits_all(start: Start) -> None:
    """A process that was never refused waits too."""
    (one, _), (other, rec) = start(NOW), start(NOW)
    assert other.ready_at(NOW) == NOW
    enter(one, NOW)
    for _ in range(50):
        if other.ready_at(NOW + 0.02) > NOW + 0.02:
            break
        other.on_send(NOW + 0.02, 0.5)
    else:
        pytest.fail("the other process was not limited")
    assert rec[law.LIMITED] == 1.0


def test_what_was_not_a_level_s_own_is_given_back_for_all(start: Start) -> None:
    """One finds that a blob is hot; the prefix that paid for it is open for all, each with its own in flight again."""
    (one, rec), (other, other_rec) = start(NOW), start(NOW)
    other.on_send(NOW, 0.5)
    enter(one, NOW, others=3)
    other.ready_at(NOW + 0.02)
    assert (rec[law.LIMITED], other_rec[law.LIMITED]) == (1.0, 1.0)
    one.give_back(NOW + 0.03)
    for pace, own, in_flight in ((one, rec, 3.0), (other, other_rec, 1.0)):
        assert pace.ready_at(NOW + 0.04) == NOW + 0.04
        assert (own[law.LIMITED], own[law.IN_FLIGHT]) == (0.0, in_flight)
    one.give_back(NOW + 0.05)  # nothing to do
    enter(other, NOW + 0.06)
    assert one.flags[one.flag_at] != 0.0


def test_what_is_given_back_while_another_holds_the_lock_is_owed(start: Start, folder: Path) -> None:
    (one, rec), (other, _) = start(NOW), start(NOW)
    enter(one, NOW)
    table = Table(folder)
    slot = table.slot("store|bucket|train|read", NOW)
    assert slot is not None
    assert slot.lock()
    one.give_back(NOW + 0.03)
    slot.unlock()
    one.ready_at(NOW + 0.04)
    assert other.ready_at(NOW + 0.05) == NOW + 0.05
    assert rec[law.LIMITED] == 0.0


def test_an_open_level_takes_no_lock(start: Start, folder: Path) -> None:
    """Nothing is slowed down where nothing is limited: every lock is held by somebody else all the time."""
    pace, _ = start(NOW)
    other = Table(folder)
    slot = other.slot("store|bucket|train|read", NOW)
    assert slot is not None
    assert slot.lock()
    for number in range(100):
        now = NOW + number * 0.01
        assert pace.ready_at(now) == now
        pace.on_send(now, 0.5)
        pace.on_success(now + 0.005, now, False)
    assert pace._alone_until < NOW


def test_entry_is_decided_by_what_all_had_in_flight(start: Start) -> None:
    """Eight processes with four requests each are a crowd of thirty-two, not eight of four."""
    paces = [start(NOW) for _ in range(8)]
    for pace, _ in paces:
        for _ in range(4):
            pace.on_send(NOW, 0.5)
    first, rec = paces[0]
    first.on_refusal(NOW + 0.02, NOW, 0.5)
    assert rec[law.IN_FLIGHT] == 31.0
    assert rec[law.SHARE] == ASSUMED


def test_the_size_of_the_fleet_is_known_from_the_policy(folder: Path) -> None:
    """Two of eight processes."""
    paces = []
    for _ in range(2):
        rec = law.fresh(NOW)
        paces.append((NodePace(rec, Table(folder), "level", NOW, Job(), 8), rec))
    for pace, _ in paces:
        pace.on_send(NOW, 0.5)
    enter(paces[0][0], NOW)
    assert paces[0][1][law.SHARE] == pytest.approx(0.25)


def lock_out(pace: NodePace, since: float) -> float:
    """Let a process ask until it gives the lock up, which somebody else holds; return the time."""
    for number in range(_GRACE_TRIES - 1):
        now = since + 0.02 * number
        assert pace.ready_at(now) > now  # for a moment it waits
    pace.ready_at(since + 0.2)
    return since + 0.2


def play(
    paces: list[NodePace], *, ceiling_per_s: float, seconds: float, callers: int = 2, since: float = NOW
) -> tuple[Counter[int], int]:
    """Let processes send as fast as they may to a store with a ceiling; return what each got, and the refusals."""
    rng = random.Random(4)
    got: Counter[int] = Counter()
    refused, tokens, filled_at = 0, ceiling_per_s / 2, since
    # (at, process, sent_at or None): an answer that comes home, or a caller that asks.
    events = sorted((since + rng.random() / 100, number % len(paces), None) for number in range(len(paces) * callers))
    while events:
        now, who, sent_at = events.pop(0)
        if now > since + seconds:
            break
        if sent_at is not None:
            tokens = min(ceiling_per_s / 2, tokens + (now - filled_at) * ceiling_per_s)
            filled_at = now
            if tokens >= 1.0:
                tokens -= 1.0
                got[who] += 1
                paces[who].on_success(now, sent_at, True)
                events.append((now, who, None))
            else:
                refused += 1
                paces[who].on_refusal(now, sent_at, rng.random())
                events.append((now + rng.random() * 0.2, who, None))
        else:
            ready = paces[who].ready_at(now)
            if ready <= now:
                paces[who].on_send(now, rng.random())
                events.append((now + 0.02, who, now))
            else:
                events.append((ready + 1e-5, who, None))
        events.sort(key=lambda event: event[0])
    return got, refused


def test_processes_of_one_machine_share_its_limit_evenly(start: Start) -> None:
    """The ceiling is used, hardly passed, and nobody has more than the others."""
    got, refused = play([start(NOW)[0] for _ in range(6)], ceiling_per_s=60.0, seconds=60.0)
    total = sum(got.values())
    assert total >= 0.93 * 60.0 * 60.0
    assert refused <= 0.05 * total
    assert max(got.values()) <= 1.1 * min(got.values())


def test_a_process_that_finds_the_lock_held_decides_alone(start: Start, folder: Path) -> None:
    """At its part of the rate; and it comes back to the shared record when the lock is free."""
    paces = [start(NOW) for _ in range(4)]
    for pace, _ in paces:
        pace.on_send(NOW, 0.5)
    enter(paces[0][0], NOW)
    slot = Table(folder).slot("store|bucket|train|read", NOW)
    assert slot is not None
    assert slot.lock()
    shared, cautious = slot.read(NOW)[law.RATE], slot.read(NOW)[ENTRY_RATE]
    alone, rec = paces[1]
    later = lock_out(alone, NOW + 0.05)
    assert rec[law.RATE] == pytest.approx(max(law.LAW.rate_min, cautious / 4))
    alone.ready_at(later + 10.0)
    assert alone.ready_at(later + 10.05) <= later + 10.05  # it goes on
    slot.unlock()
    back = later + 10.0 + 2 * ALONE_S
    alone.ready_at(back)
    assert rec[law.RATE] == pytest.approx(shared, rel=0.01)


def test_processes_that_start_while_the_table_is_held_up_share_from_their_first_requests_on(
    start: Start, folder: Path
) -> None:
    """Eight that start together hold each other up for a moment: each went on alone through the whole entry."""
    table = Table(folder)
    first, _ = start(NOW)
    with table.held() as held:
        assert held
        known, rec = start(NOW)  # the level is in the table: no lock is needed to find it
        new = NodePace(law.fresh(NOW), Table(folder), "another level", NOW, Job())
    enter(first, NOW)
    known.on_success(NOW + 0.02, NOW, False)
    known.ready_at(NOW + 0.02)
    assert rec[law.LIMITED] == 1.0
    for number in range(3):
        new.on_send(NOW + 0.02 * number, 0.5)
    enter(new, NOW + 0.06, others=3)
    slot = table.slot("another level", NOW)
    assert slot is not None
    assert slot.is_limited()
    assert slot.read(NOW + 0.1)[law.IN_FLIGHT] == 6.0


def test_a_process_that_is_alone_does_not_take_itself_for_all(start: Start, folder: Path) -> None:
    """It has its part of all that the record holds, and gives up what all were trying out."""
    paces = [start(NOW) for _ in range(4)]
    for pace, _ in paces:
        pace.on_send(NOW, 0.5)
    enter(paces[0][0], NOW)
    slot = Table(folder).slot("store|bucket|train|read", NOW)
    assert slot is not None
    assert slot.lock()
    shared = slot.read(NOW)
    shared[law.GOOD], shared[law.SHARE] = 80.0, ASSUMED
    shared[law.ENTERING] = shared[CHALLENGE] = 1.0
    slot.write(shared)
    alone, rec = paces[1]
    lock_out(alone, NOW + 0.05)
    assert rec[law.GOOD] == 20.0
    assert rec[law.SHARE] == pytest.approx(ASSUMED / 4)
    assert rec[law.ENTERING] == rec[CHALLENGE] == 0.0
    slot.unlock()


def test_a_process_that_is_locked_out_twice_takes_its_part_each_time(start: Start, folder: Path) -> None:
    """It came back for a moment, and then went on with the rate of all as its own."""
    paces = [start(NOW) for _ in range(4)]
    for pace, _ in paces:
        pace.on_send(NOW, 0.5)
    enter(paces[0][0], NOW)
    slot = Table(folder).slot("store|bucket|train|read", NOW)
    assert slot is not None
    shared, cautious = slot.read(NOW)[law.RATE], slot.read(NOW)[ENTRY_RATE]
    alone, rec = paces[1]
    for start_at in (NOW + 0.05, NOW + 0.75):
        assert slot.lock()
        end = lock_out(alone, start_at)
        assert rec[law.RATE] == pytest.approx(max(law.LAW.rate_min, cautious / 4))
        slot.unlock()
        alone.ready_at(end + ALONE_S)
        assert rec[law.RATE] == pytest.approx(shared)


def test_a_process_that_lost_its_core_fills_no_time_twice(start: Start) -> None:
    """It read the clock before others and had the lock after them: so 64 processes sent twice the rate."""
    paces = [start(NOW) for _ in range(2)]
    for pace, _ in paces:
        pace.on_send(NOW, 0.5)
    (one, rec), (late, _) = paces
    enter(one, NOW)
    sent = 0
    for step in range(1, 501):
        now = NOW + 0.01 * step
        for pace, at in ((one, now), (late, now - 0.03)):
            while pace.ready_at(at) <= at:
                pace.on_send(at, 0.5)
                sent += 1
    assert sent <= 5.0 * rec[law.RATE] + 3.0


def test_one_busy_process_among_idle_ones_has_the_whole_ceiling(start: Start) -> None:
    """Within fifteen seconds 95 % of it, whatever the others had before."""
    paces = [start(NOW)[0] for _ in range(8)]
    play(paces, ceiling_per_s=60.0, seconds=20.0)
    busy = paces[:1]
    play(busy, ceiling_per_s=60.0, seconds=15.0, callers=16, since=NOW + 25.0)
    got, _ = play(busy, ceiling_per_s=60.0, seconds=10.0, callers=16, since=NOW + 40.0)
    assert got[0] >= 0.95 * 60.0 * 10.0


def test_what_was_learnt_while_the_lock_was_held_is_not_lost(start: Start, folder: Path) -> None:
    """A holder that lost its core for some milliseconds costs no answer."""
    pace, rec = start(NOW)
    pace.on_send(NOW, 0.5)
    enter(pace, NOW)
    slot = Table(folder).slot("store|bucket|train|read", NOW)
    assert slot is not None
    assert slot.lock()
    for number in range(5):
        pace.on_success(NOW + 0.020 + number / 1000, NOW, True)
    slot.unlock()
    before = slot.read(NOW)[law.COUNT]
    pace.on_success(NOW + 0.040, NOW, True)
    pace.ready_at(NOW + 0.040)
    assert slot.read(NOW)[law.COUNT] == before + 6.0
    assert rec[law.COUNT] == before + 6.0


def test_answers_are_told_with_the_next_question_or_when_there_are_many(start: Start, folder: Path) -> None:
    """Half of the locking is saved; a process that only waits for answers does not keep them for itself."""
    pace, _ = start(NOW)
    for _ in range(12):
        pace.on_send(NOW, 0.5)
    enter(pace, NOW)
    slot = Table(folder).slot("store|bucket|train|read", NOW)
    assert slot is not None
    before = slot.read(NOW)[law.COUNT]
    told = []
    for number in range(10):
        pace.on_success(NOW + 0.020 + number / 1000, NOW, False)
        told.append(slot.read(NOW)[law.COUNT] - before)
    assert told == [0, 0, 0, 0, 0, 0, 0, 0, 9, 9]
    pace.ready_at(NOW + 0.040)
    assert slot.read(NOW)[law.COUNT] == before + 10


def test_what_was_lifted_is_lifted_for_all(start: Start) -> None:
    """After a minute without a refusal, in which the limit did not bind."""
    (one, _), (other, rec) = start(NOW), start(NOW)
    enter(one, NOW)
    other.ready_at(NOW + 0.1)
    now = NOW + 1.0
    while now < NOW + 200.0:
        now += 0.5
        if one.ready_at(now) <= now:
            one.on_send(now, 0.5)
            one.on_success(now + 0.02, now, False)
    other.on_send(now, 0.5)
    assert rec[law.LIMITED] == 0.0
    assert rec[law.IN_FLIGHT] == 1.0


def test_a_corrupt_record_is_made_anew(start: Start, folder: Path) -> None:
    """Numbers that pass for a record, and break the law's sums, cost the limit and nothing else."""
    pace, rec = start(NOW)
    enter(pace, NOW)
    slot = Table(folder).slot("store|bucket|train|read", NOW)
    assert slot is not None
    bad = slot.read(NOW)
    bad[law.RATE] = 1e-300
    bad[law.TOKENS] = -1e300
    slot.write(bad)
    for step in range(10):
        now = NOW + 1.0 + step
        pace.ready_at(now)
        pace.on_send(now, 0.5)
        pace.on_success(now + 0.1, now, True)
    assert rec[law.RATE] > 0.0


def test_a_process_that_leaves_gives_its_row_back(start: Start, folder: Path) -> None:
    """A closed level counts no more."""
    pace, _ = start(NOW)
    pace.on_send(NOW, 0.5)
    slot = Table(folder).slot("store|bucket|train|read", NOW)
    assert slot is not None
    assert len(slot.rows()) == 1
    pace.close()
    assert not slot.rows()
