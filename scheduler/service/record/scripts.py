"""The texts of the job scripts whose jobs have not ended, each text once.

A script may have 4 MiB, and ten thousand jobs may have one each. So the service keeps no text in
memory: the journal has it in a table of its own, in the transaction of the submission, and the
submission has the digest of the text in its place. The jobs of one text, the tasks of an array
among them, share it. It is removed with the end of the last of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec.structs import replace

from scheduler.protocol.messages import Submission
from scheduler.service.record.journal import Journal


class Scripts:
    """Keeps the texts of scripts in a journal.

    Texts of jobs that are not among `submissions` are removed.

    Parameters
    ----------
    submissions : those of the jobs that have not ended, by number, as `named` returns them.
    """

    def __init__(self, journal: Journal, submissions: Mapping[int, Submission]) -> None:
        self._journal = journal
        self._jobs: dict[str, set[int]] = {}
        for job, submission in submissions.items():
            self.add(job, submission)
        for digest in journal.scripts() - self._jobs.keys():
            journal.remove_script(digest)
        self._latest = ("", "")  # digest and text

    def named(self, submission: Submission) -> Submission:
        """Return a submission with the digest of its text in place of the text."""
        return replace(submission, text=_digest(submission.text)) if submission.text else submission

    def keep(self, job: int, submission: Submission) -> Submission:
        """Note the text of a new job, and return its submission as `named` does."""
        named = self.named(submission)
        if named.text and named.text not in self._jobs:
            self._journal.add_script(named.text, submission.text)
        self.add(job, named)
        return named

    def add(self, job: int, named: Submission) -> None:
        """Note that a job has a text that is kept."""
        if named.text:
            self._jobs.setdefault(named.text, set()).add(job)

    def drop(self, job: int, named: Submission) -> None:
        """Note that a job has ended, possibly again; remove its text if no other job has it."""
        jobs = self._jobs.get(named.text, set())
        jobs.discard(job)
        if not jobs and self._jobs.pop(named.text, None) is not None:
            self._journal.remove_script(named.text)

    def text(self, named: Submission) -> str:
        """Return the text of a job that has not ended, "" if it has none.

        Raises
        ------
        LookupError : the journal does not have it, or only a damaged one.
        """
        if not named.text:
            return ""
        if self._latest[0] != named.text:
            text = self._journal.script(named.text)
            if text is None or _digest(text) != named.text:
                raise LookupError("the journal does not have its script any more")
            self._latest = named.text, text
        return self._latest[1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
