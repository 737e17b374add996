"""Records of submissions to several sites: to which site a submission was sent.

A record is on disk before the submission is sent. If the client, the network or the service dies
then, the outcome is not known; a repetition goes to the same site with the same submission key, so
that no other site gets the job and the site creates no second one.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError
from reshape.files.durable_files import remove_drafts, write_durably
from scheduler.protocol.messages import Submission

VARIABLE = "RESHAPE_SUBMISSIONS"
#: Records of accepted submissions are removed when they are older than this, in seconds.
KEPT_S = 30 * 86400.0
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RecordError(ReshapeError):
    """A record cannot be written, so that nothing may be sent."""


class SubmissionRecord(msgspec.Struct, frozen=True):
    """A submission that was, or is about to be, sent to a site.

    Parameters
    ----------
    key : submission key that the user gave, and name of the record.
    site, service : name of the site, and directory or access file of its service.
    submission : what is sent, with the key that the site gets; None once it was accepted.
    job : number of the job at the site once it was accepted; 0 before.
    """

    key: str
    site: str
    service: str
    submission: Submission | None
    job: int = 0

    def __post_init__(self) -> None:
        """Check that what is still to be sent is there."""
        if self.submission is None and not self.job:
            raise ValueError("it has neither a submission nor the number of an accepted job")


def folder() -> Path:
    """Folder of the records: RESHAPE_SUBMISSIONS, else ~/.reshape/submissions."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else Path.home() / ".reshape" / "submissions"


def new_key() -> str:
    """Return a key that was not used before."""
    return secrets.token_hex(8)


def check_key(key: str) -> None:
    """Check that a key can be the name of a file.

    Raises
    ------
    ReshapeError : it cannot.
    """
    if not _KEY.fullmatch(key):
        raise ReshapeError(
            f"{key!r} is no submission key: use up to 100 letters, digits, '.', '_' and '-', and"
            " begin with a letter or digit"
        )


def write(record: SubmissionRecord) -> None:
    """Write a record durably; only its user can read it.

    Raises
    ------
    RecordError : it cannot be written.
    """
    path = _path(record.key)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, msgspec.json.encode(record))
    except OSError as error:
        raise RecordError(
            f"the record {path} cannot be written: {error.strerror}; nothing was sent"
        ) from None


def read(key: str) -> SubmissionRecord | None:
    """Read the record of a key; None if there is none.

    Raises
    ------
    ReshapeError : it is damaged.
    """
    check_key(key)
    path = _path(key)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SubmissionRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ReshapeError(f"the record {path} cannot be read: {error}") from None


def remove(key: str) -> None:
    """Remove the record of a submission that no site accepted."""
    _path(key).unlink(missing_ok=True)


def remove_old(now: float | None = None) -> None:
    """Remove the records of accepted submissions that were written more than `KEPT_S` ago.

    Parameters
    ----------
    now : present time, Unix seconds; None: that of the clock.
    """
    before = (time.time() if now is None else now) - KEPT_S
    remove_drafts(folder(), before)
    for path in folder().glob("*.json"):
        with contextlib.suppress(FileNotFoundError, ReshapeError):  # removed meanwhile, or damaged
            if path.stat().st_mtime < before:
                record = read(path.stem)
                if record is not None and record.job:
                    path.unlink()


def _path(key: str) -> Path:
    return folder() / f"{key}.json"
