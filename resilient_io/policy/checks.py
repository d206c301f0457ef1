"""What a field may hold: each check returns the value as the field holds it, or says what it must be."""

from __future__ import annotations

import contextlib
import json
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping

Check = Callable[[object], object]
"""Return the value as the field holds it, or raise ValueError with the end of "<field> must be ..."."""


def whole(least: int) -> Check:
    """Return the check of a whole number of at least `least`; True and False are none."""

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number of at least {least}")
        return value

    return check


def number(least: float, *, above: bool = False) -> Check:
    """Return the check of a finite number of at least `least`, or `above` it; it becomes a float."""
    wanted = f"a number above {least:g}" if above else f"a number of at least {least:g}"

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(wanted)
        if value < least or (above and value == least):
            raise ValueError(wanted)
        return float(value)

    return check


def between(least: float, most: float) -> Check:
    """Return the check of a number from `least` to `most`; it becomes a float."""

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ValueError(f"a number from {least:g} to {most:g}")
        return float(value)

    return check


def boolean(value: object) -> object:
    """Check for True or False."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def text(value: object) -> object:
    """Check for a str that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text that is not empty")
    return value


def one_of(*names: str) -> Check:
    """Return the check of one of these names."""

    def check(value: object) -> object:
        if value not in names:
            raise ValueError("one of " + ", ".join(repr(name) for name in names))
        return value

    return check


def or_none(check: Check) -> Check:
    """Return the check that takes None as well."""

    def check_or_none(value: object) -> object:
        if value is None:
            return None
        try:
            return check(value)
        except ValueError as error:
            raise ValueError(f"{error}, or None") from None

    return check_or_none


def url_of_redis(value: object) -> object:
    """Check the form only; nothing is connected. What is wrong is said without the text: it may hold a password."""
    shaped = isinstance(value, str) and re.match(r"(rediss?://[^/\s]|unix:///)\S*\Z", value)
    if value is None or (shaped and _has_host_and_port(str(value))):
        return value
    raise ValueError("a URL such as 'rediss://:password@host:6379/0' ('redis://', 'rediss://' or 'unix://'), or None")


def _has_host_and_port(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme == "unix" or (bool(parts.hostname) and parts.port != 0)
    except ValueError:  # a port that is no number or too large, an address without its bracket
        return False


def pairs_of_names(value: object) -> object:
    """Return pairs of names, sorted, whatever mapping or pairs they came as: a policy must be hashable."""
    with contextlib.suppress(ValueError):
        value = json.loads(value) if isinstance(value, str) else value
    pairs = list(value.items()) if isinstance(value, Mapping) else value or ()
    if not isinstance(pairs, (list, tuple)) or not all(map(_is_pair_of_names, pairs)):
        raise ValueError("names of buckets by their aliases, such as {'my-access-point-s3alias': 'my-bucket'}")
    return tuple(sorted((alias, bucket) for alias, bucket in pairs))


def _is_pair_of_names(pair: object) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(name, str) and name for name in pair)


def rule_of_prefixes(value: object) -> object:
    """Check the form only: a function that is named is imported when `control.scopes` first needs it."""
    rule = str(or_none(text)(value) or "")
    if "(" not in rule:
        if rule and not re.fullmatch(r"[^\W\d]\w*(\.\w+)*[.:]\w+", rule):
            raise ValueError("a regular expression with one group, or a function's name such as 'package.module:name'")
        return value
    try:
        groups = re.compile(rule).groups
    except re.error as error:
        raise ValueError(f"a regular expression with one group ({error})") from None
    if groups != 1:
        raise ValueError(f"a regular expression with exactly one group, the prefix; this one has {groups}")
    return value
