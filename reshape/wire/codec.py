"""The encoding of messages: a frame with the protocol, and one with a MessagePack object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import isfinite
from typing import Any, TypeVar

import msgspec

from reshape.errors import ProtocolError, ReshapeError
from reshape.wire.messages import ApplicationMessage, MessageBase

M = TypeVar("M")

PROTOCOL = b"reshape/2"
MAX_REQUEST_BYTES = 16 << 20
#: Answers may be larger: a list of jobs has about 1 kB for each job.
MAX_ANSWER_BYTES = 256 << 20
#: Size of the largest frame that ZeroMQ receives, relative to the largest message. `decode` refuses
#: frames between the two limits with an error; above this one, ZeroMQ closes the connection and
#: allocates no memory.
FRAME_FACTOR = 2
#: The largest frame at the service and its agents.
MAX_REQUEST_FRAME_BYTES = FRAME_FACTOR * MAX_REQUEST_BYTES


_encoder = msgspec.msgpack.Encoder()
#: Occur in each frame with an infinite or undefined number, and rarely in others: a type byte of
#: MessagePack, then an exponent of which all bits are set. (`re` finds a first literal byte fast.)
_MAYBE_NON_FINITE = (
    re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]", re.DOTALL),
    re.compile(rb"\xca[\x7f\xff][\x80-\xff]", re.DOTALL),
)

#: The largest whole number of a message: journals, and C, hold none above it.
MOST = 2**63 - 1
#: Occurs in each frame with a larger one, and often as a part of real numbers.
_HUGE = re.compile(rb"\xcf[\x80-\xff]", re.DOTALL)
#: With other digits as zeros, so many stand in the JSON of each message with a larger one.
_HUGE_AS_ZEROS, _AS_ZEROS = b"0" * 19, bytes.maketrans(b"123456789", b"0" * 9)


#: What msgspec raises for the bytes of others; deep nesting is a RecursionError.
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, MemoryError)


def encode(message: MessageBase) -> list[bytes]:
    """Encode a message as two frames.

    Raises
    ------
    ReshapeError : a text is not UTF-8, as of an argument of a command in another encoding.
    """
    try:
        return [PROTOCOL, _encoder.encode(message)]
    except UnicodeEncodeError as error:
        raise ReshapeError(f"{error.object[:40]!r} is not UTF-8 text") from None


def decode_frames(
    decoder: msgspec.msgpack.Decoder[M],
    frames: Sequence[bytes],
    max_bytes: int = MAX_REQUEST_BYTES,
) -> M:
    """Decode a message from its two frames.

    Parameters
    ----------
    decoder : decodes the types that are accepted.
    max_bytes : size of the largest message to accept.

    Raises
    ------
    ProtocolError : another version, not two frames, too many bytes, an unknown type, a field of a
        wrong type, or a number that is not finite or above 2^63 - 1. No other error is raised for
        any frames.
    """
    if len(frames) != 2 or not frames[0].startswith(b"reshape/"):
        raise ProtocolError(f"not a message of this protocol: {len(frames)} frames")
    header, body = frames
    if header != PROTOCOL:
        raise ProtocolError(
            f"the peer speaks {header[:64].decode(errors='replace')!r}, this side speaks "
            f"{PROTOCOL.decode()!r}: use the same release on both sides"
        )
    if len(body) > max_bytes:
        raise ProtocolError(f"the message has {len(body)} bytes, at most {max_bytes} are accepted")
    try:
        message = decoder.decode(body)
        is_odd = may_be_non_finite(body) or _may_have_huge(message, body)
        fault = _odd_number(msgspec.to_builtins(message)) if is_odd else ""
    except UNREADABLE as error:
        raise ProtocolError(f"malformed message: {error}") from None
    if fault:
        raise ProtocolError(f"malformed message: {fault}")
    return message


@cache
def _application_decoder() -> msgspec.msgpack.Decoder[ApplicationMessage]:
    """Make the decoder at the first message: rank 0 alone needs it, and it takes a millisecond."""
    return msgspec.msgpack.Decoder(ApplicationMessage)


def decode_application(
    frames: Sequence[bytes], max_bytes: int = MAX_REQUEST_BYTES
) -> ApplicationMessage:
    """Decode what an application receives, or sends, from its frames; see `decode_frames`."""
    return decode_frames(_application_decoder(), frames, max_bytes)


def may_be_non_finite(packed: bytes) -> bool:
    """Whether a number in a MessagePack object may be infinite or undefined.

    It is fast; a true answer may be wrong, a false one is right.
    """
    double, single = _MAYBE_NON_FINITE
    if double.search(packed) is not None:
        return True
    return b"\xca" in packed and single.search(packed) is not None  # `in` is five times as fast


def _may_have_huge(message: object, packed: bytes) -> bool:
    """Whether a message may have a whole number above `MOST`, as above."""
    if b"\xcf" not in packed or _HUGE.search(packed) is None:
        return False
    try:
        return _HUGE_AS_ZEROS in msgspec.json.encode(message).translate(_AS_ZEROS)
    except TypeError:  # a key that JSON does not have
        return True


def _odd_number(value: Any, field: str = "") -> str:
    """Describe the first number in a message that is not finite or above `MOST`; "" if none is."""
    if isinstance(value, float) and not isfinite(value):
        return f"{field} is {value}, expected a finite number"
    if isinstance(value, int) and value > MOST:
        return f"{field} is {value}, expected at most {MOST}"
    if isinstance(value, dict):
        items = [(f"{field}.{key}" if field else str(key), item) for key, item in value.items()]
        items += [(f"a name in {field}", key) for key in value if isinstance(key, int)]
    elif isinstance(value, list | tuple):
        items = [(f"{field}[{k}]", item) for k, item in enumerate(value)]
    else:
        return ""
    return next(filter(None, (_odd_number(item, name) for name, item in items)), "")
