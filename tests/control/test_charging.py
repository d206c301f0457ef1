"""Whose a refusal is, and that no two levels pay for one."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from resilient_io.control import charging, evidence, law
from resilient_io.control.charging import Outcome
from resilient_io.control.evidence import Blobs
from resilient_io.control.scopes import scope_path

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


def seen(**refusals: int) -> Blobs:
    """Fifty requests of each blob, so many of them refused."""
    blobs: Blobs = OrderedDict()
    for name, count in refusals.items():
        for number in range(50):
            evidence.note(blobs, name, 0.0, refused=number < count)
    return blobs


def test_what_the_service_says_decides() -> None:
    hot = seen(hot=40, a=0, b=0)
    assert charging.whose(PATH, "account", Outcome.REFUSED, hot, "hot", 0.0) == PATH.index_of("account")


def test_without_a_word_it_is_the_prefix() -> None:
    assert charging.whose(PATH, None, Outcome.REFUSED, OrderedDict(), "", 0.0) == PREFIX
    assert charging.whose(PATH, None, Outcome.REFUSED, seen(a=5, b=5, c=5), "a", 0.0) == PREFIX


def test_a_blob_that_is_refused_far_more_than_the_others_pays_itself() -> None:
    """One past the levels of the path, and the last one of the path of the blob."""
    hot = seen(hot=40, a=0, b=0)
    assert charging.whose(PATH, None, Outcome.REFUSED, hot, "hot", 0.0) == PREFIX + 1
    narrow = PATH.of_blob("hot")
    assert charging.whose(narrow, None, Outcome.REFUSED, hot, "hot", 0.0) == len(narrow.levels()) - 1
    assert charging.whose(narrow, None, Outcome.REFUSED, seen(hot=5, a=5, b=5), "hot", 0.0) == PREFIX


@pytest.mark.parametrize("outcome", [Outcome.SUSPECTED, Outcome.DROPPED])
def test_what_is_no_refusal_is_no_evidence(outcome: Outcome) -> None:
    assert charging.whose(PATH, None, outcome, seen(hot=40, a=0, b=0), "hot", 0.0) == PREFIX


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
    blobs: Blobs = OrderedDict()
    for step in range(100):
        evidence.note(blobs, "hot", step / 10, refused=False)
    rate = law.fresh(10.0)
    charging.begin_hot(rate, blobs["hot"], 10.0)
    assert rate[law.COUNT] == pytest.approx(8.6, abs=1.5)
    law.on_refusal(rate, 10.0, 9.99, 0.0)
    limited = list(rate)
    charging.begin_hot(rate, blobs["hot"], 10.0)
    assert rate == limited
