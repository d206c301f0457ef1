"""The folders are the pipeline: imports go one way only, read from the source so that lazy imports count too."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "resilient_io"

# From the ground up: a part may use those on the lines above its own, itself, and nothing else of the package.
LAYERS = (
    ("policy", "errors", "events"),
    ("classify",),
    ("control",),
    ("coordinate",),
    ("drive",),
    ("aws", "azure"),
    ("install",),
    ("auto", "checkpoint", "integrations", "observe", "diagnose", "simulate", "testing", "options"),
    ("rehearse", "plan", "mpu"),
    ("cli",),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
# What goes against the lines, and why.
EXCEPTIONS = {
    ("errors", "classify.fault"): "an error carries the verdict; for typing only",
    ("events", "classify.fault"): "an event carries the verdict; for typing only",
    ("policy", "classify.fault"): "for typing only",
    ("errors", "events"): "the ground is one layer: records may name each other",
    ("events", "errors"): "the ground is one layer: records may name each other",
    ("integrations", "checkpoint"): "an integration saves checkpoints",
    ("observe", "diagnose"): "a live view shows the advice",
}
TYPING_ONLY = frozenset({("errors", "classify.fault"), ("events", "classify.fault"), ("policy", "classify.fault")})
PURE = frozenset({"classify", "control"})
IMPURE_MODULES = frozenset({"time", "asyncio", "threading", "logging", "random", "multiprocessing", "concurrent"})
AWS_SDKS = frozenset({"boto3", "botocore", "aiobotocore", "s3fs", "s3transfer", "aiohttp", "urllib3"})
AZURE_SDKS = frozenset({"azure", "adlfs"})
STORES = frozenset({"moto"})
# The rehearsal and the test servers work with the real SDKs; they load them when they run, not when imported.
LAZY_SDK_PARTS = frozenset({"testing", "rehearse", "cli"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement: the module named, and how far it takes effect."""

    module: str
    line: int
    typing_only: bool
    lazy: bool

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def inner(self) -> str:
        return self.module.partition(".")[2]


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[Import]:
    package = ["resilient_io", *path.relative_to(PACKAGE).parts[:-1]]
    return list(_walk(ast.parse(path.read_text("utf-8")), package, typing_only=False, lazy=False))


def _walk(node: ast.AST, package: list[str], *, typing_only: bool, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            for module in _modules(child, package):
                yield Import(module=module, line=child.lineno, typing_only=typing_only, lazy=lazy)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _walk(ast.Module(child.body, []), package, typing_only=True, lazy=lazy)
            yield from _walk(ast.Module(child.orelse, []), package, typing_only=typing_only, lazy=lazy)
        else:
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _walk(child, package, typing_only=typing_only, lazy=lazy or inside)


def _modules(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
    module = ".".join(filter(None, (base, node.module)))
    # `from resilient_io import policy` and `from . import law` name modules in their list.
    if module.partition(".")[0] != "resilient_io":
        return [module]
    found = [f"{module}.{alias.name}" for alias in node.names if _is_module(f"{module}.{alias.name}")]
    return found if len(found) == len(node.names) else [module, *found]


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def own_imports() -> Iterator[tuple[Path, str, Import]]:
    for path in sources():
        for found in imports_of(path):
            if found.top == "resilient_io":
                yield path, part_of(path), found


def where(path: Path, found: Import) -> str:
    return f"{path.relative_to(ROOT)}:{found.line} imports {found.module}"


def test_every_part_has_a_place_in_the_layers() -> None:
    assert {part_of(path) for path in sources()} <= set(RANK)


def test_imports_go_down_only() -> None:
    wrong = []
    for path, part, found in own_imports():
        target = found.inner.partition(".")[0]
        if not target:
            # `import resilient_io` pulls in nothing; what is read from it then is lazy and may be anything.
            if RANK[part] < RANK["install"]:
                wrong.append(f"{where(path, found)}: name the module that is meant")
        elif target != part and not RANK[target] < RANK[part] and not _is_exception(part, found):
            wrong.append(f"{where(path, found)}: {target} is not below {part}")
    assert not wrong, "\n".join(wrong)


def _is_exception(part: str, found: Import) -> bool:
    for (source, target), _reason in EXCEPTIONS.items():
        if source == part and (found.inner == target or found.inner.startswith(f"{target}.")):
            return found.typing_only or (source, target) not in TYPING_ONLY
    return False


def test_nothing_but_the_rehearsal_and_the_command_imports_testing() -> None:
    wrong = [
        where(path, found)
        for path, part, found in own_imports()
        if found.inner.partition(".")[0] == "testing" and part not in {"testing", "rehearse", "cli"}
    ]
    assert not wrong, "\n".join(wrong)


def test_aws_and_azure_do_not_know_each_other() -> None:
    pairs = {("aws", "azure"), ("azure", "aws")}
    wrong = [
        where(path, found) for path, part, found in own_imports() if (part, found.inner.partition(".")[0]) in pairs
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_from_outside(path: Path) -> None:
    part = part_of(path)
    wrong = []
    for found in imports_of(path):
        if found.top == "resilient_io" or (found.typing_only and part not in PURE):
            continue
        reason = _outside(part, found)
        if reason:
            wrong.append(f"{where(path, found)}: {reason}")
    assert not wrong, "\n".join(wrong)


def _outside(part: str, found: Import) -> str | None:
    if found.top in sys.stdlib_module_names:
        return "this part reads no clock, draws nothing, waits for nothing" if _is_impure(part, found) else None
    if part in PURE or RANK[part] == 0:
        return "this part uses the standard library only"
    if found.top in AWS_SDKS and part != "aws" and not (part in LAZY_SDK_PARTS and found.lazy):
        return "the AWS SDKs are imported under aws/ only (in testing, rehearse and cli inside a function)"
    if found.top in AZURE_SDKS and part != "azure" and not (part in LAZY_SDK_PARTS and found.lazy):
        return "the Azure SDKs are imported under azure/ only (in testing, rehearse and cli inside a function)"
    if found.top in STORES and not (part in LAZY_SDK_PARTS and found.lazy):
        return "stores are started by testing, rehearse and cli, inside a function"
    if found.top == "fsspec" and RANK[part] < RANK["aws"]:
        return "filesystems are known from aws/ and azure/ upwards"
    return None


def _is_impure(part: str, found: Import) -> bool:
    return part in PURE and found.top in IMPURE_MODULES


def test_the_reading_of_imports_is_right(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from resilient_io.classify.fault import Verdict\n"
        "from . import law\nfrom .. import policy\nfrom ..errors import GaveUp\n"
        "def f():\n    import boto3.session\n"
    )
    found = list(_walk(ast.parse(text), ["resilient_io", "control"], typing_only=False, lazy=False))
    seen = [(one.module, one.typing_only, one.lazy) for one in found[2:]]
    assert seen == [
        ("resilient_io.classify.fault", True, False),
        ("resilient_io.control.law", False, False),
        ("resilient_io.policy", False, False),
        ("resilient_io.errors", False, False),
        ("boto3.session", False, True),
    ]
