"""What fsspec's `OpenFile` was told of the end of its `with` block: it closes its files without passing that on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from types import CodeType, FrameType


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How a block ended: by `error`, or well (None)."""

    error: BaseException | None


def told_by_open_file(file: object, handled: BaseException) -> Told | None:
    """Return what the `OpenFile` was told whose `__exit__` is closing this file, while `handled` is being handled.

    None where no such one does, or `handled` came of the closing itself, as where a compressor cannot write its end.
    Some microseconds; of use only while an exception is being handled.
    """
    code = _code_of_exit()
    if code is None or not hasattr(sys, "_getframe"):
        return None
    caught = handled.__traceback__.tb_frame if handled.__traceback__ is not None else None
    for frame in takewhile(lambda one: one is not caught, _frames(sys._getframe(1))):
        if frame.f_code is code and _closes(frame, file):
            return _told(frame.f_locals.get("args"))
    return None


def _code_of_exit() -> CodeType | None:
    """Return the code of `OpenFile.__exit__`; None where nobody has imported it, so that it cannot be running."""
    core = sys.modules.get("fsspec.core")
    return getattr(core.OpenFile.__exit__, "__code__", None) if core is not None else None


def _closes(frame: FrameType, file: object) -> bool:
    """Say whether the `OpenFile` whose `__exit__` this is holds the file: another one may be closed on the way."""
    return any(one is file for one in getattr(frame.f_locals.get("self"), "fobjects", ()))


def _told(args: object) -> Told | None:
    match args:
        case (_, BaseException() as error, _):
            return Told(error=error)
        case (None, None, None):
            return Told(error=None)
    return None


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
