"""`import resilient_io.auto` installs: for programs that may add one import and nothing else.

It is `resilient_io.install()` with its defaults; the policy comes from the environment (`RESILIENT_IO_*`), and
`RESILIENT_IO=0` turns all of it off. Importing it a second time does nothing.
"""

from __future__ import annotations

from resilient_io.install import install

installation = install()
