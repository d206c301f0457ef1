"""A busy server is neither an absence nor a success, whatever stands above the filesystem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations import cached, dirfs

import resilient_io as rio
from resilient_io.errors import ResilientIOError, ThrottledError
from resilient_io.testing import Match

from .conftest import DATA, Cloud

pytestmark = pytest.mark.wire
Above = Callable[[str], tuple[Any, str]]
# The filesystem by itself is asked in tests/aws and tests/azure; filecache is the parent of simplecache.
KINDS = ["dir", "simplecache", pytest.param("filecache", marks=pytest.mark.soak), "blockcache"]
# Each is called with a filesystem, a path of three objects and a local folder.
ASKING: dict[str, Callable[[Any, str, Path], Any]] = {
    "exists": lambda fs, p, _: fs.exists(f"{p}/1"),
    "exists of nothing": lambda fs, p, _: fs.exists(f"{p}/no"),
    "isfile": lambda fs, p, _: fs.isfile(f"{p}/1"),
    "isdir": lambda fs, p, _: fs.isdir(p),
    "isdir of a file": lambda fs, p, _: fs.isdir(f"{p}/1"),
    "info": lambda fs, p, _: fs.info(f"{p}/1"),
    "size": lambda fs, p, _: fs.size(f"{p}/1"),
    "sizes": lambda fs, p, _: fs.sizes([f"{p}/1"]),
    "ls": lambda fs, p, _: fs.ls(p),
    "walk": lambda fs, p, _: list(fs.walk(p)),
    "find": lambda fs, p, _: fs.find(p),
    "find of a file": lambda fs, p, _: fs.find(f"{p}/1"),
    "glob": lambda fs, p, _: fs.glob(f"{p}/*"),
    "du": lambda fs, p, _: fs.du(p),
    "cat": lambda fs, p, _: fs.cat(f"{p}/1"),
    "cat of a tree": lambda fs, p, _: fs.cat(p, recursive=True),
    "cat, omit": lambda fs, p, _: fs.cat([f"{p}/1", f"{p}/2"], on_error="omit"),
    "cat_file": lambda fs, p, _: fs.cat_file(f"{p}/1"),
    "cat_ranges": lambda fs, p, _: fs.cat_ranges([f"{p}/1"], [0], [3], on_error="raise"),
    "head": lambda fs, p, _: fs.head(f"{p}/1"),
    "open": lambda fs, p, _: fs.open(f"{p}/1").read(),
    "expand_path": lambda fs, p, _: fs.expand_path(f"{p}/*"),
    "get": lambda fs, p, to: fs.get(f"{p}/1", str(to / "x")),
    "mapper": lambda fs, p, _: fs.get_mapper(p)["1"],
    "mapper, in": lambda fs, p, _: "1" in fs.get_mapper(p),
    "mapper, list": lambda fs, p, _: list(fs.get_mapper(p)),
    "mapper, several": lambda fs, p, _: fs.get_mapper(p).getitems(["1", "2"]),
}
CHANGING: dict[str, Callable[[Any, str, Path], Any]] = {
    "rm": lambda fs, p, _: fs.rm(f"{p}/1"),
    "rm of a tree": lambda fs, p, _: fs.rm(p, recursive=True),
    "rm_file": lambda fs, p, _: fs.rm_file(f"{p}/1"),
    "touch": lambda fs, p, _: fs.touch(f"{p}/new"),
    "copy": lambda fs, p, _: fs.copy(f"{p}/1", f"{p}/new"),
    "mv": lambda fs, p, _: fs.mv(f"{p}/1", f"{p}/new"),
    "pipe_file": lambda fs, p, _: fs.pipe_file(f"{p}/new", b"new"),
}


def skip_if_fsspec_cannot(kind: str, name: str) -> None:
    """Skip what an older fsspec does not do by itself, above any filesystem."""
    if name != "cat_ranges":
        return
    if kind == "dir" and name not in vars(dirfs.DirFileSystem):
        pytest.skip("the cat_ranges of this fsspec's dir:: gives errors as values, whatever on_error says")
    if kind == "simplecache" and not hasattr(cached.SimpleCacheFileSystem, "_local_paths_for_ranges"):
        pytest.skip("the cat_ranges of this fsspec's simplecache:: reads nothing that is not cached")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*ASKING, *CHANGING])
def test_a_refusal_is_raised_through_every_layer(
    cloud: Cloud, above: Above, tmp_path: Path, kind: str, name: str
) -> None:
    skip_if_fsspec_cannot(kind, name)
    fs, path = above(kind)
    before = cloud.names(), cloud.containers()
    cloud.refuse()
    with pytest.raises(ThrottledError):
        {**ASKING, **CHANGING}[name](fs, path, tmp_path)
    assert (cloud.names(), cloud.containers()) == before
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_an_absence_is_an_absence_through_every_layer(cloud: Cloud, above: Above, kind: str) -> None:
    fs, path = above(kind)
    assert fs.exists(f"{path}/1")
    assert fs.isfile(f"{path}/1")
    assert fs.isdir(path)
    assert not fs.exists(f"{path}/no")
    assert not fs.isfile(f"{path}/no")
    assert not fs.isdir(f"{path}/1")
    assert fs.cat([f"{path}/1", f"{path}/no"], on_error="omit") == {f"{path}/1": DATA}


@pytest.mark.parametrize("kind", ["plain", "dir"])
def test_an_error_that_is_asked_for_as_a_value_is_one(cloud: Cloud, above: Above, kind: str) -> None:
    fs, path = above(kind)
    cloud.refuse(match=Match(key="train/2"))
    found = fs.cat([f"{path}/1", f"{path}/2"], on_error="return")
    assert found[f"{path}/1"] == DATA
    assert isinstance(found[f"{path}/2"], ThrottledError)
    first, second, missing = fs.cat_ranges([f"{path}/1", f"{path}/2", f"{path}/no"], 0, 3, on_error="return")
    assert first == DATA[:3]
    assert isinstance(second, ThrottledError)
    assert isinstance(missing, FileNotFoundError)
    with pytest.raises(ThrottledError):
        fs.cat([f"{path}/2", f"{path}/no"], on_error="omit")


def test_a_local_cache_is_as_it_was() -> None:
    fs = fsspec.filesystem("simplecache", fs=fsspec.filesystem("memory"))
    assert not fs.exists("/nothing")
    assert not fs.isfile("/nothing")
    assert fs.cat(["/nothing"], on_error="omit") == {}


PATHS: dict[str, Callable[[Any], Any]] = {
    "exists": lambda path: (path / "1").exists(),
    "is_file": lambda path: (path / "1").is_file(),
    "is_dir": lambda path: path.is_dir(),
    "stat": lambda path: (path / "1").stat(),
    "iterdir": lambda path: list(path.iterdir()),
    "glob": lambda path: list(path.glob("*")),
    "rglob": lambda path: list(path.rglob("*")),
    "read_bytes": lambda path: (path / "1").read_bytes(),
    "open": lambda path: (path / "1").open("rb").read(),
    "unlink": lambda path: (path / "1").unlink(),
    "unlink, missing is fine": lambda path: (path / "1").unlink(missing_ok=True),
    "rename": lambda path: (path / "1").rename(path / "9"),
    "write_bytes": lambda path: (path / "9").write_bytes(b"new"),
    "touch": lambda path: (path / "9").touch(),
}


@pytest.fixture
def upath_at(cloud: Cloud) -> Iterator[Callable[[str], Any]]:
    """Return a maker of paths in the bucket, with the library installed."""
    upath = pytest.importorskip("upath", reason="missing: universal_pathlib")
    with rio.install():
        yield lambda name: upath.UPath(f"{cloud.name}://{cloud.bucket}/{name}", **cloud.options)


@pytest.mark.parametrize("name", PATHS)
def test_a_refusal_is_raised_through_a_upath(cloud: Cloud, upath_at: Callable[[str], Any], name: str) -> None:
    path = upath_at("train")
    before = cloud.names(), cloud.containers()
    cloud.refuse()
    with pytest.raises(ResilientIOError):
        PATHS[name](path)
    assert (cloud.names(), cloud.containers()) == before


def test_a_upath_is_read_and_written(upath_at: Callable[[str], Any]) -> None:
    path = upath_at("upath")
    (path / "x").write_bytes(b"abc")
    assert (path / "x").read_bytes() == b"abc"
    assert [each.name for each in path.iterdir()] == ["x"]
    assert not (path / "y").exists()
    (path / "x").unlink()
    assert not (path / "x").exists()
