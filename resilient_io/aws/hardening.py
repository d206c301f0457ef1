"""The record of what was changed about one S3 client, kept on the client itself, and how each change is taken back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MARK: Final = "_resilient_io_hardening"


@dataclass(slots=True, eq=False)
class Hardening:
    """What was changed about one client, and how to change it back."""

    client: Any
    overlay: Mapping[str, object]
    pid: int = field(default_factory=os.getpid)
    stock_retry: Callable[..., Any] | None = None
    undo: list[Callable[[], None]] = field(default_factory=list)

    def shadow(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        """Shadow a method of one object until the end; the class and its other instances stay as they are."""
        owner.__dict__[name] = replacement
        self.undo.append(lambda: owner.__dict__.pop(name, None))

    def listen(self, event: str, handler: Callable[..., Any], *, first: bool = False) -> None:
        """Have botocore call `handler` at an event until the end, before all others if `first`."""
        events = self.client.meta.events
        (events.register_first if first else events.register)(event, handler)
        self.undo.append(lambda: events.unregister(event, handler))


def hardening_of(client: Any) -> Hardening | None:
    """Return what was done to this client, or None."""
    found: Hardening | None = getattr(client, "__dict__", {}).get(MARK)
    return found
