"""Says what an error means: `classify(error)` gives a `Verdict`. Pure, and standard library only.

An error becomes a `Fault` (unwrap.py: the facts), a `Fault` becomes a `Verdict` (rules.py: the judgement), and the
tables that the rules look into are data (s3_codes.py, azure_codes.py, codes.py, transport.py, texts.py).
"""

from __future__ import annotations

from .answers import is_error_document, judge_answer, key_faults
from .fault import Applied, Fault, FaultKind, Load, Verdict
from .operations import OpClass, is_idempotent, is_write, op_class
from .retry_after import retry_after_s
from .rules import judge
from .unwrap import carried_verdict, fault_of

__all__ = [
    "Applied",
    "Fault",
    "FaultKind",
    "Load",
    "OpClass",
    "Verdict",
    "classify",
    "fault_of",
    "is_error_document",
    "is_idempotent",
    "is_write",
    "judge",
    "judge_answer",
    "key_faults",
    "op_class",
    "retry_after_s",
]


def classify(error: BaseException, *, operation: str | None = None, after_lost_answer: bool = False) -> Verdict:
    """Return what an error means; never raises, and an error that it does not know is fatal (rule "unknown").

    `operation` is an SDK name ("PutObject") or a filesystem method ("pipe_file"), in any case; None counts as a read
    unless the error itself names its operation. `after_lost_answer` says that an earlier attempt of this write got no
    answer, so that "already there" and "no such upload" may be our own doing. An error that this library
    gave up on keeps its kind and is not retryable, also where others wrapped it. Pure: safe in any thread and task.
    """
    try:
        carried = carried_verdict(error)
        if carried is not None:
            return carried
        return judge(fault_of(error, operation=operation), after_lost_answer=after_lost_answer)
    except Exception:  # an exception may misbehave in ways that no check foresees, and a verdict is due all the same
        return Verdict(kind=FaultKind.FATAL)
