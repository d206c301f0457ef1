"""Numbers, sizes and times as people write them: 30,000, 64 MiB, 65 min; never with an exponent."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# A unit serves up to so many seconds; 90 s and 100 min are said more often than 1.5 min and 1.7 h.
_TIMES: Final = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h"))


def number_text(value: float) -> str:
    """Return a number of at least 0 with three digits, or all before the point if they are more: 30,000."""
    if 0.0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def rate_text(value: float) -> str:
    """Return how many a second: 25,600, or 0.38."""
    return _short(value, digits=3)


def size_text(size_bytes: float) -> str:
    """Return a size: 64 MiB."""
    for unit in _SIZES:
        if size_bytes < 1024.0:
            return f"{number_text(size_bytes)} {unit}"
        size_bytes /= 1024.0
    return f"{number_text(size_bytes)} EiB"


def size_option(size_bytes: int) -> str:
    """Return a size as an option takes it, exactly: 27MiB, 4000MiB."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes % 2**power == 0:
            return f"{size_bytes >> power}{unit}"
    return str(size_bytes)


def time_text(time_s: float) -> str:
    """Return a time: 6.74 s, 65 min, 10 h, 12 days."""
    for most_s, unit_s, unit in _TIMES:
        if time_s <= most_s:
            return f"{_short(time_s / unit_s, digits=3 if unit == 's' else 2)} {unit}"
    return f"{_short(time_s / 86_400.0, digits=2)} days"


def _short(value: float, *, digits: int) -> str:
    if 0.0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.{digits}g}"
