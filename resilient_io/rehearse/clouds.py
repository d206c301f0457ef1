"""What differs between the clouds of a rehearsal: names, packages, and how the ceilings of a prefix compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from resilient_io.rehearse.job import WRITES_PER_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """A cloud: `library` is the stock filesystem, `scheme` that of its URLs, `own_scheme` this library's.

    `stores` can be embedded, with the packages that each needs besides `packages`; the first is the default.
    `versions` are the packages whose versions a reader of the figures needs. `epochs`, `shards` and `parts` are
    those of a job for which nothing else is asked.
    """

    name: str
    library: str
    scheme: str
    own_scheme: str
    packages: tuple[str, ...]
    stores: Mapping[str, tuple[str, ...]]
    extras: str
    versions: tuple[str, ...]
    endpoint_example: str
    writes_per_read: float
    epochs: int
    shards: int
    parts: int

    @property
    def default_store(self) -> str:
        """What is embedded where nothing else is asked for."""
        return next(iter(self.stores))


S3: Final = Cloud(
    name="s3",
    library="s3fs",
    scheme="s3",
    own_scheme="rs3",
    packages=("s3fs",),
    stores={"moto": ("moto", "flask"), "builtin": ()},
    extras="s3,cli,testing",
    versions=("s3fs", "aiobotocore", "botocore", "fsspec", "moto"),
    endpoint_example="https://s3.example.com",
    writes_per_read=WRITES_PER_READ,
    epochs=2,
    shards=450,
    parts=48,
)
AZURE: Final = Cloud(
    name="azure",
    library="adlfs",
    scheme="abfs",
    own_scheme="rabfs",
    packages=("adlfs",),
    stores={"azurite": ()},  # a Node.js program: azure_store finds or installs it
    extras="azure,cli",
    versions=("adlfs", "azure-storage-blob", "azure-core", "aiohttp", "fsspec"),
    endpoint_example="https://ACCOUNT.blob.core.windows.net",
    writes_per_read=1.0,  # Azure documents one rate of requests for both
    # One epoch: stock adlfs sleeps 18 to 84 s a refused operation, and waits for the last one in every phase.
    epochs=1,
    shards=900,
    parts=96,
)
CLOUDS: Final[Mapping[str, Cloud]] = {one.name: one for one in (S3, AZURE)}
