"""The tables of codes, statuses and classes, row by row."""

from __future__ import annotations

import importlib

import pytest

from resilient_io.classify.azure_codes import AZURE_CODES
from resilient_io.classify.codes import CodeMeaning, StatusMeaning, code_meaning, status_meaning
from resilient_io.classify.s3_codes import S3_CODES
from resilient_io.classify.transport import _ROWS, TypeMeaning, type_meaning, was_sent

BOTOCORE_THROTTLES = "botocore.retries.standard"


@pytest.mark.parametrize("code", S3_CODES)
def test_s3_code_has_its_meaning(code: str) -> None:
    assert code_meaning("s3", code) is S3_CODES[code]


@pytest.mark.parametrize("code", AZURE_CODES)
def test_azure_code_has_its_meaning(code: str) -> None:
    assert code_meaning("azure", code) is AZURE_CODES[code]


def test_every_code_that_botocore_calls_throttling_is_one() -> None:
    pytest.importorskip("botocore")
    checker = importlib.import_module(BOTOCORE_THROTTLES).ThrottledRetryableChecker
    # These two are no refusals for load in object storage: a request that another one is ahead of.
    other = {"PriorRequestNotComplete", "TransactionInProgressException"}
    for code in set(checker._THROTTLED_ERROR_CODES) - other:
        assert code_meaning("s3", code) is CodeMeaning.THROTTLED, code


@pytest.mark.parametrize(
    ("spelling", "meaning"),
    [
        ("SLOW_DOWN", CodeMeaning.THROTTLED),
        ("slowdown", CodeMeaning.THROTTLED),
        ("com.amazonaws.s3#SlowDown", CodeMeaning.THROTTLED),
        ("KMS.ThrottlingException", CodeMeaning.KMS_THROTTLED),
        ("Athena.ThrottlingException", CodeMeaning.THROTTLED),
        ("KMS.NotFoundException", CodeMeaning.DENIED),
        ("SlowDownPlease", CodeMeaning.NONE),
        ("NotSlowDown", CodeMeaning.NONE),
        ("SlowDown.Not", CodeMeaning.NONE),
        ("Slow Down", CodeMeaning.NONE),
        ("503", CodeMeaning.NONE),
        ("", CodeMeaning.NONE),
    ],
)
def test_code_is_found_whole_or_not_at_all(spelling: str, meaning: CodeMeaning) -> None:
    assert code_meaning("s3", spelling) is meaning


def test_code_means_what_its_own_service_says_first() -> None:
    # Both tables know it, for different reasons.
    assert code_meaning("azure", "TooManyRequests") is CodeMeaning.THROTTLED
    assert code_meaning("unknown", "BlobNotFound") is CodeMeaning.NOT_FOUND


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (None, StatusMeaning.NONE),
        (200, StatusMeaning.NONE),
        (206, StatusMeaning.NONE),
        (301, StatusMeaning.CLIENT_BUG),
        (304, StatusMeaning.PRECONDITION),
        (400, StatusMeaning.CLIENT_BUG),
        (401, StatusMeaning.AUTH),
        (403, StatusMeaning.DENIED),
        (404, StatusMeaning.NOT_FOUND),
        (405, StatusMeaning.UNSUPPORTED),
        (408, StatusMeaning.TIMEOUT),
        (409, StatusMeaning.PRECONDITION),
        (410, StatusMeaning.NOT_FOUND),
        (412, StatusMeaning.PRECONDITION),
        (416, StatusMeaning.CLIENT_BUG),
        (418, StatusMeaning.NONE),
        (429, StatusMeaning.THROTTLED),
        (500, StatusMeaning.SERVER_ERROR),
        (501, StatusMeaning.UNSUPPORTED),
        (502, StatusMeaning.SERVER_ERROR),
        (503, StatusMeaning.THROTTLED),
        (504, StatusMeaning.TIMEOUT),
        (505, StatusMeaning.UNSUPPORTED),
        (509, StatusMeaning.THROTTLED),
        (520, StatusMeaning.SERVER_ERROR),
        (524, StatusMeaning.TIMEOUT),
        (600, StatusMeaning.NONE),
    ],
)
def test_status_has_its_meaning(status: int | None, meaning: StatusMeaning) -> None:
    assert status_meaning(status) is meaning


CLASS_ROWS = [(meaning, name) for meaning, names in _ROWS for name in names]


@pytest.mark.parametrize(("meaning", "name"), CLASS_ROWS, ids=[name for _, name in CLASS_ROWS])
def test_class_means_what_its_row_says(meaning: TypeMeaning, name: str) -> None:
    """The bases of a class must not pull it into a row above its own."""
    module, _, attribute = name.rpartition(".")
    assert type_meaning((name,)) is meaning
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        return  # of another version, or not installed here: its name is all that can be tried
    names = tuple(f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__)
    assert type_meaning(names) is meaning, names


@pytest.mark.parametrize(
    "module", ["botocore.exceptions", "aiohttp.client_exceptions", "urllib3.exceptions", "builtins"]
)
def test_class_that_no_row_names_is_not_retried_by_its_bases(module: str) -> None:
    """Every class of an SDK: those that get a retryable meaning are the ones that a human put there."""
    loaded = pytest.importorskip(module)
    repeatable = {
        *(TypeMeaning.CONNECT_REFUSED, TypeMeaning.PROXY, TypeMeaning.CONNECT_TIMEOUT, TypeMeaning.CHECKSUM),
        *(TypeMeaning.BODY_CUT, TypeMeaning.ANSWER_TIMEOUT, TypeMeaning.CONNECTION_LOST, TypeMeaning.UNREADABLE),
        *(TypeMeaning.REQUEST_FAILED, TypeMeaning.HTTP_CLIENT),
    }
    bugs = ("Param", "Config", "Credential", "Region", "Value", "Type", "Key", "Unsupported", "Unknown", "InvalidURL")
    for name, cls in vars(loaded).items():
        if isinstance(cls, type) and issubclass(cls, BaseException) and name.startswith(bugs):
            names = tuple(f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__)
            assert type_meaning(names) not in repeatable, name


@pytest.mark.parametrize(
    ("types", "number", "sent"),
    [
        (("builtins.ConnectionRefusedError",), 111, False),
        (("socket.gaierror", "builtins.OSError"), -2, False),
        (("aiohttp.client_exceptions.ClientConnectorError", "aiohttp.client_exceptions.ClientOSError"), None, False),
        (("botocore.exceptions.ConnectTimeoutError",), None, False),
        (("builtins.OSError",), 113, False),
        # aiobotocore says "could not connect" of a connection that was reset after the request was out.
        (("botocore.exceptions.EndpointConnectionError", "aiohttp.client_exceptions.ClientOSError"), 104, True),
        (("botocore.exceptions.EndpointConnectionError",), None, True),
        (
            ("azure.core.exceptions.ServiceRequestError", "aiohttp.client_exceptions.ServerDisconnectedError"),
            None,
            True,
        ),
        (("builtins.OSError",), 104, True),
        ((), None, True),
    ],
)
def test_only_a_failed_connect_proves_that_nothing_was_sent(
    types: tuple[str, ...], number: int | None, sent: bool
) -> None:
    assert was_sent(types=types, number=number) is sent
