"""One client connection from its first byte to its last: read a head, decide, answer, again."""

from __future__ import annotations

import asyncio
import logging

from .admin import ADMIN_ROOT, answer_admin
from .calls import BackendFailed, Call, Head, Reply
from .engine import Engine
from .http1 import RequestBody, parse_request, wants_close
from .ledger import Exchange
from .plan import Ceiling, FaultAction, FaultRule, Outage
from .sending import send_shaped, send_whole, shape_of, stall
from .wire import Wire

logger = logging.getLogger(__name__)

_MADE_UP = frozenset(
    {
        FaultAction.ERROR,
        FaultAction.BODYLESS_ERROR,
        FaultAction.OK_WITH_ERROR,
        FaultAction.OK_EMPTY,
        FaultAction.INVALID_XML,
    }
)
_SEVERED = {
    FaultAction.RESET_BEFORE: (False, True),  # applied, with RST
    FaultAction.RESET_AFTER: (True, True),
    FaultAction.CLOSE_BEFORE: (False, False),
    FaultAction.CLOSE_AFTER: (True, False),
}
_DROPPED_HEADERS = {
    FaultAction.IGNORE_RANGE: ("range", "x-ms-range"),
    FaultAction.IGNORE_IF_NONE_MATCH: ("if-none-match",),
}


async def serve(wire: Wire, engine: Engine) -> None:
    """Answer the requests of a connection until one side ends it."""
    try:
        while (raw := await wire.read_head()) is not None:
            if not await _serve_one(wire, engine, parse_request(raw)):
                break
    except (ConnectionError, ValueError) as error:
        logger.debug("connection ended: %s", error)
    except Exception:  # a fault of this server: the client sees a closed connection, the log why
        logger.exception("a request could not be served")
    finally:
        wire.close()


async def _serve_one(wire: Wire, engine: Engine, head: Head) -> bool:
    body = RequestBody(wire, head)
    if head.target.startswith(ADMIN_ROOT):
        reply = await answer_admin(engine, head, body)
        await send_whole(wire, reply, method=head.method, close=False)
        return True
    call = engine.protocol.parse(head, prefix_depth=engine.plan.prefix_depth)
    if engine.protocol.body_tells(call):
        call = engine.protocol.refined(call, await body.look(), prefix_depth=engine.plan.prefix_depth)
    exchange = engine.ledger.begin(head, call, engine.request_id())
    try:
        return await _Turn(wire, engine, head, call, body, exchange).run()
    except asyncio.CancelledError:
        exchange.outcome = exchange.outcome or "gone"
        raise
    except BackendFailed as failed:
        return await _answer_502(wire, engine, head, call, exchange, str(failed))
    except (ConnectionError, ValueError):
        exchange.outcome = "failed" if wire.alive else exchange.outcome or "gone"
        return False
    finally:
        engine.ledger.finish(exchange)


async def _answer_502(wire: Wire, engine: Engine, head: Head, call: Call, exchange: Exchange, message: str) -> bool:
    logger.warning("%s %s: no answer from the upstream: %s", head.method, head.path, message)
    exchange.status, exchange.outcome = 502, "failed"
    reply = engine.protocol.error(head, call, status=502, code=None, message=message, request_id=exchange.request_id)
    await send_whole(wire, reply, method=head.method, close=True)
    return False


