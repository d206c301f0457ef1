"""Whose a refusal is where the service does not say: that of one blob that is asked for most, or the prefix's.

Azure limits each blob beside the account, and says no more than that it is busy. One hot blob must not slow down the
others of its prefix. Counts fade with a time constant of 30 s and are kept for a few blobs of a prefix; nothing is
known of one that is read once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

# Seconds after which a count has faded to a third (control-law.md, section 4).
FADES_S: Final = 30.0
# Blobs of a prefix that are remembered; the one that was asked for longest ago is forgotten.
KEPT: Final = 64
# Requests of a blob from which it can be hot at all: below that its refusals say nothing of it alone.
LEAST: Final = 10.0
# Requests of the other blobs that must have come through for them to speak for the prefix.
OTHERS: Final = 20.0


@dataclass(slots=True, kw_only=True)
class Seen:
    """What became of the requests for one blob, faded to `at_s`."""

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


Blobs = OrderedDict[str, Seen]


def note(blobs: Blobs, name: str, now: float, *, refused: bool) -> Seen:
    """Count an answer to a request for a blob."""
    seen = blobs.get(name)
    if seen is None:
        seen = blobs[name] = Seen(at_s=now, first_s=now)
        if len(blobs) > KEPT:
            blobs.popitem(last=False)
    else:
        blobs.move_to_end(name)
        seen.fade(now)
    seen.asked += 1.0
    seen.refused += refused
    return seen


def is_the_blob_s(blobs: Blobs, name: str, now: float) -> bool:
    """Say whether a refusal is that blob's own: it is refused far more than the others, the worst of them left out.

    With two hot blobs each is the worst other of the other one, so neither speaks for the prefix.
    """
    seen = blobs.get(name)
    if seen is None or seen.asked < LEAST:
        return False
    others = [one for key, one in blobs.items() if key != name]
    for one in others:
        one.fade(now)
    others.sort(key=lambda one: one.refused)
    rest = others[:-1] if others and others[-1].refused >= 1.0 else others
    asked, refused = sum(one.asked for one in rest), sum(one.refused for one in rest)
    return asked >= OTHERS and seen.refused > 3.0 * seen.asked * refused / asked + (0.0 if refused < 0.5 else 2.0)
