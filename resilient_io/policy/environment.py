"""What the environment sets: `RESILIENT_IO_<FIELD>`, `RESILIENT_IO_PRESET`, and `RESILIENT_IO=0`, the way out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from resilient_io.policy.fields import DEFAULTS, check_of
from resilient_io.policy.presets import preset_name
from resilient_io.policy.refusals import checked

_PREFIX: Final = "RESILIENT_IO_"
_KILL_SWITCH: Final = "RESILIENT_IO"
# Variables of the library that are not policy; any other RESILIENT_IO_ name must be a field.
_OTHER_VARIABLES: Final = frozenset({"PRESET", "LOG", "AUTO", "RUN", "COORD_DIR"})
_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "true", "on", "yes"), True),
    **dict.fromkeys(("0", "false", "off", "no"), False),
}
# Their values stay texts, also where they look like numbers.
_TEXTS: Final = frozenset({"prefix_rule", "redis_url", "coordination", "verify", "bucket_aliases"})


def snapshot() -> dict[str, str]:
    """Return the variables that this module reads, as they are now and not yet parsed."""
    return {name: text for name, text in os.environ.items() if name == _KILL_SWITCH or name.startswith(_PREFIX)}


def values(environ: Mapping[str, str]) -> dict[str, object]:
    """Return what the variables set; an empty variable sets nothing. ValueError, with its name, for a bad one."""
    found: dict[str, object] = {}
    for variable, text in environ.items():
        suffix = variable[len(_PREFIX) :]
        if not variable.startswith(_PREFIX) or not text.strip():
            continue
        if suffix == "PRESET":
            found["preset"] = _named(variable, preset_name, text.strip())
        elif suffix not in _OTHER_VARIABLES:
            found[suffix.lower()] = _named(variable, _field_from_text, suffix.lower(), text.strip())
    return found


def _named(variable: str, parse: Callable[..., object], *arguments: str) -> object:
    try:
        return parse(*arguments)
    except ValueError as error:
        raise ValueError(f"environment variable {variable}: {error}") from None


def _field_from_text(name: str, text: str) -> object:
    check = check_of(name)
    return checked(name, check, _value_of_text(name, text))


def _value_of_text(name: str, text: str) -> object:
    """Return the text as the kind of value that the field's default and check expect."""
    lowered = text.lower()
    if lowered in ("none", "null"):
        return None
    if isinstance(DEFAULTS[name], bool):
        return _WORDS.get(lowered, text)
    if name in _TEXTS:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def is_switched_off(environ: Mapping[str, str]) -> bool:
    """Say whether `RESILIENT_IO` is 0, false, off or no; ValueError for what is no such word and no yes."""
    text = environ.get(_KILL_SWITCH, "").strip().lower()
    if text and text not in _WORDS:
        raise ValueError(f"environment variable {_KILL_SWITCH} must be 0 or 1, not {text!r}")
    return bool(text) and not _WORDS[text]
