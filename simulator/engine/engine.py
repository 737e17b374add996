"""Simulated jobs on a site: run times, programs and costs around the loop of the virtual clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from scheduler.model.events import Event
from scheduler.virtual_clock.agenda import Agenda
from scheduler.virtual_clock.driven import Recording
from scheduler.virtual_clock.loop import EventLoop, Physics, Tick, Watch
from simulator.engine.costs import Contiguity, Costs, ResizeCost
from simulator.engine.following_jobs import FollowingJobs
from simulator.engine.job_programs import Programs
from simulator.engine.jobs import JobList, SimJob, Submissions
from simulator.engine.rigid_jobs import RigidJobs
from simulator.engine.shared_nodes import SharingJobs
from simulator.engine.shared_programs import SharedIterations
from simulator.engine.sharing import Sharing
from simulator.results.outcomes import Result


class Engine:
    """Runs jobs through a site.

    Parameters
    ----------
    site : with its machine; it must be new. It may forget ended jobs only if `jobs` are columns.
    jobs : single jobs in any order, or columns of rigid jobs in the order of submission.
    cost : cost of a resize.
    point_s : time of a resize point without a resize, seconds.
    start_s, end_s : from the order to start a job until it computes, and from its last iteration
        until its processes are gone, seconds.
    costs : for single jobs, instead of these four: costs by the number of processes.
    rng : draws from measured costs; None: the mean each time.
    tick : called with the time now and then.
    watch : called with (time, events, orders) after each call of the site.
    allocations : keep the processors of each job, of single jobs over time.
    estimates : keep the estimate with which each job was submitted.
    contiguity : gain on contiguous processors; not together with sharing.
    requests : events that come at their times, such as requests for advance reservations.
    cpu_factors : see `RigidJobs`.
    feedback : (preceding job of each, think time in seconds); see `FollowingJobs`.
    sharing : what becomes of run times and iterations on shared nodes; the site must allocate
        individual processors and redirect no job. Single jobs need its windows "changes".
    """

    _programs: Programs | None = None
    _shared: SharedIterations | None = None
    _following: FollowingJobs | None = None

    def __init__(
        self,
        site: Recording,
        jobs: Iterable[SimJob] | Submissions,
        *,
        cost: ResizeCost | None = None,
        start_s: float = 0.0,
        end_s: float = 0.0,
        point_s: float = 0.0,
        costs: Costs | None = None,
        rng: np.random.Generator | None = None,
        watch: Watch | None = None,
        tick: Tick | None = None,
        allocations: bool = False,
        estimates: bool = False,
        contiguity: Contiguity | None = None,
        sharing: Sharing | None = None,
        requests: Iterable[Event] = (),
        cpu_factors: Mapping[int, float] | None = None,
        feedback: tuple[Sequence[int], Sequence[float]] | None = None,
    ) -> None:
        submissions: Submissions = JobList(jobs) if isinstance(jobs, Iterable) else jobs
        agenda = Agenda()
        for event in requests:
            agenda.add(event)
        run_s, specs, around_s = submissions.run_times(), submissions.specs(), start_s + end_s
        rigid = RigidJobs(agenda, run_s, around_s, contiguity, cpu_factors)
        physics: Physics = rigid
        demands = [] if sharing is None else sharing.demands([spec.shared for spec in specs])
        if isinstance(submissions, JobList):
            if costs is None:
                costs = Costs.constant(cost or ResizeCost(), start_s, end_s, point_s)
            if sharing is not None:
                self._shared = SharedIterations(agenda, demands, sharing.nodes())
            parts = (submissions.jobs, site, agenda, costs, rng, rigid, cpu_factors)
            physics = self._programs = Programs(
                *parts, self._shared, contiguity, keep_places=allocations
            )
        elif sharing is not None:
            physics = SharingJobs(agenda, run_s, demands, sharing.nodes(), around_s)
        submit_times, earlier = submissions.submit_times(), 0
        if feedback is not None:
            physics = self._following = FollowingJobs(
                physics, agenda, site, submit_times, specs, *feedback
            )
            submit_times, specs, earlier = [], [], len(specs)
        self._loop = EventLoop(
            site,
            submit_times,
            specs,
            agenda,
            physics,
            watch=watch,
            tick=tick,
            keep_allocations=allocations and self._programs is None,
            keep_estimates=estimates,
            earlier=earlier,
        )

    @property
    def submitted(self) -> list[float] | None:
        """Times of submission with feedback, seconds, nan of jobs that were not submitted.

        None without feedback: the jobs say themselves when they are submitted.
        """
        return None if self._following is None else self._following.submitted

    def run(self) -> Result:
        """Run to the end of the last job that can run."""
        loop, programs = self._loop, self._programs
        loop.run()
        return Result(
            outcomes=[] if programs is None else programs.outcomes,
            processors=loop.site.machine.processors,
            held_s=None if programs is None else programs.held_s,
            unstarted=[*loop.site.jobs],
            started=loop.started,
            ended=loop.ended,
            killed=loop.killed,
            redirected=loop.redirected,
            allocated=loop.allocated,
            places=None if programs is None else programs.places,
            computed=None if self._shared is None else self._shared.times,
            first_estimates=loop.first_estimates,
            answers=loop.answers,
        )
