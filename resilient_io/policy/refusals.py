"""How a wrong value or name is refused: with what to write instead, and without a password that is in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from resilient_io.policy.checks import Check


def checked(name: str, check: Check, value: object) -> object:
    """Return the value as the field `name` holds it; ValueError with the name, the range and the value."""
    try:
        return check(value)
    except ValueError as error:
        hint = "; write the number without quotes" if _is_quoted_number(value) else ""
        raise ValueError(f"{name} must be {error}, not {_shown(name, value)}{hint}") from None


def _shown(name: str, value: object) -> str:
    """Return the value as an error shows it: no URL with a password in it, wherever somebody put it."""
    return f"this {type(value).__name__}" if name == "redis_url" else without_password(repr(value))


def without_password(text: str) -> str:
    """Return the text with what follows the scheme of each URL in it taken out."""
    return re.sub(r"(?<=://)\S+", "***", text)


def _is_quoted_number(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\s*-?\d+(\.\d*)?\s*", value) is not None


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is none of the `known`, with the nearest of them or all."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)
    return ValueError(f"unknown {kind} {without_password(repr(name))}; {hint}")
