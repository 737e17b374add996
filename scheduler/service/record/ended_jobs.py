"""Ended jobs: what the journal holds of them, found by number or by filters.

The process that decides keeps no ended job in memory. Questions about one read its record and its
description (`summaries`); lists of ended jobs come in pages, the jobs that ended last first.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reshape.errors import ReshapeError
from scheduler.model.job import FINAL, Job
from scheduler.protocol import messages as m
from scheduler.replay.journal_format import SUMMARY, unseal
from scheduler.replay.journal_reader import JournalReader
from scheduler.service.record.descriptions import decode_summary, describe_ended

#: Ended jobs in one answer at most.
PAGE = 1000


def recorded_job(journal: JournalReader, number: int) -> Job | None:
    """Return a job as it was recorded last, None if there is no record that can be read."""
    for (record,) in journal.rows("SELECT record FROM records WHERE job=?", number):
        try:
            return journal.decoded_job(number, record)
        except msgspec.DecodeError as error:
            journal.report_unreadable(f"the record of job {number}", error)
    return None


def token_of(journal: JournalReader, number: int) -> str:
    """Return the token of a job's processes, "" if there is none."""
    return next((str(row[0]) for row in journal.rows(_TOKEN, number)), "")


def ended_info(journal: JournalReader, job: Job) -> m.JobInfo:
    """Describe an ended job, from its noted description if there is one."""
    return _noted(journal, job.id) or describe_ended(job, journal)


def _noted(journal: JournalReader, number: int) -> m.JobInfo | None:
    for (summary,) in journal.rows("SELECT summary FROM summaries WHERE job=?", number):
        if (plain := _readable(journal, number, summary)) is not None:
            return decode_summary(plain)
    return None


def _readable(journal: JournalReader, number: int, summary: bytes) -> bytes | None:
    """Return a noted description that can be decoded, None if it is damaged."""
    try:
        return unseal(SUMMARY.format(number), summary)
    except msgspec.DecodeError as error:
        journal.report_unreadable(f"the description of job {number}", error)
        return None


class Page(msgspec.Struct):
    """Some ended jobs, and whether more match.

    Attributes
    ----------
    jobs : descriptions (`JobInfo`, MessagePack) by number.
    before : number of the job that ended first of these if further jobs ended before it, else None.
    """

    jobs: dict[int, msgspec.Raw]
    before: int | None


def page(journal: JournalReader, query: m.ListJobs) -> Page:
    """Find the ended jobs that a question asks for.

    Raises
    ------
    ReshapeError : a filter has no meaning.
    """
    limit = PAGE if query.limit is None else min(query.limit, PAGE)
    if limit < 1:
        raise ReshapeError(f"the limit must be at least 1, got {limit}")
    rows = list(_matching(journal, query, limit + 1))
    jobs = {}
    for number, summary in rows[:limit]:
        if summary is not None and (plain := _readable(journal, number, summary)) is not None:
            jobs[number] = msgspec.Raw(plain)
        elif (job := recorded_job(journal, number)) is not None:
            jobs[number] = msgspec.Raw(msgspec.msgpack.encode(describe_ended(job, journal)))
    return Page(jobs, rows[limit - 1][0] if len(rows) > limit else None)


def _matching(
    journal: JournalReader, query: m.ListJobs, limit: int
) -> Iterator[tuple[int, bytes | None]]:
    terms, values = ["records.ended_at IS NOT NULL"], list[object]()

    def add(term: str, *given: object) -> None:
        terms.append(term)
        values.extend(given)

    if query.state is not None:
        states = {state.name: state.name for state in FINAL} | {s.value: s.name for s in FINAL}
        if query.state.upper() not in states:
            names = ", ".join(sorted(state.name for state in FINAL))
            raise ReshapeError(f"{query.state!r} is not the state of an ended job: give {names}")
        add("records.state=?", states[query.state.upper()])
    if query.user is not None:
        add("records.user=?", query.user)
    if query.name is not None:
        add("records.name=?", query.name)
    if query.since is not None:
        add("records.ended_at>=?", query.since)
    if query.until is not None:
        add("records.ended_at<=?", query.until)
    if query.before is not None:
        row = next(journal.rows("SELECT ended_at FROM records WHERE job=?", query.before), None)
        if row is None or row[0] is None:
            raise ReshapeError(f"there is no ended job {query.before} to list the earlier jobs of")
        add("(records.ended_at, records.job)<(?, ?)", row[0], query.before)
    return journal.rows(
        "SELECT records.job, summary FROM records LEFT JOIN summaries USING (job)"
        f" WHERE {' AND '.join(terms)} ORDER BY records.ended_at DESC, records.job DESC LIMIT ?",
        *(*values, limit),
    )


def without_description(journal: JournalReader, first: int, last: int) -> list[int]:
    """Return the ended jobs of a range of numbers that have no description."""
    rows = journal.rows(
        "SELECT records.job FROM records LEFT JOIN summaries USING (job)"
        " WHERE records.job BETWEEN ? AND ? AND ended_at IS NOT NULL AND summary IS NULL",
        *(first, last),
    )
    return [number for (number,) in rows]


_TOKEN = "SELECT token FROM jobs WHERE job=?"
