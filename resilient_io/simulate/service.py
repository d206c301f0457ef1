"""A whole service: prefixes, each with a limit of its own, below that of the account and above that of each blob."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from resilient_io.control.scopes import ScopePath, scope_path
from resilient_io.simulate.store import ModelStore, Store

_ENDPOINT: Final = "https://model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Which limits there are. A request is refused by the first that is full; the service time is the prefix's."""

    prefix: Store = field(default_factory=Store)
    """The limit of each prefix."""
    prefixes: Mapping[int, Store] = field(default_factory=dict)
    """Those that differ, by their number."""
    account: Store | None = None
    """The limit of all prefixes together; None: there is no such thing (S3)."""
    blob: Store | None = None
    """The limit of each object; None: objects have none (S3)."""
    says_account: bool = True
    """Whether a refusal by the account's limit says so, as some of Azure's do."""

    def path(self, prefix: int) -> ScopePath:
        """Return the scope of reads of a prefix."""
        account = "model" if self.account is not None else ""
        return scope_path(endpoint=_ENDPOINT, account=account, bucket="data", prefix=str(prefix), op_class="read")


class Answer(NamedTuple):
    """What becomes of a request."""

    served: bool
    after_s: float
    said: str | None = None
    """Whose limit refused it, where the service says so."""


class ModelService:
    """A `Service` at work."""

    def __init__(self, service: Service, rng: random.Random) -> None:
        """Start with all buckets full, at time 0."""
        self._service, self._rng = service, rng
        self._account = ModelStore(service.account, rng) if service.account is not None else None
        self._lone = service.account is None and service.blob is None
        self._prefixes: dict[int, ModelStore] = {}
        self._blobs: dict[tuple[int, str], ModelStore] = {}

    def ask(self, now: float, prefix: int, blob: str) -> Answer:
        """Decide about a request that is sent now. What one limit lets through and another refuses takes nothing."""
        account, of_prefix = self._account, self._prefixes.get(prefix) or self.prefix(prefix)
        if self._lone:
            return Answer(*of_prefix.ask(now))
        if account is not None and account.refuses(now):
            return Answer(False, account.refusal_s(), "account" if self._service.says_account else None)
        if of_prefix.refuses(now):
            return Answer(False, of_prefix.refusal_s())
        of_blob = self._blob(prefix, blob)
        if of_blob is not None and of_blob.refuses(now):
            return Answer(False, of_blob.refusal_s())
        queued = [one.take() for one in (account, of_prefix, of_blob) if one is not None]
        return Answer(True, max(queued) + of_prefix.service_s())

    def prefix(self, number: int) -> ModelStore:
        """Return the limit of a prefix."""
        found = self._prefixes.get(number)
        if found is None:
            store = self._service.prefixes.get(number, self._service.prefix)
            found = self._prefixes[number] = ModelStore(store, self._rng)
        return found

    def _blob(self, prefix: int, blob: str) -> ModelStore | None:
        store = self._service.blob
        if store is None or not blob:
            return None
        found = self._blobs.get((prefix, blob))
        if found is None:
            found = self._blobs[prefix, blob] = ModelStore(store, self._rng)
        return found
