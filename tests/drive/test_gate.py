from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from resilient_io import events
from resilient_io.control import law, law_record
from resilient_io.control.scopes import ScopePath, label, scope_path
from resilient_io.drive.clock import Clock, SystemClock
from resilient_io.drive.gate import Gate, Outcome, Permit, WaitedTooLong
from resilient_io.drive.scope import Level
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

TRAIN = scope_path(endpoint="https://s3.test", bucket="b", prefix="train/a", op_class="read")
OTHER = scope_path(endpoint="https://s3.test", bucket="b", prefix="train/b", op_class="read")


def gate_of(clock: Clock | None = None) -> Gate:
    return Gate(clock if clock is not None else SystemClock(), Random(7))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


def level(gate: Gate, path: ScopePath = TRAIN, depth: int = -1) -> Level:
    return next(one for one in gate.levels() if one.key == path.levels()[depth])


def waiting(gate: Gate) -> int:
    return sum(len(lane.waiting) for lane in gate.lanes())


def queued(gate: Gate, count: int) -> bool:
    return waiting(gate) == count


def in_flight(gate: Gate) -> int:
    return sum(lane.in_flight for lane in gate.lanes())


def pace(gate: Gate, rate: float, *, path: ScopePath = TRAIN, depth: int = -1) -> Level:
    """Limit one level to `rate` requests a second, with no token left, as a refusal would."""
    gate.acquire(path, Policy()).free(Outcome.SUCCEEDED)
    found = level(gate, path, depth)
    now = gate.clock.now()
    law.on_refusal(found.rate, now, now, 0.0)
    found.rate[law.RATE], found.rate[law.TOKENS] = rate, 0.0
    found.rate[law.TOKENS_AT] = now
    return found


