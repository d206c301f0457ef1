"""classify() gives a verdict whatever it is handed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resilient_io.classify import FaultKind, Verdict, classify
from resilient_io.classify.texts import read_text

REPEATABLE = (FaultKind.THROTTLED, FaultKind.TRANSIENT)
NAMES = (
    "response kwargs verdict record inner_exception last_exception reason os_error error status_code status code "
    "headers error_code operation_name message errno tb resilient_io_gave_up"
).split()
MODULES = st.sampled_from(
    [
        "botocore.exceptions.ClientError",
        "azure.core.exceptions.HttpResponseError",
        "resilient_io.errors.GaveUp",
        "my.Error",
    ]
)


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.sampled_from(["SlowDown", "InternalError", "503", 503, 200])
    | st.builds(Hostile)
    | st.builds(object)
    | st.builds(OSError, st.integers(0, 200), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Error", "Code", "Message", "ResponseMetadata", "HTTPStatusCode", "HTTPHeaders", "error"])
            | st.integers(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def make(name: str, attributes: dict[str, Any], raising: list[str], args: list[Any]) -> BaseException:
    module, _, attribute = name.rpartition(".")

    def broken(self: object) -> Any:
        raise RuntimeError("attribute")

    body: dict[str, Any] = {"__module__": module, "__qualname__": attribute}
    body.update({n: property(broken) for n in raising})
    error: BaseException = type(attribute, (Exception,), body)(*args)
    for key, value in attributes.items():
        if key not in raising:
            setattr(error, key, value)
    return error


errors = st.builds(
    make,
    MODULES,
    st.dictionaries(st.sampled_from(NAMES), values, max_size=6),
    st.lists(st.sampled_from(NAMES), max_size=4),
    st.lists(values, max_size=3),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(errors, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans())),
    st.text(max_size=12) | st.none(),
)
def test_any_exception_in_any_knot_gives_a_verdict(
    knot: list[BaseException], links: list[tuple[int, int, bool]], operation: str | None
) -> None:
    for outer, inner, explicit in links:
        if explicit:
            knot[outer % len(knot)].__cause__ = knot[inner % len(knot)]
        else:
            knot[outer % len(knot)].__context__ = knot[inner % len(knot)]
    verdict = classify(knot[0], operation=operation)
    assert isinstance(verdict, Verdict)
    assert not verdict.retryable or verdict.kind in REPEATABLE


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        [
            "",
            "Generic S3 error: ",
            "When x for key 'k': AWS Error ",
            "Caught E in DataLoader worker process 1.\n",
            "x\nRequestId:",
        ]
    ),
    st.text(alphabet=st.sampled_from("aA0 \n:'<>()[]_-./"), max_size=200),
)
def test_any_text_is_read_without_harm(start: str, rest: str) -> None:
    read_text(start + rest)
    assert classify(OSError(start + rest)).kind in FaultKind


def test_class_that_cannot_be_hashed_gives_a_verdict() -> None:
    class Meta(type):
        __hash__ = None  # type: ignore[assignment]

    cls = Meta("Odd", (Exception,), {})
    assert classify(cls("x")) == Verdict(kind=FaultKind.FATAL)


def test_headers_that_break_do_not_hide_the_code() -> None:
    class Headers(dict[str, str]):
        def items(self) -> Any:
            raise RuntimeError("no")

    error = make("botocore.exceptions.ClientError", {}, [], ["x"])
    metadata = {"HTTPStatusCode": 503, "HTTPHeaders": Headers(a="b")}
    error.response = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": metadata}  # type: ignore[attr-defined]
    assert classify(error).kind is FaultKind.THROTTLED


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_huge_text_is_read_in_no_time(size: int) -> None:
    for start in (
        "Generic S3 error: ",
        "When " + "a: " * 10,
        "Caught E in DataLoader worker process 1.\nTraceback (most recent call last):\n",
    ):
        for filler in ("a", "\n", " \n", "': AWS Error X during ", "<Code>"):
            assert classify(OSError(start + filler * (size // len(filler)))).retryable is False
