from __future__ import annotations

import copy
import inspect
import json
import os
import pickle
import timeit
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_io import policy
from resilient_io.policy import Policy, configure, configured, overlay, resolve, sources

SetEnv = Callable[..., None]


@pytest.fixture(autouse=True)
def set_env(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetEnv]:
    """Set variables (by the name after RESILIENT_IO) and read the environment anew; all is undone."""

    def set_variables(**variables: str) -> None:
        for suffix, text in variables.items():
            monkeypatch.setenv("RESILIENT_IO" + suffix, text)
        policy.reload()

    for variable in list(os.environ):
        if variable.startswith("RESILIENT_IO"):
            monkeypatch.delenv(variable)
    policy.reset()
    yield set_variables
    monkeypatch.undo()
    policy.reset()


def test_defaults_are_the_training_preset() -> None:
    assert Policy() == Policy.preset("training") == resolve()
    p = Policy()
    assert (p.deadline_s, p.total_deadline_s, p.max_attempts, p.max_throttle_attempts) == (300, None, 6, 30)
    assert (p.backoff_base_s, p.backoff_cap_s, p.retry_budget, p.retry_budget_burst) == (0.2, 20, 0.2, 10)
    assert (p.max_concurrency, p.prefix_depth, p.enabled) == (64, 2, True)


def test_checkpoint_preset_waits_longer_with_fewer_in_flight() -> None:
    p = Policy.preset("checkpoint")
    assert (p.deadline_s, p.max_attempts, p.max_throttle_attempts, p.max_concurrency) == (900, 10, 100, 32)


def test_policy_is_frozen_and_hashable() -> None:
    with pytest.raises(FrozenInstanceError):
        Policy().max_attempts = 3  # type: ignore[misc]  # that it is refused is the test
    assert len({Policy(), Policy(), Policy(max_attempts=3)}) == 2


@given(
    deadline_s=st.floats(1e-3, 1e6),
    total_deadline_s=st.none() | st.floats(1e-3, 1e6),
    max_attempts=st.integers(1, 1000),
    rate_per_s=st.none() | st.floats(1e-3, 1e6),
    prefix_rule=st.sampled_from([None, "^(a)/", "os.path:dirname"]),
    coordination=st.sampled_from([None, "node", "process"]),
    enabled=st.booleans(),
)
def test_policy_survives_json_pickle_and_copy(**fields: Any) -> None:
    p = Policy(**fields)
    assert Policy.from_json(p.to_json()) == p
    assert pickle.loads(pickle.dumps(p)) == p
    assert copy.deepcopy(p) == p
    assert resolve(p.to_json()) == resolve(p) == resolve(json.loads(p.to_json())) == p


def test_json_names_every_field() -> None:
    assert set(json.loads(Policy().to_json())) == set(Policy.__dataclass_fields__)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("max_attempts", 0, "max_attempts must be a whole number of at least 1, not 0"),
        ("max_attempts", 2.5, "a whole number of at least 1, not 2.5"),
        ("max_attempts", True, "a whole number of at least 1, not True"),
        ("max_attempts", "6", "not '6'; write the number without quotes"),
        ("max_attempts", None, "max_attempts must be"),
        ("max_throttle_attempts", 0, "at least 1"),
        ("deadline_s", 0, "deadline_s must be a number above 0, not 0"),
        ("deadline_s", float("nan"), "a number above 0"),
        ("deadline_s", float("inf"), "a number above 0"),
        ("deadline_s", None, "deadline_s must be"),
        ("total_deadline_s", -1, "a number above 0, or None, not -1"),
        ("backoff_base_s", -0.1, "a number of at least 0"),
        ("retry_budget", -1, "a number of at least 0"),
        ("max_concurrency", 0, "at least 1"),
        ("weight", 0, "a number from 0.1 to 10, not 0"),
        ("weight", 10.5, "a number from 0.1 to 10"),
        ("weight", float("nan"), "a number from 0.1 to 10"),
        ("weight", True, "a number from 0.1 to 10"),
        ("weight", "3", "write the number without quotes"),
        ("rate_per_s", 0, "a number above 0, or None"),
        ("prefix_depth", -1, "at least 0"),
        ("prefix_rule", "(a)(b)", "exactly one group, the prefix; this one has 2"),
        ("prefix_rule", "(a", "a regular expression with one group"),
        ("prefix_rule", "no rule", "package.module:name"),
        ("prefix_rule", "", "not ''"),
        ("redis_url", "http://host", "redis"),
        ("redis_url", "redis://host:six", "a URL such as"),
        ("redis_url", "redis://host:99999", "a URL such as"),
        ("redis_url", "redis://[::1", "a URL such as"),
        ("fleet_size", 0, "at least 1"),
        ("coordination", "galaxy", "'process'"),
        ("verify", "never", "one of 'auto', 'strict'"),
        ("enabled", 1, "enabled must be true or false, not 1"),
    ],
)
def test_value_out_of_range_is_refused_with_what_to_write(field: str, value: Any, says: str) -> None:
    fields = {field: value}
    for build in (lambda: Policy(**fields), lambda: overlay(fields), lambda: configure(**fields)):
        with pytest.raises(ValueError, match=field) as caught:
            build()
        assert says in str(caught.value)