@contextmanager
def threads(*works: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    running = [threading.Thread(target=work, daemon=True) for work in works]
    for one in running:
        one.start()
    yield running
    for one in running:
        one.join(10)
        assert not one.is_alive(), "a thread hangs"


# -- the semaphore -----------------------------------------------------------------------------------


def test_admits_at_once_up_to_the_cap() -> None:
    gate = gate_of(ManualClock())
    permits = [gate.acquire(TRAIN, Policy(max_concurrency=3)) for _ in range(3)]
    assert in_flight(gate) == 3
    with pytest.raises(WaitedTooLong):
        gate.acquire(TRAIN, Policy(max_concurrency=3), deadline_at=1.0)
    permits[0].free()
    gate.acquire(TRAIN, Policy(max_concurrency=3)).free()


def test_free_and_settle_are_idempotent() -> None:
    gate = gate_of(ManualClock())
    permit = gate.acquire(TRAIN, Policy())
    permit.settle(Outcome.SUCCEEDED)
    permit.settle(Outcome.REFUSED)
    permit.free()
    permit.free(Outcome.REFUSED)
    tally = level(gate).tally
    assert (tally.sent, tally.succeeded, tally.refused, tally.dropped, in_flight(gate)) == (1, 1, 0, 0, 0)


def test_an_unsettled_permit_counts_as_dropped() -> None:
    gate = gate_of(ManualClock())
    gate.acquire(TRAIN, Policy()).free()
    assert level(gate).tally.dropped == 1
    assert level(gate).rate[law.IN_FLIGHT] == 0


def test_first_come_first_served_across_threads() -> None:
    gate, policy, order = gate_of(), Policy(max_concurrency=1), []
    held = gate.acquire(TRAIN, policy)

    def enter(number: int) -> None:
        permit = gate.acquire(TRAIN, policy)
        order.append(number)
        permit.free()

    running = []
    for number in range(8):
        one = threading.Thread(target=enter, args=(number,), daemon=True)
        one.start()
        running.append(one)
        eventually(partial(queued, gate, number + 1))
    held.free()
    for one in running:
        one.join(5)
    assert order == list(range(8))


def test_a_retry_goes_before_those_who_have_not_sent() -> None:
    gate, policy, order = gate_of(), Policy(max_concurrency=1), []
    held = gate.acquire(TRAIN, policy)

    def enter(name: str, again: bool) -> None:
        with_permit = gate.acquire(TRAIN, policy, again=again)
        order.append(name)
        with_permit.free()

    with threads(lambda: enter("new", False)):
        eventually(lambda: waiting(gate) == 1)
        with threads(lambda: enter("retry", True)):
            eventually(lambda: waiting(gate) == 2)
            held.free()
    assert order == ["retry", "new"]


def test_a_newcomer_does_not_overtake_the_queue() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    pace(gate, 1.0)
    with pytest.raises(WaitedTooLong):
        gate.acquire(TRAIN, Policy(), deadline_at=0.5)
    # The one that gave up left no trace in the queue.
    assert waiting(gate) == 0
    gate.acquire(TRAIN, Policy()).free()


def test_the_cap_holds_for_sixteen_threads() -> None:
    gate, policy = gate_of(), Policy(max_concurrency=5)
    inside, peak, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, peak
        for _ in range(60):
            permit = gate.acquire(TRAIN, policy)
            with lock:
                inside += 1
                peak = max(peak, inside)
            time.sleep(0.0001)
            with lock:
                inside -= 1
            permit.free(Outcome.SUCCEEDED)

    with threads(*[work] * 16):
        pass
    assert peak == 5
    assert (in_flight(gate), waiting(gate)) == (0, 0)
    assert level(gate).peak_in_flight == 5
    assert level(gate).tally.succeeded == 16 * 60


def test_policies_with_different_caps_share_the_rate_but_not_the_cap() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    small, large = Policy(max_concurrency=1), Policy(max_concurrency=4)
    kept = gate.acquire(TRAIN, small)
    others = [gate.acquire(TRAIN, large) for _ in range(4)]
    assert level(gate).in_flight == 5
    for policy in (small, large):
        with pytest.raises(WaitedTooLong):
            gate.acquire(TRAIN, policy, deadline_at=clock.now())
    for permit in (kept, *others):
        permit.free(Outcome.SUCCEEDED)
    pace(gate, 2.0)
    started = clock.now()
    gate.acquire(TRAIN, small).free()
    assert clock.now() == pytest.approx(started + 0.5)
    level(gate).rate[law.TOKENS] = 0.0
    gate.acquire(TRAIN, large).free()
    assert clock.now() == pytest.approx(started + 1.0)


# -- what ends a wait early --------------------------------------------------------------------------


class Interrupting(ManualClock):
    """Raises in the first wait."""

    def __init__(self, error: BaseException, before: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.error: BaseException | None = error
        self.before = before

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        error, self.error = self.error, None
        if error is not None:
            self.before()
            raise error
        return super().wait(event, timeout_s)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), SystemExit(1), RuntimeError("signal handler")])
def test_an_interrupted_wait_leaves_the_queue(error: BaseException) -> None:
    gate = gate_of(Interrupting(error))
    held = gate.acquire(TRAIN, Policy(max_concurrency=1))
    with pytest.raises(type(error)):
        gate.acquire(TRAIN, Policy(max_concurrency=1))
    assert waiting(gate) == 0
    held.free()
    assert in_flight(gate) == 0
    gate.acquire(TRAIN, Policy(max_concurrency=1)).free()


def test_an_interrupt_after_the_grant_gives_the_permit_on() -> None:
    clock = Interrupting(KeyboardInterrupt())
    gate = gate_of(clock)
    policy = Policy(max_concurrency=1)
    held = gate.acquire(TRAIN, policy)
    clock.before = held.free  # the grant arrives while the interrupt does
    with pytest.raises(KeyboardInterrupt):
        gate.acquire(TRAIN, policy)
    assert (in_flight(gate), waiting(gate)) == (0, 0)
    assert level(gate).rate[law.IN_FLIGHT] == 0
    assert level(gate).tally.dropped == 2


def test_a_generator_that_is_closed_frees_its_permit() -> None:
    gate = gate_of(ManualClock())

    def pages() -> Generator[int, None, None]:
        permit = gate.acquire(TRAIN, Policy())
        try:
            yield 1
        finally:
            permit.free()

    generator = pages()
    next(generator)
    generator.close()
    assert in_flight(gate) == 0


