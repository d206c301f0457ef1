"""Many clients against a model store, with the admission law of `resilient_io.control` itself and a manual clock.

    from resilient_io.simulate import Fleet, Store, run
    result = run(Fleet(processes=8, callers=4), Store(ceiling_per_s=100, burst_s=0.5), seconds=60)
    print(result.refused_share, result.fairness)

Simulated minutes take seconds. The model and what it leaves out are described in docs/control-law.md.
"""

from __future__ import annotations

from resilient_io.simulate.engine import run, run_together
from resilient_io.simulate.fleet import Fleet, Order
from resilient_io.simulate.hub import Cluster
from resilient_io.simulate.measure import Result, fairness
from resilient_io.simulate.service import Service
from resilient_io.simulate.store import Store

__all__ = ["Cluster", "Fleet", "Order", "Result", "Service", "Store", "fairness", "run", "run_together"]
