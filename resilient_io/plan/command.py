"""`resilient-io plan`: its arguments, what it prints, and its exit status."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import asdict, replace
from typing import Any, Final

from resilient_io.options import positive, seconds, size, whole
from resilient_io.plan import forecast
from resilient_io.plan.advice import Advice, advise
from resilient_io.plan.forecast import Forecast
from resilient_io.plan.limits import AZURE, CLOUDS, Cloud, enlarged
from resilient_io.plan.words import rate_text, size_option, size_text, time_text
from resilient_io.plan.workload import DATE, OBJECT, ONE, RANK, Workload, prefixes_of

SUMMARY: Final = (
    "predict the requests a second on each prefix and account of a training job, the stall, and what to change"
)
_LAYOUTS: Final = (ONE, RANK, DATE, OBJECT)
_MOST_PREFIXES: Final = 1_000_000
_SIZE: Final = size(2**60, "1EiB")
# No cloud has a larger object than a blob of 50,000 blocks.
_OBJECT_SIZE: Final = size(AZURE.most_object_bytes, "190.7TiB")


class CannotPlan(Exception):
    """What was said of the job does not go together; the text says what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `plan`."""
    add = parser.add_argument
    add("--ranks", type=whole(1, 1_000_000), required=True, metavar="N", help="processes that train")
    workers = "reads that a rank has under way: dataloader workers, times threads in each (8)"
    add("--workers", type=whole(1, 100_000), default=8, metavar="W", help=workers)
    add("--cloud", choices=[*CLOUDS], default="s3", help="s3 (default), or azure: Azure Blob")
    layout = "where objects lie: one prefix (default), one for each rank, that of a date, one object, N prefixes"
    add("--layout", type=_layout, default=ONE, metavar="one|rank|date|object|N", help=layout)
    add("--object-size", type=_OBJECT_SIZE, default=64 * 2**20, metavar="SIZE", help="of a shard (64MiB)")
    samples = "what a rank consumes, in samples, tokens or any unit; default: as much as its workers can read"
    add("--samples-per-s", type=positive, metavar="X", help=samples)
    add("--samples-per-object", type=positive, metavar="Y", help="what an object holds, in the same unit (1)")
    add("--checkpoint-size", type=_SIZE, metavar="SIZE", help="of a whole checkpoint; default: none is written")
    add(
        "--checkpoint-every", type=seconds, metavar="TIME", help="such as 30m or 2h; tells the stall as a share of time"
    )
    add("--checkpoint-layout", type=_layout, metavar="one|rank|date|N", help="as --layout, for its files (--layout)")
    add("--writers", type=whole(1, 1_000_000), metavar="N", help="ranks that write it (all)")
    add(
        "--files-per-writer",
        type=whole(1, 1_000_000),
        default=1,
        metavar="N",
        help="files that each of them writes (1)",
    )
    part = "written by one request (50MiB, or more where an object would have too many parts)"
    add("--part-size", type=_SIZE, metavar="SIZE", help=part)
    add("--read-size", type=_SIZE, metavar="SIZE", help="read by a request after the first (s3 50MiB, azure 4MiB)")
    add(
        "--ranks-per-node",
        type=whole(1, 10_000),
        default=8,
        metavar="N",
        help="ranks on a machine; they share limits (8)",
    )
    add("--latency", type=seconds, default=0.025, metavar="TIME", help="until the first byte (25ms)")
    add("--stream", type=_SIZE, default=85_000_000, metavar="SIZE", help="bytes a second of one connection (85MB)")
    add("--read-limit", type=positive, metavar="PER_S", help="of a prefix, if S3 gave it more than 5,500")
    add("--write-limit", type=positive, metavar="PER_S", help="of a prefix, if S3 gave it more than 3,500")
    add(
        "--account",
        choices=("standard", "large"),
        default="standard",
        help="azure: large has the limits of some regions",
    )
    add("--account-limit", type=positive, metavar="PER_S", help="azure: requests a second, if support raised them")
    add("--json", action="store_true", help="print everything as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the plan; 0 if nothing is above its limits, 1 if something is, 2 if the job makes no sense."""
    try:
        job = _workload(options)
    except CannotPlan as error:
        print(f"resilient-io plan: {error}", file=sys.stderr)
        return 2
    reads, checkpoint = forecast.reads(job), forecast.checkpoint(job)
    advice = advise(job, reads, checkpoint)
    (_print_json if options.json else _print)(job, [one for one in (reads, checkpoint) if one is not None], advice)
    return 1 if reads.share > 1.0 or job.is_too_large or (checkpoint is not None and _stalls(checkpoint)) else 0


