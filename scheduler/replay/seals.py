"""Checksums of the records in a journal, since SQLite has none for its database file.

A seal comes after the bytes of a record. It covers what the record is about, too, such as the
number of the job, so that a record that got into the place of another one is noticed.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

#: A seal is this, with which no record in JSON or MessagePack ends, and hexadecimal digits.
_MARK, _DIGITS = b"\nseal:", 8
_LENGTH = len(_MARK) + _DIGITS


class BrokenSealError(msgspec.DecodeError):
    """The bytes of a record are not those that were written."""


def seal(what: str, record: bytes) -> bytes:
    """Return a record with its seal."""
    return record + _MARK + _checksum(what, record)


def unseal(what: str, sealed: bytes) -> bytes:
    """Return a record without its seal; one without a seal, of release 0.1.0, as it is.

    Raises
    ------
    BrokenSealError : the record has changed, or is about something else.
    """
    if not isinstance(sealed, bytes):  # another column of the database has got here
        raise BrokenSealError(f"it is of the type {type(sealed).__name__}")
    if sealed[-_LENGTH:-_DIGITS] != _MARK:
        return sealed
    record = sealed[:-_LENGTH]
    if sealed[-_DIGITS:] != _checksum(what, record):
        raise BrokenSealError("its checksum differs")
    return record


def _checksum(what: str, record: bytes) -> bytes:
    return b"%08x" % crc32(what.encode(), crc32(record))
