"""Each fault meets each operation at each door: the right bytes or the right error, never a third thing.

`make test` runs a set in which each two of door, operation, fault and lasting meet; `make soak` runs all.
RIO_MATRIX_SEED picks another set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from . import doors
from .cells import READS, Cell, full, pairwise, rules_of
from .known import idle_patterns, symptom_of
from .model import History, State, admits_the_write, verdict_of, wrong_claim
from .worlds import AzureWorld, S3World, World, calm, fresh_prefix

pytestmark = pytest.mark.wire
SEED = int(os.environ.get("RIO_MATRIX_SEED", "1"))
# Of different lengths: the first takes three parts at the clients, the second one.
OLD, NEW = bytes(range(256)) * 36, bytes(reversed(range(256))) * 14
SPAN = (1234, 2345)
# An upload in parts.
PARTS, PARTS_S3FS = NEW * 3, NEW * (12 * 2**20 // len(NEW))


def cases() -> Iterator[Any]:
    every = full()
    quick = set(pairwise(every, SEED))
    for cell in every:
        marks = [] if cell in quick else [pytest.mark.soak]
        symptom = symptom_of(cell)
        if symptom is not None:
            marks.append(pytest.mark.xfail(reason=symptom, strict=True))
        yield pytest.param(cell, id=str(cell).replace(" ", "_"), marks=marks)


@pytest.fixture(scope="module")
def s3_world() -> Iterator[S3World]:
    pytest.importorskip("s3fs")
    pytest.importorskip("boto3")
    world = S3World()
    yield world
    world.close()


@pytest.fixture(scope="module")
def azure_world(azurite: Any) -> Iterator[AzureWorld]:
    pytest.importorskip("adlfs")
    world = AzureWorld(azurite)
    yield world
    world.close()


@pytest.fixture(scope="module")
def door_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], tuple[Any, World]]]:
    """Return a maker of doors, each of which is made once."""
    made: dict[str, tuple[Any, World]] = {}

    def opened(name: str) -> tuple[Any, World]:
        if name not in made:
            made[name] = _open(name, request)
        return made[name]

    yield opened
    for door, _ in made.values():
        door.close()


def _open(name: str, request: pytest.FixtureRequest) -> tuple[Any, World]:
    if name in ("boto3", "s3fs"):
        world = request.getfixturevalue("s3_world")
        return (doors.Boto3Door if name == "boto3" else doors.s3fs_door)(world), world
    azure = request.getfixturevalue("azure_world")
    if name == "adlfs":
        return doors.adlfs_door(azure), azure
    return doors.AzureDoor(azure, aio=name == "azure-aio"), azure


@pytest.mark.usefixtures("fast_clock")
@pytest.mark.parametrize("cell", list(cases()))
def test_the_right_answer_or_the_right_error(cell: Cell, door_of: Callable[[str], tuple[Any, World]]) -> None:
    door, world = door_of(cell.door)
    case = Case(cell, door, world)
    case.prepare()
    world.server.configure(_plan(cell))
    if cell.fault == "version change":
        world.meddling.meddle(2, case.replace)
    try:
        answer: Any = case.act()
        error = None
    except Exception as caught:  # every error is judged
        answer, error = None, caught
    fired = sum(world.server.stats().fired)
    calm(world)
    assert fired, "the fault met no request"
    case.judge(answer, error)


def _plan(cell: Cell) -> Any:
    from resilient_io.testing import FaultPlan

    return FaultPlan(rules=rules_of(cell))


class Case:
    """One operation on objects of its own, and the history of the one that it is about."""

    def __init__(self, cell: Cell, door: Any, world: World) -> None:
        self.cell, self.door, self.world = cell, door, world
        prefix = fresh_prefix()
        self.prefix, self.key = prefix, f"{prefix}/x"
        self.others = [f"{prefix}/y", f"{prefix}/z"]
        self.about = f"{prefix}/copy" if cell.operation == "copy" else self.key
        self.new = NEW
        if cell.operation.startswith("upload"):
            self.new = PARTS_S3FS if cell.door == "s3fs" else PARTS
        self.history = History()

    # -- before ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        operation = self.cell.operation
        if operation not in ("create", "head of nothing", "append"):
            self.world.put(self.key, OLD)
        if operation in ("delete all", "list"):
            for key in self.others:
                self.world.put(key, OLD)
        if operation == "append":
            assert isinstance(self.world, AzureWorld)
            self.world.put_appendable(self.key, OLD)
        if hasattr(self.door, "forget"):
            self.door.forget()
        self.history.states.append(self.world.state(self.about))
        self.history.aim = self._aim()

    def _aim(self) -> State:
        match self.cell.operation.partition(",")[0]:
            case "put" | "create" | "create what is there" | "upload":
                return self.new
            case "append":
                return OLD + NEW
            case "delete" | "delete all":
                return None
            case "copy":
                return OLD
        return self.history.states[0]

    def replace(self) -> None:
        """Let somebody else replace the object."""
        self.history.states.append(NEW)
        self.world.put(self.key, NEW)

    # -- the operation -----------------------------------------------------------------------------

    def act(self) -> Any:
        door, key = self.door, self.key
        match self.cell.operation.partition(",")[0]:
            case "read":
                return door.read(key)
            case "read range":
                return door.read_range(key, *SPAN)
            case "read parts":
                return door.read_parts(key)
            case "put":
                return door.put(key, self.new)
            case "create" | "create what is there":
                return door.create(key, self.new)
            case "upload":
                return door.upload(key, self.new)
            case "copy":
                return door.copy(key, self.about)
            case "delete":
                return door.delete(key)
            case "delete all":
                return door.delete_all([key, *self.others])
            case "list":
                return door.list(self.prefix)
            case "head" | "head of nothing":
                return door.head(key)
            case "exists":
                return door.exists(key)
            case "append":
                return door.append(key, self.new)
        raise AssertionError(self.cell)

    # -- after -------------------------------------------------------------------------------------

    def judge(self, answer: Any, error: Exception | None) -> None:
        state = self.world.state(self.about)
        if self.cell.operation in ("read", "read range", "read parts", "list", "head", "head of nothing", "exists"):
            self._judge_answer(answer, error)
            return
        self._judge_write(state, error)

    def _judge_answer(self, answer: Any, error: Exception | None) -> None:
        if error is None:
            right = [self._seen(state) for state in self.history.states]
            assert answer in right, f"a third thing: {_short(answer)}"
            return
        self._judge_error(error)

    def _seen(self, state: State) -> Any:
        match self.cell.operation:
            case "read" | "read parts":
                return state
            case "read range":
                return state[slice(*SPAN)] if state is not None else None
            case "list":
                return [self.key, *self.others]
            case "head":
                return len(state) if state is not None else None
            case "exists":
                return state is not None
        return None

    def _judge_write(self, state: State, error: Exception | None) -> None:
        old, aim = self.history.states[0], self.history.aim
        assert state in (old, aim), f"half a write is visible: {_short(state)}"
        if error is None:
            assert state == aim, f"success was reported, and what is there is {_short(state)}"
            return
        self._judge_error(error)
        if state == aim and state != old:
            assert admits_the_write(error), f"the write happened, and the error denies it: {error!r}"

    def _judge_error(self, error: Exception) -> None:
        claim = wrong_claim(error, self.history, injected=True)
        assert claim is None, f"{claim}: {error!r}"
        if self.cell.lasting == "once" and not self._may_fail_once(error):
            raise AssertionError(f"one fault was not survived: {error!r}") from error

    def _may_fail_once(self, error: Exception) -> bool:
        """Say whether a single fault may end the operation."""
        operation, fault = self.cell.operation, self.cell.fault
        if operation == "head of nothing":
            return verdict_of(error).kind == "not_found"
        if operation == "create what is there":
            return verdict_of(error).kind == "precondition"
        if fault == "version change":
            return operation in READS and self.history.changed
        # Whether it was appended cannot be told, and to do it twice would be worse.
        return operation == "append" and admits_the_write(error)


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes {value[:8]!r}...{value[-8:]!r}"
    return repr(value)


def test_each_pair_meets() -> None:
    every = full()
    quick = pairwise(every, SEED)
    assert len(quick) < len(every) / 4
    for one, other in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        assert {(c[one], c[other]) for c in quick} == {(c[one], c[other]) for c in every}


def test_what_is_known_to_be_wrong_names_cells() -> None:
    assert idle_patterns(full()) == []
