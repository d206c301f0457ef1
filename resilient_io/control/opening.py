"""The first moment of a large fleet: how many requests one of its processes may have in flight before it knows more.

A fleet whose size is known and that meets a scope for the first time has, all at once, as many requests in flight as
its processes have callers: 4,096 writers of 16 parts each ask 65,536 times before one answer is back, and a prefix
serves a few thousand of them. So each begins with its part of `TOGETHER`, and every success lets one more go: the whole
window is open after some round trips, after `FOR_S` at the latest. Where the fleet is smaller than `LARGE`, or its size
is not known, nothing waits: hundreds of processes have a storm that is over in a second, and are done later if they
begin gently.
"""

from __future__ import annotations

import math
from typing import Final

# Processes from which a fleet is large. With 512 and 600 ms an answer a burst of 14 s took 23 s instead of 18.
LARGE: Final = 1000
# Requests of the whole fleet: about what S3 documents for the writes of a prefix in one second.
TOGETHER: Final = 3500.0
# More that may go after each success: at 1 the window doubles in a round trip.
GAIN: Final = 1.0
# Seconds after which nothing is held back any more: answers that take long are no reason to wait.
FOR_S: Final = 1.0


def window(share: float) -> float:
    """Return how many requests may be in flight at first; inf where the share is not known, or the fleet not large.

    `share` is the part of the fleet that asks, above 0 to 1; 0.0 where it is not known.
    """
    return max(1.0, math.ceil(share * TOGETHER)) if 0.0 < share * LARGE <= 1.0 else math.inf