def test_base_above_cap_is_refused_wherever_the_two_come_from() -> None:
    configure(backoff_cap_s=1.0)
    with pytest.raises(ValueError, match=r"backoff_base_s \(5\) must not exceed backoff_cap_s \(1\)"):
        resolve({"backoff_base_s": 5.0})


def test_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="unknown policy field 'max_atempts'; did you mean 'max_attempts'"):
        overlay({"max_atempts": 3})
    with pytest.raises(ValueError, match=r"unknown policy field 'zzz'; known: .*deadline_s"):
        configure(zzz=3)
    with pytest.raises(ValueError, match="unknown preset 'chekpoint'; did you mean 'checkpoint'"):
        overlay("chekpoint")
    with pytest.raises(ValueError, match="did you mean 'deadline_s'"):
        Policy.from_json('{"deadline": 3}')
    with pytest.raises(ValueError, match="unknown preset 3"):
        overlay({"preset": 3})


@pytest.mark.parametrize("value", [5, 1.5, ["training"], object(), "{", '{"max_attempts": }'])
def test_overlay_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"resilience must be|JSON"):
        overlay(value)


def test_overlay_takes_each_of_its_forms() -> None:
    assert overlay(None) == overlay({}) == overlay({"preset": None}) == {}
    assert overlay(False) == {"enabled": False}
    assert overlay("checkpoint") == overlay({"preset": "checkpoint"}) == {"preset": "checkpoint"}
    assert overlay('{"max_attempts": 3}') == overlay({"max_attempts": 3}) == {"max_attempts": 3}
    assert overlay({"deadline_s": 5}) == {"deadline_s": 5.0}
    assert resolve(Policy(max_attempts=2)) == Policy(max_attempts=2)
    assert not resolve(False).enabled


def test_nearest_source_wins(set_env: SetEnv) -> None:
    set_env(_MAX_ATTEMPTS="2", _PREFIX_DEPTH="2", _MAX_CONCURRENCY="2", _DEADLINE_S="2", _PRESET="checkpoint")
    configure(max_attempts=3, prefix_depth=3, max_concurrency=3)
    p = resolve({"max_attempts": 5}, {"max_attempts": 4, "prefix_depth": 4})
    assert (p.max_attempts, p.prefix_depth, p.max_concurrency, p.deadline_s) == (5, 4, 3, 2.0)
    assert p.max_throttle_attempts == 100


def test_preset_lies_below_every_named_field_and_the_nearest_preset_counts(set_env: SetEnv) -> None:
    set_env(_PRESET="checkpoint", _MAX_ATTEMPTS="7")
    assert resolve().max_throttle_attempts == 100
    assert resolve("training").max_throttle_attempts == 30
    assert resolve("training").max_attempts == 7
    configure(preset="training", max_concurrency=5)
    assert (resolve().max_throttle_attempts, resolve("checkpoint").max_concurrency) == (30, 5)


def test_policy_as_overlay_sets_every_field(set_env: SetEnv) -> None:
    set_env(_MAX_ATTEMPTS="7")
    configure(max_concurrency=5)
    assert resolve(Policy()) == Policy()
    assert resolve({"max_attempts": 2}, Policy()) == Policy(max_attempts=2)


def test_environment_gives_each_kind_of_value(set_env: SetEnv) -> None:
    set_env(_DEADLINE_S="1.5", _MAX_ATTEMPTS=" 3 ", _ENABLED="off", _TOTAL_DEADLINE_S="none", _PREFIX_RULE="^(a)/")
    assert resolve() == Policy(deadline_s=1.5, max_attempts=3, enabled=False, prefix_rule="^(a)/")


