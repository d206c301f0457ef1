"""How the arguments of the commands are read: numbers, sizes and times, with an error that says what is expected."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Final

_LETTERS: Final = "kmgtpe"
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 2 ** (10 * power) for power, letter in enumerate(_LETTERS, start=1) for end in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate(_LETTERS, start=1)},
}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers within bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most:,}, not {text!r}")
        return int(text)

    return parse


def positive(text: str) -> float:
    """Read a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def size(most_bytes: int, most: str) -> Callable[[str], int]:
    """Return a reader of sizes in bytes: 1000, 64KiB, 1.5GiB, 100MB (powers of ten). `most` is the bound in words."""

    def parse(text: str) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
        unit = _UNITS.get(found.group(2)) if found else None
        size_bytes = int(float(found.group(1)) * unit) if found and unit else 0
        if not 0 < size_bytes <= most_bytes:
            raise argparse.ArgumentTypeError(f"must be a size from 1 byte to {most}, such as 64KiB, not {text!r}")
        return size_bytes

    return parse


def seconds(text: str) -> float:
    """Read a time: 25ms, 90s, 30m, 2h, 1d; a bare number is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    unit = _SECONDS.get(found.group(2)) if found else None
    time_s = float(found.group(1)) * unit if found and unit else 0.0
    if time_s <= 0.0:
        raise argparse.ArgumentTypeError(f"must be a time above 0, such as 90s, 30m or 2h, not {text!r}")
    return time_s
