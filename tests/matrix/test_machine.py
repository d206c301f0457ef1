"""Any sequence of filesystem calls under random faults does to a store what it does to a dict.

hypothesis draws the calls and the seed of the faults; a failure prints both. Reads must succeed and be right; a write
may fail only where its answer was lost and cannot be looked up, and then it happened or did not.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from resilient_io.drive import runtime as runtimes
from resilient_io.errors import AmbiguousWriteError
from resilient_io.testing import FaultAction, FaultPlan, FaultRule

from .doors import POLICY
from .worlds import AzureWorld, S3World, World, calm, fresh_prefix

pytestmark = pytest.mark.wire
PATIENT = {**POLICY, "max_attempts": 12, "max_throttle_attempts": 20}
SHARE = 0.04
FAULTS = (
    FaultAction.RESET_BEFORE,
    FaultAction.RESET_AFTER,
    FaultAction.TRUNCATE,
    FaultAction.RESET_BODY,
    FaultAction.ERROR,
    FaultAction.SHORT_RANGE,
)
FILES = [f"{folder}{name}" for folder in ("", "d/", "d/e/", "f/") for name in "xyz"]
FOLDERS = ["", "d", "d/e", "f"]
files, folders = st.sampled_from(FILES), st.sampled_from(FOLDERS)
# A piece that is repeated: large contents are drawn as fast as small ones.
contents = st.builds(lambda piece, times: piece * times, st.binary(max_size=40), st.sampled_from([1, 1, 3, 400]))
offsets = st.integers(0, 500)


def rules(seed: int) -> FaultPlan:
    """Return the faults of one run."""
    each = [FaultRule(action=action, probability=SHARE, after_bytes=7) for action in FAULTS]
    each.append(FaultRule(action=FaultAction.ERROR, status=500, probability=SHARE))
    return FaultPlan(rules=tuple(each), seed=seed)


class Machine(RuleBasedStateMachine):
    """A filesystem beside a dict."""

    make: Callable[[], tuple[Any, World]]
    clock: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.fs, self.world = type(self).make()
        self.prefix = fresh_prefix()
        self.root = f"{self.world.bucket}/{self.prefix}"
        self.model: dict[str, bytes] = {}

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        note(f"faults of seed {seed}")
        runtimes.reset(clock=type(self).clock())
        self.world.server.configure(rules(seed))

    def teardown(self) -> None:
        calm(self.world)

    def at(self, name: str) -> str:
        return f"{self.root}/{name}".rstrip("/")

    def wrote(self, work: Callable[[], Any], **after: bytes | None) -> None:
        """Do a write that makes of each file what `after` says; None is its absence."""
        try:
            work()
        except AmbiguousWriteError:
            found = {name: self.world.state(f"{self.prefix}/{name}") for name in after}
            for name, data in found.items():
                # A blob to append to is made first, and empty.
                begun = b"" if name == "log" and name not in self.model else data
                assert data in (self.model.get(name), after[name]) or data == begun == b"", "half a write is visible"
            after = found
        for name, data in after.items():
            if data is None:
                self.model.pop(name, None)
            else:
                self.model[name] = data

    # -- writing -----------------------------------------------------------------------------------

    @rule(name=files, data=contents)
    def pipe(self, name: str, data: bytes) -> None:
        self.wrote(lambda: self.fs.pipe_file(self.at(name), data), **{name: data})

    @rule(first=files, second=files, data=contents)
    def pipe_two(self, first: str, second: str, data: bytes) -> None:
        both = {first: data, second: data + b"2"}
        self.wrote(lambda: self.fs.pipe({self.at(name): each for name, each in both.items()}), **both)

    @rule(name=files, data=contents)
    def create(self, name: str, data: bytes) -> None:
        if name in self.model:
            with pytest.raises(OSError) as caught:  # noqa: PT011  # the errno is looked at
                self.fs.pipe_file(self.at(name), data, mode="create")
            # s3fs says EINVAL, and adlfs no errno.
            assert isinstance(caught.value, FileExistsError) or caught.value.errno == errno.EINVAL
        else:
            self.wrote(lambda: self.fs.pipe_file(self.at(name), data, mode="create"), **{name: data})

    @rule(name=files, data=contents)
    def write(self, name: str, data: bytes) -> None:
        def work() -> None:
            with self.fs.open(self.at(name), "wb") as file:
                file.write(data[:100])
                file.write(data[100:])

        self.wrote(work, **{name: data})

    @rule(name=files, data=contents)
    def fail_while_writing(self, name: str, data: bytes) -> None:
        with pytest.raises(KeyError), self.fs.open(self.at(name), "wb") as file:
            file.write(data)
            raise KeyError(name)

    @rule(name=files, data=contents)
    def put(self, name: str, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, "x")
            local.write_bytes(data)
            self.wrote(lambda: self.fs.put_file(str(local), self.at(name)), **{name: data})

    @rule(data=contents)
    def append(self, data: bytes) -> None:
        def work() -> None:
            with self.fs.open(self.at("log"), "ab") as file:
                file.write(data)

        if data:
            self.wrote(work, log=self.model.get("log", b"") + data)

    @precondition(lambda self: self.model)
    @rule(draw=st.data(), to=files)
    def copy_or_move(self, draw: st.DataObject, to: str) -> None:
        name = draw.draw(st.sampled_from(sorted(set(self.model) - {"log"}) or [to]))
        if name == to or name not in self.model:
            return
        data = self.model[name]
        if draw.draw(st.booleans()):
            self.wrote(lambda: self.fs.cp_file(self.at(name), self.at(to)), **{to: data})
        else:
            self.wrote(lambda: self.fs.mv(self.at(name), self.at(to)), **{to: data, name: None})

    @precondition(lambda self: self.model)
    @rule(draw=st.data())
    def remove(self, draw: st.DataObject) -> None:
        name = draw.draw(st.sampled_from(sorted(self.model)))
        self.wrote(lambda: self.fs.rm_file(self.at(name)), **{name: None})

    @rule(folder=folders)
    def remove_tree(self, folder: str) -> None:
        inside = self.below(folder)
        if inside:
            self.wrote(lambda: self.fs.rm(self.at(folder), recursive=True), **dict.fromkeys(inside))

    @rule(folder=folders)
    def make(self, folder: str) -> None:
        self.fs.makedirs(self.at(folder), exist_ok=True)

    # -- reading -----------------------------------------------------------------------------------

    def below(self, folder: str) -> list[str]:
        return sorted(name for name in self.model if name.startswith(f"{folder}/" if folder else ""))

    @rule(name=files)
    def read(self, name: str) -> None:
        if name in self.model:
            assert self.fs.cat_file(self.at(name)) == self.model[name]
            with self.fs.open(self.at(name), block_size=1000) as file:
                assert file.read() == self.model[name]
        else:
            with pytest.raises(FileNotFoundError):
                self.fs.cat_file(self.at(name))
            with pytest.raises(FileNotFoundError):
                self.fs.open(self.at(name))

    @precondition(lambda self: any(self.model.values()))
    @rule(draw=st.data(), start=offsets, length=offsets)
    def read_part(self, draw: st.DataObject, start: int, length: int) -> None:
        name = draw.draw(st.sampled_from(sorted(name for name, data in self.model.items() if data)))
        data = self.model[name]
        start %= len(data)
        end = min(start + length + 1, len(data))
        assert self.fs.cat_file(self.at(name), start=start, end=end) == data[start:end]
        with self.fs.open(self.at(name)) as file:
            file.seek(start)
            assert file.read(end - start) == data[start:end]
        assert self.fs.cat_ranges([self.at(name)], [start], [end], on_error="raise") == [data[start:end]]

    @rule(name=files)
    def get(self, name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, "x")
            if name in self.model:
                self.fs.get_file(self.at(name), str(local))
                assert local.read_bytes() == self.model[name]
            else:
                with pytest.raises(FileNotFoundError):
                    self.fs.get_file(self.at(name), str(local))
                assert os.listdir(folder) == []

    @rule(name=files)
    def ask(self, name: str) -> None:
        there = name in self.model
        assert self.fs.exists(self.at(name)) is there
        assert self.fs.isfile(self.at(name)) is there
        assert self.fs.isdir(self.at(name)) is False
        if there:
            assert self.fs.info(self.at(name))["size"] == len(self.model[name])
        else:
            with pytest.raises(FileNotFoundError):
                self.fs.info(self.at(name))

    @rule(folder=folders)
    def list(self, folder: str) -> None:
        inside = self.below(folder)
        found = self.fs.find(self.at(folder))
        assert sorted(found) == [self.at(name) for name in inside]
        assert self.fs.isdir(self.at(folder)) is bool(inside)
        if inside:
            cut = len(folder) + 1 if folder else 0
            children = {folder + "/" * bool(folder) + name[cut:].partition("/")[0] for name in inside}
            assert sorted(self.fs.ls(self.at(folder), detail=False)) == sorted(map(self.at, children))
            assert self.fs.du(self.at(folder)) == sum(len(self.model[name]) for name in inside)
            walked = [f"{at}/{name}" for at, _, names in self.fs.walk(self.at(folder)) for name in names]
            assert sorted(walked) == [self.at(name) for name in inside]
        else:
            with pytest.raises(FileNotFoundError):
                self.fs.ls(self.at(folder))

    @rule(several=st.lists(files, min_size=1, max_size=4, unique=True))
    def read_several(self, several: list[str]) -> None:
        found = self.fs.cat([self.at(name) for name in several], on_error="omit")
        if isinstance(found, bytes):
            found = {self.at(several[0]): found}
        assert found == {self.at(name): self.model[name] for name in several if name in self.model}


@pytest.fixture(params=["s3fs", "adlfs"])
def machine(request: pytest.FixtureRequest, fast_clock: Any) -> Iterator[type[Machine]]:
    pytest.importorskip(request.param)
    if request.param == "s3fs":
        from resilient_io.aws.filesystem import ResilientS3FileSystem

        world: Any = S3World()
        keys = {"key": "testing", "secret": "testing", "endpoint_url": world.server.url}
        options: dict[str, Any] = {**keys, "use_listings_cache": False}
        cls: Any = ResilientS3FileSystem
    else:
        from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

        world = AzureWorld(request.getfixturevalue("azurite"))
        options = {"connection_string": world.connection_string, "use_listings_cache": False}
        cls = ResilientAzureBlobFileSystem
    fs = cls(**options, resilience=PATIENT, skip_instance_cache=True)
    yield type("Machine", (Machine,), {"make": staticmethod(lambda: (fs, world)), "clock": type(fast_clock)})
    world.close()


def _run(machine: type[Machine], examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        phases=(Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)


def test_a_store_under_faults_is_like_a_dict(machine: type[Machine]) -> None:
    _run(machine, examples=8, steps=25)


@pytest.mark.soak
def test_a_store_under_faults_is_like_a_dict_for_long(machine: type[Machine]) -> None:
    _run(machine, examples=60, steps=50)
