from __future__ import annotations

import json
import threading
from random import Random

import pytest

import resilient_io as rio
from resilient_io.control.scopes import level_of, scope_path
from resilient_io.drive.gate import Outcome
from resilient_io.drive.report import ScopeReport
from resilient_io.drive.runtime import reset, runtime
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock


@pytest.fixture(autouse=True)
def clock() -> ManualClock:
    clock = ManualClock(50.0)
    reset(clock, Random(11))
    return clock


def send(prefix: str, outcome: Outcome = Outcome.SUCCEEDED, times: int = 1, op_class: str = "read") -> None:
    path = scope_path(endpoint="https://user:pw@s3.test", bucket="b", prefix=prefix, op_class=op_class)
    for _ in range(times):
        runtime().gate.acquire(path, Policy(), deadline_at=1e9).free(outcome)


def scope(label: str) -> ScopeReport:
    return next(one for one in rio.report().scopes if one.label == label)


def test_nothing_yet() -> None:
    found = rio.report()
    assert (found.scopes, found.hot_prefixes(), str(found), found.at_s) == ((), (), "no requests yet", 50.0)


def test_the_counts_of_a_scope() -> None:
    send("train", times=6)
    send("train", Outcome.SUSPECTED)
    send("train", Outcome.DROPPED)
    send("train", Outcome.REFUSED, times=2)
    found = scope("s3://b/train (read)")
    assert (found.sent, found.succeeded, found.refused, found.suspected) == (10, 6, 2, 1)
    assert (found.op_class, found.share_refused, found.limited, found.leaf) == ("read", 0.2, True, True)
    assert found.rate_per_s is not None
    assert found.rate_per_s > 0
    assert found.waited_s > 0
    assert (found.in_flight, found.waiting, found.peak_in_flight) == (0, 0, 1)
    assert scope("s3://b (read)").refused == 2
    assert not scope("s3://b (read)").leaf


def test_what_is_in_flight_and_who_waits() -> None:
    policy = Policy(max_concurrency=1)
    path = scope_path(endpoint="https://s3.test", bucket="b", prefix="train", op_class="write")
    held = runtime().gate.acquire(path, policy)
    waiter = threading.Thread(target=lambda: runtime().gate.acquire(path, policy).free(), daemon=True)
    waiter.start()
    while scope("s3://b/train (write)").waiting == 0:
        pass
    found = scope("s3://b/train (write)")
    assert (found.in_flight, found.waiting, found.rate_per_s, found.limited) == (1, 1, None, False)
    held.free()
    waiter.join(5)


def test_hot_prefixes_are_ordered_by_refusals() -> None:
    for number in range(40):  # so many are served that what a few are refused is theirs, not the bucket's
        send(f"cold{number}", times=50)
    for number in range(7):
        send(f"hot{number}", Outcome.REFUSED, times=number + 1)
    hot = rio.report().hot_prefixes()
    assert [one.label for one in hot] == [f"s3://b/hot{number} (read)" for number in (6, 5, 4, 3, 2)]
    assert [one.label for one in rio.report().hot_prefixes(2)] == ["s3://b/hot6 (read)", "s3://b/hot5 (read)"]


def test_the_advice_fits_the_scope() -> None:
    send("train", Outcome.REFUSED)
    send("lists", Outcome.REFUSED, op_class="list")
    send("rare", times=200)
    send("rare", Outcome.REFUSED)
    assert "spread the keys over more prefixes: this one takes about" in scope("s3://b/train (read)").advice
    assert "send fewer of these at once" in scope("s3://b/lists (list)").advice
    assert "nothing need be done" in scope("s3://b/rare (read)").advice
    send("fine")
    assert scope("s3://b/fine (read)").advice == ""


def test_an_account_s_limit_was_blamed_on_its_prefixes() -> None:
    """And the account had no line, while each prefix was told to spread its keys, which does not help."""
    for number in range(6):
        path = scope_path(endpoint="https://a.test", account="acct", bucket="c", prefix=f"p{number}", op_class="read")
        for _ in range(4):
            permit = runtime().gate.acquire(path, Policy(), deadline_at=1e9)
            permit.charge = "account"
            permit.free(Outcome.REFUSED)
    found = rio.report()
    account = scope("https://a.test acct (read)")
    assert (account.level, account.charged, account.refused, account.limited) == ("account", 24, 24, True)
    assert found.hot_prefixes() == ()
    assert "a limit of the whole account, more prefixes do not help" in account.advice
    assert "acct (read)" in str(found)
    assert "spread the keys" not in str(found)


def test_a_level_is_known_by_its_key() -> None:
    assert (
        level_of(scope_path(endpoint="e", bucket="b", prefix="p|q", op_class="read").of_blob("x").levels()[-1])
        == "blob"
    )
    assert level_of(scope_path(endpoint="e", bucket="b", prefix="p|q", op_class="read").levels()[-1]) == "prefix"
    assert level_of(scope_path(endpoint="e", bucket="b", prefix="p", op_class="read").levels()[0]) == "endpoint"


def test_the_report_as_json() -> None:
    send("train", Outcome.REFUSED)
    found = json.loads(rio.report().to_json())
    assert found["at_s"] == 50.0
    assert [one["label"] for one in found["scopes"]] == [
        "https://s3.test (read)",
        "s3://b (read)",
        "s3://b/train (read)",
    ]
    assert found["scopes"][-1]["refused"] == 1
    assert found["hot_prefixes"][0]["label"] == "s3://b/train (read)"
    assert "prefixes" in found["hot_prefixes"][0]["advice"]


def test_the_report_as_a_table() -> None:
    send("train", Outcome.REFUSED)
    send("train", times=3)
    for number in range(30):
        send(f"p{number}")
    lines = str(rio.report()).splitlines()
    assert lines[0].split()[:3] == ["scope", "sent", "refused"]
    assert lines[1].startswith("s3://b/train (read)")
    assert "1 (25.0%)" in lines[1]
    assert len(lines[1]) == len(lines[0])
    assert lines[21] == "... and 11 more"
    assert lines[22].startswith("s3://b/train (read): spread")


def test_no_secret_is_shown() -> None:
    send("train")
    with rio.limit("https://u:pw@host.test/k?X-Amz-Signature=abc&sig=def"):
        pass
    text = str(rio.report()) + rio.report().to_json()
    for secret in ("pw", "abc", "def", "Signature"):
        assert secret not in text
