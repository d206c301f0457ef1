"""What a hardened client raises in a worker process reaches the parent with what is known of it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import resilient_io as rio
from resilient_io.classify.fault import FaultKind
from resilient_io.testing import FaultAction

from .conftest import POLICY, Cloud

pytestmark = pytest.mark.wire
AWS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
SECRET = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"  # of Azurite's well-known account


def read_s3(where: str, bucket: str, key: str) -> Any:
    boto3 = pytest.importorskip("boto3")
    client = rio.harden(boto3.client("s3", endpoint_url=where, **AWS), POLICY)
    return client.get_object(Bucket=bucket, Key=key)


def read_azure(where: str, bucket: str, key: str) -> Any:
    from azure.storage.blob import BlobServiceClient

    with rio.harden(BlobServiceClient.from_connection_string(where), POLICY) as service:
        return service.get_blob_client(bucket, key).download_blob().readall()


def what_to_call(cloud: Cloud) -> tuple[Callable[..., Any], tuple[str, str]]:
    if cloud.name == "s3":
        return read_s3, (cloud.server.url, cloud.bucket)
    return read_azure, (cloud.options["connection_string"], cloud.bucket)


class Wrapped:
    """An exception as dataloaders send it: its type and its text, of which the parent makes another one."""

    def __init__(self, error: Exception) -> None:
        self.type, self.text = type(error), "".join(traceback.format_exception(error))

    def reraise(self) -> None:
        try:
            error: Exception = self.type(self.text)
        except Exception:
            error = RuntimeError(self.text)
        raise error


def wrapped(read: Callable[..., Any], *what: str) -> Wrapped:
    try:
        read(*what)
    except Exception as error:
        return Wrapped(error)
    raise AssertionError("it was not refused")


def error_of(cloud: Cloud, key: str) -> Exception:
    read, what = what_to_call(cloud)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # each SDK's own, looked at by who asks
        read(*what, key)
    return caught.value


def assert_knows(error: Any, kind: FaultKind, attempts: int) -> None:
    assert error.verdict.kind is kind
    assert error.attempts == attempts
    assert error.request_id
    assert error.scope
    assert rio.classify(error).kind is kind


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize(("key", "attempts", "kind"), [("train/1", 2, "throttled"), ("train/no", 1, "not_found")])
def test_a_pickled_error_of_a_client_lost_its_verdict(
    cloud: Cloud, protocol: int, key: str, attempts: int, kind: str
) -> None:
    if kind == "throttled":
        cloud.refuse(action=FaultAction.ERROR)
    error = error_of(cloud, key)
    packed = pickle.dumps(error, protocol)
    for twin in (pickle.loads(packed), pickle.loads(pickle.dumps(pickle.loads(packed))), copy.deepcopy(error)):
        assert_knows(twin, FaultKind(kind), attempts)
        assert str(error).startswith(str(twin))  # the body that Azure answered stays behind
        assert isinstance(error, type(twin))
        assert rio.classify(twin).retryable is False
    assert_knows(copy.copy(error), FaultKind(kind), attempts)
    assert b"Authorization" not in packed
    assert SECRET.encode() not in packed


def test_an_error_without_an_answer_keeps_its_verdict_too(cloud: Cloud) -> None:
    cloud.refuse(action=FaultAction.RESET_BEFORE)
    error: Any = error_of(cloud, "train/1")
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), twin.attempts, twin.verdict) == (type(error), str(error), 2, error.verdict)


def test_a_packed_error_does_not_hold_itself_alive(cloud: Cloud) -> None:
    import gc
    import weakref

    cloud.refuse(action=FaultAction.RESET_BEFORE)
    twin = pickle.loads(pickle.dumps(error_of(cloud, "train/1")))
    gone = weakref.ref(twin)
    gc.disable()
    try:
        del twin
        assert gone() is None
    finally:
        gc.enable()


def test_a_pool_hands_on_what_is_known_of_the_error_of_a_worker(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))  # of the worker, for this module
    cloud.refuse(action=FaultAction.ERROR)
    read, what = what_to_call(cloud)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # each SDK's own
            pool.submit(read, *what, "train/1").result(60)
        again = pool.submit(wrapped, read, *what, "train/1").result(60)
    assert_knows(caught.value, FaultKind.THROTTLED, 2)
    assert cloud.server.stats().count(status=503) == 4
    with pytest.raises(Exception, match=r"throttled|ServerBusy") as reraised:
        again.reraise()
    if cloud.name == "s3":
        assert "after 2 attempts" in str(reraised.value)
