"""How the file of a table is laid out: a header, then slots; a slot has a digest, a record, and a row a process."""

from __future__ import annotations

import struct
from typing import Final

from resilient_io.control import joining, law
from resilient_io.control.law_record import LAYOUT

SLOTS: Final = 1024
ROWS: Final = 240
DIGEST_BYTES: Final = 16
HEADER_BYTES: Final = 4096
# In the header, from here on, a byte for each slot: not 0 where a process wants the level shared across the cluster.
WANTED_AT: Final = 1024
# In a slot, between the digest and the record: what part of a cluster this machine is there, when it moved to it, and
# what had come through and when.
SHARE_AT, MOVED_AT, HAD_AT = 16, 24, 32
# The heaviest of those who wait for the record, and when it last asked; and the weight of those who wait on average.
HEAVIEST_AT, WEIGHT_AT = 48, 1016
RECORD_AT, ROWS_AT = 64, 1024
ROW_BYTES: Final = 8 * (1 + joining.ROW)
SLOT_BYTES: Final = ROWS_AT + ROWS * ROW_BYTES
FILE_BYTES: Final = HEADER_BYTES + SLOTS * SLOT_BYTES
HEADER: Final = struct.pack("<8sIIII", b"RIOLIMIT", LAYOUT, SLOTS, ROWS, law.SIZE)
RECORD: Final = struct.Struct(f"{law.SIZE}d")
ROW: Final = struct.Struct(f"{1 + joining.ROW}d")

__all__ = [
    "DIGEST_BYTES",
    "FILE_BYTES",
    "HAD_AT",
    "HEADER",
    "HEADER_BYTES",
    "HEAVIEST_AT",
    "LAYOUT",
    "MOVED_AT",
    "RECORD",
    "RECORD_AT",
    "ROW",
    "ROWS",
    "ROWS_AT",
    "ROW_BYTES",
    "SHARE_AT",
    "SLOTS",
    "SLOT_BYTES",
    "WANTED_AT",
    "WEIGHT_AT",
]


def slot_at(number: int) -> int:
    """Return at which byte a slot begins."""
    return HEADER_BYTES + number * SLOT_BYTES
