"""The policy: how long and how hard one call tries, and where its values come from.

Each value is taken from the first of these that names it: the overlays of the call (the nearest
first: call arguments, storage options), `configure()`, the environment (`RESILIENT_IO_<FIELD>`),
and the preset. The preset itself is the first that is named, in the same order
(`RESILIENT_IO_PRESET` in the environment), else "training". `RESILIENT_IO=0` wins over everything.
"""

from resilient_io.policy.fields import Policy
from resilient_io.policy.presets import DEFAULT_PRESET
from resilient_io.policy.sources import configure, configured, overlay, reload, reset, resolve

__all__ = ["DEFAULT_PRESET", "Policy", "configure", "configured", "overlay", "reload", "reset", "resolve"]
