"""What the hooks do around an attempt: the gate, interrupts, forks, locations, secrets, and the SDK's own options."""

from __future__ import annotations

import asyncio
import inspect
import io
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobClient, BlobServiceClient, ContainerClient, generate_blob_sas
from azure.storage.blob.aio import BlobClient as AsyncBlobClient
from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient

import resilient_io as rio
from resilient_io import events
from resilient_io import policy as policies
from resilient_io.azure.clients import client_kwargs, harden
from resilient_io.drive import runtime as runtimes
from resilient_io.errors import NotForkSafe
from resilient_io.testing import FaultAction, FaultPlan, FaultRule, Latency, Match

pytestmark = pytest.mark.wire
LIMIT = 3
POLICY = {"backoff_base_s": 0.001, "backoff_cap_s": 0.005, "max_attempts": 3, "max_throttle_attempts": 4}
KIB = 1024


@pytest.fixture
def plan(azure_store: Any) -> Callable[..., Any]:
    def put(*rules: FaultRule, **plan: Any) -> Any:
        azure_store.server.configure(FaultPlan(rules=rules, **plan))
        azure_store.server.reset()
        runtimes.reset()
        return azure_store.server

    return put


def service_of(azure_store: Any, *, aio: bool = False, policy: object = POLICY, **options: Any) -> Any:
    cls = AsyncBlobServiceClient if aio else BlobServiceClient
    account = azure_store.account
    return cls(account.account_url, credential=account.account_key, **{**client_kwargs(policy, aio=aio), **options})


def idle() -> bool:
    gate = runtimes.runtime().gate
    return not any(lane.busy() for lane in gate.lanes()) and not any(level.in_flight for level in gate.levels())


async def drain(found: Any) -> int:
    return len([each async for each in found])


# -- the gate ----------------------------------------------------------------------------------------

UPLOAD = bytes(40 * KIB)
SMALL = {"max_single_put_size": KIB, "max_block_size": 4 * KIB, "min_large_block_upload_threshold": 1}
# what -> (one call on a container and a number, the class under which it is counted)
PARALLEL: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "put": (lambda box, n: box.upload_blob(f"p/q/{n}", b"1", overwrite=True), "write"),
    "append": (lambda box, n: box.get_blob_client("p/q/log").append_block(b"1"), "write"),
    "stage": (lambda box, n: box.get_blob_client("p/q/staged").stage_block(f"{n:04d}", b"1"), "write"),
    "delete": (lambda box, n: box.delete_blob(f"p/q/d{n}"), "delete"),
    "list": (lambda box, n: box.list_blobs(name_starts_with="p/q/"), "list"),
    "properties": (lambda box, n: box.get_blob_client("p/q/d0").get_blob_properties(), "read"),
}


@pytest.fixture
def filled(box: Any) -> Any:
    for number in range(12):
        box.upload_blob(f"p/q/d{number}", b"1", overwrite=True)
    box.get_blob_client("p/q/log").create_append_blob()
    return box


@pytest.mark.parametrize("what", ["put", "append", "stage", "list", "properties", "delete"])
def test_threads_obey_the_gate(azure_store: Any, filled: Any, plan: Callable[..., Any], what: str) -> None:
    call, op_class = PARALLEL[what]
    server = plan(latency=Latency(base_s=0.03))
    box = service_of(azure_store, policy={**POLICY, "max_concurrency": LIMIT}).get_container_client(
        azure_store.container
    )

    def one(number: int) -> None:
        result = call(box, number)
        if what == "list":
            list(result)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(one, range(12)))
    assert server.stats().count(op_class=op_class, prefix="p/q") == 12
    assert server.stats().peak_of(op_class=op_class, prefix="p/q") == LIMIT
    assert idle()


@pytest.mark.parametrize("what", ["put", "append", "stage", "list", "properties", "delete"])
def test_tasks_obey_the_gate(azure_store: Any, filled: Any, plan: Callable[..., Any], what: str) -> None:
    call, op_class = PARALLEL[what]
    server = plan(latency=Latency(base_s=0.03))

    async def run() -> None:
        async with service_of(azure_store, aio=True, policy={**POLICY, "max_concurrency": LIMIT}) as service:
            box = service.get_container_client(azure_store.container)
            work = [call(box, number) for number in range(12)]
            await asyncio.gather(*(drain(each) if what == "list" else each for each in work))

    asyncio.run(run())
    assert server.stats().count(op_class=op_class, prefix="p/q") == 12
    assert server.stats().peak_of(op_class=op_class, prefix="p/q") == LIMIT
    assert idle()


