"""What S3 and Azure Blob document about how much one prefix, account or blob serves. Targets, not promises.

S3: https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html (at least so many requests a
second for each partitioned prefix; it scales in the background, with 503 meanwhile), and
optimizing-performance-design-patterns (85 to 90 MB/s for one connection).
Azure: https://learn.microsoft.com/azure/storage/common/scalability-targets-standard-account (standard account: 20,000
requests a second, 25 Gbit/s in and 50 Gbit/s out; in some regions 40,000, 60 and 200) and
https://learn.microsoft.com/azure/storage/blobs/scalability-targets (one blob: up to 500 requests a second).
For a premium block blob account no request rate is published.

Sizes. S3: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html (parts of 5 MiB to 5 GiB, but for the last;
10,000 of an upload; an object of 48.8 TiB, which is all of them: 5 TiB until December 2025, and still in some
translations of the page and in other stores with S3's interface).
Azure: https://learn.microsoft.com/rest/api/storageservices/put-block (50,000 blocks of a blob, of 4,000 MiB each).
"""

from __future__ import annotations

import math
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
    part_word: str
    """What a part is called, of what: "parts of an object"."""
    least_part_bytes: int
    """Of a part, but for the last of an object."""
    most_part_bytes: int
    most_parts: int
    """Of one object."""
    account_granted: bool = False
    """`account_per_s` is what support granted, not a default."""

    @property
    def most_object_bytes(self) -> int:
        """The largest object: as many parts as there may be, each as large as it may be."""
        return self.most_parts * self.most_part_bytes

    def part_for(self, file_bytes: float) -> int:
        """Return the smallest part, in whole MiB, of which an object of this size has no more than it may."""
        wanted = math.ceil(file_bytes / self.most_parts / 2**20) * 2**20
        return min(max(wanted, self.least_part_bytes), self.most_part_bytes)


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
    part_word="parts of an object",
    least_part_bytes=5 * 2**20,
    most_part_bytes=5 * 2**30,
    most_parts=10_000,
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
    part_word="blocks of a blob",
    least_part_bytes=1,
    most_part_bytes=4000 * 2**20,
    most_parts=50_000,
)
CLOUDS: Final = {cloud.name: cloud for cloud in (S3, AZURE)}


def enlarged(cloud: Cloud) -> Cloud:
    """Return the limits of an account in a region with the larger defaults; what support granted stays."""
    requests_per_s = cloud.account_per_s if cloud.account_granted else 40_000.0
    return replace(cloud, account_per_s=requests_per_s, in_bytes_per_s=60.0 * _GBIT, out_bytes_per_s=200.0 * _GBIT)
