from __future__ import annotations

from resilient_io.testing import FaultAction, FaultRule, Latency, Match
from resilient_io.testing.calls import Call
from resilient_io.testing.injector import Injector


def get(key: str = "k", op: str = "GetObject") -> Call:
    return Call(op=op, op_class="read", bucket="b", key=key)


def fired(injector: Injector, calls: list[Call]) -> list[int]:
    """Return the 1-based numbers of the calls that a rule hit."""
    return [number for number, call in enumerate(calls, 1) if injector.choose(call) is not None]


def test_a_rule_without_conditions_fires_always() -> None:
    assert fired(Injector((FaultRule(action=FaultAction.ERROR),), seed=1), [get()] * 3) == [1, 2, 3]


def test_calls_are_counted_per_matcher_from_one() -> None:
    rule = FaultRule(action=FaultAction.ERROR, match=Match(op="GetObject", key="a*"), calls=(1, 3))
    calls = [get("z"), get("a1"), get("a2", op="HeadObject"), get("a2"), get("a3"), get("a4")]
    assert fired(Injector((rule,), seed=1), calls) == [2, 5]


def test_counts_can_be_kept_apart_by_key() -> None:
    rule = FaultRule(action=FaultAction.ERROR, calls=(1,), per=("key",))
    assert fired(Injector((rule,), seed=1), [get("a"), get("a"), get("b"), get("a"), get("b")]) == [1, 3]


def test_a_limit_ends_a_rule() -> None:
    injector = Injector((FaultRule(action=FaultAction.ERROR, limit=2),), seed=1)
    assert fired(injector, [get()] * 5) == [1, 2]
    assert injector.fired == (2,)


def test_the_first_rule_that_fires_wins_and_every_rule_counts() -> None:
    first = FaultRule(action=FaultAction.ERROR, calls=(1,))
    second = FaultRule(action=FaultAction.RESET_BEFORE, calls=(1, 2))
    injector = Injector((first, second), seed=1)
    chosen = [injector.choose(get()) for _ in range(3)]
    assert [one and one.action for one in chosen] == [FaultAction.ERROR, FaultAction.RESET_BEFORE, None]
    assert injector.fired == (1, 1)


def test_the_seed_decides_all_chance() -> None:
    rule = FaultRule(action=FaultAction.ERROR, probability=0.3)
    runs = [fired(Injector((rule,), seed=seed), [get()] * 1000) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert 240 < len(runs[0]) < 360


def test_a_rule_draws_apart_from_the_others() -> None:
    rule = FaultRule(action=FaultAction.ERROR, probability=0.3)
    alone = fired(Injector((rule,), seed=1), [get()] * 200)
    other = FaultRule(action=FaultAction.DELAY, probability=0.5, match=Match(key="other"))
    both = Injector((rule, other), seed=1)
    assert fired(both, [get()] * 200) == alone


def test_latency_has_a_base_and_a_tail() -> None:
    injector = Injector((), seed=1)
    latency = Latency(base_s=0.02, jitter_s=0.01, tail_probability=0.1, tail_s=2.0)
    drawn = [injector.latency_s(latency) for _ in range(2000)]
    assert min(drawn) >= 0.02
    assert 140 < sum(one > 2 for one in drawn) < 260
    assert injector.latency_s(Latency()) == 0
