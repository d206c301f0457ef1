"""The wait that a service asks for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_io.classify import retry_after_s

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"RETRY-AFTER": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"X-Amz-Retry-After": "3000"}, 3.0),
        ({"Retry-After": "7", "x-amz-retry-after": "3000"}, 3.0),
        ({"Retry-After": "7", "x-amz-retry-after": "soon"}, 7.0),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:00 GMT"}, 0.0),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "soon"}, None),
        ({"x-retry-after": "7"}, None),
    ],
)
def test_wait_is_read(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers, now_epoch_s=NOW) == wait_s


def test_date_is_compared_with_the_date_of_the_answer_when_no_clock_is_given() -> None:
    headers = {"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT", "Date": "Tue, 14 Nov 2023 22:13:40 GMT"}
    assert retry_after_s(headers) == 10.0
    assert retry_after_s({"Retry-After": headers["Retry-After"]}) is None


@given(
    st.dictionaries(
        st.sampled_from(["Retry-After", "date", "x-amz-retry-after", "retry-after-ms"]), st.text(max_size=40)
    )
)
def test_garbage_gives_nothing_or_a_wait(headers: dict[str, str]) -> None:
    wait_s = retry_after_s(headers, now_epoch_s=NOW)
    assert wait_s is None or (wait_s >= 0 and math.isfinite(wait_s))
