"""Buckets and objects in memory: the data of the built-in store, without any HTTP."""

from __future__ import annotations

import bisect
import hashlib
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An object as stored; `etag` has no quotes, `headers` are sent back as they came."""

    data: bytes
    etag: str
    modified_s: int
    headers: tuple[tuple[str, str], ...] = ()
    part_count: int = 0


@dataclass(slots=True, kw_only=True)
class Upload:
    """A multipart upload that is not completed yet."""

    bucket: str
    key: str
    headers: tuple[tuple[str, str], ...]
    started_s: int
    parts: dict[int, Stored] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a listing: objects and common prefixes in one order, and where the next page starts."""

    objects: tuple[tuple[str, Stored], ...]
    prefixes: tuple[str, ...]
    next_after: str | None


def etag_of(data: bytes) -> str:
    """Return S3's ETag of a body that was put in one piece: its MD5."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def etag_of_parts(etags: list[str]) -> str:
    """Return S3's ETag of a multipart object: the MD5 of the parts' MD5s, and their number."""
    digests = b"".join(bytes.fromhex(etag) for etag in etags)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


class Bucket:
    """The objects of one bucket, with their keys kept in order for listings."""

    __slots__ = ("_keys", "created_s", "objects")

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.created_s = int(time.time())
        self._keys: list[str] | None = []

    def put(self, key: str, stored: Stored) -> None:
        """Store an object in place of any other."""
        if key not in self.objects:
            self._keys = None
        self.objects[key] = stored

    def delete(self, key: str) -> None:
        """Forget an object; nothing if there is none."""
        if self.objects.pop(key, None) is not None:
            self._keys = None

    def page(self, *, prefix: str, delimiter: str, after: str, limit: int) -> Page:
        """Return at most `limit` keys and common prefixes that come after `after`."""
        objects: list[tuple[str, Stored]] = []
        prefixes: list[str] = []
        last = ""
        for name, stored in self._entries(prefix, delimiter, after):
            if len(objects) + len(prefixes) >= limit:
                return Page(objects=tuple(objects), prefixes=tuple(prefixes), next_after=last)
            last = name
            if stored is None:
                prefixes.append(name)
            else:
                objects.append((name, stored))
        return Page(objects=tuple(objects), prefixes=tuple(prefixes), next_after=None)

    def _entries(self, prefix: str, delimiter: str, after: str) -> Iterator[tuple[str, Stored | None]]:
        keys = self._ordered()
        index = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, after))
        while index < len(keys) and keys[index].startswith(prefix):
            key = keys[index]
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                yield key, self.objects[key]
                index += 1
                continue
            group = key[: cut + len(delimiter)]
            if group > after or not after.startswith(group):
                yield group, None
            index = bisect.bisect_left(keys, group[:-1] + chr(ord(group[-1]) + 1))

    def _ordered(self) -> list[str]:
        if self._keys is None:
            self._keys = sorted(self.objects)
        return self._keys


# `randbytes` counts bits in an int of C, which 256 MiB overflow.
_MOST_DRAWN_BYTES = 2**26


class ObjectStore:
    """Every bucket and open upload of a store; not thread-safe."""

    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}
        self.uploads: dict[str, Upload] = {}
        self._random = random.Random()

    def fill(self, *, bucket: str, count: int, size_bytes: int, key: str, seed: int) -> None:
        """Make `count` objects; `key` is a format with the number, the bytes follow from the seed."""
        target = self.buckets.setdefault(bucket, Bucket())
        source = random.Random(seed)
        for number in range(count):
            sizes = [_MOST_DRAWN_BYTES] * (size_bytes // _MOST_DRAWN_BYTES) + [size_bytes % _MOST_DRAWN_BYTES]
            data = b"".join(map(source.randbytes, sizes))
            target.put(key.format(number), Stored(data=data, etag=etag_of(data), modified_s=int(time.time())))

    def start_upload(self, bucket: str, key: str, headers: Mapping[str, str] | tuple[tuple[str, str], ...]) -> str:
        """Open a multipart upload and return its id."""
        upload_id = f"{self._random.getrandbits(128):032x}"
        pairs = tuple(headers.items()) if isinstance(headers, Mapping) else headers
        self.uploads[upload_id] = Upload(bucket=bucket, key=key, headers=pairs, started_s=int(time.time()))
        return upload_id
