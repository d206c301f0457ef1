"""The job of a rehearsal: epochs of a dataloader, and a checkpoint that all ranks write at one moment after each."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Final

#: S3 documents 5,500 reads and 3,500 writes a second for each prefix; the ceilings here keep the proportion.
WRITES_PER_READ: Final = 3500 / 5500
#: Epochs, and so checkpoints, of a run where nothing else is said.
EPOCHS: Final = 2
#: Seconds of its rate that a quiet prefix of the embedded store saves up.
BURST_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run does; the same for every run of a rehearsal.

    Each of `epochs` reads each of `shards` objects of `shard_bytes` once, in an order drawn from `seed`, dealt out to
    `ranks` processes of `threads` threads. Then each rank writes `parts` files of `shard_bytes` as its part of the
    checkpoint. `ceiling_per_s`: reads a second of the shards' prefix, None if it is not known; that of the
    checkpoints' prefix takes `writes_per_read` times as many writes.
    """

    ranks: int
    threads: int
    shards: int
    shard_bytes: int
    parts: int
    ceiling_per_s: float | None
    seed: int
    root: str = ""
    writes_per_read: float = WRITES_PER_READ
    epochs: int = EPOCHS

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases in order; all ranks begin one together."""
        return tuple(f"{kind} {epoch}" for epoch in range(self.epochs) for kind in ("read", "checkpoint"))

    @property
    def operations(self) -> int:
        """Operations of a run."""
        return self.epochs * (self.shards + self.ranks * self.parts)

    @property
    def write_ceiling_per_s(self) -> float | None:
        """Writes a second of the checkpoints' prefix, None if it is not known."""
        return None if self.ceiling_per_s is None else self.ceiling_per_s * self.writes_per_read

    @property
    def ideal_s(self) -> float | None:
        """Seconds that the ceilings alone take, None if they are not known."""
        if self.ceiling_per_s is None or self.write_ceiling_per_s is None:
            return None
        reading_s = max(0.0, self.shards / self.ceiling_per_s - BURST_S)
        writing_s = max(0.0, self.ranks * self.parts / self.write_ceiling_per_s - BURST_S)
        return self.epochs * (reading_s + writing_s)

    def shard_key(self, number: int) -> str:
        """Return the key of a shard; all stand in one prefix, which is what makes it hot."""
        return f"{self.root}datasets/hot/shard-{number:05d}.tar"

    def part_key(self, run: str, epoch: int, rank: int, number: int) -> str:
        """Return the key of one file of a checkpoint; each run has its own, in one prefix."""
        return f"{self.root}checkpoints/all/{run}-step-{epoch}/rank-{rank:03d}-{number:03d}.pt"

    def part_keys(self, run: str) -> list[str]:
        """Return the keys of all files that a run writes."""
        places = product(range(self.epochs), range(self.ranks), range(self.parts))
        return [self.part_key(run, *place) for place in places]

    def shards_of(self, epoch: int, rank: int) -> list[int]:
        """Return the shards that a rank reads in an epoch, in order."""
        order = list(range(self.shards))
        random.Random(f"{self.seed} epoch {epoch}").shuffle(order)
        return order[rank :: self.ranks]

    def body(self, key: str) -> bytes:
        """Return what is, or is to be, stored under a key."""
        return random.Random(f"{self.seed} {key[len(self.root) :]}").randbytes(self.shard_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Job:
        """Build the job that `to_dict` gave."""
        return cls(**data)
