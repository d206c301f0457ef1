"""How large a part of all that use a scope stands behind one record: the hint of the law's SHARE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from resilient_io.control.law_record import ASSUMED

# Launchers tell their processes how many there are, in all and on this machine (torchrun, Open MPI, MVAPICH).
_RANKS: Final = (
    ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
)
# Slurm tells on how many machines the job runs.
_MACHINES: Final = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the launcher told this process; 0 for what it did not."""

    ranks: int = 0
    local_ranks: int = 0
    machines: int = 0


def job_of(environ: Mapping[str, str] | None = None) -> Job:
    """Return what the environment tells of the job; what is no whole number above 0 tells nothing."""
    found = os.environ if environ is None else environ
    for all_of_them, local in _RANKS:
        ranks = _count(found.get(all_of_them))
        if ranks:
            return Job(ranks=ranks, local_ranks=min(ranks, _count(found.get(local))))
    for name in _MACHINES:
        machines = _count(found.get(name))
        if machines:
            return Job(machines=machines)
    return Job()


def _count(text: str | None) -> int:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def share_of(job: Job, fleet_size: int | None, members: int, *, shared: bool) -> float:
    """Return the part of the fleet that `members` processes are, above 0 to 1; 0.0 where it is not known.

    `shared`: the record is that of a machine, so that workers beside the ranks are members too.
    Without a launcher and without `fleet_size` a machine is taken to be all there is: most jobs are
    that, and the law finds out where it is not so. A process alone may have any number beside it.
    """
    if fleet_size is not None:
        return min(1.0, members / fleet_size)
    if not job.ranks:
        return (1.0 / job.machines if job.machines else ASSUMED) if shared else 0.0
    if not shared:
        return 1.0 / job.ranks
    if job.local_ranks:
        return job.local_ranks / job.ranks
    return min(1.0, members / job.ranks)
