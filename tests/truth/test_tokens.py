"""Services that give out credentials and refuse: waited for by themselves, while what is held is used."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import pickle
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

pytest.importorskip("botocore")
pytest.importorskip("azure.core")
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError

import resilient_io as rio
from resilient_io.aws.credentials import ask_with_care
from resilient_io.azure.credentials import PatientCredential
from resilient_io.drive import runtime as runtimes
from resilient_io.drive.tokens import REST_S
from resilient_io.policy import Policy
from resilient_io.testing import ManualClock

POLICY = {"max_throttle_attempts": 5, "max_attempts": 3, "backoff_base_s": 0.1}


def throttled() -> Exception:
    return ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "AssumeRole")


def busy() -> Exception:
    return ClientAuthenticationError("ManagedIdentityCredential authentication failed: Unexpected response, status 429")


@pytest.fixture
def clock() -> ManualClock:
    made = ManualClock()
    runtimes.reset(made, Random(7))
    return made


class Source:
    """A service that refuses the next `refusals` times that it is asked."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self.error, self.refusals, self.asked = error, 0, 0

    def answer(self) -> str:
        self.asked += 1
        if self.refusals > 0:
            self.refusals -= 1
            raise self.error()
        return f"token-{self.asked}"


# -- AWS ---------------------------------------------------------------------------------------------


class Role:
    """A hardened client with credentials of a role that have `left_s` seconds to live."""

    def __init__(self, left_s: float, *, aio: bool) -> None:
        self.source = Source(throttled)
        self.aio = aio
        self._left_s = left_s
        self.client = _client(self, aio=aio)
        self._left_s = 3600.0

    def fetch(self) -> dict[str, str]:
        token = self.source.answer()
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self._left_s)
        return {"access_key": "a", "secret_key": "s", "token": token, "expiry_time": until.isoformat()}

    async def fetch_async(self) -> dict[str, str]:
        return self.fetch()

    def token(self) -> str:
        """Return the token with which the next request would be signed."""

        async def frozen() -> Any:
            found = self.client._request_signer._credentials.get_frozen_credentials()
            return await found if inspect.isawaitable(found) else found

        return str(asyncio.run(frozen()).token)


def _client(role: Role, *, aio: bool) -> Any:
    import aiobotocore.session
    import botocore.session
    from aiobotocore.credentials import AioRefreshableCredentials

    cls = AioRefreshableCredentials if aio else RefreshableCredentials
    refresh = role.fetch_async if aio else role.fetch
    made = cls.create_from_metadata(role.fetch(), refresh_using=refresh, method="assume-role")
    session = (aiobotocore if aio else botocore).session.get_session()

    async def created() -> Any:
        found = session.create_client("s3", region_name="us-east-1")
        client = await found.__aenter__() if aio else found
        client._request_signer._credentials = made
        return rio.harden(client, POLICY)

    return asyncio.run(created())


both = pytest.mark.parametrize("aio", [False, True], ids=["boto3", "aio"])


@both
def test_a_throttled_role_is_asked_again_after_a_while(clock: ManualClock, aio: bool) -> None:
    role = Role(0.0, aio=aio)
    role.source.refusals = 3
    assert role.token() == "token-5"
    assert len([each for each in clock.sleeps if each > 0]) >= 3


@both
def test_a_throttled_role_is_given_up_in_the_end(clock: ManualClock, aio: bool) -> None:
    role = Role(0.0, aio=aio)
    role.source.refusals = 100
    with pytest.raises(ClientError, match="Throttling"):
        role.token()
    assert role.source.asked == 1 + 5


@both
@pytest.mark.parametrize("left_s", [30.0, 620.0], ids=["soon over", "for minutes yet"])
def test_what_a_role_gave_is_used_while_it_is_valid(clock: ManualClock, aio: bool, left_s: float) -> None:
    role = Role(left_s, aio=aio)
    role.client._request_signer._credentials._advisory_refresh_timeout = 900
    role.source.refusals = 100
    assert [role.token() for _ in range(5)] == ["token-1"] * 5
    assert role.source.asked == 2, "it was asked again with each request"
    assert clock.sleeps == []
    clock.advance(REST_S[1])
    assert role.token() == "token-1"
    assert role.source.asked == 3
    role.source.refusals = 0
    clock.advance(REST_S[1])
    assert role.token() == "token-4"


