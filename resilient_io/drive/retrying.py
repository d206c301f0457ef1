"""`retrying`: the loop around any callable or block. tenacity turns it; classify/ and control/ decide."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

from resilient_io import policy as policies
from resilient_io.control.scopes import ScopePath
from resilient_io.drive.runtime import runtime
from resilient_io.drive.tries import Tries
from resilient_io.drive.urls import op_class_of, scope_of_url, shown
from resilient_io.policy import Policy

if TYPE_CHECKING:
    # Loaded with the first loop: a program that only imports this library does not pay for it.
    from tenacity import AsyncRetrying, RetryCallState
    from tenacity import Retrying as SyncRetrying

P = ParamSpec("P")
R = TypeVar("R")
PolicyLike = Mapping[str, object] | Policy | str | bool | None


class Retrying:
    """What `retrying(...)` returns: a decorator, and an iterable of attempts for `for` and `async for`.

    Holds no state of a call: one object may serve any number of threads, tasks and loops.
    """

    __slots__ = ("_op", "_overlay", "_scope")

    def __init__(self, overlay: Mapping[str, object], scope: str | None, op: str) -> None:
        self._overlay = overlay
        self._scope = scope
        self._op = op

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return `function` with retries around each call of it; a coroutine function gives one."""
        match _form_of(function):
            case "async":
                return cast("Callable[P, R]", self._around_async(cast("Callable[..., Any]", function)))
            case "sync":
                return self._around(function)

    def __iter__(self) -> Iterator[Attempt]:
        """Yield attempts until one succeeds: `for attempt in retrying(): with attempt: ...`."""
        return _Attempts(self._tries("block"))

    def __aiter__(self) -> AsyncIterator[Attempt]:
        """Yield attempts until one succeeds: `async for attempt in retrying(): with attempt: ...`."""
        return _AsyncAttempts(self._tries("block"))

    def _around(self, function: Callable[P, R]) -> Callable[P, R]:
        name = _name_of(function)

        @functools.wraps(function)
        def tried(*args: P.args, **kwargs: P.kwargs) -> R:
            for attempt in _Attempts(self._tries(name)):
                with attempt:
                    return _no_coroutine(function(*args, **kwargs), name)
            raise AssertionError("unreachable: the loop ends by return or by the error of an attempt")

        return tried

    def _around_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name = _name_of(function)

        @functools.wraps(function)
        async def tried(*args: Any, **kwargs: Any) -> Any:
            async for attempt in _AsyncAttempts(self._tries(name)):
                with attempt:
                    return await function(*args, **kwargs)
            raise AssertionError("unreachable: the loop ends by return or by the error of an attempt")

        return tried

    def _tries(self, name: str) -> Tries | None:
        """Return the state of a new call under the policy in force now; None if the library is switched off."""
        policy = policies.resolve(self._overlay)
        if not policy.enabled:
            return None
        path = _scope_of(self._scope, self._op, policy) if self._scope is not None else None
        return Tries(runtime(), policy, name, place=shown(self._scope or ""), path=path)


class Attempt:
    """One attempt, to be entered once with `with`.

    It swallows an error that is tried again; the last one, and all that must not be tried again,
    leave the block as they are.
    """

    __slots__ = ("_retry_state", "_tries", "_used")

    def __init__(self, tries: Tries | None, retry_state: RetryCallState | None) -> None:
        self._tries = tries
        self._retry_state = retry_state
        self._used = False

    @property
    def number(self) -> int:
        """Which attempt of the call this is, 1 for the first."""
        return self._tries.attempts if self._tries is not None else 1

    def __enter__(self) -> Attempt:
        if self._used:
            raise RuntimeError("this attempt was used already; `for attempt in retrying()` yields a new one each time")
        self._used = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._tries is None or self._retry_state is None:
            return False
        if error is None:
            self._tries.succeeded()
            self._retry_state.set_result(None)
            return False
        # KeyboardInterrupt, SystemExit, CancelledError and GeneratorExit are no faults of a store.
        if not isinstance(error, Exception):
            self._tries.close()
            return False
        if not self._tries.failed(error):
            return False
        self._retry_state.set_exception((type(error), error, trace))
        return True

    def check_used(self) -> None:
        """Raise RuntimeError if the body of the loop did not enter this attempt: it would go on for ever."""
        if not self._used:
            if self._tries is not None:
                self._tries.close()
            raise RuntimeError(
                "write `with attempt:` inside `for attempt in retrying():`; nothing else can tell how it went"
            )


class _Attempts:
    """The attempts of one call, for `for`."""

    __slots__ = ("_last", "_loop", "_tries")

    def __init__(self, tries: Tries | None) -> None:
        self._tries = tries
        self._loop = iter(_sync_loop(tries)) if tries is not None else None
        self._last: Attempt | None = None

    def __iter__(self) -> _Attempts:
        return self

    def __next__(self) -> Attempt:
        if self._last is not None:
            self._last.check_used()
        if self._tries is None or self._loop is None:
            if self._last is not None:
                raise StopIteration
            self._last = Attempt(None, None)
        else:
            state = next(self._loop).retry_state
            self._tries.admit()
            self._last = Attempt(self._tries, state)
        return self._last


