"""Token credentials of azure-identity and others, asked within a scope of their own and not in vain."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from resilient_io import policy as policies
from resilient_io.azure import privates
from resilient_io.drive.tokens import Issuer


class PatientCredential:
    """A credential in its place in a pipeline: the last token is kept while it is valid and no new one is to be had.

    The identity services' refusals (429 of an instance's metadata service, of Entra ID) are waited for within their own
    scope, `credentials://<class of the credential>`. When a token is renewed is azure-core's decision: 5 minutes before
    its end, spread by up to one minute. What the credential can do besides, this one can. Plain data, as a client that
    holds it may be pickled where its credential can.
    """

    def __init__(self, inner: Any, overlay: Mapping[str, object], *, aio: bool) -> None:
        self.inner = inner
        self.overlay = overlay
        self.aio = aio
        self.tokens: dict[str, Any] = {}
        self.issuers: dict[str, Issuer[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if "inner" not in self.__dict__:
            raise AttributeError(name)  # while it is being unpickled
        value = getattr(self.inner, name)
        if name not in ("get_token", "get_token_info"):
            return value
        return functools.partial(self._asked_async if self.aio else self._asked, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tokens": {}, "issuers": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    def _asked(self, get: Callable[..., Any], *scopes: str, **options: Any) -> Any:
        key = _key(get, scopes, options)
        found = self._issuer(key).ask(lambda: get(*scopes, **options))
        self.tokens[key] = found
        return found

    async def _asked_async(self, get: Callable[..., Awaitable[Any]], *scopes: str, **options: Any) -> Any:
        key = _key(get, scopes, options)
        found = await self._issuer(key).ask_async(lambda: get(*scopes, **options))
        self.tokens[key] = found
        return found

    def _issuer(self, key: str) -> Issuer[Any]:
        if key not in self.issuers:
            name = type(self.inner).__name__
            self.issuers[key] = Issuer(name, lambda: policies.resolve(self.overlay), lambda: self._held(key))
        return self.issuers[key]

    def _held(self, key: str) -> Any:
        token = self.tokens.get(key)
        # A token's end is said in seconds of the wall clock.
        return token if token is not None and token.expires_on > time.time() else None


def _key(get: Callable[..., Any], scopes: tuple[str, ...], options: Mapping[str, object]) -> str:
    """Return what a token is good for; the claims of a challenge ask for another one."""
    return repr((getattr(get, "__name__", ""), scopes, sorted(options.items())))


def ask_with_care(holders: list[Any], overlay: Mapping[str, object], *, aio: bool) -> None:
    """Put a `PatientCredential` into each policy of a pipeline that holds a credential of tokens. Idempotent."""
    for holder in holders:
        privates.wrap_credential(holder, lambda inner: PatientCredential(inner, overlay, aio=aio), PatientCredential)
