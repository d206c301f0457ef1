"""Azure Blob: a retry policy and transports for the SDK's clients, and the adlfs subclass."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from resilient_io.azure.clients import client_kwargs as client_kwargs

__all__ = ["client_kwargs"]


def __getattr__(name: str) -> Any:
    # Lazily: the SDK is imported when it is used.
    if name == "client_kwargs":
        from resilient_io.azure.clients import client_kwargs

        return client_kwargs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
