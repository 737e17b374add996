"""Simulated jobs on a site: run times, programs and costs around the loop of the virtual clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import Driven, EventLoop, Physics, Recording, Tick, Watch
from scheduler.core.core import Core
from scheduler.model.events import Event, JobEnded, JobSpec, JobSubmitted
from scheduler.model.job import FINAL
from scheduler.model.machine import CONSERVED, Machine
from scheduler.model.orders import Order, Refuse, Reserve
from scheduler.partition.partition import EventOrder
from scheduler.policies.containment import failure
from scheduler.policies.scenario import Scenario
from simulator.engine.costs import NO_COSTS, Costs
from simulator.engine.job_programs import Programs
from simulator.engine.jobs import SimJob, columns_of
from simulator.engine.physics import RunTimeOn, Sharing
from simulator.engine.rigid_jobs import RigidJobs, SharedIterations
from simulator.results.schedule import Schedule, Sizes
from simulator.traces.trace_jobs import TraceJobs


def simulated_core(
    scenario: Scenario,
    machine: Machine,
    others: Mapping[str, Machine] | None = None,
    *,
    kill_at_walltime: bool,
    order: EventOrder = "batch",
    keep_ended: bool,
) -> Core:
    """Return a core for a simulation; the arguments are those of `scheduler.core.core.Core`.

    What drives the core raises ReshapeError if a policy raises an exception: it names the policy,
    its method, the simulated time, and the file and line.
    """
    core: Core | None = None

    def failed(kind: str, policy: object, method: str, error: BaseException) -> str:
        at = "" if core is None else f" at {max(core.now, 0.0):g} s of the simulation"
        raise failure(kind, policy, method, error, at) from error

    core = Core(
        scenario,
        machine,
        others,
        kill_at_walltime=kill_at_walltime,
        order=order,
        keep_ended=keep_ended,
        report_error=failed,
    )
    return core


#: Relative rounding error of a sum of processor-seconds, at most.
ROUNDING = 1e-9


class Engine:
    """Runs jobs through a site.

    Parameters
    ----------
    site : with its machine; it must be new. It may forget ended jobs only if `jobs` are columns.
    jobs : single jobs in any order, or columns of rigid jobs in the order of submission.
    columns : of single jobs, in the order of submission, if they come from a trace.
    costs : of single jobs.
    rng : draws from measured costs; None: the mean each time.
    tick : called with the time now and then.
    watch : called with (time, events, orders) after each call of the site.
    allocations : keep the processors of each job, of single jobs over time.
    estimates : keep the estimate with which each job was submitted.
    contiguity : gain on contiguous processors; not together with sharing.
    requests : events that come at their times, such as requests for advance reservations.
    cpu_factors : see `RigidJobs`.
    feedback : preceding job and think time of each job, see `preceding_jobs`; it is submitted when
        the preceding one has ended.
    sharing : what becomes of run times and iterations on shared nodes; the site must allocate
        individual processors and redirect no job. Single jobs need its windows "changes".
    """

    _programs: Programs | None = None
    _shared: SharedIterations | None = None
    _submitted: list[float] | None = None

    def __init__(
        self,
        site: Recording,
        jobs: Iterable[SimJob] | TraceJobs,
        *,
        columns: TraceJobs | None = None,
        costs: Costs = NO_COSTS,
        rng: np.random.Generator | None = None,
        watch: Watch | None = None,
        tick: Tick | None = None,
        allocations: bool = False,
        estimates: bool = False,
        contiguity: RunTimeOn | None = None,
        sharing: Sharing | None = None,
        requests: Iterable[Event] = (),
        cpu_factors: Mapping[int, float] | None = None,
        feedback: Sequence[tuple[int, float]] | None = None,
    ) -> None:
        agenda = Agenda()
        for event in requests:
            agenda.add(event)
        if isinstance(jobs, TraceJobs):
            single, self._jobs, specs = None, jobs, jobs.specs()
        else:
            single = sorted(jobs, key=lambda job: job.at)
            self._jobs = columns_of(single) if columns is None else columns
            specs = [job.spec for job in single]
        submit_times, run_s = self._jobs.submitted.tolist(), self._jobs.run.tolist()
        shared = _shared_iterations(sharing, agenda, specs)
        physics: Physics
        if single is None:
            physics = RigidJobs(agenda, run_s, contiguity, cpu_factors, shared)
        else:
            self._shared = shared
            parts = (single, site, agenda, costs, rng, contiguity, cpu_factors, shared, allocations)
            physics = self._programs = Programs(*parts)
        earlier = 0
        if feedback is not None:
            self._submitted = [nan] * len(specs)
            follow = following(feedback, agenda, site, submit_times, specs, self._submitted)
            watch = together([watch, follow])
            submit_times, specs, earlier = [], [], len(specs)
        self._loop = EventLoop(
            site,
            submit_times,
            specs,
            agenda,
            physics,
            watch=watch,
            tick=tick,
            keep_allocations=allocations and single is None,
            keep_estimates=estimates,
            earlier=earlier,
        )

    @property
    def answers(self) -> list[Reserve | Refuse]:
        """Answers to the requests for advance reservations so far."""
        return self._loop.answers

    def run(self) -> Schedule:
        """Run to the end of the last job that can run."""
        self._loop.run()
        jobs = self._jobs
        if self._submitted is not None:
            at = np.array(self._submitted)
            submitted = np.where(np.isnan(at), jobs.submitted, at)
            jobs = msgspec.structs.replace(jobs, submitted=submitted)
        schedule = _schedule_of(self._loop, jobs)
        if self._programs is not None:
            schedule = _with_programs(schedule, self._programs)
        if self._shared is not None:
            computed = _computed(schedule, self._shared.times)
            schedule = msgspec.structs.replace(schedule, computed=computed)
        return schedule


def _shared_iterations(
    sharing: Sharing | None, agenda: Agenda, specs: Sequence[JobSpec]
) -> SharedIterations | None:
    """What moves the ends of jobs on shared nodes; None: no nodes are shared."""
    if sharing is None:
        return None
    demands = sharing.demands([spec.shared for spec in specs])
    return SharedIterations(agenda, demands, sharing.nodes())


def together(watches: Sequence[Watch | None]) -> Watch | None:
    """Watch that calls others, of which some may be missing."""
    called = [watch for watch in watches if watch is not None]
    if len(called) < 2:
        return called[0] if called else None

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        for each in called:
            each(now, events, orders)

    return watch


def following(
    feedback: Sequence[tuple[int, float]],
    agenda: Agenda,
    site: Driven,
    submit_times: Sequence[float],
    specs: Sequence[JobSpec],
    submitted: list[float],
) -> Watch:
    """Submit jobs, those that follow others when these have ended.

    Parameters
    ----------
    submit_times : of the jobs that follow no other one, seconds; these are submitted now.
    submitted : gets the time of each submission, seconds.

    Returns
    -------
    a watch that enters the submissions of the others into the agenda
    """
    followers: dict[int, list[int]] = {}

    def submit(number: int, at: float) -> None:
        submitted[number - 1] = at
        agenda.add(JobSubmitted(at, number, specs[number - 1]))

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        for event in events:
            if isinstance(event, JobEnded):
                job = site.jobs.get(event.job)
                if job is None or job.state in FINAL:  # a redirected one will start again
                    for number in followers.pop(event.job, ()):
                        submit(number, event.at + feedback[number - 1][1])

    for number, (before, _) in enumerate(feedback, 1):
        if before:
            followers.setdefault(before, []).append(number)
        else:
            submit(number, submit_times[number - 1])
    return watch


def check_conservation(schedule: Schedule) -> None:
    """Check that the jobs together held no more than the machine has, which keeps its size.

    Raises
    ------
    ReshapeError : they did.
    """
    ran = schedule.ran
    if not ran.any():
        return
    began = float(schedule.started[ran].min())
    began = min([began, *(start for _, start, _ in schedule.redirected)])
    there_s = schedule.processors * (float(schedule.ended[ran].max()) - began)
    if schedule.all_held_s > there_s * (1 + ROUNDING):
        raise ReshapeError(
            f"the jobs held {schedule.all_held_s:g} processor-seconds while the"
            f" {schedule.processors} processors of the machine have {there_s:g}: {CONSERVED}"
        )


def _schedule_of(loop: EventLoop, jobs: TraceJobs) -> Schedule:
    """Schedule of rigid jobs that a loop has run."""
    started = np.fromiter(loop.started, np.float64, len(loop.started))
    killed = jobs.cut.copy()
    killed[[number - 1 for number in loop.killed]] = True
    estimates = np.where(np.isnan(started), np.nan, jobs.estimate)
    return Schedule(
        jobs,
        loop.site.machine.processors,
        started,
        np.fromiter(loop.ended, np.float64, len(loop.ended)),
        killed,
        loop.allocated,
        loop.redirected,
        _with_redirected(loop, jobs) if loop.redirected else None,
        first_estimates=(
            estimates if loop.first_estimates is None else np.array(loop.first_estimates)
        ),
    )


def _with_redirected(loop: EventLoop, jobs: TraceJobs) -> Mapping[int, Sizes]:
    """Sizes of rigid jobs over time, with the runs that were ended to start again."""
    sizes: dict[int, list[tuple[float, int]]] = {}
    processors = jobs.processors.tolist()
    for number, start, end in loop.redirected:
        sizes.setdefault(number, []).extend([(start, processors[number - 1]), (end, 0)])
    for number, start in enumerate(loop.started, 1):
        if not isnan(start):
            sizes.setdefault(number, []).append((start, processors[number - 1]))
    return sizes


def _with_programs(schedule: Schedule, programs: Programs) -> Schedule:
    """The same with what single jobs held over time."""
    allocated = schedule.allocated
    if programs.places is not None:  # at the last start of each job
        started = schedule.started.tolist()
        allocated = {
            number: next(held for at, held in kept if held and at >= started[number - 1])
            for number, kept in programs.places.items()
            if not isnan(started[number - 1])  # redirected, and never started again
        }
    return msgspec.structs.replace(
        schedule,
        allocated=allocated,
        sizes=programs.sizes,
        held=programs.held,
        held_s=programs.held_s,
        places=programs.places,
    )


def _computed(schedule: Schedule, times: Mapping[int, tuple[float, float]]) -> NDArray[np.float64]:
    """Times of the jobs that ran to their ends; see `Schedule`."""
    table = np.full((len(schedule.killed), 2), np.nan)
    for number, own in times.items():
        if not schedule.killed[number - 1]:
            table[number - 1] = own
    return table
