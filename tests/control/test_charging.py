"""Whose a refusal is, and that no two levels pay for one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_io.control import charging, evidence, law
from resilient_io.control.blame import Blame, give_back
from resilient_io.control.charging import Outcome
from resilient_io.control.evidence import Family
from resilient_io.control.law import Record
from resilient_io.control.scopes import ScopePath, scope_path

PATH = scope_path(endpoint="https://a.blob.test", account="a", bucket="c", prefix="train", op_class="read")
PREFIX = len(PATH.levels()) - 1


class Level:
    """What it was told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_refusal(self, now: float, sent_at: float, u: float) -> None:
        self.told.append("refused")

    def on_suspected(self, now: float, sent_at: float, u: float) -> None:
        self.told.append("suspected")

    def on_dropped(self, now: float) -> None:
        self.told.append("dropped")


@dataclass(slots=True)
class Place:
    """One level of the path: its record, and what is known of those below it."""

    rate: Record
    below: Family
    blame: Blame | None = None


def places(path: ScopePath = PATH, *, limited: str = "", below: dict[str, Family] | None = None) -> list[Place]:
    """Return the levels of a path; `limited` and `below` are keyed by the end of a level's key."""
    found = []
    for key in path.levels():
        rate = law.fresh(0.0)
        if limited and key.endswith(limited):
            rate[law.LIMITED], rate[law.RATE] = 1.0, 100.0
        families = [family for end, family in (below or {}).items() if key.endswith(end)]
        found.append(Place(rate, families[0] if families else OrderedDict()))
    return found


def seen(**refusals: int) -> Family:
    """Fifty requests of each member, so many of them refused."""
    family: Family = OrderedDict()
    for name, count in refusals.items():
        for number in range(50):
            evidence.note(family, name, 0.0, refused=number < count)
    return family


def charged(levels: list[Place], path: ScopePath = PATH, said: str | None = None, blob: str = "") -> int:
    return charging.whose(levels, path, said, Outcome.REFUSED, blob, 0.0)


def test_what_the_service_says_decides() -> None:
    hot = {"|train|read": seen(hot=40, a=0, b=0)}
    assert charged(places(below=hot), said="account", blob="hot") == PATH.index_of("account")


def test_without_a_word_it_is_the_prefix() -> None:
    assert charged(places()) == PREFIX
    assert charged(places(below={"|train|read": seen(a=5, b=5, c=5)}), blob="a") == PREFIX


def test_a_blob_that_is_refused_far_more_than_the_others_pays_itself() -> None:
    """One past the levels of the path, and the last one of the path of the blob."""
    hot = seen(hot=40, a=0, b=0)
    assert charged(places(below={"|train|read": hot}), blob="hot") == PREFIX + 1
    narrow = PATH.of_blob("hot")
    assert charged(places(narrow, below={"|train|read": hot}), narrow, blob="hot") == len(narrow.levels()) - 1


def test_a_limit_above_that_is_known_stands_for_more() -> None:
    """The bucket is limited, and nothing speaks for this prefix alone."""
    assert charged(places(limited="|c|read")) == PREFIX - 1


def test_levels_that_are_left_out_change_nothing() -> None:
    """The simulation of one prefix keeps the last level only."""
    assert charged(places()[-1:]) == 0
    assert charged(places()[-1:], said="account") == 0


@pytest.mark.parametrize("outcome", [Outcome.SUSPECTED, Outcome.DROPPED])
def test_what_is_no_refusal_is_no_evidence(outcome: Outcome) -> None:
    levels = places(below={"|train|read": seen(hot=40, a=0, b=0)})
    assert charging.whose(levels, PATH, None, outcome, "hot", 0.0) == PREFIX


@pytest.mark.parametrize(
    ("outcome", "told"),
    [(Outcome.REFUSED, "refused"), (Outcome.SUSPECTED, "suspected"), (Outcome.DROPPED, "dropped")],
)
def test_one_level_pays_and_the_others_count(outcome: Outcome, told: str) -> None:
    levels = [Level() for _ in range(4)]
    charging.settle_failed(levels, levels[1], outcome, 1.0, 0.5, 0.0)
    assert [level.told for level in levels] == [["dropped"], [told], ["dropped"], ["dropped"]]


def test_a_new_level_pays_beside_those_of_the_path() -> None:
    levels, hot = [Level() for _ in range(2)], Level()
    charging.settle_failed(levels, hot, Outcome.REFUSED, 1.0, 0.5, 0.0)
    assert [level.told for level in (*levels, hot)] == [["dropped"], ["dropped"], ["refused"]]


