"""Bodies of downloads: they go on where they died, in one version, with the permit held and never more requests."""

from __future__ import annotations

import asyncio
import gc
import gzip
import inspect
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azure.core.exceptions import AzureError, HttpResponseError, IncompleteReadError, ResourceModifiedError
from azure.storage.blob import (
    AccountSasPermissions,
    BlobServiceClient,
    ContentSettings,
    ResourceTypes,
    generate_account_sas,
)
from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient

from resilient_io import events
from resilient_io.azure.clients import client_kwargs
from resilient_io.azure.errors import DownloadGaveUp
from resilient_io.azure.exchange import Exchange
from resilient_io.azure.extent import Extent, asked_for
from resilient_io.classify import classify
from resilient_io.control.span import Asked
from resilient_io.drive import runtime as runtimes
from resilient_io.drive.operation import Operation, Surface, made_current
from resilient_io.errors import GaveUp
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Latency, Match

pytestmark = pytest.mark.wire
KIB = 1024
DATA = bytes(range(256)) * 4 * KIB  # 1 MiB
BLOCK = 256 * KIB
CUT = 700 * KIB
NAME = "train/x/1"
POLICY = {"backoff_base_s": 0.001, "backoff_cap_s": 0.005, "max_attempts": 3, "max_throttle_attempts": 4}
DEATHS = {
    "reset": FaultRule(action=FaultAction.RESET_BODY, after_bytes=CUT),
    "close": FaultRule(action=FaultAction.TRUNCATE, after_bytes=CUT),
    "stall": FaultRule(action=FaultAction.STALL_BODY, after_bytes=CUT),
    "clean-end-chunked": FaultRule(action=FaultAction.EARLY_END_CHUNKED, after_bytes=CUT),
    "clean-end": FaultRule(action=FaultAction.EARLY_END_EOF, after_bytes=CUT),
}
GET = Match(op="GetBlob")


