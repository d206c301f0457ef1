"""How many bytes a second a scope moves, and whether more requests in flight move more.

A cap on bytes (an account's egress, an instance's network) refuses nothing: it makes every answer slower. It shows as
a plateau: as many bytes a second as before, with more in flight. Only spells in which callers used all the places they
have are compared with calmer ones, because a job that wants no more has a plateau too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

# Seconds of a spell, and how many are kept: a minute.
SPELL_S: Final = 5.0
SPELLS: Final = 12
# Answers without which a spell says nothing.
_LEAST_ANSWERS: Final = 20
# So many times as many in flight, for so little more bytes, are a plateau; two spells of each kind are needed.
_MORE_IN_FLIGHT, _NO_MORE_BYTES, _SPELLS_EACH = 1.5, 1.1, 2
# Requests of another size move other amounts: spells whose mean differs by more are not compared.
_LIKE: Final = 1.25
# Places in use from which callers count as using all.
_ALL: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """What some seconds came to."""

    bytes_per_s: float
    in_flight: float
    request_bytes: float
    answers: int


@dataclass(slots=True, kw_only=True)
class Flow:
    """What a scope moved of late."""

    began_at: float = 0.0
    answers: int = 0
    moved_bytes: int = 0
    in_flight: float = 0.0
    spells: deque[Spell] = field(default_factory=lambda: deque(maxlen=SPELLS))
    total_bytes: int = 0
    total_answers: int = 0

    def note(self, now: float, answers: int, moved_bytes: int, in_flight: int) -> None:
        """Count answers that moved so many bytes together, while so many requests were in flight."""
        if now - self.began_at >= SPELL_S:
            self._close(now)
        self.answers += answers
        self.moved_bytes += moved_bytes
        self.total_bytes += moved_bytes
        self.total_answers += answers
        self.in_flight += answers * in_flight

    def forget(self) -> None:
        """Forget the spells: a refusal says that another limit was met."""
        self.spells.clear()
        self.answers = 0

    def _close(self, now: float) -> None:
        elapsed_s = now - self.began_at
        if self.answers and elapsed_s < 2.0 * SPELL_S:
            self.spells.append(
                Spell(
                    bytes_per_s=self.moved_bytes / elapsed_s,
                    in_flight=self.in_flight / self.answers,
                    request_bytes=self.moved_bytes / self.answers,
                    answers=self.answers,
                )
            )
        self.began_at, self.answers, self.moved_bytes, self.in_flight = now, 0, 0, 0.0

    def bytes_per_s(self, now: float) -> float:
        """Return what the last whole spell moved; 0.0 if that is long ago."""
        recent = self.spells and now - self.began_at < 2.0 * SPELL_S
        return self.spells[-1].bytes_per_s if recent else 0.0

    def mean_bytes(self) -> float | None:
        """Return what a request moves in the mean; None if nothing is known."""
        return self.total_bytes / self.total_answers if self.total_answers else None

    def plateau_bytes_per_s(self, places: int) -> float | None:
        """Return at how many bytes a second more in flight moved no more; `places` is the most that may be in flight.

        None where nothing speaks for such a cap.
        """
        spells = [one for one in self.spells if one.answers >= _LEAST_ANSWERS]
        if not spells:
            return None
        like = [one for one in spells if 1 / _LIKE <= one.request_bytes / _size(spells[-1]) <= _LIKE]
        full = [one for one in like if one.in_flight >= _ALL * places]
        calm = [one for one in like if one.in_flight * _MORE_IN_FLIGHT <= places]
        if min(len(full), len(calm)) < _SPELLS_EACH:
            return None
        most, less = _mean(full), _mean(calm)
        return most if less <= most * _NO_MORE_BYTES and most <= less * _NO_MORE_BYTES else None


def _size(spell: Spell) -> float:
    return max(1.0, spell.request_bytes)


def _mean(spells: list[Spell]) -> float:
    return sum(one.bytes_per_s for one in spells) / len(spells)
