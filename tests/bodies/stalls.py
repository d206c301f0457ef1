"""A body that trickles, or falls silent, in its first answer: for clients of both clouds."""

from __future__ import annotations

from collections.abc import Callable

from resilient_io import events

from .odd_store import Ask, OddStore, Reply


def must_not_wait_for_a_stall(store: OddStore, read: Callable[..., bytes], data: bytes, pause_s: float) -> None:
    """Read a body that brings a byte each `pause_s` after its first thousand: it goes on with another request."""

    def how(ask: Ask) -> Reply:
        reply = store.sound(ask)
        if ask.number == 1:
            rest = data[1000:1200]
            reply.pieces = [data[:1000], *(each for byte in rest for each in (pause_s, bytes([byte])))]
        return reply

    store.how = how
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    assert read(policy={"min_throughput_bytes_per_s": 50_000, "stall_window_s": 0.1}) == data
    unsubscribe()
    assert len([event for event in seen if isinstance(event, events.AttemptFailed)]) == 1
    assert store.asks[1].first >= 1000