@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_the_blocks_of_one_upload_obey_the_gate(azure_store: Any, plan: Callable[..., Any], aio: bool) -> None:
    server = plan(latency=Latency(base_s=0.03))

    async def run() -> None:
        service = service_of(azure_store, aio=aio, policy={**POLICY, "max_concurrency": LIMIT}, **SMALL)
        blob = service.get_blob_client(azure_store.container, "p/q/big")
        result = blob.upload_blob(UPLOAD, max_concurrency=8, overwrite=True)
        if inspect.isawaitable(result):
            await result
            await service.close()

    asyncio.run(run())
    stats = server.stats()
    assert (stats.count(op="PutBlock"), stats.count(op="PutBlockList")) == (10, 1)
    assert stats.peak_of(op_class="write", prefix="p/q") == LIMIT
    assert idle()


def test_sync_and_async_clients_share_one_limit(azure_store: Any, filled: Any, plan: Callable[..., Any]) -> None:
    server = plan(latency=Latency(base_s=0.03))
    policy = {**POLICY, "max_concurrency": LIMIT}
    box = service_of(azure_store, policy=policy).get_container_client(azure_store.container)

    async def run() -> None:
        async with service_of(azure_store, aio=True, policy=policy) as service:
            other = service.get_container_client(azure_store.container)
            await asyncio.gather(*(other.get_blob_client(f"p/q/d{n}").get_blob_properties() for n in range(8)))

    with ThreadPoolExecutor(9) as pool:
        works = [pool.submit(asyncio.run, run())]
        works += [pool.submit(box.get_blob_client(f"p/q/d{n}").get_blob_properties) for n in range(8)]
        for work in works:
            work.result()
    assert server.stats().count(op="GetBlobProperties") == 16
    assert server.stats().peak_of(op_class="read", prefix="p/q") == LIMIT


def test_a_wait_for_a_permit_makes_no_stale_date(azure_store: Any, plan: Callable[..., Any]) -> None:
    plan()
    blob = service_of(azure_store, policy={**POLICY, "max_concurrency": 1}).get_blob_client(
        azure_store.container, "p/q/1"
    )
    dates: list[str] = []
    started = threading.Event()
    gate_open = threading.Event()

    def hold(_: Any) -> None:
        started.set()
        gate_open.wait(10)

    def note(request: Any) -> None:
        dates.append(request.http_request.headers["x-ms-date"])

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(blob.upload_blob, b"1", overwrite=True, raw_request_hook=hold)
        started.wait(10)
        second = pool.submit(blob.upload_blob, b"2", overwrite=True, raw_request_hook=note)
        while not any(lane.waiting for lane in runtimes.runtime().gate.lanes()):
            time.sleep(0.001)
        assert not dates, "it is dated only after it was admitted"
        gate_open.set()
        first.result(10)
        second.result(10)
    assert len(dates) == 1


# -- interrupts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["attempt", "wait", "backoff", "body"])
def test_a_cancelled_task_gives_its_permit_back(
    azure_store: Any, filled: Any, plan: Callable[..., Any], at: str
) -> None:
    rules = {
        "attempt": FaultRule(action=FaultAction.STALL_BEFORE),
        "wait": FaultRule(action=FaultAction.STALL_BEFORE, calls=(1,)),
        "backoff": FaultRule(action=FaultAction.ERROR, retry_after_s=60),
        "body": FaultRule(action=FaultAction.STALL_BODY),
    }
    server = plan(rules[at])

    def is_there(has_begun: asyncio.Event) -> bool:
        match at:
            case "attempt":
                return server.stats().in_flight == 1
            case "wait":
                return any(lane.waiting for lane in runtimes.runtime().gate.lanes())
            case "backoff":
                return has_begun.is_set() and idle()
        return has_begun.is_set()

    async def run() -> None:
        policy = {**POLICY, "max_concurrency": 1, "backoff_cap_s": 60.0}
        async with service_of(azure_store, aio=True, policy=policy) as service:
            blob = service.get_blob_client(azure_store.container, "p/q/d0")
            has_begun = asyncio.Event()
            heads = {"raw_response_hook": lambda _: has_begun.set()}
            work = [asyncio.ensure_future(blob.download_blob(**heads)) for _ in range(2 if at == "wait" else 1)]
            while not is_there(has_begun):
                await asyncio.sleep(0.001)
            for task in reversed(work):
                task.cancel()
            ended = await asyncio.gather(*work, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended)
            assert idle()

    asyncio.run(run())


