"""What S3 and Azure Blob document about how much one prefix, account or blob serves. Targets, not promises.

S3: https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html (at least so many requests a
second for each partitioned prefix; it scales in the background, with 503 meanwhile), and
optimizing-performance-design-patterns (85 to 90 MB/s for one connection).
Azure: https://learn.microsoft.com/azure/storage/common/scalability-targets-standard-account (standard account: 20,000
requests a second, 25 Gbit/s in and 50 Gbit/s out; in some regions 40,000, 60 and 200) and
https://learn.microsoft.com/azure/storage/blobs/scalability-targets (one blob: up to 500 requests a second).
For a premium block blob account no request rate is published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_GBIT: Final = 1e9 / 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """The limits of one cloud, and how its filesystem cuts objects into requests."""

    name: str
    prefix_reads_per_s: float | None
    """None: a prefix has no limit of its own."""
    prefix_writes_per_s: float | None
    account_per_s: float | None
    """Reads and writes together; None: no such limit."""
    out_bytes_per_s: float | None
    in_bytes_per_s: float | None
    blob_per_s: float | None
    first_block_bytes: int
    """Read with the first request of an object."""
    block_bytes: int
    """Read with each further one."""
    part_bytes: int
    """Written with one request."""
    whole_bytes: int
    """Objects up to this are written with one request."""
    extra_writes: int
    """Requests beside the parts of a larger one."""


# s3fs: default_block_size 50 MiB for reads and parts; a multipart upload is begun and completed.
S3: Final = Cloud(
    name="s3",
    prefix_reads_per_s=5500.0,
    prefix_writes_per_s=3500.0,
    account_per_s=None,
    out_bytes_per_s=None,
    in_bytes_per_s=None,
    blob_per_s=None,
    first_block_bytes=50 * 2**20,
    block_bytes=50 * 2**20,
    part_bytes=50 * 2**20,
    whole_bytes=50 * 2**20,
    extra_writes=2,
)
# azure-storage-blob: max_single_get_size 32 MiB, then max_chunk_get_size 4 MiB; adlfs: blocks of 50 MiB, one commit.
AZURE: Final = Cloud(
    name="azure",
    prefix_reads_per_s=None,
    prefix_writes_per_s=None,
    account_per_s=20_000.0,
    out_bytes_per_s=50.0 * _GBIT,
    in_bytes_per_s=25.0 * _GBIT,
    blob_per_s=500.0,
    first_block_bytes=32 * 2**20,
    block_bytes=4 * 2**20,
    part_bytes=50 * 2**20,
    whole_bytes=50 * 2**20,
    extra_writes=1,
)
CLOUDS: Final = {cloud.name: cloud for cloud in (S3, AZURE)}


def enlarged(cloud: Cloud) -> Cloud:
    """Return the limits of an account in a region with the larger defaults."""
    return replace(cloud, account_per_s=40_000.0, in_bytes_per_s=60.0 * _GBIT, out_bytes_per_s=200.0 * _GBIT)
