"""The reference model: what an object has been, and what may therefore be said of it.

An answer is right if it is what the object was at some moment of the operation. An error is right if what it claims
is true of that history: "not found" only of what was absent, "exists" only of what another had made, "changed" only of
what changed, "refused" and "lost" only where the server did that. Anything else is the third thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from resilient_io.classify import classify
from resilient_io.classify.fault import Applied, FaultKind, Verdict
from resilient_io.errors import AmbiguousWriteError, ObjectChanged

State = bytes | None
_OF_THE_SERVER = frozenset({FaultKind.THROTTLED, FaultKind.TRANSIENT, FaultKind.AMBIGUOUS})


@dataclass(slots=True)
class History:
    """What one object was, oldest first; `aim` is what a write wants it to become."""

    states: list[State] = field(default_factory=list)
    aim: State = None
    writes: bool = False

    @property
    def changed(self) -> bool:
        """Whether somebody else replaced it while the operation ran."""
        return len(self.states) > 1


def wrong_claim(error: BaseException, history: History, *, injected: bool) -> str | None:
    """Return what an error claims without ground, or None if it tells the truth."""
    verdict = verdict_of(error)
    match verdict.kind:
        case _ if isinstance(error, ObjectChanged):
            return None if history.changed else "it says that the object changed"
        case FaultKind.NOT_FOUND:
            return None if None in history.states else "it says that the object is missing"
        case FaultKind.PRECONDITION:
            told = history.changed or any(state is not None for state in history.states)
            return None if told else "it says that somebody else wrote the object"
        case kind if kind in _OF_THE_SERVER:
            return None if injected else "it blames a server that answered well"
        case kind:
            return f"it is {kind} ({verdict.rule})"


def verdict_of(error: BaseException) -> Verdict:
    """Return what the library said of an error, or else what it is by itself."""
    # The Azure SDK makes its errors from the answer, which has the verdict.
    for each in (error, getattr(error, "response", None)):
        said = getattr(each, "verdict", None)
        if isinstance(said, Verdict):
            return said
    return classify(error)


def admits_the_write(error: BaseException) -> bool:
    """Say whether the error leaves it open that the write happened."""
    return isinstance(error, AmbiguousWriteError) or verdict_of(error).applied is Applied.MAYBE