@pytest.mark.parametrize("at", ["attempt", "body"])
def test_an_interrupt_gives_the_permit_back(azure_store: Any, filled: Any, plan: Callable[..., Any], at: str) -> None:
    action = FaultAction.STALL_BEFORE if at == "attempt" else FaultAction.STALL_BODY
    server = plan(FaultRule(action=action))
    blob = service_of(azure_store).get_blob_client(azure_store.container, "p/q/d0")

    main = threading.main_thread().ident or 0
    has_begun = threading.Event()

    def reads_its_socket() -> bool:
        return sys._current_frames()[main].f_code.co_filename == socket.__file__

    def strike() -> None:
        while not (server.stats().in_flight and (at == "attempt" or has_begun.is_set()) and reads_its_socket()):
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=strike)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            blob.download_blob(raw_response_hook=lambda _: has_begun.set())
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert idle()


# -- forks -------------------------------------------------------------------------------------------


def in_child(work: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked child, or raise what it raises there."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            said: Any = ("returned", work())
        except BaseException as error:
            said = ("raised", error)
        os.write(write, pickle.dumps(said))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    assert data, "the child died or hung"
    kind, value = pickle.loads(data)
    if kind == "raised":
        raise value
    return value


forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


@forking
@pytest.mark.parametrize("way", ["new", "hardened"])
def test_a_sync_client_works_in_a_forked_child(
    azure_store: Any, filled: Any, plan: Callable[..., Any], way: str
) -> None:
    server = plan()
    account = azure_store.account
    service = (
        service_of(azure_store)
        if way == "new"
        else harden(BlobServiceClient(account.account_url, credential=account.account_key), POLICY)
    )
    blob = service.get_blob_client(azure_store.container, "p/q/d0")
    assert blob.download_blob().readall() == b"1"
    connections = server.stats().connections
    # The parent's gate is full and its lock held by a thread that the child does not have.
    taken = [runtimes.runtime().gate.acquire(_scope(azure_store), policies.resolve(POLICY)) for _ in range(64)]
    assert in_child(lambda: blob.download_blob().readall()) == b"1"
    assert server.stats().connections == connections + 1, "the child has a connection of its own"
    for permit in taken:
        permit.free()
    assert blob.download_blob().readall() == b"1"
    assert server.stats().connections == connections + 1, "the parent goes on with its own"


def _scope(azure_store: Any) -> Any:
    from resilient_io.azure.keys import target_of

    url = f"{azure_store.account.account_url}/{azure_store.container}/p/q/d0"
    return target_of("GET", url, {}).scope(policies.resolve(POLICY))


@forking
def test_an_async_client_says_that_it_is_not_of_this_process(
    azure_store: Any, filled: Any, plan: Callable[..., Any]
) -> None:
    plan()
    service = service_of(azure_store, aio=True)
    blob = service.get_blob_client(azure_store.container, "p/q/d0")

    def use() -> Any:
        return asyncio.run(blob.get_blob_properties())

    with pytest.raises(NotForkSafe, match="make the client"):
        in_child(use)


# -- locations ---------------------------------------------------------------------------------------


class Answers:
    """A transport that answers without a network; `told` are the URLs that it was asked for."""

    def __init__(self, answer: Callable[[str], int], body: bytes = b"", **headers: str) -> None:
        self.answer, self.body, self.headers = answer, body, headers
        self.told: list[str] = []

    def send(self, request: Any, **options: Any) -> Any:
        unknown = set(options) - {"stream", "connection_timeout", "read_timeout", "connection_data_block_size"}
        assert not unknown, f"the transport was given {unknown}"
        import requests
        from azure.core.rest._requests_basic import RestRequestsTransportResponse

        self.told.append(request.url)
        inner = requests.Response()
        inner.status_code = self.answer(request.url)
        inner._content, inner.reason, inner.url = self.body, "any", request.url
        inner.headers.update(self.headers)
        inner._content_consumed = True  # type: ignore[attr-defined]
        return RestRequestsTransportResponse(request=request, internal_response=inner)

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def open(self) -> None:
        return None

    def close(self) -> None:
        return None


PRIMARY, SECONDARY = "acct.blob.core.windows.net", "acct-secondary.blob.core.windows.net"


def _at_account(answer: Callable[[str], int], **options: Any) -> tuple[BlobClient, Answers]:
    transport = Answers(answer)
    kwargs = {**client_kwargs({**POLICY}), "transport": transport, "credential": "a2V5", **options}
    return BlobClient(f"https://{PRIMARY}", "c", "a/b/c", **kwargs), transport


def _hosts(transport: Answers) -> list[str]:
    return [url.split("/")[2] for url in transport.told]


def test_a_read_goes_to_the_other_location_where_the_client_was_told_so() -> None:
    runtimes.reset()
    kwargs = client_kwargs(POLICY, retry_to_secondary=True)
    blob, transport = _at_account(lambda url: 503 if PRIMARY in url else 200, retry_policy=kwargs["retry_policy"])
    blob.get_blob_properties()
    assert _hosts(transport) == [PRIMARY, SECONDARY]
    scopes = {level.key.split("|")[0] for level in runtimes.runtime().gate.levels()}
    assert scopes == {f"https://{PRIMARY}", f"https://{SECONDARY}"}


def test_a_read_told_so_by_the_call_goes_to_the_other_location() -> None:
    blob, transport = _at_account(lambda url: 503 if PRIMARY in url else 200)
    blob.get_blob_properties(retry_to_secondary=True)
    assert _hosts(transport) == [PRIMARY, SECONDARY]


def test_without_being_told_it_stays() -> None:
    blob, transport = _at_account(lambda url: 503)
    with pytest.raises(HttpResponseError):
        blob.get_blob_properties()
    assert set(_hosts(transport)) == {PRIMARY}


@pytest.mark.parametrize("write", ["set_blob_metadata", "delete_blob"])
def test_a_write_stays_at_the_primary(write: str) -> None:
    blob, transport = _at_account(lambda url: 503)
    with pytest.raises(HttpResponseError):
        getattr(blob, write)(retry_to_secondary=True)
    assert _hosts(transport) == [PRIMARY] * 4


def test_what_the_secondary_does_not_have_yet_is_asked_of_the_primary() -> None:
    blob, transport = _at_account(lambda url: 404 if SECONDARY in url else 200)
    blob.location_mode = "secondary"
    blob.get_blob_properties(retry_to_secondary=True)
    assert _hosts(transport) == [SECONDARY, PRIMARY]


def test_what_neither_has_is_absent() -> None:
    blob, transport = _at_account(lambda url: 404)
    blob.location_mode = "secondary"
    with pytest.raises(ResourceNotFoundError):
        blob.get_blob_properties(retry_to_secondary=True)
    assert _hosts(transport) == [SECONDARY, PRIMARY]


def test_the_refusals_inside_a_batch_reach_its_scope() -> None:
    runtimes.reset()
    part = "--b\r\nContent-Type: application/http\r\nContent-ID: {}\r\n\r\nHTTP/1.1 {} any\r\n\r\n\r\n"
    body = (part.format(0, 202) + part.format(1, 503) + "--b--").encode()
    transport = Answers(lambda url: 202, body, **{"Content-Type": "multipart/mixed; boundary=b"})
    kwargs = {**client_kwargs(POLICY), "transport": transport}
    box = ContainerClient(f"https://{PRIMARY}", "c", credential="a2V5", **kwargs)
    answers = box.delete_blobs("a", "b", raise_on_any_failure=False)
    assert [each.status_code for each in answers] == [202, 503]
    tally = runtimes.runtime().gate.levels()[-1].tally
    assert (tally.sent, tally.refused, tally.succeeded) == (len(transport.told), len(transport.told), 0)
    assert idle()


# -- credentials -------------------------------------------------------------------------------------


class Tokens:
    """A credential whose service answers with these statuses first."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked = 0

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.asked += 1
        if self.statuses:
            import requests

            answer = requests.Response()
            answer.status_code, answer.reason = self.statuses.pop(0), "any"
            raise ClientAuthenticationError(message="Unexpected response", response=answer)
        return AccessToken("token", int(time.time()) + 3600)


def test_a_credential_service_that_refuses_is_asked_again_and_slows_no_prefix() -> None:
    runtimes.reset()
    tokens = Tokens(429, 429)
    blob, transport = _at_account(lambda url: 200, credential=tokens)
    blob.get_blob_properties()
    assert (tokens.asked, len(transport.told)) == (3, 1)
    told = {
        level.key: (level.tally.refused, level.tally.suspected, level.tally.dropped, level.tally.succeeded)
        for level in runtimes.runtime().gate.levels()
    }
    (of_tokens,) = (tally for key, tally in told.items() if key.startswith("credentials://"))
    assert of_tokens == (2, 0, 0, 1)
    assert {tally for key, tally in told.items() if not key.startswith("credentials://")} == {(0, 0, 0, 1)}


def test_a_credential_that_is_refused_for_good_is_not_spun_on() -> None:
    tokens = Tokens(*[401] * 9)
    blob, transport = _at_account(lambda url: 200, credential=tokens)
    with pytest.raises(ClientAuthenticationError):
        blob.get_blob_properties()
    assert (tokens.asked, len(transport.told)) == (1, 0)


# -- the SDK's own options ---------------------------------------------------------------------------


@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_options_of_one_call_work(azure_store: Any, filled: Any, plan: Callable[..., Any], aio: bool) -> None:
    plan(FaultRule(action=FaultAction.ERROR, calls=(1,)))
    hooks: list[dict[str, Any]] = []
    answers: list[int] = []

    async def run() -> None:
        service = service_of(azure_store, aio=aio)
        blob = service.get_blob_client(azure_store.container, "p/q/d0")
        result = blob.get_blob_properties(
            retry_total=0,
            retry_connect=0,
            retry_hook=lambda **told: hooks.append(told),
            raw_response_hook=lambda response: answers.append(response.http_response.status_code),
            client_request_id="mine",
            connection_timeout=5,
            read_timeout=5,
            timeout=30,
        )
        if inspect.isawaitable(result):
            await result
            await service.close()

    asyncio.run(run())
    assert answers == [503, 200]
    assert [(told["retry_count"], told["location_mode"], told["error"]) for told in hooks] == [(0, "primary", None)]
    assert hooks[0]["response"].status_code == 503


@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_progress_counts_each_byte_once(azure_store: Any, filled: Any, plan: Callable[..., Any], aio: bool) -> None:
    filled.upload_blob("p/q/big", UPLOAD, overwrite=True)
    plan(
        FaultRule(action=FaultAction.RESET_BODY, after_bytes=20 * KIB, match=Match(op="GetBlob"), calls=(1,)),
    )
    counted: list[int] = []

    async def run() -> None:
        service = service_of(azure_store, aio=aio)
        blob = service.get_blob_client(azure_store.container, "p/q/big")

        def count(response: Any) -> None:
            counted.append(response.context["download_stream_current"])

        downloader = blob.download_blob(raw_response_hook=count)
        if inspect.isawaitable(downloader):
            await (await downloader).readall()
            await service.close()
        else:
            downloader.readall()

    asyncio.run(run())
    assert counted == [len(UPLOAD)]


@pytest.mark.parametrize(
    ("kind", "aio"),
    # requests cannot send a pipe at all.
    [("bytesio", False), ("bytesio", True), ("file", False), ("file", True), ("unseekable", True)],
)
def test_a_stream_is_sent_from_its_beginning_again(
    azure_store: Any, filled: Any, plan: Callable[..., Any], tmp_path: Path, kind: str, aio: bool
) -> None:
    server = plan(FaultRule(action=FaultAction.ERROR, match=Match(op="PutBlock"), calls=(1,)))

    async def run(stream: Any) -> None:
        stream.read(4)
        service = service_of(azure_store, aio=aio)
        blob = service.get_blob_client(azure_store.container, "p/q/up")
        try:
            await _done(blob.stage_block("0001", stream, length=len(UPLOAD)))
            await _done(blob.commit_block_list([BlobBlock("0001")]))
        finally:
            await _done(service.close())

    with _stream(kind, tmp_path) as stream:
        if kind == "unseekable":
            with pytest.raises(HttpResponseError):
                asyncio.run(run(stream))
            assert server.stats().count(op="PutBlock") == 1
        else:
            asyncio.run(run(stream))
            assert server.stats().count(op="PutBlock") == 2
            assert filled.download_blob("p/q/up").readall() == UPLOAD
    assert idle()


async def _done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


class Unseekable(io.RawIOBase):
    """A pipe."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def read(self, size: int = -1) -> bytes:
        piece, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return piece


def _stream(kind: str, tmp_path: Path) -> Any:
    local = tmp_path / "local"
    local.write_bytes(b"lead" + UPLOAD)
    if kind == "file":
        return local.open("rb")
    return (Unseekable if kind == "unseekable" else io.BytesIO)(b"lead" + UPLOAD)


@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_the_parts_of_a_file_are_sent_again(
    azure_store: Any, filled: Any, plan: Callable[..., Any], tmp_path: Path, aio: bool
) -> None:
    local, data = tmp_path / "local", os.urandom(40 * KIB)
    local.write_bytes(data)
    server = plan(FaultRule(action=FaultAction.ERROR, match=Match(op="PutBlock"), calls=(2, 3, 5)))

    async def run() -> None:
        service = service_of(azure_store, aio=aio, **SMALL)
        with local.open("rb") as file:
            await _done(
                service.get_blob_client(azure_store.container, "p/q/up").upload_blob(
                    file, max_concurrency=2, overwrite=True
                )
            )
        await _done(service.close())

    asyncio.run(run())
    assert server.stats().count(op="PutBlock") == 13
    assert filled.download_blob("p/q/up").readall() == data


def test_a_copy_whose_source_is_refused_is_repeated(azure_store: Any, filled: Any, plan: Callable[..., Any]) -> None:
    source = FaultRule(
        action=FaultAction.ERROR,
        status=409,
        code="CannotVerifyCopySource",
        headers=(("x-ms-copy-source-error-code", "ServerBusy"), ("x-ms-copy-source-status-code", "503")),
        calls=(1,),
    )
    server = plan(source)
    blob = service_of(azure_store).get_blob_client(azure_store.container, "p/q/copy")
    blob.start_copy_from_url(f"{azure_store.direct.account_url}/{azure_store.container}/p/q/d0")
    assert server.stats().count(op="CopyBlob") == 2


# -- policy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_switched_off_the_sdks_own_retries_are_back(
    azure_store: Any, filled: Any, plan: Callable[..., Any], aio: bool
) -> None:
    server = plan(FaultRule(action=FaultAction.ERROR))

    async def run() -> None:
        service = service_of(azure_store, aio=aio, policy=False)
        blob = service.get_blob_client(azure_store.container, "p/q/d0")
        try:
            result = blob.get_blob_properties(retry_total=0)
            if inspect.isawaitable(result):
                await result
        finally:
            if aio:
                await service.close()

    with pytest.raises(HttpResponseError):
        asyncio.run(run())
    assert server.stats().requests == 1
    assert not runtimes.runtime().gate.levels()


