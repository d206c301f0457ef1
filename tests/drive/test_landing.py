"""Where bytes land: in one piece of memory, or in a file that appears whole."""

from __future__ import annotations

import errno
import os
import random
import stat
import tracemalloc
from pathlib import Path

import pytest
from fsspec.callbacks import Callback

from resilient_io.control.ranges import Span, blocks
from resilient_io.drive.landing import LocalFile, Memory, RangeNotKept, Slot, published

DATA = random.Random(3).randbytes(100_000)


def _fill(landing: Memory | LocalFile, data: bytes = DATA) -> None:
    landing.begin(len(data))
    spans = blocks(0, len(data), 7000)
    random.Random(4).shuffle(spans)
    for span in spans:
        slot = Slot(landing, span)
        for at in range(span.start, span.end, 3000):
            slot.append(data[at : min(at + 3000, span.end)])
        slot.must_be_full()


def test_pieces_in_any_order_are_one_whole() -> None:
    landing = Memory()
    _fill(landing)
    assert landing.value() == DATA


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_one_piece_is_not_copied(size: int) -> None:
    landing, piece = Memory(), DATA[:size]
    landing.begin(size)
    if piece:
        landing.put(0, piece)
    assert landing.value() == piece
    assert not piece or landing.value() is piece


def test_a_size_that_nobody_told_does_no_harm() -> None:
    landing = Memory()
    landing.begin(None)
    landing.put(0, DATA)
    landing.forget(0, len(DATA))
    landing.put(0, b"shorter")
    assert landing.value() == b"shorter"


def test_a_large_whole_is_not_in_memory_twice() -> None:
    size, piece = 32 * 2**20, bytes(2**20)
    tracemalloc.start()
    try:
        landing = Memory()
        landing.begin(size)
        for start in range(0, size, len(piece)):
            landing.put(start, piece)
        value = landing.value()
        assert tracemalloc.get_traced_memory()[1] < size * 1.1
    finally:
        tracemalloc.stop()
    assert (type(value), len(value)) == (bytes, size)


def test_a_range_that_brings_too_much_does_not_reach_into_its_neighbour() -> None:
    landing = Memory()
    landing.begin(20)
    slot = Slot(landing, Span(5, 10))
    slot.append(b"abc")
    with pytest.raises(RangeNotKept, match="asked for 5 bytes at 5 and got 3"):
        slot.must_be_full()
    with pytest.raises(RangeNotKept, match="got more"):
        slot.append(b"defg")
    assert landing.value() == bytes(5) + b"abc" + bytes(12)


class Told(Callback):  # type: ignore[misc]  # fsspec is untyped
    """Progress that is kept in numbers."""


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    told, target = Told(), tmp_path / "local"
    with published(LocalFile(str(target), told)) as landing:
        _fill(landing)
        assert not target.exists()
    assert target.read_bytes() == DATA
    assert os.listdir(tmp_path) == ["local"]
    assert (told.size, told.value) == (len(DATA), len(DATA))


@pytest.mark.parametrize("error", [OSError(5, "no"), KeyboardInterrupt(), GeneratorExit()])
def test_an_interrupted_file_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "local"
    target.write_bytes(b"mine")
    with pytest.raises(type(error)), published(LocalFile(str(target), Told())) as landing:
        _fill(landing)
        raise error
    assert target.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["local"]


def test_a_file_that_is_replaced_keeps_its_permissions_and_a_new_one_has_the_usual_ones(tmp_path: Path) -> None:
    old, new, plain = tmp_path / "old", tmp_path / "new", tmp_path / "plain"
    old.write_bytes(b"x")
    old.chmod(0o640)
    plain.write_bytes(b"x")
    for target in (old, new):
        with published(LocalFile(str(target), Told())) as landing:
            _fill(landing)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert new.stat().st_mode == plain.stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "target")
    with published(LocalFile(str(tmp_path / "link"), Told())) as landing:
        _fill(landing)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "target").read_bytes() == DATA
    assert os.listdir(tmp_path / "there") == ["target"]


def test_a_body_that_begins_anew_and_is_shorter_leaves_no_tail(tmp_path: Path) -> None:
    told = Told()
    with published(LocalFile(str(tmp_path / "local"), told)) as landing:
        landing.begin(None)
        landing.put(0, DATA)
        landing.forget(0, len(DATA))
        landing.put(0, b"shorter")
    assert (tmp_path / "local").read_bytes() == b"shorter"
    assert told.value == len(b"shorter")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_full_disk_is_told_as_what_it_is() -> None:
    with pytest.raises(OSError, match="No space left") as raised, published(LocalFile("/dev/full", Told())) as landing:
        _fill(landing)
    assert raised.value.errno == errno.ENOSPC
    assert os.path.exists("/dev/full")
