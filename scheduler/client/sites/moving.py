"""Moving a queued job to another site, so that no more than one site ever has it.

===================================  ==============================================================
what happens                         what follows
===================================  ==============================================================
the client dies before the record    the job waits where it was
the client or a site dies after the  the record has the submission and both sites: the next
record, at any later step            `rebalance`, or `submit --retry`, completes the move
the job has started meanwhile        the withdrawal is refused, and the job stays
the new site refuses the job, or     the next site gets it; the site that it left is the last one
cannot be reached
no site takes the job                the record keeps the submission until one does
no answer comes by the deadline      the next attempt repeats the same request at the same site
===================================  ==============================================================

A withdrawal is atomic at the service and may be repeated (`scheduler.protocol.messages.Withdraw`),
like a submission with its key. Each move has a submission key of its own, since a site to which a
job returns still has the withdrawn job under the earlier key.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from reshape.errors import ReshapeError
from scheduler.client.api.asking import list_jobs
from scheduler.client.sites import records
from scheduler.client.sites.answers import at_site
from scheduler.client.sites.records import LeftJob, RecordError, SubmissionRecord
from scheduler.client.sites.sites_file import SiteDescription
from scheduler.client.sites.submitting import (
    AcceptedJob,
    NotReachedError,
    OutcomeUnknownError,
    ask_site,
    retry,
    send,
)
from scheduler.protocol import messages as m


class StaysError(ReshapeError):
    """A job was not withdrawn because it has started or ended; it stays where it is."""


class UnplacedError(ReshapeError):
    """A job has left its site and no site takes it now; its record keeps the submission."""


def submission_of(record: SubmissionRecord, cpu_factor: float, timeout_s: float) -> m.Submission:
    """Read the submission of a queued job from its site, with the walltime on CPU factor 1.

    Parameters
    ----------
    cpu_factor : of the site.

    Raises
    ------
    ReshapeError : the site does not answer, or the job is not queued there.
    """
    answer = ask_site(record.service, m.ReadSubmission(job=record.job), timeout_s)
    assert isinstance(answer, m.RecordedSubmission)
    submission = answer.submission
    return msgspec.structs.replace(submission, walltime_s=submission.walltime_s / cpu_factor)


def move(
    record: SubmissionRecord,
    submission: m.Submission,
    order: Sequence[SiteDescription],
    timeout_s: float,
) -> AcceptedJob:
    """Withdraw a queued job, and submit it to the first of several sites that accepts it.

    Parameters
    ----------
    record : of the accepted job.
    submission : of the job, with the walltime on CPU factor 1.
    order : sites, the best first.

    Raises
    ------
    StaysError : the job has started or ended.
    OutcomeUnknownError : a site did not answer; `finish` completes the move.
    UnplacedError : no site takes the job; `finish` completes the move.
    RecordError : the record cannot be written; `finish` completes the move if it was begun.
    ReshapeError : another process has changed the record; nothing was done.
    """
    with records.lock():
        if records.read(record.key) != record:
            raise ReshapeError(f"the record of the key {record.key} was changed meanwhile")
        left = LeftJob(record.site, record.service, record.job, record.cpu_factor)
        leaving = _addressed(msgspec.structs.replace(record, leaves=left), submission, order[0])
        records.write(leaving)
        return _complete(leaving, order[1:], timeout_s)


def finish(key: str, others: Sequence[SiteDescription], timeout_s: float) -> AcceptedJob:
    """Complete a move that was left unfinished; repeat a first submission like `retry`.

    Parameters
    ----------
    others : sites that get the job if the one of the record refuses it, the best first.

    Raises
    ------
    StaysError : the job has started or ended where it waited before the move.
    OutcomeUnknownError : a site did not answer; the move remains unfinished.
    UnplacedError : no site takes the job.
    ReshapeError : there is no such record.
    """
    with records.lock():
        record = records.read(key)
        if record is None or not is_unfinished(record):
            return retry(key, timeout_s)
        return _complete(record, others, timeout_s)


def is_unfinished(record: SubmissionRecord) -> bool:
    """Whether a move was begun and not completed."""
    return record.moves > 0 and record.submission is not None


def _addressed(
    record: SubmissionRecord, submission: m.Submission, site: SiteDescription
) -> SubmissionRecord:
    """Record of a move to a site; the submission has the walltime on CPU factor 1."""
    moves = record.moves + 1
    sent = msgspec.structs.replace(at_site(submission, site), key=f"{record.key}~{moves}")
    return msgspec.structs.replace(
        record,
        site=site.name,
        service=str(site.service.absolute()),
        submission=sent,
        job=0,
        cpu_factor=site.cpu_factor,
        moves=moves,
        moved_at=time.time(),
    )


def _complete(
    record: SubmissionRecord, others: Sequence[SiteDescription], timeout_s: float
) -> AcceptedJob:
    """Take the steps that are left of a move."""
    assert record.submission is not None
    walltime_s = record.submission.walltime_s / record.cpu_factor
    submission = msgspec.structs.replace(record.submission, walltime_s=walltime_s)
    may_be_sent = record.leaves is None  # by the client that left the move unfinished
    if record.leaves is not None:
        _withdraw(record, record.leaves, timeout_s)
        record = msgspec.structs.replace(record, leaves=None)
    refused, left = [], list(others)
    while True:
        try:
            return send(record, timeout_s)
        except (OutcomeUnknownError, RecordError):
            raise
        except NotReachedError as error:
            if may_be_sent:
                raise OutcomeUnknownError(
                    f"site {record.site} cannot be asked whether it has the job: {error}"
                ) from None
            refused.append(f"{record.site}: {error}")
        except ReshapeError as error:
            refused.append(f"{record.site}: {error}")
        if not left:
            break
        record, may_be_sent = _addressed(record, submission, left.pop(0)), False
    raise UnplacedError(
        f"no site has the job of the key {record.key} now; its record is kept, and the next"
        f" 'reshape rebalance' submits it ({'; '.join(refused)})"
    )


def _withdraw(record: SubmissionRecord, left: LeftJob, timeout_s: float) -> None:
    """Withdraw the job that is to move; if its site refuses, the record is restored.

    Raises
    ------
    StaysError : the job has started or ended.
    OutcomeUnknownError : the site does not answer, or does not have the job any more.
    """
    assert record.submission is not None
    message = m.Withdraw(job=left.job, key=record.submission.key, to=record.site)
    unknown = f"whether job {left.site}:{left.job} was withdrawn is not known"
    try:
        ask_site(left.service, message, timeout_s)
    except (OutcomeUnknownError, NotReachedError) as error:
        raise OutcomeUnknownError(f"{unknown}: {error}") from None
    except ReshapeError as error:
        try:
            list_jobs(left.service, job=left.job)
        except ReshapeError as missing:
            raise OutcomeUnknownError(f"{unknown}: {error}; {missing}") from None
        records.write(
            msgspec.structs.replace(
                record,
                site=left.site,
                service=left.service,
                job=left.job,
                cpu_factor=left.cpu_factor,
                submission=None,
                leaves=None,
            )
        )
        raise StaysError(str(error)) from None
