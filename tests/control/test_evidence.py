"""One hot blob, or the whole prefix."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from resilient_io.control.evidence import FADES_S, KEPT, Family, Whose, is_the_blob_s, note, whose


def seen(**counts: tuple[int, int]) -> Family:
    """Family that were asked for so often, and refused so often, just now."""
    blobs: Family = OrderedDict()
    for name, (asked, refused) in counts.items():
        for number in range(asked):
            note(blobs, name, 0.0, refused=number < refused)
    return blobs


def test_a_blob_that_is_refused_alone_is_hot() -> None:
    """The others of its prefix come through."""
    assert is_the_blob_s(seen(hot=(20, 1), a=(15, 0), b=(15, 0)), "hot", 1.0)


def test_a_blob_that_is_refused_like_the_others_is_not() -> None:
    """It is the prefix, or the account."""
    assert not is_the_blob_s(seen(one=(20, 4), a=(20, 4), b=(20, 4)), "one", 1.0)


def test_two_hot_blobs_do_not_speak_for_the_prefix() -> None:
    """Each is the worst of the others for the other one."""
    blobs = seen(one=(30, 10), two=(30, 10), a=(30, 0), b=(30, 0))
    assert is_the_blob_s(blobs, "one", 1.0)
    assert is_the_blob_s(blobs, "two", 1.0)
    assert not is_the_blob_s(seen(one=(30, 10), two=(30, 10), three=(30, 10), a=(30, 0)), "one", 1.0)


def test_a_blob_that_is_read_once_is_never_hot() -> None:
    """A dataset whose shards are each read once has no hot blob, only a hot prefix."""
    blobs: Family = OrderedDict()
    for number in range(200):
        note(blobs, f"shard-{number}", number * 0.01, refused=number % 3 == 0)
    assert not any(is_the_blob_s(blobs, name, 2.0) for name in list(blobs))


def test_a_blob_alone_in_its_prefix_says_nothing() -> None:
    """Nobody else speaks for the prefix."""
    assert not is_the_blob_s(seen(one=(100, 50)), "one", 1.0)


def test_counts_fade() -> None:
    """What was a minute ago is no evidence of now."""
    blobs = seen(hot=(20, 5), a=(40, 0))
    assert is_the_blob_s(blobs, "hot", 1.0)
    note(blobs, "hot", 3 * FADES_S, refused=True)
    assert not is_the_blob_s(blobs, "hot", 3 * FADES_S)


@given(st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=400))
def test_no_more_blobs_than_are_kept(answers: list[tuple[int, bool]]) -> None:
    """Whatever is asked for."""
    blobs: Family = OrderedDict()
    for number, (name, refused) in enumerate(answers):
        one = note(blobs, str(name), number * 0.1, refused=refused)
        assert 0.0 <= one.refused <= one.asked
        assert one.per_s(number * 0.1) >= 0.0
    assert len(blobs) <= KEPT


def test_a_prefix_that_is_refused_alone_is_charged_itself() -> None:
    """One hot prefix of several must not slow down the bucket."""
    assert whose(seen(hot=(20, 3), a=(50, 0), b=(50, 0)), "hot", 1.0) is Whose.MEMBER


def test_three_hot_prefixes_of_sixteen_are_no_evidence_against_the_bucket() -> None:
    """Each is seen without the worst of the others, and one more does not make several."""
    cold = {f"cold{number}": (100, 0) for number in range(13)}
    family = seen(one=(30, 2), two=(30, 2), three=(30, 2), **cold)
    assert whose(family, "one", 1.0) is Whose.UNSURE


def test_a_limit_above_is_seen_when_several_are_refused() -> None:
    """A scan over cold prefixes under the limit of the account: each is refused a little."""
    family = seen(**{f"p{number}": (10, 1) for number in range(6)})
    assert whose(family, "p0", 1.0) is Whose.FAMILY


def test_one_of_whom_nothing_is_known_says_nothing() -> None:
    """And neither do two, of which one is the worst other of the other."""
    assert whose(seen(), "new", 0.0) is Whose.UNSURE
    assert whose(seen(one=(10, 1), two=(10, 1)), "one", 1.0) is Whose.UNSURE