@pytest.fixture(params=["sync", "aio"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plan(azure_store: Any) -> Callable[..., None]:
    def put(*rules: FaultRule, **plan: Any) -> None:
        azure_store.server.configure(FaultPlan(rules=rules, **plan))
        azure_store.server.reset()
        runtimes.reset()

    return put


@pytest.fixture
def on(azure_store: Any, box: Any, mode: str) -> Callable[..., Any]:
    """Run a coroutine function on the blob's client: `on(work, max_single_get_size=...)`."""
    box.upload_blob(NAME, DATA, overwrite=True)

    def run(work: Callable[[Any], Any], policy: object = POLICY, **options: Any) -> Any:
        cls = AsyncBlobServiceClient if mode == "aio" else BlobServiceClient
        transport = {"read_timeout": 0.3} if options.pop("impatient", False) else {}
        account = azure_store.account

        async def inside() -> Any:
            kwargs = client_kwargs(policy, aio=mode == "aio", **transport)
            service = cls(account.account_url, credential=_token(account), **kwargs, **options)
            try:
                return await work(service.get_blob_client(azure_store.container, NAME))
            finally:
                closing = service.close()
                if inspect.isawaitable(closing):
                    await closing

        return asyncio.run(inside())

    return run


def _token(account: Any) -> str:
    """Return a signature for all requests: one of each request would not hold where the server drops a header."""
    return str(
        generate_account_sas(
            account.account_name,
            account.account_key,
            resource_types=ResourceTypes(object=True, container=True),
            permission=AccountSasPermissions(read=True, write=True, list=True),
            expiry=datetime.now(timezone.utc) + timedelta(hours=1),
        )
    )


async def read(blob: Any, **options: Any) -> bytes:
    downloader = blob.download_blob(**options)
    if inspect.isawaitable(downloader):
        downloader = await downloader
    data = downloader.readall()
    return await data if inspect.isawaitable(data) else data


def ranges_of(azure_store: Any) -> list[int]:
    return [exchange.sent_bytes for exchange in azure_store.server.log(op="GetBlob")]


def idle() -> bool:
    gc.collect()
    gate = runtimes.runtime().gate
    return not any(lane.busy() for lane in gate.lanes()) and not any(level.in_flight for level in gate.levels())


# -- resuming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("death", DEATHS)
def test_a_body_that_dies_goes_on_where_it_died(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any, mode: str, death: str
) -> None:
    rule = DEATHS[death]
    plan(FaultRule(action=rule.action, after_bytes=CUT, match=GET, calls=(1,)))
    assert on(read, impatient=death == "stall") == DATA
    first, second = ranges_of(azure_store)
    assert first < len(DATA)
    assert second == len(DATA) - CUT, "not from the next byte"
    assert idle()


@pytest.mark.parametrize("death", ["reset", "close"])
def test_each_byte_that_came_forgets_the_faults_before(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any, death: str
) -> None:
    plan(FaultRule(action=DEATHS[death].action, after_bytes=BLOCK, match=GET))
    # Each answer brings one block more, or what a reset left of it: four of them, with three attempts in a row at most.
    assert on(read) == DATA
    answers = len(ranges_of(azure_store))
    assert answers == len(DATA) // BLOCK if death == "close" else answers >= len(DATA) // BLOCK
    assert idle()


@pytest.mark.parametrize("death", ["reset", "close"])
def test_a_body_that_never_comes_costs_what_the_policy_says(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any, death: str
) -> None:
    plan(FaultRule(action=DEATHS[death].action, after_bytes=0, match=GET))
    with pytest.raises(DownloadGaveUp) as raised:
        on(read)
    assert len(ranges_of(azure_store)) == POLICY["max_attempts"]
    assert raised.value.attempts == POLICY["max_attempts"]  # type: ignore[attr-defined]
    assert classify(raised.value).retryable is False
    assert idle()


@pytest.mark.parametrize("status", [500, 503])
def test_a_rest_that_is_refused_costs_what_the_policy_says(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any, status: int
) -> None:
    plan(
        FaultRule(action=FaultAction.RESET_BODY, after_bytes=CUT, match=GET, calls=(1,)),
        FaultRule(action=FaultAction.ERROR, status=status, match=GET, calls=tuple(range(2, 100))),
    )
    with pytest.raises(DownloadGaveUp):
        on(read)
    # The first block that came was progress.
    limit = POLICY["max_throttle_attempts" if status == 503 else "max_attempts"]
    assert len(ranges_of(azure_store)) <= limit + 1
    assert idle()


def test_above_a_filesystem_it_is_a_give_up(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any
) -> None:
    plan(FaultRule(action=FaultAction.RESET_BODY, after_bytes=0, match=GET))
    operation = Operation(name="cat_file", surface=Surface.FILESYSTEM)
    with made_current(operation), pytest.raises(GaveUp):
        on(read)
    assert len(ranges_of(azure_store)) == POLICY["max_attempts"]
    assert len(operation.ledger) == 1


def test_a_later_range_goes_on_too(on: Callable[..., Any], plan: Callable[..., None], azure_store: Any) -> None:
    plan(FaultRule(action=FaultAction.RESET_BODY, after_bytes=10, match=GET, calls=(2, 3)))
    assert on(read, max_single_get_size=BLOCK, max_chunk_get_size=BLOCK) == DATA
    assert len(ranges_of(azure_store)) == 4 + 2
    assert idle()


def test_a_store_that_ignores_the_range_adds_nothing_twice(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any
) -> None:
    plan(
        FaultRule(action=FaultAction.RESET_BODY, after_bytes=CUT, match=GET, calls=(1,)),
        FaultRule(action=FaultAction.IGNORE_RANGE, match=GET, calls=(2,)),
    )
    assert on(read) == DATA
    assert len(ranges_of(azure_store)) == 2
    assert idle()


def test_a_later_range_that_is_ignored_brings_no_wrong_byte(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any
) -> None:
    """The stock SDK takes the whole blob for the range."""
    plan(FaultRule(action=FaultAction.IGNORE_RANGE, match=GET, calls=(2,)))
    assert on(read, max_single_get_size=BLOCK, max_chunk_get_size=BLOCK) == DATA
    assert len(ranges_of(azure_store)) == 4
    assert idle()


class Answer:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("asked", "headers", "length"),
    [
        ("bytes=10-19", {"Content_Range": "bytes 10-19/100", "Content_Length": "10"}, 10),
        ("bytes=10-", {"Content_Range": "bytes 10-99/100"}, 90),
        ("bytes=90-199", {"Content_Range": "bytes 90-99/100", "Content_Length": "10"}, 10),
        ("bytes=10-19", {"Content_Length": "100"}, 10),
        ("bytes=10-19", {}, None),
        ("bytes=10-", {}, None),
        ("", {"Content_Length": "100"}, 100),
        ("", {}, None),
        ("bytes=0-9", {"Content_Length": "10", "Content_Encoding": "gzip"}, None),
        ("bytes=0-9", {"Content_Length": "42", "x_ms_structured_body": "XSM/1.0; properties=crc64"}, None),
    ],
)
def test_how_long_a_body_is(asked: str, headers: dict[str, str], length: int | None) -> None:
    extent = Extent(Answer(**headers), asked_for({"x-ms-range": asked}))
    assert extent.length_bytes == length
    assert extent.begins_anew == bool({"Content_Encoding", "x_ms_structured_body"} & set(headers))


def test_the_bytes_of_another_range_are_refused() -> None:
    answer = Answer(Content_Range="bytes 11-20/100", Content_Length="10")
    with pytest.raises(IncompleteReadError, match="from 10 on and got those from 11 on"):
        Extent(answer, Asked(first=10, last=19)).accept(answer)


def test_bytes_before_and_behind_the_range_are_cut_off() -> None:
    answer = Answer(Content_Length="100")
    extent = Extent(answer, Asked(first=10, last=19))
    extent.accept(answer)
    whole = bytes(range(100))
    got = b"".join(extent.take(whole[at : at + 7]) for at in range(0, 100, 7))
    assert got == whole[10:20]
    assert extent.has_all()


def test_an_empty_blob_holds_no_permit(on: Callable[..., Any], plan: Callable[..., None], box: Any) -> None:
    async def empty(blob: Any) -> bytes:
        box.upload_blob(NAME, b"", overwrite=True)
        return await read(blob)

    plan()
    assert on(empty) == b""
    assert idle()


# -- versions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("honoured", [True, False], ids=["if-match", "if-match-ignored"])
def test_bytes_of_two_versions_are_never_joined(
    on: Callable[..., Any],
    plan: Callable[..., None],
    box: Any,
    azure_store: Any,
    monkeypatch: pytest.MonkeyPatch,
    honoured: bool,
) -> None:
    if not honoured:
        # A store that ignores the condition is one that was not asked for it.
        ask = Exchange.rest
        monkeypatch.setattr(Exchange, "rest", lambda self, first, last, etag: ask(self, first, last, None))
    other = b"\xff" * len(DATA)
    swapped = threading.Event()

    def swap(event: events.Event) -> None:
        if isinstance(event, events.RetryScheduled) and not swapped.is_set():
            swapped.set()
            box.upload_blob(NAME, other, overwrite=True)

    plan(FaultRule(action=FaultAction.RESET_BODY, after_bytes=CUT, match=GET, calls=(1,)))
    unsubscribe = events.subscribe(swap)
    assert on(read) == other
    unsubscribe()
    assert len(ranges_of(azure_store)) == 3, "the death, the 412 to its rest, and the whole of the new version"
    assert idle()


def test_a_later_range_of_another_version_is_an_error(
    on: Callable[..., Any], plan: Callable[..., None], box: Any
) -> None:
    async def swap_between(blob: Any) -> None:
        downloader = blob.download_blob()
        if inspect.isawaitable(downloader):
            downloader = await downloader
        box.upload_blob(NAME, b"\xff" * len(DATA), overwrite=True)
        data = downloader.readall()
        if inspect.isawaitable(data):
            await data

    plan()
    with pytest.raises(ResourceModifiedError):
        on(swap_between, max_single_get_size=BLOCK, max_chunk_get_size=BLOCK)
    assert idle()


# -- what cannot be resumed --------------------------------------------------------------------------


def test_an_encoded_body_begins_anew(
    on: Callable[..., Any], plan: Callable[..., None], box: Any, azure_store: Any
) -> None:
    import random

    text = random.Random(1).randbytes(len(DATA))

    async def encoded(blob: Any) -> bytes:
        settings = ContentSettings(content_encoding="gzip")
        box.upload_blob(NAME, gzip.compress(text), overwrite=True, content_settings=settings)
        return await read(blob)

    plan(FaultRule(action=FaultAction.RESET_BODY, after_bytes=CUT, match=GET, calls=(1, 2)))
    assert on(encoded) == text
    assert len(ranges_of(azure_store)) == 3
    plan(FaultRule(action=FaultAction.RESET_BODY, after_bytes=CUT, match=GET))
    with pytest.raises(DownloadGaveUp):
        on(encoded)
    assert idle()


@pytest.mark.parametrize("rule", ["reset", "error"])
def test_a_checked_range_is_read_within_the_attempt(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any, rule: str
) -> None:
    async def checked(blob: Any) -> bytes:
        return await read(blob, validate_content=True)

    faults = {
        "reset": FaultRule(action=FaultAction.RESET_BODY, after_bytes=CUT, match=GET, calls=(1,)),
        "error": FaultRule(action=FaultAction.ERROR, match=GET, calls=(1,)),
    }
    plan(faults[rule])
    assert on(checked) == DATA
    assert len(ranges_of(azure_store)) == 2
    assert idle()


# -- permits -----------------------------------------------------------------------------------------


def test_the_permit_is_held_over_the_body(on: Callable[..., Any], plan: Callable[..., None], azure_store: Any) -> None:
    plan(latency=Latency(base_s=0.02))

    async def parallel(blob: Any) -> bytes:
        return await read(blob, max_concurrency=8)

    sizes = {"max_single_get_size": 64 * KIB, "max_chunk_get_size": 64 * KIB}
    assert on(parallel, policy={**POLICY, "max_concurrency": 3}, **sizes) == DATA
    assert azure_store.server.stats().peak_of(op_class="read") == 3
    assert idle()


def test_bodies_that_stall_keep_their_permits(
    on: Callable[..., Any], plan: Callable[..., None], azure_store: Any, mode: str
) -> None:
    plan(FaultRule(action=FaultAction.STALL_BODY, after_bytes=10, delay_s=0.2, match=GET, calls=(1,)))

    async def both(blob: Any) -> None:
        if mode == "aio":
            await asyncio.gather(read(blob), read(blob))
            return
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(lambda: blob.download_blob().readall()) for _ in range(2)]:
                done.result()

    on(both, policy={**POLICY, "max_concurrency": 1})
    assert azure_store.server.stats().peak_of(op_class="read") == 1
    assert idle()


