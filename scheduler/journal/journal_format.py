"""The form of the records in a journal: their encoding and checksums, and the keys of its tables.

SQLite has no checksums for its database file, so a seal comes after the bytes of a record. It
covers what the record is about, too, such as the number of the job, so that a record that got into
the place of another one is noticed.

A submission is kept small, whatever the user has sent. Its large parts, the text of a script, the
environment and a long command, may have megabytes. They are in a table of the journal, by their
digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from zlib import crc32

import msgspec

from reshape.wire.codec import may_be_non_finite
from scheduler.model.events import Event
from scheduler.model.orders import Order, Reason, WakeAt
from scheduler.protocol.messages import Submission

#: Format that this release writes and reads.
FORMAT = 5
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
#: Key in `meta` of the last row of `orders` up to which retention has removed each `Continue`.
CONTINUE_REMOVED = "continue orders removed"
#: Characters of program and arguments that are kept with the submission; there is more in a part.
MOST_COMMAND = 4096
#: A seal is this, with which no record in JSON or MessagePack ends, and hexadecimal digits.
_MARK, _DIGITS = b"\nseal:", 8
_LENGTH = len(_MARK) + _DIGITS

_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()
_fields = attrgetter(*Submission.__struct_fields__)
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


class KeptSubmission(Submission, omit_defaults=True):
    """A submission without its large parts.

    Attributes
    ----------
    text : digest of the text of its job script; "": it has none.
    environment : variables besides those of the part, such as those of a task.
    environment_part : digest of its environment; "": `environment` has all of it.
    command_part : digest of its wrapper, program and arguments; "": the submission has them. With
        one, `argv` has the first of them, to be shown.
    """

    environment_part: str = ""
    command_part: str = ""

    @property
    def parts(self) -> list[str]:
        """Digests of its parts."""
        return [name for name in (self.text, self.environment_part, self.command_part) if name]


@dataclass
class Launch:
    """How a job is started: its submission, and the token that its processes send."""

    submission: KeptSubmission
    token: str


def kept(submission: Submission) -> tuple[KeptSubmission, dict[str, bytes]]:
    """Return a submission without its large parts, and these by their digests."""
    small = KeptSubmission(*_fields(submission))
    parts: dict[str, bytes] = {}
    if small.text:
        small.text = _add(parts, small.text.encode())
    if small.environment:
        small.environment_part = _add(parts, _encoder.encode(small.environment))
        small.environment = {}
    if _is_long(small.wrapper, small.argv):
        small.command_part = _add(parts, _encoder.encode((small.wrapper, small.argv)))
        small.wrapper, small.argv = [], _begin(small.argv)
    return small, parts


def digest(part: bytes) -> str:
    """Name of a part."""
    return hashlib.sha256(part).hexdigest()


def _add(parts: dict[str, bytes], part: bytes) -> str:
    name = digest(part)
    parts[name] = part
    return name


def _is_long(wrapper: Sequence[str], argv: Sequence[str]) -> bool:
    words = len(wrapper) + len(argv)
    return words > MOST_COMMAND or sum(map(len, (*wrapper, *argv))) + words > MOST_COMMAND


def _begin(argv: Sequence[str]) -> list[str]:
    """Start of a command, its last word with three dots."""
    begin: list[str] = []
    left = MOST_COMMAND
    for word in argv:
        if len(word) >= left:
            begin.append(f"{word[:left]}...")
            break
        begin.append(word)
        left -= len(word) + 1
    return begin
