"""One rank of the job, run as `python -m resilient_io.rehearse.worker`: what a user's training process does.

The stock run and the treated one differ in two lines: `import resilient_io; resilient_io.install()`. The steward,
which fills the store before the runs and checks what they wrote, is such a process too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from resilient_io.rehearse.crew import Crew, Work, serve
from resilient_io.rehearse.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank: its filesystem, and where the job's keys stand."""

    fs: Any
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
        return f"s3://{self.bucket}/{key}"


def prepare(task: Mapping[str, Any]) -> Crew:
    """Make the filesystem and its client, without a request, and return what this rank can do."""
    if task["run"] != "stock":
        import resilient_io

        resilient_io.install()
    import fsspec

    counts = _counter()
    fs = fsspec.filesystem("s3", **task["storage_options"])
    fs.connect()
    job = Job.from_dict(task["job"])
    rank = Rank(fs=fs, job=job, rank=task["rank"], bucket=task["bucket"], run=task["run"])
    return Crew(threads=job.threads, phase=rank.works, counts=counts)


def _counter() -> Callable[[], Mapping[str, int]]:
    """Count the requests and refusals of this process's S3 clients, anew each time that the counts are asked for.

    At the sessions, because s3fs may make its client more than once.
    """
    import botocore

    counts: Counter[str] = Counter()

    def sent(**event: Any) -> None:
        counts["sent"] += 1

    def answered(response_dict: Mapping[str, Any], **event: Any) -> None:
        if response_dict.get("status_code") in (429, 503):
            counts["refused"] += 1

    def taken() -> Mapping[str, int]:
        nonlocal counts
        taken, counts = counts, Counter()
        return taken

    def watch(session: Any) -> None:
        session.register("before-send.s3", sent)
        session.register("response-received.s3", answered)

    botocore.register_initializer(watch)
    return taken


if __name__ == "__main__":
    serve(prepare)