def test_a_lost_permit_comes_back_with_the_next_admission() -> None:
    gate, policy = gate_of(ManualClock()), Policy(max_concurrency=1)
    gate.acquire(TRAIN, policy)  # lost
    gc.collect()
    gate.acquire(TRAIN, policy).free()
    assert level(gate).tally.dropped == 2


def test_a_permit_in_a_cycle_comes_back_to_one_who_waits() -> None:
    clock = ManualClock()
    gate, policy = gate_of(clock), Policy(max_concurrency=1)
    ring: list[Any] = [gate.acquire(TRAIN, policy)]
    ring.append(ring)
    del ring
    gc.collect()
    gate.acquire(TRAIN, policy, deadline_at=1.0).free()


def test_a_finalizer_inside_the_lock_does_not_deadlock() -> None:
    gate = gate_of(ManualClock())
    permit = gate.acquire(TRAIN, Policy(max_concurrency=1))

    def collect_in_the_middle() -> None:
        with gate.locked():
            # What a finalizer does that the collector runs in this very moment.
            permit.settle(Outcome.SUCCEEDED)
            permit.free()

    with threads(collect_in_the_middle):
        pass
    assert in_flight(gate) == 0
    assert level(gate).tally.succeeded == 1


def test_a_deadline_ends_the_wait_at_its_time() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    held = gate.acquire(TRAIN, Policy(max_concurrency=1))
    with pytest.raises(WaitedTooLong):
        gate.acquire(TRAIN, Policy(max_concurrency=1), deadline_at=12.5)
    assert clock.now() == 12.5
    held.free()
    assert (in_flight(gate), waiting(gate)) == (0, 0)


def test_a_deadline_that_has_passed_still_takes_what_is_free() -> None:
    gate = gate_of(ManualClock(10.0))
    gate.acquire(TRAIN, Policy(), deadline_at=5.0).free()


# -- the rate ----------------------------------------------------------------------------------------


def test_a_limited_scope_admits_at_its_rate() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    paced = pace(gate, 4.0)
    times = []
    for _ in range(4):
        permit = gate.acquire(TRAIN, Policy())
        times.append(clock.now())
        paced.rate[law.TOKENS] = 0.0  # what the jitter of the law left over
        permit.free()
    assert times == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert permit.waited_s == pytest.approx(0.25)
    assert paced.tally.waited == 4
    assert paced.tally.waited_s == pytest.approx(1.0)


def test_a_given_rate_is_kept_from_the_first_request() -> None:
    clock = ManualClock()
    gate, policy, times = gate_of(clock), Policy(rate_per_s=10.0), []
    for _ in range(5):
        gate.acquire(TRAIN, policy).free(Outcome.SUCCEEDED)
        times.append(clock.now())
    assert times == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_a_high_given_rate_is_reached_although_wake_ups_come_late() -> None:
    clock = ManualClock()
    gate, policy = gate_of(clock), Policy(rate_per_s=1000.0)
    sent = 0
    while clock.now() < 1.0:
        gate.acquire(TRAIN, policy).free(Outcome.SUCCEEDED)
        sent += 1
        if sent % 10 == 0:
            clock.advance(0.005)
    assert 950 <= sent <= 1025


def test_a_limited_bucket_delays_its_prefixes() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    bucket = pace(gate, 2.0, depth=1)
    gate.acquire(OTHER, Policy()).free()
    assert clock.now() == pytest.approx(0.5)
    assert not law.is_limited(level(gate, OTHER).rate)
    bucket.rate[law.TOKENS] = 0.0
    gate.acquire(TRAIN, Policy()).free()
    assert clock.now() == pytest.approx(1.0)


def test_a_refusal_of_the_whole_account_slows_all_its_prefixes() -> None:
    """The service said whose limit it was: the account's pace is cut, and no prefix's."""
    clock = ManualClock()
    gate = gate_of(clock)
    hot, other = (
        scope_path(endpoint="https://a.blob.test", account="a", bucket="c", prefix=prefix, op_class="read")
        for prefix in ("hot", "other")
    )
    permit = gate.acquire(hot, Policy())
    permit.charge = "account"
    permit.free(Outcome.REFUSED)
    limited = [law.is_limited(found.rate) for found in gate.levels() if found.key in hot.levels()]
    assert limited == [False, True, False, False]
    next(found for found in gate.levels() if found.key == hot.levels()[1]).rate[law.TOKENS] = 0.0
    gate.acquire(other, Policy()).free(Outcome.SUCCEEDED)
    assert clock.now() > 0.0


