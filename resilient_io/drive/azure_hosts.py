"""The hosts of Azure Storage: which account a name belongs to, and which of its doors are one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

# `account[-secondary][-ipv6|-dualstack].[z01.]blob|dfs.suffix`, also Azurite's `account.blob.localhost`.
# https://learn.microsoft.com/azure/storage/common/storage-account-overview#storage-account-endpoints
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9]+)(?P<doors>(?:-(?:secondary|ipv6|dualstack))*)\."
    r"(?P<zone>(?:[a-z0-9-]+\.)?)(?P<service>blob|dfs)\.(?P<rest>.+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureHost:
    """What the host of a URL says; an `account` of "" stands in the path instead."""

    endpoint: str
    account: str
    dfs: bool = False


@lru_cache(maxsize=256)
def azure_host(url: str) -> AzureHost:
    """Return the endpoint and the account that a URL's host names.

    The blob and the dfs host, IPv6 and dual-stack ones, are doors of one account with one limit behind them; the
    secondary is another stamp with limits of its own. A plain address, `localhost` or a single label (Azurite) has
    the account in the path; any other name is a domain of the account's own.
    """
    parts = urlsplit(url)
    scheme, netloc = parts.scheme or "https", parts.netloc.rpartition("@")[2].lower()
    host = (parts.hostname or "").lower()
    if "." not in host or _is_address(host):
        return AzureHost(endpoint=f"{scheme}://{netloc}", account="")
    found = _HOST.fullmatch(host)
    if found is None:
        return AzureHost(endpoint=f"{scheme}://{netloc}", account=host)
    port = netloc[len(host) :]
    secondary = "-secondary" if "-secondary" in found["doors"] else ""
    # Without a port of its own it is one service, whatever scheme it is asked by.
    origin = f"{scheme}://" if port not in ("", ":80", ":443") else "https://"
    endpoint = f"{origin}{found['account']}{secondary}.{found['zone']}blob.{found['rest']}"
    port = "" if port in (":80", ":443") else port
    return AzureHost(endpoint=endpoint + port, account=found["account"], dfs=found["service"] == "dfs")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
