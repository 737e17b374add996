"""The recorded state of a site, from which forecasts begin.

It is what recovery starts from: the record of the site, and its queued and live jobs. It comes from
a site in this process, such as that of a reader, or from the journal of a service, which is opened
read-only. Each forecast builds a copy of the site; the recorded state does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from reshape.errors import ReshapeError
from scheduler.core.core import EventOrder
from scheduler.model.events import JobSpec, ResizePoint
from scheduler.model.history import History
from scheduler.model.job import COMPLETED, FINAL, PENDING, Job
from scheduler.model.machine import Machine
from scheduler.model.network import Network
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import SharedCapacity
from scheduler.policies.containment import description
from scheduler.policies.resizing.interface import Resizing
from scheduler.policies.scenario import Scenario
from scheduler.replay.compare import scenario_of
from scheduler.replay.journal_reader import JournalReader
from scheduler.sites.two_groups import TwoGroupSite
from scheduler.state.records import SiteRecord, decode_site, encode_site

#: Ended jobs, the latest, whose run times tell how estimates and run times differ.
PAST_JOBS = 1000
_encode_history = msgspec.msgpack.Encoder().encode
_decode_history = msgspec.msgpack.Decoder(History).decode


@dataclass(frozen=True)
class RecordedState:
    """The state of a site at one time.

    Parameters
    ----------
    record : encoded scheduler state, see `scheduler.state.records`.
    jobs : the queued and live jobs; they are not changed.
    scenario, kill_at_walltime, event_order : what the site decides by.
    now : time from which forecasts begin, s.
    last : number of the job that was submitted last, 0 if there was none.
    network, places, shared : of the machine.
    points : resize points after the records of their jobs, oldest first.
    ratios : run time divided by walltime of jobs that completed recently.
    arrivals : time (s) and request of the latest submissions, in order of time.
    """

    record: bytes
    jobs: Sequence[Job]
    scenario: Scenario
    kill_at_walltime: bool
    now: float
    last: int
    event_order: EventOrder = "batch"
    network: Network | None = None
    places: Mapping[str, ProcSet] = field(default_factory=dict)
    shared: SharedCapacity | None = None
    points: Sequence[ResizePoint] = ()
    ratios: Sequence[float] = ()
    arrivals: Sequence[tuple[float, JobSpec]] = ()

    @classmethod
    def of_site(cls, site: TwoGroupSite, *, last: int | None = None) -> RecordedState:
        """Record the state of a site, which may continue afterwards.

        Parameters
        ----------
        last : number of the job that was submitted last; by default the largest the site has.
        """
        machine, jobs = site.principal.machine, site.jobs
        return cls(
            record=encode_site(site.record()),
            jobs=[_copied(job) for job in jobs.values() if job.state not in FINAL],
            scenario=site.scenario,
            kill_at_walltime=site.kill_at_walltime,
            now=site.now,
            last=max(jobs, default=0) if last is None else last,
            event_order=site.principal.order,
            network=machine.space.network,
            places=machine.numbering.places,
            shared=machine.shared,
            ratios=_ratios(list(jobs.values())[-PAST_JOBS:]),
            arrivals=_arrivals(jobs.values()),
        )

    @classmethod
    def of_journal(cls, journal: JournalReader, now: float) -> RecordedState:
        """Read the state of a service from its journal.

        Parameters
        ----------
        now : time on the service's clock, s.

        Raises
        ------
        ReshapeError : the journal is damaged or holds no records of states.
        """
        with journal.one_moment():
            record = journal.site_record()
            settings = [*journal.settings().values()]
            if record is None or not settings:
                raise ReshapeError(
                    "the journal holds no recorded state: start the service of its directory once"
                    " with this release"
                )
            jobs = journal.recorded_jobs(ended=False)
            past = journal.recorded_jobs(ended=True, latest=PAST_JOBS)
            points = list(journal.points_after_records())
            last = journal.last_job()
        scenario, kill_at_walltime, machine = scenario_of(settings[-1])
        return cls(
            record=encode_site(record),
            jobs=jobs,
            scenario=scenario,
            kill_at_walltime=kill_at_walltime,
            now=max(now, record.now, max((point.at for point in points), default=record.now)),
            last=last,
            network=machine.space.network,
            places=machine.numbering.places,
            shared=machine.shared,
            points=points,
            ratios=_ratios(past),
            arrivals=_arrivals([*past, *jobs]),
        )

    def later(self, site: TwoGroupSite) -> RecordedState:
        """Record a copy of the site that was built by `site` and has run forward since.

        Jobs that still wait are those of this state: their estimates must not have changed.
        """
        known = {job.id: job for job in self.jobs}
        return replace(
            self,
            record=encode_site(site.record()),
            jobs=[
                known[job.id] if job.state is PENDING else _copied(job)
                for job in site.jobs.values()
                if job.state not in FINAL
            ],
            now=site.now,
            points=(),
        )

    def site(self) -> TwoGroupSite:
        """Build a copy of the site. Errors of its policies are contained."""
        site = TwoGroupSite(
            self.scenario,
            Machine(network=self.network, places=self.places, shared=self.shared),
            kill_at_walltime=self.kill_at_walltime,
            order=self.event_order,
            report_error=description,
        )
        site.on_policy_error = _describe
        record: SiteRecord = decode_site(self.record)
        site.restore(record, [_copied(job) for job in self.jobs], self.points)
        return site


def _copied(job: Job) -> Job:
    """Copy a job together with its history."""
    copy = job.copy()
    if job.recorded_history is not None:
        copy.recorded_history = _decode_history(_encode_history(job.recorded_history))
    return copy


def _ratios(jobs: Sequence[Job]) -> list[float]:
    """Run times divided by walltimes, of those jobs that completed."""
    return [
        (job.ended_at - job.started_at) / job.spec.walltime_s
        for job in jobs
        if job.state is COMPLETED and job.started_at is not None and job.ended_at is not None
    ]


def _arrivals(jobs: Iterable[Job]) -> list[tuple[float, JobSpec]]:
    """Times and requests of the jobs that were submitted last."""
    found = sorted(jobs, key=lambda job: job.submitted_at)[-PAST_JOBS:]
    return [(job.submitted_at, job.spec) for job in found]


def _describe(event: ResizePoint, policy: Resizing, error: Exception) -> str:
    """Describe an error of a resizing policy; the job then continues."""
    return f"{type(policy).__name__} failed for job {event.job} with {error!r}"
