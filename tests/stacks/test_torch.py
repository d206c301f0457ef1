"""PyTorch: a checkpoint saved and loaded, and DataLoaders whose workers read from a store that throttles."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import resilient_io as rio
from resilient_io.testing import Ceiling, FaultAction, FaultPlan, FaultRule, Match

if TYPE_CHECKING:
    from resilient_io.testing import FaultServer

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.stacks, pytest.mark.wire]

ROOT = "s3://my-bucket"
OBJECTS = 24
SIZE_BYTES = 8192
STARTS = ("fork", "spawn")
HANG_S = 120.0  # a worker that says nothing for so long hangs
RESILIENCE = {"deadline_s": 30, "backoff_base_s": 0.05}


def body_of(index: int) -> bytes:
    """Return a body that tells which object it is, so that a swapped answer is seen."""
    return index.to_bytes(4, "big") * (SIZE_BYTES // 4)


def key_of(index: int) -> str:
    return f"train/shard-{index:06d}.bin"


@pytest.fixture
def store(fault_server: Callable[..., FaultServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    """Yield a store that holds the objects; a test gives it its faults."""
    server = fault_server()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    client = boto3_client()
    client.create_bucket(Bucket="my-bucket")
    for index in range(OBJECTS):
        client.put_object(Bucket="my-bucket", Key=key_of(index), Body=body_of(index))
    client.close()
    yield server
    rio.uninstall()


def boto3_client() -> Any:
    import boto3

    return boto3.session.Session().client("s3")


def throttled() -> FaultPlan:
    """Return a plan: 60 calls a second on each prefix and class, and a reset now and then."""
    return FaultPlan(
        ceilings=(Ceiling(rate_per_s=60, burst_s=0.1),),
        rules=(FaultRule(action=FaultAction.RESET_BEFORE, calls=(2, 7)),),
    )


def model_and_optimizer() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 256)).sum().backward()
    optimizer.step()
    return model, optimizer


def assert_same_state(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


# -- checkpoints ---------------------------------------------------------------------------------------------------


def test_torch_save_and_load_through_the_filesystem(store: FaultServer) -> None:
    fs = rio.filesystem("s3", resilience=RESILIENCE, skip_instance_cache=True)
    model, optimizer = model_and_optimizer()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1000}
    store.configure(throttled())
    with fs.open(f"{ROOT}/ckpt/step-1000/state.pt", "wb") as file:
        torch.save(state, file)
    with fs.open(f"{ROOT}/ckpt/step-1000/state.pt", "rb") as file:
        loaded = torch.load(file, weights_only=True)
    assert loaded["step"] == 1000
    assert_same_state(state["model"], loaded["model"])
    fresh, its_optimizer = model_and_optimizer()
    fresh.load_state_dict(loaded["model"])
    its_optimizer.load_state_dict(loaded["optimizer"])


def test_torch_save_and_load_under_install_with_a_url(store: FaultServer) -> None:
    import fsspec

    model, _ = model_and_optimizer()
    store.configure(throttled())
    with rio.install(RESILIENCE):
        with fsspec.open(f"{ROOT}/ckpt/step-1/model.pt", "wb") as file:
            torch.save(model.state_dict(), file)
        with fsspec.open(f"{ROOT}/ckpt/step-1/model.pt", "rb") as file:
            loaded = torch.load(file, weights_only=True)
    assert_same_state(model.state_dict(), loaded)


def test_retrying_around_a_checkpoint_of_a_plain_client(store: FaultServer) -> None:
    import boto3
    from botocore.config import Config

    model, _ = model_and_optimizer()
    client = boto3.session.Session().client("s3", config=Config(retries={"total_max_attempts": 1}))
    puts = FaultRule(action=FaultAction.ERROR, match=Match(op="PutObject"), calls=(1, 2), status=503, code="SlowDown")
    gets = FaultRule(action=FaultAction.RESET_BEFORE, match=Match(op="GetObject"), calls=(1,))
    store.configure(FaultPlan(rules=(puts, gets)))

    @rio.retrying(RESILIENCE)
    def save(state: dict[str, Any], key: str) -> None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        client.put_object(Bucket="my-bucket", Key=key, Body=buffer.getvalue())

    @rio.retrying(RESILIENCE)
    def load(key: str) -> dict[str, Any]:
        body = client.get_object(Bucket="my-bucket", Key=key)["Body"].read()
        return torch.load(io.BytesIO(body), weights_only=True)

    save(model.state_dict(), "ckpt/plain.pt")
    assert_same_state(model.state_dict(), load("ckpt/plain.pt"))
    assert len(store.log(op="PutObject", key="ckpt/*")) == 3
    assert len(store.log(op="GetObject", key="ckpt/*")) == 2


# -- data loaders --------------------------------------------------------------------------------------------------


class ByUrl(torch.utils.data.Dataset):  # type: ignore[misc]  # torch may be absent where types are checked
    """Each worker installs and reads by URL."""

    def __len__(self) -> int:
        return OBJECTS

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        import fsspec

        rio.install(RESILIENCE)
        with fsspec.open(f"{ROOT}/{key_of(index)}", "rb") as file:
            return index, file.read()


class ByFilesystem(ByUrl):
    """The filesystem is made in the parent and used there before the workers start."""

    def __init__(self) -> None:
        self.fs = rio.filesystem("s3", resilience=RESILIENCE)
        assert self.fs.cat_file(f"{ROOT}/{key_of(0)}") == body_of(0)

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        return index, self.fs.cat_file(f"{ROOT}/{key_of(index)}")


class ByClient(ByUrl):
    """The boto3 client is made, hardened and used in the parent."""

    def __init__(self) -> None:
        self.client = rio.harden(boto3_client(), RESILIENCE)
        self.client.get_object(Bucket="my-bucket", Key=key_of(0))["Body"].read()

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        return index, self.client.get_object(Bucket="my-bucket", Key=key_of(index))["Body"].read()


def read_all(dataset: ByUrl, start: str) -> dict[int, bytes]:
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=start,
        timeout=HANG_S,
        persistent_workers=False,
    )
    return dict(loader)


def assert_every_byte(found: dict[int, bytes]) -> None:
    assert sorted(found) == list(range(OBJECTS))
    assert [index for index, data in found.items() if data != body_of(index)] == []


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", [ByUrl, ByFilesystem], ids=["by url", "with a filesystem of the parent"])
def test_dataloader_workers_read_every_object(store: FaultServer, kind: type[ByUrl], start: str) -> None:
    dataset = kind()
    store.configure(throttled())
    assert_every_byte(read_all(dataset, start))


@pytest.mark.parametrize("start", STARTS)
def test_a_boto3_client_of_the_parent_works_or_raises_at_once(store: FaultServer, start: str) -> None:
    dataset = ByClient()
    begun_at = time.monotonic()
    try:
        found = read_all(dataset, start)
    except Exception as error:
        # A hardened client refuses fork by name; under spawn botocore's own client does not pickle.
        assert time.monotonic() - begun_at < HANG_S / 2
        text = str(error)
        assert "pickle" in text if start == "spawn" else ("NotForkSafe" in text and "harden" in text), text
    else:
        assert_every_byte(found)


def test_the_parent_goes_on_after_its_workers(store: FaultServer) -> None:
    dataset = ByFilesystem()
    assert_every_byte(read_all(dataset, "fork"))
    assert dataset[3] == (3, body_of(3))
    assert os.getpid() == dataset.fs._pid


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError


def test_a_save_that_fails_leaves_no_half_file(store: FaultServer) -> None:
    import fsspec

    rio.install()
    with pytest.raises(ZeroDivisionError), fsspec.open(f"{ROOT}/ckpt/half.pt", "wb") as file:
        torch.save({"a": torch.zeros(100_000), "b": Unpicklable()}, file)
    assert not fsspec.filesystem("s3").exists("my-bucket/ckpt/half.pt")
    assert not [one for one in store.log(key="ckpt/*") if one.op == "PutObject"]
    with fsspec.open(f"{ROOT}/ckpt/whole.pt", "wb") as file:
        torch.save({"a": torch.ones(10)}, file)
    with fsspec.open(f"{ROOT}/ckpt/whole.pt") as file:
        assert torch.load(io.BytesIO(file.read()))["a"].sum() == 10
