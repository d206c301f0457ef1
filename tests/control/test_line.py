"""The lines of those who wait for the same limit: nobody is forgotten, overtaken or asked in vain."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_io.control import line
from resilient_io.control.line import Line, Place, Rank


@dataclass(eq=False)
class Bucket:
    """A level with tokens, one at most; rate 0: not limited."""

    per_s: float
    line: Line[Queue]
    tokens: float = 0.0
    at_s: float = 0.0
    asked: int = 0

    def is_limited(self) -> bool:
        return self.per_s > 0.0

    def ready_at(self, now: float, weight: float) -> float:
        self.asked += 1
        self.tokens = min(1.0, self.tokens + (now - self.at_s) * self.per_s)
        self.at_s = now
        return now if self.tokens >= 1.0 - 1e-9 else now + (1.0 - self.tokens) / self.per_s


@dataclass(eq=False)
class Queue:
    """Callers of one place: since when each waits, and its name."""

    levels: tuple[Bucket, ...]
    kind: float = 1.0
    most: float = math.inf
    waiting: list[tuple[float, str]] = field(default_factory=list)
    out: int = 0
    alarm_at: float = -1.0

    def __post_init__(self) -> None:
        self.place: Place[Queue] = Place(self, self.levels, self.kind, self.kind)


class World:
    """Queues that are looked at when somebody comes, when one gives back, and when an alarm rings; never else."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[float, str]] = []
        self.armed = 0
        self.alarms: list[tuple[float, int, Queue]] = []
        self.used: set[Line[Queue]] = set()

    def rank(self, owner: Queue, now: float) -> Rank | None:
        return (True, owner.waiting[0][0]) if owner.waiting and owner.out < owner.most else None

    def send(self, owner: Queue, now: float) -> None:
        for level in owner.levels:
            level.tokens -= level.is_limited()
        owner.out += 1
        self.sent.append((now, owner.waiting.pop(0)[1]))

    def arm(self, owner: Queue, at: float) -> bool:
        if not self.now < owner.alarm_at <= at:
            owner.alarm_at = at
            self.armed += 1
            heapq.heappush(self.alarms, (at, self.armed, owner))
        return True

    def come(self, queue: Queue, name: str) -> None:
        queue.waiting.append((self.now, name))
        line.pump(queue.place, self.now, self)

    def give_back(self, queue: Queue) -> None:
        queue.out -= 1
        line.pump(queue.place, self.now, self)

    def leave(self, queue: Queue, number: int) -> None:
        del queue.waiting[number]
        line.pump(queue.place, self.now, self)

    def pass_time(self, until: float) -> None:
        while self.alarms and self.alarms[0][0] <= until:
            at, _, queue = heapq.heappop(self.alarms)
            self.now = max(self.now, at)
            line.pump(queue.place, self.now, self)
        self.now = until


rates = st.sampled_from([0.0, 0.0, 1.0, 3.0, 10.0])
steps = st.lists(
    st.tuples(st.sampled_from("ccccltbr"), st.integers(0, 5), st.floats(0.0, 0.5), st.integers(0, 3)), max_size=60
)


