"""`limit`: a permit for code that the hooks cannot reach."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from resilient_io import policy as policies
from resilient_io.classify import classify
from resilient_io.drive.call import WAITED, outcome_of
from resilient_io.drive.gate import Outcome, Permit, WaitedTooLong
from resilient_io.drive.runtime import Runtime, runtime
from resilient_io.drive.urls import op_class_of, scope_of_url, shown
from resilient_io.errors import DeadlineExceeded, GiveUp, ResilientIOError, public_error
from resilient_io.policy import Policy


class Admission:
    """What `limit` hands to the code inside: word of a refusal that comes as a value goes back here."""

    __slots__ = ("_permit", "scope")

    def __init__(self, permit: Permit | None, scope: str) -> None:
        self._permit = permit
        self.scope = scope
        """The scope's name for people, such as `s3://bucket/train (read)`."""

    def refused(self) -> None:
        """Say that the store refused for load (503 SlowDown, 429): the scope slows down.

        For code that sees a status instead of an exception. What the block ends with does not
        change it any more. Once is enough; from any thread, inside the block.
        """
        if self._permit is not None:
            self._permit.settle(Outcome.REFUSED)


class Limit:
    """One permit, with `with` or `async with`; made by `limit`, for one block at a time.

    Raises RuntimeError on entering it a second time inside its own block: each thread and task calls `limit` itself.
    """

    __slots__ = ("_endpoint", "_entered", "_op", "_overlay", "_permit", "_url")

    def __init__(self, url: str, op: str, overlay: Mapping[str, object], endpoint: str | None) -> None:
        self._url = url
        self._op = op
        self._overlay = overlay
        self._endpoint = endpoint
        self._entered = False
        self._permit: Permit | None = None

    def __enter__(self) -> Admission:
        ask = self._begin()
        if ask.policy.enabled:
            try:
                self._permit = ask.run.gate.acquire(ask.path, ask.policy, deadline_at=ask.deadline_at)
            except BaseException as error:
                self._entered = False
                if isinstance(error, WaitedTooLong):
                    raise ask.too_late() from None
                raise
        return Admission(self._permit, str(ask.path))

    async def __aenter__(self) -> Admission:
        ask = self._begin()
        if ask.policy.enabled:
            try:
                self._permit = await ask.run.gate.acquire_async(ask.path, ask.policy, deadline_at=ask.deadline_at)
            except BaseException as error:
                self._entered = False
                if isinstance(error, WaitedTooLong):
                    raise ask.too_late() from None
                raise
        return Admission(self._permit, str(ask.path))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        permit, self._permit, self._entered = self._permit, None, False
        if permit is not None:
            permit.free(_outcome_of(error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _begin(self) -> _Ask:
        if self._entered:
            raise RuntimeError("this limit() is in use; call limit() anew for each block, a permit is for one request")
        policy = policies.resolve(self._overlay)
        ask = _Ask(self._url, self._op, policy, self._endpoint)
        self._entered = True
        return ask


class _Ask:
    """One wait for a permit: where, under which policy, and until when."""

    __slots__ = ("deadline_at", "op", "path", "policy", "run", "started_at", "url")

    def __init__(self, url: str, op: str, policy: Policy, endpoint: str | None) -> None:
        self.run: Runtime = runtime()
        self.url = url
        self.op = op
        self.policy = policy
        self.path = scope_of_url(url, op=op, policy=policy, endpoint=endpoint)
        self.started_at = self.run.clock.now()
        self.deadline_at = self.started_at + min(policy.deadline_s, policy.total_deadline_s or policy.deadline_s)

    def too_late(self) -> ResilientIOError:
        """Return the error for a wait that reached the deadline."""
        total_s = self.policy.total_deadline_s
        return public_error(
            GiveUp(
                operation=f"limit({self.op})",
                path=shown(self.url),
                verdict=WAITED,
                elapsed_s=self.run.clock.now() - self.started_at,
                scope=str(self.path),
                reason="deadline" if total_s is None or total_s > self.policy.deadline_s else "total_deadline",
            ),
            None,
        )


def _outcome_of(error: BaseException | None) -> Outcome:
    if error is None:
        return Outcome.SUCCEEDED
    # A cancelled or interrupted request says nothing of the store.
    return outcome_of(classify(error)) if isinstance(error, Exception) else Outcome.DROPPED


def limit(url: str, *, op: str = "get", policy: object = None, endpoint: str | None = None) -> Limit:
    """Return a permit for one request that the hooks cannot reach, for `with` or `async with`.

        with rio.limit("s3://bucket/train/0001.tar") as permit:
            response = requests.get(presigned_url)
            if response.status_code == 503:
                permit.refused()

    Entering waits until the scope of `url` admits a request, as hardened clients of this process do:
    they share its rate. An exception inside is classified and goes on; a refusal slows the scope
    down, and a block that ends well counts as a success. Nothing is tried again (see `retrying`).
    Around code that hardened clients run it would count each request twice, and wait for itself
    where all permits are held by the blocks around.

    `op` is "get", "head", "put", "list" or "delete". `url` is that of the object, or of the directory
    of a listing: `s3://`, `s3a://`, `rs3://`, `gs://`, `abfs://`, `abfss://`, `az://`, `http(s)://`
    (presigned ones too); any other scheme has one limit for each host. `endpoint` is the store's URL
    where it is not the usual one: for S3 that is AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, else AWS's
    own for AWS_DEFAULT_REGION (profiles are not read); give what `client.meta.endpoint_url` shows to
    share with that client. `policy` is what `resilience=` takes.

    Raises DeadlineExceeded when the permit did not come within `deadline_s`, and ValueError for a bad
    URL, op or policy. With the policy's `enabled` False it does nothing.
    """
    overlay = policies.overlay(policy)
    op_class_of(op)
    made = Limit(url, op, overlay, endpoint)
    scope_of_url(url, op=op, policy=policies.resolve(overlay), endpoint=endpoint)
    return made


__all__ = ["Admission", "DeadlineExceeded", "Limit", "limit"]
