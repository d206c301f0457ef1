"""Whether what stands in the store is our own work: the write of which the answer was lost.

A repeat of such a write is refused (the object is there, the upload is gone), and the refusal says nothing of whose
work is in the way. What is compared here was asked of the store afterwards.

Two writers of the same bytes with the same metadata cannot be told apart, and need not be: the store holds what was
asked for. Where the winner matters (a lock), the bytes or the metadata must name the writer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

_MD5: Final = re.compile(r"[0-9a-f]{32}\Z")
#: What AWS makes of the ETags of parts: https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
_PARTED: Final = re.compile(r"[0-9a-f]{32}-\d+\Z")


class Finding(Enum):
    """What a look at the store tells of a write whose answer was lost."""

    OURS = "the write happened"
    OTHERS = "something else is there: the refusal is what it says"
    UNSURE = "it cannot be told"


def compared(
    *,
    lengths_bytes: tuple[int | None, int | None],
    metadata: tuple[Mapping[str, str], Mapping[str, str]],
    digests: Iterable[tuple[str, str]],
) -> Finding:
    """Compare what was written with what is there; each pair is (written, found).

    `digests` are taken one by one until one tells: all that both sides have, of the same kind.
    """
    written_bytes, found_bytes = lengths_bytes
    if written_bytes is not None and found_bytes is not None and written_bytes != found_bytes:
        return Finding.OTHERS
    if _lower(metadata[0]) != _lower(metadata[1]):
        return Finding.OTHERS
    for written, found in digests:
        return Finding.OURS if written == found else Finding.OTHERS
    return Finding.UNSURE


def _lower(metadata: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in metadata.items()}


def is_md5(etag: str) -> bool:
    """Say whether an ETag has the form of an MD5; that of an encrypted object may have it and be none."""
    return _MD5.match(etag.strip('"').lower()) is not None


def is_parted(etag: str) -> bool:
    """Say whether an ETag is that of an object made of parts."""
    return _PARTED.match(etag.strip('"').lower()) is not None


def etag_of_parts(etags: Sequence[str]) -> str | None:
    """Return the ETag that S3 gives an object of parts with these; None where they are no MD5s."""
    plain = [etag.strip('"').lower() for etag in etags]
    if not plain or not all(_MD5.match(etag) for etag in plain):
        return None
    joined = b"".join(map(bytes.fromhex, plain))
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(plain)}"


def same_blocks(written: Sequence[str], found: Sequence[str], *, is_offset: Callable[[str], bool]) -> Finding:
    """Compare the blocks of a list that was to be committed with those that are committed.

    Names that only say where a block begins (`is_offset`) are those of any other upload too.
    """
    if list(written) != list(found):
        return Finding.OTHERS
    return Finding.UNSURE if not written or all(map(is_offset, written)) else Finding.OURS
