"""pyproject.toml, the lists under requirements/ and the commands fit together."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest on 3.10

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def declared_bounds() -> dict[str, str]:
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    found = (re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)$", one) for many in lists for one in many)
    return {match[1]: match[2] for match in found if match}


def test_the_oldest_environment_has_the_declared_lower_bounds() -> None:
    lines = (ROOT / "requirements" / "oldest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    declared = declared_bounds()
    del declared["moto"]  # a server for tests: its age says nothing of what the library runs on
    assert pinned == declared


def test_aiobotocore_has_a_lower_bound_of_its_own() -> None:
    # Without it pip walks s3fs back release by release next to a boto3 that runs ahead.
    assert re.match(r"aiobotocore>=\d", " ".join(one for one in PROJECT["optional-dependencies"]["s3"] if "aio" in one))


def entry_points() -> list[str]:
    points = [*PROJECT["scripts"].values()]
    for group in PROJECT["entry-points"].values():
        points.extend(group.values())
    return points


@pytest.mark.parametrize("point", entry_points())
def test_entry_points_lead_somewhere(point: str) -> None:
    module, _, name = point.partition(":")
    loaded = importlib.import_module(module)
    assert not name or callable(getattr(loaded, name))


def test_all_is_the_sum_of_the_extras() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"all"}
    assert PROJECT["optional-dependencies"]["all"] == [
        f"resilient-io[{','.join(name for name in PROJECT['optional-dependencies'] if name in extras)}]"
    ]


def test_no_registry_is_named() -> None:
    files = [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / ".ci" / "run", *(ROOT / "requirements").rglob("*.txt")]
    for path in files:
        text = path.read_text("utf-8")
        assert not re.search(r"https?://|--index-url|--find-links", text), path
