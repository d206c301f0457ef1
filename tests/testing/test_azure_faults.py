"""The server's Azure side as the SDK of Azure sees it, before a real Azurite."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from resilient_io.testing import (
    AccountLimit,
    Ceiling,
    FaultAction,
    FaultPlan,
    FaultRule,
    FaultServer,
    FaultServerProcess,
    Match,
    Outage,
    Refusal,
    StorageAccount,
    account_ceiling,
    blob_ceiling,
)

blob = pytest.importorskip("azure.storage.blob")
if TYPE_CHECKING:
    from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
    from azure.storage.blob import BlobClient, BlobServiceClient
else:
    from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError

pytestmark = pytest.mark.wire
BODY = bytes(range(256)) * 1024


@pytest.fixture
def connected() -> Iterator[Callable[..., BlobServiceClient]]:
    """Make clients of an account that send each request once; their connections are closed after the test."""
    made: list[Any] = []

    def make(account: StorageAccount, **options: Any) -> BlobServiceClient:
        settings: dict[str, Any] = {"retry_total": 0, "read_timeout": 10, **options}
        client = blob.BlobServiceClient.from_connection_string(account.connection_string, **settings)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(azure_store: Any, connected: Any) -> BlobServiceClient:
    return connected(azure_store.account)


@pytest.fixture
def stored(azure_store: Any, client: BlobServiceClient) -> BlobClient:
    """A client of a blob that exists; nothing has been counted yet."""
    direct = blob.BlobClient.from_connection_string(
        azure_store.direct.connection_string, azure_store.container, "train/x/a"
    )
    with direct:
        direct.upload_blob(BODY)
    return client.get_blob_client(azure_store.container, "train/x/a")


def put_in(store: Any, action: FaultAction, *, op: str = "*", calls: tuple[int, ...] = (1,), **more: Any) -> None:
    rule = FaultRule(action=action, match=Match(op=op), calls=calls, **more)
    store.server.configure(FaultPlan(rules=(rule,)))


def answer_to(work: Callable[[], Any]) -> HttpResponseError:
    with pytest.raises(HttpResponseError) as raised:
        work()
    return raised.value


def test_the_operations_of_the_sdk_are_known(azure_store: Any, client: BlobServiceClient) -> None:
    container = client.get_container_client(azure_store.container)
    one, log = container.get_blob_client("train/x/a"), container.get_blob_client("logs/y/b")
    one.upload_blob(b"whole")
    one.stage_block("YQ==", b"part")
    one.commit_block_list([blob.BlobBlock("YQ==")])
    one.get_block_list("all")
    one.get_blob_properties()
    one.set_blob_metadata({"a": "b"})
    one.set_http_headers()
    one.create_snapshot()
    one.acquire_lease(15).release()
    one.download_blob().readall()
    log.create_append_blob()
    log.append_block(b"line")
    list(container.list_blobs("train/x/"))
    one.delete_blob(delete_snapshots="include")
    container.delete_blob("logs/y/b")
    seen = [(call.op, call.op_class, call.prefix) for call in azure_store.server.log()]
    assert seen == [
        ("PutBlob", "write", "train/x"),
        ("PutBlock", "write", "train/x"),
        ("PutBlockList", "write", "train/x"),
        ("GetBlockList", "read", "train/x"),
        ("GetBlobProperties", "read", "train/x"),
        ("SetBlobMetadata", "write", "train/x"),
        ("SetBlobProperties", "write", "train/x"),
        ("SnapshotBlob", "write", "train/x"),
        ("AcquireLease", "write", "train/x"),
        ("ReleaseLease", "write", "train/x"),
        ("GetBlob", "read", "train/x"),
        ("CreateAppendBlob", "write", "logs/y"),
        ("AppendBlock", "write", "logs/y"),
        ("ListBlobs", "list", "train/x"),
        ("DeleteBlob", "delete", "train/x"),
        ("DeleteBlob", "delete", "logs/y"),
    ]
    assert {(call.account, call.bucket, call.outcome) for call in azure_store.server.log()} == {
        ("devstoreaccount1", azure_store.container, "ok")
    }


def test_the_operations_on_containers_and_accounts_are_known(azure_store: Any, client: BlobServiceClient) -> None:
    container = client.create_container(f"{azure_store.container}-2")
    container.get_container_properties()
    container.set_container_metadata({"a": "b"})
    list(client.list_containers(azure_store.container))
    client.get_account_information()
    container.delete_container()
    assert [call.op for call in azure_store.server.log()] == [
        *("CreateContainer", "GetContainerProperties", "SetContainerMetadata", "ListContainers"),
        *("GetAccountInformation", "DeleteContainer"),
    ]


def test_a_ceiling_refuses_with_server_busy(azure_store: Any, stored: BlobClient) -> None:
    azure_store.server.configure(FaultPlan(ceilings=(Ceiling(rate_per_s=0, match=Match(op_class="read")),)))
    error = answer_to(stored.download_blob)
    assert (error.status_code, error.error_code) == (503, "ServerBusy")
    assert "currently unable to receive requests" in str(error)
    assert error.response is not None
    headers = error.response.headers
    assert headers["x-ms-request-id"] == azure_store.server.log(op="GetBlob")[0].request_id
    assert headers["x-ms-version"]
    assert headers["x-ms-client-request-id"] == error.response.request.headers["x-ms-client-request-id"]


@pytest.mark.parametrize("limit", list(AccountLimit))
def test_a_ceiling_of_the_account_says_which_limit_was_passed(
    azure_store: Any, stored: BlobClient, limit: AccountLimit
) -> None:
    azure_store.server.configure(FaultPlan(ceilings=(account_ceiling(0, limit=limit),)))
    error = answer_to(lambda: stored.upload_blob(b"new", overwrite=True))
    assert (error.status_code, error.error_code) == (503, "ServerBusy")
    assert f"{limit}\nRequestId:" in error.message
    assert azure_store.server.log()[0].cause == "account"


def test_a_head_is_refused_without_a_body(azure_store: Any, stored: BlobClient) -> None:
    put_in(azure_store, FaultAction.ERROR, op="GetBlobProperties", status=500, code="OperationTimedOut")
    error = answer_to(stored.get_blob_properties)
    assert (error.status_code, error.error_code) == (500, "OperationTimedOut")
    assert azure_store.server.log()[0].sent_bytes == 0
    stored.get_blob_properties()  # over the same connection: nothing of the answer is left in it
    assert azure_store.server.stats().connections == 1


def test_429_has_a_code_of_its_own_and_what_headers_are_wanted(azure_store: Any, stored: BlobClient) -> None:
    refusal = Refusal(status=429, headers=(("x-ms-retry-after-ms", "250"),), retry_after_s=3)
    azure_store.server.configure(FaultPlan(ceilings=(Ceiling(rate_per_s=0),), refusal=refusal))
    error = answer_to(lambda: stored.stage_block("YQ==", b"part"))
    assert (error.status_code, error.error_code) == (429, "TooManyRequests")
    assert error.response is not None
    assert (error.response.headers["Retry-After"], error.response.headers["x-ms-retry-after-ms"]) == ("3", "250")


def test_an_operation_that_timed_out_may_have_been_applied(azure_store: Any, stored: BlobClient) -> None:
    put_in(azure_store, FaultAction.ERROR, op="PutBlob", status=500, code="OperationTimedOut", after_commit=True)
    error = answer_to(lambda: stored.upload_blob(b"new", overwrite=True))
    assert (error.status_code, error.error_code) == (500, "OperationTimedOut")
    assert "could not be completed within the permitted time" in str(error)
    assert stored.download_blob().readall() == b"new"


def test_prefixes_and_classes_have_ceilings_of_their_own(azure_store: Any, client: BlobServiceClient) -> None:
    azure_store.server.configure(FaultPlan(ceilings=(Ceiling(rate_per_s=1e-9, burst_s=2e9),)))  # two, and no more
    container = client.get_container_client(azure_store.container)
    for prefix in ("train/x", "train/y"):
        for number in range(2):
            container.upload_blob(f"{prefix}/{number}", b"")
        assert answer_to(lambda: container.upload_blob("train/x/2", b"")).status_code == 503
        container.get_blob_client(f"{prefix}/0").get_blob_properties()
        list(container.list_blobs(f"{prefix}/"))
    stats = azure_store.server.stats()
    assert (stats.count(op_class="write", status=201), stats.refusals) == (4, 2)
    assert stats.count(prefix="train/x", op_class="write", outcome="refused") == 2


def test_a_ceiling_of_the_account_counts_all_prefixes_together(azure_store: Any, client: BlobServiceClient) -> None:
    azure_store.server.configure(FaultPlan(ceilings=(account_ceiling(1e-9, burst_s=4e9),)))
    container = client.get_container_client(azure_store.container)
    for prefix in ("a/a", "b/b", "c/c", "d/d"):
        container.upload_blob(f"{prefix}/one", b"")
    for prefix in ("a/a", "b/b", "c/c", "d/d"):
        assert answer_to(lambda p=prefix: container.get_blob_client(f"{p}/one").download_blob()).status_code == 503
    assert answer_to(client.get_account_information).status_code == 503


def test_a_ceiling_of_a_blob_leaves_its_neighbours_alone(azure_store: Any, stored: BlobClient, client: Any) -> None:
    azure_store.server.configure(FaultPlan(ceilings=(blob_ceiling(1e-9, burst_s=1e9),)))
    stored.download_blob(offset=0, length=1)
    assert answer_to(lambda: stored.download_blob(offset=0, length=1)).error_code == "ServerBusy"
    client.get_blob_client(azure_store.container, "train/x/b").upload_blob(b"")
    list(client.get_container_client(azure_store.container).list_blobs())


def test_faults_come_by_the_number_of_the_call(azure_store: Any, stored: BlobClient) -> None:
    put_in(azure_store, FaultAction.ERROR, op="GetBlobProperties", calls=(2,))
    seen = []
    for _ in range(3):
        try:
            stored.get_blob_properties()
            seen.append(200)
        except HttpResponseError as error:
            seen.append(error.status_code)
    assert seen == [200, 503, 200]


def test_random_faults_come_again_with_their_seed(azure_store: Any, stored: BlobClient) -> None:
    rule = FaultRule(action=FaultAction.ERROR, probability=0.3)
    runs = []
    for _ in range(2):
        azure_store.server.configure(FaultPlan(rules=(rule,), seed=5))
        azure_store.server.reset()
        for _ in range(20):
            with contextlib.suppress(HttpResponseError):
                stored.get_blob_properties()
        runs.append([call.status for call in azure_store.server.log()])
    assert runs[0] == runs[1]
    assert {200, 503} == set(runs[0])


@pytest.mark.parametrize(
    ("action", "applied"),
    [
        (FaultAction.RESET_BEFORE, False),
        (FaultAction.CLOSE_BEFORE, False),
        (FaultAction.RESET_AFTER, True),
        (FaultAction.CLOSE_AFTER, True),
    ],
)
def test_a_lost_answer_before_and_after_the_commit(
    azure_store: Any, client: BlobServiceClient, action: FaultAction, applied: bool
) -> None:
    put_in(azure_store, action, op="AppendBlock")
    log = client.get_blob_client(azure_store.container, "train/x/log")
    log.create_append_blob()
    with pytest.raises(AzureError) as raised:
        log.append_block(b"line")
    assert not isinstance(raised.value, HttpResponseError)
    assert log.get_blob_properties().size == (4 if applied else 0)


@pytest.mark.parametrize("action", [FaultAction.TRUNCATE, FaultAction.RESET_BODY])
def test_a_body_that_breaks_off_is_asked_for_again(azure_store: Any, stored: BlobClient, action: FaultAction) -> None:
    put_in(azure_store, action, op="GetBlob", after_bytes=1000)
    assert stored.download_blob().readall() == BODY
    first, second = azure_store.server.log(op="GetBlob")
    assert (first.outcome, first.sent_bytes) == ("fault", 1000)
    assert (second.outcome, second.sent_bytes) == ("ok", len(BODY))


@pytest.mark.parametrize("action", [FaultAction.EARLY_END_CHUNKED, FaultAction.EARLY_END_EOF])
def test_a_body_may_end_early_without_a_sign(azure_store: Any, stored: BlobClient, action: FaultAction) -> None:
    put_in(azure_store, action, op="GetBlob", after_bytes=1000)
    # What an SDK makes of it depends on its version: one without an SDK sees what came.
    with urllib.request.urlopen(f"{stored.url}?{signature(azure_store.account)}", timeout=10) as answer:
        assert answer.read() == BODY[:1000]
        assert answer.headers["Content-Length"] is None
    assert azure_store.server.log()[0].sent_bytes == 1000


def signature(account: StorageAccount) -> str:
    """Return a SAS with which the blobs of an account can be read."""
    text: str = blob.generate_account_sas(
        account.account_name,
        account.account_key,
        resource_types=blob.ResourceTypes(object=True),
        permission=blob.AccountSasPermissions(read=True),
        expiry=datetime.now(timezone.utc) + timedelta(hours=1),
    )
    return text


def test_a_range_can_be_ignored(azure_store: Any, stored: BlobClient) -> None:
    # The header is part of what a shared key signs; a SAS signs no header.
    account, sas = azure_store.account, signature(azure_store.account)
    put_in(azure_store, FaultAction.IGNORE_RANGE, op="GetBlob")
    with blob.BlobClient(account.account_url, azure_store.container, "train/x/a", credential=sas) as reader:
        with pytest.raises(ValueError, match="Content-Range"):
            reader.download_blob(offset=10, length=20)
    assert azure_store.server.log(op="GetBlob")[0].status == 200  # a range is answered with 206
    assert "sig=" not in repr(azure_store.server.log())


def test_a_stall_ends_in_the_timeout_of_the_client(azure_store: Any, connected: Any, stored: BlobClient) -> None:
    put_in(azure_store, FaultAction.STALL_BEFORE, op="GetBlob")
    hasty = connected(azure_store.account, read_timeout=0.05).get_blob_client(azure_store.container, "train/x/a")
    with pytest.raises(AzureError, match="timed out"):
        hasty.download_blob()
    put_in(azure_store, FaultAction.STALL_BODY, op="GetBlob", after_bytes=100)
    # The SDK asks again for a body that came to a halt; older ones let the transport's error through.
    with contextlib.suppress(OSError):
        assert hasty.download_blob().readall() == BODY
        assert len(azure_store.server.log(op="GetBlob")) == 3
    assert [call.cause for call in azure_store.server.log()[:2]] == ["stall_before", "stall_body"]


def test_an_outage_refuses_everything_and_ends(azure_store: Any, stored: BlobClient) -> None:
    outage = Outage(start_s=0, duration_s=3600, match=Match(op_class="read"))
    azure_store.server.configure(FaultPlan(outages=(outage,)))
    assert answer_to(stored.download_blob).error_code == "ServerBusy"
    stored.set_blob_metadata({})
    azure_store.server.start_outage(0)
    assert stored.download_blob().readall() == BODY
    azure_store.server.start_outage(3600, match=Match(account="devstoreaccount1"))
    assert answer_to(lambda: stored.set_blob_metadata({})).error_code == "ServerBusy"


def test_the_peak_of_a_prefix_is_what_was_in_flight(azure_store: Any, stored: BlobClient) -> None:
    azure_store.server.configure(FaultPlan(rules=(FaultRule(action=FaultAction.STALL_BEFORE),)))

    def ask() -> None:
        with pytest.raises(AzureError):
            stored.download_blob()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 30
    while azure_store.server.stats().in_flight < 4 and time.monotonic() < until:
        time.sleep(0.005)
    stats = azure_store.server.stats()
    azure_store.server.stop()  # ends the stall
    for thread in threads:
        thread.join()
    assert stats.peak_of(bucket=azure_store.container, prefix="train/x", op_class="read") == 4
    assert stats.peak_of(op_class="write") == 0


def test_what_the_store_itself_refuses_comes_through(azure_store: Any, client: BlobServiceClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        client.get_blob_client(azure_store.container, "none").download_blob()
    assert azure_store.server.log()[0].outcome == "error"


def test_an_account_reached_by_its_host(azure_store: Any, stored: BlobClient) -> None:
    # Azurite takes the account from the host where that is no address; the signature does not cover the Host.
    port = urlsplit(azure_store.server.url).port
    client = blob.BlobClient(
        f"http://127.0.0.1:{port}", azure_store.container, "train/x/a", credential=_key(azure_store), retry_total=0
    )
    with client:
        headers = {"Host": f"{azure_store.account.account_name}.blob.localhost:{port}"}
        assert client.download_blob(headers=headers).readall() == BODY
    exchange = azure_store.server.log()[0]
    assert (exchange.account, exchange.bucket, exchange.key) == (
        "devstoreaccount1", azure_store.container, "train/x/a",
    )  # fmt: skip


def _key(store: Any) -> dict[str, str]:
    return {"account_name": store.account.account_name, "account_key": store.account.account_key}


def test_a_server_in_a_process_of_its_own(azure_store: Any, connected: Any, stored: BlobClient) -> None:
    options = ("--ceiling", "1")  # a plan was given: options of the command line do not count
    with FaultServerProcess(upstream=azure_store.direct.url, protocol="azure", options=options) as server:
        far = connected(azure_store.direct.at(server.url)).get_blob_client(azure_store.container, "train/x/a")
        assert far.download_blob().readall() == BODY
        server.configure(FaultPlan(ceilings=(account_ceiling(0),)))
        assert AccountLimit.OPERATIONS in answer_to(far.download_blob).message
        server.start_outage(60, match=Match(account="other"))
        stats = server.stats()
        assert (stats.count(op="GetBlob", status=206), stats.refusals) == (1, 1)
        assert server.log()[0].account == "devstoreaccount1"


def test_the_command_line_has_a_ceiling_for_accounts() -> None:
    from resilient_io.testing import alone

    options = alone._parser().parse_args(["--protocol", "azure", "--account-ceiling", "50", "--burst-s", "2"])
    assert alone.plan_of(options).ceilings == (account_ceiling(50, burst_s=2),)


def test_a_server_without_its_store_says_so(fault_server: Callable[..., FaultServer], connected: Any) -> None:
    server = fault_server(upstream="http://127.0.0.1:1", protocol="azure")
    client = connected(StorageAccount(url=server.url))
    error = answer_to(client.get_account_information)
    assert (error.status_code, error.error_code) == (502, "BadGateway")
