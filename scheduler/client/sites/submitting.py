"""Submitting a job to one of several sites, exactly once.

===================================  ==============================================================
what happens                         what follows
===================================  ==============================================================
the client dies before the record    nothing was sent
the client, the network or the site  the record names the site; `retry` repeats the submission there
dies after the record
the site refuses                     the record is removed; the next best site gets the job
the site cannot be reached           nothing was sent; the next best site gets the job
no answer comes by the deadline      the outcome is not known: `OutcomeUnknownError`, then `retry`
===================================  ==============================================================

A record is on disk before the submission is sent. If the client, the network or the service dies
then, the outcome is not known; a repetition goes to the same site with the same submission key, so
that no other site gets the job and the site creates no second one.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path

import msgspec

from reshape.errors import AccessRefused, ProtocolError, ReshapeError, ServiceUnavailable
from reshape.files.durable_files import remove_drafts, write_durably
from scheduler.client.sites.answers import SiteAnswers, at_site
from scheduler.client.sites.sites_file import QUOTED, metric_of
from scheduler.model.events import JobSpec
from scheduler.policies.assignment.dispatcher import Dispatcher
from scheduler.policies.assignment.interface import SiteRequest, cost
from scheduler.protocol import messages as m
from scheduler.protocol.client import connect, expect
from scheduler.protocol.messages import Submission


class OutcomeUnknownError(ReshapeError):
    """A submission was sent and not answered; it may have been accepted."""


class NotReachedError(ReshapeError):
    """A site could not be reached now, so that nothing was sent to it."""


RECORDS_VARIABLE = "RESHAPE_SUBMISSIONS"
#: Records of accepted submissions are removed when they are older than this, in seconds.
KEPT_S = 30 * 86400.0
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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


def records_folder() -> Path:
    """Folder of the records: RESHAPE_SUBMISSIONS, else ~/.reshape/submissions."""
    variable = os.environ.get(RECORDS_VARIABLE)
    return Path(variable) if variable else Path.home() / ".reshape" / "submissions"


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


def write_record(record: SubmissionRecord) -> None:
    """Write a record durably; only its user can read it.

    Raises
    ------
    ReshapeError : it cannot be written.
    """
    path = _record_path(record.key)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, msgspec.json.encode(record))
    except OSError as error:
        raise ReshapeError(
            f"the record {path} cannot be written: {error.strerror}; nothing was sent"
        ) from None


def read_record(key: str) -> SubmissionRecord | None:
    """Read the record of a key; None if there is none.

    Raises
    ------
    ReshapeError : it is damaged.
    """
    check_key(key)
    path = _record_path(key)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SubmissionRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ReshapeError(f"the record {path} cannot be read: {error}") from None


def remove_record(key: str) -> None:
    """Remove the record of a submission that no site accepted."""
    _record_path(key).unlink(missing_ok=True)


def remove_old_records() -> None:
    """Remove the records of accepted submissions that were written more than `KEPT_S` ago."""
    before = time.time() - KEPT_S
    remove_drafts(records_folder(), before)
    for path in records_folder().glob("*.json"):
        with contextlib.suppress(FileNotFoundError, ReshapeError):  # removed meanwhile, or damaged
            if path.stat().st_mtime < before:
                record = read_record(path.stem)
                if record is not None and record.job:
                    path.unlink()


def _record_path(key: str) -> Path:
    return records_folder() / f"{key}.json"


def request_of(submission: m.Submission, max_cost: float = inf) -> SiteRequest:
    """Request of a submission, as policies see it; its expected run time is the walltime."""
    spec = JobSpec(
        submission.processors,
        submission.walltime_s,
        submission.largest,
        min_processors=submission.smallest,
    )
    return SiteRequest(0, spec, submission.walltime_s, "", max_cost)


def ranked(
    metric: str, request: SiteRequest, answers: Sequence[SiteAnswers]
) -> tuple[list[SiteAnswers], dict[str, str]]:
    """Order sites by a metric, the best first.

    Returns
    -------
    the sites, and name of each site that is left out -> why
    """
    left_out: dict[str, str] = {}
    usable: list[SiteAnswers] = []
    for site in answers:
        expected = cost(request, site)
        if metric in QUOTED and site.wait_s(request) == inf:
            left_out[site.name] = "it quotes no start, which this metric needs"
        elif expected > request.max_cost:
            left_out[site.name] = f"the job would cost {expected:.6g}, above {request.max_cost:g}"
        else:
            usable.append(site)
    dispatcher, order = Dispatcher(metric_of(metric)), []
    while usable:
        site = dispatcher.choose(request, usable)[0]
        order.append(site)
        usable.remove(site)
    return order, left_out


def submit_to_best(
    order: Sequence[SiteAnswers],
    submission: m.Submission,
    key: str,
    timeout_s: float,
) -> tuple[SubmissionRecord | None, dict[str, str]]:
    """Submit a job to the first of the sites that accepts it.

    Returns
    -------
    record of the accepted job, None if no site accepted it; and name of each site that did not ->
    why

    Raises
    ------
    OutcomeUnknownError : a site did not answer; it may have accepted the job.
    ReshapeError : the key was used before, or the record cannot be written.
    """
    earlier = read_record(key)
    if earlier is not None:
        raise ReshapeError(
            f"the submission key {key} was used for site {earlier.site}: give --retry {key} to"
            " repeat that submission, or use another key"
        )
    remove_old_records()
    refused: dict[str, str] = {}
    for site in order:
        description = site.description
        sent = msgspec.structs.replace(at_site(submission, description), key=key)
        record = SubmissionRecord(key, site.name, str(description.service.absolute()), sent)
        write_record(record)
        try:
            return send(record, timeout_s), refused
        except OutcomeUnknownError:
            raise
        except ReshapeError as error:
            remove_record(key)
            refused[site.name] = str(error)
    return None, refused


def retry(key: str, timeout_s: float) -> SubmissionRecord:
    """Repeat a submission whose outcome is not known, at the site to which it was sent.

    Raises
    ------
    OutcomeUnknownError : the site does not answer.
    ReshapeError : there is no submission with this key; or the site refuses it, and the job exists
        nowhere.
    """
    record = read_record(key)
    if record is None:
        raise ReshapeError(
            f"no submission with the key {key} was sent from here: submit the job again"
        )
    if record.submission is None:
        return record
    try:
        return send(record, timeout_s)
    except (OutcomeUnknownError, NotReachedError) as error:
        raise OutcomeUnknownError(
            f"site {record.site} cannot be asked ({error}): repeat 'reshape submit --sites FILE"
            f" --retry {key}' when it is up; no other site has the job"
        ) from None
    except ReshapeError as error:
        remove_record(key)
        raise ReshapeError(
            f"site {record.site} refuses the submission, and no site has the job: {error}"
        ) from None


def send(record: SubmissionRecord, timeout_s: float) -> SubmissionRecord:
    """Send the submission of a record, which is on disk; note and return the accepted job.

    Raises
    ------
    OutcomeUnknownError : no answer came.
    NotReachedError : the site cannot be reached; nothing was sent now.
    ReshapeError : the site has refused.
    """
    assert record.submission is not None
    try:
        client = connect(record.service)
    except ReshapeError as error:
        raise NotReachedError(str(error)) from None
    with client:
        try:
            submit = m.Submit(submission=record.submission)
            answer = expect(m.Submitted, client.request(submit, timeout_s))
        except AccessRefused as error:
            raise NotReachedError(str(error)) from None
        except (ServiceUnavailable, ProtocolError) as error:
            raise OutcomeUnknownError(
                f"site {record.site} did not answer ({error}): whether it accepted the job is not"
                f" known; 'reshape submit --sites FILE --retry {record.key}' finds out"
            ) from None
    accepted = msgspec.structs.replace(record, submission=None, job=answer.job)
    with contextlib.suppress(ReshapeError):  # the record before leads to the same job
        write_record(accepted)
    return accepted
