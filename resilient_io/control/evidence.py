"""Whose a refusal is where the service does not say: that of one member of a family, or of the family's own limit.

A family is what lies one level down: the blobs of a prefix, the prefixes of a bucket, the buckets of an account. One
that is hot must not slow down the others, and a limit that all of them share must not be learnt by each for itself.
Azure limits each blob beside the account, S3 each prefix, and both say no more than that they are busy. Counts fade
with a time constant of 30 s and are kept for a few members; nothing is known of one that is asked once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Final

# Seconds after which a count has faded to a third (control-law.md, section 4).
FADES_S: Final = 30.0
# Members of a family that are remembered; the one that was asked for longest ago is forgotten.
KEPT: Final = 64
# How many that were asked for often are passed over when one is to be forgotten.
_CHANCES: Final = 4
# Requests of a blob from which it can be hot at all: below that its refusals say nothing of it alone.
LEAST: Final = 10.0
# Requests of the other blobs that must have been answered for them to say anything: if some were refused ...
OTHERS: Final = 20.0
# ... and if none was. A blob that is wrongly charged costs itself a little, a prefix costs all others much.
FEW: Final = 3.0
# Refusals of a member from which it can be an exception (control-law.md, section 4, which the next two are from too).
_EXCEPTION: Final = 3.0
# Among the others of a family so many must have been refused, one faded refusal each ...
_SEVERAL, _A_REFUSAL = 2, 0.3
# ... and of all their requests this share, for a limit of the family's own to be seen.
_SHARE: Final = 0.005


@dataclass(slots=True, kw_only=True)
class Seen:
    """What became of the requests for one member, faded to `at_s`."""

    at_s: float
    asked: float = 0.0
    refused: float = 0.0
    first_s: float = 0.0

    def fade(self, now: float) -> None:
        """Let the counts fade to `now`."""
        kept = math.exp(-max(0.0, now - self.at_s) / FADES_S)
        self.asked *= kept
        self.refused *= kept
        self.at_s = now

    def per_s(self, now: float) -> float:
        """Return about how many requests a second came through."""
        return (self.asked - self.refused) / max(1.0, min(FADES_S, now - self.first_s))


Family = OrderedDict[str, Seen]


def note(family: Family, name: str, now: float, *, refused: bool, answers: int = 1) -> Seen:
    """Count the answers to requests for a member, all of a kind."""
    seen = family.get(name)
    if seen is None:
        seen = family[name] = Seen(at_s=now, first_s=now)
        if len(family) > KEPT:
            _forget_one(family, now)
    else:
        family.move_to_end(name)
        seen.fade(now)
    seen.asked += answers
    seen.refused += answers * refused
    return seen


def _forget_one(family: Family, now: float) -> None:
    """Forget who was asked for longest ago.

    One that was asked for often has another chance, or a crowd of those that are asked for once would hide a slow one.
    """
    for _ in range(_CHANCES):
        name, seen = family.popitem(last=False)
        seen.fade(now)
        if seen.asked < LEAST:
            return
        family[name] = seen
    family.popitem(last=False)


class Whose(Enum):
    """What the others of a family say of a refusal of one of them."""

    MEMBER = "one that is refused far more than the others"
    FAMILY = "several of the others are refused too"
    UNSURE = "the others say nothing"


def whose(family: Family, name: str, now: float) -> Whose:
    """Say whose limit a refusal of a member met, from what became of the others without the worst of them.

    So of two hot members neither speaks for the family.
    """
    seen = family.get(name)
    if seen is None:
        return Whose.UNSURE
    rest = _others(family, name, now)[:-1]
    asked, refused = sum(one.asked for one in rest), sum(one.refused for one in rest)
    share = refused / asked if asked else 0.0
    if seen.refused >= _EXCEPTION and seen.refused > 3.0 * share * seen.asked + 2.0:
        return Whose.MEMBER
    if share >= _SHARE and sum(one.refused >= _A_REFUSAL for one in rest) >= _SEVERAL:
        return Whose.FAMILY
    return Whose.UNSURE


def _others(family: Family, name: str, now: float) -> list[Seen]:
    """Return the others, faded to `now`, the one of them that was refused most at the end."""
    others = [one for key, one in family.items() if key != name]
    for one in others:
        one.fade(now)
    others.sort(key=lambda one: one.refused)
    return others


def is_the_blob_s(blobs: Family, name: str, now: float) -> bool:
    """Say whether a refusal is that blob's own: it is refused far more than the others, the worst of them left out.

    With two hot blobs each is the worst other of the other one, so neither speaks for the prefix.
    """
    seen = blobs.get(name)
    if seen is None or seen.asked < LEAST:
        return False
    others = _others(blobs, name, now)
    rest = others[:-1] if others and others[-1].refused >= 1.0 else others
    asked, refused = sum(one.asked for one in rest), sum(one.refused for one in rest)
    if asked < (FEW if refused < 0.5 else OTHERS):
        return False
    return seen.refused > 3.0 * seen.asked * refused / asked + (0.0 if refused < 0.5 else 2.0)
