"""Where a policy's values come from: the overlays of a call, `configure()`, the environment, and a preset below all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from resilient_io.policy import environment
from resilient_io.policy.fields import CHECKS, Policy, fields_of, parsed
from resilient_io.policy.presets import DEFAULT_PRESET, PRESETS, preset_name
from resilient_io.policy.refusals import without_password

_OFF: Final = Policy(enabled=False)
_SET_NOTHING: Final[tuple[tuple[object, ...], ...]] = ((None,), ({},))
# Callers hold few overlays (one per filesystem or client); one that makes a new mapping per call
# must not grow the memory.
_MOST_CACHED: Final = 1024


def overlay(value: object) -> Mapping[str, object]:
    """Return what a `resilience=` value sets: checked fields, and "preset" if it names one.

    None sets nothing; False (True) sets `enabled`; a str is a preset's name or a JSON object; a
    mapping holds fields and maybe "preset"; a Policy sets every field. Raises ValueError for
    anything else.
    """
    match value:
        case None:
            return {}
        case bool():
            return {"enabled": value}
        case Policy():
            return {name: getattr(value, name) for name in CHECKS}
        case str():
            return overlay(parsed(value)) if value.lstrip().startswith("{") else {"preset": preset_name(value)}
        case Mapping():
            fields = {name: set_to for name, set_to in value.items() if name != "preset"}
            preset = {"preset": preset_name(value["preset"])} if value.get("preset") is not None else {}
            return {**preset, **fields_of(fields)}
        case _:
            raise ValueError(
                "resilience must be a mapping of policy fields, a preset's name, JSON, a Policy, False or None, "
                f"not {without_password(repr(value))}"
            )


class _Sources:
    """One snapshot of configure() and of the environment, and what was resolved under it.

    Never changed but for its cache; `configure` and `reload` put a new one in its place, so that no
    lock is needed.
    """

    __slots__ = ("_cache", "_plain", "configured", "environ")

    def __init__(self, configured: Mapping[str, object]) -> None:
        self.configured = configured
        # Parsed when first needed: a bad variable must not make the import fail.
        self.environ = environment.snapshot()
        self._plain: Policy | None = None
        self._cache: dict[tuple[int, ...], tuple[tuple[object, ...], tuple[object, ...], Policy]] = {}

    def resolve(self, overlays: tuple[object, ...]) -> Policy:
        if not overlays or overlays in _SET_NOTHING:
            if self._plain is None:
                self._plain = self._combined(())
            return self._plain
        key = tuple(map(id, overlays))
        hit = self._cache.get(key)
        # The entry keeps the overlays alive, so that no other object gets their id; the copies tell
        # a mapping that was changed since.
        if hit is not None and hit[1] == hit[0]:
            return hit[2]
        policy = self._combined(overlays)
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        copies = tuple(dict(each) if isinstance(each, Mapping) else each for each in overlays)
        self._cache[key] = (overlays, copies, policy)
        return policy

    def _combined(self, overlays: tuple[object, ...]) -> Policy:
        if environment.is_switched_off(self.environ):
            return _OFF
        layers = [*map(overlay, overlays), self.configured, environment.values(self.environ)]
        merged: dict[str, Any] = {}
        for layer in reversed(layers):
            merged.update(layer)
        preset = merged.pop("preset", DEFAULT_PRESET)
        return Policy(**{**PRESETS[preset], **merged})


_sources = _Sources({})


def resolve(*overlays: object) -> Policy:
    """Return the policy under these overlays, the nearest first; each is a value that `overlay` takes.

    Cheap when nothing changed: overlays are remembered by identity. The environment is read at
    import, at `configure`, `reset` and `reload`, not here. Raises ValueError for a bad overlay or
    variable. With `RESILIENT_IO=0` the answer is a policy with `enabled` False, whatever else is set.
    """
    return _sources.resolve(overlays)


def configure(**fields: object) -> None:
    """Set policy fields, and maybe `preset`, for the whole process; adds to earlier calls.

    Takes effect for the next operation of every filesystem and client. Raises ValueError, and
    changes nothing, if a value or the whole does not hold. Reads the environment anew.

    Others may read the policy meanwhile, in any thread; of two calls at once one may be lost. A spawned process does
    not have what was set here (the environment reaches it), a forked one does.
    """
    global _sources
    fresh = _Sources({**_sources.configured, **overlay(fields)})
    fresh.resolve(())
    _sources = fresh


def configured() -> Mapping[str, object]:
    """Return what `configure` set in this process."""
    return dict(_sources.configured)


def reset() -> None:
    """Forget what `configure` set, and read the environment anew."""
    global _sources
    _sources = _Sources({})


def reload() -> None:
    """Read the environment anew; what `configure` set stays."""
    global _sources
    _sources = _Sources(_sources.configured)