def _stalls(checkpoint: Forecast) -> bool:
    return bool(checkpoint.late_s) or (checkpoint.stall_s or 0.0) > 1.0


def _workload(options: argparse.Namespace) -> Workload:
    """Raise `CannotPlan` for options that do not go together."""
    _check(options)
    cloud = _cloud(options)
    job = Workload(
        cloud=cloud,
        ranks=options.ranks,
        workers=options.workers,
        layout=options.layout,
        object_bytes=options.object_size,
        samples_per_s=options.samples_per_s,
        samples_per_object=options.samples_per_object or 1.0,
        checkpoint_bytes=options.checkpoint_size,
        checkpoint_every_s=options.checkpoint_every,
        checkpoint_layout=options.checkpoint_layout or (ONE if options.layout == OBJECT else options.layout),
        writers=options.writers or options.ranks,
        files_per_writer=options.files_per_writer,
        part_bytes=options.part_size or cloud.part_bytes,
        block_bytes=options.read_size or cloud.block_bytes,
        ranks_per_node=options.ranks_per_node,
        latency_s=options.latency,
        stream_bytes_per_s=float(options.stream),
    )
    if options.part_size is None:
        return replace(job, part_bytes=max(job.part_bytes, cloud.part_for(job.file_bytes)))
    _check_parts(job)
    return job


def _check_parts(job: Workload) -> None:
    """Raise `CannotPlan` for parts that the store refuses."""
    cloud, least_bytes = job.cloud, job.cloud.part_for(job.file_bytes)
    if least_bytes <= job.part_bytes <= cloud.most_part_bytes and not job.is_too_large:
        return
    if job.is_too_large:
        files = math.ceil((job.checkpoint_bytes or 0) / cloud.most_object_bytes)
        hint = f"--files-per-writer {math.ceil(files / job.writers)} or more, and leave --part-size out"
    elif job.part_bytes < least_bytes:
        hint = f"--part-size {size_option(least_bytes)} or more, or leave it out"
    else:
        hint = f"--part-size {size_option(cloud.most_part_bytes)} or less, or leave it out"
    least = f"{size_option(cloud.least_part_bytes)} to " if cloud.least_part_bytes > 1 else "at most "
    each = f"{least}{size_option(cloud.most_part_bytes)} each"
    raise CannotPlan(
        f"--part-size {size_option(job.part_bytes)} for files of {size_text(job.file_bytes)}: {cloud.name} takes "
        f"at most {cloud.most_parts:,} {cloud.part_word}, of {each}: write {hint}"
    )


def _check(options: argparse.Namespace) -> None:
    if options.samples_per_object is not None and options.samples_per_s is None:
        raise CannotPlan("--samples-per-object says nothing without --samples-per-s, what a rank consumes")
    if options.checkpoint_size is None:
        for name in ("checkpoint_every", "checkpoint_layout", "writers", "part_size"):
            if getattr(options, name) is not None:
                raise CannotPlan(f"--{name.replace('_', '-')} needs --checkpoint-size, the size of a whole checkpoint")
    most_bytes = CLOUDS[options.cloud].most_object_bytes
    if options.object_size > most_bytes:
        most = f"an object of {options.cloud} has at most {size_text(most_bytes)}"
        raise CannotPlan(f"--object-size {size_text(options.object_size)}: {most}")
    if options.writers is not None and options.writers > options.ranks:
        raise CannotPlan(f"--writers {options.writers} is more than the {options.ranks} ranks that there are")
    if options.checkpoint_layout == OBJECT:
        raise CannotPlan(
            "--checkpoint-layout object: each writer writes an object of its own; say one, rank, date or N"
        )
    if options.cloud == "s3" and (options.account != "standard" or options.account_limit is not None):
        raise CannotPlan("--account and --account-limit are for --cloud azure: S3 documents limits of prefixes only")
    if options.cloud == "azure" and (options.read_limit is not None or options.write_limit is not None):
        raise CannotPlan(
            "--read-limit and --write-limit are for --cloud s3: Azure documents limits of accounts and blobs"
        )


