"""Processes that share a table, played by several tables on one file: their locks exclude each other too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from resilient_io.control import law
from resilient_io.coordinate.fleet import Job
from resilient_io.coordinate.node import NodePace
from resilient_io.coordinate.table import Table

if sys.platform == "win32":
    pytest.skip("the table needs file locks", allow_module_level=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder for the table."""
    found = tmp_path / "limits"
    found.mkdir(mode=0o700)
    return found


Start = Callable[..., tuple[NodePace, list[float]]]


@pytest.fixture
def start(folder: Path) -> Start:
    """Start a process: `pace, rec = start(now)`, with a table of its own on the shared file."""

    def process(now: float, name: str = "store|bucket|train|read") -> tuple[NodePace, list[float]]:
        rec = law.fresh(now)
        return NodePace(rec, Table(folder), name, now, Job()), rec

    return process