def test_configure_is_obeyed_by_clients_that_exist(azure_store: Any, filled: Any, plan: Callable[..., Any]) -> None:
    server = plan(FaultRule(action=FaultAction.ERROR))
    blob = service_of(azure_store, policy=None).get_blob_client(azure_store.container, "p/q/d0")
    rio.configure(max_throttle_attempts=2, backoff_base_s=0.001, backoff_cap_s=0.001)
    try:
        with pytest.raises(HttpResponseError):
            blob.get_blob_properties()
    finally:
        policies.reset()
    assert server.stats().requests == 2


def test_a_refusal_slows_the_prefix_down(azure_store: Any, filled: Any, plan: Callable[..., Any]) -> None:
    plan(FaultRule(action=FaultAction.ERROR, calls=(1,)))
    changes: list[events.Event] = []
    unsubscribe = events.subscribe(changes.append)
    blob = service_of(azure_store).get_blob_client(azure_store.container, "p/q/d0")
    blob.get_blob_properties()
    unsubscribe()
    failed = next(each for each in changes if isinstance(each, events.AttemptFailed))
    assert failed.verdict.kind == "throttled"
    assert failed.scope == f"abfs://{azure_store.container}@devstoreaccount1/p/q (read)"
    tally = runtimes.runtime().gate.levels()[-1].tally
    assert (tally.sent, tally.refused, tally.succeeded) == (2, 1, 1)


