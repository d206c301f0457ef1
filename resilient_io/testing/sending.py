"""How an answer leaves: whole, or cut, stalled and ended as a rule says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .calls import Reply
from .http1 import body_length, body_pieces, has_body, render_head
from .plan import FaultAction, FaultRule
from .wire import PIECE_BYTES, Wire

#: Seconds between the last byte and the RST after it: the RST makes the client's kernel throw away what
#: its program has not read yet, so without a pause nobody could say how many bytes came.
RESET_GRACE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is wrong with a body: it ends (or pauses) after `after_bytes`."""

    framing: str = "length"
    after_bytes: int
    ending: str  # "fin", "rst", "clean" or "stall"
    delay_s: float = 0.0


_SHAPES = {
    FaultAction.TRUNCATE: ("length", "fin"),
    FaultAction.RESET_BODY: ("length", "rst"),
    FaultAction.EARLY_END_CHUNKED: ("chunked", "clean"),
    FaultAction.EARLY_END_EOF: ("eof", "fin"),
    FaultAction.STALL_BODY: ("length", "stall"),
}


def shape_of(rule: FaultRule) -> Shape | None:
    """Return what a rule does to a body, or None if it does nothing to it."""
    found = _SHAPES.get(rule.action)
    if found is None:
        return None
    return Shape(framing=found[0], ending=found[1], after_bytes=rule.after_bytes, delay_s=rule.delay_s)


async def send_whole(wire: Wire, reply: Reply, *, method: str, close: bool) -> int:
    """Write an answer to its end and return the bytes of its body; the kernel has all of it then."""
    if not has_body(method, reply.status):
        wire.write(render_head(reply, method=method, close=close, framing="length"))
        await wire.flush()
        return 0
    framing = "chunked" if body_length(reply) is None else "length"
    head = render_head(reply, method=method, close=close, framing=framing)
    if reply.stream is None and len(reply.body) <= PIECE_BYTES:
        wire.write(head + reply.body)  # one system call, and one packet where it fits
        await wire.flush()
        return len(reply.body)
    wire.write(head)
    sent = 0
    async for piece in body_pieces(reply):
        await _write_piece(wire, piece, framing)
        sent += len(piece)
    if framing == "chunked":
        wire.write(b"0\r\n\r\n")
    await wire.flush()
    return sent


async def send_shaped(wire: Wire, reply: Reply, shape: Shape, *, method: str, close: bool) -> tuple[int, bool]:
    """Write an answer as `shape` says; return the bytes of the body and whether the connection may live on."""
    if not has_body(method, reply.status):
        return await send_whole(wire, reply, method=method, close=close), not close
    wire.write(render_head(reply, method=method, close=close, framing=shape.framing))
    sent, stalled = 0, False
    async for piece in body_pieces(reply):
        left = shape.after_bytes - sent
        if not stalled and len(piece) > left:
            await _write_piece(wire, piece[:left], shape.framing)
            sent += left
            if shape.ending != "stall":
                break
            await stall(shape.delay_s)
            stalled, piece = True, piece[left:]
        await _write_piece(wire, piece, shape.framing)
        sent += len(piece)
    return sent, await _end(wire, shape, close=close)


async def stall(delay_s: float) -> None:
    """Say nothing for `delay_s` seconds; 0 means until the client leaves or the server stops."""
    if delay_s > 0:
        await asyncio.sleep(delay_s)
    else:
        await asyncio.get_running_loop().create_future()


async def _end(wire: Wire, shape: Shape, *, close: bool) -> bool:
    if shape.framing == "chunked":
        wire.write(b"0\r\n\r\n")
    await wire.flush()
    if shape.ending == "rst":
        await asyncio.sleep(RESET_GRACE_S)
        wire.reset()
    return shape.ending in ("clean", "stall") and not close


async def _write_piece(wire: Wire, piece: bytes | memoryview, framing: str) -> None:
    if not len(piece):
        return  # an empty chunk would be the last one
    if framing == "chunked":
        wire.write(b"%x\r\n" % len(piece))
        wire.write(piece)
        wire.write(b"\r\n")
    else:
        wire.write(piece)
    await wire.flush()