@pytest.mark.parametrize("mode", ["aio"], indirect=True)
def test_a_download_that_is_cancelled_gives_its_permit_back(on: Callable[..., Any], plan: Callable[..., None]) -> None:
    plan(FaultRule(action=FaultAction.STALL_BODY, after_bytes=CUT, match=GET))

    async def cancelled(blob: Any) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(read(blob), 0.1)
        assert idle()

    on(cancelled)


def test_an_answer_that_nobody_reads_frees_its_permit(
    on: Callable[..., Any], plan: Callable[..., None], mode: str
) -> None:
    """The generated client hands out the stream itself."""

    async def unread(blob: Any) -> None:
        answer = blob._client.blob.download()
        stream = await answer if inspect.isawaitable(answer) else answer
        assert not idle()
        del stream, answer
        assert idle()

    plan()
    on(unread)


def test_errors_of_the_body_are_the_sdks(on: Callable[..., Any], plan: Callable[..., None]) -> None:
    plan(FaultRule(action=FaultAction.RESET_BODY, after_bytes=0, match=GET))
    with pytest.raises(AzureError) as raised:
        on(read)
    assert not isinstance(raised.value, HttpResponseError)
    assert "GetBlob abfs://" in str(raised.value)


def test_an_answer_that_was_read_is_freed_without_the_collector(on: Callable[..., Any], mode: str) -> None:
    answers: list[Any] = []

    async def work(blob: Any) -> None:
        stream = blob.download_blob(raw_response_hook=lambda each: answers.append(weakref.ref(each.http_response)))
        stream = await stream if inspect.isawaitable(stream) else stream
        data = stream.readall()
        assert (await data if inspect.isawaitable(data) else data) == DATA

    gc.disable()
    try:
        on(work)
        assert answers
        assert not any(each() for each in answers)
    finally:
        gc.enable()
