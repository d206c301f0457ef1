"""How far a rehearsal is, on standard error: a live bar where rich is installed, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, TextIO

from resilient_io.rehearse.rehearsal import Progress

#: Seconds between two lines of the plain form.
LINE_EACH_S: Final = 5.0


class Silence:
    """Shows nothing."""

    def begin(self, stage: str, total: int) -> None:
        """Show nothing."""

    def step(self, count: int = 1, *, failed: bool = False) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Say it nevertheless: it changes what the figures mean."""
        print(f"note: {text}", file=sys.stderr)


class Lines:
    """A line when a stage begins, and one every few seconds."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._stage, self._total, self._done, self._failed, self._said_s = "", 0, 0, 0, 0.0

    def begin(self, stage: str, total: int) -> None:
        """Say that a stage begins."""
        self._stage, self._total, self._done, self._failed = stage, total, 0, 0
        self._say(f"{stage}: {total} to do")

    def step(self, count: int = 1, *, failed: bool = False) -> None:
        """Count, and say so if the last line is old, or the stage done."""
        self._done += count
        self._failed += count if failed else 0
        if self._done == self._total or time.monotonic() - self._said_s > LINE_EACH_S:
            failures = f", {self._failed} failed" if self._failed else ""
            self._say(f"{self._stage}: {self._done}/{self._total}{failures}")

    def note(self, text: str) -> None:
        """Print it."""
        self._say(f"note: {text}")

    def _say(self, line: str) -> None:
        self._said_s = time.monotonic()
        print(line, file=self._out, flush=True)


class Bar:
    """A bar for each stage, by rich."""

    def __init__(self, bars: Any) -> None:
        self._bars, self._task, self._failed = bars, None, 0

    def begin(self, stage: str, total: int) -> None:
        """Add the stage's bar."""
        self._failed = 0
        self._task = self._bars.add_task(stage, total=total, failures="")

    def step(self, count: int = 1, *, failed: bool = False) -> None:
        """Move the bar."""
        self._failed += count if failed else 0
        failures = f"[red]{self._failed} failed" if self._failed else ""
        self._bars.update(self._task, advance=count, failures=failures)

    def note(self, text: str) -> None:
        """Print it above the bars."""
        self._bars.console.print(f"note: {text}")


@contextmanager
def shown(*, quiet: bool) -> Iterator[Progress]:
    """Give what shows the progress; `quiet` shows nothing."""
    if quiet:
        yield Silence()
    elif find_spec("rich") is None or not sys.stderr.isatty():
        yield Lines(sys.stderr)
    else:
        with _rich() as bars:
            yield Bar(bars)


def _rich() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[failures]}"),
        console=Console(stderr=True),
    )
