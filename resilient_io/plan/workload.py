"""What the person who trains knows of the job, and what follows for the requests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from resilient_io.plan.limits import Cloud

ONE: Final = "one"
RANK: Final = "rank"
DATE: Final = "date"
OBJECT: Final = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A job. Sizes in bytes, times in seconds."""

    cloud: Cloud
    ranks: int
    """Processes that train."""
    workers: int
    """Reads that each rank has under way at one time: dataloader workers times threads."""
    layout: str
    """`one` prefix, one for each `rank`, the prefix of a `date`, one `object`, or a number of prefixes."""
    object_bytes: int
    samples_per_s: float | None = None
    """What a rank consumes, in any unit (samples, tokens); None: as much as the workers can read."""
    samples_per_object: float = 1.0
    """What an object holds, in the same unit."""
    checkpoint_bytes: int | None = None
    """Of all ranks together; None: none is written."""
    checkpoint_every_s: float | None = None
    checkpoint_layout: str
    writers: int
    """Ranks that write."""
    files_per_writer: int = 1
    parallel_parts: int = 10
    """Requests that a writer has under way."""
    part_bytes: int
    block_bytes: int
    """Read with each request after the first."""
    ranks_per_node: int
    """Ranks that share a limit: those of one machine."""
    latency_s: float
    """Until the first byte."""
    stream_bytes_per_s: float
    """Of one connection."""

    @property
    def requests_per_object(self) -> int:
        """Requests that read an object."""
        first = max(self.block_bytes, self.cloud.first_block_bytes)
        return 1 + math.ceil(max(0, self.object_bytes - first) / self.block_bytes)

    @property
    def bytes_per_read(self) -> float:
        """Bytes that a read brings, in the mean."""
        return self.object_bytes / self.requests_per_object

    @property
    def read_s(self) -> float:
        """Seconds of one read where nothing is in the way."""
        return self.latency_s + self.bytes_per_read / self.stream_bytes_per_s

    @property
    def possible_reads_per_s(self) -> float:
        """Reads a second of all workers together, at most."""
        return self.ranks * self.workers / self.read_s

    @property
    def wanted_reads_per_s(self) -> float:
        """Reads a second that the training asks for."""
        if self.samples_per_s is None:
            return self.possible_reads_per_s
        return self.ranks * self.samples_per_s / self.samples_per_object * self.requests_per_object

    @property
    def file_bytes(self) -> float:
        """Size of one file of a checkpoint."""
        return (self.checkpoint_bytes or 0) / (self.writers * self.files_per_writer)

    @property
    def is_too_large(self) -> bool:
        """Whether a file of a checkpoint is larger than an object can be."""
        return self.file_bytes > self.cloud.most_object_bytes

    @property
    def requests_per_file(self) -> int:
        """Requests that write one file of a checkpoint."""
        if self.file_bytes <= max(self.part_bytes, self.cloud.whole_bytes):
            return 1
        return math.ceil(self.file_bytes / self.part_bytes) + self.cloud.extra_writes

    @property
    def write_s(self) -> float:
        """Seconds of one write where nothing is in the way."""
        parts = max(1, math.ceil(self.file_bytes / max(self.part_bytes, 1)))
        size = self.file_bytes if self.requests_per_file == 1 else self.file_bytes / parts
        return self.latency_s + size / self.stream_bytes_per_s


def prefixes_of(layout: str, *, users: int) -> int:
    """Return over how many prefixes a layout spreads what so many ranks do at one moment."""
    match layout:
        case "rank":
            return users
        case "one" | "date" | "object":
            return 1
        case number:
            return int(number)
