"""The base of all messages."""

from __future__ import annotations

import msgspec


class MessageBase(msgspec.Struct, tag=True, kw_only=True):
    """Base of all messages; `id` pairs an answer with its request."""

    id: int = 0