@pytest.mark.parametrize(
    ("message", "level"),
    [
        ("Operations per second is over the account limit.", "account"),
        ("Ingress is over the account limit.", "account"),
        ("Egress is over the account limit.", "account"),
        (None, None),
    ],
)
@pytest.mark.parametrize("op", ["PutBlob", "GetBlob"])
@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_the_level_that_was_passed_is_read_off_the_answer(
    azure_store: Any, filled: Any, plan: Callable[..., Any], message: str | None, level: str | None, op: str, aio: bool
) -> None:
    plan(FaultRule(action=FaultAction.ERROR, message=message, calls=(1,)))
    failed: list[Any] = []
    unsubscribe = events.subscribe(lambda event: failed.append(event) if isinstance(event, events.AttemptFailed) else 0)

    async def run() -> None:
        service = service_of(azure_store, aio=aio)
        blob = service.get_blob_client(azure_store.container, "p/q/d0")
        result = blob.upload_blob(b"1", overwrite=True) if op == "PutBlob" else blob.download_blob()
        if inspect.isawaitable(result):
            await result
            await service.close()

    asyncio.run(run())
    unsubscribe()
    assert [each.verdict.level for each in failed] == [level]


# -- secrets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["refused-connection", "503", "reset", "404", "cut"])
@pytest.mark.parametrize("aio", [False, True], ids=["sync", "aio"])
def test_a_signature_is_in_no_error_log_event_or_scope(
    azure_store: Any, filled: Any, plan: Callable[..., Any], caplog: pytest.LogCaptureFixture, fault: str, aio: bool
) -> None:
    account, secret = azure_store.account, "c2VjcmV0c2lnbmF0dXJl"
    url = f"{account.account_url}/{azure_store.container}/p/q/d0?sv=2021-12-02&sp=r&sig={secret}%3D"
    rules = {
        "503": FaultRule(action=FaultAction.ERROR),
        "reset": FaultRule(action=FaultAction.RESET_BEFORE),
        "404": FaultRule(action=FaultAction.ERROR, status=404),
        "cut": FaultRule(action=FaultAction.ERROR, status=500, code="InternalError"),
    }
    if fault == "refused-connection":
        azure_store.server.stop()
    else:
        plan(rules[fault])
    seen: list[Any] = []
    unsubscribe = events.subscribe(seen.append)
    caplog.set_level(logging.DEBUG, logger="resilient_io")

    async def run() -> None:
        if aio:
            async with AsyncBlobClient.from_blob_url(url, **client_kwargs(POLICY, aio=True)) as blob:
                await blob.get_blob_properties()
        else:
            BlobClient.from_blob_url(url, **client_kwargs(POLICY)).get_blob_properties()

    with pytest.raises(AzureError) as raised:
        asyncio.run(run())
    unsubscribe()
    if fault == "refused-connection":
        azure_store.server.start()
    texts = [caplog.text, *map(repr, seen), *_texts_of(raised.value)]
    texts += [level.key for level in runtimes.runtime().gate.levels()]
    assert not [text for text in texts if secret in text]


def _texts_of(error: BaseException) -> list[str]:
    """Return what an error and all that it wraps say."""
    texts, link = [], error
    while link is not None:
        texts += [str(link), repr(link), str(getattr(link, "message", "")), str(getattr(link, "url", ""))]
        inner = link.__cause__ or getattr(link, "inner_exception", None) or link.__context__
        link = inner  # type: ignore[assignment]
    return texts


def test_a_signed_url_works_through_the_hooks(azure_store: Any, filled: Any, plan: Callable[..., Any]) -> None:
    from datetime import datetime, timedelta, timezone

    plan(FaultRule(action=FaultAction.ERROR, calls=(1,)))
    account = azure_store.account
    token = generate_blob_sas(
        account.account_name,
        azure_store.container,
        "p/q/d0",
        account_key=account.account_key,
        permission="r",
        expiry=datetime.now(timezone.utc) + timedelta(hours=1),
    )
    url = f"{account.account_url}/{azure_store.container}/p/q/d0?{token}"
    assert BlobClient.from_blob_url(url, **client_kwargs(POLICY)).download_blob().readall() == b"1"