def test_a_store_without_accounts_is_its_own_account() -> None:
    """S3 has none in its URLs."""
    assert TRAIN.index_of("account") == 0
    with pytest.raises(ValueError, match="'account', not to 'galaxy'"):
        TRAIN.index_of("galaxy")


def test_a_refusal_slows_its_prefix_and_not_its_neighbour() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    gate.acquire(TRAIN, Policy()).free(Outcome.REFUSED)
    assert law.is_limited(level(gate).rate)
    assert not any(law.is_limited(level(gate, TRAIN, depth).rate) for depth in (0, 1))
    gate.acquire(OTHER, Policy()).free()
    assert clock.now() == 0.0
    # The levels above do not slow down, but they know.
    assert level(gate, TRAIN, 1).tally.refused == 1


def test_a_higher_rate_wakes_the_first_of_the_queue_early() -> None:
    clock = ManualClock(auto=False)
    gate = gate_of(clock)
    paced = pace(gate, 0.25)
    paced.rate[law.TOKENS] = 1.0
    one = gate.acquire(TRAIN, Policy())
    paced.rate[law.TOKENS] = 0.0
    got: list[Permit] = []
    with threads(lambda: got.append(gate.acquire(TRAIN, Policy()))):
        eventually(lambda: clock.sleepers == 1)
        paced.rate[law.LIMITED] = 0.0
        one.free(Outcome.SUCCEEDED)
    assert clock.now() == 0.0
    got[0].free()


# -- telling -----------------------------------------------------------------------------------------


def test_limit_changes_are_events_and_growth_is_none() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    try:
        gate.acquire(TRAIN, Policy()).free(Outcome.SUCCEEDED)
        gate.acquire(TRAIN, Policy()).free(Outcome.REFUSED)
        for _ in range(30):
            clock.advance(1)
            gate.acquire(TRAIN, Policy()).free(Outcome.SUCCEEDED)
        for _ in range(30):
            clock.advance(1)
            gate.acquire(TRAIN, Policy()).free(Outcome.REFUSED)
    finally:
        unsubscribe()
    first, *cuts = [one for one in seen if isinstance(one, events.LimitChanged)]
    assert (first.reason, first.previous_rate_per_s) == ("entered", None)
    assert first.scope == "s3://b/train/a (read)"
    assert cuts
    for cut in cuts:
        assert cut.reason == "cut"
        assert cut.rate_per_s is not None
        assert cut.previous_rate_per_s is not None
        assert cut.rate_per_s < cut.previous_rate_per_s


def test_an_observer_may_use_the_gate() -> None:
    gate, seen = gate_of(ManualClock()), []

    def look(event: object) -> None:
        seen.append(len(gate.levels()))

    unsubscribe = events.subscribe(look)
    try:
        gate.acquire(TRAIN, Policy()).free(Outcome.REFUSED)
    finally:
        unsubscribe()
    assert seen == [3]


def test_draws_are_uniform_and_from_its_own_generator() -> None:
    gate, twin = gate_of(), Random(7)
    assert [gate.draw() for _ in range(3)] == [twin.random() for _ in range(3)]


ACCOUNT = scope_path(endpoint="https://a.blob.test", account="a", bucket="c", prefix="train", op_class="read")


def read_blobs(gate: Gate, count: int, *names: str) -> None:
    """Read each so often, without a refusal."""
    for _ in range(count):
        for name in names:
            gate.acquire(ACCOUNT, Policy(), blob=name).free(Outcome.SUCCEEDED)


def limited_scopes(gate: Gate) -> list[str]:
    """The names of the levels that are limited."""
    return [label(found.key) for found in gate.levels() if law.is_limited(found.rate)]


def test_one_hot_blob_slows_itself_and_not_its_prefix() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    read_blobs(gate, 30, "hot", "a", "b")
    for _ in range(5):
        gate.acquire(ACCOUNT, Policy(), blob="hot").free(Outcome.REFUSED)
    assert limited_scopes(gate) == ["abfs://c@a/train/hot (read)"]
    before = clock.now()
    read_blobs(gate, 30, "a", "b")
    assert clock.now() == before
    read_blobs(gate, 30, "hot")
    assert clock.now() > before


