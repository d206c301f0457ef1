"""Faults that people met with S3 and Azure Blob, each with the verdict that the library must reach.

load() gives the cases of cases.json; build(case) gives the exception of a case, or None where the SDK raises nothing
although the answer is wrong; replay(case) serves the raw answer of a case to the real SDK (see wire.py).

Fields of a case: id, base (the fault; one per SDK and call share it), source (a public thread), provider, sdk,
exception, http_status, error_code, message, headers, operation, verdict, kind, lookalike, retry_after_s, notes,
raw_response (what the server sends; x_body is a body of so many "x"), observed (what the SDK made of it), construct
(how to build it where no SDK is needed).
"""

import importlib
import json
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))


def load(path=None):
    with open(path or os.path.join(HERE, "cases.json"), encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        raw = case["raw_response"]
        for step in raw if isinstance(raw, list) else [raw or {}]:
            if "x_body" in step:
                step["body"] = "x" * step.pop("x_body")
    return cases


def cls_of(name):
    mod, _, attr = name.rpartition(".")
    try:
        return getattr(importlib.import_module(mod), attr)
    except ModuleNotFoundError:
        if mod != "obstore.exceptions":
            raise
        return _obstore_class(attr)


def _obstore_class(name):
    """A class like that of obstore, where it is not installed: only its name and its text count."""
    base = type("BaseError", (Exception,), {"__module__": "obstore.exceptions", "__qualname__": "BaseError"})
    return type(name, (base,), {"__module__": "obstore.exceptions", "__qualname__": name})


class _Req:
    method, url = "GET", "https://exampleacct.blob.core.windows.net/example-bucket/train/shard-00000.tar"

    def __repr__(self):
        return "<HttpRequest [GET]>"


class _Resp:  # what azure-core's Stream* errors ask for
    request, status_code, reason = _Req(), 200, "OK"

    def __repr__(self):
        return "<HttpResponse: 200 OK>"


def _arg(a):
    if isinstance(a, str) and a.startswith("@exc:"):
        name, _, rest = a[5:].partition(":")
        c = cls_of(name)
        kw = dict(x.split("=", 1) for x in rest.split(",") if "=" in x)
        if kw:
            return c(**kw)
        parts = [int(p) if p.isdigit() else p for p in rest.split(",", 1)]
        return c(*parts)
    if isinstance(a, str) and a.startswith("@bytes:"):
        return b"x" * int(a[7:])
    if a == "@obj:response":
        return _Resp()
    return a


def client_error(code, message, status, headers, op, max_reached=True, dynamic=None):
    """A ClientError as botocore makes it from a parsed response."""
    from botocore.exceptions import ClientError

    parsed = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {
            "RequestId": "EXAMPLEREQID0001",
            "HostId": "EXAMPLEHOSTID/0001=",
            "HTTPStatusCode": status,
            "HTTPHeaders": {k.lower(): v for k, v in headers.items()},
            "RetryAttempts": 0,
        },
    }
    if max_reached:
        parsed["ResponseMetadata"]["MaxAttemptsReached"] = True
    c = ClientError
    if dynamic:
        import botocore.session

        svc = "sts" if "ExpiredTokenException" in dynamic else "s3"
        s = botocore.session.Session()
        cl = s.create_client(svc, region_name="us-east-1", aws_access_key_id="EXAMPLE", aws_secret_access_key="example")
        c = cl.exceptions.from_code(code)
    return c(parsed, op)


def _last(raw):
    return raw[-1] if isinstance(raw, list) else raw


