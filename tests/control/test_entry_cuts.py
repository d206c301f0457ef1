"""What was cut after the entry of a scope that is alone stays cut, whatever becomes of the entry."""

from __future__ import annotations

from resilient_io.control import law
from resilient_io.control.law_entry import check_trial, on_earlier_success
from resilient_io.control.law_record import (
    ASSUMED,
    CHALLENGE,
    CHECKS,
    ENTRY_BAD,
    ENTRY_OK,
    ENTRY_OTHERS,
    ENTRY_RATE,
    ENTRY_SENT_AT,
)

NOW = 100.0


def entered() -> list[float]:
    """A crowd that entered at 200/s a while ago, and was cut to 100/s."""
    rec = law.fresh(NOW - 1.0)
    rec[law.LIMITED], rec[law.SHARE], rec[law.ENTERED_AT] = 1.0, ASSUMED, NOW - 0.3
    rec[law.RATE], rec[ENTRY_RATE], rec[ENTRY_OTHERS] = 100.0, 200.0, 64.0
    rec[ENTRY_SENT_AT] = NOW - 1.0
    return rec


def test_a_failed_trial_raised_a_rate_that_was_cut_meanwhile() -> None:
    rec = entered()
    rec[CHECKS], rec[ENTRY_OK], rec[ENTRY_BAD] = 2.0, 6.0, 9.0
    check_trial(rec, NOW, 1.0, law.LAW)
    assert rec[CHECKS] == 0.0
    assert rec[law.RATE] == 100.0


def test_a_late_success_undid_all_cuts() -> None:
    rec = entered()
    on_earlier_success(rec, NOW, law.LAW)
    assert 100.0 < rec[law.RATE] < 103.0


def test_a_late_success_raised_the_rate_of_a_dip() -> None:
    rec = entered()
    rec[CHALLENGE] = 1.0
    on_earlier_success(rec, NOW, law.LAW)
    assert rec[law.RATE] == 100.0
