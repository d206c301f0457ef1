"""Times in answers: what botocore reads, at less cost."""

from __future__ import annotations

from datetime import datetime, timezone
from email.utils import format_datetime

import boto3
import pytest
from botocore.context import ClientContext, start_as_current_context
from botocore.utils import parse_timestamp
from hypothesis import given
from hypothesis import strategies as st

from resilient_io.aws import timestamps
from resilient_io.aws.hooks import harden, soften
from resilient_io.aws.privates import endpoint_of

times = st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(timezone.utc))


def same(text: object) -> None:
    # The class of the zone is not compared: on a machine whose own zone is UTC, dateutil says that of the machine.
    ours, stock = timestamps.parse(text), parse_timestamp(text)
    assert (ours, ours.utcoffset(), str(ours)) == (stock, stock.utcoffset(), str(stock))


@given(times)
def test_a_header_s_time_is_botocore_s(at: datetime) -> None:
    same(format_datetime(at.replace(microsecond=0), usegmt=True))


@given(times, st.sampled_from(("seconds", "milliseconds", "microseconds")))
def test_a_document_s_time_is_botocore_s(at: datetime, precision: str) -> None:
    same(at.isoformat(timespec=precision).replace("+00:00", "Z"))


@pytest.mark.parametrize(
    "text",
    [
        "2009-10-12T17:50:30+02:00", "2009-10-12",
        "Wednesday, 12-Oct-09 17:50:00 GMT", "Wed, 12 Oct 2009 17:50:00 +0100",
        "Wed Oct 12 17:50:00 2009", "1255369830", 1255369830, 1255369830.5, "Mon, 12 Oct 2009 17:50:00 GMT",
    ],
)  # fmt: skip
def test_other_forms_are_left_to_botocore(text: object) -> None:
    same(text)


@pytest.mark.parametrize(
    "text", ["Wed, 12 Xyz 2009 17:50:00 GMT", "2009-13-12T17:50:30Z", "Wed, 12 Oct 2009 25:50:00 GMT", ""]
)
def test_what_does_not_hold_fails_as_in_botocore(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid timestamp"):
        parse_timestamp(text)
    with pytest.raises(ValueError, match="Invalid timestamp"):
        timestamps.parse(text)


def test_a_softened_client_reads_times_as_before() -> None:
    client = boto3.client("s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:9")
    before = endpoint_of(client)._response_parser_factory
    harden(client)
    assert endpoint_of(client)._response_parser_factory._defaults == {"timestamp_parser": timestamps.parse}
    soften(client)
    assert endpoint_of(client)._response_parser_factory is before


def test_the_user_agent_is_botocore_s_whatever_a_request_uses() -> None:
    """It is put together once for each set of features; two requests that use other ones differ as they did."""
    stock, ours = (boto3.client("s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:9") for _ in range(2))
    before = vars(ours._user_agent_creator).copy()
    harden(ours)
    for features in ({"C"}, {"C", "D"}, set(), {"C"}):
        with start_as_current_context(ClientContext(features=features)):
            said = [set(client._user_agent_creator.to_string().split()) for client in (stock, ours)]
        assert _without_order(said[0]) == _without_order(said[1])
    soften(ours)
    assert vars(ours._user_agent_creator) == before


def _without_order(words: set[str]) -> set[str]:
    """The features stand in the order of a set."""
    return {",".join(sorted(word.split(","))) if word.startswith("m/") else word for word in words}
