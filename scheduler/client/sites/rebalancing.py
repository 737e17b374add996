"""Moving jobs that still wait to sites whose quotes are clearly better.

Only jobs that `submit --sites` sent from here are moved; their records tell where they are. A job
is moved before the next one is examined, so that each decision sees the moves before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from reshape.errors import ReshapeError
from scheduler.client.api.asking import list_jobs
from scheduler.client.forecasting import expected_starts
from scheduler.client.sites import records
from scheduler.client.sites.answers import SiteAnswers, at_once, collect
from scheduler.client.sites.moving import (
    StaysError,
    UnplacedError,
    finish,
    is_unfinished,
    move,
    submission_of,
)
from scheduler.client.sites.records import RecordError, SubmissionRecord
from scheduler.client.sites.sites_file import SiteDescription, SitesFile
from scheduler.client.sites.submitting import AcceptedJob, OutcomeUnknownError, ranked, request_of
from scheduler.forecasts.answers import JobForecast
from scheduler.model.job import JobState
from scheduler.policies.assignment.moves import Expectation, MoveRules
from scheduler.protocol.messages import JobInfo, Submission

#: "unknown": a site did not answer, or the record of a begun move cannot be written; "unplaced": no
#: site has the job now.
Outcome: TypeAlias = Literal[
    "stays", "rests", "would move", "moved", "has started", "failed", "unknown", "unplaced"
]


class Examined(msgspec.Struct, frozen=True):
    """A waiting job, and what was done with it.

    Parameters
    ----------
    key : of its record.
    site, job : where it waited.
    wait_s : expected wait there from now on; None if it is not expected to start.
    to, to_wait_s : site with the shortest quoted wait among the other ones, and this wait; None if
        no other site quotes one.
    outcome : see `Outcome`.
    new_job : its number at the new site if it was moved.
    note : why it was not moved.
    """

    key: str
    site: str
    job: int
    wait_s: float | None
    to: str | None
    to_wait_s: float | None
    outcome: Outcome
    new_job: int | None = None
    note: str = ""


class Pass(msgspec.Struct, frozen=True):
    """The result of one examination of all waiting jobs.

    Parameters
    ----------
    now : time of its beginning, Unix seconds.
    jobs : the examined ones.
    passed_over : name of each site that did not answer -> why.
    """

    now: float
    jobs: list[Examined]
    passed_over: dict[str, str]


class _SiteQueue(NamedTuple):
    """The queued jobs of a site, and their forecasts in order of their expected starts."""

    now: float
    queued: Mapping[int, JobInfo]
    starts: Sequence[JobForecast]


def rebalance(sites: SitesFile, rules: MoveRules, *, dry_run: bool = False) -> Pass:
    """Complete unfinished moves, then examine the waiting jobs of all sites once and move them.

    Parameters
    ----------
    dry_run : move no job; each is examined as if it were the only one to move.

    Raises
    ------
    ReshapeError : a record is damaged, or the folder of the records cannot be written.
    """
    now, examination = time.time(), _Rebalance(sites, rules, dry_run)
    return Pass(now, list(examination.run()), examination.passed_over)


class _Rebalance:
    """One examination; the parameters are those of `rebalance`."""

    def __init__(self, sites: SitesFile, rules: MoveRules, dry_run: bool) -> None:
        self._sites, self._rules, self._dry_run = sites, rules, dry_run
        self._queues: dict[str, _SiteQueue] = {}
        self.passed_over: dict[str, str] = {}

    def run(self) -> Iterator[Examined]:
        """Complete unfinished moves, then examine the waiting jobs."""
        records.remove_old()
        all_records = records.read_all()
        yield from (self._finished(record) for record in all_records if is_unfinished(record))
        all_records = records.read_all()
        accepted = [record for record in all_records if record.job]
        self._ask_queues([site for site in self._sites.sites if _has_job(accepted, site)])
        for site in self._sites.sites:
            yield from self._examine_site(site, [r for r in accepted if _is_at(r, site)])

    def _ask_queues(self, sites: Sequence[SiteDescription]) -> None:
        """Ask for the queues of sites at once."""
        queues, failed = at_once(sites, _queue_of, self._sites.deadline_s)
        self._queues |= queues
        self.passed_over |= failed

    def _finished(self, record: SubmissionRecord) -> Examined:
        """Complete a move that was left unfinished."""
        if self._dry_run:
            return _outcome(record, "would move", "a move was begun and is not complete")
        others = [site for site in self._sites.sites if site.name != record.site]
        try:
            done = finish(record.key, others, self._sites.deadline_s)
        except ReshapeError as error:
            return _outcome(record, _failure(error), str(error))
        left = record if record.leaves is None else record.leaves
        return Examined(
            record.key, left.site, left.job, None, done.site, None, "moved", done.job, "completed"
        )

    def _examine_site(
        self, site: SiteDescription, accepted: Sequence[SubmissionRecord]
    ) -> Iterator[Examined]:
        """Examine the jobs of a site in order of their expected starts."""
        if site.name not in self._queues:
            return
        queue = self._queues[site.name]
        by_number = {record.job: record for record in accepted}
        waiting = [by_number[start.job] for start in queue.starts if start.job in by_number]
        for record in waiting[: self._rules.depth]:
            if site.name not in self._queues:  # a move has changed it
                self._ask_queues([site])
            queue = self._queues.get(site.name, _SiteQueue(time.time(), {}, ()))
            forecast = next((start for start in queue.starts if start.job == record.job), None)
            if forecast is not None and _may_leave(queue.queued[record.job]):
                yield self._examine(record, site, queue.now, forecast)

    def _examine(
        self, record: SubmissionRecord, site: SiteDescription, now: float, forecast: JobForecast
    ) -> Examined:
        """Ask the other sites for quotes for a job, and move it to one that is clearly better."""
        present = Expectation(
            inf if forecast.start is None else forecast.start - now,
            inf if forecast.end is None else forecast.end - now,
        )
        if not self._rules.may_move_at(time.time(), record.last_move):
            note = f"it was moved {time.time() - record.moved_at:.0f} s ago"
            return _outcome(record, "rests", note, present)
        try:
            submission = submission_of(record, site.cpu_factor, self._sites.deadline_s)
        except ReshapeError as error:
            return _outcome(record, "failed", str(error), present)
        order, without = self._quotes(record, site, submission)
        if not order:
            why = "; ".join(f"{name}: {reason}" for name, reason in without.items())
            return _outcome(record, "stays", why or "there is no other site", present)
        quoted = [_expectation(answer) for answer in order]
        chosen = self._rules.choice(present, quoted)
        if chosen is None:
            return _outcome(record, "stays", "", present, order[0])
        best = order.pop(chosen)
        if self._dry_run:
            return _outcome(record, "would move", "", present, best)
        targets = [answer.description for answer in (best, *order)] + [site]
        try:
            moved = move(record, submission, targets, self._sites.deadline_s)
        except ReshapeError as error:
            return _outcome(record, _failure(error), str(error), present, best)
        self._queues.pop(site.name)
        self._queues.pop(moved.site, None)
        return _moved(_outcome(record, "moved", "", present, best), moved)

    def _quotes(
        self, record: SubmissionRecord, site: SiteDescription, submission: Submission
    ) -> tuple[list[SiteAnswers], dict[str, str]]:
        """Answers of the other sites that may take a job, the shortest wait first.

        Returns
        -------
        the answers, and name of each other site -> why it is left out
        """
        others = [other for other in self._sites.sites if other.name != site.name]
        answers, failed = collect(others, submission, self._sites.deadline_s)
        limit = inf if record.max_cost is None else record.max_cost
        order, left_out = ranked("wait", request_of(submission, limit), answers)
        return order, failed | left_out


def _queue_of(site: SiteDescription) -> _SiteQueue:
    """Ask a site for its queued jobs and their forecasts."""
    listing = list_jobs(site.service)
    queued = {job.job: job for job in listing.jobs if job.state == JobState.PENDING.name}
    starts = expected_starts(site.service) if queued else []
    return _SiteQueue(listing.now, queued, [start for start in starts if start.job in queued])


def _is_at(record: SubmissionRecord, site: SiteDescription) -> bool:
    return Path(record.service) == site.service.absolute()


def _has_job(accepted: Sequence[SubmissionRecord], site: SiteDescription) -> bool:
    return any(_is_at(record, site) for record in accepted)


def _may_leave(job: JobInfo) -> bool:
    """Whether a queued job has never started, so that nothing of it is at its site."""
    return not job.requeues and job.redirected_at is None


def _expectation(site: SiteAnswers) -> Expectation:
    quote = site.quoted
    wait_s = inf if quote.wait_s is None else quote.wait_s
    return Expectation(wait_s, inf if quote.end is None else quote.end - quote.now)


def _failure(error: ReshapeError) -> Outcome:
    if isinstance(error, StaysError):
        return "has started"
    if isinstance(error, OutcomeUnknownError | RecordError):
        return "unknown"
    return "unplaced" if isinstance(error, UnplacedError) else "failed"


def _outcome(
    record: SubmissionRecord,
    outcome: Outcome,
    note: str,
    present: Expectation | None = None,
    best: SiteAnswers | None = None,
) -> Examined:
    return Examined(
        record.key,
        record.site,
        record.job,
        None if present is None or present.wait_s == inf else present.wait_s,
        None if best is None else best.name,
        None if best is None else best.quoted.wait_s,
        outcome,
        note=note,
    )


def _moved(examined: Examined, moved: AcceptedJob) -> Examined:
    note = "" if moved.site == examined.to else f"{examined.to} did not take it"
    return msgspec.structs.replace(examined, to=moved.site, new_job=moved.job, note=note)
