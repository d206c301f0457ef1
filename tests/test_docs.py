"""Every Python example in the README and the docs runs, each file in a process of its own.

Where a file speaks of S3 it finds, at AWS_ENDPOINT_URL, the bucket `my-bucket` with every key that it names; where it
speaks of Azure, at AZURE_STORAGE_CONNECTION_STRING, the container `my-container` in the same way.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if path.is_file())
RUNNER = Path(__file__).with_name("docs_blocks.py")
PAGE_TIMEOUT_S = 180.0
BUCKET = "my-bucket"
CONTAINER = "my-container"
SPEAKS_OF_S3 = re.compile(r"s3a?://|boto3|s3fs|[\"']s3[\"']|my-bucket")
KEYS = (
    r"{place}/([^\s\"'`)]+)",  # URLs and paths
    r"[\"']{place}[\"'],\s*f?[\"']([^\"']+)[\"']",  # download_file("my-bucket", "key", ...)
)
KEY_OF_S3 = r"Key=f?[\"']([^\"']+)[\"']"  # keyword arguments of a client
PLACEHOLDER = re.compile(r"\{[^{}:]*(?::([^{}]*))?\}")
NUMBERED = range(16)  # what a placeholder in an f-string stands for


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_blocks", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BLOCKS = _runner()


def keys_in(code: str, place: str = BUCKET) -> set[str]:
    """Return the keys that a page names in a bucket or container; folders and patterns become objects inside them."""
    patterns = [pattern.replace("{place}", place) for pattern in KEYS] + [KEY_OF_S3] * (place == BUCKET)
    named = {key for pattern in patterns for key in re.findall(pattern, code)}
    return {key for name in named for key in _objects(name)}


def _objects(name: str) -> Iterator[str]:
    for number in NUMBERED if PLACEHOLDER.search(name) else (0,):
        try:
            key = PLACEHOLDER.sub(lambda match, n=number: format(n, match[1] or ""), name)
        except ValueError:  # a format for text
            key = PLACEHOLDER.sub(str(number), name)
        key = key.replace("**", "a").replace("*", "000000").rstrip("/")
        if "." in key.rpartition("/")[2]:
            yield key
        elif key:
            yield from (f"{key}/shard-{shard:06d}.tar" for shard in range(2))


def content_of(key: str) -> bytes:
    """Return a small body that a reader of the key's suffix can read."""
    match key.rpartition(".")[2]:
        case "csv":
            return b"a,b\n1,2\n3,4\n"
        case "json":
            return b'{"step": 1}'
        case "jsonl":
            return b'{"step": 1}\n{"step": 2}\n'
        case "txt" | "md":
            return b"hello\n"
        case "tar":
            return _tar()
        case "parquet":
            return _parquet()
        case "npy":
            return _npy()
    return bytes(range(256)) * 256


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in (("000000.txt", b"a picture"), ("000000.cls", b"7")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _parquet() -> bytes:
    pandas = pytest.importorskip("pandas")
    buffer = io.BytesIO()
    pandas.DataFrame({"a": [1, 3], "b": [2, 4]}).to_parquet(buffer)
    return buffer.getvalue()


def _npy() -> bytes:
    numpy = pytest.importorskip("numpy")
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.arange(16))
    return buffer.getvalue()


def _fill(url: str, code: str) -> None:
    for key in sorted(keys_in(code)):
        target = f"{url}/{BUCKET}/{urllib.parse.quote(key)}"
        request = urllib.request.Request(target, data=content_of(key), method="PUT")
        request.add_header("Content-Type", "application/octet-stream")
        urllib.request.urlopen(request, timeout=30).close()


def _fill_container(connection_string: str, code: str) -> None:
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(connection_string, CONTAINER) as container:
        if not container.exists():
            container.create_container()
        for key in sorted(keys_in(code, CONTAINER)):
            container.upload_blob(key, content_of(key), overwrite=True)


def code_of(page: Path) -> str:
    return "\n".join(block.code for block in BLOCKS.blocks_of(page.read_text("utf-8")))


@pytest.mark.wire
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    code = code_of(page)
    if not code:
        return
    if SPEAKS_OF_S3.search(code):
        request.getfixturevalue("moto_store")
        _fill(request.getfixturevalue("moto_url"), code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if "AzuriteServer" in code or CONTAINER in code:
        azurite = request.getfixturevalue("azurite")  # skips where it is not installed
        environment["AZURITE_HOME"] = str(ROOT / "tests" / "azurite")
        _fill_container(azurite.connection_string, code)
        environment["AZURE_STORAGE_CONNECTION_STRING"] = azurite.connection_string
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", str(RUNNER), str(page)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PAGE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n```python\nx = 1\n```\n- b\n  ```python\n  y = 2\n  ```\n```python no-run\nz\n```\n```bash\nls\n```\n"
    assert [(block.code, block.line) for block in BLOCKS.blocks_of(text)] == [("x = 1\n", 3), ("y = 2\n", 7)]


def test_a_failing_example_names_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\na = 1\n```\n\n```python\nassert a == 2\n```\n", "utf-8")
    done = subprocess.run([sys.executable, str(RUNNER), str(page)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'page.md", line 8' in done.stderr


def test_keys_are_read_off_the_code() -> None:
    code = (
        'fs.ls("s3://my-bucket/train")\nfsspec.open("s3://my-bucket/a/b.csv")\n'
        'client.get_object(Bucket="my-bucket", Key="c.json")\nclient.download_file("my-bucket", "d.txt", "d")\n'
        'open(f"rs3://my-bucket/s/{i:02d}.npy")\nfs.glob("my-bucket/g/*.parquet")\nopen("abfs://my-container/z.csv")\n'
    )
    keys = keys_in(code)
    assert {"train/shard-000000.tar", "a/b.csv", "c.json", "d.txt", "s/00.npy", "s/15.npy"} <= keys
    assert "g/000000.parquet" in keys
    assert keys_in(code, CONTAINER) == {"z.csv"}
    assert json.loads(content_of("c.json")) == {"step": 1}