def test_a_prefix_whose_blobs_are_all_refused_is_slowed_itself() -> None:
    gate = gate_of(ManualClock())
    read_blobs(gate, 10, "a", "b", "c")
    for name in ("a", "b", "c") * 4:
        gate.acquire(ACCOUNT, Policy(), blob=name).free(Outcome.REFUSED)
    assert "abfs://c@a/train (read)" in limited_scopes(gate)


def test_the_first_refusals_of_a_hot_blob_do_not_slow_the_others_of_its_prefix_for_long() -> None:
    """They come before anything else of the prefix was answered, so the prefix is charged; then it is given back."""
    clock = ManualClock()
    gate = gate_of(clock)
    hot = [gate.acquire(ACCOUNT, Policy(), blob="hot") for _ in range(16)]
    others = [gate.acquire(ACCOUNT, Policy(), blob=name) for name in "abcd"]
    for permit in hot[:14]:
        permit.free(Outcome.REFUSED)
    assert limited_scopes(gate) == ["abfs://c@a/train (read)"]
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    try:
        for permit in others:
            permit.free(Outcome.SUCCEEDED)
    finally:
        unsubscribe()
    assert [(one.scope, one.reason) for one in seen if isinstance(one, events.LimitChanged)] == [
        ("abfs://c@a/train (read)", "lifted")
    ]
    assert limited_scopes(gate) == []
    before = clock.now()
    read_blobs(gate, 50, "e")
    assert clock.now() == before
    for permit in hot[14:]:
        permit.free(Outcome.REFUSED)
    assert limited_scopes(gate) == ["abfs://c@a/train/hot (read)"]


def test_those_who_wait_for_a_prefix_go_when_it_is_given_back() -> None:
    async def main() -> None:
        clock = ManualClock(auto=False)
        gate = gate_of(clock)
        hot = [await gate.acquire_async(ACCOUNT, Policy(), blob="hot") for _ in range(16)]
        others = [await gate.acquire_async(ACCOUNT, Policy(), blob=name) for name in "abcd"]
        for permit in hot:
            permit.free(Outcome.REFUSED)
        level(gate, ACCOUNT).rate[law.TOKENS] = -100.0
        waiters = [asyncio.create_task(gate.acquire_async(ACCOUNT, Policy(), blob=name)) for name in "efgh"]
        while waiting(gate) < 4:
            await asyncio.sleep(0)
        for permit in others:
            permit.free(Outcome.SUCCEEDED)
        for permit in await asyncio.gather(*waiters):
            assert permit.waited_s == 0.0
            permit.free()

    asyncio.run(main())


def test_what_a_hot_blob_had_in_flight_is_told_to_its_own_level() -> None:
    """Its level began with none in flight, and judged its first refusals like those of one caller."""
    gate = gate_of(ManualClock())
    read_blobs(gate, 30, "hot", "a", "b")
    hot = [gate.acquire(ACCOUNT, Policy(), blob="hot") for _ in range(20)]
    hot[0].free(Outcome.REFUSED)
    level = next(one for one in gate.levels() if one.key.count("hot"))
    begun = level.rate[law.IN_FLIGHT]
    assert begun >= 5
    assert level.rate[law_record.ENTRY_OTHERS] == begun
    for permit in hot[1:]:
        permit.free(Outcome.SUCCEEDED)
    assert level.rate[law.IN_FLIGHT] == 0


def test_a_hot_blob_counts_into_the_semaphore_of_its_prefix() -> None:
    """A level of its own gives it no permits of its own."""
    clock = ManualClock()
    gate, policy = gate_of(clock), Policy(max_concurrency=2)
    for name in ("hot", "a", "b") * 30:
        gate.acquire(ACCOUNT, policy, blob=name).free(Outcome.SUCCEEDED)
    gate.acquire(ACCOUNT, policy, blob="hot").free(Outcome.REFUSED)
    clock.advance(10.0)
    held = [gate.acquire(ACCOUNT, policy, blob="hot"), gate.acquire(ACCOUNT, policy, blob="a")]
    with pytest.raises(WaitedTooLong):
        gate.acquire(ACCOUNT, policy, blob="b", deadline_at=clock.now() + 1.0)
    # What one of them gives back wakes those who wait in the queue of another.
    held[0].free(Outcome.SUCCEEDED)
    gate.acquire(ACCOUNT, policy, blob="b", deadline_at=clock.now() + 1.0).free(Outcome.SUCCEEDED)
    held[1].free(Outcome.SUCCEEDED)
    assert gate.lanes()[0].in_flight == 0


