from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resilient_io.testing import FaultServer, sending


@pytest.fixture(autouse=True)
def _time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the reader more time before a reset, which discards what it has not read: the cores may be busy."""
    monkeypatch.setattr(sending, "RESET_GRACE_S", 0.25)


@pytest.fixture
def s3_client() -> Iterator[Callable[..., Any]]:
    """Make boto3 clients without retries; their connections are closed after the test."""
    boto3 = pytest.importorskip("boto3")
    from botocore.config import Config

    made: list[Any] = []

    def make(url: str, **config: Any) -> Any:
        settings: dict[str, Any] = {"retries": {"total_max_attempts": 1}, "read_timeout": 5, **config}
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            config=Config(**settings),
        )
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def store() -> Iterator[FaultServer]:
    """A running server without faults, with its own store and one bucket `b`."""
    with FaultServer() as server:
        server.fill("b", count=1, size_bytes=1000, key="train/x/{:d}")
        yield server
