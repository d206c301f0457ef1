"""The checksum of a large object, whose ranges carry none, is compared over the whole; on Azure under strict."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resilient_io.aws.filesystem import ResilientS3FileSystem
from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import RetriesExhausted

from .odd_store import Ask, OddStore, Reply, odd_store

pytestmark = pytest.mark.wire
POLICY: dict[str, object] = {"backoff_base_s": 0.001, "backoff_cap_s": 0.01, "max_attempts": 3, "verify": "strict"}
DATA = random.Random(6).randbytes(300_000)
CRC = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
MD5 = base64.b64encode(hashlib.md5(DATA, usedforsecurity=False).digest()).decode()
TOLD = {"x-amz-checksum-crc32": CRC, "x-ms-blob-content-md5": MD5}
BLOCK = 100_000
KEY = base64.b64encode(b"key").decode()
Read = Callable[[Any, Path], bytes]


@pytest.fixture(scope="module")
def store() -> Iterator[OddStore]:
    with odd_store(DATA) as running:
        yield running


@pytest.fixture(scope="module", params=["s3fs", "adlfs"])
def fs(request: pytest.FixtureRequest, store: OddStore) -> Any:
    if request.param == "s3fs":
        return ResilientS3FileSystem(
            endpoint_url=store.url, key="k", secret="s", resilience=POLICY, default_block_size=BLOCK,
            client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True,
        )  # fmt: skip
    where = f"DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={KEY};BlobEndpoint={store.url}/acct;"
    return ResilientAzureBlobFileSystem(
        connection_string=where, blocksize=BLOCK, resilience=POLICY, skip_instance_cache=True
    )


def _got(fs: Any, folder: Path) -> bytes:
    fs.get_file("b/train/000001", str(folder / "local"))
    return (folder / "local").read_bytes()


READS: dict[str, Read] = {"cat_file": lambda fs, folder: bytes(fs.cat_file("b/train/000001")), "get_file": _got}


def _damages(store: OddStore, numbers: range) -> Callable[[Ask], Reply]:
    """Return answers that tell the whole's checksum at its beginning; of these numbers one byte is another."""

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask, **(TOLD if ask.first == 0 else {}))
        if ask.number in numbers:
            (body,) = reply.pieces
            assert isinstance(body, bytes)
            reply.pieces = [body[:-1] + bytes([body[-1] ^ 1])]
        return reply

    return how


@pytest.mark.parametrize("read", READS)
def test_one_wrong_byte_in_a_range_is_not_data(store: OddStore, fs: Any, tmp_path: Path, read: str) -> None:
    runtimes.reset()
    store.begin_anew(DATA)
    store.how = _damages(store, range(3, 4))
    assert READS[read](fs, tmp_path) == DATA
    # The second time in one piece on S3, where the SDK compares as it reads.
    assert len(store.asks) == (6 if isinstance(fs, ResilientAzureBlobFileSystem) else 4)
    store.begin_anew(DATA)
    store.how = _damages(store, range(3, 1000))
    (tmp_path / "local").unlink(missing_ok=True)
    with pytest.raises(RetriesExhausted, match=r"train/000001: transient \(checksum\) after [23] attempts"):
        READS[read](fs, tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("read", READS)
def test_a_sound_object_is_read_once(store: OddStore, fs: Any, tmp_path: Path, read: str) -> None:
    runtimes.reset()
    store.begin_anew(DATA)
    store.how = _damages(store, range(0))
    assert READS[read](fs, tmp_path) == DATA
    assert len(store.asks) == 3
