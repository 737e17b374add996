"""Cancellations of jobs that were requested while no service ran; its next start decides on them.

The command alone decides nothing: the core of the service cancels the jobs before it does anything
else, so that recovery, replay and the jobs that wait for them need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reshape.errors import ReshapeError
from scheduler.journal.journal import Journal

#: Key in `meta` of the jobs to cancel, with the reasons (JSON).
_KEY = "cancel at start"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[int, str])


def request(journal: Journal, numbers: Iterable[int], user: str | None, why: str) -> list[int]:
    """Note that jobs are to be cancelled; return all that are.

    Parameters
    ----------
    user : all jobs of this user that have not ended are, too; None: no further ones.

    Raises
    ------
    ReshapeError : one of the jobs has ended, or is not in the journal; nothing is noted then.
    """
    query = "SELECT job, user FROM records WHERE ended_at IS NULL"
    users = {int(job): str(name) for job, name in journal.rows(query)}
    wanted = dict.fromkeys(numbers, why)
    for number in wanted:
        if number not in users:
            raise ReshapeError(
                f"job {number} has ended, or is not in the journal {journal.path}: 'reshape journal"
                " info' counts the jobs that have not ended"
            )
    wanted |= {number: why for number, name in users.items() if name == user}
    if user is not None and user not in users.values():
        raise ReshapeError(f"user {user} has no job that has not ended in {journal.path}")
    asked = _noted(journal) | wanted
    journal.note_meta(_KEY, _encoder.encode(asked).decode())
    return sorted(asked)


def take(journal: Journal) -> dict[int, str]:
    """Return the jobs that are to be cancelled, each with the reason, and forget them."""
    asked = _noted(journal)
    if asked:
        journal.write("DELETE FROM meta WHERE key=?", _KEY)
    return asked


def _noted(journal: Journal) -> dict[int, str]:
    text = journal.meta(_KEY)
    return {} if text is None else _decoder.decode(text)
