"""What processes did with an open scope, put together."""

from __future__ import annotations

from resilient_io.control import joining, law
from resilient_io.control.law_record import BEGAN_AT, COUNT_BEFORE, ENTRY_RATE, delivered_per_s


def served(count: int, *, at_s: float, in_flight: int) -> list[float]:
    """The record of a process that was served so often in the second up to `at_s`, and has requests out."""
    rec = law.fresh(at_s - 1.0)
    for number in range(count):
        now = at_s - 1.0 + number / count
        law.on_send(rec, now, 0.5)
        law.on_success(rec, now, now, backlog=False)
    for _ in range(in_flight):
        law.on_send(rec, at_s, 0.5)
    return rec


def test_entry_knows_what_all_processes_got() -> None:
    """Four processes with 25 a second each: the rate that is entered with is that of a hundred."""
    mine = served(25, at_s=100.0, in_flight=3)
    others = [joining.row_of(served(25, at_s=100.0, in_flight=3), 100.0, 3.0) for _ in range(3)]
    assert joining.join(mine, others, 100.0) == 3
    assert mine[law.IN_FLIGHT] == 12.0
    assert 90.0 <= delivered_per_s(mine, 100.0) <= 100.0


def test_rows_of_the_gone_and_of_the_future_do_not_count() -> None:
    """A process that was killed half a minute ago, and one whose clock is another."""
    mine = served(10, at_s=100.0, in_flight=1)
    old = joining.row_of(served(50, at_s=60.0, in_flight=40), 60.0, 40.0)
    future = joining.row_of(served(50, at_s=500.0, in_flight=40), 500.0, 40.0)
    assert joining.join(mine, [old, future], 100.0) == 0
    assert mine[law.IN_FLIGHT] == 1.0


def test_a_process_that_was_quiet_for_a_second_is_aligned() -> None:
    """Its count of the second before is not taken for this second's."""
    mine = law.fresh(100.5)
    row = joining.row_of(served(40, at_s=100.0, in_flight=0), 99.99, 0.0)
    joining.join(mine, [row], 100.5)
    assert (mine[law.COUNT], mine[COUNT_BEFORE]) == (0.0, 40.0)
    assert mine[BEGAN_AT] < 100.0


def test_a_part_of_an_undecided_entry_takes_the_cautious_rate() -> None:
    """The holder of the lock was stopped at the entry: four went on at all that they had asked for."""
    rec = law.fresh(100.0)
    for number in range(8):
        law.on_send(rec, 100.0 + number / 100, 0.5)
    for number in range(4):
        law.on_success(rec, 100.1 + number / 100, 100.0, backlog=False)
    law.on_refusal(rec, 100.2, 100.05, 0.5)
    assert rec[law.ENTERING] == 1.0
    assert rec[law.RATE] > rec[ENTRY_RATE]
    joining.part(rec, 4.0, 2.0, 100.3)
    assert rec[law.RATE] == rec[ENTRY_RATE]
    assert rec[law.ENTERING] == 0.0
