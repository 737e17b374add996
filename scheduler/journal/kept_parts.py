"""The large parts of the submissions whose jobs have not ended, each part once.

A script may have 4 MiB, an environment and a command 6 MiB, and ten thousand jobs may have one of
each. So the service keeps none of them in memory: the journal has it in a table of its own, in the
transaction of the submission, and the submission has the digest of the part in its place. A part is
read when a group of its job starts. Jobs with an equal part, the tasks of an array among them,
share it. It is removed when the last of them has ended and left nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import KeptSubmission, digest
from scheduler.journal.journal_reader import lost_submission
from scheduler.protocol.messages import Submission

log = logging.getLogger(__name__)

_REMOVE = "DELETE FROM scripts WHERE digest=?"

_fields = attrgetter(*Submission.__struct_fields__)
_environment = msgspec.json.Decoder(dict[str, str])
_command = msgspec.json.Decoder(tuple[list[str], list[str]])


class KeptParts:
    """Keeps the parts of submissions in a journal.

    Parts of jobs that are not among `submissions` are removed.

    Parameters
    ----------
    submissions : those of the jobs that have not ended, by number.
    """

    def __init__(self, journal: Journal, submissions: Mapping[int, KeptSubmission]) -> None:
        self._journal = journal
        self._jobs: dict[str, set[int]] = {}
        for job, submission in submissions.items():
            self.add(job, submission)
        for name in journal.parts() - self._jobs.keys():
            journal.write(_REMOVE, name)

    def keep(self, job: int, parts: Mapping[str, bytes]) -> None:
        """Note the parts of a new job."""
        for name, part in parts.items():
            if name not in self._jobs:
                self._journal.write("INSERT OR REPLACE INTO scripts VALUES (?, ?)", name, part)
            self._jobs.setdefault(name, set()).add(job)

    def add(self, job: int, submission: KeptSubmission) -> None:
        """Note that a job has parts that are kept."""
        for name in submission.parts:
            self._jobs.setdefault(name, set()).add(job)

    def drop(self, job: int, submission: KeptSubmission) -> None:
        """Note that a job has ended, possibly again; remove the parts that no other job has."""
        for name in submission.parts:
            jobs = self._jobs.get(name, set())
            jobs.discard(job)
            if not jobs and self._jobs.pop(name, None) is not None:
                self._journal.write(_REMOVE, name)

    def size(self, submission: KeptSubmission) -> int:
        """Return the bytes of the parts of a submission."""
        query = "SELECT length(text) FROM scripts WHERE digest=?"
        return sum(size for name in submission.parts for (size,) in self._journal.rows(query, name))

    def environment(self, job: int, submission: KeptSubmission) -> dict[str, str]:
        """Return the environment of a job; without its part if the journal has lost that."""
        name = submission.environment_part
        part = self._part(job, name) if name else None
        return (_environment.decode(part) if part else {}) | submission.environment

    def whole(self, job: int, submission: KeptSubmission) -> Submission:
        """Return the submission of a job as its user has given it.

        If the journal has lost a part, it is that of a program that fails at once.
        """
        made = Submission(*_fields(submission))
        parts = {name: self._part(job, name) for name in submission.parts}
        present = {name: part for name, part in parts.items() if part is not None}
        if len(present) < len(parts):
            return replace(made, argv=lost_submission().argv, text="", wrapper=[])
        if submission.environment_part:
            made.environment = _environment.decode(present[submission.environment_part])
            made.environment |= submission.environment
        if submission.text:
            made.text = present[submission.text].decode(errors="replace")
        if submission.command_part:
            made.wrapper, made.argv = _command.decode(present[submission.command_part])
        return made

    def _part(self, job: int, name: str) -> bytes | None:
        """Return a part; None if the journal does not have it, or only a damaged one."""
        part = self._journal.part(name)
        if part is None or digest(part) != name:
            log.error("job %d: the journal has lost its script, environment or command", job)
            return None
        return part