@pytest.mark.parametrize(
    ("suffix", "text", "says"),
    [
        ("_MAX_ATTEMPTS", "six", "max_attempts must be a whole number of at least 1, not 'six'"),
        ("_MAX_ATTEMPTS", "0", "at least 1"),
        ("_DEADLINE_S", "none", "a number above 0"),
        ("_ENABLED", "maybe", "true or false"),
        ("_MAX_ATEMPTS", "3", "did you mean 'max_attempts'"),
        ("_PRESET", "chekpoint", "did you mean 'checkpoint'"),
        ("_HEDGE", "perhaps", "true or false"),
        ("", "perhaps", "0 or 1"),
    ],
)
def test_bad_variable_is_named_when_first_needed(set_env: SetEnv, suffix: str, text: str, says: str) -> None:
    set_env(**{suffix: text})
    with pytest.raises(ValueError, match=f"environment variable RESILIENT_IO{suffix}\\b") as caught:
        resolve()
    assert says in str(caught.value)


def test_empty_variable_and_the_librarys_other_variables_set_nothing(set_env: SetEnv) -> None:
    set_env(_MAX_ATTEMPTS="", _LOG="debug", _PRESET=" ")
    assert resolve() == Policy()


@pytest.mark.parametrize("text", ["0", "false", "OFF", "no"])
def test_kill_switch_wins_over_everything(set_env: SetEnv, text: str) -> None:
    set_env(_ENABLED="1")
    configure(enabled=True)
    set_env(**{"": text, "_MAX_ATTEMPTS": "broken"})
    assert not resolve().enabled
    assert not resolve({"enabled": True}, Policy()).enabled
    configure(max_attempts=3)
    assert not resolve().enabled


@pytest.mark.parametrize("text", ["1", "true", ""])
def test_switch_that_is_on_changes_nothing(set_env: SetEnv, text: str) -> None:
    set_env(**{"": text})
    assert resolve() == Policy()


def test_a_weight_may_come_from_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESILIENT_IO_WEIGHT", "0.5")
    policy.reload()
    assert resolve().weight == resolve("checkpoint").weight == 0.5
    configure(weight=2)
    assert resolve().weight == 2.0
    assert resolve({"weight": 3}).weight == Policy.from_json('{"weight": 3}').weight == 3.0
    monkeypatch.setenv("RESILIENT_IO_WEIGHT", "11")
    with pytest.raises(ValueError, match=r"RESILIENT_IO_WEIGHT: weight must be a number from 0\.1 to 10, not 11"):
        policy.reset()
        resolve()


