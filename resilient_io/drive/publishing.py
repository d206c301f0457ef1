"""Files that become visible whole or not at all: what an exception interrupts is thrown away."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from resilient_io.drive.leaving import NONE, Block, blocks_being_left
from resilient_io.drive.told import told_by_open_file

_log = logging.getLogger("resilient_io")


class PublishedWhole:
    """The part of an fsspec file that publishes nothing if an exception ends its writing.

    It stands before `CarefulFile` among the bases. fsspec's `OpenFile`, `TextIOWrapper` and `GzipFile` close what they
    wrap without a word of the exception that made them. What an `OpenFile` was told is read off its frame and decides;
    for the others, and where a file is closed by itself, `close` compares the exception being handled now with the
    one at open: a new one ends the file unpublished, and a save made inside an `except` block is published. That
    covers one that was handled already and is raised again, which has a longer traceback then, or, by a bare `raise`,
    leaves a `with` block that it was not leaving at open; and `with`, `try ... finally`, KeyboardInterrupt and the
    GeneratorExit of a generator that is closed early, and files that are collected unclosed, as fsspec leaves those
    below `fs.open(..., compression=...)`.

    A file closed by itself inside an `except` block that it was not opened in is therefore thrown away too, with a
    warning in the log `resilient_io`. Not thread-safe, as files are not.
    """

    fs: Any
    path: str
    mode: str
    buffer: Any
    closed: bool
    _failure: BaseException | None
    _handled_at_open: tuple[tuple[BaseException, TracebackType | None], ...] = ()
    _left_at_open: frozenset[Block] = NONE
    _is_thrown_away: bool = False

    if TYPE_CHECKING:  # `CarefulFile` has them

        def _is_inherited(self) -> bool: ...

        def _give_up_writing(self) -> None: ...

    def _note_open(self, mode: str) -> None:
        """Remember what is being handled while a file is opened; to be called before anything is written."""
        if mode != "rb":
            # Let go of in `close`: its traceback may hold the frame that holds this file.
            self._handled_at_open = _handled_now()
            self._left_at_open = blocks_being_left() if self._handled_at_open else NONE

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Close the file; publish it only if its `with` block ended without an exception."""
        if error is None:
            # What is handled around the block did not happen inside it.
            self._note_open(self.mode)
            self.close()
        elif not self._throw_away_if_writing(error):
            self.close()

    def close(self) -> None:
        """Finish the file; one whose writing an exception has ended is thrown away instead, and nothing is sent."""
        handled = sys.exc_info()[1]
        error = self._ended_by(handled) if handled is not None else None
        if error is not None and self._throw_away_if_writing(error):
            return
        self._handled_at_open = ()
        try:
            super().close()  # type: ignore[misc]  # the file's class comes after this one
        except Exception:
            raise
        except BaseException as interrupt:
            self._throw_away_if_writing(interrupt)
            raise

    def _ended_by(self, handled: BaseException) -> BaseException | None:
        """Return the exception that ended the writing, by what an `OpenFile` around it was told, or by what is seen."""
        told = told_by_open_file(self, handled)
        if told is not None:
            return told.error
        return handled if self._has_ended_by(handled) else None

    def _has_ended_by(self, error: BaseException) -> bool:
        """Say whether the exception being handled came, or went on, while the file was open."""
        return not _is_among(error, self._handled_at_open) or not blocks_being_left() <= self._left_at_open

    def commit(self) -> None:
        """Publish what a transaction held back; nothing if an exception has ended the writing."""
        if not self._is_thrown_away:
            super().commit()  # type: ignore[misc]  # the file's class comes after this one

    def _throw_away_if_writing(self, error: BaseException) -> bool:
        """End the file unpublished if it is still being written by this process; say so."""
        if self.mode == "rb" or self.closed or self._failure is not None or self._is_inherited():
            return False
        self._is_thrown_away = True
        self._handled_at_open = ()
        _log.warning("%s was not written: %s ended its writing", self.path, type(error).__name__)
        try:
            self._give_up_writing()
        finally:
            self.closed = True
        return True

    def _is_collected_on_its_loop(self) -> bool:
        """Say whether the file ends in the thread that would send it."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return False
        return running is getattr(self.fs, "_loop", None)

    def _close_elsewhere(self) -> None:
        """Close the file in a thread of its own: the one of the loop would wait for itself."""
        with contextlib.suppress(AttributeError, ValueError):
            # Collected in a cycle, the buffer may be closed by its own finalizer, soon or already.
            self.buffer = io.BytesIO(self.buffer.getvalue())
            self.buffer.seek(0, io.SEEK_END)
        threading.Thread(target=self._close_quietly, name="resilient-io-close").start()

    def _close_quietly(self) -> None:
        try:
            self.close()
        except Exception:  # nobody is there to catch it
            _log.warning("%s was not written: it was collected before it was closed", self.path, exc_info=True)

    def __del__(self) -> None:
        if sys.is_finalizing():
            # No event loop runs any more: sending would wait for ever. Nothing becomes visible.
            self.closed = True
        elif not self.closed and self.mode != "rb" and self._is_collected_on_its_loop():
            self._close_elsewhere()
            return
        super().__del__()  # type: ignore[misc]  # the file's class comes after this one


def _handled_now() -> tuple[tuple[BaseException, TracebackType | None], ...]:
    """Return the exception that is being handled and those that it was raised under, each with its traceback."""
    found: dict[int, tuple[BaseException, TracebackType | None]] = {}
    handled = sys.exc_info()[1]
    while handled is not None and id(handled) not in found:
        found[id(handled)] = (handled, handled.__traceback__)
        handled = handled.__context__
    return tuple(found.values())


def _is_among(error: BaseException, handled: tuple[tuple[BaseException, TracebackType | None], ...]) -> bool:
    """Say whether an exception was being handled already, and was not raised again since: that lengthens its trace."""
    return any(one is error and trace is error.__traceback__ for one, trace in handled)
