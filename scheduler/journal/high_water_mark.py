"""The high-water mark: how far a journal was written, in a file beside it.

SQLite drops all that comes after the first damaged part of its log (`journal.db-wal`), and opens an
older copy, or no file at all, without a word. The mark is written after each transaction and before
the messages that depend on it are sent. A journal that ends before its mark has therefore lost
something that was acknowledged, and a service that died between the two has a journal that is ahead
of its mark.

The mark itself is never synced: it costs one write of a few bytes into a file that has its final
size. After the death of the machine it may be older than the journal, but also newer than the
transactions that were not synced; so it holds the last synced transaction as well, and the boot of
the machine within which the other numbers hold.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError
from reshape.files.durable_files import write_durably

#: Length of the file in bytes; shorter text is padded, so that each write replaces all of it.
_LENGTH = 256
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Mark(msgspec.Struct, frozen=True):
    """How far a journal was written.

    Attributes
    ----------
    sequence : number of the last transaction.
    synced : number of the last transaction that was synced to the disk.
    job : largest job number.
    journal : identity of the journal.
    boot : identity of the boot of the machine in which the mark was written.
    """

    sequence: int = 0
    synced: int = 0
    job: int = 0
    journal: str = ""
    boot: str = ""


class HighWaterMark:
    """The mark of one journal.

    Parameters
    ----------
    journal : path of the journal; the mark is beside it.

    Attributes
    ----------
    mark : as it is in the file; None if there is no file.

    Raises
    ------
    ReshapeError : the file cannot be read.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal.with_suffix(".mark")
        self._file = -1
        self._boot = _present_boot()
        self.mark = self._read()

    def _read(self) -> Mark | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Mark)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise ReshapeError(
                f"{self.path} cannot be read ({error}), so it is not known whether the journal"
                " is complete: restore this file, or remove it if you know that it is"
            ) from None

    def missing(self, identity: str, sequence: int, job: int) -> str:
        """Say what a journal lacks; empty if it has all that its mark requires.

        Parameters
        ----------
        identity, sequence, job : of the journal; its last transaction, and largest job number.
        """
        if self.mark is None:
            return ""
        last = self.mark.sequence if self.mark.boot == self._boot else self.mark.synced
        if identity and identity != self.mark.journal:
            sequence = job = 0  # it is another journal
        if sequence >= last:
            return ""
        text = _numbers("transaction", sequence + 1, last)
        if job < self.mark.job:
            text += f", with the submission of {_numbers('job', job + 1, self.mark.job)}"
        return text

    def note(self, identity: str, sequence: int, synced: int, job: int) -> None:
        """Write the mark, unless it is what was written last.

        Raises
        ------
        OSError : it cannot be written.
        """
        mark = Mark(sequence, synced, job, identity, self._boot)
        if mark == self.mark:
            return
        text = msgspec.json.encode(mark).ljust(_LENGTH - 1) + b"\n"
        if self._file < 0:
            if self.mark is None:
                write_durably(self.path, text)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        os.pwrite(self._file, text, 0)
        self.mark = mark

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _numbers(what: str, first: int, last: int) -> str:
    return f"{what} {last}" if first == last else f"{what}s {first} to {last}"


def _present_boot() -> str:
    """Identify the present boot of the machine; empty if the system does not tell."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
