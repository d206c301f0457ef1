"""DeleteObjects, key by key: those that were refused for load are asked for again, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from resilient_io.classify import judge, key_faults
from resilient_io.drive.call import Call
from resilient_io.drive.runtime import runtime

Params = Mapping[str, Any]


class Keys:
    """The keys of one DeleteObjects over all its rounds, and the answer that is made of theirs."""

    __slots__ = ("_deleted", "_kept", "_params")

    def __init__(self, params: Params) -> None:
        self._params = params
        self._deleted: list[Any] = []
        self._kept: list[Any] = []

    def refused(self, call: Call, answer: Mapping[str, Any]) -> bool:
        """Say whether keys of a round were refused for load; the call has noted that as its fault already.

        A round that deleted some of its keys is progress.
        """
        left = self._left(call, answer)
        if left and len(left) < len(self._params["Delete"]["Objects"]):
            call.progressed()
        return bool(left)

    def turn_to_refused(self, call: Call, answer: Mapping[str, Any]) -> Params:
        """Keep what a round brought, and return the parameters of the next one: the keys that were refused."""
        left = self._left(call, answer)
        refused = {each["Key"] for each in left}
        self._deleted += answer.get("Deleted", ())
        self._kept += [row for row in answer.get("Errors", ()) if row.get("Key") not in refused]
        self._params = {**self._params, "Delete": {**self._params["Delete"], "Objects": left}}
        return self._params

    def _left(self, call: Call, answer: Mapping[str, Any]) -> list[Any]:
        """Return the objects of a round that a repeat may delete."""
        faults = key_faults(operation=call.judged_as, parsed=answer)
        refused = {key for key, fault in faults.items() if judge(fault).retryable}
        asked: list[Any] = list(self._params["Delete"]["Objects"])
        # A key that is not told as it was asked for (a proxy between) brings all of them again: that does no harm.
        return [each for each in asked if each.get("Key") in refused] or (asked if refused else [])

    def whole(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to the last round with what those before it brought."""
        found = dict(answer)
        for name, earlier in (("Deleted", self._deleted), ("Errors", self._kept)):
            if earlier:
                found[name] = [*earlier, *found.get(name, ())]
        return found


def is_by_key(call: Call, response: Any) -> bool:
    """Say whether the fault of an attempt is that of single keys: what is tried again is them, and not the request."""
    return call.name == "DeleteObjects" and response is not None and bool(response[1].get("Errors"))


def by_key(call: Call, answer: Any, params: Params, send: Callable[..., Any]) -> Any:
    """Ask again for the keys of an answer that were refused, until none is or the call gives up; return them all."""
    rounds = Keys(params)
    while rounds.refused(call, answer):
        delay_s = call.decide()
        if delay_s is None:
            break
        runtime().clock.sleep(delay_s)
        answer = send(call.name, rounds.turn_to_refused(call, answer))
    return rounds.whole(answer)


async def by_key_async(call: Call, answer: Any, params: Params, send: Callable[..., Any]) -> Any:
    """Do as `by_key` does, with an async client."""
    rounds = Keys(params)
    while rounds.refused(call, answer):
        delay_s = call.decide()
        if delay_s is None:
            break
        await runtime().clock.sleep_async(delay_s)
        answer = await send(call.name, rounds.turn_to_refused(call, answer))
    return rounds.whole(answer)
