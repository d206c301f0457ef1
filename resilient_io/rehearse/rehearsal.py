"""The runs of a rehearsal, one after the other: the same job, store, burst and seed; only the library differs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from resilient_io.rehearse.fleet import Fleet, Phase
from resilient_io.rehearse.job import Job
from resilient_io.rehearse.outcomes import Checked, Figures, Outcome, Requests, figures
from resilient_io.rehearse.store import Store, StoreUnusable

#: The two runs, in their order.
STOCK, TREATED = "stock", "treated"
#: The process that fills the store before the runs and checks what they wrote.
STEWARD = "steward"
_WORKER = "resilient_io.rehearse.worker"


class Progress(Protocol):
    """What is told of how far a rehearsal is."""

    def begin(self, stage: str, total: int) -> None:
        """A stage of `total` steps begins."""

    def step(self, count: int = 1, *, failed: bool = False) -> None:
        """So many steps are done."""

    def note(self, text: str) -> None:
        """Something that the reader of the figures should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: its figures, and the makespan of each of its phases in seconds."""

    name: str
    figures: Figures
    phases_s: Mapping[str, float]

    @property
    def is_good(self) -> bool:
        """Whether nothing failed and every byte was right."""
        return not self.figures.failed and not self.figures.wrong_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**self.figures.to_dict(), "phases_s": {name: round(took, 3) for name, took in self.phases_s.items()}}


def rehearse(job: Job, store: Store, *, runs: Sequence[str], progress: Progress) -> list[Run]:
    """Fill the store and go through the runs.

    `WorkerDied` if a process of the job ends by itself, `StoreUnusable` if the store cannot be filled or checked.
    """
    with _fleet(STEWARD, job, store) as steward:
        _fill(steward, job, store, progress)
        return [_run(name, steward, job, store, progress) for name in runs]


def _fill(steward: Fleet, job: Job, store: Store, progress: Progress) -> None:
    progress.begin("filling in the shards", job.shards)
    with store.unlimited():
        phase = steward.run("fill", watch=_watcher(progress))
    for one in phase.outcomes:
        if one.error:
            raise StoreUnusable(f"the store could not be filled: {one.error}")
    reached_per_s = job.shards / phase.makespan_s
    if store.is_embedded and job.ceiling_per_s is not None and reached_per_s < job.ceiling_per_s:
        progress.note(
            f"this machine writes only {reached_per_s:.0f} objects/s to the embedded store at present, below the "
            f"ceiling of {job.ceiling_per_s:g}/s: the figures will speak of the machine; a lower --ceiling "
            "takes less of it"
        )


def _run(name: str, steward: Fleet, job: Job, store: Store, progress: Progress) -> Run:
    progress.begin(f"stock {store.cloud.library}" if name == STOCK else "resilient-io", job.operations)
    with _fleet(name, job, store) as fleet:
        store.start_counting()
        phases = [fleet.run(phase, watch=_watcher(progress)) for phase in job.phases]
        requests = store.counted(Requests(sent=_sum(phases, "sent"), refused=_sum(phases, "refused")))
    outcomes = [outcome for phase in phases for outcome in phase.outcomes]
    made = figures(
        outcomes,
        requests=requests,
        makespan_s=sum(phase.makespan_s for phase in phases),
        ideal_s=job.ideal_s,
        written=_found_stored(name, steward, job, store, progress, outcomes),
    )
    phases_s = {phase: took.makespan_s for phase, took in zip(job.phases, phases, strict=True)}
    return Run(name=name, figures=made, phases_s=phases_s)


def _fleet(name: str, job: Job, store: Store) -> Fleet:
    """Return the processes of a run, not started yet; the steward is one alone."""
    is_steward = name == STEWARD
    shared = {
        "run": name,
        "cloud": store.cloud.name,
        "job": job.to_dict(),
        "bucket": store.bucket,
        "storage_options": dict(store.steward_options if is_steward else store.storage_options),
    }
    tasks = [{**shared, "rank": rank} for rank in range(1 if is_steward else job.ranks)]
    return Fleet([sys.executable, "-m", _WORKER], tasks, env=_environment(name))


def _environment(name: str) -> dict[str, str]:
    """Return the environment of the job's processes: they find this very package, and stock is stock."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    off = {"RESILIENT_IO": "0"} if name == STOCK else {}
    return {**os.environ, "PYTHONPATH": path, **off}


def _watcher(progress: Progress) -> Callable[[Outcome], None]:
    return lambda outcome: progress.step(failed=bool(outcome.error))


def _sum(phases: Sequence[Phase], count: str) -> int:
    return sum(phase.counts.get(count, 0) for phase in phases)


def _found_stored(
    name: str, steward: Fleet, job: Job, store: Store, progress: Progress, outcomes: Sequence[Outcome]
) -> Checked:
    """Compare what the run wrote with what it should have; a file may be missing only if a write failed."""
    progress.begin("reading the checkpoints back", len(job.part_keys(name)))
    with store.unlimited():
        found = steward.run(f"check {name}", watch=_watcher(progress)).outcomes
    missing = sum(1 for one in found if one.error.startswith("FileNotFoundError"))
    for one in found:
        if one.error and not one.error.startswith("FileNotFoundError"):
            raise StoreUnusable(f"the checkpoints could not be read back: {one.error}")
    unexplained = max(0, missing - sum(1 for one in outcomes if one.kind == "write" and one.error))
    lost_bytes = unexplained * job.shard_bytes
    return Checked(
        bytes=lost_bytes + sum(one.checked_bytes for one in found),
        wrong_bytes=lost_bytes + sum(one.wrong_bytes for one in found),
    )