def test_environment_is_read_at_configure_and_reload_only(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve()
    monkeypatch.setenv("RESILIENT_IO_MAX_ATTEMPTS", "3")
    assert resolve().max_attempts == 6
    policy.reload()
    assert resolve().max_attempts == 3
    monkeypatch.setenv("RESILIENT_IO_MAX_ATTEMPTS", "4")
    configure(max_concurrency=5)
    assert resolve().max_attempts == 4


def test_configure_adds_up_and_reset_forgets() -> None:
    configure(max_attempts=3)
    configure(max_concurrency=5)
    assert configured() == {"max_attempts": 3, "max_concurrency": 5}
    assert resolve({"prefix_depth": 1}) == Policy(max_attempts=3, max_concurrency=5, prefix_depth=1)
    policy.reset()
    assert configured() == {}
    assert resolve() == Policy()


def test_configure_that_fails_changes_nothing() -> None:
    configure(max_attempts=3)
    for bad in ({"max_attempts": 0}, {"nothing": 1}, {"backoff_base_s": 99}):
        with pytest.raises(ValueError, match=r"must|unknown"):
            configure(**bad)
    assert configured() == {"max_attempts": 3}


def test_later_configure_reaches_overlays_that_were_resolved_before() -> None:
    options = {"prefix_depth": 1}
    assert resolve(options).max_attempts == 6
    configure(max_attempts=3)
    assert resolve(options).max_attempts == 3


def test_changed_mapping_is_resolved_anew() -> None:
    options = {"max_attempts": 3}
    assert resolve(options).max_attempts == 3
    options["max_attempts"] = 4
    assert resolve(options).max_attempts == 4


def test_new_mappings_without_end_do_not_fill_the_memory() -> None:
    for depth in range(3000):
        assert resolve({"prefix_depth": depth}).prefix_depth == depth
    assert len(sources._sources._cache) <= sources._MOST_CACHED


def test_resolving_again_gives_the_same_object_at_once() -> None:
    options, nearer = {"max_attempts": 3}, {"prefix_depth": 1}
    assert resolve(options, nearer) is resolve(options, nearer)
    per_call_s = min(timeit.repeat(lambda: resolve(options, nearer), number=2000, repeat=5)) / 2000
    # 0.5 microseconds where it was written; the bound leaves room for a slow or busy machine.
    assert per_call_s < 10e-6


def test_every_field_is_documented_with_its_default() -> None:
    text = inspect.getsource(Policy)
    for name in Policy.__dataclass_fields__:
        after = text.partition(f"    {name}: ")[2].partition("\n")[2]
        assert after.lstrip().startswith('"""'), name


# -- a cluster ---------------------------------------------------------------------------------------

SECRET = "redis://us3r:s3kr1t@host:6379/0"


def test_a_cluster_needs_its_redis() -> None:
    with pytest.raises(ValueError, match="coordination='cluster' needs redis_url"):
        configure(coordination="cluster")
    configure(redis_url=SECRET)
    configure(coordination="cluster")
    assert resolve() == Policy(coordination="cluster", redis_url=SECRET)


def test_a_cluster_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'resilient-io\[redis\]'"):
        Policy(coordination="cluster", redis_url=SECRET)


def test_a_cluster_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESILIENT_IO_COORDINATION", "cluster")
    monkeypatch.setenv("RESILIENT_IO_REDIS_URL", SECRET)
    policy.reload()
    assert resolve() == Policy(coordination="cluster", redis_url=SECRET)
    assert resolve({"coordination": "process"}).coordination == "process"


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:1/2?ssl_ca_certs=/x", "unix:///run/redis.sock", None])
def test_urls_of_redis(url: str | None) -> None:
    assert Policy(redis_url=url).redis_url == url


def test_the_url_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Policy(coordination="cluster", redis_url=SECRET)
    assert "s3kr1t" not in f"{one!r} {one} {overlay(one).keys()}"
    assert Policy.from_json(one.to_json()) == one
    for wrong in (
        lambda: Policy(redis_url=f"x{SECRET}"),
        lambda: Policy(redis_url=[SECRET]),  # type: ignore[arg-type]  # that it is refused is the test
        lambda: Policy(redis_url=f"{SECRET} {SECRET}"),
        lambda: Policy(coordination=SECRET),  # type: ignore[arg-type]  # the same
        lambda: overlay(SECRET),
        lambda: overlay([SECRET]),
        lambda: overlay({SECRET: 1}),
        lambda: configure(redis_ur1=SECRET),
    ):
        with pytest.raises(ValueError, match=r"must|unknown") as caught:
            wrong()
        assert "s3kr1t" not in f"{caught.value} {caught.value.__cause__}"
        assert "us3r" not in str(caught.value)
    monkeypatch.setenv("RESILIENT_IO_REDIS_URL", f"http{SECRET}")
    with pytest.raises(ValueError, match="RESILIENT_IO_REDIS_URL") as caught:
        policy.reload()
        resolve()
    assert "s3kr1t" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [{"ap-s3alias": "b", "arn:aws:s3:us-east-1:1:accesspoint/ap": "b"}, '{"ap-s3alias": "b"}', [["ap-s3alias", "b"]]],
)
def test_aliases_of_a_bucket_come_as_a_mapping_as_pairs_or_as_json(value: object) -> None:
    policy = Policy(bucket_aliases=value)  # type: ignore[arg-type]  # whatever it is becomes pairs
    assert policy.bucket_of("ap-s3alias") == "b"
    assert policy.bucket_of("other") == "other"
    assert Policy.from_json(policy.to_json()) == policy
    assert hash(policy) == hash(Policy.from_json(policy.to_json()))


@pytest.mark.parametrize("value", [{"ap": ""}, {"ap": 1}, "ap=b", ["ap"], ["long"], 7])
def test_bad_aliases_say_what_to_write(value: object) -> None:
    with pytest.raises(ValueError, match="bucket_aliases must be names of buckets by their aliases"):
        Policy(bucket_aliases=value)  # type: ignore[arg-type]


def test_aliases_from_the_environment(set_env: SetEnv) -> None:
    set_env(_BUCKET_ALIASES='{"ap-s3alias": "b"}')
    assert resolve().bucket_of("ap-s3alias") == "b"
