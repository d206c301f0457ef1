"""SDK errors that go through pickle and copy with what this library knows of them, as a dataloader's workers send them.

botocore packs its errors without their attributes, and azure-core's cannot be packed at all: they hold a traceback, and
an answer with the request and its signature. Both forms here need nothing but the standard library.
"""

from __future__ import annotations

import copyreg
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from resilient_io.classify.fault import Verdict

#: What is known of an error, by the names of its attributes.
FACTS: Final = ("verdict", "attempts", "scope", "elapsed_s", "request_id", "resilient_io_gave_up")
_PLAIN: Final = (str, int, float, bool, Verdict, type(None))


def facts_on(*places: object) -> dict[str, Any]:
    """Return what is noted on the first of these things that has each fact."""
    found = {name: vars(place)[name] for place in reversed(places) for name in FACTS if name in _attributes(place)}
    return {name: value for name, value in found.items() if isinstance(value, _PLAIN)}


def _attributes(place: object) -> dict[str, Any]:
    return getattr(place, "__dict__", {})


# -- an error that this library has in its hands -----------------------------------------------------


class _Reducing:
    """What pickle and copy find in place of one error's `__reduce_ex__`. Holds it weakly: it is the error's own."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = weakref.ref(error)

    def __call__(self, protocol: Any) -> Any:
        error = self._error()
        assert error is not None
        made: Any = type(error).__reduce_ex__(error, protocol)
        return _rebuilt, (made[0], made[1], error.args, facts_on(error))


def keep_facts(error: BaseException) -> None:
    """Let the facts and the text of an error go with it over pickle and copy; its class decides about the rest."""
    try:
        error.__dict__["__reduce_ex__"] = _Reducing(error)
    except TypeError:
        return  # one of Python's own, which nothing can refer to weakly


def _rebuilt(make: Callable[..., BaseException], given: Any, args: Any, facts: dict[str, Any]) -> BaseException:
    error = make(*given)
    error.args = args
    error.__dict__.update(facts)
    keep_facts(error)
    return error


# -- errors that an SDK makes by itself --------------------------------------------------------------


def pack_plainly(classes: Iterable[type[BaseException]]) -> None:
    """Let pickle and copy take errors of exactly these classes by their plain attributes. Idempotent.

    What is no text, number or verdict stays behind, the answer among it; the facts that were noted on that are the
    error's own then.
    """
    for cls in classes:
        copyreg.pickle(cls, _plainly)


def _plainly(error: BaseException) -> tuple[Any, ...]:
    state = {name: value if isinstance(value, _PLAIN) else None for name, value in vars(error).items()}
    args = tuple(each if isinstance(each, _PLAIN) else str(each) for each in error.args)
    return _from_plain, (type(error), args, {**state, **facts_on(error, getattr(error, "response", None))})


def _from_plain(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


__all__ = ["FACTS", "facts_on", "keep_facts", "pack_plainly"]
