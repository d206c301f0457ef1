"""Tools for tests against stores that throttle and fail: shipped, for users' own tests too.

    from resilient_io.testing import Ceiling, FaultAction, FaultPlan, FaultRule, FaultServer, Match

    plan = FaultPlan(
        ceilings=(Ceiling(rate_per_s=100, burst_s=0.5),),        # each prefix and class
        rules=(FaultRule(action=FaultAction.RESET_AFTER, match=Match(op="PutObject"), calls=(1,)),),
    )
    with FaultServer(plan) as server:                            # or upstream="http://127.0.0.1:5000",
                                                                 # and protocol="azure" before an AzuriteServer
        client = boto3.client("s3", endpoint_url=server.url, ...)
        ...
        assert server.stats().count(op="PutObject", status=503) == 0
        assert server.log(op="PutObject")[0].cause == "reset_after"

`FaultServerProcess` is the same server in a process of its own, for measurements and for many client
processes; `FaultServerControl(url)` drives it from any of them. On the command line:

    python -m resilient_io.testing.faultserver --upstream http://127.0.0.1:5000 --ceiling 100

The names are loaded when first used, so that the pytest plugin costs nothing at collection.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .azure import AccountLimit as AccountLimit
    from .azure import AzureProtocol as AzureProtocol
    from .azure import account_ceiling as account_ceiling
    from .azure import blob_ceiling as blob_ceiling
    from .azurite_process import AzuriteMissing as AzuriteMissing
    from .azurite_process import AzuriteServer as AzuriteServer
    from .azurite_process import StorageAccount as StorageAccount
    from .clock import Clock as Clock
    from .clock import ManualClock as ManualClock
    from .faultserver import FaultServer as FaultServer
    from .ledger import Exchange as Exchange
    from .ledger import Stats as Stats
    from .plan import Ceiling as Ceiling
    from .plan import FaultAction as FaultAction
    from .plan import FaultPlan as FaultPlan
    from .plan import FaultRule as FaultRule
    from .plan import Latency as Latency
    from .plan import Match as Match
    from .plan import Outage as Outage
    from .plan import Refusal as Refusal
    from .process import FaultServerControl as FaultServerControl
    from .process import FaultServerProcess as FaultServerProcess
    from .s3 import S3Protocol as S3Protocol

_HOMES = {
    "AccountLimit": "azure",
    "AzureProtocol": "azure",
    "account_ceiling": "azure",
    "blob_ceiling": "azure",
    "AzuriteMissing": "azurite_process",
    "AzuriteServer": "azurite_process",
    "StorageAccount": "azurite_process",
    "Clock": "clock",
    "ManualClock": "clock",
    "FaultServer": "faultserver",
    "Exchange": "ledger",
    "Stats": "ledger",
    "Ceiling": "plan",
    "FaultAction": "plan",
    "FaultPlan": "plan",
    "FaultRule": "plan",
    "Latency": "plan",
    "Match": "plan",
    "Outage": "plan",
    "Refusal": "plan",
    "FaultServerControl": "process",
    "FaultServerProcess": "process",
    "S3Protocol": "s3",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
