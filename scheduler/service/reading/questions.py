"""Questions that only read the journal, and their answers.

The reader answers them (`scheduler.service.reading.reader_process`). What only the process that
decides can contribute, the jobs that have not ended and why they wait, is a part of the question.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from reshape.errors import ProtocolError, ReshapeError
from reshape.wire.codec import PROTOCOL, encode
from scheduler.protocol import messages as m
from scheduler.replay.journal_reader import JournalReader
from scheduler.service.record.clock import noted_ahead_s
from scheduler.service.record.ended_jobs import page, recorded_job
from scheduler.service.record.explanations import explanation_lines
from scheduler.service.record.retention import removed_lines
from scheduler.service.record.wall_times import ahead_of_job_s

_encoder = msgspec.msgpack.Encoder()


class ListQuestion(msgspec.Struct, tag=True):
    """Which jobs there are.

    Attributes
    ----------
    live : descriptions (`JobInfo`, MessagePack) of the jobs that have not ended, by number.
    """

    query: m.ListJobs
    now: float
    live: dict[int, msgspec.Raw]


class ExplainQuestion(msgspec.Struct, tag=True):
    """What happened to a job; `present` is why it waits now, if it does."""

    job: int
    present: list[m.Story]


Question: TypeAlias = ListQuestion | ExplainQuestion


class _Jobs(msgspec.Struct, tag="Jobs"):
    """The message `Jobs` of encoded descriptions."""

    id: int
    now: float
    jobs: list[msgspec.Raw]
    before: int | None


def answer(journal: JournalReader, request: int, question: Question) -> list[bytes]:
    """Answer a question with the frames of a message; an error is answered with `Failure`."""
    try:
        if isinstance(question, ListQuestion):
            return [PROTOCOL, _encoder.encode(_listing(journal, request, question))]
        return encode(_explanation(journal, request, question))
    except (ReshapeError, ProtocolError) as error:
        return encode(m.Failure(id=request, message=str(error)))


def _listing(journal: JournalReader, request: int, question: ListQuestion) -> _Jobs:
    query = question.query
    found, before = dict(question.live), None
    if query.ended:
        ended = page(journal, query)
        found, before = ended.jobs | found, ended.before
    return _Jobs(request, question.now, [found[number] for number in sorted(found)], before)


def _explanation(journal: JournalReader, request: int, question: ExplainQuestion) -> m.Explanation:
    number = question.job
    job = recorded_job(journal, number)
    ahead_s = noted_ahead_s(journal) if job is None else ahead_of_job_s(journal, job)
    lines = explanation_lines(
        journal.events_of(number),
        journal.orders_of(number, routine=True),
        journal.phases_of(number),
        ahead_s,
    )
    lines += removed_lines(journal, number, ahead_s)
    lines.sort(key=lambda line: line.at)
    return m.Explanation(id=request, job=number, lines=[*lines, *question.present])
