"""What can be wrong with a body that no SDK notices: the errors that both clouds' own derive from, with verdicts."""

from __future__ import annotations

from typing import ClassVar, Final

from resilient_io.classify.fault import FaultKind, Load, Verdict

_STALLED: Final = Verdict(kind=FaultKind.TRANSIENT, load=Load.SUSPECTED, retryable=True, rule="stalled-body")
_WRONG: Final = Verdict(kind=FaultKind.TRANSIENT, retryable=True, rule="wrong-range")
_UNVERIFIED: Final = Verdict(kind=FaultKind.TRANSIENT, retryable=True, rule="unverifiable-body")
_DAMAGED: Final = Verdict(kind=FaultKind.TRANSIENT, retryable=True, rule="checksum")


class BodyFault(Exception):
    """A body that is not what was asked for; asked for again, as the policy says."""

    verdict: ClassVar[Verdict]


class Stalled(BodyFault):
    """A body brought fewer bytes than `min_throughput_bytes_per_s` over `stall_window_s`."""

    verdict = _STALLED


class NotAsAsked(BodyFault):
    """An answer holds other bytes than were asked for."""

    verdict = _WRONG


class Unverifiable(BodyFault):
    """A body has neither a length nor a checksum, and `verify="strict"` asks for one."""

    verdict = _UNVERIFIED


class Damaged(BodyFault):
    """A body has another checksum than the service says; nothing of it can be kept."""

    verdict = _DAMAGED
