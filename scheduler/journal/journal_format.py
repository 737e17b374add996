"""The form of the records in a journal: their encoding and checksums, and the keys of its tables.

SQLite has no checksums for its database file, so a seal comes after the bytes of a record. It
covers what the record is about, too, such as the number of the job, so that a record that got into
the place of another one is noticed.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from reshape.wire.codec import may_be_non_finite
from scheduler.model.events import Event
from scheduler.model.orders import Order, Reason, WakeAt

#: Format that this release writes and reads.
FORMAT = 4
#: What the checksums of records cover besides their bytes, as of `seal`.
SITE, SUBMISSION, RECORD, SUMMARY = "site", "submission {} {}", "record {}", "summary {}"
SIZES = "sizes {} {}"
#: Changes of the size of a job that are stored together, once they are so many.
SIZES_TOGETHER = 64
#: The most frequent kinds of records, which few questions need; the indices leave them out.
ROUTINE = "('ResizePoint', 'Continue')"
#: Key in `meta` of the largest job number, for journals from which jobs were removed.
LAST_JOB = "last job"
#: Key in `meta` of the identity of the journal, which no other one has.
IDENTITY = "journal"
#: Key in `meta` of the number of transactions that the service has written.
SEQUENCE = "sequence"
#: Key in `meta` of the batch up to which the records of running jobs hold their measurements.
MEASURED = "measured"
#: Key in `meta` of the last batch from which retention has removed something.
REMOVED = "removed up to batch"
#: A seal is this, with which no record in JSON or MessagePack ends, and hexadecimal digits.
_MARK, _DIGITS = b"\nseal:", 8
_LENGTH = len(_MARK) + _DIGITS

_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()
event_decoder = msgspec.json.Decoder(Event)
order_decoder = msgspec.json.Decoder(Order)


def encode_event(event: Event) -> bytes:
    """Encode an event (JSON) so that it can be read back.

    Raises
    ------
    ValueError : a number in it is not finite, which JSON cannot hold.
    """
    blob = _encoder.encode(event)
    if b"null" in blob and may_be_non_finite(_packer.encode(event)):
        try:
            event_decoder.decode(blob)
        except msgspec.ValidationError as error:
            raise ValueError(f"{event} cannot be written to a journal: {error}") from None
    return blob


def encode_order(order: Order) -> bytes:
    """Encode an order (JSON) so that it can be read back.

    If a number of its reason is not finite, the reason is written as its sentence.
    """
    blob = _encoder.encode(order)
    if b"null" not in blob or isinstance(order, WakeAt):
        return blob
    try:
        order_decoder.decode(blob)
    except msgspec.ValidationError:
        reason = Reason(order.reason.rule, "{text}", {"text": order.reason.sentence})
        return _encoder.encode(msgspec.structs.replace(order, reason=reason))
    return blob


def seal(what: str, record: bytes) -> bytes:
    """Return a record with its seal."""
    return record + _MARK + _checksum(what, record)


def unseal(what: str, sealed: bytes) -> bytes:
    """Return a record without its seal.

    Raises
    ------
    msgspec.DecodeError : the record has no seal, has changed, or is about something else.
    """
    if not isinstance(sealed, bytes):  # another column of the database has got here
        raise msgspec.DecodeError(f"it is of the type {type(sealed).__name__}")
    if sealed[-_LENGTH:-_DIGITS] != _MARK:
        raise msgspec.DecodeError("it has no checksum")
    record = sealed[:-_LENGTH]
    if sealed[-_DIGITS:] != _checksum(what, record):
        raise msgspec.DecodeError("its checksum differs")
    return record


def _checksum(what: str, record: bytes) -> bytes:
    return b"%08x" % crc32(what.encode(), crc32(record))
