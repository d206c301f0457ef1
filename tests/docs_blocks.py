"""Run the ```python blocks of one Markdown file, in order and in one namespace: python tests/docs_blocks.py README.md.

A block whose fence says ```python no-run is left out. A failure shows the line in the Markdown file.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

FENCE = re.compile(r"^(?P<indent>[ \t]*)```(?P<info>[^\n`]*)\n(?P<body>.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of code: its text without the indent of its list, and the line (1-based) on which it starts."""

    code: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """Return the Python blocks that are meant to run."""
    return [
        Block(code=textwrap.dedent(match["body"]), line=text.count("\n", 0, match.start("body")) + 1)
        for match in FENCE.finditer(text)
        if match["info"].split() == ["python"]
    ]


def run(path: Path) -> int:
    """Run the blocks as `__main__`, so that what they define can be pickled; return how many there were."""
    main = ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    blocks = blocks_of(path.read_text("utf-8"))
    for block in blocks:
        code = compile("\n" * (block.line - 1) + block.code, str(path), "exec")
        exec(code, main.__dict__)
    return len(blocks)


if __name__ == "__main__":
    print(f"{run(Path(sys.argv[1]).resolve())} blocks ran")
