"""Places in flight of several processes, played by several tables on one file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resilient_io.coordinate.places import NodePlaces, OwnPlaces, Places
from resilient_io.coordinate.table import Table

NOW = 1000.0
NAME = "store|bucket|train|read"


@pytest.fixture
def places(folder: Path) -> Callable[..., NodePlaces]:
    """Make those of one more process: `places(name)`."""
    return lambda name=NAME: NodePlaces(Table(folder), name)


def taken(places: Places, number: int, now: float, most: int) -> bool:
    """Let a request go, if it may."""
    if places.ready_at(now, most) > now:
        return False
    places.fill(number, now)
    return True


def test_all_processes_together_had_as_many_in_flight_as_each_of_them(places: Callable[..., NodePlaces]) -> None:
    one, other = places(), places()
    assert [taken(one, number, NOW, 3) for number in range(2)] == [True, True]
    assert [taken(other, number, NOW, 3) for number in range(2)] == [True, False]
    one.free(0, NOW)
    one.free(0, NOW)  # twice is no harm
    assert taken(other, 2, NOW + 0.01, 3)
    assert not taken(one, 3, NOW + 0.01, 3)


def test_scopes_have_places_of_their_own(places: Callable[..., NodePlaces]) -> None:
    one, other = places(), places("another")
    assert taken(one, 0, NOW, 1)
    assert taken(other, 0, NOW, 1)


def test_a_place_that_was_taken_is_kept_until_the_request_goes(places: Callable[..., NodePlaces]) -> None:
    """A limit may hold it up meanwhile; it takes no second one, and gives it back if its caller is gone."""
    one, other = places(), places()
    assert one.ready_at(NOW, 1) == NOW
    assert one.ready_at(NOW + 0.1, 1) == NOW + 0.1
    assert other.ready_at(NOW + 0.1, 1) > NOW + 0.1
    one.leave()
    assert other.ready_at(NOW + 0.2, 1) == NOW + 0.2


def test_who_gives_a_place_back_took_it_again_before_those_who_waited(places: Callable[..., NodePlaces]) -> None:
    """It is left to them until they have looked; if they do not want it any more it is had at once."""
    one, other = places(), places()
    assert taken(one, 0, NOW, 1)
    assert not taken(other, 0, NOW + 0.1, 1)
    one.free(0, NOW + 0.2)
    assert not taken(one, 1, NOW + 0.2, 1)
    assert taken(other, 0, NOW + 0.21, 1)
    other.free(0, NOW + 0.3)
    one.leave()
    assert taken(other, 1, NOW + 0.33, 1)
    other.free(1, NOW + 0.34)
    assert taken(other, 2, NOW + 0.34, 1)


def test_who_waits_looks_often_at_first_and_fifty_times_a_second_later(places: Callable[..., NodePlaces]) -> None:
    one, other = places(), places()
    assert taken(one, 0, NOW, 1)
    assert other.ready_at(NOW, 1) == pytest.approx(NOW + 0.004)
    assert other.ready_at(NOW + 0.04, 1) == pytest.approx(NOW + 0.05)
    assert other.ready_at(NOW + 9.0, 1) == pytest.approx(NOW + 9.02)


def test_many_places_are_found_though_few_are_tried_at_once(places: Callable[..., NodePlaces]) -> None:
    one, other = places(), places()
    assert all(taken(one, number, NOW, 500) for number in range(400))
    got = sum(taken(other, step, NOW + step * 0.02, 500) for step in range(140))
    assert got == 100


def test_a_table_that_is_removed_under_way_keeps_nobody_out(places: Callable[..., NodePlaces], folder: Path) -> None:
    one, other = places(), places()
    assert taken(one, 0, NOW, 1)
    assert not taken(other, 0, NOW, 1)
    other._table.path.unlink()
    assert taken(other, 0, NOW + 2.0, 1)
    one.free(0, NOW + 2.0)
    assert not taken(one, 1, NOW + 4.0, 1)


HOLD = """
import sys
from pathlib import Path
from resilient_io.coordinate.places import NodePlaces
from resilient_io.coordinate.table import Table
places = NodePlaces(Table(Path(sys.argv[1])), sys.argv[2])
for number in range(2):
    assert places.ready_at(1.0, 2) == 1.0
    places.fill(number, 1.0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_the_places_of_a_killed_process_come_back_at_once(
    places: Callable[..., NodePlaces], folder: Path, stopped: bool
) -> None:
    """One that is only stopped keeps them: its requests are under way."""
    one = places()
    pipe: Any = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(folder), NAME]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            if stopped:
                holder.send_signal(signal.SIGSTOP)
            assert not taken(one, 0, NOW, 2)
        finally:
            holder.kill()
    assert [taken(one, number, NOW + 0.02, 2) for number in range(3)] == [True, True, False]


def test_a_process_alone_counts_its_own() -> None:
    own = OwnPlaces()
    assert [taken(own, number, NOW, 2) for number in range(3)] == [True, True, False]
    own.free(1, NOW)
    assert own.ready_at(NOW, 2) == NOW
    own.leave()
    assert taken(own, 3, NOW, 2)
    assert not taken(own, 4, NOW, 2)