def _cloud(options: argparse.Namespace) -> Cloud:
    cloud = CLOUDS[options.cloud]
    if options.account_limit is not None:
        cloud = replace(cloud, account_per_s=options.account_limit, account_granted=True)
    if options.account == "large":
        cloud = enlarged(cloud)
    return replace(
        cloud,
        prefix_reads_per_s=options.read_limit or cloud.prefix_reads_per_s,
        prefix_writes_per_s=options.write_limit or cloud.prefix_writes_per_s,
    )


def _layout(text: str) -> str:
    if text in _LAYOUTS or (re.fullmatch(r"\d+", text) and 0 < int(text) <= _MOST_PREFIXES):
        return text
    raise argparse.ArgumentTypeError(f"must be {', '.join(_LAYOUTS)} or a number of prefixes, not {text!r}")


# ---- text ------------------------------------------------------------------------------------------------------------


def _print(job: Workload, phases: list[Forecast], advice: list[Advice]) -> None:
    print(_title(job))
    for one in phases:
        print()
        for line in _lines(job, one, as_quickly_as_possible=one.took_s is None and job.samples_per_s is None):
            print(line)
    print()
    if not advice:
        print("Nothing to change.")
    for piece in advice:
        print(f"- {piece.about}: {piece.text}{_effect(piece)}")


def _title(job: Workload) -> str:
    layout = {ONE: "one prefix", RANK: "a prefix for each rank", DATE: "the prefix of a date", OBJECT: "one object"}
    where = layout.get(job.layout, f"{prefixes_of(job.layout, users=job.ranks):,} prefixes")
    what = f"objects of {size_text(job.object_bytes)}"
    return f"{job.ranks:,} ranks x {job.workers} workers, {job.cloud.name}, {where}, {what}"


def _lines(job: Workload, one: Forecast, *, as_quickly_as_possible: bool) -> list[str]:
    spread = f", {rate_text(one.per_prefix_per_s)} on each of {one.prefixes:,} prefixes" if one.prefixes > 1 else ""
    lines = [f"{one.what}: {rate_text(one.requests_per_s)} requests/s{spread}, {size_text(one.bytes_per_s)}/s"]
    lines += [f"  {use.share:,.0%} of {use.limit}" for use in one.uses]
    if one.refused_share > 0.0 or (one.stall_share > 0.0 and not one.late_s):
        lines.append(f"  about {one.refused_share:.1%} of the requests are refused while the limit holds")
    if one.took_s is not None:
        lines += _duration(job, one)
    elif one.stall_share == 0.0:
        lines.append("  no stall")
    elif as_quickly_as_possible:
        lines.append(f"  the workers read {1.0 - one.stall_share:.0%} of what they could")
    else:
        lines.append(f"  stall: {one.stall_share:.0%} of the time")
    return lines


def _duration(job: Workload, one: Forecast) -> list[str]:
    share = f", {one.stall_share:.1%} of the time" if one.stall_share > 0.0 else ""
    lines = [f"  takes {time_text(one.took_s or 0.0)}, {time_text(one.stall_s or 0.0)} of it stall{share}"]
    if one.late_s and job.checkpoint_every_s is not None:
        until = time_text(job.checkpoint_every_s)
        lines.append(f"  longer than the {until} until the next one, which waits {time_text(one.late_s)}")
    if job.requests_per_file > 1 and job.part_bytes != job.cloud.part_bytes:
        lines.append(f"  in parts of {size_text(job.part_bytes)}")
    return lines


def _effect(piece: Advice) -> str:
    after = piece.after
    if after is None or after.tightest is None:
        return ""
    took = f", {time_text(after.took_s)}" if after.took_s is not None else ""
    return f" -> {rate_text(after.requests_per_s)} requests/s, {after.share:,.0%} of {after.tightest.limit}{took}"


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _print_json(job: Workload, phases: list[Forecast], advice: list[Advice]) -> None:
    said = asdict(job)
    said["cloud"] = job.cloud.name
    found = {
        "job": said,
        "limits": asdict(job.cloud),
        "forecasts": [_forecast(one) for one in phases],
        "advice": [{"about": piece.about, "text": piece.text, "after": _forecast(piece.after)} for piece in advice],
    }
    print(json.dumps(found, indent=2))


def _forecast(one: Forecast | None) -> dict[str, Any] | None:
    if one is None:
        return None
    found = asdict(one)
    found["uses"] = [{**asdict(use), "share": use.share} for use in one.uses]
    return found
