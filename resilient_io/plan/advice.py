"""What to change: each piece of advice is another workload, with its own forecast from the same model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from resilient_io.plan import forecast
from resilient_io.plan.forecast import SAFE, Forecast
from resilient_io.plan.limits import enlarged
from resilient_io.plan.words import number_text, size_text, time_text
from resilient_io.plan.workload import DATE, OBJECT, ONE, RANK, Workload

# What is proposed at most: larger objects spoil the shuffle, larger parts the memory of a writer.
_LARGEST_OBJECT: Final = 256 * 2**20
_LARGEST_PART: Final = 512 * 2**20
# A change must save a quarter to be worth a line.
_WORTH: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change, and what it comes to."""

    about: str
    """"reads", "checkpoint" or "job"."""
    text: str
    after: Forecast | None
    """What becomes of it then; None where no model tells."""


def advise(job: Workload, reads: Forecast, checkpoint: Forecast | None) -> list[Advice]:
    """Return what is worth a change, the strongest first; empty if all is well below its limits."""
    found: list[Advice] = []
    if reads.share > SAFE:
        found += _worth(reads, [(text, forecast.reads(changed)) for text, changed in _for_reads(job, reads)])
    if checkpoint is not None and checkpoint.stall_s is not None and checkpoint.stall_s > 1.0:
        options = _that_fit(_for_writes(job, checkpoint))
        changed = [(text, forecast.checkpoint(other)) for text, other in options]
        found += _worth(checkpoint, [(text, after) for text, after in changed if after is not None])
    return [*_too_large(job), *found, *_beyond_the_model(job, reads, checkpoint), *_too_often(checkpoint)]


def _worth(now: Forecast, options: list[tuple[str, Forecast]]) -> list[Advice]:
    good = [(text, after) for text, after in options if _cost(after) < _WORTH * _cost(now)]
    return [
        Advice(about=now.what, text=text, after=after) for text, after in sorted(good, key=lambda one: _cost(one[1]))
    ]


def _cost(one: Forecast) -> float:
    """What advice is measured by: a checkpoint's time, the use of the tightest limit by reads."""
    return one.share if one.took_s is None else one.took_s


def _that_fit(options: Iterable[tuple[str, Workload]]) -> Iterator[tuple[str, Workload]]:
    """Drop what makes an object larger than it can be; where it would have too many parts, make them larger."""
    for text, job in options:
        part = max(job.part_bytes, job.cloud.part_for(job.file_bytes))
        larger = f", in parts of {size_text(part)}" if part > job.part_bytes else ""
        if not job.is_too_large:
            yield text + larger, replace(job, part_bytes=part)


def _too_large(job: Workload) -> Iterator[Advice]:
    """What to do where an object cannot hold what one file would."""
    if not job.is_too_large or job.checkpoint_bytes is None:
        return
    files = math.ceil(job.checkpoint_bytes / job.cloud.most_object_bytes)
    writers = math.ceil(files / job.files_per_writer)
    if writers <= job.ranks:
        what, changed = f"let {writers:,} ranks or more write (--writers {writers})", replace(job, writers=writers)
    else:
        each = math.ceil(files / job.writers)
        what = f"write {each:,} files or more for each writer (--files-per-writer {each})"
        changed = replace(job, files_per_writer=each)
    changed = replace(changed, part_bytes=max(job.cloud.part_bytes, job.cloud.part_for(changed.file_bytes)))
    why = (
        f"a file of {size_text(job.file_bytes)} is more than the {size_text(job.cloud.most_object_bytes)} of an object"
    )
    yield Advice(about="checkpoint", text=f"{what}: {why}", after=forecast.checkpoint(changed))


def _too_often(checkpoint: Forecast | None) -> Iterator[Advice]:
    if checkpoint is not None and checkpoint.took_s is not None and checkpoint.late_s:
        minutes = math.ceil(checkpoint.took_s / SAFE / 60.0)
        every = f"{minutes}m" if minutes < 120 else f"{math.ceil(minutes / 60)}h"
        text = f"write one less often, --checkpoint-every {every}: it takes {time_text(checkpoint.took_s)}"
        yield Advice(about="checkpoint", text=text, after=None)


