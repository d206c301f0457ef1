"""Blame: whose refusals a prefix was charged with while nobody knew better, and when to give it back.

The first refusals of a hot blob come before the others of its prefix have shown that they are served, so the prefix is
charged, and limited for all. While it is, the hot blob is held below its own ceiling and is refused no more: no further
refusal would ever put that right. So each success of another blob asks again whether those that the prefix was charged
for are hot, and the prefix is opened as soon as they are.

Each process judges by what itself was refused. One that is wrong costs the next refusal, which limits the prefix anew
at what came through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from resilient_io.control import evidence
from resilient_io.control.evidence import Family
from resilient_io.control.law_record import FLOOR, LIMITED, NEVER, RATE, REALLY_REFUSED_AT, Record

# Blobs that are told apart; with more it is hardly a few hot ones.
_BLOBS: Final = 4
# Of what the prefix was charged for, so much must be due to hot blobs: in a large store one in a thousand is refused
# by chance.
_SHARE: Final = 0.9
# A look at the evidence takes some 20 us: after the first ones there are so many seconds between two.
_FIRST_LOOKS: Final = 32
_LOOK_S: Final = 0.05


@dataclass(slots=True)
class Blame:
    """What a limited prefix was charged with since it is limited, as far as this process knows."""

    refusals: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    look_at: float = -math.inf

    def add(self, blob: str) -> None:
        """Note a refusal of a blob; all those beyond the first few are one."""
        name = blob if blob in self.refusals or len(self.refusals) < _BLOBS else ""
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def is_of_hot_ones(self, blobs: Family, now: float) -> bool:
        """Say whether next to all of it is due to blobs that are now known to be hot."""
        self.looks += 1
        self.look_at = now + _LOOK_S if self.looks > _FIRST_LOOKS else now
        hot = sum(n for name, n in self.refusals.items() if name and evidence.is_the_blob_s(blobs, name, now))
        return hot >= _SHARE * sum(self.refusals.values())


def give_back(rec: Record) -> None:
    """Open a scope whose refusals were not its own."""
    if rec[LIMITED] != 0.0:
        rec[LIMITED] = rec[FLOOR] = 0.0
        rec[RATE] = math.inf
        rec[REALLY_REFUSED_AT] = NEVER