def test_what_an_open_level_was_not_told_counts_at_its_first_refusal() -> None:
    """On an open level each request only costs a count; the law must know of all of them when it begins to decide."""
    clock = ManualClock()
    gate = gate_of(clock)
    for _ in range(7):
        gate.acquire(TRAIN, Policy()).free(Outcome.SUCCEEDED)
    held = [gate.acquire(TRAIN, Policy()) for _ in range(3)]
    held.pop().free(Outcome.REFUSED)
    found = next(one for one in gate._table._levels.values() if one.key == TRAIN.levels()[-1])
    assert (found.untold_sent, found.untold_succeeded) == (0, 0)
    assert (found.rate[law.COUNT], found.rate[law.IN_FLIGHT]) == (7, 2)
    assert law.is_limited(found.rate)


def test_an_open_level_is_told_when_more_is_in_flight_and_when_time_has_passed() -> None:
    """Other processes see in the table what this one has in flight: a burst at once, the rest within 20 ms."""
    clock = ManualClock()
    gate = gate_of(clock)
    held = [gate.acquire(TRAIN, Policy()) for _ in range(3)]
    found = next(one for one in gate._table._levels.values() if one.key == TRAIN.levels()[-1])
    assert found.rate[law.IN_FLIGHT] == 3
    held.pop().free(Outcome.SUCCEEDED)
    held.append(gate.acquire(TRAIN, Policy()))
    assert (found.untold_sent, found.untold_succeeded) == (1, 0)  # an answer is told at once
    clock.advance(0.03)
    held.append(gate.acquire(TRAIN, Policy()))
    assert (found.untold_sent, found.untold_succeeded) == (0, 0)
    assert (found.rate[law.COUNT], found.rate[law.IN_FLIGHT]) == (1, 4)


def test_given_bytes_a_second_are_kept() -> None:
    """An object of five seconds' bytes is followed by as long a pause; who gave no such rate is not held up."""
    clock = ManualClock()
    gate, policy = gate_of(clock), Policy(bytes_per_s=1e6)
    began = clock.now()
    first = gate.acquire(TRAIN, policy)
    first.moved_bytes = 5_000_000
    first.free(Outcome.SUCCEEDED)
    gate.acquire(TRAIN, Policy()).free(Outcome.SUCCEEDED)
    assert clock.now() == began
    gate.acquire(TRAIN, policy, deadline_at=began + 60.0).free(Outcome.SUCCEEDED)
    assert clock.now() - began == pytest.approx(4.9, abs=0.2)
    assert level(gate).flow.total_bytes == 5_000_000


def test_given_bytes_a_second_hold_a_burst_of_callers_back() -> None:
    """Twelve that begin together are not let go at once, because nobody has paid yet."""
    clock = ManualClock()
    gate, policy = gate_of(clock), Policy(bytes_per_s=1e6)
    held = gate.acquire(TRAIN, policy)
    with pytest.raises(WaitedTooLong):
        gate.acquire(TRAIN, policy, deadline_at=clock.now() + 0.5)
    held.free(Outcome.SUCCEEDED)


def test_what_was_reserved_for_a_small_object_comes_back() -> None:
    """The first is taken for a second's bytes; it had a thousand."""
    clock = ManualClock()
    gate, policy = gate_of(clock), Policy(bytes_per_s=1e6)
    for _ in range(50):
        permit = gate.acquire(TRAIN, policy, deadline_at=clock.now() + 0.1)
        permit.moved_bytes = 1000
        permit.free(Outcome.SUCCEEDED)
    refused = gate.acquire(TRAIN, policy)
    refused.free(Outcome.DROPPED)
    assert clock.now() <= 0.1
