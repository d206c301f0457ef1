"""A server in a child process that says on its first line where it listens, and dies with its parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Seconds that a child may take to stop before it is killed; it needs milliseconds.
STOP_TIMEOUT_S = 5.0


class Child:
    """`python -m module arguments...`, or another `program`; it must stop when its standard input ends."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        program: Sequence[str] = (sys.executable, "-m"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [*program, module, *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**_environment(), **(environment or {})}
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise RuntimeError(f"{module} did not start: exit status {self._process.returncode}")
        self.said: dict[str, Any] = json.loads(line)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def stop(self) -> None:
        """End the process and wait for it."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.terminate()  # a forked process of ours may still hold the pipe open
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def wait_for_stdin_to_end() -> None:
    """Block until the parent closes the pipe, by will or by dying."""
    # Not sys.stdin: its lock, held by a daemon thread, would crash the interpreter's end.
    while os.read(0, 4096):
        pass


def _environment() -> dict[str, str]:
    """Return an environment in which the child finds this very package."""
    root = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, known] if known else [root])}