class _Turn:
    """One request on its way through: the names that every step needs."""

    __slots__ = ("body", "call", "close", "early", "engine", "exchange", "head", "wire")

    def __init__(
        self, wire: Wire, engine: Engine, head: Head, call: Call, body: RequestBody, exchange: Exchange
    ) -> None:
        self.wire, self.engine, self.head, self.call = wire, engine, head, call
        self.body, self.exchange = body, exchange
        self.close, self.early = wants_close(head.headers, head.raw), False

    async def run(self) -> bool:
        """Do what the plan says; return whether the connection lives on."""
        decision = self.engine.decide(self.call)
        if decision.refused_by is not None:
            return await self._refuse(decision.refused_by, decision.latency_s)
        self.body.invite()
        if decision.latency_s > 0:
            await asyncio.sleep(decision.latency_s)
        if decision.rule is None:
            return await self._send(await self._apply())
        self.exchange.outcome, self.exchange.cause = "fault", decision.rule.label
        return await self._break(decision.rule)

    async def _refuse(self, refused_by: Ceiling | Outage, latency_s: float) -> bool:
        self.exchange.outcome, self.exchange.cause = "refused", refused_by.name
        refusal = self.engine.refusal_of(refused_by)
        if refusal.before_body and self.body.awaited:
            # What the client sends after this is not read: nobody knows whether it will send it.
            self.close = self.early = True
        else:
            await self.body.drop()
        if latency_s > 0:
            await asyncio.sleep(latency_s)
        return await self._send(self.engine.refused(self.head, self.call, refusal, self.exchange.request_id))

    async def _break(self, rule: FaultRule) -> bool:
        if rule.action in _MADE_UP:
            return await self._make_up(rule)
        if rule.action in _SEVERED:
            applied, with_reset = _SEVERED[rule.action]
            return await self._sever(applied=applied, with_reset=with_reset)
        if rule.action is FaultAction.STALL_BEFORE:
            await self.body.drop()
            await stall(rule.delay_s)
            return False
        if rule.action is FaultAction.DELAY:
            await asyncio.sleep(rule.delay_s)
        if rule.action in _DROPPED_HEADERS:
            _drop_headers(self.head, _DROPPED_HEADERS[rule.action])
        if rule.action is FaultAction.SHORT_RANGE:
            _shorten_range(self.head, rule.after_bytes)
        return await self._send(await self._apply(), rule)

    async def _make_up(self, rule: FaultRule) -> bool:
        await self._maybe_apply(applied=rule.after_commit)
        return await self._send(self.engine.injected(self.head, self.call, rule, self.exchange.request_id))

    async def _sever(self, *, applied: bool, with_reset: bool) -> bool:
        await self._maybe_apply(applied=applied)
        if with_reset:
            self.wire.reset()
        return False

    async def _maybe_apply(self, *, applied: bool) -> None:
        """Read the body, and let the store do the work if it is `applied`; its answer is dropped."""
        if applied:
            reply = await self._apply()
            if reply.release is not None:
                reply.release()
        await self.body.drop()

    async def _apply(self) -> Reply:
        return await self.engine.backend.answer(self.head, self.call, self.body, self.exchange.request_id)

    async def _send(self, reply: Reply, rule: FaultRule | None = None) -> bool:
        exchange, shape = self.exchange, None if rule is None else shape_of(rule)
        exchange.status = reply.status
        exchange.outcome = exchange.outcome or ("ok" if reply.status < 400 else "error")
        before = self.wire.written_bytes
        try:
            if not self.early:
                await self.body.drop()
            if shape is not None:
                sent = send_shaped(self.wire, reply, shape, method=self.head.method, close=self.close)
                exchange.sent_bytes, keep = await sent
                return keep
            exchange.sent_bytes = await send_whole(self.wire, reply, method=self.head.method, close=self.close)
            return not self.close
        except (ConnectionError, asyncio.CancelledError):
            # With the head; the client closed in the middle.
            exchange.sent_bytes = self.wire.written_bytes - before
            raise
        finally:
            if reply.release is not None:
                reply.release()


def _shorten_range(head: Head, length_bytes: int) -> None:
    """Ask the store for no more than the first bytes of the range, at least one of them."""
    for name in ("range", "x-ms-range"):
        first, dash, _ = head.headers.get(name, "").removeprefix("bytes=").partition("-")
        if dash and first.isdigit():
            short = f"bytes={first}-{int(first) + max(length_bytes, 1) - 1}"
            head.headers[name] = short
            lines = head.raw.split(b"\r\n")
            ours = name.encode()
            head.raw = b"\r\n".join(
                f"{name}: {short}".encode() if line.partition(b":")[0].lower() == ours else line for line in lines
            )


def _drop_headers(head: Head, names: tuple[str, ...]) -> None:
    """Take headers out of both forms of the head."""
    for name in names:
        head.headers.pop(name, None)
    dropped = {name.encode() for name in names}
    lines = head.raw.split(b"\r\n")
    head.raw = b"\r\n".join(line for line in lines if line.partition(b":")[0].lower() not in dropped)
