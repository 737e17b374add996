"""Public bytes of a handshake of ZMTP 3.1 with CURVE, with zeros for what is encrypted."""

from __future__ import annotations

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING = SIGNATURE + b"\x03\x01CURVE" + bytes(47)
HELLO = b"\x04\xc8\x05HELLO" + bytes(194)
INITIATE = b"\x06" + (292).to_bytes(8, "big") + b"\x08INITIATE" + bytes(283)
SHORT_INITIATE = b"\x04\xf0\x08INITIATE" + bytes(231)
WELCOME = GREETING + b"\x04\xa8\x07WELCOME" + bytes(160)
