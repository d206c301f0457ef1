"""DeleteObjects, key by key: those that were refused for load are asked for again, and no others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from resilient_io.aws import faults, keys
from resilient_io.classify import judge, key_faults
from resilient_io.drive.call import Call
from resilient_io.drive.runtime import runtime

Params = Mapping[str, Any]
_SILENCE: Final = "the answer does not mention it"


class Keys:
    """The keys of one DeleteObjects over all its rounds, and the answer that is made of theirs."""

    __slots__ = ("_deleted", "_kept", "_params")

    def __init__(self, params: Params) -> None:
        self._params = params
        self._deleted: list[Any] = []
        self._kept: list[Any] = []

    def noted(self, call: Call, answer: Any) -> Any:
        """Return the answer to a round with an error for each key that it does not mention: nobody deleted that one.

        Where only errors were asked for (Quiet), silence says that a key is deleted.
        """
        if call.give_up is not None or self._params["Delete"].get("Quiet"):
            return answer
        told = [{"Key": key, "Code": "InternalError", "Message": _SILENCE} for key in self._missing(answer)]
        if not told:
            return answer
        answer = {**answer, "Errors": [*answer.get("Errors", ()), *told]}
        if call.verdict is None:
            verdict = faults.verdict_of_answer(answer, 200, call.judged_as, whole=True)
            assert verdict is not None
            call.failed(verdict)
        return answer

    def _missing(self, answer: Mapping[str, Any]) -> list[str]:
        """Return the keys of a round that its answer does not mention, under any name (a proxy between)."""
        asked = {each["Key"] for each in self._params["Delete"]["Objects"]}
        told = {row.get("Key") for name in ("Deleted", "Errors") for row in answer.get(name, ())}
        missing = sorted(asked - told)
        return missing if len(missing) > len(told - asked) else []

    def refused(self, call: Call, answer: Mapping[str, Any]) -> bool:
        """Say whether keys of a round were refused for load; the call has noted that as its fault already.

        A round that deleted some of its keys is progress.
        """
        left = self._left(call, answer)
        if left:
            # Whoever reads of a give-up must find a key that was refused, and not the first of a thousand.
            call.is_about(functools.partial(keys.place_of, {**self._params, "Delete": {"Objects": left}}))
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
    answer = rounds.noted(call, answer)
    while rounds.refused(call, answer):
        delay_s = call.decide()
        if delay_s is None:
            break
        runtime().clock.sleep(delay_s)
        answer = rounds.noted(call, send(call.name, rounds.turn_to_refused(call, answer)))
    return rounds.whole(answer)


async def by_key_async(call: Call, answer: Any, params: Params, send: Callable[..., Any]) -> Any:
    """Do as `by_key` does, with an async client."""
    rounds = Keys(params)
    answer = rounds.noted(call, answer)
    while rounds.refused(call, answer):
        delay_s = call.decide()
        if delay_s is None:
            break
        await runtime().clock.sleep_async(delay_s)
        answer = rounds.noted(call, await send(call.name, rounds.turn_to_refused(call, answer)))
    return rounds.whole(answer)
