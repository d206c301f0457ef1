from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from resilient_io import events
from resilient_io.classify.fault import FaultKind, Verdict
from resilient_io.errors import GiveUp

WAITED = events.PermitWaited(at_s=1.0, scope="s3://b (read)", operation="GetObject", waited_s=0.5)


@pytest.fixture(autouse=True)
def _nobody_listens() -> Iterator[None]:
    events._observers.clear()
    yield
    events._observers.clear()


def test_observers_are_told_in_the_order_of_their_subscription() -> None:
    told: list[tuple[str, events.Event]] = []
    events.subscribe(lambda event: told.append(("first", event)))
    events.subscribe(lambda event: told.append(("second", event)))
    events.emit(WAITED)
    assert told == [("first", WAITED), ("second", WAITED)]


def test_unsubscribing_ends_one_subscription_and_may_be_repeated() -> None:
    told: list[events.Event] = []
    first, second = events.subscribe(told.append), events.subscribe(told.append)
    first()
    first()
    events.emit(WAITED)
    assert told == [WAITED]
    second()
    assert not events.listening()


def test_listening_tells_whether_an_event_need_be_built() -> None:
    assert not events.listening()
    unsubscribe = events.subscribe(lambda event: None)
    assert events.listening()
    unsubscribe()
    assert not events.listening()


def test_broken_observer_is_dropped_with_one_warning_and_the_others_are_told() -> None:
    told: list[events.Event] = []

    def broken(event: events.Event) -> None:
        raise KeyError("broken")

    events.subscribe(broken)
    events.subscribe(told.append)
    with pytest.warns(RuntimeWarning, match="broken.*no longer called") as caught:
        events.emit(WAITED)
    events.emit(WAITED)
    assert len(caught) == 1
    assert told == [WAITED, WAITED]


def test_broken_observer_does_not_fail_the_operation_even_where_warnings_are_errors() -> None:
    def broken(event: events.Event) -> None:
        raise KeyError("broken")

    events.subscribe(broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        events.emit(WAITED)
    assert not events.listening()


def test_interrupt_in_an_observer_is_not_swallowed() -> None:
    def interrupted(event: events.Event) -> None:
        raise KeyboardInterrupt

    events.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        events.emit(WAITED)


def test_observer_may_unsubscribe_itself_while_it_is_told() -> None:
    told: list[events.Event] = []

    def once(event: events.Event) -> None:
        told.append(event)
        unsubscribe()

    unsubscribe = events.subscribe(once)
    events.emit(WAITED)
    events.emit(WAITED)
    assert told == [WAITED]


def test_subscribing_from_many_threads_loses_nobody() -> None:
    unsubscribers: list[object] = []

    def subscribe_many() -> None:
        unsubscribers.extend(events.subscribe(lambda event: None) for _ in range(200))
        events.emit(WAITED)

    threads = [threading.Thread(target=subscribe_many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events._observers) == len(unsubscribers) == 1600


def test_events_are_frozen_records() -> None:
    verdict = Verdict(kind=FaultKind.THROTTLED)
    common: dict[str, Any] = {"at_s": 1.0, "scope": "s", "operation": "GetObject"}
    records: list[events.Event] = [
        WAITED,
        events.AttemptFailed(**common, attempt=1, verdict=verdict),
        events.RetryScheduled(**common, attempt=1, verdict=verdict, delay_s=0.1),
        events.LimitChanged(at_s=1.0, scope="s", rate_per_s=10.0, previous_rate_per_s=None, reason="refused"),
        events.OperationGaveUp(**common, record=GiveUp()),
    ]
    for record in records:
        assert {"at_s", "scope"} <= {f.name for f in dataclasses.fields(record)}
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.at_s = 2.0  # type: ignore[misc]  # that it is refused is the test
