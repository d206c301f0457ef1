"""How long a service asks us to wait, read from the headers of its answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

# Finest unit first: azure-core reads the two Azure forms in this order (azure-core 1.41 pipeline/policies/_utils.py),
# x-amz-retry-after is milliseconds (botocore 1.43 retries/standard.py).
_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")


def retry_after_s(headers: Mapping[str, str], *, now_epoch_s: float | None = None) -> float | None:
    """Return the wait that the headers ask for, in seconds, or None.

    Header names are read without regard to case. Retry-After may be seconds or an HTTP-date (RFC 9110 10.2.3); a
    date is compared with `now_epoch_s`, else with the answer's own Date header, and gives 0.0 when it
    is past. Garbage, negative and infinite values give None. The value is not clamped.
    """
    if not headers:
        return None
    lower = {name.lower(): value for name, value in headers.items()}
    for name in _MILLISECONDS:
        milliseconds = _number(lower.get(name))
        if milliseconds is not None:
            return milliseconds / 1000.0
    value = lower.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    return seconds if seconds is not None else _until(value, now_epoch_s, lower.get("date"))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0.0 else None


def _until(value: object, now_epoch_s: float | None, date: object) -> float | None:
    at = _epoch_s(value)
    now = now_epoch_s if now_epoch_s is not None else _epoch_s(date)
    return None if at is None or now is None else max(0.0, at - now)


def _epoch_s(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
