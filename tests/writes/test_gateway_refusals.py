"""A 503 or 429 without a store's error code: a gateway's, to a write that the store had carried out, or had not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import resilient_io
from resilient_io.errors import AmbiguousWriteError

from .conftest import POLICY

pytestmark = pytest.mark.wire
PAGE = "<html>upstream connect error or disconnect/reset before headers</html>"
# What stands before a store answers so: a page, a text, nothing.
ANSWERS: dict[str, dict[str, Any]] = {
    "503 page": {"status": 503, "body": PAGE, "headers": (("Content-Type", "text/html"),)},
    "503 text": {"status": 503, "body": "no healthy upstream"},
    "503 empty": {"status": 503, "body": ""},
    "429 page": {"status": 429, "body": PAGE},
}
answers = pytest.mark.parametrize("answer", ANSWERS)


def gateway(store: Any, op: str, answer: str, **rule: Any) -> None:
    store.break_it(op, **{"calls": (1,), "code": "", "after_commit": True, **ANSWERS[answer], **rule})


async def once(fs: Any, name: str, *args: Any, **options: Any) -> Any:
    """Call an async method of a filesystem of this loop's own, and close its clients."""
    try:
        return await getattr(fs, name)(*args, **options)
    finally:
        session = getattr(fs, "_s3", None)
        if session is not None:
            await session.close()


def of_a_loop(store: Any) -> Any:
    return type(store.fs)(**store.options, asynchronous=True, skip_instance_cache=True)


# -- what a repeat would do twice ----------------------------------------------------------------------


@pytest.fixture
def azure(request: pytest.FixtureRequest) -> Any:
    """Return the Azure store with a blob to append to."""
    pytest.importorskip("adlfs")
    from .conftest import _azure

    store = _azure(request.getfixturevalue("azure_store"))
    with store.fs.open(store.path("log"), "ab") as file:
        file.write(b"one")
    return store


def append(store: Any) -> None:
    with store.fs.open(store.path("log"), "ab") as file:
        file.write(b"two")


@answers
def test_an_append_without_position_was_sent_twice_after_a_503_of_a_gateway(azure: Any, answer: str) -> None:
    gateway(azure, "AppendBlock", answer)
    with pytest.raises(AmbiguousWriteError):
        append(azure)
    assert azure.content_of("log") == b"onetwo"
    assert azure.sent()["AppendBlock"] == 1


def test_an_async_append_without_position_was_sent_twice_after_a_503_of_a_gateway(azure: Any) -> None:
    from azure.core.exceptions import HttpResponseError
    from azure.storage.blob.aio import BlobClient

    async def go() -> None:
        where = azure.options["connection_string"]
        async with resilient_io.harden(BlobClient.from_connection_string(where, azure.base, "log"), POLICY) as blob:
            await blob.append_block(b"two")

    gateway(azure, "AppendBlock", "503 page")
    with pytest.raises(HttpResponseError, match="upstream connect error") as raised:
        asyncio.run(go())
    verdict = resilient_io.classify(raised.value, operation="AppendBlock")
    assert (verdict.kind, verdict.load, verdict.applied) == ("ambiguous", "refused", "maybe")
    assert azure.content_of("log") == b"onetwo"
    assert azure.sent()["AppendBlock"] == 1


def test_an_append_that_the_store_itself_refused_is_sent_again(azure: Any) -> None:
    azure.break_it("AppendBlock", status=503, code="ServerBusy", calls=(1, 2))
    append(azure)
    assert azure.content_of("log") == b"onetwo"
    assert azure.sent()["AppendBlock"] == 3


# -- what a look tells ---------------------------------------------------------------------------------


@answers
def test_a_create_only_put_was_refused_for_its_own_object(store: Any, answer: str) -> None:
    gateway(store, "PutObject", answer)
    store.fs.pipe_file(store.path("new"), b"mine", mode="create")
    assert store.content_of("new") == b"mine"
    assert store.sent()[store.names.get("PutObject", "PutObject")] == 2


def test_an_async_create_only_put_was_refused_for_its_own_object(store: Any) -> None:
    gateway(store, "PutObject", "503 page")

    async def go() -> None:
        await once(of_a_loop(store), "_pipe_file", store.path("new"), b"mine", mode="create")

    asyncio.run(go())
    assert store.content_of("new") == b"mine"
    assert store.sent()[store.names.get("PutObject", "PutObject")] == 2


@answers
def test_an_upload_that_was_completed_does_not_exist(store: Any, answer: str) -> None:
    data = b"z" * (11 << 20)
    gateway(store, "CompleteMultipartUpload", answer)
    store.fs.pipe_file(store.path("new"), data, **({"chunksize": 5 << 20} if store.cloud == "s3" else {}))
    assert store.content_of("new") == data
    assert store.uploads() == 0


def test_an_upload_that_was_completed_async_does_not_exist(store: Any) -> None:
    data = b"z" * (11 << 20)
    gateway(store, "CompleteMultipartUpload", "503 page")

    async def go() -> None:
        options = {"chunksize": 5 << 20} if store.cloud == "s3" else {}
        await once(of_a_loop(store), "_pipe_file", store.path("new"), data, **options)

    asyncio.run(go())
    assert store.content_of("new") == data


def test_the_clients_own_create_only_writes_were_refused_for_their_own_objects(store: Any) -> None:
    gateway(store, "PutObject", "503 page")
    if store.cloud == "s3":
        import boto3

        client = resilient_io.harden(boto3.client("s3", endpoint_url=store.server.url), POLICY)
        client.put_object(Bucket=store.base, Key="new", Body=b"mine", IfNoneMatch="*")
    else:
        from azure.storage.blob import BlobClient

        where = store.options["connection_string"]
        with resilient_io.harden(BlobClient.from_connection_string(where, store.base, "new"), POLICY) as blob:
            blob.upload_blob(b"mine")
    assert store.content_of("new") == b"mine"


def test_a_create_only_put_behind_a_gateway_does_not_take_the_place_of_another(store: Any) -> None:
    store.fs.pipe_file(store.path("new"), b"of another")
    gateway(store, "PutObject", "503 page", after_commit=False)
    with pytest.raises(OSError, match=r"pre-conditions|new") as raised:
        store.fs.pipe_file(store.path("new"), b"mine", mode="create")
    assert "Ambiguous" not in type(raised.value).__name__
    assert store.content_of("new") == b"of another"


# -- what is simply repeated, as before ----------------------------------------------------------------


@answers
def test_an_overwrite_is_repeated_until_the_gateway_lets_it_pass(store: Any, answer: str) -> None:
    gateway(store, "PutObject", answer, calls=(1, 2, 3))
    store.fs.pipe_file(store.path("new"), b"whole")
    assert store.content_of("new") == b"whole"
    sent = store.sent()
    assert sent[store.names.get("PutObject", "PutObject")] == 4
    assert not {"HeadObject", "GetBlobProperties"} & set(sent)


def test_a_gateway_that_never_lets_an_overwrite_pass_is_a_refusal(store: Any) -> None:
    gateway(store, "PutObject", "503 page", calls=(), after_commit=False)
    with pytest.raises(resilient_io.ThrottledError):
        store.fs.pipe_file(store.path("new"), b"whole")
