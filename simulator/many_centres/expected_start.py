"""The expected start of one job in a partition: the shortest way to a quote.

The same code runs forward by the same loop as in a forecast, with expected run times and without
later arrivals, but only until the job starts. It is a copy made directly from the jobs, not from an
encoded record. GUIM 8.5.1 reads the start from a reservation table; for FCFS and EASY both give the
same time. If the queue is empty, the start follows from the expected releases. If the partition
predicts run times, the job is expected to run as long as it would predict at its submission; the
copy takes the estimates of the other jobs as they are and needs no predictor.
"""

from __future__ import annotations

from math import inf, isnan
from operator import attrgetter

import msgspec

from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import EventLoop
from scheduler.forecasts.expected_jobs import ExpectedJobs
from scheduler.model.events import JobSpec, Wakeup
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.partition.eligibility import Awaited
from scheduler.partition.partition import Partition
from scheduler.predictions.estimates import UserEstimates
from scheduler.state.scheduler_state import SchedulerState


def expected_start(partition: Partition, now: float, spec: JobSpec, latest: float = inf) -> float:
    """Time at which a job would start if it was submitted now, s.

    Parameters
    ----------
    partition : has rigid jobs on counted processors, without further resources. It does not change.
    now : present time, s; at or after that of the partition.
    latest : the run ends at this time, s.

    Returns
    -------
    inf if the job does not start by `latest`.
    """
    state = partition.state
    if spec.processors > state.machine.installed:
        return inf
    if not state.queue.jobs:
        at, _ = state.releases.shadow(now, state.machine.free_count, spec.processors)
        return at if at <= latest else inf
    if partition.predictor is not None:
        expected_s = partition.predictor.predict(Job(0, spec, now))
        spec = msgspec.structs.replace(spec, walltime_s=expected_s)
    copy, _ = _copied(partition, now)
    count = len(copy.state.jobs)
    agenda = Agenda()
    jobs = ExpectedJobs(copy, agenda, {})
    loop = EventLoop(copy, [now], [spec], agenda, jobs, earlier=count)
    loop.run(latest, awaited=[count + 1])
    start = loop.started[count]
    return inf if isnan(start) else start


def expected_start_of(partition: Partition, now: float, job: int) -> float:
    """Time at which a queued job is expected to start, s; inf if it never does.

    Parameters
    ----------
    partition, now : see `expected_start`.
    """
    copy, numbers = _copied(partition, now)
    agenda = Agenda()
    agenda.add(Wakeup(now))
    jobs = ExpectedJobs(copy, agenda, {})
    loop = EventLoop(copy, [], [], agenda, jobs, earlier=len(numbers))
    loop.run(awaited=[numbers[job]])
    start = loop.started[numbers[job] - 1]
    return inf if isnan(start) else start


def _copied(partition: Partition, now: float) -> tuple[Partition, dict[int, int]]:
    """Copy a partition; its jobs are numbered from 1, in the same order.

    Returns
    -------
    the copy, and the new number of each job
    """
    state = partition.state
    machine = Machine([("machine", state.machine.processors)], counted=True)
    scenario = partition.scenario
    if partition.predictor is not None:
        scenario = msgspec.structs.replace(scenario, estimates=UserEstimates())
    order = partition.order
    copy = Partition("", scenario, machine, {}, Awaited(), kill_at_walltime=False, order=order)
    into = copy.state
    live = [state.jobs[number] for number in state.live]
    queued = list(state.queue.jobs.values())
    numbers = {job.id: i for i, job in enumerate(sorted(live + queued, key=attrgetter("id")), 1)}
    for job in live:
        _start(into, _renumbered(job, numbers[job.id]), job.started_at or 0.0)
    into.now = now
    into.queue.sorted_at = state.queue.sorted_at
    for job in queued:
        copy.queueing.admit(_added(into, _renumbered(job, numbers[job.id])))
    for number, at in state.reservations.items():
        into.reservations[numbers[number]] = at
    return copy, numbers


def _renumbered(job: Job, number: int) -> Job:
    copy = Job(number, job.spec, job.submitted_at)
    copy.queued_at = job.queued_at
    copy.estimate_s = job.estimate_s
    copy.backfilled = job.backfilled
    return copy


def _added(state: SchedulerState, job: Job) -> Job:
    state.jobs[job.id] = job
    return job


def _start(state: SchedulerState, job: Job, at: float) -> None:
    """Let a job hold processors since a time in the past, s."""
    _added(state, job)
    state.now = at
    job.demand = job.processors
    processors = state.machine.allocate(state.selection, job.processors)
    assert processors is not None
    state.grant(job, processors, job.processors)