def _for_reads(job: Workload, now: Forecast) -> Iterator[tuple[str, Workload]]:
    use = now.uses[0]
    if use.kind == "prefix":
        many = now.prefixes * math.ceil(use.share / SAFE)
        yield f"spread the keys over {many:,} prefixes{_spread_hint(job.layout)}", replace(job, layout=str(many))
    if use.kind != "bandwidth" and job.object_bytes < _LARGEST_OBJECT and job.samples_per_s is not None:
        factor = _power_of_two(use.share / SAFE, _LARGEST_OBJECT / job.object_bytes)
        larger = replace(
            job, object_bytes=job.object_bytes * factor, samples_per_object=job.samples_per_object * factor
        )
        yield f"shard: {factor} objects in one, of {size_text(larger.object_bytes)}", larger
    if use.kind == "account" and job.requests_per_object > 1 and job.block_bytes < job.cloud.first_block_bytes:
        block = job.cloud.first_block_bytes
        yield f"read {size_text(block)} at a time (max_chunk_get_size)", replace(job, block_bytes=block)
    if use.kind == "object":
        copies = math.ceil(use.share / SAFE)
        yield (
            f"keep {copies:,} copies of the object, each read by a part of the ranks",
            replace(job, layout=str(copies)),
        )
        one_each = replace(job, ranks=max(1, job.ranks // job.ranks_per_node))
        yield "read it once a machine and hand it on (torch.distributed.broadcast)", one_each
    if use.kind in ("account", "bandwidth"):
        yield from _larger_accounts(job, use.share)


def _for_writes(job: Workload, now: Forecast) -> Iterator[tuple[str, Workload]]:
    use = now.uses[0]
    if use.kind == "prefix":
        many = min(job.writers, now.prefixes * math.ceil(use.share / SAFE))
        if many > now.prefixes:
            yield (
                f"spread the files over {many:,} prefixes (rank first, then step)",
                replace(job, checkpoint_layout=str(many)),
            )
    yield from _larger_parts(job, now)
    if use.kind != "bandwidth" and job.files_per_writer > 1:
        yield "write one file for each writer", replace(job, files_per_writer=1)
    if now.late_s:
        yield from _more_writers(job, now)
    if job.writers > job.ranks // job.ranks_per_node > 0:
        one_each = job.ranks // job.ranks_per_node
        yield f"let one rank of each machine write ({one_each:,} writers)", replace(job, writers=one_each)
    if use.kind in ("account", "bandwidth"):
        yield from _larger_accounts(job, use.share)


def _larger_parts(job: Workload, now: Forecast) -> Iterator[tuple[str, Workload]]:
    # What waits for bytes gains nothing by fewer requests; what is only late waits for each request's latency.
    if job.requests_per_file > 1 and (now.uses[0].kind != "bandwidth" or now.late_s):
        factor = _power_of_two(_too_much(job, now), min(_LARGEST_PART / job.part_bytes, job.requests_per_file))
        if factor > 1:
            part = job.part_bytes * factor
            text = f"write parts of {size_text(part)} instead of {size_text(job.part_bytes)}"
            yield text, replace(job, part_bytes=part)


def _more_writers(job: Workload, now: Forecast) -> Iterator[tuple[str, Workload]]:
    # No more than the limit serves: what is beyond it only waits.
    served = job.writers * SAFE / now.share
    more = math.floor(min(job.ranks, math.ceil(job.writers * _too_much(job, now)), served))
    if more > job.writers:
        yield f"let {more:,} ranks write (--writers {more})", replace(job, writers=more)


def _too_much(job: Workload, now: Forecast) -> float:
    """How many times what is safe a checkpoint uses, of its limit or of the time until the next."""
    late = (now.took_s or 0.0) / job.checkpoint_every_s if now.late_s and job.checkpoint_every_s else 0.0
    return max(now.share, late) / SAFE


def _larger_accounts(job: Workload, share: float) -> Iterator[tuple[str, Workload]]:
    cloud = job.cloud
    larger = enlarged(cloud)
    if (cloud.out_bytes_per_s or 0.0) < (larger.out_bytes_per_s or 0.0):
        yield (
            "an account with the larger limits of some regions (--account large), or ask Azure support",
            replace(job, cloud=larger),
        )
    count = math.ceil(share / SAFE)
    several = replace(
        cloud,
        account_per_s=_times(cloud.account_per_s, count),
        in_bytes_per_s=_times(cloud.in_bytes_per_s, count),
        out_bytes_per_s=_times(cloud.out_bytes_per_s, count),
    )
    if count > 1:
        yield f"spread the data over {count:,} accounts", replace(job, cloud=several)


def _times(limit: float | None, count: int) -> float | None:
    return None if limit is None else limit * count


def _beyond_the_model(job: Workload, reads: Forecast, checkpoint: Forecast | None) -> Iterator[Advice]:
    """What the model has no figures for, and what is not the store's limit."""
    if job.samples_per_s is not None and job.wanted_reads_per_s > job.possible_reads_per_s:
        least = math.ceil(job.workers * job.wanted_reads_per_s / job.possible_reads_per_s)
        text = (
            f"{job.workers} workers read {number_text(job.possible_reads_per_s / job.ranks)} times a second and rank, "
        )
        text += f"the training wants {number_text(job.wanted_reads_per_s / job.ranks)}: take at least {least:,} workers"
        yield Advice(about="reads", text=text, after=None)
    hot = [one for one in (reads, checkpoint) if one is not None and one.share > SAFE and one.uses]
    layouts = {reads.what: job.layout, "checkpoint": job.checkpoint_layout}
    for one in hot:
        if one.uses[0].kind == "bandwidth" and one is reads:
            text = "keep what was read on the machines' disks: every further epoch costs the store nothing"
            yield Advice(about=one.what, text=text, after=None)
        if one.uses[0].kind == "account":
            text = "a premium block blob account is made for high request rates; its limit is not published"
            yield Advice(about=one.what, text=text, after=None)
        if one.uses[0].kind == "prefix" and layouts[one.what] == DATE:
            text = "a prefix that is new every day or step is never split by S3: put the date after the spread part"
            yield Advice(about=one.what, text=text, after=None)
        elif one.uses[0].kind == "prefix":
            text = "S3 splits a prefix that stays hot after half an hour or so; until then its limit holds"
            yield Advice(about=one.what, text=text, after=None)


def _spread_hint(layout: str) -> str:
    return (
        " before the date" if layout == DATE else " (a hash or the rank first)" if layout in (ONE, RANK, OBJECT) else ""
    )


def _power_of_two(wanted: float, most: float) -> int:
    return int(2 ** max(0, min(math.ceil(math.log2(wanted)), math.floor(math.log2(max(1.0, most))))))
