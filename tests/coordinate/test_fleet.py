"""What the launcher tells, and what part of the fleet a record stands for."""

from __future__ import annotations

import pytest

from resilient_io.control.law_record import ASSUMED
from resilient_io.coordinate.fleet import Job, job_of, share_of


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, Job()),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, Job(ranks=16, local_ranks=8)),
        ({"WORLD_SIZE": "16"}, Job(ranks=16)),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, Job(ranks=4, local_ranks=2)),
        ({"SLURM_JOB_NUM_NODES": "3"}, Job(machines=3)),
        ({"WORLD_SIZE": "two"}, Job()),
        ({"WORLD_SIZE": "-2", "SLURM_NNODES": "2"}, Job(machines=2)),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "8"}, Job(ranks=2, local_ranks=2)),
    ],
)
def test_what_the_launcher_tells(environ: dict[str, str], job: Job) -> None:
    """Known launchers are understood; what makes no sense tells nothing."""
    assert job_of(environ) == job


@pytest.mark.parametrize(
    ("job", "fleet_size", "members", "shared", "share"),
    [
        (Job(), None, 8, True, ASSUMED),
        (Job(), None, 1, False, 0.0),
        (Job(), 64, 8, True, 1 / 8),
        (Job(), 8, 8, True, 1.0),
        (Job(), 2, 8, True, 1.0),
        (Job(), 64, 1, False, 1 / 64),
        (Job(ranks=16, local_ranks=8), None, 72, True, 0.5),
        (Job(ranks=8, local_ranks=8), None, 72, True, 1.0),
        (Job(ranks=16), None, 4, True, 0.25),
        (Job(ranks=16), None, 1, False, 1 / 16),
        (Job(machines=4), None, 9, True, 0.25),
        (Job(ranks=16, local_ranks=8), 1000, 10, True, 0.01),
    ],
)
def test_the_share_of_a_record(job: Job, fleet_size: int | None, members: int, shared: bool, share: float) -> None:
    """What the policy says goes before what the launcher says; without both one machine is all, as far as is known."""
    assert share_of(job, fleet_size, members, shared=shared) == pytest.approx(share)
