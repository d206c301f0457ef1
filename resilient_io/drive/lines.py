"""Lines of a file that is open for reading, found in a small piece of it."""

from __future__ import annotations

from typing import Final

#: What is taken from the file's cache at a time. Larger pieces save nothing, and a first line costs a copy of one.
PIECE_BYTES: Final = 2**16


class ReadsLines:
    """The part of an fsspec file that gives lines without asking its cache for each; it stands before the file's class.

    fsspec's own asks for a whole block from the position on, 5 to 50 MiB, and looks for the end of the line in that:
    a copy of it all for each line, or a request where it is more than the cache holds.
    """

    loc: int
    # A piece of the file, and where it stands. What has been read and stays valid: a file is of one version.
    _piece: bytes = b""
    _piece_at: int = 0

    def readline(self) -> bytes:
        """Return the next line with its newline; what is left if there is none, b"" at the end."""
        begin = self.loc - self._piece_at
        # find() counts a negative begin from the end.
        end = self._piece.find(b"\n", begin) + 1 if begin >= 0 else 0
        if not end:
            return self._line_over_pieces()
        self.loc = self._piece_at + end
        return self._piece[begin:end]

    def _line_over_pieces(self) -> bytes:
        begins_at, begin = self.loc, self.loc - self._piece_at
        line = [self._piece[begin:]] if begin >= 0 else []
        self.loc += len(b"".join(line))
        try:
            while piece := self._next_piece():
                end = piece.find(b"\n") + 1
                line.append(piece[:end] if end else piece)
                if end:
                    self.loc = self._piece_at + end
                    break
        except BaseException:
            self.loc = begins_at
            raise
        return b"".join(line)

    def _next_piece(self) -> bytes:
        at = self.loc
        piece: bytes = self.read(PIECE_BYTES)  # type: ignore[attr-defined]  # the file's class comes after this one
        if piece:
            self._piece, self._piece_at = piece, at
        return piece

    def close(self) -> None:
        """Finish the file."""
        self._piece = b""
        super().close()  # type: ignore[misc]  # the file's class comes after this one
