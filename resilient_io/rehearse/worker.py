"""One rank of the job, run as `python -m resilient_io.rehearse.worker`: what a user's training process does.

The stock run and the treated one differ in two lines: `import resilient_io; resilient_io.install()`. The steward,
which fills the store before the runs and checks what they wrote, is such a process too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from resilient_io.rehearse.clouds import CLOUDS, S3
from resilient_io.rehearse.counting import counted
from resilient_io.rehearse.crew import Crew, Work, serve
from resilient_io.rehearse.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank: its filesystem, and where the job's keys stand."""

    fs: Any
    scheme: str
    job: Job
    rank: int
    bucket: str
    run: str

    def works(self, phase: str) -> list[Work]:
        """Return this rank's operations of a phase; "fill" and "check" are the steward's."""
        kind, _, of = phase.partition(" ")
        match kind:
            case "read":
                return [self._read(n) for n in self.job.shards_of(int(of), self.rank)]
            case "checkpoint":
                return [self._write(self.job.part_key(self.run, int(of), self.rank, n)) for n in range(self.job.parts)]
            case "fill":
                return [self._write(self.job.shard_key(n)) for n in range(self.job.shards)]
            case "check":
                return [self._check(key) for key in self.job.part_keys(of)]
            case _:
                raise ValueError(f"no such phase: {phase}")

    def _read(self, number: int) -> Work:
        key = self.job.shard_key(number)
        # Dataloaders read in both ways; each shard is always read in the same one.
        read = self._read_open if number % 2 else self._read_at_once
        return Work(kind="read", do=partial(read, self._url(key)), wanted=partial(self.job.body, key))

    def _check(self, key: str) -> Work:
        return Work(kind="check", do=partial(self._read_at_once, self._url(key)), wanted=partial(self.job.body, key))

    def _write(self, key: str) -> Work:
        return Work(kind="write", do=partial(self.fs.pipe_file, self._url(key), self.job.body(key)))

    def _read_at_once(self, url: str) -> bytes:
        data: bytes = self.fs.cat_file(url)
        return data

    def _read_open(self, url: str) -> bytes:
        with self.fs.open(url, "rb") as file:
            data: bytes = file.read()
        return data

    def _url(self, key: str) -> str:
        return f"{self.scheme}://{self.bucket}/{key}"


def prepare(task: Mapping[str, Any]) -> Crew:
    """Make the filesystem and its client, without a request, and return what this rank can do."""
    if task["run"] != "stock":
        import resilient_io

        resilient_io.install()
    import fsspec

    cloud = CLOUDS[task["cloud"]]
    counts = counted(cloud.name)
    fs = fsspec.filesystem(cloud.scheme, **task["storage_options"])
    if cloud is S3:
        fs.connect()  # adlfs has its client from the start
    job = Job.from_dict(task["job"])
    rank = Rank(fs=fs, scheme=cloud.scheme, job=job, rank=task["rank"], bucket=task["bucket"], run=task["run"])
    return Crew(threads=job.threads, phase=rank.works, counts=counts)


if __name__ == "__main__":
    serve(prepare)
