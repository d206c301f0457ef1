"""Which `with` blocks an exception is leaving at this moment, read off the frames of this thread.

An `__exit__` that closes what it wraps does not say why, and a bare `raise` of an exception that was handled already
leaves no mark on that exception. But CPython calls an `__exit__` by another instruction where an exception is the cause
(`WITH_EXCEPT_START`, since 3.9), and a frame tells the instruction that it is at. Where an interpreter has neither, no
block is ever found.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final

_LEAVING: Final = dis.opmap.get("WITH_EXCEPT_START")
#: A block: the place of its frame on the stack, its code, and its instruction. No frame, which would keep all that is
#: in it alive.
Block = tuple[int, int, int]
NONE: Final[frozenset[Block]] = frozenset()


def blocks_being_left() -> frozenset[Block]:
    """Return the `with` blocks of this thread's frames whose `__exit__` runs because of an exception.

    Worth its time (some microseconds a frame) only while an exception is being handled: else there is none.
    """
    if _LEAVING is None or not hasattr(sys, "_getframe"):
        return NONE
    frames = tuple(_frames(sys._getframe(1)))
    return frozenset(
        (len(frames) - number, id(frame.f_code), frame.f_lasti)
        for number, frame in enumerate(frames)
        if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _LEAVING
    )


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
