"""`resilient-io mpu`: its arguments, what it prints, and its exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from resilient_io.errors import redact
from resilient_io.options import seconds

if TYPE_CHECKING:
    from resilient_io.aws.abandoned import Held, Upload

SUMMARY: Final = "list or abort multipart uploads that nobody completed: S3 stores their parts for ever"
_S3: Final = ("s3", "s3a", "rs3")
_AZURE: Final = ("abfs", "abfss", "az", "rabfs", "raz")
#: Aborts under way at a time; the semaphore of the prefix may allow fewer.
_THREADS: Final = 16
_AZURE_SAYS: Final = (
    "Azure Blob has no multipart uploads: blocks that no list has committed are in no blob, and the service drops them "
    "a week after the last one was sent. There is nothing to list or abort."
)
_DAY_S: Final = 86_400.0


class CannotDo(Exception):
    """The command cannot be done as asked; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One upload, and what became of it."""

    upload: Upload
    age_s: float
    held: Held | None = None
    error: str | None = None

    def as_json(self, *, aborts: bool) -> dict[str, Any]:
        """Return the row for `--json`."""
        one = self.upload
        told: dict[str, Any] = {
            "key": one.key,
            "upload_id": one.upload_id,
            "initiated": one.initiated.isoformat(),
            "age_s": round(self.age_s),
        }
        if self.held is not None:
            told.update(parts=self.held.parts, size_bytes=self.held.size_bytes)
        return {**told, "aborted": self.error is None, "error": self.error} if aborts else told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpu`."""
    add = parser.add_argument
    add("action", choices=("ls", "abort"), help="list them, or abort them")
    add("url", metavar="URL", help="s3://bucket/prefix; all keys that begin so")
    older = "only those that began so long ago: 2d, 12h; abort needs it, because it ends uploads that are under way too"
    add("--older-than", type=seconds, metavar="TIME", help=older)
    add("--parts", action="store_true", help="count the parts and bytes that each holds (a request more for each)")
    add("--endpoint-url", metavar="URL", help="of a store other than AWS")
    add("--json", action="store_true", help="everything as JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the options say; return the exit status."""
    try:
        return _run(options)
    except CannotDo as error:
        print(f"mpu: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    scheme, bucket, prefix = _place(options.url)
    if scheme in _AZURE:
        print(json.dumps({"uploads": [], "note": _AZURE_SAYS}) if options.json else _AZURE_SAYS)
        return 0
    if options.action == "abort" and options.older_than is None:
        raise CannotDo("abort needs --older-than, such as 2d: younger uploads may still be under way")
    rows = _rows(options, bucket, prefix)
    if options.json:
        uploads = [row.as_json(aborts=options.action == "abort") for row in rows]
        print(json.dumps({"bucket": bucket, "prefix": prefix, "uploads": uploads}, indent=2))
    else:
        _print(rows, options)
    return 1 if any(row.error for row in rows) else 0


def _place(url: str) -> tuple[str, str, str]:
    scheme, between, rest = url.partition("://")
    if scheme == "https" and ".blob." in rest.partition("/")[0]:
        scheme = _AZURE[0]
    if not between or scheme not in (*_S3, *_AZURE):
        raise CannotDo(f"{redact(url)!r} is no URL of a bucket, such as s3://bucket/prefix")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise CannotDo(f"{redact(url)!r} names no bucket")
    return scheme, bucket, prefix


def _rows(options: argparse.Namespace, bucket: str, prefix: str) -> list[Row]:
    """Find the uploads, and abort them if that is asked."""
    if find_spec("botocore") is None:
        raise CannotDo("S3 needs botocore: pip install 'resilient-io[boto3]'")
    from resilient_io.aws import abandoned

    try:
        s3 = abandoned.client(options.endpoint_url)
        found = list(abandoned.find(s3, bucket, prefix, older_than_s=options.older_than or 0.0))
        return _each(found, lambda upload: _row(s3, upload, options))
    except (*abandoned.FAILURES, ValueError) as error:
        raise CannotDo(redact(str(error))) from error


def _each(found: Sequence[Upload], work: Callable[[Upload], Row]) -> list[Row]:
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(work, found))


def _row(s3: Any, upload: Upload, options: argparse.Namespace) -> Row:
    from resilient_io.aws import abandoned

    held = abandoned.held_by(s3, upload) if options.parts else None
    error = None
    if options.action == "abort":
        try:
            abandoned.abort(s3, upload)
        except abandoned.FAILURES as failed:
            error = redact(str(failed))
    return Row(upload=upload, age_s=upload.age_s(datetime.now(timezone.utc)), held=held, error=error)


def _print(rows: Sequence[Row], options: argparse.Namespace) -> None:
    for row in rows:
        began = row.upload.initiated.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
        held = f"  {row.held.parts} parts, {row.held.size_bytes:,} bytes" if row.held is not None else ""
        failed = f"  NOT ABORTED: {row.error}" if row.error else ""
        print(f"{began}  {_age(row.age_s):>7}  {row.upload.url}  {row.upload.upload_id}{held}{failed}")
    done = sum(row.error is None for row in rows)
    what = f"{done} of {len(rows)} uploads aborted" if options.action == "abort" else f"{len(rows)} uploads open"
    bytes_held = sum(row.held.size_bytes for row in rows if row.held is not None)
    print(f"{what}, with {bytes_held:,} bytes" if options.parts else what)


def _age(age_s: float) -> str:
    for unit_s, unit in ((_DAY_S, "d"), (3600.0, "h"), (60.0, "min")):
        if age_s >= unit_s:
            return f"{age_s / unit_s:.1f} {unit}"
    return f"{max(age_s, 0.0):.0f} s"