def tree(world: World, per_s: list[float], most: int) -> list[Queue]:
    """An account, two buckets and two prefixes in each; the first has two kinds of callers."""
    account, *others = (Bucket(rate, Line(world.used)) for rate in per_s)
    buckets, prefixes = others[:2], others[2:]
    paths = [(account, buckets[number // 2], prefixes[number]) for number in range(4)]
    return [*(Queue(path, most=most) for path in paths), Queue(paths[0], 3.0), Queue(paths[3], 0.5)]


@settings(max_examples=300, deadline=None)
@given(st.lists(rates, min_size=7, max_size=7), st.integers(1, 3), steps)
def test_whoever_waits_is_served_at_last_and_nobody_too_early(
    per_s: list[float], most: int, todo: list[tuple[str, int, float, int]]
) -> None:
    world = World()
    queues = tree(world, per_s, most)
    came = left = 0
    for what, number, seconds, level in todo:
        queue = queues[number]
        if what == "c":
            came += 1
            world.come(queue, str(came))
        elif what == "l" and queue.waiting:
            left += 1
            world.leave(queue, 0)
        elif what == "b" and queue.out:
            world.give_back(queue)
        elif what == "r":  # a limit is met, moved or lifted, as an answer in that place says
            queue.levels[min(level, 2)].per_s = (0.0, 2.0, 5.0, 0.5)[level]
            world.pass_time(world.now)
            line.pump(queue.place, world.now, world)
        world.pass_time(world.now + seconds)
    for _ in range(400):
        for queue in queues:
            if queue.out:
                world.give_back(queue)
        world.pass_time(world.now + 2.5)
    assert len(world.sent) == came - left
    assert all(level.tokens >= -1e-6 for queue in queues for level in queue.levels if level.is_limited())
    for queue in queues:
        line.pump(queue.place, world.now, world)
    assert not world.used


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0.0, 0.2)), min_size=1, max_size=80))
def test_those_of_one_kind_go_in_the_order_in_which_they_came(arrivals: list[tuple[int, float]]) -> None:
    world = World()
    account = Bucket(10.0, Line(world.used))
    queues = [Queue((account, Bucket(0.0, Line(world.used)))) for _ in range(41)]
    for name, (number, pause_s) in enumerate(arrivals):
        world.come(queues[number], str(name))
        world.pass_time(world.now + pause_s + 1e-6)
    world.pass_time(world.now + 20.0)
    assert [int(name) for _, name in world.sent] == list(range(len(arrivals)))


def test_eight_thousand_that_wait_are_not_asked_for_each_one_who_goes() -> None:
    world = World()
    account = Bucket(100.0, Line(world.used))
    queues = [Queue((account, Bucket(0.0, Line(world.used)))) for _ in range(8192)]
    for number, queue in enumerate(queues):
        world.now += 1e-9
        world.come(queue, str(number))
    account.asked = 0
    world.pass_time(world.now + 10.0)
    assert len(world.sent) >= 990
    assert account.asked <= 3 * len(world.sent)
    assert len(world.alarms) <= 10


def test_a_limit_of_its_own_below_another_one_costs_the_others_nothing() -> None:
    """Ten that may go once in ten seconds each stand before one that may always go."""
    world = World()
    account = Bucket(10.0, Line(world.used))
    slow = [Queue((account, Bucket(0.1, Line(world.used)))) for _ in range(10)]
    quick = Queue((account, Bucket(0.0, Line(world.used))))
    for queue in slow:
        for _ in range(20):
            world.come(queue, "slow")
    for _ in range(200):
        world.come(quick, "quick")
    world.pass_time(20.0)
    got = Counter(name for _, name in world.sent)
    assert 190 <= sum(got.values()) <= 201
    assert got["slow"] == 10


def test_turns_go_by_weight_and_nothing_is_saved_up() -> None:
    world = World()
    level = Bucket(100.0, Line(world.used))
    light, heavy = Queue((level,), 1.0), Queue((level,), 3.0)
    for _ in range(1000):
        world.come(light, "light")
    world.pass_time(4.0)
    for _ in range(1000):
        world.come(heavy, "heavy")
    before = len(world.sent)
    world.pass_time(8.0)
    got = Counter(name for _, name in world.sent[before:])
    assert abs(got["heavy"] - 3 * got["light"]) <= 8


def test_kinds_that_are_over_are_forgotten() -> None:
    world = World()
    level = Bucket(100.0, Line(world.used))
    for number in range(50):
        world.come(Queue((level,), 1.0 + number / 10), "one")
        world.pass_time(world.now + 0.1)
    assert len(world.sent) == 50
    assert len(level.line._kinds) <= 10
