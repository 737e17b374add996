"""What a gate reports to its service, one JSON object a line."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Verifying(msgspec.Struct, tag=True):
    """The service is about to be asked whether it grants the key of a connection.

    The gate reports it before it passes the bytes on that make ZeroMQ ask, and passes those of the
    next connection of the same lane on when this one is answered. So the service knows the address
    of the connection that ZeroMQ asks about, which ZeroMQ cannot know behind the gate.

    Attributes
    ----------
    lane : number of the socket at which the connection arrives; ZeroMQ names it when it asks.
    address : ``HOST:PORT`` of the client.
    """

    lane: int
    address: str


class Refusals(msgspec.Struct, tag=True):
    """Connections that the gate has refused since its last report.

    Attributes
    ----------
    counts : how many, by kind: "connection" (no or broken handshake) and "limit".
    examples : sentences about the first ones of them.
    """

    counts: dict[str, int]
    examples: list[str]


Report: TypeAlias = Verifying | Refusals

_encoder = msgspec.json.Encoder()
decode_report = msgspec.json.Decoder(Report).decode


def encode_report(report: Report) -> bytes:
    """Encode a report as one line."""
    return _encoder.encode(report) + b"\n"
