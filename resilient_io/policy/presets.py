"""The presets: what a kind of work sets of its own; all else has its default."""

from __future__ import annotations

from typing import Any, Final

from resilient_io.policy.refusals import unknown

DEFAULT_PRESET: Final = "training"
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "training": {},
    "checkpoint": {
        "deadline_s": 900.0,
        "max_attempts": 10,
        "max_throttle_attempts": 100,
        "max_concurrency": 32,
        "verify": "strict",
    },
}


def preset_name(name: object) -> str:
    """Return the name of a preset; ValueError, with the nearest name, for what is none."""
    if not isinstance(name, str) or name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return name
