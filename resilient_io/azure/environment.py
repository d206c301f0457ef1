"""Whether the environment says anything about proxies and credentials; where it is silent, nobody need ask it.

requests and aiohttp look up proxy variables and the netrc file for each request: requests reads the whole environment
twice, aiohttp does it in two worker threads one after the other. That is a tenth of a small read, and more.
"""

from __future__ import annotations

import math
import os
import time
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

from resilient_io.azure import privates

_LOOK_AGAIN_S: Final = 1.0
_NETRC: Final = "NETRC"
_NETRC_FILES: Final = (".netrc", "_netrc")
# Of these two only requests takes notice.
_BUNDLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class _Look(NamedTuple):
    """What a look at the environment found, and when; `variables` is how many there were."""

    at_s: float
    variables: int
    is_silent: bool
    names_bundle: bool


_last = _Look(-math.inf, 0, False, False)


def heed(session: Any) -> None:
    """Let a session that was made to ask the environment do so only where that has something to say."""
    asks = _speaks_to(session)
    if session.trust_env is not asks:
        privates.set_trust_env(session, asks)


def _speaks_to(session: Any) -> bool:
    look = _looked()
    return not look.is_silent or (look.names_bundle and not privates.is_of_aiohttp(session))


def _looked() -> _Look:
    """Return the last look, or a new one: after a while, and as soon as a variable comes or goes."""
    global _last
    now, variables = time.monotonic(), len(os.environ)
    if variables != _last.variables or now - _last.at_s > _LOOK_AGAIN_S:
        _last = _Look(now, variables, not (_names_proxies() or _has_netrc()), any(map(os.environ.get, _BUNDLES)))
    return _last


def _names_proxies() -> bool:
    # On macOS and Windows the system's own settings count too.
    return bool(urllib.request.getproxies())


def _has_netrc() -> bool:
    try:
        return bool(os.environ.get(_NETRC)) or any(Path.home().joinpath(name).exists() for name in _NETRC_FILES)
    except (RuntimeError, OSError):  # no home, or not ours to look into
        return True
