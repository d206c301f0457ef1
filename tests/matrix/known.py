"""Cells that are known to be wrong today, with the symptom. Each fails as soon as it is right; then its line goes."""

from __future__ import annotations

from fnmatch import fnmatchcase

from .cells import Cell

# A shell pattern over "door-operation-fault-lasting" -> what is seen.
KNOWN: dict[str, str] = {}


def symptom_of(cell: Cell) -> str | None:
    """Return what is wrong with a cell, None where nothing is known."""
    return next((told for pattern, told in KNOWN.items() if fnmatchcase(str(cell), pattern)), None)


def idle_patterns(cells: list[Cell]) -> list[str]:
    """Return the patterns that fit no cell."""
    return [pattern for pattern in KNOWN if not any(fnmatchcase(str(cell), pattern) for cell in cells)]