class _AsyncAttempts:
    """The attempts of one call, for `async for`.

    No async generator: one that is left by `return` or an error needs a task of its own to be closed.
    """

    __slots__ = ("_last", "_loop", "_tries")

    def __init__(self, tries: Tries | None) -> None:
        self._tries = tries
        self._loop = aiter(_async_loop(tries)) if tries is not None else None
        self._last: Attempt | None = None

    def __aiter__(self) -> _AsyncAttempts:
        return self

    async def __anext__(self) -> Attempt:
        if self._last is not None:
            self._last.check_used()
        if self._tries is None or self._loop is None:
            if self._last is not None:
                raise StopAsyncIteration
            self._last = Attempt(None, None)
        else:
            state = (await anext(self._loop)).retry_state
            await self._tries.admit_async()
            self._last = Attempt(self._tries, state)
        return self._last


# -- tenacity ----------------------------------------------------------------------------------------


def _again(state: RetryCallState) -> bool:
    """Say whether there is another attempt: an error comes this far only if the machine said so."""
    return state.outcome is not None and state.outcome.failed


def _sync_loop(tries: Tries) -> SyncRetrying:
    from tenacity import Retrying as SyncRetrying
    from tenacity import stop_never

    clock = tries.clock
    return SyncRetrying(sleep=clock.sleep, wait=lambda _: tries.delay_s, retry=_again, stop=stop_never)


def _async_loop(tries: Tries) -> AsyncRetrying:
    from tenacity import AsyncRetrying, stop_never

    clock = tries.clock
    return AsyncRetrying(sleep=clock.sleep_async, wait=lambda _: tries.delay_s, retry=_again, stop=stop_never)


# -- callables ---------------------------------------------------------------------------------------


def _form_of(function: object) -> Literal["sync", "async"]:
    """Return how the callable is to be called; TypeError for what cannot be repeated as a whole."""
    if isinstance(function, (classmethod, property)):
        raise TypeError(f"put @retrying below @{type(function).__name__}, next to the function itself")
    if not callable(function):
        raise TypeError(f"retrying() decorates functions and other callables, not {function!r}")
    inner = function.__func__ if isinstance(function, staticmethod) else function
    forms = (
        [inner] if inspect.isroutine(inner) or isinstance(inner, functools.partial) else [inner, type(inner).__call__]
    )
    if any(inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form) for form in forms):
        raise TypeError(
            f"retrying() cannot repeat the generator {_name_of(function)!r}: what it yielded is out already; "
            "decorate the function that fetches one item instead"
        )
    return "async" if any(inspect.iscoroutinefunction(form) for form in forms) else "sync"


def _no_coroutine(value: R, name: str) -> R:
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"{name} returned a coroutine, whose faults retrying() would not see; make it an `async def`")
    return value


def _name_of(function: object) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__qualname__", None) or type(inner).__qualname__)


def _scope_of(url: str, op: str, policy: Policy) -> ScopePath:
    """Return the scope that a URL names: unlike an object's URL its last segment counts."""
    return scope_of_url(url if url.endswith("/") else url + "/", op=op, policy=policy)


@overload
def retrying(policy: Callable[P, R], *, scope: str | None = None, op: str = "get") -> Callable[P, R]: ...
@overload
def retrying(policy: PolicyLike = None, *, scope: str | None = None, op: str = "get") -> Retrying: ...
def retrying(policy: Any = None, *, scope: str | None = None, op: str = "get") -> Any:
    """Try a callable or a block again where its error says that it helps: throttling and passing faults.

        @rio.retrying
        def load(): ...

        @rio.retrying("checkpoint")
        async def save(state): ...

        for attempt in rio.retrying({"max_attempts": 3}):     # in a coroutine: async for
            with attempt:
                fetch()

    `policy` is what `resilience=` takes; it is resolved for each call, so a later `configure()` is
    obeyed. `classify(error)` decides; errors that it does not know, and those that a repeat cannot
    cure, pass through untouched, as do KeyboardInterrupt and CancelledError. So does an error that
    this library gave up on already, in a hardened client or in a `retrying` inside: layers do not
    multiply. The last error leaves as the object that was raised, with `.verdict`, `.attempts` and
    `.elapsed_s`, and on Python 3.11 a note of what was tried.

    Decorating says that the callable may be repeated, also where it writes: a save that writes the
    same bytes under the same name may, one that appends may not. Counts and delays are those of the
    policy: `max_attempts`, `max_throttle_attempts`, full jitter between `backoff_base_s` and
    `backoff_cap_s`. `deadline_s` counts from the first fault (what happens inside an attempt is not
    seen, and an attempt is never cut short), `total_deadline_s` from the start.

    `scope` is a prefix, such as "s3://bucket/train": each attempt then takes a permit of it, as
    `limit(scope, op=op)` does, faults other than refusals draw on its retry budget, and the answers
    slow it down or speed it up. For code that no hardened client is below of. Raises DeadlineExceeded
    if the first permit does not come in time.

    Raises ValueError for a bad policy, scope or op, and TypeError for a generator function: what it
    yielded cannot be taken back.
    """
    if policy is not None and callable(policy):
        return retrying(scope=scope, op=op)(policy)
    if isinstance(policy, (classmethod, property)):
        _form_of(policy)
    overlay = policies.overlay(policy)
    op_class_of(op)
    if scope is not None:
        _scope_of(scope, op, policies.resolve(overlay))
    return Retrying(overlay, scope, op)