def test_the_role_has_a_scope_of_its_own(clock: ManualClock) -> None:
    role = Role(0.0, aio=False)
    role.source.refusals = 2
    role.token()
    assert [level.key for level in runtimes.runtime().gate.levels()] == ["credentials://assume-role|read"]


def test_processes_do_not_renew_at_the_same_moment(clock: ManualClock) -> None:
    role, begins = Role(3600.0, aio=False), []
    for _ in range(8):
        made = RefreshableCredentials.create_from_metadata(role.fetch(), refresh_using=role.fetch, method="iam-role")
        role.client._request_signer._credentials = made
        ask_with_care(role.client, Policy)
        begins.append(made._advisory_refresh_timeout)
    assert all(600 < begin <= 900 for begin in begins)
    assert max(begins) - min(begins) > 60


# -- Azure -------------------------------------------------------------------------------------------


class Identity:
    """A credential as azure-identity has them, sync."""

    def __init__(self, left_s: float = 3600.0) -> None:
        self.source, self.left_s = Source(busy), left_s

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.source.answer(), int(time.time() + self.left_s))

    def close(self) -> str:
        return "closed"


class AsyncIdentity(Identity):
    """The same, async."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # type: ignore[override]  # as the SDK's
        return Identity.get_token(self, *scopes, **options)


def asker(identity: Identity) -> Callable[[], str]:
    """Return what asks for a token through our wrapper."""
    aio = inspect.iscoroutinefunction(identity.get_token)
    patient = PatientCredential(identity, POLICY, aio=aio)

    async def asked() -> str:
        found = patient.get_token("https://storage.azure.com/.default")
        return str((await found if inspect.isawaitable(found) else found).token)

    return lambda: asyncio.run(asked())


identities = pytest.mark.parametrize("cls", [Identity, AsyncIdentity])


@identities
def test_a_throttled_identity_is_asked_again(clock: ManualClock, cls: type[Identity]) -> None:
    identity = cls()
    identity.source.refusals = 2
    assert asker(identity)() == "token-3"
    assert len(clock.sleeps) == 2


@identities
def test_a_token_is_used_while_it_is_valid_and_not_after(clock: ManualClock, cls: type[Identity]) -> None:
    identity = cls(left_s=200.0)
    ask = asker(identity)
    assert ask() == "token-1"
    identity.source.refusals = 100
    assert [ask() for _ in range(5)] == ["token-1"] * 5
    assert identity.source.asked == 2
    gone = cls(left_s=-1.0)
    ask = asker(gone)
    ask()
    gone.source.refusals = 100
    with pytest.raises(ClientAuthenticationError):
        ask()


def test_the_wrapper_can_what_the_credential_can(clock: ManualClock) -> None:
    patient = PatientCredential(Identity(), {}, aio=False)
    assert patient.close() == "closed"
    assert not hasattr(patient, "get_token_info")
    assert hasattr(patient, "get_token")
    assert isinstance(pickle.loads(pickle.dumps(patient)).inner, Identity)


@pytest.mark.parametrize("way", ["harden", "client_kwargs"])
def test_clients_ask_with_care(clock: ManualClock, way: str) -> None:
    from azure.core.exceptions import AzureError
    from azure.storage.blob import BlobServiceClient

    from resilient_io.azure.privates import retry_policy_of, token_holders

    url, identity = "https://127.0.0.1:9/account", Identity()
    options = rio.azure.client_kwargs({"max_attempts": 1}) if way == "client_kwargs" else {}
    service = BlobServiceClient(url, credential=identity, **options)
    if way == "harden":
        rio.harden(service, {"max_attempts": 1})
    with pytest.raises(AzureError):
        service.get_account_information()
    (holder,) = token_holders(retry_policy_of(service))
    assert isinstance(holder._credential, PatientCredential)
    assert service.credential is identity
    rio.uninstall()