def test_a_new_level_knows_what_came_through() -> None:
    blobs: Family = OrderedDict()
    for step in range(100):
        evidence.note(blobs, "hot", step / 10, refused=False)
    evidence.note(blobs, "other", 10.0, refused=False)
    prefix, rate = Place(law.fresh(10.0), blobs), law.fresh(10.0)
    prefix.rate[law.IN_FLIGHT] = 16.0
    charging.begin_hot(rate, prefix, "hot", 10.0)
    assert rate[law.COUNT] == pytest.approx(8.6, abs=1.5)
    assert rate[law.IN_FLIGHT] == 16.0
    law.on_refusal(rate, 10.0, 9.99, 0.0)
    limited = list(rate)
    charging.begin_hot(rate, prefix, "hot", 10.0)
    assert rate == limited


def test_a_blob_that_is_known_to_be_hot_pays_itself_although_little_was_seen_of_it_of_late() -> None:
    """Held at one request a second it was forgotten among a thousand others, and its prefix paid for it again."""
    blobs = seen(a=0, b=0)
    levels = places(PATH.of_blob("hot"), below={"|train|read": blobs})
    assert charged(levels, PATH.of_blob("hot"), blob="hot") == PREFIX + 1
    refused = {"|train|read": seen(hot=5, a=5, b=5, c=5)}
    assert charged(places(PATH.of_blob("hot"), below=refused), PATH.of_blob("hot"), blob="hot") == PREFIX


# -- what a prefix was charged with for a hot blob ------------------------------------------------------


def refuse(prefix: Place, levels: list[Place], blob: str, now: float) -> int:
    """A refusal of a blob, as the gate takes it."""
    index = charging.whose(levels, PATH, None, Outcome.REFUSED, blob, now)
    if index == PREFIX:
        law.on_refusal(prefix.rate, now, now, 0.5)
    return index


def test_a_prefix_is_opened_when_the_others_show_that_the_refused_blob_is_hot() -> None:
    levels = places()
    prefix = levels[PREFIX]
    assert [refuse(prefix, levels, "hot", 0.01 * number) for number in range(12)] == [PREFIX] * 12
    assert law.is_limited(prefix.rate)
    for number in range(4):
        now = 1.0 + number
        assert not charging.is_cleared(prefix, now)
        charging.note_success(levels, PATH, f"other {number}", now)
    assert charging.is_cleared(prefix, 6.0)
    give_back(prefix.rate)
    assert law.rate_per_s(prefix.rate) == float("inf")
    assert not charging.is_cleared(prefix, 7.0), "it is said once"
    assert refuse(prefix, levels, "hot", 7.0) == PREFIX + 1


def test_two_hot_blobs_must_both_be_known_before_their_prefix_is_opened() -> None:
    levels = places()
    prefix = levels[PREFIX]
    for number in range(12):
        refuse(prefix, levels, "one", 0.01 * number)
    refuse(prefix, levels, "two", 0.2)
    refuse(prefix, levels, "two", 0.2)
    for number in range(40):
        charging.note_success(levels, PATH, f"other {number % 20}", 1.0)
    assert not charging.is_cleared(prefix, 2.0)
    for _ in range(10):
        charging.note_success(levels, PATH, "two", 3.0)
    assert charging.is_cleared(prefix, 4.0)


@given(st.lists(st.integers(0, 5), min_size=30, max_size=200), st.randoms(use_true_random=False))
def test_a_prefix_whose_blobs_are_all_refused_is_never_opened(order: list[int], rng: Random) -> None:
    """Six blobs in any order, each refused half of the time once all were seen to be."""
    levels = places()
    prefix = levels[PREFIX]
    for number in range(6):
        for _ in range(20):
            charging.note_success(levels, PATH, str(number), 0.0)
        for _ in range(20):
            refuse(prefix, levels, str(number), 0.0)
    charging.is_cleared(prefix, 0.5)
    prefix.blame = None
    for step, number in enumerate(order):
        now = 1.0 + step * 0.06
        if rng.random() < 0.5:
            assert refuse(prefix, levels, str(number), now) == PREFIX
        else:
            charging.note_success(levels, PATH, str(number), now)
        assert not charging.is_cleared(prefix, now)


@given(st.integers(1, 40), st.integers(0, 40))
def test_next_to_all_that_a_prefix_was_charged_with_must_be_a_hot_blob_s(hot: int, others: int) -> None:
    blobs = seen(hot=40, a=0, b=0, c=0)
    blame = Blame()
    for _ in range(hot):
        blame.add("hot")
    for number in range(others):
        blame.add(f"other {number}")
    assert blame.is_of_hot_ones(blobs, 0.0) == (hot >= 0.9 * (hot + others))


def test_an_open_scope_has_nothing_to_give_back() -> None:
    rate = law.fresh(0.0)
    law.on_open(rate, 1.0, 5, 3)
    before = list(rate)
    give_back(rate)
    assert rate == before