def azure_error(raw, method="GET"):
    """An HttpResponseError (or subclass) as azure-storage-blob makes it from a response."""

    import requests
    from azure.core.exceptions import (
        ClientAuthenticationError,
        HttpResponseError,
        ResourceExistsError,
        ResourceNotFoundError,
        map_error,
    )
    from azure.core.pipeline.transport import HttpRequest, RequestsTransportResponse
    from azure.storage.blob._shared.response_handlers import process_storage_error

    raw = _last(raw)
    r = requests.Response()
    _, st, reason = (raw["status_line"] + " ").split(" ", 2)
    r.status_code, r.reason = int(st), reason.strip()
    r.headers.update(raw.get("headers") or {})
    body = b"" if method == "HEAD" else (raw.get("body") or "").encode("utf-8")
    r._content = body
    r._content_consumed = True
    resp = RequestsTransportResponse(
        HttpRequest(method, "https://exampleacct.blob.core.windows.net/example-bucket/train/shard-00000.tar"), r
    )
    m = {401: ClientAuthenticationError, 404: ResourceNotFoundError, 409: ResourceExistsError}
    try:
        map_error(status_code=r.status_code, response=resp, error_map=m)
        raise HttpResponseError(response=resp)
    except HttpResponseError as e:
        try:
            process_storage_error(e)
        except HttpResponseError as e2:
            return e2


FILL = {
    "endpoint_url": "https://example-bucket.s3.us-east-1.amazonaws.com/train/shard-00000.tar",
    "error": "example",
    "actual_bytes": 40000,
    "expected_bytes": 100000,
    "proxy_url": "http://proxy.example.invalid:3128",
    "error_msg": "example",
    "request": None,
}


def _is_azure_answer(c, name="HttpResponseError"):
    return any(base.__module__ == "azure.core.exceptions" and base.__name__ == name for base in c.__mro__)


def _make(name, text, case, method):
    """One exception of class `name`, as found in a chain."""
    import botocore.exceptions as bx

    o = case.get("observed") or {}
    if name.startswith("botocore.errorfactory.") or name == "botocore.exceptions.ClientError":
        return client_error(
            o.get("code"),
            o.get("service_message"),
            o.get("status"),
            case["headers"],
            o.get("operation_name") or case["operation"],
            bool(o.get("max_attempts_reached")),
            name if name.startswith("botocore.errorfactory.") else None,
        )
    c = cls_of(name)
    if (
        _is_azure_answer(c)
        and o.get("has_response")
        and _last(case["raw_response"]).get("status_line")
        and not _is_azure_answer(c, "DecodeError")
    ):
        return azure_error(case["raw_response"], method)
    if issubclass(c, bx.BotoCoreError):
        e = c(**{k: FILL[k] for k in set(re.findall(r"\{(\w+)", c.fmt)) & set(FILL)})
        return e
    if issubclass(c, OSError) and not issubclass(c, TimeoutError):
        m = re.match(r"\[Errno (-?\d+)\] (.*)", text or "", re.S)
        if m:
            try:
                return c(int(m.group(1)), m.group(2))
            except TypeError:
                pass
    for args in ((text,), (), (None, text), ("", 0, text), ("pool", "url", text), (0, 0)):
        try:
            return c(*args)
        except Exception:
            continue
    return Exception(f"{name}: {text}")


def build(case):
    name = case["exception"]
    if name is None:
        return None
    if case.get("construct") is not None:
        k = case["construct"]
        c = cls_of(name)
        e = c(*[_arg(a) for a in k["args"]], **{n: _arg(v) for n, v in k["kwargs"].items()})
        if k.get("cause"):
            e.__cause__ = _arg(k["cause"])
        return e
    o = case["observed"]
    method = "HEAD" if case["operation"] in ("GetBlobProperties", "exists", "info", "HeadObject") else "GET"
    e = _make(case.get("dynamic_class") or name, o.get("str"), case, method)
    cur = e
    for link in o.get("chain", []):
        if type(cur).__module__.startswith("requests") and cur.args and isinstance(cur.args[0], BaseException):
            break
        nxt = _make(link["exception"], link["str"], case, method)
        cur.__cause__ = nxt
        cur = nxt
    return e


def replay(case):
    """Returns (exception or None, result, number of requests) of the real SDK, served the raw answer of a case."""
    import wire

    sdk = {"boto3x2": "boto3", "azure-r1": "azure"}.get(case["probe"], case["probe"])
    extra = {"boto3x2": {"attempts": 2}, "azure-r1": {"retry_total": 1}}.get(case["probe"], {})
    return wire.run_probe(sdk, case["operation"], case["raw_response"], case["scheme"], **extra)
