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
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from reshape.errors import AccessRefused, ProtocolError, ReshapeError, ServiceUnavailable
from scheduler.client.sites import records
from scheduler.client.sites.answers import SiteAnswers, at_site
from scheduler.client.sites.records import RecordError, SubmissionRecord
from scheduler.client.sites.sites_file import QUOTED, metric_of
from scheduler.model.events import JobSpec
from scheduler.policies.assignment.dispatcher import Dispatcher
from scheduler.policies.assignment.interface import SiteRequest, cost
from scheduler.protocol import messages as m
from scheduler.protocol.client import A, connect, expect


class OutcomeUnknownError(ReshapeError):
    """A submission was sent and not answered; it may have been accepted."""


class NotReachedError(ReshapeError):
    """A site could not be reached now, so that nothing was sent to it."""


class AcceptedJob(NamedTuple):
    """A job that a site accepted."""

    site: str
    service: Path
    job: int
    key: str


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
        chosen = dispatcher.choose(request, usable, max(site.info.now for site in usable))[0]
        order.append(chosen)
        usable.remove(chosen)
    return order, left_out


def submit_to_best(
    order: Sequence[SiteAnswers],
    submission: m.Submission,
    key: str,
    timeout_s: float,
) -> tuple[AcceptedJob | None, dict[str, str]]:
    """Submit a job to the first of the sites that accepts it.

    Returns
    -------
    the accepted job, None if no site accepted it; and name of each site that did not -> why

    Raises
    ------
    OutcomeUnknownError : a site did not answer; it may have accepted the job.
    RecordError : the record cannot be written.
    ReshapeError : the key was used before.
    """
    earlier = records.read(key)
    if earlier is not None:
        raise ReshapeError(
            f"the submission key {key} was used for site {earlier.site}: give --retry {key} to"
            " repeat that submission, or use another key"
        )
    records.remove_old()
    refused: dict[str, str] = {}
    for site in order:
        description = site.description
        sent = msgspec.structs.replace(at_site(submission, description), key=key)
        record = SubmissionRecord(key, site.name, str(description.service.absolute()), sent)
        try:
            return send(record, timeout_s), refused
        except (OutcomeUnknownError, RecordError):
            raise
        except ReshapeError as error:
            records.remove(key)
            refused[site.name] = str(error)
    return None, refused


def retry(key: str, timeout_s: float) -> AcceptedJob:
    """Repeat a submission whose outcome is not known, at the site to which it was sent.

    Raises
    ------
    OutcomeUnknownError : the site does not answer.
    RecordError : the record cannot be written.
    ReshapeError : there is no submission with this key; or the site refuses it, and the job exists
        nowhere.
    """
    record = records.read(key)
    if record is None:
        raise ReshapeError(
            f"no submission with the key {key} was sent from here: submit the job again"
        )
    if record.submission is None:
        return AcceptedJob(record.site, Path(record.service), record.job, key)
    try:
        return send(record, timeout_s)
    except RecordError:
        raise
    except (OutcomeUnknownError, NotReachedError) as error:
        raise OutcomeUnknownError(
            f"site {record.site} cannot be asked ({error}): repeat 'reshape submit --sites FILE"
            f" --retry {key}' when it is up; no other site has the job"
        ) from None
    except ReshapeError as error:
        records.remove(key)
        raise ReshapeError(
            f"site {record.site} refuses the submission, and no site has the job: {error}"
        ) from None


def send(record: SubmissionRecord, timeout_s: float) -> AcceptedJob:
    """Write the record, send the submission, and note the job.

    Raises
    ------
    OutcomeUnknownError : no answer came.
    NotReachedError : the site cannot be reached; nothing was sent now.
    RecordError : the record cannot be written; nothing was sent now.
    ReshapeError : the site has refused.
    """
    assert record.submission is not None
    if records.read(record.key) != record:  # a repetition leaves the time of the record as it is
        records.write(record)
    try:
        submit = m.Submit(submission=record.submission)
        answer = ask_site(record.service, submit, m.Submitted, timeout_s)
    except OutcomeUnknownError as error:
        raise OutcomeUnknownError(
            f"site {record.site} did not answer ({error}): whether it accepted the job is not"
            f" known; 'reshape submit --sites FILE --retry {record.key}' finds out"
        ) from None
    with contextlib.suppress(ReshapeError):  # the record before leads to the same job
        records.write(msgspec.structs.replace(record, submission=None, job=answer.job))
    return AcceptedJob(record.site, Path(record.service), answer.job, record.key)


def ask_site(service: str, message: m.Message, kind: type[A], timeout_s: float) -> A:
    """Send one message to a site, and tell apart what its failure means.

    Parameters
    ----------
    kind : type of its answer.

    Raises
    ------
    OutcomeUnknownError : the message may have been sent, and no answer of the type came.
    NotReachedError : the message was not sent.
    ReshapeError : the site has refused.
    """
    try:
        client = connect(service)
    except ReshapeError as error:
        raise NotReachedError(str(error)) from None
    with client:
        try:
            return expect(kind, client.request(message, timeout_s))
        except AccessRefused as error:
            raise NotReachedError(str(error)) from None
        except (ServiceUnavailable, ProtocolError) as error:
            raise OutcomeUnknownError(str(error)) from None
