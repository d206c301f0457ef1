"""How a process counts what its clients send, where no server of ours stands between: on a real store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any


def counted(cloud: str) -> Callable[[], Mapping[str, int]]:
    """Count the requests and refusals of this process's clients to come, anew each time that they are asked for."""
    counts = _Counts()
    {"s3": _watch_botocore, "azure": _watch_azure}[cloud](counts)
    return counts.taken


class _Counts:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def sent(self) -> None:
        self._counts["sent"] += 1

    def answered(self, status: int | None) -> None:
        if status in (429, 503):
            self._counts["refused"] += 1

    def taken(self) -> Mapping[str, int]:
        taken, self._counts = self._counts, Counter()
        return taken


def _watch_botocore(counts: _Counts) -> None:
    """Watch every session, because s3fs may make its client more than once."""
    import botocore

    def sent(**event: Any) -> None:
        counts.sent()

    def answered(response_dict: Mapping[str, Any], **event: Any) -> None:
        counts.answered(response_dict.get("status_code"))

    def watch(session: Any) -> None:
        session.register("before-send.s3", sent)
        session.register("response-received.s3", answered)

    botocore.register_initializer(watch)


def _watch_azure(counts: _Counts) -> None:
    """Watch the transport that adlfs's clients have; what aiohttp sends a second time by itself is not seen."""
    from azure.core.pipeline.transport import AioHttpTransport

    send = AioHttpTransport.send

    async def watched(self: Any, request: Any, **options: Any) -> Any:
        counts.sent()
        response = await send(self, request, **options)
        counts.answered(response.status_code)
        return response

    AioHttpTransport.send = watched  # a process of the rehearsal does nothing else
